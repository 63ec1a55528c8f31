//! Modules and libraries. Only PTX text is taken: there is nothing here that could run machine code.

#![expect(unsafe_code, reason = "exported symbols have fixed names")]

use super::layout::Handle;
use super::pointers::{In, Out, Text, bytes_at, text_at, write_text_at};
use super::{call, unsupported};
use crate::code::{Code, Outcome, ensure};
use crate::driver::Driver;
use crate::module::{Module, Refusal, binary_refusal, compile, is_binary};
use std::ffi::c_void;
use std::sync::Arc;

/// Numbers of `CUjit_option`.
const INFO_LOG: u32 = 3;
const INFO_LOG_BYTES: u32 = 4;
const ERROR_LOG: u32 = 5;
const ERROR_LOG_BYTES: u32 = 6;

/// Where a program wants to read why its image was not taken.
#[derive(Default)]
struct Logs {
    info: (usize, usize),
    error: (usize, usize),
}

impl Logs {
    fn read(options: In<u32>, values: In<usize>, count: u32) -> Outcome<Self> {
        let mut logs = Self::default();
        let options = options.array(count as usize)?;
        for (option, value) in options.into_iter().zip(values.array(count as usize)?) {
            match option {
                INFO_LOG => logs.info.0 = value,
                // A size is the low word of the value.
                INFO_LOG_BYTES => logs.info.1 = value & 0xffff_ffff,
                ERROR_LOG => logs.error.0 = value,
                ERROR_LOG_BYTES => logs.error.1 = value & 0xffff_ffff,
                _ => {}
            }
        }
        Ok(logs)
    }

    fn write(&self, error: &str) -> Outcome {
        for ((buffer, bytes), text) in [(self.info, ""), (self.error, error)] {
            if buffer != 0 && bytes > 0 {
                write_text_at(buffer, bytes, text)?;
            }
        }
        Ok(())
    }
}

/// Loads an image from memory.
fn load(driver: &Driver, image: In<c_void>, logs: &Logs) -> Outcome<u64> {
    let context = driver.current()?;
    driver.refuse_unsafe()?;
    ensure(!image.is_null(), Code::ERROR_INVALID_VALUE)?;
    let head = bytes_at(image.address(), 1)?;
    // A text may be shorter than four bytes; what begins like a binary is not.
    let binary = match head[..] {
        [0x7f | 0x50] => {
            let head = bytes_at(image.address(), 4)?;
            is_binary(head.try_into().map_err(|_| Code::ERROR_INVALID_IMAGE)?)
        }
        _ => false,
    };
    let compiled = match binary {
        true => Err(binary_refusal()),
        false => {
            let text = text_at(image.address()).map_err(|_| Code::ERROR_INVALID_IMAGE)?;
            compile(&text, context.core.device.arch)
        }
    };
    take(driver, context.core.id, compiled, logs)
}

fn take(
    driver: &Driver,
    context: u64,
    compiled: Result<crate::gpu::Program, Refusal>,
    logs: &Logs,
) -> Outcome<u64> {
    match compiled {
        Ok(program) => {
            logs.write("")?;
            Ok(driver.add_module(context, program))
        }
        Err(refusal) => {
            logs.write(&refusal.log)?;
            Err(Driver::refuse_image(&refusal))
        }
    }
}

fn load_file(driver: &Driver, path: Text, logs: &Logs) -> Outcome<u64> {
    let context = driver.current()?;
    driver.refuse_unsafe()?;
    let bytes = std::fs::read(path.read()?).map_err(|_| Code::ERROR_FILE_NOT_FOUND)?;
    let head = bytes.first_chunk().copied();
    let compiled = match (head.is_some_and(is_binary), String::from_utf8(bytes)) {
        (true, _) => Err(binary_refusal()),
        (false, Ok(text)) => compile(text.trim_end_matches('\0'), context.core.device.arch),
        (false, Err(_)) => return Err(Code::ERROR_INVALID_IMAGE),
    };
    take(driver, context.core.id, compiled, logs)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleLoad(module: Out<Handle>, path: Text) -> Code {
    call("cuModuleLoad", |driver| module.set(load_file(driver, path, &Logs::default())?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleLoadData(module: Out<Handle>, image: In<c_void>) -> Code {
    call("cuModuleLoadData", |driver| module.set(load(driver, image, &Logs::default())?))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleLoadDataEx(
    module: Out<Handle>,
    image: In<c_void>,
    count: u32,
    options: In<u32>,
    values: In<usize>,
) -> Code {
    call("cuModuleLoadDataEx", |driver| {
        module.set(load(driver, image, &Logs::read(options, values, count)?)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleLoadFatBinary(_module: Out<Handle>, _image: In<c_void>) -> Code {
    call("cuModuleLoadFatBinary", |_| Err(Driver::refuse_image(&binary_refusal())))
}

fn module(driver: &Driver, handle: Handle) -> Outcome<Arc<Module>> {
    let module = driver.modules.find(handle)?;
    driver.context(module.context)?.core.check()?;
    Ok(module)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleUnload(handle: Handle) -> Code {
    call("cuModuleUnload", |driver| {
        driver.refuse_unsafe()?;
        driver.unload(&*module(driver, handle)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleGetFunction(
    function: Out<Handle>,
    handle: Handle,
    name: Text,
) -> Code {
    call("cuModuleGetFunction", |driver| {
        function.set(driver.function_of(&*module(driver, handle)?, &name.read()?)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleGetFunctionCount(count: Out<u32>, handle: Handle) -> Code {
    call("cuModuleGetFunctionCount", |driver| {
        let entries = module(driver, handle)?.program.entries.len();
        count.set(u32::try_from(entries).unwrap_or(u32::MAX))
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleGetLoadingMode(mode: Out<u32>) -> Code {
    call("cuModuleGetLoadingMode", |_| mode.set(1)) // eager
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuModuleGetGlobal_v2(
    _pointer: Out<u64>,
    _bytes: Out<usize>,
    handle: Handle,
    _name: Text,
) -> Code {
    call("cuModuleGetGlobal", |driver| {
        module(driver, handle)?;
        unsupported("cuModuleGetGlobal", "variables of modules are not the host's to see here")
    })
}

// A library is a module of the current context here, and a kernel is a function.

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuLibraryLoadData(
    library: Out<Handle>,
    image: In<c_void>,
    options: In<u32>,
    values: In<usize>,
    count: u32,
    _library_options: In<u32>,
    _library_values: In<usize>,
    _library_count: u32,
) -> Code {
    call("cuLibraryLoadData", |driver| {
        library.set(load(driver, image, &Logs::read(options, values, count)?)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuLibraryLoadFromFile(
    library: Out<Handle>,
    path: Text,
    options: In<u32>,
    values: In<usize>,
    count: u32,
    _library_options: In<u32>,
    _library_values: In<usize>,
    _library_count: u32,
) -> Code {
    call("cuLibraryLoadFromFile", |driver| {
        library.set(load_file(driver, path, &Logs::read(options, values, count)?)?)
    })
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuLibraryUnload(library: Handle) -> Code {
    cuModuleUnload(library)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuLibraryGetKernel(
    kernel: Out<Handle>,
    library: Handle,
    name: Text,
) -> Code {
    cuModuleGetFunction(kernel, library, name)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuLibraryGetModule(handle: Out<Handle>, library: Handle) -> Code {
    call("cuLibraryGetModule", |driver| handle.set(module(driver, library)?.id))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuLibraryGetKernelCount(count: Out<u32>, library: Handle) -> Code {
    cuModuleGetFunctionCount(count, library)
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn cuKernelGetFunction(function: Out<Handle>, kernel: Handle) -> Code {
    call("cuKernelGetFunction", |driver| function.set(driver.functions.find(kernel)?.id))
}
