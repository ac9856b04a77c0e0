#!/usr/bin/env bash
# Suites with the kernels of lower instruction sets than this processor's.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"

# with NAME SUITE...: the suites of kernels, and these, pass with kernels up to this instruction set. What models compute
# is in the hashes and in `weft check --bits` above.
with()
{
    WEFT_ISA=$1 "$weft" info | grep -q "^isa  *$1\b" || skip "this processor has no $1"
    ! "$weft" info | grep -q "^isa  *$1\b" || skip "all other tests are with the kernels of $1"
    expect 0 "Run Summary" env WEFT_ISA="$1" "$build/tests/weft_tests" "${@:2}" ops ops_cases golden attention conv \
        conv_cases quantize precision sums moments random sort fusion
}

# Results are the recorded ones, with each instruction set of this processor. After a change of docs/arithmetic.md,
# record them again: build/tests/result_hashes >tests/golden/hashes.txt.
case_the_same_bits_with_each_instruction_set()
{
    local isa
    for isa in base v3 v4 v4_bf16 v4_amx; do
        WEFT_ISA=$isa "$weft" info | grep -q "^isa  *$isa\b" || continue
        WEFT_ISA=$isa "$build/tests/result_hashes" >"$isa" || fail "hashes with $isa"
        cmp "$isa" "$tests/golden/hashes.txt" || fail "$(diff "$tests/golden/hashes.txt" "$isa" | head -n 6)"
        WEFT_ISA=$isa "$weft" check --bits >models || fail "$(grep -v "as specified" models)"
        [ "$(grep -c "as specified" models)" = $((1 + $("$weft" models | grep -c "^[a-z]"))) ] || fail "$(cat models)"
    done
}

case_info_says_whether_bits_are_the_same()
{
    expect 0 "bits         the same on every processor" "$weft" info
    expect 0 "emulated" env WEFT_ISA=base "$weft" info
    "$weft" info --json | grep -A 1 '"name":.*"openblas"' | grep -q '"available":.*true' || return 0
    expect 0 "bits         those of a library" env WEFT_GEMM=openblas "$weft" info
}

# Fused multiply-adds are emulated here: it takes minutes. The suite exact has a test of its own, exact_base.
case_base()
{
    with base
}

case_v3()
{
    with v3 exact
}

case_v4()
{
    with v4 exact
}

run_cases
