//! The forward pass of one pool: a step's sequences in, checked samples out.
//!
//! A step is a list of launches. This file holds what a pool keeps on its device and the order of
//! a step; `layers.rs` says which launches a decoder layer is, `workspace.rs` which buffers they use.

use super::layers::{Attention, LayerIds, Place};
use super::workspace::{Workspace, WorkspaceLimits};
use super::{ModelSpec, ModelWeights};
use crate::cache::{NoopTracker, PageId, PageTracker, tracking};
use crate::device::{CacheSpec, Device, DeviceError};
use tessera_kernels::launch::{BufferId, CacheId, Launch, RowView, WeightId};
use tessera_kernels::ops::embedding::Embedding;
use tessera_kernels::ops::gather::GatherRows;
use tessera_kernels::ops::linear::Linear;
use tessera_kernels::ops::page_tag_check::PageTagCheck;
use tessera_kernels::ops::rms_norm::RmsNorm;
use tessera_kernels::ops::sample::{Sample, SampleRow};

/// One sequence's part of a step.
#[derive(Debug)]
pub struct SeqInput<'a, T: PageTracker> {
    /// New tokens, at least one.
    pub tokens: &'a [u32],
    /// Position of the first of them: tokens already in the cache.
    pub start: usize,
    /// Pages of the sequence in order, enough for `start + tokens.len()` tokens.
    pub pages: &'a [PageId],
    /// What the sequence expects of `pages`.
    pub ledger: &'a T::Ledger,
    /// How to sample the token after the last one; `None` in all but a prompt's last chunk.
    pub sample: Option<SampleRow>,
}

/// What a step found for one sequence.
#[derive(Debug, Clone, PartialEq)]
pub struct SeqOutput {
    /// First page whose tag was not the expected one. The sequence's sample must not be used.
    pub bad_page: Option<usize>,
    /// The sampled token, if the sequence asked for one.
    pub sampled: Option<Sampled>,
    /// Cache elements that did not fit their format and were clamped.
    pub saturated: u64,
}

/// Outcome of sampling.
#[derive(Debug, Clone, PartialEq)]
pub enum Sampled {
    /// A token of the vocabulary.
    Token {
        /// Its id.
        id: u32,
        /// Its natural log probability.
        logprob: f32,
        /// The likeliest tokens, as many as the row asked for.
        top: Vec<(u32, f32)>,
    },
    /// The logits held a NaN or an infinity.
    NotFinite,
}

/// The largest step a pool will run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// New tokens over all sequences.
    pub tokens: usize,
    /// Sequences.
    pub seqs: usize,
    /// Pages of one sequence.
    pub pages_per_seq: usize,
    /// Rows whose logits are wanted.
    pub logit_rows: usize,
}

/// A model on a device, with its paged cache.
#[derive(Debug)]
pub struct Forward<D: Device> {
    device: D,
    spec: ModelSpec,
    attention: Attention,
    embed_tokens: WeightId,
    layers: Vec<LayerIds>,
    norm: BufferId,
    lm_head: WeightId,
    cache: CacheId,
    cache_spec: CacheSpec,
    work: Workspace,
}

impl<D: Device> Forward<D> {
    /// Puts `weights` and an empty cache on `device`.
    ///
    /// # Errors
    /// [`DeviceError`] if the device's memory does not suffice.
    pub fn new(
        mut device: D,
        spec: &ModelSpec,
        weights: ModelWeights,
        cache_spec: CacheSpec,
        limits: (Attention, StepLimits),
    ) -> Result<Self, DeviceError> {
        let (attention, limits) = limits;
        let cache = device.alloc_cache(cache_spec)?;
        let num_layers = cache_spec.num_layers;
        let page_elements = num_layers * cache_spec.page_size * cache_spec.entry;
        let limits = WorkspaceLimits { step: limits, num_layers, page_elements };
        let work = Workspace::new(&mut device, spec, limits)?;
        let embed_tokens = device.load_weight(weights.embed_tokens)?;
        let lm_head = device.load_weight(weights.lm_head)?;
        let norm = device.alloc_f32(weights.norm.len())?;
        device.write_f32(norm, &weights.norm)?;
        let layers = weights
            .layers
            .into_iter()
            .map(|layer| LayerIds::load(&mut device, layer))
            .collect::<Result<_, _>>()?;
        let spec = spec.clone();
        Ok(Self {
            device,
            spec,
            attention,
            embed_tokens,
            layers,
            norm,
            lm_head,
            cache,
            cache_spec,
            work,
        })
    }

    /// Changes how the next steps attend: both forms read the same cache.
    pub fn set_attention(&mut self, attention: Attention) {
        self.attention = attention;
    }

    /// The device, for what is not a step: page conversion, digests, tags.
    pub fn device(&mut self) -> &mut D {
        &mut self.device
    }

    /// The cache's id on the device.
    pub fn cache(&self) -> CacheId {
        self.cache
    }

    /// The cache's shape.
    pub fn cache_spec(&self) -> &CacheSpec {
        &self.cache_spec
    }

    /// The scratch buffers that page operations use.
    pub(super) fn work(&self) -> &Workspace {
        &self.work
    }

    /// Runs one step: check tags, write the new tokens' cache entries, sample.
    ///
    /// # Errors
    /// [`DeviceError`] of the device; a sequence's own trouble is in its [`SeqOutput`].
    pub fn step<T: PageTracker>(
        &mut self,
        seqs: &[SeqInput<'_, T>],
    ) -> Result<Vec<SeqOutput>, DeviceError> {
        let sampling: Vec<usize> = (0..seqs.len()).filter(|&s| seqs[s].sample.is_some()).collect();
        let last_rows = last_rows(seqs, &sampling);
        let num_tokens = self.work.write_step(&mut self.device, seqs, self.cache_spec.page_size)?;
        tracking! {
            if T::KEEPS_TAGS {
                self.device.perform(&Launch::PageTagCheck(self.tag_check(seqs.len(), num_tokens)))?;
            }
        }
        self.run_layers(num_tokens, seqs.len())?;
        if !sampling.is_empty() {
            self.project(num_tokens, &last_rows)?;
            let rows = sampling.iter().filter_map(|&s| seqs[s].sample.clone()).collect();
            self.device.perform(&Launch::Sample(self.sample(rows)))?;
        }
        let mut outputs = self.outputs(seqs)?;
        tracking! {
            if T::KEEPS_TAGS {
                self.read_mismatches(&mut outputs)?;
            }
        }
        for (sampled, &s) in self.read_samples(seqs, &sampling)?.into_iter().zip(&sampling) {
            outputs[s].sampled = Some(sampled);
        }
        Ok(outputs)
    }

    /// Logits of every new token of one sequence, `[tokens, vocab_size]`: for checks, not serving.
    ///
    /// # Errors
    /// [`DeviceError`] of the device, among others if `logit_rows` is under the number of tokens.
    pub fn logits(&mut self, seq: &SeqInput<'_, NoopTracker>) -> Result<Vec<f32>, DeviceError> {
        let seqs = std::slice::from_ref(seq);
        let num_tokens = self.work.write_step(&mut self.device, seqs, self.cache_spec.page_size)?;
        self.run_layers(num_tokens, 1)?;
        let rows: Vec<i32> = (0..seq.tokens.len()).map(row_index).collect();
        self.project(num_tokens, &rows)?;
        let mut logits = vec![0.0; rows.len() * self.spec.vocab_size];
        self.device.read_f32(self.work.logits, &mut logits)?;
        Ok(logits)
    }

    fn tag_check(&self, num_seqs: usize, num_tokens: usize) -> PageTagCheck {
        PageTagCheck {
            cache: self.cache,
            block_table: self.work.block_table,
            expected: self.work.expected_tags,
            num_pages: self.work.num_pages,
            num_seqs,
            max_pages_per_seq: self.work.limits.pages_per_seq,
            mismatch: self.work.mismatch,
            cu_seqlens_q: self.work.cu_seqlens_q,
            num_tokens,
            slot_mapping: self.work.slot_mapping,
        }
    }

    fn run_layers(&mut self, num_tokens: usize, num_seqs: usize) -> Result<(), DeviceError> {
        let views = self.work.views(&self.spec, num_tokens, num_seqs);
        self.device.perform(&Launch::Embedding(Embedding {
            ids: self.work.ids,
            table: self.embed_tokens,
            out: views.hidden,
        }))?;
        for (layer, weights) in self.layers.iter().enumerate() {
            let place = Place { cache: self.cache, layer, attention: self.attention };
            for launch in weights.launches(&self.spec, &views, place) {
                self.device.perform(&launch)?;
            }
        }
        self.device.perform(&Launch::RmsNorm(RmsNorm {
            x: views.delta,
            residual: Some(views.hidden),
            weight: self.norm,
            eps: self.spec.rms_norm_eps,
            out: views.normed,
        }))
    }

    /// Vocabulary logits of the given rows of the final hidden state.
    fn project(&mut self, num_tokens: usize, rows: &[i32]) -> Result<(), DeviceError> {
        let (hidden, vocab) = (self.spec.hidden_size, self.spec.vocab_size);
        let picked = RowView::contiguous(self.work.picked, rows.len(), hidden);
        self.device.write_i32(self.work.picked_rows, rows)?;
        self.device.perform(&Launch::GatherRows(GatherRows {
            x: RowView::contiguous(self.work.normed, num_tokens, hidden),
            rows: self.work.picked_rows,
            out: picked,
        }))?;
        self.device.perform(&Launch::Linear(Linear {
            x: picked,
            weight: self.lm_head,
            out: RowView::contiguous(self.work.logits, rows.len(), vocab),
        }))
    }

    fn sample(&self, rows: Vec<SampleRow>) -> Sample {
        let max_top = rows.iter().filter_map(|row| row.params.top_logprobs).max().unwrap_or(0);
        Sample {
            logits: RowView::contiguous(self.work.logits, rows.len(), self.spec.vocab_size),
            rows,
            max_top: max_top as usize,
            tokens: self.work.sampled,
            logprob: self.work.sampled_logprob,
            top_ids: self.work.top_ids,
            top_logprobs: self.work.top_logprobs,
        }
    }

    /// One output a sequence, so far without its sample and the tag check's answer.
    fn outputs<T: PageTracker>(
        &self,
        seqs: &[SeqInput<'_, T>],
    ) -> Result<Vec<SeqOutput>, DeviceError> {
        let mut saturated = vec![0; seqs.iter().map(|seq| seq.tokens.len()).sum()];
        self.device.read_u32(self.work.saturated, &mut saturated)?;
        let mut rest = saturated.as_slice();
        let mut outputs = Vec::with_capacity(seqs.len());
        for seq in seqs {
            let (own, others) = rest.split_at(seq.tokens.len());
            rest = others;
            let saturated = own.iter().map(|&count| u64::from(count)).sum();
            outputs.push(SeqOutput { bad_page: None, sampled: None, saturated });
        }
        Ok(outputs)
    }

    fn read_mismatches(&self, outputs: &mut [SeqOutput]) -> Result<(), DeviceError> {
        let mut mismatch = vec![-1; outputs.len()];
        self.device.read_i32(self.work.mismatch, &mut mismatch)?;
        for (output, &index) in outputs.iter_mut().zip(&mismatch) {
            output.bad_page = usize::try_from(index).ok();
        }
        Ok(())
    }

    fn read_samples<T: PageTracker>(
        &self,
        seqs: &[SeqInput<'_, T>],
        sampling: &[usize],
    ) -> Result<Vec<Sampled>, DeviceError> {
        let wanted = |s: usize| {
            seqs[s].sample.as_ref().and_then(|row| row.params.top_logprobs).unwrap_or(0) as usize
        };
        let max_top = sampling.iter().map(|&s| wanted(s)).max().unwrap_or(0);
        let mut tokens = vec![0; sampling.len()];
        let mut logprobs = vec![0.0; sampling.len()];
        let mut top_ids = vec![0; sampling.len() * max_top];
        let mut top_logprobs = vec![0.0; sampling.len() * max_top];
        self.device.read_i32(self.work.sampled, &mut tokens)?;
        self.device.read_f32(self.work.sampled_logprob, &mut logprobs)?;
        self.device.read_i32(self.work.top_ids, &mut top_ids)?;
        self.device.read_f32(self.work.top_logprobs, &mut top_logprobs)?;
        let one = |(row, &s): (usize, &usize)| match u32::try_from(tokens[row]) {
            Err(_) => Sampled::NotFinite,
            Ok(id) => {
                let range = row * max_top..row * max_top + wanted(s);
                let top = top_ids[range.clone()].iter().zip(&top_logprobs[range]);
                let top =
                    top.filter_map(|(&id, &lp)| Some((u32::try_from(id).ok()?, lp))).collect();
                Sampled::Token { id, logprob: logprobs[row], top }
            }
        };
        Ok(sampling.iter().enumerate().map(one).collect())
    }
}

/// Row of the last token of each of the sequences `picked`.
fn last_rows<T: PageTracker>(seqs: &[SeqInput<'_, T>], picked: &[usize]) -> Vec<i32> {
    let ends: Vec<usize> = seqs
        .iter()
        .scan(0, |end, seq| {
            *end += seq.tokens.len();
            Some(*end)
        })
        .collect();
    picked.iter().map(|&s| row_index(ends[s] - 1)).collect()
}

pub(super) fn row_index(row: usize) -> i32 {
    i32::try_from(row).expect("a step has fewer than 2^31 rows")
}
