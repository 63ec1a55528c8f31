//! Reads and writes of global and shared memory with every check: bounds, initialisation, races.

use super::access::Issue;
use super::cta::{Cta, Warp};
use super::ordering::Toucher;
use super::shared::{Agent, SharedMemory};
use super::space::{Location, Spaces};
use super::{Trouble, World};
use crate::body::SHARED_BASE;
use crate::clock::{Agents, Clock};
use crate::fault::FaultKind;
use crate::global::{Block, GlobalMemory, Miss};

/// Finds a global range, or says what is there instead.
pub(super) fn global(
    memory: &mut GlobalMemory,
    address: u64,
    bytes: u64,
) -> Result<(&mut Block, usize), Trouble> {
    memory.find(address, bytes).map_err(|miss| {
        let (kind, what) = match miss {
            Miss::Outside => (FaultKind::OutOfBounds, "outside every allocation".to_owned()),
            Miss::PastEnd(base, len) => (
                FaultKind::OutOfBounds,
                format!(
                    "{} bytes into the allocation at {base:#x}, which has {len}",
                    address - base
                ),
            ),
            Miss::Freed(base, len) => {
                (FaultKind::Freed, format!("in {len} bytes at {base:#x} that were freed"))
            }
        };
        Trouble::new(kind, format!("{bytes} bytes at global address {address:#x} are {what}"))
    })
}

/// The memory that an instruction of one warp reaches.
pub(super) struct Reach<'m> {
    pub(super) memory: &'m mut GlobalMemory,
    pub(super) shared: &'m mut SharedMemory,
    pub(super) spaces: Spaces,
    pub(super) params: &'m [u8],
    pub(super) agents: Agents,
    pub(super) start: u32,
    pub(super) check_uninitialised: bool,
}

/// Who accesses memory: a warp, or an engine that works for it.
#[derive(Clone, Copy)]
pub(super) struct Who<'c> {
    pub(super) agent: usize,
    pub(super) clock: &'c Clock,
    /// What it knows of others' writes to shared memory.
    pub(super) writes: &'c Clock,
    pub(super) strong: bool,
    pub(super) pc: u32,
}

impl<'c> Who<'c> {
    /// A warp that makes plain accesses.
    pub(super) fn weak(issue: Issue, clock: &'c Clock) -> Who<'c> {
        Who { agent: issue.warp, clock, writes: clock, strong: false, pc: issue.pc }
    }

    pub(super) fn agent(&self) -> Agent<'c> {
        Agent {
            agent: self.agent,
            stamp: self.clock.own[self.agent],
            clock: self.clock,
            writes: self.writes,
            strong: self.strong,
            pc: self.pc,
        }
    }

    fn toucher(&self, (agents, start): (Agents, u32)) -> Toucher<'c> {
        let Who { agent, clock, strong, pc, .. } = *self;
        Toucher { clock, agents, agent, strong, pc, start }
    }
}

pub(super) fn uninitialised(space: &str, address: u64) -> Trouble {
    let message = format!("{space} memory at {address:#x} is read before it was written");
    Trouble::new(FaultKind::Uninitialised, message)
}

impl Reach<'_> {
    /// Reads bytes from global or shared memory, with every check.
    pub(super) fn read(
        &mut self,
        location: Location,
        out: &mut [u8],
        who: &Who<'_>,
    ) -> Result<(), Trouble> {
        let len = out.len();
        match location {
            Location::Global(address) => {
                let (block, offset) = global(self.memory, address, len as u64)?;
                if self.check_uninitialised && !block.is_written(offset, len) {
                    return Err(uninitialised("global", address));
                }
                out.copy_from_slice(block.bytes(offset, len));
                if block.read_only {
                    return Ok(());
                }
                who.toucher((self.agents, self.start)).read(block, offset, len)
            }
            Location::Shared(offset) => {
                self.shared.read(offset, len, &who.agent())?;
                if self.check_uninitialised && !self.shared.is_written(offset, len) {
                    return Err(uninitialised("shared", SHARED_BASE + offset as u64));
                }
                out.copy_from_slice(&self.shared.bytes[offset..offset + len]);
                Ok(())
            }
            Location::Param(offset) => {
                out.copy_from_slice(&self.params[offset..offset + len]);
                Ok(())
            }
            Location::Local(_) => {
                Err(Trouble::new(FaultKind::WrongSpace, "local memory is not allowed here".into()))
            }
        }
    }

    /// Writes bytes to global or shared memory, with every check.
    pub(super) fn write(
        &mut self,
        location: Location,
        bytes: &[u8],
        who: &Who<'_>,
    ) -> Result<(), Trouble> {
        let len = bytes.len();
        match location {
            Location::Global(address) => {
                let (block, offset) = global(self.memory, address, len as u64)?;
                if block.read_only {
                    let message = format!("constant memory at {address:#x} is written");
                    return Err(Trouble::new(FaultKind::ReadOnly, message));
                }
                who.toucher((self.agents, self.start)).write(block, offset, len)?;
                block.bytes_mut(offset, len).copy_from_slice(bytes);
                block.mark_written(offset, len);
                Ok(())
            }
            Location::Shared(offset) => {
                self.shared.write(offset, len, &who.agent())?;
                self.shared.bytes[offset..offset + len].copy_from_slice(bytes);
                self.shared.mark_written(offset, len);
                Ok(())
            }
            Location::Local(_) | Location::Param(_) => {
                let message = "this space cannot be written here".to_owned();
                Err(Trouble::new(FaultKind::WrongSpace, message))
            }
        }
    }
}

/// How large the spaces of a CTA are.
pub(super) fn spaces(world: &World<'_>, cta: &Cta) -> Spaces {
    let setup = world.setup;
    Spaces {
        shared: cta.shared.len(),
        local: u64::from(setup.entry.local_bytes),
        param: setup.launch.params.len() as u64,
    }
}

/// The memory that warp `index` reaches, and the warp.
pub(super) fn reach<'m>(
    world: &'m mut World<'_>,
    cta: &'m mut Cta,
    index: usize,
) -> (Reach<'m>, &'m mut Warp) {
    let spaces = spaces(world, cta);
    let Cta { shared, warps, .. } = cta;
    (reach_parts(world, shared, spaces), &mut warps[index])
}

/// The memory that an engine of a CTA reaches.
pub(super) fn reach_all<'m>(world: &'m mut World<'_>, cta: &'m mut Cta) -> Reach<'m> {
    let spaces = spaces(world, cta);
    reach_parts(world, &mut cta.shared, spaces)
}

fn reach_parts<'m>(
    world: &'m mut World<'_>,
    shared: &'m mut SharedMemory,
    spaces: Spaces,
) -> Reach<'m> {
    let setup = world.setup;
    Reach {
        memory: &mut *world.memory,
        shared,
        spaces,
        params: setup.launch.params,
        agents: Agents { warps: setup.warps() },
        start: setup.start,
        check_uninitialised: setup.config.check_uninitialised,
    }
}
