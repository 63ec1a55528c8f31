//! How a checkpoint says that it is quantized.
//!
//! The config is looked for in this order, because a release that re-quantizes another keeps the
//! old one deeper inside: `quantization_config` of `config.json`, `hf_quant_config.json`,
//! `text_config.quantization_config`.

use super::ignore::{Pattern, PatternStyle};
use super::layout::OWN_METHOD;
use serde_json::Value;
use tessera_kernels::formats::{FORMATS, Format, format};

/// Methods that are read, as `quant_method` with what selects among their variants.
pub const SUPPORTED_METHODS: &[&str] = &[
    "fp8 (e4m3, weight_block_size [128, 128])",
    "compressed-tensors (4-bit int in groups of 32, 128 or -1; 8-bit float per channel; nvfp4)",
    "modelopt (NVFP4)",
    "tessera (any of our formats)",
];

/// Why a quantization config is not followed.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum QuantError {
    #[error("{field} is {got}; supported are {supported}")]
    Unsupported { field: &'static str, got: String, supported: String },
    #[error("{entry:?} is not a regular expression: {why}")]
    Regex { entry: String, why: String },
    #[error(
        "in-dimension {in_dim} split {tensor_parallel} ways is {per_rank} groups of {group_size}, \
         not whole ones; tensor-parallel sizes that work: {works:?}"
    )]
    GroupFit {
        in_dim: usize,
        group_size: i64,
        tensor_parallel: usize,
        per_rank: f64,
        works: Vec<usize>,
    },
    #[error("group_size is {got}, expected a size above 0, or -1 for one scale a channel")]
    GroupSize { got: i64 },
}

/// How one module's weight is stored.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scheme {
    /// `weight` in bf16, f16 or f32.
    Plain,
    /// `weight` e4m3 and `weight_scale_inv`; a plain `weight` is also taken, as releases differ in
    /// which projections they leave alone and no list says so.
    Fp8Block,
    /// `weight` e4m3, `weight_scale` per output channel.
    Fp8Channel,
    /// `weight_packed` and companions; a group size of -1 is one scale a channel.
    Int4 { group_size: i64, symmetric: bool },
    /// `weight` u8, `weight_scale`, `weight_scale_2`.
    Nvfp4Modelopt,
    /// `weight_packed` u8, `weight_scale`, `weight_global_scale` (the inverse).
    Nvfp4Compressed,
    /// Our own layout of a format: `weight` u8 and what else the format has.
    Own(&'static Format),
}

impl Scheme {
    /// Name of the stored format.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Plain => "as stored".into(),
            Self::Fp8Block => "fp8-128x128".into(),
            Self::Fp8Channel => "fp8-channel".into(),
            Self::Int4 { group_size: -1, .. } => "int4-channel".into(),
            Self::Int4 { group_size, symmetric: true } => format!("int4-g{group_size}"),
            Self::Int4 { group_size, symmetric: false } => format!("int4-g{group_size}-zp"),
            Self::Nvfp4Modelopt | Self::Nvfp4Compressed => "nvfp4".into(),
            Self::Own(format) => format.name.into(),
        }
    }
}

/// Targets that share a scheme.
#[derive(Debug, Clone)]
struct Group {
    /// `None`: every linear module.
    targets: Option<Vec<Pattern>>,
    scheme: Scheme,
}

/// A checkpoint's quantization config.
#[derive(Debug, Clone)]
pub(crate) struct QuantConfig {
    groups: Vec<Group>,
    pub(crate) ignore: Vec<Pattern>,
    /// Whether the config says that the KV cache was calibrated.
    pub(crate) kv_cache: bool,
    /// True statements about the config itself.
    pub(crate) warnings: Vec<String>,
}

impl QuantConfig {
    /// The verdict on one linear module, by its full name and the one without a wrapper's prefix.
    pub(crate) fn scheme(&self, full: &str, short: &str) -> Scheme {
        if self.ignore.iter().any(|p| p.matches(full, short)) {
            return Scheme::Plain;
        }
        let hit = |g: &&Group| match &g.targets {
            None => true,
            Some(targets) => targets.iter().any(|p| p.matches(full, short)),
        };
        self.groups.iter().find(hit).map_or(Scheme::Plain, |g| g.scheme.clone())
    }

    /// Stored formats in use, for reports.
    pub(crate) fn name(&self) -> String {
        let names: Vec<_> = self.groups.iter().map(|g| g.scheme.name()).collect();
        names.join(" + ")
    }

    /// Finds and reads the quantization config; `None` if the weights are plain.
    pub(crate) fn find(
        config: &Value,
        hf_quant: Option<&Value>,
    ) -> Result<Option<Self>, QuantError> {
        let stated =
            |json: &Value| json.get("quantization_config").filter(|v| !v.is_null()).cloned();
        let inner = config.get("text_config").and_then(stated);
        let beside = hf_quant.and_then(|json| json.get("quantization")).cloned().map(|mut json| {
            if let Some(map) = json.as_object_mut() {
                map.insert("quant_method".into(), "modelopt".into());
            }
            json
        });
        let outer = stated(config).or(beside);
        let shadowed = outer.is_some() && inner.is_some() && outer != inner;
        let Some(json) = outer.or(inner) else { return Ok(None) };
        let mut quant = Self::read(&json)?;
        if shadowed {
            quant.warnings.push(
                "text_config.quantization_config differs from the outer one, which is followed"
                    .into(),
            );
        }
        Ok(Some(quant))
    }

    fn read(json: &Value) -> Result<Self, QuantError> {
        let method = json.get("quant_method").and_then(Value::as_str).unwrap_or_default();
        match method {
            "fp8" => read_fp8(json),
            "compressed-tensors" => read_compressed(json),
            "modelopt" | "modelopt_fp4" => read_modelopt(json),
            OWN_METHOD => read_own(json),
            _ => Err(unsupported(
                "quant_method",
                json.get("quant_method"),
                &SUPPORTED_METHODS.join(", "),
            )),
        }
    }
}

fn unsupported(field: &'static str, got: Option<&Value>, supported: &str) -> QuantError {
    let got = got.map_or_else(|| "absent".to_owned(), Value::to_string);
    QuantError::Unsupported { field, got, supported: supported.to_owned() }
}

/// A list of strings under any of `keys`.
fn patterns(json: &Value, keys: &[&str], style: PatternStyle) -> Result<Vec<Pattern>, QuantError> {
    let list = keys.iter().find_map(|key| json.get(*key)).filter(|v| !v.is_null());
    let Some(list) = list else { return Ok(Vec::new()) };
    let bad = || unsupported("ignore", Some(list), "a list of module names");
    let list = list.as_array().ok_or_else(bad)?;
    list.iter().map(|entry| Pattern::new(entry.as_str().ok_or_else(bad)?, style)).collect()
}

fn read_fp8(json: &Value) -> Result<QuantConfig, QuantError> {
    let block = json.get("weight_block_size");
    if block != Some(&serde_json::json!([128, 128])) {
        return Err(unsupported("weight_block_size", block, "[128, 128]"));
    }
    let fmt = json.get("fmt").filter(|v| !v.is_null());
    if fmt.is_some_and(|f| f != "e4m3") {
        return Err(unsupported("fmt", fmt, "\"e4m3\""));
    }
    let activation = json.get("activation_scheme").filter(|v| !v.is_null());
    if activation.is_some_and(|a| a != "dynamic") {
        return Err(unsupported("activation_scheme", activation, "\"dynamic\""));
    }
    Ok(QuantConfig {
        groups: vec![Group { targets: None, scheme: Scheme::Fp8Block }],
        ignore: patterns(
            json,
            &["modules_to_not_convert", "ignored_layers", "ignore"],
            PatternStyle::Prefix,
        )?,
        kv_cache: false,
        warnings: Vec::new(),
    })
}

fn read_modelopt(json: &Value) -> Result<QuantConfig, QuantError> {
    let algo = json.get("quant_algo");
    if algo.and_then(Value::as_str) != Some("NVFP4") {
        return Err(unsupported("quant_algo", algo, "\"NVFP4\""));
    }
    let group = json.get("group_size").filter(|v| !v.is_null());
    if group.is_some_and(|g| *g != 16) {
        return Err(unsupported("group_size", group, "16"));
    }
    let kv = ["kv_cache_quant_algo", "kv_cache_scheme"];
    Ok(QuantConfig {
        groups: vec![Group { targets: None, scheme: Scheme::Nvfp4Modelopt }],
        ignore: patterns(json, &["ignore", "exclude_modules"], PatternStyle::Glob)?,
        kv_cache: kv.iter().any(|key| json.get(key).is_some_and(|v| !v.is_null())),
        warnings: Vec::new(),
    })
}

fn read_own(json: &Value) -> Result<QuantConfig, QuantError> {
    let name = json.get("format");
    let found = name.and_then(Value::as_str).and_then(format);
    let scheme = found.map(Scheme::Own).ok_or_else(|| {
        let names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
        unsupported("format", name, &names.join(", "))
    })?;
    Ok(QuantConfig {
        groups: vec![Group { targets: None, scheme }],
        ignore: patterns(json, &["ignore"], PatternStyle::Glob)?,
        kv_cache: false,
        warnings: Vec::new(),
    })
}

fn read_compressed(json: &Value) -> Result<QuantConfig, QuantError> {
    let groups = json.get("config_groups").and_then(Value::as_object);
    let groups = groups.filter(|g| !g.is_empty());
    let groups = groups.ok_or_else(|| {
        unsupported("config_groups", json.get("config_groups"), "an object of groups")
    })?;
    let groups: Result<Vec<Group>, QuantError> = groups
        .values()
        .map(|group| {
            let format = group.get("format").or(json.get("format"));
            let scheme = read_scheme(group.get("weights").unwrap_or(&Value::Null), format)?;
            let linear = |targets: &Value| {
                targets.as_array().is_some_and(|t| t.iter().any(|t| t == "Linear"))
            };
            let targets = match group.get("targets") {
                None | Some(Value::Null) => None,
                Some(targets) if linear(targets) => None,
                Some(_) => Some(patterns(group, &["targets"], PatternStyle::Exact)?),
            };
            Ok(Group { targets, scheme })
        })
        .collect();
    Ok(QuantConfig {
        groups: groups?,
        ignore: patterns(json, &["ignore"], PatternStyle::Exact)?,
        kv_cache: json.get("kv_cache_scheme").is_some_and(|v| !v.is_null()),
        warnings: Vec::new(),
    })
}

/// One group's `weights`.
fn read_scheme(weights: &Value, format: Option<&Value>) -> Result<Scheme, QuantError> {
    let number = |key: &str| weights.get(key).and_then(Value::as_i64);
    let text = |key: &str| weights.get(key).and_then(Value::as_str);
    let packing = format.and_then(Value::as_str).unwrap_or_default();
    let want = |packings: &[&str]| match packings.contains(&packing) {
        true => Ok(()),
        false => Err(unsupported("format", format, &packings.join(", "))),
    };
    match (number("num_bits"), text("type"), text("strategy").unwrap_or("group")) {
        (Some(4), Some("int"), strategy @ ("group" | "channel")) => {
            want(&["pack-quantized"])?;
            if let Some(order @ Value::String(_)) = weights.get("actorder") {
                return Err(unsupported("actorder", Some(order), "null"));
            }
            let group_size =
                if strategy == "channel" { -1 } else { number("group_size").unwrap_or(0) };
            check_group_size(group_size)?;
            let symmetric = weights.get("symmetric").and_then(Value::as_bool).unwrap_or(true);
            Ok(Scheme::Int4 { group_size, symmetric })
        }
        (Some(8), Some("float"), "channel") => {
            want(&["float-quantized"])?;
            Ok(Scheme::Fp8Channel)
        }
        (Some(4), Some("float"), "tensor_group" | "group") if number("group_size") == Some(16) => {
            want(&["nvfp4-pack-quantized"])?;
            Ok(Scheme::Nvfp4Compressed)
        }
        _ => Err(unsupported("weights", Some(weights), SUPPORTED_METHODS[1])),
    }
}

/// Group sizes that a format exists for.
fn check_group_size(group_size: i64) -> Result<(), QuantError> {
    match group_size {
        -1 | 32 | 128 => Ok(()),
        size if size < 1 => Err(QuantError::GroupSize { got: size }),
        size => Err(unsupported("group_size", Some(&size.into()), "32, 128, -1")),
    }
}

/// Checks that an in-dimension split `tensor_parallel` ways falls on group boundaries.
///
/// # Errors
/// [`QuantError::GroupSize`] for 0 or less than -1; [`QuantError::GroupFit`], with the
/// tensor-parallel sizes up to 64 that work.
pub fn check_group_fit(
    in_dim: usize,
    group_size: i64,
    tensor_parallel: usize,
) -> Result<(), QuantError> {
    if group_size == -1 {
        return Ok(());
    }
    let group = usize::try_from(group_size).ok().filter(|&g| g > 0);
    let group = group.ok_or(QuantError::GroupSize { got: group_size })?;
    let fits = |ranks: usize| ranks > 0 && in_dim.is_multiple_of(group * ranks);
    if fits(tensor_parallel) {
        return Ok(());
    }
    Err(QuantError::GroupFit {
        in_dim,
        group_size,
        tensor_parallel,
        per_rank: in_dim as f64 / tensor_parallel as f64 / group as f64,
        works: (1..=64).filter(|&ranks| fits(ranks)).collect(),
    })
}
