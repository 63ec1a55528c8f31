//! Which crate may see which, that every crate is linted alike, that dependencies may be
//! redistributed, and that unsafe code stays where it is allowed.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every edge between our crates. Another one needs a decision of its own.
const EDGES: [(&str, &[&str]); 15] = [
    ("tessera", &["tessera-runtime"]),
    ("tessera-emulator", &[]),
    ("tessera-emulator-driver", &["tessera-emulator"]),
    (
        "tessera-kernel-artifacts",
        &[
            "tessera-kernel-cpu",
            "tessera-kernel-dsl",
            "tessera-kernels",
            "tessera-lanes",
            "tessera-tile-ir",
        ],
    ),
    ("tessera-kernel-cpu", &["tessera-kernel-dsl", "tessera-lanes", "tessera-tile-ir"]),
    ("tessera-kernel-dsl", &["tessera-kernel-macros", "tessera-tile-ir"]),
    ("tessera-kernel-macros", &[]),
    (
        "tessera-kernel-tool",
        &[
            "tessera-emulator",
            "tessera-kernel-cpu",
            "tessera-kernel-dsl",
            "tessera-kernels",
            "tessera-ptx",
            "tessera-tile-ir",
        ],
    ),
    ("tessera-kernels", &["tessera-kernel-dsl", "tessera-tile-ir"]),
    ("tessera-lanes", &["tessera-tile-ir"]),
    ("tessera-ptx", &["tessera-tile-ir"]),
    ("tessera-runtime", &["tessera-kernel-artifacts", "tessera-kernels", "tessera-ptx"]),
    (
        "tessera-tests",
        &[
            "tessera",
            "tessera-emulator-driver",
            "tessera-kernel-artifacts",
            "tessera-kernel-cpu",
            "tessera-kernel-dsl",
            "tessera-kernel-tool",
            "tessera-kernels",
            "tessera-lanes",
            "tessera-ptx",
            "tessera-runtime",
            "tessera-tile-ir",
        ],
    ),
    ("tessera-tile-ir", &[]),
    ("xtask", &[]),
];

/// Licences under which a dependency may be part of a binary that is given away.
const LICENCES: [&str; 13] = [
    "MIT",
    "Apache-2.0",
    "BSD-1-Clause",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unicode-3.0",
    "Unlicense",
    "CC0-1.0",
    "MPL-2.0",
    "0BSD",
    "MIT-0",
];

/// Where code may be unsafe: mapped files; calls of the CUDA driver; the C interface of the stand-in
/// driver and the calls its tests make through it; instructions, threads and shared memory of
/// kernels; and an allocator that counts, in a test.
const UNSAFE_PLACES: [&str; 11] = [
    "runtime/src/device/cuda/ffi",
    "runtime/src/ffi",
    "kernel-dsl/emulator/driver/src/ffi",
    "kernel-dsl/emulator/driver/tests",
    "runtime/tests/step_memory.rs",
    "kernel-dsl/lanes/src/exec/atomic.rs",
    "kernel-dsl/lanes/src/exec/run.rs",
    "kernel-dsl/lanes/src/isa",
    "kernel-dsl/lanes/src/memory.rs",
    "kernel-dsl/lanes/src/pool.rs",
    "kernel-dsl/lanes/src/view.rs",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

fn metadata(extra: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--format-version", "1", "--offline"]).args(extra);
    let output = command.current_dir(root()).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value[key].as_array().unwrap_or_else(|| panic!("no array `{key}` in {value}"))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("no text `{key}` in {value}"))
}

#[test]
fn crates_see_only_what_the_architecture_allows() {
    let metadata = metadata(&["--no-deps"]);
    let mut edges: Vec<(String, Vec<String>)> = Vec::new();
    for package in array(&metadata, "packages") {
        // A dependency with a path is one of ours, of whatever kind and under whatever name.
        let ours = array(package, "dependencies").iter().filter(|d| d["path"].is_string());
        let mut ours: Vec<String> = ours.map(|d| text(d, "name").to_owned()).collect();
        ours.sort();
        edges.push((text(package, "name").to_owned(), ours));
    }
    edges.sort();
    let want = EDGES.map(|(name, sees)| {
        (name.to_owned(), sees.iter().map(|&s| s.to_owned()).collect::<Vec<_>>())
    });
    assert_eq!(edges, want);
}

/// The lines of a manifest's section, comments and blank lines left out.
fn section<'a>(manifest: &'a str, name: &str) -> Vec<&'a str> {
    let lines = manifest.lines().skip_while(|line| line.trim() != format!("[{name}]")).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    lines.map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect()
}

fn manifest(folder: &str) -> String {
    let path = root().join(folder).join("Cargo.toml");
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_crate_is_linted_alike() {
    let metadata = metadata(&["--no-deps"]);
    let workspace = manifest(".");
    let rust = section(&workspace, "workspace.lints.rust");
    let clippy = section(&workspace, "workspace.lints.clippy");
    assert!(rust.contains(&r#"unsafe_code = "forbid""#) && clippy.len() > 5, "{workspace}");
    for package in array(&metadata, "packages") {
        let path = text(package, "manifest_path");
        let own = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"));
        if !["tessera-runtime", "tessera-lanes", "tessera-emulator-driver"]
            .contains(&text(package, "name"))
        {
            assert_eq!(section(&own, "lints"), ["workspace = true"], "{path}");
            continue;
        }
        let denied = |line: &str| match line {
            r#"unsafe_code = "forbid""# => r#"unsafe_code = "deny""#.to_owned(),
            line => line.to_owned(),
        };
        let want: Vec<String> = rust.iter().map(|line| denied(line)).collect();
        assert_eq!(section(&own, "lints.rust"), want, "{path}");
        assert_eq!(section(&own, "lints.clippy"), clippy, "{path}");
    }
}

/// Whether a licence expression can be met with licences of the list: every part joined by `AND`
/// must offer one, and a part joined by `OR` offers each of its choices.
fn allows_redistribution(expression: &str) -> bool {
    // The old form `MIT/Apache-2.0` means `OR`. In what dependencies write, parentheses only ever
    // enclose an `OR`, so `AND` may be split first.
    let expression = expression.replace(['(', ')'], " ").replace('/', " OR ");
    expression.split(" AND ").all(|part| {
        part.split(" OR ").any(|choice| {
            let licence = choice.split(" WITH ").next().unwrap_or_default().trim();
            LICENCES.contains(&licence)
        })
    })
}

#[test]
fn licence_expressions_are_read_as_they_are_meant() {
    let check = |expression, expect| {
        assert_eq!(allows_redistribution(expression), expect, "{expression}");
    };
    check("MIT", true);
    check("MIT OR Apache-2.0", true);
    check("MIT/Apache-2.0", true);
    check("(MIT OR Apache-2.0) AND Unicode-3.0", true);
    check("Apache-2.0 WITH LLVM-exception", true);
    check("GPL-3.0 OR MIT", true);
    check("MIT AND GPL-3.0", false);
    check("GPL-3.0", false);
    check("LGPL-2.1-or-later", false);
    check("", false);
}

#[test]
fn every_dependency_may_be_redistributed() {
    // Only what is resolved for this host is certain to be on disk without a network.
    let host = Command::new(env!("CARGO")).arg("-vV").output().expect("cargo starts").stdout;
    let host = String::from_utf8_lossy(&host).into_owned();
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo's host");
    let metadata = metadata(&["--filter-platform", host]);
    let packages = array(&metadata, "packages");
    assert!(packages.len() > 50, "only {} packages", packages.len());
    let offenders: Vec<String> = packages
        .iter()
        .filter(|p| !allows_redistribution(p["license"].as_str().unwrap_or_default()))
        .map(|p| format!("{} {}: {}", text(p, "name"), text(p, "version"), p["license"]))
        .collect();
    assert!(offenders.is_empty(), "{offenders:#?}");
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    for entry in entries {
        let path = entry.expect("an entry").path();
        let hidden = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
        if path.is_dir() && !hidden && !path.ends_with("target") {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// Whether a line of code, its comment and string literals aside, says `unsafe`, or lifts the lint.
fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let outside_strings: String = code.split('"').step_by(2).collect::<Vec<_>>().join(" ");
    let mut words = outside_strings.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| word == "unsafe" || word == "unsafe_code")
}

#[test]
fn unsafe_code_is_where_it_is_allowed() {
    assert!(is_unsafe("    unsafe { read() }") && is_unsafe("#![allow(unsafe_code)]"));
    assert!(!is_unsafe("// unsafe") && !is_unsafe("let word = \"unsafe\";"));
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    let (mut allowed, mut offenders) = (0, Vec::new());
    for path in files {
        let code = std::fs::read_to_string(&path).expect("a readable file");
        let below = path.strip_prefix(root()).expect("below the root");
        // Code that tests show the macro, or the macro's own, is text and is not compiled.
        if below.starts_with("kernel-dsl/tests/ui") || below.starts_with("kernel-dsl/macros") {
            continue;
        }
        let inside = UNSAFE_PLACES.iter().any(|place| below.starts_with(place));
        for (line, number) in code.lines().zip(1..).filter(|(line, _)| is_unsafe(line)) {
            match inside {
                true => allowed += 1,
                false => offenders.push(format!("{}:{number}: {line}", path.display())),
            }
        }
    }
    assert!(offenders.is_empty(), "{offenders:#?}");
    assert!(allowed > 0, "no unsafe code anywhere: this test looks in the wrong place");
}
