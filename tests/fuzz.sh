#!/usr/bin/env bash
# Fuzzers of the files that weft reads, by clang's libFuzzer under ASan and UBSan. Each runs for some
# seconds, from the inputs in tests/fuzz/corpus.
set -uo pipefail
cd "$(dirname "$0")/.."
usage="Usage: tests/fuzz.sh SECONDS [KIND...]
Builds the fuzzers in build-fuzz and runs each for SECONDS, or those of the KINDs: onnx, npy, npz,
safetensors, peft, gguf, recipe, tokenizer, chat, schema. An input that breaks a promise of tests/fuzz/kinds.h stays in
build-fuzz/findings, and the exit status is 1. Add it to tests/fuzz/corpus/KIND when the bug is fixed."
case "${1:-}" in
    --help | -h) echo "$usage"; exit 0 ;;
    '' | *[!0-9]*) echo "$usage" >&2; exit 2 ;;
esac
seconds=$1
shift
kinds=("$@")
[ ${#kinds[@]} -eq 0 ] && kinds=(npy npz safetensors peft gguf recipe tokenizer chat schema onnx)
# shellcheck source=tools/packages.sh
. tools/packages.sh

skip()
{
    echo "skipped: fuzzers: $1"
    exit 0
}
command -v clang >/dev/null || skip "clang is not installed"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 99; }' >"$work/a.c"
clang -fsanitize=fuzzer,address "$work/a.c" -o "$work/a" 2>/dev/null ||
    skip "clang has no libFuzzer (Debian: libclang-rt-dev)"
cache=$(command -v ccache || true)
CC="${cache:+ccache }clang" CXX="${cache:+ccache }clang++" configure build-fuzz -Dfuzz=true -Disa=base \
    -Dbuildtype=custom -Doptimization=1 -Ddebug=true -Dc_args=-g1 -Db_sanitize=address,undefined -Db_lundef=false
ninja -C build-fuzz --quiet fuzzers || exit 1

export ASAN_OPTIONS=detect_leaks=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 OMP_NUM_THREADS=1
export LSAN_OPTIONS=suppressions=$PWD/tests/lsan.txt:print_suppressions=0
mkdir -p build-fuzz/findings
status=0
for kind in "${kinds[@]}"; do
    fuzzer=build-fuzz/tests/fuzz_$kind
    if [ ! -x "$fuzzer" ]; then
        echo "skipped: $kind: weft was built without it"
        continue
    fi
    mkdir -p "$work/$kind"
    # An input may take 30 seconds on a busy machine and 2 GB, and one allocation half a GB.
    if "$fuzzer" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048 -malloc_limit_mb=512 \
        -max_len=4096 -print_final_stats=1 \
        -artifact_prefix="build-fuzz/findings/$kind-" "$work/$kind" "tests/fuzz/corpus/$kind" \
        >"$work/log" 2>&1; then
        found="no findings"
    else
        found="FOUND: $(grep -h 'Test unit written to' "$work/log" | sed 's/.*written to //')"
        grep -h -m 3 -e "^$kind:" -e 'ERROR' -e 'runtime error' "$work/log"
        status=1
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/log")
    covered=$(grep -o 'cov: [0-9]*' "$work/log" | tail -n 1 | cut -d ' ' -f 2)
    echo "$kind: ${runs:-?} inputs in $seconds s, ${covered:-?} branches covered, $found"
done
exit $status
