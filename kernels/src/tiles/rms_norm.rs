//! Root-mean-square norm, alone and with the residual added first.

use tessera_kernel_dsl::prelude::*;

/// Elements of a row taken at once.
const BLOCK: usize = 128;

/// `out = x / sqrt(mean(x^2) + eps) * weight`.
#[kernel(grid = (T), class = bounded)]
pub fn rms_norm(
    x: &In<f32, { [T, N] }>,
    weight: &In<f32, { [N] }>,
    eps: f32,
    out: &mut Out<f32, { [T, N] }>,
) {
    let t = program_id(0);
    let mut squares = zeros::<f32, 1>([BLOCK]);
    for c in range(0, N, BLOCK) {
        let h = x.tile([t, c], [BLOCK]);
        squares = fma(h, h, squares);
    }
    let factor = factor(squares, N, eps);
    for c in range(0, N, BLOCK) {
        let h = x.tile([t, c], [BLOCK]);
        out.store([t, c], h * factor * weight.tile([c], [BLOCK]));
    }
}

/// `residual += x`, then `out = residual / sqrt(mean(residual^2) + eps) * weight`.
#[kernel(grid = (T), class = bounded)]
pub fn add_rms_norm(
    x: &In<f32, { [T, N] }>,
    residual: &mut InOut<f32, { [T, N] }>,
    weight: &In<f32, { [N] }>,
    eps: f32,
    out: &mut Out<f32, { [T, N] }>,
) {
    let t = program_id(0);
    let mut squares = zeros::<f32, 1>([BLOCK]);
    for c in range(0, N, BLOCK) {
        let h = residual.tile([t, c], [BLOCK]) + x.tile([t, c], [BLOCK]);
        residual.store([t, c], h);
        squares = fma(h, h, squares);
    }
    let factor = factor(squares, N, eps);
    for c in range(0, N, BLOCK) {
        let h = residual.tile([t, c], [BLOCK]);
        out.store([t, c], h * factor * weight.tile([c], [BLOCK]));
    }
}

/// What a row is multiplied by, `[1]`, from the squares of its elements.
#[tile_fn]
fn factor(squares: Tile<f32>, size: Tile<i64>, eps: Tile<f32>) -> Tile<f32> {
    (squares.sum(0) / size.to::<f32>() + eps).rsqrt()
}
