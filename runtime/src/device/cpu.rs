//! The CPU device: buffers are vectors, and launches run on threads of its own. What kernels pass to
//! each other within a launch grows to the largest launch seen; nothing else grows.

use super::checks::{check_page, check_scales, next_id, no_cache};
use super::generated::{Absorbed, Scratch};
use super::perform;
use super::{CacheSpec, Device, DeviceError, Source, Target};
use rayon::prelude::*;
use std::sync::Arc;
use tessera_kernel_artifacts::lanes::exec::Watch;
use tessera_kernel_artifacts::lanes::isa::AnyIsa;
use tessera_kernel_artifacts::lanes::memory::Arena;
use tessera_kernel_artifacts::lanes::packed::{PackedWeights, WeightParts};
use tessera_kernel_artifacts::lanes::{Cpu, Pool};
use tessera_kernels::formats::PackedMatrix;
use tessera_kernels::launch::{BufferId, BufferType, CacheId, DeviceShapes, Launch, WeightId};
use tessera_kernels::ops::mla_prefill::MlaDims;

/// Host memory behind the ids of launches.
#[derive(Debug)]
pub struct CpuDevice {
    pub(super) kernels: Kernels,
    pub(super) shapes: DeviceShapes,
    pub(super) buffers: Vec<Buffer>,
    /// Weights as loaded, for the references; empty where kernels are generated.
    pub(super) weights: Vec<PackedMatrix>,
    /// Weights as generated kernels read them; empty elsewhere.
    pub(super) packed: Vec<PackedWeights>,
    pub(super) absorbed: Absorbed,
    pub(super) scratch: Scratch,
    arena: Arena,
    pub(super) caches: Vec<Cache>,
}

/// The code that launches run.
#[derive(Debug)]
pub(super) enum Kernels {
    /// Kernels made from the kernel language, on these threads: what serves.
    Generated(Box<Cpu>),
    /// The ops' references: what tests compare with.
    Reference,
    /// Kernels that do nothing, on these threads: what measures the rest of a step.
    Idle(Pool),
}

/// One typed array.
#[derive(Debug)]
pub(super) enum Buffer {
    F32(Vec<f32>),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U32(Vec<u32>),
    U64(Vec<u64>),
    Bytes(Vec<u8>),
}

impl Default for Buffer {
    /// What stands in for a buffer while a launch writes it.
    fn default() -> Self {
        Self::Bytes(Vec::new())
    }
}

/// One paged cache. `data` comes zeroed from the system, so pages never written take no memory.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) spec: CacheSpec,
    pub(super) data: Vec<u8>,
    /// `[num_layers][num_pages]`.
    pub(super) scales: Vec<f32>,
    /// `[num_pages]`; untouched, and so without memory, in a pool that keeps no tags.
    pub(super) tags: Vec<u64>,
}

impl CpuDevice {
    /// A device that holds nothing and computes on the calling thread.
    pub fn new() -> Self {
        Self::with(Kernels::generated(Pool::of_caller()))
    }

    /// A device that computes on `num_threads` threads, the calling one included; 0 is one a core.
    ///
    /// # Errors
    /// [`DeviceError::Threads`] if they cannot be started.
    pub fn with_threads(num_threads: usize) -> Result<Self, DeviceError> {
        threads(num_threads).map(|pool| Self::with(Kernels::generated(pool)))
    }

    /// A device with this instruction set, on that many threads, to compare with the fastest; 0 is
    /// one a core.
    ///
    /// # Errors
    /// As [`CpuDevice::with_threads`].
    pub fn with_isa(isa: AnyIsa, num_threads: usize) -> Result<Self, DeviceError> {
        let pool = threads(num_threads)?;
        Ok(Self::with(Kernels::Generated(Box::new(Cpu::new(isa, pool)))))
    }

    /// A device that runs the ops' references, to compare with.
    pub fn reference() -> Self {
        Self::with(Kernels::Reference)
    }

    /// A device whose kernels do nothing on that many threads: launches are checked, handed to the
    /// threads and waited for. To measure what a step is beside its kernels; 0 is one a core.
    ///
    /// # Errors
    /// As [`CpuDevice::with_threads`].
    pub fn idle(num_threads: usize) -> Result<Self, DeviceError> {
        threads(num_threads).map(|pool| Self::with(Kernels::Idle(pool)))
    }

    /// Threads that a launch may use, the calling one included.
    pub fn threads(&self) -> usize {
        match &self.kernels {
            Kernels::Generated(cpu) => cpu.pool().threads(),
            Kernels::Idle(pool) => pool.threads(),
            Kernels::Reference => 1,
        }
    }

    /// Lets `watch` see every launch of a kernel from now on, for profiles.
    pub fn watch(&mut self, watch: Arc<dyn Watch>) {
        if let Kernels::Generated(cpu) = &mut self.kernels {
            cpu.watch(watch);
        }
    }

    fn with(kernels: Kernels) -> Self {
        let shapes = DeviceShapes::default();
        Self {
            kernels,
            shapes,
            buffers: Vec::new(),
            weights: Vec::new(),
            packed: Vec::new(),
            absorbed: Absorbed::default(),
            scratch: Scratch::default(),
            arena: Arena::new(),
            caches: Vec::new(),
        }
    }

    fn cache(&self, id: CacheId, page: u32) -> Result<(&Cache, usize), DeviceError> {
        let cache = self.caches.get(id.0 as usize);
        let cache = cache.ok_or(DeviceError::Unknown { kind: "cache", id: id.0 })?;
        check_page(&cache.spec, page).map(|page| (cache, page))
    }

    fn cache_mut(&mut self, id: CacheId, page: u32) -> Result<(&mut Cache, usize), DeviceError> {
        let cache = self.caches.get_mut(id.0 as usize);
        let cache = cache.ok_or(DeviceError::Unknown { kind: "cache", id: id.0 })?;
        check_page(&cache.spec, page).map(|page| (cache, page))
    }
}

impl Kernels {
    /// With the fastest instruction set of this machine.
    fn generated(pool: Pool) -> Self {
        Self::Generated(Box::new(Cpu::new(AnyIsa::best(), pool)))
    }
}

impl Default for CpuDevice {
    fn default() -> Self {
        Self::new()
    }
}

fn threads(num: usize) -> Result<Pool, DeviceError> {
    let num = match num {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        num => num,
    };
    match num {
        1 => Ok(Pool::of_caller()),
        num => Pool::new(num).map_err(|error| DeviceError::Threads { reason: error.to_string() }),
    }
}

/// Brings a weight into the layout that micro-kernels read, on the threads that load.
pub(super) fn pack(weight: &PackedMatrix, arena: &Arena) -> Result<PackedWeights, DeviceError> {
    let parts = WeightParts {
        format: weight.format,
        rows: weight.rows,
        cols: weight.cols,
        codes: &weight.codes,
        scales: &weight.scales,
        zero_points: &weight.zero_points,
        tensor_scale: weight.tensor_scale,
    };
    let packed = PackedWeights::pack_by(&parts, arena, |bytes, panel_bytes, pack| {
        bytes.par_chunks_mut(panel_bytes).enumerate().for_each(|(panel, bytes)| pack(panel, bytes));
    });
    Ok(packed?)
}

impl Cache {
    /// Byte range of `page` in `layer`.
    fn range(&self, layer: usize, page: usize) -> std::ops::Range<usize> {
        let start = self.spec.page_offset(layer, page);
        start..start + self.spec.page_layer_bytes()
    }
}

impl Device for CpuDevice {
    fn alloc(&mut self, kind: BufferType, len: usize) -> Result<BufferId, DeviceError> {
        let fits = len.checked_mul(8).is_some_and(|bytes| isize::try_from(bytes).is_ok());
        if !fits {
            return Err(DeviceError::Memory { what: "buffer", want: format!("{len} elements") });
        }
        let id = BufferId(next_id(self.buffers.len()));
        self.buffers.push(match kind {
            BufferType::F32 => Buffer::F32(vec![0.0; len]),
            BufferType::I32 => Buffer::I32(vec![0; len]),
            BufferType::I64 => Buffer::I64(vec![0; len]),
            BufferType::U32 => Buffer::U32(vec![0; len]),
            BufferType::U64 => Buffer::U64(vec![0; len]),
            BufferType::Bytes => Buffer::Bytes(vec![0; len]),
        });
        self.shapes.buffers.push((kind, len));
        Ok(id)
    }

    fn write(&mut self, id: BufferId, values: Source<'_>) -> Result<(), DeviceError> {
        let buffer = self.buffers.get_mut(id.0 as usize);
        let buffer = buffer.ok_or(DeviceError::Unknown { kind: "buffer", id: id.0 })?;
        match (buffer, values) {
            (Buffer::F32(to), Source::F32(from)) => copy(from, to),
            (Buffer::I32(to), Source::I32(from)) => copy(from, to),
            (Buffer::I64(to), Source::I64(from)) => copy(from, to),
            (Buffer::U32(to), Source::U32(from)) => copy(from, to),
            (Buffer::U64(to), Source::U64(from)) => copy(from, to),
            (Buffer::Bytes(to), Source::Bytes(from)) => copy(from, to),
            (buffer, values) => {
                let (got, want) = (buffer.kind(), values.kind());
                Err(DeviceError::Type { id: id.0, got, want })
            }
        }
    }

    fn read(&self, id: BufferId, values: Target<'_>) -> Result<(), DeviceError> {
        let buffer = self.buffers.get(id.0 as usize);
        let buffer = buffer.ok_or(DeviceError::Unknown { kind: "buffer", id: id.0 })?;
        match (buffer, values) {
            (Buffer::F32(from), Target::F32(to)) => copy_prefix(from, to),
            (Buffer::I32(from), Target::I32(to)) => copy_prefix(from, to),
            (Buffer::I64(from), Target::I64(to)) => copy_prefix(from, to),
            (Buffer::U32(from), Target::U32(to)) => copy_prefix(from, to),
            (Buffer::U64(from), Target::U64(to)) => copy_prefix(from, to),
            (Buffer::Bytes(from), Target::Bytes(to)) => copy_prefix(from, to),
            (buffer, values) => {
                let (got, want) = (buffer.kind(), values.kind());
                Err(DeviceError::Type { id: id.0, got, want })
            }
        }
    }

    fn load_weight(&mut self, weight: PackedMatrix) -> Result<WeightId, DeviceError> {
        let id = WeightId(next_id(self.shapes.weights.len()));
        let shape = [weight.rows, weight.cols];
        match &self.kernels {
            Kernels::Generated(_) => self.packed.push(pack(&weight, &self.arena)?),
            Kernels::Reference => self.weights.push(weight),
            Kernels::Idle(_) => {}
        }
        self.shapes.weights.push(shape);
        Ok(id)
    }

    fn prepare_absorption(&mut self, kv_b: WeightId, dims: &MlaDims) -> Result<(), DeviceError> {
        let Kernels::Generated(_) = &self.kernels else { return Ok(()) };
        let weight = self.packed.get(kv_b.0 as usize);
        let weight = weight.ok_or(DeviceError::Unknown { kind: "weight", id: kv_b.0 })?;
        self.absorbed.prepare(kv_b, weight, dims)
    }

    fn alloc_cache(&mut self, spec: CacheSpec) -> Result<CacheId, DeviceError> {
        let bytes = spec.num_bytes().ok_or_else(|| no_cache(&spec))?;
        let id = CacheId(next_id(self.caches.len()));
        self.shapes.caches.push(spec);
        self.caches.push(Cache {
            spec,
            data: vec![0; bytes],
            scales: vec![1.0; spec.num_layers * spec.num_pages],
            tags: vec![0; spec.num_pages],
        });
        Ok(id)
    }

    fn cache_spec(&self, cache: CacheId) -> Result<CacheSpec, DeviceError> {
        let spec = self.shapes.caches.get(cache.0 as usize);
        spec.copied().ok_or(DeviceError::Unknown { kind: "cache", id: cache.0 })
    }

    fn set_page_tag(&mut self, cache: CacheId, page: u32, tag: u64) -> Result<(), DeviceError> {
        let (cache, page) = self.cache_mut(cache, page)?;
        cache.tags[page] = tag;
        Ok(())
    }

    fn page_tag(&self, cache: CacheId, page: u32) -> Result<u64, DeviceError> {
        self.cache(cache, page).map(|(cache, page)| cache.tags[page])
    }

    fn set_page_scales(
        &mut self,
        cache: CacheId,
        page: u32,
        scales: &[f32],
    ) -> Result<(), DeviceError> {
        let (cache, index) = self.cache_mut(cache, page)?;
        check_scales(page, scales, cache.spec.num_layers)?;
        for (layer, &scale) in scales.iter().enumerate() {
            cache.scales[layer * cache.spec.num_pages + index] = scale;
        }
        Ok(())
    }

    fn page_scales(&self, cache: CacheId, page: u32) -> Result<Vec<f32>, DeviceError> {
        let (cache, page) = self.cache(cache, page)?;
        let stride = cache.spec.num_pages;
        Ok((0..cache.spec.num_layers).map(|layer| cache.scales[layer * stride + page]).collect())
    }

    fn read_page(&self, cache: CacheId, page: u32) -> Result<Vec<u8>, DeviceError> {
        let (cache, page) = self.cache(cache, page)?;
        let mut bytes = Vec::with_capacity(cache.spec.page_bytes());
        for layer in 0..cache.spec.num_layers {
            bytes.extend_from_slice(&cache.data[cache.range(layer, page)]);
        }
        Ok(bytes)
    }

    fn write_page(&mut self, cache: CacheId, page: u32, bytes: &[u8]) -> Result<(), DeviceError> {
        let (cache, page) = self.cache_mut(cache, page)?;
        let (got, want) = (bytes.len(), cache.spec.page_bytes());
        if got != want {
            return Err(DeviceError::Length { what: "page bytes", got, want });
        }
        let layer_bytes = cache.spec.page_layer_bytes();
        for layer in 0..cache.spec.num_layers {
            let range = cache.range(layer, page);
            cache.data[range].copy_from_slice(&bytes[layer * layer_bytes..][..layer_bytes]);
        }
        Ok(())
    }

    fn clear_page(&mut self, cache: CacheId, page: u32) -> Result<(), DeviceError> {
        let (cache, page) = self.cache_mut(cache, page)?;
        for layer in 0..cache.spec.num_layers {
            let range = cache.range(layer, page);
            cache.data[range].fill(0);
        }
        Ok(())
    }

    fn perform(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        launch.check(&self.shapes)?;
        perform::perform(self, launch)
    }
}

impl Buffer {
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

fn copy<T: Copy>(from: &[T], to: &mut [T]) -> Result<(), DeviceError> {
    let (got, limit) = (from.len(), to.len());
    let to = to.get_mut(..got);
    to.ok_or(DeviceError::Range { what: "write length", got, limit })?.copy_from_slice(from);
    Ok(())
}

fn copy_prefix<T: Copy>(from: &[T], to: &mut [T]) -> Result<(), DeviceError> {
    let (got, limit) = (to.len(), from.len());
    let from = from.get(..got);
    to.copy_from_slice(from.ok_or(DeviceError::Range { what: "read length", got, limit })?);
    Ok(())
}
