//! Graphs through `cudarc`: capture, what a capture forbids, instantiation, replay and update.

#![expect(unsafe_code, reason = "the bindings' functions are unsafe to call")]

mod stand_in;

use cudarc::driver::sys::{self, CUresult, CUstreamCaptureMode as Mode};
use stand_in::{context, cu, device_memory, event, ok, queue_note, ran, stand_in, stream};
use std::ptr::null_mut;

const GLOBAL: Mode = Mode::CU_STREAM_CAPTURE_MODE_GLOBAL;
const THREAD_LOCAL: Mode = Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
const RELAXED: Mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
const INVALIDATED: CUresult = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;

fn read(pointer: u64) -> u32 {
    let mut value = 0u32;
    ok(cu!(cuMemcpyDtoH_v2((&raw mut value).cast(), pointer, 4)));
    value
}

fn begin(stream: sys::CUstream, mode: Mode) {
    ok(cu!(cuStreamBeginCapture_v2(stream, mode)));
}

fn end(stream: sys::CUstream) -> Result<sys::CUgraph, CUresult> {
    let mut graph = null_mut();
    match cu!(cuStreamEndCapture(stream, &mut graph)) {
        CUresult::CUDA_SUCCESS => Ok(graph),
        code => {
            assert!(graph.is_null());
            Err(code)
        }
    }
}

fn instantiate(graph: sys::CUgraph) -> sys::CUgraphExec {
    let mut exec = null_mut();
    ok(cu!(cuGraphInstantiateWithFlags(&mut exec, graph, 0)));
    exec
}

fn run(exec: sys::CUgraphExec, stream: sys::CUstream) {
    ok(cu!(cuGraphLaunch(exec, stream)));
    ok(cu!(cuStreamSynchronize(stream)));
}

fn nodes(graph: sys::CUgraph) -> Vec<sys::CUgraphNode> {
    let mut count = 0;
    ok(cu!(cuGraphGetNodes(graph, null_mut(), &mut count)));
    let mut nodes = vec![null_mut(); count];
    ok(cu!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count)));
    nodes
}

fn edges(graph: sys::CUgraph) -> usize {
    let mut count = 0;
    let none = null_mut();
    ok(cu!(cuGraphGetEdges_v2(graph, null_mut(), null_mut(), none, &mut count)));
    count
}

#[test]
fn a_capture_queues_nothing_and_its_graph_replays() {
    stand_in("a_capture_queues_nothing_and_its_graph_replays", &[], || {
        let _context = context(0);
        let (stream, a, b) = (stream(1), device_memory(8), device_memory(8));
        ok(cu!(cuMemsetD32Async(a, 1, 2, stream)));
        ok(cu!(cuMemsetD32Async(b, 2, 2, stream)));
        ok(cu!(cuStreamSynchronize(stream)));
        begin(stream, GLOBAL);
        ok(cu!(cuMemcpyDtoDAsync_v2(b, a, 4, stream)));
        ok(cu!(cuMemsetD32Async(a, 9, 1, stream)));
        queue_note(stream, 5);
        let graph = end(stream).unwrap();
        assert_eq!((read(a), read(b), ran()), (1, 2, vec![]));
        assert_eq!((nodes(graph).len(), edges(graph)), (3, 2));
        let kinds: Vec<u32> = nodes(graph)
            .iter()
            .map(|node| {
                let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
                ok(cu!(cuGraphNodeGetType(*node, &mut kind)));
                kind as u32
            })
            .collect();
        assert_eq!(kinds, [1, 2, 3]);
        let exec = instantiate(graph);
        run(exec, stream);
        assert_eq!((read(a), read(b), ran()), (9, 1, vec![5]));
        // The graph may go; what was instantiated stays.
        ok(cu!(cuGraphDestroy(graph)));
        assert_eq!(cu!(cuGraphDestroy(graph)), CUresult::CUDA_ERROR_INVALID_VALUE);
        run(exec, stream);
        assert_eq!((read(a), read(b), ran()), (9, 9, vec![5]));
        ok(cu!(cuGraphExecDestroy(exec)));
        assert_eq!(cu!(cuGraphLaunch(exec, stream)), CUresult::CUDA_ERROR_INVALID_VALUE);
    });
}

#[test]
fn the_safe_interface_captures_and_replays() {
    stand_in("the_safe_interface_captures_and_replays", &[], || {
        let context = context(0);
        // SAFETY: all work is in one stream.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().unwrap();
        let mut data = stream.clone_htod(&[7u32; 4]).unwrap();
        stream.begin_capture(THREAD_LOCAL).unwrap();
        stream.memset_zeros(&mut data).unwrap();
        let graph = stream.end_capture(sys::CUgraphInstantiate_flags(0)).unwrap().unwrap();
        assert_eq!(stream.clone_dtoh(&data).unwrap(), [7; 4]);
        graph.upload().unwrap();
        graph.launch().unwrap();
        assert_eq!(stream.clone_dtoh(&data).unwrap(), [0; 4]);
    });
}

#[test]
fn a_fork_that_is_joined_is_part_of_the_graph() {
    let body = || {
        let _context = context(0);
        let (first, second) = (stream(1), stream(1));
        let (fork, join) = (event(2), event(2));
        begin(first, GLOBAL);
        queue_note(first, 1);
        ok(cu!(cuEventRecord(fork, first)));
        ok(cu!(cuStreamWaitEvent(second, fork, 0)));
        queue_note(second, 2);
        queue_note(first, 3);
        ok(cu!(cuEventRecord(join, second)));
        ok(cu!(cuStreamWaitEvent(first, join, 0)));
        queue_note(first, 4);
        let graph = end(first).unwrap();
        assert_eq!((nodes(graph).len(), edges(graph)), (4, 4));
        run(instantiate(graph), first);
        let order = ran();
        assert!(order == [1, 2, 3, 4] || order == [1, 3, 2, 4], "{order:?}");
        eprintln!("ran {order:?}");
    };
    let name = "a_fork_that_is_joined_is_part_of_the_graph";
    for (schedule, ran) in [("earliest", "[1, 2, 3, 4]"), ("latest", "[1, 3, 2, 4]")] {
        // In the process that runs the body there is nothing more to do.
        let Some(said) = stand_in(name, &[("SCHEDULE", schedule)], body) else { return };
        assert!(said.contains(ran), "{schedule}: {said}");
    }
}

#[test]
fn a_fork_that_is_not_joined_fails_the_capture() {
    stand_in("a_fork_that_is_not_joined_fails_the_capture", &[], || {
        let _context = context(0);
        let (first, second, fork) = (stream(1), stream(1), event(2));
        begin(first, GLOBAL);
        queue_note(first, 1);
        ok(cu!(cuEventRecord(fork, first)));
        ok(cu!(cuStreamWaitEvent(second, fork, 0)));
        queue_note(second, 2);
        assert_eq!(end(second), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
        assert_eq!(end(first), Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
        // Both streams work again.
        queue_note(second, 3);
        ok(cu!(cuStreamSynchronize(second)));
        ok(cu!(cuStreamSynchronize(first)));
        assert_eq!(ran(), [3]);
        assert_eq!(end(first), Err(CUresult::CUDA_ERROR_ILLEGAL_STATE));
    });
}

#[test]
fn waiting_for_the_host_inside_of_a_capture_ruins_it() {
    stand_in("waiting_for_the_host_inside_of_a_capture_ruins_it", &[], || {
        let _context = context(0);
        let (stream, pointer) = (stream(1), device_memory(4));
        let ways: [&dyn Fn() -> CUresult; 8] = [
            &|| cu!(cuStreamSynchronize(stream)),
            &|| cu!(cuStreamQuery(stream)),
            &|| cu!(cuCtxSynchronize()),
            &|| {
                let mut other = 0;
                cu!(cuMemAlloc_v2(&mut other, 4))
            },
            &|| cu!(cuMemFree_v2(pointer)),
            &|| {
                let mut place = null_mut();
                cu!(cuMemAllocHost_v2(&mut place, 4))
            },
            &|| {
                let mut value = 0u32;
                cu!(cuMemcpyDtoH_v2((&raw mut value).cast(), pointer, 4))
            },
            &|| {
                let mut other = 0;
                cu!(cuMemAllocAsync(&mut other, 4, stream))
            },
        ];
        for (way, number) in ways.iter().zip(0..) {
            begin(stream, THREAD_LOCAL);
            queue_note(stream, 1);
            assert_eq!(way(), UNSUPPORTED, "way {number}");
            let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
            ok(cu!(cuStreamIsCapturing(stream, &mut status)));
            assert_eq!(status, sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED);
            let code = cu!(cuMemsetD32Async(pointer, 1, 1, stream));
            assert_eq!(code, INVALIDATED, "way {number}");
            assert_eq!(end(stream), Err(INVALIDATED), "way {number}");
            ok(cu!(cuStreamSynchronize(stream)));
        }
        assert_eq!(ran(), [0usize; 0]);
    });
}

#[test]
fn the_default_stream_must_not_meet_a_capture() {
    stand_in("the_default_stream_must_not_meet_a_capture", &[], || {
        let _context = context(0);
        let (blocking, free, pointer) = (stream(0), stream(1), device_memory(4));
        let use_default = || cu!(cuMemsetD32Async(pointer, 1, 1, null_mut()));
        begin(blocking, RELAXED);
        assert_eq!(use_default(), CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
        assert_eq!(end(blocking), Err(INVALIDATED));
        begin(free, RELAXED);
        ok(use_default());
        assert!(end(free).is_ok());
        let code = cu!(cuStreamBeginCapture_v2(null_mut(), RELAXED));
        assert_eq!(code, UNSUPPORTED);
        begin(free, RELAXED);
        assert_eq!(cu!(cuStreamBeginCapture_v2(free, RELAXED)), CUresult::CUDA_ERROR_ILLEGAL_STATE);
        assert!(end(free).is_ok());
    });
}

#[test]
fn a_stream_that_is_destroyed_leaves_no_capture_behind() {
    let name = "a_stream_that_is_destroyed_leaves_no_capture_behind";
    stand_in(name, &[], || {
        let _context = context(0);
        let (gone, fork, pointer) = (stream(0), event(2), device_memory(4));
        begin(gone, GLOBAL);
        ok(cu!(cuStreamDestroy_v2(gone)));
        // Nothing is forbidden any more.
        ok(cu!(cuMemsetD32Async(pointer, 1, 1, null_mut())));
        assert_eq!(read(pointer), 1);
        // A fork that is destroyed cannot be joined.
        let (origin, forked) = (stream(1), stream(1));
        begin(origin, GLOBAL);
        ok(cu!(cuEventRecord(fork, origin)));
        ok(cu!(cuStreamWaitEvent(forked, fork, 0)));
        ok(cu!(cuStreamDestroy_v2(forked)));
        assert_eq!(end(origin), Err(INVALIDATED));
    });
}

#[test]
fn dependencies_do_not_cross_the_border_of_a_capture() {
    stand_in("dependencies_do_not_cross_the_border_of_a_capture", &[], || {
        let _context = context(0);
        let (first, second, outside) = (stream(1), stream(1), stream(1));
        let (before, inside, other) = (event(2), event(2), event(2));
        ok(cu!(cuEventRecord(before, outside)));
        begin(first, RELAXED);
        let code = cu!(cuStreamWaitEvent(first, before, 0));
        assert_eq!(code, CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        assert_eq!(end(first), Err(INVALIDATED));

        begin(first, RELAXED);
        ok(cu!(cuEventRecord(inside, first)));
        begin(second, RELAXED);
        ok(cu!(cuEventRecord(other, second)));
        let code = cu!(cuStreamWaitEvent(first, other, 0));
        assert_eq!(code, CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE);
        assert_eq!(end(first), Err(INVALIDATED));
        assert_eq!(end(second), Err(INVALIDATED));

        let ask: [&dyn Fn() -> CUresult; 2] =
            [&|| cu!(cuEventQuery(inside)), &|| cu!(cuEventSynchronize(inside))];
        for ask in ask {
            begin(first, RELAXED);
            ok(cu!(cuEventRecord(inside, first)));
            assert_eq!(ask(), CUresult::CUDA_ERROR_CAPTURED_EVENT);
            assert_eq!(end(first), Err(INVALIDATED));
        }

        // The capture is over; its events cannot be waited for any more.
        let code = cu!(cuStreamWaitEvent(outside, inside, 0));
        assert_eq!(code, CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
        ok(cu!(cuEventRecord(inside, outside)));
        ok(cu!(cuEventSynchronize(inside)));
    });
}

#[test]
fn modes_decide_what_other_threads_may_do() {
    stand_in("modes_decide_what_other_threads_may_do", &[], || {
        let shared = context(0);
        let stream_at = stream(1) as usize;
        let stream = stream_at as sys::CUstream;
        let allocate_elsewhere = |mode: Option<Mode>| {
            let context = shared.clone();
            let allocate = move || {
                context.bind_to_thread().unwrap();
                if let Some(mut mode) = mode {
                    ok(cu!(cuThreadExchangeStreamCaptureMode(&mut mode)));
                    assert_eq!(mode, GLOBAL);
                }
                let mut pointer = 0;
                cu!(cuMemAlloc_v2(&mut pointer, 4))
            };
            std::thread::spawn(allocate).join().unwrap()
        };
        begin(stream, GLOBAL);
        assert_eq!(allocate_elsewhere(None), UNSUPPORTED);
        assert_eq!(end(stream), Err(INVALIDATED));
        begin(stream, GLOBAL);
        ok(allocate_elsewhere(Some(RELAXED)));
        ok(allocate_elsewhere(Some(THREAD_LOCAL)));
        assert!(end(stream).is_ok());
        begin(stream, THREAD_LOCAL);
        ok(allocate_elsewhere(None));
        assert!(end(stream).is_ok());
        begin(stream, RELAXED);
        device_memory(4);
        assert!(end(stream).is_ok());
        // So may this thread itself, if it says that it knows what it does.
        let mut mode = RELAXED;
        ok(cu!(cuThreadExchangeStreamCaptureMode(&mut mode)));
        begin(stream, GLOBAL);
        device_memory(4);
        assert!(end(stream).is_ok());
        ok(cu!(cuThreadExchangeStreamCaptureMode(&mut mode)));
        assert_eq!(mode, RELAXED);
        // A capture ends in the thread that began it, unless it is relaxed.
        let end_elsewhere =
            || std::thread::spawn(move || end(stream_at as sys::CUstream).err()).join().unwrap();
        begin(stream, GLOBAL);
        let context_of_thread = end_elsewhere();
        assert_eq!(context_of_thread, Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD));
        assert!(end(stream).is_ok());
        begin(stream, RELAXED);
        assert_eq!(end_elsewhere(), None);
    });
}

#[test]
fn host_memory_of_a_graph_is_read_when_it_runs() {
    stand_in("host_memory_of_a_graph_is_read_when_it_runs", &[], || {
        let _context = context(0);
        let (stream, pointer) = (stream(1), device_memory(4));
        let mut value = Box::new(1u32);
        let place = &raw mut *value;
        begin(stream, GLOBAL);
        ok(cu!(cuMemcpyHtoDAsync_v2(pointer, place.cast(), 4, stream)));
        let exec = instantiate(end(stream).unwrap());
        // SAFETY: the box is alive, and no work is queued that uses it.
        unsafe { place.write(2) };
        run(exec, stream);
        assert_eq!(read(pointer), 2);
    });
}

#[test]
fn an_executable_graph_takes_over_a_like_graph_only() {
    stand_in("an_executable_graph_takes_over_a_like_graph_only", &[], || {
        let context = context(0);
        let (stream, pointer) = (stream(1), device_memory(4));
        let capture = |value: Option<u32>, notes: usize| {
            begin(stream, GLOBAL);
            if let Some(value) = value {
                ok(cu!(cuMemsetD32Async(pointer, value, 1, stream)));
            }
            (0..notes).for_each(|number| queue_note(stream, number));
            end(stream).unwrap()
        };
        let update = |exec, graph| {
            let mut told = sys::CUgraphExecUpdateResultInfo {
                result: sys::CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR,
                errorNode: null_mut(),
                errorFromNode: null_mut(),
            };
            (cu!(cuGraphExecUpdate_v2(exec, graph, &mut told)), told.result as u32)
        };
        let exec = instantiate(capture(Some(1), 1));
        run(exec, stream);
        assert_eq!((read(pointer), ran().len()), (1, 1));
        assert_eq!(update(exec, capture(Some(2), 1)), (CUresult::CUDA_SUCCESS, 0));
        run(exec, stream);
        assert_eq!((read(pointer), ran().len()), (2, 1));
        let failure = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
        // Another number of nodes; the same number of other kinds.
        assert_eq!(update(exec, capture(Some(3), 2)), (failure, 2));
        assert_eq!(update(exec, capture(None, 2)), (failure, 3));
        // The same nodes in another order of the same kinds: two that nothing orders.
        let mut loose = null_mut();
        ok(cu!(cuGraphCreate(&mut loose, 0)));
        let (mut node, none) = (null_mut(), std::ptr::null());
        let set = sys::CUDA_MEMSET_NODE_PARAMS {
            dst: pointer,
            pitch: 0,
            value: 4,
            elementSize: 4,
            width: 1,
            height: 1,
        };
        let host = sys::CUDA_HOST_NODE_PARAMS { fn_: Some(nothing), userData: null_mut() };
        ok(cu!(cuGraphAddMemsetNode(&mut node, loose, none, 0, &set, context.cu_ctx())));
        ok(cu!(cuGraphAddHostNode(&mut node, loose, none, 0, &host)));
        assert_eq!(update(exec, loose), (failure, 2));
        run(exec, stream);
        assert_eq!((read(pointer), ran().len()), (2, 1));
    });
}

extern "C" fn nothing(_data: *mut std::ffi::c_void) {}

#[test]
fn graphs_are_built_and_changed_node_by_node() {
    stand_in("graphs_are_built_and_changed_node_by_node", &[("SCHEDULE", "latest")], || {
        let context = context(0);
        let (stream, pointer) = (stream(1), device_memory(4));
        let (mut graph, mut first, mut second) = (null_mut(), null_mut(), null_mut());
        ok(cu!(cuGraphCreate(&mut graph, 0)));
        let set = |value| sys::CUDA_MEMSET_NODE_PARAMS {
            dst: pointer,
            pitch: 0,
            value,
            elementSize: 4,
            width: 1,
            height: 1,
        };
        let (none, in_context) = (std::ptr::null(), context.cu_ctx());
        ok(cu!(cuGraphAddMemsetNode(&mut first, graph, none, 0, &set(1), in_context)));
        ok(cu!(cuGraphAddMemsetNode(&mut second, graph, none, 0, &set(2), in_context)));
        // Nothing orders them, and the schedule takes the wrong order.
        run(instantiate(graph), stream);
        assert_eq!(read(pointer), 1);
        let data = std::ptr::null();
        ok(cu!(cuGraphAddDependencies_v2(graph, &first, &second, data, 1)));
        let invalid = CUresult::CUDA_ERROR_INVALID_VALUE;
        assert_eq!(cu!(cuGraphAddDependencies_v2(graph, &first, &second, data, 1)), invalid);
        assert_eq!(cu!(cuGraphAddDependencies_v2(graph, &second, &first, data, 1)), invalid);
        let exec = instantiate(graph);
        run(exec, stream);
        assert_eq!(read(pointer), 2);
        // A change of the executable graph is for later launches, and for them alone.
        ok(cu!(cuGraphExecMemsetNodeSetParams(exec, second, &set(3), in_context)));
        run(exec, stream);
        assert_eq!(read(pointer), 3);
        let mut told = set(0);
        ok(cu!(cuGraphMemsetNodeGetParams(second, &mut told)));
        assert_eq!(told.value, 2);
        ok(cu!(cuGraphNodeSetEnabled(exec, second, 0)));
        run(exec, stream);
        assert_eq!(read(pointer), 1);
        let mut copy = null_mut();
        ok(cu!(cuGraphClone(&mut copy, graph)));
        ok(cu!(cuGraphDestroy(graph)));
        assert_eq!((nodes(copy).len(), edges(copy)), (2, 1));
        run(instantiate(copy), stream);
        assert_eq!(read(pointer), 2);
    });
}

#[test]
fn a_graph_in_a_graph_runs_whole() {
    stand_in("a_graph_in_a_graph_runs_whole", &[("SCHEDULE", "latest")], || {
        let _context = context(0);
        let stream = stream(1);
        begin(stream, GLOBAL);
        queue_note(stream, 2);
        queue_note(stream, 3);
        let inner = instantiate(end(stream).unwrap());
        begin(stream, GLOBAL);
        queue_note(stream, 1);
        ok(cu!(cuGraphLaunch(inner, stream)));
        queue_note(stream, 4);
        let outer = end(stream).unwrap();
        assert_eq!(nodes(outer).len(), 3);
        run(instantiate(outer), stream);
        assert_eq!(ran(), [1, 2, 3, 4]);
    });
}

#[test]
fn launches_of_one_graph_are_in_order() {
    stand_in("launches_of_one_graph_are_in_order", &[("LATENCY", "1000000")], || {
        let _context = context(0);
        let (first, second) = (stream(1), stream(1));
        begin(first, GLOBAL);
        queue_note(first, 1);
        let exec = instantiate(end(first).unwrap());
        ok(cu!(cuGraphLaunch(exec, first)));
        ok(cu!(cuGraphLaunch(exec, second)));
        // The second launch is in another stream, and waits for the first all the same.
        ok(cu!(cuStreamSynchronize(second)));
        assert_eq!(ran(), [1, 1]);
        ok(cu!(cuStreamQuery(first)));
    });
}

#[test]
fn external_events_are_nodes() {
    let settings = [("LATENCY", "1000000")];
    stand_in("external_events_are_nodes", &settings, || {
        let _context = context(0);
        let (first, second, event) = (stream(1), stream(1), event(2));
        begin(first, GLOBAL);
        queue_note(first, 1);
        ok(cu!(cuEventRecordWithFlags(event, first, 1)));
        let graph = end(first).unwrap();
        assert_eq!(nodes(graph).len(), 2);
        let exec = instantiate(graph);
        ok(cu!(cuEventQuery(event)));
        ok(cu!(cuGraphLaunch(exec, first)));
        assert_eq!(cu!(cuEventQuery(event)), CUresult::CUDA_ERROR_NOT_READY);
        ok(cu!(cuStreamWaitEvent(second, event, 0)));
        queue_note(second, 2);
        ok(cu!(cuStreamSynchronize(second)));
        assert_eq!(ran(), [1, 2]);
    });
}

#[test]
fn a_graph_may_span_devices() {
    stand_in("a_graph_may_span_devices", &[("DEVICES", "2")], || {
        use stand_in::{Affine, download, function, module, numbers, upload};
        let second = context(1);
        let (there, y) = (stream(1), upload(&numbers(1, 32)));
        let function_there = function(module(), "affine");
        let _first = context(0);
        let (here, x) = (stream(1), upload(&numbers(0, 32)));
        let function_here = function(module(), "affine");
        let affine = |function, x| Affine { function, x, n: 32, a: 3, b: 1 };
        let fork = event(2);
        begin(here, GLOBAL);
        ok(affine(function_here, x).launch(here));
        ok(cu!(cuEventRecord(fork, here)));
        ok(cu!(cuStreamWaitEvent(there, fork, 0)));
        // A kernel runs where its module was loaded, whatever is current.
        ok(affine(function_there, y).launch(there));
        assert_eq!(affine(function_there, y).launch(here), CUresult::CUDA_ERROR_INVALID_HANDLE);
        second.bind_to_thread().unwrap();
        let join = event(2);
        ok(cu!(cuEventRecord(join, there)));
        ok(cu!(cuStreamWaitEvent(here, join, 0)));
        let exec = instantiate(end(here).unwrap());
        run(exec, here);
        assert_eq!(download(y, 32), (1..33).map(|v| v * 3 + 1).collect::<Vec<_>>());
        assert_eq!(download(x, 32), (0..32).map(|v| v * 3 + 1).collect::<Vec<_>>());
    });
}
