//! Scales of the FP8 KV cache that a checkpoint was calibrated with: all layers or none.

use super::params::layer_name;
use super::plan::Planner;
use super::store::Tensor;
use crate::model::ModelSpec;
use safetensors::Dtype;
use tessera_kernels::formats::Element;

/// Modules below a layer that releases hang the scales on.
const PARENTS: &[&str] = &["self_attn", "self_attn.attn", "self_attn.k_proj", "self_attn.v_proj"];

/// One scale a layer, or `None` if the checkpoint has none.
///
/// The latent cache holds no separate values, so `k_scale` is the scale and a `v_scale` beside it
/// is not used; `v_scale` alone, a layer without a scale, and a scale that is no finite number
/// above 0 are problems that name their layers.
pub(crate) fn plan(
    spec: &ModelSpec,
    p: &mut Planner<'_>,
    stated: bool,
    warnings: &mut Vec<String>,
) -> Option<Vec<f32>> {
    let mut scales = Vec::with_capacity(spec.num_layers);
    let (mut absent, mut only_v) = (Vec::new(), Vec::new());
    for layer in 0..spec.num_layers {
        let k = take(p, layer, "k_scale");
        let v = take(p, layer, "v_scale");
        match (k, v) {
            (Some(tensor), _) => match read(tensor) {
                Ok(scale) => scales.push(scale),
                Err(why) => p.problems.push(format!("{} (layer {layer}): {why}", tensor.name())),
            },
            (None, Some(_)) => only_v.push(layer),
            (None, None) => absent.push(layer),
        }
    }
    if !only_v.is_empty() {
        p.problems.push(format!("v_scale without k_scale in layers {only_v:?}"));
    }
    if absent.len() == spec.num_layers {
        if stated {
            warnings.push(
                "the quantization config states a KV-cache scheme, but no layer has a k_scale"
                    .into(),
            );
        }
        return None;
    }
    if !absent.is_empty() {
        p.problems.push(format!("no k_scale in layers {absent:?}, though other layers have one"));
    }
    Some(scales)
}

fn take<'a>(p: &mut Planner<'a>, layer: usize, part: &str) -> Option<Tensor<'a>> {
    let layer = format!("{}{}", p.prefix, layer_name(layer));
    let names = PARENTS.iter().map(|parent| format!("{layer}.{parent}.{part}"));
    let found: Vec<_> = names.filter_map(|name| p.take(&name)).collect();
    if found.len() > 1 {
        let names: Vec<_> = found.iter().map(|t| t.name()).collect();
        p.problems.push(format!("{part} is stated more than once: {names:?}"));
    }
    found.first().copied()
}

fn read(tensor: Tensor<'_>) -> Result<f32, String> {
    if tensor.shape().iter().product::<usize>() != 1 {
        return Err(format!("shape is {:?}, expected [] or [1]", tensor.shape()));
    }
    let bytes = tensor.slice();
    let half = |element: Element| element.decode(u32::from(bytes[0]) | u32::from(bytes[1]) << 8);
    let scale = match tensor.dtype() {
        Dtype::F32 => f32::from_bits(bytes.iter().rev().fold(0, |n, &b| n << 8 | u32::from(b))),
        Dtype::BF16 => half(Element::Bf16),
        Dtype::F16 => half(Element::F16),
        dtype => return Err(format!("dtype is {dtype:?}, expected F32, BF16 or F16")),
    };
    if scale.is_finite() && scale > 0.0 {
        Ok(scale)
    } else {
        Err(format!("is {scale}, expected a finite value above 0"))
    }
}
