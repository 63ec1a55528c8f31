//! No kernel does more than it did when somebody last looked, and what is modelled of launches
//! agrees with what the emulator counts.

use std::path::Path;
use tessera_kernel_tool::floor::model::MMA_FLOP;
use tessera_kernel_tool::floor::ratchet::{Profile, path};
use tessera_kernel_tool::floor::workload::workloads;
use tessera_kernel_tool::floor::{count, peaks::GPUS};
use tessera_kernel_tool::gpu::build::Places;
use tessera_ptx::Sm;

#[test]
fn no_kernel_does_more_than_its_profile() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let committed = Profile::read(&path(&root)).unwrap();
    let worse = committed.worse(&Profile::count(&root).unwrap());
    let accept = "`cargo xtask bench floor --bless` accepts this";
    assert!(worse.is_empty(), "{}\n{accept}", worse.join("\n"));
}

#[test]
fn launches_do_at_least_what_their_floor_says() {
    let places = Places::of_workspace();
    for workload in workloads() {
        let counted = count(&workload, Sm::Sm90a, &places).unwrap();
        let (name, total) = (&workload.name, &counted.profile.total);
        let asked = counted.of_launch(total.global_bytes);
        assert!(asked >= counted.least_bytes(), "{name}: asks for {asked} bytes");
        let products = counted.of_launch(total.mma * MMA_FLOP);
        assert!(products >= workload.flop as f64, "{name}: {products} operations");
        // A floor above the model would be none.
        for gpu in GPUS {
            let modelled = counted.on(&gpu);
            assert!(modelled.ratio() >= 1.0, "{name} on {}: {modelled:?}", gpu.name);
        }
        let lines = &counted.profile.lines;
        assert!(lines.iter().all(|line| line.source.is_some()), "{name}: a line has no source");
        let forms: u64 = counted.forms.iter().map(|(_, n)| n).sum();
        assert_eq!(forms, total.warp_instructions, "{name}");
    }
}
