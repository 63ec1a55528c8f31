//! Whole kernels: control flow, shared memory, exchanges, atomics, profiles.

mod harness;

use harness::{Bench, SCHEDULES, module};
use tessera_emulator::{Class, FaultKind, Module, Schedule};

#[test]
fn adds_vectors_and_counts() {
    let module = module("basics.ptx");
    assert_eq!((module.target(), module.version()), ("sm_90a", (9, 0)));
    let entry = module.entry("vector_add").unwrap();
    assert_eq!((entry.reqntid(), entry.param_bytes()), (Some([128, 1, 1]), 32));
    for schedule in SCHEDULES {
        let mut bench = Bench::new(schedule);
        let a: Vec<f32> = (0..1000u16).map(f32::from).collect();
        let b: Vec<f32> = a.iter().map(|x| x * 0.5).collect();
        let (pa, pb, pc) = (bench.buffer(&a), bench.buffer(&b), bench.empty(4000));
        let params = [pa, pb, pc, 1000];
        let profile = bench.launch(&module, "vector_add", (8, 128, 0), &params).unwrap();
        let want: Vec<f32> = a.iter().map(|x| x * 1.5).collect();
        assert_eq!(bench.read::<f32>(pc, 1000), want);
        assert_eq!(profile.ctas, 8);
        assert_eq!(profile.total.global_bytes, 12_000);
        assert_eq!(profile.total.global_sectors, 375);
        assert!((profile.total.coalescing() - 1.0).abs() < 1e-9);
        assert_eq!(profile.classes[&Class::Global], 3 * 32);
        // 1000 threads are 32 warps, the last of which has eight lanes that take part.
        assert_eq!(profile.classes[&Class::Float], 32);
        let float = profile.lines.iter().map(|line| line.counts.lane_instructions).sum::<u64>();
        assert_eq!(float, profile.total.lane_instructions);
        let line = &profile.lines[1];
        assert_eq!(line.source, Some(("basics.rs".to_owned(), 11)));
    }
}

#[test]
fn sums_through_shuffles_and_shared_memory() {
    let module = module("basics.ptx");
    for schedule in SCHEDULES {
        let mut bench = Bench::new(schedule);
        let input: Vec<u32> = (0..1024).map(|i| i * i % 97).collect();
        let (pin, pout) = (bench.buffer(&input), bench.empty(16));
        let profile = bench.launch(&module, "block_sum", (4, 256, 0), &[pin, pout]).unwrap();
        let want: Vec<u32> = input.chunks(256).map(|chunk| chunk.iter().sum()).collect();
        assert_eq!(bench.read::<u32>(pout, 4), want);
        assert_eq!(profile.total.barriers, 4 * 8);
    }
}

/// A load whose lanes are some bytes apart; each apart has its own conflicts and sectors.
#[test]
fn strides_cost_passes_and_sectors() {
    let module = module("basics.ptx");
    for (stride, conflicts, sectors) in [(4, 0, 4), (8, 1, 8), (32, 7, 32), (128, 31, 32)] {
        let mut bench = Bench::new(Schedule::Earliest);
        let buffer = bench.buffer(&[1u32; 1024]);
        let params = [buffer, stride];
        let profile = bench.launch(&module, "stride", (1, 32, 4096), &params).unwrap();
        assert_eq!(profile.total.shared_conflicts, conflicts, "{stride}");
        assert_eq!(profile.total.global_sectors, sectors, "{stride}");
        assert_eq!((profile.total.global_bytes, profile.total.shared_bytes), (128, 128));
    }
}

#[test]
fn lanes_diverge_and_meet_again() {
    let module = module("basics.ptx");
    let mut bench = Bench::new(Schedule::Earliest);
    let input: Vec<u32> = (1..33).collect();
    let (pin, pout) = (bench.buffer(&input), bench.empty(128));
    bench.launch(&module, "collatz", (1, 32, 0), &[pin, pout]).unwrap();
    let steps = |mut n: u32| {
        let mut steps = 0;
        while n > 1 {
            n = if n.is_multiple_of(2) { n / 2 } else { 3 * n + 1 };
            steps += 1;
        }
        steps
    };
    let want: Vec<u32> = input.into_iter().map(steps).collect();
    assert_eq!(bench.read::<u32>(pout, 32), want);
}

#[test]
fn module_variables_keep_their_values_between_launches() {
    let module = module("basics.ptx");
    let mut bench = Bench::new(Schedule::Random(7));
    let pout = bench.empty(16);
    for round in 1..3 {
        bench.launch(&module, "count", (1, 64, 256), &[pout]).unwrap();
        assert_eq!(bench.read::<u32>(pout, 4), [64, 7, 40 + 64 * round, 0]);
    }
}

#[test]
fn wrong_launches_are_refused() {
    let module = module("basics.ptx");
    let mut bench = Bench::new(Schedule::Earliest);
    let mut check = |entry: &str, dims, params: &[u64], want: &str| {
        let fault = bench.launch(&module, entry, dims, params).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Launch);
        assert!(fault.message.contains(want), "{fault}");
    };
    check("nothing", (1, 32, 0), &[], "no such entry");
    check("vector_add", (1, 64, 0), &[0; 4], ".reqntid");
    check("vector_add", (1, 128, 0), &[0; 3], "bytes of parameters");
    check("count", (1, 2048, 0), &[0], "1 to 1024");
    check("count", (0, 32, 0), &[0], "0 CTAs");
    check("count", (1, 32, 1 << 20), &[0], "shared memory");
}

#[test]
fn what_is_not_known_is_named() {
    let check = |line: &str, want: &str| {
        let text = format!(
            ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{{\n\
             .reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n.reg .pred %p<2>;\n{line}\nret;\n}}\n"
        );
        let error = Module::parse(&text).unwrap_err();
        assert!(error.message.contains(want), "{error}");
        assert_eq!(error.line, 9, "{error}");
    };
    check("add.s32.foo %r1, %r2, %r3;", "`.foo`");
    check("frobnicate.b32 %r1;", "frobnicate");
    check("add.s32 %r1, %r2, %r9;", "`%r9` is not defined");
    check("add.s64 %rd1, %rd2, %r1;", "`%r1` has 32 bits");
    check("bra NOWHERE;", "label `NOWHERE`");
    check("call foo;", "call");
    check("ld.global.b32 %r1, %rd1;", "no address");
    check("add.s32 %r1, %r2;", "2 operands");
    check("mov.u32 %r1, %nosuch;", "%nosuch");
    check(".branchtargets A;", ".branchtargets");
}
