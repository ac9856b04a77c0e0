#!/usr/bin/env bash
# The folder of a run: what `weft train` leaves alone, what it goes on with, and what it refuses.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
small=(d_model=16 heads=2 d_ff=32 --vocab 200 --batch-tokens 256 --warmup 5 --measure=false --threads 1
    --log-every 1)
text=("$weft" train gpt --text train.en --valid-text valid.en "${small[@]}" layers=1)
run=("${text[@]}" --steps 12 --save-every 2 --valid-every 4 --keep 3)
pair=("$weft" train --source train.en --target train.es --valid-source valid.en --valid-target valid.es
    "${small[@]}" encoder_layers=1 decoder_layers=1 --shared-vocab=false tied=0 --steps 2)

# A run of twelve steps that was never stopped, and other texts.
prepare()
{
    for l in en es; do
        head -n 120 "$data/train.$l" >"train.$l"
        head -n 20 "$data/valid.$l" >"valid.$l"
        { sed -n 2p "train.$l"; sed -n 1p "train.$l"; tail -n +3 "train.$l"; } >"swapped.$l"
    done
    head -n 10 valid.en >fewer.en
    "${run[@]}" --out whole >log 2>&1 || fail "the whole run: $(tail -n 3 log)"
    kept whole "step-10.safetensors step-12.safetensors step-8.safetensors"
}

# closed DESCRIPTORS COMMAND...: the command without some of its standard streams.
closed()
{
    case $1 in *0*) exec <&- ;; esac
    case $1 in *1*) exec >&- ;; esac
    case $1 in *2*) exec 2>&- ;; esac
    shift
    exec "$@"
}

# train_closed DESCRIPTORS: a run without some of its standard streams; sets `status`.
train_closed()
{
    (closed "$1" "${text[@]}" --json --steps 3 --out closed) >log 2>&1
    status=$?
}

# damaged TEXT MESSAGE: a recipe as printf would write it, what is said about it
damaged()
{
    # shellcheck disable=SC2059
    printf "$1" >damaged.json
    expect 1 "damaged.json: $2" "$weft" train damaged.json --out damaged --steps 1
}

# kept FOLDER "NAME...": its checkpoints of steps, in the order of their names
kept()
{
    equal "kept in $1" "$(cd "$1" && echo step-*)" "$2"
}

# snapshot FOLDER: its files with their sums
snapshot()
{
    (cd "$1" && find . -type f -exec cksum {} + | sort -k 3)
}

# left_alone FOLDER MESSAGE COMMAND...: the command fails with the message and changes nothing in the folder.
left_alone()
{
    local folder=$1 message=$2 before
    shift 2
    before=$(snapshot "$folder")
    expect 1 "$message" "$@" --out "$folder"
    [ "$(snapshot "$folder")" = "$before" ] || fail "$folder has changed: $*"
}

# same_run FOLDER: it ended as the run that was never stopped.
same_run()
{
    local file
    for file in model best; do
        cmp "whole/$file.safetensors" "$1/$file.safetensors" || fail "$1: another $file checkpoint"
    done
    [ "$(sed 's/,"seconds":.*//' whole/metrics.jsonl)" = "$(sed 's/,"seconds":.*//' "$1/metrics.jsonl")" ] ||
        fail "$1: other metrics"
}

# back FOLDER mv|cp: a run that goes back to its checkpoint of step 8, which was moved or copied
back()
{
    cp -r whole "$1" && rm "$1/model.safetensors"
    (cd "$1" && $2 step-8.safetensors model.safetensors)
    expect 0 "finished after 8" "$weft" train --resume --out "$1" --steps 8
    kept "$1" "step-8.safetensors"
}

# Nothing that the program opens takes the place of a standard stream.
case_closed_descriptors_get_no_lines()
{
    for which in 0 2 02; do
        train_closed $which
        [ $status -eq 0 ] || fail "with $which closed the status is $status: $(cat log)"
        others=$(grep -vc '^{"step":[0-9]*,.*}$' closed/metrics.jsonl)
        [ "$others" -eq 0 ] || fail "with $which closed $others other lines are among the metrics"
        expect 0 "finished after 3" "${text[@]}" --steps 3 --out closed --resume
        rm -r closed
    done
}

case_a_closed_standard_output_is_an_error()
{
    for which in 1 01 12 012; do
        train_closed $which
        [ $status -eq 1 ] || fail "with $which closed the status is $status, expected 1"
        rm -rf closed
    done
    expect 1 "" closed 1 "$weft" ops
    expect 1 "-: cannot be read: Bad file descriptor" closed 0 "$weft" score - train.en
}

case_damaged_recipes()
{
    recipe='{"model": "gpt", "data": {"text": "train.en"}}'
    damaged "$recipe"'\n\0garbage' "is not JSON, near line 2"
    damaged "$recipe garbage" "is not JSON, near line 1"
    damaged "$recipe"'\n\n\001' "is not JSON, near line 3"
    damaged '{"model":\013"gpt"}' "is not JSON, near line 1"
    damaged '{"about": "a\ttab"}' "is not JSON, near line 1"
    damaged '{"about": "a \\u0000 byte"}' "is not JSON, near line 1"
    damaged '{"model": "gpt\\\\u0000"}' 'no model "gpt'
    [ -e damaged ] && fail "a refused recipe has made a folder"
}

# Lines that are none are left out of the metrics, those around them stay.
case_damaged_metrics()
{
    expect 0 "finished after 3" "${text[@]}" --steps 3 --out lines
    cp lines/metrics.jsonl good
    { printf '{"step":1}garbage\n\0\0\n{"step":2,"lo'; cat good; } >lines/metrics.jsonl
    tail -n +2 good >wanted
    expect 0 "finished after 3" "${text[@]}" --steps 3 --out lines --resume
    cmp wanted lines/metrics.jsonl || fail "the metrics are not those of whole lines"
    printf '{"step":3}\0\n' >>lines/metrics.jsonl
    expect 1 "lines/metrics.jsonl: line $(wc -l <lines/metrics.jsonl) is not JSON" "$weft" plot lines -o x.svg
}

case_a_run_without_its_checkpoint_goes_on_from_a_kept_one()
{
    without_model="to continue from it, \`cp step-8.safetensors model.safetensors\` there and --resume"
    cp -r whole gone && rm gone/model.safetensors gone/step-1?.safetensors
    left_alone gone "gone: step-8.safetensors exists without model.safetensors: $without_model" "${run[@]}"
    left_alone gone "$without_model" "${run[@]}" --resume
    left_alone gone "$without_model" "$weft" train --resume
    (cd gone && cp step-8.safetensors model.safetensors)
    expect 0 "finished after 12" "$weft" train --resume --out gone
    same_run gone
}

# Checkpoints after the one that a run goes back to are of what is given up, whether that one was moved or copied.
case_a_run_goes_back_to_a_kept_checkpoint()
{
    for how in mv cp; do
        back back-$how $how
        expect 0 "finished after 12" "${run[@]}" --resume --out back-$how
        cmp whole/model.safetensors back-$how/model.safetensors || fail "back by $how: another model"
    done
}

case_a_folder_without_checkpoints_is_left_alone()
{
    back gone mv
    expect 0 "finished after 12" "${run[@]}" --resume --out gone
    another="exists without model.safetensors: to begin another run, choose another --out"
    rm gone/model.safetensors gone/step-*
    left_alone gone "best.safetensors $another" "${run[@]}" --resume
    mv gone/best.safetensors gone/old.safetensors
    left_alone gone "old.safetensors $another" "${run[@]}"
    rm gone/old.safetensors
    left_alone gone "metrics.jsonl belongs to a run whose model.safetensors is gone" "${run[@]}" --resume
    : >gone/metrics.jsonl
    left_alone gone "recipe.json exists already: begin its run again with --resume" "${run[@]}"
    expect 0 "has no checkpoint yet, the run begins" "${run[@]}" --resume --out gone
    same_run gone
}

case_files_of_others_stay()
{
    # A vocabulary is overwritten by none but itself.
    mkdir mine && cp whole/vocab.model mine && echo "keep me" >mine/notes.txt
    left_alone mine "mine/vocab.model: exists already and differs from the vocabulary of this run" "${run[@]}" --vocab 150
    expect 0 "finished after 12" "${run[@]}" --out mine
    same_run mine
    [ "$(cat mine/notes.txt)" = "keep me" ] || fail "a file of nobody's has changed"
}

case_a_failed_start_leaves_nothing()
{
    expect 1 "missing: cannot be read" "${run[@]}" --valid-text missing --out tidy
    [ ! -e tidy ] || fail "a failed start has left $(ls tidy)"
}

case_checkpoints_of_another_run_beside_those_of_this_one()
{
    expect 0 "finished after 1" "${run[@]}" --seed 2 --steps 1 --out other
    cp -r whole mixed && cp other/model.safetensors mixed/step-20.safetensors
    left_alone mixed "step-20.safetensors: and model.safetensors are of different runs" "$weft" train --resume
    mv mixed/step-20.safetensors mixed/step-1.safetensors
    expect 0 "finished after 14" "$weft" train --resume --steps 14 --out mixed
    cmp other/model.safetensors mixed/step-1.safetensors || fail "a checkpoint of another run has gone"
    kept mixed "step-1.safetensors step-10.safetensors step-12.safetensors step-14.safetensors"
    cp other/best.safetensors mixed
    left_alone mixed "best.safetensors: and model.safetensors are of different runs" "$weft" train --resume --steps 16
}

case_a_run_refuses_other_texts()
{
    left_alone whole "was trained on data other than $work/swapped.en" "$weft" train --resume --text swapped.en
    left_alone whole "was validated on a text other than $work/fewer.en" "$weft" train --resume --valid-text fewer.en
    expect 0 "finished after 12" "$weft" train --resume --valid-text "" --out whole
    expect 0 "finished after 12" "$weft" train --resume --out whole
    expect 0 "nats a token" "$weft" train --out whole --validate whole/best.safetensors --valid-text fewer.en
}

case_a_run_refuses_other_pairs_of_texts()
{
    expect 0 "finished after 2" "${pair[@]}" --out apart
    left_alone apart "data other than $work/swapped.es" "${pair[@]/train.es/swapped.es}" --resume
    left_alone apart "data other than $work/swapped.en" "${pair[@]/train.en/swapped.en}" --resume
    left_alone apart "validated on a text other than $work/fewer" "${pair[@]/valid.en/fewer.en}" --resume \
        --valid-target "" --valid-target <(head -n 10 valid.es)
    cp apart/vocab.target.model apart/vocab.source.model
    left_alone apart "apart/vocab.source.model: is not the vocabulary" "${pair[@]}" --resume
    expect 1 "apart/vocab.source.model: is not the vocabulary" "$weft" translate apart
}

case_a_run_refuses_another_vocabulary()
{
    expect 0 "finished after 1" "${run[@]}" --vocab-type unigram --steps 1 --out unigram
    cp -r whole texts
    cp unigram/vocab.model texts
    not_the_vocabulary="texts/vocab.model: is not the vocabulary that texts"
    left_alone texts "$not_the_vocabulary/model.safetensors was trained with" "$weft" train --resume
    left_alone texts "$not_the_vocabulary/best.safetensors" "$weft" train --validate texts/best.safetensors
    expect 1 "$not_the_vocabulary/best.safetensors" "$weft" generate texts --prompt God
    expect 0 "mean of 2" "$weft" average whole/step-8.safetensors whole/step-10.safetensors -o texts/mean.safetensors
    expect 1 "$not_the_vocabulary/mean.safetensors" "$weft" generate texts --prompt God \
        --checkpoint texts/mean.safetensors
}

# A checkpoint of a version that recorded neither texts nor vocabulary is continued, with a message.
case_a_run_without_hashes_goes_on()
{
    cp -r whole aged && rm aged/step-8.safetensors
    for file in aged/*.safetensors; do
        LC_ALL=C sed 's/"train.data":"/"xrain.data":"/; s/"vocabulary":"/"xocabulary":"/; s/"run":"/"xun":"/;
            s/"train.valid":"/"xrain.valid":"/' "$file" >older && mv older "$file"
    done
    expect 0 "texts and vocabulary are not compared" "$weft" train --resume --steps 14 --text swapped.en --out aged
    kept aged "step-10.safetensors step-12.safetensors step-14.safetensors"
    cmp whole/vocab.model aged/vocab.model || fail "a vocabulary was made again"
}

case_a_damaged_number_in_the_metadata()
{
    cp -r whole texts
    LC_ALL=C sed 's/"step":"12"/"step":"1x"/' whole/model.safetensors >texts/model.safetensors
    left_alone texts '"step" is not a whole number' "$weft" train --resume
}

run_cases
