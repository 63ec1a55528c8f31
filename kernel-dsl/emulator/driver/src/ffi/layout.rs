//! Structures that cross the boundary, laid out as the driver interface has them. Handles and
//! pointers are numbers here. A test compares each with the bindings of `cudarc`.

/// A handle: the number that `handles` gave out, where the interface has a pointer.
pub(crate) type Handle = u64;

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) stream: Handle,
    pub(crate) attributes: usize,
    pub(crate) num_attributes: u32,
}

/// `CUlaunchAttribute`: a number, and a union of which at most the first three words are read here.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: u32,
    pub(crate) pad: [u8; 4],
    pub(crate) value: LaunchValue,
}

/// `CUlaunchAttributeValue`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaunchValue {
    pub(crate) words: [u32; 16],
}

/// `CUDA_KERNEL_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelNodeParams {
    pub(crate) function: Handle,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) params: usize,
    pub(crate) extra: usize,
    pub(crate) kernel: Handle,
    pub(crate) context: Handle,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemsetNodeParams {
    pub(crate) dst: u64,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) element_size: u32,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostNodeParams {
    pub(crate) function: Option<unsafe extern "C" fn(*mut std::ffi::c_void)>,
    pub(crate) data: usize,
}

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct InstantiateParams {
    pub(crate) flags: u64,
    pub(crate) upload_stream: Handle,
    pub(crate) error_node: Handle,
    pub(crate) result: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpdateResult {
    pub(crate) result: u32,
    pub(crate) error_node: Handle,
    pub(crate) error_from_node: Handle,
}

/// `CUgraphEdgeData`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EdgeData {
    pub(crate) from_port: u8,
    pub(crate) to_port: u8,
    pub(crate) kind: u8,
    pub(crate) reserved: [u8; 5],
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemLocation {
    pub(crate) kind: u32,
    pub(crate) id: i32,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemAccess {
    pub(crate) location: MemLocation,
    pub(crate) flags: u32,
}

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolProps {
    pub(crate) alloc_type: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: MemLocation,
    pub(crate) security: usize,
    pub(crate) max_size: usize,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 54],
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy2d {
    pub(crate) src_x: usize,
    pub(crate) src_y: usize,
    pub(crate) src_type: u32,
    pub(crate) src_host: usize,
    pub(crate) src_device: u64,
    pub(crate) src_array: usize,
    pub(crate) src_pitch: usize,
    pub(crate) dst_x: usize,
    pub(crate) dst_y: usize,
    pub(crate) dst_type: u32,
    pub(crate) dst_host: usize,
    pub(crate) dst_device: u64,
    pub(crate) dst_array: usize,
    pub(crate) dst_pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `CUtensorMap`: our own layout, see `tensor_map`. Aligned as the hardware wants it.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorMap {
    pub(crate) words: [u64; 16],
}

/// `CUuuid`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uuid {
    pub(crate) bytes: [u8; 16],
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;
    use std::mem::{align_of, offset_of};

    /// Holds size, alignment and the places of fields to those of the bindings.
    macro_rules! same {
        ($ours:ty, $theirs:ty, $($field:ident = $their:ident),*) => {
            assert_eq!(size_of::<$ours>(), size_of::<$theirs>(), stringify!($theirs));
            assert_eq!(align_of::<$ours>(), align_of::<$theirs>(), stringify!($theirs));
            $(assert_eq!(
                offset_of!($ours, $field),
                offset_of!($theirs, $their),
                stringify!($theirs.$their)
            );)*
        };
    }

    #[test]
    fn launches_lie_as_in_the_bindings() {
        same!(
            LaunchConfig,
            sys::CUlaunchConfig,
            grid = gridDimX,
            block = blockDimX,
            shared_bytes = sharedMemBytes,
            stream = hStream,
            attributes = attrs,
            num_attributes = numAttrs
        );
        same!(LaunchAttribute, sys::CUlaunchAttribute, id = id, value = value);
        same!(LaunchValue, sys::CUlaunchAttributeValue, words = clusterDim);
        same!(
            KernelNodeParams,
            sys::CUDA_KERNEL_NODE_PARAMS_v2,
            function = func,
            grid = gridDimX,
            block = blockDimX,
            shared_bytes = sharedMemBytes,
            params = kernelParams,
            extra = extra,
            kernel = kern,
            context = ctx
        );
        same!(
            MemsetNodeParams,
            sys::CUDA_MEMSET_NODE_PARAMS,
            dst = dst,
            pitch = pitch,
            value = value,
            element_size = elementSize,
            width = width,
            height = height
        );
        same!(HostNodeParams, sys::CUDA_HOST_NODE_PARAMS, function = fn_, data = userData);
        same!(TensorMap, sys::CUtensorMap, words = opaque);
    }

    #[test]
    fn graphs_and_memory_lie_as_in_the_bindings() {
        same!(
            InstantiateParams,
            sys::CUDA_GRAPH_INSTANTIATE_PARAMS,
            flags = flags,
            upload_stream = hUploadStream,
            error_node = hErrNode_out,
            result = result_out
        );
        same!(
            UpdateResult,
            sys::CUgraphExecUpdateResultInfo,
            result = result,
            error_node = errorNode,
            error_from_node = errorFromNode
        );
        same!(
            EdgeData,
            sys::CUgraphEdgeData,
            from_port = from_port,
            to_port = to_port,
            kind = type_,
            reserved = reserved
        );
        same!(MemLocation, sys::CUmemLocation, kind = type_, id = id);
        same!(MemAccess, sys::CUmemAccessDesc, location = location, flags = flags);
        same!(
            PoolProps,
            sys::CUmemPoolProps,
            alloc_type = allocType,
            handle_types = handleTypes,
            location = location,
            security = win32SecurityAttributes,
            max_size = maxSize,
            usage = usage,
            reserved = reserved
        );
        same!(
            Copy2d,
            sys::CUDA_MEMCPY2D,
            src_x = srcXInBytes,
            src_y = srcY,
            src_type = srcMemoryType,
            src_host = srcHost,
            src_device = srcDevice,
            src_array = srcArray,
            src_pitch = srcPitch,
            dst_x = dstXInBytes,
            dst_y = dstY,
            dst_type = dstMemoryType,
            dst_host = dstHost,
            dst_device = dstDevice,
            dst_array = dstArray,
            dst_pitch = dstPitch,
            width = WidthInBytes,
            height = Height
        );
        same!(Uuid, sys::CUuuid, bytes = bytes);
    }
}
