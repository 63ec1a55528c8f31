//! Kernels by themselves, for checks and measurements of a device: arguments that the caller lays
//! out, one launch at a time. It knows no op: which kernel is right for what is the caller's to say.

use super::bundle::KernelBundle;
use super::error::CudaError;
use super::ffi::{Downloads, Event, Function, Gpu, Memory, Uploads};
use super::kernels::load_module;
use std::cell::RefCell;
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use tessera_ptx::KernelEntry;
use tessera_ptx::launch::Plan;

/// What a device says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Its name, such as `NVIDIA H200`.
    pub name: String,
    /// Major and minor.
    pub compute_capability: (u32, u32),
    /// Its multiprocessors.
    pub num_multiprocessors: u32,
}

/// A device on which kernels are launched one by one.
///
/// After an error of the driver every later call returns it, as with [`super::CudaDevice`].
#[derive(Debug)]
pub struct Launcher {
    uploads: RefCell<Uploads>,
    downloads: RefCell<Downloads>,
    /// The word that failed asserts are told in.
    faults: Memory,
    gpu: Arc<Gpu>,
}

/// Device memory that belongs to the caller.
#[derive(Debug)]
pub struct DeviceMemory(Memory);

/// A kernel that can be launched.
#[derive(Debug)]
pub struct LoadedKernel(Function);

impl Launcher {
    /// The device of that number.
    ///
    /// # Errors
    /// [`CudaError`] without a driver or such a device.
    pub fn open(ordinal: u32) -> Result<Self, CudaError> {
        let gpu = Gpu::open(ordinal)?;
        Ok(Self {
            uploads: RefCell::new(Uploads::new(&gpu)?),
            downloads: RefCell::new(Downloads::new(&gpu)?),
            faults: Memory::zeroed(&gpu, size_of::<u32>(), "failed asserts")?,
            gpu,
        })
    }

    /// What the device says of itself.
    ///
    /// # Errors
    /// That of the driver.
    pub fn facts(&self) -> Result<DeviceFacts, CudaError> {
        Ok(DeviceFacts {
            name: self.gpu.name()?,
            compute_capability: self.gpu.compute_capability()?,
            num_multiprocessors: self.gpu.num_multiprocessors()?,
        })
    }

    /// Zeroed memory.
    ///
    /// # Errors
    /// [`CudaError::OutOfMemory`], and others of the driver.
    pub fn zeroed(&self, bytes: usize) -> Result<DeviceMemory, CudaError> {
        Memory::zeroed(&self.gpu, bytes, "a check").map(DeviceMemory)
    }

    /// Memory that holds these bytes.
    ///
    /// # Errors
    /// As [`Launcher::zeroed`].
    pub fn holding(&self, bytes: &[u8]) -> Result<DeviceMemory, CudaError> {
        let memory = self.zeroed(bytes.len())?;
        self.uploads.borrow_mut().write((&memory.0, 0), bytes)?;
        Ok(memory)
    }

    /// Fills `bytes` from the start of `memory`, after all that was launched so far.
    ///
    /// # Errors
    /// What went wrong in any launch so far.
    pub fn read(&self, memory: &DeviceMemory, bytes: &mut [u8]) -> Result<(), CudaError> {
        self.downloads.borrow_mut().read(&mut [(&memory.0, 0, bytes)])
    }

    /// Loads a kernel of a bundle.
    ///
    /// # Errors
    /// [`CudaError::Module`] with the driver's words if it refuses the code.
    pub fn load(
        &self,
        bundle: &KernelBundle,
        entry: &KernelEntry,
    ) -> Result<LoadedKernel, CudaError> {
        bundle.check_target(self.gpu.compute_capability()?)?;
        let module = load_module(&self.gpu, bundle, entry)?;
        let name = CString::new(entry.entry.as_str());
        let name = name.map_err(|error| {
            let path = PathBuf::from(&entry.file);
            CudaError::Bundle { path, reason: error.to_string() }
        })?;
        Function::new(&module, name, (entry.threads, entry.shared_bytes)).map(LoadedKernel)
    }

    /// Launches a kernel as planned by its entry; nothing if the plan is empty.
    ///
    /// # Errors
    /// That of the driver.
    pub fn launch(&self, kernel: &LoadedKernel, plan: &mut Plan) -> Result<(), CudaError> {
        if plan.is_empty() {
            return Ok(());
        }
        kernel.0.launch(plan.grid(), plan.words(self.faults.address()))
    }

    /// Waits for all launches; the index of the assert that failed first in any of them, if one
    /// did. It is forgotten then.
    ///
    /// # Errors
    /// What went wrong in any launch so far.
    pub fn failed_assert(&self) -> Result<Option<usize>, CudaError> {
        let mut word = [0; size_of::<u32>()];
        self.downloads.borrow_mut().read(&mut [(&self.faults, 0, &mut word)])?;
        self.faults.zero(0..word.len())?;
        Ok((u32::from_le_bytes(word) as usize).checked_sub(1))
    }

    /// Microseconds of each of `repeats` launches. `between` is overwritten before each, so that what
    /// a cache of its size held of the last launch is gone; what that takes is not counted.
    ///
    /// # Errors
    /// What went wrong in any launch so far.
    pub fn time(
        &self,
        (kernel, plan): (&LoadedKernel, &mut Plan),
        between: &DeviceMemory,
        repeats: usize,
    ) -> Result<Vec<f64>, CudaError> {
        let mut runs = Vec::with_capacity(repeats);
        for _ in 0..repeats {
            let (mut start, mut end) = (Event::timed(&self.gpu)?, Event::timed(&self.gpu)?);
            between.0.zero(0..between.0.bytes())?;
            start.record()?;
            self.launch(kernel, plan)?;
            end.record()?;
            runs.push((start, end));
        }
        self.gpu.synchronize()?;
        runs.iter().map(|(start, end)| start.micros_until(end)).collect()
    }
}

impl DeviceMemory {
    /// Where it starts, as kernels take it.
    pub fn address(&self) -> u64 {
        self.0.address()
    }
}
