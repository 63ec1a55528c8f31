//! The unsafe corner of the CUDA device: a driver's handles as types that own what they name.
//!
//! One [`Gpu`] is one context and one stream, and everything here belongs to one. Calls are in
//! stream order; nothing waits unless its name says so. The first error of the driver is the last:
//! it is kept, and every later call returns it ([`Gpu::call`]). No raw handle leaves this folder.
//!
//! What no check here can cover is what a kernel does with the addresses it is given. They come from
//! live [`Memory`] of the same device, with the extents that the kernel's manifest asks for; that
//! the kernel stays inside them is what its cases in the emulator are for.

#![expect(unsafe_code, reason = "the driver is a C library")]

mod graph;
mod memory;
mod module;
mod transfer;

pub(super) use graph::Graph;
pub(super) use memory::Memory;
pub(super) use module::{Function, Image, Module};
pub(super) use transfer::{Downloads, Event, Readbacks, Reader, Uploads, bytes_of, bytes_of_mut};

use super::error::CudaError;
use cudarc::driver::result::stream::StreamKind;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUdevice_attribute, CUresult};
use std::ffi::c_void;
use std::sync::{Arc, OnceLock};

/// The oldest driver that knows the PTX we write.
const MIN_VERSION: i32 = 13_000;

/// Every function of the driver that is called: its absence is found at the start.
const SYMBOLS: &[&str] = &[
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAllocAsync",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemHostAlloc",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
];

/// One device's primary context and a stream of our own in it.
#[derive(Debug)]
pub(super) struct Gpu {
    device: sys::CUdevice,
    context: sys::CUcontext,
    stream: sys::CUstream,
    /// Whether memory can be had and given back in stream order.
    has_pools: bool,
    /// The first error, which every later call returns.
    broken: OnceLock<CudaError>,
}

// SAFETY: contexts and streams may be used by any thread that has made the context current, which
// `call` does before each use; the driver locks what it must.
unsafe impl Send for Gpu {}
// SAFETY: as above; `broken` is shared by its own lock.
unsafe impl Sync for Gpu {}

impl Gpu {
    /// The device of that number, with a stream.
    pub(super) fn open(ordinal: u32) -> Result<Arc<Self>, CudaError> {
        load_driver()?;
        result::init().map_err(|error| named("cuInit", error))?;
        check_version()?;
        let count =
            result::device::get_count().map_err(|error| named("cuDeviceGetCount", error))?;
        let count = u32::try_from(count).unwrap_or(0);
        let known = i32::try_from(ordinal).ok().filter(|_| ordinal < count);
        let number = known.ok_or(CudaError::NoDevice { ordinal, count })?;
        let device = result::device::get(number).map_err(|error| named("cuDeviceGet", error))?;
        let pools = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
        let has_pools = attribute(device, pools)? > 0;
        // SAFETY: `device` is what the driver has just named; the release is in `drop`.
        let context = unsafe { result::primary_ctx::retain(device) };
        let context = context.map_err(|error| named("cuDevicePrimaryCtxRetain", error))?;
        let mut gpu = Self {
            device,
            context,
            stream: std::ptr::null_mut(),
            has_pools,
            broken: OnceLock::new(),
        };
        gpu.stream =
            gpu.call("cuStreamCreate", || result::stream::create(StreamKind::NonBlocking))?;
        Ok(Arc::new(gpu))
    }

    /// Major and minor compute capability.
    pub(super) fn compute_capability(&self) -> Result<(u32, u32), CudaError> {
        use CUdevice_attribute as A;
        let part = |which| attribute(self.device, which).map(i32::unsigned_abs);
        let major = part(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        Ok((major, part(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
    }

    /// Its name, as the driver says it.
    pub(super) fn name(&self) -> Result<String, CudaError> {
        self.call("cuDeviceGetName", || result::device::get_name(self.device))
    }

    /// Its multiprocessors.
    pub(super) fn num_multiprocessors(&self) -> Result<u32, CudaError> {
        let which = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        attribute(self.device, which).map(i32::unsigned_abs)
    }

    /// Waits until all that was asked so far is done, and returns what went wrong in it.
    pub(super) fn synchronize(&self) -> Result<(), CudaError> {
        self.call("cuStreamSynchronize", || {
            // SAFETY: the stream was made by `open` and lives as long as `self`.
            unsafe { result::stream::synchronize(self.stream) }
        })
    }

    /// The error that broke the device, if one did.
    pub(super) fn alive(&self) -> Result<(), CudaError> {
        self.broken.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Bytes free and in all.
    fn memory(&self) -> (usize, usize) {
        // What is told beside an error may be missing.
        self.bind().and_then(|()| result::mem_get_info()).unwrap_or_default()
    }

    fn bind(&self) -> Result<(), DriverError> {
        // SAFETY: the context is retained until `drop`.
        unsafe { result::ctx::set_current(self.context) }
    }

    /// Calls the driver with this context; keeps an error, and calls no more after one.
    fn call<T>(
        &self,
        name: &'static str,
        call: impl FnOnce() -> Result<T, DriverError>,
    ) -> Result<T, CudaError> {
        self.alive()?;
        let result = self.bind().and_then(|()| call());
        result.map_err(|error| self.break_with(named(name, error)))
    }

    /// Keeps the error unless another was first, and returns that which is kept.
    fn break_with(&self, error: CudaError) -> CudaError {
        self.broken.get_or_init(|| error).clone()
    }

    /// Waits for a `drop`, broken or not.
    fn drain(&self) {
        self.release(|| {
            // SAFETY: the stream was made by `open` and lives as long as `self`.
            unsafe { result::stream::synchronize(self.stream) }
        });
    }

    /// Calls the driver for a `drop`, in which nobody could be told of an error.
    fn release(&self, call: impl FnOnce() -> Result<(), DriverError>) {
        let _ = self.bind().and_then(|()| call());
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        if !self.stream.is_null() {
            self.release(|| {
                // SAFETY: made by `open`; what used it holds this `Gpu`, so nothing is left that does.
                unsafe { result::stream::destroy(self.stream) }
            });
        }
        // SAFETY: retained by `open`, once.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// Opens the driver's library, and looks for every function of it that is called.
fn load_driver() -> Result<(), CudaError> {
    // SAFETY: opening the library runs its start-up code, which the driver means to be run so.
    if !unsafe { sys::is_culib_present() } {
        return Err(CudaError::NoDriver);
    }
    // SAFETY: as above; it was found a moment ago.
    let library = unsafe { sys::culib() };
    for &name in SYMBOLS {
        // SAFETY: the symbol is looked up and neither read nor called.
        let found = unsafe { library.get::<*const c_void>(name.as_bytes()) };
        found.map_err(|_| CudaError::Symbol { name })?;
    }
    Ok(())
}

fn check_version() -> Result<(), CudaError> {
    let mut version = 0;
    // SAFETY: the driver writes one number to the place it is given, which is `version`.
    let result = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    result.result().map_err(|error| named("cuDriverGetVersion", error))?;
    if version >= MIN_VERSION {
        return Ok(());
    }
    let text = |version: i32| format!("{}.{}", version / 1000, version % 1000 / 10);
    Err(CudaError::DriverVersion { got: text(version), want: text(MIN_VERSION) })
}

fn attribute(device: sys::CUdevice, which: CUdevice_attribute) -> Result<i32, CudaError> {
    // SAFETY: `device` came from the driver.
    let value = unsafe { result::device::get_attribute(device, which) };
    value.map_err(|error| named("cuDeviceGetAttribute", error))
}

/// A driver's error in words.
fn named(call: &'static str, error: DriverError) -> CudaError {
    let DriverError(code) = error;
    let (name, text) = words(code);
    CudaError::Driver { call, code: code as u32, name, text }
}

/// Name and description of a result.
fn words(code: CUresult) -> (String, String) {
    let text = |found: Result<&std::ffi::CStr, DriverError>| {
        found.map_or_else(|_| "unknown".to_owned(), |text| text.to_string_lossy().into_owned())
    };
    let error = DriverError(code);
    (text(error.error_name()), text(error.error_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_driver_there_is_an_error_and_no_panic() {
        // Machines that run this test may have a driver: then opening it must work instead.
        match load_driver() {
            Ok(()) => assert!(result::init().is_ok() || Gpu::open(u32::MAX).is_err()),
            Err(error) => {
                assert_eq!(error, CudaError::NoDriver);
                assert_eq!(Gpu::open(0).map(|_| ()), Err(CudaError::NoDriver));
            }
        }
    }
}
