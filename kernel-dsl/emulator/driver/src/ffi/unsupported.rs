//! Functions that `cudarc` or CUDA's other libraries may call, and that have no meaning here. They
//! are exported so that a program gets a code and a line on the error output, where a missing symbol
//! would end it.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::{guard, unsupported};
use crate::code::Code;

/// Exports functions that say why they do nothing. None looks at its arguments, so that, by the C
/// calling conventions of every target that has CUDA, none has to declare them.
macro_rules! refuse {
    ($($why:literal: $($name:ident)*;)*) => {
        $($(
            #[unsafe(no_mangle)]
            pub(super) extern "C" fn $name() -> Code {
                guard(stringify!($name), || unsupported(stringify!($name), $why))
            }
        )*)*

        /// The functions of this file: name and address.
        pub(super) fn refused() -> Vec<(&'static str, *const ())> {
            vec![$($((stringify!($name), $name as *const ()),)*)*]
        }
    };
}

refuse! {
    "the emulator's memory is not the host's":
        cuMemAdvise_v2 cuMemPrefetchAsync_v2 cuStreamAttachMemAsync;
    "memory is not shared with other programs":
        cuImportExternalMemory cuExternalMemoryGetMappedBuffer cuDestroyExternalMemory
        cuImportExternalSemaphore cuIpcGetMemHandle cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle
        cuIpcGetEventHandle cuIpcOpenEventHandle cuMemPoolExportToShareableHandle
        cuMemPoolImportFromShareableHandle cuMemPoolExportPointer cuMemPoolImportPointer;
    "addresses are not reserved apart from memory":
        cuMemAddressReserve cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap
        cuMemSetAccess cuMemGetAllocationGranularity cuMulticastCreate;
    "graphs have kernels, copies, fills, host functions, events and graphs":
        cuGraphAddMemAllocNode cuGraphAddMemFreeNode cuGraphAddMemcpyNode cuGraphAddNode_v2
        cuGraphConditionalHandleCreate cuGraphExecMemcpyNodeSetParams;
    "streams do not wait for memory":
        cuStreamWaitValue32_v2 cuStreamWaitValue64_v2 cuStreamWriteValue32_v2
        cuStreamWriteValue64_v2 cuStreamBatchMemOp_v2;
    "tensor maps are tiled": cuTensorMapEncodeIm2col cuTensorMapEncodeIm2colWide;
    "there are no textures":
        cuArrayCreate_v2 cuArray3DCreate_v2 cuArrayDestroy cuTexObjectCreate cuSurfObjectCreate;
    "PTX is not linked here": cuLinkCreate_v2 cuLinkAddData_v2 cuLinkComplete cuLinkDestroy;
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuProfilerStart() -> Code {
    guard("cuProfilerStart", || Ok(()))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuProfilerStop() -> Code {
    guard("cuProfilerStop", || Ok(()))
}
