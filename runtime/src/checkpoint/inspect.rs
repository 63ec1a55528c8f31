//! What a model takes: weights by part and format, KV-cache bytes a token, what fits a budget.
//!
//! A config alone is enough; with weights beside it, their stored formats are what counts. Models
//! that are not served yet, but whose geometry is known, are described too.

use super::params::{Param, params};
use super::quant::{QuantConfig, Scheme};
use super::read::stored_format;
use super::{Checkpoint, CheckpointError, Role, read_json, read_optional_json};
use crate::model::{Fields, ModelSpec, SUPPORTED_MODEL_TYPES, text_config};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use tessera_kernels::formats::{Format, KV_FORMATS, format};

/// Model types that are described: those served, and those with a sparse-attention indexer.
const DESCRIBED_MODEL_TYPES: &[&str] =
    &["deepseek_v3", "kimi_k2", "kimi_k25", "deepseek_v32", "glm_moe_dsa"];

/// One kind of weights in one format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Such as `routed experts`.
    pub name: &'static str,
    /// Format, such as `int4-g32`.
    pub format: String,
    /// Weights, scales not counted.
    pub parameters: u64,
    /// Bytes of packed elements.
    pub code_bytes: u64,
    /// Bytes of scales and zero points.
    pub scale_bytes: u64,
}

/// The KV cache in one format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvUse {
    /// Name on the command line; `dsa_fp8` is the layout of sparse attention: an fp8 latent with
    /// a scale for each 128 of it, a bf16 rope part, and fp8 indexer keys with one scale.
    pub format: &'static str,
    /// Bytes of one token over all layers.
    pub bytes_per_token: u64,
}

/// What [`inspect`] finds.
#[derive(Debug, Clone, PartialEq)]
pub struct Inspection {
    /// As the config has it.
    pub model_type: String,
    /// Whether this version serves it.
    pub served: bool,
    /// Tokens of context at most.
    pub max_position_embeddings: usize,
    /// By kind, then format.
    pub parts: Vec<Part>,
    /// By format.
    pub kv: Vec<KvUse>,
    /// What is not counted, and what was assumed.
    pub notes: Vec<String>,
    /// Bytes to fill, if the caller named some.
    pub memory_bytes: Option<u64>,
}

impl Inspection {
    /// Weights, scales not counted.
    pub fn parameters(&self) -> u64 {
        self.parts.iter().map(|p| p.parameters).sum()
    }

    /// Bytes of all weights and scales.
    pub fn weight_bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.code_bytes + p.scale_bytes).sum()
    }

    /// Tokens that fit into a KV cache of `kv_bytes`; `None` for a format the model has not.
    pub fn kv_tokens(&self, kv_format: &str, kv_bytes: u64) -> Option<u64> {
        let kv = self.kv.iter().find(|kv| kv.format == kv_format)?;
        Some(kv_bytes / kv.bytes_per_token)
    }
}

/// Describes the model in `path`: a checkpoint, a directory with a `config.json`, or such a file.
///
/// # Errors
/// A config of a model type whose geometry is not known; those of [`Checkpoint::open`] if there
/// are weights.
pub fn inspect(path: &Path, memory_bytes: Option<u64>) -> Result<Inspection, CheckpointError> {
    let (dir, file) = match path.is_dir() {
        true => (path, path.join("config.json")),
        false => (path.parent().unwrap_or(path), path.to_owned()),
    };
    let config = read_json(&file)?;
    let describe = || {
        let spec = ModelSpec::describe(&config, DESCRIBED_MODEL_TYPES)?;
        let text = Fields::new(text_config(&config, DESCRIBED_MODEL_TYPES)?, "")?;
        let indexer = Indexer::read(&text, &spec)?;
        let dtype = text.opt_str("torch_dtype")?.or(text.opt_str("dtype")?);
        Ok((spec, indexer, dtype))
    };
    let (spec, indexer, dtype) =
        describe().map_err(|source| CheckpointError::Config { path: file.clone(), source })?;
    let mut notes = Vec::new();
    let served = SUPPORTED_MODEL_TYPES.contains(&spec.model_type.as_str());
    let has_weights = path.is_dir() && served && holds_weights(dir);
    let mut tally = Tally::default();
    if has_weights {
        let checkpoint = Checkpoint::open(dir)?;
        let plan = &checkpoint.plan;
        tally.add(&plan.params, |module, _| {
            stored_format(&checkpoint.store, &plan.matrices[module])
        });
        notes.extend(plan.ignored.iter().map(|what| format!("not counted: {what}")));
    } else {
        let beside = read_optional_json(&dir.join("hf_quant_config.json"))?;
        let quant = QuantConfig::find(&config, beside.as_ref())
            .map_err(|source| CheckpointError::Quantization { dir: dir.to_owned(), source })?;
        if dtype.is_none() {
            notes.push("the config states no dtype, bf16 is assumed".into());
        }
        let plain = if dtype == Some("float32") { "f32" } else { "bf16" };
        tally.add(&params(&spec), |module, role| {
            planned_format(quant.as_ref(), module, role, plain)
        });
        notes.extend(left_out(&config, &spec));
    }
    if let Some(indexer) = &indexer {
        let count = indexer.parameters(&spec);
        tally.put("indexer", "bf16", [2 * count, 0, count]);
    }
    Ok(Inspection {
        model_type: spec.model_type.clone(),
        served,
        max_position_embeddings: spec.max_position_embeddings,
        parts: tally.parts(),
        kv: kv_uses(&spec, indexer.as_ref()),
        notes,
        memory_bytes,
    })
}

fn holds_weights(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.into_iter().any(|e| e.file_name().to_string_lossy().ends_with(".safetensors"))
}

/// Parts of a config's model that are not counted without its weights.
fn left_out(config: &Value, spec: &ModelSpec) -> Vec<String> {
    let mtp = spec.num_nextn_predict_layers;
    let mtp = (mtp > 0).then(|| format!("not counted: {mtp} multi-token-prediction layers"));
    let vision = config.get("vision_config").map(|_| "not counted: the vision tower".to_owned());
    mtp.into_iter().chain(vision).collect()
}

/// The format a config's quantization gives a module.
fn planned_format(
    quant: Option<&QuantConfig>,
    module: &str,
    role: Role,
    plain: &str,
) -> &'static Format {
    let full = format!("language_model.{module}");
    let quant = quant.filter(|_| role.is_linear());
    // FP8 releases leave the output projection alone without saying so.
    let scheme = match quant.map_or(Scheme::Plain, |q| q.scheme(&full, module)) {
        Scheme::Fp8Block if role == Role::LmHead => Scheme::Plain,
        scheme => scheme,
    };
    let name = match scheme {
        Scheme::Plain => plain.to_owned(),
        Scheme::Int4 { group_size: -1, .. } => "int4-g32".into(),
        scheme => scheme.name(),
    };
    format(&name).expect("every scheme has a format")
}

/// Sparse attention's indexer (DeepSeek-V3.2, GLM-5).
struct Indexer {
    num_heads: u64,
    head_dim: u64,
    /// Layers with an indexer of their own; the others reuse its choices.
    full_layers: u64,
}

impl Indexer {
    fn read(f: &Fields<'_>, spec: &ModelSpec) -> Result<Option<Self>, crate::model::ConfigError> {
        if f.opt("index_head_dim").is_none() {
            return Ok(None);
        }
        let full_layers = match f.opt("indexer_types").map(|types| types.as_array()) {
            None => spec.num_layers,
            Some(Some(types)) if types.len() == spec.num_layers => {
                types.iter().filter(|kind| *kind == "full").count()
            }
            Some(_) => return Err(f.wrong("indexer_types", "one of \"full\", \"shared\" a layer")),
        };
        Ok(Some(Self {
            num_heads: f.size("index_n_heads")? as u64,
            head_dim: f.size("index_head_dim")? as u64,
            full_layers: full_layers as u64,
        }))
    }

    /// wq_b, wk, its norm's weight and bias, weights_proj; of all full layers.
    fn parameters(&self, spec: &ModelSpec) -> u64 {
        let (hidden, rank) =
            (spec.hidden_size as u64, spec.attention.q_lora_rank.unwrap_or(0) as u64);
        let (heads, dim) = (self.num_heads, self.head_dim);
        self.full_layers * (heads * dim * rank + dim * hidden + 2 * dim + heads * hidden)
    }
}

fn kv_uses(spec: &ModelSpec, indexer: Option<&Indexer>) -> Vec<KvUse> {
    let layers = spec.num_layers as u64;
    let (latent, rope) =
        (spec.attention.kv_lora_rank as u64, spec.attention.qk_rope_head_dim as u64);
    let keys = indexer.map_or(0, |i| i.full_layers * i.head_dim);
    let uses = KV_FORMATS.iter().map(|kv| KvUse {
        format: kv.name,
        bytes_per_token: (layers * (latent + rope) + keys) * kv.element.bits() as u64 / 8,
    });
    let Some(indexer) = indexer else { return uses.collect() };
    // Sparse attention's cache comes in two layouts: all in 16 bits, or the mixed fp8 one.
    let scaled = |elements: u64| elements + 4 * elements.div_ceil(128);
    let dsa = KvUse {
        format: "dsa_fp8",
        bytes_per_token: layers * (scaled(latent) + 2 * rope)
            + indexer.full_layers * scaled(indexer.head_dim),
    };
    uses.filter(|kv| kv.format == "bf16").chain([dsa]).collect()
}

/// Sums by kind and format, in the order of the model.
#[derive(Default)]
struct Tally(BTreeMap<(usize, &'static str), Part>);

/// Kinds of weights, in the order they are shown.
const KINDS: &[&str] = &[
    "embedding",
    "attention",
    "indexer",
    "dense feed-forward",
    "router",
    "shared experts",
    "routed experts",
    "norms and biases",
    "output projection",
];

const fn kind(role: Role) -> &'static str {
    match role {
        Role::Embed => "embedding",
        Role::Attention => "attention",
        Role::DenseMlp => "dense feed-forward",
        Role::RouterGate => "router",
        Role::SharedExpert => "shared experts",
        Role::RoutedExpert => "routed experts",
        Role::LmHead => "output projection",
    }
}

impl Tally {
    /// Adds to the part of that kind and format.
    fn put(&mut self, name: &'static str, format: &'static str, [codes, scales, count]: [u64; 3]) {
        let order = KINDS.iter().position(|kind| *kind == name).unwrap_or(KINDS.len());
        let part = self.0.entry((order, format)).or_insert_with(|| Part {
            name,
            format: format.to_owned(),
            parameters: 0,
            code_bytes: 0,
            scale_bytes: 0,
        });
        part.code_bytes += codes;
        part.scale_bytes += scales;
        part.parameters += count;
    }

    fn add(&mut self, params: &[Param], format_of: impl Fn(&str, Role) -> &'static Format) {
        for param in params {
            match param {
                Param::Vector { len, .. } => {
                    // Held in f32 whatever they are stored in.
                    let len = *len as u64;
                    self.put("norms and biases", "f32", [4 * len, 0, len]);
                }
                Param::Matrix { module, role, rows, cols } => {
                    let format = format_of(module, *role);
                    let codes = rows.saturating_mul(format.row_bytes(*cols)) as u64;
                    let scales = format.num_bytes(*rows, *cols) as u64 - codes;
                    let count = rows.saturating_mul(*cols) as u64;
                    self.put(kind(*role), format.name, [codes, scales, count]);
                }
            }
        }
    }

    fn parts(self) -> Vec<Part> {
        self.0.into_values().collect()
    }
}

/// Decimal gigabytes, or smaller where they say more.
fn human(bytes: u64) -> String {
    match bytes {
        0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Groups of three digits.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (idx, digit) in digits.chars().enumerate() {
        if idx > 0 && (digits.len() - idx).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let served = if self.served { "" } else { " (described, not served yet)" };
        writeln!(
            f,
            "{}{served}, context up to {} tokens",
            self.model_type,
            grouped(self.max_position_embeddings as u64)
        )?;
        writeln!(
            f,
            "\n{:<20} {:<12} {:>20} {:>10} {:>10}",
            "weights", "format", "parameters", "elements", "scales"
        )?;
        for part in &self.parts {
            let (codes, scales) = (human(part.code_bytes), human(part.scale_bytes));
            let count = grouped(part.parameters);
            writeln!(
                f,
                "{:<20} {:<12} {count:>20} {codes:>10} {scales:>10}",
                part.name, part.format
            )?;
        }
        let count = grouped(self.parameters());
        writeln!(f, "{:<33} {count:>20} {:>10}", "total", human(self.weight_bytes()))?;
        writeln!(f, "\n{:<12} {:>16}", "KV cache", "bytes a token")?;
        for kv in &self.kv {
            write!(f, "{:<12} {:>16}", kv.format, grouped(kv.bytes_per_token))?;
            if let Some(memory) = self.memory_bytes {
                let all = grouped(memory / kv.bytes_per_token);
                write!(f, "   {all} tokens in {}", human(memory))?;
                match memory.checked_sub(self.weight_bytes()) {
                    Some(rest) => {
                        write!(f, ", {} beside the weights", grouped(rest / kv.bytes_per_token))?;
                    }
                    None => write!(f, ", which does not hold the weights as well")?,
                }
            }
            writeln!(f)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "\n{note}"))
    }
}
