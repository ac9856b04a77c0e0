#!/usr/bin/env bash
# Compares the ABI of the shared libraries with the recorded one, abi/*.abi.xz: a symbol or a type may
# be added, but nothing may be removed or changed. Prints what abidiff finds.
# Usage: abi_test.sh BUILD_FOLDER [--record]; the folder must be built with debug information, at any
# optimisation, with or without sanitizers. --record records the ABI instead (docs/stability.md). The status is 77
# if nothing could be compared.
set -euo pipefail
build=$1
source=$(realpath "$(dirname "$0")/../..")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
skip()
{
    echo "skipped: the ABI: $*"
    exit 77
}
command -v abidw >/dev/null && command -v abidiff >/dev/null || skip "abigail-tools is not installed"
[ "$(uname -m)" = x86_64 ] || skip "it was recorded on x86_64"

failed=0 compared=0
for library in "$build"/libweft{,-emit,-inspect,-text,-tokenizers,-distributed,-models,-formats,-mpi}.so; do
    name=$(basename "$library" .so)
    [ -f "$library" ] || { echo "skipped: the ABI of $name: it was not built"; continue; }
    readelf -S "$library" | grep '\.debug_info' >/dev/null ||
        { echo "skipped: the ABI of $name: $library has no debug information"; continue; }
    compared=1
    # Every public symbol has a version, that of the soname.
    number=$(readelf -d "$library" | sed -n 's/.*soname: \[.*\.so\.\([0-9]*\)\].*/\1/p')
    if nm -D --defined-only "$library" | grep ' weft_' | grep -vE " weft_[^_].*@@WEFT_$number$| weft__.*@@WEFT_PRIVATE_[0-9.]+$"; then
        echo "$name: these symbols lack the version WEFT_$number"
        failed=1
    fi
    abidw --suppressions "$source/abi/public.suppr" --drop-private-types --exported-interfaces-only \
        --no-elf-needed --no-parameter-names --no-corpus-path --no-comp-dir-path --no-show-locs \
        --type-id-style hash --out-file "$work/$name.abi" "$library"
    if [ "${2:-}" = --record ]; then
        xz -9c "$work/$name.abi" >"$source/abi/$name.abi.xz"
        continue
    fi
    xz -dc "$source/abi/$name.abi.xz" >"$work/recorded.abi"
    if abidiff --no-added-syms "$work/recorded.abi" "$work/$name.abi" >"$work/diff"; then
        echo "$name: $(grep -c '<elf-symbol ' "$work/$name.abi") symbols, compatible with abi/$name.abi.xz"
    else
        cat "$work/diff"
        echo "$name: the ABI is not the recorded one. Undo the change, or see docs/stability.md."
        failed=1
    fi
done
[ $compared = 1 ] || exit 77
exit $failed
