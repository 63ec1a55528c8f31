//! Stream-ordered allocation and its pools.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::call;
use super::layout::{Handle, MemAccess, MemLocation, PoolProps};
use super::memory::{allocate, context_of};
use super::pointers::{In, Out};
use crate::code::{Code, Outcome, ensure};
use crate::driver::Driver;
use crate::handles::lock;
use crate::pool::Pool;
use std::ffi::c_void;

/// `CU_MEM_LOCATION_TYPE_DEVICE` and `CU_MEM_ALLOCATION_TYPE_PINNED`.
const ON_DEVICE: u32 = 1;
const PINNED: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;

fn allocate_in_order(
    driver: &Driver,
    pointer: Out<u64>,
    bytes: usize,
    at: (Option<u64>, u64),
) -> Outcome {
    let (pool, stream) = at;
    let stream = driver.stream(stream)?;
    driver.refuse_memory_node(&stream)?;
    let context = context_of(driver, stream.core.id)?;
    let ordinal = context.core.device.ordinal;
    let pool = match pool {
        Some(pool) => driver.pools.find(pool)?,
        None => driver.pools.find(lock(driver.primary(ordinal)?).pool)?,
    };
    ensure(pool.device == ordinal, Code::ERROR_INVALID_VALUE)?;
    let new = allocate(driver, &context, bytes, Some(pool.id))?;
    pool.note(driver)?;
    pointer.set(new)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemAllocAsync(pointer: Out<u64>, bytes: usize, stream: Handle) -> Code {
    call("cuMemAllocAsync", |driver| allocate_in_order(driver, pointer, bytes, (None, stream)))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemAllocFromPoolAsync(
    pointer: Out<u64>,
    bytes: usize,
    pool: Handle,
    stream: Handle,
) -> Code {
    call("cuMemAllocFromPoolAsync", |driver| {
        allocate_in_order(driver, pointer, bytes, (Some(pool), stream))
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: i32) -> Code {
    call("cuDeviceGetDefaultMemPool", |driver| pool.set(lock(driver.primary(device)?).default_pool))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceGetMemPool(pool: Out<Handle>, device: i32) -> Code {
    call("cuDeviceGetMemPool", |driver| pool.set(lock(driver.primary(device)?).pool))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceSetMemPool(device: i32, pool: Handle) -> Code {
    call("cuDeviceSetMemPool", |driver| {
        let of = driver.pools.find(pool)?.device;
        ensure(of == device, Code::ERROR_INVALID_VALUE)?;
        lock(driver.primary(device)?).pool = pool;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemPoolCreate(pool: Out<Handle>, props: In<PoolProps>) -> Code {
    call("cuMemPoolCreate", |driver| {
        let props = props.read()?;
        ensure(props.alloc_type == PINNED, Code::ERROR_INVALID_VALUE)?;
        ensure(props.location.kind == ON_DEVICE, Code::ERROR_NOT_SUPPORTED)?;
        // Pools of other processes, and pools with a size of their own.
        ensure(props.handle_types == 0 && props.max_size == 0, Code::ERROR_NOT_SUPPORTED)?;
        let device = driver.device(props.location.id)?.ordinal;
        pool.set(driver.pools.insert(|id| Pool::new(id, device)).0)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemPoolDestroy(pool: Handle) -> Code {
    call("cuMemPoolDestroy", |driver| {
        let device = driver.pools.find(pool)?.device;
        let mut primary = lock(driver.primary(device)?);
        ensure(primary.default_pool != pool, Code::ERROR_INVALID_VALUE)?;
        if primary.pool == pool {
            primary.pool = primary.default_pool;
        }
        driver.pools.remove(pool).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemPoolGetAttribute(
    pool: Handle,
    attribute: u32,
    value: Out<c_void>,
) -> Code {
    call("cuMemPoolGetAttribute", |driver| {
        let found = driver.pools.find(pool)?.attribute(driver, attribute)?;
        match Pool::is_int(attribute) {
            true => value.of().set(i32::try_from(found).unwrap_or(1)),
            false => value.of().set(found),
        }
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemPoolSetAttribute(
    pool: Handle,
    attribute: u32,
    value: Out<c_void>,
) -> Code {
    call("cuMemPoolSetAttribute", |driver| {
        let value = match Pool::is_int(attribute) {
            true => u64::from(value.of::<i32>().read()? != 0),
            false => value.of::<u64>().read()?,
        };
        driver.pools.find(pool)?.set_attribute(driver, attribute, value)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemPoolTrimTo(pool: Handle, _keep: usize) -> Code {
    // Nothing is held back that could be given up.
    call("cuMemPoolTrimTo", |driver| driver.pools.find(pool).map(|_| ()))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemPoolSetAccess(
    pool: Handle,
    descriptions: In<MemAccess>,
    count: usize,
) -> Code {
    call("cuMemPoolSetAccess", |driver| {
        let pool = driver.pools.find(pool)?;
        for access in descriptions.array(count)? {
            ensure(access.location.kind == ON_DEVICE, Code::ERROR_INVALID_VALUE)?;
            let device = driver.device(access.location.id)?.ordinal;
            // None, or to read and write; and a device always has access to its own pools.
            ensure(matches!(access.flags, 0 | READ_WRITE), Code::ERROR_INVALID_VALUE)?;
            let own = device == pool.device;
            ensure(!own || access.flags == READ_WRITE, Code::ERROR_INVALID_VALUE)?;
            pool.grant(device, access.flags == READ_WRITE);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemPoolGetAccess(
    flags: Out<u32>,
    pool: Handle,
    location: In<MemLocation>,
) -> Code {
    call("cuMemPoolGetAccess", |driver| {
        let pool = driver.pools.find(pool)?;
        let device = driver.device(location.read()?.id)?.ordinal;
        flags.set(if pool.grants(device) { READ_WRITE } else { 0 })
    })
}
