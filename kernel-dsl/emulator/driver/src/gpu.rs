//! The emulated machine, as this driver sees it: memory, programs, launches. Nothing else here
//! names the emulator.

use crate::code::{Code, Outcome};
use crate::handles::lock;
use crate::settings::Order;
use std::sync::Mutex;
use tessera_emulator::{
    Config, Counts, Fault, FaultKind, Launch, Machine, Module, Profile, Schedule,
};

/// A parsed module.
pub(crate) struct Program {
    module: Module,
    pub(crate) target: String,
    pub(crate) entries: Vec<Entry>,
}

/// An entry of a module.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Offset and size of each parameter.
    pub(crate) params: Vec<(usize, usize)>,
    /// The shape of a CTA that `.reqntid` demands.
    pub(crate) required_threads: Option<[u32; 3]>,
    /// The most threads of a CTA that `.maxntid` allows.
    pub(crate) max_threads: Option<u32>,
    pub(crate) shared_bytes: u32,
    pub(crate) local_bytes: u32,
}

/// What a launch counted.
pub(crate) struct Done(Profile);

impl Done {
    pub(crate) fn instructions(&self) -> u64 {
        self.0.total.warp_instructions
    }

    /// The whole profile as members of a JSON object.
    pub(crate) fn json(&self) -> String {
        json_of(&self.0)
    }
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

/// What is to be launched, and with which parameters.
pub(crate) struct Call<'a> {
    pub(crate) program: &'a Program,
    pub(crate) entry: &'a str,
    pub(crate) shape: Shape,
    pub(crate) params: &'a [u8],
}

/// The machine. Its users take turns.
pub(crate) struct Gpu {
    machine: Mutex<Machine>,
}

/// Allocations begin at multiples of this, as those of a device do.
const ALIGNMENT: u64 = 512;
/// Memory for variables of modules, which the devices' accounts do not know.
const VARIABLES: u64 = 1 << 30;

impl Program {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let module = Module::parse(text).map_err(|error| error.to_string())?;
        let size = |bytes: u32| bytes as usize;
        let entries = module.entries().iter().map(|entry| Entry {
            name: entry.name().to_owned(),
            params: entry.params().iter().map(|p| (size(p.offset), size(p.bytes))).collect(),
            required_threads: entry.reqntid(),
            max_threads: entry.maxntid().map(|most| most.iter().product()),
            shared_bytes: entry.shared_bytes(),
            local_bytes: entry.local_bytes(),
        });
        let (entries, target) = (entries.collect(), module.target().to_owned());
        Ok(Self { module, target, entries })
    }
}

impl Gpu {
    pub(crate) fn new(memory_bytes: u64, order: Order) -> Self {
        let schedule = match order {
            Order::Earliest => Schedule::Earliest,
            Order::Latest => Schedule::Latest,
            Order::Random(seed) => Schedule::Random(seed),
        };
        let memory_bytes = memory_bytes.saturating_add(VARIABLES);
        let config = Config { memory_bytes, schedule, ..Config::default() };
        Self { machine: Mutex::new(Machine::new(config)) }
    }

    pub(crate) fn alloc(&self, bytes: u64) -> Option<u64> {
        lock(&self.machine).alloc(bytes, ALIGNMENT).ok()
    }

    pub(crate) fn free(&self, pointer: u64) {
        // The devices' accounts know what is allocated; here it is only poisoned.
        let _ = lock(&self.machine).free(pointer);
    }

    pub(crate) fn write(&self, pointer: u64, bytes: &[u8]) -> Outcome {
        let written = lock(&self.machine).write(pointer, bytes);
        written.map_err(|_| Code::ERROR_ILLEGAL_ADDRESS)
    }

    /// Sets every byte of a range.
    pub(crate) fn fill(&self, pointer: u64, byte: u8, bytes: u64) -> Outcome {
        let filled = lock(&self.machine).fill(pointer, byte, bytes);
        filled.map_err(|_| Code::ERROR_ILLEGAL_ADDRESS)
    }

    pub(crate) fn read(&self, pointer: u64, bytes: &mut [u8]) -> Outcome {
        let read = lock(&self.machine).read(pointer, bytes);
        read.map_err(|_| Code::ERROR_ILLEGAL_ADDRESS)
    }

    pub(crate) fn copy(&self, dst: u64, src: u64, bytes: u64) -> Outcome {
        let copied = lock(&self.machine).copy(dst, src, bytes);
        copied.map_err(|_| Code::ERROR_ILLEGAL_ADDRESS)
    }

    /// Launches, if `alive` still holds when the machine is free: what failed meanwhile may have been
    /// in the same context.
    pub(crate) fn launch(
        &self,
        call: &Call<'_>,
        alive: impl FnOnce() -> Outcome,
    ) -> Result<Done, Failure> {
        let Shape { grid, block, shared_bytes } = call.shape;
        let launch = Launch { grid, block, shared_bytes, params: call.params };
        let mut machine = lock(&self.machine);
        alive().map_err(|code| Failure { code, report: String::new() })?;
        match machine.launch(&call.program.module, call.entry, &launch) {
            Ok(profile) => Ok(Done(profile)),
            Err(fault) => Err(Failure { code: code_of(&fault), report: fault.to_string() }),
        }
    }
}

/// What hardware would answer, or, for what it would not notice, that the launch failed.
fn code_of(fault: &Fault) -> Code {
    match fault.kind {
        FaultKind::Launch => Code::ERROR_INVALID_VALUE,
        FaultKind::OutOfBounds | FaultKind::Freed | FaultKind::ReadOnly => {
            Code::ERROR_ILLEGAL_ADDRESS
        }
        FaultKind::Misaligned => Code::ERROR_MISALIGNED_ADDRESS,
        // The emulator tells apart what is no address at all and what is one of another space.
        FaultKind::WrongSpace if is_nowhere(&fault.message) => Code::ERROR_ILLEGAL_ADDRESS,
        FaultKind::WrongSpace => Code::ERROR_INVALID_ADDRESS_SPACE,
        FaultKind::Operand => Code::ERROR_ILLEGAL_INSTRUCTION,
        FaultKind::Deadlock | FaultKind::Endless => Code::ERROR_LAUNCH_TIMEOUT,
        _ => Code::ERROR_LAUNCH_FAILED,
    }
}

fn is_nowhere(message: &str) -> bool {
    ["in no space", "next to null"].iter().any(|words| message.contains(words))
}

fn counts(counts: &Counts) -> String {
    let Counts {
        warp_instructions,
        lane_instructions,
        global_bytes,
        global_sectors,
        shared_bytes,
        shared_conflicts,
        mma,
        barriers,
        ..
    } = counts;
    format!(
        "\"warp_instructions\":{warp_instructions},\"lane_instructions\":{lane_instructions},\
         \"global_bytes\":{global_bytes},\"global_sectors\":{global_sectors},\
         \"shared_bytes\":{shared_bytes},\"shared_conflicts\":{shared_conflicts},\
         \"mma\":{mma},\"barriers\":{barriers}"
    )
}

/// The profile as members of a JSON object. Names come from PTX identifiers and file names; what
/// would end a string in JSON is escaped.
fn json_of(profile: &Profile) -> String {
    let classes: Vec<String> =
        profile.classes.iter().map(|(class, count)| format!("\"{class:?}\":{count}")).collect();
    let lines: Vec<String> = profile
        .lines
        .iter()
        .map(|line| {
            let source = line.source.as_ref().map_or(String::new(), |(file, line)| {
                format!("\"source\":{},", json_text(&format!("{file}:{line}")))
            });
            format!("{{{source}\"ptx_line\":{},{}}}", line.ptx_line, counts(&line.counts))
        })
        .collect();
    format!(
        "\"ctas\":{},\"total\":{{{}}},\"classes\":{{{}}},\"lines\":[{}]",
        profile.ctas,
        counts(&profile.total),
        classes.join(","),
        lines.join(",")
    )
}

fn json_text(text: &str) -> String {
    let mut escaped = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            c if c < ' ' => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped.push('"');
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_json() {
        assert_eq!(json_text("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
        let profile = Profile { ctas: 3, ..Profile::default() };
        let json = format!("{{{}}}", json_of(&profile));
        let read: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(read["ctas"], 3);
        assert_eq!(read["total"]["mma"], 0);
    }
}
