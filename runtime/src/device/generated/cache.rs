//! Launches that write, check and convert pages of the cache.

use super::super::cpu::{Cache, CpuDevice};
use super::super::layout::{int, page_range, pairs};
use super::{Result, launched};
use std::ops::Range;
use tessera_kernel_artifacts::cpu;
use tessera_kernel_artifacts::lanes::exec::{StoredView, StoredViewMut};
use tessera_kernel_artifacts::lanes::{View, ViewMut};
use tessera_kernels::ops::kv_convert::{KvAmax, KvConvert};
use tessera_kernels::ops::kv_write::KvWrite;
use tessera_kernels::ops::page_digest::PageDigest;
use tessera_kernels::ops::page_tag_check::PageTagCheck;

pub(super) fn kv_write(device: &mut CpuDevice, op: &KvWrite) -> Result {
    let at = op.cache.0 as usize;
    let mut data = std::mem::take(&mut device.caches[at].data);
    let result = device.lend([op.saturated], |device, [saturated]| {
        let Cache { spec, scales, .. } = &device.caches[at];
        let (tokens, pages) = (op.latent.rows, spec.num_pages);
        let (pair_stride, pair_gap) = pairs(&op.rotation, op.k_pe.cols);
        let slots = spec.slot_offset(op.layer, 0)..spec.slot_offset(op.layer + 1, 0);
        let (element, dims) = (spec.format.element, [spec.num_slots(), spec.entry]);
        let launch = cpu::KvWrite {
            latent: device.view(&op.latent),
            k_pe: device.view(&op.k_pe),
            positions: View::new(device.i32(op.rotation.positions), [tokens]),
            inv_freq: View::new(device.f32(op.rotation.inv_freq), [op.k_pe.cols / 2]),
            magnitude: op.rotation.magnitude,
            pair_stride,
            pair_gap,
            slot_mapping: View::new(device.i64(op.slot_mapping), [tokens]),
            page_size: int(spec.page_size),
            k_scale: View::new(&scales[op.layer * pages..][..pages], [pages]),
            cache: StoredViewMut::new(&mut data[slots], element, dims),
            saturated: ViewMut::new(saturated.u32(), [tokens]),
        };
        launched(launch.launch(device.cpu()))
    });
    device.caches[at].data = data;
    result
}

pub(super) fn page_tag_check(device: &mut CpuDevice, op: &PageTagCheck) -> Result {
    device.lend([op.mismatch, op.slot_mapping], |device, [mismatch, slots]| {
        let tags = &device.caches[op.cache.0 as usize].tags;
        let table = [op.num_seqs, op.max_pages_per_seq];
        let launch = cpu::PageTagCheck {
            tags: View::new(tags, [tags.len()]),
            block_table: View::new(device.i32(op.block_table), table),
            expected: View::new(device.u64(op.expected), table),
            num_pages: View::new(device.i32(op.num_pages), [op.num_seqs]),
            cu_seqlens_q: View::new(device.i32(op.cu_seqlens_q), [op.num_seqs + 1]),
            mismatch: ViewMut::new(mismatch.i32(), [op.num_seqs]),
            slot_mapping: ViewMut::new(slots.i64(), [op.num_tokens]),
        };
        launched(launch.launch(device.cpu()))
    })
}

/// One page in all layers: the bytes from its first layer's to its last layer's, and its scales.
struct Page<'a> {
    cache: &'a Cache,
    bytes: Range<usize>,
    page: usize,
}

impl<'a> Page<'a> {
    fn of(cache: &'a Cache, page: u32) -> Self {
        let page = page as usize;
        Self { cache, bytes: page_range(&cache.spec, page), page }
    }

    /// `[layers, page_size, entry]`.
    fn codes(&self) -> StoredView<'a, 3> {
        let spec = &self.cache.spec;
        let dims = [spec.num_layers, spec.page_size, spec.entry];
        let strides = [spec.num_slots() * spec.entry, spec.entry, 1];
        let bytes = &self.cache.data[self.bytes.clone()];
        StoredView::strided(bytes, spec.format.element, (dims, strides))
    }

    /// `k_scale` of each layer.
    fn scales(&self) -> Vec<f32> {
        let spec = &self.cache.spec;
        let scale = |layer| self.cache.scales[layer * spec.num_pages + self.page];
        (0..spec.num_layers).map(scale).collect()
    }
}

pub(super) fn page_digest(device: &mut CpuDevice, op: &PageDigest) -> Result {
    device.lend_with_scratch([op.digests], |device, scratch, [digests]| {
        let cache = &device.caches[op.cache.0 as usize];
        let (spec, page) = (&cache.spec, op.page as usize);
        let [layers, words] = [spec.num_layers, spec.page_layer_bytes().div_ceil(8)];
        let copy = scratch.words.take(layers * words);
        for (layer, copy) in copy.chunks_mut(words.max(1)).enumerate() {
            let bytes = &cache.data[spec.page_offset(layer, page)..][..spec.page_layer_bytes()];
            for (word, bytes) in copy.iter_mut().zip(bytes.chunks(8)) {
                let mut padded = [0; 8];
                padded[..bytes.len()].copy_from_slice(bytes);
                *word = u64::from_le_bytes(padded);
            }
        }
        let scales = Page::of(cache, op.page).scales();
        let launch = cpu::PageDigest {
            words: View::new(copy, [layers, words]),
            k_scale: View::new(&scales, [layers]),
            owner: op.key.owner,
            generation: op.key.generation,
            place: u64::from(op.key.logical_page) << 32 | u64::from(op.key.valid_tokens),
            valid_bytes: int(op.key.valid_tokens as usize * spec.entry_bytes()),
            digests: ViewMut::new(digests.u64(), [layers]),
        };
        launched(launch.launch(device.cpu()))
    })
}

pub(super) fn kv_amax(device: &mut CpuDevice, op: &KvAmax) -> Result {
    device.lend([op.amax], |device, [amax]| {
        let page = Page::of(&device.caches[op.cache.0 as usize], op.page);
        let scales = page.scales();
        let launch = cpu::KvAmax {
            page: page.codes(),
            k_scale: View::new(&scales, [scales.len()]),
            valid_tokens: i64::from(op.valid_tokens),
            amax: ViewMut::new(amax.f32(), [scales.len()]),
        };
        launched(launch.launch(device.cpu()))
    })
}

pub(super) fn kv_convert(device: &mut CpuDevice, op: &KvConvert) -> Result {
    device.lend([op.out, op.saturated], |device, [out, saturated]| {
        let cache = &device.caches[op.cache.0 as usize];
        let spec = &cache.spec;
        let (page, counts) = (Page::of(cache, op.page), [spec.num_layers, spec.page_size]);
        let scales = page.scales();
        let k_scale = View::new(&scales, [spec.num_layers]);
        let target_scales = View::new(device.f32(op.target_scales), [spec.num_layers]);
        let dims = [spec.num_layers, spec.page_size, spec.entry];
        let out = StoredViewMut::new(out.bytes(), op.target.element, dims);
        let (valid_tokens, clamped) =
            (i64::from(op.valid_tokens), ViewMut::new(saturated.u32(), counts));
        if std::ptr::eq(op.target, spec.format) {
            let launch = cpu::KvRescale {
                page: page.codes(),
                k_scale,
                valid_tokens,
                target_scales,
                out,
                saturated: clamped,
            };
            return launched(launch.launch(device.cpu()));
        }
        let launch = cpu::KvConvert {
            page: page.codes(),
            k_scale,
            valid_tokens,
            target_scales,
            out,
            saturated: clamped,
        };
        launched(launch.launch(device.cpu()))
    })
}
