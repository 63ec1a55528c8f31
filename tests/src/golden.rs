//! A checkpoint's forward pass against outputs that transformers recorded.
//!
//! A golden folder holds `config.json`, `model.safetensors` and `golden.safetensors` (`input_ids`
//! `[1, P]`, `logits` `[P + N, V]` of one pass over prompt and continuation, `greedy_ids` `[N]`).

use anyhow::{Context, Result, ensure};
use safetensors::SafeTensors;
use std::path::Path;
use std::sync::Arc;
use tessera_kernels::formats::{KvFormat, kv_format};
use tessera_kernels::ops::sample::{SampleParams, SampleRow};
use tessera_runtime::cache::{NoopTracker, PageId};
use tessera_runtime::checkpoint::{Checkpoint, WeightPolicy};
use tessera_runtime::device::{CacheSpec, CpuDevice, Device};
use tessera_runtime::model::{
    Attention, Forward, ModelSpec, ModelWeights, NewTokens, Sampled, SeqInput, SeqOutput,
    StepLimits,
};

/// Tokens a page in these checks: not a divisor of the prompt's length, so pages end ragged.
const PAGE_SIZE: usize = 9;

/// What transformers answered.
#[derive(Debug)]
pub struct Recorded {
    /// Prompt.
    pub input_ids: Vec<u32>,
    /// `[P + N, V]`.
    pub logits: Vec<f32>,
    /// Greedy continuation.
    pub greedy_ids: Vec<u32>,
}

impl Recorded {
    /// Reads `golden.safetensors` of `dir`.
    ///
    /// # Errors
    /// If the file or one of its three tensors is not there.
    pub fn read(dir: &Path) -> Result<Self> {
        let path = dir.join("golden.safetensors");
        let bytes =
            std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let tensors = SafeTensors::deserialize(&bytes)?;
        let ids = |name| -> Result<Vec<u32>> {
            let data = tensors.tensor(name)?.data().to_vec();
            let ids = data.as_chunks::<8>().0.iter().map(|c| i64::from_le_bytes(*c));
            ids.map(|id| u32::try_from(id).context("a token id")).collect()
        };
        let logits = tensors.tensor("logits")?.data().to_vec();
        let logits = logits.as_chunks::<4>().0.iter().map(|c| f32::from_le_bytes(*c)).collect();
        Ok(Self { input_ids: ids("input_ids")?, logits, greedy_ids: ids("greedy_ids")? })
    }
}

/// A model loaded for checks: one sequence, one pool.
#[derive(Debug)]
pub struct Subject {
    spec: ModelSpec,
    weights: ModelWeights,
    kv: &'static KvFormat,
}

impl Subject {
    /// Loads the checkpoint in `dir` as it is stored, to run with a cache of format `kv`.
    ///
    /// # Errors
    /// Those of the loader, and an unknown cache format.
    pub fn load(dir: &Path, kv: &str) -> Result<Self> {
        let loaded = Checkpoint::open(dir)?.load(&WeightPolicy::checkpoint(), &mut |_| {})?;
        let kv = kv_format(kv).with_context(|| format!("no cache format is called {kv}"))?;
        Ok(Self { spec: loaded.spec, weights: loaded.weights, kv })
    }

    fn forward<D: Device>(
        &self,
        device: D,
        attention: Attention,
        tokens: usize,
    ) -> Result<Forward<D>> {
        let num_pages = tokens.div_ceil(PAGE_SIZE);
        let attn = &self.spec.attention;
        let cache = CacheSpec {
            format: self.kv,
            num_layers: self.spec.num_layers,
            num_pages,
            page_size: PAGE_SIZE,
            entry: attn.kv_lora_rank + attn.qk_rope_head_dim,
        };
        let limits = StepLimits { tokens, seqs: 1, pages_per_seq: num_pages, logit_rows: tokens };
        Ok(Forward::new(device, &self.spec, self.weights.clone(), cache, (attention, limits))?)
    }

    /// Logits of every position of `tokens`, in one pass.
    ///
    /// # Errors
    /// Those of the device.
    pub fn logits(&self, attention: Attention, tokens: &[u32]) -> Result<Vec<f32>> {
        self.logits_on(CpuDevice::new(), attention, tokens)
    }

    /// As [`Subject::logits`], on another device.
    ///
    /// # Errors
    /// Those of the device.
    pub fn logits_on<D: Device>(
        &self,
        device: D,
        attention: Attention,
        tokens: &[u32],
    ) -> Result<Vec<f32>> {
        let mut forward = self.forward(device, attention, tokens.len())?;
        let pages = pages(tokens.len());
        Ok(forward.logits(&SeqInput {
            tokens: NewTokens::Given(tokens),
            start: 0,
            pages: &pages,
            ledger: &(),
            sample: None,
        })?)
    }

    /// Greedy continuation of `prompt` by `count` tokens: the prompt in chunks of `chunk` with
    /// expanded attention, the rest token by token with absorbed attention over the same cache.
    ///
    /// # Errors
    /// Those of the device, and logits that are not finite.
    pub fn greedy(&self, prompt: &[u32], count: usize, chunk: usize) -> Result<Vec<u32>> {
        self.greedy_on(CpuDevice::new(), prompt, (count, chunk))
    }

    /// As [`Subject::greedy`], on another device. Where the device allows it, each step is submitted
    /// before the one before is finished.
    ///
    /// # Errors
    /// Those of the device, and logits that are not finite.
    pub fn greedy_on<D: Device>(
        &self,
        device: D,
        prompt: &[u32],
        (count, chunk): (usize, usize),
    ) -> Result<Vec<u32>> {
        let total = prompt.len() + count;
        let mut forward = self.forward(device, Attention::Expanded, total)?;
        let pages = pages(total);
        let params = Arc::new(SampleParams { temperature: 0.0, ..SampleParams::default() });
        let sample = |position: usize| SampleRow {
            params: params.clone(),
            position: position as u64,
            tokens: Arc::from([]),
            prompt_len: prompt.len(),
        };
        let mut outputs = Vec::new();
        for (index, tokens) in prompt.chunks(chunk.min(prompt.len())).enumerate() {
            let (start, read) = (index * chunk, NewTokens::Given(tokens));
            let end = start + tokens.len();
            let sample = (end == prompt.len()).then(|| sample(end));
            outputs = forward.step(&[input(read, (start, &pages), sample)])?;
        }
        let mut tokens = vec![sampled(outputs)?];
        forward.set_attention(Attention::Absorbed)?;
        let runs_ahead = forward.runs_ahead([&*params]);
        let mut running = None;
        for start in prompt.len()..total - 1 {
            let read = match &running {
                Some(_) => NewTokens::Sampled { row: 0 },
                None => NewTokens::Given(&tokens[start - prompt.len()..]),
            };
            let sample = Some(sample(start + 1));
            let ticket = forward.submit(&[input(read, (start, &pages), sample)])?;
            if let Some(before) = running.replace(ticket) {
                tokens.push(sampled(forward.finish::<NoopTracker>(before)?)?);
            }
            if let Some(own) = running.take_if(|_| !runs_ahead) {
                tokens.push(sampled(forward.finish::<NoopTracker>(own)?)?);
            }
        }
        if let Some(last) = running {
            tokens.push(sampled(forward.finish::<NoopTracker>(last)?)?);
        }
        Ok(tokens)
    }

    /// Vocabulary size.
    pub fn vocab_size(&self) -> usize {
        self.spec.vocab_size
    }
}

fn input<'a>(
    tokens: NewTokens<'a>,
    (start, pages): (usize, &'a [PageId]),
    sample: Option<SampleRow>,
) -> SeqInput<'a, NoopTracker> {
    SeqInput { tokens, start, pages, ledger: &(), sample }
}

/// The token of a step of one sequence.
fn sampled(outputs: Vec<SeqOutput>) -> Result<u32> {
    match outputs.into_iter().next().and_then(|output| output.sampled) {
        Some(Sampled::Token { id, .. }) => Ok(id),
        Some(Sampled::NotFinite) => anyhow::bail!("logits are not finite"),
        None => anyhow::bail!("no sample"),
    }
}

fn pages(tokens: usize) -> Vec<PageId> {
    (0..).map(PageId).take(tokens.div_ceil(PAGE_SIZE)).collect()
}

/// The largest relative error of a row's logits: over rows, `max |got - want| / max |want|`.
///
/// # Errors
/// If the two differ in length.
pub fn max_relative_error(got: &[f32], want: &[f32], vocab_size: usize) -> Result<f32> {
    ensure!(got.len() == want.len(), "{} logits against {}", got.len(), want.len());
    let row_error = |(got, want): (&[f32], &[f32])| {
        let largest = want.iter().fold(0.0f32, |m, w| m.max(w.abs()));
        let diff = got.iter().zip(want).map(|(g, w)| (g - w).abs());
        // A NaN must count as the worst error, and `f32::max` would drop it.
        diff.fold(0.0f32, |m, d| if d > m || d.is_nan() { d } else { m }) / largest
    };
    let rows = got.chunks(vocab_size).zip(want.chunks(vocab_size));
    Ok(rows.map(row_error).fold(0.0f32, |m, e| if e > m || e.is_nan() { e } else { m }))
}
