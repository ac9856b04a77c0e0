#!/usr/bin/env bash
# The folder of a run: what `weft train` leaves alone, what it goes on with, and what it refuses.
# Usage: runs_test.sh PATH_OF_WEFT
set -uo pipefail
weft=$(realpath "$1")
data=$(realpath "$(dirname "$0")/../tools/data/bible-en-es")
tests=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# shellcheck source=tests/expect.sh
. "$tests/expect.sh"
export OMP_WAIT_POLICY=passive

for l in en es; do
    head -n 120 "$data/train.$l" >"train.$l"
    head -n 20 "$data/valid.$l" >"valid.$l"
done
small=(d_model=16 heads=2 d_ff=32 --vocab 200 --batch-tokens 256 --warmup 5 --measure=false --threads 1
    --log-every 1)
text=("$weft" train gpt --text train.en --valid-text valid.en "${small[@]}" layers=1)

# ---- Closed descriptors ----
# Nothing that the program opens takes the place of a standard stream.
closed()
{
    case $1 in *0*) exec <&- ;; esac
    case $1 in *1*) exec >&- ;; esac
    case $1 in *2*) exec 2>&- ;; esac
    shift
    exec "$@"
}
for which in 0 1 2 01 02 12 012; do
    (closed $which "${text[@]}" --json --steps 3 --out closed-$which) >log 2>&1
    status=$?
    case $which in
    *1*) [ $status -eq 1 ] || fail "with $which closed the status is $status, expected 1" ;;
    *)
        [ $status -eq 0 ] || fail "with $which closed the status is $status: $(cat log)"
        others=$(grep -vc '^{"step":[0-9]*,.*}$' closed-$which/metrics.jsonl)
        [ "$others" -eq 0 ] || fail "with $which closed $others other lines are among the metrics"
        expect 0 "finished after 3" "${text[@]}" --steps 3 --out closed-$which --resume
        ;;
    esac
done
expect 1 "" closed 1 "$weft" ops
expect 1 "-: cannot be read: Bad file descriptor" closed 0 "$weft" score - train.en

# ---- Damaged files ----
# damaged TEXT MESSAGE: a recipe as printf would write it, what is said about it
damaged()
{
    printf "$1" >damaged.json
    expect 1 "damaged.json: $2" "$weft" train damaged.json --out damaged --steps 1
}
recipe='{"model": "gpt", "data": {"text": "train.en"}}'
damaged "$recipe"'\n\0garbage' "is not JSON, near line 2"
damaged "$recipe garbage" "is not JSON, near line 1"
damaged "$recipe"'\n\n\001' "is not JSON, near line 3"
damaged '{"model":\013"gpt"}' "is not JSON, near line 1"
damaged '{"about": "a\ttab"}' "is not JSON, near line 1"
damaged '{"about": "a \\u0000 byte"}' "is not JSON, near line 1"
damaged '{"model": "gpt\\\\u0000"}' 'no model "gpt'
[ -e damaged ] && fail "a refused recipe has made a folder"
# Lines that are none are left out of the metrics, those around them stay.
cp -r closed-0 lines
printf '{"step":1}garbage\n\0\0\n{"step":2,"lo' >lines/metrics.jsonl
cat closed-0/metrics.jsonl >>lines/metrics.jsonl
tail -n +2 closed-0/metrics.jsonl >wanted
expect 0 "finished after 3" "${text[@]}" --steps 3 --out lines --resume
cmp wanted lines/metrics.jsonl || fail "the metrics are not those of whole lines"
printf '{"step":3}\0\n' >>lines/metrics.jsonl
expect 1 "lines/metrics.jsonl: line $(wc -l <lines/metrics.jsonl) is not JSON" "$weft" plot lines -o x.svg

# ---- Folders of other runs ----
snapshot()
{
    (cd "$1" && find . -type f -exec cksum {} + | sort -k 3)
}
# left_alone FOLDER TEXT COMMAND...: the command fails with the text and changes nothing in the folder.
left_alone()
{
    local folder=$1 text=$2 before
    shift 2
    before=$(snapshot "$folder")
    expect 1 "$text" "$@" --out "$folder"
    [ "$(snapshot "$folder")" = "$before" ] || fail "$folder has changed: $*"
}
run=("${text[@]}" --steps 12 --save-every 2 --valid-every 4 --keep 3)
"${run[@]}" --out whole >log 2>&1 || fail "the whole run: $(tail -n 3 log)"
[ "$(cd whole && echo step-*)" = "step-10.safetensors step-12.safetensors step-8.safetensors" ] ||
    fail "kept: $(cd whole && echo step-*)"
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
without_model="to continue from it, \`cp step-8.safetensors model.safetensors\` there and --resume"
cp -r whole gone && rm gone/model.safetensors gone/step-1?.safetensors
left_alone gone "gone: step-8.safetensors exists without model.safetensors: $without_model" "${run[@]}"
left_alone gone "$without_model" "${run[@]}" --resume
left_alone gone "$without_model" "$weft" train --resume
(cd gone && cp step-8.safetensors model.safetensors)
expect 0 "finished after 12" "$weft" train --resume --out gone
same_run gone
# Going back: those after it are of what is given up, whether it was moved or copied.
for how in mv cp; do
    cp -r whole "back-$how" && rm "back-$how/model.safetensors"
    (cd "back-$how" && $how step-8.safetensors model.safetensors)
    expect 0 "finished after 8" "$weft" train --resume --out "back-$how" --steps 8
    [ "$(cd "back-$how" && echo step-*)" = "step-8.safetensors" ] || fail "kept: $(cd "back-$how" && echo step-*)"
    expect 0 "finished after 12" "${run[@]}" --resume --out "back-$how"
    cmp whole/model.safetensors "back-$how/model.safetensors" || fail "back by $how: another model"
done
rm back-mv/model.safetensors back-mv/step-*
left_alone back-mv "best.safetensors exists without model.safetensors: to begin another run, choose another --out" "${run[@]}" --resume
mv back-mv/best.safetensors back-mv/old.safetensors
left_alone back-mv "old.safetensors exists without model.safetensors: to begin another run, choose another --out" "${run[@]}"
rm back-mv/old.safetensors
left_alone back-mv "metrics.jsonl belongs to a run whose model.safetensors is gone" "${run[@]}" --resume
: >back-mv/metrics.jsonl
left_alone back-mv "recipe.json exists already: begin its run again with --resume" "${run[@]}"
expect 0 "has no checkpoint yet, the run begins" "${run[@]}" --resume --out back-mv
same_run back-mv
# A vocabulary is overwritten by none but itself; what a failed start has made goes.
mkdir mine && cp whole/vocab.model mine && echo "keep me" >mine/notes.txt
left_alone mine "mine/vocab.model: exists already and differs from the vocabulary of this run" "${run[@]}" --vocab 150
expect 0 "finished after 12" "${run[@]}" --out mine
same_run mine
[ "$(cat mine/notes.txt)" = "keep me" ] || fail "a file of nobody's has changed"
expect 1 "missing: cannot be read" "${run[@]}" --valid-text missing --out tidy
[ ! -e tidy ] || fail "a failed start has left $(ls tidy)"
# Checkpoints of another run beside those of this one.
expect 0 "finished after 1" "${run[@]}" --seed 2 --steps 1 --out other
cp -r whole mixed && cp other/model.safetensors mixed/step-20.safetensors
left_alone mixed "step-20.safetensors: and model.safetensors are of different runs" "$weft" train --resume
mv mixed/step-20.safetensors mixed/step-1.safetensors
expect 0 "finished after 14" "$weft" train --resume --steps 14 --out mixed
cmp other/model.safetensors mixed/step-1.safetensors || fail "a checkpoint of another run has gone"
[ "$(ls mixed | grep -c '^step-1[0-4]')" -eq 3 ] || fail "kept: $(cd mixed && echo step-*)"
cp other/best.safetensors mixed
left_alone mixed "best.safetensors: and model.safetensors are of different runs" "$weft" train --resume --steps 16

# ---- Other texts and vocabularies ----
{ sed -n 2p train.en; sed -n 1p train.en; tail -n +3 train.en; } >swapped.en
{ sed -n 2p train.es; sed -n 1p train.es; tail -n +3 train.es; } >swapped.es
head -n 10 valid.en >fewer.en
cp -r whole texts
left_alone texts "was trained on other text than $work/swapped.en" "$weft" train --resume --text swapped.en
left_alone texts "was validated on a text other than $work/fewer.en" "$weft" train --resume --valid-text fewer.en
expect 0 "finished after 12" "$weft" train --resume --valid-text "" --out texts
expect 0 "finished after 12" "$weft" train --resume --out texts
expect 0 "nats a token" "$weft" train --out texts --validate texts/best.safetensors --valid-text fewer.en
expect 0 "finished after 1" "${run[@]}" --vocab-type unigram --steps 1 --out unigram
cp unigram/vocab.model texts
not_the_vocabulary="texts/vocab.model: is not the vocabulary that texts"
left_alone texts "$not_the_vocabulary/model.safetensors was trained with" "$weft" train --resume
left_alone texts "$not_the_vocabulary/best.safetensors" "$weft" train --validate texts/best.safetensors
expect 1 "$not_the_vocabulary/best.safetensors" "$weft" generate texts --prompt God
expect 0 "mean of 2" "$weft" average whole/step-8.safetensors whole/step-10.safetensors -o texts/mean.safetensors
expect 1 "$not_the_vocabulary/mean.safetensors" "$weft" generate texts --prompt God --checkpoint texts/mean.safetensors
pair=("$weft" train --source train.en --target train.es --valid-source valid.en --valid-target valid.es
    "${small[@]}" encoder_layers=1 decoder_layers=1 --shared-vocab=false tied=0 --steps 2)
expect 0 "finished after 2" "${pair[@]}" --out apart
left_alone apart "other text than $work/swapped.es" "${pair[@]/train.es/swapped.es}" --resume
left_alone apart "other text than $work/swapped.en" "${pair[@]/train.en/swapped.en}" --resume
left_alone apart "validated on a text other than $work/fewer" "${pair[@]/valid.en/fewer.en}" --resume \
    --valid-target "" --valid-target <(head -n 10 valid.es)
cp apart/vocab.target.model apart/vocab.source.model
left_alone apart "apart/vocab.source.model: is not the vocabulary" "${pair[@]}" --resume
expect 1 "apart/vocab.source.model: is not the vocabulary" "$weft" translate apart
# A checkpoint of a version that recorded none of this is continued, with a message.
cp -r whole aged && rm aged/step-8.safetensors
for file in aged/*.safetensors; do
    LC_ALL=C sed 's/"train.data":"/"xrain.data":"/; s/"vocabulary":"/"xocabulary":"/; s/"run":"/"xun":"/;
        s/"train.valid":"/"xrain.valid":"/' "$file" >older && mv older "$file"
done
expect 0 "has no hashes of its texts and vocabulary" "$weft" train --resume --steps 14 --text swapped.en --out aged
[ "$(cd aged && echo step-*)" = "step-10.safetensors step-12.safetensors step-14.safetensors" ] ||
    fail "kept: $(cd aged && echo step-*)"
cmp whole/vocab.model aged/vocab.model || fail "a vocabulary was made again"
# Numbers in its metadata.
LC_ALL=C sed 's/"step":"12"/"step":"1x"/' whole/model.safetensors >texts/model.safetensors && cp whole/vocab.model texts
left_alone texts '"step" is no whole number' "$weft" train --resume

[ $failures -eq 0 ] && echo "runs: all as expected"
exit $((failures > 0))
