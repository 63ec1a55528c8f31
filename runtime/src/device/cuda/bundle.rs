//! A folder of compiled kernels: what is in it, and whether it is for this device and this program.

use super::error::CudaError;
use super::ffi::Image;
use crate::device::DeviceError;
use serde::Deserialize;
use std::collections::HashMap;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tessera_ptx::bundle::{Record, check};
use tessera_ptx::{KernelEntry, Manifest, ParamEntryKind, Sm};

/// Every kernel that launches are performed by.
const KERNELS: &[&str] = &[
    "absorb_query",
    "absorb_value",
    "add_rms_norm",
    "combine",
    "combine_shared",
    "embedding",
    "feed_tokens",
    "gather_rows",
    "kv_amax",
    "kv_convert",
    "kv_gather",
    "kv_rescale",
    "kv_write",
    "logit_stats",
    "mla_decode",
    "mla_merge",
    "mla_prefill",
    "page_digest",
    "page_tag_check",
    "permute_order",
    "permute_rows",
    "rms_norm",
    "rope",
    "router",
    "swiglu",
    "top_logprobs",
    "w_gemm",
    "w_gemm_grouped",
];

/// Kernels of one target, by name.
#[derive(Debug)]
pub struct KernelBundle {
    dir: PathBuf,
    target: String,
    kernels: HashMap<String, Vec<KernelEntry>>,
}

/// What a manifest says of how its kernels were made.
#[derive(Deserialize)]
struct Made {
    bundle: Option<Record>,
}

/// What this program's own manifest says of a kernel.
#[derive(Deserialize)]
struct Built {
    kernel: String,
    source_hash: String,
}

impl KernelBundle {
    /// Reads the manifest in `dir` and checks that every kernel is there, and that each was built
    /// from the source that this program was built from. Where kernels were assembled, also that it
    /// was by the pinned assembler and that every file is as it came from it; where none was, the
    /// driver will assemble their text.
    ///
    /// # Errors
    /// [`DeviceError::Cuda`] that says which file or kernel will not do, and why.
    pub fn open(dir: &Path) -> Result<Arc<Self>, DeviceError> {
        let path = dir.join("manifest.json");
        let refused = |reason: String| CudaError::Bundle { path: path.clone(), reason };
        let text = std::fs::read_to_string(&path).map_err(|error| refused(error.to_string()))?;
        let malformed = |error: serde_json::Error| refused(error.to_string());
        let made: Made = serde_json::from_str(&text).map_err(malformed)?;
        let manifest: Manifest = serde_json::from_str(&text).map_err(malformed)?;
        if made.bundle.is_some_and(|record| record.ptxas.is_some()) {
            let target = Sm::of_name(&manifest.target);
            let target = target.ok_or_else(|| refused(format!("target {}", manifest.target)))?;
            let built = built_sources();
            let needed = KERNELS.iter().map(|&name| (name.to_owned(), built[name].clone()));
            check(dir, &needed.collect(), target).map_err(|why| refused(why.to_string()))?;
        }
        Ok(Arc::new(Self::new(dir, manifest)?))
    }

    fn new(dir: &Path, manifest: Manifest) -> Result<Self, CudaError> {
        let mut kernels: HashMap<String, Vec<KernelEntry>> = HashMap::new();
        let built = built_sources();
        for entry in manifest.kernels {
            let want = built.get(&entry.kernel).map_or("", String::as_str);
            if entry.source_hash != want {
                let (kernel, got, want) = (entry.label, entry.source_hash, want.to_owned());
                return Err(CudaError::Source { kernel, got, want });
            }
            kernels.entry(entry.kernel.clone()).or_default().push(entry);
        }
        let bundle = Self { dir: dir.to_owned(), target: manifest.target, kernels };
        KERNELS.iter().try_for_each(|kernel| bundle.require(kernel, "", |_| true))?;
        Ok(bundle)
    }

    /// What the kernels were compiled for, as PTX names it.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Every variant of every kernel, sorted by kernel; those of one in order of preference.
    pub fn entries(&self) -> Vec<&KernelEntry> {
        let mut kernels: Vec<_> = self.kernels.iter().collect();
        kernels.sort_by_key(|(name, _)| *name);
        kernels.into_iter().flat_map(|(_, variants)| variants).collect()
    }

    /// Whether the kernels run on a device of that compute capability.
    pub(super) fn check_target(&self, (major, minor): (u32, u32)) -> Result<(), CudaError> {
        // Code for `sm_90a` and `sm_100a` runs on that very architecture, code for a family (`f`) on
        // all of it from its first member on.
        let (want, runs): (&str, &[&str]) = match (major, minor) {
            (9, 0) => ("sm_90a", &["sm_90a"]),
            (10, 0) => ("sm_100a or sm_100f", &["sm_100a", "sm_100f"]),
            (10, _) => ("sm_100f", &["sm_100f"]),
            _ => ("no kernels of ours", &[]),
        };
        if runs.contains(&self.target.as_str()) {
            return Ok(());
        }
        Err(CudaError::Target { got: self.target.clone(), major, minor, want })
    }

    /// That one of a kernel's variants is `wanted`, which `what` describes.
    pub(super) fn require(
        &self,
        kernel: &'static str,
        what: &str,
        wanted: impl Fn(&KernelEntry) -> bool,
    ) -> Result<(), CudaError> {
        let variants = self.kernels.get(kernel);
        if variants.is_some_and(|variants| variants.iter().any(wanted)) {
            return Ok(());
        }
        let wanted = if what.is_empty() { String::new() } else { format!(" for {what}") };
        Err(CudaError::Missing { path: self.dir.clone(), kernel, wanted })
    }

    /// That a kernel takes codes of the element or block format of that name.
    pub(super) fn require_format(
        &self,
        kernel: &'static str,
        format: &str,
    ) -> Result<(), CudaError> {
        self.require(kernel, format, |entry| {
            entry.params.iter().any(|param| match &param.kind {
                ParamEntryKind::Packed { format: own, .. } => own == format,
                ParamEntryKind::View { elem, .. } => elem == format,
                ParamEntryKind::Scalar(_) => false,
            })
        })
    }

    /// The variants of a kernel, in order of preference.
    pub(super) fn variants(&self, kernel: &'static str) -> Result<&[KernelEntry], CudaError> {
        let variants = self.kernels.get(kernel).map(Vec::as_slice);
        let (path, wanted) = (self.dir.clone(), String::new());
        variants.ok_or(CudaError::Missing { path, kernel, wanted })
    }

    /// Code of a variant, best first: machine code where it lies beside the text, then the text.
    pub(super) fn images(&self, entry: &KernelEntry) -> Result<Vec<(PathBuf, Image)>, CudaError> {
        let text = self.dir.join(&entry.file);
        let mut images = Vec::new();
        let cubin = text.with_extension("cubin");
        if let Ok(code) = std::fs::read(&cubin) {
            images.push((cubin, Image::Cubin(code)));
        }
        let refused = |reason: String| CudaError::Bundle { path: text.clone(), reason };
        let ptx = std::fs::read(&text).map_err(|error| refused(error.to_string()))?;
        let ptx = CString::new(ptx).map_err(|error| refused(error.to_string()))?;
        images.push((text, Image::Ptx(ptx)));
        Ok(images)
    }
}

/// Hash of the source of each kernel that this program has.
fn built_sources() -> HashMap<String, String> {
    let built: Vec<Built> = serde_json::from_str(tessera_kernel_artifacts::MANIFEST)
        .expect("the build wrote its manifest as JSON");
    built.into_iter().map(|built| (built.kernel, built.source_hash)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tessera_ptx::Expr;

    fn entry(kernel: &str, source_hash: &str) -> KernelEntry {
        KernelEntry {
            kernel: kernel.to_owned(),
            label: kernel.to_owned(),
            entry: kernel.to_owned(),
            file: format!("{kernel}.ptx"),
            formats: Vec::new(),
            class: "exact".to_owned(),
            source_hash: source_hash.to_owned(),
            dims: Vec::new(),
            params: Vec::new(),
            grid: [Expr::Const(1), Expr::Const(1), Expr::Const(1)],
            threads: 32,
            shared_bytes: 0,
            fits: Vec::new(),
            asserts: Vec::new(),
        }
    }

    fn manifest(target: &str) -> Manifest {
        let built = built_sources();
        let kernels = KERNELS.iter().map(|name| entry(name, &built[*name])).collect();
        Manifest { target: target.to_owned(), kernels }
    }

    fn open(manifest: Manifest) -> Result<KernelBundle, CudaError> {
        KernelBundle::new(Path::new("/kernels"), manifest)
    }

    #[test]
    fn every_kernel_that_is_needed_is_built() {
        let built = built_sources();
        assert_eq!(KERNELS.iter().find(|kernel| !built.contains_key(**kernel)), None);
        assert!(open(manifest("sm_90a")).is_ok());
    }

    #[test]
    fn targets_run_where_they_are_made_for() {
        for (target, capability, runs) in [
            ("sm_90a", (9, 0), true),
            ("sm_90a", (10, 0), false),
            ("sm_100a", (10, 0), true),
            ("sm_100a", (10, 3), false),
            ("sm_100f", (10, 0), true),
            ("sm_100f", (10, 3), true),
            ("sm_100f", (9, 0), false),
            ("sm_90a", (8, 9), false),
        ] {
            let result = open(manifest(target)).and_then(|bundle| bundle.check_target(capability));
            assert_eq!(result.is_ok(), runs, "{target} on {capability:?}: {result:?}");
        }
        let error = open(manifest("sm_90a")).and_then(|bundle| bundle.check_target((10, 3)));
        assert_eq!(
            error.unwrap_err().to_string(),
            "kernels are for sm_90a, the device of compute capability 10.3 takes sm_100f"
        );
    }

    #[test]
    fn a_stale_or_missing_kernel_is_named() {
        let mut stale = manifest("sm_90a");
        "0123".clone_into(&mut stale.kernels[3].source_hash);
        let error = open(stale).unwrap_err().to_string();
        assert!(error.starts_with("`combine` was built from source 0123, this program is of"));
        let mut missing = manifest("sm_90a");
        missing.kernels.pop();
        let error = open(missing).unwrap_err().to_string();
        assert_eq!(error, "the kernels in /kernels have no `w_gemm_grouped`");
        let bundle = open(manifest("sm_90a")).unwrap();
        let error = bundle.require_format("w_gemm", "int4-g32").unwrap_err().to_string();
        assert_eq!(error, "the kernels in /kernels have no `w_gemm` for int4-g32");
    }

    #[test]
    fn what_was_assembled_is_as_it_was_then() {
        let dir = std::env::temp_dir().join(format!("tessera-bundle-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let write = |ptxas: Option<&str>| {
            let mut json = serde_json::to_value(manifest("sm_90a")).unwrap();
            json["bundle"] = serde_json::json!({
                "ptxas": ptxas, "flags": [], "kernels": [], "ineligible": [],
            });
            std::fs::write(dir.join("manifest.json"), json.to_string()).unwrap();
            KernelBundle::open(&dir).map(|_| ())
        };
        assert_eq!(write(None), Ok(()), "text alone, for the driver to assemble");
        let error = write(Some("12.0")).unwrap_err();
        assert!(format!("{error:?}").contains("are of ptxas 12.0"), "{error:?}");
        let error = write(Some(tessera_ptx::bundle::PTXAS_VERSION)).unwrap_err();
        assert!(format!("{error:?}").contains("no record of how it was assembled"), "{error:?}");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_folder_without_a_manifest_is_refused() {
        let error = KernelBundle::open(Path::new("/nowhere")).unwrap_err();
        let DeviceError::Cuda(CudaError::Bundle { path, reason }) = error else {
            panic!("{error:?}");
        };
        assert_eq!(path, Path::new("/nowhere/manifest.json"));
        assert!(!reason.is_empty());
    }
}
