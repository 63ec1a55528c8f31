//! One safetensors file: its header is checked in full before any byte of a tensor is looked at.
//!
//! ```text
//! 0      8          8 + n                       file length
//! | n u64 | JSON n B | tensor data, contiguous, in the order of data_offsets |
//! ```

use super::CheckpointError;
use crate::ffi::MappedFile;
use bytes::Bytes;
use safetensors::Dtype;
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, Visitor};
use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

/// Headers longer than this are refused, as the format's own library does.
pub(crate) const MAX_HEADER_BYTES: u64 = 100_000_000;
/// Tensors in one file, at most; the largest public releases have a tenth of this in a shard.
pub(crate) const MAX_TENSORS: usize = 500_000;

/// Why a safetensors file is not used.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum ShardError {
    #[error("file has {found} bytes, the header needs {needed}")]
    Short { needed: u64, found: u64 },
    #[error("header of {got} bytes, at most {max} are read")]
    HeaderSize { got: u64, max: u64 },
    #[error("header is not the JSON of safetensors: {why}")]
    Header { why: String },
    #[error("more than {max} tensors in one file")]
    TooMany { max: usize },
    #[error("tensor {tensor:?} appears twice in the header")]
    Duplicate { tensor: String },
    #[error("tensor {tensor:?}: dtype {dtype:?} is unknown")]
    Dtype { tensor: String, dtype: String },
    #[error("tensor {tensor:?}: shape {shape:?} overflows")]
    Overflow { tensor: String, shape: Vec<u64> },
    #[error("tensor {tensor:?}: data_offsets {start}..{end} are not in order")]
    Order { tensor: String, start: u64, end: u64 },
    #[error("tensor {tensor:?}: dtype and shape need {needed} bytes, data_offsets give {found}")]
    Length { tensor: String, needed: u64, found: u64 },
    #[error("tensor {tensor:?} needs {needed} bytes of the file, which has {found}")]
    Truncated { tensor: String, needed: u64, found: u64 },
    #[error("tensor {tensor:?} starts at byte {start} of the data, the one before ends at {end}")]
    Gap { tensor: String, start: u64, end: u64 },
    #[error("{extra} bytes follow the last tensor")]
    Trailing { extra: u64 },
}

/// One tensor of a file.
#[derive(Debug, Clone)]
pub(crate) struct TensorInfo {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    /// Byte offset in the file.
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

/// One mapped file.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) path: PathBuf,
    pub(crate) map: MappedFile,
    pub(crate) bytes: Bytes,
    pub(crate) tensors: Vec<TensorInfo>,
}

impl Shard {
    /// Checks the header against the file's length, then maps the file.
    pub(crate) fn open(path: &Path) -> Result<Self, CheckpointError> {
        let io = |source| CheckpointError::Io { path: path.to_owned(), source };
        let shard = |source| CheckpointError::Shard { path: path.to_owned(), source };
        let found = std::fs::metadata(path).map_err(io)?.len();
        if found < 8 {
            return Err(shard(ShardError::Short { needed: 8, found }));
        }
        let map = MappedFile::open(path).map_err(io)?;
        let tensors = parse(map.as_slice()).map_err(shard)?;
        let bytes = map.bytes();
        Ok(Self { path: path.to_owned(), map, bytes, tensors })
    }
}

/// The tensors of a whole file, in the order of their bytes.
pub(crate) fn parse(file: &[u8]) -> Result<Vec<TensorInfo>, ShardError> {
    let found = file.len() as u64;
    let Some((length, rest)) = file.split_first_chunk::<8>() else {
        return Err(ShardError::Short { needed: 8, found });
    };
    let header_bytes = u64::from_le_bytes(*length);
    if header_bytes > MAX_HEADER_BYTES {
        return Err(ShardError::HeaderSize { got: header_bytes, max: MAX_HEADER_BYTES });
    }
    let header = usize::try_from(header_bytes).ok().and_then(|n| rest.get(..n));
    let header = header.ok_or(ShardError::Short { needed: 8 + header_bytes, found })?;
    let mut raw = parse_header(header)?;
    raw.sort_by_key(|(_, raw)| raw.data_offsets);
    let data = 8 + header_bytes;
    let mut end = 0;
    let mut tensors = Vec::with_capacity(raw.len());
    for (name, raw) in raw {
        let info = check_tensor(name, &raw, end, data, found)?;
        end = raw.data_offsets[1];
        tensors.push(info);
    }
    if data + end < found {
        return Err(ShardError::Trailing { extra: found - data - end });
    }
    Ok(tensors)
}

/// Checks one entry that follows data ending at `end`; `data` is where the file's data begins.
fn check_tensor(
    tensor: String,
    raw: &RawTensor,
    end: u64,
    data: u64,
    found: u64,
) -> Result<TensorInfo, ShardError> {
    let dtype = Dtype::deserialize(StrDeserializer::<serde_json::Error>::new(&raw.dtype));
    let Ok(dtype) = dtype else {
        return Err(ShardError::Dtype { tensor, dtype: raw.dtype.clone() });
    };
    let [start, stop] = raw.data_offsets;
    let Some(stored) = stop.checked_sub(start) else {
        return Err(ShardError::Order { tensor, start, end: stop });
    };
    let elements = raw.shape.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
    let bits = elements.and_then(|n| n.checked_mul(dtype.bitsize() as u64));
    let Some(bits) = bits else {
        return Err(ShardError::Overflow { tensor, shape: raw.shape.clone() });
    };
    let needed = bits.div_ceil(8);
    if needed != stored {
        return Err(ShardError::Length { tensor, needed, found: stored });
    }
    if start != end {
        return Err(ShardError::Gap { tensor, start, end });
    }
    let last = data.checked_add(stop).filter(|&last| last <= found);
    if last.is_none() {
        return Err(ShardError::Truncated { tensor, needed: data.saturating_add(stop), found });
    }
    let sizes: Result<Vec<usize>, _> = raw.shape.iter().map(|&d| usize::try_from(d)).collect();
    let offset = usize::try_from(data + start);
    let (Ok(shape), Ok(offset), Ok(len)) = (sizes, offset, usize::try_from(stored)) else {
        return Err(ShardError::Overflow { tensor, shape: raw.shape.clone() });
    };
    Ok(TensorInfo { name: tensor, dtype, shape, offset, len })
}

/// An entry as the header has it.
#[derive(Deserialize)]
struct RawTensor {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

type RawHeader = Vec<(String, RawTensor)>;

/// Reads the header's object entry by entry, because a map type would hide a key given twice.
fn parse_header(header: &[u8]) -> Result<RawHeader, ShardError> {
    let mut failure = None;
    let mut json = serde_json::Deserializer::from_slice(header);
    let parsed = HeaderSeed { failure: &mut failure }.deserialize(&mut json);
    let parsed = parsed.and_then(|tensors| json.end().map(|()| tensors));
    match (failure, parsed) {
        (Some(failure), _) => Err(failure),
        (None, Ok(tensors)) => Ok(tensors),
        (None, Err(why)) => Err(ShardError::Header { why: why.to_string() }),
    }
}

/// Carries a typed failure past serde's own error type.
struct HeaderSeed<'a> {
    failure: &'a mut Option<ShardError>,
}

impl<'de> DeserializeSeed<'de> for HeaderSeed<'_> {
    type Value = RawHeader;
    fn deserialize<D: serde::Deserializer<'de>>(self, d: D) -> Result<RawHeader, D::Error> {
        d.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for HeaderSeed<'_> {
    type Value = RawHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawHeader, A::Error> {
        let mut tensors = RawHeader::new();
        let mut seen = HashSet::new();
        while let Some(tensor) = map.next_key::<String>()? {
            if !seen.insert(tensor.clone()) {
                *self.failure = Some(ShardError::Duplicate { tensor });
                return Err(A::Error::custom("duplicate"));
            }
            if tensor == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            if tensors.len() == MAX_TENSORS {
                *self.failure = Some(ShardError::TooMany { max: MAX_TENSORS });
                return Err(A::Error::custom("too many"));
            }
            let raw = map
                .next_value()
                .map_err(|why| A::Error::custom(format_args!("tensor {tensor:?}: {why}")))?;
            tensors.push((tensor, raw));
        }
        Ok(tensors)
    }
}
