//! Which bits kernels wrote, as hashes, and what is committed of them: the emulator's first, so that a
//! GPU can say where the model of its matrix units is right.

use crate::worker::CaseResult;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tessera_kernel_tool::cases::Built;
use tessera_kernel_tool::place::bytes;
use tessera_ptx::bundle::sha256;
use tessera_tile_ir::eval::Arg;
use tessera_tile_ir::{Access, Kernel, ParamKind};

/// Hash of each output, by its name.
pub(crate) type Outputs = BTreeMap<String, String>;

/// Hexadecimal digits of a hash that are kept.
const DIGITS: usize = 16;

/// The bits of all cases on one device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// What the kernels were compiled for.
    pub(crate) target: String,
    /// Which device wrote them.
    pub(crate) device: String,
    /// By label of the variant and name of the case.
    pub(crate) outputs: BTreeMap<String, BTreeMap<String, Outputs>>,
}

/// How bits compare with the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bits {
    Same,
    Differ,
    Unrecorded,
}

/// Hashes of what a kernel wrote.
pub(crate) fn hashes(kernel: &Kernel, written: &Built) -> Outputs {
    let mut outputs = Outputs::new();
    for (param, arg) in kernel.params.iter().zip(&written.args.0) {
        if let (ParamKind::View { access, .. }, Arg::Array(array)) = (&param.kind, arg)
            && *access != Access::Read
        {
            let mut hash = sha256(&bytes(&array.data));
            hash.truncate(DIGITS);
            outputs.insert(param.name.clone(), hash);
        }
    }
    outputs
}

impl Record {
    /// Where the record of a target is.
    pub(crate) fn path(folder: &Path, target: &str) -> PathBuf {
        folder.join(format!("{}.json", target.replace('_', "")))
    }

    /// The record of a target, if there is one.
    pub(crate) fn read(folder: &Path, target: &str) -> Result<Option<Self>> {
        let path = Self::path(folder, target);
        match std::fs::read_to_string(&path) {
            Err(_) if !path.exists() => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
            Ok(text) => {
                Ok(Some(serde_json::from_str(&text).with_context(|| path.display().to_string())?))
            }
        }
    }

    /// The record of these results.
    pub(crate) fn of(target: &str, device: &str, results: &[CaseResult]) -> Self {
        let (target, device) = (target.to_owned(), device.to_owned());
        let mut record = Self { target, device, outputs: BTreeMap::new() };
        for result in results.iter().filter(|result| !result.outputs.is_empty()) {
            let cases = record.outputs.entry(result.name.label.clone()).or_default();
            cases.insert(result.name.case.clone(), result.outputs.clone());
        }
        record
    }

    /// Writes it.
    pub(crate) fn write(&self, folder: &Path) -> Result<PathBuf> {
        let path = Self::path(folder, &self.target);
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    /// How a result compares.
    pub(crate) fn compare(&self, result: &CaseResult) -> Bits {
        let cases = self.outputs.get(&result.name.label);
        match cases.and_then(|cases| cases.get(&result.name.case)) {
            None => Bits::Unrecorded,
            Some(outputs) if *outputs == result.outputs => Bits::Same,
            Some(_) => Bits::Differ,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::CaseName;

    fn result(case: &str, hash: &str) -> CaseResult {
        CaseResult {
            name: CaseName { label: "swiglu".to_owned(), case: case.to_owned() },
            class: "exact".to_owned(),
            wrong: None,
            outputs: BTreeMap::from([("y".to_owned(), hash.to_owned())]),
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_tells_other_bits() {
        let folder = std::env::temp_dir().join(format!("tessera-record-{}", std::process::id()));
        assert_eq!(Record::read(&folder, "sm_90a").unwrap(), None);
        let record = Record::of("sm_90a", "some device", &[result("one", "01")]);
        let path = record.write(&folder).unwrap();
        assert_eq!(path, folder.join("sm90a.json"));
        let read = Record::read(&folder, "sm_90a").unwrap().unwrap();
        assert_eq!(read, record);
        assert_eq!(read.compare(&result("one", "01")), Bits::Same);
        assert_eq!(read.compare(&result("one", "02")), Bits::Differ);
        assert_eq!(read.compare(&result("two", "01")), Bits::Unrecorded);
        std::fs::write(&path, "{").unwrap();
        assert!(Record::read(&folder, "sm_90a").is_err());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
