#!/usr/bin/env bash
# Suites with the libraries of matrix products that are installed. The names are the program's.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"

# with NAME: the suites pass with this backend.
with()
{
    "$weft" info --json | grep -A 1 "\"name\":.*\"$1\"" | grep -q '"available":.*true' ||
        skip "$1 is not installed"
    expect 0 "Run Summary" env WEFT_GEMM="$1" "$build/tests/weft_tests" ops golden plan counts threads precision hooks
}

case_openblas()
{
    with openblas
}

case_onednn()
{
    with onednn
}

case_no_other_backend_is_left_out()
{
    equal "backends" "$("$weft" info --json | sed -n 's/^.*"name":.*"\(.*\)",$/\1/p' | paste -s -d ' ')" \
        "weft openblas onednn"
}

run_cases
