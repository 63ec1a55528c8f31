//! Every case of a variant on the emulator, judged by the f64 evaluator: a variant that has not
//! passed is not launched. What passed is kept under the hash of this very program, so that nothing
//! is taken for passed that the emulator of today never ran.

use super::assemble::write;
use super::bar;
use super::generate::{Source, Variant};
use crate::cases::{Case, judge};
use crate::emulate;
use anyhow::{Context, Result};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_emulator::{Config, Machine};
use tessera_ptx::Compiled;
use tessera_ptx::bundle::sha256;

/// What came of a variant's cases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// So many cases, all as they should be.
    Passed(usize),
    /// No case is for it.
    NoCase,
    /// What the first case that is not as it should be says.
    Failed(String),
}

/// Runs the cases of every variant on every core.
///
/// # Errors
/// If the cache cannot be written.
pub fn all(variants: &[Variant], cases: &[Case], cache: &Path) -> Result<Vec<Verdict>> {
    let key = program_and(cases)?;
    let bar = bar(variants.len() as u64, "running cases");
    let next = AtomicUsize::new(0);
    let done: Mutex<Vec<(usize, Result<Verdict>)>> = Mutex::default();
    let work = || {
        while let Some((i, variant)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            variants.get(i).map(|variant| (i, variant))
        } {
            let verdict = one(variant, cases, cache, &key);
            bar.inc(1);
            done.lock().expect("no worker panics").push((i, verdict));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        (0..cores.min(variants.len())).for_each(|_| _ = scope.spawn(work));
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().expect("no worker panics");
    done.sort_by_key(|(i, _)| *i);
    done.into_iter().map(|(_, verdict)| verdict).collect()
}

/// Hash of this program, which has the emulator and the evaluator in it, and of the cases.
fn program_and(cases: &[Case]) -> Result<String> {
    let program = std::env::current_exe().context("this program has no file")?;
    let program =
        std::fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
    Ok(sha256(&program) + &sha256(format!("{cases:?}").as_bytes()))
}

fn one(variant: &Variant, cases: &[Case], cache: &Path, key: &str) -> Result<Verdict> {
    let Some(source) = &variant.source else { return Ok(Verdict::NoCase) };
    let key = format!("{key}{}{}", variant.label, variant.ptx);
    let passed = cache.join(format!("{}.passed", &sha256(key.as_bytes())[..32]));
    if let Ok(count) = std::fs::read_to_string(&passed) {
        return Ok(Verdict::Passed(count.trim().parse().context("a broken cache")?));
    }
    let own = cases.iter().filter(|case| {
        let Source { kernel, .. } = source.as_ref();
        case.kernel == kernel.name && case.fits(&kernel.formats, &kernel.consts)
    });
    let compiled = Compiled { ptx: variant.ptx.clone(), entry: source.entry.clone() };
    let mut count = 0;
    for case in own {
        count += 1;
        let judged = std::panic::catch_unwind(|| {
            judge(&source.kernel, case, |built| {
                let mut machine = Machine::new(Config::default());
                emulate::run(&source.kernel, &compiled, built, &mut machine).map(|_| ())
            })
        });
        if let Err(why) = judged.unwrap_or_else(|_| Err("it panics".to_owned())) {
            return Ok(Verdict::Failed(format!("case `{}`: {why}", case.name)));
        }
    }
    if count == 0 {
        return Ok(Verdict::NoCase);
    }
    write(&passed, count.to_string().as_bytes())?;
    Ok(Verdict::Passed(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases::load;
    use crate::gpu::generate::variants;
    use tessera_ptx::Sm;

    fn verdict(change: impl Fn(&str) -> String, cases: &[Case]) -> Verdict {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let mut all = variants(Sm::Sm90a, "swiglu", root).variants;
        all.truncate(1);
        all[0].ptx = change(&all[0].ptx);
        let cache = std::env::temp_dir().join(format!("tessera-cases-{}", std::process::id()));
        std::fs::create_dir_all(&cache).unwrap();
        let verdicts = super::all(&all, cases, &cache).unwrap();
        // A second time it is read.
        assert_eq!(verdicts, super::all(&all, cases, &cache).unwrap());
        std::fs::remove_dir_all(&cache).unwrap();
        verdicts[0].clone()
    }

    #[test]
    fn a_kernel_that_computes_something_else_fails() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../cases"));
        let cases = load(folder).unwrap();
        assert!(matches!(verdict(str::to_owned, &cases), Verdict::Passed(n) if n > 0));
        assert_eq!(verdict(str::to_owned, &[]), Verdict::NoCase);
        let wrong = verdict(|ptx| ptx.replace("mul.rn.f32", "add.rn.f32"), &cases);
        assert!(matches!(&wrong, Verdict::Failed(why) if why.contains("differ")), "{wrong:?}");
        let broken =
            verdict(|ptx| ptx.replace("bar.sync", "bar.sing").replace("ret;", "rit;"), &cases);
        assert!(matches!(&broken, Verdict::Failed(_)), "{broken:?}");
    }
}
