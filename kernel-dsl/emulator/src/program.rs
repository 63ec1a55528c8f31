//! Modules: entries, parameters, variables, and where instructions came from.

pub(crate) use crate::op::*;

/// The classes that a profile counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Class {
    /// Integer arithmetic and logic.
    Integer,
    /// Floating-point arithmetic.
    Float,
    /// Conversions between types.
    Convert,
    /// Moves, packing, selection and predicates.
    Move,
    /// Accesses to global memory, generic and constant ones too.
    Global,
    /// Accesses to shared memory.
    Shared,
    /// Accesses to parameters and local memory.
    Local,
    /// Atomic operations.
    Atomic,
    /// Exchanges between lanes.
    Warp,
    /// Branches and ends.
    Control,
    /// Barriers, `mbarrier`s and fences.
    Barrier,
    /// Asynchronous copies.
    Copy,
    /// Matrix loads and stores.
    Matrix,
    /// Tensor-core operations.
    Mma,
}

/// One instruction.
pub(crate) struct Instr {
    pub(crate) op: Op,
    pub(crate) guard: Option<(Pred, bool)>,
    pub(crate) class: Class,
    pub(crate) line: u32,
    /// Index into the module's source places.
    pub(crate) source: Option<u32>,
}

/// A variable of module scope.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) bytes: Vec<u8>,
    /// Whether its bytes were given, so that reading them is not a read of garbage.
    pub(crate) align: u64,
    pub(crate) read_only: bool,
}

/// A parameter of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Where it starts in the parameter block.
    pub offset: u32,
    /// How many bytes it has.
    pub bytes: u32,
}

/// A kernel of a module.
pub struct Entry {
    pub(crate) name: String,
    pub(crate) params: Vec<Param>,
    pub(crate) reqntid: Option<[u32; 3]>,
    pub(crate) maxntid: Option<[u32; 3]>,
    pub(crate) shared_bytes: u32,
    pub(crate) shared_align: u32,
    pub(crate) local_bytes: u32,
    pub(crate) code: Vec<Instr>,
    pub(crate) consts: Vec<Lanes>,
    /// Constants that are addresses of module variables, which the machine places.
    pub(crate) relocations: Vec<(u32, u32)>,
    pub(crate) registers: u32,
    pub(crate) predicates: u32,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "entry {} of {} instructions", self.name, self.code.len())
    }
}

impl Entry {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters, in order.
    #[must_use]
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Size of the parameter block in bytes.
    #[must_use]
    pub fn param_bytes(&self) -> u32 {
        self.params.last().map_or(0, |last| last.offset + last.bytes)
    }

    /// The block that `.reqntid` demands.
    #[must_use]
    pub fn reqntid(&self) -> Option<[u32; 3]> {
        self.reqntid
    }

    /// The largest block that `.maxntid` allows.
    #[must_use]
    pub fn maxntid(&self) -> Option<[u32; 3]> {
        self.maxntid
    }

    /// Bytes of shared memory that it declares itself, dynamic shared memory not among them.
    #[must_use]
    pub fn shared_bytes(&self) -> u32 {
        self.shared_bytes
    }

    /// Bytes of local memory of a thread.
    #[must_use]
    pub fn local_bytes(&self) -> u32 {
        self.local_bytes
    }

    /// How many registers its text names; not how many an assembler would give it.
    #[must_use]
    pub fn virtual_registers(&self) -> u32 {
        self.registers
    }
}

/// A module of PTX.
#[derive(Debug)]
pub struct Module {
    pub(crate) id: u64,
    pub(crate) target: String,
    pub(crate) version: (u32, u32),
    pub(crate) entries: Vec<Entry>,
    pub(crate) variables: Vec<Variable>,
    pub(crate) files: Vec<(u32, String)>,
    /// What `.loc` said, each once.
    pub(crate) sources: Vec<(u32, u32)>,
}

impl Module {
    /// Its kernels.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The kernel of a name.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// What `.target` says, for example `sm_90a`.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// What `.version` says, major and minor.
    #[must_use]
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// File and line of a source place.
    pub(crate) fn source(&self, index: u32) -> Option<(String, u32)> {
        let (file, line) = *self.sources.get(index as usize)?;
        let name = self.files.iter().find(|(number, _)| *number == file);
        Some((name.map_or_else(|| format!("file {file}"), |(_, name)| name.clone()), line))
    }
}
