//! Every case of every kernel on the emulator, judged by the f64 evaluator.

use std::path::Path;
use tessera_emulator::{Config, Machine};
use tessera_kernel_dsl::Target as Built;
use tessera_kernel_tool::cases::{self, Case, differences, load};
use tessera_kernel_tool::emulate;
use tessera_kernels::tiles::entries;
use tessera_ptx::{Compiled, Origin, Sm, compile};
use tessera_tile_ir::Kernel;
use tessera_tile_ir::eval::evaluate;

fn all_cases() -> Vec<Case> {
    load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases")).expect("cases that parse")
}

/// What is wrong with a case on the emulator, if anything.
fn check(case: &Case, kernel: &Kernel, compiled: &Compiled) -> Result<(), String> {
    let mut truth = cases::Built::new(kernel, case).unwrap();
    let expected = evaluate(kernel, &mut truth.args);
    let mut got = cases::Built::new(kernel, case).unwrap();
    let mut machine = Machine::new(Config::default());
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

#[test]
fn cases_on_the_emulator() {
    let cases = all_cases();
    let only = std::env::var("ONLY").ok();
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in entries() {
        if only.as_deref().is_some_and(|name| name != entry.name) {
            continue;
        }
        for kernel in (entry.build)(Built::Sm90a) {
            let kernel = kernel.expect("a kernel");
            let origin = Origin { class: String::new(), source_hash: String::new() };
            let compiled = match compile(&kernel, &origin, Sm::Sm90a) {
                Ok(compiled) => compiled,
                Err(errors) => {
                    println!("{} {}", kernel.label(), errors[0]);
                    continue;
                }
            };
            for case in cases.iter().filter(|case| case.kernel == entry.name) {
                if !case.fits(&kernel.formats, &kernel.consts) {
                    continue;
                }
                count += 1;
                let caught = std::panic::catch_unwind(|| check(case, &kernel, &compiled));
                let result = caught.unwrap_or_else(|_| Err("panics".to_owned()));
                if let Err(why) = result {
                    wrong.push(format!("{} `{}`: {why}", kernel.label(), case.name));
                }
            }
        }
    }
    println!("{} of {count} wrong", wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
