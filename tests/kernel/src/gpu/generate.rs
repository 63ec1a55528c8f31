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

/// The variants whose label begins like this, sorted by kernel, those of one in its order of
/// preference; and the mistakes of those that are none.
pub fn variants(sm: Sm, only: &str, root: &Path) -> (Vec<Variant>, Vec<BuildError>) {
    let mut all = entries();
    all.sort_by_key(|entry| entry.name);
    let (mut variants, mut mistakes) = (Vec::new(), Vec::new());
    // A name that is cut short, or one with formats and constants.
    let wanted = |entry: &&Entry| only.starts_with(entry.name) || entry.name.starts_with(only);
    for entry in all.iter().filter(wanted) {
        let origin = Origin {
            class: format!("{:?}", entry.class).to_lowercase(),
            source_hash: source_hash(&root.join(entry.loc.file)),
        };
        for built in (entry.build)(dsl_target(entry, sm)) {
            match built {
                Ok(kernel) if !kernel.label().starts_with(only) => {}
                Ok(kernel) => match compile(&kernel, &origin, sm) {
                    Ok(compiled) => variants.push(variant(kernel, compiled)),
                    Err(found) => mistakes.extend(found),
                },
                Err(found) => mistakes.extend(found),
            }
        }
    }
    (variants, mistakes)
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

/// What the kernel's builder is told. One that declares no variants for GPUs has those for the CPU.
fn dsl_target(entry: &Entry, sm: Sm) -> Target {
    let own = match sm {
        Sm::Sm90a => Target::Sm90a,
        Sm::Sm100a | Sm::Sm100f => Target::Sm100a,
    };
    if entry.targets.contains(&own) { own } else { Target::Cpu }
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
            let (variants, _) = variants(sm, "", root());
            assert!(variants.len() > 50, "{}", variants.len());
            let used: BTreeSet<&str> = variants.iter().flat_map(|v| forms(&v.ptx)).collect();
            let missing = used.iter().filter_map(|form| require(form, sm).err());
            assert_eq!(missing.map(|m| m.to_string()).collect::<Vec<_>>(), [""; 0]);
        }
    }

    #[test]
    fn a_build_is_the_same_each_time_and_its_names_are_unique() {
        let ptx = |only: &str| variants(Sm::Sm90a, only, root()).0;
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
