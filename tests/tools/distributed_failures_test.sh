#!/usr/bin/env bash
# Trainings by several processes over MPI that end early: runs that are killed and resumed on another number of
# processes, single ranks that fail, and signals.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
# shellcheck source=tests/support/ranks.sh
. "$tests/support/ranks.sh"
long=("${pair[@]}" --steps 300 --save-every 1 --valid-every 100 --keep 2)
endless=("${pair[@]}" --steps 100000)

# A long training by one process, and the same by two.
prepare()
{
    prepare_ranks
    alone "${long[@]}" --out long
    train 2 "${long[@]}" --out pieces
}

case_killed_and_resumed_by_another_number_of_processes()
{
    local n kept
    for n in 4 2 1 3; do
        start killed mpirun -n $n "$weft" train "${long[@]}" --out killed --resume
        sleep 0.0$((RANDOM % 10))
        kill_all
        { wait $job; } 2>/dev/null
        none_left
        whole killed
    done
    train 2 "${long[@]}" --out killed --resume
    same_best long killed
    whole killed
    same_metrics long killed
    # shellcheck disable=SC2010
    kept=$(cd killed && ls | grep -v '^step-\(299\|300\)\(.step-\(299\|300\).rank-[01]-of-2\)\?.safetensors$')
    equal "the files of a run" "$kept" "$(printf '%s\n' best.safetensors metrics.jsonl model.safetensors \
        model.step-300.rank-{0,1}-of-2.safetensors recipe.json vocab.model)"
}

case_a_mean_of_checkpoints()
{
    whole pieces
    expect 0 "mean of 2" "$weft" average pieces/step-*.safetensors -o mean.safetensors
}

# What a killed process has left of a checkpoint goes, except files that model.safetensors names.
case_rests_of_checkpoints_are_removed()
{
    local name
    cp -r pieces left && mv left/step-299.safetensors left/model.safetensors
    for name in step-300.step-300.rank-0-of-4.safetensors step-298.step-298.rank-1-of-2.safetensors; do
        cp left/step-300.step-300.rank-0-of-2.safetensors "left/$name"
    done
    rm left/step-300.safetensors
    touch left/step-298.safetensors.0123456789ab.tmp left/step-298.step-298.rank-1-of-4.safetensors.0123456789ab.tmp
    train 2 "${long[@]}" --out left --resume
    same_best long left
    [ "$(ls left)" = "$(ls pieces)" ] || fail "a killed process has left $(comm -23 <(ls left) <(ls pieces))"
}

# As the message says.
case_back_to_a_checkpoint_that_was_kept()
{
    local n
    rm pieces/model.safetensors
    expect 1 'to continue from it, `cp step-300.safetensors model.safetensors` there and --resume' \
        "${limit[@]}" mpirun -n 2 "$weft" train "${long[@]}" --out pieces --resume
    for n in 1 3; do
        cp -r pieces back-$n
        (cd back-$n && cp step-299.safetensors model.safetensors)
        train $n "${long[@]}" --out back-$n --resume
        same_best long back-$n
    done
}

# One process gives its copy the name of a step.
case_back_to_a_checkpoint_of_one_process()
{
    train 2 "${pair[@]}" --steps 4 --keep 3 --out linked
    rm linked/step-4*
    alone "${pair[@]}" --steps 8 --keep 3 --out linked --resume
    (cd linked && cp step-4.safetensors model.safetensors)
    goes_on 2 linked
    [ ! -e linked/step-8.safetensors ] || fail "a checkpoint after the resumed one is still there"
}

case_killed_before_the_first_checkpoint()
{
    alone "${pair[@]}" --steps 10 --out plain
    mkdir early && cp plain/recipe.json early && : >early/model.step-0.rank-0-of-2.safetensors
    train 3 "${pair[@]}" --steps 10 --out early --resume
    same_best plain early
}

case_a_rank_that_is_killed()
{
    start shot mpirun -n 3 "$weft" train "${endless[@]}" --out shot
    kill -KILL "$(rank 1)"
    ended 137 "mpirun noticed that process rank 1 .* signal 9"
    goes_on 2 shot
    start stage mpirun -n 4 "$weft" train "${endless[@]}" --out stage --stages 2
    kill -KILL "$(rank 3)"
    ended 137 "mpirun noticed that process rank 3 .* signal 9"
    goes_on 2 stage
}

case_a_rank_whose_file_cannot_be_written()
{
    start part mpirun -n 2 "$weft" train "${endless[@]}" --out part --tensor 2
    prlimit --pid "$(rank 1)" --fsize=1024
    ended 1 "weft: rank 1: part/model.step-[0-9]*.rank-1-of-2.safetensors: cannot be written: File too large"
    goes_on 4 part
    start full mpirun -n 3 "$weft" train "${endless[@]}" --out full
    prlimit --pid "$(rank 1)" --fsize=1024
    ended 1 "weft: rank 1: full/model.step-[0-9]*.rank-1-of-3.safetensors: cannot be written: File too large"
    goes_on 1 full
}

case_a_rank_that_does_not_answer()
{
    WEFT_TIMEOUT=10
    start mute mpirun -n 2 "$weft" train "${endless[@]}" --out mute
    kill -STOP "$(rank 1)"
    ended 1 "weft: .*exchange.*: no answer from rank 1 for 10 seconds"
    start dumb mpirun -n 2 "$weft" train "${endless[@]}" --out dumb --stages 2
    kill -STOP "$(rank 1)"
    ended 1 "weft: .*exchange.*: no answer from rank 1 for 10 seconds"
    WEFT_TIMEOUT=60
    goes_on 3 mute
}

case_a_rank_that_is_only_slow()
{
    local slow
    start slow mpirun -n 2 "$weft" train "${long[@]}" --out slow
    slow=$(rank 1)
    for _ in 1 2 3 4; do
        kill -STOP "$slow"
        sleep 0.1
        kill -CONT "$slow"
        sleep 0.02
    done 2>/dev/null
    ended 0 "finished after 300 steps"
    same_best long slow
}

case_SIGUSR1_and_a_folder_that_is_in_use()
{
    start signal mpirun -n 3 "$weft" train "${endless[@]}" --out signal
    expect 1 "another weft train is running in this folder" \
        "${limit[@]}" mpirun -n 2 "$weft" train "${endless[@]}" --out signal --resume
    kill -USR1 "$(pgrep -P $job)"
    ended 138 "stopped by a signal after"
    goes_on 2 signal
}

# After SIGINT and SIGTERM mpirun sends SIGTERM, and SIGKILL later: the second time only if the ranks
# have no time to end.
case_SIGINT_and_SIGTERM()
{
    start signal-2 env --default-signal=INT mpirun --mca odls_base_sigkill_timeout 3 -n 2 "$weft" train "${endless[@]}" \
        --out signal-2
    kill -INT "$(pgrep -P $job)"
    ended 1 "stopped by a signal after"
    goes_on 1 signal-2
    start signal-3 mpirun -n 2 "$weft" train "${endless[@]}" --out signal-3
    kill -TERM "$(pgrep -P $job)"
    ended 1 ""
    goes_on 1 signal-3
}

run_cases
