//! The two small products that move decode attention into latent space and back.

use crate::formats::weight_formats;
use tessera_kernel_dsl::prelude::*;

/// Output columns of one program.
const COLS: usize = 64;
/// Columns of one step along the inner extent.
const STEP: usize = 32;
/// Rows taken at once, largest first. Each size is code of its own for every format, and these
/// products are small.
const CHUNKS: [usize; 3] = [32, 8, 1];

/// `ql_nope[h] = q_nope[h] * w_k[h]`: queries carried into latent space. Head `h` has the rows
/// `h * (NOPE + v_head_dim)..` of `kv_b`: its `w_k`, then its `w_v`.
#[kernel(
    grid = (cdiv(RANK, COLS), H),
    formats(W = weight_formats),
    class = bounded
)]
pub fn absorb_query<W: Packed>(
    q_nope: &In<f32, { [H, T, NOPE] }>,
    kv_b: &In<W, { [ROWS, RANK] }>,
    v_head_dim: i64,
    ql_nope: &mut Out<f32, { [H, T, RANK] }>,
) {
    let (c, h) = (program_id(0) * COLS, program_id(1));
    assert_all(ROWS == H * (NOPE + v_head_dim), "`kv_b` has rows for every head");
    let first = h * (NOPE + v_head_dim);
    let mut from = full::<i64, 0>([], 0);
    for rows in CHUNKS {
        let to = T / rows * rows;
        for m in range(from, to, rows) {
            let mut acc = zeros::<f32, 2>([rows, COLS]);
            for n in range(0, NOPE, STEP) {
                // Past NOPE the queries read as zeros, so that rows of `w_v` add nothing.
                let w_k = kv_b.tile([first + n, c], [STEP, COLS]).decode();
                acc = dot(q_nope.tile([h, m, n], [rows, STEP]), w_k, acc);
            }
            ql_nope.store([h, m, c], acc);
        }
        from = to;
    }
}

/// `out[h] = w_v[h] * latent[h]`: attention output carried back from latent space.
#[kernel(
    grid = (H, cdiv(V, COLS)),
    formats(W = weight_formats),
    class = bounded
)]
pub fn absorb_value<W: Packed>(
    latent: &In<f32, { [H, T, RANK] }>,
    kv_b: &In<W, { [ROWS, RANK] }>,
    qk_nope_head_dim: i64,
    out: &mut Out<f32, { [H, T, V] }>,
) {
    let (h, c) = (program_id(0), program_id(1) * COLS);
    assert_all(ROWS == H * (qk_nope_head_dim + V), "`kv_b` has rows for every head");
    let first = h * (qk_nope_head_dim + V) + qk_nope_head_dim + c;
    let mut from = full::<i64, 0>([], 0);
    for rows in CHUNKS {
        let to = T / rows * rows;
        for m in range(from, to, rows) {
            let mut acc = zeros::<f32, 2>([rows, COLS]);
            for k in range(0, RANK, STEP) {
                let w_v = kv_b.tile([first, k], [COLS, STEP]).decode();
                acc = dot(latent.tile([h, m, k], [rows, STEP]), w_v.t(), acc);
            }
            // Columns past V came from the next head's rows, and are dropped.
            out.store([h, m, c], acc);
        }
        from = to;
    }
}
