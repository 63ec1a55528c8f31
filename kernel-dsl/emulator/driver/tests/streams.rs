//! Streams, events and host functions through `cudarc`: what is ordered, and what is not done until
//! somebody waits for it.
//!
//! With a latency of a million calls, queued work is done when it is waited for and not a moment
//! before: what these tests see is decided by order alone.

#![expect(unsafe_code, reason = "the bindings' functions are unsafe to call")]

mod stand_in;

use cudarc::driver::sys::{self, CUresult};
use stand_in::{context, cu, device_memory, event, ok, queue_note, ran, stand_in, stream};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::Sender;

const LATE: (&str, &str) = ("LATENCY", "1000000");
const NOT_READY: CUresult = CUresult::CUDA_ERROR_NOT_READY;
const INVALID_HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;

/// Pinned memory for `len` words.
fn pinned(len: usize) -> *mut u32 {
    let mut place = std::ptr::null_mut();
    ok(cu!(cuMemHostAlloc(&mut place, len * 4, 0)));
    place.cast()
}

fn word(place: *const u32) -> u32 {
    // SAFETY: the tests pass places in pinned memory that they allocated and have not freed.
    unsafe { place.read_volatile() }
}

#[test]
fn a_copy_to_pinned_memory_is_not_there_before_its_stream_is() {
    stand_in("a_copy_to_pinned_memory_is_not_there_before_its_stream_is", &[LATE], || {
        let _context = context(0);
        let (stream, place, pointer) = (stream(1), pinned(1), device_memory(4));
        ok(cu!(cuMemsetD32Async(pointer, 77, 1, stream)));
        let before = word(place);
        ok(cu!(cuMemcpyDtoHAsync_v2(place.cast(), pointer, 4, stream)));
        assert_eq!(cu!(cuStreamQuery(stream)), NOT_READY);
        assert_eq!(word(place), before);
        ok(cu!(cuStreamSynchronize(stream)));
        assert_eq!(word(place), 77);
        ok(cu!(cuStreamQuery(stream)));
    });
}

#[test]
fn pinned_memory_is_read_when_the_stream_gets_there() {
    stand_in("pinned_memory_is_read_when_the_stream_gets_there", &[LATE], || {
        let _context = context(0);
        let (stream, place, pointer) = (stream(1), pinned(1), device_memory(4));
        // SAFETY: one word of pinned memory, which nothing else uses yet.
        unsafe { place.write_volatile(1) };
        ok(cu!(cuMemcpyHtoDAsync_v2(pointer, place.cast(), 4, stream)));
        // The mistake that the real driver shows now and then: the buffer is used again too soon.
        // SAFETY: as above; that the stream reads it later is what the test is about.
        unsafe { place.write_volatile(2) };
        let mut back = 0u32;
        ok(cu!(cuMemcpyDtoHAsync_v2((&raw mut back).cast(), pointer, 4, stream)));
        assert_eq!(back, 2);
    });
}

#[test]
fn pageable_memory_is_staged_and_waited_for() {
    stand_in("pageable_memory_is_staged_and_waited_for", &[LATE], || {
        let _context = context(0);
        let (stream, pointer) = (stream(1), device_memory(4));
        let mut value = 5u32;
        ok(cu!(cuMemcpyHtoDAsync_v2(pointer, (&raw const value).cast(), 4, stream)));
        value = 6;
        assert_eq!(cu!(cuStreamQuery(stream)), NOT_READY);
        let mut back = 0u32;
        ok(cu!(cuMemcpyDtoHAsync_v2((&raw mut back).cast(), pointer, 4, stream)));
        assert_eq!((value, back), (6, 5));
    });
}

#[test]
fn registered_memory_is_pinned_until_it_is_unregistered() {
    stand_in("registered_memory_is_pinned_until_it_is_unregistered", &[LATE], || {
        let _context = context(0);
        let (stream, pointer) = (stream(1), device_memory(4));
        let mut buffer = vec![0u32; 4];
        let place: *mut c_void = buffer.as_mut_ptr().cast();
        ok(cu!(cuMemHostRegister_v2(place, 16, 0)));
        let again = cu!(cuMemHostRegister_v2(place, 16, 0));
        assert_eq!(again, CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        ok(cu!(cuMemsetD32Async(pointer, 9, 1, stream)));
        ok(cu!(cuMemcpyDtoHAsync_v2(place, pointer, 4, stream)));
        assert_eq!(word(buffer.as_ptr()), 0);
        // Queued work that uses the memory is finished first.
        ok(cu!(cuMemHostUnregister(place)));
        assert_eq!(word(buffer.as_ptr()), 9);
        let again = cu!(cuMemHostUnregister(place));
        assert_eq!(again, CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    });
}

#[test]
fn work_of_a_stream_is_done_in_order() {
    stand_in("work_of_a_stream_is_done_in_order", &[], || {
        let _context = context(0);
        let stream = stream(1);
        (0..100).for_each(|number| queue_note(stream, number));
        ok(cu!(cuStreamSynchronize(stream)));
        assert_eq!(ran(), (0..100).collect::<Vec<_>>());
    });
}

#[test]
fn the_default_stream_is_ordered_with_blocking_streams() {
    stand_in("the_default_stream_is_ordered_with_blocking_streams", &[LATE], || {
        let _context = context(0);
        let (blocking, default) = (stream(0), std::ptr::null_mut());
        queue_note(blocking, 1);
        queue_note(default, 2);
        queue_note(blocking, 3);
        // Only one is asked for; it brings what comes before it, and nothing else.
        ok(cu!(cuStreamSynchronize(default)));
        assert_eq!(ran(), [1, 2]);
        queue_note(default, 4);
        queue_note(blocking, 5);
        ok(cu!(cuStreamSynchronize(blocking)));
        assert_eq!(ran(), [3, 4, 5]);
    });
}

#[test]
fn the_default_stream_does_not_wait_for_non_blocking_streams() {
    stand_in("the_default_stream_does_not_wait_for_non_blocking_streams", &[LATE], || {
        let _context = context(0);
        let (free, default) = (stream(1), std::ptr::null_mut());
        queue_note(free, 1);
        queue_note(default, 2);
        ok(cu!(cuStreamSynchronize(default)));
        assert_eq!(ran(), [2]);
        // Nor they for it; the default stream of this thread alone is a blocking one.
        queue_note(default, 3);
        queue_note(free, 4);
        ok(cu!(cuStreamSynchronize(free)));
        assert_eq!(ran(), [1, 4]);
        let own = 2 as sys::CUstream;
        queue_note(own, 5);
        ok(cu!(cuStreamSynchronize(own)));
        assert_eq!(ran(), [3, 5]);
    });
}

#[test]
fn an_event_orders_two_streams() {
    stand_in("an_event_orders_two_streams", &[LATE], || {
        let _context = context(0);
        let (first, second, event) = (stream(1), stream(1), event(2));
        ok(cu!(cuEventQuery(event)));
        queue_note(first, 1);
        ok(cu!(cuEventRecord(event, first)));
        queue_note(first, 2);
        ok(cu!(cuStreamWaitEvent(second, event, 0)));
        queue_note(second, 3);
        assert_eq!(cu!(cuEventQuery(event)), NOT_READY);
        ok(cu!(cuStreamSynchronize(second)));
        // What the first stream did after the record is not waited for.
        assert_eq!(ran(), [1, 3]);
        ok(cu!(cuEventQuery(event)));
        ok(cu!(cuStreamSynchronize(first)));
        assert_eq!(ran(), [2]);
    });
}

#[test]
fn a_wait_is_for_the_record_before_it() {
    stand_in("a_wait_is_for_the_record_before_it", &[LATE], || {
        let _context = context(0);
        let (first, second, event) = (stream(1), stream(1), event(2));
        queue_note(first, 1);
        ok(cu!(cuEventRecord(event, first)));
        ok(cu!(cuStreamWaitEvent(second, event, 0)));
        queue_note(first, 2);
        ok(cu!(cuEventRecord(event, first)));
        queue_note(second, 3);
        ok(cu!(cuStreamSynchronize(second)));
        assert_eq!(ran(), [1, 3]);
        // The host's wait is for the last record.
        ok(cu!(cuEventSynchronize(event)));
        assert_eq!(ran(), [2]);
    });
}

#[test]
fn work_starts_after_some_calls_though_nobody_waits() {
    stand_in("work_starts_after_some_calls_though_nobody_waits", &[("LATENCY", "20")], || {
        let _context = context(0);
        let stream = stream(1);
        queue_note(stream, 1);
        assert_eq!(ran(), [0usize; 0]);
        let mut polls = 0;
        while cu!(cuStreamQuery(stream)) == NOT_READY {
            polls += 1;
        }
        assert_eq!(ran(), [1]);
        assert!(polls >= 18, "{polls}");
    });
}

/// Threads with streams of their own and one in common, which hand work to each other by events.
fn many_threads_at_once(name: &str, latency: &str) {
    const THREADS: usize = 6;
    const STEPS: usize = 60;
    stand_in(name, &[("LATENCY", latency)], || {
        let context = context(0);
        let shared = stream(1) as usize;
        let run = |thread: usize| {
            context.bind_to_thread().expect("a context");
            let streams = [stream(0), stream(1), shared as sys::CUstream, null_mut()];
            let (pointer, place, done) = (device_memory(4), pinned(1), event(2));
            for step in 0..STEPS {
                let value = u32::try_from(thread * STEPS + step).expect("a small number");
                let (from, to) = (streams[step % 4], streams[(step / 4 + thread) % 4]);
                ok(cu!(cuStreamWaitEvent(from, done, 0)));
                ok(cu!(cuMemsetD32Async(pointer, value, 1, from)));
                ok(cu!(cuEventRecord(done, from)));
                ok(cu!(cuStreamWaitEvent(to, done, 0)));
                ok(cu!(cuMemcpyDtoHAsync_v2(place.cast(), pointer, 4, to)));
                ok(cu!(cuEventRecord(done, to)));
                if step % 3 == 0 {
                    ok(cu!(cuEventSynchronize(done)));
                    assert_eq!(word(place), value);
                }
            }
            ok(cu!(cuEventSynchronize(done)));
            ok(cu!(cuStreamDestroy_v2(streams[0])));
            ok(cu!(cuMemFree_v2(pointer)));
        };
        let run = &run;
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|thread| drop(scope.spawn(move || run(thread))));
        });
        context.synchronize().expect("all work is done");
    });
}

#[test]
fn many_threads_work_at_once() {
    many_threads_at_once("many_threads_work_at_once", "0");
}

#[test]
fn many_threads_work_at_once_with_latency() {
    many_threads_at_once("many_threads_work_at_once_with_latency", "7");
}

#[test]
fn events_measure_virtual_time() {
    stand_in("events_measure_virtual_time", &[], || {
        let _context = context(0);
        let (stream, start, end, plain) = (stream(1), event(0), event(0), event(2));
        let pointer = device_memory(1 << 20);
        let mut ms = 0.0;
        let code = cu!(cuEventElapsedTime_v2(&mut ms, start, end));
        assert_eq!(code, INVALID_HANDLE);
        ok(cu!(cuEventRecord(start, stream)));
        ok(cu!(cuMemsetD8Async(pointer, 1, 1 << 20, stream)));
        ok(cu!(cuEventRecord(end, stream)));
        ok(cu!(cuEventRecord(plain, stream)));
        ok(cu!(cuEventSynchronize(end)));
        ok(cu!(cuEventElapsedTime_v2(&mut ms, start, end)));
        // 2 us and a byte each 1/50 ns.
        assert!((ms - (2_000.0 + 20_971.0) / 1e6).abs() < 1e-6, "{ms}");
        ok(cu!(cuStreamSynchronize(stream)));
        assert_eq!(cu!(cuEventElapsedTime_v2(&mut ms, start, plain)), INVALID_HANDLE);
    });
}

#[test]
fn freed_memory_is_there_until_its_stream_frees_it() {
    stand_in("freed_memory_is_there_until_its_stream_frees_it", &[LATE], || {
        let _context = context(0);
        let (stream, mut pointer) = (stream(1), 0);
        ok(cu!(cuMemAllocAsync(&mut pointer, 4, stream)));
        ok(cu!(cuMemsetD32Async(pointer, 3, 1, stream)));
        let place = pinned(1);
        ok(cu!(cuMemcpyDtoHAsync_v2(place.cast(), pointer, 4, stream)));
        ok(cu!(cuMemFreeAsync(pointer, stream)));
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        assert_eq!(cu!(cuMemsetD32Async(pointer, 3, 1, stream)), invalid);
        assert_eq!(cu!(cuMemFreeAsync(pointer, stream)), invalid);
        assert_eq!(cu!(cuMemFree_v2(pointer)), invalid);
        ok(cu!(cuStreamSynchronize(stream)));
        assert_eq!(word(place), 3);
    });
}

#[test]
fn freeing_memory_waits_for_what_uses_it() {
    stand_in("freeing_memory_waits_for_what_uses_it", &[LATE], || {
        let _context = context(0);
        let (stream, place, pointer) = (stream(1), pinned(1), device_memory(4));
        ok(cu!(cuMemsetD32Async(pointer, 8, 1, stream)));
        ok(cu!(cuMemcpyDtoHAsync_v2(place.cast(), pointer, 4, stream)));
        ok(cu!(cuMemFree_v2(pointer)));
        assert_eq!(word(place), 8);
        ok(cu!(cuStreamSynchronize(stream)));
    });
}

/// Told when a host function has run.
static TOLD: Mutex<Option<Sender<()>>> = Mutex::new(None);

extern "C" fn tell(_data: *mut c_void) {
    let told = TOLD.lock().expect("nobody panics here").take();
    told.expect("somebody listens").send(()).expect("and still does");
}

#[test]
fn a_destroyed_stream_does_what_it_has_queued() {
    stand_in("a_destroyed_stream_does_what_it_has_queued", &[LATE], || {
        let _context = context(0);
        let (sender, receiver) = std::sync::mpsc::channel();
        *TOLD.lock().unwrap() = Some(sender);
        let stream = stream(1);
        queue_note(stream, 1);
        ok(cu!(cuLaunchHostFunc(stream, Some(tell), null_mut())));
        ok(cu!(cuStreamDestroy_v2(stream)));
        // Nobody can wait for the stream any more, and nobody has to.
        receiver.recv().unwrap();
        assert_eq!(ran(), [1]);
    });
}

/// What a host function got from the driver.
static GOT: AtomicU32 = AtomicU32::new(0);

extern "C" fn call_the_driver(_data: *mut c_void) {
    let mut count = 0;
    GOT.store(cu!(cuDeviceGetCount(&mut count)) as u32, Ordering::SeqCst);
}

#[test]
fn a_host_function_must_not_call_the_driver() {
    stand_in("a_host_function_must_not_call_the_driver", &[], || {
        let _context = context(0);
        let stream = stream(1);
        ok(cu!(cuLaunchHostFunc(stream, Some(call_the_driver), std::ptr::null_mut())));
        ok(cu!(cuStreamSynchronize(stream)));
        assert_eq!(GOT.load(Ordering::SeqCst), CUresult::CUDA_ERROR_NOT_PERMITTED as u32);
    });
}

#[test]
fn stale_and_foreign_handles_are_errors() {
    stand_in("stale_and_foreign_handles_are_errors", &[("DEVICES", "2")], || {
        let first = context(0);
        let (old, own, here) = (stream(0), stream(0), event(0));
        ok(cu!(cuStreamDestroy_v2(old)));
        assert_eq!(cu!(cuStreamSynchronize(old)), INVALID_HANDLE);
        assert_eq!(cu!(cuStreamDestroy_v2(old)), INVALID_HANDLE);
        assert_eq!(cu!(cuEventRecord(own.cast(), own)), INVALID_HANDLE);
        assert_eq!(cu!(cuEventRecord(here, here.cast())), INVALID_HANDLE);
        assert_eq!(
            cu!(cuStreamSynchronize(0x7fff_1234_5670_usize as sys::CUstream)),
            INVALID_HANDLE
        );
        let _second = context(1);
        let there = stream(0);
        // An event is recorded in its own context's streams, and waited for in any.
        assert_eq!(cu!(cuEventRecord(here, there)), INVALID_HANDLE);
        ok(cu!(cuStreamWaitEvent(there, here, 0)));
        first.bind_to_thread().unwrap();
        ok(cu!(cuEventDestroy_v2(here)));
        assert_eq!(cu!(cuEventQuery(here)), INVALID_HANDLE);
        assert_eq!(cu!(cuStreamWaitEvent(there, here, 0)), INVALID_HANDLE);
    });
}

#[test]
fn a_context_ends_with_everything_in_it() {
    stand_in("a_context_ends_with_everything_in_it", &[LATE], || {
        let first = context(0);
        let (stream, event) = (stream(0), event(0));
        let pointer = device_memory(1000);
        queue_note(stream, 1);
        let old = first.cu_ctx();
        drop(first);
        // Queued work was done; nothing of the context is left.
        assert_eq!(ran(), [1]);
        let second = context(0);
        assert_ne!(second.cu_ctx(), old);
        let (free, total) = second.mem_get_info().unwrap();
        assert_eq!(free, total);
        assert_eq!(cu!(cuStreamQuery(stream)), INVALID_HANDLE);
        assert_eq!(cu!(cuEventQuery(event)), INVALID_HANDLE);
        assert_eq!(cu!(cuMemFree_v2(pointer)), CUresult::CUDA_ERROR_INVALID_VALUE);
        assert_eq!(cu!(cuCtxSetCurrent(old)), CUresult::CUDA_ERROR_INVALID_CONTEXT);
    });
}

#[test]
fn a_primary_context_is_there_while_it_is_retained() {
    stand_in("a_primary_context_is_there_while_it_is_retained", &[], || {
        ok(cu!(cuInit(0)));
        let active = || {
            let (mut flags, mut active) = (9, 9);
            ok(cu!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active)));
            (flags, active)
        };
        assert_eq!(active(), (0, 0));
        ok(cu!(cuDevicePrimaryCtxSetFlags_v2(0, 4)));
        let (mut first, mut second) = (null_mut(), null_mut());
        ok(cu!(cuDevicePrimaryCtxRetain(&mut first, 0)));
        ok(cu!(cuDevicePrimaryCtxRetain(&mut second, 0)));
        assert_eq!((first, active()), (second, (4, 1)));
        assert_eq!(cu!(cuCtxDestroy_v2(first)), CUresult::CUDA_ERROR_INVALID_CONTEXT);
        ok(cu!(cuDevicePrimaryCtxRelease_v2(0)));
        assert_eq!(active(), (4, 1));
        ok(cu!(cuDevicePrimaryCtxRelease_v2(0)));
        assert_eq!(active(), (4, 0));
        let code = cu!(cuDevicePrimaryCtxRelease_v2(0));
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_CONTEXT);
        assert_eq!(cu!(cuCtxSetCurrent(first)), CUresult::CUDA_ERROR_INVALID_CONTEXT);
    });
}

#[test]
fn each_thread_has_contexts_of_its_own() {
    stand_in("each_thread_has_contexts_of_its_own", &[("DEVICES", "2")], || {
        let (first, second) = (context(0), context(1));
        let current = || {
            let mut current = std::ptr::null_mut();
            ok(cu!(cuCtxGetCurrent(&mut current)));
            current
        };
        assert_eq!(current(), second.cu_ctx());
        ok(cu!(cuCtxPushCurrent_v2(first.cu_ctx())));
        assert_eq!(current(), first.cu_ctx());
        std::thread::spawn(move || assert!(current().is_null())).join().unwrap();
        let mut popped = std::ptr::null_mut();
        ok(cu!(cuCtxPopCurrent_v2(&mut popped)));
        assert_eq!((popped, current()), (first.cu_ctx(), second.cu_ctx()));
        ok(cu!(cuCtxSetCurrent(std::ptr::null_mut())));
        let mut pointer = 0;
        let code = cu!(cuMemAlloc_v2(&mut pointer, 8));
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_CONTEXT);
    });
}

/// The program's waits are told, with what is left to do behind them.
#[test]
fn waits_are_told() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("waits.jsonl");
    let _ = std::fs::remove_file(&path);
    let said = stand_in("waits_are_told", &[LATE, ("WAITS", path.to_str().unwrap())], || {
        let _context = context(0);
        let (stream, event, pointer) = (stream(1), event(2), device_memory(4));
        ok(cu!(cuMemsetD32Async(pointer, 1, 1, stream)));
        ok(cu!(cuEventRecord(event, stream)));
        ok(cu!(cuMemsetD32Async(pointer, 2, 1, stream)));
        ok(cu!(cuMemsetD32Async(pointer, 3, 1, stream)));
        assert_eq!(cu!(cuEventQuery(event)), NOT_READY);
        ok(cu!(cuEventSynchronize(event)));
        ok(cu!(cuStreamSynchronize(stream)));
    });
    if said.is_some() {
        let lines = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = lines.lines().take(2).collect();
        let event = r#"{"wait":"Event","thread":"waits_are_told","behind":2}"#;
        let stream = r#"{"wait":"Stream","thread":"waits_are_told","behind":0}"#;
        assert_eq!(lines, [event, stream]);
    }
}
