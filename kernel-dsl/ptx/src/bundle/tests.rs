//! Bundles on disk, and one thing wrong with each.

use super::*;
use crate::extents::Expr;
use crate::manifest::KernelEntry;
use std::sync::atomic::{AtomicUsize, Ordering};

static FOLDERS: AtomicUsize = AtomicUsize::new(0);

/// A folder of its own for each test, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("tessera-bundle-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, bundle: &Bundle) {
        std::fs::write(self.0.join("copy.ptx"), "ptx").unwrap();
        std::fs::write(self.0.join("copy.cubin"), "cubin").unwrap();
        let text = serde_json::to_string(bundle).unwrap();
        std::fs::write(self.0.join(MANIFEST_FILE), text).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn bundle() -> Bundle {
    let entry = KernelEntry {
        kernel: "copy".to_owned(),
        label: "copy<e4m3>".to_owned(),
        entry: "copy".to_owned(),
        file: "copy.ptx".to_owned(),
        formats: vec!["e4m3".to_owned()],
        class: "exact".to_owned(),
        source_hash: "12ab".to_owned(),
        dims: Vec::new(),
        params: Vec::new(),
        grid: [Expr::Const(1), Expr::Const(1), Expr::Const(1)],
        threads: 128,
        shared_bytes: 0,
        fits: Vec::new(),
        asserts: Vec::new(),
    };
    let record = Assembled {
        label: "copy<e4m3>".to_owned(),
        cubin: "copy.cubin".to_owned(),
        ptx_sha256: sha256(b"ptx"),
        cubin_sha256: sha256(b"cubin"),
        usage: Usage { registers: 32, shared_bytes: 0, ctas_per_sm: 16, instructions: 40 },
    };
    Bundle {
        manifest: Manifest { target: "sm_90a".to_owned(), kernels: vec![entry] },
        bundle: Record {
            ptxas: Some(PTXAS_VERSION.to_owned()),
            flags: vec!["-lineinfo".to_owned()],
            kernels: vec![record],
            ineligible: Vec::new(),
        },
    }
}

fn sources(kernel: &str, hash: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(kernel.to_owned(), hash.to_owned())])
}

/// Checks a bundle that was changed; what is expected stays.
fn check_refused(change: impl FnOnce(&mut Bundle, &Folder), want: &str) {
    let folder = Folder::new();
    let mut bundle = bundle();
    folder.write(&bundle);
    change(&mut bundle, &folder);
    let text = serde_json::to_string(&bundle).unwrap();
    std::fs::write(folder.0.join(MANIFEST_FILE), text).unwrap();
    let refused = check(&folder.0, &sources("copy", "12ab"), Sm::Sm90a).unwrap_err().to_string();
    assert!(refused.contains(want), "`{want}` is not in: {refused}");
}

#[test]
fn a_bundle_as_it_was_made_is_taken() {
    let folder = Folder::new();
    folder.write(&bundle());
    assert_eq!(check(&folder.0, &sources("copy", "12ab"), Sm::Sm90a).unwrap(), bundle());
    // A manifest reads as one without the record, for who needs no more.
    let text = std::fs::read_to_string(folder.0.join(MANIFEST_FILE)).unwrap();
    assert_eq!(serde_json::from_str::<Manifest>(&text).unwrap(), bundle().manifest);
}

#[test]
fn another_architecture_is_refused() {
    check_refused(|b, _| b.manifest.target = "sm_100a".to_owned(), "are for sm_100a, the device");
}

#[test]
fn another_source_is_refused() {
    check_refused(|b, _| b.manifest.kernels[0].source_hash = "77".to_owned(), "from source 77");
}

#[test]
fn another_assembler_is_refused() {
    check_refused(|b, _| b.bundle.ptxas = Some("12.8.93".to_owned()), "of ptxas 12.8.93");
    check_refused(|b, _| b.bundle.ptxas = None, "were not assembled");
}

#[test]
fn a_kernel_without_a_usable_variant_says_why() {
    let spills = |b: &mut Bundle, _: &Folder| {
        b.manifest.kernels.clear();
        let ineligible = |label: &str| Ineligible {
            label: label.to_owned(),
            reason: "spills 96 bytes".to_owned(),
        };
        b.bundle.ineligible = vec![ineligible("copy<e4m3>"), ineligible("copying")];
    };
    check_refused(spills, "no variant of copy is usable; copy<e4m3>: spills 96 bytes");
}

#[test]
fn changed_files_are_refused() {
    let write = |name: &'static str, text: &'static str| {
        move |_: &mut Bundle, folder: &Folder| std::fs::write(folder.0.join(name), text).unwrap()
    };
    check_refused(write("copy.cubin", "cubim"), "copy.cubin is not what was assembled");
    check_refused(write("copy.ptx", ""), "copy.ptx is not what was assembled");
    let remove = |_: &mut Bundle, folder: &Folder| {
        std::fs::remove_file(folder.0.join("copy.cubin")).unwrap()
    };
    check_refused(remove, "copy.cubin cannot be read");
    check_refused(|b, _| b.bundle.kernels.clear(), "no record of how it was assembled");
}

#[test]
fn a_folder_without_a_manifest_says_what_to_do() {
    let folder = Folder::new();
    let check = || check(&folder.0, &BTreeMap::new(), Sm::Sm100f).unwrap_err().to_string();
    assert!(check().contains("no kernels for sm_100f"), "{}", check());
    std::fs::write(folder.0.join(MANIFEST_FILE), "{}").unwrap();
    assert!(check().contains("is no manifest"), "{}", check());
}

#[test]
fn digests_are_those_of_the_standard() {
    // FIPS 180-2, appendix B.1.
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(sha256(b"abc"), abc);
}
