#!/usr/bin/env bash
# The commands and programs of README.md and of all pages in docs/ work, and print what stands
# there. They find weft as it is installed from BUILD_FOLDER. PYTHON names a Python with PyTorch,
# transformers, onnx and onnxruntime for the pages' programs; these are skipped without it.
# Pages about ONNX files and Hugging Face are skipped where weft lacks protobuf-c or libzip; the status is 77 if no
# page is left.
# Usage: page_test.sh BUILD_FOLDER [PAGE...]
set -uo pipefail
build=$(realpath "$1")
root=$(realpath "$(dirname "$0")/../..")
shift
cd "$root" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DESTDIR="$work/installed" meson install -C "$build" --no-rebuild --skip-subprojects >/dev/null || exit 1
PKG_CONFIG_PATH=$(dirname "$(find "$work/installed" -name weft.pc)")
LD_LIBRARY_PATH=$(dirname "$(find "$work/installed" -name libweft.so)")
PATH=$(dirname "$(find "$work/installed" -name weft -path '*/bin/*')"):$PATH
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR="$work/installed" LD_LIBRARY_PATH PATH
export WEFT_BUILD=$build OMP_WAIT_POLICY=passive OMP_NUM_THREADS=2
[ $# -gt 0 ] || set -- README.md docs/*.md
missing=$(weft run "$root/tests/data/languages/languages.onnx" --batch 3 \
    --input "$root/tests/data/languages/example.npz" 2>&1 | grep -oE "built without (protobuf-c|libzip)")
pages=()
for page in "$@"; do
    if [ "$page" = docs/detectors.md ] && ! pkg-config --exists libturbojpeg libpng; then
        echo "skipped: $page: libturbojpeg or libpng is missing"
        continue
    fi
    case "$missing $page" in
        built*docs/onnx.md | built*docs/detectors.md | built*docs/convert.md | built*docs/vision.md)
            echo "skipped: $page: weft was $missing"
            ;;
        *) pages+=("$page") ;;
    esac
done
[ ${#pages[@]} -gt 0 ] || exit 77
python3 "$root/tests/docs/page.py" "$root" "$work/pages" "${pages[@]}"
