//! What both pools do with their device: mirror tags, gauge pages, run once before serving.

use super::info::PoolMetrics;
use crate::cache::{NoopTracker, PageCounts, PageId, PagePool, PageTag, PageTracker};
use crate::device::{Device, DeviceError};
use crate::model::{Forward, NewTokens, SeqInput};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tessera_kernels::formats::KvFormat;
use tessera_kernels::ops::page_digest::DigestKey;
use tessera_kernels::ops::sample::{SampleParams, SampleRow};

use crate::cache::LeaseId;

/// Gives the device the tags that changed since the last step.
pub(super) fn mirror_tags<D: Device, T: PageTracker>(
    forward: &mut Forward<D>,
    pool: &mut PagePool<T>,
    changes: &mut Vec<(PageId, PageTag)>,
) -> Result<(), DeviceError> {
    changes.clear();
    pool.drain_changes(changes);
    changes.iter().try_for_each(|&(page, tag)| forward.set_page_tag(page, tag))
}

/// Runs one token through the model before any page is given out, so that a pool that cannot
/// compute never says it is ready, and gives every page the scales it is written with.
pub(super) fn warm_up<D: Device>(
    forward: &mut Forward<D>,
    scales: Option<&[f32]>,
) -> Result<(), DeviceError> {
    if let Some(scales) = scales {
        let num_pages = u32::try_from(forward.cache_spec().num_pages).unwrap_or(u32::MAX);
        (0..num_pages).try_for_each(|page| forward.set_page_scales(PageId(page), scales))?;
    }
    let pages = [PageId(0)];
    let params = SampleParams { temperature: 0.0, ..SampleParams::default() };
    let (params, tokens) = (Arc::new(params), Arc::from([]));
    let sample = Some(SampleRow { params, position: 1, tokens, prompt_len: 1 });
    let tokens_read = NewTokens::Given(&[0]);
    let input = SeqInput { tokens: tokens_read, start: 0, pages: &pages, ledger: &(), sample };
    forward.step::<NoopTracker>(&[input])?;
    forward.clear_page(PageId(0))
}

/// Runs what the hand-off will run, on a page that nobody has: the prefill pool measures and converts
/// pages to `target`, both digest them.
pub(super) fn warm_up_hand_off<D: Device>(
    forward: &mut Forward<D>,
    target: Option<&'static KvFormat>,
) -> Result<(), DeviceError> {
    let (page, scales) = (PageId(0), vec![1.0; forward.cache_spec().num_layers]);
    if let Some(target) = target {
        forward.amax(&[(page, 1)])?;
        forward.convert_pages(&[(page, 1)], target, &scales)?;
    }
    let key = DigestKey { owner: 0, generation: 0, logical_page: 0, valid_tokens: 1 };
    forward.digests(page, key).map(|_| ())
}

/// Shows a pool's pages and requests.
pub(super) fn gauge(metrics: &PoolMetrics, counts: PageCounts, running: usize, waiting: usize) {
    let set = |gauge: &AtomicU64, value: usize| gauge.store(value as u64, Ordering::Relaxed);
    set(&metrics.running_reqs, running);
    set(&metrics.queue_reqs, waiting);
    set(&metrics.pages_free, counts.free);
    set(&metrics.pages_cached, counts.cached);
    set(&metrics.pages_leased, counts.leased);
    set(&metrics.pages_quarantined, counts.quarantined);
}

/// What the digest of a page in a transfer binds.
pub(super) fn digest_key(
    lease: LeaseId,
    index: usize,
    page_size: usize,
    prompt_tokens: usize,
) -> DigestKey {
    let narrow = |value: usize| u32::try_from(value).expect("pages and tokens count below 2^32");
    DigestKey {
        owner: lease.transfer,
        generation: lease.generation,
        logical_page: narrow(index),
        valid_tokens: narrow(prompt_tokens.saturating_sub(index * page_size).min(page_size)),
    }
}
