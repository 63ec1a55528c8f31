//! Loaded kernels, and launching them.

use super::{Gpu, words};
use crate::device::cuda::error::CudaError;
use cudarc::driver::{result, sys};
use std::ffi::{CString, c_void};
use std::path::Path;
use std::sync::Arc;

/// Most argument words of a kernel.
const MAX_WORDS: usize = 96;
/// Bytes of the driver's log that are kept.
const LOG_BYTES: usize = 8 << 10;
/// Dynamic shared memory that a kernel may have without asking.
const FREE_SHARED_BYTES: u32 = 48 << 10;

/// What a module is made of.
#[derive(Debug)]
pub(in crate::device::cuda) enum Image {
    /// Text that the driver assembles.
    Ptx(CString),
    /// Machine code of one architecture.
    Cubin(Vec<u8>),
}

/// Loaded code.
#[derive(Debug)]
pub(in crate::device::cuda) struct Module {
    gpu: Arc<Gpu>,
    raw: sys::CUmodule,
}

// SAFETY: as for `Gpu`: a handle that any thread with the context may use.
unsafe impl Send for Module {}
// SAFETY: as above; nothing here changes a module.
unsafe impl Sync for Module {}

impl Module {
    /// Loads code that came from `file`. The driver's own words come back if it refuses; this does
    /// not break the device.
    pub(in crate::device::cuda) fn load(
        gpu: &Arc<Gpu>,
        image: &Image,
        file: &Path,
    ) -> Result<Arc<Self>, CudaError> {
        use sys::CUjit_option as Jit;
        gpu.alive()?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The second value is a number in the place of an address.
        let mut values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(LOG_BYTES)];
        let mut raw = std::ptr::null_mut();
        let start: *const c_void = match image {
            Image::Ptx(text) => text.as_ptr().cast(),
            Image::Cubin(bytes) => bytes.as_ptr().cast(),
        };
        let loaded = gpu.bind().and_then(|()| {
            // SAFETY: the image is text that ends in NUL, or a whole file that says where it ends;
            // two options with two values, of which the first is as long as the second says.
            let result = unsafe {
                sys::cuModuleLoadDataEx(
                    &raw mut raw,
                    start,
                    2,
                    options.as_mut_ptr(),
                    values.as_mut_ptr(),
                )
            };
            result.result()
        });
        match loaded {
            Ok(()) => Ok(Arc::new(Self { gpu: gpu.clone(), raw })),
            Err(result::DriverError(code)) => {
                let (name, text) = words(code);
                let end = log.iter().position(|&byte| byte == 0).unwrap_or(0);
                let said = String::from_utf8_lossy(&log[..end]).trim().to_owned();
                let log = if said.is_empty() { text } else { said };
                Err(CudaError::Module { file: file.to_owned(), code: code as u32, name, log })
            }
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // A module must not go while its kernels run.
        self.gpu.drain();
        self.gpu.release(|| {
            // SAFETY: loaded by `load`, unloaded once; functions hold the module.
            unsafe { result::module::unload(self.raw) }
        });
    }
}

/// A kernel of a module.
#[derive(Debug)]
pub(in crate::device::cuda) struct Function {
    module: Arc<Module>,
    raw: sys::CUfunction,
    threads: u32,
    shared_bytes: u32,
}

// SAFETY: as for `Module`, which it holds.
unsafe impl Send for Function {}

impl Function {
    /// The entry of that name, with the threads and dynamic shared memory of its manifest.
    pub(in crate::device::cuda) fn new(
        module: &Arc<Module>,
        entry: CString,
        (threads, shared_bytes): (u32, u32),
    ) -> Result<Self, CudaError> {
        use sys::CUfunction_attribute_enum as Attribute;
        let gpu = &module.gpu;
        let raw = gpu.call("cuModuleGetFunction", || {
            // SAFETY: the module is loaded as long as `module` lives.
            unsafe { result::module::get_function(module.raw, entry) }
        })?;
        if shared_bytes > FREE_SHARED_BYTES {
            let which = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = i32::try_from(shared_bytes).unwrap_or(i32::MAX);
            gpu.call("cuFuncSetAttribute", || {
                // SAFETY: the function is of a module that is loaded.
                unsafe { result::function::set_function_attribute(raw, which, bytes) }
            })?;
        }
        Ok(Self { module: module.clone(), raw, threads, shared_bytes })
    }

    /// Launches that many programs with these argument words.
    ///
    /// # Panics
    /// If there are more words than any kernel takes.
    pub(in crate::device::cuda) fn launch(
        &self,
        [x, y, z]: [u32; 3],
        words: &mut [u64],
    ) -> Result<(), CudaError> {
        assert!(words.len() <= MAX_WORDS, "{} argument words", words.len());
        let mut places = [std::ptr::null_mut::<c_void>(); MAX_WORDS];
        for (place, word) in places.iter_mut().zip(words.iter_mut()) {
            *place = std::ptr::from_mut(word).cast();
        }
        let (block, gpu) = ((self.threads, 1, 1), &self.module.gpu);
        gpu.call("cuLaunchKernel", || {
            // SAFETY: the driver copies the words before it returns, as many as the entry declares,
            // which is what `tessera_ptx::launch` packed by the same manifest. Their addresses are of
            // memory of this device, given back in stream order (see the head of this folder).
            unsafe {
                result::launch_kernel(
                    self.raw,
                    (x, y, z),
                    block,
                    self.shared_bytes,
                    gpu.stream,
                    &mut places,
                )
            }
        })
    }
}
