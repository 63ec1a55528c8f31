//! What a launch can do wrong, and where it did it.

use std::fmt;

/// A place in a program: which lanes of which warp stood at which line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the CTA in the grid.
    pub cta: [u32; 3],
    /// Index of the warp in its CTA.
    pub warp: u32,
    /// The lowest lane concerned, if one is.
    pub lane: Option<u32>,
    /// Line of the PTX text, counted from one.
    pub line: u32,
    /// File and line that `.loc` gives for it.
    pub source: Option<(String, u32)>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.cta;
        write!(f, "cta ({x}, {y}, {z}) warp {}", self.warp)?;
        if let Some(lane) = self.lane {
            write!(f, " lane {lane}")?;
        }
        write!(f, ", PTX line {}", self.line)?;
        match &self.source {
            Some((file, line)) => write!(f, " ({file}:{line})"),
            None => Ok(()),
        }
    }
}

/// The kinds of mistakes that are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// The launch itself is wrong: no such entry, parameters of another size, a block too large.
    Launch,
    /// An access outside every allocation, or past the end of one.
    OutOfBounds,
    /// An access to an allocation that was freed.
    Freed,
    /// An address that is no multiple of the access's size.
    Misaligned,
    /// A global address used as a shared one, or the like.
    WrongSpace,
    /// A write to memory that is read-only.
    ReadOnly,
    /// A read of a register, or of memory, that nobody wrote.
    Uninitialised,
    /// Two accesses to shared memory, one of them a write, that nothing orders.
    SharedRace,
    /// Two accesses to global memory, one of them a write, that nothing orders.
    GlobalRace,
    /// Lanes of one instruction wrote different values to one address.
    LaneConflict,
    /// An asynchronous copy's bytes were touched before anybody waited for it.
    MissingWait,
    /// The generic and the asynchronous proxy met without a proxy fence.
    MissingProxyFence,
    /// A tensor core got a register with no `wgmma.fence` since a thread wrote it.
    MissingFence,
    /// A barrier that not all lanes of a warp, or not all warps, can reach.
    DivergentBarrier,
    /// A warp-wide instruction whose member mask does not match the lanes that execute it.
    DivergentWarp,
    /// An `mbarrier` that is not initialised, overflows, or is used against its rules.
    BarrierMisuse,
    /// An operand that the instruction does not allow.
    Operand,
    /// Nothing can advance.
    Deadlock,
    /// The launch ran for more instructions than it was given.
    Endless,
    /// The program executed `trap`.
    Trap,
}

/// Why a launch stopped. The memory stays as it was at that moment and can be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// What went wrong.
    pub kind: FaultKind,
    /// The entry that was launched.
    pub entry: String,
    /// Who did it; `None` if the launch never started.
    pub place: Option<Box<Place>>,
    /// The other party of a race, or the other warps of a deadlock.
    pub others: Vec<Place>,
    /// What happened, in words, with addresses and sizes.
    pub message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in `{}`: {}", self.kind, self.entry, self.message)?;
        if let Some(place) = &self.place {
            write!(f, "\n  at {place}")?;
        }
        for other in &self.others {
            write!(f, "\n  and {other}")?;
        }
        Ok(())
    }
}

/// Why host code cannot have the memory it asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum MemoryError {
    #[error("{bytes} bytes were asked for, {free} are free")]
    OutOfMemory { bytes: u64, free: u64 },
    #[error("alignment {align} is no power of two up to 2^30")]
    Alignment { align: u64 },
    #[error("{ptr:#x} is not the start of an allocation")]
    NotAllocated { ptr: u64 },
    #[error("{bytes} bytes at {ptr:#x} are outside every allocation")]
    OutOfBounds { ptr: u64, bytes: u64 },
    #[error("{bytes} bytes at {ptr:#x} lie in an allocation that was freed")]
    Freed { ptr: u64, bytes: u64 },
}
