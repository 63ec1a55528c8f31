//! What goes wrong on the device: it shows at a later call, it stays, and its report can be read.

#![expect(unsafe_code, reason = "the bindings' functions are unsafe to call")]

mod stand_in;

use cudarc::driver::sys::{self, CUresult};
use stand_in::{Affine, context, cu, download, function, module, numbers, ok, stand_in, upload};
use std::ffi::c_void;
use std::ptr::null_mut;

fn launch(name: &str, mut x: u64) -> CUresult {
    let mut params: [*mut c_void; 1] = [(&raw mut x).cast()];
    let (function, params, none) = (function(module(), name), params.as_mut_ptr(), null_mut());
    cu!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, none, params, null_mut()))
}

/// That every call that does something in this thread's context returns a code.
fn all_calls_return(code: CUresult, x: u64) {
    let (mut word, mut pointer, mut handle) = (0u32, 0, null_mut());
    assert_eq!(cu!(cuCtxSynchronize()), code);
    assert_eq!(cu!(cuStreamSynchronize(null_mut())), code);
    assert_eq!(cu!(cuStreamQuery(null_mut())), code);
    assert_eq!(cu!(cuMemAlloc_v2(&mut pointer, 4)), code);
    assert_eq!(cu!(cuMemFree_v2(x)), code);
    assert_eq!(cu!(cuMemcpyDtoH_v2((&raw mut word).cast(), x, 4)), code);
    assert_eq!(cu!(cuMemsetD32_v2(x, 1, 1)), code);
    assert_eq!(cu!(cuStreamCreate(&mut handle, 0)), code);
    let mut event = null_mut();
    assert_eq!(cu!(cuEventCreate(&mut event, 0)), code);
    let mut module = null_mut();
    let text = c".version 9.0\n.target sm_90a\n.address_size 64\n";
    assert_eq!(cu!(cuModuleLoadData(&mut module, text.as_ptr().cast())), code);
}

#[test]
fn a_wild_write_poisons_its_context() {
    let name = "a_wild_write_poisons_its_context";
    let said = stand_in(name, &[("DEVICES", "2"), ("LATENCY", "1000000")], || {
        let first = context(0);
        let x = upload(&numbers(0, 32));
        // The launch itself is fine; nobody has looked yet.
        ok(launch("wild", x));
        assert_eq!(cu!(cuCtxSynchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        all_calls_return(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, x);
        // What asks of the device, and the other context, still work.
        let mut count = 0;
        ok(cu!(cuDeviceGetCount(&mut count)));
        let _second = context(1);
        let there = upload(&numbers(0, 32));
        ok(cu!(cuMemsetD32_v2(there, 1, 1)));
        ok(cu!(cuCtxSynchronize()));
        assert!(first.synchronize().is_err());
    });
    if let Some(said) = said {
        assert_eq!(
            said.matches("wild failed with CUDA_ERROR_ILLEGAL_ADDRESS").count(),
            1,
            "{said}"
        );
        assert!(said.contains("PTX line"), "{said}");
    }
}

#[test]
fn a_trap_is_a_failed_launch() {
    stand_in("a_trap_is_a_failed_launch", &[], || {
        let _context = context(0);
        let x = upload(&numbers(0, 32));
        let (stop, none) = (function(module(), "stop"), null_mut());
        ok(cu!(cuLaunchKernel(stop, 1, 1, 1, 1, 1, 1, 0, none, null_mut(), null_mut())));
        assert_eq!(cu!(cuCtxSynchronize()), CUresult::CUDA_ERROR_LAUNCH_FAILED);
        all_calls_return(CUresult::CUDA_ERROR_LAUNCH_FAILED, x);
    });
}

#[test]
fn a_reset_device_has_a_new_context() {
    stand_in("a_reset_device_has_a_new_context", &[], || {
        let old = context(0);
        let x = upload(&numbers(0, 32));
        ok(launch("wild", x));
        assert_eq!(cu!(cuCtxSynchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        ok(cu!(cuDevicePrimaryCtxReset_v2(0)));
        let gone = cu!(cuCtxSynchronize());
        assert_eq!(gone, CUresult::CUDA_ERROR_INVALID_CONTEXT);
        let new = context(0);
        assert_ne!(new.cu_ctx(), old.cu_ctx());
        let (free, total) = new.mem_get_info().unwrap();
        assert_eq!(free, total);
        let y = upload(&numbers(0, 32));
        let function = function(module(), "affine");
        ok(Affine { function, x: y, n: 32, a: 1, b: 1 }.launch(null_mut()));
        assert_eq!(download(y, 32), numbers(1, 32));
    });
}

#[test]
fn a_kernel_must_not_use_freed_memory() {
    stand_in("a_kernel_must_not_use_freed_memory", &[], || {
        let _context = context(0);
        let x = upload(&numbers(0, 32));
        ok(cu!(cuMemFree_v2(x)));
        let function = function(module(), "affine");
        ok(Affine { function, x, n: 32, a: 1, b: 1 }.launch(null_mut()));
        assert_eq!(cu!(cuCtxSynchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    });
}

#[test]
fn a_kernel_must_not_run_after_its_memory_was_freed_in_order() {
    let name = "a_kernel_must_not_run_after_its_memory_was_freed_in_order";
    stand_in(name, &[], || {
        let context = context(0);
        let (stream, function) = (context.new_stream().unwrap(), function(module(), "affine"));
        let (stream, mut x) = (stream.cu_stream(), 0);
        ok(cu!(cuMemAllocAsync(&mut x, 128, stream)));
        ok(cu!(cuMemsetD32Async(x, 1, 32, stream)));
        let mut affine = Affine { function, x, n: 32, a: 1, b: 1 };
        ok(affine.launch(stream));
        ok(cu!(cuMemFreeAsync(x, stream)));
        ok(cu!(cuStreamSynchronize(stream)));
        ok(affine.launch(stream));
        let code = cu!(cuStreamSynchronize(stream));
        assert_eq!(code, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    });
}

/// The second of three launches fails as planned, with `code`.
fn second_launch_fails(name: &str, kind: &str, code: CUresult) {
    stand_in(name, &[("FAULTS", &format!("launch:2:{kind}"))], || {
        let _context = context(0);
        let x = upload(&numbers(0, 32));
        let mut affine = Affine { function: function(module(), "affine"), x, n: 32, a: 1, b: 1 };
        ok(affine.launch(null_mut()));
        ok(cu!(cuCtxSynchronize()));
        ok(affine.launch(null_mut()));
        assert_eq!(cu!(cuCtxSynchronize()), code);
        assert_eq!(affine.launch(null_mut()), code);
        all_calls_return(code, x);
    });
}

#[test]
fn a_planned_illegal_address() {
    let code = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    second_launch_fails("a_planned_illegal_address", "illegal_address", code);
}

#[test]
fn a_planned_assertion() {
    second_launch_fails("a_planned_assertion", "assert", CUresult::CUDA_ERROR_ASSERT);
}

#[test]
fn a_planned_memory_error() {
    let code = CUresult::CUDA_ERROR_ECC_UNCORRECTABLE;
    second_launch_fails("a_planned_memory_error", "ecc", code);
}

#[test]
fn a_planned_endless_kernel() {
    let code = CUresult::CUDA_ERROR_LAUNCH_TIMEOUT;
    second_launch_fails("a_planned_endless_kernel", "timeout", code);
}

#[test]
fn an_address_of_another_space_is_told_from_none_at_all() {
    let name = "an_address_of_another_space_is_told_from_none_at_all";
    stand_in(name, &[("DEVICES", "2")], || {
        let _first = context(0);
        ok(launch("wild", 4));
        assert_eq!(cu!(cuCtxSynchronize()), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
        let _second = context(1);
        ok(launch("astray", 0));
        assert_eq!(cu!(cuCtxSynchronize()), CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE);
    });
}

#[test]
fn memory_of_a_peer_is_out_of_reach_until_access_is_enabled() {
    let name = "memory_of_a_peer_is_out_of_reach_until_access_is_enabled";
    let said = stand_in(name, &[("DEVICES", "3")], || {
        let owner = context(2);
        let x = upload(&numbers(1, 32));
        let run = || {
            let function = function(module(), "affine");
            ok(Affine { function, x, n: 32, a: 2, b: 0 }.launch(null_mut()));
            cu!(cuCtxSynchronize())
        };
        let _with = context(0);
        ok(cu!(cuCtxEnablePeerAccess(owner.cu_ctx(), 0)));
        ok(run());
        assert_eq!(download(x, 32), (1..33).map(|v| v * 2).collect::<Vec<_>>());
        let _without = context(1);
        assert_eq!(run(), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    });
    if let Some(said) = said {
        assert!(said.contains("memory of device 2"), "{said}");
    }
}

#[test]
fn a_misaligned_access_is_told() {
    stand_in("a_misaligned_access_is_told", &[], || {
        let _context = context(0);
        let x = upload(&numbers(0, 32));
        ok(launch("wild", x + 6));
        assert_eq!(cu!(cuCtxSynchronize()), CUresult::CUDA_ERROR_MISALIGNED_ADDRESS);
    });
}

#[test]
fn a_lost_device_is_lost_for_every_context() {
    let settings = [("FAULTS", "launch:1:lost"), ("DEVICES", "2")];
    stand_in("a_lost_device_is_lost_for_every_context", &settings, || {
        let lost = CUresult::CUDA_ERROR_DEVICE_UNAVAILABLE;
        let _context = context(0);
        let x = upload(&numbers(0, 32));
        let function = function(module(), "affine");
        ok(Affine { function, x, n: 32, a: 1, b: 1 }.launch(null_mut()));
        assert_eq!(cu!(cuCtxSynchronize()), lost);
        all_calls_return(lost, x);
        let mut other = null_mut();
        assert_eq!(cu!(cuCtxCreate_v4(&mut other, null_mut(), 0, 0)), lost);
        ok(cu!(cuCtxCreate_v4(&mut other, null_mut(), 0, 1)));
        ok(cu!(cuCtxSynchronize()));
    });
}

#[test]
fn a_planned_copy_fails() {
    stand_in("a_planned_copy_fails", &[("FAULTS", "copy:2:failed")], || {
        let _context = context(0);
        let x = upload(&numbers(0, 32));
        let mut word = 0u32;
        let code = cu!(cuMemcpyDtoH_v2((&raw mut word).cast(), x, 4));
        assert_eq!(code, CUresult::CUDA_ERROR_LAUNCH_FAILED);
        all_calls_return(CUresult::CUDA_ERROR_LAUNCH_FAILED, x);
    });
}

#[test]
fn launches_in_graphs_count_as_launches() {
    let settings = [("FAULTS", "launch:4:illegal_address")];
    stand_in("launches_in_graphs_count_as_launches", &settings, || {
        let _context = context(0);
        let mut stream = null_mut();
        ok(cu!(cuStreamCreate(&mut stream, 1)));
        let x = upload(&numbers(0, 32));
        let mut affine = Affine { function: function(module(), "affine"), x, n: 32, a: 1, b: 1 };
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        ok(cu!(cuStreamBeginCapture_v2(stream, mode)));
        ok(affine.launch(stream));
        ok(affine.launch(stream));
        let (mut graph, mut exec) = (null_mut(), null_mut());
        ok(cu!(cuStreamEndCapture(stream, &mut graph)));
        ok(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)));
        ok(cu!(cuGraphLaunch(exec, stream)));
        ok(cu!(cuStreamSynchronize(stream)));
        ok(cu!(cuGraphLaunch(exec, stream)));
        let code = cu!(cuStreamSynchronize(stream));
        assert_eq!(code, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
    });
}

#[test]
fn work_behind_a_failure_is_not_done() {
    let settings = [("FAULTS", "launch:1:failed"), ("LATENCY", "1000000")];
    stand_in("work_behind_a_failure_is_not_done", &settings, || {
        let _context = context(0);
        let x = upload(&numbers(0, 32));
        let mut place = null_mut();
        ok(cu!(cuMemAllocHost_v2(&mut place, 4)));
        let place = place.cast::<u32>();
        // SAFETY: four bytes of pinned memory, not used by anything yet.
        unsafe { place.write_volatile(42) };
        let function = function(module(), "affine");
        ok(Affine { function, x, n: 32, a: 1, b: 1 }.launch(null_mut()));
        ok(cu!(cuMemcpyDtoHAsync_v2(place.cast(), x, 4, null_mut())));
        let code = cu!(cuStreamSynchronize(null_mut()));
        assert_eq!(code, CUresult::CUDA_ERROR_LAUNCH_FAILED);
        // SAFETY: as above; the stream is done.
        assert_eq!(unsafe { place.read_volatile() }, 42);
    });
}
