#!/usr/bin/env bash
# Compares ops of Microsoft's domain, and files that ONNX Runtime's quantiser and optimiser write, with ONNX Runtime.
# Fetches the packages from PyPI, and skips where that fails. Usage: onnx_ops_test.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
weft=$build/tools/weft
subject=onnx_ops
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
python_with 'numpy, onnx, onnxruntime' numpy 'onnx>=1.16,<2' 'onnxruntime>=1.20,<2'
make_work
"$python" -W ignore tests/real/compare_onnx_ops.py "$weft" "$work" 2>"$work/messages" || { cat "$work/messages"; exit 1; }
