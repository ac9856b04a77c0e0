#!/usr/bin/env bash
# Runs with a tokenizer.json, as `weft convert` writes them: texts in and out, and embeddings.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
make_run=$build/tests/make_run
golden=$tests/golden/tokenizers

# Models of random parameters with the tokenisers of tests/golden.
prepare()
{
    need_program tokenizer_ids
    model gpt gpt2 llama vocab=910 kv_heads=1 layers=1
    model llama llama2 llama vocab=900 kv_heads=1 layers=1
    model bart roberta transformer vocab=701 encoder_layers=1 decoder_layers=1 pad_id=1
    model bert bert bert vocab=1204 layers=2 max_positions=64 token_types=2
    { sed -n 301,309p "$data/train.en"; echo; echo "God."; } >in
}

# model FOLDER TOKENISER MODEL OPTION...
model()
{
    mkdir "$1"
    cp "$golden/$2.json" "$1/tokenizer.json"
    "$make_run" "$1/model.safetensors" "$3" d_model=32 heads=2 d_ff=64 "${@:4}" || fail "no $1"
}

# ids TEXT RUN [OPTION...]: its ids
ids()
{
    "$weft" vocab encode "$2" "${@:3}" <<<"$1"
}

case_ids_of_a_run()
{
    equal "ids alone" "$(ids "In the beginning" llama --pieces)" "▁I n▁ the▁ be g in n ing"
    equal "with what surrounds them" "$(ids "In" llama --special)" "1 $(ids "In" llama)"
    equal "those of a file" "$(ids "In the" "$golden/llama2.json")" "$(ids "In the" llama)"
    equal "special pieces are characters" "$(ids "a</s>" llama --pieces)" "▁ a <0x3C> <0x2F> s <0x3E>"
    equal "or their ids" "$(ids "a</s>" llama --pieces --special)" "<s> ▁ a </s>"
    equal "and back" "$(ids "In the beginning, 'twas" gpt | "$weft" vocab decode gpt)" "In the beginning, 'twas"
    expect 0 "mask          4 [MASK]" "$weft" vocab show bert
    echo '{' >bad.json
    expect 1 "bad.json: is not JSON" "$weft" vocab show bad.json
}

case_generate()
{
    local text
    for run in gpt llama; do
        for way in "--temperature 0" "--seed 3" "--temperature 1e6 --seed 4"; do
            # shellcheck disable=SC2206
            long=("$weft" generate $run --tokens 60 $way)
            "${long[@]}" <in >plain
            equal "a line for each prompt" "$(wc -l <plain)" 11
            "${long[@]}" --stream <in >streamed
            cmp plain streamed || fail "$run $way: the streamed text differs"
            text=$("${long[@]}" --prompt $'two\n  lines ☃'; echo .)
            equal "a prompt as it was given" "${text:0:13}" $'two\n  lines ☃'
            equal "and streamed" "$("${long[@]}" --stream --prompt $'two\n  lines ☃'; echo .)" "$text"
        done
    done
    equal "an empty prompt" "$("$weft" generate llama --prompt "" --tokens 5 --stats 2>&1 | grep -c "5 tokens")" 1
    expect 0 "a</s>" "$weft" generate llama --special --prompt "a</s>" --tokens 3
    [ "$("$weft" generate llama --special --prompt "a</s>" --tokens 9 --temperature 0)" != \
        "$("$weft" generate llama --prompt "a</s>" --tokens 9 --temperature 0)" ] || fail "--special changes nothing"
}

# json TEXT KEY: the values of a key of a line of JSON
json()
{
    python3 -c "
import json, sys
value = json.loads(sys.argv[1])[sys.argv[2]]
print(*value if type(value) is list else [value])" "$@"
}

case_log_probabilities_of_generated_tokens()
{
    local line text sum way
    for way in "--temperature 0" "--seed 3" "--beam 3" "--temperature 0 --context 16" "--recompute --seed 5"; do
        # shellcheck disable=SC2206
        call=("$weft" generate gpt --prompt "In the beginning" --tokens 40 $way)
        text=$("${call[@]}"; echo .)
        line=$("${call[@]}" --logprobs)
        equal "$way: the text" "$(json "$line" text; echo .)" "$text"
        equal "as many as tokens" "$(json "$line" tokens | wc -w) $(json "$line" pieces | wc -w)" "40 40"
        equal "why it ended" "$(json "$line" ended)" length
        sum=$(json "$line" log_probs | awk '{ for (i = 1; i <= NF; i++) s += $i; printf "%d %.9g", NF, s }')
        equal "their sum" "$sum" "40 $(json "$line" log_prob | awk '{ printf "%.9g", $1 }')"
    done
    # The same as those of whole passes, but for rounding.
    line=$("$weft" generate gpt --prompt "In the beginning" --tokens 20 --temperature 0 --logprobs)
    "$weft" logprob gpt --tokens <<<"$(json "$line" text)" >scored 2>log
    if [ "$(ids "$(json "$line" text)" gpt | awk '{ print NF }')" = "$(($(ids "In the beginning" gpt | wc -w) + 20))" ]; then
        equal "log probabilities of the text" "$(tail -n 20 scored | cut -f 3 | awk '{ printf "%.3f ", $1 }')" \
            "$(json "$line" log_probs | awk '{ for (i = 1; i <= NF; i++) printf "%.3f ", $i }')"
    fi
    text=$("$weft" generate gpt --prompt "In the beginning" --tokens 20 --temperature 0)
    text=${text#In the beginning}
    line=$("$weft" generate gpt --prompt "In the beginning" --tokens 20 --temperature 0 --logprobs --stop "${text:4:3}")
    equal "a stop text" "$(json "$line" ended)" stop
    echo "{\"eos_token_id\": [$(json "$line" tokens | awk '{ print $1 }')]}" >gpt/generation_config.json
    line=$("$weft" generate gpt --prompt "In the beginning" --tokens 20 --temperature 0 --logprobs)
    equal "an end, with its log probability" "$(json "$line" ended) $(json "$line" log_probs | wc -w)" "end 1"
    rm gpt/generation_config.json
    equal "a line for each text" "$(printf '%s\n' a '' b | "$weft" generate gpt --tokens 3 --n 2 --logprobs |
        python3 -c "
import json, sys
print([json.loads(line)['line'] for line in sys.stdin])")" "[1, 1, 2, 2, 3, 3]"
    expect 2 "--stream and --logprobs" "$weft" generate gpt --stream --logprobs
}

# A text ends before any of the listed tokens: before its first one, where that can be read from the text.
case_a_text_ends_at_any_end()
{
    local prompt one before after tried=0
    local greedy=("$weft" generate gpt --temperature 0)
    while read -r prompt; do
        [ -n "$prompt" ] || continue
        one=$("${greedy[@]}" --tokens 1 --prompt "$prompt")
        before=$(ids "$prompt" gpt) after=$(ids "$one" gpt)
        [[ $after == "$before "* && $(wc -w <<<"$after") == $(($(wc -w <<<"$before") + 1)) ]] || continue
        tried=$((tried + 1))
        echo "{\"eos_token_id\": [7, ${after##* }]}" >gpt/generation_config.json
        equal "it ends at once" "$("${greedy[@]}" --tokens 9 --prompt "$prompt")" "$prompt"
        [[ $("${greedy[@]}" --tokens 9 --min-length 8 --prompt "$prompt") != "$one"* ]] || fail "an end before --min-length"
        rm gpt/generation_config.json
        [[ $("${greedy[@]}" --tokens 9 --prompt "$prompt") == "$one"* ]] || fail "without the file it does not go on"
    done <in
    [ $tried -ge 3 ] || fail "only $tried first tokens can be read from texts"
    echo '[' >gpt/generation_config.json
    expect 1 "gpt/generation_config.json: is not JSON" "${greedy[@]}" --prompt a
}

case_logprob()
{
    local text="In the beginning" n
    n=$(ids "$text" gpt | wc -w)
    equal "all tokens but the first" "$("$weft" logprob gpt <<<"$text" 2>log | cut -f 2)" $((n - 1))
    n=$(ids "$text" llama | wc -w)
    equal "all tokens after <s>" "$("$weft" logprob llama <<<"$text" 2>log | cut -f 2)" "$n"
    equal "their sum" "$("$weft" logprob llama --tokens <<<"$text" 2>log | awk '{ s += $3 } END { printf "%.3f", s }')" \
        "$("$weft" logprob llama <<<"$text" 2>log | awk '{ printf "%.3f", $1 }')"
    equal "no line is left out" "$("$weft" logprob gpt <in 2>log | wc -l)" 11
    input=in expect 0 "1 of 11 lines are empty" "$weft" logprob gpt
}

case_translate()
{
    expect 1 "has decoder_start_token_id" "$weft" translate bart
    echo '{"decoder_start_token_id": 2, "eos_token_id": 2}' >bart/generation_config.json
    equal "a line for each line" "$("$weft" translate bart --max-length 9 <in | wc -l)" 11
    equal "in any batch" "$("$weft" translate bart --max-length 9 --batch 1 --beam 3 <in)" \
        "$("$weft" translate bart --max-length 9 --beam 3 <in)"
    plain=$("$weft" translate bart --max-length 9 <in)
    echo '{"decoder_start_token_id": 2, "forced_bos_token_id": 5, "eos_token_id": 2}' >bart/generation_config.json
    [ "$("$weft" translate bart --max-length 9 <in)" != "$plain" ] || fail "forced_bos_token_id changes nothing"
    equal "probabilities of targets" "$("$weft" logprob bart --source in <in 2>log | wc -l)" 11
    expect 1 "vocabularies of SentencePiece only" "$weft" translate bart --alignments pairs
}

case_embed()
{
    local rows
    "$weft" embed bert <in >json || fail "embed"
    equal "the texts with their vectors" "$(python3 -c "
import json
for line in open('json'):
    line = json.loads(line)
    assert len(line['embedding']) == 32
    print(line['text'])")" "$(cat in)"
    "$weft" embed bert -o all.npy <in && "$weft" embed bert --batch 1 --threads 1 -o one.npy <in
    cmp all.npy one.npy || fail "embeddings depend on the batch"
    for way in first max root mean; do
        "$weft" embed bert --pooling $way --normalize -o $way.npy <in
    done
    cmp -s first.npy max.npy && fail "--pooling changes nothing"
    mkdir bert/1_Pooling && echo '{"pooling_mode_max_tokens": true}' >bert/1_Pooling/config.json
    echo '[{"path": "1_Pooling", "type": "a.Pooling"}, {"path": "2", "type": "a.Normalize"}]' >bert/modules.json
    "$weft" embed bert -o published.npy <in
    cmp published.npy max.npy || fail "not as the model was published"
    (cd bert && "$weft" embed model.safetensors -o ../file.npy <../in)
    cmp file.npy max.npy || fail "a checkpoint is not as the model was published"
    "$weft" embed bert --pooling first -o chosen.npy <in
    cmp chosen.npy first.npy || fail "--pooling is not chosen"
    rows=$("$weft" embed bert --nearest 2 <in | cut -f 1 | uniq -c | awk '{ print $1 }' | sort -u)
    equal "two nearest for each line" "$rows" 2
    equal "the nearest to a line is itself" "$("$weft" embed bert --nearest 1 --query "God." <in | cut -f 1,2)" $'11\t1.000000'
    input=in expect 0 "had more than 5 tokens; their end was cut" "$weft" embed bert --max-length 5 -o cut.npy
    expect 1 "expected an encoder such as bert" "$weft" embed gpt
    expect 1 "has 64 learned positions, fewer than 65" "$weft" embed bert --max-length 65
    expect 2 "--query needs --nearest" "$weft" embed bert --query a
    expect 2 "expected a name that ends with .npy" "$weft" embed bert -o a.txt
}

# weft train reads text with the tokeniser of the model that it begins with.
case_training_goes_on()
{
    expect 0 "finished after 2 steps" "$weft" train --from gpt --text in --valid-text in --steps 2 --measure=false --out new
    cmp gpt/tokenizer.json new/tokenizer.json || fail "the tokeniser is not the model's"
    expect 0 "" "$weft" generate new --prompt "In the beginning" --tokens 3 --temperature 0
    expect 1 "for models that predict the next token only" "$weft" train --from bert --text in --steps 2 --out newer
}

case_what_does_not_fit()
{
    model small gpt2 llama vocab=300 kv_heads=1 layers=1
    expect 1 'has the id' "$weft" generate small --prompt "In the beginning" --tokens 3
    expect 1 "is of the model bert" "$weft" train gpt --from bert --text in --out new
    rm gpt/tokenizer.json
    expect 1 "has neither a vocab.model nor a tokenizer.json" "$weft" generate gpt --prompt a
}

run_cases
