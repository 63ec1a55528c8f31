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

super::rows::kv_rows! { ($)
    "f32": F32, scaled = false;
    "bf16": Bf16, scaled = false;
    "f16": F16, scaled = false;
    "fp8_e4m3": E4M3, scaled = true;
    "fp8_e5m2": E5M2, scaled = true;
}

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
    fn the_list_of_types_is_the_list_of_formats() {
        let mut elements = Vec::new();
        kv_formats! { |KV| elements.push(<KV as tessera_kernel_dsl::Stored>::ELEMENT) }
        assert!(elements.into_iter().eq(KV_FORMATS.iter().map(|format| format.element)));
    }

    #[test]
    fn every_kv_format_can_hold_nan_and_fills_bytes() {
        for (i, format) in KV_FORMATS.iter().enumerate() {
            assert!(format.element.has_nan(), "{}", format.name);
            assert_eq!(format.element_bytes() * 8, format.element.bits(), "{}", format.name);
            assert_eq!(KV_FORMATS.iter().position(|f| f.name == format.name), Some(i));
        }
    }
}
