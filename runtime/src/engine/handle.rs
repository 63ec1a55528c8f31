//! The way into a running engine: submit, abort, inject a fault, drain.

use super::info::{EngineInfo, EngineMetrics};
use crate::request::{GenerateEvent, GenerateRequest, RequestError, RequestId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Where a request's events go.
pub type EventSink = UnboundedSender<GenerateEvent>;

/// What the engine is told.
#[derive(Debug)]
pub enum Command {
    /// Start a request.
    Submit {
        /// Its id, unique for the life of the process.
        id: RequestId,
        /// What to generate.
        request: GenerateRequest,
        /// Who hears of it.
        events: EventSink,
    },
    /// End a request, whatever its state; unknown and ended ids are no error.
    Abort(RequestId),
    /// Do damage on purpose, to prove that it is found.
    Inject(Fault),
    /// Finish what runs, refuse what comes; the engine ends when nothing is left.
    Drain,
}

/// Damage done on purpose (`--fault-injection` only), to the next request that reaches the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Points an entry of a running request's page table at another page.
    PageTableEntry,
    /// Changes the tag of a page of a running request.
    PageTag,
    /// Flips a bit of a page on its way between the pools.
    PageInFlight,
}

/// Delivers a command; false if no engine listens any more.
type Deliver = dyn Fn(Command) -> bool + Send + Sync;

/// What a request says, in order. Dropping it aborts the request.
pub struct Events {
    id: RequestId,
    receiver: UnboundedReceiver<GenerateEvent>,
    engine: Weak<Deliver>,
    is_ended: bool,
}

impl Events {
    /// The next event, awaited; `None` after the last.
    pub async fn recv(&mut self) -> Option<GenerateEvent> {
        std::future::poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`Events::recv`], for code that is not asynchronous.
    pub fn blocking_recv(&mut self) -> Option<GenerateEvent> {
        let event = self.receiver.blocking_recv();
        self.note(event)
    }

    /// As [`Events::recv`], once.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<GenerateEvent>> {
        self.receiver.poll_recv(cx).map(|event| self.note(event))
    }

    fn note(&mut self, event: Option<GenerateEvent>) -> Option<GenerateEvent> {
        self.is_ended |= !matches!(event, Some(GenerateEvent::Token(_)));
        event
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        if let (false, Some(send)) = (self.is_ended, self.engine.upgrade()) {
            send(Command::Abort(self.id));
        }
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A cheap handle on an engine; every clone reaches the same one. When the last is dropped the
/// engine finishes what runs and ends, as after [`EngineHandle::drain`].
#[derive(Clone)]
pub struct EngineHandle {
    send: Arc<Deliver>,
    next_id: Arc<AtomicU64>,
    info: Arc<EngineInfo>,
    metrics: Arc<EngineMetrics>,
}

impl EngineHandle {
    /// A handle on an engine (or a scripted stand-in) that `info` describes. `send` delivers a
    /// command and says whether anyone still listens.
    pub fn new(
        send: impl Fn(Command) -> bool + Send + Sync + 'static,
        info: EngineInfo,
        metrics: Arc<EngineMetrics>,
    ) -> Self {
        let next_id = Arc::new(AtomicU64::new(1));
        Self { send: Arc::new(send), next_id, info: Arc::new(info), metrics }
    }

    /// Starts a request.
    ///
    /// # Errors
    /// [`RequestError::EngineDied`] if no engine listens any more.
    pub fn submit(&self, request: GenerateRequest) -> Result<(RequestId, Events), RequestError> {
        let id = RequestId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let (events, receiver) = unbounded_channel();
        self.send(Command::Submit { id, request, events })?;
        let engine = Arc::downgrade(&self.send);
        Ok((id, Events { id, receiver, engine, is_ended: false }))
    }

    /// Ends a request, whatever its state.
    ///
    /// # Errors
    /// [`RequestError::EngineDied`] if no engine listens any more.
    pub fn abort(&self, id: RequestId) -> Result<(), RequestError> {
        self.send(Command::Abort(id))
    }

    /// Does damage on purpose.
    ///
    /// # Errors
    /// [`RequestError::EngineDied`] if no engine listens any more.
    pub fn inject(&self, fault: Fault) -> Result<(), RequestError> {
        self.send(Command::Inject(fault))
    }

    /// Asks the engine to finish what runs and then end.
    ///
    /// # Errors
    /// [`RequestError::EngineDied`] if no engine listens any more.
    pub fn drain(&self) -> Result<(), RequestError> {
        self.send(Command::Drain)
    }

    /// What the engine is: formats, capacities, scales.
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// What the engine counts.
    pub fn metrics(&self) -> &EngineMetrics {
        &self.metrics
    }

    fn send(&self, command: Command) -> Result<(), RequestError> {
        if (self.send)(command) {
            return Ok(());
        }
        Err(RequestError::EngineDied { reason: "its thread has ended".to_owned() })
    }
}

impl std::fmt::Debug for EngineHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineHandle").field("info", &self.info).finish_non_exhaustive()
    }
}
