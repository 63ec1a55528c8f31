//! All tensors of a directory: one file, shards with an index, or shards without one.

use super::CheckpointError;
use super::shard::{Shard, TensorInfo};
use bytes::Bytes;
use safetensors::Dtype;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(crate) const INDEX: &str = "model.safetensors.index.json";
pub(crate) const WHOLE_MODEL: &str = "model.safetensors";

/// Where a tensor is: shard, then entry.
#[derive(Debug, Clone, Copy)]
struct Place {
    shard: usize,
    entry: usize,
}

/// Every tensor of a checkpoint, by name.
#[derive(Debug)]
pub(crate) struct Store {
    shards: Vec<Shard>,
    places: BTreeMap<String, Place>,
}

/// One tensor: what it is and its bytes, still in the file's pages.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tensor<'a> {
    shard: &'a Shard,
    info: &'a TensorInfo,
}

impl<'a> Tensor<'a> {
    pub(crate) fn name(self) -> &'a str {
        &self.info.name
    }

    pub(crate) fn dtype(self) -> Dtype {
        self.info.dtype
    }

    pub(crate) fn shape(self) -> &'a [usize] {
        &self.info.shape
    }

    pub(crate) fn num_bytes(self) -> usize {
        self.info.len
    }

    /// The bytes, borrowed from the mapping for as long as they live.
    pub(crate) fn bytes(self) -> Bytes {
        self.shard.bytes.slice(self.info.offset..self.info.offset + self.info.len)
    }

    pub(crate) fn slice(self) -> &'a [u8] {
        &self.shard.map.as_slice()[self.info.offset..self.info.offset + self.info.len]
    }

    /// Lets the system take back the pages of this tensor.
    pub(crate) fn drop_pages(self) {
        self.shard.map.drop_pages(self.info.offset, self.info.len);
    }
}

impl Store {
    /// Opens every shard of `dir` and checks them against the index, if there is one.
    pub(crate) fn open(dir: &Path) -> Result<Self, CheckpointError> {
        let index = read_index(&dir.join(INDEX))?;
        let files: BTreeSet<String> = match &index {
            Some(index) => index.values().cloned().collect(),
            None => list_files(dir)?,
        };
        if files.is_empty() {
            return Err(CheckpointError::NoWeights { dir: dir.to_owned() });
        }
        let missing: Vec<_> = files.iter().filter(|f| !dir.join(f).is_file()).collect();
        if !missing.is_empty() {
            let index = index.as_ref();
            let first = index.and_then(|i| i.iter().find(|(_, f)| missing.contains(f)));
            return Err(CheckpointError::ShardAbsent {
                files: missing.into_iter().cloned().collect(),
                tensor: first.map(|(t, _)| t.clone()).unwrap_or_default(),
            });
        }
        let mut store = Self { shards: Vec::new(), places: BTreeMap::new() };
        let mut problems = Vec::new();
        for file in &files {
            store.add(Shard::open(&dir.join(file))?, &mut problems);
        }
        if let Some(index) = &index {
            store.check_index(index, &mut problems);
        }
        if problems.is_empty() { Ok(store) } else { Err(CheckpointError::Problems { problems }) }
    }

    fn add(&mut self, shard: Shard, problems: &mut Vec<String>) {
        let number = self.shards.len();
        for (entry, info) in shard.tensors.iter().enumerate() {
            let place = Place { shard: number, entry };
            if let Some(first) = self.places.insert(info.name.clone(), place) {
                problems.push(format!(
                    "tensor {:?} is in two shards, {} and {}",
                    info.name,
                    file_name(&self.shards[first.shard]),
                    file_name(&shard)
                ));
            }
        }
        self.shards.push(shard);
    }

    fn check_index(&self, index: &BTreeMap<String, String>, problems: &mut Vec<String>) {
        for (name, file) in index {
            match self.get(name) {
                None => problems
                    .push(format!("tensor {name:?}: the index says {file}, which has it not")),
                Some(tensor) if file_name(tensor.shard) != *file => problems.push(format!(
                    "tensor {name:?}: the index says {file}, it is in {}",
                    file_name(tensor.shard)
                )),
                Some(_) => {}
            }
        }
        for (name, place) in &self.places {
            if !index.contains_key(name) {
                let file = file_name(&self.shards[place.shard]);
                problems.push(format!("tensor {name:?} of {file} is not in the index"));
            }
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Tensor<'_>> {
        self.places.get(name).map(|&place| self.at(place))
    }

    /// Every tensor, in the order of names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Tensor<'_>> {
        self.places.values().map(|&place| self.at(place))
    }

    fn at(&self, place: Place) -> Tensor<'_> {
        let shard = &self.shards[place.shard];
        Tensor { shard, info: &shard.tensors[place.entry] }
    }
}

fn file_name(shard: &Shard) -> String {
    shard.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn list_files(dir: &Path) -> Result<BTreeSet<String>, CheckpointError> {
    let io = |source| CheckpointError::Io { path: dir.to_owned(), source };
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir(dir).map_err(io)? {
        let name = entry.map_err(io)?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".safetensors") {
            files.insert(name);
        }
    }
    // The usual name of a whole model: other files beside it are something else.
    if files.contains(WHOLE_MODEL) {
        files.retain(|name| name == WHOLE_MODEL);
    }
    Ok(files)
}

/// Tensor name to file name; `None` without an index.
fn read_index(path: &Path) -> Result<Option<BTreeMap<String, String>>, CheckpointError> {
    if !path.is_file() {
        return Ok(None);
    }
    let json = super::read_json(path)?;
    let bad = |why: String| CheckpointError::Json { path: path.to_owned(), why };
    let map = json.get("weight_map").and_then(Value::as_object);
    let map = map.ok_or_else(|| bad("no object `weight_map`".into()))?;
    let mut index = BTreeMap::new();
    for (name, file) in map {
        // A file name with a directory in it could reach outside the checkpoint.
        let file =
            file.as_str().filter(|f| !f.contains(['/', '\\']) && f.ends_with(".safetensors"));
        let file = file.ok_or_else(|| bad(format!("tensor {name:?} maps to no file name")))?;
        index.insert(name.clone(), file.to_owned());
    }
    Ok(Some(index))
}
