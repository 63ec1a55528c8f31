//! The emulated machine, as this driver sees it: memory, programs, launches. Nothing else here
//! names the emulator.

use crate::code::{Code, Outcome};
use crate::handles::lock;
use crate::settings::Order;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// A parsed module.
pub(crate) struct Program {
    pub(crate) target: String,
    pub(crate) entries: Vec<Entry>,
}

/// An entry of a module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Offset and size of each parameter.
    pub(crate) params: Vec<(usize, usize)>,
    /// Threads of a CTA that `.reqntid` demands or `.maxntid` allows.
    pub(crate) required_threads: Option<[u32; 3]>,
    pub(crate) max_threads: Option<u32>,
    pub(crate) shared_bytes: u32,
}

/// What a launch counted.
pub(crate) struct Counts {
    pub(crate) instructions: u64,
    /// The whole profile as members of a JSON object.
    pub(crate) json: String,
}

/// A launch that failed: the code that hardware would give, and the emulator's report.
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) report: String,
}

/// How many threads in how many CTAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
}

/// The machine. Its users take turns.
pub(crate) struct Gpu {
    machine: Mutex<Machine>,
}

#[derive(Default)]
struct Machine {
    next: u64,
    memory: BTreeMap<u64, Vec<u8>>,
}

impl Program {
    pub(crate) fn parse(_text: &str) -> Result<Self, String> {
        Err("no emulator".to_owned())
    }
}

impl Gpu {
    pub(crate) fn new(_memory_bytes: u64, _order: Order) -> Self {
        Self { machine: Mutex::new(Machine { next: 0x7000_0000_0000, memory: BTreeMap::new() }) }
    }

    pub(crate) fn alloc(&self, bytes: u64) -> Option<u64> {
        let mut machine = lock(&self.machine);
        let pointer = machine.next;
        machine.next += bytes.next_multiple_of(256) + 256;
        machine.memory.insert(pointer, vec![0xcd; usize::try_from(bytes).ok()?]);
        Some(pointer)
    }

    pub(crate) fn free(&self, pointer: u64) {
        lock(&self.machine).memory.remove(&pointer);
    }

    pub(crate) fn write(&self, pointer: u64, bytes: &[u8]) -> Outcome {
        let mut machine = lock(&self.machine);
        let (base, memory) =
            machine.memory.range_mut(..=pointer).next_back().ok_or(Code::ERROR_ILLEGAL_ADDRESS)?;
        let at = usize::try_from(pointer - base).map_err(|_| Code::ERROR_ILLEGAL_ADDRESS)?;
        let place = memory.get_mut(at..at + bytes.len()).ok_or(Code::ERROR_ILLEGAL_ADDRESS)?;
        place.copy_from_slice(bytes);
        Ok(())
    }

    pub(crate) fn read(&self, pointer: u64, bytes: &mut [u8]) -> Outcome {
        let machine = lock(&self.machine);
        let (base, memory) =
            machine.memory.range(..=pointer).next_back().ok_or(Code::ERROR_ILLEGAL_ADDRESS)?;
        let at = usize::try_from(pointer - base).map_err(|_| Code::ERROR_ILLEGAL_ADDRESS)?;
        let place = memory.get(at..at + bytes.len()).ok_or(Code::ERROR_ILLEGAL_ADDRESS)?;
        bytes.copy_from_slice(place);
        Ok(())
    }

    pub(crate) fn copy(&self, dst: u64, src: u64, bytes: u64) -> Outcome {
        let bytes = usize::try_from(bytes).map_err(|_| Code::ERROR_ILLEGAL_ADDRESS)?;
        let mut data = vec![0; bytes];
        self.read(src, &mut data)?;
        self.write(dst, &data)
    }

    pub(crate) fn launch(
        &self,
        _program: &Program,
        _entry: &str,
        _shape: &Shape,
        _params: &[u8],
    ) -> Result<Counts, Failure> {
        Err(Failure { code: Code::ERROR_NOT_SUPPORTED, report: "no emulator".to_owned() })
    }
}
