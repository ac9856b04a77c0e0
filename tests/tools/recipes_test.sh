#!/usr/bin/env bash
# Recipes of weft train from outside: what they say, what changes them, limits of time, and the run that they make.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
files=(--source train.en --target train.es --valid-source valid.en --valid-target valid.es)
small=(d_model=16 heads=2 d_ff=32 --vocab 300 --batch-tokens 256 --warmup 5 --measure=false)
pair=("$weft" train "${files[@]}" "${small[@]}" encoder_layers=1 decoder_layers=1)
text=("$weft" train --text train.en --valid-text valid.en "${small[@]}")

# Texts, a recipe with its run, and a language model.
prepare()
{
    for l in en es; do
        head -n 300 "$data/train.$l" >"train.$l"
        head -n 40 "$data/valid.$l" >"valid.$l"
    done
    mkdir recipes && cat >recipes/small.json <<'END'
{
    "about": "a small one",
    "model": "transformer",
    "model_options": {"d_model": 16, "heads": 2, "d_ff": 32, "encoder_layers": 1, "decoder_layers": 1},
    "data": {"folder": "..", "source": "train.en", "target": "train.es",
             "valid_source": "valid.en", "valid_target": "valid.es"},
    "vocabulary": {"size": 300, "type": "unigram"},
    "batches": {"tokens": 256, "lengths": [16, 32, 64], "truncate": true},
    "optimizer": {"kind": "adamw", "weight_decay": 0.1, "ema": 0.9},
    "schedule": {"kind": "cosine", "lr": 0.01, "warmup": 5, "steps": 9},
    "run": {"out": "from-recipe", "measure": false, "keep": 2, "save_every": 2, "log_every": 1}
}
END
    expect 0 "steps=9" "$weft" train recipes/small.json
    expect 0 "finished after 12" "${text[@]}" gpt layers=1 --out gpt --steps 12
}

# bad RECIPE MESSAGE: what is said about it
bad()
{
    echo "$1" >bad.json
    expect 1 "$2" "$weft" train bad.json --out bad
}

# refused_limits STATUS MESSAGE OPTION...: limits that exclude each other, before anything is made
refused_limits()
{
    expect "$1" "$2" "$weft" train recipes/small.json --out limits "${@:3}"
    [ ! -e limits ] || fail "something was made before it was refused: $2"
}

# numbers RUN: its metrics without times
numbers()
{
    sed 's/,"seconds":.*//' "$1/metrics.jsonl"
}

# a_step_of RECIPE OPTION...: a step of a recipe of models/recipes with a model that is small
a_step_of()
{
    expect 0 "finished after 1" "$weft" train "$@" --steps 1 --threads 1 --vocab 260 --batch-tokens 128 \
        --valid-batches 1 --measure=false d_model=16 heads=2 d_ff=32 --out "recipe-$(basename "$1" .json)"
}

case_the_folder_of_a_run()
{
    equal "the folder" "$(cd from-recipe && echo *)" \
        "best.safetensors metrics.jsonl model.safetensors recipe.json step-8.safetensors step-9.safetensors vocab.model"
    grep -q '"cosine"' from-recipe/recipe.json || fail "recipe.json does not have the schedule"
    [ "$(grep -c '"smoothed"' from-recipe/metrics.jsonl)" -eq 9 ] || fail "not one line a step"
}

# The stored recipe makes the same run again, from anywhere.
case_a_stored_recipe_makes_the_same_run()
{
    mkdir elsewhere
    cd elsewhere || fail "no folder"
    expect 0 "finished after 9" "$weft" train ../from-recipe/recipe.json --out again
    cmp ../from-recipe/model.safetensors again/model.safetensors || fail "a repeated run differs"
}

case_options_change_a_recipe()
{
    expect 0 "steps=3" "$weft" train recipes/small.json --out short --steps 3
    expect 0 '{"recipe":{"model":"transformer"' "$weft" train recipes/small.json --out json --steps 1 --json
    mkdir moved
    cp train.* valid.* moved
    expect 0 "moved/train.en" "$weft" train recipes/small.json --data moved --out moved/run --steps 1
    expect 1 "--data cannot change them" "$weft" train from-recipe/recipe.json --data moved --out bad
    # It lists all options.
    expect 0 "finished after 4" "$weft" train gpt/recipe.json --out repeated --steps 4
}

case_recipes_that_are_refused()
{
    bad '{"model": "gpt", "schedul": {}}' '"schedul" is not a key of a recipe'
    bad '{"model": "gpt", "schedule": {"rate": 1}}' 'schedule has no key "rate"'
    bad '{"model": "gpt", "schedule": {"lr": "fast"}}' "invalid schedule.lr; expected a number from 0 to 100"
    bad '{"model": "gpt", "schedule": {"warmup": 1.5}}' "invalid schedule.warmup; expected a whole number"
    bad '{"model": "gpt", "schedule": {"kind": "steep"}}' "invalid schedule.kind; expected one of constant|linear"
    bad '{"model": "gpt", "batches": {"lengths": [16, 8]}}' "invalid batches.lengths; expected"
    bad '{"model": "gpt", "batches": {"truncate": 1}}' "invalid batches.truncate; expected true or false"
    bad '{"model": "gtp"}' 'no model "gtp"'
    bad '{"model": "gpt", "model_options": {"width": 3}, "data": {"text": "train.en"}}' 'no option "width"'
    bad '{"model": "gpt",
          "schedule": }' "is not JSON, near line 2"
    bad '[1]' "is not a JSON object"
    bad '{"model": "gpt"}' "needs a text file (--text)"
    bad '{"model": "transformer", "data": {"source": "train.en"}}' "needs a pair of text files"
    bad '{"model": "gpt", "data": {"text": "train.en", "text": "train.es"}}' 'data has "text" twice'
    bad "{\"data\": {$(for i in {1..300}; do printf '"key%d": 1, ' "$i"; done)\"text\": 1}}" \
        'data has more than 256 keys'
    expect 1 "none.json: cannot be opened" "$weft" train none.json
}

case_each_recipe_of_the_project_trains()
{
    mkdir m30k
    for l in en de; do cp train.en "m30k/train.$l" && cp valid.en "m30k/val.$l"; done
    for recipe in "$root"/models/recipes/*.json; do
        case $recipe in
            *multi30k*) a_step_of "$recipe" --data m30k ;;
            *) a_step_of "$recipe" ;;
        esac
    done
}

case_folders_that_cannot_be_made()
{
    expect 1 "no folder for the run" "$weft" train --text train.en
    expect 1 "cannot be made" "${pair[@]}" --out train.en/run
}

case_folders_of_the_kernel()
{
    [ -d /proc/self ] || skip "there is no /proc"
    expect 1 "cannot be made" "${pair[@]}" --out /proc/weft --steps 1
    expect 1 "cannot be written" "${pair[@]}" --out /proc/self --steps 1
}

# With a limit of steps and one of time the nearer counts. One that is far away changes no bit, one that is near
# ends the decay of the learning rate; a resumed run goes on with the time that is spent.
case_limits_of_time()
{
    limited=("$weft" train recipes/small.json --measure=false --threads 1)
    long=(--steps 100000000 --max-minutes 0.05)
    expect 0 "finished after 9" "${limited[@]}" --max-minutes 60 --out far
    [ "$(numbers far)" = "$(numbers from-recipe)" ] || fail "a limit of time that is far away changes the training"
    expect 0 "out of time after" "${limited[@]}" "${long[@]}" --warmup 0 --floor 0.001 --out near
    awk 'match($0, /"lr":[0-9.e-]+/) { lr = substr($0, RSTART + 5, RLENGTH - 5) }
        END { exit !(lr >= 0.001 && lr < 0.003) }' near/metrics.jsonl || fail "the decay does not end with the time"
    "${limited[@]}" "${long[@]}" --out left >log 2>&1
    grep -q "^step 1 .* 0:00:0[0-3] left" log ||
        fail "the time that is left is not that of the limit: $(grep "^step" log)"
    expect 0 "out of time after" "$weft" train --out near --resume
}

case_minutes_replace_the_limits_of_a_recipe()
{
    expect 0 "minutes=0.001" "$weft" train recipes/small.json --minutes 0.001 --out by-time
    grep -q '"steps":	0' by-time/recipe.json || fail "--minutes is not instead of the steps of a recipe"
    grep -q '"max_minutes":	0' by-time/recipe.json || fail "--minutes leaves max_minutes"
}

case_limits_that_are_refused()
{
    refused_limits 1 "--max-minutes has no effect: it limits a training by steps" --steps 0 --max-minutes 5
    refused_limits 2 "exclude each other" --minutes 5 --max-minutes 5
    refused_limits 2 "exclude each other" --max-minutes 5 --minutes 5
    refused_limits 2 "must be a number from 0" --max-minutes soon
    expect 1 "--steps and --minutes are both 0" "${pair[@]}" --steps 0 --minutes 0 --out refused
    [ ! -e refused ] || fail "something was made before it was refused"
}

# The best checkpoint has averages of the parameters.
case_a_checkpoint_is_validated_again()
{
    before=$(cksum from-recipe/model.safetensors)
    "$weft" train --out from-recipe --validate from-recipe/best.safetensors --json >log 2>/dev/null
    best=$(grep '"best":true' from-recipe/metrics.jsonl | tail -n 1 | sed 's/.*_loss"\(:[0-9.]*\),.*/\1/')
    grep -qF "\"validation_loss\"$best" log || fail "validated again, a checkpoint has $(cat log), not $best"
    [ "$before" = "$(cksum from-recipe/model.safetensors)" ] || fail "validation has trained"
}

case_checkpoints_that_cannot_be_validated()
{
    printf '\x08\0\0\0\0\0\0\0{}      ' >bare.safetensors
    again=("$weft" train --out from-recipe --validate)
    expect 1 "does not name its model" "${again[@]}" bare.safetensors
    expect 1 "was made with" "${again[@]}" from-recipe/best.safetensors d_model=32
    expect 1 "names no text to validate with" "${again[@]}" from-recipe/best.safetensors --valid-source "" \
        --valid-target ""
}

run_cases
