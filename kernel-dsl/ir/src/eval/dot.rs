//! Products of tiles, and the codes that go into them.

use super::cells::{Cells, round_f32};
use super::error::Fault;
use crate::format::{Element, Format, ScaleTile};
use crate::types::Type;

/// `a[m, k] * b[k, n] + acc`.
pub(super) fn dot(shape: [usize; 3], a: &Cells, b: &Cells, acc: &Cells) -> Cells {
    let [m, n, k] = shape;
    let (a, b) = (a.floats(), b.floats());
    let mut result = acc.floats().to_vec();
    for row in 0..m {
        let out = &mut result[row * n..][..n];
        for i in 0..k {
            let x = a[row * k + i];
            for (out, b) in out.iter_mut().zip(&b[i * n..][..n]) {
                *out += x * b;
            }
        }
    }
    Cells::Float(result)
}

/// `x[m, k] * w[n, k]^T + acc`.
pub(super) fn dot_scaled(shape: [usize; 3], x: &Cells, w: &Cells, acc: &Cells) -> Cells {
    let [m, n, k] = shape;
    let (x, w) = (x.floats(), w.floats());
    let mut result = acc.floats().to_vec();
    for row in 0..m {
        let x = &x[row * k..][..k];
        for col in 0..n {
            let w = &w[col * k..][..k];
            result[row * n + col] += x.iter().zip(w).map(|(x, w)| x * w).sum::<f64>();
        }
    }
    Cells::Float(result)
}

pub(super) fn decode(element: Element, codes: &Cells) -> Cells {
    let code = |code: i64| u32::try_from(code).expect("a code has at most 32 bits");
    let codes = codes.ints();
    if element.bits() > 8 || codes.len() < 1 << element.bits() {
        return Cells::Float(codes.iter().map(|&c| element.rule(code(c))).collect());
    }
    let table: Vec<f64> = (0..1 << element.bits()).map(|c| element.rule(c)).collect();
    Cells::Float(codes.iter().map(|&c| table[code(c) as usize]).collect())
}

pub(super) fn encode(element: Element, x: &Cells) -> Result<Cells, Fault> {
    let x = x.floats();
    if !element.has_nan() && x.iter().any(|x| x.is_nan()) {
        return Err(Fault::NoNan(element.name()));
    }
    Ok(Cells::Int(x.iter().map(|&x| i64::from(element.encode(round_f32(x)))).collect()))
}

/// Values after a block format's codes and scales.
pub(super) fn quantize(format: &Format, ty: &Type, x: &Cells) -> Cells {
    let [_, cols] = ty.rows_cols();
    let mut values: Vec<f64> = x.floats().to_vec();
    let group = format.scale_tile.map_or(cols, |tile| tile.cols.min(cols));
    for row in values.chunks_mut(cols) {
        for group in row.chunks_mut(group) {
            match &format.scale_tile {
                Some(tile) => quantize_group(format.element, tile, group),
                None => group.iter_mut().for_each(|value| {
                    let code = format.element.encode(round_f32(*value));
                    *value = format.element.rule(code);
                }),
            }
        }
    }
    Cells::Float(values)
}

/// All in f32, as the op says, so that every executor finds the same codes.
fn quantize_group(element: Element, tile: &ScaleTile, group: &mut [f64]) {
    let rounded = |value: &f64| round_f32(*value);
    let amax = group.iter().map(rounded).fold(0.0_f32, |amax, x| {
        if amax.is_nan() || x.is_nan() { f32::NAN } else { amax.max(x.abs()) }
    });
    let scale = amax / tile.divisor;
    let scale = tile.precision.decode(tile.precision.encode(scale));
    let scale = tile.scale.decode(tile.scale.encode(scale));
    for value in group {
        *value = if amax == 0.0 || scale == 0.0 {
            0.0
        } else if !amax.is_finite() || !scale.is_finite() {
            f64::NAN
        } else {
            let code = element.encode(round_f32(*value) / scale);
            element.rule(code) * f64::from(scale)
        };
    }
}
