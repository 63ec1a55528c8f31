//! Modules, functions and launches through `cudarc`, with results that are checked.

#![expect(unsafe_code, reason = "the bindings' functions are unsafe to call")]

mod stand_in;

use cudarc::driver::sys::{self, CUfunction_attribute as Attribute, CUresult};
use stand_in::{
    Affine, PTX, context, cu, download, function, module, numbers, ok, stand_in, upload,
};
use std::ffi::{CString, c_void};
use std::ptr::null_mut;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Launches an entry that takes one pointer.
fn launch(
    function: sys::CUfunction,
    grid: u32,
    (block, shared): (u32, u32),
    mut x: u64,
) -> CUresult {
    let mut params: [*mut c_void; 1] = [(&raw mut x).cast()];
    let params = params.as_mut_ptr();
    cu!(cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, null_mut(), params, null_mut()))
}

#[test]
fn a_kernel_computes() {
    stand_in("a_kernel_computes", &[], || {
        let _context = context(0);
        let x = upload(&numbers(5, 100));
        let mut affine = Affine { function: function(module(), "affine"), x, n: 90, a: 3, b: 1 };
        ok(affine.launch(null_mut()));
        let want: Vec<u32> = (5..95).map(|v| v * 3 + 1).chain(95..105).collect();
        assert_eq!(download(x, 100), want);
    });
}

#[test]
fn dynamic_shared_memory_is_what_the_launch_says() {
    stand_in("dynamic_shared_memory_is_what_the_launch_says", &[], || {
        let _context = context(0);
        let x = upload(&numbers(0, 128));
        let reverse = function(module(), "reverse");
        ok(launch(reverse, 2, (64, 256), x));
        let want: Vec<u32> = (0..64).rev().chain((64..128).rev()).collect();
        assert_eq!(download(x, 128), want);
        // More than 48 KiB has to be asked for first, and more than 227 KiB there is not.
        assert_eq!(launch(reverse, 2, (64, 49153), x), INVALID);
        let most = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        assert_eq!(cu!(cuFuncSetAttribute(reverse, most, 227 * 1024 + 1)), INVALID);
        ok(cu!(cuFuncSetAttribute(reverse, most, 227 * 1024)));
        ok(launch(reverse, 2, (64, 227 * 1024), x));
        assert_eq!(download(x, 128), numbers(0, 128));
        let mut told = 0;
        ok(cu!(cuFuncGetAttribute(&mut told, most, reverse)));
        assert_eq!(told, 227 * 1024);
    });
}

#[test]
fn impossible_launches_are_refused() {
    stand_in("impossible_launches_are_refused", &[], || {
        let _context = context(0);
        let x = upload(&numbers(0, 64));
        let module = module();
        let fixed = function(module, "fixed");
        for (grid, block) in [(0, 64), (1, 0), (1, 1025), (1, 32), (1, 128), (1 << 31, 64)] {
            assert_eq!(launch(fixed, grid, (block, 0), x), INVALID, "{grid} {block}");
        }
        let none = null_mut();
        let code =
            cu!(cuLaunchKernel(fixed, 1, 65536, 1, 64, 1, 1, 0, none, none.cast(), none.cast()));
        assert_eq!(code, INVALID);
        // A parameter is missing.
        let code = cu!(cuLaunchKernel(fixed, 1, 1, 1, 64, 1, 1, 0, none, none.cast(), none.cast()));
        assert_eq!(code, INVALID);
        ok(launch(fixed, 1, (64, 0), x));
        assert_eq!(download(x, 64), numbers(0, 64));
        ok(cu!(cuModuleUnload(module)));
        assert_eq!(launch(fixed, 1, (64, 0), x), CUresult::CUDA_ERROR_INVALID_HANDLE);
    });
}

#[test]
fn parameters_may_come_in_one_buffer() {
    stand_in("parameters_may_come_in_one_buffer", &[], || {
        let _context = context(0);
        let x = upload(&numbers(1, 32));
        let affine = function(module(), "affine");
        let mut buffer = [0u8; 24];
        buffer[..8].copy_from_slice(&x.to_le_bytes());
        for (at, value) in [(8, 32u32), (12, 2), (16, 7)] {
            buffer[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        let mut size = Box::new(20usize);
        let size_at = &raw mut *size;
        let mut extra: [*mut c_void; 5] = [
            std::ptr::without_provenance_mut(1),
            buffer.as_mut_ptr().cast(),
            std::ptr::without_provenance_mut(2),
            size_at.cast(),
            null_mut(),
        ];
        let (extra, none) = (extra.as_mut_ptr(), null_mut());
        ok(cu!(cuLaunchKernel(affine, 1, 1, 1, 32, 1, 1, 0, none, null_mut(), extra)));
        assert_eq!(download(x, 32), (1..33).map(|v| v * 2 + 7).collect::<Vec<_>>());
        // SAFETY: the box is alive, and nobody else looks at it now.
        unsafe { size_at.write(19) };
        let code = cu!(cuLaunchKernel(affine, 1, 1, 1, 32, 1, 1, 0, none, null_mut(), extra));
        assert_eq!(code, INVALID);
    });
}

#[test]
fn launch_attributes_are_kept_or_refused() {
    use sys::CUlaunchAttributeID as Id;
    stand_in("launch_attributes_are_kept_or_refused", &[], || {
        let _context = context(0);
        let x = upload(&numbers(0, 64));
        let fixed = function(module(), "fixed");
        let mut pointer = x;
        let mut params: [*mut c_void; 1] = [(&raw mut pointer).cast()];
        let params = params.as_mut_ptr();
        let with = |id, words: [u32; 3]| {
            // SAFETY: a union of plain numbers, of which zeros are a value.
            let mut attribute: sys::CUlaunchAttribute = unsafe { std::mem::zeroed() };
            attribute.id = id;
            attribute.value.clusterDim.x = words[0];
            attribute.value.clusterDim.y = words[1];
            attribute.value.clusterDim.z = words[2];
            let config = sys::CUlaunchConfig {
                gridDimX: 1,
                gridDimY: 1,
                gridDimZ: 1,
                blockDimX: 64,
                blockDimY: 1,
                blockDimZ: 1,
                sharedMemBytes: 0,
                hStream: null_mut(),
                attrs: &raw mut attribute,
                numAttrs: 1,
            };
            cu!(cuLaunchKernelEx(&config, fixed, params, null_mut()))
        };
        let unsupported = CUresult::CUDA_ERROR_NOT_SUPPORTED;
        ok(with(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, [1, 1, 1]));
        assert_eq!(with(Id::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, [2, 1, 1]), unsupported);
        ok(with(Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, [1, 0, 0]));
        assert_eq!(with(Id::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, [1, 0, 0]), unsupported);
        assert_eq!(with(Id::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, [1, 0, 0]), unsupported);
        assert_eq!(download(x, 64), numbers(0, 64));
    });
}

#[test]
fn occupancy_is_the_least_of_its_limits() {
    stand_in("occupancy_is_the_least_of_its_limits", &[], || {
        let _context = context(0);
        let affine = function(module(), "affine");
        let ctas = |threads, shared| {
            let mut ctas = 0;
            ok(cu!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut ctas, affine, threads, shared
            )));
            ctas
        };
        assert_eq!(ctas(1024, 0), 2); // threads
        assert_eq!(ctas(33, 0), 32); // places
        assert_eq!(ctas(128, 100 << 10), 2); // shared memory
        assert_eq!(ctas(128, 227 << 10), 1);
        assert_eq!(ctas(128, 228 << 10), 0);
        let (mut grid, mut threads) = (0, 0);
        let (grid_at, threads_at) = (&mut grid, &mut threads);
        ok(cu!(cuOccupancyMaxPotentialBlockSize(grid_at, threads_at, affine, None, 0, 0)));
        assert_eq!((grid, threads), (264, 1024));
    });
}

#[test]
fn machine_code_is_refused_with_a_reason() {
    let name = "machine_code_is_refused_with_a_reason";
    let said = stand_in(name, &[], || {
        let _context = context(0);
        let mut module = null_mut();
        let elf = b"\x7fELF and so on\0";
        let code = cu!(cuModuleLoadData(&mut module, elf.as_ptr().cast()));
        assert_eq!(code, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
        let fat = b"\x50\xed\x55\xba and so on\0";
        let code = cu!(cuModuleLoadData(&mut module, fat.as_ptr().cast()));
        assert_eq!(code, CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU);
    });
    if let Some(said) = said {
        assert!(said.contains("this is the stand-in driver"), "{said}");
    }
}

#[test]
fn a_text_that_cannot_be_compiled_is_refused_with_its_line() {
    let name = "a_text_that_cannot_be_compiled_is_refused_with_its_line";
    stand_in(name, &[], || {
        let _context = context(0);
        let load = |text: &str| {
            let text = CString::new(text).unwrap();
            let mut log = [1u8; 300];
            let mut options = [
                sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER,
                sys::CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            ];
            let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), 300 as *mut c_void];
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            let (mut module, image) = (null_mut(), text.as_ptr().cast());
            let code = cu!(cuModuleLoadDataEx(&mut module, image, 2, options, values));
            let len = log.iter().position(|byte| *byte == 0).unwrap();
            (code, String::from_utf8_lossy(&log[..len]).into_owned())
        };
        assert_eq!(load(PTX), (CUresult::CUDA_SUCCESS, String::new()));
        let line = 1 + PTX.lines().position(|line| line.contains("mad.lo.s32 %r9")).unwrap();
        let (code, log) = load(&PTX.replace("mad.lo.s32 %r9", "mad.upside.s32 %r9"));
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_PTX);
        assert!(log.contains(&format!("line {line}")) && log.contains("upside"), "{log}");
        let (code, _) = load(&PTX.replace(".version 9.0", ".version 9.4"));
        assert_eq!(code, CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
        let (code, log) = load(&PTX.replace("sm_90a", "sm_100a"));
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_PTX);
        assert!(log.contains("sm_100a"), "{log}");
        assert_eq!(load("").0, CUresult::CUDA_ERROR_INVALID_PTX);
    });
}

#[test]
fn functions_are_found_by_name() {
    stand_in("functions_are_found_by_name", &[], || {
        let _context = context(0);
        let module = module();
        assert_eq!(function(module, "fixed"), function(module, "fixed"));
        let (mut found, name) = (null_mut(), CString::new("missing").unwrap());
        let code = cu!(cuModuleGetFunction(&mut found, module, name.as_ptr()));
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_FOUND);
        let mut threads = 0;
        let attribute = Attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        ok(cu!(cuFuncGetAttribute(&mut threads, attribute, function(module, "fixed"))));
        assert_eq!(threads, 64);
        ok(cu!(cuFuncGetAttribute(&mut threads, attribute, function(module, "affine"))));
        assert_eq!(threads, 1024);
        let (mut offset, mut size) = (0, 0);
        ok(cu!(cuFuncGetParamInfo(function(module, "affine"), 2, &mut offset, &mut size)));
        assert_eq!((offset, size), (12, 4));
    });
}

#[test]
fn a_graph_of_kernels_replays_with_new_parameters() {
    stand_in("a_graph_of_kernels_replays_with_new_parameters", &[], || {
        let _context = context(0);
        let mut stream = null_mut();
        ok(cu!(cuStreamCreate(&mut stream, 1)));
        let x = upload(&numbers(1, 32));
        let mut affine = Affine { function: function(module(), "affine"), x, n: 32, a: 2, b: 0 };
        ok(cu!(cuStreamBeginCapture_v2(
            stream,
            sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL
        )));
        ok(affine.launch(stream));
        ok(affine.launch(stream));
        // What the launch took is taken; the caller's values may change.
        affine.a = 1000;
        let (mut graph, mut exec) = (null_mut(), null_mut());
        ok(cu!(cuStreamEndCapture(stream, &mut graph)));
        ok(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)));
        let run = || {
            ok(cu!(cuGraphLaunch(exec, stream)));
            ok(cu!(cuStreamSynchronize(stream)));
            download(x, 32)
        };
        assert_eq!(run(), (1..33).map(|v| v * 4).collect::<Vec<_>>());
        assert_eq!(run(), (1..33).map(|v| v * 16).collect::<Vec<_>>());
        let (mut nodes, mut count) = ([null_mut(); 2], 2);
        ok(cu!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count)));
        // SAFETY: a structure of plain numbers and pointers, of which zeros are a value.
        let mut params: sys::CUDA_KERNEL_NODE_PARAMS = unsafe { std::mem::zeroed() };
        ok(cu!(cuGraphKernelNodeGetParams_v2(nodes[1], &mut params)));
        assert_eq!((params.func, params.gridDimX, params.blockDimX), (affine.function, 1, 32));
        let place = params.kernelParams.wrapping_add(2);
        // SAFETY: the node has four parameters, each behind a pointer; this is the third's.
        let factor = unsafe { place.read() }.cast::<u32>();
        // SAFETY: the value lies in the node, which is not changed before this.
        let factor = unsafe { factor.read() };
        assert_eq!(factor, 2);
        let (mut n, mut a, mut b) = (32u32, 1u32, 5u32);
        let mut pointer = x;
        let mut values: [*mut c_void; 4] = [
            (&raw mut pointer).cast(),
            (&raw mut n).cast(),
            (&raw mut a).cast(),
            (&raw mut b).cast(),
        ];
        params.kernelParams = values.as_mut_ptr();
        ok(cu!(cuGraphExecKernelNodeSetParams_v2(exec, nodes[1], &params)));
        assert_eq!(run(), (1..33).map(|v| v * 32 + 5).collect::<Vec<_>>());
    });
}

#[test]
fn streams_order_kernels_and_copies() {
    stand_in("streams_order_kernels_and_copies", &[("SCHEDULE", "3")], || {
        let context = context(0);
        let function = function(module(), "affine");
        let streams: Vec<_> = (0..4).map(|_| context.new_stream().unwrap()).collect();
        // Each hand-over goes by an event; every step's result depends on the order.
        let x = upload(&numbers(0, 32));
        let mut event = null_mut();
        ok(cu!(cuEventCreate(&mut event, 2)));
        let mut want = numbers(0, 32);
        for step in 0..40usize {
            let stream = streams[step % 4].cu_stream();
            ok(cu!(cuStreamWaitEvent(stream, event, 0)));
            let factor = u32::try_from(step).unwrap() + 2;
            let mut affine = Affine { function, x, n: 32, a: factor, b: factor };
            ok(affine.launch(stream));
            ok(cu!(cuEventRecord(event, stream)));
            want.iter_mut().for_each(|v| *v = v.wrapping_mul(factor).wrapping_add(factor));
        }
        ok(cu!(cuEventSynchronize(event)));
        assert_eq!(download(x, 32), want);
    });
}

#[test]
fn launches_are_profiled() {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("profile.jsonl");
    let _ = std::fs::remove_file(&path);
    let settings = [("PROFILE", path.to_str().unwrap())];
    let said = stand_in("launches_are_profiled", &settings, || {
        let _context = context(0);
        let x = upload(&numbers(0, 64));
        let function = function(module(), "affine");
        let mut affine = Affine { function, x, n: 64, a: 1, b: 1 };
        ok(affine.launch(null_mut()));
        ok(affine.launch(null_mut()));
        assert_eq!(download(x, 64), numbers(2, 64));
    });
    if said.is_some() {
        let lines = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(
            lines[1].starts_with(r#"{"device":0,"launch":1,"entry":"affine","grid":[2, 1, 1]"#)
        );
        // 64 elements of 4 bytes are read and written.
        assert!(lines[0].contains(r#""global_bytes":512"#), "{}", lines[0]);
    }
}

#[test]
fn libraries_hold_kernels() {
    stand_in("libraries_hold_kernels", &[], || {
        let _context = context(0);
        let text = CString::new(PTX).unwrap();
        let (none, image) = (null_mut(), text.as_ptr().cast());
        let (mut library, mut kernel, mut function) = (null_mut(), null_mut(), null_mut());
        let options = null_mut();
        ok(cu!(cuLibraryLoadData(&mut library, image, none, options, 0, null_mut(), options, 0)));
        ok(cu!(cuLibraryGetKernel(&mut kernel, library, c"fixed".as_ptr())));
        ok(cu!(cuKernelGetFunction(&mut function, kernel)));
        let x = upload(&numbers(7, 64));
        ok(launch(function, 1, (64, 0), x));
        assert_eq!(download(x, 64), numbers(0, 64));
        ok(cu!(cuLibraryUnload(library)));
        assert_eq!(launch(function, 1, (64, 0), x), CUresult::CUDA_ERROR_INVALID_HANDLE);
    });
}

#[test]
fn tensor_maps_are_checked() {
    use sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 as BF16;
    use sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE as NO_FILL;
    use sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE as PLAIN;
    use sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE as NO_PROMOTION;
    use sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B as SWIZZLE;
    stand_in("tensor_maps_are_checked", &[], || {
        let _context = context(0);
        let address = upload(&numbers(0, 4096)) as *mut c_void;
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        let mut encode = |box_dims: [u32; 2]| {
            let (dims, strides, steps) = ([128u64, 64], [256u64], [1u32, 1]);
            let (dims, strides) = (dims.as_ptr(), strides.as_ptr());
            let (boxes, steps) = (box_dims.as_ptr(), steps.as_ptr());
            cu!(cuTensorMapEncodeTiled(
                &mut map,
                BF16,
                2,
                address,
                dims,
                strides,
                boxes,
                steps,
                PLAIN,
                SWIZZLE,
                NO_PROMOTION,
                NO_FILL,
            ))
        };
        ok(encode([64, 64]));
        // A row of the box is wider than the swizzle.
        assert_eq!(encode([128, 64]), INVALID);
        assert_eq!(map.opaque[1], address as u64);
    });
}

#[test]
fn functions_are_found_as_entry_points() {
    stand_in("functions_are_found_as_entry_points", &[], || {
        let find = |name: &std::ffi::CStr| {
            let (mut place, mut status) = (
                null_mut(),
                sys::CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
            );
            let code = cu!(cuGetProcAddress_v2(name.as_ptr(), &mut place, 13000, 0, &mut status));
            (code, place, status as u32)
        };
        let (code, place, status) = find(c"cuDriverGetVersion");
        assert_eq!((code, status), (CUresult::CUDA_SUCCESS, 0));
        // SAFETY: the address of a function that takes a place for a number and returns a code.
        let get: unsafe extern "C" fn(*mut i32) -> CUresult = unsafe { std::mem::transmute(place) };
        let mut version = 0;
        // SAFETY: as above.
        ok(unsafe { get(&mut version) });
        assert_eq!(version, 13000);
        let (code, place, status) = find(c"cuSomethingElse");
        assert_eq!((code, status), (CUresult::CUDA_ERROR_NOT_FOUND, 1));
        assert!(place.is_null());
        // What is not supported is there, and says so.
        let mut pointer = 0;
        let code = cu!(cuMemAddressReserve(&mut pointer, 1 << 21, 0, 0, 0));
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    });
}
