//! What every variant did on a case when somebody last looked: `bench/kernels/profile.json`. A
//! kernel that does more fails a test until a person accepts it.

use crate::cases::{Built, Case, load};
use crate::emulate;
use crate::gpu::generate::{Variant, variants};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tessera_emulator::{Config, Counts, Machine};
use tessera_ptx::{Compiled, Sm};

/// How much more is accepted, as a share.
const SLACK: f64 = 0.02;

/// What every variant did, by label.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile(BTreeMap<String, Figure>);

/// What a variant did on a case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the emulator's counts, by their names there")]
pub struct Figure {
    /// The case.
    pub case: String,
    pub warp_instructions: u64,
    pub global_bytes: u64,
    pub global_sectors: u64,
    pub shared_conflicts: u64,
    pub mma: u64,
    pub barriers: u64,
}

/// Where the committed one is.
pub fn path(root: &Path) -> PathBuf {
    root.join("bench/kernels/profile.json")
}

impl Figure {
    fn of(case: &Case, counts: &Counts) -> Self {
        Self {
            case: case.name.clone(),
            warp_instructions: counts.warp_instructions,
            global_bytes: counts.global_bytes,
            global_sectors: counts.global_sectors,
            shared_conflicts: counts.shared_conflicts,
            mma: counts.mma,
            barriers: counts.barriers,
        }
    }

    /// What grew.
    fn worse(&self, now: &Self) -> Vec<String> {
        if self.case != now.case {
            return vec![format!("was counted on case `{}`, now on `{}`", self.case, now.case)];
        }
        let pairs = [
            ("warp instructions", self.warp_instructions, now.warp_instructions),
            ("bytes", self.global_bytes, now.global_bytes),
            ("sectors", self.global_sectors, now.global_sectors),
            ("bank conflicts", self.shared_conflicts, now.shared_conflicts),
            ("tensor-core operations", self.mma, now.mma),
            ("barriers", self.barriers, now.barriers),
        ];
        let more = |was: u64, is: u64| is as f64 > was as f64 * (1.0 + SLACK);
        let grown = pairs.into_iter().filter(|&(_, was, is)| more(was, is));
        grown.map(|(what, was, is)| format!("{what} {was} -> {is}")).collect()
    }
}

impl Profile {
    /// Runs each variant on the first case that is for it and does not fail.
    ///
    /// # Errors
    /// As the emulator; a variant without a case.
    pub fn count(root: &Path) -> Result<Self> {
        let cases = load(&root.join("tests/cases"))?;
        let all = variants(Sm::Sm90a, "", root).variants.into_iter();
        all.map(|variant| Ok((variant.label.clone(), run(variant, &cases)?))).collect()
    }

    /// The committed one.
    ///
    /// # Errors
    /// If there is none.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("no profile {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no profile", path.display()))
    }

    /// Writes it, one line a variant, so that a difference is easy to read.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let line = |(label, figure): (&String, &Figure)| {
            let (label, figure) = (serde_json::to_string(label)?, serde_json::to_string(figure)?);
            Ok(format!("  {label}: {figure}"))
        };
        let lines = self.0.iter().map(line).collect::<Result<Vec<_>>>()?;
        Ok(std::fs::write(path, format!("{{\n{}\n}}\n", lines.join(",\n")))?)
    }

    /// What is worse than it was, and which variants came or went.
    pub fn worse(&self, now: &Self) -> Vec<String> {
        let gone = self.0.keys().filter(|label| !now.0.contains_key(*label));
        let mut found: Vec<String> = gone.map(|label| format!("{label} is gone")).collect();
        for (label, figure) in &now.0 {
            match self.0.get(label) {
                None => found.push(format!("{label} is not in the profile")),
                Some(was) => {
                    found.extend(was.worse(figure).iter().map(|what| format!("{label}: {what}")));
                }
            }
        }
        found
    }
}

impl FromIterator<(String, Figure)> for Profile {
    fn from_iter<I: IntoIterator<Item = (String, Figure)>>(figures: I) -> Self {
        Self(figures.into_iter().collect())
    }
}

fn run(variant: Variant, cases: &[Case]) -> Result<Figure> {
    let Variant { label, ptx, source, .. } = variant;
    let source = source.with_context(|| format!("{label} has no source"))?;
    let kernel = &source.kernel;
    let fits = |case: &&Case| {
        let own = case.kernel == kernel.name && case.fails.is_none();
        own && case.fits(&kernel.formats, &kernel.consts)
    };
    let case = cases.iter().find(fits).with_context(|| format!("{label} has no case"))?;
    let mut built = Built::new(kernel, case)?;
    let compiled = Compiled { ptx, entry: source.entry.clone() };
    let mut machine = Machine::new(Config::default());
    let ran = emulate::run(kernel, &compiled, &mut built, &mut machine).context(label)?;
    Ok(Figure::of(case, &ran.total))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(change: impl Fn(&mut Figure)) -> Profile {
        let mut figure = Figure {
            case: "one".to_owned(),
            warp_instructions: 1000,
            global_bytes: 4096,
            global_sectors: 128,
            ..Figure::default()
        };
        change(&mut figure);
        Profile::from_iter([("k".to_owned(), figure)])
    }

    fn check(change: impl Fn(&mut Figure), want: &[&str]) {
        assert_eq!(profile(|_| {}).worse(&profile(change)), want);
    }

    #[test]
    fn growth_beyond_the_slack_is_worse() {
        check(|_| {}, &[]);
        check(|figure| figure.warp_instructions = 1020, &[]);
        check(|figure| figure.warp_instructions = 1021, &["k: warp instructions 1000 -> 1021"]);
        check(|figure| figure.global_sectors = 131, &["k: sectors 128 -> 131"]);
        check(|figure| figure.shared_conflicts = 1, &["k: bank conflicts 0 -> 1"]);
        check(|figure| figure.barriers = 1, &["k: barriers 0 -> 1"]);
        check(|figure| figure.warp_instructions = 500, &[]);
        let other = "k: was counted on case `one`, now on `two`";
        check(|figure| figure.case = "two".to_owned(), &[other]);
    }

    #[test]
    fn variants_that_come_and_go_are_named() {
        let (some, none) = (profile(|_| {}), Profile::default());
        assert_eq!(some.worse(&none), ["k is gone"]);
        assert_eq!(none.worse(&some), ["k is not in the profile"]);
    }

    #[test]
    fn what_is_written_is_read() {
        let path = std::env::temp_dir().join(format!("tessera-profile-{}", std::process::id()));
        let some = profile(|_| {});
        some.write(&path).unwrap();
        let read = Profile::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read, some);
    }
}
