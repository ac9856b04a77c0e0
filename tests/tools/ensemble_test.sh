#!/usr/bin/env bash
# Ensembles of weft translate and weft generate from outside.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
make_run=$build/tests/make_run
sizes=(d_model=32 heads=2 d_ff=64)
list=(--beam 3 --nbest 3 --max-length 30)

# A run, another model of its vocabulary that also has a checkpoint of a step, and language models: `few` with a
# vocabulary of its own.
prepare()
{
    head -n 300 "$data/train.en" >a.en
    head -n 300 "$data/train.es" >a.es
    { sed -n 301,309p "$data/train.en"; echo; echo "God."; } >in
    expect 0 "saved" "$weft" train --source a.en --target a.es --valid-source a.en --valid-target a.es --vocab 400 \
        --batch-tokens 256 --warmup 5 --steps 10 --out run "${sizes[@]}" encoder_layers=1 decoder_layers=1
    expect 0 "saved" "$weft" train gpt --text a.en --vocab 400 --batch-tokens 256 --warmup 5 --steps 10 \
        --measure=false --out few "${sizes[@]}" layers=1 length=16
    model other transformer "${sizes[@]}" encoder_layers=1 decoder_layers=1 norm=post
    cp other/model.safetensors other/step-5.safetensors
    model seq2seq seq2seq width=16 hidden=16 attention=dot
    for one in gpt llama; do model $one $one "${sizes[@]}" layers=1 kv_heads=1; done
    model lstm lstm width=16 hidden=16
}

# model FOLDER MODEL OPTION...: one of random parameters with the vocabulary of the run
model()
{
    mkdir "$1"
    cp run/vocab.model "$1"
    "$make_run" "$1/model.safetensors" "$2" vocab=400 "${@:3}" || fail "no $2"
}

# scores OPTION...: TEXT SCORE of every first token that no other one says alike
scores()
{
    echo "God." | "$weft" translate "$@" --beam 397 --nbest 397 --max-length 1 --length-penalty 0 |
        awk -F ' [|][|][|] ' '{n[$2]++; s[$2] = $3} END {for (t in n) if (n[t] == 1) print t "\t" s[t]}' |
        LC_ALL=C sort -t $'\t' -k 1,1
}

# means FILE W: whether the scores of the file are the log of the mean of those in a.scores, with the weight W, and
# in b.scores. The three are printed with six decimals, so each is off by up to 5e-7, and the mean by as much: 1e-6.
means()
{
    LC_ALL=C join -t $'\t' <(LC_ALL=C join -t $'\t' a.scores b.scores) "$1" | LC_ALL=C awk -F '\t' -v w="$2" '
        {d = log(w * exp($2) + (1 - w) * exp($3)) - $4; bad += d > 2e-6 || d < -2e-6; apart += $2 - $4 > 0.01 || $4 - $2 > 0.01}
        END {print (bad == 0 && NR > 200 && apart > 100) ? "means" : NR " tokens, " bad " bad, " apart " apart"}'
}

# The oracle is the mean of the probabilities that each model prints for single tokens.
case_probabilities_are_means()
{
    scores run >a.scores
    for second in other seq2seq; do
        scores $second >b.scores
        scores run --with $second >both.scores
        equal "probabilities of run and $second" "$(means both.scores 0.5)" "means"
        scores run --with $second --weights 3,1 >both.scores
        equal "weighted probabilities of run and $second" "$(means both.scores 0.75)" "means"
    done
}

case_an_ensemble_of_a_run_with_itself()
{
    equal "an ensemble of a run with itself" "$("$weft" translate run --with run --with run "${list[@]}" <in)" \
        "$("$weft" translate run "${list[@]}" <in)"
}

case_a_run_and_another_model()
{
    both=("$weft" translate run --with other)
    text=$("${both[@]}" "${list[@]}" <in)
    [ "$text" != "$("$weft" translate run "${list[@]}" <in)" ] || fail "--with changes nothing"
    equal "a checkpoint of a run" "$("$weft" translate run --with other/step-5.safetensors "${list[@]}" <in)" "$text"
    equal "an ensemble in any batch" "$("${both[@]}" "${list[@]}" --batch 2 --threads 1 <in)" "$text"
    equal "an ensemble without caches" "$("${both[@]}" --beam 3 --max-length 9 --recompute <in)" \
        "$("${both[@]}" --beam 3 --max-length 9 <in)"
    equal "three models" "$("$weft" translate run --with other --with seq2seq --max-length 12 <in | wc -l)" 11
}

case_windows_of_language_models()
{
    long=(--tokens 60 --min-length 59 --seed 3)
    for way in "--temperature 0" "--n 2" "--n 1 --stop e"; do
        # shellcheck disable=SC2086
        alone=$("$weft" generate few "${long[@]}" $way <in 2>/dev/null)
        # shellcheck disable=SC2086
        equal "windows of an ensemble with itself ($way)" \
            "$("$weft" generate few --with few "${long[@]}" $way <in 2>/dev/null)" "$alone"
    done
}

case_language_models_of_other_architectures()
{
    three=(--tokens 20 --seed 3 --n 3 --prompt God)
    [ "$("$weft" generate gpt --with llama "${three[@]}")" != "$("$weft" generate gpt "${three[@]}")" ] ||
        fail "--with changes no generated text"
    equal "language models of other architectures" \
        "$("$weft" generate gpt --with lstm --with llama --tokens 9 <in | wc -l)" 11
}

case_models_that_do_not_belong_together()
{
    expect 1 "few/vocab.model: differs from the vocabulary gpt/vocab.model" "$weft" generate gpt --with few
    expect 1 "run: translates, but gpt in gpt is a language model" "$weft" generate gpt --with run
    expect 1 "gpt: is a language model, but transformer in run translates" "$weft" translate run --with gpt
    expect 1 "no/such" "$weft" translate run --with no/such
}

case_options_that_are_refused()
{
    expect 2 "--weights has 3 numbers for 2 models" "$weft" translate run --with other --weights 1,2,3
    expect 2 "--weights has 2 numbers for 1 models" "$weft" translate run --weights 1,2
    expect 2 "a weight of --weights must be a number" "$weft" translate run --with other --weights 1,0
    expect 2 "a weight of --weights must be a number" "$weft" translate run --with other --weights 1,
    expect 2 "--attention shows one model" "$weft" translate run --with other --attention map.svg
}

run_cases
