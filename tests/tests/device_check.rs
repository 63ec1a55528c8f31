//! `device_check` on the stand-in driver: it passes kernels that are right, and no others.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tessera_tests::kernels::write_bundle;

/// A folder with what the check of one kernel needs.
fn packed(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("device_check").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    write_bundle(&folder.join("kernels"), &["f32", "bf16"]);
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    std::os::unix::fs::symlink(cases, folder.join("cases")).expect("a link");
    tessera_emulator_driver::install(&folder.join("stand-in")).expect("the stand-in driver");
    folder
}

fn check(folder: &Path, args: &[&str]) -> (Output, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_device_check"));
    command.arg("--folder").arg(folder).args(["--stand-in", "--only", "swiglu"]).args(args);
    let output = command.output().expect("the check starts");
    let report = std::fs::read(folder.join("report.json")).expect("a report");
    (output, serde_json::from_slice(&report).expect("the report is JSON"))
}

fn table(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Puts `with` in the place of `what` in the text of a kernel.
fn change(folder: &Path, what: &str, with: &str) {
    let path = folder.join("kernels/swiglu.ptx");
    let text = std::fs::read_to_string(&path).expect("the kernel's text");
    assert!(text.contains(what), "{text}");
    std::fs::write(&path, text.replace(what, with)).expect("a file to write");
}

#[test]
fn every_case_of_a_kernel_is_run_and_its_bits_are_compared() {
    let folder = packed("right");
    let (output, report) = check(&folder, &[]);
    assert!(output.status.success(), "{}", table(&output));
    let cases = report["cases"].as_array().expect("cases");
    assert!(cases.len() > 1 && cases.iter().all(|case| case["wrong"].is_null()), "{report}");
    assert_eq!(report["bits"][0], "unrecorded");
    let case = &cases[0];
    let (label, name) = (case["label"].as_str().expect("a label"), case["case"].clone());
    let mut record = serde_json::json!({"target": "sm_90a", "device": "", "outputs": {}});
    let name = name.as_str().expect("a name");
    record["outputs"][label][name] = case["outputs"].clone();
    let file = folder.join("record/sm90a.json");
    std::fs::create_dir_all(folder.join("record")).expect("a folder");
    std::fs::write(&file, record.to_string()).expect("a file to write");
    let (output, report) = check(&folder, &[]);
    assert!(output.status.success(), "{}", table(&output));
    assert_eq!(report["bits"][0], "same");
    for hash in record["outputs"][label][name].as_object_mut().expect("hashes").values_mut() {
        *hash = "0123456789abcdef".into();
    }
    std::fs::write(&file, record.to_string()).expect("a file to write");
    let (output, report) = check(&folder, &[]);
    assert!(!output.status.success() && table(&output).contains("OTHER BITS swiglu"));
    assert_eq!(report["bits"][0], "differ");
}

#[test]
fn a_kernel_that_computes_something_else_fails() {
    let folder = packed("wrong");
    change(&folder, "mul.rn.f32", "add.rn.f32");
    let (output, report) = check(&folder, &[]);
    assert!(!output.status.success());
    let wrong = report["cases"][0]["wrong"].as_str().expect("what is wrong");
    assert!(wrong.contains("elements differ"), "{wrong}");
    assert!(table(&output).contains("NOT WELL"));
}

/// What breaks the device ends its process, and the cases after it run in another.
#[test]
fn a_case_that_breaks_the_device_is_alone() {
    let folder = packed("broken");
    // Its output is at an address that nobody has.
    change(&folder, "ld.param.u64 %rd42, [p7];", "mov.b64 %rd42, 64;");
    let (output, report) = check(&folder, &[]);
    assert!(!output.status.success(), "{}", table(&output));
    let cases = report["cases"].as_array().expect("cases");
    let wrong = |name: &str| {
        let case = cases.iter().find(|case| case["case"] == name).expect("the case is reported");
        case["wrong"].as_str()
    };
    for name in ["ragged row", "gates so large that their exponentials are not finite"] {
        assert!(wrong(name).is_some_and(|why| why.contains("CUDA_ERROR_")), "{report}");
    }
    // It has no program that could write there.
    assert_eq!(wrong("no row"), None, "{report}");
}
