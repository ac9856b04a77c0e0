#!/usr/bin/env bash
# Suites with the kernels of lower instruction sets than this processor's.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"

# with NAME: the suites of ops and models pass with kernels up to this instruction set.
with()
{
    WEFT_ISA=$1 "$weft" info | grep -q "^isa  *$1\b" || skip "this processor has no $1"
    expect 0 "Run Summary" env WEFT_ISA="$1" "$build/tests/weft_tests" ops ops_cases golden golden_models \
        golden_optimizer attention conv conv_cases quantize quantized_models precision sums moments vision \
        recurrent random sort decode fusion plan models autograd
}

case_base()
{
    with base
}

case_v3()
{
    with v3
}

case_v4()
{
    with v4
}

run_cases
