//! What lies in device memory: buffers, weights, caches, and what kernels of one launch pass on.

use super::error::CudaError;
use super::ffi::{Gpu, Memory, Uploads, bytes_of};
use std::ops::Range;
use std::sync::Arc;
use tessera_kernels::formats::{Format, PackedMatrix};
use tessera_kernels::launch::{BufferType, CacheSpec};

/// Elements of an array that are mirrored on the host at most.
const MAX_MIRROR: usize = 1 << 16;

/// One typed array.
#[derive(Debug)]
pub(super) struct Buffer {
    pub(super) kind: BufferType,
    pub(super) len: usize,
    pub(super) memory: Memory,
    /// What the host wrote last, for short arrays of i32 that no launch writes: lengths, which the
    /// host must know to launch, are then known without waiting.
    mirror: Vec<i32>,
    is_output: bool,
}

/// Bytes of an element.
pub(super) const fn element_bytes(kind: BufferType) -> usize {
    match kind {
        BufferType::F32 | BufferType::I32 | BufferType::U32 => 4,
        BufferType::I64 | BufferType::U64 => 8,
        BufferType::Bytes => 1,
    }
}

/// Name of an element, as manifests have it.
pub(super) const fn element_name(kind: BufferType) -> &'static str {
    match kind {
        BufferType::F32 => "f32",
        BufferType::I32 => "i32",
        BufferType::I64 => "i64",
        BufferType::U32 => "u32",
        BufferType::U64 => "u64",
        BufferType::Bytes => "u8",
    }
}

impl Buffer {
    pub(super) fn new(kind: BufferType, len: usize, memory: Memory) -> Self {
        Self { kind, len, memory, mirror: Vec::new(), is_output: false }
    }

    /// Notes what the host has written from the start on.
    pub(super) fn wrote(&mut self, values: &[i32]) {
        if self.is_output || values.len() > MAX_MIRROR {
            self.mirror.clear();
            return;
        }
        match self.mirror.get_mut(..values.len()) {
            Some(mirror) => mirror.copy_from_slice(values),
            None => {
                self.mirror.clear();
                self.mirror.extend_from_slice(values);
            }
        }
    }

    /// Notes that a launch writes it: from now on only the device knows what it holds.
    pub(super) fn is_written(&mut self) {
        self.is_output = true;
        self.mirror.clear();
    }

    /// The first `len` elements, if the host knows them.
    pub(super) fn known(&self, len: usize) -> Option<&[i32]> {
        self.mirror.get(..len)
    }
}

/// Weights of one shape and format, side by side: all codes, all scales, all zero points.
#[derive(Debug)]
pub(super) struct WeightGroup {
    pub(super) format: &'static Format,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) count: usize,
    memory: Memory,
    codes: Part,
    scales: Part,
    zero_points: Part,
    tensor_scales: Part,
}

/// Where one part of every weight of a group lies.
#[derive(Debug, Clone, Copy)]
struct Part {
    start: usize,
    /// Bytes of one weight.
    each: usize,
}

impl Part {
    fn after(end: &mut usize, each: usize, count: usize) -> Self {
        let start = end.next_multiple_of(256);
        *end = start + each * count;
        Self { start, each }
    }

    fn of(self, index: usize) -> usize {
        self.start + self.each * index
    }
}

impl WeightGroup {
    /// Uploads weights of one shape and format; `progress` hears of each.
    pub(super) fn upload(
        gpu: &Arc<Gpu>,
        uploads: &mut Uploads,
        weights: Vec<PackedMatrix>,
        mut progress: impl FnMut(&PackedMatrix),
    ) -> Result<Self, CudaError> {
        let (first, count) = (&weights[0], weights.len());
        let mut end = 0;
        let codes = Part::after(&mut end, first.codes.len(), count);
        let scales = Part::after(&mut end, first.scales.len(), count);
        let zero_points = Part::after(&mut end, first.zero_points.len(), count);
        let scale_bytes = if first.format.tensor_scale { size_of::<f32>() } else { 0 };
        let tensor_scales = Part::after(&mut end, scale_bytes, count);
        let group = Self {
            format: first.format,
            rows: first.rows,
            cols: first.cols,
            count,
            memory: Memory::zeroed(gpu, end, "weights")?,
            codes,
            scales,
            zero_points,
            tensor_scales,
        };
        for (index, weight) in weights.into_iter().enumerate() {
            for (part, bytes) in [
                (codes, &weight.codes),
                (scales, &weight.scales),
                (zero_points, &weight.zero_points),
            ] {
                uploads.write((&group.memory, part.of(index)), bytes)?;
            }
            if scale_bytes > 0 {
                let scale = bytes_of(std::slice::from_ref(&weight.tensor_scale));
                uploads.write((&group.memory, tensor_scales.of(index)), scale)?;
            }
            progress(&weight);
        }
        Ok(group)
    }

    /// Addresses of codes, scales, zero points and tensor scale of a weight; 0 for what the format
    /// has not.
    pub(super) fn addresses(&self, index: usize) -> [u64; 4] {
        let address = |part: Part| match part.each {
            0 => 0,
            _ => self.memory.address() + part.of(index) as u64,
        };
        [self.codes, self.scales, self.zero_points, self.tensor_scales].map(address)
    }
}

/// One paged cache. The host keeps the tags and scales too, and the device gets what changed before
/// the next launch.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) spec: CacheSpec,
    pub(super) data: Memory,
    /// `[num_layers][num_pages]`, what launches over many pages read.
    pub(super) scales: Memory,
    /// `[num_pages][num_layers]`, what launches over one page read.
    pub(super) page_scales: Memory,
    pub(super) tags: Memory,
    host_scales: Vec<f32>,
    host_page_scales: Vec<f32>,
    host_tags: Vec<u64>,
    changed_scales: Vec<u32>,
    changed_tags: Vec<u32>,
}

/// Pages that did not change and are sent again rather than starting another copy.
const MAX_GAP: u32 = 16;

impl Cache {
    pub(super) fn new(
        gpu: &Arc<Gpu>,
        uploads: &mut Uploads,
        spec: CacheSpec,
        bytes: usize,
    ) -> Result<Self, CudaError> {
        let (pages, count) = (spec.num_pages, spec.num_layers * spec.num_pages);
        let ones = vec![1.0f32; count];
        let scales = Memory::zeroed(gpu, count * 4, "cache scales")?;
        let page_scales = Memory::zeroed(gpu, count * 4, "cache scales")?;
        uploads.write((&scales, 0), bytes_of(&ones))?;
        uploads.write((&page_scales, 0), bytes_of(&ones))?;
        Ok(Self {
            spec,
            data: Memory::zeroed(gpu, bytes, "the cache")?,
            scales,
            page_scales,
            tags: Memory::zeroed(gpu, pages * 8, "page tags")?,
            host_scales: ones.clone(),
            host_page_scales: ones,
            host_tags: vec![0; pages],
            changed_scales: Vec::new(),
            changed_tags: Vec::new(),
        })
    }

    pub(super) fn set_tag(&mut self, page: u32, tag: u64) {
        self.host_tags[page as usize] = tag;
        self.changed_tags.push(page);
    }

    pub(super) fn tag(&self, page: usize) -> u64 {
        self.host_tags[page]
    }

    pub(super) fn set_scales(&mut self, page: u32, scales: &[f32]) {
        let (at, pages) = (page as usize, self.spec.num_pages);
        for (layer, &scale) in scales.iter().enumerate() {
            self.host_scales[layer * pages + at] = scale;
        }
        self.host_page_scales[at * scales.len()..][..scales.len()].copy_from_slice(scales);
        self.changed_scales.push(page);
    }

    pub(super) fn page_scales(&self, page: usize) -> &[f32] {
        let layers = self.spec.num_layers;
        &self.host_page_scales[page * layers..][..layers]
    }

    /// Sends the device what changed.
    pub(super) fn flush(&mut self, uploads: &mut Uploads) -> Result<(), CudaError> {
        let (layers, pages) = (self.spec.num_layers, self.spec.num_pages);
        for run in runs(&mut self.changed_tags) {
            uploads.write((&self.tags, run.start * 8), bytes_of(&self.host_tags[run]))?;
        }
        for run in runs(&mut self.changed_scales) {
            let own = run.start * layers..run.end * layers;
            let source = bytes_of(&self.host_page_scales[own.clone()]);
            uploads.write((&self.page_scales, own.start * 4), source)?;
            for layer in 0..layers {
                let own = layer * pages + run.start..layer * pages + run.end;
                let source = bytes_of(&self.host_scales[own.clone()]);
                uploads.write((&self.scales, own.start * 4), source)?;
            }
        }
        self.changed_tags.clear();
        self.changed_scales.clear();
        Ok(())
    }
}

/// Runs of pages that hold all of `changed`.
fn runs(changed: &mut [u32]) -> impl Iterator<Item = Range<usize>> + use<> {
    changed.sort_unstable();
    let mut runs: Vec<Range<usize>> = Vec::new();
    for &page in changed.iter() {
        let page = page as usize;
        match runs.last_mut() {
            Some(run) if page < run.end + MAX_GAP as usize => run.end = run.end.max(page + 1),
            _ => runs.push(page..page + 1),
        }
    }
    runs.into_iter()
}

/// Intermediate results, by what they hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hold {
    /// Attention over parts of the tokens: outputs and log-sum-exps, to be merged.
    Parts,
    PartLse,
    /// What was merged so far.
    Merged,
    /// Log-sum-exps of a prefill step, `[heads, tokens]`.
    Lse,
    /// Which element of those each element of `[tokens, heads]` is.
    Transposed,
    /// Decoded cache entries of a run of tokens, and where they are damaged.
    Entries,
    Damage,
    /// Keys and values expanded from them.
    Expanded,
    /// Rows of each sequence in a run, and the first token of each.
    RunStarts,
    RunFirst,
    /// Which row of the sorted choices each choice has.
    RowOf,
    /// A page's codes as words.
    Words,
    /// Log of the sum of exponentials of each row of logits.
    LogSum,
    /// Likeliest token of each row, once more; and how many are wanted: one of each.
    TopIds,
    TopCounts,
}

const NUM_HOLDS: usize = Hold::TopCounts as usize + 1;

/// Memory for intermediate results. It grows to the largest launch seen and stays.
#[derive(Debug)]
pub(super) struct Scratch {
    gpu: Arc<Gpu>,
    holds: [Option<Memory>; NUM_HOLDS],
    /// Counts how often memory was replaced: what knew the addresses before does not any more.
    generation: u64,
    /// `(tokens, heads)` that `Hold::Transposed` was made for.
    pub(super) transposed: Option<(usize, usize)>,
}

impl Scratch {
    pub(super) fn new(gpu: &Arc<Gpu>) -> Self {
        let holds = [const { None }; NUM_HOLDS];
        Self { gpu: gpu.clone(), holds, generation: 0, transposed: None }
    }

    /// At least that many bytes, whatever they hold.
    pub(super) fn take(&mut self, hold: Hold, bytes: usize) -> Result<&Memory, CudaError> {
        let place = &mut self.holds[hold as usize];
        let memory = match place.take() {
            Some(memory) if memory.bytes() >= bytes => memory,
            old => {
                drop(old);
                self.generation += 1;
                Memory::zeroed(&self.gpu, bytes.next_power_of_two(), "intermediate results")?
            }
        };
        Ok(place.insert(memory))
    }

    /// How many likeliest tokens are wanted of that many rows: one of each. Written when the memory
    /// is new and never again, so that a recording may read it.
    pub(super) fn one_each(
        &mut self,
        uploads: &mut Uploads,
        rows: usize,
    ) -> Result<&Memory, CudaError> {
        let before = self.generation;
        self.take(Hold::TopCounts, rows * size_of::<i32>())?;
        let counts = self.held(Hold::TopCounts);
        if self.generation != before {
            let ones = vec![1i32; counts.bytes() / size_of::<i32>()];
            uploads.write((counts, 0), bytes_of(&ones))?;
        }
        Ok(counts)
    }

    /// What [`Scratch::take`] gave last.
    ///
    /// # Panics
    /// If it never did.
    pub(super) fn held(&self, hold: Hold) -> &Memory {
        self.holds[hold as usize].as_ref().expect("taken before")
    }

    /// Copies the start of what `to.1` holds to the start of what `to.0` holds.
    pub(super) fn copy(&self, to: (Hold, Hold), bytes: usize) -> Result<(), CudaError> {
        self.held(to.0).copy(0, (self.held(to.1), 0), bytes)
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_pages_become_few_runs() {
        let check = |mut changed: Vec<u32>, want: &[[usize; 2]]| {
            let found: Vec<_> = runs(&mut changed).map(|run| [run.start, run.end]).collect();
            assert_eq!(found, want, "{changed:?}");
        };
        check(vec![], &[]);
        check(vec![7, 7, 6], &[[6, 8]]);
        check(vec![100, 0, 1, 17, 40], &[[0, 18], [40, 41], [100, 101]]);
    }
}
