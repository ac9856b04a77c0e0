#!/usr/bin/env bash
# `weft fit` on trained ONNX files of other people: one by Paddle, which `weft check` reads as well, the same quantised by
# ONNX Runtime, and one by TensorFlow. They are in packages of PyPI, which are fetched. Takes some minutes. Usage: onnx_training_test.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
weft=$build/tools/weft
subject=onnx_training
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
python_with 'numpy, onnx, onnxruntime, PIL' numpy onnx 'onnxruntime>=1.20,<2' 'pillow>=10.1,<14'
while read -r package file; do
    published "$package" "$file" || echo "skipped: $package: pip cannot download it"
done <<'END'
rapidocr-onnxruntime rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx
basic-pitch basic_pitch/saved_models/icassp_2022/nmp.onnx
END
make_work
status=0
"$python" tests/real/train_onnx.py "$weft" "$cache" "$work" || status=$?
[ "$status" != 2 ] || skip "pip cannot download any of the packages"
exit "$status"
