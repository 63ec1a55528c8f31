//! Tessera's side: a forward pass without scheduler or server, as the peers' tools run theirs.

use super::bounds::Bounds;
use super::profile::Profile;
use super::{BATCH_TOKENS, BATCHES, DECODE_TOKENS, PREFILL_TOKENS, Rates, SHARED_TOKENS};
use super::{batch_name, decode_name, prefill_name};
use anyhow::{Result, ensure};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tessera_kernels::ops::sample::{SampleParams, SampleRow};
use tessera_lanes::isa::AnyIsa;
use tessera_runtime::cache::{NoopTracker, PageId};
use tessera_runtime::checkpoint::{Checkpoint, WeightPolicy};
use tessera_runtime::device::{CacheSpec, CpuDevice, use_threads};
use tessera_runtime::engine::named_kv_format;
use tessera_runtime::model::{Attention, Forward, NewTokens, SeqInput, StepLimits};

const PAGE_SIZE: usize = 16;

/// A model on the CPU device.
pub(super) struct Ours {
    forward: Forward<CpuDevice>,
    profile: Option<Arc<Profile>>,
    /// What the weights and the memory of this machine allow.
    pub(super) bounds: Bounds,
}

impl Ours {
    pub(super) fn load(model: &Path, threads: usize, isa: AnyIsa, profile: bool) -> Result<Self> {
        use_threads(threads)?;
        let loaded = Checkpoint::open(model)?.load(&WeightPolicy::checkpoint(), &mut |_| {})?;
        let spec = &loaded.spec;
        let most = BATCHES.iter().max().copied().unwrap_or(1);
        let pages_per_seq = PREFILL_TOKENS.div_ceil(PAGE_SIZE) + 1;
        let cache = CacheSpec {
            format: named_kv_format("f16")?,
            num_layers: spec.num_layers,
            num_pages: pages_per_seq + most * BATCH_TOKENS.div_ceil(PAGE_SIZE),
            page_size: PAGE_SIZE,
            entry: spec.attention.kv_lora_rank + spec.attention.qk_rope_head_dim,
        };
        let limits =
            StepLimits { tokens: PREFILL_TOKENS, seqs: most, pages_per_seq, logit_rows: most };
        let limits = (Attention::Expanded, limits);
        let bounds = Bounds::measure(spec, &loaded.weights, threads)?;
        let mut device = CpuDevice::with_isa(isa, threads)?;
        let profile = profile.then(Arc::<Profile>::default);
        if let Some(profile) = profile.clone() {
            device.watch(profile);
        }
        let forward = Forward::new(device, spec, loaded.weights, cache, limits)?;
        Ok(Self { forward, profile, bounds })
    }

    /// Tokens a second of everything that has `only` in its name.
    pub(super) fn measure(&mut self, only: &str) -> Result<Rates> {
        let mut rates = Rates::new();
        for _ in 0..3 {
            if prefill_name().contains(only) {
                keep_best(&mut rates, prefill_name(), self.prefill(PREFILL_TOKENS)?);
            }
            if decode_name().contains(only) {
                keep_best(&mut rates, decode_name(), self.decode(1, 0, DECODE_TOKENS)?);
            }
        }
        for batch in BATCHES.into_iter().filter(|&batch| batch_name(batch).contains(only)) {
            self.prefill(SHARED_TOKENS)?;
            let rate = self.decode(batch, SHARED_TOKENS, BATCH_TOKENS)?;
            keep_best(&mut rates, batch_name(batch), rate);
        }
        Ok(rates)
    }

    /// Tokens a second of a prompt of `count` tokens, into the first pages.
    fn prefill(&mut self, count: usize) -> Result<f64> {
        let tokens: Vec<u32> = (0..count).map(token).collect();
        let pages = pages(0..count.div_ceil(PAGE_SIZE))?;
        self.forward.set_attention(Attention::Expanded)?;
        self.start_profile();
        let input = SeqInput::<NoopTracker> {
            tokens: NewTokens::Given(&tokens),
            start: 0,
            pages: &pages,
            ledger: &(),
            sample: Some(greedy(count)),
        };
        let rate = self.timed(&[input], count)?;
        self.end_profile(&prefill_name(), count as f64 / rate);
        Ok(rate)
    }

    /// Tokens a second of `batch` sequences that share the first `shared` tokens.
    fn decode(&mut self, batch: usize, shared: usize, count: usize) -> Result<f64> {
        self.forward.set_attention(Attention::Absorbed)?;
        let prefix = pages(0..shared.div_ceil(PAGE_SIZE))?;
        let own = count.div_ceil(PAGE_SIZE);
        let tables = (0..batch).map(|seq| {
            let first = prefix.len() + seq * own;
            Ok([prefix.clone(), pages(first..first + own)?].concat())
        });
        let tables: Vec<Vec<PageId>> = tables.collect::<Result<_>>()?;
        let mut seconds = 0.0;
        self.start_profile();
        for step in 0..count {
            let start = shared + step;
            let tokens: Vec<[u32; 1]> = (0..batch).map(|seq| [token(start + 31 * seq)]).collect();
            let inputs: Vec<_> = tables
                .iter()
                .zip(&tokens)
                .map(|(pages, tokens)| SeqInput::<NoopTracker> {
                    tokens: NewTokens::Given(tokens),
                    start,
                    pages: &pages[..(start + 1).div_ceil(PAGE_SIZE)],
                    ledger: &(),
                    sample: Some(greedy(start + 1)),
                })
                .collect();
            seconds += 1.0 / self.timed(&inputs, 1)?;
        }
        self.end_profile(&batch_name(batch), seconds);
        Ok((batch * count) as f64 / seconds)
    }

    fn start_profile(&self) {
        if let Some(profile) = &self.profile {
            profile.clear();
        }
    }

    fn end_profile(&self, what: &str, seconds: f64) {
        if let Some(profile) = &self.profile {
            profile.print(what, seconds);
        }
    }

    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    fn timed(&mut self, inputs: &[SeqInput<'_, NoopTracker>], count: usize) -> Result<f64> {
        let start = Instant::now();
        let outputs = self.forward.step(inputs)?;
        let seconds = start.elapsed().as_secs_f64();
        ensure!(outputs.iter().all(|o| o.sampled.is_some()), "a sequence got no token");
        Ok(count as f64 / seconds)
    }
}

fn keep_best(rates: &mut Rates, what: String, rate: f64) {
    let best = rates.entry(what).or_insert(0.0);
    *best = best.max(rate);
}

fn token(i: usize) -> u32 {
    u32::try_from(100 + i * 7919 % 40_000).expect("a token of the vocabulary")
}

fn pages(range: std::ops::Range<usize>) -> Result<Vec<PageId>> {
    range.map(|page| Ok(PageId(u32::try_from(page)?))).collect()
}

fn greedy(position: usize) -> SampleRow {
    SampleRow {
        params: Arc::new(SampleParams { temperature: 0.0, ..SampleParams::default() }),
        position: position as u64,
        tokens: Arc::from([]),
        prompt_len: 0,
    }
}
