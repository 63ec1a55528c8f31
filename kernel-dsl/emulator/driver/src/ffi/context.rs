//! Contexts.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::call;
use super::layout::Handle;
use super::pointers::{In, Out};
use crate::code::{Code, Outcome, ensure};
use crate::device::DRIVER_VERSION;
use crate::driver::Driver;
use crate::handles::lock;
use crate::stream::PRIORITIES;
use std::ffi::c_void;

fn create(driver: &Driver, context: Out<Handle>, flags: u32, device: i32) -> Outcome {
    ensure(flags & !0xff == 0, Code::ERROR_INVALID_VALUE)?;
    let handle = driver.new_context(device, flags, false)?;
    driver.push_current(handle)?;
    context.set(handle)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxCreate_v2(context: Out<Handle>, flags: u32, device: i32) -> Code {
    call("cuCtxCreate", |driver| create(driver, context, flags, device))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxCreate_v4(
    context: Out<Handle>,
    params: In<c_void>,
    flags: u32,
    device: i32,
) -> Code {
    call("cuCtxCreate", |driver| {
        // Execution affinity and graphics interoperability are what the parameters are for.
        ensure(params.is_null(), Code::ERROR_NOT_SUPPORTED)?;
        create(driver, context, flags, device)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxDestroy_v2(context: Handle) -> Code {
    call("cuCtxDestroy", |driver| {
        let primary = driver.context(context)?.primary;
        ensure(!primary, Code::ERROR_INVALID_CONTEXT)?;
        driver.destroy_context(context)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxGetCurrent(context: Out<Handle>) -> Code {
    call("cuCtxGetCurrent", |driver| context.set(driver.current_handle()))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxSetCurrent(context: Handle) -> Code {
    call("cuCtxSetCurrent", |driver| driver.set_current(context))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxPushCurrent_v2(context: Handle) -> Code {
    call("cuCtxPushCurrent", |driver| driver.push_current(context))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxPopCurrent_v2(context: Out<Handle>) -> Code {
    call("cuCtxPopCurrent", |driver| context.offer(driver.pop_current()?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxGetDevice(device: Out<i32>) -> Code {
    call("cuCtxGetDevice", |driver| device.set(driver.current_any()?.core.device.ordinal))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxGetDevice_v2(device: Out<i32>, context: Handle) -> Code {
    call("cuCtxGetDevice", |driver| {
        let context = match context {
            0 => driver.current_any()?,
            context => driver.context(context)?,
        };
        device.set(context.core.device.ordinal)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxGetId(context: Handle, id: Out<u64>) -> Code {
    call("cuCtxGetId", |driver| {
        let context = match context {
            0 => driver.current_any()?,
            context => driver.context(context)?,
        };
        id.set(context.core.id)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxGetApiVersion(context: Handle, version: Out<u32>) -> Code {
    call("cuCtxGetApiVersion", |driver| {
        if context != 0 {
            driver.context(context)?;
        }
        version.set(DRIVER_VERSION.unsigned_abs())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxSynchronize() -> Code {
    call("cuCtxSynchronize", |driver| driver.synchronize(&*driver.current()?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxSynchronize_v2(context: Handle) -> Code {
    call("cuCtxSynchronize", |driver| {
        let context = driver.context(context)?;
        context.core.check()?;
        driver.synchronize(&context)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxGetFlags(flags: Out<u32>) -> Code {
    call("cuCtxGetFlags", |driver| flags.set(*lock(&driver.current()?.flags)))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxSetFlags(flags: u32) -> Code {
    call("cuCtxSetFlags", |driver| {
        ensure(flags & !0xff == 0, Code::ERROR_INVALID_VALUE)?;
        *lock(&driver.current()?.flags) = flags;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>) -> Code {
    call("cuCtxGetStreamPriorityRange", |driver| {
        driver.current()?;
        least.offer(PRIORITIES.0)?;
        greatest.offer(PRIORITIES.1)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxGetCacheConfig(config: Out<u32>) -> Code {
    call("cuCtxGetCacheConfig", |driver| config.set(*lock(&driver.current()?.cache_config)))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxSetCacheConfig(config: u32) -> Code {
    call("cuCtxSetCacheConfig", |driver| {
        ensure(config <= 3, Code::ERROR_INVALID_VALUE)?;
        *lock(&driver.current()?.cache_config) = config;
        Ok(())
    })
}

/// Limits that there are: stack, printf buffer, heap, pending launches, fetch granularity,
/// persisting cache. Kernels here need none of them; a limit is only kept.
const LIMITS: [(u32, usize); 6] =
    [(0, 1024), (1, 1 << 20), (2, 8 << 20), (4, 2048), (5, 64), (6, 0)];

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxGetLimit(value: Out<usize>, limit: u32) -> Code {
    call("cuCtxGetLimit", |driver| {
        let context = driver.current()?;
        let usual = LIMITS.iter().find(|(number, _)| *number == limit);
        let usual = usual.ok_or(Code::ERROR_UNSUPPORTED_LIMIT)?.1;
        value.set(lock(&context.limits).get(&limit).copied().unwrap_or(usual))
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxSetLimit(limit: u32, value: usize) -> Code {
    call("cuCtxSetLimit", |driver| {
        let context = driver.current()?;
        let known = LIMITS.iter().any(|(number, _)| *number == limit);
        ensure(known, Code::ERROR_UNSUPPORTED_LIMIT)?;
        lock(&context.limits).insert(limit, value);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxEnablePeerAccess(peer: Handle, flags: u32) -> Code {
    call("cuCtxEnablePeerAccess", |driver| {
        ensure(flags == 0, Code::ERROR_INVALID_VALUE)?;
        let (own, other) = (driver.current()?, driver.context(peer)?);
        let differ = own.core.device.ordinal != other.core.device.ordinal;
        ensure(differ, Code::ERROR_PEER_ACCESS_UNSUPPORTED)?;
        let before = lock(&own.core.peers).insert(peer, other.core.device.ordinal);
        ensure(before.is_none(), Code::ERROR_PEER_ACCESS_ALREADY_ENABLED)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuCtxDisablePeerAccess(peer: Handle) -> Code {
    call("cuCtxDisablePeerAccess", |driver| {
        driver.context(peer)?;
        let known = lock(&driver.current()?.core.peers).remove(&peer);
        ensure(known.is_some(), Code::ERROR_PEER_ACCESS_NOT_ENABLED)
    })
}
