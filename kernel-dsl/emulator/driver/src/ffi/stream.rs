//! Streams, host functions and capture.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::call;
use super::host::HostFn;
use super::layout::{EdgeData, Handle};
use super::pointers::{In, Out};
use crate::capture::{Mode, exchange_mode};
use crate::code::{Code, Outcome, ensure};
use crate::driver::Driver;
use crate::handles::lock;
use crate::stream::Order;
use crate::work::Step;
use std::ffi::c_void;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

fn create(driver: &Driver, stream: Out<Handle>, flags: u32, priority: i32) -> Outcome {
    ensure(flags & !NON_BLOCKING == 0, Code::ERROR_INVALID_VALUE)?;
    let context = driver.current()?;
    let order = if flags == NON_BLOCKING { Order::NonBlocking } else { Order::Blocking };
    stream.set(driver.new_stream(&context.core, order, priority).id)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamCreate(stream: Out<Handle>, flags: u32) -> Code {
    call("cuStreamCreate", |driver| create(driver, stream, flags, 0))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamCreateWithPriority(
    stream: Out<Handle>,
    flags: u32,
    priority: i32,
) -> Code {
    call("cuStreamCreateWithPriority", |driver| create(driver, stream, flags, priority))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamDestroy_v2(stream: Handle) -> Code {
    call("cuStreamDestroy", |driver| driver.destroy_stream(stream))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamSynchronize(stream: Handle) -> Code {
    call("cuStreamSynchronize", |driver| driver.synchronize_stream(&*driver.stream(stream)?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamQuery(stream: Handle) -> Code {
    call("cuStreamQuery", |driver| driver.query_stream(&*driver.stream(stream)?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamGetPriority(stream: Handle, priority: Out<i32>) -> Code {
    call("cuStreamGetPriority", |driver| priority.set(driver.stream(stream)?.priority))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamGetFlags(stream: Handle, flags: Out<u32>) -> Code {
    call("cuStreamGetFlags", |driver| {
        let order = driver.stream(stream)?.order;
        flags.set(if order == Order::NonBlocking { NON_BLOCKING } else { 0 })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamGetId(stream: Handle, id: Out<u64>) -> Code {
    call("cuStreamGetId", |driver| id.set(driver.stream(stream)?.id))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamGetCtx(stream: Handle, context: Out<Handle>) -> Code {
    call("cuStreamGetCtx", |driver| context.set(driver.stream(stream)?.core.id))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamGetDevice(stream: Handle, device: Out<i32>) -> Code {
    call("cuStreamGetDevice", |driver| device.set(driver.stream(stream)?.core.device.ordinal))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuLaunchHostFunc(
    stream: Handle,
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    data: Out<c_void>,
) -> Code {
    call("cuLaunchHostFunc", |driver| {
        let stream = driver.stream(stream)?;
        let function = function.ok_or(Code::ERROR_INVALID_VALUE)?;
        let step = Step::Host(HostFn::new(function, data.address()));
        driver.issue(&stream, step).map(|_| ())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>) -> Code {
    call("cuThreadExchangeStreamCaptureMode", |_| {
        let new = Mode::from_number(mode.read()?)?;
        mode.set(exchange_mode(new) as u32)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamBeginCapture_v2(stream: Handle, mode: u32) -> Code {
    call("cuStreamBeginCapture", |driver| {
        let mode = Mode::from_number(mode)?;
        driver.begin_capture(&*driver.stream(stream)?, mode)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamEndCapture(stream: Handle, graph: Out<Handle>) -> Code {
    call("cuStreamEndCapture", |driver| {
        let stream = driver.stream(stream)?;
        graph.set(0)?;
        graph.set(driver.end_capture(&stream)?)
    })
}

/// `CU_STREAM_CAPTURE_STATUS_*`: none, active, invalidated.
fn status(invalid: Option<bool>) -> u32 {
    invalid.map_or(0, |invalid| 1 + u32::from(invalid))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamIsCapturing(stream: Handle, state: Out<u32>) -> Code {
    call("cuStreamIsCapturing", |driver| {
        let info = lock(&driver.captures).info(&*driver.stream(stream)?);
        state.set(status(info.map(|info| info.invalid)))
    })
}

/// Tells of a stream's capture. The tips that it points to live until the thread asks again.
fn capture_info(
    driver: &Driver,
    stream: Handle,
    state: Out<u32>,
    outs: (Out<u64>, Out<Handle>, Out<usize>, Out<usize>),
) -> Outcome {
    thread_local! {
        static TIPS: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let info = lock(&driver.captures).info(&*driver.stream(stream)?);
    state.set(status(info.as_ref().map(|info| info.invalid)))?;
    let Some(info) = info else { return Ok(()) };
    let (id, graph, tips, count) = outs;
    id.offer(info.id)?;
    graph.offer(info.graph)?;
    count.offer(info.tips.len())?;
    TIPS.with_borrow_mut(|kept| {
        *kept = info.tips;
        tips.offer(kept.as_ptr().expose_provenance())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamGetCaptureInfo_v2(
    stream: Handle,
    state: Out<u32>,
    id: Out<u64>,
    graph: Out<Handle>,
    tips: Out<usize>,
    count: Out<usize>,
) -> Code {
    call("cuStreamGetCaptureInfo", |driver| {
        capture_info(driver, stream, state, (id, graph, tips, count))
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamGetCaptureInfo_v3(
    stream: Handle,
    state: Out<u32>,
    id: Out<u64>,
    graph: Out<Handle>,
    tips: Out<usize>,
    edges: Out<usize>,
    count: Out<usize>,
) -> Code {
    call("cuStreamGetCaptureInfo", |driver| {
        // No edge here has data of its own.
        edges.offer(0)?;
        capture_info(driver, stream, state, (id, graph, tips, count))
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamUpdateCaptureDependencies_v2(
    stream: Handle,
    nodes: In<Handle>,
    edges: In<EdgeData>,
    count: usize,
    flags: u32,
) -> Code {
    call("cuStreamUpdateCaptureDependencies", |driver| {
        ensure(flags <= 1 && edges.is_null(), Code::ERROR_INVALID_VALUE)?;
        let stream = driver.stream(stream)?;
        let nodes = nodes.array(count)?;
        lock(&driver.captures).update_tips(&stream, &nodes, flags == 1)
    })
}
