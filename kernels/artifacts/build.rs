//! Runs the builder of every kernel for the CPU and writes what comes out.

use tessera_kernel_dsl::Target;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let mut mistakes = 0;
    for entry in tessera_kernels::tiles::entries() {
        for error in (entry.build)(Target::Cpu).into_iter().filter_map(Result::err).flatten() {
            println!("cargo::error={error}");
            mistakes += 1;
        }
    }
    assert!(mistakes == 0, "{mistakes} mistakes in kernels");
}
