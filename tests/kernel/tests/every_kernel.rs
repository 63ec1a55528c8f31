//! Every kernel can be explained, and lines of some can be traced.

use std::path::Path;
use tessera_kernel_tool::cases::{Case, load};
use tessera_kernel_tool::choose::{entry, variants};
use tessera_kernel_tool::explain::explain;
use tessera_kernel_tool::source::Sources;
use tessera_kernel_tool::trace::{Request, trace, what};
use tessera_kernels::tiles::entries;
use tessera_tile_ir::Kernel;

fn read(file: &str) -> Vec<String> {
    Sources::of_workspace().lines(file)
}

/// The first variant of a kernel with its case of that name.
fn kernel_and_case(name: &str, case: &str) -> (Kernel, Case) {
    let kernel = entry(name).and_then(|entry| variants(&entry)).expect("it builds").remove(0);
    let cases = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases"));
    let cases = cases.expect("they are read");
    let found = cases.into_iter().find(|found| found.kernel == name && found.name == case);
    (kernel, found.expect("the case is there"))
}

/// The first line of the kernel's file that holds this text.
fn line_of(kernel: &Kernel, text: &str) -> u32 {
    let lines = read(kernel.loc.file);
    let index = lines.iter().position(|line| line.contains(text));
    u32::try_from(index.expect("the text is there") + 1).expect("files are short")
}

fn traced(name: &str, case: &str, line: &str, programs: &[Vec<i64>]) -> Result<String, String> {
    let (kernel, case) = kernel_and_case(name, case);
    let line =
        if line.starts_with('%') { line.to_owned() } else { line_of(&kernel, line).to_string() };
    let what = what(&kernel, &line, &read).map_err(|error| error.to_string())?;
    let request = Request { what, programs, width: 80 };
    trace(&kernel, &case, &request, &read).map_err(|error| error.to_string())
}

#[test]
fn every_kernel_can_be_explained() {
    for entry in entries() {
        for (i, kernel) in variants(&entry).unwrap().iter().enumerate() {
            let width = if i % 2 == 0 { 80 } else { 160 };
            let text = explain(kernel, &read, width).unwrap();
            assert!(text.starts_with(&kernel.label()), "{text}");
            assert!(text.contains(&format!("pub fn {}", entry.name)), "{text}");
            assert!(text.contains("program_id") && text.contains("let "), "{text}");
        }
    }
}

#[test]
fn a_line_in_a_loop_shows_each_time() {
    let text = traced("rms_norm", "ragged row", "squares = fma(h", &[vec![1]]).unwrap();
    for part in ["rms_norm, case `ragged row`", "program 1\n", "fma (", "at c = 0", "at c = 128"] {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}

#[test]
fn a_store_shows_what_it_stores() {
    let text = traced("rope", "neighbours", "x.scatter([t, head, a]", &[vec![0]]).unwrap();
    let stores = text.lines().filter(|line| line.starts_with("  scatter x (%"));
    assert_eq!(stores.count(), 1, "{text}");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let error = traced("rms_norm", "ragged row", "squares = fma(h", &[vec![7]]).unwrap_err();
    assert!(error.contains("3 programs: there is no 7"), "{error}");
}

#[test]
fn a_value_can_be_traced_alone() {
    let text = traced("rms_norm", "ragged row", "%0", &[vec![0]]).unwrap();
    assert!(text.contains("grid\n  %0: i64 = dim T  →  3"), "{text}");
    let error = traced("rms_norm", "ragged row", "%999", &[vec![0]]).unwrap_err();
    assert!(error.contains("no %999, but %0 to"), "{error}");
    let error = traced("rms_norm", "ragged row", "%x", &[vec![0]]).unwrap_err();
    assert!(error.contains("`%x` is neither"), "{error}");
}

#[test]
fn a_line_without_ops_leads_to_the_nearest() {
    let error = traced("rms_norm", "ragged row", "weight: &In<f32", &[vec![0]]).unwrap_err();
    assert!(error.contains("no ops at") && error.contains("program_id(0)"), "{error}");
}

#[test]
fn a_file_without_ops_leads_to_those_that_have_some() {
    let (kernel, _) = kernel_and_case("rms_norm", "ragged row");
    let error = what(&kernel, "softmax.rs:3", &read).unwrap_err().to_string();
    assert!(error.contains("`softmax.rs`") && error.contains("rms_norm.rs"), "{error}");
}
