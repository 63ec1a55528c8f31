//! KV-cache scales from a calibration file, in the JSON form that SGLang and vLLM read.

use super::CheckpointError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
struct File {
    kv_cache: KvCache,
}

#[derive(Deserialize)]
struct KvCache {
    dtype: String,
    /// By tensor-parallel rank, then by layer.
    scaling_factor: BTreeMap<String, BTreeMap<String, f32>>,
}

/// Scales of a calibration file, one for each of `num_layers` layers.
///
/// # Errors
/// [`CheckpointError`] if the file cannot be read, has another form, another element than e4m3,
/// several ranks, or not exactly one scale above 0 for each layer.
pub fn read_kv_scales(path: &Path, num_layers: usize) -> Result<Vec<f32>, CheckpointError> {
    let io = |source| CheckpointError::Io { path: path.to_owned(), source };
    let text = std::fs::read_to_string(path).map_err(io)?;
    parse(&text, num_layers).map_err(|why| CheckpointError::Json { path: path.to_owned(), why })
}

fn parse(text: &str, num_layers: usize) -> Result<Vec<f32>, String> {
    let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let KvCache { dtype, scaling_factor } = file.kv_cache;
    if dtype != "float8_e4m3fn" {
        return Err(format!("kv_cache.dtype is `{dtype}`, expected `float8_e4m3fn`"));
    }
    let ranks: Vec<&String> = scaling_factor.keys().collect();
    let [_] = ranks.as_slice() else {
        return Err(format!("scales of ranks {ranks:?}, expected those of one"));
    };
    let mut scales = Vec::with_capacity(num_layers);
    let layers = scaling_factor.into_values().next().unwrap_or_default();
    if layers.len() != num_layers {
        return Err(format!(
            "{} scales, expected one for each of {num_layers} layers",
            layers.len()
        ));
    }
    for layer in 0..num_layers {
        match layers.get(&layer.to_string()) {
            Some(scale) if scale.is_finite() && *scale > 0.0 => scales.push(*scale),
            Some(scale) => {
                return Err(format!("scale of layer {layer} is {scale}, expected above 0"));
            }
            None => return Err(format!("no scale of layer {layer}")),
        }
    }
    Ok(scales)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dtype: &str, layers: &str) -> String {
        format!(r#"{{"kv_cache": {{"dtype": "{dtype}", "scaling_factor": {{"0": {layers}}}}}}}"#)
    }

    #[test]
    fn one_scale_a_layer() {
        let scales = parse(&file("float8_e4m3fn", r#"{"1": 0.5, "0": 0.25}"#), 2);
        assert_eq!(scales, Ok(vec![0.25, 0.5]));
    }

    #[test]
    fn whatever_is_wrong_is_said() {
        for (text, said) in [
            (file("float8_e5m2", r#"{"0": 1.0}"#), "float8_e5m2"),
            (file("float8_e4m3fn", r#"{"0": 1.0, "1": 1.0}"#), "2 scales"),
            (file("float8_e4m3fn", r#"{"1": 1.0}"#), "layer 0"),
            (file("float8_e4m3fn", r#"{"0": 0.0}"#), "above 0"),
            ("{}".to_owned(), "kv_cache"),
        ] {
            assert!(parse(&text, 1).unwrap_err().contains(said), "{text}");
        }
    }
}
