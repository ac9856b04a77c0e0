#!/usr/bin/env bash
# weft generate from outside: prompts, windows of long texts, stop texts, streamed texts and what is refused.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
make_run=$build/tests/make_run
make_vocabulary=$build/tests/make_vocabulary
sizes=(d_model=32 heads=2 d_ff=64)
# A model that was trained on 16 tokens a row attends to as many, however long its text becomes.
few=("$weft" generate few --tokens 60 --min-length 59)
quick=(--vocab 400 --batch-tokens 256 --warmup 5 --steps 10 --measure=false)

# Eleven prompts, the tenth is empty; models that learned lines and documents, whose vocabulary keeps line ends; one
# of random parameters, and one whose vocabulary can say any byte.
prepare()
{
    head -n 300 "$data/train.en" >a.en
    head -n 300 "$data/train.es" >a.es
    { sed -n 301,309p "$data/train.en"; echo; echo "God."; } >in
    for i in 1 2 3; do sed -n $((20 * i)),$((20 * i + 15))p "$data/train.en"; echo; done >documents
    expect 0 "" "$weft" vocab train a.en a.es -o both.model --size 400
    expect 0 "saved" "$weft" train gpt --text a.en "${quick[@]}" --out few "${sizes[@]}" layers=1 length=16
    expect 0 "saved" "$weft" train gpt --text documents --unit document --normalization identity "${quick[@]}" \
        --out identity "${sizes[@]}" layers=1 length=16
    model gpt gpt "${sizes[@]}" layers=1 kv_heads=1
    model bytes gpt "${sizes[@]}" layers=1
    "$make_vocabulary" a.en bytes/vocab.model || fail "no vocabulary"
}

# model FOLDER MODEL OPTION...: one of random parameters
model()
{
    mkdir "$1"
    cp both.model "$1/vocab.model"
    "$make_run" "$1/model.safetensors" "$2" vocab=400 "${@:3}" || fail "no $2"
}

# found_of COMMAND...: how many tokens it counts
found_of()
{
    "$@" --stats 2>&1 | sed -n 's/.* lines, \([0-9]*\) tokens.*/\1/p'
}

# until_stop TEXT PROMPT STOP...: the text up to the first place after the prompt where one begins
until_stop()
{
    local found=${1#"$2"} prompt=$2 best=${1#"$2"} cut stop
    shift 2
    for stop; do
        cut=${found%%"$stop"*}
        [ ${#cut} -ge ${#best} ] || best=$cut
    done
    echo "$prompt$best"
}

# same_streamed MODEL: streamed texts are the bytes of others.
same_streamed()
{
    local temperature stops plain
    for temperature in 0 1 1e6; do
        for stops in "" "--stop e --stop he"; do
            # shellcheck disable=SC2206
            plain=("$weft" generate "$1" --tokens 90 --min-length 80 --temperature $temperature --seed 4 $stops)
            "${plain[@]}" <in >plain 2>/dev/null
            "${plain[@]}" --stream <in >streamed 2>/dev/null
            cmp plain streamed || fail "$1 at $temperature $stops: streamed text differs"
            "${plain[@]}" --prompt "  two blanks  " >plain
            "${plain[@]}" --prompt "  two blanks  " --stream >streamed
            cmp plain streamed || fail "$1 at $temperature $stops: streamed text after blanks differs"
        done
    done
}

need_python()
{
    command -v python3 >/dev/null || skip "python3 is not installed"
}

# texts_of MODEL: prompts, batches and penalties with a model of random parameters
texts_of()
{
    local one lines
    one=$("$weft" generate "$1" --prompt "In the beginning" --tokens 12 --seed 4 --n 2)
    equal "two texts" "$(wc -l <<<"$one")" 2
    equal "both from the prompt" "$(grep -c '^In the beginning' <<<"$one")" 2
    equal "a seed's text" "$("$weft" generate "$1" --prompt "In the beginning" --tokens 12 --seed 4 --n 2 --threads 1)" "$one"
    lines=$("$weft" generate "$1" --tokens 9 --temperature 0 <in)
    equal "a line for each prompt" "$(wc -l <<<"$lines")" 11
    equal "in any batch" "$("$weft" generate "$1" --tokens 9 --temperature 0 --batch 2 --recompute <in)" "$lines"
    equal "by a beam" "$("$weft" generate "$1" --tokens 9 --beam 1 <in)" "$lines"
    equal "a large repetition penalty lets nothing come twice" \
        "$("$weft" generate "$1" --tokens 30 --temperature 0 --repetition-penalty 1e6 <in)" \
        "$("$weft" generate "$1" --tokens 30 --temperature 0 --no-repeat 1 <in)"
    expect 1 "see \`weft generate\`" "$weft" translate "$1"
    equal "a prompt as it was given" "$("$weft" generate "$1" --prompt "a ☃ b" --tokens 3 | grep -c '^a ☃ b')" 1
    equal "a long prompt leaves room" "$(found_of "$weft" generate "$1" \
        --prompt "$(sed -n 1,40p "$data/train.en" | tr '\n' ' ')" --tokens 64 --min-length 63)" 64
}

case_texts_of_a_GPT()
{
    texts_of gpt
    equal "a prompt of two lines" "$("$weft" generate gpt --prompt $'a\nb' --tokens 3 | grep -c '^a b')" 1
}

case_texts_of_a_Llama()
{
    model llama llama "${sizes[@]}" layers=1 kv_heads=1
    texts_of llama
}

case_texts_of_recurrent_models()
{
    for model in rnn lstm gru; do
        model $model $model width=16 hidden=16
        lines=$("$weft" generate $model --tokens 9 --temperature 0 <in)
        equal "a line for each prompt" "$(wc -l <<<"$lines")" 11
        equal "in any batch, without states" \
            "$("$weft" generate $model --tokens 9 --temperature 0 --batch 2 --recompute <in)" "$lines"
    done
}

case_candidates()
{
    local greedy
    greedy=$("$weft" generate gpt --tokens 20 --temperature 0 <in)
    equal "only the most likely" "$("$weft" generate gpt --tokens 20 --temperature 3 --top-k 1 <in)" "$greedy"
    equal "as likely as that" "$("$weft" generate gpt --tokens 20 --temperature 3 --min-p 1 <in)" "$greedy"
    [ "$("$weft" generate gpt --tokens 20 --temperature 3 --min-p 0.01 <in)" != "$greedy" ] || fail "--min-p 0.01 is greedy"
    expect 2 "--min-p" "$weft" generate gpt --min-p 1.1
}

# A line for each line all the same.
case_a_vocabulary_of_bytes()
{
    "$weft" generate bytes --temperature 1e6 --min-length 199 --tokens 200 <in >said
    equal "a line for each prompt, whatever is said" "$(wc -l <said)" 11
    equal "no control bytes besides line ends" "$(LC_ALL=C tr -d -c '\000-\010\013-\037\177' <said | wc -c)" 0
    [ "$(wc -c <said)" -ge 1500 ] || fail "$(wc -c <said) bytes of at least 2,000 tokens came out"
}

case_windows_in_any_batch()
{
    for way in "--temperature 0" "--n 3" "--n 2 --no-repeat 2"; do
        # shellcheck disable=SC2206
        long=("${few[@]}" --seed 3 $way)
        text=$("${long[@]}" <in)
        equal "windows in any batch ($way)" "$("${long[@]}" --batch 3 --threads 1 <in)" "$text"
        equal "windows without caches ($way)" "$("${long[@]}" --recompute <in)" "$text"
    done
}

case_texts_of_several_windows()
{
    long=("${few[@]}" --seed 3 --temperature 0 --prompt "God")
    text=$("${long[@]}")
    equal "all tokens of several windows" "$(found_of "${few[@]}" --seed 3 --prompt "God")" 60
    equal "the context is what it was trained on" "$("${long[@]}" --context 16)" "$text"
    [ "$("${long[@]}" --context 80)" != "$text" ] || fail "--context changes nothing"
    short=$("$weft" generate few --tokens 12 --min-length 11 --temperature 0 --prompt "God")
    [[ $text == "$short"* ]] || fail "a longer text begins otherwise: $text / $short"
    expect 0 "1 texts end after 16 tokens" "${few[@]}" --beam 2 --prompt "God"
    expect 1 "has 512 learned positions, fewer than 1000" "$weft" generate few --context 1000 --prompt "God"
}

# Within the first window of 16 tokens and after it; across tokens; one that begins within another. The oracle cuts
# the text that is found without them.
case_a_text_ends_before_its_first_stop_text()
{
    long=("${few[@]}" --prompt "God said")
    for seed in 1 2 3 4 5; do
        text=$("${long[@]}" --seed $seed)
        found=${text#God said}
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
}

case_stop_texts_that_do_not_come()
{
    long=("${few[@]}" --prompt "God said")
    equal "a prompt stops nothing" "$("${long[@]}" --stop "God s")" "$("${long[@]}")"
    [ "$(found_of "${long[@]}" --stop e)" -lt 60 ] || fail "a search goes on after a stop text"
    equal "texts that have not come to an end reach it" \
        "$("$weft" generate gpt --tokens 9 --stop "no such text" --temperature 0 <in)" \
        "$("$weft" generate gpt --tokens 9 --temperature 0 <in)"
}

case_stop_texts_in_any_batch()
{
    three=("$weft" generate few --tokens 40 --min-length 39 --n 3 --seed 2)
    text=$("${three[@]}" --stop "the" --stop "an" <in 2>/dev/null)
    equal "stop texts in any batch" \
        "$("${three[@]}" --stop "the" --stop "an" --batch 2 --threads 1 <in 2>/dev/null)" "$text"
    [ "$text" != "$("${three[@]}" <in 2>/dev/null)" ] || fail "stop texts end nothing"
}

case_a_line_end_stops_a_document()
{
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
}

case_stop_texts_that_are_refused()
{
    expect 2 "--stop and --beam exclude each other" "$weft" generate few --stop x --beam 2
    expect 2 '--stop "" is empty' "$weft" generate few --stop ""
    expect 2 'has an escape other than \n, \t and \\' "$weft" generate few --stop '\x'
    expect 2 'has an escape other than \n, \t and \\' "$weft" generate few --stop 'end\'
    expect 2 "is not UTF-8" "$weft" generate few --stop $'\xe9'
}

case_streamed_lines_are_the_same()
{
    same_streamed few
}

case_streamed_documents_are_the_same()
{
    same_streamed identity
}

case_streamed_bytes_are_the_same()
{
    same_streamed bytes
    "$weft" generate bytes --tokens 900 --temperature 1e6 --prompt a --stream >streamed
    LC_ALL=C.UTF-8 grep -qP '[\x{80}-\x{FFFC}]' streamed || fail "no character of several byte pieces was streamed"
}

# Each write, which is a packet here, ends with a whole character, and there are many of them.
case_texts_are_streamed_by_characters()
{
    need_python
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
    for model in few identity bytes; do
        equal "$model is streamed" "$(python3 -c "$pieces" "$weft" generate $model --tokens 300 --min-length 299 \
            --temperature 1e6 --prompt a --stream)" "many"
    done
}

# On a terminal it is the default: for --prompt, and for prompts typed in.
case_a_terminal_gets_streamed_texts()
{
    need_python
    terminal=(python3 "$tests/tools/terminal.py")
    long=("$weft" generate few --tokens 2000 --min-length 1999 --seed 7)
    "${long[@]}" --prompt "God" >plain
    "${terminal[@]}" "${long[@]}" --prompt "God" </dev/null >streamed
    equal "on a terminal" "$(cat streamed)" "$(cat plain; echo "many writes")"
    "${long[@]}" <in >plain 2>/dev/null
    "${terminal[@]}" "${long[@]}" <in >streamed 2>/dev/null
    equal "prompts typed in" "$(cat streamed)" "$(cat plain; echo "many writes")"
    "${terminal[@]}" "${long[@]}" --tokens 200 --min-length 199 --n 2 --prompt "God" </dev/null >streamed
    equal "two texts come at once" "$(tail -n 1 streamed)" "one write"
}

case_options_that_cannot_be_streamed()
{
    expect 2 "--n, --batch and --chunk must be 1" "$weft" generate few --stream --n 2
    expect 2 "--n, --batch and --chunk must be 1" "$weft" generate few --stream --batch 2
    expect 2 "--n, --batch and --chunk must be 1" "$weft" generate few --stream --chunk 2
    expect 2 "--stream and --beam exclude each other" "$weft" generate few --stream --beam 2
}

case_models_and_options_that_are_refused()
{
    model bert bert "${sizes[@]}" layers=1
    model pairs transformer "${sizes[@]}" encoder_layers=1 decoder_layers=1
    expect 1 "is not autoregressive: it does not predict the next token" "$weft" generate bert --prompt x
    expect 1 "see \`weft translate\`" "$weft" generate pairs --prompt x
    expect 2 "is larger than --beam" "$weft" generate gpt --beam 2 --n 3
    expect 2 "generates one text, not 3" "$weft" generate gpt --temperature 0 --n 3
    expect 2 "must be below --tokens" "$weft" generate gpt --tokens 8 --min-length 8
    expect 2 "--beam samples nothing" "$weft" generate gpt --beam 2 --top-p 0.5
    expect 2 "--beam samples nothing" "$weft" generate gpt --beam 2 --min-p 0.5
}

run_cases
