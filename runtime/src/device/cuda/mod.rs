//! The CUDA device: buffers, weights and caches in device memory, launches by kernels that
//! `cargo xtask build-kernels` made.
//!
//! A device is one stream, so all it is asked runs in order; it waits only where the host needs an
//! answer. The first error of the driver ends it: every later call returns that error, and the
//! engine that asked ends as on any other [`DeviceError`]. A failed assert of a kernel is told by
//! the read that follows it, and breaks nothing.
//!
//! ```text
//! ffi/      the driver's handles as owning types: the only unsafe code
//! bundle    which kernels there are, and whether they are for this device and this program
//! kernels   loads, picks and launches them; collects failed asserts
//! memory    buffers, weights, caches and scratch, and how kernels see them
//! graphs    launches that repeat, recorded
//! launcher  single kernels for checks: launched and timed one by one
//! perform/  which kernels a launch is; the twin of `generated`
//! ```

mod bundle;
mod device;
mod error;
mod ffi;
mod graphs;
mod kernels;
mod launcher;
mod memory;
mod perform;
mod views;

pub use bundle::KernelBundle;
pub use error::CudaError;
pub use launcher::{DeviceFacts, DeviceMemory, Launcher, LoadedKernel};

use super::DeviceError;
use ffi::{Downloads, Gpu, Readbacks, Uploads};
use graphs::Graphs;
use kernels::Kernels;
use memory::{Buffer, Cache, Scratch, WeightGroup};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use tessera_kernels::launch::{BufferId, DeviceShapes};

/// Bytes of weights that have gone to the device so far.
pub type UploadHook = Box<dyn FnMut(u64) + Send>;

/// A CUDA device, or one pool's part of it.
pub struct CudaDevice {
    // Recorded launches hold addresses of everything below, so they go first.
    graphs: Graphs,
    shapes: DeviceShapes,
    buffers: Vec<Buffer>,
    weights: Vec<WeightPlace>,
    groups: Vec<WeightGroup>,
    caches: Vec<Cache>,
    scratch: Scratch,
    /// Whose sorted choices `scratch` has the inverse of.
    row_of: Option<BufferId>,
    kernels: Kernels,
    uploads: Uploads,
    downloads: RefCell<Downloads>,
    readbacks: Readbacks,
    uploaded: u64,
    hook: Option<UploadHook>,
    gpu: Arc<Gpu>,
}

/// Where a weight is: the group that was loaded together, and its place in it.
#[derive(Debug, Clone, Copy)]
struct WeightPlace {
    group: usize,
    index: usize,
}

impl CudaDevice {
    /// The device of that number, with the kernels of `bundle`.
    ///
    /// # Errors
    /// [`DeviceError::Cuda`] without a driver or such a device, and if the kernels are not for it.
    pub fn new(ordinal: u32, bundle: &Arc<KernelBundle>) -> Result<Self, DeviceError> {
        let gpu = Gpu::open(ordinal)?;
        bundle.check_target(gpu.compute_capability()?)?;
        Ok(Self {
            graphs: Graphs::default(),
            shapes: DeviceShapes::default(),
            buffers: Vec::new(),
            weights: Vec::new(),
            groups: Vec::new(),
            caches: Vec::new(),
            scratch: Scratch::new(&gpu),
            row_of: None,
            kernels: Kernels::new(&gpu, bundle)?,
            uploads: Uploads::new(&gpu)?,
            downloads: RefCell::new(Downloads::new(&gpu)?),
            readbacks: Readbacks::new(&gpu),
            uploaded: 0,
            hook: None,
            gpu,
        })
    }

    /// Calls `hook` each time a weight has gone to the device.
    pub fn on_upload(&mut self, hook: UploadHook) {
        self.hook = Some(hook);
    }

    /// Launches that were recorded so far, for tests and figures.
    pub fn num_graphs(&self) -> usize {
        self.graphs.len()
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDevice")
            .field("gpu", &self.gpu)
            .field("buffers", &self.buffers.len())
            .field("weights", &self.weights.len())
            .field("caches", &self.caches)
            .finish_non_exhaustive()
    }
}
