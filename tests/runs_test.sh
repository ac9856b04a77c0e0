#!/usr/bin/env bash
# The folder of a run: what `weft train` leaves alone, what it goes on with, and what it refuses.
# Usage: runs_test.sh PATH_OF_WEFT
set -uo pipefail
weft=$(realpath "$1")
data=$(realpath "$(dirname "$0")/../tools/data/bible-en-es")
tests=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# shellcheck source=tests/expect.sh
. "$tests/expect.sh"
export OMP_WAIT_POLICY=passive

for l in en es; do
    head -n 120 "$data/train.$l" >"train.$l"
    head -n 20 "$data/valid.$l" >"valid.$l"
done
small=(d_model=16 heads=2 d_ff=32 --vocab 200 --batch-tokens 256 --warmup 5 --measure=false --threads 1
    --log-every 1)
text=("$weft" train gpt --text train.en --valid-text valid.en "${small[@]}" layers=1)

# ---- Closed descriptors ----
# Nothing that the program opens takes the place of a standard stream.
closed()
{
    case $1 in *0*) exec <&- ;; esac
    case $1 in *1*) exec >&- ;; esac
    case $1 in *2*) exec 2>&- ;; esac
    shift
    exec "$@"
}
for which in 0 1 2 01 02 12 012; do
    (closed $which "${text[@]}" --json --steps 3 --out closed-$which) >log 2>&1
    status=$?
    case $which in
    *1*) [ $status -eq 1 ] || fail "with $which closed the status is $status, expected 1" ;;
    *)
        [ $status -eq 0 ] || fail "with $which closed the status is $status: $(cat log)"
        others=$(grep -vc '^{"step":[0-9]*,.*}$' closed-$which/metrics.jsonl)
        [ "$others" -eq 0 ] || fail "with $which closed $others other lines are among the metrics"
        expect 0 "finished after 3" "${text[@]}" --steps 3 --out closed-$which --resume
        ;;
    esac
done
expect 1 "" closed 1 "$weft" ops
expect 1 "-: cannot be read: Bad file descriptor" closed 0 "$weft" score - train.en

# ---- Damaged files ----
# damaged TEXT MESSAGE: a recipe as printf would write it, what is said about it
damaged()
{
    printf "$1" >damaged.json
    expect 1 "damaged.json: $2" "$weft" train damaged.json --out damaged --steps 1
}
recipe='{"model": "gpt", "data": {"text": "train.en"}}'
damaged "$recipe"'\n\0garbage' "is not JSON, near line 2"
damaged "$recipe garbage" "is not JSON, near line 1"
damaged "$recipe"'\n\n\001' "is not JSON, near line 3"
damaged '{"model":\013"gpt"}' "is not JSON, near line 1"
damaged '{"about": "a\ttab"}' "is not JSON, near line 1"
damaged '{"about": "a \\u0000 byte"}' "is not JSON, near line 1"
damaged '{"model": "gpt\\\\u0000"}' 'there is no model "gpt'
[ -e damaged ] && fail "a refused recipe has made a folder"
# Lines that are none are left out of the metrics, those around them stay.
cp -r closed-0 lines
printf '{"step":1}garbage\n\0\0\n{"step":2,"lo' >lines/metrics.jsonl
cat closed-0/metrics.jsonl >>lines/metrics.jsonl
tail -n +2 closed-0/metrics.jsonl >wanted
expect 0 "finished after 3" "${text[@]}" --steps 3 --out lines --resume
cmp wanted lines/metrics.jsonl || fail "the metrics are not those of whole lines"
printf '{"step":3}\0\n' >>lines/metrics.jsonl
expect 1 "lines/metrics.jsonl: line $(wc -l <lines/metrics.jsonl) is not JSON" "$weft" plot lines -o x.svg

[ $failures -eq 0 ] && echo "runs: all as expected"
exit $((failures > 0))
