//! KV-cache formats: an element, and whether it needs a scale.

use super::Element;

/// How cached latents are stored: `real = stored * k_scale`, one scale per layer and page.
///
/// The policy on rounding, saturation and NaN is the element's, the same as for weights. A writer
/// counts what saturates; NaN keeps its NaN code and so reaches the logits, where it is an error of
/// that request.
#[derive(Debug, PartialEq)]
pub struct KvFormat {
    /// Name on the command line and in metrics.
    pub name: &'static str,
    /// Stored element; always one that [`Element::has_nan`], at least a byte wide.
    pub element: Element,
    /// Whether values need a scale to fit; if not, every `k_scale` is 1.
    pub scaled: bool,
}

/// Every KV-cache format.
pub const KV_FORMATS: &[KvFormat] = &[
    KvFormat { name: "f32", element: Element::F32, scaled: false },
    KvFormat { name: "bf16", element: Element::Bf16, scaled: false },
    KvFormat { name: "f16", element: Element::F16, scaled: false },
    KvFormat { name: "fp8_e4m3", element: Element::F8E4M3, scaled: true },
    KvFormat { name: "fp8_e5m2", element: Element::F8E5M2, scaled: true },
];

/// The KV-cache format of that name.
pub fn kv_format(name: &str) -> Option<&'static KvFormat> {
    KV_FORMATS.iter().find(|f| f.name == name)
}

impl KvFormat {
    /// Bytes of one cached element.
    pub const fn element_bytes(&self) -> usize {
        self.element.bits() / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kv_format_can_hold_nan_and_fills_bytes() {
        for (i, format) in KV_FORMATS.iter().enumerate() {
            assert!(format.element.has_nan(), "{}", format.name);
            assert_eq!(format.element_bytes() * 8, format.element.bits(), "{}", format.name);
            assert_eq!(KV_FORMATS.iter().position(|f| f.name == format.name), Some(i));
        }
    }
}
