//! Dense and grouped (per expert) linear layers with weights in any format.

use super::check::Check;
use super::dot::{PARALLEL_MACS, dot, dot4};
use super::{Rows, RowsMut};
use crate::formats::PackedMatrix;
use crate::launch::{BufferId, BufferType, DeviceShapes, PlanError, RowView, WeightId};
use rayon::prelude::*;
use std::ops::Range;

/// `out = x * weight^T`.
///
/// # Shapes
/// - `x`: f32 `[num_tokens, in_features]`
/// - `weight`: `[out_features, in_features]`
/// - `out`: f32 `[num_tokens, out_features]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Linear {
    pub x: RowView,
    pub weight: WeightId,
    pub out: RowView,
}

/// Rows `expert_offsets[e]..expert_offsets[e + 1]` of `x` times the weight of expert `e`.
///
/// # Shapes
/// - `x`: f32 `[num_rows, in_features]`, sorted by expert
/// - `weights`: one `[out_features, in_features]` an expert
/// - `expert_offsets`: i32 `[num_experts + 1]`
/// - `out`: f32 `[num_rows, out_features]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct GroupedLinear {
    pub x: RowView,
    pub weights: std::sync::Arc<[WeightId]>,
    pub expert_offsets: BufferId,
    pub out: RowView,
}

/// Weight rows of one task.
const TASK_ROWS: usize = 32;

impl Linear {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "linear", shapes };
        let [out_features, in_features] = check.weight_shape("weight", self.weight)?;
        check.view("x", &self.x, [self.x.rows, in_features])?;
        check.view("out", &self.out, [self.x.rows, out_features])?;
        check.apart("out", self.out.buffer, &[self.x.buffer])
    }

    /// Multiplies.
    pub fn reference(&self, x: Rows<'_>, weight: &PackedMatrix, out: RowsMut<'_>) {
        multiply(x, &[(weight, 0..x.num_rows())], out);
    }
}

impl GroupedLinear {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "grouped_linear", shapes };
        let first = self.weights.first();
        let first = first.ok_or_else(|| check.value("weights", "empty", "one or more"))?;
        let shape = check.weight_shape("weights", *first)?;
        for weight in self.weights.iter() {
            check.weight("weights", *weight, shape)?;
        }
        let [out_features, in_features] = shape;
        check.view("x", &self.x, [self.x.rows, in_features])?;
        check.view("out", &self.out, [self.x.rows, out_features])?;
        check.apart("out", self.out.buffer, &[self.x.buffer])?;
        let offsets = self.weights.len() + 1;
        check.array("expert_offsets", self.expert_offsets, BufferType::I32, offsets)
    }

    /// Multiplies; experts without rows cost nothing.
    ///
    /// # Errors
    /// [`PlanError::Value`] if the offsets do not rise from 0 to the number of rows.
    pub fn reference(
        &self,
        x: Rows<'_>,
        weights: &[&PackedMatrix],
        expert_offsets: &[i32],
        out: RowsMut<'_>,
    ) -> Result<(), PlanError> {
        let mut parts = Vec::new();
        let mut start = 0;
        let error = |got: i32| {
            let want = "offsets that rise from 0 to the number of rows";
            let got = got.to_string();
            PlanError::Value { op: "grouped_linear", arg: "expert_offsets", got, want }
        };
        if expert_offsets[0] != 0 {
            return Err(error(expert_offsets[0]));
        }
        for (weight, &end) in weights.iter().zip(&expert_offsets[1..]) {
            let to = usize::try_from(end).ok().filter(|to| (start..=x.num_rows()).contains(to));
            let to = to.ok_or_else(|| error(end))?;
            if to > start {
                parts.push((*weight, start..to));
            }
            start = to;
        }
        if start != x.num_rows() {
            return Err(error(expert_offsets[weights.len()]));
        }
        multiply(x, &parts, out);
        Ok(())
    }
}

/// Products of some rows of `x` with some rows of one weight, `[weight_rows, rows]`.
struct Task<'a> {
    weight: &'a PackedMatrix,
    first: usize,
    rows: Range<usize>,
    out: &'a mut [f32],
}

/// Multiplies each range of rows (in order, together all of them) with its weight.
///
/// A task takes a few weight rows, decodes each once and multiplies it with every row of `x`, so
/// products arrive by weight row and are transposed into `out` at the end. Every product is one
/// [`dot`], whatever the batch.
fn multiply(x: Rows<'_>, parts: &[(&PackedMatrix, Range<usize>)], out: RowsMut<'_>) {
    let Some((first, _)) = parts.first() else { return };
    let (out_features, in_features) = (first.rows, first.cols);
    if x.num_rows() == 0 {
        return;
    }
    let mut products = vec![0.0; out_features * x.num_rows()];
    let mut rest = products.as_mut_slice();
    let mut tasks = Vec::new();
    for (weight, rows) in parts {
        let (own, others) = rest.split_at_mut(rows.len() * out_features);
        rest = others;
        for (i, out) in own.chunks_mut(TASK_ROWS * rows.len()).enumerate() {
            tasks.push(Task { weight, first: i * TASK_ROWS, rows: rows.clone(), out });
        }
    }
    let run = |scratch: &mut Vec<f32>, task: Task<'_>| {
        let rows = task.rows.len();
        for (i, out) in task.out.chunks_mut(rows).enumerate() {
            task.weight.decode_row(task.first + i, scratch);
            multiply_row(scratch, x, task.rows.start, out);
        }
    };
    if out_features * in_features * x.num_rows() < PARALLEL_MACS {
        let mut scratch = vec![0.0; in_features];
        tasks.into_iter().for_each(|task| run(&mut scratch, task));
    } else {
        tasks.into_par_iter().for_each_init(|| vec![0.0; in_features], run);
    }
    transpose(&products, parts, out);
}

/// `out[i] = dot(weight_row, x[first + i])`, four rows at a time.
fn multiply_row(weight_row: &[f32], x: Rows<'_>, first: usize, out: &mut [f32]) {
    let mut fours = out.chunks_exact_mut(4);
    let mut row = first;
    for out in &mut fours {
        let rows = [x.row(row), x.row(row + 1), x.row(row + 2), x.row(row + 3)];
        out.copy_from_slice(&dot4(weight_row, rows));
        row += 4;
    }
    for (i, out) in fours.into_remainder().iter_mut().enumerate() {
        *out = dot(weight_row, x.row(row + i));
    }
}

/// Moves the products of each part, `[out_features, rows]`, to their rows of `out`.
fn transpose(products: &[f32], parts: &[(&PackedMatrix, Range<usize>)], out: RowsMut<'_>) {
    let out_features = out.num_cols();
    let mut starts = Vec::with_capacity(out.num_rows());
    for (_, rows) in parts {
        starts
            .extend(rows.clone().map(|t| (rows.start * out_features + t - rows.start, rows.len())));
    }
    out.for_each(out_features, |t, out| {
        let (start, stride) = starts[t];
        for (out, product) in out.iter_mut().zip(products[start..].iter().step_by(stride)) {
            *out = *product;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::{PackedMatrix, format};

    fn values(count: usize, step: f32) -> Vec<f32> {
        (0..count).map(|i| (i as f32 * step).sin()).collect()
    }

    #[test]
    fn products_match_f64_and_do_not_depend_on_the_batch() {
        let (rows, cols, tokens) = (70, 96, 11);
        let weight_values = values(rows * cols, 0.37);
        let format = format("f32").unwrap();
        let weight = PackedMatrix::encode(format, rows, cols, &weight_values).unwrap();
        let x = values(tokens * cols, 0.91);
        let mut out = vec![0.0; tokens * rows];
        let all = Rows::contiguous(&x, cols);
        multiply(all, &[(&weight, 0..tokens)], RowsMut::contiguous(&mut out, rows));
        for t in 0..tokens {
            let x = &x[t * cols..][..cols];
            let mut alone = vec![0.0; rows];
            let row = Rows::contiguous(x, cols);
            multiply(row, &[(&weight, 0..1)], RowsMut::contiguous(&mut alone, rows));
            for o in 0..rows {
                assert_eq!(alone[o].to_bits(), out[t * rows + o].to_bits());
                let weight = &weight_values[o * cols..][..cols];
                let want: f64 = x.iter().zip(weight).map(|(a, b)| f64::from(a * b)).sum();
                assert!((f64::from(alone[o]) - want).abs() < 1e-4);
            }
        }
    }

    #[test]
    fn each_part_meets_its_own_weight() {
        let format = format("f32").unwrap();
        let weights: Vec<PackedMatrix> = (0..3)
            .map(|e| PackedMatrix::encode(format, 2, 1, &[e as f32, 10.0 + e as f32]).unwrap())
            .collect();
        let x = [1.0, 2.0, 3.0];
        let mut out = [0.0; 6];
        let parts = [(&weights[0], 0..1), (&weights[2], 1..3)];
        multiply(Rows::contiguous(&x, 1), &parts, RowsMut::contiguous(&mut out, 2));
        assert_eq!(out, [0.0, 10.0, 4.0, 24.0, 6.0, 36.0]);
    }
}
