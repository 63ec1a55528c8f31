//! Stream capture: work that is written into a graph instead of being queued, and everything that
//! is forbidden meanwhile.
//!
//! A stream of a capture has *tips*: the nodes that its next node comes after. Waiting for an event
//! that was recorded in a capture brings a stream into that capture, or joins its tips.

use crate::code::{Code, Outcome, ensure, log};
use crate::driver::Driver;
use crate::event::State;
use crate::graph::Graph;
use crate::handles::lock;
use crate::stream::{Order, Stream};
use crate::work::Step;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::ThreadId;

/// How much a capture, or a thread, forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Global,
    ThreadLocal,
    Relaxed,
}

impl Mode {
    pub(crate) fn from_number(number: u32) -> Outcome<Self> {
        let modes = [Self::Global, Self::ThreadLocal, Self::Relaxed];
        modes.get(number as usize).copied().ok_or(Code::ERROR_INVALID_VALUE)
    }
}

thread_local! {
    static THREAD_MODE: Cell<Mode> = const { Cell::new(Mode::Global) };
}

/// Sets this thread's mode; what it was.
pub(crate) fn exchange_mode(mode: Mode) -> Mode {
    THREAD_MODE.replace(mode)
}

/// All captures that have begun and not ended.
#[derive(Default)]
pub(crate) struct Captures {
    next: u64,
    active: BTreeMap<u64, Capture>,
    /// By stream.
    members: BTreeMap<u64, Member>,
}

struct Capture {
    graph: Arc<Graph>,
    origin: u64,
    context: u64,
    mode: Mode,
    thread: ThreadId,
    invalid: bool,
}

struct Member {
    capture: u64,
    tips: Vec<u64>,
    /// Whether the context's default stream would have to wait for it.
    blocking: bool,
}

/// What `cuStreamGetCaptureInfo` tells.
pub(crate) struct Info {
    pub(crate) invalid: bool,
    pub(crate) id: u64,
    pub(crate) graph: u64,
    pub(crate) tips: Vec<u64>,
}

impl Captures {
    fn begin(&mut self, stream: &Stream, mode: Mode, graph: Arc<Graph>) -> Outcome {
        // The default stream is ordered with streams that are not captured.
        ensure(stream.order != Order::Legacy, Code::ERROR_STREAM_CAPTURE_UNSUPPORTED)?;
        ensure(!self.members.contains_key(&stream.id), Code::ERROR_ILLEGAL_STATE)?;
        self.next += 1;
        let thread = std::thread::current().id();
        let (origin, context) = (stream.id, stream.core.id);
        let capture = Capture { graph, origin, context, mode, thread, invalid: false };
        self.active.insert(self.next, capture);
        self.join(stream, self.next, Vec::new());
        Ok(())
    }

    fn join(&mut self, stream: &Stream, capture: u64, tips: Vec<u64>) {
        let blocking = stream.order == Order::Blocking;
        self.members.insert(stream.id, Member { capture, tips, blocking });
    }

    /// Ends a capture; its graph, unless the capture failed.
    fn end(&mut self, stream: &Stream) -> Outcome<Arc<Graph>> {
        let member = self.members.get(&stream.id).ok_or(Code::ERROR_ILLEGAL_STATE)?;
        let (id, tips) = (member.capture, member.tips.clone());
        let capture = self.active.get(&id).ok_or(Code::ERROR_ILLEGAL_STATE)?;
        ensure(capture.origin == stream.id, Code::ERROR_STREAM_CAPTURE_UNMATCHED)?;
        let here = capture.thread == std::thread::current().id();
        let anywhere = capture.mode == Mode::Relaxed;
        ensure(here || anywhere, Code::ERROR_STREAM_CAPTURE_WRONG_THREAD)?;
        let (graph, invalid) = (capture.graph.clone(), capture.invalid);
        let before = graph.reaching(&tips);
        let mut forks = self.members.values().filter(|member| member.capture == id);
        let joined = forks.all(|fork| fork.tips.iter().all(|tip| before.contains(tip)));
        self.active.remove(&id);
        self.members.retain(|_, member| member.capture != id);
        ensure(!invalid, Code::ERROR_STREAM_CAPTURE_INVALIDATED)?;
        ensure(joined, Code::ERROR_STREAM_CAPTURE_UNJOINED)?;
        Ok(graph)
    }

    pub(crate) fn invalidate(&mut self, id: u64) {
        if let Some(capture) = self.active.get_mut(&id) {
            capture.invalid = true;
        }
    }

    /// Makes every capture invalid that `which` picks; `code` if there was one.
    fn refuse(&mut self, code: Code, which: impl Fn(&Capture) -> bool) -> Outcome {
        let mut hit = false;
        for capture in self.active.values_mut().filter(|capture| which(capture)) {
            capture.invalid = true;
            hit = true;
        }
        ensure(!hit, code)
    }

    /// The capture and tips of a stream that is captured.
    pub(crate) fn tips(&mut self, stream: &Stream) -> Outcome<Option<(u64, Vec<u64>)>> {
        self.refuse_implicit(stream)?;
        let Some(member) = self.members.get(&stream.id) else { return Ok(None) };
        let found = (member.capture, member.tips.clone());
        let valid = self.active.get(&found.0).is_some_and(|capture| !capture.invalid);
        ensure(valid, Code::ERROR_STREAM_CAPTURE_INVALIDATED)?;
        Ok(Some(found))
    }

    /// The default stream must not be used while a stream is captured that it would wait for.
    fn refuse_implicit(&mut self, stream: &Stream) -> Outcome {
        if stream.order != Order::Legacy {
            return Ok(());
        }
        let blocking = self.members.values().filter(|member| member.blocking);
        let hit: Vec<u64> = blocking.map(|member| member.capture).collect();
        let mut refused = Ok(());
        for id in hit {
            if self.active.get(&id).is_some_and(|c| c.context == stream.core.id) {
                self.invalidate(id);
                refused = Err(Code::ERROR_STREAM_CAPTURE_IMPLICIT);
            }
        }
        refused
    }

    /// Lets a stream wait for an event in a capture; false if no capture has to do with it.
    pub(crate) fn wait(&mut self, stream: &Stream, event: &State) -> Outcome<bool> {
        let own = self.tips(stream)?;
        match (own, event) {
            (None, State::Captured(capture, tips)) => {
                let open = self.active.get(capture).ok_or(Code::ERROR_STREAM_CAPTURE_ISOLATION)?;
                ensure(!open.invalid, Code::ERROR_STREAM_CAPTURE_INVALIDATED)?;
                if stream.order == Order::Legacy {
                    self.invalidate(*capture);
                    return Err(Code::ERROR_STREAM_CAPTURE_IMPLICIT);
                }
                self.join(stream, *capture, tips.clone());
                Ok(true)
            }
            (None, _) => Ok(false),
            (Some(_), State::Fresh) => Ok(true),
            (Some((own, _)), State::Recorded(..)) => {
                self.invalidate(own);
                Err(Code::ERROR_STREAM_CAPTURE_ISOLATION)
            }
            (Some((own, _)), State::Captured(capture, _)) if own != *capture => {
                self.invalidate(own);
                let other_open = self.active.contains_key(capture);
                self.invalidate(*capture);
                Err(match other_open {
                    true => Code::ERROR_STREAM_CAPTURE_MERGE,
                    false => Code::ERROR_STREAM_CAPTURE_ISOLATION,
                })
            }
            (Some((_, mut joined)), State::Captured(_, tips)) => {
                joined.extend(tips.iter().filter(|tip| !joined.contains(tip)).collect::<Vec<_>>());
                if let Some(member) = self.members.get_mut(&stream.id) {
                    member.tips = joined;
                }
                Ok(true)
            }
        }
    }

    /// Waiting for a captured stream, or asking how far it is, makes its capture invalid.
    pub(crate) fn refuse_in_stream(&mut self, stream: &Stream) -> Outcome {
        let code = Code::ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if let Some(member) = self.members.get(&stream.id) {
            let id = member.capture;
            self.invalidate(id);
            return Err(code);
        }
        self.refuse_implicit(stream)?;
        self.refuse_unsafe()
    }

    /// Waiting for a whole context does the same to its captures.
    pub(crate) fn refuse_in_context(&mut self, context: u64) -> Outcome {
        let code = Code::ERROR_STREAM_CAPTURE_UNSUPPORTED;
        self.refuse(code, |capture| capture.context == context)
    }

    /// Calls that may wait for work, as allocation, are forbidden while others capture: in a thread
    /// of mode *global* while it captures itself, or anybody does in global mode; in one of mode
    /// *thread local* while it captures itself. A relaxed capture forbids nothing.
    fn refuse_unsafe(&mut self) -> Outcome {
        let (here, mode) = (std::thread::current().id(), THREAD_MODE.get());
        self.refuse(Code::ERROR_STREAM_CAPTURE_UNSUPPORTED, |capture| {
            let own = capture.thread == here && capture.mode != Mode::Relaxed;
            match mode {
                Mode::Relaxed => false,
                Mode::ThreadLocal => own,
                Mode::Global => own || capture.mode == Mode::Global,
            }
        })
    }

    /// A stream goes away in the middle of its capture, which is then worth nothing.
    pub(crate) fn leave(&mut self, stream: u64) {
        let Some(member) = self.members.remove(&stream) else { return };
        let id = member.capture;
        self.invalidate(id);
        if self.active.get(&id).is_some_and(|capture| capture.origin == stream) {
            self.active.remove(&id);
            self.members.retain(|_, member| member.capture != id);
        }
    }

    pub(crate) fn info(&self, stream: &Stream) -> Option<Info> {
        let member = self.members.get(&stream.id)?;
        let capture = self.active.get(&member.capture)?;
        let (invalid, graph) = (capture.invalid, capture.graph.id);
        Some(Info { invalid, id: member.capture, graph, tips: member.tips.clone() })
    }

    /// Whether a capture is writing to this graph.
    pub(crate) fn builds(&self, graph: u64) -> bool {
        self.active.values().any(|capture| capture.graph.id == graph)
    }

    /// Replaces a captured stream's tips, or adds to them.
    pub(crate) fn update_tips(&mut self, stream: &Stream, tips: &[u64], replace: bool) -> Outcome {
        self.tips(stream)?.ok_or(Code::ERROR_ILLEGAL_STATE)?;
        let member = self.members.get_mut(&stream.id).ok_or(Code::ERROR_ILLEGAL_STATE)?;
        if replace {
            member.tips.clear();
        }
        member.tips.extend(tips);
        Ok(())
    }
}

impl Driver {
    pub(crate) fn begin_capture(&self, stream: &Stream, mode: Mode) -> Outcome {
        let mut captures = lock(&self.captures);
        let graph = self.new_graph();
        let begun = captures.begin(stream, mode, graph.clone());
        if begun.is_err() {
            self.drop_graph(&graph);
        }
        begun
    }

    /// Ends a capture; the handle of its graph. A capture that failed leaves none.
    pub(crate) fn end_capture(&self, stream: &Stream) -> Outcome<u64> {
        let mut captures = lock(&self.captures);
        let building = captures.info(stream).map(|info| info.graph);
        let ended = captures.end(stream);
        let still = building.is_some_and(|graph| captures.builds(graph));
        drop(captures);
        match (ended, building) {
            (Ok(graph), _) => Ok(graph.id),
            (Err(code), Some(graph)) if !still => {
                if let Ok(graph) = self.graphs.find(graph) {
                    self.drop_graph(&graph);
                }
                Err(code)
            }
            (Err(code), _) => Err(code),
        }
    }

    /// Adds a step to the graph that the stream is captured into; false if it is not captured.
    pub(crate) fn capture(&self, stream: &Stream, step: &Step) -> Outcome<bool> {
        let mut captures = lock(&self.captures);
        let Some((id, tips)) = captures.tips(stream)? else { return Ok(false) };
        let capture = captures.active.get(&id).ok_or(Code::ERROR_ILLEGAL_STATE)?;
        let node = self.add_node(&capture.graph, step.clone(), tips);
        if let Some(member) = captures.members.get_mut(&stream.id) {
            member.tips = vec![node];
        }
        Ok(true)
    }

    /// Refuses a call that may wait for work while a capture forbids it.
    pub(crate) fn refuse_unsafe(&self) -> Outcome {
        lock(&self.captures).refuse_unsafe()
    }

    /// Refuses, in a captured stream, memory that comes and goes with a graph's launches.
    pub(crate) fn refuse_memory_node(&self, stream: &Stream) -> Outcome {
        let mut captures = lock(&self.captures);
        if let Some((id, _)) = captures.tips(stream)? {
            captures.invalidate(id);
            log("memory nodes of graphs are not supported: allocate before the capture");
            return Err(Code::ERROR_STREAM_CAPTURE_UNSUPPORTED);
        }
        Ok(())
    }
}
