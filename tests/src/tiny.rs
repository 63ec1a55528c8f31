//! FX-TINY: tiny checkpoints, made byte by byte so that tests can damage any of the bytes.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory of its own that is removed when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// An empty directory.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = format!("tessera-{name}-{}-{count}", std::process::id());
        let dir = std::env::temp_dir().join(dir);
        fs::create_dir_all(&dir).expect("a temporary directory can be made");
        Self(dir)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _already_gone = fs::remove_dir_all(&self.0);
    }
}

/// A tensor before it is written.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the names of the file format")]
pub struct Tensor {
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    pub data: Vec<u8>,
}

impl Tensor {
    /// bf16 values of about ±0.5 that depend on `seed` alone.
    pub fn bf16(seed: u64, shape: &[usize]) -> Self {
        let mut random = Random(seed);
        let data = (0..shape.iter().product())
            .flat_map(|_| {
                // Sign, an exponent of 2^-4..2^-1, seven bits of mantissa.
                let [low, high, ..] = random.next().to_le_bytes();
                let exponent = 123 + u16::from(high & 3);
                (u16::from(low & 1) << 15 | exponent << 7 | u16::from(low >> 1)).to_le_bytes()
            })
            .collect();
        Self { dtype: "BF16", shape: shape.to_vec(), data }
    }

    /// f32 values.
    pub fn f32(values: &[f32], shape: &[usize]) -> Self {
        let data = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        Self { dtype: "F32", shape: shape.to_vec(), data }
    }

    /// Random bytes.
    pub fn bytes(seed: u64, dtype: &'static str, shape: &[usize], len: usize) -> Self {
        let mut random = Random(seed);
        let data = (0..len).map(|_| random.next().to_le_bytes()[1]).collect();
        Self { dtype, shape: shape.to_vec(), data }
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

/// A checkpoint before it is written.
#[derive(Debug, Clone)]
pub struct Tiny {
    /// `config.json`.
    pub config: Value,
    /// By name.
    pub tensors: BTreeMap<String, Tensor>,
    size: Size,
}

/// Sizes that tests vary.
#[derive(Debug, Clone, Copy)]
struct Size {
    hidden: usize,
    moe_inner: usize,
    experts: usize,
}

/// Bytes of a safetensors file.
pub fn safetensors<'a>(tensors: impl Iterator<Item = (&'a String, &'a Tensor)>) -> Vec<u8> {
    let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
    for (name, tensor) in tensors {
        let start = data.len();
        data.extend_from_slice(&tensor.data);
        let entry = json!({
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": [start, data.len()],
        });
        header.insert(name.clone(), entry);
    }
    file(&Value::Object(header).to_string(), &data)
}

/// A file of that header and data, the length stated truly.
pub fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(data);
    bytes
}

impl Tiny {
    /// A bf16 model of `layers` layers, the first of them dense.
    pub fn dense(layers: usize) -> Self {
        Self::sized(layers, Size { hidden: 64, moe_inner: 32, experts: 4 })
    }

    /// A bf16 model of two layers with 200 MB of routed experts, to measure loading on.
    pub fn large() -> Self {
        Self::sized(2, Size { hidden: 1024, moe_inner: 512, experts: 64 })
    }

    fn sized(layers: usize, size: Size) -> Self {
        let config = json!({
            "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
            "vocab_size": 32, "hidden_size": size.hidden, "hidden_act": "silu",
            "num_hidden_layers": layers,
            "max_position_embeddings": 128, "attention_bias": false, "tie_word_embeddings": false,
            "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "bfloat16",
            "num_attention_heads": 2, "num_key_value_heads": 2, "q_lora_rank": 32,
            "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
            "intermediate_size": 96, "moe_intermediate_size": size.moe_inner,
            "n_routed_experts": size.experts,
            "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
            "norm_topk_prob": true, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5,
            "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "num_nextn_predict_layers": 0,
            "scoring_func": "sigmoid", "topk_method": "noaux_tc", "moe_layer_freq": 1,
        });
        let mut tiny = Self { config, tensors: BTreeMap::new(), size };
        tiny.bf16("model.embed_tokens.weight", &[32, size.hidden]);
        tiny.bf16("lm_head.weight", &[32, size.hidden]);
        tiny.bf16("model.norm.weight", &[size.hidden]);
        for layer in 0..layers {
            tiny.layer(&format!("model.layers.{layer}"), layer > 0);
        }
        tiny
    }

    fn layer(&mut self, name: &str, moe: bool) {
        let Size { hidden, moe_inner, experts } = self.size;
        for norm in ["input_layernorm", "post_attention_layernorm"] {
            self.bf16(&format!("{name}.{norm}.weight"), &[hidden]);
        }
        let attention: [(&str, &[usize]); 7] = [
            ("q_a_proj", &[32, hidden]),
            ("q_a_layernorm", &[32]),
            ("q_b_proj", &[48, 32]),
            ("kv_a_proj_with_mqa", &[40, hidden]),
            ("kv_a_layernorm", &[32]),
            ("kv_b_proj", &[64, 32]),
            ("o_proj", &[hidden, 32]),
        ];
        for (part, shape) in attention {
            self.bf16(&format!("{name}.self_attn.{part}.weight"), shape);
        }
        if !moe {
            self.mlp(&format!("{name}.mlp"), 96);
            return;
        }
        self.bf16(&format!("{name}.mlp.gate.weight"), &[experts, hidden]);
        let bias: Vec<f32> = (0..experts).map(|e| [0.1, -0.1, 0.2, 0.0][e % 4]).collect();
        let bias = Tensor::f32(&bias, &[experts]);
        self.tensors.insert(format!("{name}.mlp.gate.e_score_correction_bias"), bias);
        self.mlp(&format!("{name}.mlp.shared_experts"), moe_inner);
        for expert in 0..experts {
            self.mlp(&format!("{name}.mlp.experts.{expert}"), moe_inner);
        }
    }

    fn mlp(&mut self, name: &str, inner: usize) {
        let hidden = self.size.hidden;
        self.bf16(&format!("{name}.gate_proj.weight"), &[inner, hidden]);
        self.bf16(&format!("{name}.up_proj.weight"), &[inner, hidden]);
        self.bf16(&format!("{name}.down_proj.weight"), &[hidden, inner]);
    }

    fn bf16(&mut self, name: &str, shape: &[usize]) {
        let seed = name.bytes().fold(7, |h: u64, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
        self.tensors.insert(name.to_owned(), Tensor::bf16(seed, shape));
    }

    /// [`Tiny::dense`] with routed experts as compressed-tensors pack-quantized INT4, group 32.
    pub fn int4(layers: usize) -> Self {
        let mut tiny = Self::dense(layers);
        let experts: Vec<String> =
            tiny.tensors.keys().filter(|n| n.contains(".experts.")).cloned().collect();
        for name in experts {
            let shape = tiny.tensors.remove(&name).map(|t| t.shape).unwrap_or_default();
            let [rows, cols] = [shape[0], shape[1]];
            let module = name.trim_end_matches(".weight");
            let seed = name.len() as u64;
            let packed = Tensor::bytes(seed, "I32", &[rows, cols / 8], rows * cols / 2);
            let scale = Tensor::bf16(seed, &[rows, cols / 32]).positive();
            let sizes: Vec<u8> =
                [rows as u64, cols as u64].iter().flat_map(|n| n.to_le_bytes()).collect();
            let stated = Tensor { dtype: "I64", shape: vec![2], data: sizes };
            tiny.tensors.insert(format!("{module}.weight_packed"), packed);
            tiny.tensors.insert(format!("{module}.weight_scale"), scale);
            tiny.tensors.insert(format!("{module}.weight_shape"), stated);
        }
        tiny.config["quantization_config"] = json!({
            "quant_method": "compressed-tensors", "format": "pack-quantized",
            "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                       r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {
                "num_bits": 4, "type": "int", "symmetric": true, "strategy": "group",
                "group_size": 32, "dynamic": false}}},
        });
        tiny
    }

    /// Writes one `model.safetensors`.
    ///
    /// # Panics
    /// On I/O errors.
    pub fn write(&self) -> Scratch {
        let dir = Scratch::new("tiny");
        self.write_config(dir.path());
        write(&dir.path().join("model.safetensors"), &safetensors(self.tensors.iter()));
        dir
    }

    /// Writes two shards, and an index if asked to. `lm_head` and all but the last tensors are in
    /// the first.
    ///
    /// # Panics
    /// On I/O errors.
    pub fn write_shards(&self, index: bool) -> Scratch {
        let dir = Scratch::new("tiny");
        self.write_config(dir.path());
        let half = self.tensors.len() / 2;
        let mut map = serde_json::Map::new();
        for (number, range) in [(1, 0..half), (2, half..self.tensors.len())] {
            let name = shard_name(number);
            let part = self.tensors.iter().skip(range.start).take(range.len());
            map.extend(part.clone().map(|(tensor, _)| (tensor.clone(), name.clone().into())));
            write(&dir.path().join(name), &safetensors(part));
        }
        if index {
            write_index(dir.path(), &Value::Object(map));
        }
        dir
    }

    /// Writes `config.json`.
    ///
    /// # Panics
    /// On I/O errors.
    pub fn write_config(&self, dir: &Path) {
        write(&dir.join("config.json"), self.config.to_string().as_bytes());
    }
}

impl Tensor {
    /// bf16 or f32 with every sign cleared.
    fn positive(mut self) -> Self {
        self.data.iter_mut().skip(1).step_by(2).for_each(|high| *high &= 0x7f);
        self
    }
}

/// Name of shard `number` of two.
pub fn shard_name(number: usize) -> String {
    format!("model-{number:05}-of-00002.safetensors")
}

/// Writes `model.safetensors.index.json`.
///
/// # Panics
/// On I/O errors.
pub fn write_index(dir: &Path, weight_map: &Value) {
    let index = json!({"metadata": {}, "weight_map": weight_map}).to_string();
    write(&dir.join("model.safetensors.index.json"), index.as_bytes());
}

/// Writes a file.
///
/// # Panics
/// On I/O errors.
pub fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).expect("a temporary file can be written");
}
