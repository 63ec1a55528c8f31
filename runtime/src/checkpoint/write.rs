//! Writes a quantized checkpoint, for others to load where they know the format: sharded, indexed, all or nothing.

use super::layout::{self, OutTensor};
use super::load::{check_policy, convert, matrix_bytes, source_bytes, target_format};
use super::params::{Param, layer_name};
use super::read::{planned, stored_format};
use super::store::{INDEX, WHOLE_MODEL};
use super::{Checkpoint, CheckpointError, LoadReport, Progress, Role, WeightPolicy};
use bytes::Bytes;
use safetensors::Dtype;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tessera_kernels::formats::Format;

/// Where a checkpoint is written.
#[derive(Debug, Clone)]
pub struct Output {
    /// A directory that does not exist yet.
    pub dir: PathBuf,
    /// Bytes of tensors after which the next shard begins; a matrix is never split.
    pub shard_bytes: u64,
}

impl Output {
    /// Shards of 5 GB, as hubs have them.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), shard_bytes: 5_000_000_000 }
    }
}

/// What fills some tensors of the output.
enum Filler {
    /// A parameter, by its index in the plan; a matrix in this format.
    Param(usize, Option<&'static Format>),
    /// A KV-cache scale.
    Scale(f32),
}

/// Tensors that stay together, and what fills them.
struct Unit {
    tensors: Vec<OutTensor>,
    filler: Filler,
}

/// Writes `checkpoint`, quantized by `policy`, to `out`: tensors, index, `config.json`, and copies
/// of the tokenizer, template and generation files. The text model alone is written, without
/// multi-token-prediction layers. What is on disk under the final name is always complete.
///
/// # Errors
/// [`CheckpointError::OutExists`]; [`CheckpointError::NotWritable`] for a mix of two
/// formats; those of [`Checkpoint::load`]; I/O.
pub fn quantize_to(
    checkpoint: &Checkpoint,
    policy: &WeightPolicy,
    out: &Output,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<LoadReport, CheckpointError> {
    if out.dir.exists() {
        return Err(CheckpointError::OutExists { path: out.dir.clone() });
    }
    check_policy(&checkpoint.store, &checkpoint.plan, policy)?;
    let units = units(checkpoint, policy);
    let config = output_config(checkpoint, policy)?;
    let name = out.dir.file_name().unwrap_or_default().to_string_lossy();
    let partial = out.dir.with_file_name(format!(".{name}.partial-{}", std::process::id()));
    let io = |source| CheckpointError::Io { path: partial.clone(), source };
    fs::create_dir_all(&partial).map_err(io)?;
    let mut writer =
        Writer { checkpoint, dir: &partial, done_bytes: 0, report: LoadReport::default() };
    let written = writer
        .write_shards(units, out.shard_bytes, progress)
        .and_then(|()| writer.write_rest(&config))
        .and_then(|()| fs::rename(&partial, &out.dir).map_err(io));
    if let Err(error) = written {
        // The first error is the one to report; a leftover directory is visible by its name.
        let _best_effort = fs::remove_dir_all(&partial);
        return Err(error);
    }
    let plan = &checkpoint.plan;
    Ok(LoadReport {
        stored: checkpoint.stored.clone(),
        warnings: plan.warnings.clone(),
        ignored: plan.ignored.clone(),
        ..writer.report
    })
}

/// Every tensor of the output, in the order of the model.
fn units(checkpoint: &Checkpoint, policy: &WeightPolicy) -> Vec<Unit> {
    let (store, plan) = (&checkpoint.store, &checkpoint.plan);
    let mut units: Vec<Unit> = Vec::with_capacity(plan.params.len());
    for (idx, param) in plan.params.iter().enumerate() {
        units.push(match param {
            Param::Vector { name, .. } => {
                let tensor = planned(store, &format!("{}{name}", plan.prefix));
                let shape = tensor.shape().to_vec();
                let out = OutTensor::new(name.clone(), tensor.dtype(), shape);
                Unit { tensors: vec![out], filler: Filler::Param(idx, None) }
            }
            Param::Matrix { module, role, rows, cols } => {
                let format = target_format(store, &plan.matrices[module], policy, *role);
                let tensors = layout::tensors(module, format, [*rows, *cols]);
                Unit { tensors, filler: Filler::Param(idx, Some(format)) }
            }
        });
    }
    for (layer, &scale) in plan.kv_scales.iter().flatten().enumerate() {
        let name = format!("{}.self_attn.k_scale", layer_name(layer));
        let out = OutTensor::new(name, Dtype::F32, Vec::new());
        units.push(Unit { tensors: vec![out], filler: Filler::Scale(scale) });
    }
    units
}

/// The quantized format of the output and the roles in it; refuses what no loader could read.
fn quantized_roles(
    checkpoint: &Checkpoint,
    policy: &WeightPolicy,
) -> Result<Option<(&'static Format, BTreeSet<Role>)>, CheckpointError> {
    let refuse = |why: String| Err(CheckpointError::NotWritable { policy: policy.name, why });
    let mut formats: BTreeMap<&str, &'static Format> = BTreeMap::new();
    let mut quantized = BTreeSet::new();
    let mut plain = BTreeSet::new();
    for param in &checkpoint.plan.params {
        let Param::Matrix { module, role, .. } = param else { continue };
        let source = &checkpoint.plan.matrices[module];
        let format = target_format(&checkpoint.store, source, policy, *role);
        if layout::is_quantized(format) {
            formats.insert(format.name, format);
            quantized.insert(*role);
        } else {
            plain.insert(*role);
        }
    }
    let mixed: Vec<_> = quantized.intersection(&plain).collect();
    let mut formats_left = formats.values();
    let Some(&format) = formats_left.next() else { return Ok(None) };
    if formats_left.next().is_some() {
        return refuse(format!(
            "a checkpoint has one quantized format, this mixes {:?}",
            formats.keys()
        ));
    }
    if format.name != "fp8-128x128" && !mixed.is_empty() {
        return refuse(format!("only some matrices of {mixed:?} are in {}", format.name));
    }
    Ok(Some((format, quantized)))
}

/// The text model's config with the quantization of the output.
fn output_config(checkpoint: &Checkpoint, policy: &WeightPolicy) -> Result<Value, CheckpointError> {
    let spec = &checkpoint.spec;
    let wrapped = checkpoint.config.get("text_config");
    let mut config = wrapped.unwrap_or(&checkpoint.config).clone();
    let map = config.as_object_mut().expect("a config that made a spec is an object");
    map.remove("quantization_config");
    if let Some((format, roles)) = quantized_roles(checkpoint, policy)? {
        map.insert("quantization_config".into(), layout::quantization_config(format, &roles));
    }
    if spec.num_nextn_predict_layers > 0 {
        map.insert("num_nextn_predict_layers".into(), 0.into());
    }
    if wrapped.is_some() {
        // A wrapper may state these outside of the part that is written.
        map.insert("eos_token_id".into(), json!(spec.eos_token_ids));
        map.insert("bos_token_id".into(), json!(spec.bos_token_id));
        map.insert("tie_word_embeddings".into(), spec.tie_word_embeddings.into());
    }
    Ok(config)
}

/// Writes into the directory that is renamed at the end.
struct Writer<'a> {
    checkpoint: &'a Checkpoint,
    dir: &'a Path,
    done_bytes: u64,
    report: LoadReport,
}

impl Writer<'_> {
    fn write_shards(
        &mut self,
        units: Vec<Unit>,
        shard_bytes: u64,
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), CheckpointError> {
        let mut shards: Vec<Vec<Unit>> = Vec::new();
        let mut bytes = 0;
        for unit in units {
            let more: u64 = unit.tensors.iter().map(OutTensor::num_bytes).sum();
            if shards.is_empty() || bytes + more > shard_bytes {
                shards.push(Vec::new());
                bytes = 0;
            }
            bytes += more;
            shards.last_mut().expect("the first unit opens a shard").push(unit);
        }
        let mut index = Map::new();
        let mut total_size = 0;
        for (number, units) in shards.iter().enumerate() {
            let file = match shards.len() {
                1 => WHOLE_MODEL.to_owned(),
                n => format!("model-{:05}-of-{n:05}.safetensors", number + 1),
            };
            for tensor in units.iter().flat_map(|u| &u.tensors) {
                index.insert(tensor.name.clone(), file.clone().into());
                total_size += tensor.num_bytes();
            }
            self.write_shard(&file, units, progress)?;
        }
        if shards.len() > 1 {
            let json = json!({"metadata": {"total_size": total_size}, "weight_map": index});
            self.write_json(INDEX, &json)?;
        }
        Ok(())
    }

    fn write_shard(
        &mut self,
        file: &str,
        units: &[Unit],
        progress: &mut dyn FnMut(Progress<'_>),
    ) -> Result<(), CheckpointError> {
        let path = self.dir.join(file);
        let io = |source| CheckpointError::Io { path: path.clone(), source };
        let (header, offsets) = header(units.iter().flat_map(|u| &u.tensors));
        let data_start = header.len() as u64;
        let mut out = File::create(&path).map_err(io)?;
        out.write_all(&header).map_err(io)?;
        let total_bytes = source_bytes(&self.checkpoint.store, &self.checkpoint.plan);
        for unit in units {
            let data = self.fill(unit)?;
            for (tensor, bytes) in unit.tensors.iter().zip(data) {
                let at = data_start + offsets[tensor.name.as_str()];
                out.seek(SeekFrom::Start(at)).map_err(io)?;
                out.write_all(&bytes).map_err(io)?;
            }
            let name = unit.tensors.first().map_or("", |t| &t.name);
            progress(Progress { done_bytes: self.done_bytes, total_bytes, name });
        }
        out.sync_all().map_err(io)
    }

    /// The bytes of a unit's tensors.
    fn fill(&mut self, unit: &Unit) -> Result<Vec<Bytes>, CheckpointError> {
        let (store, plan) = (&self.checkpoint.store, &self.checkpoint.plan);
        let (idx, format) = match unit.filler {
            Filler::Scale(scale) => {
                return Ok(vec![Bytes::copy_from_slice(&scale.to_le_bytes())]);
            }
            Filler::Param(idx, format) => (idx, format),
        };
        match (&plan.params[idx], format) {
            (Param::Matrix { module, rows, cols, .. }, Some(format)) => {
                let source = &plan.matrices[module];
                let matrix = convert(store, source, [*rows, *cols], format)?;
                self.done_bytes += matrix_bytes(store, source);
                let kept = format.name == stored_format(store, source).name;
                let report = &mut self.report;
                let total =
                    if kept { &mut report.mapped_bytes } else { &mut report.converted_bytes };
                *total += matrix.num_bytes() as u64;
                Ok(layout::data(&matrix))
            }
            (Param::Matrix { module: name, .. } | Param::Vector { name, .. }, _) => {
                let tensor = planned(store, &format!("{}{name}", plan.prefix));
                self.done_bytes += tensor.num_bytes() as u64;
                Ok(vec![tensor.bytes()])
            }
        }
    }

    /// The config, and every other small file of the source but its weights and indexes.
    fn write_rest(&self, config: &Value) -> Result<(), CheckpointError> {
        self.write_json("config.json", config)?;
        let source_dir = &self.checkpoint.dir;
        let io = |source| CheckpointError::Io { path: source_dir.clone(), source };
        for entry in fs::read_dir(source_dir).map_err(io)? {
            let entry = entry.map_err(io)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let own = ["config.json", "hf_quant_config.json", INDEX].contains(&name.as_str());
            if !own && !name.ends_with(".safetensors") && entry.path().is_file() {
                fs::copy(entry.path(), self.dir.join(&name)).map_err(io)?;
            }
        }
        Ok(())
    }

    fn write_json(&self, name: &str, json: &Value) -> Result<(), CheckpointError> {
        let path = self.dir.join(name);
        let text = format!("{json:#}\n");
        fs::write(&path, text).map_err(|source| CheckpointError::Io { path, source })
    }
}

/// Length, JSON and padding of a header, and each tensor's offset in the data. Wide dtypes come
/// first, so that every tensor is aligned to its element.
fn header<'a>(tensors: impl Iterator<Item = &'a OutTensor>) -> (Vec<u8>, BTreeMap<&'a str, u64>) {
    let mut sorted: Vec<&OutTensor> = tensors.collect();
    sorted.sort_by(|a, b| {
        b.dtype.bitsize().cmp(&a.dtype.bitsize()).then_with(|| a.name.cmp(&b.name))
    });
    let mut entries = Map::new();
    entries.insert("__metadata__".into(), json!({"format": "pt"}));
    let mut offsets = BTreeMap::new();
    let mut end = 0;
    for tensor in sorted {
        let start = end;
        end += tensor.num_bytes();
        let entry = json!({
            "dtype": tensor.dtype.to_string(),
            "shape": tensor.shape,
            "data_offsets": [start, end],
        });
        entries.insert(tensor.name.clone(), entry);
        offsets.insert(tensor.name.as_str(), start);
    }
    let mut text = Value::Object(entries).to_string();
    text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    (bytes, offsets)
}
