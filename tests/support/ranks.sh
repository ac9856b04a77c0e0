# What the tests of trainings by several processes share; they source it after cases.sh.
# shellcheck source=tests/support/mpirun.sh
. "$tests/support/mpirun.sh"
# A process that was stopped is noticed in time.
export WEFT_TIMEOUT=60
# By this name the processes of a case are found.
program=$weft
weft=$work/weft
# A run that hangs ends with status 124.
limit=(timeout -k 20 600)
texts=(--source train.en --target train.es)
valid=(--valid-source valid.en --valid-target valid.es)
options=(d_model=16 heads=2 d_ff=32 encoder_layers=1 decoder_layers=1 --vocab 200 --batch-tokens 96
    --accumulate 8 --lengths 16 --truncate --schedule constant --warmup 1 --measure=false --threads 1 --log-every 1
    --save-every 2 --valid-every 4)
pair=("${texts[@]}" "${valid[@]}" "${options[@]}")
job=

# prepare_ranks: the program by its own name, and texts.
prepare_ranks()
{
    local l
    command -v mpirun >/dev/null || skip "mpirun is not installed"
    ln -s "$program" "$weft"
    case $("${limit[@]}" mpirun -n 2 "$weft" train 2>&1) in *"built without MPI"*) skip "weft was built without MPI" ;; esac
    for l in en es; do
        head -n 120 "$data/train.$l" >"train.$l"
        head -n 20 "$data/valid.$l" >"valid.$l"
        head -n 110 "train.$l" >"other.$l"
    done
}

# The processes of this case, one a line.
running()
{
    pgrep -f "^$weft "
}

# kill_all: the job in the background, and all processes.
kill_all()
{
    # shellcheck disable=SC2046
    kill -KILL ${job:+$(pgrep -P "$job")} $(running) 2>/dev/null
}

none_left()
{
    for _ in $(seq 500); do running >/dev/null || return; sleep 0.01; done
    fail "still running: $(running)"
}

# alone ARGUMENT...: a training by one process, which must succeed.
alone()
{
    "$weft" train "$@" >log 2>&1 || fail "one process: $(tail -n 3 log)"
}

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

same_metrics()
{
    local cut='s/,"seconds":.*//'
    [ "$(sed "$cut" "$1/metrics.jsonl")" = "$(sed "$cut" "$2/metrics.jsonl")" ] || fail "the metrics of $2 differ from those of $1"
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

# start FOLDER COMMAND...: in the background, up to a new line in the metrics of the folder. It ends with the case.
start()
{
    local folder=$1 lines=0
    shift
    [ ! -e "$folder/metrics.jsonl" ] || lines=$(wc -l <"$folder/metrics.jsonl")
    trap kill_all EXIT
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

# goes_on N FOLDER: the run is whole, and N processes make three more steps.
goes_on()
{
    local step
    whole "$2"
    step=$(head -c 20000 "$2/model.safetensors" | grep -ao '"step":"[0-9]*"' | tr -cd 0-9)
    train "$1" "${pair[@]}" --resume --out "$2" --steps $((step + 3))
    grep -q "finished after $((step + 3)) steps" log || fail "$2 was not resumed: $(tail -n 3 log)"
}
