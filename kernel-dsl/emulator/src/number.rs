//! Number formats: exact decoding to f64, encoding with every rounding that PTX has.

/// What a format's largest exponent means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Specials {
    /// Infinities and NaN.
    Ieee,
    /// NaN alone, where every bit but the sign is set.
    NanOnly,
    /// Neither.
    Finite,
}

/// A signed binary floating-point format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) exponent: u32,
    pub(crate) mantissa: u32,
    pub(crate) bias: i32,
    pub(crate) specials: Specials,
}

const fn ieee(exponent: u32, mantissa: u32) -> Format {
    let bias = (1 << (exponent - 1)) - 1;
    Format { exponent, mantissa, bias, specials: Specials::Ieee }
}

const fn special(exponent: u32, mantissa: u32, specials: Specials) -> Format {
    Format { specials, ..ieee(exponent, mantissa) }
}

pub(crate) const F64: Format = ieee(11, 52);
pub(crate) const F32: Format = ieee(8, 23);
pub(crate) const TF32: Format = ieee(8, 10);
pub(crate) const F16: Format = ieee(5, 10);
pub(crate) const BF16: Format = ieee(8, 7);
pub(crate) const E5M2: Format = ieee(5, 2);
pub(crate) const E4M3: Format = special(4, 3, Specials::NanOnly);
pub(crate) const E2M1: Format = special(2, 1, Specials::Finite);
pub(crate) const E2M3: Format = special(2, 3, Specials::Finite);
pub(crate) const E3M2: Format = special(3, 2, Specials::Finite);

/// How a value that a format cannot hold is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Round {
    /// To nearest, ties to even.
    Nearest,
    /// To nearest, ties away from zero.
    Away,
    Zero,
    Down,
    Up,
}

impl Format {
    pub(crate) fn bits(self) -> u32 {
        1 + self.exponent + self.mantissa
    }

    fn sign_bit(self) -> u64 {
        1 << (self.bits() - 1)
    }

    /// The bits of the exponent.
    pub(crate) fn exponent_mask(self) -> u64 {
        ((1 << self.exponent) - 1) << self.mantissa
    }

    /// The NaN that hardware makes; a format without one gives its largest number.
    pub(crate) fn nan(self) -> u64 {
        self.sign_bit() - 1
    }

    fn infinity(self) -> u64 {
        match self.specials {
            Specials::Ieee => ((1 << self.exponent) - 1) << self.mantissa,
            Specials::NanOnly | Specials::Finite => self.nan(),
        }
    }

    /// The largest finite number.
    pub(crate) fn largest(self) -> u64 {
        match self.specials {
            Specials::Ieee | Specials::NanOnly => self.infinity() - 1,
            Specials::Finite => self.nan(),
        }
    }

    /// The value of a code.
    pub(crate) fn decode(self, code: u64) -> f64 {
        if self == F32 {
            return f64::from(f32_of(code));
        }
        let magnitude = code & (self.sign_bit() - 1);
        let sign = if code & self.sign_bit() == 0 { 1.0 } else { -1.0 };
        if self.specials != Specials::Finite && magnitude >= self.infinity() {
            let infinite = self.specials == Specials::Ieee && magnitude == self.infinity();
            return if infinite { sign * f64::INFINITY } else { f64::NAN };
        }
        // With the exponent's field where an f64 has its own, subnormal codes are right, too.
        sign * f64::from_bits(magnitude << (52 - self.mantissa)) * power(1023 - self.bias)
    }

    /// The code of a value. `saturate` keeps what is too large, infinities too, finite.
    pub(crate) fn encode(self, value: f64, round: Round, saturate: bool) -> u64 {
        if value.is_nan() {
            return self.nan();
        }
        let sign = if value.is_sign_negative() { self.sign_bit() } else { 0 };
        if value.is_infinite() {
            let kept = saturate || self.specials == Specials::Finite;
            return sign | if kept { self.largest() } else { self.infinity() };
        }
        let (significand, exponent) = split(value);
        if significand == 0 {
            return sign;
        }
        // An f64 has more bits than any other format, so some are dropped, and 64 suffice.
        let top = exponent + 63 - significand.leading_zeros() as i32;
        let scale = top.max(1 - self.bias);
        let drop = scale - self.mantissa as i32 - exponent;
        let (kept, rest) = match drop {
            1..=63 => {
                let low = significand & ((1 << drop) - 1);
                (significand >> drop, Rest::of(u128::from(low), 1 << (drop - 1)))
            }
            64.. => (0, Rest::Below),
            _ => (significand << -drop, Rest::Exact),
        };
        self.finish((sign, scale), kept, rest, (round, saturate))
    }

    /// The code of `significand * 2^exponent`.
    pub(crate) fn encode_parts(
        self,
        negative: bool,
        significand: u128,
        exponent: i32,
        (round, saturate): (Round, bool),
    ) -> u64 {
        let sign = if negative { self.sign_bit() } else { 0 };
        if significand == 0 {
            return sign;
        }
        let top = exponent + 127 - significand.leading_zeros() as i32;
        let scale = top.max(1 - self.bias);
        let drop = scale - self.mantissa as i32 - exponent;
        let (kept, rest) = match drop {
            ..=0 => ((significand << -drop) as u64, Rest::Exact),
            1..=127 => {
                let low = significand & ((1 << drop) - 1);
                ((significand >> drop) as u64, Rest::of(low, 1 << (drop - 1)))
            }
            _ => (0, Rest::Below),
        };
        self.finish((sign, scale), kept, rest, (round, saturate))
    }

    /// Rounds what was kept of a significand whose unit is the last place at `scale`.
    fn finish(
        self,
        (sign, scale): (u64, i32),
        kept: u64,
        rest: Rest,
        (round, saturate): (Round, bool),
    ) -> u64 {
        let negative = sign != 0;
        let kept = kept + u64::from(rounds_up(round, negative, kept & 1 == 1, rest));
        let code = (((scale - (1 - self.bias)) as u64) << self.mantissa) + kept;
        if code <= self.largest() {
            return sign | code;
        }
        let outwards = match round {
            Round::Nearest | Round::Away => true,
            Round::Zero => false,
            Round::Down => negative,
            Round::Up => !negative,
        };
        sign | if saturate || !outwards { self.largest() } else { self.infinity() }
    }
}

/// What rounding drops, compared with half a unit.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Exact,
    Below,
    Half,
    Above,
}

impl Rest {
    fn of(low: u128, half: u128) -> Rest {
        match low.cmp(&half) {
            _ if low == 0 => Rest::Exact,
            std::cmp::Ordering::Less => Rest::Below,
            std::cmp::Ordering::Equal => Rest::Half,
            std::cmp::Ordering::Greater => Rest::Above,
        }
    }
}

fn rounds_up(round: Round, negative: bool, odd: bool, rest: Rest) -> bool {
    match round {
        Round::Nearest => rest == Rest::Above || (rest == Rest::Half && odd),
        Round::Away => matches!(rest, Rest::Above | Rest::Half),
        Round::Zero => false,
        Round::Down => negative && rest != Rest::Exact,
        Round::Up => !negative && rest != Rest::Exact,
    }
}

/// A finite value as an integer and a power of two.
pub(crate) fn split(value: f64) -> (u64, i32) {
    let bits = value.to_bits();
    let fraction = bits & ((1 << 52) - 1);
    match (bits >> 52) & 0x7ff {
        0 => (fraction, -1074),
        field => (fraction | (1 << 52), field as i32 - 1075),
    }
}

/// Two to an integer power, subnormal ones included.
pub(crate) fn power(exponent: i32) -> f64 {
    match exponent {
        ..=-1075 => 0.0,
        -1074..=-1023 => f64::from_bits(1 << (exponent + 1074)),
        -1022..=1023 => f64::from_bits(((exponent + 1023) as u64) << 52),
        _ => f64::INFINITY,
    }
}

/// The sum of two numbers, rounded to odd: what is inexact gets an odd last bit, so that a second
/// rounding to a format with at least two bits less is the rounding of the exact sum.
pub(crate) fn add_odd(a: f64, b: f64) -> f64 {
    let sum = a + b;
    if !sum.is_finite() {
        return sum;
    }
    let from_b = sum - a;
    let error = (a - (sum - from_b)) + (b - from_b);
    if error == 0.0 || sum.to_bits() & 1 == 1 {
        return sum;
    }
    let outwards = (error > 0.0) == (sum > 0.0);
    f64::from_bits(if outwards { sum.to_bits() + 1 } else { sum.to_bits() - 1 })
}

/// An f32 from its bits.
pub(crate) fn f32_of(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// The bits of an f32, with hardware's one NaN.
pub(crate) fn bits_of(value: f32) -> u64 {
    if value.is_nan() { 0x7fff_ffff } else { u64::from(value.to_bits()) }
}

/// A subnormal f32 becomes zero of its sign.
pub(crate) fn flush(value: f32) -> f32 {
    if value.is_subnormal() { f32::from_bits(value.to_bits() & 0x8000_0000) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f32_rounds_as_the_host_does() {
        let mut state = 1u64;
        for _ in 0..200_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let exponent = 1023 - 160 + (state >> 40) % 300;
            let value = f64::from_bits((state & 0x800f_ffff_ffff_ffff) | exponent << 52);
            let want = u64::from((value as f32).to_bits());
            assert_eq!(F32.encode(value, Round::Nearest, false), want, "{value:e}");
            assert_eq!(F32.decode(want), f64::from(value as f32));
        }
    }

    #[test]
    fn every_code_comes_back() {
        for format in [F16, BF16, E5M2, E4M3, E2M1, E2M3, E3M2] {
            for code in 0..1 << format.bits() {
                let value = format.decode(code);
                if value.is_nan() {
                    continue;
                }
                for round in [Round::Nearest, Round::Zero, Round::Down, Round::Up, Round::Away] {
                    assert_eq!(format.encode(value, round, false), code, "{format:?} {value}");
                }
            }
        }
    }

    #[test]
    fn roundings_differ_where_they_should() {
        let at = |round| E4M3.encode(1.03, round, true);
        assert_eq!([Round::Nearest, Round::Zero, Round::Up].map(at), [0x38, 0x38, 0x39]);
        assert_eq!(E4M3.encode(-1.03, Round::Down, true), 0xb9);
        assert_eq!(E4M3.encode(1.0625, Round::Nearest, true), 0x38);
        assert_eq!(E4M3.encode(1.0625, Round::Away, true), 0x39);
        assert_eq!(E4M3.encode(1e9, Round::Nearest, true), 0x7e);
        assert_eq!(E4M3.encode(f64::INFINITY, Round::Nearest, true), 0x7e);
        assert_eq!(F16.encode(65520.0, Round::Nearest, false), 0x7c00);
        assert_eq!(F16.encode(65520.0, Round::Zero, false), 0x7bff);
    }

    #[test]
    fn odd_rounding_keeps_what_a_second_rounding_needs() {
        let tiny = power(-60);
        assert!(add_odd(1.0, tiny) > 1.0 && add_odd(1.0, -tiny) < 1.0);
        assert_eq!(add_odd(1.5, 2.25), 3.75);
    }
}
