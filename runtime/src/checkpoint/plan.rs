//! Which tensors fill which parameter. Headers and a few scalars are read, no weight is.
//!
//! A plan exists only if every parameter is filled once and every tensor is consumed or on the
//! allow-list; otherwise all problems come back at once.

use super::ignore::nearest;
use super::kv_scales;
use super::layout::own_tensors;
use super::params::{Param, params};
use super::quant::{QuantConfig, Scheme, check_group_fit};
use super::store::{Store, Tensor};
use super::{CheckpointError, Role};
use crate::model::ModelSpec;
use safetensors::Dtype;
use std::collections::{BTreeMap, HashSet};
use tessera_kernels::formats::{Format, check_shape};

/// Dtypes of weights that stand for themselves.
const PLAIN: &[Dtype] = &[Dtype::BF16, Dtype::F16, Dtype::F32];

/// The tensors of one matrix, by full name.
#[derive(Debug, Clone)]
pub(crate) struct MatrixSource {
    pub(crate) scheme: Scheme,
    pub(crate) weight: String,
    pub(crate) scale: Option<String>,
    pub(crate) zero_point: Option<String>,
    pub(crate) tensor_scale: f32,
}

/// How a checkpoint fills a model.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) params: Vec<Param>,
    /// By module name.
    pub(crate) matrices: BTreeMap<String, MatrixSource>,
    /// What comes before `model.` and `lm_head` in the checkpoint's names.
    pub(crate) prefix: &'static str,
    pub(crate) kv_scales: Option<Vec<f32>>,
    pub(crate) warnings: Vec<String>,
    pub(crate) ignored: Vec<String>,
}

/// Collects what is consumed and what is wrong.
pub(crate) struct Planner<'a> {
    pub(crate) store: &'a Store,
    pub(crate) prefix: &'static str,
    pub(crate) consumed: HashSet<String>,
    pub(crate) problems: Vec<String>,
}

/// Maps the tensors of `store` onto the parameters of `spec`.
pub(crate) fn plan(
    spec: &ModelSpec,
    quant: Option<&QuantConfig>,
    store: &Store,
    wrapped: bool,
) -> Result<Plan, CheckpointError> {
    let prefix = if wrapped { "language_model." } else { "" };
    let mut p = Planner { store, prefix, consumed: HashSet::new(), problems: Vec::new() };
    let params = params(spec);
    let mut matrices = BTreeMap::new();
    for param in &params {
        match param {
            Param::Vector { name, len } => p.vector(name, *len),
            Param::Matrix { module, role, rows, cols } => {
                let scheme = p.scheme(quant, module, *role);
                if let Some(source) = p.matrix(module, scheme, *rows, *cols) {
                    matrices.insert(module.clone(), source);
                }
            }
        }
    }
    let mut warnings = quant.map(|q| q.warnings.clone()).unwrap_or_default();
    let states_kv = quant.is_some_and(|q| q.kv_cache);
    let kv_scales = kv_scales::plan(spec, &mut p, states_kv, &mut warnings);
    if let Some(quant) = quant {
        warnings.extend(unmatched_entries(quant, &params, prefix));
    }
    if spec.tie_word_embeddings {
        p.tied_output();
    }
    let ignored = p.rest(spec, wrapped);
    if !p.problems.is_empty() {
        return Err(CheckpointError::Problems { problems: p.problems });
    }
    Ok(Plan { params, matrices, prefix, kv_scales, warnings, ignored })
}

/// Entries of the ignore list that name no module, which is what a misspelt one looks like.
fn unmatched_entries(quant: &QuantConfig, params: &[Param], prefix: &str) -> Vec<String> {
    let modules: Vec<&str> = params
        .iter()
        .filter_map(|param| match param {
            Param::Matrix { module, .. } => Some(module.as_str()),
            Param::Vector { .. } => None,
        })
        .collect();
    let unmatched = quant.ignore.iter().filter(|pattern| {
        !modules.iter().any(|module| pattern.matches(&format!("{prefix}{module}"), module))
    });
    unmatched
        .map(|pattern| {
            let near = nearest(&pattern.text, modules.iter().copied());
            format!("ignore entry {:?} names no module; nearest are {near:?}", pattern.text)
        })
        .collect()
}

impl<'a> Planner<'a> {
    /// The tensor of that full name, now consumed.
    pub(crate) fn take(&mut self, name: &str) -> Option<Tensor<'a>> {
        let tensor = self.store.get(name)?;
        self.consumed.insert(name.to_owned());
        Some(tensor)
    }

    /// Takes a tensor that has to be there, with one of `dtypes` and exactly `shape`.
    fn expect(&mut self, name: &str, dtypes: &[Dtype], shape: &[usize]) -> Option<Tensor<'a>> {
        let Some(tensor) = self.take(name) else {
            self.problems.push(format!("{name}: not filled, needs {dtypes:?} {shape:?}"));
            return None;
        };
        let before = self.problems.len();
        if !dtypes.contains(&tensor.dtype()) {
            let got = tensor.dtype();
            self.problems.push(format!("{name}: dtype is {got:?}, expected one of {dtypes:?}"));
        }
        if tensor.shape() != shape {
            let got = tensor.shape();
            self.problems.push(format!("{name}: shape is {got:?}, expected {shape:?}"));
        }
        (self.problems.len() == before).then_some(tensor)
    }

    /// An f32 scalar above 0, of shape `[]` or `[1]`.
    fn scalar(&mut self, name: &str) -> Option<f32> {
        let single = self.store.get(name).is_some_and(|t| t.shape() == [1]);
        let tensor = self.expect(name, &[Dtype::F32], if single { &[1] } else { &[] })?;
        let bytes: [u8; 4] = tensor.slice().try_into().ok()?;
        let value = f32::from_le_bytes(bytes);
        if value.is_finite() && value > 0.0 {
            return Some(value);
        }
        self.problems.push(format!("{name}: is {value}, expected a finite value above 0"));
        None
    }

    fn vector(&mut self, name: &str, len: usize) {
        let name = format!("{}{name}", self.prefix);
        self.expect(&name, PLAIN, &[len]);
    }

    /// How a module is stored, by the config's verdict.
    fn scheme(&self, quant: Option<&QuantConfig>, module: &str, role: Role) -> Scheme {
        let Some(quant) = quant.filter(|_| role.is_linear()) else { return Scheme::Plain };
        let full = format!("{}{module}", self.prefix);
        let scheme = quant.scheme(&full, module);
        let weight = self.store.get(&format!("{full}.weight"));
        let plain = weight.is_some_and(|t| PLAIN.contains(&t.dtype()));
        // FP8 releases leave some projections in bf16 that no list names.
        if scheme == Scheme::Fp8Block && plain { Scheme::Plain } else { scheme }
    }

    fn matrix(
        &mut self,
        module: &str,
        scheme: Scheme,
        rows: usize,
        cols: usize,
    ) -> Option<MatrixSource> {
        let full = format!("{}{module}", self.prefix);
        let of = |part: &str| format!("{full}.{part}");
        let mut source = MatrixSource {
            weight: of("weight"),
            scale: None,
            zero_point: None,
            tensor_scale: 1.0,
            scheme: scheme.clone(),
        };
        let before = self.problems.len();
        match scheme {
            Scheme::Plain => {
                self.expect(&source.weight, PLAIN, &[rows, cols]);
            }
            Scheme::Fp8Block => {
                self.expect(&source.weight, &[Dtype::F8_E4M3], &[rows, cols]);
                let scale = of("weight_scale_inv");
                let tiles = [rows.div_ceil(128), cols.div_ceil(128)];
                self.expect(&scale, &[Dtype::F32], &tiles);
                source.scale = Some(scale);
            }
            Scheme::Fp8Channel => {
                self.expect(&source.weight, &[Dtype::F8_E4M3], &[rows, cols]);
                let scale = of("weight_scale");
                self.expect(&scale, &[Dtype::F32, Dtype::BF16], &[rows, 1]);
                source.scale = Some(scale);
            }
            Scheme::Int4 { group_size, symmetric } => {
                self.int4(&mut source, &full, [rows, cols], group_size);
                if !symmetric {
                    let groups = usize::try_from(group_size).map_or(1, |g| cols / g);
                    let zero_point = of("weight_zero_point");
                    self.expect(&zero_point, &[Dtype::I32], &[rows.div_ceil(8), groups]);
                    source.zero_point = Some(zero_point);
                }
            }
            Scheme::Nvfp4Modelopt | Scheme::Nvfp4Compressed => {
                self.nvfp4(&mut source, &full, [rows, cols]);
            }
            Scheme::Own(format) => self.own(&mut source, &full, format, [rows, cols]),
        }
        (self.problems.len() == before).then_some(source)
    }

    fn own(
        &mut self,
        source: &mut MatrixSource,
        full: &str,
        format: &Format,
        [rows, cols]: [usize; 2],
    ) {
        if let Err(why) = check_shape(format, rows, cols) {
            self.problems.push(format!("{full}: {why}"));
            return;
        }
        for tensor in own_tensors(full, format, [rows, cols]) {
            self.expect(&tensor.name, &[tensor.dtype], &tensor.shape);
        }
        let of = |part: &str| format!("{full}.{part}");
        source.scale = format.scale_tile.map(|_| of("weight_scale"));
        source.zero_point = format.zero_point.then(|| of("weight_zero_point"));
        if format.tensor_scale {
            source.tensor_scale = self.scalar(&of("weight_scale_2")).unwrap_or(1.0);
        }
    }

    fn int4(&mut self, source: &mut MatrixSource, full: &str, shape: [usize; 2], group_size: i64) {
        let [rows, cols] = shape;
        let group = if group_size == -1 { 32 } else { group_size };
        if let Err(why) = check_group_fit(cols, group, 1) {
            self.problems.push(format!("{full}: {why}"));
            return;
        }
        source.weight = format!("{full}.weight_packed");
        self.expect(&source.weight, &[Dtype::I32], &[rows, cols / 8]);
        let groups = usize::try_from(group_size).map_or(1, |g| cols / g);
        let scale = format!("{full}.weight_scale");
        self.expect(&scale, &[Dtype::BF16], &[rows, groups]);
        source.scale = Some(scale);
        let name = format!("{full}.weight_shape");
        let Some(stated) = self.expect(&name, &[Dtype::I64, Dtype::I32], &[2]) else { return };
        let width = stated.num_bytes() / 2;
        let mut sizes = stated
            .slice()
            .chunks(width)
            .map(|bytes| bytes.iter().rev().fold(0u64, |n, &byte| n << 8 | u64::from(byte)));
        let sizes = [sizes.next().unwrap_or(0), sizes.next().unwrap_or(0)];
        if sizes != [rows as u64, cols as u64] {
            self.problems.push(format!("{name}: says {sizes:?}, expected {shape:?}"));
        }
    }

    fn nvfp4(&mut self, source: &mut MatrixSource, full: &str, [rows, cols]: [usize; 2]) {
        if let Err(why) = check_group_fit(cols, 16, 1) {
            self.problems.push(format!("{full}: {why}"));
            return;
        }
        let (weight, global, input) = match source.scheme {
            Scheme::Nvfp4Compressed => {
                ("weight_packed", "weight_global_scale", "input_global_scale")
            }
            _ => ("weight", "weight_scale_2", "input_scale"),
        };
        source.weight = format!("{full}.{weight}");
        self.expect(&source.weight, &[Dtype::U8], &[rows, cols / 2]);
        let scale = format!("{full}.weight_scale");
        self.expect(&scale, &[Dtype::F8_E4M3], &[rows, cols / 16]);
        source.scale = Some(scale);
        if let Some(value) = self.scalar(&format!("{full}.{global}")) {
            let inverted = source.scheme == Scheme::Nvfp4Compressed;
            source.tensor_scale = if inverted { 1.0 / value } else { value };
        }
        // Scales of activations: weights alone are quantized here, so nothing reads them.
        let input = format!("{full}.{input}");
        if self.store.get(&input).is_some() {
            self.scalar(&input);
        }
    }

    /// An output projection beside a tied embedding has to be the embedding.
    fn tied_output(&mut self) {
        let of = |name: &str| self.store.get(&format!("{}{name}", self.prefix));
        let (head, embed) = (of("lm_head.weight"), of("model.embed_tokens.weight"));
        if let (Some(head), Some(embed)) = (head, embed)
            && (head.dtype() != embed.dtype() || head.slice() != embed.slice())
        {
            let why = "differs from embed_tokens, to which tie_word_embeddings ties it";
            self.problems.push(format!("{}: {why}", head.name()));
        }
    }

    /// Sorts what nothing consumed into allowed and unknown.
    fn rest(&mut self, spec: &ModelSpec, wrapped: bool) -> Vec<String> {
        let mut ignored: BTreeMap<String, usize> = BTreeMap::new();
        for tensor in self.store.iter() {
            let name = tensor.name();
            if self.consumed.contains(name) {
                continue;
            }
            match allowed(name, spec, self.prefix, wrapped) {
                Some(reason) => *ignored.entry(reason).or_default() += 1,
                None => self.problems.push(format!(
                    "{name}: {:?} {:?} fills no parameter",
                    tensor.dtype(),
                    tensor.shape()
                )),
            }
        }
        ignored.into_iter().map(|(reason, count)| format!("{count} tensors: {reason}")).collect()
    }
}

/// The allow-list: why a tensor that fills no parameter may be there.
fn allowed(name: &str, spec: &ModelSpec, prefix: &str, wrapped: bool) -> Option<String> {
    let outside = ["vision_tower.", "mm_projector."].iter().find(|p| name.starts_with(*p));
    if let Some(part) = outside.filter(|_| wrapped) {
        return Some(format!("{part}* (images are not served)"));
    }
    let name = name.strip_prefix(prefix)?;
    if name.ends_with(".rotary_emb.inv_freq") {
        return Some("rotary_emb.inv_freq (computed from the config)".into());
    }
    if name == "lm_head.weight" && spec.tie_word_embeddings {
        return Some("lm_head.weight (tied to embed_tokens)".into());
    }
    let layer = name.strip_prefix("model.layers.")?.split('.').next()?.parse::<usize>().ok()?;
    let last = spec.num_layers + spec.num_nextn_predict_layers;
    let extra = (spec.num_layers..last).contains(&layer);
    extra.then(|| format!("model.layers.{layer}.* (multi-token prediction is not served)"))
}
