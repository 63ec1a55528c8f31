//! Field cases of group G3: checkpoints that are damaged, hostile or mismatched.
//!
//! Each negative case is followed by a good load, which has to succeed.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use serde_json::{Value, json};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use tessera_kernels::formats::{Element, PackedMatrix};
use tessera_runtime::checkpoint::{
    CheckpointError, Loaded, Pattern, PatternStyle, QuantError, WeightPolicy, check_group_fit, load,
};
use tessera_runtime::model::Mlp;
use tessera_tests::tiny::{
    Scratch, Tensor, Tiny, file, safetensors, shard_name, write, write_index,
};

fn try_load(dir: &Path) -> Result<Loaded, CheckpointError> {
    load(dir, &WeightPolicy::checkpoint(), &mut |_| {})
}

/// The whole chain of messages.
fn message(error: &CheckpointError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        write!(text, ": {error}").unwrap();
        cause = error.source();
    }
    text
}

/// Loading fails and says each of `says`; a sound checkpoint loads afterwards.
fn refused(dir: &Path, says: &[&str]) {
    let text = message(&try_load(dir).expect_err("a damaged checkpoint loads"));
    for say in says {
        assert!(text.contains(say), "{say:?} is not in: {text}");
    }
    survival_probe();
}

fn survival_probe() {
    let loaded = try_load(Tiny::dense(2).write().path()).expect("a sound checkpoint loads");
    assert_eq!(loaded.weights.layers.len(), 2);
}

/// [`refused`], for a checkpoint that `damage` changed before it was written.
fn refused_after(mut tiny: Tiny, damage: impl FnOnce(&mut Tiny), says: &[&str]) {
    damage(&mut tiny);
    refused(tiny.write().path(), says);
}

fn both() -> [Tiny; 2] {
    [Tiny::dense(2), Tiny::int4(2)]
}

#[test]
fn o_301_a_shard_absent() {
    for tiny in both() {
        let dir = tiny.write_shards(true);
        fs::remove_file(dir.path().join(shard_name(2))).unwrap();
        refused(dir.path(), &["model-00002-of-00002.safetensors", "model."]);
    }
}

#[test]
fn o_301_bc_file_cut_short() {
    // One tensor, 81 bytes: 8 + 65 of header + 8 of data, as the case computes.
    let header = r#"{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}           "#;
    let whole = file(header, &[0; 8]);
    assert_eq!(whole.len(), 81);
    for (cut, says) in [
        (77, ["\"w\"", "81", "77"]),
        (60, ["model.safetensors", "73", "60"]),
        (5, ["model.safetensors", "8", "5"]),
    ] {
        let dir = Tiny::dense(2).write();
        write(&dir.path().join("model.safetensors"), &whole[..cut]);
        refused(dir.path(), &says);
    }
    for tiny in both() {
        let dir = tiny.write_shards(true);
        let path = dir.path().join(shard_name(2));
        let bytes = fs::read(&path).unwrap();
        write(&path, &bytes[..bytes.len() - 3]);
        let (needed, found) = (bytes.len().to_string(), (bytes.len() - 3).to_string());
        refused(dir.path(), &[&shard_name(2), &needed, &found]);
    }
}

#[test]
fn o_301_de_index_and_shards_disagree() {
    for tiny in both() {
        let dir = tiny.write_shards(true);
        let path = dir.path().join("model.safetensors.index.json");
        let index: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
        let mut map = index["weight_map"].clone();
        map["lm_head.weight"] = shard_name(2).into();
        write_index(dir.path(), &map);
        refused(dir.path(), &["lm_head.weight", &shard_name(2), &shard_name(1)]);
        map.as_object_mut().unwrap().remove("lm_head.weight");
        write_index(dir.path(), &map);
        refused(dir.path(), &["lm_head.weight", "not in the index"]);
        map["lm_head.weight"] = shard_name(1).into();
        map["ghost.weight"] = shard_name(1).into();
        write_index(dir.path(), &map);
        refused(dir.path(), &["ghost.weight", &shard_name(1)]);
        map.as_object_mut().unwrap().remove("ghost.weight");
        map["lm_head.weight"] = "../model.safetensors".into();
        write_index(dir.path(), &map);
        refused(dir.path(), &["lm_head.weight"]);
    }
}

#[test]
fn o_301_f_shards_without_an_index() {
    for tiny in both() {
        let dir = tiny.write_shards(false);
        assert_eq!(try_load(dir.path()).unwrap().weights.layers.len(), 2);
        let extra = tiny.tensors.iter().filter(|(name, _)| *name == "lm_head.weight");
        write(&dir.path().join("other.safetensors"), &safetensors(extra));
        refused(dir.path(), &["lm_head.weight", &shard_name(1), "other.safetensors"]);
    }
}

const SOUND: &str = r#"{"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}"#;

/// The file is refused, with each of `says`.
fn hostile(bytes: &[u8], says: &[&str]) {
    let dir = Scratch::new("hostile");
    Tiny::dense(2).write_config(dir.path());
    write(&dir.path().join("model.safetensors"), bytes);
    refused(dir.path(), &[&["model.safetensors"], says].concat());
}

#[test]
fn o_302_lengths_that_lie() {
    assert_eq!(SOUND.len(), 57);
    let sound = file(SOUND, &[0; 16]);
    // The sound one is refused only for what it does not hold.
    let dir = Tiny::dense(2).write();
    write(&dir.path().join("model.safetensors"), &sound);
    refused(dir.path(), &["lm_head.weight: not filled", "w: F32 [2, 2] fills no parameter"]);
    let with_length = |length: u64| {
        let mut bytes = sound.clone();
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        bytes
    };
    hostile(&with_length(0xffff_ffff_ffff_fffb), &["18446744073709551611", "100000000"]);
    hostile(&with_length(58), &["JSON"]);
    hostile(&with_length(150_000_000), &["150000000", "100000000"]);
    let mut long = sound.clone();
    long.extend_from_slice(&[0; 8]);
    hostile(&long, &["8 bytes follow"]);
}

#[test]
fn o_302_entries_that_lie() {
    let entry = |dtype: &str, shape: &str, offsets: &str| {
        format!(r#"{{"w":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
    };
    let cases = [
        (entry("F32", "[2,2]", "[16,0]"), "16..0"),
        (entry("F32", "[2,2]", "[0,12]"), "need 16 bytes, data_offsets give 12"),
        (entry("F32", "[2,2]", "[0,1099511627776]"), "1099511627776"),
        (entry("F32", "[2,2]", "[0]"), "\"w\""),
        (entry("F32", "[4294967296,4294967296]", "[0,16]"), "overflows"),
        (entry("F32", "[-2,-2]", "[0,16]"), "-2"),
        (entry("F9", "[2,2]", "[0,16]"), "F9"),
        (entry("F32", "[2,2]", "[18446744073709551600,18446744073709551615]"), "\"w\""),
    ];
    for (header, say) in cases {
        hostile(&file(&header, &[0; 16]), &[say, "\"w\""]);
    }
    // Data that is there in full, but beyond the end of the file as it stands.
    let beyond = entry("U8", "[1099511627776]", "[0,1099511627776]");
    let needed = 8 + beyond.len() as u64 + 1_099_511_627_776;
    hostile(&file(&beyond, &[0; 16]), &["\"w\"", &needed.to_string(), "which has 101"]);
}

#[test]
fn o_302_entries_that_clash() {
    let two = |a: &str, first: &str, b: &str, second: &str| {
        let entry = |offsets| format!(r#"{{"dtype":"F32","shape":[4],"data_offsets":{offsets}}}"#);
        format!(r#"{{"{a}":{},"{b}":{}}}"#, entry(first), entry(second))
    };
    hostile(&file(&two("a", "[0,16]", "b", "[8,24]"), &[0; 24]), &["\"b\"", "8", "16"]);
    hostile(&file(&two("a", "[0,16]", "b", "[24,40]"), &[0; 40]), &["\"b\"", "24", "16"]);
    hostile(&file(&two("a", "[0,16]", "a", "[16,32]"), &[0; 32]), &["\"a\"", "twice"]);
    hostile(&file("[]", &[]), &["object"]);
    hostile(&file(&"[".repeat(100_000), &[]), &["JSON"]);
    let mut many = String::from("{");
    for idx in 0..1_000_000 {
        write!(many, r#""{idx}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}},"#).unwrap();
    }
    many.pop();
    many.push('}');
    hostile(&file(&many, &[]), &["500000"]);
}

#[test]
fn o_302_empty_tensors_are_legal() {
    let mut tiny = Tiny::dense(2);
    let name = "model.layers.0.self_attn.rotary_emb.inv_freq";
    tiny.tensors.insert(name.into(), Tensor::f32(&[], &[0, 4]));
    let loaded = try_load(tiny.write().path()).unwrap();
    assert_eq!(loaded.report.ignored.len(), 1);
}

#[test]
fn o_303_ignore_lists_match_leaf_names() {
    let mut tiny = Tiny::int4(2);
    let ignore = json!([
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        "model.layers.1.mlp.gate",
        "model.layers.1.self_attn.q_proj.linear",
        r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"
    ]);
    tiny.config["quantization_config"]["ignore"] = ignore;
    let loaded = try_load(tiny.write().path()).unwrap();
    let [warning] = loaded.report.warnings.as_slice() else { panic!("one entry names no module") };
    assert!(warning.contains("q_proj.linear"), "{warning}");
    assert!(warning.contains("model.layers.1.self_attn.q_a_proj"), "the nearest: {warning}");
    // Without the last entry, the dense layer's gate_proj is not saved by `mlp.gate`.
    refused_after(
        Tiny::int4(2),
        |tiny| {
            tiny.config["quantization_config"]["ignore"] = json!([
                "lm_head",
                "re:.*self_attn.*",
                "re:.*shared_experts.*",
                "model.layers.0.mlp.gate"
            ]);
        },
        &["model.layers.0.mlp.gate_proj.weight_packed: not filled", "gate_proj.weight: BF16"],
    );
}

#[test]
fn o_303_part_of_a_fused_group() {
    // Verdicts are per leaf: ignoring two of a layer's projections asks for the rest quantized.
    refused_after(
        Tiny::int4(2),
        |tiny| {
            tiny.config["quantization_config"]["ignore"] = json!([
                "lm_head",
                "re:.*shared_experts.*",
                r"re:.*mlp\.(gate|up|down)_proj.*",
                "re:.*self_attn.(kv|o|q_b).*",
                "model.layers.0.self_attn.q_a_proj"
            ]);
        },
        &["model.layers.1.self_attn.q_a_proj.weight_packed: not filled"],
    );
}

#[test]
fn o_303_patterns_that_do_not_compile() {
    refused_after(
        Tiny::int4(2),
        |tiny| tiny.config["quantization_config"]["ignore"] = json!(["re:(unclosed"]),
        &["re:(unclosed", "not a regular expression"],
    );
    let gate = Pattern::new("*mlp.gate", PatternStyle::Glob).unwrap();
    assert!(gate.matches("model.layers.1.mlp.gate", ""));
    assert!(!gate.matches("model.layers.1.mlp.gate_proj", ""));
}

#[test]
fn o_304_groups_that_do_not_fit() {
    let works = |in_dim, group, ranks| match check_group_fit(in_dim, group, ranks) {
        Err(QuantError::GroupFit { works, per_rank, .. }) => (works, per_rank),
        other => panic!("{other:?}"),
    };
    assert_eq!(works(11008, 128, 4), (vec![1, 2, 43], 21.5));
    let (sizes, per_rank) = works(29568, 128, 2);
    assert_eq!((per_rank, &sizes[..4]), (115.5, [1, 3, 7, 11].as_slice()));
    assert_eq!(works(13696, 128, 2), (vec![1], 53.5));
    assert_eq!(check_group_fit(11008, 0, 1), Err(QuantError::GroupSize { got: 0 }));
    assert_eq!(check_group_fit(11008, -1, 4), Ok(()));
    assert_eq!(check_group_fit(11008, 128, 2), Ok(()));
    assert!(check_group_fit(64, 128, 1).is_err(), "a group larger than the dimension");
    for (size, say) in [(0, "-1"), (48, "32, 128, -1"), (128, "groups of 128"), (-7, "-1")] {
        let weights = |tiny: &mut Tiny| {
            tiny.config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] =
                size.into();
        };
        refused_after(Tiny::int4(2), weights, &[say]);
    }
    // The same when the pool's format asks for it: 32 input features in groups of 128.
    let dir = Tiny::dense(2).write();
    let policy = WeightPolicy::preset("int4-g128").unwrap();
    let error = load(dir.path(), &policy, &mut |_| {}).unwrap_err();
    assert!(message(&error).contains("model.layers.1.mlp.experts.0.down_proj"), "{error}");
    survival_probe();
}

fn expert(loaded: &Loaded) -> &PackedMatrix {
    let Mlp::Moe { experts, .. } = &loaded.weights.layers[1].mlp else {
        panic!("layer 1 is a mixture of experts")
    };
    &experts[0].up_proj
}

#[test]
fn o_304_minus_one_is_one_scale_a_channel() {
    let mut tiny = Tiny::int4(2);
    let weights = &mut tiny.config["quantization_config"]["config_groups"]["group_0"]["weights"];
    weights["group_size"] = (-1).into();
    weights["strategy"] = "channel".into();
    for (name, tensor) in &mut tiny.tensors {
        if name.ends_with("weight_scale") {
            // Row r has scale 2^(r % 4): bf16 0x3f80 plus r % 4 in the exponent.
            let rows = tensor.shape[0];
            tensor.shape = vec![rows, 1];
            let scale =
                |row: usize| (0x3f80u16 + 0x80 * u16::try_from(row % 4).unwrap()).to_le_bytes();
            tensor.data = (0..rows).flat_map(scale).collect();
        }
    }
    let loaded = try_load(tiny.write().path()).unwrap();
    let matrix = expert(&loaded);
    let packed = &tiny.tensors["model.layers.1.mlp.experts.0.up_proj.weight_packed"].data;
    let mut row = vec![0.0; 64];
    matrix.decode_row(6, &mut row);
    for (col, got) in row.iter().enumerate() {
        let code = packed[6 * 32 + col / 2] >> (4 * (col % 2)) & 15;
        assert_eq!(*got, (f32::from(code) - 8.0) * 4.0, "column {col}");
    }
}

#[test]
fn o_304_zero_points_are_read_down_the_rows() {
    let mut tiny = Tiny::int4(2);
    let weights = &mut tiny.config["quantization_config"]["config_groups"]["group_0"]["weights"];
    weights["symmetric"] = false.into();
    let scales: Vec<_> =
        tiny.tensors.keys().filter(|n| n.ends_with("weight_scale")).cloned().collect();
    for name in scales {
        let [rows, groups] = tiny.tensors[&name].shape[..] else { panic!("a matrix of scales") };
        let zp = Tensor::bytes(3, "I32", &[rows / 8, groups], rows / 2 * groups);
        tiny.tensors.insert(name.replace("weight_scale", "weight_zero_point"), zp);
    }
    let loaded = try_load(tiny.write().path()).unwrap();
    let matrix = expert(&loaded);
    assert_eq!(matrix.format.name, "int4-g32-zp");
    let tensor = |part: &str| {
        let name = format!("model.layers.1.mlp.experts.0.up_proj.{part}");
        tiny.tensors[&name].data.clone()
    };
    let (packed, scale, zp) =
        (tensor("weight_packed"), tensor("weight_scale"), tensor("weight_zero_point"));
    let mut values = vec![0.0; 64];
    for row in [0, 5, 13] {
        matrix.decode_row(row, &mut values);
        for (col, got) in values.iter().enumerate() {
            let group = col / 32;
            let code = packed[row * 32 + col / 2] >> (4 * (col % 2)) & 15;
            let word = row / 8 * 2 + group;
            let zero = zp[word * 4 + row % 8 / 2] >> (4 * (row % 2)) & 15;
            let at = (row * 2 + group) * 2;
            let scale = f32::from_bits(u32::from(scale[at]) << 16 | u32::from(scale[at + 1]) << 24);
            assert_eq!(*got, (f32::from(code) - f32::from(zero)) * scale, "[{row}, {col}]");
        }
    }
}

/// Eight layers, with one of these scales in each layer that is not skipped.
fn with_scales(part: &str, scale: &Tensor, skip: &[usize]) -> Tiny {
    let mut tiny = Tiny::dense(8);
    for layer in (0..8).filter(|layer| !skip.contains(layer)) {
        tiny.tensors.insert(format!("model.layers.{layer}.self_attn.{part}"), scale.clone());
    }
    tiny
}

#[test]
fn o_305_kv_scales() {
    let scalar = |value: f32| Tensor::f32(&[value], &[]);
    let a = try_load(with_scales("k_scale", &scalar(0.5), &[]).write().path()).unwrap();
    assert_eq!(a.kv_scales, Some(vec![0.5; 8]));
    // What the scale is for: K = 2.0 is stored as 4.0, byte 0x48, and reads back as 2.0.
    let code = Element::F8E4M3.encode(2.0 / 0.5);
    assert_eq!((code, Element::F8E4M3.decode(code) * 0.5), (0x48, 2.0));
    let single = with_scales("attn.k_scale", &Tensor::f32(&[0.25], &[1]), &[]);
    assert_eq!(try_load(single.write().path()).unwrap().kv_scales, Some(vec![0.25; 8]));
    let b = try_load(Tiny::dense(8).write().path()).unwrap();
    assert_eq!((b.kv_scales, b.report.warnings), (None, Vec::new()));
    let refused_with = |tiny: Tiny, says: &[&str]| refused(tiny.write().path(), says);
    refused_with(with_scales("k_scale", &scalar(0.5), &[3]), &["k_scale in layers [3]"]);
    refused_with(with_scales("k_scale", &scalar(0.0), &[]), &["layer 0", "layer 7", "is 0"]);
    refused_with(with_scales("k_scale", &scalar(f32::NAN), &[]), &["layer 4", "NaN"]);
    refused_with(with_scales("k_scale", &scalar(-1.0), &[]), &["layer 4", "-1"]);
    let two = Tensor::f32(&[0.5, 0.5], &[2]);
    refused_with(with_scales("k_scale", &two, &[]), &["layer 4", "[2]"]);
    let only_v = with_scales("v_scale", &scalar(0.5), &[]);
    refused_with(only_v, &["v_scale without k_scale", "[0, 1, 2, 3, 4, 5, 6, 7]"]);
}

#[test]
fn o_305_stated_but_absent_is_one_true_warning() {
    let mut tiny = Tiny::int4(8);
    tiny.config["quantization_config"]["kv_cache_scheme"] = json!({"num_bits": 8, "type": "float"});
    let loaded = try_load(tiny.write().path()).unwrap();
    assert_eq!(loaded.kv_scales, None);
    assert_eq!(loaded.report.warnings.len(), 1, "{:?}", loaded.report.warnings);
}

#[test]
fn o_306_every_parameter_once_every_tensor_consumed() {
    // (a) an embedding quantized by nobody's rule
    refused_after(
        Tiny::int4(2),
        |tiny| {
            tiny.tensors.remove("model.embed_tokens.weight");
            for (part, dtype, shape, len) in [
                ("weight_packed", "I32", vec![32, 8], 1024),
                ("weight_scale", "BF16", vec![32, 2], 128),
                ("weight_shape", "I64", vec![2], 16),
            ] {
                let name = format!("model.embed_tokens.{part}");
                tiny.tensors.insert(name, Tensor::bytes(1, dtype, &shape, len));
            }
        },
        &[
            "model.embed_tokens.weight: not filled",
            "embed_tokens.weight_packed",
            "embed_tokens.weight_scale",
            "embed_tokens.weight_shape",
        ],
    );
    let bias = "model.layers.1.mlp.gate.e_score_correction_bias";
    // (b)
    refused_after(Tiny::dense(2), |t| drop(t.tensors.remove(bias)), &[bias, "not filled"]);
    // (c)
    let scale = "model.layers.1.mlp.experts.0.up_proj.weight_scale";
    let rename = |tiny: &mut Tiny| {
        let tensor = tiny.tensors.remove(scale).unwrap();
        tiny.tensors.insert(format!("{scale}s"), tensor);
    };
    refused_after(
        Tiny::int4(2),
        rename,
        &[&format!("{scale}: not filled"), &format!("{scale}s: BF16")],
    );
    // (d)
    let extra =
        |t: &mut Tiny| drop(t.tensors.insert("model.extra".into(), Tensor::f32(&[1.0], &[1])));
    refused_after(Tiny::dense(2), extra, &["model.extra", "fills no parameter"]);
    // (e)
    let foo = |t: &mut Tiny| t.config["quantization_config"] = json!({"quant_method": "foo4"});
    refused_after(Tiny::dense(2), foo, &["foo4", "fp8", "compressed-tensors", "modelopt"]);
    // (f)
    let int8 = |tiny: &mut Tiny| {
        tiny.config["quantization_config"] =
            json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
        let name = "model.layers.0.self_attn.o_proj.weight";
        tiny.tensors.insert(name.into(), Tensor::bytes(1, "I8", &[64, 32], 2048));
    };
    refused_after(
        Tiny::dense(2),
        int8,
        &["o_proj.weight: dtype is I8", "F8_E4M3", "weight_scale_inv"],
    );
}

#[test]
fn o_306_all_problems_come_at_once() {
    // (g) is O-301 f: the same tensor in two shards. Here: everything in one message.
    refused_after(
        Tiny::int4(2),
        |tiny| {
            tiny.tensors.remove("model.norm.weight");
            tiny.tensors.insert("lm_head.weight".into(), Tensor::bf16(1, &[31, 64]));
            tiny.tensors.insert("model.layers.9.x".into(), Tensor::bf16(1, &[1]));
            let name = "model.layers.1.mlp.experts.3.up_proj.weight_shape";
            let shape: Vec<u8> = [32u64, 65].iter().flat_map(|n| n.to_le_bytes()).collect();
            tiny.tensors.insert(name.into(), Tensor { dtype: "I64", shape: vec![2], data: shape });
        },
        &[
            "4 problems",
            "model.norm.weight: not filled",
            "lm_head.weight: shape is [31, 64], expected [32, 64]",
            "model.layers.9.x",
            "says [32, 65], expected [32, 64]",
        ],
    );
}
