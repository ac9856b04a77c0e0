#!/usr/bin/env bash
# weft generate and chat with --match, --json and --json-schema: JSON of random models is always valid, windows, beams,
# what is refused, and patterns that take too long.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
export OMP_NUM_THREADS=2

# Two models that learned next to nothing, with a published tokeniser and one of weft's.
prepare()
{
    need_program tokenizer_ids
    head -n 200 "$data/train.en" >train.en
    small=(d_model=32 heads=2 d_ff=64 layers=1 --batch-tokens 256 --warmup 2 --steps 5 --measure=false)
    cp "$tests/golden/tokenizers/gpt2.json" tokenizer.json
    expect 0 "saved" "$weft" train gpt --text train.en "${small[@]}" positions=sinusoidal --vocab-file tokenizer.json --out json
    expect 0 "saved" "$weft" train gpt --text train.en "${small[@]}" positions=sinusoidal --vocab 300 --out piece
    mkdir chat
    cp json/* tokenizer.json chat
    echo '{% for m in messages %}{{ m.content }}{% endfor %}' >chat/chat_template.jinja
    cat >schema.json <<'END'
{"$defs": {"node": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 4},
  "ok": {"type": "boolean"}, "n": {"type": "integer", "minimum": -3, "maximum": 120},
  "kind": {"enum": ["a\"b", "ü☃", 3]}, "more": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 1}},
  "required": ["name", "n", "kind"]}}, "$ref": "#/$defs/node"}
END
}

# Texts of standard input, one a line after a prompt of as many characters: each is JSON with the members of the schema.
check_json()
{
    python3 - "$1" <<'END'
import json, sys
def check(x):
    assert list(x) == [k for k in ("name", "ok", "n", "kind", "more") if k in x], x
    assert isinstance(x["name"], str) and len(x["name"]) <= 4, x
    assert type(x["n"]) is int and -3 <= x["n"] <= 120, x
    assert x["kind"] in ('a"b', "ü☃", 3), x
    assert type(x.get("ok", True)) is bool, x
    for y in x.get("more", []):
        check(y)
texts = open("texts", encoding="utf-8").read().splitlines()
assert len(texts) == int(sys.argv[1]), len(texts)
for text in texts:
    check(json.loads(text[2:]))
assert len(set(texts)) > len(texts) // 2
END
    equal "the check of JSON" $? 0
}

case_json_of_random_models_is_valid()
{
    printf 'I:\n%.0s' 1 2 3 4 5 | "$weft" generate json --json-schema schema.json --tokens 600 --n 2 --seed 3 --temperature 1 >texts 2>errors
    equal "the status" $? 0
    equal "errors" "$(cat errors)" ""
    check_json 10
}

# The context is far shorter than the text, so the answer moves from window to window.
case_texts_of_several_windows()
{
    "$weft" generate json --prompt I: --match '([a-z]{5,9} ){40}end' --context 16 --tokens 2000 --n 3 --seed 2 >texts
    equal "texts" "$(grep -cE '^I:([a-z]{5,9} ){40}end$' texts)" 3
    "$weft" generate json --prompt I: --match '([a-z]{5,9} ){40}end' --context 16 --tokens 2000 --temperature 0 >texts
    equal "greedy texts" "$(grep -cE '^I:([a-z]{5,9} ){40}end$' texts)" 1
}

# Streams and batches are the same texts.
case_streams_and_batches()
{
    "$weft" generate json --json --tokens 60 --seed 5 --batch 1 --prompt 'In the' >alone 2>/dev/null
    "$weft" generate json --json --tokens 60 --seed 5 --stream --prompt 'In the' >streamed 2>/dev/null
    equal "a stream" "$(cat streamed)" "$(cat alone)"
    printf '%s\n' 'In the' 'God' 'And it' 'a' 'In the end' >lines
    "$weft" generate json --json --tokens 60 --seed 5 --batch 5 <lines >batch 2>errors
    "$weft" generate json --json --tokens 60 --seed 5 --batch 1 --threads 1 <lines >single 2>/dev/null
    equal "a batch" "$(cat batch)" "$(cat single)"
    equal "the first line" "$(head -n 1 batch)" "$(cat alone)"
}

case_every_character_of_a_pattern()
{
    expect 0 "a: €😀é☃" "$weft" generate json --prompt 'a:' --match ' €😀é☃' --seed 1
    expect 0 "a: €😀é☃" "$weft" generate json --prompt 'a:' --match ' €😀é☃' --temperature 0 --top-k 1
    expect 0 "a:yes" "$weft" generate piece --prompt 'a:' --match 'yes' --top-p 0.01
    expect 0 '"ended":"end"' "$weft" generate json --prompt 'a:' --match 'yes|no' --logprobs
}

case_texts_that_are_cut_are_reported()
{
    expect 0 "texts that end before they match, with the last of their tokens (--tokens): 1" "$weft" generate json --prompt a --match '[a-z]{500}' --tokens 8
}

case_refused()
{
    expect 2 "give one" "$weft" generate json --prompt a --json --match a
    expect 2 "excludes" "$weft" generate json --prompt a --json --beam 2
    expect 1 "--match: missing closing parenthesis, at byte 1" "$weft" generate json --prompt a --match '('
    expect 1 "missing.json" "$weft" generate json --prompt a --json-schema missing.json
    echo '{"properties": {"a": {"not": {}}}}' >not.json
    expect 1 'not.json: #/properties/a: the keyword "not" is unsupported' "$weft" generate json --prompt a --json-schema not.json
    expect 1 "takes too many steps" "$weft" generate json --prompt a --match '([a-z ]|[a-y ])+1' --tokens 500
    # The vocabulary of weft's lacks this character.
    expect 1 "no token of the vocabulary can continue the text" "$weft" generate piece --prompt a --match '鶁'
}

case_chats()
{
    local answer
    printf '%s\n' "And God said" "In the beginning" | "$weft" chat chat --json-schema schema.json --tokens 200 --context 250 \
        --temperature 1 --seed 4 >answers 2>errors
    sed 's/^/I:/' answers >texts
    check_json 2
    answer=$("$weft" chat chat --message "And God said" --match '(yes|no), [A-Z]{3}!' --tokens 100 --temperature 0)
    grep -qE '^(yes|no), [A-Z]{3}!$' <<<"$answer" || fail "the answer $answer"
    expect 2 "give one" "$weft" chat chat --message a --json --match a
}

run_cases
