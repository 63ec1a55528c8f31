//! Launches.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::function::function;
use super::layout::{Handle, LaunchAttribute, LaunchConfig};
use super::pointers::{In, bytes_at};
use super::{call, unsupported};
use crate::code::{Code, Outcome, ensure};
use crate::driver::Driver;
use crate::gpu::Shape;
use crate::module::Function;
use crate::work::{Kernel, Step};
use std::sync::Arc;

/// Markers in the list of extra options.
const EXTRA_END: usize = 0;
const EXTRA_POINTER: usize = 1;
const EXTRA_SIZE: usize = 2;

/// How the parameters are given: one pointer each, or all in one buffer.
#[derive(Clone, Copy)]
pub(super) struct Params {
    pub(super) each: In<usize>,
    pub(super) extra: In<usize>,
}

/// The parameters' bytes, laid out as the entry declares them.
fn read_params(function: &Function, params: Params) -> Outcome<Vec<u8>> {
    let declared = &function.entry.params;
    let end = declared.iter().map(|(offset, size)| offset + size).max().unwrap_or(0);
    if !params.extra.is_null() {
        ensure(params.each.is_null(), Code::ERROR_INVALID_VALUE)?;
        let bytes = read_extra(params.extra)?;
        ensure(bytes.len() >= end, Code::ERROR_INVALID_VALUE)?;
        return Ok(bytes[..end].to_vec());
    }
    let mut bytes = vec![0; end];
    let pointers = params.each.array(declared.len())?;
    for ((offset, size), pointer) in declared.iter().zip(pointers) {
        bytes[*offset..offset + size].copy_from_slice(&bytes_at(pointer, *size)?);
    }
    Ok(bytes)
}

/// The buffer of a list of extra options, which are pairs up to an end mark.
fn read_extra(list: In<usize>) -> Outcome<Vec<u8>> {
    let (mut buffer, mut size) = (None, None);
    // There are two options; a longer list has no end mark.
    for pair in 1..=3 {
        let words = list.array(pair * 2 - 1)?;
        let option = words.last().copied().unwrap_or(EXTRA_END);
        if option == EXTRA_END {
            break;
        }
        let value = list.array(pair * 2)?.last().copied().unwrap_or(0);
        match option {
            EXTRA_POINTER => buffer = Some(value),
            // The size is behind a pointer.
            EXTRA_SIZE => size = Some(bytes_at(value, size_of::<usize>())?),
            _ => return Err(Code::ERROR_INVALID_VALUE),
        }
    }
    let (Some(buffer), Some(size)) = (buffer, size) else {
        return Err(Code::ERROR_INVALID_VALUE);
    };
    let size = size.try_into().map_err(|_| Code::ERROR_INVALID_VALUE)?;
    bytes_at(buffer, usize::from_le_bytes(size))
}

/// A launch, checked, with its parameters.
pub(super) fn kernel(
    function: Arc<Function>,
    shape: Shape,
    params: Params,
) -> Outcome<Arc<Kernel>> {
    function.check(&shape)?;
    let params = read_params(&function, params)?;
    Ok(Kernel::new(function, shape, params))
}

fn launch(
    driver: &Driver,
    handle: Handle,
    (shape, stream): (Shape, u64),
    params: Params,
) -> Outcome {
    let function = function(driver, handle)?;
    let stream = driver.stream(stream)?;
    ensure(stream.core.id == function.core.id, Code::ERROR_INVALID_HANDLE)?;
    let kernel = kernel(function, shape, params)?;
    driver.issue(&stream, Step::Kernel(kernel)).map(|_| ())
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuLaunchKernel(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Handle,
    params: In<usize>,
    extra: In<usize>,
) -> Code {
    call("cuLaunchKernel", |driver| {
        let grid = [grid_x, grid_y, grid_z];
        let block = [block_x, block_y, block_z];
        let shape = Shape { grid, block, shared_bytes };
        launch(driver, function, (shape, stream), Params { each: params, extra })
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuLaunchCooperativeKernel(
    _function: Handle,
    _grid_x: u32,
    _grid_y: u32,
    _grid_z: u32,
    _block_x: u32,
    _block_y: u32,
    _block_z: u32,
    _shared_bytes: u32,
    _stream: Handle,
    _params: In<usize>,
) -> Code {
    call("cuLaunchCooperativeKernel", |_| {
        unsupported("cuLaunchCooperativeKernel", "CTAs of the emulator are not resident together")
    })
}

/// Numbers of `CUlaunchAttributeID`.
const COOPERATIVE: u32 = 2;
const CLUSTER: u32 = 4;
const PREFERRED_CLUSTER: u32 = 11;

/// Accepts an attribute that changes nothing here, and refuses what the emulator cannot do.
fn check_attribute(attribute: &LaunchAttribute) -> Outcome {
    let words = attribute.value.words;
    match attribute.id {
        COOPERATIVE if words[0] != 0 => {
            unsupported("cuLaunchKernelEx", "CTAs of the emulator are not resident together")
        }
        CLUSTER | PREFERRED_CLUSTER if words[..3].iter().any(|size| *size > 1) => {
            unsupported("cuLaunchKernelEx", "the emulator has no clusters")
        }
        // None; cache window; cooperative, off; synchronization policy; cluster of one CTA and its
        // scheduling; programmatic serialization: a kernel that may start early may also start
        // late; priority; domains of memory synchronization; shared memory carveout.
        0..=6 | 8..=11 | 14 => Ok(()),
        id => unsupported("cuLaunchKernelEx", &format!("launch attribute {id}")),
    }
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuLaunchKernelEx(
    config: In<LaunchConfig>,
    function: Handle,
    params: In<usize>,
    extra: In<usize>,
) -> Code {
    call("cuLaunchKernelEx", |driver| {
        let config = config.read()?;
        for index in 0..config.num_attributes as usize {
            let size = size_of::<LaunchAttribute>();
            check_attribute(&In::at(config.attributes + index * size).read()?)?;
        }
        let LaunchConfig { grid, block, shared_bytes, stream, .. } = config;
        let shape = Shape { grid, block, shared_bytes };
        launch(driver, function, (shape, stream), Params { each: params, extra })
    })
}
