//! Contexts: which one each thread works in, and what lives and dies with one.

use crate::code::{Code, Outcome, ensure};
use crate::driver::Driver;
use crate::handles::lock;
use crate::lane::Waits;
use crate::stream::{Order, Stream};
use crate::work::Core;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::ThreadId;

/// A context. Streams, events, modules and memory belong to one and go with it.
pub(crate) struct Context {
    pub(crate) core: Arc<Core>,
    pub(crate) primary: bool,
    pub(crate) flags: Mutex<u32>,
    pub(crate) cache_config: Mutex<u32>,
    pub(crate) limits: Mutex<BTreeMap<u32, usize>>,
    legacy: OnceLock<Arc<Stream>>,
    per_thread: Mutex<HashMap<ThreadId, Arc<Stream>>>,
}

/// A device's primary context, and its memory pools.
pub(crate) struct Primary {
    pub(crate) retained: usize,
    pub(crate) flags: u32,
    pub(crate) context: Option<u64>,
    pub(crate) default_pool: u64,
    pub(crate) pool: u64,
}

impl Primary {
    pub(crate) fn new(pool: u64) -> Self {
        Self { retained: 0, flags: 0, context: None, default_pool: pool, pool }
    }
}

thread_local! {
    /// The contexts that this thread pushed, the current one last; 0 stands for none.
    static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

impl Context {
    /// The stream with the number 0.
    pub(crate) fn legacy(&self, driver: &Driver) -> Arc<Stream> {
        let new = || driver.new_stream(&self.core, Order::Legacy, 0);
        self.legacy.get_or_init(new).clone()
    }

    /// The default stream that only this thread has.
    pub(crate) fn per_thread(&self, driver: &Driver) -> Arc<Stream> {
        let mut streams = lock(&self.per_thread);
        let new = || driver.new_stream(&self.core, Order::Blocking, 0);
        streams.entry(std::thread::current().id()).or_insert_with(new).clone()
    }
}

impl Driver {
    pub(crate) fn new_context(&self, ordinal: i32, flags: u32, primary: bool) -> Outcome<u64> {
        let device = self.device(ordinal)?.clone();
        device.check()?;
        let make = |id| Context {
            core: Core::new(id, device),
            primary,
            flags: Mutex::new(flags),
            cache_config: Mutex::new(0),
            limits: Mutex::default(),
            legacy: OnceLock::new(),
            per_thread: Mutex::default(),
        };
        Ok(self.contexts.insert(make).0)
    }

    /// The handle of this thread's context; 0 if it has none.
    pub(crate) fn current_handle(&self) -> u64 {
        STACK.with_borrow(|stack| stack.last().copied().unwrap_or(0))
    }

    /// This thread's context, whatever state it is in.
    pub(crate) fn current_any(&self) -> Outcome<Arc<Context>> {
        match self.current_handle() {
            0 => Err(Code::ERROR_INVALID_CONTEXT),
            handle => self.contexts.find(handle).map_err(|_| Code::ERROR_CONTEXT_IS_DESTROYED),
        }
    }

    /// This thread's context, if it still works.
    pub(crate) fn current(&self) -> Outcome<Arc<Context>> {
        let context = self.current_any()?;
        context.core.check()?;
        Ok(context)
    }

    pub(crate) fn context(&self, handle: u64) -> Outcome<Arc<Context>> {
        self.contexts.find(handle).map_err(|_| Code::ERROR_INVALID_CONTEXT)
    }

    /// Replaces the thread's context; 0 leaves it with none.
    pub(crate) fn set_current(&self, handle: u64) -> Outcome {
        if handle != 0 {
            self.context(handle)?;
        }
        STACK.with_borrow_mut(|stack| {
            stack.pop();
            if handle != 0 {
                stack.push(handle);
            }
        });
        Ok(())
    }

    pub(crate) fn push_current(&self, handle: u64) -> Outcome {
        self.context(handle)?;
        STACK.with_borrow_mut(|stack| stack.push(handle));
        Ok(())
    }

    pub(crate) fn pop_current(&self) -> Outcome<u64> {
        STACK.with_borrow_mut(Vec::pop).ok_or(Code::ERROR_INVALID_CONTEXT)
    }

    pub(crate) fn retain_primary(&self, ordinal: i32) -> Outcome<u64> {
        let mut primary = lock(self.primary(ordinal)?);
        let handle = match primary.context {
            Some(handle) => handle,
            None => self.new_context(ordinal, primary.flags, true)?,
        };
        primary.context = Some(handle);
        primary.retained += 1;
        Ok(handle)
    }

    pub(crate) fn release_primary(&self, ordinal: i32) -> Outcome {
        let mut primary = lock(self.primary(ordinal)?);
        ensure(primary.retained > 0, Code::ERROR_INVALID_CONTEXT)?;
        primary.retained -= 1;
        let last = primary.retained == 0;
        let context = if last { primary.context.take() } else { None };
        drop(primary);
        context.map_or(Ok(()), |handle| self.destroy_context(handle))
    }

    /// Destroys the primary context though it is retained; the retains count on. Who retains it the
    /// next time gets a new one, without the old one's error.
    pub(crate) fn reset_primary(&self, ordinal: i32) -> Outcome {
        let mut primary = lock(self.primary(ordinal)?);
        let context = primary.context.take();
        drop(primary);
        context.map_or(Ok(()), |handle| self.destroy_context(handle))
    }

    /// Waits for a context's work and frees everything that belongs to it.
    pub(crate) fn destroy_context(&self, handle: u64) -> Outcome {
        let context = self.contexts.remove(handle).map_err(|_| Code::ERROR_INVALID_CONTEXT)?;
        for stream in self.streams_of(&context.core) {
            stream.lane.last().wait_in_call(Waits::Context);
            stream.lane.close();
            lock(&self.captures).leave(stream.id);
            let _ = self.streams.remove(stream.id);
        }
        for event in self.events.all().iter().filter(|event| event.core.id == handle) {
            let _ = self.events.remove(event.id);
        }
        for module in self.modules.all().iter().filter(|module| module.context == handle) {
            self.unload(module);
        }
        let device = &context.core.device;
        for pointer in device.ledger.of_context(handle) {
            device.gpu.free(pointer);
            device.ledger.remove(pointer);
        }
        STACK.with_borrow_mut(|stack| {
            if stack.last() == Some(&handle) {
                stack.pop();
            }
        });
        Ok(())
    }

    /// Waits for all work of a context; its error, if it failed.
    pub(crate) fn synchronize(&self, context: &Context) -> Outcome {
        lock(&self.captures).refuse_in_context(context.core.id)?;
        self.drain(&context.core);
        context.core.check()
    }

    /// Waits for all work of a context.
    pub(crate) fn drain(&self, core: &Core) {
        for stream in self.streams_of(core) {
            stream.lane.last().wait_in_call(Waits::Context);
        }
    }

    pub(crate) fn streams_of(&self, core: &Core) -> Vec<Arc<Stream>> {
        self.streams.all().into_iter().filter(|stream| stream.core.id == core.id).collect()
    }
}
