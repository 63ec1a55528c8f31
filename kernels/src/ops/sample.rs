//! Picks the next token of each row from its logits.

use super::Rows;
use super::check::Check;
use super::page_digest::mix;
use crate::launch::{BufferId, BufferType, DeviceShapes, PlanError, RowView};
use rayon::prelude::*;
use std::collections::HashMap;

/// How one request samples. Values are checked at the door by [`SampleParams::check`].
#[derive(Debug, Clone, PartialEq)]
pub struct SampleParams {
    /// Divides the logits; up to 1e-5 means greedy.
    pub temperature: f32,
    /// Keeps the smallest set of tokens whose probability reaches this; 1 keeps all, 0 one token.
    pub top_p: f32,
    /// Keeps this many tokens; 0 keeps all.
    pub top_k: u32,
    /// Keeps tokens at least this likely relative to the likeliest.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen in prompt or output.
    pub repetition_penalty: f32,
    /// Subtracted per occurrence in the output.
    pub frequency_penalty: f32,
    /// Subtracted once if in the output.
    pub presence_penalty: f32,
    /// Added to logits of single tokens, before anything else.
    pub logit_bias: Vec<(u32, f32)>,
    /// Keys the random stream together with `choice` and the position, and with nothing else.
    pub seed: u64,
    /// Which of a request's `n` choices this is.
    pub choice: u32,
    /// Report the log probability of the sampled token and of this many likeliest tokens.
    pub top_logprobs: Option<u32>,
}

/// One row to sample.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleRow {
    /// How.
    pub params: std::sync::Arc<SampleParams>,
    /// Index of the token to be sampled, counted from the start of the prompt.
    pub position: u64,
    /// Tokens of prompt and output so far, the first `prompt_len` the prompt; may be empty if the
    /// row has no penalty.
    pub tokens: std::sync::Arc<[u32]>,
    /// Length of the prompt.
    pub prompt_len: usize,
}

/// Samples every row on its own: the result depends on no other row.
///
/// # Shapes
/// - `logits`: f32 `[num_rows, vocab_size]`
/// - `tokens`: i32 `[num_rows]`; -1 where the row's logits hold a NaN or a +inf, or no finite value
/// - `logprob`: f32 `[num_rows]`, natural log, of the raw (unpenalized, temperature 1) distribution
/// - `top_ids`: i32, `top_logprobs`: f32, both `[num_rows, max_top]`, sorted, -1 past what the row asked
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Sample {
    pub logits: RowView,
    pub rows: Vec<SampleRow>,
    pub max_top: usize,
    pub tokens: BufferId,
    pub logprob: BufferId,
    pub top_ids: BufferId,
    pub top_logprobs: BufferId,
}

/// Up to this temperature the likeliest token is taken.
pub const GREEDY_TEMPERATURE: f32 = 1e-5;

/// Most `top_logprobs` a row may ask for.
pub const MAX_TOP_LOGPROBS: u32 = 20;

/// A sampling parameter that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{field} is {value}, expected {want}")]
pub struct ParamError {
    /// Name of the parameter in the API.
    pub field: &'static str,
    /// What it was.
    pub value: String,
    /// What would do.
    pub want: &'static str,
}

impl Default for SampleParams {
    /// Temperature 1, seed 0, everything else off.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
            choice: 0,
            top_logprobs: None,
        }
    }
}

impl SampleParams {
    /// Whether every value is in range and every id in the vocabulary.
    ///
    /// # Errors
    /// [`ParamError`] of the first that is not.
    pub fn check(&self, vocab_size: usize) -> Result<(), ParamError> {
        let penalty = "a number from -2 to 2";
        for (field, value, range, want) in [
            ("temperature", self.temperature, 0.0..=100.0, "a number from 0 to 100"),
            ("top_p", self.top_p, 0.0..=1.0, "a number from 0 to 1"),
            ("min_p", self.min_p, 0.0..=1.0, "a number from 0 to 1"),
            (
                "repetition_penalty",
                self.repetition_penalty,
                0.01..=100.0,
                "a number from 0.01 to 100",
            ),
            ("frequency_penalty", self.frequency_penalty, -2.0..=2.0, penalty),
            ("presence_penalty", self.presence_penalty, -2.0..=2.0, penalty),
        ] {
            if !range.contains(&value) {
                return Err(ParamError { field, value: value.to_string(), want });
            }
        }
        for &(id, bias) in &self.logit_bias {
            if id as usize >= vocab_size {
                let (value, want) = (id.to_string(), "ids of the vocabulary");
                return Err(ParamError { field: "logit_bias", value, want });
            }
            if !(-100.0..=100.0).contains(&bias) {
                let (value, want) = (bias.to_string(), "biases from -100 to 100");
                return Err(ParamError { field: "logit_bias", value, want });
            }
        }
        match self.top_logprobs {
            Some(top) if top > MAX_TOP_LOGPROBS || top as usize > vocab_size => {
                let (value, want) =
                    (top.to_string(), "at most 20, and no more than there are tokens");
                Err(ParamError { field: "top_logprobs", value, want })
            }
            _ => Ok(()),
        }
    }

    /// Whether the likeliest token is taken.
    pub fn is_greedy(&self) -> bool {
        self.temperature <= GREEDY_TEMPERATURE
    }

    /// Whether the tokens so far matter.
    pub fn has_penalty(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0
    }
}

/// What was found for one row.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// The token; `None` where the logits hold a NaN or a +inf, or no finite value.
    pub token: Option<u32>,
    /// Its natural log probability; NaN without a token.
    pub logprob: f32,
    /// As many of the likeliest tokens as the row asked for, likeliest first.
    pub top: Vec<(u32, f32)>,
}

/// Where [`Sample::write`] writes.
#[derive(Debug)]
#[expect(missing_docs, reason = "as the launch")]
pub struct SampleOutputs<'a> {
    pub tokens: &'a mut [i32],
    pub logprob: &'a mut [f32],
    pub top_ids: &'a mut [i32],
    pub top_logprobs: &'a mut [f32],
}

impl Sample {
    /// Whether the shapes fit and every id is in the vocabulary.
    ///
    /// # Errors
    /// [`PlanError`] if not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "sample", shapes };
        let (rows, vocab) = (self.rows.len(), self.logits.cols);
        check.view("logits", &self.logits, [rows, vocab])?;
        check.ensure(i32::try_from(vocab).is_ok(), "vocab_size", vocab, "below 2^31")?;
        check.array("tokens", self.tokens, BufferType::I32, rows)?;
        check.array("logprob", self.logprob, BufferType::F32, rows)?;
        let top = rows.saturating_mul(self.max_top);
        check.array("top_ids", self.top_ids, BufferType::I32, top)?;
        check.array("top_logprobs", self.top_logprobs, BufferType::F32, top)?;
        check.apart("tokens", self.tokens, &[self.top_ids])?;
        check.apart("logprob", self.logprob, &[self.top_logprobs, self.logits.buffer])?;
        check.apart("top_logprobs", self.top_logprobs, &[self.logits.buffer])?;
        for row in &self.rows {
            row.params.check(vocab).map_err(|e| PlanError::Value {
                op: "sample",
                arg: e.field,
                got: e.value,
                want: e.want,
            })?;
            let top = row.params.top_logprobs.unwrap_or(0) as usize;
            check.ensure(top <= self.max_top, "top_logprobs", top, "at most `max_top`")?;
            if row.params.has_penalty() {
                let fits = row.prompt_len <= row.tokens.len();
                check.ensure(fits, "prompt_len", row.prompt_len, "at most the tokens so far")?;
                let bad = row.tokens.iter().find(|&&id| id as usize >= vocab);
                check.ensure(
                    bad.is_none(),
                    "tokens",
                    bad.unwrap_or(&0),
                    "ids of the vocabulary",
                )?;
            }
        }
        Ok(())
    }

    /// Samples.
    pub fn reference(&self, logits: Rows<'_>, outputs: SampleOutputs<'_>) {
        let choices: Vec<Choice> = self
            .rows
            .par_iter()
            .enumerate()
            .map(|(i, row)| sample_row(logits.row(i), row))
            .collect();
        self.write(choices, outputs);
    }

    /// Writes what was found for the rows, in their order.
    pub fn write(&self, choices: impl IntoIterator<Item = Choice>, outputs: SampleOutputs<'_>) {
        let top = self.max_top;
        for (i, choice) in choices.into_iter().enumerate() {
            outputs.tokens[i] = choice.token.map_or(-1, token_id);
            outputs.logprob[i] = choice.logprob;
            let ids = &mut outputs.top_ids[i * top..(i + 1) * top];
            let logprobs = &mut outputs.top_logprobs[i * top..(i + 1) * top];
            ids.fill(-1);
            logprobs.fill(f32::NEG_INFINITY);
            for ((to_id, to_logprob), (id, logprob)) in ids.iter_mut().zip(logprobs).zip(choice.top)
            {
                (*to_id, *to_logprob) = (token_id(id), logprob);
            }
        }
    }
}

fn token_id(id: u32) -> i32 {
    i32::try_from(id).expect("the vocabulary has fewer than 2^31 tokens")
}

/// Samples one row: bias, penalties, temperature, then `min_p`, `top_k` and `top_p` in that order.
#[expect(clippy::cast_possible_truncation, reason = "log probabilities are reported as f32")]
pub fn sample_row(logits: &[f32], row: &SampleRow) -> Choice {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if !max.is_finite() || logits.iter().any(|logit| logit.is_nan()) {
        return Choice { token: None, logprob: f32::NAN, top: Vec::new() };
    }
    let max = f64::from(max);
    let sum: f64 = logits.iter().map(|logit| (f64::from(*logit) - max).exp()).sum();
    let log_sum = max + sum.ln();
    let logprob = |id: u32| (f64::from(logits[id as usize]) - log_sum) as f32;

    let adjusted = adjust(logits, row);
    let token = if row.params.is_greedy() { argmax(&adjusted) } else { draw(&adjusted, row) };
    let count = row.params.top_logprobs.unwrap_or(0) as usize;
    let mut ids = all_ids(logits);
    keep_largest(&mut ids, count, logits);
    let top = ids.into_iter().map(|id| (id, logprob(id))).collect();
    Choice { token: Some(token), logprob: logprob(token), top }
}

/// Logits with bias and penalties.
fn adjust(logits: &[f32], row: &SampleRow) -> Vec<f32> {
    let params = &row.params;
    let mut logits = logits.to_vec();
    for &(id, bias) in &params.logit_bias {
        logits[id as usize] += bias;
    }
    if !params.has_penalty() {
        return logits;
    }
    let mut in_output: HashMap<u32, f32> = HashMap::new();
    for (i, &id) in row.tokens.iter().enumerate() {
        *in_output.entry(id).or_insert(0.0) += if i < row.prompt_len { 0.0 } else { 1.0 };
    }
    for (&id, &count) in &in_output {
        let logit = &mut logits[id as usize];
        if *logit > 0.0 {
            *logit /= params.repetition_penalty;
        } else {
            *logit *= params.repetition_penalty;
        }
        if count > 0.0 {
            *logit -= params.frequency_penalty * count + params.presence_penalty;
        }
    }
    logits
}

fn all_ids(logits: &[f32]) -> Vec<u32> {
    (0u32..).take(logits.len()).collect()
}

/// The largest value's index, the lowest of equals.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, &logit) in (0u32..).zip(logits) {
        if logit > best.1 {
            best = (id, logit);
        }
    }
    best.0
}

/// Keeps the ids of the `count` largest values, largest first, lower ids first among equals.
fn keep_largest(ids: &mut Vec<u32>, count: usize, values: &[f32]) {
    let order = |a: &u32, b: &u32| {
        values[*b as usize].total_cmp(&values[*a as usize]).then_with(|| a.cmp(b))
    };
    if count == 0 {
        ids.clear();
    } else if count < ids.len() {
        ids.select_nth_unstable_by(count - 1, order);
        ids.truncate(count);
    }
    ids.sort_unstable_by(order);
}

/// Draws from the tokens that the filters keep.
fn draw(logits: &[f32], row: &SampleRow) -> u32 {
    let params = &row.params;
    let max = f64::from(logits[argmax(logits) as usize]);
    let temperature = f64::from(params.temperature);
    // The largest weight is 1 whatever the temperature, so nothing overflows.
    let weight = |id: &u32| ((f64::from(logits[*id as usize]) - max) / temperature).exp();
    let mut ids = all_ids(logits);
    let mut least = f64::from(params.min_p);
    ids.retain(|id| weight(id) >= least && logits[*id as usize] > f32::NEG_INFINITY);
    let top_k = params.top_k as usize;
    if top_k > 0 && top_k < ids.len() {
        keep_largest(&mut ids, top_k, logits);
    }
    let mut total: f64 = ids.iter().map(weight).sum();
    if params.top_p < 1.0 {
        let top_p = f64::from(params.top_p);
        // All tokens below this weight together weigh less than what may be cut off, so the cut
        // falls among the others, and only those need sorting.
        #[expect(clippy::cast_precision_loss, reason = "a vocabulary is far below 2^52")]
        let tail = (1.0 - top_p) * total / ids.len() as f64;
        least = tail.min(1.0);
        ids.retain(|id| weight(id) >= least);
        let count = ids.len();
        keep_largest(&mut ids, count, logits);
        let mut mass = 0.0;
        let kept = ids.iter().position(|id| {
            mass += weight(id);
            mass >= top_p * total
        });
        ids.truncate(kept.map_or(ids.len(), |last| last + 1));
        total = ids.iter().map(weight).sum();
    }
    let mut left = uniform(params.seed, params.choice, row.position) * total;
    for id in &ids {
        left -= weight(id);
        if left < 0.0 {
            return *id;
        }
    }
    // Rounding may leave a crumb; it belongs to the last token.
    ids.last().copied().unwrap_or_else(|| argmax(logits))
}

/// A number in `[0, 1)` that depends on nothing but its arguments.
pub fn uniform(seed: u64, choice: u32, position: u64) -> f64 {
    let key = mix(seed ^ 0x6a09_e667_f3bc_c908);
    let key = mix(key.wrapping_add(u64::from(choice)).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let bits = mix(key ^ mix(position.wrapping_add(0xbb67_ae85_84ca_a73b)));
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    let numerator = (bits >> 11) as f64;
    numerator / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn row(params: SampleParams, position: u64) -> SampleRow {
        SampleRow { params: Arc::new(params), position, tokens: Arc::new([]), prompt_len: 0 }
    }

    fn shares(params: &SampleParams, logits: &[f32]) -> Vec<f64> {
        let mut counts = vec![0.0; logits.len()];
        for position in 0..20_000 {
            let token = sample_row(logits, &row(params.clone(), position)).token.unwrap();
            counts[token as usize] += 1.0 / 20_000.0;
        }
        counts
    }

    /// Probabilities 0.5, 0.3, 0.15, 0.05.
    fn logits() -> Vec<f32> {
        [0.5f32, 0.3, 0.15, 0.05].map(f32::ln).to_vec()
    }

    fn check(params: SampleParams, want: [f64; 4]) {
        for (got, want) in shares(&params, &logits()).into_iter().zip(want) {
            assert!((got - want).abs() < 0.015, "{got} for {want}");
            assert!(want > 0.0 || got == 0.0);
        }
    }

    #[test]
    fn filters_keep_what_they_should() {
        let base = SampleParams { seed: 11, ..SampleParams::default() };
        check(base.clone(), [0.5, 0.3, 0.15, 0.05]);
        check(SampleParams { top_k: 2, ..base.clone() }, [0.625, 0.375, 0.0, 0.0]);
        check(SampleParams { top_p: 0.7, ..base.clone() }, [0.625, 0.375, 0.0, 0.0]);
        check(SampleParams { top_p: 0.9, ..base.clone() }, [0.526, 0.316, 0.158, 0.0]);
        check(SampleParams { min_p: 0.2, ..base.clone() }, [0.526, 0.316, 0.158, 0.0]);
        // Squares of the probabilities, normalized.
        check(SampleParams { temperature: 0.5, ..base }, [0.6849, 0.2466, 0.0616, 0.0068]);
    }

    #[test]
    fn logprobs_are_of_the_raw_distribution() {
        let params = SampleParams {
            temperature: 0.0,
            logit_bias: vec![(3, 50.0)],
            top_logprobs: Some(2),
            ..SampleParams::default()
        };
        let got = sample_row(&logits(), &row(params, 0));
        assert_eq!(got.token, Some(3));
        assert!((got.logprob - 0.05f32.ln()).abs() < 1e-6);
        assert_eq!(got.top.iter().map(|t| t.0).collect::<Vec<_>>(), [0, 1]);
        assert!((got.top[1].1 - 0.3f32.ln()).abs() < 1e-6);
    }
}
