//! The same bits on one thread and on three, alone and in a batch.

use super::{view, wave};
use rayon::ThreadPoolBuilder;
use tessera_kernels::formats::{PackedMatrix, format};
use tessera_kernels::launch::{BufferId, WeightId};
use tessera_kernels::ops::linear::{GroupedLinear, Linear};
use tessera_kernels::ops::swiglu::SwiGlu;
use tessera_kernels::ops::{Rows, RowsMut};

const COLS: usize = 256;
const FEATURES: usize = 67;
const TOKENS: usize = 13;

/// What `f` answers on a pool of so many threads.
fn on_threads<R: Send>(threads: usize, f: impl FnOnce() -> R + Send) -> R {
    ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool").install(f)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Checks `f`, which maps rows of `COLS` elements to rows of `cols`, on threads and batches.
fn check(name: &str, cols: usize, f: impl Fn(&[f32]) -> Vec<f32> + Sync) {
    let x = wave(TOKENS * COLS, 0.71);
    let want = bits(&on_threads(1, || f(&x)));
    assert_eq!(want.len(), TOKENS * cols, "{name}");
    assert_eq!(bits(&on_threads(3, || f(&x))), want, "{name} on three threads");
    for batch in [1, 2, 5] {
        let parts = x.chunks(batch * COLS).flat_map(|x| on_threads(3, || f(x)));
        assert_eq!(bits(&parts.collect::<Vec<_>>()), want, "{name} in batches of {batch}");
    }
}

#[test]
fn linear_layers_of_every_format() {
    let values = wave(FEATURES * COLS, 0.37);
    for name in ["f32", "bf16", "fp8-128x128", "int4-g32", "nvfp4"] {
        let weight = PackedMatrix::encode(format(name).expect(name), FEATURES, COLS, &values);
        let weight = weight.expect(name);
        check(name, FEATURES, |x| {
            let rows = x.len() / COLS;
            let op = Linear { x: view(rows, COLS), weight: WeightId(0), out: view(rows, FEATURES) };
            let mut out = vec![0.0; rows * FEATURES];
            let to = RowsMut::contiguous(&mut out, FEATURES);
            op.reference(Rows::contiguous(x, COLS), &weight, to);
            out
        });
        check(name, FEATURES, |x| {
            let rows = x.len() / COLS;
            let op = GroupedLinear {
                x: view(rows, COLS),
                weights: [WeightId(0), WeightId(0)].into(),
                expert_offsets: BufferId(0),
                out: view(rows, FEATURES),
            };
            let offsets = [0, rows / 2, rows].map(|offset| i32::try_from(offset).unwrap());
            let mut out = vec![0.0; rows * FEATURES];
            let to = RowsMut::contiguous(&mut out, FEATURES);
            let x = Rows::contiguous(x, COLS);
            op.reference(x, &[&weight, &weight], &offsets, to).unwrap();
            out
        });
    }
}

#[test]
fn swiglu() {
    check("swiglu", COLS, |x| {
        let rows = x.len() / COLS;
        let op = SwiGlu { gate: view(rows, COLS), up: view(rows, COLS), out: view(rows, COLS) };
        let mut out = vec![0.0; x.len()];
        let rows = Rows::contiguous(x, COLS);
        op.reference(rows, rows, RowsMut::contiguous(&mut out, COLS));
        out
    });
}
