//! Devices: memory that launches name by id, and the performing of launches.
//!
//! Knows no model and no request. [`CpuDevice`] runs generated kernels, or the ops' references for
//! tests to compare with; [`CudaDevice`] runs compiled kernels by the CUDA driver. Everything above is
//! generic over [`Device`].

mod checks;
mod cpu;
mod cuda;
mod generated;
mod layout;
mod perform;
mod reference;

pub use cpu::CpuDevice;
pub use cuda::{
    CudaDevice, CudaError, DeviceFacts, DeviceMemory, KernelBundle, Launcher, LoadedKernel,
    UploadHook,
};
pub(crate) use layout::wants_likeliest;
pub use tessera_kernels::launch::CacheSpec;

use std::fmt::Debug;
use tessera_kernel_artifacts::lanes::LaunchError;
use tessera_kernel_artifacts::lanes::packed::PackError;
use tessera_kernels::formats::PackedMatrix;
use tessera_kernels::launch::{BufferId, BufferType, CacheId, Launch, PlanError, WeightId};
use tessera_kernels::ops::mla_prefill::MlaDims;

/// Lets loading, quantizing and the ops' references share `num_threads` worker threads in this
/// process; 0 takes one a core. The first caller decides.
///
/// # Errors
/// [`DeviceError::Threads`] if the threads exist already or cannot be started.
pub fn use_threads(num_threads: usize) -> Result<(), DeviceError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(num_threads);
    pool.build_global().map_err(|error| DeviceError::Threads { reason: error.to_string() })
}

/// As [`use_threads`] with the calling thread alone, so that instructions can be counted.
///
/// # Errors
/// [`DeviceError::Threads`] if there are worker threads already.
pub fn use_this_thread_only() -> Result<(), DeviceError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread();
    pool.build_global().map_err(|error| DeviceError::Threads { reason: error.to_string() })
}

/// Why a device did not do what it was asked. Ends the engine that asked.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum DeviceError {
    #[error("{kind} {id} does not exist on this device")]
    Unknown { kind: &'static str, id: u32 },
    #[error("buffer {id} holds {got:?}, expected {want:?}")]
    Type { id: u32, got: BufferType, want: BufferType },
    #[error("{what} is {got}, expected at most {limit}")]
    Range { what: &'static str, got: usize, limit: usize },
    #[error("{what} has {got} elements, expected {want}")]
    Length { what: &'static str, got: usize, want: usize },
    #[error("scale of page {page} in layer {layer} is {got}, expected a finite value above 0")]
    Scale { page: u32, layer: usize, got: f32 },
    #[error("{what} of {want} bytes does not fit the address space")]
    Memory { what: &'static str, want: String },
    #[error("worker threads: {reason}")]
    Threads { reason: String },
    #[error("weight: {reason}")]
    Weight { reason: String },
    #[error("launch refused")]
    Plan(#[from] PlanError),
    #[error("launch failed")]
    Launch(#[source] LaunchError),
    #[error("cuda")]
    Cuda(#[from] CudaError),
}

/// What the launches of a plan depend on: plans of one key are the same launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PlanKey(pub [usize; 4]);

/// A read that was started, to be given to [`Device::finish_read`] once.
#[derive(Debug)]
#[must_use = "a read that is not finished brings nothing"]
pub struct ReadTicket(Option<usize>);

impl From<PackError> for DeviceError {
    fn from(error: PackError) -> Self {
        Self::Weight { reason: error.to_string() }
    }
}

/// Values to be written to a buffer.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names of the types")]
pub enum Source<'a> {
    F32(&'a [f32]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    Bytes(&'a [u8]),
}

/// Where to read a buffer to.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names of the types")]
pub enum Target<'a> {
    F32(&'a mut [f32]),
    I32(&'a mut [i32]),
    I64(&'a mut [i64]),
    U32(&'a mut [u32]),
    U64(&'a mut [u64]),
    Bytes(&'a mut [u8]),
}

impl Target<'_> {
    /// The same place, lent for less time.
    fn reborrow(&mut self) -> Target<'_> {
        match self {
            Self::F32(values) => Target::F32(values),
            Self::I32(values) => Target::I32(values),
            Self::I64(values) => Target::I64(values),
            Self::U32(values) => Target::U32(values),
            Self::U64(values) => Target::U64(values),
            Self::Bytes(values) => Target::Bytes(values),
        }
    }
}

/// The typed forms of `alloc`, `write` and `read`.
macro_rules! typed {
    ($($alloc:ident $write:ident $read:ident $kind:ident $ty:ty;)*) => { $(
        /// A zeroed buffer of `len` elements.
        ///
        /// # Errors
        /// As [`Device::alloc`].
        fn $alloc(&mut self, len: usize) -> Result<BufferId, DeviceError> {
            self.alloc(BufferType::$kind, len)
        }

        /// Writes the first `values.len()` elements.
        ///
        /// # Errors
        /// As [`Device::write`].
        fn $write(&mut self, id: BufferId, values: &[$ty]) -> Result<(), DeviceError> {
            self.write(id, Source::$kind(values))
        }

        /// Reads the first `values.len()` elements.
        ///
        /// # Errors
        /// As [`Device::read`].
        fn $read(&self, id: BufferId, values: &mut [$ty]) -> Result<(), DeviceError> {
            self.read(id, Target::$kind(values))
        }
    )* };
}

/// Memory, and launches on it. Launches are performed in order; a read sees all before it.
pub trait Device: Debug + Send {
    /// A zeroed buffer of `len` elements.
    ///
    /// # Errors
    /// [`DeviceError::Memory`] if no address space could hold it.
    fn alloc(&mut self, kind: BufferType, len: usize) -> Result<BufferId, DeviceError>;

    /// Writes a prefix of a buffer.
    ///
    /// # Errors
    /// [`DeviceError`] on an unknown id, another type, or more elements than the buffer has.
    fn write(&mut self, id: BufferId, values: Source<'_>) -> Result<(), DeviceError>;

    /// Reads a prefix of a buffer.
    ///
    /// # Errors
    /// As [`Device::write`].
    fn read(&self, id: BufferId, values: Target<'_>) -> Result<(), DeviceError>;

    /// Whether launches go on while the host does something else. Where they do not, all that was
    /// asked is done when asking returns, and there is nothing to gain from asking ahead.
    fn runs_ahead(&self) -> bool {
        false
    }

    /// Starts to read a prefix of each of several buffers, as they are after all that was asked so
    /// far, whatever is asked before the read is finished. A device that has the values fills the
    /// targets now.
    ///
    /// # Errors
    /// As [`Device::write`].
    fn start_read(
        &mut self,
        reads: &mut [(BufferId, Target<'_>)],
    ) -> Result<ReadTicket, DeviceError> {
        self.read_all(reads)?;
        Ok(ReadTicket(None))
    }

    /// Waits for a read, and for nothing that was asked after it was started. `targets` are those it
    /// was started with.
    ///
    /// # Errors
    /// What went wrong on the device since the last read.
    fn finish_read(
        &mut self,
        ticket: ReadTicket,
        targets: &mut [(BufferId, Target<'_>)],
    ) -> Result<(), DeviceError> {
        let (ReadTicket(_), _) = (ticket, targets);
        Ok(())
    }

    /// Reads a prefix of each of several buffers, with one wait where reading is waiting.
    ///
    /// # Errors
    /// As [`Device::write`].
    fn read_all(&self, reads: &mut [(BufferId, Target<'_>)]) -> Result<(), DeviceError> {
        reads.iter_mut().try_for_each(|(id, target)| self.read(*id, target.reborrow()))
    }

    typed! {
        alloc_f32 write_f32 read_f32 F32 f32;
        alloc_i32 write_i32 read_i32 I32 i32;
        alloc_i64 write_i64 read_i64 I64 i64;
        alloc_u32 write_u32 read_u32 U32 u32;
        alloc_u64 write_u64 read_u64 U64 u64;
        alloc_bytes write_bytes read_bytes Bytes u8;
    }

    /// Takes a weight. The CPU packs it for its micro-kernels and lets go of the bytes it was given.
    ///
    /// # Errors
    /// [`DeviceError`] if the device's memory does not suffice.
    fn load_weight(&mut self, weight: PackedMatrix) -> Result<WeightId, DeviceError>;

    /// Takes weights that one launch will name together, in this order.
    ///
    /// # Errors
    /// As [`Device::load_weight`].
    fn load_weights(&mut self, weights: Vec<PackedMatrix>) -> Result<Vec<WeightId>, DeviceError> {
        weights.into_iter().map(|weight| self.load_weight(weight)).collect()
    }

    /// Makes what attention in latent space needs of a `kv_b`, so that its first step does not. A
    /// device that has nothing to make does nothing.
    ///
    /// # Errors
    /// [`DeviceError`] if there is no such weight, or no memory.
    fn prepare_absorption(&mut self, kv_b: WeightId, dims: &MlaDims) -> Result<(), DeviceError> {
        let _ = (kv_b, dims);
        Ok(())
    }

    /// A zeroed cache: every scale 1, every tag 0.
    ///
    /// # Errors
    /// [`DeviceError::Memory`] if no address space could hold it.
    fn alloc_cache(&mut self, spec: CacheSpec) -> Result<CacheId, DeviceError>;

    /// The shape a cache was made with.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`] if there is no such cache.
    fn cache_spec(&self, cache: CacheId) -> Result<CacheSpec, DeviceError>;

    /// Sets the tag that [`PageTagCheck`](tessera_kernels::ops::page_tag_check::PageTagCheck) sees.
    ///
    /// # Errors
    /// [`DeviceError`] if there is no such cache or page.
    fn set_page_tag(&mut self, cache: CacheId, page: u32, tag: u64) -> Result<(), DeviceError>;

    /// A page's tag.
    ///
    /// # Errors
    /// [`DeviceError`] if there is no such cache or page.
    fn page_tag(&self, cache: CacheId, page: u32) -> Result<u64, DeviceError>;

    /// Sets a page's `k_scale` in each layer, f32 `[num_layers]`.
    ///
    /// # Errors
    /// [`DeviceError`] if there is no such cache or page, or a scale is not finite and above 0.
    fn set_page_scales(
        &mut self,
        cache: CacheId,
        page: u32,
        scales: &[f32],
    ) -> Result<(), DeviceError>;

    /// A page's `k_scale` in each layer.
    ///
    /// # Errors
    /// [`DeviceError`] if there is no such cache or page.
    fn page_scales(&self, cache: CacheId, page: u32) -> Result<Vec<f32>, DeviceError>;

    /// A page's bytes, `[num_layers][page_size, entry]`.
    ///
    /// # Errors
    /// [`DeviceError`] if there is no such cache or page.
    fn read_page(&self, cache: CacheId, page: u32) -> Result<Vec<u8>, DeviceError>;

    /// Replaces a page's bytes, laid out as [`Device::read_page`] returns them.
    ///
    /// # Errors
    /// [`DeviceError`] if there is no such cache or page, or on another number of bytes.
    fn write_page(&mut self, cache: CacheId, page: u32, bytes: &[u8]) -> Result<(), DeviceError>;

    /// Zeroes a page's bytes in every layer; its tag and scales stay.
    ///
    /// # Errors
    /// [`DeviceError`] if there is no such cache or page.
    fn clear_page(&mut self, cache: CacheId, page: u32) -> Result<(), DeviceError>;

    /// Checks a launch and runs it.
    ///
    /// # Errors
    /// [`DeviceError::Plan`] if the launch does not fit what the device holds.
    fn perform(&mut self, launch: &Launch) -> Result<(), DeviceError>;

    /// Performs launches in order. A device may record them under their key, to repeat them at once.
    ///
    /// # Errors
    /// As [`Device::perform`].
    fn perform_plan(&mut self, key: PlanKey, launches: &[Launch]) -> Result<(), DeviceError> {
        let _ = key;
        launches.iter().try_for_each(|launch| self.perform(launch))
    }
}
