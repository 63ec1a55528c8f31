//! The tolerance of each format: what a standard normal weight loses, no more and not much less.

use crate::all_formats;
use tessera_kernels::formats::{Format, PackedMatrix};

const ROWS: usize = 512;
const COLS: usize = 1024;

/// Standard normal values (SplitMix64 and Box-Muller).
fn normal(seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut values = Vec::with_capacity(ROWS * COLS);
    while values.len() < ROWS * COLS {
        let (radius, angle) =
            ((-2.0 * (1.0 - uniform()).ln()).sqrt(), std::f64::consts::TAU * uniform());
        #[expect(clippy::cast_possible_truncation, reason = "rounding to f32 is meant")]
        values.extend([(radius * angle.cos()) as f32, (radius * angle.sin()) as f32]);
    }
    values
}

/// Largest error as a share of the largest magnitude in the tile, and relative Frobenius error.
fn measure(format: &'static Format, values: &[f32]) -> (f64, f64) {
    let decoded = PackedMatrix::encode(format, ROWS, COLS, values).expect("encodes").decode();
    let (tile_rows, tile_cols) = format.scale_tile.map_or((1, 1), |tile| (tile.rows, tile.cols));
    let (tile_rows, tile_cols) = (tile_rows.min(ROWS), tile_cols.min(COLS));
    let (mut element, mut error2, mut total2) = (0.0f64, 0.0, 0.0);
    for r0 in (0..ROWS).step_by(tile_rows) {
        for c0 in (0..COLS).step_by(tile_cols) {
            let (mut error, mut amax) = (0.0f64, 0.0f64);
            for r in r0..ROWS.min(r0 + tile_rows) {
                for c in c0..COLS.min(c0 + tile_cols) {
                    let value = f64::from(values[r * COLS + c]);
                    let off = (f64::from(decoded[r * COLS + c]) - value).abs();
                    (error, amax) = (error.max(off), amax.max(value.abs()));
                    (error2, total2) = (error2 + off * off, total2 + value * value);
                }
            }
            // A value that is subnormal in f16 has few bits left, as any format without scales.
            if format.scale_tile.is_some() || amax >= 1.0 / 16384.0 {
                element = element.max(error / amax);
            }
        }
    }
    (element, f64::sqrt(error2 / total2))
}

#[test]
fn normal_weights_stay_within_tolerance_and_use_most_of_it() {
    let values = normal(7);
    let mut wrong = Vec::new();
    for format in all_formats() {
        let (element, tensor) = measure(format, &values);
        println!("{:14} element {element:.5} tensor {tensor:.5}", format.name);
        let (tol_element, tol_tensor) = (format.tol.element.into(), format.tol.tensor.into());
        for (what, got, tol) in [("element", element, tol_element), ("tensor", tensor, tol_tensor)]
        {
            if !(0.9 * tol..=tol).contains(&got) {
                wrong.push(format!("{} {what}: {got} where {tol} is allowed", format.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
