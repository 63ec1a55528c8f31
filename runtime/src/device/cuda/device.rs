//! What a CUDA device does for whoever holds one: allocate, copy, load, launch.

use super::ffi::{Graph, Memory, Reader, bytes_of, bytes_of_mut};
use super::graphs::Next;
use super::memory::{Buffer, Cache, WeightGroup, element_bytes};
use super::{CudaDevice, WeightPlace, perform};
use crate::device::checks::{check_page, check_scales, next_id, no_cache};
use crate::device::{CacheSpec, Device, DeviceError, PlanKey, ReadTicket, Source, Target};
use std::slice;
use tessera_kernels::formats::PackedMatrix;
use tessera_kernels::launch::{BufferId, BufferType, CacheId, Launch, WeightId};

type Result<T = (), E = DeviceError> = std::result::Result<T, E>;

impl Device for CudaDevice {
    fn alloc(&mut self, kind: BufferType, len: usize) -> Result<BufferId> {
        let bytes = len.checked_mul(element_bytes(kind));
        let bytes = bytes.filter(|&bytes| isize::try_from(bytes).is_ok());
        let want = || DeviceError::Memory { what: "buffer", want: format!("{len} elements") };
        let memory = Memory::zeroed(&self.gpu, bytes.ok_or_else(want)?, "a buffer")?;
        let id = BufferId(next_id(self.buffers.len()));
        self.buffers.push(Buffer::new(kind, len, memory));
        self.shapes.buffers.push((kind, len));
        Ok(id)
    }

    fn write(&mut self, id: BufferId, values: Source<'_>) -> Result {
        let buffer = self.buffers.get_mut(id.0 as usize);
        let buffer = buffer.ok_or(DeviceError::Unknown { kind: "buffer", id: id.0 })?;
        let (want, bytes) = (values.kind(), source_bytes(&values));
        if buffer.kind != want {
            return Err(DeviceError::Type { id: id.0, got: buffer.kind, want });
        }
        let (got, limit) = (bytes.len() / element_bytes(want), buffer.len);
        if got > limit {
            return Err(DeviceError::Range { what: "write length", got, limit });
        }
        if let Source::I32(values) = values {
            buffer.wrote(values);
        }
        if self.row_of == Some(id) {
            self.row_of = None;
        }
        Ok(self.uploads.write((&buffer.memory, 0), bytes)?)
    }

    fn read(&self, id: BufferId, values: Target<'_>) -> Result {
        self.read_all(slice::from_mut(&mut (id, values)))
    }

    fn read_all(&self, reads: &mut [(BufferId, Target<'_>)]) -> Result {
        let mut readers = Vec::with_capacity(reads.len() + 1);
        for (id, target) in reads.iter_mut() {
            let memory = readable(&self.buffers, *id, target)?;
            readers.push((memory, 0, target_bytes(target)));
        }
        self.fetch(readers)
    }

    fn runs_ahead(&self) -> bool {
        true
    }

    fn start_read(&mut self, reads: &mut [(BufferId, Target<'_>)]) -> Result<ReadTicket> {
        let mut wanted = Vec::with_capacity(reads.len() + 1);
        for (id, target) in reads.iter_mut() {
            let memory = readable(&self.buffers, *id, target)?;
            wanted.push((memory, 0, target_bytes(target).len()));
        }
        let (faults, count) = self.kernels.faults();
        wanted.push((faults, 0, count * size_of::<u32>()));
        Ok(ReadTicket(Some(self.readbacks.start(&wanted)?)))
    }

    fn finish_read(
        &mut self,
        ReadTicket(slot): ReadTicket,
        targets: &mut [(BufferId, Target<'_>)],
    ) -> Result {
        let Some(slot) = slot else { return Ok(()) };
        // Kernels that were loaded since are not among those whose asserts came.
        let mut words = vec![0u32; self.readbacks.last_len(slot) / size_of::<u32>()];
        let targets = targets.iter_mut().map(|(_, target)| target_bytes(target));
        self.readbacks.finish(slot, targets.chain([bytes_of_mut(&mut words)]))?;
        Ok(self.kernels.check(&words)?)
    }

    fn load_weight(&mut self, weight: PackedMatrix) -> Result<WeightId> {
        Ok(self.load_weights(vec![weight])?[0])
    }

    fn load_weights(&mut self, weights: Vec<PackedMatrix>) -> Result<Vec<WeightId>> {
        let Some(first) = weights.first() else { return Ok(Vec::new()) };
        let alike = (first.format, first.rows, first.cols);
        if weights.iter().any(|w| (w.format, w.rows, w.cols) != alike) {
            return weights.into_iter().map(|weight| self.load_weight(weight)).collect();
        }
        self.kernels.bundle().require_format("w_gemm", first.format.name)?;
        let Self { gpu, uploads, uploaded, hook, .. } = self;
        let group = WeightGroup::upload(gpu, uploads, weights, |weight| {
            *uploaded += weight.num_bytes() as u64;
            if let Some(hook) = hook {
                hook(*uploaded);
            }
        })?;
        let at = self.groups.len();
        let first = self.shapes.weights.len();
        for index in 0..group.count {
            self.shapes.weights.push([group.rows, group.cols]);
            self.weights.push(WeightPlace { group: at, index });
        }
        let ids = (first..first + group.count).map(|id| WeightId(next_id(id))).collect();
        self.groups.push(group);
        Ok(ids)
    }

    fn alloc_cache(&mut self, spec: CacheSpec) -> Result<CacheId> {
        let bytes = spec.num_bytes().ok_or_else(|| no_cache(&spec))?;
        for kernel in ["kv_write", "kv_gather", "mla_decode", "kv_amax", "kv_rescale"] {
            self.kernels.bundle().require_format(kernel, spec.format.element.name())?;
        }
        let id = CacheId(next_id(self.caches.len()));
        self.caches.push(Cache::new(&self.gpu, &mut self.uploads, spec, bytes)?);
        self.shapes.caches.push(spec);
        Ok(id)
    }

    fn cache_spec(&self, cache: CacheId) -> Result<CacheSpec> {
        self.cache(cache).map(|cache| cache.spec)
    }

    fn set_page_tag(&mut self, cache: CacheId, page: u32, tag: u64) -> Result {
        self.gpu.alive()?;
        self.cache_of_page(cache, page)?.set_tag(page, tag);
        Ok(())
    }

    fn page_tag(&self, cache: CacheId, page: u32) -> Result<u64> {
        let cache = self.cache(cache)?;
        Ok(cache.tag(check_page(&cache.spec, page)?))
    }

    fn set_page_scales(&mut self, cache: CacheId, page: u32, scales: &[f32]) -> Result {
        self.gpu.alive()?;
        let cache = self.cache_of_page(cache, page)?;
        check_scales(page, scales, cache.spec.num_layers)?;
        cache.set_scales(page, scales);
        Ok(())
    }

    fn page_scales(&self, cache: CacheId, page: u32) -> Result<Vec<f32>> {
        let cache = self.cache(cache)?;
        Ok(cache.page_scales(check_page(&cache.spec, page)?).to_vec())
    }

    fn read_page(&self, cache: CacheId, page: u32) -> Result<Vec<u8>> {
        let cache = self.cache(cache)?;
        let (spec, page) = (&cache.spec, check_page(&cache.spec, page)?);
        let mut bytes = vec![0; spec.page_bytes()];
        let layers = bytes.chunks_mut(spec.page_layer_bytes()).enumerate();
        let readers = layers.map(|(layer, to)| (&cache.data, spec.page_offset(layer, page), to));
        self.fetch(readers.collect())?;
        Ok(bytes)
    }

    fn write_page(&mut self, cache: CacheId, page: u32, bytes: &[u8]) -> Result {
        let Self { caches, uploads, .. } = self;
        let unknown = DeviceError::Unknown { kind: "cache", id: cache.0 };
        let cache = caches.get(cache.0 as usize);
        let cache = cache.ok_or(unknown)?;
        let (spec, page) = (&cache.spec, check_page(&cache.spec, page)?);
        let (got, want) = (bytes.len(), spec.page_bytes());
        if got != want {
            return Err(DeviceError::Length { what: "page bytes", got, want });
        }
        for (layer, bytes) in bytes.chunks(spec.page_layer_bytes()).enumerate() {
            uploads.write((&cache.data, spec.page_offset(layer, page)), bytes)?;
        }
        Ok(())
    }

    fn clear_page(&mut self, cache: CacheId, page: u32) -> Result {
        let cache = self.cache(cache)?;
        let (spec, page) = (&cache.spec, check_page(&cache.spec, page)?);
        for layer in 0..spec.num_layers {
            let start = spec.page_offset(layer, page);
            cache.data.zero(start..start + spec.page_layer_bytes())?;
        }
        Ok(())
    }

    fn perform(&mut self, launch: &Launch) -> Result {
        self.gpu.alive()?;
        launch.check(&self.shapes)?;
        self.flush()?;
        perform::perform(self, launch)
    }

    fn perform_plan(&mut self, key: PlanKey, launches: &[Launch]) -> Result {
        self.gpu.alive()?;
        let Some(parts) = perform::repeatable(self, launches)? else {
            return launches.iter().try_for_each(|launch| self.perform(launch));
        };
        self.flush()?;
        let key = (key, parts);
        match self.graphs.next(key, self.scratch.generation()) {
            Next::Run => launches.iter().try_for_each(|launch| self.perform(launch)),
            Next::Repeat(graph) => Ok(graph.launch()?),
            Next::Record => {
                let gpu = self.gpu.clone();
                let graph = Graph::record(&gpu, || {
                    launches.iter().try_for_each(|launch| self.perform(launch))
                })?;
                graph.launch()?;
                self.graphs.insert(key, graph);
                Ok(())
            }
        }
    }
}

impl CudaDevice {
    fn cache(&self, id: CacheId) -> Result<&Cache> {
        self.caches.get(id.0 as usize).ok_or(DeviceError::Unknown { kind: "cache", id: id.0 })
    }

    fn cache_of_page(&mut self, id: CacheId, page: u32) -> Result<&mut Cache> {
        let cache = self.caches.get_mut(id.0 as usize);
        let cache = cache.ok_or(DeviceError::Unknown { kind: "cache", id: id.0 })?;
        check_page(&cache.spec, page)?;
        Ok(cache)
    }

    /// Sends tags and scales that changed since the last launch.
    fn flush(&mut self) -> Result {
        let Self { caches, uploads, .. } = self;
        Ok(caches.iter_mut().try_for_each(|cache| cache.flush(uploads))?)
    }

    /// Fills the readers, and finds out whether an assert has failed meanwhile: one wait for both.
    pub(super) fn fetch(&self, readers: Vec<Reader<'_>>) -> Result {
        let (memory, count) = self.kernels.faults();
        let mut words = vec![0u32; count];
        let mut all: Vec<Reader<'_>> = readers;
        all.push((memory, 0, bytes_of_mut(&mut words)));
        self.downloads.borrow_mut().read(&mut all)?;
        Ok(self.kernels.check(&words)?)
    }
}

/// The memory of a buffer that `target` can be read from.
fn readable<'a>(buffers: &'a [Buffer], id: BufferId, target: &Target<'_>) -> Result<&'a Memory> {
    let buffer = buffers.get(id.0 as usize);
    let buffer = buffer.ok_or(DeviceError::Unknown { kind: "buffer", id: id.0 })?;
    let (want, got, limit) = (target.kind(), target.len(), buffer.len);
    if buffer.kind != want {
        return Err(DeviceError::Type { id: id.0, got: buffer.kind, want });
    }
    if got > limit {
        return Err(DeviceError::Range { what: "read length", got, limit });
    }
    Ok(&buffer.memory)
}

fn source_bytes<'a>(source: &Source<'a>) -> &'a [u8] {
    match *source {
        Source::F32(values) => bytes_of(values),
        Source::I32(values) => bytes_of(values),
        Source::I64(values) => bytes_of(values),
        Source::U32(values) => bytes_of(values),
        Source::U64(values) => bytes_of(values),
        Source::Bytes(values) => values,
    }
}

fn target_bytes<'a>(target: &'a mut Target<'_>) -> &'a mut [u8] {
    match target {
        Target::F32(values) => bytes_of_mut(values),
        Target::I32(values) => bytes_of_mut(values),
        Target::I64(values) => bytes_of_mut(values),
        Target::U32(values) => bytes_of_mut(values),
        Target::U64(values) => bytes_of_mut(values),
        Target::Bytes(values) => values,
    }
}
