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
    let cases =
        load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases")).expect("cases that parse");
    let origin = Origin { class: String::new(), source_hash: String::new() };
    let subject = |kernel: Kernel| {
        let compiled = compile(&kernel, &origin, Sm::Sm90a).unwrap_or_else(|e| panic!("{}", e[0]));
        let fits =
            |case: &&Case| case.kernel == kernel.name && case.fits(&kernel.formats, &kernel.consts);
        let cases = cases.iter().filter(fits).cloned().collect();
        Subject { kernel, compiled, cases }
    };
    let kernels = entries().into_iter().flat_map(|entry| (entry.build)(Target::Sm90a));
    kernels.map(|kernel| subject(kernel.expect("a kernel that builds"))).collect()
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
    let mut truth = Built::new(kernel, case).expect("a case with all arguments");
    let expected = evaluate(kernel, &mut truth.args);
    let mut got = Built::new(kernel, case).expect("a case with all arguments");
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

/// PTX with one thing broken, and what that is.
struct Mutant {
    ptx: String,
    what: String,
}

/// Mutants that no case of their subject notices, and how many there were.
fn unnoticed(mutants: impl Fn(&str) -> Vec<Mutant> + Sync) -> (usize, Vec<String>) {
    let subjects = one_of_each();
    let all: Vec<(&Subject, Mutant)> = subjects
        .iter()
        .flat_map(|subject| mutants(&subject.compiled.ptx).into_iter().map(move |m| (subject, m)))
        .collect();
    let missed = all.par_iter().filter_map(|(subject, mutant)| {
        let compiled = Compiled { ptx: mutant.ptx.clone(), entry: subject.compiled.entry.clone() };
        let broken = Subject { kernel: subject.kernel.clone(), compiled, cases: Vec::new() };
        let breaks = |case: &Case| check(&broken, case, Schedule::Earliest).is_err();
        let any = subject.cases.iter().any(breaks);
        (!any).then(|| format!("{}: {}", subject.kernel.label(), mutant.what))
    });
    (all.len(), missed.collect())
}

/// For each source line, the text with the lines that came of it changed.
fn by_source_line(ptx: &str, change: impl Fn(&str) -> Option<String>) -> Vec<Mutant> {
    let mut place = "";
    let placed: Vec<(&str, &str)> = ptx
        .lines()
        .map(|line| {
            if line.trim().starts_with(".loc") {
                place = line.trim();
            }
            (place, line)
        })
        .collect();
    let mut places: Vec<&str> = placed.iter().map(|(place, _)| *place).collect();
    places.sort_unstable();
    places.dedup();
    let mutant = |wanted: &str| {
        let mut changed = false;
        let lines: Vec<String> = placed
            .iter()
            .map(|(place, line)| match change(line).filter(|_| *place == wanted) {
                Some(other) => {
                    changed = true;
                    other
                }
                None => (*line).to_owned(),
            })
            .collect();
        changed.then(|| Mutant { ptx: lines.join("\n"), what: wanted.to_owned() })
    };
    places.into_iter().filter_map(mutant).collect()
}

#[test]
fn a_dropped_barrier_is_found() {
    let (planted, missed) = unnoticed(|ptx| {
        let at: Vec<usize> = (0..)
            .zip(ptx.lines())
            .filter(|(_, line)| line.trim() == "bar.sync 0;")
            .map(|(at, _)| at)
            .collect();
        let without = |at: &usize| {
            let kept = (0..).zip(ptx.lines()).filter(|(i, _)| i != at).map(|(_, line)| line);
            Mutant {
                ptx: kept.collect::<Vec<_>>().join("\n"),
                what: format!("without the barrier in line {}", at + 1),
            }
        };
        at.iter().map(without).collect()
    });
    assert!(planted > 100, "{planted} barriers are too few to say anything");
    assert!(missed.is_empty(), "{} of {planted}\n{}", missed.len(), missed.join("\n"));
}

/// The mask of a load, and the load.
fn masked_load(line: &str) -> Option<(&str, &str)> {
    let (mask, load) = line.trim().strip_prefix('@')?.split_once(' ')?;
    load.starts_with("ld.global").then_some((mask, load))
}

#[test]
fn a_dropped_mask_is_found() {
    // Masks that no case needs are no faults when they are missing: those whose loads never trap
    // where the mask forbids them.
    let needed = |ptx: &str| {
        by_source_line(ptx, |line| {
            let (mask, load) = masked_load(line)?;
            Some(format!("@!{mask} trap;\n@{mask} {load}"))
        })
    };
    let (all, idle) = unnoticed(needed);
    let (planted, missed) = unnoticed(|ptx| {
        by_source_line(ptx, |line| masked_load(line).map(|(_, load)| load.to_owned()))
    });
    assert_eq!(planted, all, "each mask is looked at twice");
    assert!(planted > idle.len() + 50, "{} of {planted} masks are needed", planted - idle.len());
    let missed: Vec<String> = missed.into_iter().filter(|what| !idle.contains(what)).collect();
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}
