//! Holds the signatures of the exported functions to those of the bindings: as many arguments, each
//! of the same size.

use super::entry_points::named;
use super::{
    context, copy, device, event, function, graph, graph_node, launch, memory, module, pool,
    stream, tensor, unsupported,
};
use cudarc::driver::sys;
use std::collections::BTreeSet;

/// Compares functions of one number of arguments, and notes their names.
macro_rules! compare {
    ($seen:ident; $($argument:ident)*: $($module:ident::$name:ident)*) => {{
        fn ours<R, $($argument),*>(_: extern "C" fn($($argument),*) -> R) -> Vec<usize> {
            vec![size_of::<R>(), $(size_of::<$argument>()),*]
        }
        fn theirs<R, $($argument),*>(_: unsafe fn($($argument),*) -> R) -> Vec<usize> {
            vec![size_of::<R>(), $(size_of::<$argument>()),*]
        }
        $(
            assert_eq!(ours($module::$name), theirs(sys::$name), stringify!($name));
            $seen.insert(stringify!($name));
        )*
    }};
}

/// Names that the bindings have for an earlier or later CUDA than 13.0.
const APART: [&str; 6] = [
    "cuCtxCreate_v2",
    "cuDeviceGetUuid",
    "cuEventElapsedTime",
    "cuFuncGetParamCount",
    "cuGraphInstantiate_v2",
    "cuStreamGetCaptureInfo_v2",
];

fn up_to_two(seen: &mut BTreeSet<&'static str>) {
    compare!(seen; :
        context::cuCtxSynchronize unsupported::cuProfilerStart unsupported::cuProfilerStop);
    compare!(seen; A:
        context::cuCtxDestroy_v2 context::cuCtxGetCurrent context::cuCtxSetCurrent
        context::cuCtxPushCurrent_v2 context::cuCtxPopCurrent_v2 context::cuCtxGetDevice
        context::cuCtxSynchronize_v2 context::cuCtxGetFlags context::cuCtxSetFlags
        context::cuCtxGetCacheConfig context::cuCtxSetCacheConfig context::cuCtxDisablePeerAccess
        copy::cuMemcpy2D_v2 copy::cuMemcpy2DUnaligned_v2 device::cuInit device::cuDriverGetVersion
        device::cuDeviceGetCount device::cuDevicePrimaryCtxRelease_v2
        device::cuDevicePrimaryCtxReset_v2 event::cuEventDestroy_v2 event::cuEventQuery
        event::cuEventSynchronize function::cuFuncLoad graph::cuGraphDestroy
        graph::cuGraphExecDestroy memory::cuMemFree_v2 memory::cuMemFreeHost
        memory::cuMemHostUnregister module::cuModuleUnload module::cuModuleGetLoadingMode
        module::cuLibraryUnload pool::cuMemPoolDestroy stream::cuStreamDestroy_v2
        stream::cuStreamSynchronize stream::cuStreamQuery
        stream::cuThreadExchangeStreamCaptureMode);
    compare!(seen; A B:
        context::cuCtxGetDevice_v2 context::cuCtxGetId context::cuCtxGetApiVersion
        context::cuCtxGetStreamPriorityRange context::cuCtxGetLimit context::cuCtxSetLimit
        context::cuCtxEnablePeerAccess copy::cuMemcpy2DAsync_v2 device::cuGetErrorName
        device::cuGetErrorString device::cuDeviceGet device::cuDeviceGetUuid_v2
        device::cuDeviceTotalMem_v2 device::cuDeviceGetByPCIBusId device::cuDevicePrimaryCtxRetain
        device::cuDevicePrimaryCtxSetFlags_v2 device::cuGetExportTable event::cuEventCreate
        event::cuEventRecord function::cuFuncSetCacheConfig function::cuFuncGetModule
        function::cuFuncGetName function::cuFuncIsLoaded
        graph::cuGraphCreate graph::cuGraphClone graph::cuGraphExecGetFlags graph::cuGraphLaunch
        graph::cuGraphUpload graph_node::cuGraphNodeGetType
        graph_node::cuGraphKernelNodeGetParams_v2 graph_node::cuGraphKernelNodeSetParams_v2
        graph_node::cuGraphMemsetNodeGetParams graph_node::cuGraphMemsetNodeSetParams
        graph_node::cuGraphHostNodeSetParams memory::cuMemAlloc_v2 memory::cuMemFreeAsync
        memory::cuMemGetInfo_v2 memory::cuMemAllocHost_v2 memory::cuMemHostGetFlags
        module::cuModuleLoad module::cuModuleLoadData module::cuModuleLoadFatBinary
        module::cuModuleGetFunctionCount module::cuLibraryGetModule
        module::cuLibraryGetKernelCount module::cuKernelGetFunction
        pool::cuDeviceGetDefaultMemPool pool::cuDeviceGetMemPool pool::cuDeviceSetMemPool
        pool::cuMemPoolCreate pool::cuMemPoolTrimTo stream::cuStreamCreate
        stream::cuStreamGetPriority stream::cuStreamGetFlags stream::cuStreamGetId
        stream::cuStreamGetCtx stream::cuStreamGetDevice stream::cuStreamBeginCapture_v2
        stream::cuStreamEndCapture stream::cuStreamIsCapturing);
}

fn three(seen: &mut BTreeSet<&'static str>) {
    compare!(seen; A B C: copy::cuMemcpyHtoD_v2 copy::cuMemcpyDtoH_v2 copy::cuMemcpyDtoD_v2
        copy::cuMemcpy copy::cuMemsetD8_v2 copy::cuMemsetD16_v2 copy::cuMemsetD32_v2
        device::cuDeviceGetName device::cuDeviceGetAttribute device::cuDeviceComputeCapability
        device::cuDeviceGetPCIBusId device::cuDeviceCanAccessPeer
        device::cuDevicePrimaryCtxGetState event::cuEventRecordWithFlags event::cuStreamWaitEvent
        event::cuEventElapsedTime_v2 function::cuFuncGetAttribute function::cuFuncSetAttribute
        function::cuOccupancyMaxActiveClusters function::cuOccupancyMaxPotentialClusterSize
        graph::cuGraphGetNodes graph::cuGraphGetRootNodes graph::cuGraphInstantiateWithFlags
        graph::cuGraphInstantiateWithParams graph::cuGraphExecUpdate_v2
        graph_node::cuGraphExecKernelNodeSetParams_v2 graph_node::cuGraphExecHostNodeSetParams
        graph_node::cuGraphNodeSetEnabled graph_node::cuGraphNodeGetEnabled
        memory::cuMemGetAddressRange_v2 memory::cuMemAllocManaged memory::cuMemHostAlloc
        memory::cuMemHostRegister_v2 memory::cuMemHostGetDevicePointer_v2
        memory::cuPointerGetAttribute module::cuModuleGetFunction module::cuLibraryGetKernel
        pool::cuMemAllocAsync pool::cuMemPoolGetAttribute pool::cuMemPoolSetAttribute
        pool::cuMemPoolSetAccess pool::cuMemPoolGetAccess stream::cuStreamCreateWithPriority
        stream::cuLaunchHostFunc);
}

fn four_and_five(seen: &mut BTreeSet<&'static str>) {
    compare!(seen; A B C D:
        context::cuCtxCreate_v4 copy::cuMemcpyHtoDAsync_v2 copy::cuMemcpyDtoHAsync_v2
        copy::cuMemcpyDtoDAsync_v2 copy::cuMemcpyAsync copy::cuMemsetD8Async
        copy::cuMemsetD16Async copy::cuMemsetD32Async device::cuDeviceGetP2PAttribute
        function::cuKernelGetAttribute function::cuKernelSetAttribute function::cuFuncGetParamInfo
        function::cuOccupancyMaxActiveBlocksPerMultiprocessor
        function::cuOccupancyAvailableDynamicSMemPerBlock graph_node::cuGraphAddEmptyNode
        graph_node::cuGraphNodeGetDependencies_v2 graph_node::cuGraphNodeGetDependentNodes_v2
        graph_node::cuGraphExecMemsetNodeSetParams launch::cuLaunchKernelEx
        memory::cuPointerGetAttributes module::cuModuleGetGlobal_v2 pool::cuMemAllocFromPoolAsync);
    compare!(seen; A B C D E:
        copy::cuMemcpyPeer copy::cuMemsetD2D8_v2 copy::cuMemsetD2D16_v2 copy::cuMemsetD2D32_v2
        function::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags graph::cuGraphGetEdges_v2
        graph::cuGraphAddDependencies_v2
        graph_node::cuGraphAddKernelNode_v2 graph_node::cuGraphAddHostNode
        graph_node::cuGraphAddChildGraphNode graph_node::cuGraphAddEventRecordNode
        graph_node::cuGraphAddEventWaitNode memory::cuMemAllocPitch_v2 module::cuModuleLoadDataEx
        stream::cuStreamUpdateCaptureDependencies_v2);
}

fn many(seen: &mut BTreeSet<&'static str>) {
    compare!(seen; A B C D E F:
        copy::cuMemcpyPeerAsync copy::cuMemsetD2D8Async copy::cuMemsetD2D16Async
        copy::cuMemsetD2D32Async function::cuOccupancyMaxPotentialBlockSize
        graph_node::cuGraphAddMemsetNode);
    compare!(seen; A B C D E F G:
        function::cuOccupancyMaxPotentialBlockSizeWithFlags stream::cuStreamGetCaptureInfo_v3);
    compare!(seen; A B C D E F G H:
        module::cuLibraryLoadData module::cuLibraryLoadFromFile);
    compare!(seen; A B C D E F G H I J:
        launch::cuLaunchCooperativeKernel);
    compare!(seen; A B C D E F G H I J K:
        launch::cuLaunchKernel);
    compare!(seen; A B C D E F G H I J K L:
        tensor::cuTensorMapEncodeTiled);
}

#[test]
fn signatures_are_those_of_the_bindings() {
    let mut seen = BTreeSet::new();
    up_to_two(&mut seen);
    three(&mut seen);
    four_and_five(&mut seen);
    many(&mut seen);
    // Functions that say no look at no arguments.
    let refused: BTreeSet<&str> = unsupported::refused().iter().map(|(name, _)| *name).collect();
    for (name, _) in named() {
        let known = seen.contains(name) || refused.contains(name) || APART.contains(&name);
        assert!(known, "{name} is compared with nothing");
    }
}
