//! A paged cache in host memory, and the codec of its elements.

use crate::formats::{Element, KvFormat};
use crate::launch::CacheSpec;

/// A cache that is read.
#[derive(Debug, Clone, Copy)]
pub struct CacheView<'a> {
    /// Format and extents.
    pub spec: CacheSpec,
    /// Codes, `[num_layers][num_pages, page_size, entry]`.
    pub data: &'a [u8],
    /// `k_scale` by layer and page, `[num_layers][num_pages]`.
    pub scales: &'a [f32],
}

/// A cache that is written.
#[derive(Debug)]
pub struct CacheViewMut<'a> {
    /// Format and extents.
    pub spec: CacheSpec,
    /// Codes, `[num_layers][num_pages, page_size, entry]`.
    pub data: &'a mut [u8],
    /// `k_scale` by layer and page, `[num_layers][num_pages]`.
    pub scales: &'a [f32],
}

impl CacheView<'_> {
    /// `k_scale` of `page` in `layer`.
    pub fn scale(&self, layer: usize, page: usize) -> f32 {
        self.scales[layer * self.spec.num_pages + page]
    }

    /// Codes of one token in one layer.
    pub fn codes(&self, layer: usize, slot: usize) -> &[u8] {
        &self.data[self.spec.slot_offset(layer, slot)..][..self.spec.entry_bytes()]
    }

    /// Real values of one token in one layer, `[entry]`.
    pub fn decode(&self, decoder: &KvDecoder, layer: usize, slot: usize, out: &mut [f32]) {
        let scale = self.scale(layer, slot / self.spec.page_size);
        decoder.decode(self.codes(layer, slot), scale, out);
    }
}

/// Decodes cached elements.
#[derive(Debug)]
pub struct KvDecoder {
    element: Element,
    /// Value of each code of eight-bit elements; empty for others.
    table: Vec<f32>,
}

impl KvDecoder {
    /// The decoder of a format.
    pub fn new(format: &KvFormat) -> Self {
        let element = format.element;
        let codes = if element.bits() == 8 { 256 } else { 0 };
        Self { element, table: (0..codes).map(|code| element.decode(code)).collect() }
    }

    /// `out = stored * k_scale`.
    pub fn decode(&self, codes: &[u8], k_scale: f32, out: &mut [f32]) {
        match self.element.bits() {
            8 => {
                for (out, &code) in out.iter_mut().zip(codes) {
                    *out = self.table[usize::from(code)] * k_scale;
                }
            }
            16 => {
                for (out, code) in out.iter_mut().zip(codes.chunks_exact(2)) {
                    let code = u16::from_le_bytes([code[0], code[1]]);
                    *out = self.element.decode(u32::from(code)) * k_scale;
                }
            }
            32 => {
                for (out, code) in out.iter_mut().zip(codes.chunks_exact(4)) {
                    let code = u32::from_le_bytes([code[0], code[1], code[2], code[3]]);
                    *out = self.element.decode(code) * k_scale;
                }
            }
            bits => unreachable!("no cache format has elements of {bits} bits"),
        }
    }
}

/// Encodes `real / k_scale` into `codes` and returns how many elements were clamped.
///
/// # Panics
/// If `codes` is not as long as the values take.
pub fn encode(element: Element, values: &[f32], k_scale: f32, codes: &mut [u8]) -> u32 {
    let bytes = element.bits() / 8;
    assert_eq!(codes.len(), values.len() * bytes, "codes of {} values", values.len());
    let max = element.max();
    let mut saturated = 0;
    for (codes, value) in codes.chunks_exact_mut(bytes).zip(values) {
        let stored = value / k_scale;
        saturated += u32::from(stored.abs() > max);
        codes.copy_from_slice(&element.encode(stored).to_le_bytes()[..bytes]);
    }
    saturated
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::kv_format;

    #[test]
    fn offsets_pass_two_to_the_31() {
        let format = kv_format("fp8_e4m3").unwrap();
        let spec =
            CacheSpec { format, num_layers: 61, num_pages: 60_000, page_size: 64, entry: 576 };
        assert_eq!(spec.slot_offset(0, 3_728_270), 2_147_483_520);
        assert_eq!(spec.slot_offset(0, 3_728_271), 2_147_484_096);
        assert_eq!(spec.slot_offset(60, 3_800_000), 60 * 3_840_000 * 576 + 2_188_800_000);
        assert_eq!(spec.num_bytes(), Some(61 * 3_840_000 * 576));
        let absurd = CacheSpec { num_pages: usize::MAX / 64, ..spec };
        assert_eq!(absurd.num_bytes(), None);
    }

    #[test]
    fn saturation_is_counted() {
        let mut codes = [0; 5];
        let values = [448.0, 449.0, -1000.0, f32::INFINITY, 2.0];
        assert_eq!(encode(Element::F8E4M3, &values, 1.0, &mut codes), 3);
        assert_eq!(codes, [0x7e, 0x7e, 0xfe, 0x7e, 0x40]);
    }
}
