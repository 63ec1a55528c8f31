//! Stored forms beyond the golden checkpoints: other quantizers' names, wrappers, ties.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use serde_json::json;
use std::path::Path;
use tessera_kernels::formats::PackedMatrix;
use tessera_runtime::checkpoint::{Loaded, WeightPolicy, load, quantize};
use tessera_runtime::model::Mlp;
use tessera_tests::tiny::{Scratch, Tensor, Tiny, write};

fn try_load(dir: &Path, policy: &str) -> Result<Loaded, String> {
    let policy = WeightPolicy::preset(policy).unwrap();
    load(dir, &policy, &mut |_| {}).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", cause.unwrap_or_default())
    })
}

fn expert(loaded: &Loaded) -> &PackedMatrix {
    let Mlp::Moe { experts, .. } = &loaded.weights.layers[1].mlp else {
        panic!("layer 1 is a mixture of experts")
    };
    &experts[0].up_proj
}

const EXPERT: &str = "model.layers.1.mlp.experts.0.up_proj";

/// Only routed experts are named by the one config group.
fn experts_only(weights: &serde_json::Value, format: &str) -> serde_json::Value {
    json!({
        "quant_method": "compressed-tensors", "format": format, "ignore": [],
        "config_groups": {"group_0": {
            "targets": [r"re:.*mlp\.experts\.\d+\..*_proj$"], "weights": weights}},
    })
}

/// Replaces each routed expert's weight with the tensors that `stored` makes for its shape.
fn with_experts(stored: impl Fn(usize, usize) -> Vec<(&'static str, Tensor)>) -> Tiny {
    let mut tiny = Tiny::dense(2);
    let names: Vec<_> = tiny.tensors.keys().filter(|n| n.contains(".experts.")).cloned().collect();
    for name in names {
        let shape = tiny.tensors.remove(&name).unwrap().shape;
        for (part, tensor) in stored(shape[0], shape[1]) {
            tiny.tensors.insert(name.replace("weight", part), tensor);
        }
    }
    tiny
}

#[test]
fn fp8_per_channel_widens_bf16_scales() {
    let mut tiny = with_experts(|rows, cols| {
        // Code 0x38 is 1.0 in e4m3; scales are 0.5, which is 0x3f00 in bf16.
        let codes =
            Tensor { dtype: "F8_E4M3", shape: vec![rows, cols], data: vec![0x38; rows * cols] };
        let scale = Tensor { dtype: "BF16", shape: vec![rows, 1], data: [0, 0x3f].repeat(rows) };
        vec![("weight", codes), ("weight_scale", scale)]
    });
    let weights = json!({"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true});
    tiny.config["quantization_config"] = experts_only(&weights, "float-quantized");
    let loaded = try_load(tiny.write().path(), "checkpoint").unwrap();
    assert_eq!(expert(&loaded).format.name, "fp8-channel");
    assert_eq!(expert(&loaded).decode(), vec![0.5; 32 * 64]);
}

/// E2M1 code 2 is 1.0, 5 is 3.0; the tile scale is 0x30, 0.5 in e4m3; the tensor scale 2^-8.
fn nvfp4_parts(rows: usize, cols: usize) -> (Tensor, Tensor) {
    let codes =
        Tensor { dtype: "U8", shape: vec![rows, cols / 2], data: vec![0x52; rows * cols / 2] };
    let tiles = rows * cols / 16;
    let scale = Tensor { dtype: "F8_E4M3", shape: vec![rows, cols / 16], data: vec![0x30; tiles] };
    (codes, scale)
}

#[test]
fn compressed_nvfp4_states_the_inverse_of_the_tensor_scale() {
    let mut tiny = with_experts(|rows, cols| {
        let (codes, scale) = nvfp4_parts(rows, cols);
        let global = Tensor::f32(&[256.0], &[1]);
        vec![
            ("weight_packed", codes),
            ("weight_scale", scale),
            ("weight_global_scale", global.clone()),
            ("input_global_scale", global),
        ]
    });
    let weights =
        json!({"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16});
    tiny.config["quantization_config"] = experts_only(&weights, "nvfp4-pack-quantized");
    let loaded = try_load(tiny.write().path(), "checkpoint").unwrap();
    assert_eq!(expert(&loaded).decode()[..2], [0.5 / 256.0, 1.5 / 256.0]);
}

fn modelopt() -> Tiny {
    with_experts(|rows, cols| {
        let (codes, scale) = nvfp4_parts(rows, cols);
        vec![
            ("weight", codes),
            ("weight_scale", scale),
            ("weight_scale_2", Tensor::f32(&[1.0 / 256.0], &[])),
            ("input_scale", Tensor::f32(&[0.1], &[])),
        ]
    })
}

fn modelopt_ignore() -> serde_json::Value {
    json!(["lm_head", "*self_attn*", "*shared_experts*", "model.layers.0.mlp*"])
}

#[test]
fn modelopt_may_say_so_in_a_file_of_its_own() {
    let dir = modelopt().write();
    let quant = json!({"producer": {}, "quantization": {
        "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16,
        "exclude_modules": modelopt_ignore()}});
    write(&dir.path().join("hf_quant_config.json"), quant.to_string().as_bytes());
    let loaded = try_load(dir.path(), "checkpoint").unwrap();
    assert_eq!(expert(&loaded).decode()[..2], [0.5 / 256.0, 1.5 / 256.0]);
    // FP8 KV is stated, no layer has a scale: one warning, and no scale is made up.
    assert_eq!((loaded.report.warnings.len(), loaded.kv_scales), (1, None));
}

/// The tiny model as the text part of a Kimi K2.5 wrapper.
fn wrapped(mut tiny: Tiny) -> Tiny {
    tiny.config["model_type"] = "kimi_k2".into();
    tiny.config =
        json!({"model_type": "kimi_k25", "text_config": tiny.config, "vision_config": {}});
    tiny.tensors =
        tiny.tensors.into_iter().map(|(n, t)| (format!("language_model.{n}"), t)).collect();
    tiny.tensors.insert("vision_tower.patch.weight".into(), Tensor::bf16(1, &[2, 2]));
    tiny
}

#[test]
fn a_wrapper_s_outer_quantization_comes_first() {
    let mut tiny = modelopt();
    tiny.config["quantization_config"] = Tiny::int4(2).config["quantization_config"].clone();
    let mut tiny = wrapped(tiny);
    tiny.config["quantization_config"] =
        json!({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": modelopt_ignore()});
    let loaded = try_load(tiny.write().path(), "checkpoint").unwrap();
    assert_eq!(loaded.report.stored, "nvfp4");
    assert!(loaded.report.warnings[0].contains("text_config"), "{:?}", loaded.report.warnings);
    assert!(loaded.report.ignored[0].contains("vision_tower"), "{:?}", loaded.report.ignored);
}

#[test]
fn a_wrapper_s_inner_quantization_counts_alone() {
    let tiny = wrapped(Tiny::int4(2));
    let dir = tiny.write();
    let loaded = try_load(dir.path(), "checkpoint").unwrap();
    assert_eq!((loaded.report.stored.as_str(), loaded.report.warnings.len()), ("int4-g32", 0));
    // Written again, it is a text model of its own, and still the same model.
    let out = Scratch::new("unwrapped");
    let text = out.path().join("text");
    quantize(dir.path(), &WeightPolicy::preset("bf16").unwrap(), &text, &mut |_| {}).unwrap();
    let bf16 = try_load(&text, "checkpoint").unwrap();
    assert_eq!(expert(&bf16).format.name, "bf16");
    assert_eq!(bf16.fingerprint, loaded.fingerprint);
    // Outside of a wrapper a vision tower is an unknown tensor.
    let mut plain = Tiny::dense(2);
    plain.tensors.insert("vision_tower.patch.weight".into(), Tensor::bf16(1, &[2, 2]));
    assert!(try_load(plain.write().path(), "checkpoint").unwrap_err().contains("vision_tower"));
}

#[test]
fn kv_scales_survive_writing() {
    let mut tiny = Tiny::dense(2);
    for layer in 0..2 {
        let name = format!("model.layers.{layer}.self_attn.k_scale");
        tiny.tensors.insert(name, Tensor::f32(&[0.25], &[]));
    }
    let out = Scratch::new("scales");
    let dir = out.path().join("fp8");
    quantize(tiny.write().path(), &WeightPolicy::preset("fp8").unwrap(), &dir, &mut |_| {})
        .unwrap();
    assert_eq!(try_load(&dir, "checkpoint").unwrap().kv_scales, Some(vec![0.25; 2]));
}

#[test]
fn a_tied_output_is_the_embedding() {
    let mut tiny = Tiny::dense(2);
    tiny.config["tie_word_embeddings"] = true.into();
    assert!(try_load(tiny.write().path(), "checkpoint").unwrap_err().contains("lm_head.weight"));
    let embed = tiny.tensors["model.embed_tokens.weight"].clone();
    tiny.tensors.insert("lm_head.weight".into(), embed);
    let loaded = try_load(tiny.write().path(), "checkpoint").unwrap();
    assert_eq!(loaded.report.ignored.len(), 1);
    tiny.tensors.remove("lm_head.weight");
    let loaded = try_load(tiny.write().path(), "checkpoint").unwrap();
    assert_eq!(loaded.weights.lm_head.codes, loaded.weights.embed_tokens.codes);
}

#[test]
fn a_value_no_format_holds_is_named() {
    let mut tiny = Tiny::dense(2);
    let weight = tiny.tensors.get_mut(&format!("{EXPERT}.weight")).unwrap();
    weight.data[..2].copy_from_slice(&[0xc0, 0x7f]);
    let error = try_load(tiny.write().path(), "int4").unwrap_err();
    assert!(error.contains(EXPERT) && error.contains("row 0, column 0"), "{error}");
}
