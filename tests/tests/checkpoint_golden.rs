//! Golden checkpoints load, quantize and describe themselves as outside references say.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tessera_kernels::formats::{FORMATS, PackedMatrix};
use tessera_runtime::checkpoint::{
    Checkpoint, CheckpointError, Loaded, Output, WeightPolicy, load, policy_names, quantize,
    quantize_to,
};
use tessera_runtime::model::{ConfigError, Mlp, ModelSpec, QueryWeights};
use tessera_tests::tiny::Scratch;

const GOLDEN: &[&str] =
    &["deepseek_v3", "kimi_k2", "kimi_k2-int4", "deepseek_v3-fp8block", "deepseek_v3-nvfp4"];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-kimi")
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn load_as(dir: &Path, policy: &str) -> Loaded {
    load(dir, &WeightPolicy::preset(policy).unwrap(), &mut |_| {}).unwrap()
}

/// Tensors of a checkpoint: name to dtype, shape, bytes.
fn tensors(dir: &Path) -> BTreeMap<String, (String, Vec<usize>, Vec<u8>)> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.starts_with("model") || !name.ends_with(".safetensors") {
            continue;
        }
        let bytes = std::fs::read(path).unwrap();
        for (name, view) in SafeTensors::deserialize(&bytes).unwrap().iter() {
            let shape = view.shape().to_vec();
            all.insert(name.to_owned(), (view.dtype().to_string(), shape, view.data().to_vec()));
        }
    }
    all
}

#[test]
fn both_forms_of_a_config_are_one_spec() {
    for name in GOLDEN {
        let mut hub = ModelSpec::from_config(&json(&golden(name).join("config.json"))).unwrap();
        let v5 = ModelSpec::from_config(&json(&golden(name).join("config_v5.json"))).unwrap();
        // The script made transformers read kimi_k2 as the architecture it is.
        hub.model_type.clone_from(&v5.model_type);
        assert_eq!(hub, v5, "{name}");
    }
}

#[test]
fn a_config_is_read_in_full() {
    let spec = ModelSpec::from_config(&json(&golden("kimi_k2").join("config.json"))).unwrap();
    let yarn = spec.rope.scaling.unwrap();
    assert_eq!((yarn.factor, yarn.beta_fast, yarn.beta_slow), (32.0, 1.0, 1.0));
    assert_eq!((spec.rope.theta, spec.rope.interleaved), (50000.0, true));
    assert_eq!(spec.moe.routed_scaling_factor.to_bits(), 2.827f32.to_bits());
    assert_eq!(spec.eos_token_ids, [257]);
    // 40^-0.5 * (0.1 ln 32 + 1)^2 , in Python
    assert!((spec.attention.softmax_scale - 0.2867016).abs() < 1e-6);
    assert_eq!(spec.attention.latent_norm_eps.to_bits(), 1e-6f32.to_bits());
}

#[test]
fn latent_norms_use_their_own_epsilon() {
    let mut config = json(&golden("kimi_k2").join("config.json"));
    config["rms_norm_eps"] = 1e-5.into();
    let spec = ModelSpec::from_config(&config).unwrap();
    assert_eq!(spec.rms_norm_eps.to_bits(), 1e-5f32.to_bits());
    assert_eq!(spec.attention.latent_norm_eps.to_bits(), 1e-6f32.to_bits());
    config["latent_norm_eps"] = 1e-5.into();
    let spec = ModelSpec::from_config(&config).unwrap();
    assert_eq!(spec.attention.latent_norm_eps.to_bits(), 1e-5f32.to_bits());
}

#[test]
fn kimi_k2_6_is_read_through_its_wrapper() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/kimi-k2.6/config.json");
    let spec = ModelSpec::from_config(&json(&path)).unwrap();
    assert_eq!((spec.num_layers, spec.moe.n_routed_experts), (61, 384));
    assert_eq!(spec.rope.scaling.unwrap().beta_fast, 32.0);
    // 192^-0.5 * 1.4159^2
    assert!((spec.attention.softmax_scale - 192f32.powf(-0.5) * 2.0047).abs() < 1e-5);
}

#[test]
fn what_is_not_served_is_refused_by_name() {
    let base = json(&golden("deepseek_v3").join("config.json"));
    let cases: &[(&str, Value, &str)] = &[
        ("model_type", "glm_moe_dsa".into(), "deepseek_v3"),
        ("scoring_func", "softmax".into(), "sigmoid"),
        ("hidden_act", "gelu".into(), "silu"),
        ("attention_bias", true.into(), "false"),
        ("num_key_value_heads", 1.into(), "num_attention_heads"),
        ("n_group", 5.into(), "divisor"),
        ("hidden_size", Value::Null, "not stated"),
        ("rope_scaling", serde_json::json!({"type": "llama3", "factor": 2}), "yarn"),
        ("rope_scaling", serde_json::json!({"type": "yarn", "truncate": false}), "truncate"),
        ("rope_theta", 1.into(), "rope_theta"),
        ("eos_token_id", 288.into(), "vocab_size"),
    ];
    for (field, value, say) in cases {
        let mut config = base.clone();
        config[*field] = value.clone();
        let error = ModelSpec::from_config(&config).unwrap_err();
        assert!(error.to_string().contains(say), "{field}: {error}");
    }
    assert_eq!(ModelSpec::from_config(&Value::Null), Err(ConfigError::NotAnObject));
}

#[test]
fn generation_config_adds_end_of_sequence_ids() {
    let spec = ModelSpec::from_config(&json(&golden("kimi_k2").join("config.json"))).unwrap();
    let spec =
        spec.with_generation_config(&serde_json::json!({"eos_token_id": [257, 258]})).unwrap();
    assert_eq!(spec.eos_token_ids, [257, 258]);
}

#[test]
fn every_golden_checkpoint_loads_in_place() {
    let stored = ["unquantized", "unquantized", "int4-g32", "fp8-128x128", "nvfp4"];
    for (name, stored) in GOLDEN.iter().zip(stored) {
        let loaded = load_as(&golden(name), "checkpoint");
        assert_eq!(loaded.report.stored, stored, "{name}");
        assert_eq!(loaded.report.converted_bytes, 0, "{name}");
        assert_eq!(loaded.weights.layers.len(), 3, "{name}");
        let mtp = usize::from(name.starts_with("deepseek"));
        assert_eq!(loaded.report.ignored.len(), mtp, "{name}: {:?}", loaded.report.ignored);
        assert_eq!(loaded.report.warnings, [""; 0], "{name}");
    }
}

#[test]
fn the_bundled_model_loads_in_every_policy() {
    let plain = load_as(&bundled(), "checkpoint");
    assert_eq!(plain.spec.eos_token_ids, [1012]);
    for policy in policy_names().into_iter().filter(|name| *name != "checkpoint") {
        let mut last = (0, 0);
        let policy = WeightPolicy::preset(policy).unwrap();
        let loaded =
            load(&bundled(), &policy, &mut |p| last = (p.done_bytes, p.total_bytes)).unwrap();
        assert_eq!(last.0, last.1);
        assert_eq!(loaded.fingerprint, plain.fingerprint, "{}", policy.name);
        let converted = loaded.report.converted_bytes > 0;
        assert_eq!(converted, policy.name != "bf16", "{}", policy.name);
    }
    let int4 = load_as(&bundled(), "int4");
    let Mlp::Moe { experts, shared, gate, .. } = &int4.weights.layers[1].mlp else {
        panic!("layer 1 is a mixture of experts")
    };
    assert_eq!(experts[0].down_proj.format.name, "int4-g32");
    assert_eq!(shared.as_ref().unwrap().up_proj.format.name, "bf16");
    assert_eq!(gate.format.name, "bf16");
}

/// The fp8block golden has the weights of `deepseek_v3`, quantized by its script.
#[test]
fn fp8_of_deepseek_v3_is_the_script_s_fp8_bit_for_bit() {
    let ours = load_as(&golden("deepseek_v3"), "fp8").weights;
    let theirs = load_as(&golden("deepseek_v3-fp8block"), "checkpoint").weights;
    let same = |a: &PackedMatrix, b: &PackedMatrix| {
        assert_eq!(a.format.name, "fp8-128x128");
        assert_eq!((&a.codes, &a.scales), (&b.codes, &b.scales));
    };
    for (a, b) in ours.layers.iter().zip(&theirs.layers) {
        same(&a.attention.o_proj, &b.attention.o_proj);
        same(&a.attention.kv_b_proj, &b.attention.kv_b_proj);
        let (
            QueryWeights::Latent { q_b_proj: a_q, .. },
            QueryWeights::Latent { q_b_proj: b_q, .. },
        ) = (&a.attention.query, &b.attention.query)
        else {
            panic!("both project queries through a latent")
        };
        same(a_q, b_q);
        match (&a.mlp, &b.mlp) {
            (Mlp::Dense(a), Mlp::Dense(b)) => same(&a.down_proj, &b.down_proj),
            (Mlp::Moe { experts: a, .. }, Mlp::Moe { experts: b, .. }) => {
                a.iter().zip(b).for_each(|(a, b)| same(&a.gate_proj, &b.gate_proj));
            }
            _ => panic!("layers differ in kind"),
        }
        // The script leaves this one in bf16, and no list says so.
        assert_eq!(b.attention.kv_a_proj_with_mqa.format.name, "bf16");
    }
}

#[test]
fn a_fingerprint_names_the_base_model_not_its_format() {
    let base = Checkpoint::open(&golden("deepseek_v3")).unwrap();
    let fp8 = Checkpoint::open(&golden("deepseek_v3-fp8block")).unwrap();
    let other = Checkpoint::open(&golden("deepseek_v3-nvfp4")).unwrap();
    assert_eq!(base.fingerprint().unwrap(), fp8.fingerprint().unwrap());
    // Another seed: other weights.
    assert_ne!(base.fingerprint().unwrap(), other.fingerprint().unwrap());
    assert_eq!(base.fingerprint().unwrap().len(), 64);
}

#[test]
fn loads_of_one_checkpoint_share_its_pages() {
    let checkpoint = Checkpoint::open(&golden("deepseek_v3")).unwrap();
    let mut none = |_: tessera_runtime::checkpoint::Progress<'_>| {};
    let a = checkpoint.load(&WeightPolicy::checkpoint(), &mut none).unwrap();
    let b = checkpoint.load(&WeightPolicy::preset("fp8").unwrap(), &mut none).unwrap();
    assert_eq!(a.weights.embed_tokens.codes.as_ptr(), b.weights.embed_tokens.codes.as_ptr());
}

#[test]
fn int4_is_written_as_kimi_ships_it() {
    let out = Scratch::new("int4");
    let dir = out.path().join("out");
    let policy = WeightPolicy::preset("int4-g32").unwrap();
    quantize(&golden("kimi_k2"), &policy, &dir, &mut |_| {}).unwrap();
    let strip = |dir: &Path| -> BTreeMap<_, _> {
        tensors(dir).into_iter().map(|(name, (dtype, shape, _))| (name, (dtype, shape))).collect()
    };
    assert_eq!(strip(&dir), strip(&golden("kimi_k2-int4")));
    let (ours, theirs) =
        (json(&dir.join("config.json")), json(&golden("kimi_k2-int4").join("config.json")));
    assert_eq!(ours["quantization_config"], theirs["quantization_config"]);
    let direct = load_as(&golden("kimi_k2"), "int4");
    let reloaded = load_as(&dir, "checkpoint");
    assert_eq!(reloaded.fingerprint, direct.fingerprint);
    let expert = |loaded: &Loaded| match &loaded.weights.layers[2].mlp {
        Mlp::Moe { experts, .. } => experts[5].down_proj.clone(),
        Mlp::Dense(_) => panic!("layer 2 is a mixture of experts"),
    };
    let (a, b) = (expert(&direct), expert(&reloaded));
    assert_eq!((a.codes, a.scales), (b.codes, b.scales));
    // A tensor of the golden, written again without change: the same bytes.
    let again = out.path().join("again");
    quantize(&golden("kimi_k2-int4"), &policy, &again, &mut |_| {}).unwrap();
    assert_eq!(tensors(&again), tensors(&golden("kimi_k2-int4")));
}

#[test]
fn fp8_and_nvfp4_are_written_in_their_own_layouts() {
    let out = Scratch::new("layouts");
    let fp8 = out.path().join("fp8");
    quantize(&golden("deepseek_v3"), &WeightPolicy::preset("fp8").unwrap(), &fp8, &mut |_| {})
        .unwrap();
    let ours = tensors(&fp8);
    for (name, tensor) in tensors(&golden("deepseek_v3-fp8block")) {
        let own = !name.contains("layers.3.") && !name.contains("kv_a_proj_with_mqa");
        if own {
            assert_eq!(ours.get(&name), Some(&tensor), "{name}");
        }
    }
    let nvfp4 = out.path().join("nvfp4");
    let policy = WeightPolicy::preset("nvfp4").unwrap();
    quantize(&golden("deepseek_v3"), &policy, &nvfp4, &mut |_| {}).unwrap();
    let ours = tensors(&nvfp4);
    for (name, (dtype, shape, _)) in tensors(&golden("deepseek_v3-nvfp4")) {
        if !name.contains("layers.3.") && !name.ends_with("input_scale") {
            let (our_dtype, our_shape, _) = &ours[&name];
            assert_eq!((our_dtype, our_shape), (&dtype, &shape), "{name}");
        }
    }
    let loaded = load_as(&nvfp4, "checkpoint");
    assert_eq!(loaded.report.converted_bytes, 0);
    assert_eq!(loaded.report.stored, "nvfp4");
}

/// Declaring a format is all it takes for a checkpoint in it to be written and served.
#[test]
fn every_format_is_written_and_read_back_bit_for_bit() {
    let out = Scratch::new("formats");
    for format in FORMATS.iter().filter(|format| format.scale_tile.is_some()) {
        let dir = out.path().join(format.name);
        let policy = WeightPolicy::preset(format.name).unwrap();
        quantize(&bundled(), &policy, &dir, &mut |_| {}).unwrap();
        let read = load_as(&dir, "checkpoint");
        assert_eq!(read.report.converted_bytes, 0, "{}", format.name);
        let direct = load_as(&bundled(), format.name);
        let expert = |loaded: &Loaded| match &loaded.weights.layers[1].mlp {
            Mlp::Moe { experts, .. } => experts[0].down_proj.clone(),
            Mlp::Dense(_) => panic!("layer 1 is a mixture of experts"),
        };
        let (read, direct) = (expert(&read), expert(&direct));
        assert_eq!(read.format.name, format.name);
        assert_eq!(read.decode(), direct.decode(), "{}", format.name);
    }
}

#[test]
fn writing_is_sharded_and_all_or_nothing() {
    let out = Scratch::new("sharded");
    let checkpoint = Checkpoint::open(&bundled()).unwrap();
    let output = Output { dir: out.path().join("m"), shard_bytes: 1_000_000 };
    let policy = WeightPolicy::preset("fp8").unwrap();
    quantize_to(&checkpoint, &policy, &output, &mut |_| {}).unwrap();
    let files = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
    assert!(output.dir.join("model.safetensors.index.json").is_file());
    assert!(output.dir.join("tokenizer.json").is_file());
    let reloaded = load_as(&output.dir, "checkpoint");
    assert_eq!(reloaded.fingerprint, checkpoint.fingerprint().unwrap());
    let before = files(&output.dir);
    let refused = quantize_to(&checkpoint, &policy, &output, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, CheckpointError::OutExists { .. }), "{refused}");
    assert_eq!(files(&output.dir), before);
    let output = Output::new(&out.path().join("mixed"));
    let checkpoint = Checkpoint::open(&golden("deepseek_v3-fp8block")).unwrap();
    let policy = WeightPolicy::preset("int4").unwrap();
    let refused = quantize_to(&checkpoint, &policy, &output, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, CheckpointError::NotWritable { .. }), "{refused}");
    assert_eq!(files(out.path()), 1, "nothing is left of what was refused");
}
