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

[ $failures -eq 0 ] && echo "runs: all as expected"
exit $((failures > 0))
