//! Launches that write, check and convert pages of the cache.

use super::super::CudaDevice;
use super::super::memory::Hold;
use super::super::views::{KernelArg, dense, strided};
use super::Result;
use crate::device::layout::{int, pairs};
use tessera_kernels::launch::CacheId;
use tessera_kernels::ops::kv_convert::{KvAmax, KvConvert};
use tessera_kernels::ops::kv_write::KvWrite;
use tessera_kernels::ops::page_digest::PageDigest;
use tessera_kernels::ops::page_tag_check::PageTagCheck;
use tessera_ptx::launch::Arg;

pub(super) fn kv_write(device: &mut CudaDevice, op: &KvWrite) -> Result {
    let spec = device.caches[op.cache.0 as usize].spec;
    let (tokens, rope) = (op.latent.rows, op.k_pe.cols);
    let (pair_stride, pair_gap) = pairs(&op.rotation, rope);
    let args = [
        device.rows(&op.latent),
        device.rows(&op.k_pe),
        device.array(op.rotation.positions, [tokens]),
        device.array(op.rotation.inv_freq, [rope / 2]),
        Arg::F32(op.rotation.magnitude),
        Arg::Int(pair_stride),
        Arg::Int(pair_gap),
        device.array(op.slot_mapping, [tokens]),
        Arg::Int(int(spec.page_size)),
        device.layer_scales(op.cache, op.layer),
        device.layer(op.cache, op.layer, (0, spec.entry)),
        device.array(op.saturated, [tokens]),
    ];
    Ok(device.kernels.launch("kv_write", &args)?)
}

pub(super) fn page_tag_check(device: &mut CudaDevice, op: &PageTagCheck) -> Result {
    let cache = &device.caches[op.cache.0 as usize];
    let tags = dense(cache.tags.address(), "u64", [cache.spec.num_pages]);
    let table = [op.num_seqs, op.max_pages_per_seq];
    device.writes([op.mismatch]);
    let args = [
        tags,
        device.array(op.block_table, table),
        device.array(op.expected, table),
        device.array(op.num_pages, [op.num_seqs]),
        device.array(op.cu_seqlens_q, [op.num_seqs + 1]),
        device.array(op.mismatch, [op.num_seqs]),
        device.array(op.slot_mapping, [op.num_tokens]),
    ];
    Ok(device.kernels.launch("page_tag_check", &args)?)
}

pub(super) fn page_digest(device: &mut CudaDevice, op: &PageDigest) -> Result {
    let spec = device.caches[op.cache.0 as usize].spec;
    let place = u64::from(op.key.logical_page) << 32 | u64::from(op.key.valid_tokens);
    let valid_bytes = op.key.valid_tokens as usize * spec.entry_bytes();
    let args = [
        words(device, op.cache, op.page)?,
        device.page_layer_scales(op.cache, op.page),
        Arg::Int(op.key.owner.cast_signed()),
        Arg::Int(op.key.generation.cast_signed()),
        Arg::Int(place.cast_signed()),
        Arg::Int(int(valid_bytes)),
        device.array(op.digests, [spec.num_layers]),
    ];
    Ok(device.kernels.launch("page_digest", &args)?)
}

/// A page's codes as words, `[layers, words]`: where they lie, or in a copy that ends in zeros if a
/// layer's bytes are no whole number of words.
fn words(device: &mut CudaDevice, cache: CacheId, page: u32) -> Result<KernelArg> {
    let CudaDevice { caches, scratch, .. } = device;
    let cache = &caches[cache.0 as usize];
    let (spec, page) = (&cache.spec, page as usize);
    let layer_bytes = spec.page_layer_bytes();
    let [layers, words] = [spec.num_layers, layer_bytes.div_ceil(8)];
    if layer_bytes.is_multiple_of(8) {
        let address = cache.data.address() + spec.page_offset(0, page) as u64;
        let stride = spec.num_pages * words;
        return Ok(strided(address, "u64", ([layers, words], [stride, 1])));
    }
    let copy = scratch.take(Hold::Words, layers * words * 8)?;
    copy.zero(0..layers * words * 8)?;
    for layer in 0..layers {
        let source = (&cache.data, spec.page_offset(layer, page));
        copy.copy(layer * words * 8, source, layer_bytes)?;
    }
    Ok(dense(copy.address(), "u64", [layers, words]))
}

pub(super) fn kv_amax(device: &mut CudaDevice, op: &KvAmax) -> Result {
    let layers = device.caches[op.cache.0 as usize].spec.num_layers;
    let args = [
        device.page(op.cache, op.page),
        device.page_layer_scales(op.cache, op.page),
        Arg::Int(i64::from(op.valid_tokens)),
        device.array(op.amax, [layers]),
    ];
    Ok(device.kernels.launch("kv_amax", &args)?)
}

pub(super) fn kv_convert(device: &mut CudaDevice, op: &KvConvert) -> Result {
    let spec = device.caches[op.cache.0 as usize].spec;
    let dims = [spec.num_layers, spec.page_size, spec.entry];
    let args = [
        device.page(op.cache, op.page),
        device.page_layer_scales(op.cache, op.page),
        Arg::Int(i64::from(op.valid_tokens)),
        device.array(op.target_scales, [spec.num_layers]),
        device.codes(op.out, op.target.element, dims),
        device.array(op.saturated, [spec.num_layers, spec.page_size]),
    ];
    let is_same = std::ptr::eq(op.target, spec.format);
    let kernel = if is_same { "kv_rescale" } else { "kv_convert" };
    Ok(device.kernels.launch(kernel, &args)?)
}
