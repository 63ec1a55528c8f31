//! What every device refuses in the same words.

use super::{CacheSpec, DeviceError, Source, Target};
use tessera_kernels::launch::BufferType;

/// The index of a page of a cache.
pub(super) fn check_page(spec: &CacheSpec, page: u32) -> Result<usize, DeviceError> {
    let index = page as usize;
    if index < spec.num_pages {
        return Ok(index);
    }
    Err(DeviceError::Range { what: "page", got: index, limit: spec.num_pages.saturating_sub(1) })
}

/// One usable scale a layer.
pub(super) fn check_scales(page: u32, scales: &[f32], want: usize) -> Result<(), DeviceError> {
    let got = scales.len();
    if got != want {
        return Err(DeviceError::Length { what: "page scales", got, want });
    }
    match scales.iter().position(|scale| !(scale.is_finite() && *scale > 0.0)) {
        Some(layer) => Err(DeviceError::Scale { page, layer, got: scales[layer] }),
        None => Ok(()),
    }
}

/// A cache that no address space holds.
pub(super) fn no_cache(spec: &CacheSpec) -> DeviceError {
    let want = format!(
        "{} layers of {} pages of {} tokens of {} elements",
        spec.num_layers, spec.num_pages, spec.page_size, spec.entry
    );
    DeviceError::Memory { what: "cache", want }
}

/// The id of what comes after `len` others.
pub(super) fn next_id(len: usize) -> u32 {
    u32::try_from(len).expect("a device holds fewer than 2^32 things")
}

impl Source<'_> {
    pub(super) const fn kind(&self) -> BufferType {
        match self {
            Self::F32(_) => BufferType::F32,
            Self::I32(_) => BufferType::I32,
            Self::I64(_) => BufferType::I64,
            Self::U32(_) => BufferType::U32,
            Self::U64(_) => BufferType::U64,
            Self::Bytes(_) => BufferType::Bytes,
        }
    }
}

impl Target<'_> {
    pub(super) const fn kind(&self) -> BufferType {
        match self {
            Self::F32(_) => BufferType::F32,
            Self::I32(_) => BufferType::I32,
            Self::I64(_) => BufferType::I64,
            Self::U32(_) => BufferType::U32,
            Self::U64(_) => BufferType::U64,
            Self::Bytes(_) => BufferType::Bytes,
        }
    }

    pub(super) const fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::Bytes(values) => values.len(),
        }
    }
}
