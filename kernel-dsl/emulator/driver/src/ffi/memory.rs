//! Device and pinned host memory, and what a pointer points to.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::pointers::{In, Out};
use super::{call, unsupported};
use crate::code::{Code, Outcome, ensure};
use crate::context::Context;
use crate::driver::Driver;
use crate::settings::Site;
use crate::work::Work;
use std::ffi::c_void;
use std::sync::Arc;

/// Allocates in a context, from a pool if there is one.
pub(super) fn allocate(
    driver: &Driver,
    context: &Context,
    bytes: usize,
    pool: Option<u64>,
) -> Outcome<u64> {
    if let Some(planned) = driver.count(Site::Alloc) {
        return Err(planned.code);
    }
    let device = &context.core.device;
    let owner = (context.core.id, pool);
    device.ledger.add(owner, bytes as u64, |bytes| device.gpu.alloc(bytes))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemAlloc_v2(pointer: Out<u64>, bytes: usize) -> Code {
    call("cuMemAlloc", |driver| {
        let context = driver.current()?;
        driver.refuse_unsafe()?;
        pointer.set(allocate(driver, &context, bytes, None)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemAllocPitch_v2(
    pointer: Out<u64>,
    pitch: Out<usize>,
    width: usize,
    height: usize,
    element: u32,
) -> Code {
    call("cuMemAllocPitch", |driver| {
        let context = driver.current()?;
        driver.refuse_unsafe()?;
        ensure(matches!(element, 4 | 8 | 16) && width > 0, Code::ERROR_INVALID_VALUE)?;
        let row = width.checked_next_multiple_of(512).ok_or(Code::ERROR_INVALID_VALUE)?;
        let bytes = row.checked_mul(height).ok_or(Code::ERROR_INVALID_VALUE)?;
        pitch.set(row)?;
        pointer.set(allocate(driver, &context, bytes, None)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemFree_v2(pointer: u64) -> Code {
    call("cuMemFree", |driver| {
        let context = driver.current()?;
        if pointer == 0 {
            return Ok(());
        }
        driver.refuse_unsafe()?;
        let (device, ..) = driver.owner(pointer).ok_or(Code::ERROR_INVALID_VALUE)?;
        device.ledger.begin_free(pointer)?;
        // As the real driver does it: what is queued still sees the memory.
        for other in driver.contexts.all() {
            if other.core.device.ordinal == device.ordinal {
                driver.drain(&other.core);
            }
        }
        device.gpu.free(pointer);
        device.ledger.remove(pointer);
        context.core.check()
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemFreeAsync(pointer: u64, stream: u64) -> Code {
    call("cuMemFreeAsync", |driver| {
        let stream = driver.stream(stream)?;
        if pointer == 0 {
            return Ok(());
        }
        driver.refuse_memory_node(&stream)?;
        let (device, ..) = driver.owner(pointer).ok_or(Code::ERROR_INVALID_VALUE)?;
        device.ledger.begin_free(pointer)?;
        driver.queue(&stream, Vec::new(), Work::Free(device.clone(), pointer));
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) -> Code {
    call("cuMemGetInfo", |driver| {
        let context = driver.current()?;
        let ledger = &context.core.device.ledger;
        let size = |bytes| usize::try_from(bytes).map_err(|_| Code::ERROR_UNKNOWN);
        free.set(size(ledger.available())?)?;
        total.set(size(ledger.total())?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemGetAddressRange_v2(
    base: Out<u64>,
    bytes: Out<usize>,
    pointer: u64,
) -> Code {
    call("cuMemGetAddressRange", |driver| {
        driver.current()?;
        let (_, start, allocation) = driver.owner(pointer).ok_or(Code::ERROR_NOT_FOUND)?;
        base.offer(start)?;
        bytes.offer(usize::try_from(allocation.bytes).map_err(|_| Code::ERROR_UNKNOWN)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemAllocManaged(_pointer: Out<u64>, _bytes: usize, _flags: u32) -> Code {
    call("cuMemAllocManaged", |_| {
        unsupported("cuMemAllocManaged", "the emulator's memory is not the host's")
    })
}

fn pin(driver: &Driver, place: Out<usize>, bytes: usize, flags: u32) -> Outcome {
    driver.current()?;
    driver.refuse_unsafe()?;
    ensure(flags & !7 == 0 && !place.is_null(), Code::ERROR_INVALID_VALUE)?;
    place.set(driver.pinned.allocate(bytes, flags)?)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemHostAlloc(place: Out<usize>, bytes: usize, flags: u32) -> Code {
    call("cuMemHostAlloc", |driver| pin(driver, place, bytes, flags))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemAllocHost_v2(place: Out<usize>, bytes: usize) -> Code {
    call("cuMemAllocHost", |driver| pin(driver, place, bytes, 0))
}

/// Lets queued work finish that may still use pinned memory.
fn drain_all(driver: &Driver) {
    for context in driver.contexts.all() {
        driver.drain(&context.core);
    }
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemFreeHost(place: In<c_void>) -> Code {
    call("cuMemFreeHost", |driver| {
        driver.refuse_unsafe()?;
        ensure(driver.pinned.find(place.address(), 1).is_some(), Code::ERROR_INVALID_VALUE)?;
        drain_all(driver);
        driver.pinned.free(place.address())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemHostRegister_v2(place: In<c_void>, bytes: usize, flags: u32) -> Code {
    call("cuMemHostRegister", |driver| {
        driver.current()?;
        driver.refuse_unsafe()?;
        ensure(flags & !0xf == 0, Code::ERROR_INVALID_VALUE)?;
        driver.pinned.register(place.address(), bytes, flags)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemHostUnregister(place: In<c_void>) -> Code {
    call("cuMemHostUnregister", |driver| {
        driver.refuse_unsafe()?;
        drain_all(driver);
        driver.pinned.unregister(place.address())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemHostGetFlags(flags: Out<u32>, place: In<c_void>) -> Code {
    call("cuMemHostGetFlags", |driver| {
        let found = driver.pinned.find(place.address(), 1);
        flags.set(found.ok_or(Code::ERROR_INVALID_VALUE)?.2)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemHostGetDevicePointer_v2(
    _pointer: Out<u64>,
    _place: In<c_void>,
    _flags: u32,
) -> Code {
    call("cuMemHostGetDevicePointer", |_| {
        unsupported("cuMemHostGetDevicePointer", "kernels cannot reach the host's memory here")
    })
}

/// What a pointer's attributes are read from.
enum Target {
    Device { device: i32, context: u64, base: u64, bytes: u64, pool: u64, id: u64 },
    Host { base: usize, bytes: usize },
    Unknown,
}

fn target(driver: &Driver, pointer: u64) -> Target {
    if let Some((device, base, allocation)) = driver.owner(pointer) {
        return Target::Device {
            device: device.ordinal,
            context: allocation.context,
            base,
            bytes: allocation.bytes,
            pool: allocation.pool.unwrap_or(0),
            id: allocation.id,
        };
    }
    let address = usize::try_from(pointer).unwrap_or(usize::MAX);
    match driver.pinned.find(address, 1) {
        Some((base, bytes, _)) => Target::Host { base, bytes },
        None => Target::Unknown,
    }
}

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`.
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// Writes the attribute by its number in `CUpointer_attribute`. `lenient` gives zeros for memory
/// that the driver does not know, as the call for several attributes does.
fn pointer_attribute(
    driver: &Driver,
    data: Out<c_void>,
    attribute: u32,
    (pointer, lenient): (u64, bool),
) -> Outcome {
    let target = target(driver, pointer);
    let unknown = if lenient { Ok(0) } else { Err(Code::ERROR_INVALID_VALUE) };
    match (attribute, &target) {
        (1, Target::Device { context, .. }) => data.of().set(*context),
        (1, Target::Host { .. }) => data.of().set(driver.current_handle()),
        (2, Target::Device { .. }) => data.of().set(DEVICE),
        (2, Target::Host { .. }) => data.of().set(HOST),
        (3, Target::Device { .. }) => data.of().set(pointer),
        (4, Target::Host { .. }) => data.of().set(pointer),
        (3 | 4, _) => data.of::<u64>().set(unknown.or(Err(Code::ERROR_INVALID_VALUE))?),
        (6 | 8, Target::Device { .. } | Target::Host { .. }) => data.of().set(0u8),
        (7, Target::Device { id, .. }) => data.of().set(*id),
        (9, Target::Device { device, .. }) => data.of().set(*device),
        (11, Target::Device { base, .. }) => data.of().set(*base),
        (11, Target::Host { base, .. }) => data.of().set(*base),
        (12, Target::Device { bytes, .. }) => data.of().set(*bytes),
        (12, Target::Host { bytes, .. }) => data.of().set(*bytes),
        (13, Target::Device { .. } | Target::Host { .. }) => data.of().set(1u8),
        (13, Target::Unknown) => data.of().set(0u8),
        (17, Target::Device { pool, .. }) => data.of().set(*pool),
        (9, Target::Unknown) if lenient => data.of().set(-2i32),
        (2, _) => data.of::<u32>().set(u32::try_from(unknown?).unwrap_or(0)),
        (6 | 8, _) => data.of::<u8>().set(u8::try_from(unknown?).unwrap_or(0)),
        (9, Target::Host { .. }) => data.of().set(0i32),
        (1 | 7 | 11 | 12 | 17, _) => data.of::<u64>().set(unknown?),
        _ => Err(Code::ERROR_INVALID_VALUE),
    }
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuPointerGetAttribute(
    data: Out<c_void>,
    attribute: u32,
    pointer: u64,
) -> Code {
    call("cuPointerGetAttribute", |driver| {
        pointer_attribute(driver, data, attribute, (pointer, false))
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuPointerGetAttributes(
    count: u32,
    attributes: In<u32>,
    data: In<Out<c_void>>,
    pointer: u64,
) -> Code {
    call("cuPointerGetAttributes", |driver| {
        let attributes = attributes.array(count as usize)?;
        let data = data.array(count as usize)?;
        for (attribute, data) in attributes.into_iter().zip(data) {
            pointer_attribute(driver, data, attribute, (pointer, true))?;
        }
        Ok(())
    })
}

/// The device and allocation behind a pointer that a copy or fill names, held to its size.
pub(super) fn check_range(driver: &Driver, pointer: u64, bytes: u64) -> Outcome {
    let (device, ..) = driver.owner(pointer).ok_or(Code::ERROR_INVALID_VALUE)?;
    device.ledger.check(pointer, bytes)
}

/// A stream's context, alive.
pub(super) fn context_of(driver: &Driver, id: u64) -> Outcome<Arc<Context>> {
    driver.contexts.find(id).map_err(|_| Code::ERROR_CONTEXT_IS_DESTROYED)
}
