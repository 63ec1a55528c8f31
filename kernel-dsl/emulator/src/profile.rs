//! What a launch did, counted: the numbers that a reader of a kernel wants to see beside it.

use crate::program::{Class, Module};
use std::collections::BTreeMap;
use std::ops::AddAssign;

/// Counts of one instruction, one source line or one launch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Instructions issued by warps.
    pub warp_instructions: u64,
    /// The same, counted for each lane that took part.
    pub lane_instructions: u64,
    /// Bytes that lanes asked of global memory.
    pub global_bytes: u64,
    /// Sectors of 32 bytes that this took.
    pub global_sectors: u64,
    /// Bytes that lanes asked of shared memory.
    pub shared_bytes: u64,
    /// Passes over shared memory beyond those that the bytes need.
    pub shared_conflicts: u64,
    /// Tensor-core operations of a warp; those of `wgmma` count once for each eight columns, as
    /// `mma.sync` would.
    pub mma: u64,
    /// Barriers of a CTA that warps came to.
    pub barriers: u64,
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        self.warp_instructions += other.warp_instructions;
        self.lane_instructions += other.lane_instructions;
        self.global_bytes += other.global_bytes;
        self.global_sectors += other.global_sectors;
        self.shared_bytes += other.shared_bytes;
        self.shared_conflicts += other.shared_conflicts;
        self.mma += other.mma;
        self.barriers += other.barriers;
    }
}

impl Counts {
    /// Bytes used of the bytes that global accesses moved; 1 is best.
    #[must_use]
    pub fn coalescing(&self) -> f64 {
        match self.global_sectors {
            0 => 1.0,
            sectors => self.global_bytes as f64 / (sectors as f64 * 32.0),
        }
    }
}

/// Counts of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// File and line of the source, if `.loc` gave one.
    pub source: Option<(String, u32)>,
    /// First line of the PTX text that belongs to it.
    pub ptx_line: u32,
    /// What was counted.
    pub counts: Counts,
}

/// What a launch did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The entry.
    pub entry: String,
    /// CTAs that ran.
    pub ctas: u64,
    /// Sums over everything.
    pub total: Counts,
    /// Warp instructions of each class.
    pub classes: BTreeMap<Class, u64>,
    /// The same counts for each source line, or each PTX line where `.loc` says nothing.
    pub lines: Vec<Line>,
}

impl Profile {
    /// Sums what was counted for each instruction.
    pub(crate) fn collect(module: &Module, entry: &crate::Entry, counts: &[Counts]) -> Profile {
        let mut profile = Profile { entry: entry.name.clone(), ..Profile::default() };
        let mut lines: BTreeMap<(Option<u32>, u32), usize> = BTreeMap::new();
        for (instr, counts) in entry.code.iter().zip(counts) {
            if counts.warp_instructions == 0 {
                continue;
            }
            profile.total += counts;
            *profile.classes.entry(instr.class).or_default() += counts.warp_instructions;
            let key = (instr.source, if instr.source.is_some() { 0 } else { instr.line });
            let index = *lines.entry(key).or_insert_with(|| {
                profile.lines.push(Line {
                    source: instr.source.and_then(|source| module.source(source)),
                    ptx_line: instr.line,
                    counts: Counts::default(),
                });
                profile.lines.len() - 1
            });
            profile.lines[index].counts += counts;
        }
        profile
    }
}
