//! Queues of work, each with a thread that does it in order: what makes streams asynchronous.
//!
//! A [`Ticket`] names a piece of work by queue and number. Work may wait for tickets of other
//! queues; tickets exist only for work that was queued before, so waiting cannot go in a circle.
//! With a latency set, work is held back until that many driver calls were made or somebody waits
//! for it: a program that forgets to wait meets unfinished work every time, not now and then.

use crate::code::log;
use crate::handles::lock;
use crate::work::{Core, Work};
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

/// Counts driver calls and lets work go that waited for them; tells of calls in which the program waits.
pub(crate) struct Calls {
    count: AtomicU64,
    latency: u64,
    lanes: Mutex<Vec<Weak<Lane>>>,
    waits: Option<Mutex<File>>,
}

/// What a program waits for in a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Waits {
    Event,
    Stream,
    Context,
    Copy,
}

impl Calls {
    pub(crate) fn new(latency: u64, waits: Option<File>) -> Arc<Self> {
        let (count, lanes) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        Arc::new(Self { count, latency, lanes, waits: waits.map(Mutex::new) })
    }

    /// The program begins to wait, with that much work queued behind what it waits for.
    fn note(&self, waits: Waits, behind: u64) {
        let Some(file) = &self.waits else { return };
        // The name as the system has it: the program's standard library is not this library's.
        let thread = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
        let thread = thread.trim_end();
        let line =
            format!("{{\"wait\":\"{waits:?}\",\"thread\":{thread:?},\"behind\":{behind}}}\n");
        if let Err(error) = lock(file).write_all(line.as_bytes()) {
            log(format_args!("a wait cannot be written: {error}"));
        }
    }

    /// A call of the driver was made.
    pub(crate) fn tick(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if self.latency > 0 {
            let lanes: Vec<Arc<Lane>> =
                lock(&self.lanes).iter().filter_map(Weak::upgrade).collect();
            for lane in lanes {
                let _state = lock(&lane.state);
                lane.changed.notify_all();
            }
        }
    }

    fn now(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
}

/// One queue and its thread.
pub(crate) struct Lane {
    core: Arc<Core>,
    calls: Arc<Calls>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Task>,
    submitted: u64,
    completed: u64,
    /// Work up to this number is wanted now, whatever the latency.
    demanded: u64,
    running: bool,
    closed: bool,
    /// Virtual time at the end of the last completed work, in nanoseconds.
    clock_ns: u64,
}

struct Task {
    waits: Vec<Ticket>,
    work: Work,
    ready_at: u64,
}

/// A piece of work that was queued.
#[derive(Clone)]
pub(crate) struct Ticket {
    lane: Arc<Lane>,
    number: u64,
}

impl Ticket {
    pub(crate) fn is_done(&self) -> bool {
        lock(&self.lane.state).completed >= self.number
    }

    /// Waits for the work in a call of the program, which is told where waits are.
    pub(crate) fn wait_in_call(&self, waits: Waits) {
        let behind = lock(&self.lane.state).submitted - self.number;
        self.lane.calls.note(waits, behind);
        self.wait();
    }

    /// Waits for the work; the virtual time at which it, or work after it, ended.
    pub(crate) fn wait(&self) -> u64 {
        let mut state = lock(&self.lane.state);
        state.demanded = state.demanded.max(self.number);
        self.lane.changed.notify_all();
        while state.completed < self.number {
            state = self.lane.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.clock_ns
    }
}

impl Lane {
    pub(crate) fn new(core: Arc<Core>, calls: Arc<Calls>) -> Arc<Self> {
        let state = Mutex::new(State::default());
        let lane = Arc::new(Self { core, calls, state, changed: Condvar::new() });
        if lane.calls.latency > 0 {
            let mut lanes = lock(&lane.calls.lanes);
            lanes.retain(|known| known.strong_count() > 0);
            lanes.push(Arc::downgrade(&lane));
        }
        lane
    }

    /// Queues work behind what is queued already and behind `waits`.
    pub(crate) fn push(self: &Arc<Self>, waits: Vec<Ticket>, work: Work) -> Ticket {
        let ready_at = self.calls.now() + self.calls.latency;
        let mut state = lock(&self.state);
        state.submitted += 1;
        state.queue.push_back(Task { waits, work, ready_at });
        if !state.running {
            state.running = true;
            let lane = self.clone();
            std::thread::spawn(move || lane.run());
        }
        self.changed.notify_all();
        Ticket { lane: self.clone(), number: state.submitted }
    }

    /// The ticket of what was queued last.
    pub(crate) fn last(self: &Arc<Self>) -> Ticket {
        Ticket { lane: self.clone(), number: lock(&self.state).submitted }
    }

    /// No more work will come: the thread ends when the queue is empty.
    pub(crate) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    fn run(&self) {
        while let Some((task, mut now_ns)) = self.next() {
            for ticket in &task.waits {
                now_ns = now_ns.max(ticket.wait());
            }
            let cost_ns = self.core.perform(&task.work, now_ns);
            // What the work holds is let go before anybody learns that it is complete.
            drop(task);
            let mut state = lock(&self.state);
            state.completed += 1;
            state.clock_ns = now_ns + cost_ns;
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<(Task, u64)> {
        let mut state = lock(&self.state);
        loop {
            let wanted = state.closed || state.demanded > state.completed;
            let ready = |task: &Task| wanted || self.calls.now() >= task.ready_at;
            if state.queue.front().is_some_and(ready) {
                let clock_ns = state.clock_ns;
                return state.queue.pop_front().map(|task| (task, clock_ns));
            }
            if state.closed && state.queue.is_empty() {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
