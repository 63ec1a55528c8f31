//! Seeded simulation of both pools: the real schedulers, caches and hand-off over a fake model, a
//! fake wire and fake clients. Everything follows from one seed.
//!
//! The pools are driven as the engine drives them, one step each a tick. Page memory holds stamps
//! that say whose they are; the fake model looks at each stamp it reads, and makes the next token
//! of them, so that foreign bytes show twice.

mod decode;
mod events;
mod model;
mod prefill;
mod wire;

use model::{Client, End, Memory, Rng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tessera_runtime::cache::{LeaseId, PageId, PageTag, PoolSize, TagTracker};
use tessera_runtime::request::RequestId;
use tessera_runtime::schedule::{
    DecodeBatch, DecodeConfig, DecodeEvent, DecodeScheduler, PrefillBatch, PrefillConfig,
    PrefillEvent, PrefillScheduler,
};
use tessera_runtime::transfer::{Descriptor, Receiver, Sender};
use wire::{Parcel, Wire, Write};

/// What of the protection is in force. All of it, but in tests of the simulation itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guards {
    /// Pages stay leased until their writer is quiet.
    pub leases: bool,
    /// Tags are compared before a step reads.
    pub tags: bool,
}

impl Guards {
    /// As served.
    pub const ALL: Self = Self { leases: true, tags: true };
}

/// What happened in one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "counts of what the names say")]
pub struct Outcome {
    pub requests: usize,
    pub finished: usize,
    pub refused: usize,
    pub integrity: usize,
    pub not_finite: usize,
    pub preempted: usize,
    pub restarts: usize,
    pub faults: usize,
    pub failed_handoffs: usize,
    pub cached_tokens: usize,
    pub late_writes: usize,
    /// Positions read that did not hold what the reader's own tokens make; right is 0.
    pub foreign_reads: usize,
    /// Faults in a table or tag that the check did not see; right is 0.
    pub unseen_faults: usize,
    /// Outputs other than those of a run on its own; right is 0.
    pub wrong_outputs: usize,
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Self) {
        self.requests += other.requests;
        self.finished += other.finished;
        self.refused += other.refused;
        self.integrity += other.integrity;
        self.not_finite += other.not_finite;
        self.preempted += other.preempted;
        self.restarts += other.restarts;
        self.faults += other.faults;
        self.failed_handoffs += other.failed_handoffs;
        self.cached_tokens += other.cached_tokens;
        self.late_writes += other.late_writes;
        self.foreign_reads += other.foreign_reads;
        self.unseen_faults += other.unseen_faults;
        self.wrong_outputs += other.wrong_outputs;
    }
}

/// Ticks in which things happen; after them the system must come to rest.
const BUSY_TICKS: u64 = 200;
/// Ticks after which a request that has not ended counts as lost.
const LAST_TICK: u64 = 3_000;

enum ToPrefill {
    Submit(RequestId),
    Abort(RequestId),
}

enum ToDecode {
    Offered(RequestId),
    Abort(RequestId),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    TableEntry,
    Tag,
}

struct PrefillSide {
    scheduler: PrefillScheduler<TagTracker>,
    batch: PrefillBatch,
    memory: Memory,
    sender: Sender,
    inbox: VecDeque<ToPrefill>,
    records: BTreeSet<RequestId>,
    events: Vec<PrefillEvent>,
    damage_next_page: bool,
    is_ready: bool,
}

struct DecodeSide {
    scheduler: DecodeScheduler<TagTracker>,
    batch: DecodeBatch,
    memory: Memory,
    receiver: Receiver,
    inbox: VecDeque<ToDecode>,
    residents: BTreeSet<RequestId>,
    events: Vec<DecodeEvent>,
    faults: Vec<Fault>,
}

/// A seed's choice of what the hardware does.
#[derive(Clone, Copy)]
struct Hardware {
    /// Pages are written straight into memory; else they come as messages.
    one_sided: bool,
    /// A revoked lease stops even a write that is under way.
    revocable: bool,
}

struct World {
    seed: u64,
    guards: Guards,
    rng: Rng,
    now: u64,
    hardware: Hardware,
    prefill_config: PrefillConfig,
    decode_config: DecodeConfig,
    generation: u64,
    prefill: PrefillSide,
    decode: DecodeSide,
    to_decode: Wire,
    to_prefill: Wire,
    writes: Vec<Write>,
    /// Where one-sided writes of a transfer go, as its lease would say.
    targets: BTreeMap<LeaseId, Vec<PageId>>,
    /// The transfer that brought a request to the decode pool.
    came_by: BTreeMap<RequestId, LeaseId>,
    /// Preempted while nobody was there to read them again.
    sent_to_nobody: Vec<RequestId>,
    clients: BTreeMap<RequestId, Client>,
    restart_at: Option<(u64, bool)>,
    changes: Vec<(PageId, PageTag)>,
    outcome: Outcome,
}

/// Runs the schedule of a seed to rest.
///
/// # Panics
/// If after any step the books of a pool are wrong, or a request or page is lost; the message has
/// the seed.
pub fn run(seed: u64, guards: Guards) -> Outcome {
    let mut world = World::new(seed, guards);
    world.greet();
    while world.now < BUSY_TICKS || !world.is_at_rest() {
        assert!(world.now < LAST_TICK, "seed {seed}: {}", world.lost());
        world.now += 1;
        if world.now < BUSY_TICKS {
            world.happen();
        }
        world.restart_if_due();
        world.land_writes();
        world.step_prefill();
        world.check_books();
        world.step_decode();
        world.check_books();
    }
    world.check_rest();
    world.outcome
}

impl World {
    fn new(seed: u64, guards: Guards) -> Self {
        let mut rng = Rng::new(seed);
        let page_size = 1 + rng.below(4);
        let mut size = |tokens: usize| {
            let num_pages = (tokens + rng.below(tokens)).div_ceil(page_size);
            PoolSize { num_pages: u32::try_from(num_pages).expect("a small pool"), page_size }
        };
        let (pool, decode_pool) = (size(40), size(40));
        let prefill_config = PrefillConfig {
            pool,
            decode_pool,
            step_tokens: 2 + rng.below(30),
            max_seqs: 1 + rng.below(4),
            max_waiting: 3 + rng.below(6),
            max_bypass: 2,
        };
        let reserve_tokens = [1, 1, 4, usize::MAX][rng.below(4)];
        let max_seqs = 1 + rng.below(6);
        let decode_config = DecodeConfig { pool: decode_pool, max_seqs, reserve_tokens };
        let hardware = Hardware { one_sided: rng.one_in(2), revocable: rng.one_in(2) };
        Self {
            seed,
            guards,
            rng,
            now: 0,
            hardware,
            prefill_config,
            decode_config,
            generation: 1,
            prefill: PrefillSide::new(prefill_config, 1),
            decode: DecodeSide::new(decode_config),
            to_decode: Wire::default(),
            to_prefill: Wire::default(),
            writes: Vec::new(),
            targets: BTreeMap::new(),
            came_by: BTreeMap::new(),
            sent_to_nobody: Vec::new(),
            clients: BTreeMap::new(),
            restart_at: None,
            changes: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    /// A request ends; as in the engine, only its first end is told.
    fn end(&mut self, id: RequestId, end: End) {
        let client = self.clients.get_mut(&id).expect("every request has a client");
        if client.end.is_some() {
            return;
        }
        client.end = Some(end);
        let count = match end {
            End::Finished => &mut self.outcome.finished,
            End::Refused => &mut self.outcome.refused,
            End::Integrity => &mut self.outcome.integrity,
            End::NotFinite => &mut self.outcome.not_finite,
            End::Handoff => &mut self.outcome.failed_handoffs,
            End::Aborted | End::ProcessDied => return,
        };
        *count += 1;
        if end == End::Finished && client.tokens != client.right_output() {
            self.outcome.wrong_outputs += 1;
        }
    }

    /// A token reaches the client. True if it was the last.
    fn push(&mut self, id: RequestId, token: u32) -> bool {
        let client = self.clients.get_mut(&id).expect("every request has a client");
        let is_last = client.is_last(token);
        client.tokens.push(token);
        if is_last {
            self.end(id, End::Finished);
        }
        is_last
    }

    fn check_books(&self) {
        let audits = [
            (self.prefill.scheduler.audit(), self.prefill_config.pool),
            (self.decode.scheduler.audit(), self.decode_config.pool),
        ];
        for (audit, size) in audits {
            let counts = audit.unwrap_or_else(|error| panic!("{}: {error}", self.place()));
            let held = counts.owned + counts.leased + counts.quarantined;
            let sum = counts.free + counts.cached + held;
            assert_eq!(sum, size.num_pages as usize, "{}: {counts:?}", self.place());
        }
    }

    fn is_at_rest(&self) -> bool {
        self.clients.values().all(|client| client.end.is_some())
            && self.to_decode.is_empty()
            && self.to_prefill.is_empty()
            && self.writes.is_empty()
            && self.restart_at.is_none()
            && self.decode.inbox.is_empty()
            && self.prefill.inbox.is_empty()
            && self.decode.events.is_empty()
            && self.prefill.events.is_empty()
            && self.decode.residents.is_empty()
            && self.prefill.records.is_empty()
    }

    fn check_rest(&self) {
        let pre = self.prefill.scheduler.audit().expect("checked after the step");
        let dec = self.decode.scheduler.audit().expect("checked after the step");
        for (counts, size) in [(pre, self.prefill_config.pool), (dec, self.decode_config.pool)] {
            let at_rest = counts.free + counts.cached + counts.quarantined;
            assert_eq!(at_rest, size.num_pages as usize, "{}: {counts:?}", self.place());
        }
        let (pre, dec) = (&self.prefill.scheduler, &self.decode.scheduler);
        let held = pre.num_waiting() + pre.num_running() + dec.num_waiting() + dec.num_running();
        assert_eq!(held, 0, "{}: requests are left in a scheduler", self.place());
        let Outcome { faults, integrity, restarts, failed_handoffs, .. } = self.outcome;
        if self.guards == Guards::ALL {
            assert!(faults > 0 || integrity == 0, "{}: a sound page was called bad", self.place());
            let is_well = restarts > 0 || failed_handoffs == 0;
            assert!(is_well, "{}: a hand-off failed with both pools alive", self.place());
        }
    }

    fn place(&self) -> String {
        format!("seed {} tick {}", self.seed, self.now)
    }

    fn lost(&self) -> String {
        let lost = self.clients.values().filter(|client| client.end.is_none());
        let lost: Vec<_> = lost.map(|client| client.id).collect();
        let (pre, dec) = (self.prefill.scheduler.audit(), self.decode.scheduler.audit());
        format!("requests {lost:?} never end; prefill {pre:?}, decode {dec:?}")
    }
}

fn descriptor() -> Descriptor {
    Descriptor {
        page_size: 4,
        kv_entry: 24,
        num_layers: 1,
        rope: "none".into(),
        model_fingerprint: "m".into(),
        integrity: true,
        speculative_layers: 0,
        weights: "none".into(),
        kv_format: "stamps".into(),
        protocol_version: Descriptor::PROTOCOL_VERSION,
    }
}
