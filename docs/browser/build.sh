#!/usr/bin/env bash
# Makes FOLDER/digits.html, a page that trains a network in the browser, and FOLDER/digits.wasm, the module in it:
#
#     docs/browser/build.sh FOLDER
#
# Debian's packages: clang, wasi-libc, libclang-rt-14-dev-wasm32, lld, meson. The page is one file, which may be opened
# from the disk.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
here=$(realpath "$(dirname "$0")")
root=$here/../.. data=$here/../../tests/data/digits
mkdir -p "$1"
cd "$1"
[ -f core/build.ninja ] || meson setup core "$root" --cross-file "$root/cross/wasm32-wasi.ini" >log 2>&1 || { tail log; exit 1; }
ninja -C core libweft.a >log 2>&1 || { tail log; exit 1; }
# (Without -O the linker runs no other program to optimise the module.)
clang --target=wasm32-wasi -msimd128 -mbulk-memory -std=gnu11 -O2 -ffp-contract=off -I"$root/graph" -Icore/graph \
    -c "$here/digits.c" -o digits.o
exports=$(sed -n 's/.*\bdigits_\([a-z]*\)(.*);$/--export=digits_\1/p' "$here/digits.h" | paste -sd,)
clang --target=wasm32-wasi -mexec-model=reactor digits.o core/libweft.a -o digits.wasm \
    -Wl,--gc-sections,--strip-all,-z,stack-size=262144,--export=malloc,"$exports"

# bytes_of FILE...: the numbers in files of NumPy, whose headers have 128 bytes.
bytes_of()
{
    local file
    for file in "$@"; do tail -c +129 "$data/$file.npy"; done
}

packed() { gzip -9n | base64; }

# The page, with the files that lines such as @wasm@ name.
while IFS= read -r line; do
    case $line in
        @script@) cat "$here/digits.js" "$here/page.js" ;;
        @wasm@) packed <digits.wasm ;;
        @images@) bytes_of x valid_x | packed ;;
        @labels@) bytes_of y valid_y | packed ;;
        @expected@) cat "$here/expected.txt" ;;
        *) printf '%s\n' "$line" ;;
    esac
done <"$here/page.html" >digits.html
rm -f log digits.o
wc -c digits.wasm digits.html | head -n 2
