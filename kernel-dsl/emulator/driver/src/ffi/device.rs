//! Initialization, devices, primary contexts and texts of codes.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::layout::{Handle, Uuid};
use super::pointers::{Out, Text, write_text};
use super::{call, guard, unsupported};
use crate::code::{Code, Outcome, ensure};
use crate::device::DRIVER_VERSION;
use crate::driver::{Driver, init};
use crate::handles::lock;
use std::ffi::c_char;

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuInit(flags: u32) -> Code {
    guard("cuInit", || {
        ensure(flags == 0, Code::ERROR_INVALID_VALUE)?;
        init()
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDriverGetVersion(version: Out<i32>) -> Code {
    guard("cuDriverGetVersion", || version.set(DRIVER_VERSION))
}

/// The part of a row of the table of codes, as a C string.
fn text_of(
    code: Code,
    text: Out<*const c_char>,
    part: impl FnOnce(&'static (u32, &'static str, &'static str)) -> &'static str,
) -> Outcome {
    let Some(row) = code.row() else {
        text.set(std::ptr::null())?;
        return Err(Code::ERROR_INVALID_VALUE);
    };
    // The texts of the table end with a NUL.
    text.set(part(row).as_ptr().cast())
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGetErrorName(code: Code, text: Out<*const c_char>) -> Code {
    guard("cuGetErrorName", || text_of(code, text, |row| row.1))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGetErrorString(code: Code, text: Out<*const c_char>) -> Code {
    guard("cuGetErrorString", || text_of(code, text, |row| row.2))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceGetCount(count: Out<i32>) -> Code {
    call("cuDeviceGetCount", |driver| {
        count.set(i32::try_from(driver.devices.len()).unwrap_or(i32::MAX))
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceGet(device: Out<i32>, ordinal: i32) -> Code {
    call("cuDeviceGet", |driver| device.set(driver.device(ordinal)?.ordinal))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceGetName(name: Out<c_char>, len: i32, device: i32) -> Code {
    call("cuDeviceGetName", |driver| {
        let len = usize::try_from(len).map_err(|_| Code::ERROR_INVALID_VALUE)?;
        write_text(name, len, &driver.device(device)?.name())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceGetUuid(uuid: Out<Uuid>, device: i32) -> Code {
    call("cuDeviceGetUuid", |driver| uuid.set(Uuid { bytes: driver.device(device)?.uuid() }))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceGetUuid_v2(uuid: Out<Uuid>, device: i32) -> Code {
    cuDeviceGetUuid(uuid, device)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) -> Code {
    call("cuDeviceTotalMem", |driver| {
        let total = driver.device(device)?.ledger.total();
        bytes.set(usize::try_from(total).map_err(|_| Code::ERROR_UNKNOWN)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceGetAttribute(
    value: Out<i32>,
    attribute: i32,
    device: i32,
) -> Code {
    call("cuDeviceGetAttribute", |driver| value.set(driver.device(device)?.attribute(attribute)?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceComputeCapability(
    major: Out<i32>,
    minor: Out<i32>,
    device: i32,
) -> Code {
    call("cuDeviceComputeCapability", |driver| {
        let capability = driver.device(device)?.compute_capability();
        major.set(capability.0)?;
        minor.set(capability.1)
    })
}

/// The bus address of a device; no two have the same.
fn bus_id(ordinal: i32) -> String {
    format!("0000:{:02x}:00.0", ordinal + 1)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceGetPCIBusId(text: Out<c_char>, len: i32, device: i32) -> Code {
    call("cuDeviceGetPCIBusId", |driver| {
        let len = usize::try_from(len).map_err(|_| Code::ERROR_INVALID_VALUE)?;
        write_text(text, len, &bus_id(driver.device(device)?.ordinal))
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceGetByPCIBusId(device: Out<i32>, text: Text) -> Code {
    call("cuDeviceGetByPCIBusId", |driver| {
        let text = text.read()?.to_lowercase();
        let found = driver.devices.iter().find(|device| bus_id(device.ordinal) == text);
        device.set(found.ok_or(Code::ERROR_INVALID_DEVICE)?.ordinal)
    })
}

/// Whether two devices are there and differ.
fn are_peers(driver: &Driver, device: i32, peer: i32) -> Outcome<i32> {
    Ok(i32::from(driver.device(device)?.ordinal != driver.device(peer)?.ordinal))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) -> Code {
    call("cuDeviceCanAccessPeer", |driver| can.set(are_peers(driver, device, peer)?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDeviceGetP2PAttribute(
    value: Out<i32>,
    attribute: u32,
    device: i32,
    peer: i32,
) -> Code {
    call("cuDeviceGetP2PAttribute", |driver| {
        let peers = are_peers(driver, device, peer)?;
        ensure(peers == 1, Code::ERROR_INVALID_DEVICE)?;
        value.set(match attribute {
            1 => 0,     // rank of the connection, the best
            2 | 3 => 1, // access; native atomics
            4 => 0,     // arrays
            _ => return Err(Code::ERROR_INVALID_VALUE),
        })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: i32) -> Code {
    call("cuDevicePrimaryCtxRetain", |driver| context.set(driver.retain_primary(device)?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDevicePrimaryCtxRelease_v2(device: i32) -> Code {
    call("cuDevicePrimaryCtxRelease", |driver| driver.release_primary(device))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDevicePrimaryCtxReset_v2(device: i32) -> Code {
    call("cuDevicePrimaryCtxReset", |driver| driver.reset_primary(device))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDevicePrimaryCtxGetState(
    device: i32,
    flags: Out<u32>,
    active: Out<i32>,
) -> Code {
    call("cuDevicePrimaryCtxGetState", |driver| {
        let primary = lock(driver.primary(device)?);
        flags.offer(primary.flags)?;
        active.offer(i32::from(primary.context.is_some()))
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) -> Code {
    call("cuDevicePrimaryCtxSetFlags", |driver| {
        ensure(flags & !0xff == 0, Code::ERROR_INVALID_VALUE)?;
        lock(driver.primary(device)?).flags = flags;
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGetExportTable(
    _table: Out<*const std::ffi::c_void>,
    _id: super::pointers::In<Uuid>,
) -> Code {
    // What other libraries of the vendor ask for; none of its tables is public.
    guard("cuGetExportTable", || unsupported("cuGetExportTable", "there are no private tables"))
}
