//! What streams and graphs carry out: launches, copies, fills, host functions; and what happens to
//! a context when one of them fails.

use crate::code::{Code, Outcome, log};
use crate::device::Device;
use crate::driver::driver;
use crate::event::Event;
use crate::ffi::host::{HostFn, HostSpan};
use crate::gpu::{Call, Failure, Shape};
use crate::handles::lock;
use crate::module::Function;
use crate::plan::{Plan, Run};
use crate::settings::Planned;
use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// The part of a context that its queues know: its device and whether it still works.
pub(crate) struct Core {
    pub(crate) id: u64,
    pub(crate) device: Arc<Device>,
    /// The code that every call returns from now on; 0 while all is well.
    error: AtomicU32,
    /// Contexts whose memory kernels of this one may use, and their devices.
    pub(crate) peers: Mutex<BTreeMap<u64, i32>>,
}

/// A launch with everything it needs.
pub(crate) struct Kernel {
    pub(crate) function: Arc<Function>,
    pub(crate) shape: Shape,
    /// The parameters' bytes, laid out as the entry declares them.
    pub(crate) params: Vec<u8>,
    /// Where each of them is, for a program that asks a graph's node.
    places: Vec<usize>,
}

impl Kernel {
    pub(crate) fn new(function: Arc<Function>, shape: Shape, params: Vec<u8>) -> Arc<Self> {
        let start = params.as_ptr().expose_provenance();
        let places = function.entry.params.iter().map(|(offset, _)| start + offset).collect();
        Arc::new(Self { function, shape, params, places })
    }

    /// The address of the list of the parameters' addresses, good for as long as the kernel is.
    pub(crate) fn place_list(&self) -> usize {
        self.places.as_ptr().expose_provenance()
    }
}

/// One end of a copy.
#[derive(Clone)]
pub(crate) enum Place {
    Device(u64),
    Host(HostSpan),
    /// Bytes of pageable memory, taken when the copy was asked for.
    Staged(Arc<Vec<u8>>),
}

/// A copy of `rows` rows of `width` bytes, whose beginnings are a pitch apart.
#[derive(Clone)]
pub(crate) struct Copy {
    pub(crate) dst: Place,
    pub(crate) src: Place,
    pub(crate) width: u64,
    pub(crate) rows: u64,
    pub(crate) dst_pitch: u64,
    pub(crate) src_pitch: u64,
}

/// Memory set to a repeated value of `element` bytes (1, 2 or 4).
#[derive(Clone)]
pub(crate) struct Fill {
    pub(crate) dst: u64,
    pub(crate) value: u32,
    pub(crate) element: u32,
    /// Elements of a row.
    pub(crate) width: u64,
    pub(crate) rows: u64,
    /// Bytes from a row to the next.
    pub(crate) pitch: u64,
}

/// What both a stream and a graph can be asked to do.
#[derive(Clone)]
pub(crate) enum Step {
    Kernel(Arc<Kernel>),
    Copy(Copy),
    Fill(Fill),
    Host(HostFn),
    Empty,
    /// Of a graph only: the launch records the event, or waits for it.
    Record(Arc<Event>),
    Wait(Arc<Event>),
    /// Of a graph only: another graph, whole.
    Child(Arc<Plan>),
}

/// One piece of a queue's work.
pub(crate) enum Work {
    /// A step, and the failure planned for it.
    Step(Step, Option<Planned>),
    Graph(Run),
    /// Notes the virtual time.
    Stamp(Arc<AtomicU64>),
    /// Gives memory of a device back.
    Free(Arc<Device>, u64),
    /// Only waits.
    Nothing,
}

/// Virtual time of a launch and of a copy beyond what they do, in nanoseconds.
const OVERHEAD_NS: u64 = 2_000;
/// Bytes that a copy moves in a nanosecond of virtual time.
const BYTES_PER_NS: u64 = 50;

impl Core {
    pub(crate) fn new(id: u64, device: Arc<Device>) -> Arc<Self> {
        Arc::new(Self { id, device, error: AtomicU32::new(0), peers: Mutex::default() })
    }

    /// An error if a kernel or the device failed before: the context does nothing any more.
    pub(crate) fn check(&self) -> Outcome {
        self.device.check()?;
        match self.error.load(Ordering::Acquire) {
            0 => Ok(()),
            code => Err(Code(code)),
        }
    }

    fn poison(&self, code: Code) {
        // The first error stays.
        let _ = self.error.compare_exchange(0, code.0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Does a piece of work that begins at `now_ns`; the virtual time it took. A context that failed
    /// does nothing more.
    pub(crate) fn perform(&self, work: &Work, now_ns: u64) -> u64 {
        if self.check().is_err() {
            // Memory that was freed is freed, error or not; everything else is left undone.
            if let Work::Free(device, pointer) = work {
                release(device, *pointer);
            }
            return 0;
        }
        let done = catch_unwind(AssertUnwindSafe(|| self.attempt(work, now_ns)));
        match done.unwrap_or(Err(Code::ERROR_UNKNOWN)) {
            Ok(cost_ns) => cost_ns,
            Err(code) => {
                self.poison(code);
                0
            }
        }
    }

    fn attempt(&self, work: &Work, now_ns: u64) -> Outcome<u64> {
        match work {
            Work::Step(step, planned) => {
                self.strike(planned.as_ref())?;
                self.step(step)
            }
            Work::Graph(run) => run.perform(self),
            Work::Stamp(time) => {
                time.store(now_ns, Ordering::Release);
                Ok(0)
            }
            Work::Free(device, pointer) => {
                release(device, *pointer);
                Ok(0)
            }
            Work::Nothing => Ok(0),
        }
    }

    pub(crate) fn step(&self, step: &Step) -> Outcome<u64> {
        match step {
            Step::Kernel(kernel) => {
                // A graph may hold kernels of other contexts than that of its launch.
                let own = &kernel.function.core;
                own.check()?;
                own.launch(kernel).inspect_err(|code| own.poison(*code))
            }
            Step::Copy(copy) => self.copy(copy),
            Step::Fill(fill) => self.fill(fill),
            Step::Host(function) => {
                function.call();
                Ok(0)
            }
            // The launch of the graph does the first two; a child is the graph's to unfold.
            Step::Record(_) | Step::Wait(_) | Step::Child(_) | Step::Empty => Ok(0),
        }
    }

    /// Fails if a failure was planned for here.
    pub(crate) fn strike(&self, planned: Option<&Planned>) -> Outcome {
        let Some(planned) = planned else { return Ok(()) };
        log(format_args!("planned failure: {planned:?}"));
        if planned.lost {
            self.device.lose(planned.code);
        }
        Err(planned.code)
    }

    fn launch(&self, kernel: &Kernel) -> Outcome<u64> {
        let (device, function) = (&self.device, &kernel.function);
        let entry = &function.entry.name;
        let number = device.next_launch();
        let call =
            Call { program: &function.program, entry, shape: kernel.shape, params: &kernel.params };
        let done = match self.foreign(&kernel.params) {
            Some(report) => Err(Failure { code: Code::ERROR_ILLEGAL_ADDRESS, report }),
            None => device.gpu.launch(&call, || self.check()),
        };
        match done {
            Ok(counts) => {
                if let Some(profile) = &device.profile {
                    let Shape { grid, block, shared_bytes } = kernel.shape;
                    let line = format!(
                        "{{\"device\":{},\"launch\":{number},\"entry\":\"{entry}\",\"grid\":{grid:?},\
                         \"block\":{block:?},\"shared_bytes\":{shared_bytes},{}}}\n",
                        device.ordinal,
                        counts.json()
                    );
                    if let Err(error) = lock(profile).write_all(line.as_bytes()) {
                        log(format_args!("the profile cannot be written: {error}"));
                    }
                }
                let sms = u64::try_from(device.sm_count()).unwrap_or(1);
                Ok(OVERHEAD_NS + counts.instructions() / sms)
            }
            // Another launch of this context failed first, and has said so.
            Err(failure) if failure.report.is_empty() => Err(failure.code),
            Err(failure) => {
                let code = failure.code.row().map_or("", |row| row.1.trim_end_matches('\0'));
                log(format_args!("{entry} failed with {code}\n{}", failure.report));
                Err(failure.code)
            }
        }
    }

    /// Says which parameter points to memory of another device that this context has no access to.
    /// All devices' memory lies in one machine, so that the emulator would let the kernel have it.
    fn foreign(&self, params: &[u8]) -> Option<String> {
        let driver = driver().ok()?;
        params.chunks_exact(8).enumerate().find_map(|(index, word)| {
            let pointer = u64::from_le_bytes(word.try_into().ok()?);
            let (owner, _, allocation) = driver.owner(pointer)?;
            let own = owner.ordinal == self.device.ordinal;
            let enabled = lock(&self.peers).values().any(|peer| *peer == owner.ordinal);
            let pool = allocation.pool.and_then(|pool| driver.pools.find(pool).ok());
            let granted = pool.is_some_and(|pool| pool.grants(self.device.ordinal));
            let message = format!(
                "the parameter at byte {} is {pointer:#x}, memory of device {}, to which device {} \
                 was given no access (cuCtxEnablePeerAccess, cuMemPoolSetAccess)",
                index * 8,
                owner.ordinal,
                self.device.ordinal
            );
            (!own && !enabled && !granted).then_some(message)
        })
    }

    fn copy(&self, copy: &Copy) -> Outcome<u64> {
        let gpu = &self.device.gpu;
        for row in 0..copy.rows {
            let (to, from) = (row * copy.dst_pitch, row * copy.src_pitch);
            match (&copy.dst, &copy.src) {
                (Place::Device(dst), Place::Device(src)) => {
                    gpu.copy(dst + to, src + from, copy.width)?;
                }
                (Place::Device(dst), Place::Staged(bytes)) => {
                    gpu.write(dst + to, part(bytes, from, copy.width)?)?;
                }
                (Place::Device(dst), Place::Host(src)) => {
                    gpu.write(dst + to, &src.read(from, copy.width)?)?;
                }
                (Place::Host(dst), Place::Device(src)) => {
                    let mut bytes = vec![0; size(copy.width)?];
                    gpu.read(src + from, &mut bytes)?;
                    dst.write(to, &bytes)?;
                }
                (Place::Host(dst), Place::Staged(bytes)) => {
                    dst.write(to, part(bytes, from, copy.width)?)?;
                }
                (Place::Host(dst), Place::Host(src)) => {
                    dst.write(to, &src.read(from, copy.width)?)?;
                }
                (Place::Staged(_), _) => return Err(Code::ERROR_INVALID_VALUE),
            }
        }
        Ok(OVERHEAD_NS + copy.width * copy.rows / BYTES_PER_NS)
    }

    fn fill(&self, fill: &Fill) -> Outcome<u64> {
        let element = &fill.value.to_le_bytes()[..fill.element as usize];
        let width = fill.width * u64::from(fill.element);
        let row = match element {
            [first, rest @ ..] if rest.iter().all(|byte| byte == first) => None,
            _ => Some(element.repeat(size(fill.width)?)),
        };
        for index in 0..fill.rows {
            let start = fill.dst + index * fill.pitch;
            match &row {
                Some(row) => self.device.gpu.write(start, row)?,
                None => self.device.gpu.fill(start, element[0], width)?,
            }
        }
        Ok(OVERHEAD_NS + width * fill.rows / BYTES_PER_NS)
    }
}

fn release(device: &Device, pointer: u64) {
    device.gpu.free(pointer);
    device.ledger.remove(pointer);
}

fn size(bytes: u64) -> Outcome<usize> {
    usize::try_from(bytes).map_err(|_| Code::ERROR_INVALID_VALUE)
}

/// A part of staged bytes.
fn part(bytes: &[u8], offset: u64, len: u64) -> Outcome<&[u8]> {
    let (start, len) = (size(offset)?, size(len)?);
    bytes.get(start..).and_then(|rest| rest.get(..len)).ok_or(Code::ERROR_INVALID_VALUE)
}
