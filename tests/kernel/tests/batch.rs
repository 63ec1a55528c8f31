//! A row's bits do not depend on the rows beside it: not on how many there are, not on the size of
//! the chunk that they are taken in, not on the variant, not on the instructions that multiply.

use std::collections::BTreeMap;
use tessera_emulator::{Config, Machine};
use tessera_kernel_dsl::Target;
use tessera_kernel_tool::cases::{Built, Case};
use tessera_kernel_tool::emulate;
use tessera_kernels::tiles::entries;
use tessera_ptx::{Compiled, Origin, Sm, compile};
use tessera_tile_ir::Kernel;
use tessera_tile_ir::eval::{Arg, Array, Data};

/// The variants of a kernel for one format.
fn variants(name: &str, format: &str) -> Vec<(Kernel, Compiled)> {
    let origin = Origin { class: String::new(), source_hash: String::new() };
    let entry = entries().into_iter().find(|entry| entry.name == name).expect("a kernel");
    let kernels = (entry.build)(Target::Sm90a)
        .into_iter()
        .map(|kernel| kernel.expect("a kernel that builds"));
    let own = kernels.filter(|kernel| kernel.formats == [format]);
    let compiled = own.map(|kernel| {
        let compiled = compile(&kernel, &origin, Sm::Sm90a).expect("code");
        (kernel, compiled)
    });
    compiled.collect()
}

/// Rows of the last argument, as bits, where a case has so many; `None` if the variant is not for it.
/// A case with more rows begins with the same.
fn rows(
    (kernel, compiled): &(Kernel, Compiled),
    dims: &[(&str, usize)],
    row: usize,
) -> Option<Vec<Vec<u32>>> {
    let dims: BTreeMap<String, usize> = dims.iter().map(|(d, n)| ((*d).to_owned(), *n)).collect();
    let extent = |dim: &String| i64::try_from(dims[dim]).expect("a small extent");
    let extents: Vec<i64> = kernel.dims.iter().map(extent).collect();
    if compiled.entry.fits.iter().any(|fit| fit.value(&extents) == 0) {
        return None;
    }
    let case = Case {
        kernel: kernel.name.clone(),
        name: "rows".to_owned(),
        tolerance: 0.0,
        dims,
        scalars: [("v_head_dim".to_owned(), toml::Value::Integer(32))].into(),
        arrays: BTreeMap::new(),
        formats: Vec::new(),
        consts: BTreeMap::new(),
        seed: 0,
        fails: None,
    };
    let mut built = Built::new(kernel, &case).expect("a whole case");
    let mut machine = Machine::new(Config::default());
    emulate::run(kernel, compiled, &mut built, &mut machine).expect("a case that runs");
    let Some(Arg::Array(Array { data: Data::F32(values), .. })) = built.args.0.last() else {
        panic!("the last argument is the result")
    };
    let bits: Vec<u32> = values.iter().map(|value| value.to_bits()).collect();
    Some(bits.chunks(row).map(<[u32]>::to_vec).collect())
}

/// Compares the rows that fewer have with those of the most.
fn check(name: &str, format: &str, dims: &dyn Fn(usize) -> Vec<(&'static str, usize)>, row: usize) {
    let variants = variants(name, format);
    let (mut all, mut compared): (Option<Vec<Vec<u32>>>, usize) = (None, 0);
    for count in [257, 256, 64, 41, 33, 9, 8, 1] {
        for variant in &variants {
            let Some(got) = rows(variant, &dims(count), row) else { continue };
            assert_eq!(got.len(), count);
            assert!(
                got.iter().flatten().any(|bits| *bits != 0),
                "{} gives zeros",
                variant.0.label()
            );
            let all = all.get_or_insert_with(|| got.clone());
            for (i, (got, want)) in got.iter().zip(all.iter()).enumerate() {
                assert_eq!(got, want, "row {i} of {count}, {}", variant.0.label());
            }
            compared += 1;
        }
    }
    assert!(compared > 7, "{compared} of {name}<{format}> are too few");
}

#[test]
fn rows_of_a_linear_layer_are_the_same_in_every_batch() {
    for format in ["f32", "bf16", "fp8-128x128", "int4-g32", "nvfp4"] {
        check("w_gemm", format, &|m| vec![("M", m), ("N", 72), ("K", 256)], 72);
    }
}

#[test]
fn absorbed_queries_are_the_same_in_every_batch() {
    for format in ["bf16", "int4-g32"] {
        let dims = |t| vec![("H", 1), ("T", t), ("NOPE", 32), ("ROWS", 64), ("RANK", 64)];
        check("absorb_query", format, &dims, 64);
    }
}
