//! Prints the source that the tests of this crate compile: `cargo run -p tessera-kernel-cpu
//! --example test_kernels > kernel-dsl/cpu/tests/generated/kernels.rs`. With the name of a kernel,
//! what became of it line by line.

#[path = "../tests/kernels/mod.rs"]
mod kernels;

fn main() {
    let built = kernels::built();
    match std::env::args().nth(1) {
        None => match tessera_kernel_cpu::source(&built) {
            Ok(source) => print!("{source}"),
            Err(errors) => errors.iter().for_each(|error| eprintln!("{error}")),
        },
        Some(name) => {
            for kernel in built.iter().flatten().filter(|kernel| kernel.name == name) {
                show(kernel);
            }
        }
    }
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
