//! Kernels as a GPU runs them: every case on the emulator judged by the f64 evaluator, no schedule
//! that breaks one, and faults planted in the PTX of shipped kernels, which the emulator must find.

use rayon::prelude::*;
use std::path::Path;
use tessera_emulator::{Config, Machine, Schedule};
use tessera_kernel_dsl::Target;
use tessera_kernel_tool::cases::{Built, Case, differences, load};
use tessera_kernel_tool::emulate;
use tessera_kernels::tiles::entries;
use tessera_ptx::{Compiled, Origin, Sm, compile};
use tessera_tile_ir::Kernel;
use tessera_tile_ir::eval::evaluate;

/// A variant and the cases that it is for.
struct Subject {
    kernel: Kernel,
    compiled: Compiled,
    cases: Vec<Case>,
}

/// Every variant of every kernel.
fn subjects() -> Vec<Subject> {
    let cases = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases")).unwrap();
    let origin = Origin { class: String::new(), source_hash: String::new() };
    let subject = |kernel: Kernel| {
        let compiled = compile(&kernel, &origin, Sm::Sm90a).unwrap_or_else(|e| panic!("{}", e[0]));
        let fits = |case: &&Case| {
            case.kernel == kernel.name && case.fits(&kernel.formats, &kernel.consts)
        };
        let cases = cases.iter().filter(fits).cloned().collect();
        Subject { kernel, compiled, cases }
    };
    let kernels = entries().into_iter().flat_map(|entry| (entry.build)(Target::Sm90a));
    kernels.map(|kernel| subject(kernel.unwrap())).collect()
}

/// One variant of each kernel: the formats that serve, or the only ones.
fn one_of_each() -> Vec<Subject> {
    let serves = |subject: &Subject| {
        let formats = &subject.kernel.formats;
        formats.iter().all(|format| ["int4-g32", "e4m3", "bf16"].contains(&format.as_str()))
    };
    let mut all = subjects();
    all.retain(serves);
    all
}

/// What is wrong with a case on the emulator, if anything.
fn check(subject: &Subject, case: &Case, schedule: Schedule) -> Result<(), String> {
    let Subject { kernel, compiled, .. } = subject;
    let mut truth = Built::new(kernel, case).unwrap();
    let expected = evaluate(kernel, &mut truth.args);
    let mut got = Built::new(kernel, case).unwrap();
    let mut machine = Machine::new(Config { schedule, ..Config::default() });
    match (emulate::run(kernel, compiled, &mut got, &mut machine), &case.fails) {
        (Ok(_), None) => {}
        (Err(e), Some(message)) if e.to_string().contains(message.as_str()) => return Ok(()),
        (Err(error), _) => return Err(format!("{error:#}")),
        (Ok(_), Some(_)) => return Err("does not fail".to_owned()),
    }
    expected.map_err(|error| error.to_string())?;
    let found = differences(kernel, &got.args, &truth.args, case.tolerance);
    match found.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} differ, such as {first}", found.len())),
    }
}

/// What is wrong with any case of any subject.
fn wrong(subjects: &[Subject], schedules: &[Schedule]) -> Vec<String> {
    let all = subjects.iter().flat_map(|subject| {
        let each = move |case| schedules.iter().map(move |schedule| (subject, case, *schedule));
        subject.cases.iter().flat_map(each)
    });
    let all: Vec<_> = all.collect();
    assert!(!all.is_empty(), "nothing is checked");
    let one = |&(subject, case, schedule): &(&Subject, &Case, Schedule)| {
        let why = check(subject, case, schedule).err()?;
        Some(format!("{} `{}`, {schedule:?}: {why}", subject.kernel.label(), case.name))
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
    for kernel in entries().into_iter().flat_map(|entry| (entry.build)(Target::Sm100a)) {
        let compiled = compile(&kernel.unwrap(), &origin, Sm::Sm100f).unwrap();
        assert!(compiled.ptx.contains(".target sm_100f"), "{}", compiled.entry.label);
    }
}

#[test]
fn a_dropped_barrier_is_found() {
    let dropped = |text: &str, which: usize| {
        let mut count = 0;
        let kept = text.lines().filter(|line| {
            count += usize::from(line.trim() == "bar.sync 0;");
            line.trim() != "bar.sync 0;" || count != which + 1
        });
        kept.collect::<Vec<_>>().join("\n")
    };
    let mut planted = 0;
    let mut missed = Vec::new();
    for subject in one_of_each() {
        let lines = subject.compiled.ptx.lines();
        let barriers = lines.filter(|line| line.trim() == "bar.sync 0;").count();
        let found: Vec<Option<String>> = (0..barriers)
            .into_par_iter()
            .map(|which| {
                let ptx = dropped(&subject.compiled.ptx, which);
                let broken = Compiled { ptx, entry: subject.compiled.entry.clone() };
                let broken = Subject {
                    kernel: subject.kernel.clone(),
                    compiled: broken,
                    cases: Vec::new(),
                };
                let breaks = |case: &Case| check(&broken, case, Schedule::Earliest).is_err();
                let any = subject.cases.iter().any(breaks);
                (!any).then(|| format!("{} without barrier {which}", subject.kernel.label()))
            })
            .collect();
        planted += found.len();
        missed.extend(found.into_iter().flatten());
    }
    println!("{planted} barriers dropped, {} of them unnoticed", missed.len());
    assert!(planted > 50, "{planted} barriers are too few to say anything");
    assert!(missed.is_empty(), "{} unnoticed\n{}", missed.len(), missed.join("\n"));
}
