//! Cases of kernels: shapes, seeds and edges, written once in `tests/cases/<op>.toml` and run by
//! every executor.
//!
//! A case says the launch extents and what is special; every other argument is filled from the
//! seed, by its type. The f64 evaluator gives the truth, within the tolerance that the case names.

mod build;
mod compare;
mod judge;

pub use build::{Built, Weight};
pub use compare::{Difference, differences};
pub use judge::judge;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The cases of one op.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    case: Vec<Case>,
}

/// One case of one kernel, for each of its variants that it fits.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Name of the kernel.
    pub kernel: String,
    /// What is special about it.
    pub name: String,
    /// Largest error of an output, as a share of the largest magnitude of that output; 0 for exact.
    #[serde(default)]
    pub tolerance: f64,
    /// Launch extents by name.
    pub dims: BTreeMap<String, usize>,
    /// Values of scalar parameters.
    #[serde(default)]
    pub scalars: BTreeMap<String, toml::Value>,
    /// What arrays hold, where the seed must not decide.
    #[serde(default)]
    pub arrays: BTreeMap<String, Fill>,
    /// Formats it is for; all if empty.
    #[serde(default)]
    pub formats: Vec<String>,
    /// Constants of the variants it is for; all others count as well.
    #[serde(default)]
    pub consts: BTreeMap<String, usize>,
    /// What the seed of its values is; the name alone if not given.
    #[serde(default)]
    pub seed: u64,
    /// The message of the assertion that must stop it.
    #[serde(default)]
    pub fails: Option<String>,
}

/// What an array holds.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Fill {
    /// These elements.
    List(Vec<toml::Value>),
    /// Values from the seed, with some elements put in place.
    Seeded(Seeded),
}

/// Values from the seed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seeded {
    /// Factor on the values.
    #[serde(default = "one")]
    pub scale: f64,
    /// Added to the values.
    #[serde(default)]
    pub offset: f64,
    /// Elements put in place: index and value.
    #[serde(default)]
    pub at: Vec<(usize, toml::Value)>,
    /// Values are the indices, repeated from 0 after so many.
    #[serde(default)]
    pub count_to: Option<usize>,
}

fn one() -> f64 {
    1.0
}

impl Case {
    /// Whether it is for a variant of these formats and constants.
    pub fn fits(&self, formats: &[String], consts: &[(String, usize)]) -> bool {
        let format_fits = self.formats.is_empty() || self.formats.contains(&formats.join(" "));
        let const_fits = |(name, value): &(String, usize)| {
            self.consts.get(name).is_none_or(|wanted| wanted == value)
        };
        format_fits && consts.iter().all(const_fits)
    }
}

/// Every case of every file of the folder.
///
/// # Errors
/// A file that cannot be read, or a name that two cases of a kernel share.
pub fn load(folder: &Path) -> Result<Vec<Case>> {
    let mut paths = std::fs::read_dir(folder)
        .with_context(|| format!("no folder {}", folder.display()))?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    let mut cases: Vec<Case> = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "toml")) {
        let text = std::fs::read_to_string(path)?;
        let file: File = toml::from_str(&text).with_context(|| path.display().to_string())?;
        for case in file.case {
            let same = |other: &Case| (&other.kernel, &other.name) == (&case.kernel, &case.name);
            ensure!(!cases.iter().any(same), "{}: two cases {}", case.kernel, case.name);
            cases.push(case);
        }
    }
    Ok(cases)
}
