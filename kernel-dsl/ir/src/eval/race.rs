//! Who touched which element: programs of a launch may not depend on each other.

use crate::types::Elem;
use std::ops::Range;

/// What a program does to an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deed {
    Read,
    Write,
    Update,
}

impl Deed {
    const fn does(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Update => "updates",
        }
    }

    const fn did(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "wrote",
            Self::Update => "updated",
        }
    }
}

const NOBODY: u32 = 0;
const MANY: u32 = u32::MAX;

/// The programs that touched each element: nobody, one (its number + 1), or many.
///
/// Elements below a byte share the entry of their byte, since a store rewrites whole bytes.
#[derive(Debug)]
pub(super) struct Shadow {
    per_entry: usize,
    read: Vec<u32>,
    written: Vec<u32>,
    updated: Vec<u32>,
}

impl Shadow {
    pub(super) fn new(len: usize, elem: Elem) -> Self {
        let per_entry = match elem {
            Elem::Stored(element) if 8 % element.bits() == 0 => 8 / element.bits(),
            _ => 1,
        };
        let entries = || vec![NOBODY; len.div_ceil(per_entry)];
        Self { per_entry, read: entries(), written: entries(), updated: entries() }
    }

    /// Notes a deed, or says which element of the range it conflicts at, and with what.
    pub(super) fn note(
        &mut self,
        range: Range<usize>,
        deed: Deed,
        program: u32,
    ) -> Result<(), (usize, &'static str, String, &'static str)> {
        let me = program + 1;
        let start = range.start;
        for at in range {
            let entry = at / self.per_entry;
            let clash = [
                (Deed::Write, self.written[entry], true),
                (Deed::Update, self.updated[entry], deed != Deed::Update),
                (Deed::Read, self.read[entry], deed != Deed::Read),
            ];
            let foreign =
                |&(_, who, matters): &(Deed, u32, bool)| matters && who != NOBODY && who != me;
            if let Some(&(did, who, _)) = clash.iter().find(|clash| foreign(clash)) {
                return Err((at - start, deed.does(), name(who), did.did()));
            }
            let entries = match deed {
                Deed::Read => &mut self.read,
                Deed::Write => &mut self.written,
                Deed::Update => &mut self.updated,
            };
            let known = &mut entries[entry];
            *known = if *known == NOBODY || *known == me { me } else { MANY };
        }
        Ok(())
    }
}

/// How an error names the other program.
fn name(who: u32) -> String {
    if who == MANY { "other programs".to_owned() } else { format!("program #{}", who - 1) }
}
