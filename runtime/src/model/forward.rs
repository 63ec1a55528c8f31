//! The forward pass of one pool: a step's sequences in, checked samples out.
//!
//! A step is a list of launches. This file holds what a pool keeps on its device and the order of
//! a step; `layers.rs` says which launches a decoder layer is, `workspace.rs` which buffers they use.

use super::host::{StepAnswers, StepInputs};
use super::layers::{Attention, LayerIds, Place};
use super::workspace::{Workspace, WorkspaceLimits, mla_dims};
use super::{ModelSpec, ModelWeights};
use crate::cache::{NoopTracker, PageId, PageTracker, tracking};
use crate::device::{CacheSpec, Device, DeviceError, PlanKey, ReadTicket, wants_likeliest};
use std::sync::Arc;
use tessera_kernels::launch::{BufferId, CacheId, Launch, RowView, WeightId};
use tessera_kernels::ops::embedding::Embedding;
use tessera_kernels::ops::feed::FeedTokens;
use tessera_kernels::ops::gather::GatherRows;
use tessera_kernels::ops::linear::Linear;
use tessera_kernels::ops::page_tag_check::PageTagCheck;
use tessera_kernels::ops::rms_norm::RmsNorm;
use tessera_kernels::ops::sample::{Sample, SampleParams, SampleRow};

/// What a sequence reads in a step.
#[derive(Debug, Clone, Copy)]
pub enum NewTokens<'a> {
    /// These, at least one.
    Given(&'a [u32]),
    /// The one that the step submitted before samples in this row, which the host may not know yet.
    Sampled {
        /// Which of that step's sampled sequences it is.
        row: usize,
    },
}

impl NewTokens<'_> {
    /// How many they are; there is no step of none.
    #[expect(clippy::len_without_is_empty, reason = "they are never none")]
    pub fn len(&self) -> usize {
        match self {
            Self::Given(tokens) => tokens.len(),
            Self::Sampled { .. } => 1,
        }
    }
}

/// One sequence's part of a step.
#[derive(Debug)]
pub struct SeqInput<'a, T: PageTracker> {
    /// New tokens.
    pub tokens: NewTokens<'a>,
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

/// A step that was submitted, to be finished once.
#[derive(Debug)]
#[must_use = "a step's samples come from finishing it"]
pub struct StepTicket {
    /// Which answers are its.
    side: usize,
    read: ReadTicket,
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
    /// Of the two steps that may be under way, in turn.
    answers: [StepAnswers; 2],
    /// Steps submitted, and those of them that were finished.
    submitted: usize,
    finished: usize,
    plan: Plan,
    /// Rows of the last sample launch, emptied: memory for the next one.
    sample_rows: Vec<SampleRow>,
}

/// The launches of a step, which are the same for all steps of one shape: all but the sampling of rows
/// that want more than their likeliest token.
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
    /// Rows whose logits are wanted.
    rows: usize,
    attention: Attention,
    /// Whether page tags are checked first.
    is_checked: bool,
    /// Whether the ids are made on the device.
    is_fed: bool,
    /// Whether every row wants its likeliest token and nothing else.
    is_likeliest: bool,
}

impl StepShape {
    fn key(&self) -> PlanKey {
        let Self { tokens, seqs, rows, attention, is_checked, is_fed, is_likeliest } = *self;
        let flags = [is_checked, is_fed, is_likeliest].map(usize::from);
        let [checked, fed, likeliest] = flags;
        PlanKey([tokens, seqs, rows, attention as usize | checked << 1 | fed << 2 | likeliest << 3])
    }
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
        let inputs = StepInputs::new(&limits);
        let answers = [StepAnswers::new(&limits), StepAnswers::new(&limits)];
        let cache = device.alloc_cache(cache_spec)?;
        let CacheSpec { num_layers, page_size, entry, .. } = cache_spec;
        let limits = WorkspaceLimits { step: limits, num_layers, page_size, entry };
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
            submitted: 0,
            finished: 0,
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

    /// Whether a step that samples so goes on by itself once it was submitted, so that the next one
    /// may be submitted before it is finished. What is sampled on the host is not known to the device
    /// before.
    pub fn runs_ahead<'a>(&self, params: impl IntoIterator<Item = &'a SampleParams>) -> bool {
        self.device.runs_ahead() && params.into_iter().all(wants_likeliest)
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
        let ticket = self.submit(seqs)?;
        self.finish::<T>(ticket)
    }

    /// Asks the device for a step, which [`Forward::finish`] waits for. One more may be submitted
    /// before that, and may read the tokens of this one ([`NewTokens::Sampled`]).
    ///
    /// # Errors
    /// As [`Forward::step`].
    ///
    /// # Panics
    /// If two steps are under way.
    pub fn submit<T: PageTracker>(
        &mut self,
        seqs: &[SeqInput<'_, T>],
    ) -> Result<StepTicket, DeviceError> {
        assert!(self.submitted - self.finished < 2, "two steps are under way");
        let is_fed = self.device.runs_ahead() && seqs.iter().all(|seq| seq.tokens.len() == 1);
        self.inputs.fill(seqs, (self.cache_spec.page_size, is_fed));
        let samples = seqs.iter().filter_map(|seq| seq.sample.as_ref());
        let is_likeliest = samples.into_iter().all(|row| wants_likeliest(&row.params));
        self.run_plan::<T>(seqs.len(), is_likeliest)?;
        let max_top = if is_likeliest { 0 } else { self.sample(seqs)? };
        let side = self.submitted % 2;
        let answers = &mut self.answers[side];
        answers.expect(seqs, max_top);
        let read = answers.start_read::<D, T>(&mut self.device, &self.work)?;
        self.submitted += 1;
        Ok(StepTicket { side, read })
    }

    /// Waits for a step, and for nothing that was submitted after it.
    ///
    /// # Errors
    /// As [`Forward::step`].
    pub fn finish<T: PageTracker>(
        &mut self,
        StepTicket { side, read }: StepTicket,
    ) -> Result<Vec<SeqOutput>, DeviceError> {
        self.finished += 1;
        let answers = &mut self.answers[side];
        answers.finish_read::<D, T>(&mut self.device, (&self.work, read))?;
        Ok(answers.outputs::<T>())
    }

    /// Logits of every new token of one sequence, `[tokens, vocab_size]`: for checks, not serving.
    ///
    /// # Errors
    /// [`DeviceError`] of the device, among others if `logit_rows` is under the number of tokens.
    pub fn logits(&mut self, seq: &SeqInput<'_, NoopTracker>) -> Result<Vec<f32>, DeviceError> {
        self.inputs.fill(std::slice::from_ref(seq), (self.cache_spec.page_size, false));
        self.inputs.last_rows.clear();
        self.inputs.last_rows.extend((0..seq.tokens.len()).map(row_index));
        self.run_plan::<NoopTracker>(1, false)?;
        let mut logits = vec![0.0; seq.tokens.len() * self.spec.vocab_size];
        self.device.read_f32(self.work.logits, &mut logits)?;
        Ok(logits)
    }

    /// Puts a step's inputs on the device and runs its plan.
    fn run_plan<T: PageTracker>(
        &mut self,
        num_seqs: usize,
        is_likeliest: bool,
    ) -> Result<(), DeviceError> {
        self.work.write_step::<D, T>(&mut self.device, &self.inputs)?;
        let shape = StepShape {
            tokens: self.inputs.num_tokens(),
            seqs: num_seqs,
            rows: self.inputs.last_rows.len(),
            attention: self.attention,
            is_checked: T::KEEPS_TAGS,
            is_fed: self.inputs.are_fed,
            is_likeliest,
        };
        if self.plan.shape != Some(shape) {
            self.make_plan(shape);
        }
        self.device.perform_plan(shape.key(), &self.plan.launches)
    }

    /// Lists the launches of steps of `shape`, in the memory of the list before.
    fn make_plan(&mut self, shape: StepShape) {
        let mut launches = std::mem::take(&mut self.plan.launches);
        launches.clear();
        tracking! {
            if shape.is_checked {
                launches.push(Launch::PageTagCheck(self.tag_check(&shape)));
            }
        }
        if shape.is_fed {
            launches.push(Launch::FeedTokens(FeedTokens {
                sampled: self.work.sampled,
                num_rows: self.work.limits.logit_rows,
                source: self.work.source,
                ids: self.work.ids,
                num_tokens: shape.tokens,
            }));
        }
        let views = self.work.views(&self.spec, shape.tokens, shape.seqs);
        launches.push(Launch::Embedding(Embedding {
            ids: self.work.ids,
            table: self.embed_tokens,
            out: views.hidden,
        }));
        for (layer, weights) in self.layers.iter().enumerate() {
            let place = Place { cache: self.cache, layer, attention: shape.attention };
            weights.push(&self.spec, &views, place, &mut launches);
        }
        launches.push(Launch::RmsNorm(RmsNorm {
            x: views.delta,
            residual: Some(views.hidden),
            weight: self.norm,
            eps: self.spec.rms_norm_eps,
            out: views.normed,
        }));
        self.push_logits(&shape, &mut launches);
        self.plan = Plan { shape: Some(shape), launches };
    }

    fn tag_check(&self, shape: &StepShape) -> PageTagCheck {
        PageTagCheck {
            cache: self.cache,
            block_table: self.work.block_table,
            expected: self.work.expected_tags,
            num_pages: self.work.num_pages,
            num_seqs: shape.seqs,
            max_pages_per_seq: self.work.limits.pages_per_seq,
            mismatch: self.work.mismatch,
            cu_seqlens_q: self.work.cu_seqlens_q,
            num_tokens: shape.tokens,
            slot_mapping: self.work.slot_mapping,
        }
    }

    /// Vocabulary logits of the rows `inputs.last_rows` of the final hidden state, and their likeliest
    /// tokens if those are all that is wanted.
    fn push_logits(&self, shape: &StepShape, launches: &mut Vec<Launch>) {
        if shape.rows == 0 {
            return;
        }
        let hidden = self.spec.hidden_size;
        let picked = RowView::contiguous(self.work.picked, shape.rows, hidden);
        let logits = RowView::contiguous(self.work.logits, shape.rows, self.spec.vocab_size);
        launches.push(Launch::GatherRows(GatherRows {
            x: RowView::contiguous(self.work.normed, shape.tokens, hidden),
            rows: self.work.picked_rows,
            out: picked,
        }));
        launches.push(Launch::Linear(Linear { x: picked, weight: self.lm_head, out: logits }));
        if shape.is_likeliest {
            let params = SampleParams { temperature: 0.0, ..SampleParams::default() };
            let (params, tokens) = (Arc::new(params), Arc::from([]));
            let row = SampleRow { params, position: 0, tokens, prompt_len: 0 };
            launches.push(Launch::Sample(self.sample_launch(vec![row; shape.rows], 0)));
        }
    }

    fn sample_launch(&self, rows: Vec<SampleRow>, max_top: usize) -> Sample {
        Sample {
            logits: RowView::contiguous(self.work.logits, rows.len(), self.spec.vocab_size),
            rows,
            max_top,
            tokens: self.work.sampled,
            logprob: self.work.sampled_logprob,
            top_ids: self.work.top_ids,
            top_logprobs: self.work.top_logprobs,
        }
    }

    /// Samples for the sequences that want it; how many likeliest tokens are told of each.
    fn sample<T: PageTracker>(&mut self, seqs: &[SeqInput<'_, T>]) -> Result<usize, DeviceError> {
        let mut rows = std::mem::take(&mut self.sample_rows);
        rows.extend(seqs.iter().filter_map(|seq| seq.sample.clone()));
        let max_top = rows.iter().filter_map(|row| row.params.top_logprobs).max().unwrap_or(0);
        let launch = Launch::Sample(self.sample_launch(rows, max_top as usize));
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
