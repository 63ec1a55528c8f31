//! Events: points of a stream that others wait for and measure between.

use crate::code::{Code, Outcome, ensure};
use crate::driver::Driver;
use crate::handles::lock;
use crate::lane::{Ticket, Waits};
use crate::stream::Stream;
use crate::work::{Core, Step, Work};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Flags of an event that is never measured.
const DISABLE_TIMING: u32 = 2;
/// Flag of a record or wait that stays a node of the captured graph.
const EXTERNAL: u32 = 1;

/// An event.
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) core: Arc<Core>,
    pub(crate) flags: u32,
    state: Mutex<State>,
}

/// What an event was recorded at last.
#[derive(Clone)]
pub(crate) enum State {
    Fresh,
    /// By a stream or a graph's launch; the virtual time will be in the number.
    Recorded(Ticket, Arc<AtomicU64>),
    /// In a capture, after these nodes.
    Captured(u64, Vec<u64>),
}

impl Event {
    pub(crate) fn state(&self) -> State {
        lock(&self.state).clone()
    }

    pub(crate) fn set(&self, state: State) {
        *lock(&self.state) = state;
    }

    /// What somebody who waits for the event now has to wait for.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match self.state() {
            State::Recorded(ticket, _) => Some(ticket),
            State::Fresh | State::Captured(..) => None,
        }
    }

    fn time_ns(&self) -> Outcome<u64> {
        ensure(self.flags & DISABLE_TIMING == 0, Code::ERROR_INVALID_HANDLE)?;
        match self.state() {
            State::Fresh => Err(Code::ERROR_INVALID_HANDLE),
            State::Captured(..) => Err(Code::ERROR_CAPTURED_EVENT),
            State::Recorded(ticket, time) => {
                ensure(ticket.is_done(), Code::ERROR_NOT_READY)?;
                Ok(time.load(Ordering::Acquire))
            }
        }
    }
}

impl Driver {
    pub(crate) fn new_event(&self, core: Arc<Core>, flags: u32) -> Outcome<u64> {
        ensure(flags & !7 == 0, Code::ERROR_INVALID_VALUE)?;
        // An event for other processes must not be measured; and there are no other processes.
        ensure(flags & 4 == 0, Code::ERROR_NOT_SUPPORTED)?;
        let make = |id| Event { id, core, flags, state: Mutex::new(State::Fresh) };
        Ok(self.events.insert(make).0)
    }

    pub(crate) fn event(&self, handle: u64) -> Outcome<Arc<Event>> {
        let event = self.events.find(handle)?;
        event.core.check()?;
        Ok(event)
    }

    pub(crate) fn record(&self, event: &Arc<Event>, stream: &Arc<Stream>, flags: u32) -> Outcome {
        ensure(flags & !EXTERNAL == 0, Code::ERROR_INVALID_VALUE)?;
        ensure(event.core.id == stream.core.id, Code::ERROR_INVALID_HANDLE)?;
        if flags == EXTERNAL {
            let captured = self.capture(stream, &Step::Record(event.clone()))?;
            // Outside of a capture the flag has nothing to say.
            if captured {
                return Ok(());
            }
        }
        if let Some((capture, tips)) = lock(&self.captures).tips(stream)? {
            event.set(State::Captured(capture, tips));
            return Ok(());
        }
        let time = Arc::new(AtomicU64::new(0));
        let ticket = self.queue(stream, Vec::new(), Work::Stamp(time.clone()));
        event.set(State::Recorded(ticket, time));
        Ok(())
    }

    pub(crate) fn wait_event(
        &self,
        stream: &Arc<Stream>,
        event: &Arc<Event>,
        flags: u32,
    ) -> Outcome {
        ensure(flags & !EXTERNAL == 0, Code::ERROR_INVALID_VALUE)?;
        if flags == EXTERNAL && self.capture(stream, &Step::Wait(event.clone()))? {
            return Ok(());
        }
        let state = event.state();
        if lock(&self.captures).wait(stream, &state)? {
            return Ok(());
        }
        if let State::Recorded(ticket, _) = state {
            self.queue(stream, vec![ticket], Work::Nothing);
        }
        Ok(())
    }

    /// What the host has to wait for; asking a captured event ruins its capture.
    fn host_ticket(&self, event: &Event) -> Outcome<Option<Ticket>> {
        if let State::Captured(capture, _) = event.state() {
            lock(&self.captures).invalidate(capture);
            return Err(Code::ERROR_CAPTURED_EVENT);
        }
        Ok(event.ticket())
    }

    pub(crate) fn query_event(&self, event: &Event) -> Outcome {
        let ticket = self.host_ticket(event)?;
        self.refuse_unsafe()?;
        let done = ticket.is_none_or(|ticket| ticket.is_done());
        event.core.check()?;
        ensure(done, Code::ERROR_NOT_READY)
    }

    pub(crate) fn synchronize_event(&self, event: &Event) -> Outcome {
        let ticket = self.host_ticket(event)?;
        self.refuse_unsafe()?;
        if let Some(ticket) = ticket {
            ticket.wait_in_call(Waits::Event);
        }
        event.core.check()
    }
}

/// Milliseconds of virtual time between two events.
pub(crate) fn elapsed_ms(start: &Event, end: &Event) -> Outcome<f32> {
    ensure(start.core.id == end.core.id, Code::ERROR_INVALID_HANDLE)?;
    let (start, end) = (start.time_ns()?, end.time_ns()?);
    #[expect(clippy::cast_precision_loss, reason = "the interface wants milliseconds as a float")]
    let ns = (i128::from(end) - i128::from(start)) as f64;
    #[expect(clippy::cast_possible_truncation, reason = "the interface wants a float of 32 bits")]
    Ok((ns / 1e6) as f32)
}
