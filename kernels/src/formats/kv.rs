//! KV-cache formats: an element, and whether it needs a scale.

use super::Element;

/// How cached latents are stored: `real = stored * k_scale`, one scale per layer and page.
#[derive(Debug, PartialEq)]
pub struct KvFormat {
    /// Name on the command line and in metrics.
    pub name: &'static str,
    /// Stored element.
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
