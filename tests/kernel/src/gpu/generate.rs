//! Every variant of every kernel as PTX.

use std::path::Path;
use tessera_kernel_dsl::{Entry, Target};
use tessera_kernels::tiles::entries;
use tessera_ptx::{Compiled, KernelEntry, Origin, Sm, compile};
use tessera_tile_ir::{BuildError, Kernel};

/// A variant before it is assembled.
#[derive(Debug, Clone)]
pub struct Variant {
    /// Unique among variants, such as `w_gemm<int4-g32>[BM=4]`.
    pub label: String,
    /// Its PTX.
    pub ptx: String,
    /// Threads of a program.
    pub threads: u32,
    /// Dynamic shared memory of a program, in bytes.
    pub shared_bytes: u32,
    /// What it was compiled from; none if somebody wrote the PTX.
    pub source: Option<Box<Source>>,
}

/// What a variant was compiled from, and how it is launched.
#[derive(Debug, Clone)]
pub struct Source {
    /// Its tile IR.
    pub kernel: Kernel,
    /// Its row in the manifest.
    pub entry: KernelEntry,
}

/// What came of the kernels.
#[derive(Debug, Default)]
pub struct Generated {
    /// Sorted by kernel, those of one in its order of preference.
    pub variants: Vec<Variant>,
    /// What authors did wrong in the others.
    pub mistakes: Vec<BuildError>,
    /// Kernels that have no variants for this target.
    pub absent: Vec<&'static str>,
}

/// The variants whose label begins like this.
pub fn variants(sm: Sm, only: &str, root: &Path) -> Generated {
    let mut all = entries();
    all.sort_by_key(|entry| entry.name);
    let mut generated = Generated::default();
    // A name that is cut short, or one with formats and constants.
    let wanted = |entry: &&Entry| only.starts_with(entry.name) || entry.name.starts_with(only);
    for entry in all.iter().filter(wanted) {
        let origin = Origin {
            class: format!("{:?}", entry.class).to_lowercase(),
            source_hash: source_hash(&root.join(entry.loc.file)),
        };
        let built = match targets(entry, sm) {
            Some(target) => (entry.build)(target),
            None => Vec::new(),
        };
        if built.is_empty() {
            generated.absent.push(entry.name);
        }
        for kernel in built {
            match kernel {
                Ok(kernel) if !kernel.label().starts_with(only) => {}
                Ok(kernel) => match compile(&kernel, &origin, sm) {
                    Ok(compiled) => generated.variants.push(variant(kernel, compiled)),
                    Err(found) => generated.mistakes.extend(found),
                },
                Err(found) => generated.mistakes.extend(found),
            }
        }
    }
    generated
}

fn variant(kernel: Kernel, Compiled { ptx, entry }: Compiled) -> Variant {
    Variant {
        label: entry.label.clone(),
        ptx,
        threads: entry.threads,
        shared_bytes: entry.shared_bytes,
        source: Some(Box::new(Source { kernel, entry })),
    }
}

/// What the kernel's builder is told, if the kernel is for this target.
fn targets(entry: &Entry, sm: Sm) -> Option<Target> {
    let own = match sm {
        Sm::Sm90a => Target::Sm90a,
        Sm::Sm100a | Sm::Sm100f => Target::Sm100a,
    };
    entry.targets.contains(&own).then_some(own)
}

/// FNV-1a of the file that declares a kernel, as the manifest of the code for the CPU has it.
fn source_hash(file: &Path) -> String {
    let bytes = std::fs::read(file).unwrap_or_default();
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use tessera_ptx::isa::{forms, require};

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
    }

    #[test]
    fn every_form_that_kernels_use_is_one_that_the_target_has() {
        for sm in Sm::ALL {
            let Generated { variants, mistakes, .. } = variants(sm, "", root());
            assert_eq!(mistakes, [], "{sm}");
            assert!(variants.len() > 50, "{}", variants.len());
            let used: BTreeSet<&str> = variants.iter().flat_map(|v| forms(&v.ptx)).collect();
            let missing = used.iter().filter_map(|form| require(form, sm).err());
            assert_eq!(missing.map(|m| m.to_string()).collect::<Vec<_>>(), [""; 0]);
        }
    }

    #[test]
    fn a_build_is_the_same_each_time_and_its_names_are_unique() {
        let ptx = |only: &str| variants(Sm::Sm90a, only, root()).variants;
        let [one, two] = [ptx("rms_norm"), ptx("rms_norm")];
        assert_eq!(one.len(), two.len());
        assert!(one.iter().zip(&two).all(|(one, two)| one.ptx == two.ptx));
        let all = ptx("w_gemm");
        let files: BTreeSet<&str> =
            all.iter().filter_map(|v| v.source.as_ref()).map(|s| s.entry.file.as_str()).collect();
        assert_eq!(files.len(), all.len());
        assert!(ptx("w_gemm<int4-g32>").iter().all(|v| v.label.starts_with("w_gemm<int4-g32>")));
    }
}
