//! Writes the source that the tests of this crate compile, one file a kernel, into a folder:
//! `cargo run -p tessera-kernel-cpu --example test_kernels kernel-dsl/cpu/tests/generated`. With
//! the name of a kernel instead, prints what became of it line by line.

#[path = "../tests/kernels/mod.rs"]
mod kernels;

use std::path::Path;
use std::{env, fs};

fn main() -> std::io::Result<()> {
    let built = kernels::built();
    let Some(what) = env::args().nth(1) else { return Ok(()) };
    for variants in &built {
        let name = &variants[0].name;
        if *name == what {
            variants.iter().for_each(show);
        } else if Path::new(&what).is_dir() {
            let path = Path::new(&what).join(format!("{name}.rs"));
            fs::write(path, kernels::file(variants))?;
        }
    }
    Ok(())
}

fn show(kernel: &tessera_tile_ir::Kernel) {
    let lines = match tessera_kernel_cpu::explain(kernel) {
        Ok(lines) => lines,
        Err(errors) => return errors.iter().for_each(|error| eprintln!("{error}")),
    };
    for (place, made) in lines {
        println!("\n{}:{}", place.file, place.line);
        made.ops.iter().for_each(|op| println!("  | {op}"));
        made.code.iter().for_each(|code| println!("{}", code.text));
    }
}
