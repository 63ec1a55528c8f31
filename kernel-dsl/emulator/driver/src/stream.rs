//! Streams: in which order work is queued, and what waits for what.

use crate::code::{Code, Outcome, ensure};
use crate::driver::Driver;
use crate::handles::lock;
use crate::lane::{Lane, Ticket, Waits};
use crate::settings::Site;
use crate::work::{Core, Step, Work};
use std::sync::Arc;

/// How a stream stands to its context's default stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// It is the default stream: it waits for all blocking ones, and they for it.
    Legacy,
    Blocking,
    NonBlocking,
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) id: u64,
    pub(crate) core: Arc<Core>,
    pub(crate) order: Order,
    pub(crate) priority: i32,
    pub(crate) lane: Arc<Lane>,
}

/// Handles with a meaning of their own.
const LEGACY: u64 = 1;
const PER_THREAD: u64 = 2;
pub(crate) const PRIORITIES: (i32, i32) = (0, -5);

impl Driver {
    pub(crate) fn new_stream(&self, core: &Arc<Core>, order: Order, priority: i32) -> Arc<Stream> {
        let lane = Lane::new(core.clone(), self.calls.clone());
        let (least, greatest) = PRIORITIES;
        let priority = priority.clamp(greatest, least);
        self.streams.insert(|id| Stream { id, core: core.clone(), order, priority, lane }).1
    }

    /// The stream that a handle names, whatever state its context is in.
    pub(crate) fn stream_any(&self, handle: u64) -> Outcome<Arc<Stream>> {
        match handle {
            0 | LEGACY => Ok(self.current_any()?.legacy(self)),
            PER_THREAD => Ok(self.current_any()?.per_thread(self)),
            _ => self.streams.find(handle),
        }
    }

    /// The stream that a handle names, if its context still works.
    pub(crate) fn stream(&self, handle: u64) -> Outcome<Arc<Stream>> {
        let stream = self.stream_any(handle)?;
        stream.core.check()?;
        Ok(stream)
    }

    /// Queues a step, or adds it to the graph that the stream is captured into: then there is no
    /// ticket, as nothing runs.
    pub(crate) fn issue(&self, stream: &Arc<Stream>, step: Step) -> Outcome<Option<Ticket>> {
        if self.capture(stream, &step)? {
            return Ok(None);
        }
        let planned = match &step {
            Step::Kernel(_) => self.count(Site::Launch),
            Step::Copy(_) => self.count(Site::Copy),
            _ => None,
        };
        Ok(Some(self.queue(stream, Vec::new(), Work::Step(step, planned))))
    }

    /// Queues a step and waits until it is done.
    pub(crate) fn issue_and_wait(&self, stream: &Arc<Stream>, step: Step) -> Outcome {
        if let Some(ticket) = self.issue(stream, step)? {
            ticket.wait_in_call(Waits::Copy);
        }
        stream.core.check()
    }

    /// Queues work behind `waits` and what the default stream's order demands.
    pub(crate) fn queue(&self, stream: &Arc<Stream>, mut waits: Vec<Ticket>, work: Work) -> Ticket {
        let others = |order: Order| {
            let streams = self.streams_of(&stream.core).into_iter();
            streams.filter(move |other| other.order == order).map(|other| other.lane.last())
        };
        match stream.order {
            Order::Legacy => waits.extend(others(Order::Blocking)),
            Order::Blocking => waits.extend(others(Order::Legacy)),
            Order::NonBlocking => {}
        }
        waits.retain(|ticket| !ticket.is_done());
        stream.lane.push(waits, work)
    }

    /// Waits for a stream's work.
    pub(crate) fn synchronize_stream(&self, stream: &Stream) -> Outcome {
        lock(&self.captures).refuse_in_stream(stream)?;
        stream.lane.last().wait_in_call(Waits::Stream);
        stream.core.check()
    }

    pub(crate) fn query_stream(&self, stream: &Stream) -> Outcome {
        lock(&self.captures).refuse_in_stream(stream)?;
        let done = stream.lane.last().is_done();
        stream.core.check()?;
        ensure(done, Code::ERROR_NOT_READY)
    }

    /// Destroys a stream; what it has queued is still done.
    pub(crate) fn destroy_stream(&self, handle: u64) -> Outcome {
        let stream = self.streams.find(handle)?;
        ensure(stream.order != Order::Legacy, Code::ERROR_INVALID_HANDLE)?;
        lock(&self.captures).leave(stream.id);
        self.streams.remove(handle)?;
        stream.lane.close();
        Ok(())
    }
}
