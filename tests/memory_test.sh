#!/usr/bin/env bash
# The program with little memory: every allocation of a command made to fail once, in turn. Each time
# it either prints all that it should and succeeds, or says in one line that memory is out and exits
# with 1. Usage: memory_test.sh PATH_OF_WEFT_FAILING (tests/failing_malloc.c)
set -uo pipefail
weft=$(realpath "$1")
tests=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# shellcheck source=tests/expect.sh
. "$tests/expect.sh"
export OMP_NUM_THREADS=1

# one_allocation N COMMAND...: in a folder with the good output; prints what came of it.
one_allocation()
{
    local n=$1 status
    shift
    WEFT_FAIL_ALLOCATION=$n "$@" 2>"err.$n" | sed "$times" >"out.$n"
    status=${PIPESTATUS[0]}
    if [ $status -eq 0 ] && cmp -s "out.$n" good; then
        echo survived
    elif [ $status -eq 1 ] && [ "$(wc -l <"err.$n")" -eq 1 ] && grep -qi "^weft: .*memory" "err.$n"; then
        echo reported
    else
        echo "allocation $n: status $status: $(head -c 200 "err.$n" | tr '\n' ' ')"
    fi
    rm "out.$n" "err.$n"
}
export -f one_allocation
export times='s/"seconds":[^,]*,//' # differ from run to run

# every_allocation COMMAND...
every_allocation()
{
    local all survived wrong
    WEFT_FAIL_ALLOCATION=count "$@" 2>count | sed "$times" >good
    if [ "${PIPESTATUS[0]}" -ne 0 ]; then
        fail "$* fails with all its memory: $(tail -n 2 count)"
        return
    fi
    all=$(tail -n 1 count)
    [ "$all" -gt 10 ] || fail "$* made $all allocations, which is too few to be true"
    seq "$all" | xargs -P "$(nproc)" -I{} bash -c 'one_allocation "$@"' - {} "$@" >results
    survived=$(grep -c '^survived$' results)
    wrong=$(grep -cv '^survived$\|^reported$' results)
    [ "$wrong" -eq 0 ] || fail "$*: $wrong of $all failures go wrong: $(grep -m 3 '^allocation' results)"
    # What needs no memory to be right is the exception: buffers of stdio, and the like.
    [ $((4 * survived)) -lt "$all" ] || fail "$*: $survived of $all failures make no difference"
    [ "$(wc -l <results)" -eq "$all" ] || fail "$*: not every run has reported how it ended"
}

printf 'lower,upper,size\n0,4,4\n2,6,4\n4,9,8\n' >list.16.csv
mkdir lists && mv list.16.csv lists
printf 'one line\nanother one\n' >a
printf 'one line\nthe other one\n' >b
every_allocation "$weft" ops --json
every_allocation "$weft" models --json
every_allocation "$weft" models
every_allocation "$weft" models rnn --json
every_allocation "$weft" plan rnn --json
every_allocation "$weft" plan --instances lists --json
every_allocation "$weft" report feed-forward --no-time --json
"$weft" report feed-forward --no-time --json >saved.json
every_allocation "$weft" report saved.json --json
mkdir run
printf '{"model": "gpt", "data": {"valid_source": "a"}}' >run/recipe.json
printf '{"step":1,"loss":2}\n{"step":2,"samples":[{"source":"a","translation":"b","reference":"c"}]}\n' >run/metrics.jsonl
every_allocation "$weft" report run --json
every_allocation "$weft" score a b --json
every_allocation "$weft" score a b --sentences --json
every_allocation "$weft" score a b --against b --samples 10 --json
# ONNX files, unless weft was built without protobuf-c.
make_onnx=$(dirname "$weft")/make_onnx
if [ -x "$make_onnx" ] && "$make_onnx" mlp.onnx; then
    every_allocation "$weft" models mlp.onnx --json
    every_allocation "$weft" plan mlp.onnx --train --json
fi
[ $failures -eq 0 ] && echo "the program without memory: all as expected"
exit $((failures > 0))
