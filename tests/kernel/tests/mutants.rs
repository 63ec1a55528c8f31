//! Faults planted in the PTX of shipped kernels, which the emulator must find in some case.

mod subjects;

use rayon::prelude::*;
use subjects::{Judged, Subject, check, one_of_each};
use tessera_emulator::{Config, Machine, Schedule};
use tessera_kernel_tool::cases::Built;
use tessera_kernel_tool::emulate;
use tessera_ptx::Compiled;

/// PTX with one thing broken, and what that is.
struct Mutant {
    ptx: String,
    what: String,
}

/// Whether any case of a subject breaks when the subject is a mutant.
fn is_noticed(subject: &Subject, mutant: &Mutant) -> bool {
    let compiled = Compiled { ptx: mutant.ptx.clone(), entry: subject.compiled.entry.clone() };
    let schedules = [Schedule::Earliest, Schedule::Latest];
    let breaks =
        |case: &Judged| schedules.iter().any(|how| check(subject, &compiled, case, *how).is_err());
    subject.cases.iter().any(breaks)
}

/// Mutants that no case of their subject notices, and how many there were.
fn unnoticed(mutants: impl Fn(&str) -> Vec<Mutant> + Sync) -> (usize, Vec<String>) {
    let subjects = one_of_each();
    let all: Vec<(&Subject, Mutant)> = subjects
        .iter()
        .flat_map(|subject| mutants(&subject.compiled.ptx).into_iter().map(move |m| (subject, m)))
        .collect();
    let missed = all.par_iter().filter(|(subject, mutant)| !is_noticed(subject, mutant));
    let missed =
        missed.map(|(subject, mutant)| format!("{}: {}", subject.kernel.label(), mutant.what));
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

/// For each line that `change` changes, the text with that line changed.
fn by_line(ptx: &str, change: impl Fn(&str) -> Option<String>) -> Vec<Mutant> {
    let lines: Vec<&str> = ptx.lines().collect();
    let mutant = |(at, line): (usize, &&str)| {
        let other = change(line.trim())?;
        let what = format!("line {}, `{}` is now `{other}`", at + 1, line.trim());
        let mut lines = lines.clone();
        lines[at] = &other;
        Some(Mutant { ptx: lines.join("\n"), what })
    };
    lines.iter().enumerate().filter_map(mutant).collect()
}

/// Plants at least `least` faults and wants them all found.
fn all_are_found(least: usize, mutants: impl Fn(&str) -> Vec<Mutant> + Sync) {
    let (planted, missed) = unnoticed(mutants);
    assert!(planted >= least, "{planted} faults are too few to say anything");
    assert!(missed.is_empty(), "{} of {planted}\n{}", missed.len(), missed.join("\n"));
}

/// PTX with a remark at barriers before rings that are opened, if a program opens one alone: a block
/// of rows is one chunk there, and nobody has read the ring before.
fn with_idle_barriers(ptx: &str) -> String {
    let one_chunk = ptx.starts_with("// w_gemm<") && ptx.contains("CHUNK=64");
    let lines: Vec<&str> = ptx.lines().collect();
    let opens = |at: usize| {
        one_chunk && lines.get(at + 1).is_some_and(|line| line.ends_with("// a ring opens"))
    };
    let line = |(at, line): (usize, &&str)| match line.trim() {
        "bar.sync 0;" if opens(at) => "bar.sync 0; // idle".to_owned(),
        _ => (*line).to_owned(),
    };
    lines.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_dropped_barrier_is_found() {
    all_are_found(150, |ptx| {
        by_line(&with_idle_barriers(ptx), |line| (line == "bar.sync 0;").then(String::new))
    });
}

/// How many groups of copies may still be on their way.
fn pending(line: &str) -> Option<usize> {
    line.strip_prefix("cp.async.wait_group ")?.strip_suffix(';')?.parse().ok()
}

#[test]
fn a_dropped_or_weaker_wait_is_found() {
    all_are_found(10, |ptx| by_line(ptx, |line| pending(line).map(|_| String::new())));
    let weaker = |line: &str| Some(format!("cp.async.wait_group {};", pending(line)? + 1));
    all_are_found(10, |ptx| by_line(ptx, weaker));
}

/// How many groups of products may still be on their way. A wait with a remark frees registers, which
/// PTX has without end.
fn products_pending(line: &str) -> Option<usize> {
    line.strip_prefix("wgmma.wait_group.sync.aligned ")?.strip_suffix(';')?.parse().ok()
}

#[test]
fn a_dropped_or_weaker_wait_for_products_is_found() {
    all_are_found(8, |ptx| by_line(ptx, |line| products_pending(line).map(|_| String::new())));
    let weaker = |line: &str| {
        Some(format!("wgmma.wait_group.sync.aligned {};", products_pending(line)? + 1))
    };
    all_are_found(8, |ptx| by_line(ptx, weaker));
    // Products that belong to no group are not waited for; one chunk's may go with the next one's.
    let commit = "wgmma.commit_group.sync.aligned;";
    let drop = |line: &str| (line.trim() == commit).then(String::new);
    all_are_found(8, |ptx| by_source_line(ptx, drop));
}

#[test]
fn a_ring_of_one_slot_less_is_found() {
    // The offset of a slot: so many bytes further, or the first if that is past the last.
    let rings = |ptx: &str| {
        let lines: Vec<&str> = ptx.lines().map(str::trim).collect();
        let mut rings: Vec<(String, usize)> = Vec::new();
        for pair in lines.windows(2) {
            let (Some(add), Some(test)) =
                (pair[0].strip_prefix("add.u32 "), pair[1].strip_prefix("setp.ge.u32 "))
            else {
                continue;
            };
            let last = |line: &str| -> Option<usize> {
                line.rsplit(", ").next()?.strip_suffix(';')?.parse().ok()
            };
            if let (Some(slot), Some(end)) = (last(add), last(test))
                && !rings.contains(&(format!(", {end};"), end - slot))
            {
                rings.push((format!(", {end};"), end - slot));
            }
        }
        rings
    };
    all_are_found(8, |ptx| {
        let mutant = |(end, less): (String, usize)| {
            let change = |line: &str| match line.trim().starts_with("setp.ge.u32") {
                true => line.replace(&end, &format!(", {less};")),
                false => line.to_owned(),
            };
            let ptx = ptx.lines().map(change).collect::<Vec<_>>().join("\n");
            Mutant { ptx, what: format!("a ring that ends at {less}") }
        };
        rings(ptx).into_iter().map(mutant).collect()
    });
}

#[test]
fn a_barrier_object_that_is_not_waited_for_is_found() {
    // Done at once.
    all_are_found(4, |ptx| {
        by_line(ptx, |line| {
            let wait = line.strip_prefix("mbarrier.try_wait.parity.shared::cta.b64 ")?;
            let (done, _) = wait.split_once(',')?;
            Some(format!("setp.eq.u32 {done}, 0, 0;"))
        })
    });
    // An arrival of less than what is on its way, or the other phase.
    all_are_found(4, |ptx| {
        by_line(ptx, |line| {
            let (arrive, bytes) = line.strip_suffix(';')?.rsplit_once(", ")?;
            arrive.contains("arrive.expect_tx").then(|| format!("{arrive}, 16; // not {bytes}"))
        })
    });
    all_are_found(4, |ptx| by_line(ptx, |line| line.contains("mbarrier.init").then(String::new)));
}

#[test]
fn a_dropped_fence_is_found() {
    all_are_found(24, |ptx| by_line(ptx, |line| line.starts_with("fence.").then(String::new)));
    let of_products = "wgmma.fence.sync.aligned;";
    all_are_found(8, |ptx| by_line(ptx, |line| (line == of_products).then(String::new)));
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

/// Bytes of global memory that each case asks for, `None` where it fails.
fn bytes_asked(subject: &Subject, ptx: &str) -> Vec<Option<u64>> {
    let compiled = Compiled { ptx: ptx.to_owned(), entry: subject.compiled.entry.clone() };
    let asked = |judged: &Judged| {
        let mut built = Built::new(&subject.kernel, &judged.case).expect("a whole case");
        let mut machine = Machine::new(Config::default());
        let profile = emulate::run(&subject.kernel, &compiled, &mut built, &mut machine).ok()?;
        Some(profile.total.global_bytes)
    };
    subject.cases.iter().map(asked).collect()
}

#[test]
fn a_bound_that_is_one_too_far_is_found() {
    let farther = |line: &str| {
        let bound = line.trim().strip_prefix("setp.lt.u64 ")?;
        Some(format!("setp.le.u64 {bound}"))
    };
    let subjects = one_of_each();
    let sound = |subject| (subject, bytes_asked(subject, &subject.compiled.ptx));
    let sound: Vec<(&Subject, _)> = subjects.par_iter().map(sound).collect();
    let all = sound.iter().flat_map(|(subject, sound)| {
        let mutants = by_source_line(&subject.compiled.ptx, farther);
        mutants.into_iter().map(move |mutant| (*subject, mutant, sound))
    });
    let all: Vec<_> = all.collect();
    // A bound that changes no access of any case is not one too far.
    let planted =
        all.par_iter().filter(|(s, mutant, sound)| bytes_asked(s, &mutant.ptx) != **sound);
    let planted: Vec<_> = planted.collect();
    let missed = planted.par_iter().filter(|(subject, mutant, _)| !is_noticed(subject, mutant));
    let missed: Vec<String> = missed
        .map(|(subject, mutant, _)| format!("{}: {}", subject.kernel.label(), mutant.what))
        .collect();
    assert!(planted.len() > 150, "{} of {} bounds matter", planted.len(), all.len());
    assert!(missed.is_empty(), "{} of {}\n{}", missed.len(), planted.len(), missed.join("\n"));
}
