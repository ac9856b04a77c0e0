# Sourced after tools/packages.sh by the scripts that compare weft with other programs: installs their
# Python packages from PyPI, outside the tree.

peers_cache=${WEFT_BENCH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/weft-bench}
peers_python=$peers_cache/peers/bin/python3

need_peers()
{
    need_packages python3-venv
    [ -e "$peers_cache/peers/complete" ] && return
    echo "Installing PyTorch, ONNX Runtime and Transformers in $peers_cache/peers (gigabytes: PyPI's PyTorch" \
        "comes with libraries for GPUs)" >&2
    rm -rf "$peers_cache/peers"
    "${PYTHON:-/usr/bin/python3}" -m venv "$peers_cache/peers"
    "$peers_python" -m pip install --quiet numpy torch torchvision onnx onnxscript onnxruntime safetensors transformers
    touch "$peers_cache/peers/complete"
}

# llama.cpp, built for this processor.
need_ggml()
{
    need_packages cmake g++
    [ -e "$peers_cache/peers/ggml" ] && return
    echo "Building llama.cpp in $peers_cache/peers (some ten minutes)" >&2
    CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAMA_CURL=OFF -DLLAVA_BUILD=OFF" "$peers_python" -m pip install --quiet \
        --no-binary llama-cpp-python gguf llama-cpp-python
    touch "$peers_cache/peers/ggml"
}
