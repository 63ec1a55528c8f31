//! The f64 rule of each element: the textbook formula, written to be read. Tests and tools judge
//! the fast paths by it; nothing that serves calls it.

use super::{Element, Float, Kind};

/// Binary32, for the same formula as the small floats.
const BINARY32: Float = Float {
    exp: 8,
    man: 23,
    bias: 127,
    inf: Some(0x7f80_0000),
    nan: Some(0x7fc0_0000),
    max: 0x7f7f_ffff,
};

impl Element {
    /// The value a code stands for, by the definition of the element.
    ///
    /// For an integer `code - bias`. For a float `(-1)^s * 2^(e - bias) * (1 + m / 2^man)`, or
    /// `(-1)^s * 2^(1 - bias) * m / 2^man` where the exponent field `e` is 0; the codes above the
    /// largest finite one are infinity, where that has a code, and NaN.
    pub fn rule(self, code: u32) -> f64 {
        let float = match self.kind {
            Kind::Int { bias } => return f64::from(code) - f64::from(bias),
            Kind::F32 => BINARY32,
            Kind::Float(float) => float,
        };
        let sign = if code >> (float.exp + float.man) == 0 { 1.0 } else { -1.0 };
        let exponent = code >> float.man & ((1 << float.exp) - 1);
        let mantissa = code & ((1 << float.man) - 1);
        let magnitude = exponent << float.man | mantissa;
        let fraction = f64::from(mantissa) / f64::from(1u32 << float.man);
        let bias = f64::from(float.bias);
        if float.inf == Some(magnitude) {
            sign * f64::INFINITY
        } else if magnitude > float.max {
            f64::NAN
        } else if exponent == 0 {
            sign * (1.0 - bias).exp2() * fraction
        } else {
            sign * (f64::from(exponent) - bias).exp2() * (1.0 + fraction)
        }
    }
}
