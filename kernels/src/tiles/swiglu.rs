//! The gated activation of the feed-forward layers.

use tessera_kernel_dsl::prelude::*;

/// Elements of one program.
const BLOCK: usize = 512;

/// `out = silu(gate) * up`.
#[kernel(grid = (R, cdiv(N, BLOCK)), class = bounded)]
pub fn swiglu(
    gate: &In<f32, { [R, N] }>,
    up: &In<f32, { [R, N] }>,
    out: &mut Out<f32, { [R, N] }>,
) {
    let (r, c) = (program_id(0), program_id(1) * BLOCK);
    let gate = gate.tile([r, c], [BLOCK]);
    let silu = gate / ((-gate).exp() + 1.0);
    out.store([r, c], silu * up.tile([r, c], [BLOCK]));
}
