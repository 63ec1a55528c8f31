//! A number format as data: fields from which codecs, rules and generated code all follow.

use super::FloatBits;

/// A stored number, all that tells one from another.
#[derive(Debug)]
#[non_exhaustive]
pub struct NumberFormat {
    /// Name in kernels, manifests, fixtures and generated code.
    pub name: &'static str,
    /// Bits of one code.
    pub bits: usize,
    /// How a code is read.
    pub kind: Kind,
    /// The narrowest of our arithmetic types that holds every value exactly.
    pub exact_in: Exact,
    /// Value of every code of up to 8 bits; empty for wider ones.
    pub(super) values: &'static [f32],
}

/// How a code is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// IEEE binary32 itself.
    F32,
    /// A small float.
    Float(Float),
    /// An integer: `value = code - bias`.
    Int {
        /// The code of zero.
        bias: u32,
    },
}

/// Fields of a small float. Codes are written without their sign bit, which is the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Float {
    /// Bits of the exponent.
    pub exp: u32,
    /// Bits of the mantissa.
    pub man: u32,
    /// What the exponent field has on top of the exponent.
    pub bias: u32,
    /// Code of infinity, if there is one.
    pub inf: Option<u32>,
    /// Code that NaN encodes to, if there is one.
    pub nan: Option<u32>,
    /// Code of the largest finite value; the codes above are infinity or NaN.
    pub max: u32,
}

/// An arithmetic type that holds all values of a number format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the type")]
pub enum Exact {
    F16,
    Bf16,
    F32,
}

impl NumberFormat {
    /// A number format from its fields and the table [`Kind::table`] of its values (empty above 8
    /// bits). [`crate::number_format!`] calls this.
    ///
    /// # Panics
    /// If the fields contradict each other; in a constant, that stops the build.
    pub const fn new(
        name: &'static str,
        bits: usize,
        kind: Kind,
        exact_in: Exact,
        values: &'static [f32],
    ) -> Self {
        assert!(values.len() == table_len(bits), "the table has a value for each code");
        match kind {
            Kind::F32 => assert!(bits == 32, "f32 has 32 bits"),
            Kind::Int { bias } => assert!(bits <= 16 && bias >> bits == 0, "the bias is a code"),
            Kind::Float(float) => {
                assert!(bits <= 16, "wider codes have no codec");
                assert!(
                    1 + float.exp as usize + float.man as usize == bits,
                    "fields fill the code"
                );
                assert!(float.max >> (bits - 1) == 0, "codes are written without the sign");
                assert!(float.bias <= 127, "values lie in the range of f32");
                assert!(
                    float.max >> float.man <= float.bias + 127,
                    "values lie in the range of f32"
                );
            }
        }
        Self { name, bits, kind, exact_in, values }
    }

    /// Codes there are, less one: the bits that matter.
    #[inline]
    pub const fn mask(&self) -> u32 {
        u32::MAX >> (32 - self.bits)
    }

    /// Value of every code, in order; empty for codes of more than 8 bits.
    #[inline]
    pub const fn values(&self) -> &'static [f32] {
        self.values
    }

    /// How vector code reads the codes of a float with shifts and one product; `None` for integers.
    pub const fn float_bits_rule(&self) -> Option<FloatBits> {
        match self.kind {
            Kind::F32 => Some(FloatBits::F32),
            Kind::Float(float) => Some(float.bits_rule()),
            Kind::Int { .. } => None,
        }
    }

    /// The code of zero, for integers.
    pub const fn int_bias(&self) -> Option<u32> {
        match self.kind {
            Kind::Int { bias } => Some(bias),
            Kind::F32 | Kind::Float(_) => None,
        }
    }

    /// The values as small integers times a unit, where codes have at most 4 bits and that is
    /// exact: what an integer dot product multiplies. The sign of zero is lost.
    pub fn small_integers(&self) -> Option<SmallIntegers> {
        if self.bits > 4 {
            return None;
        }
        let unit = self.values.iter().filter(|v| **v > 0.0).copied().fold(f32::INFINITY, f32::min);
        let mut table = [0; 16];
        for (entry, value) in table.iter_mut().zip(self.values) {
            let integer = value / unit;
            if integer.fract() != 0.0 || integer.abs() > 127.0 {
                return None;
            }
            #[expect(clippy::cast_possible_truncation, reason = "a whole number of an i8's range")]
            let integer = integer as i8;
            *entry = integer;
        }
        Some(SmallIntegers { table, unit })
    }
}

/// `value(code) = unit * table[code]`; entries past the last code are 0.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the formula is the doc")]
pub struct SmallIntegers {
    pub table: [i8; 16],
    pub unit: f32,
}

/// Length of the table of values of codes of `bits` bits.
pub const fn table_len(bits: usize) -> usize {
    if bits <= 8 { 1 << bits } else { 0 }
}

impl Kind {
    /// The value a code stands for; higher bits of `code` must be zero.
    #[inline]
    pub const fn decode(&self, code: u32) -> f32 {
        match self {
            Self::F32 => f32::from_bits(code),
            // The upper part of an f32.
            Self::Float(float) if float.is_carried() => {
                f32::from_bits(code << (31 - float.sign_shift()))
            }
            Self::Float(float) => float.bits_rule().decode(code),
            // Exact: both are below 2^16.
            Self::Int { bias } => code as f32 - *bias as f32,
        }
    }

    /// Value of every code, in order.
    pub const fn table<const N: usize>(&self) -> [f32; N] {
        let mut values = [0.0; N];
        let mut code = 0;
        while code < N {
            #[expect(clippy::cast_possible_truncation, reason = "N is at most 256")]
            let small = code as u32;
            values[code] = self.decode(small);
            code += 1;
        }
        values
    }
}

impl Float {
    /// Whether exponents, infinity and NaN are those of f32.
    pub(super) const fn is_carried(&self) -> bool {
        self.exp == 8 && self.bias == 127 && self.inf.is_some()
    }

    /// Place of the sign bit.
    pub const fn sign_shift(&self) -> u32 {
        self.exp + self.man
    }

    /// The code of the nearest value, half to even, saturating. NaN becomes zero where the element
    /// has no NaN.
    #[inline]
    pub(super) fn encode(&self, value: f32) -> u32 {
        let bits = value.to_bits();
        let sign = (bits >> 31) << self.sign_shift();
        let bits = bits & 0x7fff_ffff;
        if bits > 0x7f80_0000 {
            return self.nan.map_or(0, |nan| nan | sign);
        }
        let shift = 23 - self.man;
        let min_normal = (128 - self.bias) << 23;
        let magnitude = if bits >= min_normal {
            let rounded = bits + (1 << (shift - 1)) - 1 + (bits >> shift & 1);
            (rounded >> shift) - ((127 - self.bias) << self.man)
        } else {
            // In units of the quantum, plus 2^52: an f64 that large has its last bit at 1, so the
            // addition rounds half to even to whole quanta and leaves their count in the low bits.
            let scale = u64::from(1023 + self.bias + self.man - 1);
            let quanta = f64::from(f32::from_bits(bits)) * f64::from_bits(scale << 52)
                + f64::from_bits(0x4330 << 48);
            low_half(quanta.to_bits())
        };
        magnitude.min(self.max) | sign
    }
}

#[expect(clippy::cast_possible_truncation, reason = "keeps the low half on purpose")]
const fn low_half(bits: u64) -> u32 {
    bits as u32
}

/// A [`NumberFormat`] from the text that declares it; the kernel language's macro of the same name
/// makes the type for it, too.
///
/// ```
/// use tessera_tile_ir::{format::NumberFormat, number_format};
/// const E3M2: NumberFormat = number_format! { "e3m2": 6 bits {
///     float(exp = 3, man = 2, bias = 3, inf = none, nan = none, max = 0x1f), exact_in = f16
/// } };
/// assert_eq!(E3M2.values()[0x1f], 28.0);
/// ```
#[macro_export]
macro_rules! number_format {
    ($name:literal: $bits:literal bits { $kind:ident $(($($field:ident = $value:tt),*))?,
     exact_in = $exact:ident $(,)? }) => {{
        const KIND: $crate::format::Kind = $crate::number_format!(@$kind $($($field $value)*)?);
        const VALUES: [f32; $crate::format::table_len($bits)] = KIND.table();
        let exact = $crate::number_format!(@exact $exact);
        $crate::format::NumberFormat::new($name, $bits, KIND, exact, &VALUES)
    }};
    (@f32) => { $crate::format::Kind::F32 };
    (@int bias $bias:tt) => { $crate::format::Kind::Int { bias: $bias } };
    (@float exp $exp:tt man $man:tt bias $bias:tt inf $inf:tt nan $nan:tt max $max:tt) => {
        $crate::format::Kind::Float($crate::format::Float {
            exp: $exp,
            man: $man,
            bias: $bias,
            inf: $crate::number_format!(@code $inf),
            nan: $crate::number_format!(@code $nan),
            max: $max,
        })
    };
    (@code none) => { None };
    (@code $code:tt) => { Some($code) };
    (@exact f16) => { $crate::format::Exact::F16 };
    (@exact bf16) => { $crate::format::Exact::Bf16 };
    (@exact f32) => { $crate::format::Exact::F32 };
}
