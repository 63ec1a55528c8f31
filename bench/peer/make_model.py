#!/usr/bin/env python3
"""Writes the model of the peer benchmark: DeepSeek-V3's architecture with random bf16 weights, as a
Hugging Face checkpoint with SmolLM2's tokenizer (Apache-2.0). For speed only: it says nothing.

usage: make_model.py OUT SMOLLM2.gguf        (needs torch, safetensors, tokenizers, gguf, numpy)

q_lora_rank must be above 0: llama.cpp takes a model without it for DeepSeek-V2-Lite.
"""
import json
import os
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

OUT, SMOLLM2 = sys.argv[1:]
HIDDEN, HEADS, Q_LORA, KV_LORA, NOPE, ROPE, V = 2048, 16, 768, 512, 128, 64, 128
EXPERTS, TOP_K, SHARED, EXPERT_WIDTH, DENSE_WIDTH, VOCAB, LAYERS = 64, 6, 2, 1408, 10944, 49152, 5

CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
    "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": DENSE_WIDTH,
    "moe_intermediate_size": EXPERT_WIDTH, "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "n_shared_experts": SHARED,
    "n_routed_experts": EXPERTS, "routed_scaling_factor": 2.446, "kv_lora_rank": KV_LORA,
    "q_lora_rank": Q_LORA, "qk_rope_head_dim": ROPE, "v_head_dim": V, "qk_nope_head_dim": NOPE,
    "topk_method": "noaux_tc", "n_group": 1, "topk_group": 1, "num_experts_per_tok": TOP_K,
    "moe_layer_freq": 1, "first_k_dense_replace": 1, "norm_topk_prob": True,
    "scoring_func": "sigmoid", "hidden_act": "silu", "max_position_embeddings": 8192,
    "initializer_range": 0.02, "rms_norm_eps": 1e-6, "rope_theta": 50000.0, "rope_scaling": None,
    "attention_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": False,
    "use_cache": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2,
    "num_nextn_predict_layers": 0, "torch_dtype": "bfloat16", "ep_size": 1,
}


def write_tokenizer():
    fields = gguf.GGUFReader(SMOLLM2).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, kinds) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    tokenizer.save(f"{OUT}/tokenizer.json")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 8192,
        "bos_token": tokens[1], "eos_token": tokens[2], "pad_token": tokens[2],
        "unk_token": tokens[0],
        "chat_template": fields["tokenizer.chat_template"].contents(),
    }
    json.dump(config, open(f"{OUT}/tokenizer_config.json", "w"))


class Shards:
    """Tensors in files of about a gigabyte."""

    def __init__(self):
        # Standard normal values, reused from changing places: drawing 2.6 billion takes too long.
        bank = np.random.Generator(np.random.PCG64(1)).standard_normal(3 << 25, dtype=np.float32)
        self.bank, self.at = torch.from_numpy(bank), 0
        self.shard, self.index, self.files, self.bytes = {}, {}, 0, 0

    def normal(self, rows, cols, std):
        parts, missing = [], rows * cols
        while missing:
            part = self.bank[self.at : self.at + missing]
            parts.append(part)
            missing -= len(part)
            self.at += len(part)
            if self.at >= len(self.bank):
                self.at = 7919 * (len(parts) + 1) % 65536
        return (torch.cat(parts).view(rows, cols) * std).to(torch.bfloat16).contiguous()

    def matrix(self, name, rows, cols, std=None):
        self.put(f"{name}.weight", self.normal(rows, cols, std or cols**-0.5))

    def ones(self, name, size):
        self.put(f"{name}.weight", torch.ones(size, dtype=torch.bfloat16))

    def put(self, name, tensor):
        self.shard[name] = tensor
        self.bytes += tensor.numel() * tensor.element_size()
        if sum(t.numel() for t in self.shard.values()) > 5e8:
            self.flush()

    def flush(self):
        if not self.shard:
            return
        self.files += 1
        file = f"model-{self.files:05d}.safetensors"
        save_file(self.shard, f"{OUT}/{file}", metadata={"format": "pt"})
        self.index.update({name: file for name in self.shard})
        self.shard = {}


def gated(shards, prefix, width):
    shards.matrix(f"{prefix}.gate_proj", width, HIDDEN)
    shards.matrix(f"{prefix}.up_proj", width, HIDDEN)
    shards.matrix(f"{prefix}.down_proj", HIDDEN, width)


def layer(shards, i):
    prefix = f"model.layers.{i}"
    attn, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    shards.ones(f"{prefix}.input_layernorm", HIDDEN)
    shards.ones(f"{prefix}.post_attention_layernorm", HIDDEN)
    shards.matrix(f"{attn}.q_a_proj", Q_LORA, HIDDEN)
    shards.ones(f"{attn}.q_a_layernorm", Q_LORA)
    shards.matrix(f"{attn}.q_b_proj", HEADS * (NOPE + ROPE), Q_LORA)
    shards.matrix(f"{attn}.kv_a_proj_with_mqa", KV_LORA + ROPE, HIDDEN)
    shards.ones(f"{attn}.kv_a_layernorm", KV_LORA)
    shards.matrix(f"{attn}.kv_b_proj", HEADS * (NOPE + V), KV_LORA)
    shards.matrix(f"{attn}.o_proj", HIDDEN, HEADS * V)
    if i == 0:
        gated(shards, mlp, DENSE_WIDTH)
        return
    shards.matrix(f"{mlp}.gate", EXPERTS, HIDDEN)
    bias = shards.normal(1, EXPERTS, 0.01).float().view(EXPERTS)
    shards.put(f"{mlp}.gate.e_score_correction_bias", bias)
    for expert in range(EXPERTS):
        gated(shards, f"{mlp}.experts.{expert}", EXPERT_WIDTH)
    gated(shards, f"{mlp}.shared_experts", SHARED * EXPERT_WIDTH)


def main():
    os.makedirs(OUT, exist_ok=True)
    json.dump(CONFIG, open(f"{OUT}/config.json", "w"), indent=2)
    generation = {"bos_token_id": 1, "eos_token_id": 2, "do_sample": False}
    json.dump(generation, open(f"{OUT}/generation_config.json", "w"))
    write_tokenizer()
    shards = Shards()
    shards.matrix("model.embed_tokens", VOCAB, HIDDEN, std=1.0)
    for i in range(LAYERS):
        layer(shards, i)
    shards.ones("model.norm", HIDDEN)
    shards.matrix("lm_head", VOCAB, HIDDEN, std=4 * HIDDEN**-0.5)
    shards.flush()
    index = {"metadata": {"total_size": shards.bytes}, "weight_map": shards.index}
    json.dump(index, open(f"{OUT}/model.safetensors.index.json", "w"))
    print(f"{shards.bytes / 1e9:.2f} GB in {shards.files} files")


main()
