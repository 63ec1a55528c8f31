//! The forward pass of one pool: a step's sequences in, checked samples out.
//!
//! A step is a list of launches. This file holds what a pool keeps on its device and the order of
//! a step; `layers.rs` says which launches a decoder layer is, `workspace.rs` which buffers they use.

use super::host::{StepAnswers, StepInputs};
use super::layers::{Attention, LayerIds, Place};
use super::workspace::{Workspace, WorkspaceLimits, mla_dims};
use super::{ModelSpec, ModelWeights};
use crate::cache::{NoopTracker, PageId, PageTracker, tracking};
use crate::device::{CacheSpec, Device, DeviceError, PlanKey};
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

impl<'a, T: PageTracker> SeqInput<'a, T> {
    /// An empty list in the memory of `old`, whose sequences were those of another step.
    pub fn recycle(mut old: Vec<SeqInput<'_, T>>) -> Vec<SeqInput<'a, T>> {
        old.clear();
        // Collecting into a type of the same layout keeps the memory.
        old.into_iter().map(|_| unreachable!("the list was emptied")).collect()
    }
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
    inputs: StepInputs,
    answers: StepAnswers,
    plan: Plan,
    /// Rows of the last sample launch, emptied: memory for the next one.
    sample_rows: Vec<SampleRow>,
}

/// The launches from token ids to the last norm, which are the same for all steps of one shape.
#[derive(Debug, Default)]
struct Plan {
    shape: Option<StepShape>,
    launches: Vec<Launch>,
}

/// What the launches of a step depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StepShape {
    tokens: usize,
    seqs: usize,
    attention: Attention,
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
        let (inputs, answers) = (StepInputs::new(&limits), StepAnswers::new(&limits));
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
        let mut forward = Self {
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
            inputs,
            answers,
            plan: Plan::default(),
            sample_rows: Vec::with_capacity(limits.step.seqs),
        };
        forward.set_attention(attention)?;
        Ok(forward)
    }

    /// Changes how the next steps attend: both forms read the same cache.
    ///
    /// # Errors
    /// [`DeviceError`] if the device lacks memory for what the form needs.
    pub fn set_attention(&mut self, attention: Attention) -> Result<(), DeviceError> {
        self.attention = attention;
        if attention == Attention::Absorbed {
            let dims = mla_dims(&self.spec);
            for layer in &self.layers {
                self.device.prepare_absorption(layer.kv_b(), &dims)?;
            }
        }
        Ok(())
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
    /// Steps of one shape allocate nothing but what they return.
    ///
    /// # Errors
    /// [`DeviceError`] of the device; a sequence's own trouble is in its [`SeqOutput`].
    pub fn step<T: PageTracker>(
        &mut self,
        seqs: &[SeqInput<'_, T>],
    ) -> Result<Vec<SeqOutput>, DeviceError> {
        self.begin(seqs)?;
        tracking! {
            if T::KEEPS_TAGS {
                self.device.perform(&Launch::PageTagCheck(self.tag_check(seqs.len())))?;
            }
        }
        self.run_layers(seqs.len())?;
        let max_top = self.sample(seqs)?;
        self.answers.read::<D, T>(&self.device, &self.work, (&self.inputs, max_top))?;
        Ok(self.answers.outputs(seqs))
    }

    /// Logits of every new token of one sequence, `[tokens, vocab_size]`: for checks, not serving.
    ///
    /// # Errors
    /// [`DeviceError`] of the device, among others if `logit_rows` is under the number of tokens.
    pub fn logits(&mut self, seq: &SeqInput<'_, NoopTracker>) -> Result<Vec<f32>, DeviceError> {
        self.begin(std::slice::from_ref(seq))?;
        self.run_layers(1)?;
        self.inputs.last_rows.clear();
        self.inputs.last_rows.extend((0..seq.tokens.len()).map(row_index));
        self.project()?;
        let mut logits = vec![0.0; seq.tokens.len() * self.spec.vocab_size];
        self.device.read_f32(self.work.logits, &mut logits)?;
        Ok(logits)
    }

    /// Puts a step's inputs on the device.
    fn begin<T: PageTracker>(&mut self, seqs: &[SeqInput<'_, T>]) -> Result<(), DeviceError> {
        self.inputs.fill(seqs, self.cache_spec.page_size);
        self.work.write_step::<D, T>(&mut self.device, &self.inputs)
    }

    fn tag_check(&self, num_seqs: usize) -> PageTagCheck {
        PageTagCheck {
            cache: self.cache,
            block_table: self.work.block_table,
            expected: self.work.expected_tags,
            num_pages: self.work.num_pages,
            num_seqs,
            max_pages_per_seq: self.work.limits.pages_per_seq,
            mismatch: self.work.mismatch,
            cu_seqlens_q: self.work.cu_seqlens_q,
            num_tokens: self.inputs.num_tokens(),
            slot_mapping: self.work.slot_mapping,
        }
    }

    fn run_layers(&mut self, num_seqs: usize) -> Result<(), DeviceError> {
        let tokens = self.inputs.num_tokens();
        let shape = StepShape { tokens, seqs: num_seqs, attention: self.attention };
        if self.plan.shape != Some(shape) {
            self.make_plan(shape);
        }
        let key = PlanKey([tokens, num_seqs, self.attention as usize]);
        self.device.perform_plan(key, &self.plan.launches)
    }

    /// Lists the launches of steps of `shape`, in the memory of the list before.
    fn make_plan(&mut self, shape: StepShape) {
        let views = self.work.views(&self.spec, shape.tokens, shape.seqs);
        let Plan { shape: planned, launches } = &mut self.plan;
        launches.clear();
        launches.push(Launch::Embedding(Embedding {
            ids: self.work.ids,
            table: self.embed_tokens,
            out: views.hidden,
        }));
        for (layer, weights) in self.layers.iter().enumerate() {
            let place = Place { cache: self.cache, layer, attention: shape.attention };
            weights.push(&self.spec, &views, place, launches);
        }
        launches.push(Launch::RmsNorm(RmsNorm {
            x: views.delta,
            residual: Some(views.hidden),
            weight: self.norm,
            eps: self.spec.rms_norm_eps,
            out: views.normed,
        }));
        *planned = Some(shape);
    }

    /// Vocabulary logits of the rows `inputs.last_rows` of the final hidden state.
    fn project(&mut self) -> Result<(), DeviceError> {
        let (hidden, vocab) = (self.spec.hidden_size, self.spec.vocab_size);
        let rows = &self.inputs.last_rows;
        let picked = RowView::contiguous(self.work.picked, rows.len(), hidden);
        let logits = RowView::contiguous(self.work.logits, rows.len(), vocab);
        self.device.write_i32(self.work.picked_rows, rows)?;
        self.device.perform(&Launch::GatherRows(GatherRows {
            x: RowView::contiguous(self.work.normed, self.inputs.num_tokens(), hidden),
            rows: self.work.picked_rows,
            out: picked,
        }))?;
        let lm_head = Linear { x: picked, weight: self.lm_head, out: logits };
        self.device.perform(&Launch::Linear(lm_head))
    }

    /// Samples for the sequences that want it; how many likeliest tokens are told of each.
    fn sample<T: PageTracker>(&mut self, seqs: &[SeqInput<'_, T>]) -> Result<usize, DeviceError> {
        if self.inputs.sampling.is_empty() {
            return Ok(0);
        }
        self.project()?;
        let mut rows = std::mem::take(&mut self.sample_rows);
        rows.extend(seqs.iter().filter_map(|seq| seq.sample.clone()));
        let max_top = rows.iter().filter_map(|row| row.params.top_logprobs).max().unwrap_or(0);
        let launch = Launch::Sample(Sample {
            logits: RowView::contiguous(self.work.logits, rows.len(), self.spec.vocab_size),
            rows,
            max_top: max_top as usize,
            tokens: self.work.sampled,
            logprob: self.work.sampled_logprob,
            top_ids: self.work.top_ids,
            top_logprobs: self.work.top_logprobs,
        });
        self.device.perform(&launch)?;
        if let Launch::Sample(Sample { mut rows, .. }) = launch {
            rows.clear();
            self.sample_rows = rows;
        }
        Ok(max_top as usize)
    }
}

pub(super) fn row_index(row: usize) -> i32 {
    i32::try_from(row).expect("a step has fewer than 2^31 rows")
}
