//! A name for the model that two pools must agree on, whatever formats they keep it in.
//!
//! Covered: the [`ModelSpec`] (so both forms of a config count as one), `tokenizer.json` or
//! `tiktoken.model`, the chat template, and the identity of the base weights: every norm vector,
//! router weight and router bias, and the token embedding. Quantized releases of a model keep
//! these unquantized, so they tell base models apart without telling formats apart. Not covered:
//! the quantization config and the quantized matrices themselves.

use super::params::Param;
use super::plan::Plan;
use super::read::{planned, read_vector};
use super::store::Store;
use super::{CheckpointError, Role};
use crate::model::ModelSpec;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::path::Path;

/// Files that turn text into tokens; those that exist are covered whole.
const TEXT_FILES: &[&str] = &["tokenizer.json", "tiktoken.model", "chat_template.jinja"];

struct Hasher(Sha256);

impl Hasher {
    /// Adds a field under its name; lengths keep neighbours apart.
    fn field(&mut self, name: &str, value: &[u8]) {
        for part in [name.as_bytes(), value] {
            self.0.update((part.len() as u64).to_le_bytes());
            self.0.update(part);
        }
    }
}

/// Hex sha256 of what the module lists.
pub(crate) fn fingerprint(
    dir: &Path,
    spec: &ModelSpec,
    store: &Store,
    plan: &Plan,
) -> Result<String, CheckpointError> {
    let mut hasher = Hasher(Sha256::new());
    hasher.field("version", b"1");
    // The multi-token-prediction layers are not served, and quantizing leaves them out.
    let served = ModelSpec { num_nextn_predict_layers: 0, ..spec.clone() };
    hasher.field("spec", format!("{served:?}").as_bytes());
    for file in TEXT_FILES {
        let path = dir.join(file);
        if path.is_file() {
            let text = std::fs::read(&path)
                .map_err(|source| CheckpointError::Io { path: path.clone(), source })?;
            hasher.field(file, &text);
        }
    }
    let tokenizer_config = dir.join("tokenizer_config.json");
    if tokenizer_config.is_file() {
        let json = super::read_json(&tokenizer_config)?;
        if let Some(template) = json.get("chat_template") {
            hasher.field("chat_template", template.to_string().as_bytes());
        }
    }
    for param in &plan.params {
        let name = match param {
            Param::Vector { name, .. } => name.clone(),
            Param::Matrix { module, role: Role::RouterGate | Role::Embed, .. } => {
                format!("{module}.weight")
            }
            Param::Matrix { .. } => continue,
        };
        let tensor = planned(store, &format!("{}{name}", plan.prefix));
        if matches!(param, Param::Matrix { role: Role::Embed, .. }) {
            // Large: its stored bytes, rather than its values, and not kept resident for this.
            hasher.field(&name, tensor.slice());
            tensor.drop_pages();
        } else {
            let values: Vec<u8> =
                read_vector(tensor).into_iter().flat_map(f32::to_le_bytes).collect();
            hasher.field(&name, &values);
        }
    }
    let mut hex = String::new();
    for byte in hasher.0.finalize() {
        write!(hex, "{byte:02x}").expect("writing to a string succeeds");
    }
    Ok(hex)
}
