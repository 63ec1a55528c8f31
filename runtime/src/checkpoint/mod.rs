//! Maps checkpoints one to one: every parameter filled once, every tensor consumed, or no start.
//!
//! ```text
//! Checkpoint::open(dir)           headers checked, files mapped, nothing copied
//!   .load(policy, progress)       -> Loaded: a spec and every weight in its pool's format
//!   .load(other, progress)        shares the mappings of what is kept as stored
//! quantize(dir, policy, out, ..)  writes a checkpoint that others can load
//! inspect(dir or config)          bytes by part and format, KV bytes per token, what fits
//! ```

mod calibration;
mod error;
mod fingerprint;
mod ignore;
mod inspect;
mod kv_scales;
mod layout;
mod load;
mod params;
mod plan;
mod policy;
mod quant;
mod read;
mod shard;
mod store;
mod write;

pub use calibration::read_kv_scales;
pub use error::CheckpointError;
pub use ignore::{Pattern, PatternStyle};
pub use inspect::{Inspection, KvUse, Part, inspect};
pub use policy::{ROLES, Role, WeightPolicy, policy_names};
pub use quant::{QuantError, SUPPORTED_METHODS, check_group_fit};
pub use shard::ShardError;
pub use write::{Output, quantize_to};

use crate::model::{ModelSpec, ModelWeights};
use plan::Plan;
use quant::QuantConfig;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use store::Store;

/// Largest JSON file that is read; the indexes of trillion-parameter releases have a tenth of it.
const MAX_JSON_BYTES: u64 = 200_000_000;

/// A JSON file of a checkpoint.
fn read_json(path: &Path) -> Result<Value, CheckpointError> {
    let io = |source| CheckpointError::Io { path: path.to_owned(), source };
    let bad = |why: String| CheckpointError::Json { path: path.to_owned(), why };
    let bytes = std::fs::metadata(path).map_err(io)?.len();
    if bytes > MAX_JSON_BYTES {
        return Err(bad(format!("{bytes} bytes, at most {MAX_JSON_BYTES} are read")));
    }
    let text = std::fs::read(path).map_err(io)?;
    serde_json::from_slice(&text).map_err(|why| bad(why.to_string()))
}

/// As [`read_json`]; `None` if there is no such file.
fn read_optional_json(path: &Path) -> Result<Option<Value>, CheckpointError> {
    if path.is_file() { read_json(path).map(Some) } else { Ok(None) }
}

/// How far a load or a write is.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Stored bytes consumed so far.
    pub done_bytes: u64,
    /// Stored bytes in all.
    pub total_bytes: u64,
    /// Tensor that was consumed last.
    pub name: &'a str,
}

/// What a load noticed and did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadReport {
    /// Format the checkpoint is stored in, such as `int4-g32`.
    pub stored: String,
    /// True statements an operator should see; none of them changes an answer.
    pub warnings: Vec<String>,
    /// Tensors on the allow-list that nothing consumes, with the reason.
    pub ignored: Vec<String>,
    /// Bytes of weights kept as mapped.
    pub mapped_bytes: u64,
    /// Bytes of weights that were quantized or decoded while loading.
    pub converted_bytes: u64,
}

/// A loaded model.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What the model is.
    pub spec: ModelSpec,
    /// Its weights in the formats of the policy.
    pub weights: ModelWeights,
    /// KV-cache scales of the checkpoint, one a layer, if it states them.
    pub kv_scales: Option<Vec<f32>>,
    /// Hex sha256 of config, tokenizer, template and base weights; not of the weight format.
    pub fingerprint: String,
    /// What was noticed.
    pub report: LoadReport,
}

/// An opened checkpoint: headers checked, files mapped, every parameter's tensors known.
#[derive(Debug)]
pub struct Checkpoint {
    dir: PathBuf,
    config: Value,
    spec: ModelSpec,
    store: Store,
    plan: Plan,
    stored: String,
    fingerprint: OnceLock<String>,
}

impl Checkpoint {
    /// Opens the checkpoint in `dir`: config, headers and index are checked, and each parameter
    /// is found its tensors. Reads no weight.
    ///
    /// # Errors
    /// Damaged files, a config that is not served, shards that are absent or short;
    /// [`CheckpointError::Problems`] with every mismatch of parameters and tensors at once.
    pub fn open(dir: &Path) -> Result<Self, CheckpointError> {
        let path = dir.join("config.json");
        let config = read_json(&path)?;
        let not_served = |path: &Path| {
            let path = path.to_owned();
            move |source| CheckpointError::Config { path, source }
        };
        let mut spec = ModelSpec::from_config(&config).map_err(not_served(&path))?;
        let path = dir.join("generation_config.json");
        if let Some(json) = read_optional_json(&path)? {
            spec = spec.with_generation_config(&json).map_err(not_served(&path))?;
        }
        let beside = read_optional_json(&dir.join("hf_quant_config.json"))?;
        let quant = QuantConfig::find(&config, beside.as_ref())
            .map_err(|source| CheckpointError::Quantization { dir: dir.to_owned(), source })?;
        let wrapped = config.get("text_config").is_some();
        let store = Store::open(dir)?;
        let plan = plan::plan(&spec, quant.as_ref(), &store, wrapped)?;
        let stored = quant.map_or_else(|| "unquantized".to_owned(), |q| q.name());
        let dir = dir.to_owned();
        Ok(Self { dir, config, spec, store, plan, stored, fingerprint: OnceLock::new() })
    }

    /// What the model is.
    pub fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    /// Hex sha256 of config, tokenizer, template and base weights: the norm vectors, the router
    /// and the token embedding, which every quantized release keeps; not of the weight format.
    ///
    /// # Errors
    /// A tokenizer or template file that cannot be read.
    pub fn fingerprint(&self) -> Result<&str, CheckpointError> {
        if let Some(known) = self.fingerprint.get() {
            return Ok(known);
        }
        let new = fingerprint::fingerprint(&self.dir, &self.spec, &self.store, &self.plan)?;
        Ok(self.fingerprint.get_or_init(|| new))
    }

    /// Loads every weight in the format that `policy` asks for. What already has it stays in the
    /// file's pages, shared by every load of this checkpoint; the rest is converted matrix by
    /// matrix.
    ///
    /// # Errors
    /// [`CheckpointError::Problems`] if shapes do not fit the formats asked for;
    /// [`CheckpointError::Matrix`] for scales or values that no format can hold.
    pub fn load(
        &self,
        policy: &WeightPolicy,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Loaded, CheckpointError> {
        let fingerprint = self.fingerprint()?.to_owned();
        let (weights, report) = load::fill(&self.spec, &self.store, &self.plan, policy, progress)?;
        Ok(Loaded {
            spec: self.spec.clone(),
            weights,
            kv_scales: self.plan.kv_scales.clone(),
            fingerprint,
            report: LoadReport { stored: self.stored.clone(), ..report },
        })
    }
}

/// [`Checkpoint::open`] and [`Checkpoint::load`].
///
/// # Errors
/// As theirs.
pub fn load(
    dir: &Path,
    policy: &WeightPolicy,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Loaded, CheckpointError> {
    Checkpoint::open(dir)?.load(policy, progress)
}

/// [`Checkpoint::open`] and [`quantize_to`], in shards of the usual size.
///
/// # Errors
/// As theirs.
pub fn quantize(
    dir: &Path,
    policy: &WeightPolicy,
    out_dir: &Path,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<LoadReport, CheckpointError> {
    quantize_to(&Checkpoint::open(dir)?, policy, &Output::new(out_dir), progress)
}
