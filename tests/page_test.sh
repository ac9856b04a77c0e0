#!/usr/bin/env bash
# The commands of the page about ONNX files print what stands there. PYTHON names a Python with
# PyTorch, transformers, onnx and onnxruntime for the page's programs; they are skipped without it.
# Usage: page_test.sh PATH_OF_WEFT
set -uo pipefail
weft=$(realpath "$1")
root=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
for data in digits languages; do
    cp -r "$root/tests/data/$data"/*.n* "$root/tests/data/$data"/*.onnx .
done
cp -r "$root/tests/data/languages/reference" .
missing=$("$weft" run languages.onnx --batch 3 --input example.npz 2>&1 | grep -oE "built without (protobuf-c|libzip)")
if [ -n "$missing" ]; then
    echo "skipped: the page about ONNX files: weft was $missing"
    exit 0
fi
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=2
python3 "$root/tests/page.py" "$root/docs/onnx.md" "$weft" "$work"
