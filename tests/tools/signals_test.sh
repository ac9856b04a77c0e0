#!/usr/bin/env bash
# How a training ends, and goes on: killed and resumed runs, signals, full disks, losses that are not finite, early
# stopping; averages and plots of what it leaves.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
pair=("$weft" train --source train.en --target train.es --valid-source valid.en --valid-target valid.es d_model=16
    heads=2 d_ff=32 --vocab 300 --batch-tokens 256 --warmup 5 --measure=false encoder_layers=1 decoder_layers=1)
long=("${pair[@]}" --steps 60 --save-every 3 --valid-every 10 --keep 2 --log-every 1 --ema 0.9 --accumulate 2)

# A run that was never stopped.
prepare()
{
    for l in en es; do
        head -n 300 "$data/train.$l" >"train.$l"
        head -n 40 "$data/valid.$l" >"valid.$l"
    done
    "${long[@]}" --out whole >log 2>&1 || fail "the whole run: $(tail -n 3 log)"
    [ "$(cd whole && echo step-*)" = "step-57.safetensors step-60.safetensors" ] || fail "not two checkpoints are kept"
}

# numbers RUN: its metrics without times
numbers()
{
    sed 's/,"seconds":.*//' "$1/metrics.jsonl"
}

# times_grow RUN: the seconds in its metrics never go back.
times_grow()
{
    awk 'match($0, /"seconds":[0-9.]+/) {
        s = substr($0, RSTART + 10, RLENGTH - 10)
        if (s + 0 < last) exit 1
        last = s + 0
    }' "$1/metrics.jsonl" || fail "the seconds of a resumed run go back"
}

# kill_after RUN LINES: resumes the run and kills it when its metrics have as many lines.
kill_after()
{
    local pid seen
    "${long[@]}" --out "$1" --resume >log 2>&1 &
    pid=$!
    for _ in $(seq 500); do
        seen=$(cat "$1/metrics.jsonl" 2>/dev/null | wc -l)
        if [ "$seen" -ge "$2" ]; then break; fi
        kill -0 $pid 2>/dev/null || break
        sleep 0.01
    done
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
}

case_a_killed_and_resumed_run_has_the_same_bits()
{
    for i in $(seq 0 9); do kill_after parts $((i * 6 + RANDOM % 6)); done
    expect 0 "finished after 60" "${long[@]}" --out parts --resume
    cmp whole/model.safetensors parts/model.safetensors || fail "a killed and resumed run differs"
    cmp whole/best.safetensors parts/best.safetensors || fail "its best checkpoint differs"
    [ "$(numbers whole)" = "$(numbers parts)" ] || fail "its metrics differ"
    [ "$(cd parts && echo step-*)" = "step-57.safetensors step-60.safetensors" ] || fail "not two checkpoints are kept"
    times_grow parts
}

case_a_finished_run_is_resumed_with_more_steps()
{
    expect 0 "finished after 60" "$weft" train --resume --out whole
    expect 0 "finished after 62" "$weft" train --resume --out whole --steps 62
    expect 1 "was made with d_model=16, not 32" "${long[@]}" --out whole --resume d_model=32
    expect 1 "batches per epoch (set by texts" "$weft" train --resume --out whole --batch-tokens 512
    expect 0 "finished after 62" "$weft" train --resume --out whole # a refused run has changed nothing
    expect 0 ", best validation loss " "$weft" train --resume --out whole
    times_grow whole
    expect 1 "exists already" "${long[@]}" --out whole
}

case_a_run_without_its_checkpoint_is_refused()
{
    cp -r whole lone && rm lone/model.safetensors
    expect 1 "exists without model.safetensors" "${long[@]}" --out lone --resume
    cmp whole/best.safetensors lone/best.safetensors || fail "a refused run has taken the best checkpoint"
}

# Those after it are of a run that is given up.
case_a_run_goes_back_to_a_kept_checkpoint()
{
    cp -r whole back && mv back/step-57.safetensors back/model.safetensors
    expect 0 "finished after 57" "$weft" train --resume --out back --steps 57
    [ "$(cd back && echo step-*)" = "step-57.safetensors" ] || fail "kept: $(cd back && echo step-*)"
}

case_early_stopping()
{
    expect 0 "stopped early after 6 steps" "${pair[@]}" --lr 1e-9 --steps 100 --valid-every 2 \
        --patience 2 --floor 0 --schedule inverse-sqrt --warmup 1000000 --out early
}

case_averages()
{
    expect 0 "mean of 2" "$weft" average whole/step-*.safetensors -o mean.safetensors
    expect 0 "finished after 1" "$weft" train gpt --text train.en --valid-text valid.en d_model=16 heads=2 d_ff=32 \
        layers=1 --vocab 300 --batch-tokens 256 --measure=false --steps 1 --out gpt
    expect 1 "has a different model" "$weft" average gpt/best.safetensors mean.safetensors -o x.safetensors
    expect 2 "-o FILE is missing" "$weft" average mean.safetensors
    mkfifo pipe
    expect 1 "pipe: is not a regular file" "$weft" average mean.safetensors -o pipe
}

case_plots_of_runs()
{
    command -v gnuplot >/dev/null || skip "gnuplot is not installed"
    cp -r whole again
    expect 0 "" "$weft" plot whole again -o loss.svg
    grep -q "whole: validation" loss.svg || fail "no curve in the plot"
}

case_a_plot_of_nothing()
{
    expect 1 "none/metrics.jsonl: cannot be opened" "$weft" plot none -o x.svg
}

case_signals_save_and_end()
{
    for signal in INT TERM HUP; do
        : >log
        # Under nohup it is right to ignore SIGHUP; not here.
        env --default-signal=$signal "${pair[@]}" --minutes 5 --out $signal >log 2>&1 &
        pid=$!
        for _ in $(seq 300); do grep -q "^step" log && break; sleep 0.02; done
        expect 1 "another weft train is running" "${pair[@]}" --minutes 5 --out $signal --resume
        kill -$signal $pid
        wait $pid
        status=$?
        [ $status -eq $((128 + $(kill -l $signal))) ] || fail "SIG$signal ended with status $status: $(cat log)"
        grep -q "stopped by a signal after" log || fail "SIG$signal is not named: $(cat log)"
        [ -s $signal/model.safetensors ] || fail "no checkpoint after SIG$signal"
    done
}

# Nobody reads what it prints: it goes on, and all is saved.
case_a_run_whose_output_nobody_reads()
{
    "${pair[@]}" --steps 40 --log-seconds 0 --out unread 2>log | grep -q "^step"
    grep -q '"step":40,"epoch"' unread/metrics.jsonl || fail "a run whose output nobody reads has ended"
    head -c 65536 unread/model.safetensors >unread.head
    grep -qa '"step":"40"' unread.head || fail "it has not been saved"
}

case_a_file_that_is_too_large()
{
    limited()
    {
        (ulimit -f 40 && "$@")
    }
    expect 0 "finished after 4" "${pair[@]}" --steps 4 --out full
    cp full/model.safetensors before
    expect 1 "cannot be written: File too large" limited "${pair[@]}" --steps 8 --out full --resume
    cmp before full/model.safetensors || fail "a failed save has harmed the checkpoint"
    for file in full/*tmp*; do [ ! -e "$file" ] || fail "a failed save leaves $file"; done
    expect 0 "finished after 8" "${pair[@]}" --steps 8 --out full --resume
}

# A file system of 1 MiB that is filled while a run pauses: its next checkpoint has no room.
case_a_full_disk()
{
    mkdir disk
    unshare -rm mount -t tmpfs tmpfs disk || skip "no file system can be mounted here; only a limit of file size was tested"
    cat >disk.sh <<'END'
failures=0
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
    export -f expect fail
    unshare -rm bash disk.sh "${pair[@]}" || fail "a full disk: see above"
}

case_a_loss_that_is_not_finite()
{
    expect 1 "was not made" "${pair[@]}" --optimizer sgd --clip 0 --lr 100 --warmup 0 --schedule constant \
        --momentum 0.9 --steps 500 --save-every 1 --out wild
    expect 0 "mean of 1" "$weft" average wild/model.safetensors -o tame.safetensors
}

run_cases
