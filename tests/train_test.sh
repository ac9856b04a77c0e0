#!/usr/bin/env bash
# Training from outside: recipes, every kind of model, metrics and plots, killed and resumed runs,
# signals, full disks, losses that are not finite, the line of progress on a terminal.
# Usage: train_test.sh PATH_OF_WEFT
set -uo pipefail
weft=$(realpath "$1")
source_root=$(realpath "$(dirname "$0")/..")
data=$source_root/tools/data/bible-en-es
tests=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# shellcheck source=tests/expect.sh
. "$tests/expect.sh"
export OMP_WAIT_POLICY=passive
skipped=()

for l in en es; do
    head -n 300 "$data/train.$l" >"train.$l"
    head -n 40 "$data/valid.$l" >"valid.$l"
done
files=(--source train.en --target train.es --valid-source valid.en --valid-target valid.es)
small=(d_model=16 heads=2 d_ff=32 --vocab 300 --batch-tokens 256 --warmup 5 --measure=false)
pair=("$weft" train "${files[@]}" "${small[@]}" encoder_layers=1 decoder_layers=1)
text=("$weft" train --text train.en --valid-text valid.en "${small[@]}")

# ---- Recipes ----
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
ls from-recipe | tr '\n' ' ' >list
[ "$(cat list)" = "best.safetensors metrics.jsonl model.safetensors recipe.json step-8.safetensors step-9.safetensors vocab.model " ] ||
    fail "the folder has $(cat list)"
grep -q '"cosine"' from-recipe/recipe.json || fail "recipe.json does not have the schedule"
[ "$(grep -c '"smoothed"' from-recipe/metrics.jsonl)" -eq 9 ] || fail "not one line a step"
# The stored recipe makes the same run again, from anywhere.
mkdir elsewhere
(cd elsewhere && expect 0 "finished after 9" "$weft" train ../from-recipe/recipe.json --out again)
cmp from-recipe/model.safetensors elsewhere/again/model.safetensors || fail "a repeated run differs"
expect 0 "steps=3" "$weft" train recipes/small.json --out short --steps 3
expect 0 '{"recipe":{"model":"transformer"' "$weft" train recipes/small.json --out json --steps 1 --json
mkdir moved && cp train.* valid.* moved
expect 0 "moved/train.en" "$weft" train recipes/small.json --data moved --out moved/run --steps 1

bad()
{
    echo "$1" >bad.json
    expect 1 "$2" "$weft" train bad.json --out bad
}
bad '{"model": "gpt", "schedul": {}}' '"schedul" is not a key of a recipe'
bad '{"model": "gpt", "schedule": {"rate": 1}}' 'schedule has no key "rate"'
bad '{"model": "gpt", "schedule": {"lr": "fast"}}' "schedule.lr is not a number from 0 to 100"
bad '{"model": "gpt", "schedule": {"warmup": 1.5}}' "schedule.warmup is not a whole number"
bad '{"model": "gpt", "schedule": {"kind": "steep"}}' "schedule.kind is not one of constant|linear"
bad '{"model": "gpt", "batches": {"lengths": [16, 8]}}' "batches.lengths is not"
bad '{"model": "gpt", "batches": {"truncate": 1}}' "batches.truncate is not true or false"
bad '{"model": "gtp"}' 'no model "gtp"'
bad '{"model": "gpt", "model_options": {"width": 3}, "data": {"text": "train.en"}}' 'no option "width"'
bad '{"model": "gpt",
      "schedule": }' "is not JSON, near line 2"
bad '[1]' "is not a JSON object"
bad '{"model": "gpt"}' "needs a text file (--text)"
bad '{"model": "transformer", "data": {"source": "train.en"}}' "needs a pair of text files"
expect 1 "none.json: cannot be opened" "$weft" train none.json
expect 2 "is not a number from 0 to 100" "$weft" train --lr fast
expect 2 'no model "gtp"' "$weft" train gtp
expect 1 "not a model of tokens" "$weft" train attention --text train.en --out bad
expect 1 "no folder for the run" "$weft" train --text train.en
expect 1 "cannot be made" "${pair[@]}" --out train.en/run
if [ -d /proc/self ]; then
    expect 1 "cannot be made" "${pair[@]}" --out /proc/weft --steps 1
    expect 1 "cannot be written" "${pair[@]}" --out /proc/self --steps 1
fi
expect 1 "is above its peak, 1e-09 (--floor)" "${pair[@]}" --lr 1e-9 --out bad --steps 1
expect 0 "minutes=0.001" "$weft" train recipes/small.json --minutes 0.001 --out by-time
grep -q '"steps":	0' by-time/recipe.json || fail "--minutes is not instead of the steps of a recipe"
# With a limit of steps and one of time the nearer counts. One that is far away changes no bit, one that is
# near ends the decay of the learning rate; a resumed run goes on with the time that is spent.
refused_limits()
{
    expect $1 "$2" "$weft" train recipes/small.json --out limits "${@:3}"
    [ ! -e limits ] || fail "something was made before it was refused: $2"
}
refused_limits 1 "--max-minutes has no effect: it limits a training by steps" --steps 0 --max-minutes 5
refused_limits 2 "exclude each other" --minutes 5 --max-minutes 5
refused_limits 2 "exclude each other" --max-minutes 5 --minutes 5
refused_limits 2 "is not a number from 0" --max-minutes soon
numbers()
{
    sed 's/,"seconds":.*//' "$1/metrics.jsonl"
}
limited=("$weft" train recipes/small.json --measure=false --threads 1)
expect 0 "finished after 9" "${limited[@]}" --max-minutes 60 --out far
[ "$(numbers far)" = "$(numbers from-recipe)" ] || fail "a limit of time that is far away changes the training"
expect 0 "out of time after" "${limited[@]}" --steps 100000000 --max-minutes 0.05 --warmup 0 --floor 0.001 --out near
awk 'match($0, /"lr":[0-9.e-]+/) { lr = substr($0, RSTART + 5, RLENGTH - 5) }
    END { exit !(lr >= 0.001 && lr < 0.003) }' near/metrics.jsonl || fail "the decay does not end with the time"
"${limited[@]}" --steps 100000000 --max-minutes 0.05 --out left >log 2>&1
grep -q "^step 1 .* 0:00:0[0-3] left" log || fail "the time that is left is not that of the limit: $(grep "^step" log)"
expect 0 "out of time after" "$weft" train --out near --resume
expect 0 "minutes=0.001" "$weft" train recipes/small.json --minutes 0.001 --out by-time-2
grep -q '"max_minutes":	0' by-time-2/recipe.json || fail "--minutes leaves max_minutes"
expect 1 "--data cannot change them" "$weft" train from-recipe/recipe.json --data moved --out bad
expect 1 "tied=0" "${pair[@]}" --shared-vocab=false --out bad --steps 1

# ---- Texts ----
{ printf '\xEF\xBB\xBFone\r\n\r\nthree \xC3\x28\nfour\r\n'; cat train.en; } >odd.en
{ printf 'uno\r\ndos\r\ntres\ncuatro\r\n'; cat train.es; } >odd.es
odd=("$weft" train "${small[@]}" encoder_layers=1 decoder_layers=1 --valid-source valid.en --valid-target valid.es)
expect 0 "304 pairs" "${odd[@]}" --source odd.en --target odd.es --out odd --steps 1
expect 0 "left out: 1 empty, 1 not UTF-8" "${odd[@]}" --source odd.en --target odd.es --out odd2 --steps 1
expect 0 "over 40 tokens; cut: 0" "${pair[@]}" --lengths 16,40 --out long --steps 1
expect 0 "0 over 40 tokens; cut: " "${pair[@]}" --lengths 16,40 --truncate --out cut --steps 1
expect 1 "are longer" "${pair[@]}" --lengths 3 --out none --steps 1

# ---- Models and vocabularies ----
expect 0 "finished after 12" "${text[@]}" gpt layers=1 --out gpt --steps 12
expect 0 "finished after 4" "${text[@]}" gpt layers=1 --mode lines --vocab-type char --lengths 64,256 --out chars --steps 4
expect 0 "finished after 4" "${text[@]}" llama kv_heads=1 layers=1 --vocab-file gpt/vocab.model --out llama --steps 4
cmp gpt/vocab.model llama/vocab.model || fail "a vocabulary given is not the one used"
expect 0 "finished after 4" "${text[@]}" bert layers=1 --out bert --steps 4
expect 1 "has no piece <mask>" "${text[@]}" bert layers=1 --vocab-file gpt/vocab.model --out bert2 --steps 4
expect 1 "needs batches of masked lines" "${text[@]}" bert layers=1 --mode blocks --out bert3
expect 0 "finished after 4" "$weft" train "${files[@]}" seq2seq width=16 hidden=16 layers=1 \
    --lengths 8,16 --truncate --vocab 300 --measure=false --out s2s --steps 4
expect 0 "finished after 4" "${pair[@]}" --shared-vocab=false tied=0 --out apart --steps 4
if [ ! -s apart/vocab.source.model ] || [ ! -s apart/vocab.target.model ]; then
    fail "no two vocabularies"
fi
expect 0 "finished after 4" "${pair[@]}" --lr 0 --schedule inverse-sqrt --accumulate 2 --out paper --steps 4

# What cannot be trained is refused before anything is made.
refused()
{
    local message=$1
    shift
    expect 1 "$message" "$@" --out refused --steps 1
    [ ! -e refused ] || fail "something was made before it was refused: $message"
    rm -rf refused
}
refused "batch=4 cannot be chosen here: --batch-tokens" "${pair[@]}" batch=4
refused "source_len=9 cannot be chosen here: --lengths" "${pair[@]}" source_len=9
refused "pad_id=7 cannot be chosen here: id 0" "${pair[@]}" pad_id=7
refused "length=9 cannot be chosen here: --lengths" "${text[@]}" gpt --lengths 12 length=9
refused "length=9 cannot be chosen here: --lengths" "${text[@]}" bert length=9
refused "has 10 positions (max_positions), rows have up to 64 tokens" "${text[@]}" gpt max_positions=10
refused "must divide d_model (7 heads" "${text[@]}" gpt heads=7
refused "no-such: cannot be read" "$weft" train gpt --text train.en --valid-text no-such
refused "--momentum has no effect: the optimizer is not sgd" "${pair[@]}" --momentum 0.9
refused "--nesterov has no effect" "${pair[@]}" --optimizer sgd --nesterov
refused "--text has no effect: the model is trained on pairs" "${pair[@]}" --text train.en
refused "--source has no effect" "${text[@]}" gpt --source train.en
refused "--mask-share has no effect" "${text[@]}" gpt --mask-share 0.5
expect 1 "--steps and --minutes are both 0" "${pair[@]}" --steps 0 --minutes 0 --out refused
[ ! -e refused ] || fail "something was made before it was refused"
bad '{"model": "gpt", "data": {"text": "train.en", "text": "train.es"}}' 'data has "text" twice'
bad "{\"data\": {$(for i in {1..300}; do printf '"key%d": 1, ' "$i"; done)\"text\": 1}}" \
    'data has more than 256 keys'
expect 0 "the text has" "${text[@]}" gpt layers=1 --vocab-type char --lengths 256 --out small-vocab --steps 1
refused "no-such: cannot be read" "${text[@]}" gpt --vocab-file no-such
expect 1 "vocab=900 cannot be chosen here: the vocabulary has 300 pieces" "${text[@]}" gpt vocab=900 --out refused --steps 1
rm -rf refused
expect 0 "finished after 4" "$weft" train gpt/recipe.json --out repeated --steps 4 # it lists all options

# What has no room is refused with the numbers, before anything is made.
with_limit()
{
    (ulimit -v 4000000 && exec "$@")
}
case $(nm -D "$weft" 2>/dev/null) in
    *__asan_init*) echo "skipped: a limit of memory: the address sanitizer needs more" ;;
    *) refused "million parameters need" with_limit "${text[@]}" gpt d_model=4096 d_ff=16384 layers=8 ;;
esac
expect 0 "million parameters; memory: " "${text[@]}" gpt layers=1 --out roomy --steps 1

# Bits a character: nats a token, by tokens and by code points with one for each line's end.
printf 'ab\r\na\xC3\xB1b\n\nbaab\n' >few
expect 0 '"checkpoint"' "$weft" train --text few --valid-text few gpt "${small[@]}" layers=1 length=4 \
    --vocab-type char --batch-tokens 8 --valid-every 1 --steps 2 --json --out few-run
# A token a character, one for the space that SentencePiece puts first, one for the end: 15 of 12.
bits_of()
{
    awk 'match($0, /"validation_loss":[0-9.]+/) {
        nll = substr($0, RSTART + 18, RLENGTH - 18)
        if (!match($0, /"bits_per_character":[0-9.]+/)) exit 1
        bits = substr($0, RSTART + 21, RLENGTH - 21)
        ratio = bits * log(2) / nll
        if (ratio < '"$2"' - 1e-5 || ratio > '"$2"' + 1e-5) { print ratio; exit 1 }
        found++
    } END { if (!found) exit 1 }' "$1" || fail "bits a character in $1"
}
bits_of few-run/metrics.jsonl 1.25
printf 'ab\naab\nabababab\n' >lines.txt
lines=("$weft" train gpt "${small[@]}" layers=1 --text few --valid-text lines.txt --vocab-file few-run/vocab.model
    --mode lines --lengths 6 --batch-tokens 12 --steps 1)
expect 0 "1 over 6 tokens" "${lines[@]}" --out few-lines
bits_of few-lines/metrics.jsonl 1.285714286 # 9 tokens, 7 characters: the long line has no row
expect 0 "(best" "${lines[@]}" --out few-cut --truncate
grep -q bits_per_character few-cut/metrics.jsonl && fail "bits a character of lines that were cut"
# What normalisation drops or joins is not said, and does not count: 9 characters, not 11.
printf 'a  b\t c \n\xEF\xAC\x81\n' >blanks
"$weft" train gpt "${small[@]}" layers=1 --text blanks --valid-text blanks --vocab-type char --vocab 20 --mode lines \
    --batch-tokens 32 --steps 1 --lengths 16 --out few-blanks >log 2>&1
grep -q "blanks: 2 lines, 11 target tokens" log || fail "tokens of blanks: $(tail -n 1 log)"
bits_of few-blanks/metrics.jsonl 1.222222222
# A vocabulary of documents keeps line ends, tabs and runs of blanks, and a model says them.
for i in $(seq 40); do printf 'ab\n\tc  d\n[e] \xE2\x98\x83\n\n'; done >documents
expect 1 "pairs are lines" "${pair[@]}" --unit document --out few-pairs --steps 1
document=("$weft" train gpt "${small[@]}" layers=1 length=32 --text documents --unit document --normalization identity
    --vocab 280 --batch-tokens 256 --lr 1e-2 --warmup 10 --steps 150 --out few-documents)
"${document[@]}" >log 2>&1 || fail "documents: $(tail -n 1 log)"
grep -q "documents: 40 documents," log || fail "no number of documents: $(grep documents: log)"
"$weft" generate few-documents --prompt ab --temperature 0 --tokens 40 >log
printf 'ab\n\tc  d\n[e] \xE2\x98\x83\n\n' | cmp - log || fail "a document is said otherwise: $(cat -A log)"
"$weft" generate few-documents --prompt $'ab\n\tc ' --temperature 0 --tokens 40 >log
printf 'ab\n\tc  d\n[e] \xE2\x98\x83\n\n' | cmp - log || fail "a prompt that ends with a blank: $(cat -A log)"
# Long lines are read in pieces: what only they have is in the vocabulary.
{ head -c 9000 /dev/zero | tr '\0' '['; printf ' x%.0s' $(seq 3000); printf '\xC3\xA9%.0s' $(seq 4000); echo; } >long.txt
printf '[[[[\xC3\xA9\xC3\xA9\n' >rare
long=("$weft" train gpt "${small[@]}" layers=1 --text long.txt --valid-text rare --vocab-type char --vocab 20 --steps 1
    --lengths 16 --out long-run)
"${long[@]}" >log 2>&1 || fail "a text of long lines: $(tail -n 1 log)"
grep -q "of 1 lines 0 are not UTF-8 (left out), 1 longer than 4192 bytes (read in pieces)" log || fail "no count of long lines"
grep -q "rare: 1 lines, 8 target tokens" log || fail "what only long lines have is unknown: $(grep rare: log)"
expect 0 "nats a token, " "$weft" train --out few-run --validate few-run/best.safetensors
expect 0 " bits a character" "$weft" train --out few-run --validate few-run/best.safetensors
"$weft" train --out from-recipe --validate from-recipe/best.safetensors --json >log 2>/dev/null
best=$(grep '"best":true' from-recipe/metrics.jsonl | tail -n 1 | sed 's/.*_loss"\(:[0-9.]*\),.*/\1/')
grep -qF "\"validation_loss\"$best" log || fail "validated again, a checkpoint has $(cat log), not $best"
cmp from-recipe/model.safetensors elsewhere/again/model.safetensors || fail "validation has trained"
printf '\x08\0\0\0\0\0\0\0{}      ' >bare.safetensors
expect 1 "does not name its model" "$weft" train --out from-recipe --validate bare.safetensors
expect 1 "was made with" "$weft" train --out from-recipe --validate from-recipe/best.safetensors d_model=32
expect 1 "names no text to validate with" "$weft" train --out paper --valid-source "" --valid-target "" \
    --validate paper/best.safetensors

# ---- Killed and resumed ----
resumed=("${pair[@]}" --steps 60 --save-every 3 --valid-every 10 --keep 2 --log-every 1 --ema 0.9
    --accumulate 2)
"${resumed[@]}" --out whole >log 2>&1 || { fail "the whole run"; tail -n 3 log; }
for i in $(seq 0 9); do
    "${resumed[@]}" --out parts --resume >log 2>&1 &
    pid=$!
    for _ in $(seq 500); do
        seen=$(cat parts/metrics.jsonl 2>/dev/null | wc -l)
        if [ "$seen" -ge $((i * 6 + RANDOM % 6)) ]; then break; fi
        kill -0 $pid 2>/dev/null || break
        sleep 0.01
    done
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
done
expect 0 "finished after 60" "${resumed[@]}" --out parts --resume
without_times()
{
    sed 's/,"seconds":.*//' "$1/metrics.jsonl"
}
cmp whole/model.safetensors parts/model.safetensors || fail "a killed and resumed run differs"
cmp whole/best.safetensors parts/best.safetensors || fail "its best checkpoint differs"
[ "$(without_times whole)" = "$(without_times parts)" ] || fail "its metrics differ"
[ "$(ls parts | grep -c '^step-')" -eq 2 ] || fail "not two checkpoints are kept"
expect 0 "finished after 60" "$weft" train --resume --out parts
expect 0 "finished after 62" "$weft" train --resume --out parts --steps 62
expect 1 "was made with d_model=16, not 32" "${resumed[@]}" --out parts --resume d_model=32
expect 1 "batches per epoch (set by texts" "$weft" train --resume --out parts --batch-tokens 512
expect 0 "finished after 62" "$weft" train --resume --out parts # a refused run has changed nothing
expect 0 ", best validation loss " "$weft" train --resume --out parts
awk 'match($0, /"seconds":[0-9.]+/) { s = substr($0, RSTART + 10, RLENGTH - 10); if (s + 0 < last) exit 1; last = s + 0 }' \
    parts/metrics.jsonl || fail "the seconds of a resumed run go back"
cp -r whole lone && rm lone/model.safetensors
expect 1 "exists without model.safetensors" "${resumed[@]}" --out lone --resume
cmp whole/best.safetensors lone/best.safetensors || fail "a refused run has taken the best checkpoint"
# Back to a kept checkpoint: those after it are of a run that is given up.
cp -r from-recipe back && mv back/step-8.safetensors back/model.safetensors
expect 0 "finished after 8" "$weft" train --resume --out back --steps 8
[ "$(cd back && echo step-*)" = "step-8.safetensors" ] || fail "kept: $(cd back && echo step-*)"
expect 1 "exists already" "${resumed[@]}" --out parts

# ---- Early stopping, average, plot ----
expect 0 "stopped early after 6 steps" "${pair[@]}" --lr 1e-9 --steps 100 --valid-every 2 \
    --patience 2 --floor 0 --warmup 1000000 --out early
expect 0 "mean of 2" "$weft" average parts/step-*.safetensors -o mean.safetensors
expect 1 "another model" "$weft" average gpt/best.safetensors mean.safetensors -o x.safetensors
expect 2 "name the checkpoints" "$weft" average mean.safetensors
mkfifo pipe
expect 1 "pipe: is not a regular file" "$weft" average mean.safetensors -o pipe
if command -v gnuplot >/dev/null; then
    expect 0 "" "$weft" plot whole parts -o loss.svg
    grep -q "whole: validation" loss.svg || fail "no curve in the plot"
else
    skipped+=("the plot: no gnuplot")
fi
expect 1 "none/metrics.jsonl: cannot be opened" "$weft" plot none -o x.svg

# ---- Signals ----
for signal in INT TERM HUP; do
    # Under nohup it is right to ignore SIGHUP; not here.
    : >log
    env --default-signal=$signal "${pair[@]}" --minutes 5 --out "signal-$signal" >log 2>&1 &
    pid=$!
    for _ in $(seq 300); do grep -q "^step" log && break; sleep 0.02; done
    expect 1 "another weft train is running" "${pair[@]}" --minutes 5 --out "signal-$signal" --resume
    kill -$signal $pid
    wait $pid
    was=$?
    if [ $was -ne $((128 + $(kill -l $signal))) ] || ! grep -q "stopped by a signal after" log; then
        fail "SIG$signal ended with status $was"
        cat log
    fi
    [ -s "signal-$signal/model.safetensors" ] || fail "no checkpoint after SIG$signal"
done

# Nobody reads what it prints: it goes on, and all is saved.
"${pair[@]}" --steps 40 --log-seconds 0 --out unread 2>log | grep -q "^step"
grep -q '"step":40,"epoch"' unread/metrics.jsonl || fail "a run whose output nobody reads has ended"
head -c 65536 unread/model.safetensors >unread.head
grep -qa '"step":"40"' unread.head || fail "it has not been saved"

# ---- A full disk ----
expect 0 "finished after 4" "${pair[@]}" --steps 4 --out full
cp full/model.safetensors before
limited()
{
    (ulimit -f 40 && "$@")
}
expect 1 "cannot be written: File too large" limited "${pair[@]}" --steps 8 --out full --resume
cmp before full/model.safetensors || fail "a failed save has harmed the checkpoint"
[ -z "$(ls full | grep tmp)" ] || fail "a failed save leaves a file"
expect 0 "finished after 8" "${pair[@]}" --steps 8 --out full --resume

# A file system of 1 MiB that is filled while a run pauses: its next checkpoint has no room.
cat >disk.sh <<'END'
tests=$1
shift
. "$tests/expect.sh"
mount -t tmpfs -o size=1m tmpfs disk
expect 0 "finished after 4" "$@" --steps 4 --out disk/run
cp disk/run/model.safetensors before
head -c 2M /dev/zero >disk/filler 2>filler.log && fail "the disk is not full"
truncate -s -16K disk/filler
expect 1 "cannot be written: No space left on device" "$@" --steps 8 --out disk/run --resume
cmp before disk/run/model.safetensors || fail "a full disk has harmed the checkpoint"
[ -z "$(ls disk/run | grep tmp)" ] || fail "a full disk leaves a file"
truncate -s -4K disk/filler
head -c 2M /dev/zero >>disk/filler 2>filler.log
expect 1 "No space left on device" "$@" --steps 8 --out disk/run --resume
cmp before disk/run/model.safetensors || fail "a disk without any room has harmed the checkpoint"
rm disk/filler
expect 0 "finished after 8" "$@" --steps 8 --out disk/run --resume
exit $((failures > 0))
END
mkdir disk
if unshare -rm mount -t tmpfs tmpfs disk 2>log; then
    unshare -rm bash disk.sh "$tests" "${pair[@]}" || failures=$((failures + 1))
else
    skipped+=("a full disk: no file system can be mounted here, only a limit of file size was tested")
fi

# ---- Not finite ----
expect 1 "was not made" "${pair[@]}" --optimizer sgd --clip 0 --lr 100 --warmup 0 --schedule constant \
    --momentum 0.9 --steps 500 --save-every 1 --out wild
expect 0 "mean of 1" "$weft" average wild/model.safetensors -o tame.safetensors

# ---- Histograms, and less memory: the same tensors ----
tensors() { python3 -c 'import sys; b = open(sys.argv[1], "rb").read(); print(hash(b[8 + int.from_bytes(b[:8], "little"):]))' "$1"; }
export PYTHONHASHSEED=0
expect 0 "finished after 6" "${pair[@]}" --steps 6 --save-every 2 --out seen-plain
expect 0 "finished after 4" "${pair[@]}" --steps 4 --save-every 2 --histograms 2 --out seen
cp seen/histograms.jsonl seen.4
expect 0 "finished after 6" "${pair[@]}" --steps 6 --save-every 2 --histograms 2 --out seen-whole
[ "$(tensors seen-plain/model.safetensors)" = "$(tensors seen-whole/model.safetensors)" ] ||
    fail "histograms change the training"
python3 - seen-whole/histograms.jsonl <<'EOF_PYTHON' || fail "the histograms are wrong"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert sorted({line["step"] for line in lines}) == [2, 4, 6], lines[0]
names = {kind: [line["name"] for line in lines if line["kind"] == kind] for kind in ("weight", "gradient")}
assert names["weight"] == names["gradient"] and len(names["weight"]) > 9
for line in lines:
    assert len(line["counts"]) == 32 and sum(line["counts"]) > 0 and line["low"] <= line["mean"] <= line["high"]
    assert max(-line["low"], line["high"]) >= line["rms"] >= 0
EOF_PYTHON
# A resumed run continues the file, without lines after its checkpoint.
printf '{"step":9,"name":"later"}\n{"step":4,"na' >>seen/histograms.jsonl
expect 0 "finished after 4" "$weft" train --resume --out seen
cmp -s seen/histograms.jsonl seen.4 || fail "lines of later steps remain in the histograms"
# bf16: another training, whose checkpoints have f32 and can be used as any.
expect 0 "precision=bf16" "${pair[@]}" --precision bf16 --steps 6 --save-every 2 --out narrow
expect 0 "finished after 6" "${pair[@]}" --precision bf16 --memory 1G --threads 1 --steps 6 --out narrow-again
[ "$(tensors narrow/model.safetensors)" = "$(tensors narrow-again/model.safetensors)" ] ||
    fail "threads or a budget of memory change a training in bf16"
[ "$(tensors narrow/model.safetensors)" != "$(tensors seen-plain/model.safetensors)" ] || fail "bf16 changes nothing"
expect 0 "validation loss" "$weft" train --out narrow --validate narrow/best.safetensors
expect 2 'f32|bf16' "${pair[@]}" --precision f16 --out never
expect 1 'run.memory: "much" is no number of bytes' "${pair[@]}" --memory much --out never
expect 1 "the arena would take" "${pair[@]}" --memory 1K --out never

# ---- A terminal ----
if command -v script >/dev/null; then
    script -qec "${pair[*]} --steps 5 --out terminal" /dev/null >log </dev/null
    if ! grep -q $'\r\033\\[Kstep 5 .*left' log; then
        fail "no line that updates itself on a terminal"
        cat -v log
    fi
else
    skipped+=("the line of progress on a terminal: no script(1)")
fi
[ "$(grep -c $'\r' <("${pair[@]}" --steps 3 --out plain 2>&1))" -eq 0 ] || fail "escapes without a terminal"

for recipe in "$source_root"/models/recipes/*.json; do
    folder=()
    case $recipe in *multi30k*)
        mkdir -p m30k
        for l in en de; do cp train.en "m30k/train.$l" && cp valid.en "m30k/val.$l"; done
        folder=(--data m30k)
        ;;
    esac
    expect 0 "finished after 1" "$weft" train "$recipe" ${folder[@]+"${folder[@]}"} --steps 1 --threads 1 \
        --vocab 260 --batch-tokens 128 --valid-batches 1 --measure=false d_model=16 heads=2 d_ff=32 \
        --out "recipe-$(basename "$recipe" .json)"
done

for s in ${skipped[@]+"${skipped[@]}"}; do echo "skipped: $s"; done
[ $failures -eq 0 ] && echo "training: all as expected"
exit $((failures > 0))
