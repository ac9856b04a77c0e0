#!/usr/bin/env bash
# Suites whose graphs passes rewrite, with other sets of passes: the results must be the same. The names of the
# passes are the program's.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
suites=(pass library_passes autograd golden golden_models golden_optimizer layers models onnx_gradients vision)

prepare()
{
    [ -n "$(passes)" ] || fail "the program names no passes"
}

# The names of the optional passes, one a line.
passes()
{
    WEFT_SKIP=none "$weft" plan gpt 2>&1 | sed -n 's/.*expected \(.*\), all$/\1/p' | sed 's/, /\n/g'
}

# without NAME,...: the suites pass without these passes.
without()
{
    expect 0 "Run Summary" env WEFT_SKIP="$1" "$build/tests/weft_tests" "${suites[@]}"
}

# all_but NAME: all passes but one.
all_but()
{
    passes | grep -vx "$1" | paste -s -d ,
}

case_each_pass_is_left_out()
{
    for pass in $(passes); do without "$pass"; done
}

case_each_pass_is_alone()
{
    for pass in $(passes); do without "$(all_but "$pass")"; done
}

case_no_pass_at_all()
{
    suites+=(ops op_gradients)
    without all
}

run_cases
