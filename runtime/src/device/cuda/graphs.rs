//! Launches that a pool asks for again and again, recorded so that one call repeats them.
//!
//! A recording holds addresses, so it stands while scratch memory stays where it is. The first time
//! a key is seen its launches run one by one, which loads their kernels and grows scratch memory;
//! the second time they are recorded.

use super::ffi::Graph;
use crate::device::PlanKey;
use std::collections::HashMap;

/// Recordings kept at most; the one used longest ago goes first.
const MAX_GRAPHS: usize = 256;

/// What one recording is for: the caller's key, and the parts that attention comes in.
pub(super) type Key = (PlanKey, usize);

/// Recordings by key.
#[derive(Debug, Default)]
pub(super) struct Graphs {
    entries: HashMap<Key, Entry>,
    /// Of the scratch memory that recordings know.
    generation: u64,
    time: u64,
}

#[derive(Debug)]
struct Entry {
    graph: Option<Graph>,
    used: u64,
}

/// What to do with a plan.
#[derive(Debug)]
pub(super) enum Next<'a> {
    /// Launch one by one.
    Run,
    /// Record, then repeat.
    Record,
    /// Repeat.
    Repeat(&'a Graph),
}

impl Graphs {
    /// What to do with the launches of a key, with scratch memory of this generation.
    pub(super) fn next(&mut self, key: Key, generation: u64) -> Next<'_> {
        if self.generation != generation {
            self.entries.clear();
            self.generation = generation;
        }
        self.time += 1;
        if !self.entries.contains_key(&key) {
            self.make_room();
            self.entries.insert(key, Entry { graph: None, used: self.time });
            return Next::Run;
        }
        let entry = self.entries.get_mut(&key).expect("looked up above");
        entry.used = self.time;
        match &entry.graph {
            Some(graph) => Next::Repeat(graph),
            None => Next::Record,
        }
    }

    /// Keeps a recording.
    pub(super) fn insert(&mut self, key: Key, graph: Graph) {
        self.entries.insert(key, Entry { graph: Some(graph), used: self.time });
    }

    /// Recordings there are.
    pub(super) fn len(&self) -> usize {
        self.entries.values().filter(|entry| entry.graph.is_some()).count()
    }

    fn make_room(&mut self) {
        if self.entries.len() < MAX_GRAPHS {
            return;
        }
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key);
        oldest.map(|key| self.entries.remove(&key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_run(graphs: &mut Graphs, tokens: usize, generation: u64) -> bool {
        matches!(graphs.next((PlanKey([tokens, 1, 1, 0]), 1), generation), Next::Run)
    }

    #[test]
    fn the_second_use_records() {
        let mut graphs = Graphs::default();
        assert!(is_run(&mut graphs, 4, 0));
        assert!(!is_run(&mut graphs, 4, 0));
        assert!(is_run(&mut graphs, 5, 0));
        // Scratch memory moved: what was seen counts no more.
        assert!(is_run(&mut graphs, 4, 1));
    }

    #[test]
    fn the_one_used_longest_ago_goes() {
        let mut graphs = Graphs::default();
        for tokens in 0..MAX_GRAPHS {
            assert!(is_run(&mut graphs, tokens, 0));
        }
        assert!(!is_run(&mut graphs, 0, 0));
        assert!(is_run(&mut graphs, MAX_GRAPHS, 0));
        assert!(!is_run(&mut graphs, 0, 0));
        assert!(is_run(&mut graphs, 1, 0));
    }
}
