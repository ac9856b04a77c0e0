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
for cache in bf16 u8; do
    equal "keys and values of $cache" "$("$weft" translate run --cache $cache <in | wc -l)" 11
    equal "the same at any number of threads" "$("$weft" translate run --beam 2 --cache $cache --threads 1 --batch 3 <in)" \
        "$("$weft" translate run --beam 2 --cache $cache <in)"
done
expect 2 "--cache is \"f16\", expected f32, bf16 or u8" "$weft" translate run --cache f16
expect 2 "--recompute has no caches" "$weft" translate run --recompute --cache u8
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
input=latin1 expect 0 "not UTF-8 (invalid bytes were read as unknown): line 1" "$weft" translate run
found_of()
{
    "$@" --stats 2>&1 | sed -n 's/.* lines, \([0-9]*\) tokens.*/\1/p'
}
[ "$(echo "God." | found_of "$weft" translate run --min-length 40)" -ge 40 ] || fail "--min-length is not kept"
expect 2 "must be below --max-length" "$weft" translate run --min-length 9 --max-length 9
expect 2 "--sample and --beam exclude each other" "$weft" translate run --sample --beam 2
equal "a beam with a large repetition penalty repeats nothing" \
    "$("$weft" translate run --beam 3 --nbest 3 --max-length 30 --repetition-penalty 1e6 <in)" \
    "$("$weft" translate run --beam 3 --nbest 3 --max-length 30 --no-repeat 1 <in)"
equal "a repetition penalty of 1 is none" "$("$weft" translate run --repetition-penalty 1 <in)" "$greedy"
expect 2 "--repetition-penalty must be a number" "$weft" translate run --repetition-penalty 0
expect 2 "need --sample" "$weft" translate run --top-k 3
expect 2 "is larger than --beam" "$weft" translate run --beam 2 --nbest 3
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
    input=/dev/null expect 0 "cannot be drawn" "$weft" translate run --attention none.svg
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
    equal "a large repetition penalty lets nothing come twice" \
        "$("$weft" generate $model --tokens 30 --temperature 0 --repetition-penalty 1e6 <in)" \
        "$("$weft" generate $model --tokens 30 --temperature 0 --no-repeat 1 <in)"
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
expect 1 "does not predict one token after another" "$weft" generate bert --prompt x
expect 1 "see \`weft translate\`" "$weft" generate run --prompt x
expect 2 "is larger than --beam" "$weft" generate gpt --beam 2 --n 3
expect 2 "generates one text, not 3" "$weft" generate gpt --temperature 0 --n 3
expect 2 "must be below --tokens" "$weft" generate gpt --tokens 8 --min-length 8
expect 2 "--beam samples nothing" "$weft" generate gpt --beam 2 --top-p 0.5
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

# Ensembles. The oracle is the mean of the probabilities that each model prints for single tokens.
mkdir other && cp run/vocab.model other
# shellcheck disable=SC2086
"$make_run" other/step-5.safetensors transformer vocab=400 $sizes encoder_layers=1 decoder_layers=1 norm=post ||
    failures=$((failures + 1))
cp other/step-5.safetensors other/model.safetensors
both=("$weft" translate run --with other)
best=$("$weft" translate run --beam 3 --nbest 3 --max-length 30 <in)
equal "an ensemble of a run with itself" \
    "$("$weft" translate run --with run --with run --beam 3 --nbest 3 --max-length 30 <in)" "$best"
text=$("${both[@]}" --beam 3 --nbest 3 --max-length 30 <in)
[ "$text" != "$best" ] || fail "--with changes nothing"
equal "a checkpoint of a run" "$("$weft" translate run --with other/step-5.safetensors --beam 3 --nbest 3 --max-length 30 <in)" "$text"
equal "an ensemble in any batch" "$("${both[@]}" --beam 3 --nbest 3 --max-length 30 --batch 2 --threads 1 <in)" "$text"
equal "an ensemble without caches" "$("${both[@]}" --beam 3 --max-length 9 --recompute <in)" \
    "$("${both[@]}" --beam 3 --max-length 9 <in)"
# scores OPTION...: TEXT SCORE of every first token that no other one says alike
scores()
{
    "$weft" translate "$@" --beam 397 --nbest 397 --max-length 1 --length-penalty 0 <short |
        awk -F ' [|][|][|] ' '{n[$2]++; s[$2] = $3} END {for (t in n) if (n[t] == 1) print t "\t" s[t]}' |
        LC_ALL=C sort -t $'\t' -k 1,1
}
# means A B W: how many scores of the third file are the log of the mean, with W of A
means()
{
    LC_ALL=C join -t $'\t' <(LC_ALL=C join -t $'\t' a.scores b.scores) "$1" | LC_ALL=C awk -F '\t' -v w="$2" '
        {d = log(w * exp($2) + (1 - w) * exp($3)) - $4; bad += d > 2e-6 || d < -2e-6; apart += $2 - $4 > 0.01 || $4 - $2 > 0.01}
        END {print (bad == 0 && NR > 200 && apart > 100) ? "means" : NR " tokens, " bad " bad, " apart " apart"}'
}
scores run >a.scores
for second in other seq2seq-dot; do
    scores $second >b.scores
    scores run --with $second >both.scores
    equal "probabilities of run and $second" "$(means both.scores 0.5)" "means"
    scores run --with $second --weights 3,1 >both.scores
    equal "weighted probabilities of run and $second" "$(means both.scores 0.75)" "means"
done
equal "three models" "$("$weft" translate run --with other --with seq2seq-dot --max-length 12 <in | wc -l)" 11
for way in "--temperature 0" "--n 2" "--n 1 --stop e"; do
    # shellcheck disable=SC2086
    alone=$("$weft" generate few --tokens 60 --min-length 59 --seed 3 $way <in 2>/dev/null)
    # shellcheck disable=SC2086
    equal "windows of an ensemble with itself ($way)" \
        "$("$weft" generate few --with few --tokens 60 --min-length 59 --seed 3 $way <in 2>/dev/null)" "$alone"
done
[ "$("$weft" generate gpt --with llama --tokens 20 --seed 3 --n 3 --prompt God)" != \
    "$("$weft" generate gpt --tokens 20 --seed 3 --n 3 --prompt God)" ] || fail "--with changes no generated text"
equal "language models of other architectures" "$("$weft" generate gpt --with lstm --with llama --tokens 9 <in | wc -l)" 11
expect 1 "few/vocab.model: differs from the vocabulary gpt/vocab.model" "$weft" generate gpt --with few
expect 1 "run: translates, but gpt in gpt is a language model" "$weft" generate gpt --with run
expect 1 "gpt: is a language model, but transformer in run translates" "$weft" translate run --with gpt
expect 1 "no/such" "$weft" translate run --with no/such
expect 2 "--weights has 3 numbers for 2 models" "$weft" translate run --with other --weights 1,2,3
expect 2 "--weights has 2 numbers for 1 models" "$weft" translate run --weights 1,2
expect 2 "a weight of --weights must be a number" "$weft" translate run --with other --weights 1,0
expect 2 "a weight of --weights must be a number" "$weft" translate run --with other --weights 1,
expect 2 "--attention shows one model" "$weft" translate run --with other --attention map.svg

# Stop texts. The oracle cuts the text that is found without them.
# until_stop TEXT PROMPT STOP...: the text up to the first place behind the prompt where one begins
until_stop()
{
    local found=${1#"$2"} prompt=$2 best=${1#"$2"} cut
    shift 2
    for stop; do
        cut=${found%%"$stop"*}
        [ ${#cut} -ge ${#best} ] || best=$cut
    done
    echo "$prompt$best"
}
long=("$weft" generate few --tokens 60 --min-length 59 --prompt "God said")
for seed in 1 2 3 4 5; do
    text=$("${long[@]}" --seed $seed)
    found=${text#God said}
    # Within the first window of 16 tokens and behind it; across tokens; one that begins within another.
    for places in "3:4" "${#found}-20:5" "${#found}-3:3" "9:9 11:3" "11:3 9:9" "7:1"; do
        stops=() options=()
        for place in $places; do
            stops+=("${found:${place%:*}:${place#*:}}")
            options+=(--stop "${stops[-1]}")
        done
        want=$(until_stop "$text" "God said" "${stops[@]}")
        equal "a text ends before the first stop text" "$("${long[@]}" --seed $seed "${options[@]}")" "$want"
        equal "and does when it is streamed" "$("${long[@]}" --seed $seed --stream "${options[@]}")" "$want"
    done
done
equal "a prompt stops nothing" "$("${long[@]}" --stop "God s")" "$("${long[@]}")"
[ "$(found_of "${long[@]}" --stop e)" -lt 60 ] || fail "a search goes on behind a stop text"
stops=(--tokens 40 --min-length 39 --stop "the" --stop "an")
text=$("$weft" generate few "${stops[@]}" --n 3 --seed 2 <in 2>/dev/null)
equal "stop texts in any batch" "$("$weft" generate few "${stops[@]}" --n 3 --seed 2 --batch 2 --threads 1 <in 2>/dev/null)" "$text"
[ "$text" != "$("$weft" generate few --tokens 40 --min-length 39 --n 3 --seed 2 <in 2>/dev/null)" ] ||
    fail "stop texts end nothing"
equal "texts that have not come to an end reach it" \
    "$("$weft" generate gpt --tokens 9 --stop "no such text" --temperature 0 <in)" \
    "$("$weft" generate gpt --tokens 9 --temperature 0 <in)"
expect 2 "--stop and --beam exclude each other" "$weft" generate few --stop x --beam 2
expect 2 '--stop "" is empty' "$weft" generate few --stop ""
expect 2 'has an escape other than \n, \t and \\' "$weft" generate few --stop '\x'
expect 2 'has an escape other than \n, \t and \\' "$weft" generate few --stop 'end\'
expect 2 "is not UTF-8" "$weft" generate few --stop $'\xe9'

# A model of documents, whose vocabulary keeps line ends and can say any byte.
for i in 1 2 3; do sed -n $((20 * i)),$((20 * i + 15))p "$data/train.en"; echo; done >documents
expect 0 "saved" "$weft" train gpt --text documents --unit document --normalization identity --vocab 400 \
    --batch-tokens 256 --warmup 5 --steps 10 --measure=false --out identity $sizes layers=1 length=16
long=("$weft" generate identity --tokens 80 --temperature 3 --prompt "God ")
ended=0
for seed in $(seq 12); do
    text=$("${long[@]}" --seed "$seed" && echo .) stopped=$("${long[@]}" --seed "$seed" --stop '\n' && echo .)
    [ "${text%%$'\n'*}" = "${stopped%%$'\n'*}" ] || fail "a line end stops elsewhere: $text / $stopped"
    equal "one line" "${stopped#*$'\n'}" $'\n.'
    [ "${text#*$'\n'}" = $'\n.' ] || ended=$((ended + 1))
done
[ $ended -gt 0 ] || fail "no text has a line end"
expect 2 "must be below --tokens" "$weft" generate identity --tokens 8 --min-length 8 --stop '\\'

# Streamed texts are the bytes of others.
for model in few identity bytes-gpt; do
    for temperature in 0 1 1e6; do
        for stops in "" "--stop e --stop he"; do
            # shellcheck disable=SC2206
            plain=("$weft" generate $model --tokens 90 --min-length 80 --temperature $temperature --seed 4 $stops)
            "${plain[@]}" <in >plain 2>/dev/null
            "${plain[@]}" --stream <in >streamed 2>/dev/null
            cmp plain streamed || fail "$model at $temperature $stops: streamed text differs"
            "${plain[@]}" --prompt "  two blanks  " >plain
            "${plain[@]}" --prompt "  two blanks  " --stream >streamed
            cmp plain streamed || fail "$model at $temperature $stops: streamed text behind blanks differs"
        done
    done
done
"$weft" generate bytes-gpt --tokens 900 --temperature 1e6 --prompt a --stream >streamed
LC_ALL=C.UTF-8 grep -qP '[\x{80}-\x{FFFC}]' streamed || fail "no character of several byte pieces was streamed"
if command -v python3 >/dev/null; then
    # Each write, which is a packet here, ends with a whole character, and there are many of them.
    pieces='
import socket, subprocess, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
child = subprocess.Popen(sys.argv[1:], stdout=theirs)
theirs.close()
n = 0
while piece := ours.recv(65536):
    piece.decode()
    n += 1
print("many" if n > 9 else n)'
    for model in few identity bytes-gpt; do
        equal "$model is streamed" "$(python3 -c "$pieces" "$weft" generate $model --tokens 300 --min-length 299 \
            --temperature 1e6 --prompt a --stream)" "many"
    done
    # On a terminal it is the default: for --prompt, and for prompts typed in.
    terminal=(python3 "$tests/terminal.py")
    long=("$weft" generate few --tokens 2000 --min-length 1999 --seed 7)
    "${long[@]}" --prompt "God" >plain
    "${terminal[@]}" "${long[@]}" --prompt "God" </dev/null >streamed
    equal "on a terminal" "$(cat streamed)" "$(cat plain; echo "many writes")"
    "${long[@]}" <in >plain 2>/dev/null
    "${terminal[@]}" "${long[@]}" <in >streamed 2>/dev/null
    equal "prompts typed in" "$(cat streamed)" "$(cat plain; echo "many writes")"
    "${terminal[@]}" "${long[@]}" --tokens 200 --min-length 199 --n 2 --prompt "God" </dev/null >streamed
    equal "two texts come at once" "$(tail -n 1 streamed)" "one write"
fi
expect 2 "--n, --batch and --chunk must be 1" "$weft" generate few --stream --n 2
expect 2 "--n, --batch and --chunk must be 1" "$weft" generate few --stream --batch 2
expect 2 "--n, --batch and --chunk must be 1" "$weft" generate few --stream --chunk 2
expect 2 "--stream and --beam exclude each other" "$weft" generate few --stream --beam 2

expect 0 "BLEU = 100.00 100.0/100.0/100.0/100.0 (BP = 1.000 ratio = 1.000" "$weft" score a.es a.es
expect 0 "nrefs:2|case:lc|eff:no|tok:13a|smooth:exp|version:weft-" "$weft" score a.es a.es a.en --lowercase
expect 0 "chrF2++ = 100.00" "$weft" score a.es a.es --plus
expect 0 '"bleu":	100' "$weft" score a.es a.es --json
equal "case counts, but not in lower case" "$("$weft" score <(tr a-z A-Z <a.es) a.es --json | grep -c '"bleu":	100')" 0
expect 1 "has 299 lines, a.es has 300" "$weft" score a.es <(head -n 299 a.es)
expect 1 "missing: cannot be opened" "$weft" score a.es missing
expect 2 "at least one of REFERENCES" "$weft" score a.es
expect 2 "can be one file only" "$weft" score - -
expect 0 "hyp_len = 2 ref_len = 2" "$weft" score <(printf 'a\rb\n') <(printf 'a b\n')
# ---- Alignments ----
# bad_pairs FILE SOURCES TEXTS: how many lines of FILE are no pairs of words that are there, J ascending
bad_pairs()
{
    paste -d '|' "$1" "$2" "$3" | awk -F '|' '{
        bad = $1 !~ /^([0-9]+-[0-9]+( [0-9]+-[0-9]+)*)?$/
        n = split($1, pair, " "); last = -1
        for (k = 1; k <= n; k++) {
            split(pair[k], of, "-")
            if (of[1] + 0 >= split($2, words, " ") || of[2] + 0 >= split($3, words, " ") || of[2] + 0 <= last) bad = 1
            last = of[2] + 0
        }
        wrong += bad
    } END {print wrong + 0}'
}
"$weft" translate run --alignments pairs <in >out
equal "alignments change no translation" "$(cat out)" "$greedy"
equal "a line of pairs for each line" "$(wc -l <pairs)" 11
equal "none for an empty line" "$(sed -n 10p pairs)" ""
equal "pairs of words" "$(bad_pairs pairs in out)" 0
[ "$(wc -w <pairs)" -ge 9 ] || fail "$(wc -w <pairs) pairs only"
"$weft" translate run --alignments pairs2 --batch 3 --threads 1 --chunk 2 <in >out
cmp pairs pairs2 || fail "alignments depend on the batch"
"$weft" translate run --alignments pairs2 --head 1 <in >out
cmp -s pairs pairs2 && fail "--head changes no alignment"
"$weft" translate run --alignments pairs --beam 3 <in >out
"$weft" translate run --alignments pairs2 --beam 3 --nbest 3 <in >out
cmp pairs pairs2 || fail "alignments are not those of the best"
input=in expect 1 "no such layer" "$weft" translate run --alignments pairs --layer 7
input=in expect 1 "no such head" "$weft" translate run --alignments pairs --head 7
input=in expect 1 "no such layer" "$weft" translate seq2seq-none --alignments pairs
input=in expect 1 "no/pairs: cannot be written: No such file" "$weft" translate run --alignments no/pairs
input=in expect 2 "standard output has the translations" "$weft" translate run --alignments -
[ ! -w /dev/full ] || input=in expect 1 "/dev/full: cannot be written" "$weft" translate run --alignments /dev/full
"$weft" translate seq2seq-additive --alignments pairs --max-length 12 <in >out
equal "pairs of the words of a recurrent model" "$(bad_pairs pairs in out) $(wc -l <pairs)" "0 11"

# A model that copies words attends to the word that it copies.
words 2000 1 >copy
words 50 77 >new
expect 0 "saved" "$weft" train --source copy --target copy --vocab 30 --lengths 8 --batch-tokens 256 --warmup 20 \
    --lr 1e-2 --steps 300 --measure=false --out copies d_model=32 heads=2 d_ff=64 encoder_layers=1 decoder_layers=1 dropout=0
"$weft" translate copies --alignments pairs <new >out
right=$(paste -d '|' pairs new out | awk -F '|' '$2 == $3 {
    words += split($2, w, " "); n = split($1, pair, " ")
    for (k = 1; k <= n; k++) { split(pair[k], of, "-"); same += of[1] == of[2] }
} END {print (words >= 200 && same >= 0.9 * words) ? "yes" : same " of " words}')
equal "copies are aligned one to one" "$right" yes
printf '  a   b\t c \n\n d  e f g\n' >blanks
"$weft" translate copies --alignments pairs <blanks >out
equal "copies of odd blanks" "$(cat out)" $'a b c\n\nd e f g'
equal "words are what blanks separate" "$(cat pairs)" $'0-0 1-1 2-2\n\n0-0 1-1 2-2 3-3'
[ $failures -eq 0 ] && echo "decoding: all as expected"
exit $((failures > 0))
