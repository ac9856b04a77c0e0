#!/usr/bin/env bash
# Compares detectors of torchvision in weft with ONNX Runtime. They need PyTorch, which is not installed for this:
# WEFT_TORCH_PYTHON names a Python with torch, torchvision, onnx and onnxruntime.
# Usage: WEFT_TORCH_PYTHON=PYTHON detectors_test.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
weft=$build/tools/weft
subject=detectors
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
python=${WEFT_TORCH_PYTHON:-python3}
"$python" -c 'import onnx, onnxruntime, torch, torchvision' 2>/dev/null ||
    skip "$python has not all of torch, torchvision, onnx and onnxruntime (WEFT_TORCH_PYTHON names another)"
make_work
"$python" tests/real/detectors.py "$weft" "$work"
detect=$build/examples/detect/detect
if [ -x "$detect" ]; then
    "$python" tests/real/compare_detect.py "$detect" "$work/ssdlite320.onnx" 0.9 "$work"
    "$python" tests/real/compare_detect.py "$detect" "$work/faster_rcnn.onnx" 0.35 "$work"
else
    echo "skipped: detect: it was not built (libturbojpeg, libpng)"
fi
