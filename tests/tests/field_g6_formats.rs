//! Field cases on number formats: constants from reports of other engines, worked out by hand.

use bytes::Bytes;
use tessera_kernels::formats::packing::{NIBBLE_LAYOUTS, nibble_layout};
use tessera_kernels::formats::{
    Element, FORMATS, Format, KV_FORMATS, MatrixError, PackedMatrix, Parts, TensorScaleKind,
    format, kv_format,
};

fn named(name: &str) -> &'static Format {
    format(name).unwrap_or_else(|| panic!("no format {name}"))
}

/// Value and E4M3 byte: saturating, round half to even.
const E4M3_TABLE: [(f32, u8); 17] = [
    (448.0, 0x7e),
    (464.0, 0x7e),
    (1000.0, 0x7e),
    (-1000.0, 0xfe),
    (f32::INFINITY, 0x7e),
    (256.0, 0x78),
    (272.0, 0x78),
    (288.0, 0x79),
    (200.0, 0x74),
    (17.0, 0x58),
    (19.0, 0x5a),
    (0.001_953_125, 0x01),
    (0.002_929_687_5, 0x02),
    (0.000_976_562_5, 0x00),
    (-0.0, 0x80),
    (-448.0, 0xfe),
    (f32::NEG_INFINITY, 0xfe),
];

#[test]
fn o_601_e4m3_encode_table() {
    for (value, byte) in E4M3_TABLE {
        assert_eq!(Element::F8E4M3.encode(value), u32::from(byte), "{value}");
    }
    assert_eq!(Element::F8E4M3.encode(f32::NAN), 0x7f);
}

#[test]
fn o_601_the_weight_packer_gives_the_same_bytes() {
    // 448 in every row and tile makes every scale 1, so that the packer has to give the table.
    let finite: Vec<_> = E4M3_TABLE.iter().filter(|(value, _)| value.abs() <= 448.0).collect();
    let values: Vec<f32> = finite.iter().map(|(value, _)| *value).collect();
    for name in ["fp8-tensor", "fp8-128x128", "fp8-1x128", "fp8-channel"] {
        let matrix = PackedMatrix::encode(named(name), 1, values.len(), &values).unwrap();
        assert_eq!(matrix.scales[..], 1.0f32.to_le_bytes(), "{name}");
        let bytes: Vec<u8> = finite.iter().map(|(_, byte)| *byte).collect();
        assert_eq!(matrix.codes, bytes, "{name}");
    }
    assert_eq!(kv_format("fp8_e4m3").unwrap().element, Element::F8E4M3, "the cache, too");
}

#[test]
fn o_601_all_e4m3_bytes_decode() {
    for byte in 0..=255u8 {
        let (e, m) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
        let magnitude = match (e, byte & 7) {
            (15, 7) => f32::NAN,
            (0, _) => m / 512.0,
            _ => (8.0 + m) * 2f32.powi(e - 10),
        };
        let expect = if byte & 0x80 == 0 { magnitude } else { -magnitude };
        let got = Element::F8E4M3.decode(byte.into());
        let same = got.to_bits() == expect.to_bits() || got.is_nan() && expect.is_nan();
        assert!(same, "{byte:#04x}: {got} {expect}");
    }
}

#[test]
fn o_601_the_fnuz_flavour_has_no_format() {
    // In FNUZ 0x80 is NaN, 0x7f is 240 and every other byte half as large: reading one as the other
    // goes unnoticed, so no name leads to it, and ours are the FN readings.
    assert!(Element::F8E4M3.decode(0x80).to_bits() == (-0.0f32).to_bits());
    assert!(Element::F8E4M3.decode(0x7f).is_nan() && Element::F8E4M3.decode(0xff).is_nan());
    assert_eq!(Element::F8E4M3.decode(0x7e), 448.0);
    for name in FORMATS.iter().map(|f| f.name).chain(KV_FORMATS.iter().map(|f| f.name)) {
        assert!(!name.contains("fnuz"), "{name}");
    }
}

/// The eight integers of the case, as codes `q + 8`, two a byte.
const CODES: [u8; 4] = [0x10, 0x87, 0xa9, 0xfe];

#[test]
fn o_602_words_of_each_layout() {
    for (name, word) in [
        ("compressed-tensors", 0xfea9_8710u32),
        ("twos-complement", 0x7621_0f98),
        ("awq", 0xfa81_e970),
    ] {
        let layout = nibble_layout(name).unwrap_or_else(|| panic!("no layout {name}"));
        assert_eq!(layout.codes(&word.to_le_bytes(), 1, 8).unwrap(), CODES, "{name}");
        assert_eq!(layout.words(&CODES, 1, 8).unwrap(), word.to_le_bytes(), "{name}");
    }
    assert_eq!(NIBBLE_LAYOUTS.len(), 3, "each layout has its constant above");
    assert!(nibble_layout("marlin").is_none(), "an unknown layout is refused");
}

#[test]
fn o_602_codes_decode_to_the_integers() {
    let mut codes = [0x88; 16];
    codes[..4].copy_from_slice(&CODES);
    let parts = Parts::scaled(Bytes::copy_from_slice(&codes), Bytes::from_static(&[0x80, 0x3f]));
    let matrix = PackedMatrix::new(named("int4-g32"), 1, 32, parts).unwrap();
    let decoded = matrix.decode();
    assert_eq!(decoded[..8], [-8.0, -7.0, -1.0, 0.0, 1.0, 2.0, 6.0, 7.0]);
    assert!(decoded[8..].iter().all(|v| *v == 0.0), "{decoded:?}");
}

#[test]
fn o_602_a_byte_pair_in_twos_complement() {
    // Low -2, high 1 is 0x1e; as codes that is 6 and 9.
    let layout = nibble_layout("twos-complement").unwrap();
    assert_eq!(layout.codes(&[0x1e, 0, 0, 0], 1, 2).unwrap(), [0x96]);
}

#[test]
fn o_602_odd_rows_and_zero_points() {
    // Two rows of nine: the second starts on a word of its own; the padding is not read.
    let layout = nibble_layout("compressed-tensors").unwrap();
    let words =
        [0x10, 0x87, 0xa9, 0xfe, 0xf3, 0xff, 0xff, 0xff, 0xfe, 0xa9, 0x87, 0x10, 5, 0, 0, 0];
    let codes = layout.codes(&words, 2, 9).unwrap();
    assert_eq!(codes, [0x10, 0x87, 0xa9, 0xfe, 0x03, 0xfe, 0xa9, 0x87, 0x10, 0x05]);
    // Zero points -8, 0, 7 of three rows, packed down one column: codes 0, 8, 15.
    let zero_points = layout.zero_points(&[0x80, 0x0f, 0, 0], 3, 1).unwrap();
    assert_eq!(zero_points, [0, 8, 15]);
    let parts = Parts {
        codes: vec![0x98; 3 * 16].into(),
        scales: [0x00, 0x3f].repeat(3).into(),
        zero_points: zero_points.into(),
        tensor_scale: None,
    };
    let matrix = PackedMatrix::new(named("int4-g32-zp"), 3, 32, parts).unwrap();
    let decoded = matrix.decode();
    // Integers 0 and 1 less the zero point, times 0.5.
    assert_eq!([decoded[0], decoded[1]], [4.0, 4.5]);
    assert_eq!([decoded[32], decoded[33]], [0.0, 0.5]);
    assert_eq!([decoded[64], decoded[65]], [-3.5, -3.0]);
}

/// One group of 16 whose first code is 7 (6.0), under the block scale 1.75.
fn nvfp4(tensor_scale: Option<f32>) -> Result<PackedMatrix, MatrixError> {
    let mut codes = vec![0; 8];
    codes[0] = 7;
    let scales = Bytes::from_static(&[0x3e]);
    let parts = Parts { tensor_scale, ..Parts::scaled(codes.into(), scales) };
    PackedMatrix::new(named("nvfp4"), 1, 16, parts)
}

#[test]
fn o_603_nvfp4_tensor_scale_as_divisor() {
    let matrix = nvfp4(Some(TensorScaleKind::Divisor.multiplier(3584.0))).unwrap();
    let got = matrix.decode()[0];
    assert!((got / 0.002_929_687_5 - 1.0).abs() <= f32::EPSILON, "{got}");
}

#[test]
fn o_603_nvfp4_tensor_scale_as_multiplier() {
    let matrix = nvfp4(Some(TensorScaleKind::Multiplier.multiplier(2.5))).unwrap();
    assert_eq!(matrix.decode()[0], 6.0 * 1.75 * 2.5);
    // The divisor taken for a multiplier: weights up to 37632, refused.
    let error = nvfp4(Some(TensorScaleKind::Multiplier.multiplier(3584.0))).unwrap_err();
    assert!(matches!(error, MatrixError::Implausible { got: 37632.0, .. }), "{error}");
    assert!(error.to_string().contains("must be inverted"), "{error}");
}

#[test]
fn o_603_a_missing_or_unusable_tensor_scale_is_no_one() {
    for bad in [None, Some(TensorScaleKind::Divisor.multiplier(0.0)), Some(f32::NAN)] {
        let error = nvfp4(bad).unwrap_err();
        assert!(matches!(error, MatrixError::TensorScale { .. }), "{error}");
    }
    let parts =
        Parts { tensor_scale: Some(2.0), ..Parts::scaled(vec![0; 16].into(), vec![127].into()) };
    let error = PackedMatrix::new(named("mxfp4"), 1, 32, parts).unwrap_err();
    assert_eq!(error.to_string(), "mxfp4: tensor scale is Some(2.0), expected none");
}
