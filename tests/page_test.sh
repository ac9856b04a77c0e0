#!/usr/bin/env bash
# The commands and programs of README.md and of all pages in docs/ work, and print what stands
# there. They find weft as it is installed from BUILD_FOLDER. PYTHON names a Python with PyTorch,
# transformers, onnx and onnxruntime for the pages' programs; these are skipped without it.
# Usage: page_test.sh BUILD_FOLDER [PAGE...]
set -uo pipefail
build=$(realpath "$1")
root=$(realpath "$(dirname "$0")/..")
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
DESTDIR="$work/installed" meson install -C "$build" --no-rebuild --skip-subprojects >/dev/null || exit 1
PKG_CONFIG_PATH=$(dirname "$(find "$work/installed" -name weft.pc)")
LD_LIBRARY_PATH=$(dirname "$(find "$work/installed" -name libweft.so)")
PATH=$(dirname "$(find "$work/installed" -name weft -path '*/bin/*')"):$PATH
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR="$work/installed" LD_LIBRARY_PATH PATH
export WEFT_BUILD=$build OMP_WAIT_POLICY=passive OMP_NUM_THREADS=2
if [ $# -eq 0 ]; then
    set -- "$root"/README.md "$root"/docs/*.md
    missing=$(weft run "$root/tests/data/languages/languages.onnx" --batch 3 \
        --input "$root/tests/data/languages/example.npz" 2>&1 | grep -oE "built without (protobuf-c|libzip)")
    if [ -n "$missing" ]; then
        echo "skipped: the pages about ONNX files and Hugging Face: weft was $missing"
        pages=()
        for page in "$@"; do
            case "$page" in */onnx.md | */convert.md | */vision.md) ;; *) pages+=("$page") ;; esac
        done
        set -- "${pages[@]}"
    fi
fi
python3 "$root/tests/page.py" "$root" "$work/pages" "$@"
