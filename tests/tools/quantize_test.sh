#!/usr/bin/env bash
# weft quantize: what translate, generate, logprob and run make of its files, and what cannot use them.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
small=(d_model=64 heads=2 d_ff=96 --vocab 200 --batch-tokens 512 --warmup 5 --measure=false --threads 2 --steps 40)

# A language model and one that translates, each also with 8 and with 4 bits.
prepare()
{
    for l in en es; do
        head -n 200 "$data/train.$l" >"train.$l"
        head -n 20 "$data/valid.$l" >"valid.$l"
    done
    expect 0 "finished after 40" "$weft" train gpt --text train.en --valid-text valid.en "${small[@]}" layers=2 \
        positions=sinusoidal --out gpt
    expect 0 "finished after 40" "$weft" train transformer --source train.en --target train.es \
        --valid-source valid.en --valid-target valid.es "${small[@]}" encoder_layers=1 decoder_layers=1 --out pair
    for bits in 8 4; do
        expect 0 "in $bits bits, groups of 32" "$weft" quantize gpt -o gpt-$bits --bits $bits
        expect 0 "of 32" "$weft" quantize pair -o pair-$bits --bits $bits
    done
}

# perplexity RUN: of the validation text
perplexity()
{
    "$weft" logprob "$1" <valid.en 2>&1 >/dev/null | sed -n 's/.*perplexity \([0-9.]*\),.*/\1/p'
}

# near A B PERCENT
near()
{
    awk -v a="$1" -v b="$2" -v p="$3" 'BEGIN { exit !(a > 0 && (a - b)^2 <= (p / 100 * b)^2) }'
}

# size FILE: in bytes
size()
{
    stat -c %s "$1"
}

# Of 8 bits the perplexity changes by at most 1 %, of 4 bits by 4 %.
case_quantised_language_models_are_nearly_as_good()
{
    was=$(perplexity gpt)
    for bits in 8 4; do
        cmp -s gpt/vocab.model gpt-$bits/vocab.model || fail "the vocabulary is not copied"
        now=$(perplexity gpt-$bits)
        near "$now" "$was" $((bits == 8 ? 1 : 4)) || fail "$bits bits: the perplexity is $now, it was $was"
        expect 0 "In the" "$weft" generate gpt-$bits --prompt "In the" --tokens 5 --temperature 0
    done
}

case_threads_change_no_translation()
{
    for run in pair-8 pair-4; do
        for beam in 1 3; do
            for threads in 1 2 3; do
                "$weft" translate $run --beam $beam --threads $threads <valid.en >out-$threads 2>log ||
                    fail "$run, beam $beam: $(tail -n 1 log)"
            done
            cmp -s out-1 out-2 || fail "$run, beam $beam: two threads change translations"
            cmp -s out-1 out-3 || fail "$run, beam $beam: three threads change translations"
        done
    done
}

# Matrices take 8 bits and 40 bits for each 32 elements, or 4 bits and those.
case_files_become_smaller()
{
    [ "$(size gpt-8/model.safetensors)" -lt $(($(size gpt/best.safetensors) * 36 / 100)) ] || fail "8 bits are too large"
    [ "$(size gpt-4/model.safetensors)" -lt $(($(size gpt/best.safetensors) * 25 / 100)) ] || fail "4 bits are too large"
}

case_weft_run_takes_a_quantised_file()
{
    "$weft" quantize gpt -o file.safetensors --json >json 2>log || fail "$(cat log)"
    grep -q '"bits":[[:space:]]*8' json || fail "--json lacks the bits: $(cat json)"
    npy ids.npy '<i4' '1, 4' '\x05\0\0\0\x09\0\0\0\x20\0\0\0\x07\0\0\0'
    expect 0 "" "$weft" run file.safetensors --input target_in=ids.npy --out whole
    [ "$(size whole/logits.npy)" -eq $((128 + 4 * 200 * 4)) ] || fail "the logits have another size: $(ls -l whole)"
}

case_tensors_that_stay_in_f32()
{
    expect 0 "saved in kept.safetensors" "$weft" quantize gpt -o kept.safetensors --keep-f32 layer.0,embedding
    grep -q -a 'layer.1.attn.q.weight.q' kept.safetensors || fail "layer 1 is not quantised"
    grep -q -a 'layer.0.attn.q.weight.q' kept.safetensors && fail "layer 0 is quantised"
    expect 0 "stay in f32" "$weft" quantize gpt -o wide.safetensors --group 64
}

case_quantize_refuses_runs_options_and_files()
{
    expect 1 "gpt-8: has a model already" "$weft" quantize gpt -o gpt-8
    expect 1 "gpt-8: is quantised, expected parameters in f32" "$weft" quantize gpt-8 -o again
    expect 1 "gpt: has no matrix to quantise with groups of 1024" "$weft" quantize gpt -o again --group 1024
    [ -e again ] && fail "a refused run is left behind"
    expect 1 "nothing: is neither a checkpoint" "$weft" quantize nothing -o again
    expect 2 '--bits must be one of 8|4, not "5"' "$weft" quantize gpt -o again --bits 5
    expect 2 "a multiple of 32" "$weft" quantize gpt -o again --group 40
    expect 2 "-o OUT is missing" "$weft" quantize gpt
    expect 1 "missing/x: cannot be" "$weft" quantize gpt -o missing/x
}

case_other_commands_refuse_a_quantised_run()
{
    expect 1 "is quantised" "$weft" export gpt-8 -o x.onnx
    expect 1 "is quantised" "$weft" convert gpt-8 -o hf
    expect 1 "is quantised" "$weft" average gpt-8/model.safetensors -o mean.safetensors
    cp gpt/recipe.json gpt-8
    expect 1 "is quantised" "$weft" train gpt-8/recipe.json --out gpt-8 --resume
    expect 1 "is quantised" "$weft" train gpt-8/recipe.json --out gpt-8 --validate gpt-8/model.safetensors
    expect 1 "is quantised" "$weft" train gpt --from gpt-8 --text train.en "${small[@]}" --out tuned
}

run_cases
