//! Modules and their functions: which images are taken, and what a launch must look like.

use crate::code::{Code, Outcome, ensure, log};
use crate::device::{
    CTAS_PER_SM, MAX_BLOCK, MAX_GRID, MAX_THREADS_PER_CTA, SHARED_DEFAULT, SHARED_OPTIN,
    SHARED_PER_SM, SHARED_RESERVED, THREADS_PER_SM, WARP_SIZE,
};
use crate::driver::Driver;
use crate::gpu::{Entry, Program, Shape};
use crate::handles::lock;
use crate::settings::Arch;
use crate::work::Core;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A loaded module.
pub(crate) struct Module {
    pub(crate) id: u64,
    pub(crate) context: u64,
    pub(crate) program: Arc<Program>,
    /// Functions that were asked for, by name: asking again gives the same handle.
    functions: Mutex<BTreeMap<String, u64>>,
}

/// An entry of a module, in the module's context.
pub(crate) struct Function {
    pub(crate) id: u64,
    /// Its context: where it runs, whatever stream a graph of it is launched into.
    pub(crate) core: Arc<Core>,
    pub(crate) module: u64,
    pub(crate) program: Arc<Program>,
    pub(crate) entry: Entry,
    /// The entry's name as a C string, for those who ask.
    pub(crate) c_name: std::ffi::CString,
    max_dynamic_shared: AtomicU32,
    carveout: AtomicI32,
}

/// Why an image was not taken, for the error output and the program's log.
pub(crate) struct Refusal {
    pub(crate) code: Code,
    pub(crate) log: String,
}

/// First bytes of images that hold machine code.
const ELF: [u8; 4] = [0x7f, b'E', b'L', b'F'];
const FAT_BINARY: [u8; 4] = [0x50, 0xed, 0x55, 0xba];

/// Whether an image is machine code, which nothing here can run.
pub(crate) fn is_binary(head: [u8; 4]) -> bool {
    head == ELF || head == FAT_BINARY
}

/// What is said of an image that is machine code.
pub(crate) fn binary_refusal() -> Refusal {
    let log = "this is the stand-in driver: it runs PTX text on an emulator and cannot run machine \
               code (a cubin or a fat binary)";
    Refusal { code: Code::ERROR_NO_BINARY_FOR_GPU, log: log.to_owned() }
}

/// Whether code for a PTX target may run on a chip, as the PTX manual has it: `a` is for one chip
/// only, `f` for a family, the rest for that chip and later ones.
fn runs_on(target: &str, arch: Arch) -> bool {
    let Some(target) = target.strip_prefix("sm_") else { return false };
    let chip = match arch {
        Arch::Sm90 => 90,
        Arch::Sm100 => 100,
    };
    let digits: String = target.chars().take_while(char::is_ascii_digit).collect();
    let Ok(number) = digits.parse::<u32>() else { return false };
    match &target[digits.len()..] {
        "" => number <= chip,
        "a" => number == chip,
        "f" => number <= chip && number / 10 == chip / 10,
        _ => false,
    }
}

/// The newest PTX version that the driver's CUDA version knows.
const PTX_VERSION: (u32, u32) = (9, 0);

fn ptx_version(text: &str) -> Option<(u32, u32)> {
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(".version"))?;
    let (major, minor) = line.split_whitespace().next()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Parses a module's text for a chip.
pub(crate) fn compile(text: &str, arch: Arch) -> Result<Program, Refusal> {
    let refuse = |code, log: String| Err(Refusal { code, log });
    if let Some(version) = ptx_version(text).filter(|version| *version > PTX_VERSION) {
        let log = format!("PTX version {version:?} is newer than {PTX_VERSION:?}");
        return refuse(Code::ERROR_UNSUPPORTED_PTX_VERSION, log);
    }
    let program = match Program::parse(text) {
        Ok(program) => program,
        Err(log) => return refuse(Code::ERROR_INVALID_PTX, log),
    };
    if !runs_on(&program.target, arch) {
        let log = format!("code for {} does not run on {arch:?}", program.target);
        return refuse(Code::ERROR_INVALID_PTX, log);
    }
    Ok(program)
}

impl Driver {
    pub(crate) fn add_module(&self, context: u64, program: Program) -> u64 {
        let program = Arc::new(program);
        let make = |id| Module { id, context, program, functions: Mutex::default() };
        self.modules.insert(make).0
    }

    /// Says why an image was refused.
    pub(crate) fn refuse_image(refusal: &Refusal) -> Code {
        log(&refusal.log);
        refusal.code
    }

    pub(crate) fn function_of(&self, module: &Module, name: &str) -> Outcome<u64> {
        let context = self.context(module.context)?;
        let mut functions = lock(&module.functions);
        if let Some(handle) = functions.get(name) {
            return Ok(*handle);
        }
        let entry = module.program.entries.iter().find(|entry| entry.name == name);
        let entry = entry.ok_or(Code::ERROR_NOT_FOUND)?.clone();
        let c_name = std::ffi::CString::new(name).map_err(|_| Code::ERROR_NOT_FOUND)?;
        let usual = SHARED_DEFAULT.saturating_sub(entry.shared_bytes);
        let (handle, _) = self.functions.insert(|id| Function {
            id,
            core: context.core.clone(),
            module: module.id,
            program: module.program.clone(),
            entry,
            c_name,
            max_dynamic_shared: AtomicU32::new(usual),
            carveout: AtomicI32::new(-1),
        });
        functions.insert(name.to_owned(), handle);
        Ok(handle)
    }

    /// Ends the life of a module's handle and of its functions'. Launches that are queued keep the
    /// code.
    pub(crate) fn unload(&self, module: &Module) {
        let _ = self.modules.remove(module.id);
        for handle in lock(&module.functions).values() {
            let _ = self.functions.remove(*handle);
        }
    }
}

impl Function {
    fn max_threads(&self) -> u32 {
        let required = self.entry.required_threads.map(|block| block.iter().product());
        let most = required.or(self.entry.max_threads).unwrap_or(MAX_THREADS_PER_CTA);
        most.min(MAX_THREADS_PER_CTA)
    }

    /// An attribute by its number in `CUfunction_attribute`.
    pub(crate) fn attribute(&self, number: i32) -> Outcome<i32> {
        let version = match self.core.device.arch {
            Arch::Sm90 => 90,
            Arch::Sm100 => 100,
        };
        let int = |value: u32| i32::try_from(value).unwrap_or(i32::MAX);
        Ok(match number {
            0 => int(self.max_threads()),
            1 => int(self.entry.shared_bytes),
            // How many registers an assembler would need is not known here.
            2 | 4 | 7 | 10..=16 => 0,
            3 => int(self.entry.local_bytes),
            5 | 6 => version,
            8 => int(self.max_dynamic_shared.load(Ordering::Relaxed)),
            9 => self.carveout.load(Ordering::Relaxed),
            _ => return Err(Code::ERROR_INVALID_VALUE),
        })
    }

    pub(crate) fn set_attribute(&self, number: i32, value: i32) -> Outcome {
        match number {
            8 => {
                let most = SHARED_OPTIN.saturating_sub(self.entry.shared_bytes);
                let value = u32::try_from(value).ok().filter(|value| *value <= most);
                let value = value.ok_or(Code::ERROR_INVALID_VALUE)?;
                self.max_dynamic_shared.store(value, Ordering::Relaxed);
                Ok(())
            }
            9 => {
                ensure((-1..=100).contains(&value), Code::ERROR_INVALID_VALUE)?;
                self.carveout.store(value, Ordering::Relaxed);
                Ok(())
            }
            // A cluster of one CTA is what there is.
            11..=13 => ensure((0..=1).contains(&value), Code::ERROR_NOT_SUPPORTED),
            14 | 15 => Ok(()),
            _ => Err(Code::ERROR_INVALID_VALUE),
        }
    }

    /// Whether a launch of this shape is possible at all.
    pub(crate) fn check(&self, shape: &Shape) -> Outcome {
        let within = |sizes: [u32; 3], most: [u32; 3]| {
            sizes.iter().zip(most).all(|(size, most)| (1..=most).contains(size))
        };
        let invalid = Code::ERROR_INVALID_VALUE;
        ensure(within(shape.grid, MAX_GRID) && within(shape.block, MAX_BLOCK), invalid)?;
        let threads: u32 = shape.block.iter().product();
        ensure(threads <= self.max_threads(), invalid)?;
        let required = self.entry.required_threads;
        ensure(required.is_none_or(|required| required == shape.block), invalid)?;
        ensure(shape.shared_bytes <= self.max_dynamic_shared.load(Ordering::Relaxed), invalid)
    }

    /// CTAs of this many threads that a multiprocessor holds at a time: the least of what its
    /// threads, its places and its shared memory allow. Registers may allow fewer on a device; how
    /// many an assembler would use is not known here, so this is an upper bound.
    pub(crate) fn ctas_per_sm(&self, threads: u32, dynamic_shared: usize) -> Outcome<u32> {
        ensure((1..=MAX_THREADS_PER_CTA).contains(&threads), Code::ERROR_INVALID_VALUE)?;
        if threads > self.max_threads() {
            return Ok(0);
        }
        let dynamic = u32::try_from(dynamic_shared).unwrap_or(u32::MAX);
        let shared = dynamic.saturating_add(self.entry.shared_bytes);
        if shared > SHARED_OPTIN {
            return Ok(0);
        }
        let by_threads = THREADS_PER_SM / threads.next_multiple_of(WARP_SIZE);
        let by_shared = SHARED_PER_SM / (shared.next_multiple_of(128) + SHARED_RESERVED);
        Ok(by_threads.min(by_shared).min(CTAS_PER_SM))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_run_where_the_manual_says() {
        let check = |target, on_90, on_100| {
            assert_eq!(runs_on(target, Arch::Sm90), on_90, "{target}");
            assert_eq!(runs_on(target, Arch::Sm100), on_100, "{target}");
        };
        check("sm_90a", true, false);
        check("sm_90", true, true);
        check("sm_80", true, true);
        check("sm_100a", false, true);
        check("sm_100f", false, true);
        check("sm_100", false, true);
        check("sm_103f", false, false);
        check("sm_90f", true, false);
        check("sm_120a", false, false);
        check("compute_90", false, false);
        check("sm_90b", false, false);
    }

    #[test]
    fn a_newer_ptx_version_is_told_from_an_older_one() {
        assert_eq!(ptx_version("// x\n .version 9.0\n.target sm_90a"), Some((9, 0)));
        assert_eq!(ptx_version("no version"), None);
        let refusal = compile(".version 9.1\n.target sm_90a\n", Arch::Sm90).err().unwrap();
        assert_eq!(refusal.code, Code::ERROR_UNSUPPORTED_PTX_VERSION);
    }
}
