#!/usr/bin/env bash
# Training by several processes over MPI: the same bits on any number of them, runs that are killed
# and resumed on another number, and failures of single ranks.
# Usage: distributed_test.sh PATH_OF_WEFT
set -uo pipefail
program=$(realpath "$1")
tests=$(realpath "$(dirname "$0")")
data=$tests/../tools/data/bible-en-es
work=$(mktemp -d)
# shellcheck source=tests/expect.sh
. "$tests/expect.sh"
skip()
{
    echo "skipped: distributed training: $*"
    rm -rf "$work"
    exit 0
}
command -v mpirun >/dev/null || skip "mpirun is not installed"
# By this name the processes of this test are found.
weft=$work/weft
ln -s "$program" "$weft"
running()
{
    pgrep -f "^$weft "
}
end_all()
{
    # shellcheck disable=SC2046
    kill -KILL $(running) 2>/dev/null
    rm -rf "$work"
}
trap end_all EXIT
cd "$work" || exit 1
# For Open MPI: more processes than cores, root in a container, and a stopped process in time.
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_base_warn_component_unused=0
export OMP_WAIT_POLICY=passive WEFT_TIMEOUT=60
# A run that hangs ends with status 124.
limit=(timeout -k 20 90)
case $("${limit[@]}" mpirun -n 2 "$weft" train 2>&1) in *"built without MPI"*) skip "weft was built without MPI" ;; esac
skipped=()

for l in en es; do
    head -n 120 "$data/train.$l" >"train.$l"
    head -n 20 "$data/valid.$l" >"valid.$l"
    head -n 110 "train.$l" >"other.$l"
done
texts=(--source train.en --target train.es)
valid=(--valid-source valid.en --valid-target valid.es)
options=(d_model=16 heads=2 d_ff=32 encoder_layers=1 decoder_layers=1 --vocab 200 --batch-tokens 96
    --accumulate 8 --lengths 16 --truncate --warmup 5 --measure=false --threads 1 --log-every 1 --save-every 2
    --valid-every 4)
pair=("${texts[@]}" "${valid[@]}" "${options[@]}")

# train N ARGUMENT...: a training by N processes, which must succeed.
train()
{
    local n=$1
    shift
    "${limit[@]}" mpirun -n "$n" "$weft" train "$@" >log 2>&1 || { fail "$n ranks: train $*"; tail -n 12 log; }
}
same_best()
{
    cmp "$1/best.safetensors" "$2/best.safetensors" || fail "$2 is not the training of $1"
}
# Whether model.safetensors of a folder names files that are there, as many as its processes.
whole()
{
    local names name of
    names=$(head -c 20000 "$1/model.safetensors" | grep -aoE '(model|step-[0-9]+)\.step-[0-9]+\.rank-[0-9]+-of-[0-9]+\.safetensors')
    of=$(head -n 1 <<<"$names" | sed 's/.*-of-\([0-9]*\)\..*/\1/')
    for name in $names; do [ -s "$1/$name" ] || fail "$1/model.safetensors names $name, which is missing"; done
    [ -z "$names" ] || [ "$(wc -l <<<"$names")" -eq "$of" ] || fail "$1/model.safetensors names $names"
}
# start FOLDER COMMAND...: in the background, up to a new line in the metrics of the folder.
start()
{
    local folder=$1 lines=0
    shift
    [ ! -e "$folder/metrics.jsonl" ] || lines=$(wc -l <"$folder/metrics.jsonl")
    "${limit[@]}" "$@" >log 2>&1 &
    job=$!
    for _ in $(seq 3000); do
        if [ "$(cat "$folder/metrics.jsonl" 2>/dev/null | wc -l)" -gt "$lines" ] || ! kill -0 $job 2>/dev/null; then
            break
        fi
        sleep 0.01
    done
}
# The process of a rank.
rank()
{
    local pid
    for pid in $(running); do
        if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "OMPI_COMM_WORLD_RANK=$1"; then echo "$pid"; fi
    done
}
# ended STATUS TEXT: how the job in the background ended, with one line of weft that has the text,
# and no process left.
ended()
{
    local status=$1 text=$2
    { wait $job; } 2>/dev/null
    local was=$?
    if [ $was -ne "$status" ] || ! grep -qE -- "$text" log; then
        fail "status $was, expected $status and \"$text\"; it printed:"
        tail -n 20 log
    fi
    [ "$(grep -c '^weft: ' log)" -le 1 ] || fail "more than one line: $(grep '^weft: ' log)"
    none_left
}
none_left()
{
    for _ in $(seq 500); do running >/dev/null || return; sleep 0.01; done
    fail "still running: $(running)"
}
# goes_on N FOLDER: the run is whole, and N processes make three more steps.
goes_on()
{
    local step
    whole "$2"
    step=$(head -c 20000 "$2/model.safetensors" | grep -ao '"step":"[0-9]*"' | tr -cd 0-9)
    train "$1" "${pair[@]}" --resume --out "$2" --steps $((step + 3))
    grep -q "finished after $((step + 3)) steps" log || fail "$2 was not resumed: $(tail -n 3 log)"
}

# ---- The same bits ----
average=(--ema 0.9 --valid-bleu 4 --best-by bleu)
"$weft" train "${pair[@]}" --steps 10 --out plain >log 2>&1 || fail "one process: $(tail -n 3 log)"
"$weft" train "${pair[@]}" --steps 10 "${average[@]}" --out average >log 2>&1 || fail "one process: $(tail -n 3 log)"
train 2 "${pair[@]}" --steps 10 --out plain-2
train 4 "${pair[@]}" --steps 10 --out plain-4 --threads 2
train 3 "${pair[@]}" --steps 10 --out plain-3
train 8 "${pair[@]}" --steps 10 "${average[@]}" --out average-8
train 2 "${pair[@]}" --steps 10 "${average[@]}" --out average-2 --threads 2
for n in 2 3 4; do same_best plain plain-$n; done
for n in 2 8; do same_best average average-$n; done
cut='s/,"seconds":.*//'
[ "$(sed "$cut" plain/metrics.jsonl)" = "$(sed "$cut" plain-4/metrics.jsonl)" ] || fail "other metrics on 4 ranks"
grep -q $'\r' log && fail "a line that updates itself, though mpirun prints into a file"

# ---- A part of the model on each process ----
train 4 "${pair[@]}" --steps 10 --zero 3 --out pieces
same_best plain pieces
whole pieces
train 2 "${pair[@]}" --steps 6 --zero 3 --out pieces-6
train 3 "${pair[@]}" --steps 10 --resume --zero 1 --out pieces-6
same_best plain pieces-6
# Parts of layers draw other random numbers than the whole.
deep=("${pair[@]}" encoder_layers=2 decoder_layers=2 dropout=0 --valid-bleu 4)
"$weft" train "${deep[@]}" --steps 8 --out deep >log 2>&1 || fail "one process: $(tail -n 3 log)"
# near FOLDER OTHER: losses and norms of all steps differ by rounding only.
near()
{
    local numbers='"(loss|norm|valid_nll)":[-+.e0-9]*'
    paste <(grep -oE "$numbers" "$1/metrics.jsonl") <(grep -oE "$numbers" "$2/metrics.jsonl") | tr ':' '\t' |
        awk '{ a = $2; b = $4; d = a > b ? a - b : b - a; if ($1 != $3 || d > 1e-3 * a) bad = 1 } END { exit bad || NR < 16 }' ||
        fail "$2 is not the training of $1 except for rounding"
}
train 2 "${deep[@]}" --steps 8 --tensor 2 --out parts
train 2 "${deep[@]}" --steps 8 --stages 2 --out stages
train 4 "${deep[@]}" --steps 8 --stages 2 --out stages-4 --threads 2
train 8 "${deep[@]}" --steps 8 --tensor 2 --stages 2 --out both
for run in parts stages both; do near deep $run; whole $run; done
same_best stages stages-4
"$weft" translate both <valid.en >translated 2>log || fail "weft translate both: $(cat log)"
train 3 "${deep[@]}" --steps 6 --stages 3 --out other
train 4 "${deep[@]}" --steps 8 --tensor 2 --stages 1 --resume --out other
near deep other

# ---- Other commands ----
expect 0 "validation loss" "${limit[@]}" mpirun -n 2 "$weft" train --out plain --validate plain/best.safetensors
best=$("$weft" train --out plain --validate plain/best.safetensors 2>/dev/null)
expect 0 "$best" "${limit[@]}" mpirun -n 3 "$weft" train --out plain --validate plain/best.safetensors
"${limit[@]}" mpirun -n 2 "$weft" train "${pair[@]}" --steps 2 --json --out json 2>/dev/null | tr -d '\r' >log
if [ "$(wc -l <log)" -ne 2 ] || ! grep -q '^{"recipe":' log || ! grep -q '^{"steps":2,"end":"finished"' log; then
    fail "--json printed $(cut -c 1-60 log)"
fi
tune=("${texts[@]}" "${valid[@]}" --from plain --frozen 'embedding*' --truncate --batch-tokens 96 --accumulate 8 --steps 4
    --measure=false)
"$weft" train "${tune[@]}" --out tuned >log 2>&1 || fail "fine-tuning: $(tail -n 3 log)"
train 3 "${tune[@]}" --out tuned-3
same_best tuned tuned-3

# ---- Killed and resumed ----
long=("${pair[@]}" --steps 300 --save-every 1 --valid-every 100 --keep 2)
"$weft" train "${long[@]}" --out long >log 2>&1 || fail "the whole run: $(tail -n 3 log)"
for n in 4 2 1 3; do
    start killed mpirun -n $n "$weft" train "${long[@]}" --out killed --resume
    sleep 0.0$((RANDOM % 10))
    # shellcheck disable=SC2046
    kill -KILL $(pgrep -P $job) $(running) 2>/dev/null
    { wait $job; } 2>/dev/null
    none_left
    whole killed
done
train 2 "${long[@]}" --out killed --resume
same_best long killed
whole killed
[ "$(sed "$cut" long/metrics.jsonl)" = "$(sed "$cut" killed/metrics.jsonl)" ] || fail "a killed and resumed run has other metrics"
kept=$(cd killed && ls | grep -v '^step-\(299\|300\)\(.step-\(299\|300\).rank-[01]-of-2\)\?.safetensors$' | tr '\n' ' ')
[ "$kept" = "best.safetensors metrics.jsonl model.safetensors model.step-300.rank-0-of-2.safetensors model.step-300.rank-1-of-2.safetensors recipe.json vocab.model " ] ||
    fail "the folder has $kept"
expect 0 "mean of 2" "$weft" average killed/step-*.safetensors -o mean.safetensors
# What a killed process has left of a checkpoint goes, except files that model.safetensors names.
cp -r killed left && mv left/step-299.safetensors left/model.safetensors
for name in step-300.step-300.rank-0-of-4.safetensors step-298.step-298.rank-1-of-2.safetensors; do
    cp left/step-300.step-300.rank-0-of-2.safetensors "left/$name"
done
rm left/step-300.safetensors
touch left/step-298.safetensors.0123456789ab.tmp left/step-298.step-298.rank-1-of-4.safetensors.0123456789ab.tmp
train 2 "${long[@]}" --out left --resume
same_best long left
[ "$(ls left)" = "$(ls killed)" ] || fail "a killed process has left $(comm -23 <(ls left) <(ls killed))"
# Back to a kept checkpoint, as the message says; one process gives its copy the name of a step.
rm killed/model.safetensors
expect 1 'to continue from it, `cp step-300.safetensors model.safetensors` there and --resume' \
    "${limit[@]}" mpirun -n 2 "$weft" train "${long[@]}" --out killed --resume
for n in 1 3; do
    cp -r killed back-$n
    (cd back-$n && cp step-299.safetensors model.safetensors)
    train $n "${long[@]}" --out back-$n --resume
    same_best long back-$n
done
train 2 "${pair[@]}" --steps 4 --keep 3 --out linked
rm linked/step-4*
"$weft" train "${pair[@]}" --steps 8 --keep 3 --out linked --resume >log 2>&1 || fail "one process: $(tail -n 3 log)"
(cd linked && cp step-4.safetensors model.safetensors)
goes_on 2 linked
[ ! -e linked/step-8.safetensors ] || fail "a checkpoint after the resumed one is still there"
# Killed before the first checkpoint.
mkdir early && cp plain/recipe.json early && : >early/model.step-0.rank-0-of-2.safetensors
train 3 "${pair[@]}" --steps 10 --out early --resume
same_best plain early

# ---- A rank that fails ----
endless=("${pair[@]}" --steps 100000)
start shot mpirun -n 3 "$weft" train "${endless[@]}" --out shot
kill -KILL "$(rank 1)"
ended 137 "mpirun noticed that process rank 1 .* signal 9"
goes_on 2 shot
start stage mpirun -n 4 "$weft" train "${endless[@]}" --out stage --stages 2
kill -KILL "$(rank 3)"
ended 137 "mpirun noticed that process rank 3 .* signal 9"
goes_on 2 stage
start part mpirun -n 2 "$weft" train "${endless[@]}" --out part --tensor 2
prlimit --pid "$(rank 1)" --fsize=1024
ended 1 "weft: rank 1: part/model.step-[0-9]*.rank-1-of-2.safetensors: cannot be written: File too large"
goes_on 4 part
# Its file cannot be written.
start full mpirun -n 3 "$weft" train "${endless[@]}" --out full
prlimit --pid "$(rank 1)" --fsize=1024
ended 1 "weft: rank 1: full/model.step-[0-9]*.rank-1-of-3.safetensors: cannot be written: File too large"
goes_on 1 full
# It does not answer.
export WEFT_TIMEOUT=10
start mute mpirun -n 2 "$weft" train "${endless[@]}" --out mute
kill -STOP "$(rank 1)"
ended 1 "weft: .*exchange.*: no answer from rank 1 for 10 seconds"
start dumb mpirun -n 2 "$weft" train "${endless[@]}" --out dumb --stages 2
kill -STOP "$(rank 1)"
ended 1 "weft: .*exchange.*: no answer from rank 1 for 10 seconds"
export WEFT_TIMEOUT=60
goes_on 3 mute
# It is only slow.
start slow mpirun -n 2 "$weft" train "${long[@]}" --out slow
slow=$(rank 1)
for _ in 1 2 3 4; do
    kill -STOP $slow
    sleep 0.1
    kill -CONT $slow
    sleep 0.02
done 2>/dev/null
ended 0 "finished after 300 steps"
same_best long slow

# ---- Ranks that differ ----
# differ TEXT ARGUMENT...: what rank 0 prints if rank 1 has more arguments.
differ()
{
    local text=$1
    shift
    "${limit[@]}" mpirun -n 1 "$weft" train "${pair[@]}" --steps 4 --out differ : \
        -n 1 "$weft" train "${options[@]}" --steps 4 --out differ "$@" >log 2>&1 &
    job=$!
    ended 1 "$text"
    rm -rf differ
}
differ "^weft: train: rank 1 has another run.seed than rank 0" "${texts[@]}" "${valid[@]}" --seed 2
differ "^weft: train: rank 1 has another model, or options of it than rank 0" "${texts[@]}" "${valid[@]}" d_model=32
differ "^weft: train: rank 1 has another choice of --resume, --validate or --json" "${texts[@]}" "${valid[@]}" --resume
differ "^weft: train: rank 1 has another data.valid_source than rank 0" "${texts[@]}"
differ "^weft: train: rank 1 has other data for validation than rank 0" "${texts[@]}" --valid-source other.en \
    --valid-target other.es
differ "^weft: trainer: rank 1 has other data than rank 0" --source other.en --target other.es "${valid[@]}"
differ "^weft: rank 1: .*none.en: cannot be read" --source none.en --target train.es "${valid[@]}"
differ "^weft: rank 1: command line: is wrong on this rank only" "${texts[@]}" "${valid[@]}" --steps many
# beside TEXT COMMAND...: what is printed if rank 1 is another command with the same arguments.
beside()
{
    local text=$1
    shift
    "${limit[@]}" mpirun -n 1 "$weft" train "${pair[@]}" --steps 4 --out differ : \
        -n 1 "$@" "$weft" train "${pair[@]}" --steps 4 --out differ >log 2>&1 &
    job=$!
    ended 1 "$text"
    rm -rf differ
}
if grep -qw avx2 /proc/cpuinfo; then
    beside "^weft: trainer: rank 1 has another instruction set" env WEFT_ISA=base
else
    skipped+=("ranks of other instruction sets: this processor has one")
fi
if unshare -m true 2>/dev/null; then
    mkdir differ
    beside "^weft: rank 1: differ/vocab.model: cannot be opened" \
        unshare -m sh -c 'mount -t tmpfs tmpfs differ && exec "$@"' sh
else
    skipped+=("a folder that is not shared: no file system can be mounted here")
fi
# Errors of all ranks are printed once.
alike()
{
    local text=$1
    shift
    "${limit[@]}" mpirun -n 3 "$@" >log 2>&1 &
    job=$!
    ended 1 "$text"
}
alike "^weft: none.json: cannot be opened" "$weft" train none.json
alike "^weft: plain/model.safetensors: exists already" "$weft" train "${pair[@]}" --out plain
alike "^weft: nothing: cannot be opened" "$weft" train --out plain --validate nothing
alike "^weft: trainer: an update has 2 batches, which 3 processes cannot share" \
    "$weft" train "${pair[@]}" --accumulate 2 --steps 4 --out few
expect 1 "weft: MPI: the launcher started 2 processes, but MPI finds 1" \
    "${limit[@]}" env PMI_SIZE=2 PMI_RANK=0 "$weft" train "${pair[@]}" --out alone
expect 1 'weft: WEFT_TIMEOUT: "soon" is not a number of seconds' \
    "${limit[@]}" env WEFT_TIMEOUT=soon mpirun -n 2 "$weft" train "${pair[@]}" --out alone

# ---- Signals ----
start signal mpirun -n 3 "$weft" train "${endless[@]}" --out signal
expect 1 "another weft train is running in this folder" \
    "${limit[@]}" mpirun -n 2 "$weft" train "${endless[@]}" --out signal --resume
kill -USR1 "$(pgrep -P $job)"
ended 138 "stopped by a signal after"
goes_on 2 signal
# After SIGINT and SIGTERM mpirun sends SIGTERM, and SIGKILL later: the second time only if the ranks
# have no time to end.
start signal-2 env --default-signal=INT mpirun --mca odls_base_sigkill_timeout 3 -n 2 "$weft" train "${endless[@]}" \
    --out signal-2
kill -INT "$(pgrep -P $job)"
ended 1 "stopped by a signal after"
goes_on 1 signal-2
start signal-3 mpirun -n 2 "$weft" train "${endless[@]}" --out signal-3
kill -TERM "$(pgrep -P $job)"
ended 1 ""
goes_on 1 signal-3

for s in ${skipped[@]+"${skipped[@]}"}; do echo "skipped: $s"; done
[ $failures -eq 0 ] && echo "distributed training: all as expected"
exit $((failures > 0))
