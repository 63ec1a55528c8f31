//! `cuGetProcAddress`: every exported function by its name, for those who do not use the linker's
//! table of symbols.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::pointers::{Out, Text};
use super::{
    context, copy, device, event, function, graph, graph_node, guard, launch, memory, module, pool,
    stream, tensor, unsupported,
};
use crate::code::{Code, Outcome};

/// Makes the table: names and addresses.
macro_rules! table {
    ($($module:ident: $($name:ident)*;)*) => {
        /// Every exported function: name and address.
        pub(super) fn named() -> Vec<(&'static str, *const ())> {
            let mut all = vec![$($((stringify!($name), $module::$name as *const ()),)*)*];
            all.extend(unsupported::refused());
            all
        }
    };
}

table! {
    context:
        cuCtxCreate_v2 cuCtxCreate_v4 cuCtxDestroy_v2 cuCtxGetCurrent cuCtxSetCurrent
        cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuCtxGetDevice cuCtxGetDevice_v2 cuCtxGetId
        cuCtxGetApiVersion cuCtxSynchronize cuCtxSynchronize_v2 cuCtxGetFlags cuCtxSetFlags
        cuCtxGetStreamPriorityRange cuCtxGetCacheConfig cuCtxSetCacheConfig cuCtxGetLimit
        cuCtxSetLimit cuCtxEnablePeerAccess cuCtxDisablePeerAccess;
    copy:
        cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuMemcpyDtoD_v2 cuMemcpyHtoDAsync_v2
        cuMemcpyDtoHAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpy cuMemcpyAsync cuMemcpyPeer
        cuMemcpyPeerAsync cuMemcpy2D_v2 cuMemcpy2DUnaligned_v2 cuMemcpy2DAsync_v2 cuMemsetD8_v2
        cuMemsetD8Async cuMemsetD2D8_v2 cuMemsetD2D8Async cuMemsetD16_v2 cuMemsetD16Async
        cuMemsetD2D16_v2 cuMemsetD2D16Async cuMemsetD32_v2 cuMemsetD32Async cuMemsetD2D32_v2
        cuMemsetD2D32Async;
    device:
        cuInit cuDriverGetVersion cuGetErrorName cuGetErrorString cuDeviceGetCount cuDeviceGet
        cuDeviceGetName cuDeviceGetUuid cuDeviceGetUuid_v2 cuDeviceTotalMem_v2
        cuDeviceGetAttribute cuDeviceComputeCapability cuDeviceGetPCIBusId cuDeviceGetByPCIBusId
        cuDeviceCanAccessPeer cuDeviceGetP2PAttribute cuDevicePrimaryCtxRetain
        cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxGetState
        cuDevicePrimaryCtxSetFlags_v2 cuGetExportTable;
    event:
        cuEventCreate cuEventDestroy_v2 cuEventRecord cuEventRecordWithFlags cuStreamWaitEvent
        cuEventQuery cuEventSynchronize cuEventElapsedTime cuEventElapsedTime_v2;
    function:
        cuFuncGetAttribute cuFuncSetAttribute cuKernelGetAttribute cuKernelSetAttribute
        cuFuncSetCacheConfig cuFuncGetModule cuFuncGetName cuFuncGetParamCount
        cuFuncGetParamInfo cuFuncIsLoaded cuFuncLoad cuOccupancyMaxActiveBlocksPerMultiprocessor
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
        cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxPotentialBlockSize
        cuOccupancyMaxPotentialBlockSizeWithFlags cuOccupancyMaxActiveClusters
        cuOccupancyMaxPotentialClusterSize;
    graph:
        cuGraphCreate cuGraphClone cuGraphDestroy cuGraphGetNodes cuGraphGetRootNodes
        cuGraphGetEdges_v2 cuGraphAddDependencies_v2 cuGraphInstantiateWithFlags
        cuGraphInstantiate_v2 cuGraphInstantiateWithParams cuGraphExecGetFlags cuGraphLaunch
        cuGraphUpload cuGraphExecDestroy cuGraphExecUpdate_v2;
    graph_node:
        cuGraphAddKernelNode_v2 cuGraphAddMemsetNode cuGraphAddHostNode cuGraphAddEmptyNode
        cuGraphAddChildGraphNode cuGraphAddEventRecordNode cuGraphAddEventWaitNode
        cuGraphNodeGetType cuGraphNodeGetDependencies_v2 cuGraphNodeGetDependentNodes_v2
        cuGraphKernelNodeGetParams_v2 cuGraphKernelNodeSetParams_v2 cuGraphMemsetNodeGetParams
        cuGraphMemsetNodeSetParams cuGraphHostNodeSetParams cuGraphExecKernelNodeSetParams_v2
        cuGraphExecMemsetNodeSetParams cuGraphExecHostNodeSetParams cuGraphNodeSetEnabled
        cuGraphNodeGetEnabled;
    launch:
        cuLaunchKernel cuLaunchCooperativeKernel cuLaunchKernelEx;
    memory:
        cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemFree_v2 cuMemFreeAsync cuMemGetInfo_v2
        cuMemGetAddressRange_v2 cuMemAllocManaged cuMemHostAlloc cuMemAllocHost_v2 cuMemFreeHost
        cuMemHostRegister_v2 cuMemHostUnregister cuMemHostGetFlags cuMemHostGetDevicePointer_v2
        cuPointerGetAttribute cuPointerGetAttributes;
    module:
        cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload
        cuModuleGetFunction cuModuleGetFunctionCount cuModuleGetLoadingMode cuModuleGetGlobal_v2
        cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload cuLibraryGetKernel
        cuLibraryGetModule cuLibraryGetKernelCount cuKernelGetFunction;
    pool:
        cuMemAllocAsync cuMemAllocFromPoolAsync cuDeviceGetDefaultMemPool cuDeviceGetMemPool
        cuDeviceSetMemPool cuMemPoolCreate cuMemPoolDestroy cuMemPoolGetAttribute
        cuMemPoolSetAttribute cuMemPoolTrimTo cuMemPoolSetAccess cuMemPoolGetAccess;
    stream:
        cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2 cuStreamSynchronize
        cuStreamQuery cuStreamGetPriority cuStreamGetFlags cuStreamGetId cuStreamGetCtx
        cuStreamGetDevice cuLaunchHostFunc cuThreadExchangeStreamCaptureMode
        cuStreamBeginCapture_v2 cuStreamEndCapture cuStreamIsCapturing
        cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v3 cuStreamUpdateCaptureDependencies_v2;
    tensor:
        cuTensorMapEncodeTiled;
    unsupported: cuProfilerStart cuProfilerStop;
}

/// Names whose newest version is not what CUDA 13.0 means by them.
const MEANT: [(&str, &str); 3] = [
    ("cuCtxGetDevice", "cuCtxGetDevice"),
    ("cuCtxSynchronize", "cuCtxSynchronize"),
    ("cuGraphInstantiate", "cuGraphInstantiateWithFlags"),
];

/// The function that a name without its version stands for: the newest that there is.
fn find(name: &str) -> Option<*const ()> {
    let meant =
        MEANT.iter().find(|(plain, _)| *plain == name).map(|(_, meant)| (*meant).to_owned());
    let versions = ["_v4", "_v3", "_v2", ""];
    let versions = versions.iter().map(|version| format!("{name}{version}"));
    let all = named();
    let mut names = meant.into_iter().chain(versions);
    let found = names.find_map(|name| all.iter().find(|(known, _)| *known == name))?;
    Some(found.1)
}

/// `CU_GET_PROC_ADDRESS_SUCCESS` and `_SYMBOL_NOT_FOUND`.
const FOUND: u32 = 0;
const NOT_FOUND: u32 = 1;

fn proc_address(symbol: Text, place: Out<*const ()>, status: Out<u32>) -> Outcome {
    let name = symbol.read()?;
    let own = [
        ("cuGetProcAddress", cuGetProcAddress_v2 as *const ()),
        ("cuGetProcAddress_v2", cuGetProcAddress_v2 as *const ()),
    ];
    let own = own.iter().find(|(known, _)| *known == name).map(|(_, address)| *address);
    let Some(address) = own.or_else(|| find(&name)) else {
        status.offer(NOT_FOUND)?;
        place.set(std::ptr::null())?;
        return Err(Code::ERROR_NOT_FOUND);
    };
    status.offer(FOUND)?;
    place.set(address)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGetProcAddress(
    symbol: Text,
    place: Out<*const ()>,
    _version: i32,
    _flags: u64,
) -> Code {
    guard("cuGetProcAddress", || {
        let nowhere = Out::at(0);
        proc_address(symbol, place, nowhere)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuGetProcAddress_v2(
    symbol: Text,
    place: Out<*const ()>,
    _version: i32,
    _flags: u64,
    status: Out<u32>,
) -> Code {
    guard("cuGetProcAddress", || proc_address(symbol, place, status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_exported_function_is_in_the_table() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ffi");
        let mut exported = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            for rest in text.split("extern \"C\" fn cu").skip(1) {
                let name: String =
                    rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                if name.is_empty() || name.starts_with("GetProcAddress") {
                    continue;
                }
                exported += 1;
                let name = format!("cu{name}");
                assert!(named().iter().any(|(known, _)| *known == name), "{name}");
            }
        }
        assert!(exported > 150, "only {exported} found");
    }

    #[test]
    fn a_plain_name_stands_for_the_newest_version() {
        assert_eq!(find("cuMemAlloc"), find("cuMemAlloc_v2"));
        assert_eq!(find("cuCtxCreate"), find("cuCtxCreate_v4"));
        assert_ne!(find("cuCtxCreate_v2"), find("cuCtxCreate_v4"));
        assert_ne!(find("cuCtxSynchronize"), find("cuCtxSynchronize_v2"));
        assert_eq!(find("cuGraphInstantiate"), find("cuGraphInstantiateWithFlags"));
        assert!(find("cuInit").is_some() && find("cuNothing").is_none());
    }
}
