"""Judges a checkpoint that `tessera quantize --weights int4-g32` wrote, with other people's code.

pip install torch transformers compressed-tensors safetensors; python check_quantized.py ORIGINAL QUANTIZED URL

Unpacks the INT4 experts with compressed-tensors, runs both models with transformers in float32 on a few
prompts of the evaluation sets, prints how far the quantized logits are from the original ones, and compares
the greedy tokens of the quantized model with the answers of a server at URL, started as
`tessera serve --model QUANTIZED --prefill-weights checkpoint --decode-weights checkpoint --decode-kv bf16`.
"""

import json
import sys
import tempfile
import urllib.request
from pathlib import Path

import torch
from compressed_tensors.compressors.pack_quantized.helpers import unpack_from_int32
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

original, quantized, url = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]


def tensors(folder):
    return {k: v for f in sorted(folder.glob("*.safetensors")) for k, v in load_file(f).items()}


def dequantized(state):
    plain = {}
    for name, value in state.items():
        if name.endswith(".weight_packed"):
            base = name.removesuffix(".weight_packed")
            shape = torch.Size(state[base + ".weight_shape"].tolist())
            q = unpack_from_int32(value, 4, shape).float()
            scale = state[base + ".weight_scale"].float()
            plain[base + ".weight"] = q * scale.repeat_interleave(shape[1] // scale.shape[1], 1)
        elif not name.endswith((".weight_scale", ".weight_shape")):
            plain[name] = value.float()
    return plain


def model(state):
    config = AutoConfig.from_pretrained(original)
    with tempfile.TemporaryDirectory() as folder:
        save_file({k: v.contiguous() for k, v in state.items()}, folder + "/model.safetensors", metadata={"format": "pt"})
        config.save_pretrained(folder)
        return AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32, attn_implementation="eager").eval()


def served(item):
    body = {"messages": item["messages"], "temperature": 0, "max_tokens": 64, "return_token_ids": True}
    body |= {"tools": item["tools"]} if item["tools"] else {}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode())
    return json.load(urllib.request.urlopen(request))["choices"][0]["token_ids"]


before, after = tensors(original), dequantized(tensors(quantized))
assert before.keys() == after.keys(), before.keys() ^ after.keys()
a, b = model({k: v.float() for k, v in before.items()}), model(after)
for task in ("capital", "story", "tool_call", "recall"):
    item = json.loads((original / f"eval/{task}.jsonl").open().readline())
    ids = torch.tensor([item["prompt_ids"]])
    with torch.no_grad():
        x, y = a(ids).logits, b(ids).logits
        out = b.generate(ids, max_new_tokens=64, do_sample=False, attention_mask=torch.ones_like(ids))
    error = ((x - y).norm() / x.norm()).item()
    ids = out[0, ids.shape[1] :].tolist()
    print(f"{item['id']}: logits change by {error:.4f}, served answer is", "the same" if served(item) == ids else "ANOTHER")
