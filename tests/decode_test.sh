#!/usr/bin/env bash
# weft translate, generate and score from outside. Usage: decode_test.sh PATH_OF_WEFT MAKE_RUN
set -uo pipefail
weft=$(realpath "$1")
make_run=$(realpath "$2")
make_vocabulary=$(dirname "$make_run")/make_vocabulary
data=$(realpath "$(dirname "$0")/../tools/data/bible-en-es")
tests=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# shellcheck source=tests/expect.sh
. "$tests/expect.sh"
input=in

# equal WHAT A B: two outputs that must be one.
equal()
{
    [ "$2" = "$3" ] && return
    echo "failed: $1"
    diff <(echo "$2") <(echo "$3") | head -n 5
    failures=$((failures + 1))
}

head -n 300 "$data/train.en" >a.en
head -n 300 "$data/train.es" >a.es
: >in
sizes="d_model=32 heads=2 d_ff=64"
# shellcheck disable=SC2086
expect 0 "saved" "$weft" train --source a.en --target a.es --valid-source a.en --valid-target a.es \
    --vocab 400 --batch-tokens 256 --warmup 5 --steps 10 --out run $sizes encoder_layers=1 decoder_layers=1
{ sed -n 301,309p "$data/train.en"; echo; echo "God."; } >in

echo "God." >short
greedy=$("$weft" translate run <in)
equal "a line out for each line in" "$(wc -l <<<"$greedy")" 11
equal "the empty line stays empty" "$(sed -n 10p <<<"$greedy")" ""
equal "a beam of one is greedy" "$("$weft" translate run --beam 1 --batch 3 --threads 1 <in)" "$greedy"
equal "caches change nothing" "$("$weft" translate run --recompute <in)" "$greedy"
equal "nor do chunks" "$("$weft" translate run --chunk 2 <in)" "$greedy"
beam=$("$weft" translate run --beam 3 --length-penalty 1 <in)
equal "beams in batches" "$("$weft" translate run --beam 3 --length-penalty 1 --batch 2 --threads 1 <in)" "$beam"
best=$("$weft" translate run --beam 3 --length-penalty 1 --nbest 3 <in)
equal "three for each line that is not empty" "$(wc -l <<<"$best")" 30
equal "the best first" "$(awk -F ' [|][|][|] ' '$1 != l {print $2} {l = $1}' <<<"$best")" \
    "$(grep . <<<"$beam")"
sample=(translate run --sample --seed 5 --top-k 50 --top-p 0.9 --temperature 0.8)
drawn=$("$weft" "${sample[@]}" <in)
equal "a seed's text" "$("$weft" "${sample[@]}" --batch 2 --threads 1 <in)" "$drawn"
[ "$("$weft" "${sample[@]}" --seed 6 <in)" != "$drawn" ] || equal "another seed's text" "the same" "another"
expect 0 "tokens/s" "$weft" translate run --stats
expect 0 "had more than 8 tokens and were cut" "$weft" translate run --max-source 8
equal "at most three tokens" "$("$weft" translate run --max-length 3 <in | awk 'NF > 3' | wc -l)" 0
equal "a carriage return within a line is white space" \
    "$(printf 'In the\rbeginning\r\nGod.' | "$weft" translate run)" "$(printf 'In the beginning\nGod.\n' | "$weft" translate run)"
printf 'caf\xE9\nGod.\n' >latin1
input=latin1 expect 0 "1 of 2 lines are not UTF-8" "$weft" translate run
found_of()
{
    "$@" --stats 2>&1 | sed -n 's/.* lines, \([0-9]*\) tokens.*/\1/p'
}
[ "$(echo "God." | found_of "$weft" translate run --min-length 40)" -ge 40 ] || fail "--min-length is not kept"
expect 2 "is not below --max-length" "$weft" translate run --min-length 9 --max-length 9
expect 2 "one only" "$weft" translate run --sample --beam 2
expect 2 "are of --sample" "$weft" translate run --top-k 3
expect 2 "is more than --beam" "$weft" translate run --beam 2 --nbest 3
expect 2 "--beam must be a whole number" "$weft" translate run --beam none
expect 2 "is none of first|bound" "$weft" translate run --stop never
expect 1 "no/such" "$weft" translate run --checkpoint no/such
cp run/model.safetensors run/best.safetensors && head -c 500 run/model.safetensors >cut &&
    mv cut run/model.safetensors
equal "the best checkpoint is taken" "$("$weft" translate run <in)" "$greedy"
expect 1 "model.safetensors" "$weft" translate run --checkpoint run/model.safetensors
if command -v gnuplot >/dev/null; then
    expect 0 "" "$weft" translate run --attention map.svg --layer 0 --head 1
    grep -q "</svg>" map.svg || equal "a picture" "none" "one"
    expect 1 "no such layer" "$weft" translate run --attention map.svg --layer 7
    expect 1 "no such head" "$weft" translate run --attention map.svg --head 7
    for i in $(seq 20); do echo "'5%\\\" a"; done >signs
    expect 0 "saved" "$weft" train --source signs --target signs --vocab-type char --vocab 20 --batch-tokens 64 \
        --steps 1 --measure=false --out signs-run d_model=16 heads=2 d_ff=32 encoder_layers=1 decoder_layers=1
    head -n 1 signs >sign
    input=sign expect 0 "" "$weft" translate signs-run --attention signs.svg --max-length 2
    for label in "'" 5 % "\\" '"' a; do
        grep -qF "<text>$label</text>" signs.svg || fail "no label $label in an attention map"
    done
    input=/dev/null expect 0 "not drawn" "$weft" translate run --attention none.svg
    input=short expect 0 "" "$weft" translate run --attention short.svg --max-length 1
    [ "$(grep -c '<polygon\|<path.*fill' short.svg)" -ge 1 ] || fail "a map of few cells is empty"
fi

for model in gpt llama; do
    mkdir $model && cp run/vocab.model $model
    # shellcheck disable=SC2086
    "$make_run" $model/model.safetensors $model vocab=400 $sizes layers=1 kv_heads=1 || failures=$((failures + 1))
    one=$("$weft" generate $model --prompt "In the beginning" --tokens 12 --seed 4 --n 2)
    equal "two texts" "$(wc -l <<<"$one")" 2
    equal "both from the prompt" "$(grep -c '^In the beginning' <<<"$one")" 2
    equal "a seed's text" "$("$weft" generate $model --prompt "In the beginning" --tokens 12 --seed 4 --n 2 --threads 1)" "$one"
    lines=$("$weft" generate $model --tokens 9 --temperature 0 <in)
    equal "a line for each prompt" "$(wc -l <<<"$lines")" 11
    equal "in any batch" "$("$weft" generate $model --tokens 9 --temperature 0 --batch 2 --recompute <in)" "$lines"
    equal "by a beam" "$("$weft" generate $model --tokens 9 --beam 1 <in)" "$lines"
    expect 1 "see \`weft generate\`" "$weft" translate $model
    equal "a prompt as it was given" "$("$weft" generate $model --prompt "a ☃ b" --tokens 3 | grep -c '^a ☃ b')" 1
    long=$(sed -n 1,40p "$data/train.en" | tr '\n' ' ')
    equal "a long prompt leaves room" \
        "$(found_of "$weft" generate $model --prompt "$long" --tokens 64 --min-length 63)" 64
done
# A model that was trained on 16 tokens a row attends to as many, however long its text becomes.
# shellcheck disable=SC2086
expect 0 "saved" "$weft" train gpt --text a.en --vocab 400 --batch-tokens 256 --warmup 5 --steps 10 \
    --measure=false --out few $sizes layers=1 length=16
long=("$weft" generate few --tokens 60 --min-length 59 --seed 3)
for way in "--temperature 0" "--n 3" "--n 2 --no-repeat 2"; do
    # shellcheck disable=SC2086
    text=$("${long[@]}" $way <in)
    # shellcheck disable=SC2086
    equal "windows in any batch ($way)" "$("${long[@]}" $way --batch 3 --threads 1 <in)" "$text"
    # shellcheck disable=SC2086
    equal "windows without caches ($way)" "$("${long[@]}" $way --recompute <in)" "$text"
done
text=$("${long[@]}" --temperature 0 --prompt "God")
equal "all tokens of several windows" "$(found_of "${long[@]}" --prompt "God")" 60
equal "the context is what it was trained on" "$("${long[@]}" --temperature 0 --prompt "God" --context 16)" "$text"
[ "$("${long[@]}" --temperature 0 --prompt "God" --context 80)" != "$text" ] || fail "--context changes nothing"
short=$("$weft" generate few --tokens 12 --min-length 11 --temperature 0 --prompt "God")
[[ $text == "$short"* ]] || fail "a longer text begins otherwise: $text / $short"
expect 0 "1 texts end after 16 tokens" "$weft" generate few --tokens 60 --min-length 59 --beam 2 --prompt "God"
expect 1 "has learned 512 positions, not 1000" "$weft" generate few --context 1000 --prompt "God"
for model in rnn lstm gru; do
    mkdir $model && cp run/vocab.model $model
    "$make_run" $model/model.safetensors $model vocab=400 width=16 hidden=16 || failures=$((failures + 1))
    lines=$("$weft" generate $model --tokens 9 --temperature 0 <in)
    equal "a line for each prompt" "$(wc -l <<<"$lines")" 11
    equal "in any batch, without states" "$("$weft" generate $model --tokens 9 --temperature 0 --batch 2 --recompute <in)" "$lines"
done
for attention in none additive dot general; do
    model=seq2seq-$attention
    mkdir "$model" && cp run/vocab.model "$model"
    "$make_run" "$model/model.safetensors" seq2seq vocab=400 width=16 hidden=16 attention=$attention ||
        failures=$((failures + 1))
    lines=$("$weft" translate "$model" --beam 2 --max-length 12 <in)
    equal "a line for each source" "$(wc -l <<<"$lines")" 11
    equal "without states" "$("$weft" translate "$model" --beam 2 --max-length 12 --batch 2 --recompute <in)" "$lines"
done
mkdir bert && cp run/vocab.model bert
# shellcheck disable=SC2086
"$make_run" bert/model.safetensors bert vocab=400 $sizes layers=1 || failures=$((failures + 1))
expect 1 "is no model that says one token after another" "$weft" generate bert --prompt x
expect 1 "see \`weft translate\`" "$weft" generate run --prompt x
expect 2 "is more than --beam" "$weft" generate gpt --beam 2 --n 3
expect 2 "finds one text, not 3" "$weft" generate gpt --temperature 0 --n 3
expect 2 "is not below --tokens" "$weft" generate gpt --tokens 8 --min-length 8
expect 2 "draws nothing" "$weft" generate gpt --beam 2 --top-p 0.5
# Two vocabularies of unequal size: what only the source has is never said.
mkdir apart && head -n 60 a.en >few.en && head -n 60 a.es >few.es
expect 0 "saved" "$weft" train --source few.es --target few.en --valid-source few.es --valid-target few.en \
    --vocab 200 --vocab-type char --shared-vocab=false --lengths 512 --truncate --batch-tokens 1024 --steps 1 \
    --measure=false --out apart d_model=16 heads=2 d_ff=32 encoder_layers=1 decoder_layers=1 tied=0
uniform=("$weft" translate apart --sample --temperature 1e6 --min-length 79 --max-length 80)
text=$(LC_ALL=C.UTF-8 "${uniform[@]}" <short 2>/dev/null | LC_ALL=C.UTF-8 wc -m)
# A token is a character; the space at the beginning is left out.
[ "$text" -ge 80 ] || fail "of 80 characters $text came out"

# A vocabulary that can say any byte: a line for each line all the same.
mkdir bytes-gpt bytes-transformer
"$make_vocabulary" a.en bytes-gpt/vocab.model && cp bytes-gpt/vocab.model bytes-transformer || fail "no vocabulary"
# shellcheck disable=SC2086
"$make_run" bytes-gpt/model.safetensors gpt vocab=400 $sizes layers=1 || failures=$((failures + 1))
# shellcheck disable=SC2086
"$make_run" bytes-transformer/model.safetensors transformer vocab=400 $sizes encoder_layers=1 decoder_layers=1 ||
    failures=$((failures + 1))
# controls FILE: how many control bytes it has beside line ends
controls()
{
    LC_ALL=C tr -d -c '\000-\010\013-\037\177' <"$1" | wc -c
}
"$weft" generate bytes-gpt --temperature 1e6 --min-length 199 --tokens 200 <in >said
equal "a line for each prompt, whatever is said" "$(wc -l <said)" 11
equal "no control bytes" "$(controls said)" 0
[ "$(wc -c <said)" -ge 1500 ] || fail "$(wc -c <said) bytes of at least 2,000 tokens came out"
"$weft" translate bytes-transformer --sample --temperature 1e6 --min-length 199 --max-length 200 --nbest 2 <in >said
equal "two lines for each source, whatever is said" "$(grep -c '^[0-9]* [|][|][|] .* [|][|][|] -[0-9.]*$' said)" 20
equal "no others" "$(wc -l <said)" 20
equal "no control bytes" "$(controls said)" 0
equal "a prompt of two lines" "$("$weft" generate gpt --prompt $'a\nb' --tokens 3 | grep -c '^a b')" 1

expect 0 "BLEU = 100.00 100.0/100.0/100.0/100.0 (BP = 1.000 ratio = 1.000" "$weft" score a.es a.es
expect 0 "nrefs:2|case:lc|eff:no|tok:13a|smooth:exp|version:weft-" "$weft" score a.es a.es a.en --lowercase
expect 0 "chrF2++ = 100.00" "$weft" score a.es a.es --plus
expect 0 '"bleu":	100' "$weft" score a.es a.es --json
equal "case counts, but not in lower case" "$("$weft" score <(tr a-z A-Z <a.es) a.es --json | grep -c '"bleu":	100')" 0
expect 1 "has 299 lines, a.es has 300" "$weft" score a.es <(head -n 299 a.es)
expect 1 "missing: cannot be opened" "$weft" score a.es missing
expect 2 "REFERENCES are needed" "$weft" score a.es
expect 2 "can be one file only" "$weft" score - -
expect 0 "hyp_len = 2 ref_len = 2" "$weft" score <(printf 'a\rb\n') <(printf 'a b\n')
[ $failures -eq 0 ] && echo "decoding: all as expected"
exit $((failures > 0))
