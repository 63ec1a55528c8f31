//! How a test meets the stand-in driver: the test program runs itself again, with a folder on the
//! library path in which this crate's library has the names of the real driver.

#![allow(dead_code, unused_macros, reason = "each test file uses a part")]

use cudarc::driver::{CudaContext, sys};
use std::ffi::c_void;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

/// Set in the process that runs a test's body.
const INSIDE: &str = "TESSERA_STAND_IN_TEST";

/// A call of the driver through the bindings.
macro_rules! cu {
    ($name:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: the tests pass what the interface asks for: results go to locals, sizes are those
        // of the buffers, and host memory outlives the work that uses it, which tests wait for.
        unsafe { cudarc::driver::sys::$name($($arg),*) }
    }};
}
pub(crate) use cu;

/// The folder with the library under the driver's names.
fn folder() -> &'static PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let this = std::env::current_exe().expect("this program's path");
        let stem = this.file_stem().expect("a name");
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(stem);
        tessera_emulator_driver::install(&folder).expect("the library was built");
        folder
    })
}

/// Runs `body` in a process of its own in which the stand-in driver is the driver. There it returns
/// `None`; in the process that asked it returns what the other wrote to the error output.
///
/// `name` is the test's own name, as the test program must be told which test to run.
pub(crate) fn stand_in(
    name: &str,
    settings: &[(&str, &str)],
    body: impl FnOnce(),
) -> Option<String> {
    if std::env::var_os(INSIDE).is_some() {
        body();
        return None;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program's path"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(INSIDE, "1").env("LD_LIBRARY_PATH", folder());
    for (setting, value) in settings {
        command.env(format!("TESSERA_EMULATOR_{setting}"), value);
    }
    let output = command.output().expect("this program starts");
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success() && out.contains("1 passed"), "{out}\n{err}");
    Some(err)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A call that must succeed.
#[track_caller]
pub(crate) fn ok(code: sys::CUresult) {
    assert_eq!(code, sys::CUresult::CUDA_SUCCESS);
}

/// A context on a device, current in this thread.
#[track_caller]
pub(crate) fn context(ordinal: usize) -> Arc<CudaContext> {
    CudaContext::new(ordinal).expect("a context")
}

/// Device memory of the current context.
#[track_caller]
pub(crate) fn device_memory(bytes: usize) -> u64 {
    let mut pointer = 0;
    ok(cu!(cuMemAlloc_v2(&mut pointer, bytes)));
    pointer
}

/// New device memory that holds `data`.
#[track_caller]
pub(crate) fn upload(data: &[u32]) -> u64 {
    let pointer = device_memory(data.len() * 4);
    ok(cu!(cuMemcpyHtoD_v2(pointer, data.as_ptr().cast(), data.len() * 4)));
    pointer
}

/// What lies in device memory, when all work in the default stream is done.
#[track_caller]
pub(crate) fn download(pointer: u64, len: usize) -> Vec<u32> {
    let mut data = vec![0; len];
    ok(cu!(cuMemcpyDtoH_v2(data.as_mut_ptr().cast(), pointer, len * 4)));
    data
}

/// A stream; it is ordered with the default stream unless `flags` is 1.
#[track_caller]
pub(crate) fn stream(flags: u32) -> sys::CUstream {
    let mut stream = std::ptr::null_mut();
    ok(cu!(cuStreamCreate(&mut stream, flags)));
    stream
}

/// An event; it can be measured unless `flags` is 2.
#[track_caller]
pub(crate) fn event(flags: u32) -> sys::CUevent {
    let mut event = std::ptr::null_mut();
    ok(cu!(cuEventCreate(&mut event, flags)));
    event
}

/// The numbers of the notes that streams have made, in order.
static RAN: Mutex<Vec<usize>> = Mutex::new(Vec::new());

extern "C" fn note(data: *mut c_void) {
    RAN.lock().expect("no note panics").push(data as usize);
}

/// Queues a host function that notes a number when the stream gets to it.
#[track_caller]
pub(crate) fn queue_note(stream: sys::CUstream, number: usize) {
    ok(cu!(cuLaunchHostFunc(stream, Some(note), number as *mut c_void)));
}

/// The notes made since this was asked last.
pub(crate) fn ran() -> Vec<usize> {
    std::mem::take(&mut *RAN.lock().expect("no note panics"))
}

/// The integers from `start` on.
pub(crate) fn numbers(start: u32, len: usize) -> Vec<u32> {
    (start..).take(len).collect()
}

/// Kernels over u32, in the form that assemblers take.
///
/// - `affine(x, n, a, b)`: `x[i] = x[i] * a + b` for `i < n`.
/// - `reverse(x)`: reverses the CTA's part of `x` through dynamic shared memory.
/// - `wild(x)`: writes one element before `x`.
/// - `astray(x)`: writes to shared memory as if it were global.
/// - `stop()`: traps.
/// - `fixed(x)`: `affine`'s like for CTAs of exactly 64 threads.
pub(crate) const PTX: &str = include_str!("kernels.ptx");

/// A module of [`PTX`], loaded.
#[track_caller]
pub(crate) fn module() -> sys::CUmodule {
    let text = std::ffi::CString::new(PTX).expect("no NUL in PTX");
    let mut module = std::ptr::null_mut();
    ok(cu!(cuModuleLoadData(&mut module, text.as_ptr().cast())));
    module
}

/// An entry of a module.
#[track_caller]
pub(crate) fn function(module: sys::CUmodule, name: &str) -> sys::CUfunction {
    let name = std::ffi::CString::new(name).expect("no NUL in a name");
    let mut function = std::ptr::null_mut();
    ok(cu!(cuModuleGetFunction(&mut function, module, name.as_ptr())));
    function
}

/// Launches a kernel of u64 and u32 parameters with one CTA of 32 threads for 32 elements.
pub(crate) struct Affine {
    pub(crate) function: sys::CUfunction,
    pub(crate) x: u64,
    pub(crate) n: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
}

impl Affine {
    pub(crate) fn launch(&mut self, stream: sys::CUstream) -> sys::CUresult {
        let mut params = [
            (&raw mut self.x).cast(),
            (&raw mut self.n).cast(),
            (&raw mut self.a).cast(),
            (&raw mut self.b).cast(),
        ];
        let (grid, none) = (self.n.div_ceil(32), std::ptr::null_mut());
        let params = params.as_mut_ptr();
        cu!(cuLaunchKernel(self.function, grid, 1, 1, 32, 1, 1, 0, stream, params, none))
    }
}
