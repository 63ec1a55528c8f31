//! What a machine can check of `CONTRIBUTING.md`'s style, beyond rustfmt and clippy.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of this many lines is to be split.
const MAX_LINES: usize = 800;
/// Names that say nothing.
const EMPTY_NAMES: [&str; 4] = ["util", "common", "helpers", "manager"];
/// Field cases that must each have a test function named after them.
const FIELD_CASES: &str = "301 302 303 304 305 306 401 402 403 404 405 406 501 502 503 504 505 506 \
                           601 602 603 604 605 606 607 608";

/// Checks every tracked file and prints all offences.
///
/// # Errors
/// If there is an offence, or `git` cannot list the files.
pub(crate) fn run(root: &Path) -> Result<()> {
    let files = tracked_files(root)?;
    let mut offences = Vec::new();
    let mut test_names = BTreeSet::new();
    for file in &files {
        let path = root.join(file);
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        offences.extend(check_name(file));
        if file.extension().is_some_and(|e| e == "rs") {
            offences.extend(check_rust(file, &text));
            test_names.extend(text.lines().filter_map(field_case));
        }
        if file.extension().is_some_and(|e| e == "md") {
            offences.extend(check_links(root, file, &text));
        }
    }
    for case in FIELD_CASES.split_whitespace() {
        if !test_names.contains(case) {
            offences.push(format!("field case O-{case} has no test function named `o_{case}_...`"));
        }
    }
    if !offences.is_empty() {
        bail!("not tidy:\n  {}", offences.join("\n  "));
    }
    println!("tidy: {} files", files.len());
    Ok(())
}

fn tracked_files(root: &Path) -> Result<Vec<PathBuf>> {
    let git = Command::new("git").args(["ls-files"]).current_dir(root).output();
    let output = git.context("cannot start git")?;
    if !output.status.success() {
        bail!("git ls-files ended with {}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect())
}

fn check_name(file: &Path) -> Option<String> {
    let stem = file.file_stem()?.to_str()?;
    EMPTY_NAMES.contains(&stem).then(|| format!("{}: `{stem}` says nothing", file.display()))
}

fn check_rust(file: &Path, text: &str) -> Vec<String> {
    let mut offences = Vec::new();
    let lines = text.lines().count();
    if lines > MAX_LINES {
        offences.push(format!("{}: {lines} lines, split past {MAX_LINES}", file.display()));
    }
    let documented =
        text.lines().find(|line| !line.is_empty()).is_some_and(|l| l.starts_with("//!"));
    if !documented {
        offences.push(format!("{}: does not begin with what it is for (`//!`)", file.display()));
    }
    if text.lines().any(|line| line.trim_start().starts_with("#[ignore")) {
        offences
            .push(format!("{}: an ignored test; assert today's answer instead", file.display()));
    }
    offences
}

/// The number of the field case that a line's test function is named after.
fn field_case(line: &str) -> Option<String> {
    let name = line.trim_start().trim_start_matches("async ").strip_prefix("fn o_")?;
    let number: String = name.chars().take_while(char::is_ascii_digit).collect();
    (number.len() == 3).then_some(number)
}

/// Relative links of a document that lead nowhere.
fn check_links(root: &Path, file: &Path, text: &str) -> Vec<String> {
    let folder = root.join(file.parent().unwrap_or(Path::new("")));
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let relative = targets.filter(|t| !t.contains("://") && !t.starts_with('#') && !t.is_empty());
    let path = |target: &str| folder.join(target.split('#').next().unwrap_or(target));
    relative
        .filter(|target| !path(target).exists())
        .map(|target| format!("{}: link to {target} leads nowhere", file.display()))
        .collect()
}
