//! Number formats against tables made outside this repository's code, by
//! `tests/fixtures/formats/make.py`.

mod bits;
mod elements;
mod packing;
mod quantizer;
mod tolerance;

use tessera_kernels::formats::{Element, FORMATS, Format, KV_FORMATS};

/// Every weight format and, after them, the formats that activations take to meet them.
fn all_formats() -> Vec<&'static Format> {
    let mut all = FORMATS.to_vec();
    for format in FORMATS.iter().map(|format| format.activation()) {
        if !all.contains(&format) {
            all.push(format);
        }
    }
    all
}

/// Every element that a format of weights, activations or the cache stores.
fn all_elements() -> Vec<Element> {
    let mut all = Vec::new();
    let weights = all_formats().into_iter().map(|format| format.element);
    for element in weights.chain(KV_FORMATS.iter().map(|format| format.element)) {
        if !all.contains(&element) {
            all.push(element);
        }
    }
    all
}

/// The small floats among them: whole tables of their codecs are fixtures.
fn small_floats() -> impl Iterator<Item = Element> {
    let float = |element: &Element| element.bits() <= 8 && element.int_bias().is_none();
    all_elements().into_iter().filter(float)
}

/// A fixture file.
fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/../tests/fixtures/formats/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A fixture file of u32.
fn fixture_u32(name: &str) -> Vec<u32> {
    let bytes = fixture(name);
    bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
}

/// FNV-1a, as the script that made the fixtures computes it.
fn fnv(bytes: impl IntoIterator<Item = u8>) -> [u8; 8] {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, step).to_le_bytes()
}

/// The weight that the quantizer fixtures were made from.
fn weight() -> Vec<f32> {
    let bytes = fixture("weight.bf16");
    let values = bytes.chunks_exact(2);
    values.map(|b| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16)).collect()
}
