//! Ops on rows: embedding, norm, activation, gather, permute, combine, grouped linear.

use super::{named, view, wave, weight};
use tessera_kernels::launch::{BufferId, RowView, WeightId};
use tessera_kernels::ops::combine::{Combine, CombineInputs};
use tessera_kernels::ops::embedding::Embedding;
use tessera_kernels::ops::feed::{FeedTokens, given};
use tessera_kernels::ops::gather::GatherRows;
use tessera_kernels::ops::linear::GroupedLinear;
use tessera_kernels::ops::permute::Permute;
use tessera_kernels::ops::rms_norm::RmsNorm;
use tessera_kernels::ops::swiglu::SwiGlu;
use tessera_kernels::ops::{Rows, RowsMut};

fn close(got: &[f32], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (got, want) in got.iter().zip(want) {
        assert!((f64::from(*got) - want).abs() <= 2e-7 * want.abs().max(1.0), "{got} for {want}");
    }
}

#[test]
fn embedding_picks_rows_and_refuses_ids_outside() {
    let table = weight(3, 2, &[0.0, 1.0, 10.0, 11.0, 20.0, 21.0]);
    let run = |ids: &[i32]| {
        let op = Embedding { ids: BufferId(0), table: WeightId(0), out: view(ids.len(), 2) };
        let mut out = vec![-1.0; ids.len() * 2];
        op.reference(ids, &table, RowsMut::contiguous(&mut out, 2)).map(|()| out)
    };
    assert_eq!(run(&[2, 0, 2]).unwrap(), [20.0, 21.0, 0.0, 1.0, 20.0, 21.0]);
    assert_eq!(run(&[]).unwrap(), [0.0; 0]);
    for bad in [-1, 3, i32::MIN, i32::MAX] {
        assert_eq!(named(&run(&[0, bad]).unwrap_err()), ("embedding", "ids"));
    }
}

/// `x`, residual and weight, and what f64 arithmetic elsewhere makes of them with eps 1e-3.
const X: [f32; 4] = [1.0, -2.0, 0.5, 3.0];
const RESIDUAL: [f32; 4] = [0.25, 0.5, -1.0, 2.0];
const WEIGHT: [f32; 4] = [1.0, 0.5, 2.0, -1.0];
const NORM_X: [f64; 4] =
    [0.5297385987657587, -0.5297385987657587, 0.5297385987657587, -1.589215796297276];
const NORM_SUM: [f64; 4] =
    [0.46370698583972586, -0.27822419150383554, -0.3709655886717807, -1.8548279433589034];

fn rms_norm(rows: usize, residual: bool) -> RmsNorm {
    let residual = residual.then(|| view(rows, 4));
    RmsNorm { x: view(rows, 4), residual, weight: BufferId(1), eps: 1e-3, out: view(rows, 4) }
}

#[test]
fn rms_norm_alone_is_that_of_f64() {
    let x = [X, RESIDUAL].concat();
    let mut out = [0.0; 8];
    let rows = RowsMut::contiguous(&mut out, 4);
    rms_norm(2, false).reference(Rows::contiguous(&x, 4), None, &WEIGHT, rows);
    close(&out[..4], &NORM_X);
    let mut alone = [0.0; 4];
    let rows = RowsMut::contiguous(&mut alone, 4);
    rms_norm(1, false).reference(Rows::contiguous(&RESIDUAL, 4), None, &WEIGHT, rows);
    assert_eq!(out[4..], alone);
}

#[test]
fn rms_norm_keeps_the_sum_in_the_residual() {
    let (mut residual, mut out) = (RESIDUAL, [0.0; 4]);
    let rows = Some(RowsMut::contiguous(&mut residual, 4));
    let out_rows = RowsMut::contiguous(&mut out, 4);
    rms_norm(1, true).reference(Rows::contiguous(&X, 4), rows, &WEIGHT, out_rows);
    assert_eq!(residual, [1.25, -1.5, -0.5, 5.0]);
    close(&out, &NORM_SUM);
}

#[test]
fn rms_norm_of_zeros_is_zero_and_leaves_gaps_of_a_view_alone() {
    let mut out = [7.0; 9];
    let strided = RowView { offset: 1, stride: 5, ..view(2, 3) };
    let op = RmsNorm { x: view(2, 3), out: strided, ..rms_norm(2, false) };
    let x = Rows::contiguous(&[0.0; 6], 3);
    op.reference(x, None, &WEIGHT[..3], RowsMut::new(&mut out, &strided));
    assert_eq!(out, [7.0, 0.0, 0.0, 0.0, 7.0, 7.0, 0.0, 0.0, 0.0]);
}

#[test]
fn swiglu_is_silu_of_the_gate_times_up() {
    let gate = [0.0, 1.0, -1.0, 20.0, -100.0, 1.0];
    let up = [3.0, 2.0, 2.0, 1.0, 5.0, 0.0];
    let mut out = [9.0; 6];
    let op = SwiGlu { gate: view(2, 3), up: view(2, 3), out: view(2, 3) };
    let rows = (Rows::contiguous(&gate, 3), Rows::contiguous(&up, 3));
    op.reference(rows.0, rows.1, RowsMut::contiguous(&mut out, 3));
    close(&out, &[0.0, 1.4621171572600098, -0.5378828427399902, 19.999999958776925, 0.0, 0.0]);
    let none = SwiGlu { gate: view(0, 3), up: view(0, 3), out: view(0, 3) };
    let empty = Rows::contiguous(&[], 3);
    none.reference(empty, empty, RowsMut::contiguous(&mut [], 3));
}

#[test]
fn gather_copies_rows_and_refuses_those_outside() {
    let x = [0.0, 1.0, 10.0, 11.0, 20.0, 21.0];
    let run = |rows: &[i32]| {
        let op = GatherRows { x: view(3, 2), rows: BufferId(1), out: view(rows.len(), 2) };
        let mut out = vec![0.0; rows.len() * 2];
        let to = RowsMut::contiguous(&mut out, 2);
        op.reference(Rows::contiguous(&x, 2), rows, to).map(|()| out)
    };
    assert_eq!(run(&[2, 0, 2]).unwrap(), [20.0, 21.0, 0.0, 1.0, 20.0, 21.0]);
    assert_eq!(run(&[]).unwrap(), [0.0; 0]);
    for bad in [-1, 3] {
        assert_eq!(named(&run(&[bad]).unwrap_err()), ("gather_rows", "rows"));
    }
}

#[test]
fn feeding_takes_what_was_sampled_or_given() {
    let run = |source: &[i32]| {
        let [sampled, from, ids] = [1, 2, 3].map(BufferId);
        let num_tokens = source.len();
        let op = FeedTokens { sampled, num_rows: 3, source: from, ids, num_tokens };
        let mut ids = vec![9; num_tokens];
        op.reference(&[40, -1, 42, 43], source, &mut ids).map(|()| ids)
    };
    assert_eq!(run(&[2, 0, given(0), given(163_839)]).unwrap(), [42, 40, 0, 163_839]);
    assert_eq!(run(&[1]).unwrap(), [0], "no token was sampled");
    assert_eq!(named(&run(&[0, 3]).unwrap_err()), ("feed_tokens", "source"));
}

/// Order, offsets and permuted first column of tokens `0.0, 1.0, ..`.
type Permuted = (Vec<i32>, Vec<i32>, Vec<f32>);

fn permute(ids: &[i32], top_k: usize, num_experts: usize) -> Result<Permuted, super::PlanError> {
    let tokens = ids.len() / top_k;
    let op = Permute {
        x: view(tokens, 1),
        topk_ids: BufferId(1),
        top_k,
        num_experts,
        out: view(ids.len(), 1),
        order: BufferId(2),
        expert_offsets: BufferId(3),
    };
    let x: Vec<f32> = (0..tokens).map(|t| t as f32).collect();
    let mut out = vec![-1.0; ids.len()];
    let (mut order, mut offsets) = (vec![-1; ids.len()], vec![-1; num_experts + 1]);
    let rows = RowsMut::contiguous(&mut out, 1);
    op.reference((Rows::contiguous(&x, 1), ids), rows, &mut order, &mut offsets)?;
    Ok((order, offsets, out))
}

#[test]
fn permute_sorts_by_expert_and_keeps_the_order_within() {
    let (order, offsets, out) = permute(&[3, 1, 1, 0, 3, 1], 2, 5).unwrap();
    assert_eq!(order, [3, 1, 2, 5, 0, 4]);
    assert_eq!(offsets, [0, 1, 4, 4, 6, 6]);
    assert_eq!(out, [1.0, 0.0, 1.0, 2.0, 0.0, 2.0]);
    assert_eq!(permute(&[0], 1, 1).unwrap(), (vec![0], vec![0, 1], vec![0.0]));
    assert_eq!(permute(&[], 2, 3).unwrap(), (vec![], vec![0; 4], vec![]));
    for bad in [-1, 5] {
        assert_eq!(named(&permute(&[0, bad], 2, 5).unwrap_err()), ("permute", "topk_ids"));
    }
}

fn combine(order: &[i32], shared: Option<&[f32]>) -> Result<Vec<f32>, super::PlanError> {
    let tokens = order.len() / 2;
    let op = Combine {
        x: view(order.len(), 1),
        order: BufferId(1),
        topk_weights: BufferId(2),
        top_k: 2,
        shared: shared.map(|_| view(tokens, 1)),
        out: view(tokens, 1),
    };
    let x = [1.0, 10.0, 100.0, 1000.0];
    let inputs = CombineInputs {
        x: Rows::contiguous(&x[..order.len()], 1),
        order,
        topk_weights: &[0.5, 0.25, 2.0, 4.0][..order.len()],
        shared: shared.map(|shared| Rows::contiguous(shared, 1)),
    };
    let mut out = vec![-1.0; tokens];
    op.reference(&inputs, RowsMut::contiguous(&mut out, 1)).map(|()| out)
}

#[test]
fn combine_weighs_each_choice_and_adds_the_shared_row() {
    // Rows of `x` belong to choices 2, 0, 3, 1.
    let order = [2, 0, 3, 1];
    assert_eq!(combine(&order, None).unwrap(), [0.5 * 10.0 + 0.25 * 1000.0, 2.0 + 4.0 * 100.0]);
    assert_eq!(combine(&order, Some(&[3.0, -3.0])).unwrap(), [258.0, 399.0]);
    assert_eq!(combine(&[1, 0], None).unwrap(), [0.5 * 10.0 + 0.25]);
    assert_eq!(combine(&[], None).unwrap(), [0.0; 0]);
    for bad in [[0, 0, 1, 2], [0, 1, 2, 4], [0, 1, 2, -1]] {
        assert_eq!(named(&combine(&bad, None).unwrap_err()), ("combine", "order"));
    }
}

fn grouped(offsets: &[i32], rows: usize) -> Result<Vec<f32>, super::PlanError> {
    // Expert `e` multiplies by `10^e` and by `-10^e`.
    let weights = [1.0, 10.0, 100.0, 1000.0].map(|w| weight(2, 1, &[w, -w]));
    let x: Vec<f32> = (0..rows).map(|i| (i + 1) as f32).collect();
    let op = GroupedLinear {
        x: view(rows, 1),
        weights: (0..4).map(WeightId).collect(),
        expert_offsets: BufferId(1),
        out: view(rows, 2),
    };
    let mut out = vec![0.0; rows * 2];
    let to = RowsMut::contiguous(&mut out, 2);
    op.reference(Rows::contiguous(&x, 1), &weights.each_ref(), offsets, to).map(|()| out)
}

#[test]
fn grouped_linear_gives_each_expert_its_rows() {
    let got = grouped(&[0, 0, 2, 2, 3], 3).unwrap();
    assert_eq!(got, [10.0, -10.0, 20.0, -20.0, 3000.0, -3000.0]);
    assert_eq!(grouped(&[0, 0, 0, 1, 1], 1).unwrap(), [100.0, -100.0]);
    assert_eq!(grouped(&[0; 5], 0).unwrap(), [0.0; 0]);
    // Not from 0, falling, past the rows, short of them, negative.
    for bad in
        [[1, 1, 1, 1, 3], [0, 2, 1, 3, 3], [0, 4, 4, 4, 4], [0, 1, 1, 1, 2], [0, -1, 3, 3, 3]]
    {
        let error = grouped(&bad, 3).unwrap_err();
        assert_eq!(named(&error), ("grouped_linear", "expert_offsets"), "{bad:?}");
    }
}

#[test]
fn grouped_linear_has_the_bits_of_each_expert_alone() {
    let (cols, features) = (33, 40);
    let weights: Vec<_> =
        (0..3).map(|e| weight(features, cols, &wave(features * cols, 0.3 + e as f32))).collect();
    let x = wave(7 * cols, 0.7);
    let run = |offsets: &[i32], weights: &[_], x: &[f32]| {
        let rows = x.len() / cols;
        let op = GroupedLinear {
            x: view(rows, cols),
            weights: (0..3).map(WeightId).take(weights.len()).collect(),
            expert_offsets: BufferId(1),
            out: view(rows, features),
        };
        let mut out = vec![0.0; rows * features];
        let to = RowsMut::contiguous(&mut out, features);
        op.reference(Rows::contiguous(x, cols), weights, offsets, to).unwrap();
        out
    };
    let [a, b, c] = [&weights[0], &weights[1], &weights[2]];
    let together = run(&[0, 5, 6, 7], &[a, b, c], &x);
    let mut alone = run(&[0, 5], &[a], &x[..5 * cols]);
    alone.extend(run(&[0, 1], &[b], &x[5 * cols..6 * cols]));
    alone.extend(run(&[0, 1], &[c], &x[6 * cols..]));
    assert_eq!(together, alone);
}
