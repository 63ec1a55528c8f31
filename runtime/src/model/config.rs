//! `config.json` to [`ModelSpec`]: everything a config states is read, or refused by name.
//!
//! Keys that hub configs leave out because the architecture defines them (`scoring_func`,
//! `topk_method`, `moe_layer_freq`, `rope_interleave`, YaRN's betas and mscales) get the
//! architecture's documented value; all else has to be stated.

use super::spec::{MlaSpec, ModelSpec, MoeSpec, RopeSpec, YarnSpec};
use serde_json::{Map, Value};

/// Model types that are served; `kimi_k25` wraps one of the others as its `text_config`.
pub const SUPPORTED_MODEL_TYPES: &[&str] = &["deepseek_v3", "kimi_k2", "kimi_k25"];

/// Epsilon of the latent norms where the config has no `latent_norm_eps`.
pub const LATENT_NORM_EPS: f32 = 1e-6;

/// Experts of all layers together, at most: a config cannot make the loader list more.
const MAX_EXPERTS: usize = 1_000_000;

/// Why a config does not describe a model that is served.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum ConfigError {
    #[error("not a JSON object")]
    NotAnObject,
    #[error("{field} is not stated")]
    Missing { field: String },
    #[error("{field} is {got}, expected {want}")]
    Value { field: String, got: String, want: String },
    #[error("model_type {got:?} is not served; supported are {supported:?}")]
    ModelType { got: String, supported: &'static [&'static str] },
}

type Result<T> = std::result::Result<T, ConfigError>;

/// One JSON object of a config, with the path that errors name.
pub(crate) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: &'static str,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(json: &'a Value, path: &'static str) -> Result<Self> {
        let map = json.as_object().ok_or(ConfigError::NotAnObject)?;
        Ok(Self { map, path })
    }

    /// The value of a key; `null` counts as not stated.
    pub(crate) fn opt(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|v| !v.is_null())
    }

    pub(crate) fn wrong(&self, key: &str, want: &str) -> ConfigError {
        let got = self.map.get(key).map_or_else(|| "absent".to_owned(), Value::to_string);
        ConfigError::Value { field: format!("{}{key}", self.path), got, want: want.to_owned() }
    }

    fn missing(&self, key: &str) -> ConfigError {
        ConfigError::Missing { field: format!("{}{key}", self.path) }
    }

    /// A count that may be zero and is at most 2^24, so that products of two fit comfortably.
    pub(crate) fn opt_count(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.opt(key) else { return Ok(None) };
        let count = value.as_u64().filter(|&n| n <= 1 << 24).and_then(|n| usize::try_from(n).ok());
        count.map(Some).ok_or_else(|| self.wrong(key, "an integer of 0..=2^24"))
    }

    /// A count above zero.
    pub(crate) fn size(&self, key: &str) -> Result<usize> {
        match self.opt_count(key)? {
            None => Err(self.missing(key)),
            Some(0) => Err(self.wrong(key, "an integer above 0")),
            Some(n) => Ok(n),
        }
    }

    fn opt_float(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.opt(key) else { return Ok(None) };
        let float = value.as_f64().filter(|x| x.is_finite());
        float.map(Some).ok_or_else(|| self.wrong(key, "a finite number"))
    }

    /// A number above zero.
    fn positive(&self, key: &str) -> Result<f64> {
        let value = self.opt_float(key)?.ok_or_else(|| self.missing(key))?;
        if value > 0.0 { Ok(value) } else { Err(self.wrong(key, "a number above 0")) }
    }

    pub(crate) fn opt_bool(&self, key: &str) -> Result<Option<bool>> {
        let Some(value) = self.opt(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| self.wrong(key, "true or false"))
    }

    pub(crate) fn opt_str(&self, key: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.opt(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong(key, "a string"))
    }

    /// Refuses any stated value but `want`; absent means `want`.
    fn only(&self, key: &str, want: &Value) -> Result<()> {
        match self.opt(key) {
            Some(got) if got != want => Err(self.wrong(key, &format!("{want} (supported)"))),
            _ => Ok(()),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a config's numbers are used in f32")]
fn to_f32(x: f64) -> f32 {
    x as f32
}

/// The part of a config that describes the language model: itself, or a wrapper's `text_config`.
///
/// # Errors
/// Not an object, or a model type that is not in `supported`.
pub(crate) fn text_config<'a>(
    json: &'a Value,
    supported: &'static [&'static str],
) -> Result<&'a Value> {
    let model_type = |json: &'a Value| -> Result<&'a str> {
        let top = Fields::new(json, "")?;
        let got = top.opt_str("model_type")?.ok_or_else(|| top.missing("model_type"))?;
        if supported.contains(&got) {
            Ok(got)
        } else {
            Err(ConfigError::ModelType { got: got.to_owned(), supported })
        }
    };
    if model_type(json)? != "kimi_k25" {
        return Ok(json);
    }
    let top = Fields::new(json, "")?;
    let text = top.opt("text_config").ok_or_else(|| top.missing("text_config"))?;
    if model_type(text)? == "kimi_k25" {
        return Err(Fields::new(text, "text_config.")?.wrong("model_type", "a text model"));
    }
    Ok(text)
}

impl ModelSpec {
    /// Reads a `config.json`, in the form hub checkpoints have or the one transformers 5 writes.
    ///
    /// # Errors
    /// Anything the config asks for that is not served, by field, value and what would do.
    pub fn from_config(json: &Value) -> Result<Self> {
        Self::describe(json, SUPPORTED_MODEL_TYPES)
    }

    /// As [`ModelSpec::from_config`], for tools that describe more model types than are served.
    pub(crate) fn describe(json: &Value, supported: &'static [&'static str]) -> Result<Self> {
        let text = text_config(json, supported)?;
        let f = Fields::new(text, if std::ptr::eq(text, json) { "" } else { "text_config." })?;
        let top = Fields::new(json, "")?;
        check_architecture(&f)?;
        let rope = read_rope(&f)?;
        let first_k_dense_replace = f.opt_count("first_k_dense_replace")?;
        let spec = Self {
            model_type: f.opt_str("model_type")?.unwrap_or_default().to_owned(),
            vocab_size: f.size("vocab_size")?,
            hidden_size: f.size("hidden_size")?,
            num_layers: f.size("num_hidden_layers")?,
            attention: read_attention(&f, rope.scaling.as_ref())?,
            rope,
            intermediate_size: f.size("intermediate_size")?,
            first_k_dense_replace: first_k_dense_replace
                .ok_or_else(|| f.missing("first_k_dense_replace"))?,
            moe: read_moe(&f)?,
            rms_norm_eps: to_f32(f.positive("rms_norm_eps")?),
            max_position_embeddings: f.size("max_position_embeddings")?,
            tie_word_embeddings: f
                .opt_bool("tie_word_embeddings")?
                .or(top.opt_bool("tie_word_embeddings")?)
                .unwrap_or(false),
            bos_token_id: token_ids(&f, "bos_token_id")?
                .into_iter()
                .chain(token_ids(&top, "bos_token_id")?)
                .next(),
            eos_token_ids: Vec::new(),
            num_nextn_predict_layers: f.opt_count("num_nextn_predict_layers")?.unwrap_or(0),
        };
        spec.check()?.with_eos(&f)?.with_eos(&top)
    }

    /// Adds the end-of-sequence ids that a `generation_config.json` states.
    ///
    /// # Errors
    /// Ids that are not token ids of this model.
    pub fn with_generation_config(self, json: &Value) -> Result<Self> {
        self.with_eos(&Fields::new(json, "generation_config.")?)
    }

    fn with_eos(mut self, f: &Fields<'_>) -> Result<Self> {
        for id in token_ids(f, "eos_token_id")? {
            if id as usize >= self.vocab_size {
                let want = format!("ids below vocab_size {}", self.vocab_size);
                return Err(f.wrong("eos_token_id", &want));
            }
            if !self.eos_token_ids.contains(&id) {
                self.eos_token_ids.push(id);
            }
        }
        Ok(self)
    }

    /// Refuses numbers that contradict each other.
    fn check(self) -> Result<Self> {
        let bad = |field: &str, got: usize, want: String| {
            Err(ConfigError::Value { field: field.to_owned(), got: got.to_string(), want })
        };
        let moe = &self.moe;
        if self.num_layers * moe.n_routed_experts > MAX_EXPERTS {
            let want = format!("at most {MAX_EXPERTS} experts over all layers");
            return bad("n_routed_experts", moe.n_routed_experts, want);
        }
        if moe.num_experts_per_tok > moe.n_routed_experts {
            let want = format!("at most n_routed_experts {}", moe.n_routed_experts);
            return bad("num_experts_per_tok", moe.num_experts_per_tok, want);
        }
        if !moe.n_routed_experts.is_multiple_of(moe.n_group) {
            let want = format!("a divisor of n_routed_experts {}", moe.n_routed_experts);
            return bad("n_group", moe.n_group, want);
        }
        if moe.topk_group > moe.n_group {
            return bad("topk_group", moe.topk_group, format!("at most n_group {}", moe.n_group));
        }
        let reachable = moe.topk_group * (moe.n_routed_experts / moe.n_group);
        if moe.num_experts_per_tok > reachable {
            let want = format!("at most the {reachable} experts of topk_group groups");
            return bad("num_experts_per_tok", moe.num_experts_per_tok, want);
        }
        if self.first_k_dense_replace > self.num_layers {
            let want = format!("at most num_hidden_layers {}", self.num_layers);
            return bad("first_k_dense_replace", self.first_k_dense_replace, want);
        }
        if !self.attention.qk_rope_head_dim.is_multiple_of(2) {
            return bad(
                "qk_rope_head_dim",
                self.attention.qk_rope_head_dim,
                "an even number".into(),
            );
        }
        Ok(self)
    }
}

/// Refuses variants of the architecture that nothing here computes.
fn check_architecture(f: &Fields<'_>) -> Result<()> {
    let act = f.opt_str("hidden_act")?.ok_or_else(|| f.missing("hidden_act"))?;
    if act != "silu" {
        return Err(f.wrong("hidden_act", "\"silu\" (supported)"));
    }
    f.only("attention_bias", &false.into())?;
    f.only("scoring_func", &"sigmoid".into())?;
    f.only("topk_method", &"noaux_tc".into())?;
    f.only("moe_layer_freq", &1.into())?;
    f.only("mlp_bias", &false.into())?;
    Ok(())
}

fn read_attention(f: &Fields<'_>, yarn: Option<&YarnSpec>) -> Result<MlaSpec> {
    let (nope, rope) = (f.size("qk_nope_head_dim")?, f.size("qk_rope_head_dim")?);
    let num_heads = f.size("num_attention_heads")?;
    if f.opt_count("num_key_value_heads")?.is_some_and(|n| n != num_heads) {
        return Err(f.wrong("num_key_value_heads", &format!("num_attention_heads, {num_heads}")));
    }
    if f.opt_count("qk_head_dim")?.is_some_and(|n| n != nope + rope) {
        return Err(f.wrong("qk_head_dim", &format!("nope + rope, {}", nope + rope)));
    }
    let latent_norm_eps = match f.opt("latent_norm_eps") {
        Some(_) => to_f32(f.positive("latent_norm_eps")?),
        None => LATENT_NORM_EPS,
    };
    let q_lora_rank = match f.opt("q_lora_rank") {
        Some(_) => Some(f.size("q_lora_rank")?),
        None => None,
    };
    Ok(MlaSpec {
        num_heads,
        q_lora_rank,
        kv_lora_rank: f.size("kv_lora_rank")?,
        qk_nope_head_dim: nope,
        qk_rope_head_dim: rope,
        v_head_dim: f.size("v_head_dim")?,
        softmax_scale: softmax_scale(nope + rope, yarn),
        latent_norm_eps,
    })
}

/// `head_dim^-0.5 * m^2` with `m = 0.1 * mscale_all_dim * ln(factor) + 1` (YaRN, arXiv 2309.00071,
/// as DeepSeek-V3's reference applies it: only where the factor extends and the mscale is set).
fn softmax_scale(head_dim: usize, yarn: Option<&YarnSpec>) -> f32 {
    let m = match yarn {
        Some(y) if y.factor > 1.0 && y.mscale_all_dim != 0.0 => {
            0.1 * y.mscale_all_dim * y.factor.ln() + 1.0
        }
        _ => 1.0,
    };
    to_f32((head_dim as f64).powf(-0.5) * m * m)
}

fn read_moe(f: &Fields<'_>) -> Result<MoeSpec> {
    Ok(MoeSpec {
        n_routed_experts: f.size("n_routed_experts")?,
        num_experts_per_tok: f.size("num_experts_per_tok")?,
        n_shared_experts: f.opt_count("n_shared_experts")?.unwrap_or(0),
        moe_intermediate_size: f.size("moe_intermediate_size")?,
        n_group: f.size("n_group")?,
        topk_group: f.size("topk_group")?,
        norm_topk_prob: f.opt_bool("norm_topk_prob")?.ok_or_else(|| f.missing("norm_topk_prob"))?,
        routed_scaling_factor: to_f32(f.positive("routed_scaling_factor")?),
    })
}

/// Hub form: `rope_theta` and `rope_scaling`; transformers 5: both inside `rope_parameters`.
fn read_rope(f: &Fields<'_>) -> Result<RopeSpec> {
    let interleaved = f.opt_bool("rope_interleave")?.unwrap_or(true);
    let (key, path) = match (f.opt("rope_parameters"), f.opt("rope_scaling")) {
        (Some(_), _) => ("rope_parameters", "rope_parameters."),
        (None, _) => ("rope_scaling", "rope_scaling."),
    };
    let inner = match f.opt(key) {
        Some(value) => Some(Fields::new(value, path).map_err(|_| f.wrong(key, "an object"))?),
        None => None,
    };
    let stated = |f: &Fields<'_>| match f.opt("rope_theta") {
        Some(_) => f.positive("rope_theta").map(Some),
        None => Ok(None),
    };
    let inner_theta = inner.as_ref().map_or(Ok(None), stated)?;
    let theta = match (stated(f)?, inner_theta) {
        (Some(a), Some(b)) if a != b => {
            return Err(f.wrong("rope_theta", &format!("{b}, as {key} says")));
        }
        (a, b) => a.or(b).ok_or_else(|| f.missing("rope_theta"))?,
    };
    let scaling = inner.as_ref().map_or(Ok(None), read_scaling)?;
    Ok(RopeSpec { theta, interleaved, scaling })
}

/// Keys of a rope scaling that are understood; any other could change an answer.
const ROPE_KEYS: &[&str] = &[
    "type",
    "rope_type",
    "rope_theta",
    "factor",
    "original_max_position_embeddings",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
];

fn read_scaling(f: &Fields<'_>) -> Result<Option<YarnSpec>> {
    if let Some(key) = f.map.keys().find(|k| !ROPE_KEYS.contains(&k.as_str())) {
        return Err(f.wrong(key, &format!("no key but {ROPE_KEYS:?}")));
    }
    let kind = f.opt_str("rope_type")?.or(f.opt_str("type")?).unwrap_or("default");
    match kind {
        "default" => Ok(None),
        "yarn" => Ok(Some(YarnSpec {
            factor: f.positive("factor")?,
            original_max_position_embeddings: f.size("original_max_position_embeddings")?,
            beta_fast: f.opt_float("beta_fast")?.unwrap_or(32.0),
            beta_slow: f.opt_float("beta_slow")?.unwrap_or(1.0),
            mscale: f.opt_float("mscale")?.unwrap_or(1.0),
            mscale_all_dim: f.opt_float("mscale_all_dim")?.unwrap_or(0.0),
        })),
        _ => Err(f.wrong("rope_type", "\"default\" or \"yarn\" (supported)")),
    }
}

/// One id, a list of ids, or nothing.
fn token_ids(f: &Fields<'_>, key: &str) -> Result<Vec<u32>> {
    let one = |v: &Value| v.as_u64().and_then(|id| u32::try_from(id).ok());
    let ids = match f.opt(key) {
        None => Some(Vec::new()),
        Some(Value::Array(list)) => list.iter().map(one).collect(),
        Some(value) => one(value).map(|id| vec![id]),
    };
    ids.ok_or_else(|| f.wrong(key, "a token id or a list of token ids"))
}
