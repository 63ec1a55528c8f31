//! Which memory an address means.

use super::Trouble;
use crate::body::{LOCAL_BASE, SHARED_BASE};
use crate::fault::FaultKind;
use crate::global::GLOBAL_BASE;
use crate::program::Space;

/// Where shared memory stands among generic addresses.
pub(super) const SHARED_WINDOW: u64 = 0x5000_0000_0000;
/// Where local memory stands among generic addresses.
pub(super) const LOCAL_WINDOW: u64 = 0x6000_0000_0000;
/// Where parameters stand among generic addresses.
pub(super) const PARAM_WINDOW: u64 = 0x4000_0000_0000;
const WINDOW_BYTES: u64 = 1 << 32;

/// What an address means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Global(u64),
    Shared(usize),
    Local(usize),
    Param(usize),
}

/// How large the spaces are that an address may lie in.
#[derive(Clone, Copy)]
pub(super) struct Spaces {
    pub(super) shared: u64,
    pub(super) local: u64,
    pub(super) param: u64,
}

pub(super) fn window(address: u64, start: u64) -> Option<u64> {
    let offset = address.wrapping_sub(start);
    (offset < WINDOW_BYTES).then_some(offset)
}

/// What an address is called in messages.
fn describe(address: u64) -> &'static str {
    match address {
        GLOBAL_BASE.. => "a global address",
        _ if window(address, SHARED_WINDOW).is_some() => "a generic address of shared memory",
        _ if window(address, LOCAL_WINDOW).is_some() => "a generic address of local memory",
        0..SHARED_BASE => "next to null",
        SHARED_BASE..WINDOW_BYTES => "an address inside a small space",
        _ => "an address in no space",
    }
}

impl Spaces {
    fn inside(
        (space, name): (Space, &str),
        address: u64,
        (base, size, bytes): (u64, u64, u64),
    ) -> Result<usize, Trouble> {
        let offset = address.wrapping_sub(base);
        if offset < size && bytes <= size - offset {
            return Ok(offset as usize);
        }
        let kind = match address {
            0..WINDOW_BYTES => FaultKind::OutOfBounds,
            _ => FaultKind::WrongSpace,
        };
        let what = describe(address);
        Err(Trouble::new(
            kind,
            format!(
                "{bytes} bytes at {name} address {address:#x}, which is {what}; {space:?} memory \
                 has {size} bytes from {base:#x}"
            ),
        ))
    }

    pub(super) fn locate(
        self,
        space: Space,
        address: u64,
        bytes: u64,
    ) -> Result<Location, Trouble> {
        let shared = (SHARED_BASE, self.shared, bytes);
        let local = (LOCAL_BASE, self.local, bytes);
        match space {
            Space::Param => {
                let param = (0, self.param, bytes);
                Self::inside((space, "param"), address, param).map(Location::Param)
            }
            Space::Shared => Self::inside((space, "shared"), address, shared).map(Location::Shared),
            Space::Local => Self::inside((space, "local"), address, local).map(Location::Local),
            Space::Global | Space::Const if address < GLOBAL_BASE => {
                let kind = match address {
                    0..SHARED_BASE => FaultKind::OutOfBounds,
                    _ => FaultKind::WrongSpace,
                };
                let what = describe(address);
                let message = format!("{bytes} bytes at global address {address:#x}: it is {what}");
                Err(Trouble::new(kind, message))
            }
            Space::Global | Space::Const => Ok(Location::Global(address)),
            Space::Generic => {
                if let Some(address) = window(address, SHARED_WINDOW) {
                    return Self::inside((Space::Shared, "shared"), address, shared)
                        .map(Location::Shared);
                }
                if let Some(address) = window(address, LOCAL_WINDOW) {
                    return Self::inside((Space::Local, "local"), address, local)
                        .map(Location::Local);
                }
                if let Some(address) = window(address, PARAM_WINDOW) {
                    return self.locate(Space::Param, address, bytes);
                }
                self.locate(Space::Global, address, bytes)
            }
        }
    }
}

pub(super) fn aligned(address: u64, bytes: u64) -> Result<(), Trouble> {
    if address.is_multiple_of(bytes) {
        return Ok(());
    }
    let message = format!("address {address:#x} is no multiple of the access's {bytes} bytes");
    Err(Trouble::new(FaultKind::Misaligned, message))
}
