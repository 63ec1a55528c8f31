//! Every case of every kernel: the evaluator against the op's reference, and kernels with one op
//! changed against the cases, which must notice.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use tessera_kernel_dsl::Target;
use tessera_kernels::tiles::entries;
use tessera_lanes::isa::AnyIsa;
use tessera_lanes::{Cpu, Pool};
use tessera_tests::cases::{Built, Case, differences, load, mutants, reference, run};
use tessera_tile_ir::eval::{Arg, Array, Data, evaluate};
use tessera_tile_ir::{Access, Kernel, OpKind, ParamKind};

fn cases() -> Vec<Case> {
    load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")).expect("cases that parse")
}

/// The variants of every kernel for a target, by name.
fn kernels(target: Target) -> BTreeMap<&'static str, Vec<Kernel>> {
    let variants = |entry: tessera_kernel_dsl::Entry| {
        let built = (entry.build)(target).into_iter().map(|variant| variant.expect("a kernel"));
        (entry.name, built.collect())
    };
    entries().into_iter().map(variants).collect()
}

/// Calls `f` with each case and each variant for the CPU that it is for.
fn each(mut f: impl FnMut(&Case, &Kernel)) {
    let [kernels, gpu_kernels] = [Target::Cpu, Target::Sm90a].map(kernels);
    let cases = cases();
    for case in &cases {
        let variants = kernels.get(case.kernel.as_str());
        let variants = variants.unwrap_or_else(|| panic!("a case of no kernel: {}", case.kernel));
        let fits = |kernel: &&Kernel| case.fits(&kernel.formats, &kernel.consts);
        let mut count = 0;
        for kernel in variants.iter().filter(fits) {
            f(case, kernel);
            count += 1;
        }
        // Cases of variants that only GPUs have run on the emulator.
        let for_gpus = gpu_kernels.get(case.kernel.as_str()).into_iter().flatten();
        count += for_gpus.filter(fits).count();
        assert!(count > 0, "{} `{}` fits no variant", case.kernel, case.name);
    }
}

/// What kernels that quantize activations to 16 bits may lose against references that do not.
fn rounding_of_activations(kernel: &Kernel) -> f64 {
    let quantizes = |op: &tessera_tile_ir::Op| match op.kind {
        OpKind::Quantize(format) => format.scale_tile.is_some(),
        _ => false,
    };
    if kernel.ops.iter().any(quantizes) { 3e-5 } else { 0.0 }
}

#[test]
fn every_kernel_has_cases() {
    let cases = cases();
    for entry in entries() {
        assert!(cases.iter().any(|case| case.kernel == entry.name), "{} has none", entry.name);
    }
}

#[test]
fn the_evaluator_agrees_with_the_references() {
    let mut wrong = Vec::new();
    each(|case, kernel| {
        let label = format!("{} `{}`", kernel.label(), case.name);
        let mut truth = Built::new(kernel, case).unwrap();
        match (evaluate(kernel, &mut truth.args), &case.fails) {
            (Ok(()), None) => {}
            (Err(error), Some(message)) if error.to_string().contains(message.as_str()) => return,
            (Err(error), _) => return wrong.push(format!("{label}: {error}")),
            (Ok(()), Some(_)) => return wrong.push(format!("{label}: does not fail")),
        }
        let mut plain = Built::new(kernel, case).unwrap();
        if reference(kernel, &mut plain) {
            let tolerance = case.tolerance + rounding_of_activations(kernel);
            let found = differences(kernel, &plain.args, &truth.args, tolerance);
            if let Some(first) = found.first() {
                wrong.push(format!("{label}: {} differ, such as {first}", found.len()));
            }
        }
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What written arrays hold, for comparing bits.
fn bits(built: &Built) -> String {
    let floats =
        |values: &[f32]| format!("{:?}", values.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
    let one = |arg: &Arg| match arg {
        Arg::Array(Array { data: Data::F32(values), .. }) => floats(values),
        Arg::Array(Array { data: Data::Packed(_), .. }) => String::new(),
        other => format!("{other:?}"),
    };
    built.args.0.iter().map(one).collect()
}

#[test]
fn the_cpu_agrees_with_the_evaluator_on_every_instruction_set() {
    let mut cpus = Vec::new();
    for isa in AnyIsa::available() {
        for threads in [1, 2] {
            cpus.push((isa, threads, Cpu::new(isa, Pool::new(threads).unwrap())));
        }
    }
    let mut wrong = Vec::new();
    each(|case, kernel| {
        let label = format!("{} `{}`", kernel.label(), case.name);
        let mut truth = Built::new(kernel, case).unwrap();
        let expected = evaluate(kernel, &mut truth.args);
        let mut first: Option<String> = None;
        for (isa, threads, cpu) in &cpus {
            let on = format!("{label} on {isa:?}, {threads} threads");
            let mut got = Built::new(kernel, case).unwrap();
            match (run(kernel, &mut got, cpu), &case.fails) {
                (Ok(()), None) => {}
                (Err(e), Some(message)) if e.to_string().contains(message.as_str()) => continue,
                (Err(error), _) => return wrong.push(format!("{on}: {error}")),
                (Ok(()), Some(_)) => return wrong.push(format!("{on}: does not fail")),
            }
            expected.as_ref().unwrap();
            let found = differences(kernel, &got.args, &truth.args, case.tolerance);
            if let Some(difference) = found.first() {
                return wrong.push(format!("{on}: {} differ, such as {difference}", found.len()));
            }
            let bits = bits(&got);
            if *first.get_or_insert_with(|| bits.clone()) != bits {
                return wrong.push(format!("{on}: other bits"));
            }
        }
    });
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

/// Kernels whose rows know nothing of each other.
const BY_ROWS: [&str; 4] = ["w_gemm", "rms_norm", "add_rms_norm", "swiglu"];

/// Leaves `rows` of the arrays whose first axis is the first extent; gives those as bits that the
/// kernel writes.
fn cut(kernel: &Kernel, built: &mut Built, rows: &Range<usize>) -> Vec<Vec<u32>> {
    let mut written = Vec::new();
    for (param, arg) in kernel.params.iter().zip(&mut built.args.0) {
        let ParamKind::View { dims, access, .. } = &param.kind else { continue };
        let Arg::Array(Array { data: Data::F32(data), dims: extents, strides }) = arg else {
            continue;
        };
        if dims[0].dims == [0] && dims[0].constant == 0 {
            *data = data[rows.start * strides[0]..rows.end * strides[0]].to_vec();
            extents[0] = rows.len();
            if *access != Access::Read {
                written.push(data.iter().map(|value| value.to_bits()).collect());
            }
        }
    }
    written
}

#[test]
fn a_row_has_the_same_bits_in_every_batch() {
    let mut pieces_seen = 0;
    for isa in AnyIsa::available() {
        let cpu = Cpu::new(isa, Pool::new(2).unwrap());
        each(|case, kernel| {
            if !BY_ROWS.contains(&kernel.name.as_str()) || case.fails.is_some() {
                return;
            }
            let label = format!("{} `{}` on {isa:?}", kernel.label(), case.name);
            let mut whole = Built::new(kernel, case).unwrap();
            run(kernel, &mut whole, &cpu).unwrap();
            let Arg::Array(Array { dims, .. }) = &whole.args.0[0] else { panic!("{label}") };
            let all = dims[0];
            let expected = cut(kernel, &mut whole, &(0..all));
            let mut got: Vec<Vec<u32>> = vec![Vec::new(); expected.len()];
            let mut first = 0;
            // Batches on both sides of what micro-kernels and chunks take at once.
            for size in [1, 2, 3, 4, 5, 8, 20].into_iter().cycle() {
                if first == all {
                    break;
                }
                let rows = first..all.min(first + size);
                let mut piece = Built::new(kernel, case).unwrap();
                cut(kernel, &mut piece, &rows);
                run(kernel, &mut piece, &cpu).unwrap();
                let written = cut(kernel, &mut piece, &(0..rows.len()));
                got.iter_mut().zip(written).for_each(|(got, piece)| got.extend(piece));
                first = rows.end;
                pieces_seen += 1;
            }
            assert!(got == expected, "{label}: rows depend on their batch");
        });
    }
    assert!(pieces_seen > 1000, "{pieces_seen} pieces are too few to say anything");
}

#[test]
fn kernels_become_the_same_code_every_time() {
    let source = || {
        let kernels: Vec<_> = kernels(Target::Cpu).into_values().collect();
        tessera_kernel_cpu::source(&kernels).expect("code")
    };
    assert!(source() == source(), "generated code depends on more than the kernels");
}

#[test]
fn cases_notice_wrong_kernels() {
    let kernels = kernels(Target::Cpu);
    let cases = cases();
    let mut weak = Vec::new();
    for (name, variants) in &kernels {
        let kernel = &variants[0];
        let own = cases
            .iter()
            .filter(|case| case.kernel == *name && case.fits(&kernel.formats, &kernel.consts));
        let own: Vec<_> = own.filter(|case| case.fails.is_none()).collect();
        let mutants = mutants(kernel);
        let noticed =
            mutants.iter().filter(|mutant| own.iter().any(|case| notices(case, mutant, kernel)));
        let noticed = noticed.count();
        println!("{name}: {noticed} of {} noticed", mutants.len());
        if noticed == 0 {
            weak.push(*name);
        }
    }
    assert!(weak.is_empty(), "no case notices a wrong {}", weak.join(", "));
}

/// Whether the results of a wrong kernel are none of the right one's.
fn notices(case: &Case, mutant: &tessera_tests::cases::Mutant, kernel: &Kernel) -> bool {
    let mut right = Built::new(kernel, case).expect("a case");
    evaluate(kernel, &mut right.args).expect("a right kernel");
    let mut got = Built::new(kernel, case).expect("a case");
    let failed = evaluate(&mutant.kernel, &mut got.args).is_err();
    failed || !differences(kernel, &got.args, &right.args, case.tolerance).is_empty()
}
