//! PTX that somebody wrote by hand, for a look at what comes of it.

use super::generate::Variant;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Reads files of one kernel each. Their dynamic shared memory is what a comment `// shared N`
/// says, in bytes.
///
/// # Errors
/// A file that cannot be read, or has no kernel.
pub fn read(files: &[PathBuf]) -> Result<Vec<Variant>> {
    files.iter().map(|file| one(file)).collect()
}

fn one(file: &Path) -> Result<Variant> {
    let text = std::fs::read_to_string(file);
    let text = text.with_context(|| format!("cannot read {}", file.display()))?;
    variant(&text).with_context(|| format!("{} has no `.visible .entry`", file.display()))
}

fn variant(text: &str) -> Option<Variant> {
    let (_, rest) = text.split_once(".visible .entry ")?;
    let name = rest.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).next()?;
    Some(Variant {
        label: name.to_owned(),
        threads: number_after(text, ".reqntid ").unwrap_or(128),
        shared_bytes: number_after(text, "// shared ").unwrap_or(0),
        ptx: text.to_owned(),
        source: None,
    })
}

fn number_after(text: &str, mark: &str) -> Option<u32> {
    let (_, rest) = text.split_once(mark)?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_described_by_its_text() {
        let text = ".version 9.0\n// shared 4096\n.visible .entry scale(.param .u64 a)\n\
                    .reqntid 256\n{\n\tret;\n}\n";
        let variant = variant(text).unwrap();
        assert_eq!((variant.label.as_str(), variant.threads), ("scale", 256));
        assert_eq!(variant.shared_bytes, 4096);
        assert!(super::variant(".version 9.0\n").is_none());
    }
}
