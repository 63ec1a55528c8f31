//! Handles: numbers that name live objects. A stale or foreign one finds nothing, so that it is an
//! error and never a wild pointer.

use crate::code::{Code, Outcome};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a handle names. Part of its number, so that a handle of another kind is never mistaken.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Context = 1,
    Stream,
    Event,
    Module,
    Function,
    Graph,
    Node,
    GraphExec,
    Pool,
}

/// The live objects of one kind. A number is given out once.
pub(crate) struct Handles<T> {
    kind: Kind,
    entries: Mutex<(u64, BTreeMap<u64, Arc<T>>)>,
}

/// Locks even if a thread panicked while it held the lock: a panic is reported as an error of its
/// call, and each structure here is consistent between statements.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Handles<T> {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { kind, entries: Mutex::new((0, BTreeMap::new())) }
    }

    /// Adds what `make` makes of its handle. The number is no canonical address, so that whoever
    /// takes it for a pointer faults at once.
    pub(crate) fn insert(&self, make: impl FnOnce(u64) -> T) -> (u64, Arc<T>) {
        let mut entries = lock(&self.entries);
        entries.0 += 1;
        let handle = ((self.kind as u64) << 56) | (1 << 52) | (entries.0 << 4);
        let object = Arc::new(make(handle));
        entries.1.insert(handle, object.clone());
        (handle, object)
    }

    pub(crate) fn find(&self, handle: u64) -> Outcome<Arc<T>> {
        lock(&self.entries).1.get(&handle).cloned().ok_or(Code::ERROR_INVALID_HANDLE)
    }

    pub(crate) fn remove(&self, handle: u64) -> Outcome<Arc<T>> {
        lock(&self.entries).1.remove(&handle).ok_or(Code::ERROR_INVALID_HANDLE)
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        lock(&self.entries).1.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_handle_is_never_found_again() {
        let handles = Handles::new(Kind::Event);
        let (first, _) = handles.insert(|_| 1);
        assert_eq!(handles.find(first).map(|n| *n), Ok(1));
        assert!(handles.remove(first).is_ok());
        let (second, _) = handles.insert(|_| 2);
        assert_ne!(first, second);
        assert_eq!(handles.find(first), Err(Code::ERROR_INVALID_HANDLE));
        assert_eq!(handles.remove(first), Err(Code::ERROR_INVALID_HANDLE));
    }

    #[test]
    fn kinds_do_not_share_numbers() {
        let (events, streams) = (Handles::new(Kind::Event), Handles::<u8>::new(Kind::Stream));
        let (event, _) = events.insert(|_| 1u8);
        assert!(streams.find(event).is_err());
    }
}
