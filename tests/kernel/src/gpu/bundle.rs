//! Writes a bundle: the folder that the runtime loads kernels from.

use super::assemble::{FLAGS, Outcome, write};
use super::generate::{Source, Variant};
use super::report::{Row, State};
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;
use tessera_ptx::bundle::{
    Assembled, Bundle, Ineligible, MANIFEST_FILE, PTXAS_VERSION, Record, Usage, check, sha256,
};
use tessera_ptx::{Manifest, Sm};

/// Variants, and what came of each: a row, and what the assembler gave if there was one.
#[derive(Debug)]
pub struct Built<'a> {
    /// What was compiled.
    pub variants: &'a [Variant],
    /// One a variant.
    pub rows: &'a [Row],
    /// One a variant.
    pub outcomes: Option<&'a [Outcome]>,
}

/// Writes all usable variants and the manifest into a folder, and removes what else a build left
/// there before.
///
/// # Errors
/// If the folder cannot be written.
pub fn write_to(folder: &Path, target: Sm, built: &Built<'_>) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut bundle = Bundle {
        manifest: Manifest { target: target.name().to_owned(), kernels: Vec::new() },
        bundle: Record {
            ptxas: built.outcomes.map(|_| PTXAS_VERSION.to_owned()),
            flags: FLAGS.iter().map(|&flag| flag.to_owned()).collect(),
            kernels: Vec::new(),
            ineligible: Vec::new(),
        },
    };
    let mut kept = BTreeSet::from([MANIFEST_FILE.to_owned()]);
    for (i, (variant, row)) in built.variants.iter().zip(built.rows).enumerate() {
        let Some(source) = &variant.source else { continue };
        if let Some(reason) = ineligible(&row.state) {
            bundle.bundle.ineligible.push(Ineligible { label: row.label.clone(), reason });
            continue;
        }
        write(&folder.join(&source.entry.file), variant.ptx.as_bytes())?;
        kept.insert(source.entry.file.clone());
        bundle.manifest.kernels.push(source.entry.clone());
        if let Some(Outcome::Assembled(made)) = built.outcomes.and_then(|all| all.get(i)) {
            let record = record(source, variant, row, &made.cubin);
            write(&folder.join(&record.cubin), &made.cubin)?;
            kept.insert(record.cubin.clone());
            bundle.bundle.kernels.push(record);
        }
    }
    // The manifest last: whoever finds it finds what it names.
    let text = serde_json::to_string_pretty(&bundle)? + "\n";
    write(&folder.join(MANIFEST_FILE), text.as_bytes())?;
    remove_others(folder, &kept)?;
    // What the runtime would refuse is no bundle.
    if built.outcomes.is_some() {
        let entries = bundle.manifest.kernels.iter();
        let sources = entries.map(|e| (e.kernel.clone(), e.source_hash.clone())).collect();
        check(folder, &sources, target)?;
    }
    Ok(())
}

fn ineligible(state: &State) -> Option<String> {
    match state {
        State::Usable | State::NotAssembled => None,
        State::Ineligible(reason) => Some(reason.clone()),
        State::Refused => Some("refused by ptxas".to_owned()),
    }
}

fn record(source: &Source, variant: &Variant, row: &Row, cubin: &[u8]) -> Assembled {
    let measured = row.measured.as_ref();
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    Assembled {
        label: source.entry.label.clone(),
        cubin: Path::new(&source.entry.file).with_extension("cubin").display().to_string(),
        ptx_sha256: sha256(variant.ptx.as_bytes()),
        cubin_sha256: sha256(cubin),
        usage: Usage {
            registers: measured.map_or(0, |m| m.figures.registers),
            shared_bytes: measured.map_or(0, |m| m.shared_bytes),
            ctas_per_sm: measured.map_or(0, |m| m.ctas_per_sm),
            instructions: measured.map_or(0, |m| number(m.instructions)),
        },
    }
}

/// Removes code of variants that there are no more; other files are none of ours.
fn remove_others(folder: &Path, kept: &BTreeSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let code = path.extension().is_some_and(|end| end == "ptx" || end == "cubin");
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if code && !kept.contains(name) {
            std::fs::remove_file(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::assemble::Assembled as Made;
    use super::super::generate::variants;
    use super::super::ptxas::Figures;
    use super::super::sass::Sass;
    use super::*;
    use std::collections::BTreeMap;
    use tessera_ptx::bundle::Refused;

    fn made(spill_stores: u32) -> Outcome {
        let figures = Figures { registers: 32, spill_stores, ..Figures::default() };
        let sass = Sass::parse("/*0000*/ EXIT ;");
        let cubin = b"machine code".to_vec();
        Outcome::Assembled(Box::new(Made { figures, warnings: Vec::new(), cubin, sass }))
    }

    /// Writes the variants of a kernel, the second of which spills, and reads the bundle back.
    fn written(assembled: bool) -> (Vec<String>, Result<Bundle, Refused>) {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let mut all = variants(Sm::Sm90a, "kv_gather", root).variants;
        all.truncate(2);
        let outcomes = assembled.then(|| vec![made(0), made(8)]);
        let row = |(i, v): (usize, &Variant)| {
            Row::of(v, Sm::Sm90a, outcomes.as_ref().map(|outcomes| &outcomes[i])).0
        };
        let rows: Vec<Row> = all.iter().enumerate().map(row).collect();
        let built = Built { variants: &all, rows: &rows, outcomes: outcomes.as_deref() };
        let name = format!("tessera-written-{}-{assembled}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("old.cubin"), "of a variant that is no more").unwrap();
        std::fs::write(folder.join("notes.txt"), "somebody's").unwrap();
        write_to(&folder, Sm::Sm90a, &built).unwrap();
        let files = std::fs::read_dir(&folder).unwrap();
        let mut files: Vec<String> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        let bundle = check(&folder, &BTreeMap::new(), Sm::Sm90a);
        std::fs::remove_dir_all(&folder).unwrap();
        (files, bundle)
    }

    #[test]
    fn an_ineligible_variant_is_in_no_choice() {
        let (files, bundle) = written(true);
        let want = ["kv_gather_f32.cubin", "kv_gather_f32.ptx", "manifest.json", "notes.txt"];
        assert_eq!(files, want);
        let bundle = bundle.unwrap();
        let labels: Vec<&str> = bundle.manifest.kernels.iter().map(|e| e.label.as_str()).collect();
        assert_eq!(labels, ["kv_gather<f32>"]);
        let reason =
            Ineligible { label: "kv_gather<bf16>".to_owned(), reason: "spills 8 bytes".to_owned() };
        assert_eq!(bundle.bundle.ineligible, [reason]);
        assert_eq!(bundle.bundle.kernels[0].usage.registers, 32);
    }

    #[test]
    fn what_was_not_assembled_is_written_and_refused() {
        let (files, bundle) = written(false);
        let want = ["kv_gather_bf16.ptx", "kv_gather_f32.ptx", "manifest.json", "notes.txt"];
        assert_eq!(files, want);
        assert!(matches!(bundle, Err(Refused::NotAssembled { .. })));
    }
}
