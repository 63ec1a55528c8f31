//! Nibble layouts against words that compressed-tensors packed.

use crate::fixture;
use tessera_kernels::formats::packing::nibble_layout;

/// The codes `q + 8`, two a byte, of rows of `cols` integers.
fn codes(integers: &[u8], cols: usize) -> Vec<u8> {
    let code = |q: &u8| q.wrapping_add(8);
    let row =
        |row: &[u8]| row.chunks(2).map(|p| code(&p[0]) | p.get(1).map_or(0, code) << 4).collect();
    integers.chunks(cols).flat_map(|r| -> Vec<u8> { row(r) }).collect()
}

#[test]
fn rows_unpack_to_the_integers_compressed_tensors_packed() {
    let layout = nibble_layout("compressed-tensors").expect("listed");
    for (name, cols) in [("odd", 13), ("even", 24)] {
        let expect = codes(&fixture(&format!("packed_{name}.i8")), cols);
        let words = fixture(&format!("packed_{name}.i32"));
        assert_eq!(layout.codes(&words, 5, cols).unwrap(), expect, "{name}");
        assert_eq!(layout.is_codes(cols), words == expect, "{name}: whether bytes are the same");
        assert_eq!(layout.words(&expect, 5, cols).unwrap(), words, "{name}: packed back");
    }
}

#[test]
fn zero_points_unpack_down_the_columns() {
    let layout = nibble_layout("compressed-tensors").expect("listed");
    let expect: Vec<u8> = fixture("packed_down.i8").iter().map(|q| q.wrapping_add(8)).collect();
    assert_eq!(layout.zero_points(&fixture("packed_down.i32"), 13, 5).unwrap(), expect);
}

#[test]
fn words_of_another_length_are_refused() {
    let layout = nibble_layout("awq").expect("listed");
    let error = layout.codes(&[0; 12], 2, 16).unwrap_err();
    assert_eq!(error.to_string(), "awq: 12 bytes of packed words for [2, 16], needs 16");
    assert!(layout.words(&[0; 15], 2, 16).is_err());
    assert!(layout.zero_points(&[0; 4], 9, 1).is_err());
    assert!(layout.codes(&[], 0, 0).is_err());
}
