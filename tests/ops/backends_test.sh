#!/usr/bin/env bash
# Suites with the libraries of matrix products that are installed. The names are the program's.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"

# with NAME SUITE...: the suites that multiply matrices, and these, pass with this backend.
with()
{
    "$weft" info --json | grep -A 1 "\"name\":.*\"$1\"" | grep -q '"available":.*true' ||
        skip "$1 is not installed"
    expect 0 "Run Summary" env WEFT_GEMM="$1" "$build/tests/weft_tests" "${@:2}" ops golden plan counts threads hooks
    expect 0 "ok" env WEFT_GEMM="$1" "$weft" check --op matmul
}

case_openblas()
{
    with openblas
}

case_onednn()
{
    with onednn precision # it also multiplies bf16
}

case_no_other_backend_is_left_out()
{
    equal "backends" "$("$weft" info --json | sed -n 's/^.*"name":.*"\(.*\)",$/\1/p' | paste -s -d ' ')" \
        "weft openblas onednn"
}

run_cases
