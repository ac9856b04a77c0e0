#!/usr/bin/env bash
# The program as several processes of MPI.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
make_run=$build/tests/make_run
make_vocabulary=$build/tests/make_vocabulary
version=
# shellcheck source=tests/support/mpirun.sh
. "$tests/support/mpirun.sh"
export OMP_NUM_THREADS=1

# Runs, and texts to translate.
prepare()
{
    version=$("$weft" --version)
    with_mpi || return
    local sizes=(vocab=400 d_model=32 heads=2 d_ff=64 encoder_layers=1 decoder_layers=1) header bytes
    head -n 300 "$data/train.en" >text
    mkdir run other broken
    "$make_vocabulary" text run/vocab.model && cp run/vocab.model other && cp run/vocab.model broken &&
        "$make_run" run/model.safetensors transformer "${sizes[@]}" &&
        "$make_run" other/model.safetensors transformer "${sizes[@]}" norm=post || fail "no runs"
    # All parameters of `broken` are NaN.
    header=$((8 + $(od -An -tu8 -N8 run/model.safetensors)))
    bytes=$(wc -c <run/model.safetensors)
    { head -c "$header" run/model.safetensors; head -c $((bytes - header)) /dev/zero | tr '\0' '\377'; } >broken/model.safetensors
    { sed -n 301,309p "$data/train.en"; echo; echo "God."; sed -n 310,330p "$data/train.en"; } >in
    : >empty
    echo "God." >one
    printf '\n\nIn the beginning\n' >three
    { printf 'caf\xE9\n'; head -n 5 in; printf 'a\0b\n\xFF\nno line end'; } >odd
}

with_mpi()
{
    ! PMI_SIZE=4 PMI_RANK=0 "$weft" --version 2>&1 | grep -qF "weft was built without MPI"
}

need_mpi()
{
    with_mpi || skip "weft was built without MPI"
    command -v mpirun >/dev/null || skip "mpirun is not installed"
}

# processes N COMMAND...: runs it as N processes; a run that hangs ends with status 124.
processes()
{
    local n=$1
    shift
    timeout 60 mpirun -n "$n" "$@"
}

# one_line STATUS LINE COMMAND...: the exit status, and the only line that begins with "weft", from
# the input that $input names, if any.
one_line()
{
    local status=$1 line=$2 got was
    shift 2
    got=$("$@" 2>&1 <"${input:-/dev/null}")
    was=$?
    got=$(grep '^weft' <<<"$got")
    [ "$was $got" = "$status $line" ] || fail "$* gave status $was, expected $status and \"$line\"; it printed: $got"
}

# same OPTION...: the texts, and the file `pairs` if there is one, are those of one process.
same()
{
    local n
    rm -f pairs
    "$weft" translate run "$@" <"${input:-in}" >alone 2>/dev/null || fail "translate $* fails in one process"
    [ ! -f pairs ] || mv pairs alone.pairs
    for n in 1 2 3 4; do
        processes $n "$weft" translate run "$@" <"${input:-in}" >out 2>err || fail "$n processes: translate $* fails: $(cat err)"
        cmp alone out || fail "$n processes: other translations by $*"
        [ ! -f pairs ] || cmp alone.pairs pairs || fail "$n processes: other alignments by $*"
    done
}

case_one_process_starts_no_MPI()
{
    one_line 0 "$version" env SLURM_JOB_ID=1 SLURM_NTASKS=4 SLURM_PROCID=0 "$weft" --version
    one_line 0 "$version" env SLURM_STEP_NUM_TASKS=1 PMIX_RANK=0 "$weft" --version
    one_line 0 "$version" env WEFT_TIMEOUT=none "$weft" --version
}

case_launchers_that_MPI_does_not_know()
{
    if with_mpi; then
        one_line 1 "weft: MPI: the launcher started 4 processes, but MPI finds 1: they may be of different MPI libraries" \
            env PMI_SIZE=4 PMI_RANK=0 "$weft" --version
    else
        one_line 1 "weft: MPI: this is one of 4 processes, but weft was built without MPI" \
            env OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0 "$weft" --version
        one_line 1 "" env OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=1 "$weft" --version
        one_line 0 "$version" env OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0 "$weft" --version
    fi
}

case_any_number_of_processes()
{
    need_mpi
    one_line 0 "$version" processes 1 "$weft" --version
    one_line 0 "$version" processes 4 "$weft" --version
    expect 0 "" processes 1 "$weft" plan rnn
}

case_commands_of_one_process_and_wrong_command_lines()
{
    need_mpi
    one_line 2 "weft plan: runs in one process only, not under mpirun" processes 3 "$weft" plan rnn
    one_line 2 'weft: no command "none" (see `weft --help`)' processes 3 "$weft" none
    one_line 2 "weft train: unrecognized option '--none'" processes 3 "$weft" train --none
    [ "$(processes 3 "$weft" translate --help | grep -c '^Usage: weft translate')" = 1 ] ||
        fail "--help is not printed by one rank"
}

case_WEFT_TIMEOUT_is_a_number_of_seconds()
{
    local seconds
    need_mpi
    for seconds in none -1 inf 1s; do
        one_line 1 "weft: WEFT_TIMEOUT: \"$seconds\" is not a number of seconds (0: no limit)" \
            env WEFT_TIMEOUT=$seconds mpirun -n 2 "$weft" --version
    done
    one_line 0 "$version" env WEFT_TIMEOUT=2.5 mpirun -n 2 "$weft" --version
}

# An error of all ranks is printed once; one of a single rank names it, and ends the others.
case_errors()
{
    need_mpi
    one_line 1 "weft: none: is neither a checkpoint nor a folder with a model.safetensors" \
        processes 4 "$weft" translate none
    one_line 1 "weft: rank 1: none: is neither a checkpoint nor a folder with a model.safetensors" \
        processes 1 "$weft" translate run : -n 1 "$weft" translate none
    # Ranks with different command lines: the first one waits for the other, which ends with a usage error.
    expect 1 "" processes 1 "$weft" translate run : -n 1 "$weft" translate --none
}

case_the_same_translations_by_any_number_of_processes()
{
    need_mpi
    same --max-length 20
    same --max-length 20 --chunk 3 --batch 2
    same --max-length 12 --beam 3 --nbest 2
    same --max-length 12 --sample --seed 5 --top-k 50 --nbest 2
    same --max-length 12 --with other --weights 1,2 --beam 2
    same --max-length 12 --alignments pairs --chunk 7
    same --max-length 5 --recompute
}

case_inputs_without_texts_and_with_bytes_that_are_none()
{
    local input
    need_mpi
    for input in empty one three odd; do
        same --max-length 9 --nbest 1
        same --max-length 9 --alignments pairs
    done
}

case_a_long_input()
{
    need_mpi
    # Each process opens this file: the mpirun of MPICH does not forward so long an input.
    "$weft" translate run --max-length 4 --max-source 20 <"$data/valid.en" >alone 2>/dev/null
    processes 3 bash -c "exec '$weft' translate run --max-length 4 --max-source 20 <'$data/valid.en'" >out 2>err ||
        fail "a long input fails: $(cat err)"
    cmp alone out || fail "other translations of a long input"
}

case_notes_count_the_lines_and_tokens_of_all_ranks()
{
    local counted
    need_mpi
    counted=$("$weft" translate run --max-length 20 --stats <in 2>&1 >/dev/null | grep -o '^[0-9]* lines, [0-9]* tokens')
    input=in expect 0 "$counted in" processes 3 "$weft" translate run --max-length 20 --stats
    counted=$("$weft" translate run --max-length 2 --max-source 30 <in 2>&1 >/dev/null)
    input=in one_line 0 "$counted" bash -c "timeout 60 mpirun -n 3 '$weft' translate run --max-length 2 --max-source 30 2>&1 >/dev/null"
    input=odd expect 0 "read as unknown): lines 1, 7, 8" processes 3 "$weft" translate run --max-length 2
}

case_pictures_of_attention()
{
    need_mpi
    command -v gnuplot >/dev/null || skip "gnuplot is not installed"
    # The third rank has the first line with a translation.
    "$weft" translate run --max-length 9 --attention alone.svg <three >/dev/null
    processes 3 "$weft" translate run --max-length 9 --attention map.svg <three >/dev/null
    cmp alone.svg map.svg || fail "another picture of attention weights"
    input=empty one_line 0 "weft: none.svg: cannot be drawn: no line has a translation" \
        processes 3 "$weft" translate run --attention none.svg
}

# It fails at the first line that is not empty, which is the third rank's.
case_a_line_at_which_the_model_fails()
{
    local line
    need_mpi
    line=$("$weft" translate broken <three 2>&1)
    input=three one_line 1 "weft: rank 2: ${line#weft: }" processes 3 "$weft" translate broken
    input=in one_line 1 "$line" processes 3 "$weft" translate broken
    [ ! -w /dev/full ] || input=in one_line 1 "weft: output: No space left on device" \
        bash -c "timeout 60 mpirun -n 2 bash -c 'exec \"$weft\" translate run --max-length 2 >/dev/full'"
}

# The rest of the input comes after the first texts.
case_texts_appear_while_the_input_goes_on()
{
    need_mpi
    : >out
    # shellcheck disable=SC2094
    { head -n 4 in
        for _ in $(seq 600); do [ "$(wc -l <out)" -lt 4 ] || break; sleep 0.1; done
        wc -l <out >before
        tail -n +5 in; } | processes 2 "$weft" translate run --max-length 9 --chunk 4 >out
    [ "$(cat before)" = 4 ] || fail "$(cat before) texts were printed before the end of the input"
    "$weft" translate run --max-length 9 <in | cmp - out || fail "other translations of an input that comes late"
}

run_cases
