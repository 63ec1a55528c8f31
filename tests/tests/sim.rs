//! The whole system under a seeded simulation; see `tessera_tests::sim`.

use tessera_tests::sim::{Guards, Outcome, run};

const SEEDS: u64 = 1_000;

/// Sum over all seeds, on two threads.
fn run_all(guards: Guards) -> Outcome {
    let half = |first: u64| {
        let seeds = (first..=SEEDS).step_by(2);
        seeds.map(|seed| (seed, run(seed, guards))).collect::<Vec<_>>()
    };
    let outcomes = std::thread::scope(|scope| {
        let halves = [1, 2].map(|first| scope.spawn(move || half(first)));
        halves.map(|half| half.join().expect("a seed failed; its message has the seed"))
    });
    let mut sum = Outcome::default();
    for (seed, outcome) in outcomes.into_iter().flatten() {
        let wrong = outcome.foreign_reads + outcome.unseen_faults + outcome.wrong_outputs;
        if guards == Guards::ALL {
            assert_eq!(wrong, 0, "run({seed}, Guards::ALL): {outcome:?}");
        }
        sum += outcome;
    }
    sum
}

#[test]
fn a_thousand_schedules_lose_nothing_and_mix_nothing() {
    let sum = run_all(Guards::ALL);
    println!("{sum:?}");
    // The schedules do reach what they are meant to reach.
    let reached = [
        sum.finished,
        sum.refused,
        sum.integrity,
        sum.not_finite,
        sum.preempted,
        sum.restarts,
        sum.late_writes,
    ];
    assert!(reached.iter().all(|count| *count >= 100), "{sum:?}");
    assert!(sum.cached_tokens > 10_000 && sum.finished > 5_000, "{sum:?}");
}

#[test]
fn o_501_without_leases_late_writes_are_read() {
    let sum = run_all(Guards { leases: false, ..Guards::ALL });
    assert!(sum.foreign_reads > 0 && sum.wrong_outputs > 0, "{sum:?}");
}

#[test]
fn without_tags_a_bent_table_is_read() {
    let sum = run_all(Guards { tags: false, ..Guards::ALL });
    assert!(sum.unseen_faults > 0 && sum.foreign_reads > 0, "{sum:?}");
}
