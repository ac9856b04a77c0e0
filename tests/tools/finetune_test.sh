#!/usr/bin/env bash
# Training on texts from anywhere, on what another run has learned, and with translations at validations.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
list=$build/tests/list_tensors
small=(d_model=16 heads=2 d_ff=32 --vocab 200 --batch-tokens 256 --warmup 5 --measure=false --threads 1)
pair=("$weft" train "${small[@]}" encoder_layers=1 decoder_layers=1)
text=("$weft" train gpt "${small[@]}" layers=1 --steps 2)
tune=("$weft" train --from one --source b.en --target b.es --warmup 5 --measure=false --threads 1)
valid=(--valid-source valid.en --valid-target valid.es --valid-every 2)

# Texts in one file and in two, plain and packed; a run that translates and a language model.
prepare()
{
    for l in en es; do
        head -n 120 "$data/train.$l" >"a.$l"
        sed -n 121,200p "$data/train.$l" >"b.$l"
        cat "a.$l" "b.$l" >"both.$l"
        head -n 30 "$data/valid.$l" >"valid.$l"
    done
    gzip -k b.es both.en
    expect 0 "both.es: 200 pairs" "${pair[@]}" --source both.en.gz --target both.es --steps 2 --out one
    expect 0 "200 lines" "${text[@]}" --text both.en --out plain
}

# same_tensors RUN OTHER [PATTERN]: the checkpoints have the same numbers in all tensors, or in those
# whose lines match.
same_tensors()
{
    cmp -s <("$list" "$1/model.safetensors" | grep "${3:-}") <("$list" "$2/model.safetensors" | grep "${3:-}") ||
        fail "$1 and $2 differ in ${3:-a tensor}"
}

# all_differ RUN OTHER PATTERN: none of the tensors whose lines match has the same numbers in both.
all_differ()
{
    local same
    same=$(comm -12 <("$list" "$1/model.safetensors" | grep "$3") <("$list" "$2/model.safetensors" | grep "$3"))
    [ -z "$same" ] || fail "$1 and $2 have the same $same"
}

case_several_texts_are_one()
{
    expect 0 "a.es and 1 more: 200 pairs" "${pair[@]}" --source a.en --source b.en --target a.es --target b.es.gz \
        --steps 2 --out several
    cmp -s several/vocab.model one/vocab.model || fail "the vocabulary of two files is not that of both in one"
    same_tensors several one
    expect 0 "after 3 steps" "$weft" train several/recipe.json --steps 3 --out again
    expect 0 "after 3 steps" "$weft" train --resume --steps 3 --out several
    expect 0 "begins with" "$weft" train --from several/model.safetensors --source b.en --target b.es --steps 1 \
        --measure=false --out file
}

case_texts_from_standard_input_gzip_and_pipes()
{
    input=both.en expect 0 "200 lines" "${text[@]}" --text - --out input
    input=both.en.gz expect 0 "200 lines" "${text[@]}" --text - --out packed
    expect 0 "200 lines" "${text[@]}" --text <(cat both.en) --out pipe
    for run in input packed pipe; do
        cmp -s plain/vocab.model $run/vocab.model || fail "$run has another vocabulary"
        same_tensors plain $run
    done
    input=both.en expect 0 "after 4 steps" "$weft" train --resume --out input --steps 4
    input=a.en expect 1 "was trained on data other than -" "$weft" train --resume --out input --steps 5
}

case_texts_that_are_refused()
{
    expect 1 "1 files of sources, 2 of targets" "${pair[@]}" --source a.en --target a.es --target b.es --out bad
    expect 1 "standard input (-) can be one of the texts only" "${text[@]}" --text - --valid-text - --out bad
    expect 1 "Is a directory" "${text[@]}" --text one --out bad
    head -c 3000 both.en.gz >cut.gz
    expect 1 "cut.gz: is damaged or truncated" "${text[@]}" --text cut.gz --out bad
    { for ((i = 0; i < 500; i++)); do printf '\xff%d\n' "$i"; done; cat a.en; } >bytes
    expect 1 "is not a text in UTF-8" "${text[@]}" --text bytes --out bad
    [ ! -e bad/vocab.model ] || fail "a vocabulary of something that is not a text was left behind"
}

case_lines_that_are_not_UTF8_are_left_out()
{
    { cat a.en; printf 'x\n\xff\nz\n\xfe\n'; } >odd.en
    expect 0 "odd.en: left out, not UTF-8: lines 122, 124" "${text[@]}" --text odd.en --out odd
}

case_recipes_and_runs_that_are_not_there()
{
    expect 1 "has no run to resume" "$weft" train --resume --out nowhere
    cp one/recipe.json recipe-of-mine
    expect 0 "after 1 steps" "$weft" train recipe-of-mine --steps 1 --out named
    printf '{"model": "gpt",\n "data" 2}' >bad.json
    expect 1 "is not JSON, near line 2, column 9" "$weft" train bad.json
}

case_a_tuned_run_begins_with_another()
{
    expect 0 "one: begins with 47 of its 47 tensors; 0 of the model are new" "${tune[@]}" --steps 3 --out tuned
    cmp -s one/vocab.model tuned/vocab.model || fail "a tuned run has another vocabulary"
    all_differ one tuned "^dec.*weight"
}

case_frozen_parameters_stay()
{
    expect 0 "d_model=16" "${tune[@]}" --steps 3 --out frozen --frozen 'enc.*,embedding'
    same_tensors one frozen "^enc\|^embedding"
    all_differ one frozen "^dec.*weight"
    expect 0 "after 3 steps" "$weft" train frozen/recipe.json --out frozen2
    same_tensors frozen frozen2
}

# What goes on does not need the run that it began with.
case_a_tuned_run_goes_on_without_its_beginning()
{
    expect 0 "after 2 steps" "${tune[@]}" --steps 2 --out stopped --frozen 'enc.*,embedding'
    expect 0 "after 3 steps" "${tune[@]}" --steps 3 --out tuned
    mv one elsewhere
    expect 0 "after 3 steps" "$weft" train --resume --out tuned
    expect 0 "after 3 steps" "$weft" train --resume --out stopped --steps 3
    expect 1 "one: is neither a checkpoint nor a folder with a model.safetensors" "${tune[@]}" --steps 3 --out gone
}

case_tuning_changes_the_model()
{
    expect 0 "begins with 47 of its 47 tensors; 16 of the model are new" "${tune[@]}" encoder_layers=2 dropout=0.3 \
        --steps 1 --out deeper
    expect 0 "dropout=0.3" "$weft" train --from deeper --source b.en --target b.es --steps 1 --measure=false --out d2
    expect 1 "embedding is f32 [200, 16] there and f32 [200, 32] in the model" "${tune[@]}" d_model=32 --out bad
    expect 1 "is of the model transformer, not gpt" "${tune[@]}" gpt --out bad
}

case_tuning_refuses_vocabularies_and_groups()
{
    expect 1 "--vocab-file cannot be chosen" "${tune[@]}" --vocab-file plain/vocab.model --out bad
    expect 1 "no parameter matches the group nothing" "${tune[@]}" --frozen 'nothing*' --out bad
    expect 1 "every parameter is frozen" "${tune[@]}" --frozen '*' --out bad
}

case_the_way_of_a_text_goes_with_the_model()
{
    expect 0 "after 2 steps" "${text[@]}" --text both.en --vocab 400 --unit document --mode lines --lengths 500 \
        --truncate --normalization identity --out documents
    expect 0 "unit=document" "$weft" train --from documents --text b.en --truncate --steps 1 --measure=false --out d3
    grep -q '"lengths":	\[500\]' d3/recipe.json || fail "--from takes no lengths"
}

case_metrics_have_BLEU_chrF_and_samples_of_translations()
{
    expect 0 "step 2: 20 translations, BLEU" "${tune[@]}" "${valid[@]}" --valid-bleu 20 --steps 4 --ema 0.9 --out bleu
    [ "$(grep -c '"bleu":' bleu/metrics.jsonl)" -eq 2 ] || fail "no BLEU in the metrics"
    "$weft" translate bleu --checkpoint bleu/best.safetensors <valid.en 2>/dev/null | head -n 20 >found
    wanted=$("$weft" score found <(head -n 20 valid.es) --json | grep '"chrf2"' | tr -dc '0-9.' | cut -c 2-6)
    grep '"best":true' bleu/metrics.jsonl | tail -n 1 | grep -q "\"chrf2\":$wanted" ||
        fail "weft score gives $wanted for the translations of best.safetensors, the metrics another number"
    sample=$(grep '"best":true' bleu/metrics.jsonl | tail -n 1 | grep -o '"translation":"[^"]*"' | head -n 1)
    equal "the sample is not what weft translate finds" "$sample" "\"translation\":\"$(head -n 1 found)\""
}

case_the_best_checkpoint_by_BLEU()
{
    expect 0 "(best BLEU" "${tune[@]}" "${valid[@]}" --valid-bleu 5 --best-by bleu --valid-samples 0 --steps 2 \
        --out by-bleu
    expect 1 "its best validation was chosen by bleu" "$weft" train --resume --out by-bleu --best-by loss --steps 3
    expect 0 "after 4 steps" "$weft" train --resume --out by-bleu --steps 4
    expect 1 "--best-by has no effect: it needs --valid-bleu" "${tune[@]}" "${valid[@]}" --best-by bleu --out bad
    expect 1 "--valid-bleu has no effect" "${tune[@]}" --valid-bleu 5 --out bad
    expect 1 "--valid-bleu has no effect" "${text[@]}" --text a.en --valid-text valid.en --valid-bleu 5 --out bad
}

case_a_signal_ends_a_long_step()
{
    "${tune[@]}" --accumulate 10000 --steps 9 --out signal >log 2>&1 &
    for _ in $(seq 100); do [ -s signal/model.safetensors ] && break; sleep 0.1; done
    sleep 1
    kill -TERM $!
    SECONDS=0
    wait $!
    status=$?
    [ $status -eq 143 ] || fail "SIGTERM gave status $status"
    [ $SECONDS -lt 20 ] || fail "SIGTERM ended it after $SECONDS s"
    grep -q "stopped by a signal after 0 steps$" log || fail "not stopped within the step: $(tail -n 1 log)"
}

run_cases
