//! The f64 rule of each element: the textbook formula, written to be read. Tests and tools judge
//! the fast paths by it; nothing that serves calls it.

use super::Element;

impl Element {
    /// The value a code stands for, by the definition of the element.
    ///
    /// `(-1)^s * 2^(e - bias) * (1 + m / 2^man_bits)`, or `(-1)^s * 2^(1 - bias) * m / 2^man_bits`
    /// where the exponent field `e` is 0. E4M3 spends one code a sign on NaN, E2M1 none; the others
    /// keep the largest exponent for infinity (`m` = 0) and NaN.
    pub fn rule(self, code: u32) -> f64 {
        let (exp_bits, man_bits) = match self {
            Self::I4 => return f64::from(code) - 8.0,
            Self::F32 => (8, 23),
            Self::Bf16 => (8, 7),
            Self::F16 => (5, 10),
            Self::F8E4M3 => (4, 3),
            Self::F8E5M2 => (5, 2),
            Self::F4E2M1 => (2, 1),
        };
        let sign = if code >> (exp_bits + man_bits) == 0 { 1.0 } else { -1.0 };
        let exponent = code >> man_bits & ((1 << exp_bits) - 1);
        let mantissa = code & ((1 << man_bits) - 1);
        let full_exponent = exponent == (1 << exp_bits) - 1;
        let bias = f64::from((1u32 << (exp_bits - 1)) - 1);
        let fraction = f64::from(mantissa) / f64::from(1u32 << man_bits);
        match self {
            Self::F8E4M3 if full_exponent && mantissa == 7 => f64::NAN,
            Self::F8E4M3 | Self::F4E2M1 if full_exponent => {
                sign * (f64::from(exponent) - bias).exp2() * (1.0 + fraction)
            }
            _ if full_exponent && mantissa == 0 => sign * f64::INFINITY,
            _ if full_exponent => f64::NAN,
            _ if exponent == 0 => sign * (1.0 - bias).exp2() * fraction,
            _ => sign * (f64::from(exponent) - bias).exp2() * (1.0 + fraction),
        }
    }
}
