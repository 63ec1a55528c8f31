//! Events.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::call;
use super::layout::Handle;
use super::pointers::Out;
use crate::code::Code;
use crate::event::elapsed_ms;

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventCreate(event: Out<Handle>, flags: u32) -> Code {
    call("cuEventCreate", |driver| {
        let context = driver.current()?;
        event.set(driver.new_event(context.core.clone(), flags)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventDestroy_v2(event: Handle) -> Code {
    call("cuEventDestroy", |driver| driver.events.remove(event).map(|_| ()))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventRecord(event: Handle, stream: Handle) -> Code {
    cuEventRecordWithFlags(event, stream, 0)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventRecordWithFlags(event: Handle, stream: Handle, flags: u32) -> Code {
    call("cuEventRecord", |driver| {
        let (event, stream) = (driver.event(event)?, driver.stream(stream)?);
        driver.record(&event, &stream, flags)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuStreamWaitEvent(stream: Handle, event: Handle, flags: u32) -> Code {
    call("cuStreamWaitEvent", |driver| {
        let (event, stream) = (driver.event(event)?, driver.stream(stream)?);
        driver.wait_event(&stream, &event, flags)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventQuery(event: Handle) -> Code {
    call("cuEventQuery", |driver| driver.query_event(&*driver.event(event)?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventSynchronize(event: Handle) -> Code {
    call("cuEventSynchronize", |driver| driver.synchronize_event(&*driver.event(event)?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventElapsedTime(ms: Out<f32>, start: Handle, end: Handle) -> Code {
    call("cuEventElapsedTime", |driver| {
        ms.set(elapsed_ms(&*driver.event(start)?, &*driver.event(end)?)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuEventElapsedTime_v2(ms: Out<f32>, start: Handle, end: Handle) -> Code {
    cuEventElapsedTime(ms, start, end)
}
