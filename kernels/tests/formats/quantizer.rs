//! The quantizer against bytes made outside, its edges, and what a matrix refuses.

use crate::{all_formats, fixture, fixture_u32, weight};
use bytes::Bytes;
use tessera_kernels::formats::{
    FORMATS, Format, MatrixError, PLAUSIBLE_MAX_ABS, PackedMatrix, Parts, format,
};

fn named(name: &str) -> &'static Format {
    format(name).unwrap_or_else(|| panic!("no format {name}"))
}

/// Shape the fixtures read the weight in: whole groups, or partial last tiles.
fn fixture_shape(format: &Format) -> (usize, usize) {
    let whole = format.scale_tile.is_some_and(|tile| !tile.ragged);
    if whole { (120, 256) } else { (192, 160) }
}

#[test]
fn codes_and_scales_are_those_of_the_published_recipes() {
    let values = weight();
    for &format in FORMATS.iter().filter(|f| f.scale_tile.is_some()) {
        let (rows, cols) = fixture_shape(format);
        let name = format.name;
        let matrix = PackedMatrix::encode(format, rows, cols, &values).unwrap();
        assert_eq!(matrix.scales, fixture(&format!("{name}.scales")), "{name} scales");
        assert_eq!(matrix.codes, fixture(&format!("{name}.codes")), "{name} codes");
        if format.zero_point {
            assert_eq!(matrix.zero_points, fixture(&format!("{name}.zero_points")), "{name}");
        }
        if format.tensor_scale {
            let expect = fixture_u32(&format!("{name}.tensor_scale"));
            assert_eq!(matrix.tensor_scale.to_bits(), expect[0], "{name}");
        }
        assert_eq!(matrix.num_bytes(), format.num_bytes(rows, cols), "{name}");
    }
}

#[test]
fn the_f64_rule_agrees_with_what_rows_decode_to() {
    let values = weight();
    for format in all_formats() {
        let (rows, cols) = fixture_shape(format);
        let matrix = PackedMatrix::encode(format, rows, cols, &values).unwrap();
        let decoded = matrix.decode();
        let bits = format.element.bits();
        for (i, got) in decoded.iter().enumerate() {
            let (r, c) = (i / cols, i % cols);
            let row = &matrix.codes[r * format.row_bytes(cols)..];
            // Bit by bit, as the drawing of the layout says.
            let bit = |p: usize| u32::from(row[p / 8] >> (p % 8) & 1);
            let code = (0..bits).fold(0, |code, j| code | bit(c * bits + j) << j);
            let mut expect = format.element.rule(code);
            if let Some(tile) = format.scale_tile {
                let idx = r / tile.rows * cols.div_ceil(tile.cols) + c / tile.cols;
                let zero = matrix.zero_points.get(idx).map_or(0.0, |zp| f64::from(*zp) - 8.0);
                let scale = f64::from(tile.scale.read(&matrix.scales, idx));
                expect = (expect - zero) * scale * f64::from(matrix.tensor_scale);
            }
            let off = (f64::from(*got) - expect).abs();
            assert!(off <= 1.5e-7 * expect.abs(), "{} [{r}, {c}]: {got} {expect}", format.name);
        }
    }
}

#[test]
fn requantizing_equals_quantizing_the_decoded_weight() {
    let values = weight();
    let from = PackedMatrix::encode(named("fp8-128x128"), 240, 128, &values).unwrap();
    let decoded = from.decode();
    for &format in FORMATS {
        let direct = PackedMatrix::encode(format, 240, 128, &decoded).unwrap();
        let blockwise = from.requantize(format).unwrap();
        if format.name == from.format.name {
            assert_eq!(blockwise.codes, from.codes, "the same format changes nothing");
            continue;
        }
        assert_eq!(blockwise.codes, direct.codes, "{}", format.name);
        assert_eq!(blockwise.scales, direct.scales, "{}", format.name);
        assert_eq!(blockwise.zero_points, direct.zero_points, "{}", format.name);
        assert_eq!(blockwise.tensor_scale, direct.tensor_scale, "{}", format.name);
    }
}

#[test]
fn partial_last_tiles_have_scales_of_their_own() {
    let format = named("fp8-128x128");
    let mut values = vec![1.0; 576 * 160];
    values[575 * 160 + 159] = 448.0;
    let matrix = PackedMatrix::encode(format, 576, 160, &values).unwrap();
    assert_eq!(matrix.scales.len(), 5 * 2 * 4, "ceil(576 / 128) by ceil(160 / 128) scales");
    let decoded = matrix.decode();
    assert_eq!(decoded[575 * 160 + 159], 448.0);
    assert_eq!(decoded[0], 1.0);
    assert_eq!(matrix.codes[511 * 160 + 159], 0x7e, "1.0 under the scale 1/448");
    assert_eq!(matrix.codes[512 * 160 + 128], 0x38, "1.0 under the scale 1");
    assert_eq!(matrix.codes[512 * 160 + 127], 0x7e, "the tile to the left");
}

#[test]
fn zero_tiles_decode_to_zero_in_every_format() {
    for &format in FORMATS {
        let mut values = vec![0.0; 4 * 256];
        assert!(PackedMatrix::encode(format, 4, 256, &values).unwrap().decode() == values);
        values[3 * 256 + 255] = 1.0;
        let decoded = PackedMatrix::encode(format, 4, 256, &values).unwrap().decode();
        assert!(decoded[..3 * 256].iter().all(|v| *v == 0.0), "{}", format.name);
        assert!((decoded[3 * 256 + 255] - 1.0).abs() <= 0.1, "{}", format.name);
    }
}

#[test]
fn odd_widths_start_rows_on_a_byte() {
    let values = [1.0, -2.0, 3.0, 0.0, -0.0, 7.0];
    for name in ["f32", "bf16", "f16", "fp8-tensor", "fp8-channel", "fp8-1x128", "e5m2-tensor"] {
        let decoded = PackedMatrix::encode(named(name), 2, 3, &values).unwrap().decode();
        for (got, expect) in decoded.iter().zip(values) {
            assert!((got - expect).abs() <= 0.125 * expect.abs(), "{name}: {got} {expect}");
            assert_eq!(got.is_sign_negative(), expect.is_sign_negative(), "{name}: sign of zero");
        }
    }
}

#[test]
fn what_no_scale_can_hold_is_refused_with_its_place() {
    for &format in FORMATS.iter().filter(|f| f.scale_tile.is_some()) {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = vec![0.5; 20 * 128];
            values[18 * 128 + 77] = bad;
            match PackedMatrix::encode(format, 20, 128, &values) {
                Err(MatrixError::NotFinite { row: 18, col: 77, value, .. }) => {
                    assert!(value == bad || bad.is_nan() && value.is_nan());
                }
                other => panic!("{}: {other:?}", format.name),
            }
        }
    }
    let bf16 = PackedMatrix::encode(named("bf16"), 1, 2, &[f32::NAN, f32::INFINITY]).unwrap();
    assert_eq!(bf16.codes[..], [0xc0, 0x7f, 0x7f, 0x7f], "NaN stays, infinity saturates");
}

#[test]
fn widths_that_cut_a_group_are_refused() {
    for (name, cols) in [("int4-g32", 48), ("int4-g128", 96), ("int4-g32-zp", 16), ("nvfp4", 8)] {
        let error = PackedMatrix::encode(named(name), 1, cols, &vec![0.0; cols]).unwrap_err();
        let group = named(name).scale_tile.unwrap().cols;
        assert_eq!(error, MatrixError::Group { format: named(name).name, cols, group });
    }
    let error = tessera_kernels::formats::check_shape(named("int4-g32"), 8, 0).unwrap_err();
    assert_eq!(error.to_string(), "int4-g32: a weight of shape [8, 0] has no elements");
}

#[test]
fn parts_of_another_size_or_with_bad_scales_are_refused() {
    let int4 = named("int4-g32");
    let make = |codes: usize, scales: &[u8]| {
        let scales = Bytes::copy_from_slice(scales);
        PackedMatrix::new(int4, 2, 32, Parts::scaled(vec![0; codes].into(), scales))
    };
    assert!(make(32, &[0, 0x3f, 0, 0]).is_ok(), "a zero scale stands for a zero group");
    let error = make(31, &[0, 0, 0, 0]).unwrap_err();
    assert_eq!(error.to_string(), "int4-g32 [2, 32]: codes has 31 bytes, needs 32");
    let error = make(32, &[0, 0]).unwrap_err();
    assert_eq!(error.to_string(), "int4-g32 [2, 32]: scales has 2 bytes, needs 4");
    for bad in [[0xc0, 0x7f], [0x80, 0x7f], [0x80, 0xbf]] {
        let error = make(32, &[0, 0x3f, bad[0], bad[1]]).unwrap_err();
        assert!(matches!(error, MatrixError::Scale { idx: 1, .. }), "{error}");
    }
    let mxfp4 = Parts::scaled(vec![0; 16].into(), vec![255].into());
    let error = PackedMatrix::new(named("mxfp4"), 1, 32, mxfp4).unwrap_err();
    assert!(matches!(error, MatrixError::Scale { idx: 0, .. }), "{error}");
    let huge = PackedMatrix::new(int4, usize::MAX, 32, Parts::unscaled(Bytes::new())).unwrap_err();
    assert!(matches!(huge, MatrixError::Bytes { .. }), "sizes do not wrap around");
}

#[test]
fn zero_points_and_tensor_scales_are_checked() {
    let parts = |zero: u8, tensor_scale| Parts {
        codes: vec![0; 16].into(),
        scales: vec![0, 0x3f].into(),
        zero_points: vec![zero].into(),
        tensor_scale,
    };
    let zp = named("int4-g32-zp");
    assert!(PackedMatrix::new(zp, 1, 32, parts(15, None)).is_ok());
    let error = PackedMatrix::new(zp, 1, 32, parts(16, None)).unwrap_err();
    assert_eq!(error.to_string(), "int4-g32-zp: zero point 0 is 16, expected 0 to 15");
    let error = PackedMatrix::new(zp, 1, 32, parts(8, Some(1.0))).unwrap_err();
    assert!(matches!(error, MatrixError::TensorScale { want: "none", .. }), "{error}");

    let nvfp4 = |tensor_scale| {
        let parts = Parts { tensor_scale, ..Parts::scaled(vec![0; 8].into(), vec![0x7e].into()) };
        PackedMatrix::new(named("nvfp4"), 1, 16, parts)
    };
    assert!(nvfp4(Some(PLAUSIBLE_MAX_ABS / 2688.0)).is_ok());
    for bad in [None, Some(0.0), Some(-1.0), Some(f32::NAN), Some(f32::INFINITY)] {
        let error = nvfp4(bad).unwrap_err();
        assert!(matches!(error, MatrixError::TensorScale { .. }), "{error}");
    }
    assert!(matches!(nvfp4(Some(1.0)), Err(MatrixError::Implausible { got: 2688.0, .. })));
}

#[test]
fn names_are_unique_and_tiles_start_on_bytes() {
    for (i, &f) in FORMATS.iter().enumerate() {
        assert_eq!(FORMATS.iter().position(|other| other.name == f.name), Some(i), "{}", f.name);
        if let Some(tile) = f.scale_tile {
            assert!(tile.cols > 4096 || (tile.cols * f.element.bits()).is_multiple_of(8));
            assert!(tile.cols <= 4096 || tile.ragged, "{}: a whole row fits any width", f.name);
        }
    }
    assert!(format("fp8_e4m3fnuz").is_none(), "the FNUZ flavour halves values: never guessed");
}
