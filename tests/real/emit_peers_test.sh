#!/usr/bin/env bash
# Compares the size and the speed of what `weft emit` writes with emx-onnx-cgen's; fails only where results differ. Fetches
# the packages from PyPI, and skips where that fails. Usage: emit_peers_test.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
weft=$build/tools/weft
subject=emit_peers
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
command -v gcc >/dev/null || skip "gcc is not installed"
python_with 'numpy, onnx, emx_onnx_cgen' numpy 'onnx>=1.16,<2' emx-onnx-cgen
make_work
"$python" -W ignore tests/real/emit_peers.py "$weft" "$work"
