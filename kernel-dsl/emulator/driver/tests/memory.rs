//! Memory through `cudarc`: allocation, copies, fills, pinned memory, pools, two devices.

#![expect(unsafe_code, reason = "the bindings' functions are unsafe to call")]

mod stand_in;

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{DriverError, result};
use stand_in::{context, cu, numbers, ok, stand_in};

#[test]
fn the_device_says_what_it_is() {
    stand_in("the_device_says_what_it_is", &[("ARCH", "sm_100"), ("MEMORY", "3MiB")], || {
        let context = context(0);
        assert_eq!(context.compute_capability(), Ok((10, 0)));
        assert_eq!(context.total_mem(), Ok(3 << 20));
        assert!(context.name().unwrap().contains("emulator"));
        assert!(context.has_async_alloc());
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE;
        assert_eq!(context.attribute(attribute), Ok(32));
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        assert_eq!(context.attribute(attribute), Ok(148));
        let mut version = 0;
        ok(cu!(cuDriverGetVersion(&mut version)));
        assert_eq!(version, 13000);
    });
}

#[test]
fn codes_have_the_names_of_the_bindings() {
    stand_in("codes_have_the_names_of_the_bindings", &[], || {
        let codes = [
            CUresult::CUDA_SUCCESS,
            CUresult::CUDA_ERROR_OUT_OF_MEMORY,
            CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU,
            CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
            CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
            CUresult::CUDA_ERROR_UNKNOWN,
        ];
        for code in codes {
            let error = DriverError(code);
            let name = error.error_name().unwrap().to_str().unwrap();
            assert_eq!(name, format!("{code:?}"));
            assert!(!error.error_string().unwrap().is_empty());
        }
    });
}

#[test]
fn bytes_come_back_as_they_went() {
    stand_in("bytes_come_back_as_they_went", &[], || {
        let stream = context(0).default_stream();
        let data = numbers(3, 1000);
        let there = stream.clone_htod(&data).unwrap();
        let copy = stream.clone_dtod(&there).unwrap();
        assert_eq!(stream.clone_dtoh(&copy).unwrap(), data);
        let zeros = stream.alloc_zeros::<u32>(77).unwrap();
        assert_eq!(stream.clone_dtoh(&zeros).unwrap(), [0; 77]);
        let part = there.slice(10..20);
        assert_eq!(stream.clone_dtoh(&part).unwrap(), numbers(13, 10));
    });
}

#[test]
fn fills_set_elements_of_each_size() {
    stand_in("fills_set_elements_of_each_size", &[], || {
        let stream = context(0).default_stream();
        let mut buffer = stream.alloc_zeros::<u8>(64).unwrap();
        let (pointer, _guard) = {
            use cudarc::driver::DevicePtrMut;
            buffer.device_ptr_mut(&stream)
        };
        ok(cu!(cuMemsetD8_v2(pointer, 0x11, 3)));
        ok(cu!(cuMemsetD16_v2(pointer + 4, 0x2233, 2)));
        ok(cu!(cuMemsetD32_v2(pointer + 8, 0x4455_6677, 2)));
        ok(cu!(cuMemsetD2D8_v2(pointer + 32, 8, 0x88, 2, 3)));
        let mut bytes = [0xffu8; 64];
        ok(cu!(cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), pointer, 64)));
        assert_eq!(bytes[..8], [0x11, 0x11, 0x11, 0, 0x33, 0x22, 0x33, 0x22]);
        assert_eq!(bytes[8..16], [0x77, 0x66, 0x55, 0x44, 0x77, 0x66, 0x55, 0x44]);
        assert_eq!(
            bytes[32..52],
            [0x88, 0x88, 0, 0, 0, 0, 0, 0, 0x88, 0x88, 0, 0, 0, 0, 0, 0, 0x88, 0x88, 0, 0]
        );
        // Elements lie at multiples of their size.
        let code = cu!(cuMemsetD32_v2(pointer + 2, 1, 1));
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn rows_are_copied_with_their_pitches() {
    stand_in("rows_are_copied_with_their_pitches", &[], || {
        let _context = context(0);
        let (mut pointer, mut pitch) = (0, 0);
        ok(cu!(cuMemAllocPitch_v2(&mut pointer, &mut pitch, 12, 3, 4)));
        assert_eq!(pitch, 512);
        let source: Vec<u8> = (0..48).collect();
        let mut back = vec![0u8; 48];
        let mut copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 2,
            srcY: 1,
            srcMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_HOST,
            srcHost: source.as_ptr().cast(),
            srcDevice: 0,
            srcArray: std::ptr::null_mut(),
            srcPitch: 16,
            dstXInBytes: 0,
            dstY: 1,
            dstMemoryType: sys::CUmemorytype::CU_MEMORYTYPE_DEVICE,
            dstHost: std::ptr::null_mut(),
            dstDevice: pointer,
            dstArray: std::ptr::null_mut(),
            dstPitch: pitch,
            WidthInBytes: 12,
            Height: 2,
        };
        ok(cu!(cuMemcpy2D_v2(&copy)));
        copy.srcMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_DEVICE;
        (copy.srcDevice, copy.srcPitch, copy.srcXInBytes) = (pointer, pitch, 0);
        copy.dstMemoryType = sys::CUmemorytype::CU_MEMORYTYPE_HOST;
        (copy.dstHost, copy.dstPitch, copy.dstY) = (back.as_mut_ptr().cast(), 12, 0);
        ok(cu!(cuMemcpy2D_v2(&copy)));
        assert_eq!(back[..12], source[18..30]);
        assert_eq!(back[12..24], source[34..46]);
        ok(cu!(cuMemFree_v2(pointer)));
    });
}

#[test]
fn memory_runs_out_and_is_counted() {
    stand_in("memory_runs_out_and_is_counted", &[("MEMORY", "1MiB")], || {
        let context = context(0);
        let stream = context.default_stream();
        assert_eq!(context.mem_get_info(), Ok((1 << 20, 1 << 20)));
        let held = stream.alloc_zeros::<u8>(700 << 10).unwrap();
        assert_eq!(context.mem_get_info(), Ok((324 << 10, 1 << 20)));
        let refused = stream.alloc_zeros::<u8>(400 << 10).unwrap_err();
        assert_eq!(refused.0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        drop(held);
        stream.synchronize().unwrap();
        assert!(stream.alloc_zeros::<u8>(1 << 20).is_ok());
    });
}

#[test]
fn a_planned_allocation_fails_once() {
    let settings = [("FAULTS", "alloc:2")];
    stand_in("a_planned_allocation_fails_once", &settings, || {
        let stream = context(0).default_stream();
        let first = stream.alloc_zeros::<u8>(16);
        let second = stream.alloc_zeros::<u8>(16);
        let third = stream.alloc_zeros::<u8>(16);
        assert!(first.is_ok() && third.is_ok());
        assert_eq!(second.unwrap_err().0, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    });
}

#[test]
fn ranges_outside_of_an_allocation_are_refused() {
    stand_in("ranges_outside_of_an_allocation_are_refused", &[], || {
        let _context = context(0);
        let mut pointer = 0;
        ok(cu!(cuMemAlloc_v2(&mut pointer, 100)));
        let mut host = [0u8; 200];
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        for (at, bytes) in [(pointer, 101), (pointer + 99, 2), (pointer - 1, 1), (64, 1), (0, 1)] {
            assert_eq!(cu!(cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), at, bytes)), invalid);
            assert_eq!(cu!(cuMemcpyHtoD_v2(at, host.as_ptr().cast(), bytes)), invalid);
            assert_eq!(cu!(cuMemsetD8_v2(at, 0, bytes)), invalid);
        }
        assert_eq!(cu!(cuMemcpyHtoD_v2(pointer, std::ptr::null(), 1)), invalid);
        assert_eq!(cu!(cuMemFree_v2(pointer + 1)), invalid);
        ok(cu!(cuMemFree_v2(pointer)));
        assert_eq!(cu!(cuMemFree_v2(pointer)), invalid);
        assert_eq!(cu!(cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), pointer, 1)), invalid);
    });
}

#[test]
fn pointers_tell_what_they_point_to() {
    use sys::CUpointer_attribute as Attribute;
    stand_in("pointers_tell_what_they_point_to", &[("DEVICES", "2")], || {
        let _context = context(1);
        let (mut pointer, mut host) = (0, std::ptr::null_mut());
        ok(cu!(cuMemAlloc_v2(&mut pointer, 100)));
        ok(cu!(cuMemAllocHost_v2(&mut host, 100)));
        let memory_type = |pointer| {
            let mut kind = 0u32;
            let attribute = Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
            let code = cu!(cuPointerGetAttribute((&raw mut kind).cast(), attribute, pointer));
            (code, kind)
        };
        assert_eq!(memory_type(pointer + 99), (CUresult::CUDA_SUCCESS, 2));
        assert_eq!(memory_type(host as u64), (CUresult::CUDA_SUCCESS, 1));
        assert_eq!(memory_type(pointer + 100).0, CUresult::CUDA_ERROR_INVALID_VALUE);
        let (mut ordinal, mut start) = (0i32, 0u64);
        let mut attributes = [
            Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
        ];
        let mut places = [(&raw mut ordinal).cast(), (&raw mut start).cast()];
        let (attributes, places) = (attributes.as_mut_ptr(), places.as_mut_ptr());
        ok(cu!(cuPointerGetAttributes(2, attributes, places, pointer + 5)));
        assert_eq!((ordinal, start), (1, pointer));
        ok(cu!(cuMemFreeHost(host)));
        assert_eq!(cu!(cuMemFreeHost(host)), CUresult::CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn pools_count_what_is_allocated_from_them() {
    use sys::CUmemPool_attribute as Attribute;
    stand_in("pools_count_what_is_allocated_from_them", &[], || {
        let context = context(0);
        let stream = context.new_stream().unwrap();
        let mut pool = std::ptr::null_mut();
        ok(cu!(cuDeviceGetDefaultMemPool(&mut pool, 0)));
        let used = |attribute| {
            let mut value = 0u64;
            ok(cu!(cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast())));
            value
        };
        let mut threshold = u64::MAX;
        let attribute = Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        ok(cu!(cuMemPoolSetAttribute(pool, attribute, (&raw mut threshold).cast())));
        assert_eq!(used(attribute), u64::MAX);
        let buffer = stream.alloc_zeros::<u8>(4096).unwrap();
        assert_eq!(used(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 4096);
        drop(buffer);
        stream.synchronize().unwrap();
        assert_eq!(used(Attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
        assert_eq!(used(Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH), 4096);
        ok(cu!(cuMemPoolTrimTo(pool, 0)));
        assert_eq!(cu!(cuMemPoolDestroy(pool)), CUresult::CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn two_devices_copy_between_each_other() {
    stand_in("two_devices_copy_between_each_other", &[("DEVICES", "2")], || {
        let (first, second) = (context(0), context(1));
        assert_eq!(result::device::get_count(), Ok(2));
        assert_ne!(first.uuid().unwrap().bytes, second.uuid().unwrap().bytes);
        let mut can = 0;
        ok(cu!(cuDeviceCanAccessPeer(&mut can, 0, 1)));
        assert_eq!(can, 1);
        ok(cu!(cuDeviceCanAccessPeer(&mut can, 1, 1)));
        assert_eq!(can, 0);
        let (here, there) = (first.default_stream(), second.new_stream().unwrap());
        let data = numbers(100, 50);
        let source = here.clone_htod(&data).unwrap();
        // `cudarc` uses cuMemcpyPeerAsync when contexts differ.
        let copy = there.clone_dtod(&source).unwrap();
        assert_eq!(there.clone_dtoh(&copy).unwrap(), data);
        let used = |context: &cudarc::driver::CudaContext| {
            let (free, total) = context.mem_get_info().unwrap();
            total - free
        };
        assert_eq!((used(&first), used(&second)), (512, 512));
        first.bind_to_thread().unwrap();
        ok(cu!(cuCtxEnablePeerAccess(second.cu_ctx(), 0)));
        let again = cu!(cuCtxEnablePeerAccess(second.cu_ctx(), 0));
        assert_eq!(again, CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        ok(cu!(cuCtxDisablePeerAccess(second.cu_ctx())));
        let again = cu!(cuCtxDisablePeerAccess(second.cu_ctx()));
        assert_eq!(again, CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    });
}

#[test]
fn a_bad_setting_stops_the_start() {
    let settings = [("MEMORY", "plenty")];
    let said = stand_in("a_bad_setting_stops_the_start", &settings, || {
        assert_eq!(result::init().unwrap_err().0, CUresult::CUDA_ERROR_INVALID_VALUE);
        let mut count = 0;
        let code = cu!(cuDeviceGetCount(&mut count));
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
    });
    if let Some(said) = said {
        assert!(said.contains("TESSERA_EMULATOR_MEMORY=plenty"), "{said}");
    }
}

#[test]
fn a_machine_may_have_no_device() {
    stand_in("a_machine_may_have_no_device", &[("DEVICES", "0")], || {
        assert_eq!(result::init().unwrap_err().0, CUresult::CUDA_ERROR_NO_DEVICE);
    });
}

#[test]
fn nothing_works_before_the_start() {
    stand_in("nothing_works_before_the_start", &[], || {
        let mut count = 0;
        let code = cu!(cuDeviceGetCount(&mut count));
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_INITIALIZED);
        assert_eq!(cu!(cuInit(1)), CUresult::CUDA_ERROR_INVALID_VALUE);
        ok(cu!(cuInit(0)));
        ok(cu!(cuDeviceGetCount(&mut count)));
        assert_eq!(count, 1);
        let mut pointer = 0;
        let code = cu!(cuMemAlloc_v2(&mut pointer, 8));
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_CONTEXT);
    });
}
