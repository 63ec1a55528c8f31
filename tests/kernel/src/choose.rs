//! Which kernels and variants there are, and the one that a command line means.

use crate::cases::Case;
use crate::source::wrap;
use anyhow::{Result, anyhow, bail};
use std::fmt::Write;
use tessera_kernel_cpu::SourceLine;
use tessera_kernel_dsl::{Entry, Target};
use tessera_kernels::tiles::entries;
use tessera_tile_ir::{BuildError, Kernel};

/// What a command line says of the variant it means; the first one that fits is taken.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted<'a> {
    /// Name of a format it is built for.
    pub format: Option<&'a str>,
    /// Its label, or some of its constants, such as `BM=4`.
    pub variant: Option<&'a str>,
}

/// The entry of that name.
///
/// # Errors
/// The names that there are.
pub fn entry(name: &str) -> Result<Entry> {
    let all = entries();
    let found = all.iter().find(|entry| entry.name == name).copied();
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|entry| entry.name).collect();
        anyhow!("no kernel `{name}`; there are\n{}", indented(&names.join(", "), 100))
    })
}

/// Every variant of an entry for the CPU.
///
/// # Errors
/// The author's mistakes.
pub fn variants(entry: &Entry) -> Result<Vec<Kernel>> {
    let built = (entry.build)(Target::Cpu).into_iter();
    built.collect::<Result<_, _>>().map_err(|errors| mistakes(&errors))
}

/// The author's mistakes as one error.
pub fn mistakes(errors: &[BuildError]) -> anyhow::Error {
    let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
    anyhow!("{}", all.join("\n"))
}

/// The variants that a command line may mean, never none.
///
/// # Errors
/// The formats or labels that there are.
pub fn fitting(variants: Vec<Kernel>, wanted: Wanted<'_>) -> Result<Vec<Kernel>> {
    let name = variants.first().map(|kernel| kernel.name.clone()).unwrap_or_default();
    let formats = distinct(variants.iter().flat_map(|kernel| kernel.formats.clone()));
    let of_format: Vec<Kernel> = match wanted.format {
        None => variants,
        Some(_) if formats.is_empty() => bail!("{name} has no formats: leave --format out"),
        Some(format) => {
            variants.into_iter().filter(|k| k.formats.iter().any(|f| f == format)).collect()
        }
    };
    if of_format.is_empty() {
        let format = wanted.format.unwrap_or_default();
        bail!("{name} is not built for format `{format}`, but for {}", formats.join(", "));
    }
    let Some(label) = wanted.variant else { return Ok(of_format) };
    let labels: Vec<String> = of_format.iter().map(Kernel::label).collect();
    let same = |kernel: &Kernel| kernel.label() == label || has_constants(kernel, label);
    let found: Vec<Kernel> = of_format.into_iter().filter(same).collect();
    if found.is_empty() {
        bail!("{name} has no variant `{label}`; there are\n{}", indented(&labels.join("\n"), 100));
    }
    Ok(found)
}

/// One row a kernel: where it is and what it is built for.
pub fn list(entries: &[Entry], width: usize) -> String {
    let longest = entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let indent = longest + 2;
    let mut out = String::new();
    for entry in entries {
        let place = SourceLine::of(entry.loc);
        let _ = writeln!(out, "{:longest$}  {}:{}", entry.name, place.file, place.line);
        match variants(entry) {
            Ok(variants) => describe(&variants, indent, width, &mut out),
            Err(error) => _ = writeln!(out, "{error}"),
        }
    }
    out
}

/// One kernel: its variants, and the cases that can be traced.
pub fn describe_one(entry: &Entry, variants: &[Kernel], cases: &[Case]) -> String {
    let place = SourceLine::of(entry.loc);
    let mut out = format!("{}  {}:{}\n\nvariants\n", entry.name, place.file, place.line);
    for kernel in variants {
        let _ = writeln!(out, "  {}", kernel.label());
    }
    out += "\ncases\n";
    let fits = |case: &&Case| {
        let fits = |kernel: &Kernel| case.fits(&kernel.formats, &kernel.consts);
        case.kernel == entry.name && variants.iter().any(fits)
    };
    for case in cases.iter().filter(fits) {
        let _ = writeln!(out, "  {} ({})", case.name, dims(case));
    }
    let _ = writeln!(out, "\nnext: --explain, or --trace LINE");
    out
}

/// `M = 1, N = 33`: the extents of a case.
pub fn dims(case: &Case) -> String {
    let dims: Vec<String> = case.dims.iter().map(|(name, n)| format!("{name} = {n}")).collect();
    dims.join(", ")
}

/// The formats and constants of variants, under the name of their kernel.
fn describe(variants: &[Kernel], indent: usize, width: usize, out: &mut String) {
    let formats = distinct(variants.iter().map(|k| k.formats.join(" + ")));
    let consts = distinct(variants.iter().map(constants));
    for (what, all) in [("formats", formats), ("constants", consts)] {
        let all: Vec<String> = all.into_iter().filter(|one| !one.is_empty()).collect();
        let text = format!("{what}: {}", all.join(if what == "formats" { ", " } else { "; " }));
        for line in wrap(&text, width.saturating_sub(indent)).iter().filter(|_| !all.is_empty()) {
            let _ = writeln!(out, "{:indent$}{line}", "");
        }
    }
}

/// `BM=4, BN=32`: the part of a label that is in brackets.
fn constants(kernel: &Kernel) -> String {
    let consts: Vec<String> = kernel.consts.iter().map(|(n, v)| format!("{n}={v}")).collect();
    consts.join(", ")
}

/// Whether a kernel has these constants, written as in a label, with or without the brackets.
fn has_constants(kernel: &Kernel, wanted: &str) -> bool {
    let wanted = wanted.trim_start_matches('[').trim_end_matches(']');
    let has = |one: &str| kernel.consts.iter().any(|(n, v)| format!("{n}={v}") == one.trim());
    wanted.split(',').all(has)
}

fn distinct(items: impl Iterator<Item = String>) -> Vec<String> {
    let mut seen = Vec::new();
    items.for_each(|item| {
        if !seen.contains(&item) {
            seen.push(item);
        }
    });
    seen
}

/// Lines of a list under an error, wrapped and indented.
fn indented(text: &str, width: usize) -> String {
    let lines = text.lines().flat_map(|line| wrap(line, width - 2));
    lines.map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_refused(result: Result<impl Sized>, want: &[&str]) {
        let message = result.err().map(|error| error.to_string()).unwrap_or_default();
        for part in want {
            assert!(message.contains(part), "`{part}` is not in: {message}");
        }
    }

    #[test]
    fn an_unknown_kernel_is_answered_with_the_known_ones() {
        check_refused(entry("norm"), &["no kernel `norm`", "rms_norm", "w_gemm"]);
    }

    #[test]
    fn a_variant_is_found_by_format_and_label() {
        let all = variants(&entry("w_gemm").unwrap()).unwrap();
        let wanted = Wanted { format: Some("int4-g32"), variant: None };
        let found = fitting(all.clone(), wanted).unwrap();
        assert!(found.iter().all(|kernel| kernel.formats == ["int4-g32"]));
        let label = found[0].label();
        let wanted = Wanted { format: None, variant: Some(&label) };
        assert_eq!(fitting(all.clone(), wanted).unwrap()[0].label(), label);
        let wanted = Wanted { format: Some("int5"), variant: None };
        check_refused(fitting(all.clone(), wanted), &["`int5`", "int4-g32", "nvfp4"]);
        let wanted = Wanted { format: None, variant: Some("BM=5") };
        check_refused(fitting(all, wanted), &["`BM=5`", &label]);
    }

    #[test]
    fn some_constants_are_enough() {
        let all = variants(&entry("mla_decode").unwrap()).unwrap();
        let whole = "mla_decode<e4m3>[DC=512, DR=64, KEYS=32, HEADS=16]";
        for label in ["DC=512", "[DC=512, DR=64]", whole] {
            let wanted = Wanted { format: Some("e4m3"), variant: Some(label) };
            let found = fitting(all.clone(), wanted).unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].label(), whole);
        }
    }

    #[test]
    fn a_kernel_without_formats_says_so() {
        let all = variants(&entry("rms_norm").unwrap()).unwrap();
        let wanted = Wanted { format: Some("bf16"), variant: None };
        check_refused(fitting(all, wanted), &["rms_norm has no formats"]);
    }

    #[test]
    fn the_list_names_every_kernel() {
        let text = list(&entries(), 80);
        for entry in entries() {
            assert!(text.contains(entry.name), "{}", entry.name);
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
