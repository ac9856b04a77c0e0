#!/usr/bin/env bash
# Runs trained ONNX files of other people in weft and in ONNX Runtime, each on a real input: texts in pictures, types of
# files, notes, speech. They are in packages of PyPI, which are fetched; a package that cannot be had is left out with a
# line. Usage: onnx_test.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
weft=$build/tools/weft
subject=onnx
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
python_with 'numpy, onnxruntime, PIL' numpy 'onnxruntime>=1.20,<2' 'pillow>=10.1,<14'
while read -r package file; do
    published "$package" "$file" || echo "skipped: $package: pip cannot download it"
done <<'END'
magika magika/models/standard_v3_3/model.onnx
rapidocr-onnxruntime rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx
ddddocr ddddocr/common.onnx
nudenet nudenet/320n.onnx
basic-pitch basic_pitch/saved_models/icassp_2022/nmp.onnx
silero-vad silero_vad/data/silero_vad.onnx
END
make_work
status=0
"$python" tests/real/compare_onnx.py "$weft" "$cache" "$work" || status=$?
[ "$status" != 2 ] || skip "pip cannot download any of the packages"
# The boxes of YOLOv8, after suppression.
detect=$build/examples/detect/detect
if [ -x "$detect" ] && [ -e "$cache/nudenet/320n.onnx" ]; then
    "$python" tests/real/compare_detect.py "$detect" "$cache/nudenet/320n.onnx" 0.01 "$work" --dim=height=320 \
        --dim=width=320 --fit=letterbox || status=1
else
    echo "skipped: detect with nudenet: it was not built (libturbojpeg, libpng), or pip cannot download the file"
fi
exit "$status"
