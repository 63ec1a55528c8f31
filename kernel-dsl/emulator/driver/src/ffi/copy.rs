//! Copies and fills.
//!
//! Pageable host memory is treated as CUDA documents it: a copy from it takes its bytes before the
//! call returns, a copy to it returns when it is done. In a capture there is no such difference;
//! the graph's launches read and write the memory itself.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::call;
use super::host::HostSpan;
use super::layout::{Copy2d, Handle};
use super::memory::check_range;
use super::pointers::{In, Out};
use crate::code::{Code, Outcome, ensure};
use crate::driver::Driver;
use crate::stream::Stream;
use crate::work::{Copy, Fill, Place, Step};
use std::ffi::c_void;
use std::sync::Arc;

/// When a call returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Return {
    /// As soon as the interface allows.
    Queued,
    /// When the copy is done.
    Done,
}

/// A copy of one row.
fn row(dst: Place, src: Place, width: u64) -> Copy {
    Copy { dst, src, width, rows: 1, dst_pitch: 0, src_pitch: 0 }
}

/// Bytes from the beginning of the first row to the end of the last.
fn extent(width: u64, rows: u64, pitch: u64) -> Outcome<u64> {
    let before = (rows - 1).checked_mul(pitch).ok_or(Code::ERROR_INVALID_VALUE)?;
    before.checked_add(width).ok_or(Code::ERROR_INVALID_VALUE)
}

/// Checks both ends of a copy, stages what must be staged, queues it and waits if need be.
fn copy(driver: &Driver, stream: u64, mut copy: Copy, wait: Return) -> Outcome {
    let stream = driver.stream(stream)?;
    if copy.width == 0 || copy.rows == 0 {
        return Ok(());
    }
    for (place, pitch) in [(&copy.dst, copy.dst_pitch), (&copy.src, copy.src_pitch)] {
        let bytes = extent(copy.width, copy.rows, pitch)?;
        match place {
            Place::Device(pointer) => check_range(driver, *pointer, bytes)?,
            Place::Host(span) => ensure(bytes <= span.len(), Code::ERROR_INVALID_VALUE)?,
            Place::Staged(_) => {}
        }
    }
    let pageable = |place: &Place| match place {
        Place::Host(span) => driver.pinned.find(span.address(), span.len()).is_none(),
        Place::Device(_) | Place::Staged(_) => false,
    };
    let captured = crate::handles::lock(&driver.captures).info(&stream).is_some();
    let wait = wait == Return::Done || (pageable(&copy.dst) && !captured);
    if let Place::Host(span) = &copy.src
        && pageable(&copy.src)
        && !captured
    {
        copy.src = Place::Staged(span.read(0, span.len())?.into());
    }
    finish(driver, &stream, Step::Copy(copy), wait)
}

fn finish(driver: &Driver, stream: &Arc<Stream>, step: Step, wait: bool) -> Outcome {
    if wait {
        // A call that waits is forbidden in other captures as every call that waits is.
        driver.refuse_unsafe()?;
        return driver.issue_and_wait(stream, step);
    }
    driver.issue(stream, step).map(|_| ())
}

fn host_in(address: In<c_void>, bytes: usize) -> Outcome<Place> {
    HostSpan::new(address.address(), bytes as u64).map(Place::Host)
}

fn host_out(address: Out<c_void>, bytes: usize) -> Outcome<Place> {
    HostSpan::new(address.address(), bytes as u64).map(Place::Host)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpyHtoD_v2(dst: u64, src: In<c_void>, bytes: usize) -> Code {
    call("cuMemcpyHtoD", |driver| {
        let step = row(Place::Device(dst), host_in(src, bytes)?, bytes as u64);
        copy(driver, 0, step, Return::Done)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpyDtoH_v2(dst: Out<c_void>, src: u64, bytes: usize) -> Code {
    call("cuMemcpyDtoH", |driver| {
        let step = row(host_out(dst, bytes)?, Place::Device(src), bytes as u64);
        copy(driver, 0, step, Return::Done)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpyDtoD_v2(dst: u64, src: u64, bytes: usize) -> Code {
    call("cuMemcpyDtoD", |driver| {
        let step = row(Place::Device(dst), Place::Device(src), bytes as u64);
        copy(driver, 0, step, Return::Queued)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpyHtoDAsync_v2(
    dst: u64,
    src: In<c_void>,
    bytes: usize,
    stream: Handle,
) -> Code {
    call("cuMemcpyHtoDAsync", |driver| {
        let step = row(Place::Device(dst), host_in(src, bytes)?, bytes as u64);
        copy(driver, stream, step, Return::Queued)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpyDtoHAsync_v2(
    dst: Out<c_void>,
    src: u64,
    bytes: usize,
    stream: Handle,
) -> Code {
    call("cuMemcpyDtoHAsync", |driver| {
        let step = row(host_out(dst, bytes)?, Place::Device(src), bytes as u64);
        copy(driver, stream, step, Return::Queued)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpyDtoDAsync_v2(
    dst: u64,
    src: u64,
    bytes: usize,
    stream: Handle,
) -> Code {
    call("cuMemcpyDtoDAsync", |driver| {
        let step = row(Place::Device(dst), Place::Device(src), bytes as u64);
        copy(driver, stream, step, Return::Queued)
    })
}

/// A place given by an address alone: device memory if the driver knows it as such.
fn unified(driver: &Driver, address: u64, bytes: usize) -> Outcome<Place> {
    if driver.owner(address).is_some() {
        return Ok(Place::Device(address));
    }
    let address = usize::try_from(address).map_err(|_| Code::ERROR_INVALID_VALUE)?;
    HostSpan::new(address, bytes as u64).map(Place::Host)
}

/// A copy between any two places, of the host or a device.
fn copy_unified(driver: &Driver, ends: (u64, u64), bytes: usize, at: (u64, Return)) -> Outcome {
    let (dst, src) = (unified(driver, ends.0, bytes)?, unified(driver, ends.1, bytes)?);
    copy(driver, at.0, row(dst, src, bytes as u64), at.1)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpy(dst: u64, src: u64, bytes: usize) -> Code {
    call("cuMemcpy", |driver| copy_unified(driver, (dst, src), bytes, (0, Return::Done)))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpyAsync(dst: u64, src: u64, bytes: usize, stream: Handle) -> Code {
    call("cuMemcpyAsync", |driver| {
        copy_unified(driver, (dst, src), bytes, (stream, Return::Queued))
    })
}

/// Holds each end of a copy between devices to the device of the context named with it.
fn peer_copy(driver: &Driver, ends: [(u64, Handle); 2], bytes: usize) -> Outcome<Copy> {
    if bytes > 0 {
        for (pointer, context) in ends {
            let context = driver.context(context)?;
            let (device, ..) = driver.owner(pointer).ok_or(Code::ERROR_INVALID_VALUE)?;
            let same = device.ordinal == context.core.device.ordinal;
            ensure(same, Code::ERROR_INVALID_VALUE)?;
            context.core.check()?;
        }
    }
    Ok(row(Place::Device(ends[0].0), Place::Device(ends[1].0), bytes as u64))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpyPeer(
    dst: u64,
    dst_context: Handle,
    src: u64,
    src_context: Handle,
    bytes: usize,
) -> Code {
    call("cuMemcpyPeer", |driver| {
        let step = peer_copy(driver, [(dst, dst_context), (src, src_context)], bytes)?;
        // It also waits for what the other device is doing, as the real one does.
        for context in [dst_context, src_context] {
            driver.drain(&driver.context(context)?.core);
        }
        copy(driver, 0, step, Return::Done)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpyPeerAsync(
    dst: u64,
    dst_context: Handle,
    src: u64,
    src_context: Handle,
    bytes: usize,
    stream: Handle,
) -> Code {
    call("cuMemcpyPeerAsync", |driver| {
        let step = peer_copy(driver, [(dst, dst_context), (src, src_context)], bytes)?;
        copy(driver, stream, step, Return::Queued)
    })
}

/// One end of a two-dimensional copy.
struct End {
    kind: u32,
    host: usize,
    device: u64,
    x: usize,
    y: usize,
    pitch: usize,
}

fn end_of(driver: &Driver, end: &End, width: usize, height: usize) -> Outcome<(Place, u64)> {
    let invalid = Code::ERROR_INVALID_VALUE;
    let pitch = if end.pitch == 0 { width } else { end.pitch };
    ensure(end.x + width <= pitch || height <= 1, invalid)?;
    let offset =
        end.y.checked_mul(pitch).and_then(|rows| rows.checked_add(end.x)).ok_or(invalid)?;
    let bytes = extent(width as u64, height as u64, pitch as u64)?;
    let bytes = usize::try_from(bytes).map_err(|_| invalid)?;
    let place = match end.kind {
        1 => {
            let address = end.host.checked_add(offset).ok_or(invalid)?;
            Place::Host(HostSpan::new(address, bytes as u64)?)
        }
        2 => Place::Device(end.device.checked_add(offset as u64).ok_or(invalid)?),
        4 => unified(driver, end.device.checked_add(offset as u64).ok_or(invalid)?, bytes)?,
        _ => return Err(Code::ERROR_NOT_SUPPORTED), // arrays
    };
    Ok((place, pitch as u64))
}

fn copy_2d(driver: &Driver, copy_of: In<Copy2d>, stream: u64, wait: Return) -> Outcome {
    let c = copy_of.read()?;
    if c.width == 0 || c.height == 0 {
        return Ok(());
    }
    let (host, device) = (c.src_host, c.src_device);
    let src = End { kind: c.src_type, host, device, x: c.src_x, y: c.src_y, pitch: c.src_pitch };
    let (host, device) = (c.dst_host, c.dst_device);
    let dst = End { kind: c.dst_type, host, device, x: c.dst_x, y: c.dst_y, pitch: c.dst_pitch };
    let (dst, dst_pitch) = end_of(driver, &dst, c.width, c.height)?;
    let (src, src_pitch) = end_of(driver, &src, c.width, c.height)?;
    let (width, rows) = (c.width as u64, c.height as u64);
    copy(driver, stream, Copy { dst, src, width, rows, dst_pitch, src_pitch }, wait)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpy2D_v2(copy: In<Copy2d>) -> Code {
    call("cuMemcpy2D", |driver| copy_2d(driver, copy, 0, Return::Done))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpy2DUnaligned_v2(copy: In<Copy2d>) -> Code {
    call("cuMemcpy2DUnaligned", |driver| copy_2d(driver, copy, 0, Return::Done))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuMemcpy2DAsync_v2(copy: In<Copy2d>, stream: Handle) -> Code {
    call("cuMemcpy2DAsync", |driver| copy_2d(driver, copy, stream, Return::Queued))
}

/// Checks a fill: its elements must be aligned to their size.
pub(super) fn check_fill(driver: &Driver, fill: &Fill) -> Outcome {
    let invalid = Code::ERROR_INVALID_VALUE;
    let element = u64::from(fill.element);
    ensure(matches!(fill.element, 1 | 2 | 4) && fill.dst.is_multiple_of(element), invalid)?;
    ensure(fill.rows <= 1 || fill.pitch.is_multiple_of(element), invalid)?;
    if fill.width == 0 || fill.rows == 0 {
        return Ok(());
    }
    let row = fill.width.checked_mul(element).ok_or(invalid)?;
    ensure(fill.rows == 1 || row <= fill.pitch, invalid)?;
    check_range(driver, fill.dst, extent(row, fill.rows, fill.pitch)?)
}

/// Queues a fill. None waits: a fill of device memory is asynchronous to the host.
fn fill(driver: &Driver, stream: u64, fill: Fill) -> Outcome {
    let stream = driver.stream(stream)?;
    check_fill(driver, &fill)?;
    if fill.width == 0 || fill.rows == 0 {
        return Ok(());
    }
    finish(driver, &stream, Step::Fill(fill), false)
}

/// Exports the fills with elements of one size: one row and many, in the default stream and any.
macro_rules! fills {
    ($element:literal, $type:ty, $one:ident, $one_async:ident, $many:ident, $many_async:ident) => {
        #[unsafe(no_mangle)]
        pub(super) extern "C" fn $one(dst: u64, value: $type, width: usize) -> Code {
            $one_async(dst, value, width, 0)
        }

        #[unsafe(no_mangle)]
        pub(super) extern "C" fn $one_async(
            dst: u64,
            value: $type,
            width: usize,
            stream: Handle,
        ) -> Code {
            $many_async(dst, 0, value, width, 1, stream)
        }

        #[unsafe(no_mangle)]
        pub(super) extern "C" fn $many(
            dst: u64,
            pitch: usize,
            value: $type,
            width: usize,
            rows: usize,
        ) -> Code {
            $many_async(dst, pitch, value, width, rows, 0)
        }

        #[unsafe(no_mangle)]
        pub(super) extern "C" fn $many_async(
            dst: u64,
            pitch: usize,
            value: $type,
            width: usize,
            rows: usize,
            stream: Handle,
        ) -> Code {
            call(stringify!($many_async), |driver| {
                let (width, rows, pitch) = (width as u64, rows as u64, pitch as u64);
                let value = u32::from(value);
                fill(driver, stream, Fill { dst, value, element: $element, width, rows, pitch })
            })
        }
    };
}

fills!(1, u8, cuMemsetD8_v2, cuMemsetD8Async, cuMemsetD2D8_v2, cuMemsetD2D8Async);
fills!(2, u16, cuMemsetD16_v2, cuMemsetD16Async, cuMemsetD2D16_v2, cuMemsetD2D16Async);
fills!(4, u32, cuMemsetD32_v2, cuMemsetD32Async, cuMemsetD2D32_v2, cuMemsetD2D32Async);
