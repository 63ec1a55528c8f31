//! The two small products that move decode attention into latent space and back.

use super::check::Check;
use super::dot::{PARALLEL_MACS, add_scaled};
use super::mla_prefill::{MlaDims, project};
use super::{Rows, RowsMut};
use crate::formats::PackedMatrix;
use crate::launch::{DeviceShapes, PlanError, RowView, WeightId};
use rayon::prelude::*;

/// `ql_nope[h] = q_nope[h] * w_k[h]`: queries carried into latent space.
///
/// # Shapes
/// - `q`: f32 `[num_tokens, num_heads * (qk_nope_head_dim + qk_rope_head_dim)]`; only nope is read
/// - `kv_b`: `[num_heads * (qk_nope_head_dim + v_head_dim), kv_lora_rank]`
/// - `ql_nope`: f32 `[num_tokens, num_heads * kv_lora_rank]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct AbsorbQuery {
    pub dims: MlaDims,
    pub q: RowView,
    pub kv_b: WeightId,
    pub ql_nope: RowView,
}

/// `out[h] = w_v[h] * latent[h]`: attention output carried back from latent space.
///
/// # Shapes
/// - `latent`: f32 `[num_tokens, num_heads * kv_lora_rank]`
/// - `kv_b`: as in [`AbsorbQuery`]
/// - `out`: f32 `[num_tokens, num_heads * v_head_dim]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct AbsorbValue {
    pub dims: MlaDims,
    pub latent: RowView,
    pub kv_b: WeightId,
    pub out: RowView,
}

impl AbsorbQuery {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "absorb_query", shapes };
        let (dims, tokens) = (&self.dims, self.q.rows);
        dims.check(&check)?;
        check.view("q", &self.q, [tokens, dims.num_heads * dims.qk_head_dim()])?;
        check.view("ql_nope", &self.ql_nope, [tokens, dims.num_heads * dims.kv_lora_rank])?;
        check.apart("ql_nope", self.ql_nope.buffer, &[self.q.buffer])?;
        check.weight("kv_b", self.kv_b, dims.kv_b_shape())
    }

    /// Carries queries into latent space, one task a head.
    pub fn reference(&self, q: Rows<'_>, kv_b: &PackedMatrix, ql_nope: RowsMut<'_>) {
        let dims = &self.dims;
        by_head(dims, dims.kv_lora_rank, ql_nope, |head, out| {
            let w_k = dims.head_weight(kv_b, head, 0, dims.qk_nope_head_dim);
            for (t, out) in out.chunks_mut(dims.kv_lora_rank).enumerate() {
                let (q_nope, _) = dims.head_query(q.row(t), head);
                for (q, row) in q_nope.iter().zip(w_k.chunks(dims.kv_lora_rank)) {
                    add_scaled(out, *q, row);
                }
            }
        });
    }
}

impl AbsorbValue {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "absorb_value", shapes };
        let (dims, tokens) = (&self.dims, self.latent.rows);
        dims.check(&check)?;
        check.view("latent", &self.latent, [tokens, dims.num_heads * dims.kv_lora_rank])?;
        check.view("out", &self.out, [tokens, dims.num_heads * dims.v_head_dim])?;
        check.apart("out", self.out.buffer, &[self.latent.buffer])?;
        check.weight("kv_b", self.kv_b, dims.kv_b_shape())
    }

    /// Carries values out of latent space, one task a head.
    pub fn reference(&self, latent: Rows<'_>, kv_b: &PackedMatrix, out: RowsMut<'_>) {
        let dims = &self.dims;
        let rank = dims.kv_lora_rank;
        by_head(dims, dims.v_head_dim, out, |head, out| {
            let w_v = dims.head_weight(kv_b, head, dims.qk_nope_head_dim, dims.v_head_dim);
            for (t, out) in out.chunks_mut(dims.v_head_dim).enumerate() {
                project(&latent.row(t)[head * rank..][..rank], &w_v, out);
            }
        });
    }
}

/// Fills the `width` columns of each head from a task that fills `[num_tokens, width]`.
fn by_head(
    dims: &MlaDims,
    width: usize,
    mut out: RowsMut<'_>,
    task: impl Fn(usize, &mut [f32]) + Sync,
) {
    let tokens = out.num_rows();
    let run = |head| {
        let mut part = vec![0.0; tokens * width];
        task(head, &mut part);
        part
    };
    let work = dims.num_heads * dims.kv_b_head_rows() * dims.kv_lora_rank;
    let parts: Vec<Vec<f32>> = if work < PARALLEL_MACS {
        (0..dims.num_heads).map(run).collect()
    } else {
        (0..dims.num_heads).into_par_iter().map(run).collect()
    };
    for (head, part) in parts.iter().enumerate() {
        for (t, part) in part.chunks(width).enumerate() {
            out.row_mut(t)[head * width..][..width].copy_from_slice(part);
        }
    }
}
