//! The driver's state: made once by `cuInit`, and found by every other call.

use crate::capture::Captures;
use crate::code::{Code, Outcome, ensure, log};
use crate::context::{Context, Primary};
use crate::device::Device;
use crate::event::Event;
use crate::gpu::Gpu;
use crate::graph::{Graph, NodePlace};
use crate::handles::{Handles, Kind, lock};
use crate::lane::Calls;
use crate::memory::Allocation;
use crate::module::{Function, Module};
use crate::pinned::Pinned;
use crate::plan::GraphExec;
use crate::pool::Pool;
use crate::settings::{Planned, Settings, Site};
use crate::stream::Stream;
use std::fs::{File, OpenOptions};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// Everything there is.
pub(crate) struct Driver {
    pub(crate) devices: Vec<Arc<Device>>,
    pub(crate) primaries: Vec<Mutex<Primary>>,
    pub(crate) contexts: Handles<Context>,
    pub(crate) streams: Handles<Stream>,
    pub(crate) events: Handles<Event>,
    pub(crate) modules: Handles<Module>,
    pub(crate) functions: Handles<Function>,
    pub(crate) graphs: Handles<Graph>,
    pub(crate) nodes: Handles<NodePlace>,
    pub(crate) execs: Handles<GraphExec>,
    pub(crate) pools: Handles<Pool>,
    pub(crate) pinned: Pinned,
    pub(crate) captures: Mutex<Captures>,
    pub(crate) calls: Arc<Calls>,
    planned: Vec<Planned>,
    counts: [AtomicU64; 3],
}

static DRIVER: OnceLock<Outcome<Driver>> = OnceLock::new();

/// `cuInit`: reads the settings and makes the devices.
pub(crate) fn init() -> Outcome {
    DRIVER.get_or_init(|| {
        let settings = Settings::from_environment().map_err(|message| {
            log(message);
            Code::ERROR_INVALID_VALUE
        })?;
        Driver::new(&settings)
    });
    driver().map(|_| ())
}

/// The driver, if `cuInit` made one.
pub(crate) fn driver() -> Outcome<&'static Driver> {
    match DRIVER.get() {
        None => Err(Code::ERROR_NOT_INITIALIZED),
        Some(Err(code)) => Err(*code),
        Some(Ok(driver)) => Ok(driver),
    }
}

impl Driver {
    fn new(settings: &Settings) -> Outcome<Self> {
        ensure(settings.devices > 0, Code::ERROR_NO_DEVICE)?;
        let profile = open("PROFILE", settings.profile.as_deref())?;
        let profile = profile.map(|file| Arc::new(Mutex::new(file)));
        let waits = open("WAITS", settings.waits.as_deref())?;
        // One machine holds the memory of all devices: their addresses differ, and copies and
        // accesses between them need no further machinery.
        let gpu =
            Arc::new(Gpu::new(settings.memory_bytes * settings.devices as u64, settings.order));
        let pools = Handles::new(Kind::Pool);
        let (mut devices, mut primaries) = (Vec::new(), Vec::new());
        for ordinal in 0..i32::try_from(settings.devices).map_err(|_| Code::ERROR_NO_DEVICE)? {
            let device = Device::new(ordinal, settings, gpu.clone(), profile.clone());
            devices.push(Arc::new(device));
            let (pool, _) = pools.insert(|id| Pool::new(id, ordinal));
            primaries.push(Mutex::new(Primary::new(pool)));
        }
        Ok(Self {
            devices,
            primaries,
            contexts: Handles::new(Kind::Context),
            streams: Handles::new(Kind::Stream),
            events: Handles::new(Kind::Event),
            modules: Handles::new(Kind::Module),
            functions: Handles::new(Kind::Function),
            graphs: Handles::new(Kind::Graph),
            nodes: Handles::new(Kind::Node),
            execs: Handles::new(Kind::GraphExec),
            pools,
            pinned: Pinned::default(),
            captures: Mutex::new(Captures::default()),
            calls: Calls::new(settings.latency_calls, waits),
            planned: settings.planned.clone(),
            counts: [const { AtomicU64::new(0) }; 3],
        })
    }

    pub(crate) fn device(&self, ordinal: i32) -> Outcome<&Arc<Device>> {
        let index = usize::try_from(ordinal).map_err(|_| Code::ERROR_INVALID_DEVICE)?;
        self.devices.get(index).ok_or(Code::ERROR_INVALID_DEVICE)
    }

    /// The device's slot for its primary context.
    pub(crate) fn primary(&self, ordinal: i32) -> Outcome<&Mutex<Primary>> {
        let index = usize::try_from(ordinal).map_err(|_| Code::ERROR_INVALID_DEVICE)?;
        self.primaries.get(index).ok_or(Code::ERROR_INVALID_DEVICE)
    }

    /// The device whose memory `pointer` points into, and the allocation.
    pub(crate) fn owner(&self, pointer: u64) -> Option<(&Arc<Device>, u64, Allocation)> {
        self.devices.iter().find_map(|device| {
            let (base, allocation) = device.ledger.find(pointer)?;
            Some((device, base, allocation))
        })
    }

    /// Counts a call of `site`; the failure planned for it.
    pub(crate) fn count(&self, site: Site) -> Option<Planned> {
        let nth = self.counts[site as usize].fetch_add(1, Ordering::Relaxed) + 1;
        self.planned.iter().find(|plan| plan.site == site && plan.nth == nth).cloned()
    }

    /// A live graph, if no capture is still building it.
    pub(crate) fn graph(&self, handle: u64) -> Outcome<Arc<Graph>> {
        let graph = self.graphs.find(handle).map_err(|_| Code::ERROR_INVALID_VALUE)?;
        let open = lock(&self.captures).builds(graph.id);
        ensure(!open, Code::ERROR_ILLEGAL_STATE)?;
        Ok(graph)
    }
}

/// The file that a setting names, to be written at its end.
fn open(setting: &str, path: Option<&Path>) -> Outcome<Option<File>> {
    let Some(path) = path else { return Ok(None) };
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.map(Some).map_err(|error| {
        log(format_args!("TESSERA_EMULATOR_{setting}={}: {error}", path.display()));
        Code::ERROR_INVALID_VALUE
    })
}
