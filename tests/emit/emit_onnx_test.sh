#!/usr/bin/env bash
# What weft_emit writes of ONNX's test cases compiles without warnings and has the bits of libweft: each case that the
# library imports, of Debian's libonnx-testdata and of tests/golden/onnx.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
# shellcheck source=tests/emit/compile.sh
. "$tests/emit/compile.sh"
data=/usr/share/libonnx-testdata/data

prepare()
{
    need_program onnx_conformance
    mkdir newer cases
    for folder in newer cases; do cp "$tests/emit/emit_driver.h" "$folder"; done
    "$build/tests/emit_cases" newer --onnx "$tests/golden/onnx" >newer.txt || fail "emit_cases newer"
    [ ! -d "$data" ] || "$build/tests/emit_cases" cases --onnx "$data" >cases.txt || fail "emit_cases cases"
}

# Each case that is imported is written: docs/emit.md says so.
case_all_cases_are_written()
{
    ! grep -h '^refused: ' newer.txt cases.txt 2>/dev/null || fail "these cases are refused"
}

case_newer_cases_by_gcc()
{
    cases_by newer 114 gcc -std=c99 -O1 "${warnings[@]}"
}

case_newer_cases_by_clang()
{
    cases_by newer 114 clang -std=c99 -O1 "${warnings[@]}"
}

case_newer_cases_without_undefined_behaviour()
{
    cases_by newer 114 gcc -std=c99 -O0 -g -fsanitize=address,undefined -fno-sanitize-recover=all
}

case_debians_cases_by_gcc()
{
    [ -d "$data" ] || skip "libonnx-testdata is not installed"
    cases_by cases 1041 gcc -std=c99 -O1 "${warnings[@]}"
}

# That clang computes the same is tested above, and op by op in emit_test.sh.
case_clang_warns_of_none_of_debians_cases()
{
    [ -d "$data" ] || skip "libonnx-testdata is not installed"
    command -v clang >/dev/null || skip "clang is not installed"
    cd cases && printf '%s\n' ./*.c | xargs -P "$(nproc)" -n 64 clang -std=c99 -fsyntax-only "${warnings[@]}" >errors.txt 2>&1 ||
        { fail "clang:"; head -n 20 errors.txt; }
}

run_cases
