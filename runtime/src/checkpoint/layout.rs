//! Layouts of matrices in files: names, dtypes, shapes and bytes. Formats that other loaders read
//! have theirs; every other format has ours, which follows from its declaration.
//!
//! ```text
//! bf16 f16 f32   weight
//! fp8-128x128    weight e4m3, weight_scale_inv f32 [ceil(N/128), ceil(K/128)]
//! int4-g32/g128  weight_packed i32 [N, K/8], weight_scale bf16 [N, K/g], weight_shape i64 [2]
//! nvfp4          weight u8 [N, K/2], weight_scale e4m3 [N, K/16], weight_scale_2 f32 []
//! others         weight u8 [N, row bytes], weight_scale [tiles down, tiles across] in its own type;
//!                if the format has them: weight_zero_point u8 of that shape, weight_scale_2 f32 []
//! ```
//! Ours is marked by the quantization method `tessera` and the name of the format.

use super::Role;
use bytes::Bytes;
use safetensors::Dtype;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tessera_kernels::formats::{Format, PackedMatrix, ScaleType};

/// A tensor to write.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutTensor {
    pub(crate) name: String,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
}

impl OutTensor {
    pub(crate) fn new(name: String, dtype: Dtype, shape: Vec<usize>) -> Self {
        Self { name, dtype, shape }
    }

    pub(crate) fn num_bytes(&self) -> u64 {
        let elements: usize = self.shape.iter().product();
        (elements * self.dtype.bitsize() / 8) as u64
    }
}

/// Quantization method of our own layout.
pub(crate) const OWN_METHOD: &str = "tessera";

/// Whether the format needs a quantization config.
pub(crate) fn is_quantized(format: &Format) -> bool {
    format.scale_tile.is_some()
}

/// The tensors of a `[rows, cols]` matrix.
pub(crate) fn tensors(module: &str, format: &Format, [rows, cols]: [usize; 2]) -> Vec<OutTensor> {
    let out = |part: &str, dtype, shape: &[usize]| {
        OutTensor::new(format!("{module}.{part}"), dtype, shape.to_vec())
    };
    match format.name {
        "f32" => vec![out("weight", Dtype::F32, &[rows, cols])],
        "f16" => vec![out("weight", Dtype::F16, &[rows, cols])],
        "fp8-128x128" => vec![
            out("weight", Dtype::F8_E4M3, &[rows, cols]),
            out("weight_scale_inv", Dtype::F32, &[rows.div_ceil(128), cols.div_ceil(128)]),
        ],
        "int4-g32" | "int4-g128" => vec![
            out("weight_packed", Dtype::I32, &[rows, cols / 8]),
            out("weight_scale", Dtype::BF16, &[rows, format.tiles(1, cols)]),
            out("weight_shape", Dtype::I64, &[2]),
        ],
        "nvfp4" => vec![
            out("weight", Dtype::U8, &[rows, cols / 2]),
            out("weight_scale", Dtype::F8_E4M3, &[rows, cols / 16]),
            out("weight_scale_2", Dtype::F32, &[]),
        ],
        "bf16" => vec![out("weight", Dtype::BF16, &[rows, cols])],
        _ => own_tensors(module, format, [rows, cols]),
    }
}

/// The tensors of a matrix in our own layout: codes, scales, zero points, tensor scale.
pub(crate) fn own_tensors(
    module: &str,
    format: &Format,
    [rows, cols]: [usize; 2],
) -> Vec<OutTensor> {
    let mut all = Vec::new();
    let mut push = |part: &str, dtype, shape: &[usize]| {
        all.push(OutTensor::new(format!("{module}.{part}"), dtype, shape.to_vec()));
    };
    push("weight", Dtype::U8, &[rows, format.row_bytes(cols)]);
    if let Some(tile) = format.scale_tile {
        let (down, across) = tile.grid(rows, cols);
        push("weight_scale", scale_dtype(tile.scale), &[down, across]);
        if format.zero_point {
            push("weight_zero_point", Dtype::U8, &[down, across]);
        }
        if format.tensor_scale {
            push("weight_scale_2", Dtype::F32, &[]);
        }
    }
    all
}

const fn scale_dtype(scale: ScaleType) -> Dtype {
    match scale {
        ScaleType::F32 => Dtype::F32,
        ScaleType::Bf16 => Dtype::BF16,
        ScaleType::F16 => Dtype::F16,
        ScaleType::E4M3 => Dtype::F8_E4M3,
        ScaleType::Ue8m0 => Dtype::F8_E8M0,
    }
}

/// The bytes of [`tensors`], in the same order.
pub(crate) fn data(matrix: &PackedMatrix) -> Vec<Bytes> {
    let (codes, scales) = (matrix.codes.clone(), matrix.scales.clone());
    let format = matrix.format;
    let mut all = vec![codes];
    if format.scale_tile.is_some() {
        all.push(scales);
    }
    if format.zero_point {
        all.push(matrix.zero_points.clone());
    }
    if format.tensor_scale {
        all.push(Bytes::copy_from_slice(&matrix.tensor_scale.to_le_bytes()));
    }
    if matches!(format.name, "int4-g32" | "int4-g128") {
        let shape = [matrix.rows as u64, matrix.cols as u64];
        all.push(shape.iter().flat_map(|n| n.to_le_bytes()).collect());
    }
    all
}

/// The `quantization_config` of a checkpoint whose `quantized` roles, and no others, are in
/// `format`.
pub(crate) fn quantization_config(format: &Format, quantized: &BTreeSet<Role>) -> Value {
    // What the names of a role look like: for compressed-tensors, then for modelopt.
    let patterns: [(Role, &str, &[&str]); 5] = [
        (Role::LmHead, "lm_head", &["lm_head"]),
        (Role::Attention, "re:.*self_attn.*", &["*self_attn*"]),
        (Role::SharedExpert, "re:.*shared_experts.*", &["*shared_experts*"]),
        (
            Role::DenseMlp,
            r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
            &["*mlp.gate_proj", "*mlp.up_proj", "*mlp.down_proj"],
        ),
        (Role::RouterGate, "", &["*mlp.gate"]),
    ];
    let left: Vec<_> = patterns.iter().filter(|(role, ..)| !quantized.contains(role)).collect();
    let exact: Vec<_> = left.iter().map(|(_, exact, _)| *exact).filter(|e| !e.is_empty()).collect();
    let globs: Vec<_> = left.iter().flat_map(|(_, _, globs)| globs.iter().copied()).collect();
    match format.name {
        "fp8-128x128" => json!({
            "quant_method": "fp8",
            "fmt": "e4m3",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
        }),
        "nvfp4" => json!({
            "quant_method": "modelopt",
            "quant_algo": "NVFP4",
            "ignore": globs,
            "config_groups": {"group_0": {
                "targets": ["Linear"],
                "weights": {"dynamic": false, "num_bits": 4, "type": "float", "group_size": 16},
            }},
        }),
        "int4-g32" | "int4-g128" => json!({
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "ignore": exact,
            "config_groups": {"group_0": {
                "targets": ["Linear"],
                "input_activations": null,
                "weights": {
                    "num_bits": 4,
                    "type": "int",
                    "symmetric": true,
                    "strategy": "group",
                    "group_size": format.scale_tile.map(|tile| tile.cols),
                    "dynamic": false,
                },
            }},
        }),
        _ => json!({"quant_method": OWN_METHOD, "format": format.name, "ignore": globs}),
    }
}
