//! Kernels as a GPU runs them: every case on the emulator judged by the f64 evaluator, and no schedule
//! that breaks one.

mod subjects;

use rayon::prelude::*;
use subjects::{Judged, Subject, check, one_of_each, subjects};
use tessera_emulator::Schedule;
use tessera_kernel_dsl::Target;
use tessera_kernels::tiles::entries;
use tessera_ptx::{Origin, Sm, compile};

/// What is wrong with any case of any subject.
fn wrong(subjects: &[Subject], schedules: &[Schedule]) -> Vec<String> {
    let all = subjects.iter().flat_map(|subject| {
        let each = move |case| schedules.iter().map(move |schedule| (subject, case, *schedule));
        subject.cases.iter().flat_map(each)
    });
    let all: Vec<_> = all.collect();
    assert!(!all.is_empty(), "nothing is checked");
    let one = |&(subject, judged, schedule): &(&Subject, &Judged, Schedule)| {
        let why = check(subject, &subject.compiled, judged, schedule).err()?;
        Some(format!("{} `{}`, {schedule:?}: {why}", subject.kernel.label(), judged.case.name))
    };
    all.par_iter().filter_map(one).collect()
}

#[test]
fn every_case_holds() {
    let subjects = subjects();
    for subject in &subjects {
        assert!(!subject.cases.is_empty(), "{} has no case", subject.kernel.label());
    }
    let wrong = wrong(&subjects, &[Schedule::Earliest]);
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn no_schedule_breaks_a_kernel() {
    let seeds = (0..20).map(Schedule::Random);
    let schedules: Vec<Schedule> = seeds.chain([Schedule::Latest]).collect();
    let wrong = wrong(&one_of_each(), &schedules);
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn both_targets_have_code() {
    let origin = Origin { class: String::new(), source_hash: String::new() };
    for (target, sm) in [(Target::Sm90a, Sm::Sm90a), (Target::Sm100a, Sm::Sm100f)] {
        for entry in entries() {
            let variants = (entry.build)(target);
            assert!(!variants.is_empty(), "{} has no variant for {sm}", entry.name);
            for kernel in variants {
                let compiled =
                    compile(&kernel.expect("a kernel that builds"), &origin, sm).unwrap();
                let says = format!(".target {sm}");
                assert!(compiled.ptx.contains(&says), "{}", compiled.entry.label);
            }
        }
    }
}
