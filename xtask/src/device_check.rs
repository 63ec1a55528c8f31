//! `cargo xtask device-check`: packs what a GPU is checked with into one folder, and runs it.
//!
//! The folder is all that the check needs: it can be carried to a machine that has a GPU and neither
//! Rust nor a network, and `run.sh` started there.

use crate::{cargo, gpu_kernels, run as run_command};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the machine that the folder is carried to runs.
const SCRIPT: &str = r#"#!/bin/sh
# Checks the GPU of this machine within eight minutes. The table goes to the terminal, everything to
# report.json; exit status 0 says that all is well. --stand-in checks without a GPU.
here=$(cd "$(dirname "$0")" && pwd) || exit 1
case " $* " in
*" --stand-in "*) exec "$here/device-check" --folder "$here" "$@" ;;
esac
exec "$here/device-check" --folder "$here" --gpu "$@"
"#;

/// The name under which the check looks for the driver first.
const DRIVER_NAME: &str = "libcuda.so";

/// What is ours of the options; the others go to the check.
struct Options<'a> {
    pack_only: bool,
    /// `--sm` of `build-kernels`.
    sm: &'a str,
    /// A bundle that is there already.
    kernels: Option<&'a str>,
    offline: bool,
    rest: Vec<&'a str>,
}

impl<'a> Options<'a> {
    fn of(args: &[&'a str]) -> Result<Self> {
        let mut options =
            Self { pack_only: false, sm: "90", kernels: None, offline: false, rest: Vec::new() };
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let mut value = || args.next().copied().with_context(|| format!("{arg} needs a value"));
            match arg {
                "--pack" => options.pack_only = true,
                "--offline" => options.offline = true,
                "--sm" => options.sm = value()?,
                "--kernels" => options.kernels = Some(value()?),
                other => options.rest.push(other),
            }
        }
        if !matches!(options.sm, "90" | "100") {
            bail!("--sm is 90 or 100");
        }
        Ok(options)
    }
}

/// Packs and, unless only that is wanted, runs.
pub(crate) fn run(root: &Path, args: &[&str]) -> Result<()> {
    let options = Options::of(args)?;
    let folder = root.join("target/device-check");
    pack(root, &folder, &options)?;
    if options.pack_only {
        println!("carry {} and start run.sh there", folder.display());
        return Ok(());
    }
    let record = root.join("tests/golden/device");
    let mut command = Command::new(folder.join("device-check"));
    command.arg("--folder").arg(&folder).arg("--record").arg(record).args(&options.rest);
    run_command(&mut command)
}

fn pack(root: &Path, folder: &Path, options: &Options<'_>) -> Result<()> {
    let tool = ["build", "--quiet", "--release", "--package", "tessera-tests"];
    cargo(&[&tool[..], &["--bin", "device_check"]].concat(), &[])?;
    cargo(&["build", "--quiet", "--release", "--package", "tessera-emulator-driver"], &[])?;
    let kernels = kernels(root, options)?;
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => fs::create_dir_all(folder)?,
    }
    let built = target(root).join("release");
    program(&built.join("device_check"), &folder.join("device-check"))?;
    let driver = folder.join("stand-in");
    fs::create_dir_all(&driver)?;
    program(&built.join("libtessera_emulator_driver.so"), &driver.join(DRIVER_NAME))?;
    copy_tree(&kernels, &folder.join("kernels"))?;
    copy_tree(&root.join("tests/cases"), &folder.join("cases"))?;
    copy_tree(&root.join("models/tiny-kimi"), &folder.join("models/tiny-kimi"))?;
    let record = root.join("tests/golden/device");
    if record.exists() {
        copy_tree(&record, &folder.join("record"))?;
    }
    let script = folder.join("run.sh");
    fs::write(&script, SCRIPT)?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// The bundle, built unless there is one. Where the check itself has to work without an assembler,
/// as on a machine without a network, the driver assembles the kernels' text.
fn kernels(root: &Path, options: &Options<'_>) -> Result<PathBuf> {
    if let Some(kernels) = options.kernels {
        return Ok(PathBuf::from(kernels));
    }
    let offline: &[&str] = if options.offline { &["--offline"] } else { &[] };
    gpu_kernels("build-kernels", &[&["--sm", options.sm], offline].concat())?;
    let folder = if options.sm == "90" { "sm90a" } else { "sm100f" };
    Ok(root.join("target/kernels").join(folder))
}

/// Where cargo puts what it builds.
#[expect(clippy::disallowed_methods, reason = "this tool runs cargo, which reads it too")]
fn target(root: &Path) -> PathBuf {
    std::env::var("CARGO_TARGET_DIR").map_or_else(|_| root.join("target"), PathBuf::from)
}

/// Copies a program without what a debugger needs, if there is a tool for that: the folder is carried.
fn program(from: &Path, to: &Path) -> Result<()> {
    let stripped = Command::new("strip").arg("-o").arg(to).arg(from).status();
    match stripped {
        Ok(status) if status.success() => Ok(()),
        _ => copy(from, to),
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_tree(&entry.path(), &target)?,
            false => copy(&entry.path(), &target)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_ours_or_the_check_s() {
        let args = ["--full", "--sm", "100", "--pack", "--minutes", "5", "--kernels", "there"];
        let options = Options::of(&args).unwrap();
        assert_eq!((options.sm, options.kernels, options.pack_only), ("100", Some("there"), true));
        assert_eq!(options.rest, ["--full", "--minutes", "5"]);
        assert!(Options::of(&["--sm"]).is_err());
        assert!(Options::of(&["--sm", "80"]).is_err());
    }
}
