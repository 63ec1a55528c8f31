//! What the tests of kernels on the emulator run: variants with their cases, judged by the f64
//! evaluator.

use std::path::Path;
use std::sync::OnceLock;
use tessera_emulator::{Config, Machine, Schedule};
use tessera_kernel_dsl::Target;
use tessera_kernel_tool::cases::{Built, Case, differences, load};
use tessera_kernel_tool::emulate;
use tessera_kernels::tiles::entries;
use tessera_ptx::{Compiled, Origin, Sm, compile};
use tessera_tile_ir::Kernel;
use tessera_tile_ir::eval::evaluate;

/// A variant and the cases that it is for.
pub(crate) struct Subject {
    pub(crate) kernel: Kernel,
    pub(crate) compiled: Compiled,
    pub(crate) cases: Vec<Judged>,
}

/// A case, and what the evaluator makes of it, once somebody asks.
pub(crate) struct Judged {
    pub(crate) case: Case,
    truth: OnceLock<Result<Built, String>>,
}

impl Judged {
    fn truth(&self, kernel: &Kernel) -> &Result<Built, String> {
        self.truth.get_or_init(|| {
            let mut truth = Built::new(kernel, &self.case).expect("a case with all arguments");
            match evaluate(kernel, &mut truth.args) {
                Ok(_) => Ok(truth),
                Err(error) => Err(error.to_string()),
            }
        })
    }
}

/// Every variant of every kernel.
pub(crate) fn subjects() -> Vec<Subject> {
    let cases =
        load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases")).expect("cases that parse");
    let origin = Origin { class: String::new(), source_hash: String::new() };
    let subject = |kernel: Kernel| {
        let compiled = compile(&kernel, &origin, Sm::Sm90a).unwrap_or_else(|e| panic!("{}", e[0]));
        let fits =
            |case: &&Case| case.kernel == kernel.name && case.fits(&kernel.formats, &kernel.consts);
        let judged = |case: &Case| Judged { case: case.clone(), truth: OnceLock::new() };
        let cases = cases.iter().filter(fits).map(judged).collect();
        Subject { kernel, compiled, cases }
    };
    let kernels = entries().into_iter().flat_map(|entry| (entry.build)(Target::Sm90a));
    kernels.map(|kernel| subject(kernel.expect("a kernel that builds"))).collect()
}

/// One variant of each kernel: the formats that serve, or the only ones.
pub(crate) fn one_of_each() -> Vec<Subject> {
    let serves = |subject: &Subject| {
        let formats = &subject.kernel.formats;
        formats.iter().all(|format| ["int4-g32", "e4m3", "bf16"].contains(&format.as_str()))
    };
    let mut all = subjects();
    all.retain(serves);
    all
}

/// What is wrong with a case of a subject on the emulator, if anything, with this PTX.
pub(crate) fn check(
    subject: &Subject,
    ptx: &Compiled,
    judged: &Judged,
    schedule: Schedule,
) -> Result<(), String> {
    let (kernel, case) = (&subject.kernel, &judged.case);
    let mut got = Built::new(kernel, case).expect("a case with all arguments");
    let mut machine = Machine::new(Config { schedule, ..Config::default() });
    match (emulate::run(kernel, ptx, &mut got, &mut machine), &case.fails) {
        (Ok(_), None) => {}
        (Err(e), Some(message)) if e.to_string().contains(message.as_str()) => return Ok(()),
        (Err(error), _) => return Err(format!("{error:#}")),
        (Ok(_), Some(_)) => return Err("does not fail".to_owned()),
    }
    let truth = judged.truth(kernel).as_ref()?;
    let found = differences(kernel, &got.args, &truth.args, case.tolerance);
    match found.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} differ, such as {first}", found.len())),
    }
}
