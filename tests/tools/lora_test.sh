#!/usr/bin/env bash
# weft train --lora: adapters next to models in f32, 8 and 4 bits, the commands that open them, resuming, and a model that
# has changed; texts read with a tokenizer.json. weft convert: adapters of PEFT, and such that become part of their model.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
small=(d_model=64 heads=2 d_ff=96 --vocab 200 --batch-tokens 512 --warmup 5 --measure=false --threads 2)
tuned=(--lora 4 --lora-alpha 8 --text other.en --valid-text valid.en --lr 2e-2 --warmup 2 --measure=false --threads 2
    --batch-tokens 512)

# A language model, also with 8 and with 4 bits.
prepare()
{
    head -n 200 "$data/train.en" >train.en
    for _ in $(seq 40); do sed -n '1,5p' "$data/valid.en"; done >other.en
    head -n 20 "$data/valid.en" >valid.en
    expect 0 "after 40 steps" "$weft" train gpt --text train.en --valid-text valid.en "${small[@]}" layers=2 \
        positions=sinusoidal --steps 40 --out gpt
    for bits in 8 4; do expect 0 "in $bits bits" "$weft" quantize gpt -o gpt-$bits --bits $bits; done
}

perplexity()
{
    "$weft" logprob "$1" <other.en 2>&1 >/dev/null | sed -n 's/.*perplexity \([0-9.]*\),.*/\1/p'
}

# The perplexity of the text that adapters were trained on falls, and their file is small.
case_adapters_learn_for_any_model()
{
    for base in gpt gpt-8 gpt-4; do
        expect 0 "after 60 steps" "$weft" train --from $base "${tuned[@]}" --steps 60 --out tuned-$base
        was=$(perplexity $base) now=$(perplexity tuned-$base)
        awk -v a="$now" -v b="$was" 'BEGIN { exit !(a > 0 && a < 0.9 * b) }' ||
            fail "$base: the perplexity was $was, it is $now"
        "$build/tests/list_tensors" tuned-$base/model.safetensors | grep -v '^opt\.' | grep -qv 'lora_' &&
            fail "$base: the checkpoint has more than adapters"
        expect 0 "In the" "$weft" generate tuned-$base --prompt "In the" --tokens 5 --temperature 0
    done
}

case_resumed_trainings_have_the_same_bits()
{
    local run=("$weft" train --from gpt-8 "${tuned[@]}" --lora-dropout 0.1 --schedule constant)
    expect 0 "after 12 steps" "${run[@]}" --steps 12 --out whole
    expect 0 "after 6 steps" "${run[@]}" --steps 6 --threads 1 --out parts
    expect 0 "after 12 steps" "$weft" train --resume --steps 12 --threads 1 --out parts
    for run in whole parts; do "$build/tests/list_tensors" $run/model.safetensors >$run.txt; done
    cmp whole.txt parts.txt || fail "the resumed training has other tensors"
}

case_the_model_must_be_there_and_the_same()
{
    cp -r gpt base
    expect 0 "after 4 steps" "$weft" train --from base "${tuned[@]}" --steps 4 --save-every 2 --out tuned
    expect 1 "was trained with rank=4 alpha=8" "$weft" train --resume --lora 5 --out tuned --steps 8
    expect 0 "after 8 steps" "$weft" train --resume --out tuned --steps 8
    cp gpt-8/model.safetensors base/best.safetensors
    cp gpt-8/model.safetensors base/model.safetensors
    expect 1 "which has changed since" "$weft" logprob tuned
    rm -r base
    expect 1 "which does not exist" "$weft" generate tuned --prompt In --tokens 2
}

case_wrong_options_are_named()
{
    expect 1 "adapters need the run of a model" "$weft" train gpt --text train.en "${small[@]}" --steps 2 --lora 2 --out x
    expect 1 "it needs --lora" "$weft" train --from gpt --text train.en --steps 2 --lora-alpha 2 --out x
    expect 1 "no matrix of a product in f32 matches" "$weft" train --from gpt "${tuned[@]}" --lora-on 'nothing*' \
        --steps 2 --out x
    expect 1 "expected parameters in f32" "$weft" train --from gpt-8 --text train.en --steps 2 --out x
    expect 0 "after 2 steps" "$weft" train --from gpt "${tuned[@]}" --steps 2 --out tuned
    expect 1 "has adapters for" "$weft" train --from tuned "${tuned[@]}" --steps 2 --out x
}

# Without --lora the whole of such a run is trained; the tokeniser comes along.
case_published_vocabularies_read_texts()
{
    cp "$tests/golden/tokenizers/gpt2.json" tokenizer.json
    expect 0 "after 8 steps" "$weft" train gpt --text train.en --valid-text valid.en --vocab-file tokenizer.json \
        d_model=64 heads=2 d_ff=96 layers=1 positions=sinusoidal --batch-tokens 512 --measure=false --steps 8 --out json
    cmp -s tokenizer.json json/tokenizer.json || fail "the tokeniser is not copied"
    expect 0 "after 8 steps" "$weft" train --from json "${tuned[@]}" --steps 8 --out tuned
    cmp -s tokenizer.json tuned/tokenizer.json || fail "the tokeniser is not copied again"
    expect 0 "" "$weft" generate tuned --prompt In --tokens 3
    input=valid.en expect 0 "perplexity" "$weft" logprob json
}

# 16 learned positions are fewer than the length for which weft makes graphs by default. The adapter is zero.
case_models_with_few_positions()
{
    local p=base_model.model.transformer.h.0.mlp.c_proj.lora_ header
    expect 0 "saved in short" "$weft" convert "$tests/golden/huggingface/gpt2" -o short
    expect 0 "in 8 bits" "$weft" quantize short -o short-8
    mkdir peft
    echo '{"peft_type": "LORA", "r": 1, "lora_alpha": 1}' >peft/adapter_config.json
    header="{\"${p}A.weight\": {\"dtype\": \"F32\", \"shape\": [1, 96], \"data_offsets\": [0, 384]}, "
    header+="\"${p}B.weight\": {\"dtype\": \"F32\", \"shape\": [24, 1], \"data_offsets\": [384, 480]}}"
    printf -v header '%-512s' "$header"
    { printf '\0\2\0\0\0\0\0\0%s' "$header"; head -c 480 /dev/zero; } >peft/adapter_model.safetensors
    expect 0 "adapters of rank 1 for 1 matrices" "$weft" convert peft --base short-8 -o adapted
    expect 0 "1 matrices have their adapters in them" "$weft" convert adapted --merge -o merged
}

# Merged runs need the model no more; their matrices that have adapters are in f32, the others as they were.
case_adapters_become_part_of_the_model()
{
    for base in gpt gpt-8 gpt-4; do
        cp -r $base base
        expect 0 "after 20 steps" "$weft" train --from base "${tuned[@]}" --lora-on '*.attn.*' --steps 20 --out tuned
        was=$(perplexity tuned)
        expect 0 "8 matrices have their adapters in them, saved in merged" "$weft" convert tuned --merge -o merged
        expect 1 "has a model already" "$weft" convert tuned --merge -o merged
        rm -r base
        # Inputs of products in f32 are not rounded to 8 bits, so those of bases in 8 and 4 bits differ a little.
        [ $base = gpt ] && off=0 || off=0.03
        awk -v a="$(perplexity merged)" -v b="$was" -v off="$off" \
            'BEGIN { exit !(b > 0 && a >= (1 - off) * b && a <= (1 + off) * b) }' ||
            fail "$base: the perplexity was $was, it is $(perplexity merged)"
        "$build/tests/list_tensors" merged/model.safetensors >tensors
        grep -q 'lora_' tensors && fail "$base: adapters are left"
        grep -q 'attn.q.weight.q' tensors && fail "$base: a matrix that has an adapter is quantised"
        [ $base = gpt ] || grep -q 'ffn.in.weight.q' tensors || fail "$base: a matrix without adapters is not quantised"
        rm -r tuned merged
    done
    expect 1 "has no adapters" "$weft" convert gpt --merge -o x
    expect 2 "without --to" "$weft" convert gpt --merge --to peft -o x
}

# The folder has the names of transformers; read again, the adapters compute the same.
case_adapters_of_peft_go_both_ways()
{
    expect 0 "after 10 steps" "$weft" train llama --text train.en --valid-text valid.en "${small[@]}" layers=1 kv_heads=1 output_bias=none --steps 10 \
        --out llama
    expect 0 "after 10 steps" "$weft" train --from llama "${tuned[@]}" --steps 10 --out tuned
    expect 0 "adapters of rank 4 for 8 matrices, saved in peft" "$weft" convert tuned --to peft -o peft
    grep -q '"q_proj"' peft/adapter_config.json || fail "the configuration does not name q_proj"
    expect 0 "adapters of rank 4 for 8 matrices, saved in again" "$weft" convert peft --base llama -o again
    [ "$(perplexity again)" = "$(perplexity tuned)" ] || fail "the adapters compute something else"
    expect 1 "--base names the run" "$weft" convert peft -o x
    expect 1 "has adapters for" "$weft" convert peft --base tuned -o x
    for more in --merge "--to peft" "--to gguf" --f32; do
        # shellcheck disable=SC2086 # two words
        expect 2 "--base reads adapters of PEFT, without" "$weft" convert peft --base llama $more -o x
    done
    expect 1 "has no adapter_config.json" "$weft" convert llama --base llama -o x
    expect 1 "has no adapters, expected a run of weft train --lora" "$weft" convert llama --to peft -o x
    sed -i 's/"bias":.*/"bias": "all",/' peft/adapter_config.json
    expect 1 "bias: weft's adapters train no biases" "$weft" convert peft --base llama -o x
}

run_cases
