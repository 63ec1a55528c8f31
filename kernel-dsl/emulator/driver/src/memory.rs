//! Device memory's accounts: what is allocated where, how much is left, and whose pool it is.

use crate::code::{Code, Outcome, ensure};
use crate::handles::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Memory is given out in multiples of this, so that small allocations use it up as they do on a
/// device.
pub(crate) const GRANULE: u64 = 512;

/// One live allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) bytes: u64,
    pub(crate) context: u64,
    /// The pool it came from, if it was allocated in order of a stream.
    pub(crate) pool: Option<u64>,
    /// Somebody asked to free it, and its stream has not got there.
    pub(crate) freeing: bool,
    /// A number that no other allocation has, as addresses may come back.
    pub(crate) id: u64,
}

/// The accounts of one device.
pub(crate) struct Ledger {
    total: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    used: u64,
    next_id: u64,
    live: BTreeMap<u64, Allocation>,
}

fn rounded(bytes: u64) -> u64 {
    bytes.saturating_add(GRANULE - 1) / GRANULE * GRANULE
}

impl Ledger {
    pub(crate) fn new(total: u64) -> Self {
        Self { total, state: Mutex::new(State::default()) }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn available(&self) -> u64 {
        self.total - lock(&self.state).used
    }

    /// Takes memory from the account and then from `allocate`, which says where it lies.
    pub(crate) fn add(
        &self,
        owner: (u64, Option<u64>),
        bytes: u64,
        allocate: impl FnOnce(u64) -> Option<u64>,
    ) -> Outcome<u64> {
        ensure(bytes > 0, Code::ERROR_INVALID_VALUE)?;
        let mut state = lock(&self.state);
        let room = self.total - state.used;
        ensure(bytes <= room && rounded(bytes) <= room, Code::ERROR_OUT_OF_MEMORY)?;
        let pointer = allocate(bytes).ok_or(Code::ERROR_OUT_OF_MEMORY)?;
        state.used += rounded(bytes);
        state.next_id += 1;
        let (context, pool) = owner;
        let allocation = Allocation { bytes, context, pool, freeing: false, id: state.next_id };
        state.live.insert(pointer, allocation);
        Ok(pointer)
    }

    /// The allocation that `pointer` points into, and where it begins.
    pub(crate) fn find(&self, pointer: u64) -> Option<(u64, Allocation)> {
        let state = lock(&self.state);
        let (base, allocation) = state.live.range(..=pointer).next_back()?;
        (pointer - base < allocation.bytes).then(|| (*base, allocation.clone()))
    }

    /// An error unless all of `bytes` from `pointer` on lie in one allocation that nobody frees.
    pub(crate) fn check(&self, pointer: u64, bytes: u64) -> Outcome {
        let (base, allocation) = self.find(pointer).ok_or(Code::ERROR_INVALID_VALUE)?;
        let inside = bytes <= allocation.bytes - (pointer - base);
        ensure(inside && !allocation.freeing, Code::ERROR_INVALID_VALUE)
    }

    /// Marks an allocation as about to be freed; nobody may free it a second time.
    pub(crate) fn begin_free(&self, pointer: u64) -> Outcome {
        let mut state = lock(&self.state);
        let allocation = state.live.get_mut(&pointer).ok_or(Code::ERROR_INVALID_VALUE)?;
        ensure(!allocation.freeing, Code::ERROR_INVALID_VALUE)?;
        allocation.freeing = true;
        Ok(())
    }

    /// Gives an allocation's memory back to the account.
    pub(crate) fn remove(&self, pointer: u64) {
        let mut state = lock(&self.state);
        if let Some(allocation) = state.live.remove(&pointer) {
            state.used -= rounded(allocation.bytes);
        }
    }

    /// Where the allocations of a context begin.
    pub(crate) fn of_context(&self, context: u64) -> Vec<u64> {
        let state = lock(&self.state);
        let owned = state.live.iter().filter(|(_, a)| a.context == context);
        owned.map(|(pointer, _)| *pointer).collect()
    }

    /// Bytes that are allocated from a pool.
    pub(crate) fn of_pool(&self, pool: u64) -> u64 {
        let state = lock(&self.state);
        let owned = state.live.values().filter(|a| a.pool == Some(pool));
        owned.map(|a| rounded(a.bytes)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_runs_out_and_comes_back() {
        let ledger = Ledger::new(2048);
        assert_eq!(ledger.add((1, None), 0, |_| Some(4096)), Err(Code::ERROR_INVALID_VALUE));
        assert_eq!(ledger.add((1, None), 513, |_| Some(4096)), Ok(4096));
        assert_eq!(ledger.available(), 1024);
        assert_eq!(ledger.add((1, None), 1025, |_| Some(9000)), Err(Code::ERROR_OUT_OF_MEMORY));
        assert_eq!(ledger.add((1, None), u64::MAX, |_| Some(9000)), Err(Code::ERROR_OUT_OF_MEMORY));
        ledger.remove(4096);
        assert_eq!(ledger.available(), 2048);
    }

    #[test]
    fn ranges_are_held_to_one_allocation() {
        let ledger = Ledger::new(1 << 20);
        assert_eq!(ledger.add((1, Some(7)), 100, |_| Some(4096)), Ok(4096));
        assert_eq!(ledger.check(4096, 100), Ok(()));
        assert_eq!(ledger.check(4100, 96), Ok(()));
        for (pointer, bytes) in [(4096, 101), (4195, 2), (4196, 1), (4095, 1), (0, 1)] {
            assert_eq!(ledger.check(pointer, bytes), Err(Code::ERROR_INVALID_VALUE), "{pointer}");
        }
        assert_eq!(ledger.of_pool(7), 512);
        assert_eq!(ledger.begin_free(4097), Err(Code::ERROR_INVALID_VALUE));
        assert_eq!(ledger.begin_free(4096), Ok(()));
        assert_eq!(ledger.begin_free(4096), Err(Code::ERROR_INVALID_VALUE));
        assert_eq!(ledger.check(4096, 1), Err(Code::ERROR_INVALID_VALUE));
    }
}
