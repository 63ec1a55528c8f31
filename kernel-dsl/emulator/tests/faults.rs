//! Each detector finds the fault that was planted for it, where it is, and nothing in the clean
//! twin.

mod harness;

use harness::{Bench, SCHEDULES, module};
use tessera_emulator::{Fault, FaultKind, Module, Profile, Schedule};

const TEXT: &str = include_str!("ptx/faults.ptx");

/// A kernel, the numbers that make it wrong and right, and what is to be found.
struct Plant {
    entry: &'static str,
    bad: u64,
    good: Option<u64>,
    kind: FaultKind,
    /// Part of the line that is to blame.
    at: &'static str,
    block: u32,
    grid: u32,
}

const fn plant(
    entry: &'static str,
    (bad, good): (u64, Option<u64>),
    kind: FaultKind,
    at: &'static str,
) -> Plant {
    Plant { entry, bad, good, kind, at, block: 32, grid: 1 }
}

const fn two(plant: Plant) -> Plant {
    Plant { block: 64, ..plant }
}

const fn grid(plant: Plant) -> Plant {
    Plant { grid: 2, ..plant }
}

use FaultKind::{
    BarrierMisuse, Deadlock, DivergentBarrier, DivergentWarp, Endless, GlobalRace, LaneConflict,
    Misaligned, MissingProxyFence, MissingWait, OutOfBounds, ReadOnly, SharedRace, Trap,
    Uninitialised, WrongSpace,
};

const PLANTS: [Plant; 37] = [
    plant("misaligned", (2, Some(4)), Misaligned, "ld.global.u32"),
    plant("shared_as_global", (0, None), WrongSpace, "st.global.u32 [%l]"),
    plant("global_as_shared", (0, None), WrongSpace, "st.shared.u32 [%a]"),
    plant("generic_without_cvta", (0, None), WrongSpace, "st.u32 [%l]"),
    plant("null", (0, None), OutOfBounds, "ld.global.u32"),
    plant("shared_too_small", (0, None), OutOfBounds, "st.shared.u32"),
    plant("constant_is_written", (0, None), ReadOnly, "st.u32"),
    plant("register_unset", (31, Some(32)), Uninitialised, "st.global.u32"),
    plant("predicate_unset", (0, None), Uninitialised, "@%q st.global.u32"),
    plant("shared_unset", (31, Some(32)), Uninitialised, "ld.shared.u32"),
    plant("local_unset", (31, Some(32)), Uninitialised, "ld.local.u32"),
    two(plant("hand_over", (0, Some(1)), SharedRace, "ld.shared.u32")),
    two(plant("overwrite", (0, Some(1)), SharedRace, "st.shared.u32 [%d], %v")),
    two(plant("wrong_barrier", (0, None), SharedRace, "ld.shared.u32")),
    plant("lanes_disagree", (0, Some(1)), LaneConflict, "st.shared.u32 [%s]"),
    two(plant("flag", (0, Some(1)), SharedRace, "ld.shared.u32 %v")),
    plant("copy_not_waited", (0, Some(1)), MissingWait, "ld.shared.u32"),
    two(plant("copy_not_shared", (0, Some(1)), MissingWait, "ld.shared.u32")),
    plant("bulk_not_waited", (0, Some(1)), MissingWait, "ld.shared.u32"),
    plant("bulk_not_shown", (0, Some(1)), MissingProxyFence, "cp.async.bulk"),
    two(plant("proxies", (0, Some(1)), MissingProxyFence, "cp.async.bulk.global")),
    two(plant("store_not_waited", (0, Some(1)), MissingWait, "st.shared.u32 [%d], 5")),
    grid(plant("counters", (0, Some(1)), GlobalRace, "global.u32")),
    two(plant("global_hand_over", (0, Some(1)), GlobalRace, "global.u32")),
    grid(plant("neighbours", (0, Some(128)), GlobalRace, "st.global.u32")),
    grid(plant("last_block", (0, Some(1)), GlobalRace, "ld.global.u32")),
    two(plant("divergent_barrier", (40, Some(64)), DivergentBarrier, "bar.sync")),
    two(plant("predicated_barrier", (40, Some(64)), DivergentBarrier, "bar.sync")),
    two(plant("ended_warp", (32, Some(64)), DivergentBarrier, "bar.sync")),
    two(plant("barrier_counts", (0, Some(1)), BarrierMisuse, "bar.sync 1")),
    plant("shuffle_in_branch", (0xffff_ffff, Some(0xffff)), DivergentWarp, "shfl.sync"),
    plant("barrier_unset", (0, Some(1)), BarrierMisuse, "mbarrier.arrive"),
    plant("barrier_overflow", (1, Some(2)), BarrierMisuse, "mbarrier.arrive"),
    plant("barrier_as_data", (0, Some(1)), BarrierMisuse, "ld.shared.u32"),
    two(plant("deadlock", (65, Some(64)), Deadlock, "mbarrier.try_wait")),
    plant("endless", (0, Some(1)), Endless, "bra AGAIN"),
    plant("stops", (0, Some(1)), Trap, "trap"),
];

fn run(module: &Module, plant: &Plant, n: u64, schedule: Schedule) -> Result<Profile, Fault> {
    let mut bench = Bench::new(schedule);
    let a = bench.buffer(&[3u32; 64]);
    let b = bench.buffer(&[0u32; 64]);
    let shared = if plant.entry == "shared_too_small" { 128 } else { 1024 };
    bench.launch(module, plant.entry, (plant.grid, plant.block, shared), &[a, b, n])
}

fn line(number: u32) -> &'static str {
    TEXT.lines().nth(number as usize - 1).unwrap_or_default()
}

#[test]
fn planted_faults_are_found_where_they_are() {
    let module = module("faults.ptx");
    for plant in &PLANTS {
        for schedule in [Schedule::Earliest, Schedule::Latest] {
            let outcome = run(&module, plant, plant.bad, schedule);
            let Err(fault) = outcome else {
                panic!("{} under {schedule:?}: not found", plant.entry)
            };
            // A copy that comes late finds a reader that came early, and cannot know why.
            let late = plant.kind == MissingWait && fault.kind == SharedRace;
            // A warp that comes first with the smaller count goes through, and leaves the other.
            let alone = plant.entry == "barrier_counts" && fault.kind == DivergentBarrier;
            // Which of two parties of a race comes second depends on the schedule.
            let other = matches!(plant.kind, SharedRace | GlobalRace | MissingWait);
            assert!(
                late || alone || fault.kind == plant.kind,
                "{} under {schedule:?}: {fault}",
                plant.entry
            );
            let place = fault.place.as_ref().unwrap();
            let copy = plant.kind == MissingWait && line(place.line).contains("cp.async");
            let found = copy || line(place.line).contains(plant.at);
            let either = fault.others.iter().any(|place| line(place.line).contains(plant.at));
            assert!(found || (other && either), "{}: {fault}", plant.entry);
        }
    }
}

#[test]
fn clean_twins_are_clean() {
    let module = module("faults.ptx");
    for plant in &PLANTS {
        let Some(good) = plant.good else { continue };
        for schedule in SCHEDULES.into_iter().chain((10..20).map(Schedule::Random)) {
            let outcome = run(&module, plant, good, schedule);
            outcome.unwrap_or_else(|fault| panic!("{} under {schedule:?}: {fault}", plant.entry));
        }
    }
}

#[test]
fn accesses_beyond_an_allocation_say_how_far() {
    let module = module("faults.ptx");
    let mut bench = Bench::new(Schedule::Earliest);
    let (a, b) = (bench.buffer(&[1u32; 20]), bench.buffer(&[0u32; 32]));
    bench.launch(&module, "copy", (1, 32, 0), &[a, b, 20]).unwrap();
    let fault = bench.launch(&module, "copy", (1, 32, 0), &[a, b, 21]).unwrap_err();
    assert_eq!(fault.kind, OutOfBounds);
    let place = fault.place.as_ref().unwrap();
    assert_eq!((place.warp, place.lane), (0, Some(20)));
    assert_eq!(place.source, Some(("faults.rs".to_owned(), 7)));
    assert!(fault.message.contains("80 bytes into the allocation"), "{fault}");
    assert!(fault.to_string().contains("faults.rs:7"), "{fault}");
    // What the kernel did before is there to be looked at.
    assert_eq!(bench.read::<u32>(b, 32)[..20], [1; 20]);
}

#[test]
fn freed_memory_is_not_memory() {
    let module = module("faults.ptx");
    let mut bench = Bench::new(Schedule::Earliest);
    let (a, b) = (bench.buffer(&[1u32; 32]), bench.buffer(&[0u32; 32]));
    bench.machine.free(a).unwrap();
    let again = bench.buffer(&[1u32; 32]);
    assert_ne!(a, again);
    let fault = bench.launch(&module, "copy", (1, 32, 0), &[a, b, 32]).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Freed);
    assert!(bench.machine.free(a).is_err() && bench.machine.read(a, &mut [0]).is_err());
    bench.launch(&module, "copy", (1, 32, 0), &[again, b, 32]).unwrap();
}

#[test]
fn memory_that_was_never_written_is_not_read() {
    let module = module("faults.ptx");
    let mut bench = Bench::new(Schedule::Earliest);
    let (a, b) = (bench.empty(128), bench.empty(128));
    bench.machine.fill(a, 7, 124).unwrap();
    let fault = bench.launch(&module, "copy", (1, 32, 0), &[a, b, 32]).unwrap_err();
    assert_eq!(fault.kind, Uninitialised);
    assert_eq!(fault.place.as_ref().and_then(|place| place.lane), Some(31));
    bench.launch(&module, "copy", (1, 32, 0), &[a, b, 31]).unwrap();
}

#[test]
fn copies_must_not_outlive_their_cta() {
    let module = module("faults.ptx");
    for (n, clean) in [(0, false), (1, true)] {
        let mut bench = Bench::new(Schedule::Latest);
        let (a, b) = (bench.buffer(&[1u32; 32]), bench.buffer(&[0u32; 32]));
        let outcome = bench.launch(&module, "bulk_left_behind", (1, 32, 1024), &[a, b, n]);
        assert_eq!(outcome.as_ref().err().map(|fault| fault.kind), (!clean).then_some(MissingWait));
    }
}

#[test]
fn a_race_names_both_and_a_deadlock_names_all() {
    let module = module("faults.ptx");
    let find = |entry: &str| PLANTS.iter().find(|plant| plant.entry == entry).unwrap();
    let race = run(&module, find("hand_over"), 0, Schedule::Earliest).unwrap_err();
    let [other] = race.others.as_slice() else { panic!("{race}") };
    assert_ne!(other.warp, race.place.as_ref().unwrap().warp);
    let stuck = run(&module, find("deadlock"), 65, Schedule::Earliest).unwrap_err();
    assert_eq!(stuck.others.len(), 1, "{stuck}");
    let race = run(&module, find("counters"), 0, Schedule::Earliest).unwrap_err();
    assert_ne!(race.others[0].cta, race.place.as_ref().unwrap().cta, "{race}");
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let module = module("faults.ptx");
    let plant = PLANTS.iter().find(|plant| plant.entry == "hand_over").unwrap();
    for seed in 0..8 {
        let first = run(&module, plant, 0, Schedule::Random(seed)).unwrap_err();
        let second = run(&module, plant, 0, Schedule::Random(seed)).unwrap_err();
        assert_eq!(first, second);
    }
}

/// Every line that only synchronises: without it, some schedule must find a fault.
#[test]
fn no_synchronisation_can_be_left_out() {
    let text = include_str!("ptx/copies.ptx");
    let check = |entry: &str, what: &str, occurrence: usize| {
        let start = text.find(&format!(".entry {entry}(")).unwrap();
        let place = text[start..].match_indices(what).nth(occurrence);
        let Some((at, _)) = place else { panic!("{entry} has no {what}") };
        let mut text = text.to_owned();
        text.replace_range(start + at..start + at + what.len(), "");
        let module = Module::parse(&text).unwrap();
        let schedules = SCHEDULES.into_iter().chain((10..40).map(Schedule::Random));
        let found = schedules.filter(|&schedule| {
            let mut bench = Bench::new(schedule);
            let input: Vec<u32> = (0..2560).collect();
            let (a, b) = (bench.buffer(&input), bench.empty(10_240));
            let (block, n) = match entry {
                "arrivals" => (64, None),
                "partial" => (32, None),
                _ => (128, Some(5)),
            };
            let params: Vec<u64> = [a, b].into_iter().chain(n).collect();
            bench.launch(&module, entry, (1, block, 3 * 2048), &params).is_err()
        });
        assert!(found.count() > 0, "{entry} without {what} number {occurrence}");
    };
    check("ring", "cp.async.wait_group 1;", 0);
    check("ring", "bar.sync 0;", 0);
    check("partial", "cp.async.wait_all;", 0);
    check("producer", "bar.sync 0;", 0);
    check("producer", "@!%done bra WAIT_EMPTY;", 0);
    check("producer", "@!%done bra WAIT_FULL;", 0);
    check("producer", "mbarrier.arrive.shared::cta.b64 _, [%a];", 0);
    check("producer", "fence.proxy.async.shared::cta;", 0);
    check("producer", "barrier.sync 1, 96;", 0);
    check("producer", "barrier.sync 1, 96;", 1);
    check("producer", "cp.async.bulk.wait_group.read 0;", 1);
    check("arrivals", "bar.sync 0;", 0);
    check("arrivals", "@!%done bra AGAIN;", 0);
    check("arrivals", "bar.sync 0;", 1);
}
