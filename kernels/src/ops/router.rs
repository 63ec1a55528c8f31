//! Choice of experts: sigmoid scores, a bias that selects but does not weigh, group limits.

use super::Rows;
use super::check::Check;
use crate::launch::{BufferId, BufferType, DeviceShapes, PlanError, RowView};

/// Picks `top_k` experts a token.
///
/// Scores are `sigmoid(logits)`. Choice is by `score + bias`, first of `topk_groups` groups (by
/// the sum of each group's two best), then of experts inside them; ties go to the lowest index.
/// Weights are the unbiased scores, divided by their sum (+1e-20) if `norm_topk_prob`, times
/// `routed_scaling_factor`.
///
/// # Shapes
/// - `logits`: f32 `[num_tokens, num_experts]`; `bias`: f32 `[num_experts]`
/// - `topk_ids`: i32, `topk_weights`: f32, both `[num_tokens, top_k]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Router {
    pub logits: RowView,
    pub bias: BufferId,
    pub top_k: usize,
    pub num_groups: usize,
    pub topk_groups: usize,
    pub norm_topk_prob: bool,
    pub routed_scaling_factor: f32,
    pub topk_ids: BufferId,
    pub topk_weights: BufferId,
}

impl Router {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not, the groups do not divide the experts, or the open groups hold
    /// fewer than `top_k` experts.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "router", shapes };
        let (tokens, experts) = (self.logits.rows, self.logits.cols);
        check.view("logits", &self.logits, [tokens, experts])?;
        check.array("bias", self.bias, BufferType::F32, experts)?;
        let groups = self.num_groups;
        let divides = groups > 0 && experts.is_multiple_of(groups);
        check.ensure(divides, "num_groups", groups, "a divisor of the number of experts")?;
        let open = (1..=groups).contains(&self.topk_groups);
        check.ensure(open, "topk_groups", self.topk_groups, "1 to `num_groups`")?;
        let reachable = experts / groups * self.topk_groups;
        let enough = (1..=reachable).contains(&self.top_k);
        check.ensure(enough, "top_k", self.top_k, "1 to the experts of the open groups")?;
        let choices = tokens.saturating_mul(self.top_k);
        check.array("topk_ids", self.topk_ids, BufferType::I32, choices)?;
        check.array("topk_weights", self.topk_weights, BufferType::F32, choices)?;
        check.apart("topk_weights", self.topk_weights, &[self.logits.buffer, self.bias])
    }

    /// Chooses.
    ///
    /// # Numerics
    /// Everything in f32. A NaN score is chosen last; if it is chosen, its weight is NaN.
    pub fn reference(
        &self,
        logits: Rows<'_>,
        bias: &[f32],
        topk_ids: &mut [i32],
        topk_weights: &mut [f32],
    ) {
        let ids = topk_ids.chunks_mut(self.top_k).zip(topk_weights.chunks_mut(self.top_k));
        for (t, (ids, weights)) in ids.take(logits.num_rows()).enumerate() {
            self.choose(logits.row(t), bias, ids, weights);
        }
    }

    fn choose(&self, logits: &[f32], bias: &[f32], ids: &mut [i32], weights: &mut [f32]) {
        let scores: Vec<f32> = logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect();
        let mut biased: Vec<f32> = scores.iter().zip(bias).map(|(s, b)| s + b).collect();
        let group_size = biased.len() / self.num_groups;
        let group_scores: Vec<f32> = biased
            .chunks(group_size)
            .map(|group| largest(group, 2.min(group_size)).iter().map(|&e| group[e]).sum())
            .collect();
        let open = largest(&group_scores, self.topk_groups);
        for (g, group) in biased.chunks_mut(group_size).enumerate() {
            // Not 0: open groups may hold negative scores.
            if !open.contains(&g) {
                group.fill(f32::NEG_INFINITY);
            }
        }
        let chosen = largest(&biased, self.top_k);
        let mut sum = 0.0;
        for ((id, weight), &expert) in ids.iter_mut().zip(weights.iter_mut()).zip(&chosen) {
            *id = i32::try_from(expert).expect("a model has fewer than 2^31 experts");
            *weight = scores[expert];
            sum += scores[expert];
        }
        let norm = if self.norm_topk_prob { sum + 1e-20 } else { 1.0 };
        weights.iter_mut().for_each(|w| *w = *w / norm * self.routed_scaling_factor);
    }
}

/// Indices of the `count` largest values, largest first; ties go to the lowest index, NaN is last.
fn largest(values: &[f32], count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| {
        let (a, b) = (values[a], values[b]);
        b.partial_cmp(&a).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
    });
    order.truncate(count);
    order
}
