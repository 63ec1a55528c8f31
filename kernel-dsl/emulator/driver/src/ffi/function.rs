//! Functions: attributes and occupancy.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::layout::{Handle, LaunchConfig};
use super::pointers::{In, Out};
use super::{call, unsupported};
use crate::code::{Code, Outcome, ensure};
use crate::device::{MAX_THREADS_PER_CTA, SHARED_OPTIN, SHARED_PER_SM, SHARED_RESERVED, WARP_SIZE};
use crate::driver::Driver;
use crate::module::Function;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// A function whose context still works.
pub(super) fn function(driver: &Driver, handle: Handle) -> Outcome<Arc<Function>> {
    let function = driver.functions.find(handle)?;
    function.core.check()?;
    Ok(function)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuFuncGetAttribute(
    value: Out<i32>,
    attribute: i32,
    handle: Handle,
) -> Code {
    call("cuFuncGetAttribute", |driver| value.set(function(driver, handle)?.attribute(attribute)?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuFuncSetAttribute(handle: Handle, attribute: i32, value: i32) -> Code {
    call("cuFuncSetAttribute", |driver| function(driver, handle)?.set_attribute(attribute, value))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuKernelGetAttribute(
    value: Out<i32>,
    attribute: i32,
    kernel: Handle,
    _device: i32,
) -> Code {
    cuFuncGetAttribute(value, attribute, kernel)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuKernelSetAttribute(
    attribute: i32,
    value: i32,
    kernel: Handle,
    _device: i32,
) -> Code {
    cuFuncSetAttribute(kernel, attribute, value)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuFuncSetCacheConfig(handle: Handle, config: u32) -> Code {
    call("cuFuncSetCacheConfig", |driver| {
        ensure(config <= 3, Code::ERROR_INVALID_VALUE)?;
        function(driver, handle).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuFuncGetModule(module: Out<Handle>, handle: Handle) -> Code {
    call("cuFuncGetModule", |driver| module.set(function(driver, handle)?.module))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuFuncGetName(name: Out<*const c_char>, handle: Handle) -> Code {
    // The text lives as long as the function's module.
    call("cuFuncGetName", |driver| name.set(function(driver, handle)?.c_name.as_ptr()))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuFuncGetParamCount(handle: Handle, count: Out<usize>) -> Code {
    call("cuFuncGetParamCount", |driver| count.set(function(driver, handle)?.entry.params.len()))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuFuncGetParamInfo(
    handle: Handle,
    index: usize,
    offset: Out<usize>,
    size: Out<usize>,
) -> Code {
    call("cuFuncGetParamInfo", |driver| {
        let function = function(driver, handle)?;
        let param = function.entry.params.get(index).ok_or(Code::ERROR_INVALID_VALUE)?;
        offset.set(param.0)?;
        size.offer(param.1)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuFuncIsLoaded(state: Out<u32>, handle: Handle) -> Code {
    call("cuFuncIsLoaded", |driver| {
        function(driver, handle)?;
        state.set(1)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuFuncLoad(handle: Handle) -> Code {
    call("cuFuncLoad", |driver| function(driver, handle).map(|_| ()))
}

fn ctas_per_sm(driver: &Driver, handle: Handle, threads: i32, shared: usize) -> Outcome<i32> {
    let threads = u32::try_from(threads).map_err(|_| Code::ERROR_INVALID_VALUE)?;
    let ctas = function(driver, handle)?.ctas_per_sm(threads, shared)?;
    i32::try_from(ctas).map_err(|_| Code::ERROR_UNKNOWN)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    ctas: Out<i32>,
    handle: Handle,
    threads: i32,
    shared: usize,
) -> Code {
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(ctas, handle, threads, shared, 0)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    ctas: Out<i32>,
    handle: Handle,
    threads: i32,
    shared: usize,
    flags: u32,
) -> Code {
    call("cuOccupancyMaxActiveBlocksPerMultiprocessor", |driver| {
        ensure(flags <= 1, Code::ERROR_INVALID_VALUE)?;
        ctas.set(ctas_per_sm(driver, handle, threads, shared)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuOccupancyAvailableDynamicSMemPerBlock(
    bytes: Out<usize>,
    handle: Handle,
    ctas: i32,
    threads: i32,
) -> Code {
    call("cuOccupancyAvailableDynamicSMemPerBlock", |driver| {
        let function = function(driver, handle)?;
        let count = u32::try_from(ctas).map_err(|_| Code::ERROR_INVALID_VALUE)?;
        let possible = ctas_per_sm(driver, handle, threads, 0)?;
        ensure(count > 0 && ctas <= possible, Code::ERROR_INVALID_VALUE)?;
        let each = (SHARED_PER_SM / count).saturating_sub(SHARED_RESERVED) / 128 * 128;
        bytes.set(each.min(SHARED_OPTIN).saturating_sub(function.entry.shared_bytes) as usize)
    })
}

/// A function of the program that tells the dynamic shared memory of a CTA of so many threads.
type SharedOfThreads = Option<unsafe extern "C" fn(i32) -> usize>;

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuOccupancyMaxPotentialBlockSize(
    grid: Out<i32>,
    threads: Out<i32>,
    handle: Handle,
    shared_of: SharedOfThreads,
    shared: usize,
    limit: i32,
) -> Code {
    cuOccupancyMaxPotentialBlockSizeWithFlags(grid, threads, handle, shared_of, shared, limit, 0)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: Out<i32>,
    threads: Out<i32>,
    handle: Handle,
    shared_of: SharedOfThreads,
    shared: usize,
    limit: i32,
    flags: u32,
) -> Code {
    call("cuOccupancyMaxPotentialBlockSize", |driver| {
        ensure(flags <= 1, Code::ERROR_INVALID_VALUE)?;
        if shared_of.is_some() {
            return unsupported("cuOccupancyMaxPotentialBlockSize", "shared memory as a function");
        }
        let function = function(driver, handle)?;
        let limit = u32::try_from(limit).ok().filter(|limit| *limit > 0);
        let most = limit.unwrap_or(MAX_THREADS_PER_CTA).min(MAX_THREADS_PER_CTA);
        let mut best = (0, 0, 0);
        // The most resident threads; of equals, the largest CTA.
        for size in (1..=most / WARP_SIZE).map(|warps| warps * WARP_SIZE) {
            let ctas = function.ctas_per_sm(size, shared)?;
            best = best.max((ctas * size, size, ctas));
        }
        let int = |value: u32| i32::try_from(value).map_err(|_| Code::ERROR_UNKNOWN);
        let device = &function.core.device;
        grid.set(device.sm_count() * int(best.2)?)?;
        threads.set(int(best.1)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuOccupancyMaxActiveClusters(
    _clusters: Out<i32>,
    _handle: Handle,
    _config: In<LaunchConfig>,
) -> Code {
    call("cuOccupancyMaxActiveClusters", |_| {
        unsupported("cuOccupancyMaxActiveClusters", "the emulator has no clusters")
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuOccupancyMaxPotentialClusterSize(
    _size: Out<i32>,
    _handle: Handle,
    _config: In<c_void>,
) -> Code {
    call("cuOccupancyMaxPotentialClusterSize", |_| {
        unsupported("cuOccupancyMaxPotentialClusterSize", "the emulator has no clusters")
    })
}
