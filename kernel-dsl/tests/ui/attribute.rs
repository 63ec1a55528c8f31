//! Arguments of `#[kernel]` that say nothing.
use tessera_kernel_dsl::prelude::*;

#[kernel(
    grid = (M),
    grid = (M),
    threads = 4,
    targets(cpu, sm80),
    variants(cpu: BM = 4; gpu: (BM, BN) = [(1, 2), 3]; tpu: BM = [1]),
    class = fast,
    formats(V = list)
)]
fn attribute<W: Packed>(w: &In<W, {[M, 4]}>, y: &mut Out<f32, {[M]}>) {
    y.store([0], w.tile([0, 0], [1, BN]));
}

#[kernel]
fn bare(y: &mut Out<f32, {[M]}>) {
    y.store([0], 1.0);
}

#[kernel(grid = (M), variants(cpu: BM = [4]; gpu: WARPS = [2]))]
fn lacks(y: &mut Out<f32, {[M]}>) {
    y.store([BM], 1.0);
}

#[kernel(grid = (), require(BM))]
fn empty(y: &mut Out<f32, {[M]}>) {
    y.store([0], 1.0);
}

#[tile_fn(inline)]
fn arguments(x: Tile<f32>) -> Tile<f32> {
    x
}

fn main() {}
