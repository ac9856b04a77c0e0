#!/usr/bin/env bash
# Training by several processes over MPI: the same bits on any number of them, parts of the model on each, and other
# commands. Runs that end early are in distributed_failures_test.sh.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
# shellcheck source=tests/support/ranks.sh
. "$tests/support/ranks.sh"
average=(--ema 0.9 --valid-bleu 4 --best-by bleu)
# Parts of layers draw different random numbers from the whole.
deep=("${pair[@]}" encoder_layers=2 decoder_layers=2 dropout=0 --valid-bleu 4)

# Trainings by one process.
prepare()
{
    prepare_ranks
    alone "${pair[@]}" --steps 10 --out plain
    alone "${deep[@]}" --steps 8 --out deep
}

# near FOLDER OTHER: losses and norms of all steps differ by rounding only. That of f32 is 6e-8 at first, and training
# magnifies it: after four steps of tests/models/divided_test.c a norm is off by 1.4e-6 of it. Here there are ten.
near()
{
    local numbers='"(loss|norm|valid_nll)":[-+.e0-9]*'
    paste <(grep -oE "$numbers" "$1/metrics.jsonl") <(grep -oE "$numbers" "$2/metrics.jsonl") | tr ':' '\t' |
        awk '{ a = $2; b = $4; d = a > b ? a - b : b - a; if ($1 != $3 || d > 1e-3 * a) bad = 1 } END { exit bad || NR < 16 }' ||
        fail "$2 is not the training of $1 except for rounding"
}

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

# mixed TEXT COMMAND...: what is printed if rank 1 is another command with the same arguments.
mixed()
{
    local text=$1
    shift
    "${limit[@]}" mpirun -n 1 "$weft" train "${pair[@]}" --steps 4 --out differ : \
        -n 1 "$@" "$weft" train "${pair[@]}" --steps 4 --out differ >log 2>&1 &
    job=$!
    ended 1 "$text"
    rm -rf differ
}

# alike TEXT COMMAND...: what three processes print once.
alike()
{
    local text=$1
    shift
    "${limit[@]}" mpirun -n 3 "$@" >log 2>&1 &
    job=$!
    ended 1 "$text"
}

case_the_same_bits_on_any_number_of_processes()
{
    local n
    train 2 "${pair[@]}" --steps 10 --out plain-2
    train 3 "${pair[@]}" --steps 10 --out plain-3
    train 4 "${pair[@]}" --steps 10 --out plain-4 --threads 2
    grep -q $'\r' log && fail "a line that updates itself, though mpirun prints into a file"
    for n in 2 3 4; do same_best plain plain-$n; done
    same_metrics plain plain-4
}

case_the_same_averages_on_any_number_of_processes()
{
    local n
    alone "${pair[@]}" --steps 10 "${average[@]}" --out average
    train 8 "${pair[@]}" --steps 10 "${average[@]}" --out average-8
    train 2 "${pair[@]}" --steps 10 "${average[@]}" --out average-2 --threads 2
    for n in 2 8; do same_best average average-$n; done
}

case_a_part_of_the_parameters_on_each_process()
{
    train 4 "${pair[@]}" --steps 10 --zero 3 --out pieces
    same_best plain pieces
    whole pieces
    train 2 "${pair[@]}" --steps 6 --zero 3 --out pieces-6
    train 3 "${pair[@]}" --steps 10 --resume --zero 1 --out pieces-6
    same_best plain pieces-6
}

case_a_part_of_each_layer_on_each_process()
{
    train 2 "${deep[@]}" --steps 8 --tensor 2 --out parts
    near deep parts
    whole parts
}

case_some_of_the_layers_on_each_process()
{
    train 2 "${deep[@]}" --steps 8 --stages 2 --out stages
    near deep stages
    whole stages
    train 4 "${deep[@]}" --steps 8 --stages 2 --out stages-4 --threads 2
    same_best stages stages-4
}

case_parts_of_layers_and_some_of_them()
{
    train 8 "${deep[@]}" --steps 8 --tensor 2 --stages 2 --out both
    near deep both
    whole both
    "$weft" translate both <valid.en >translated 2>log || fail "weft translate both: $(cat log)"
}

case_resumed_with_other_parts()
{
    train 3 "${deep[@]}" --steps 6 --stages 3 --out other
    train 4 "${deep[@]}" --steps 8 --tensor 2 --stages 1 --resume --out other
    near deep other
}

case_validating()
{
    local best
    expect 0 "validation loss" "${limit[@]}" mpirun -n 2 "$weft" train --out plain --validate plain/best.safetensors
    best=$("$weft" train --out plain --validate plain/best.safetensors 2>/dev/null)
    expect 0 "$best" "${limit[@]}" mpirun -n 3 "$weft" train --out plain --validate plain/best.safetensors
}

case_the_lines_of_json()
{
    "${limit[@]}" mpirun -n 2 "$weft" train "${pair[@]}" --steps 2 --json --out json 2>/dev/null | tr -d '\r' >log
    if [ "$(wc -l <log)" -ne 2 ] || ! grep -q '^{"recipe":' log || ! grep -q '^{"steps":2,"end":"finished"' log; then
        fail "--json printed $(cut -c 1-60 log)"
    fi
}

case_fine_tuning()
{
    local tune=("${texts[@]}" "${valid[@]}" --from plain --frozen 'embedding*' --truncate --batch-tokens 96
        --accumulate 8 --steps 4 --measure=false)
    alone "${tune[@]}" --out tuned
    train 3 "${tune[@]}" --out tuned-3
    same_best tuned tuned-3
}

case_ranks_that_differ()
{
    differ "^weft: train: rank 1 has a different run.seed than rank 0" "${texts[@]}" "${valid[@]}" --seed 2
    differ "^weft: train: rank 1 has a different model or model option than rank 0" "${texts[@]}" "${valid[@]}" d_model=32
    differ "^weft: train: rank 1 has a different choice of --resume, --validate or --json" "${texts[@]}" "${valid[@]}" --resume
    differ "^weft: train: rank 1 has a different data.valid_source than rank 0" "${texts[@]}"
    differ "^weft: train: rank 1 has different validation data than rank 0" "${texts[@]}" --valid-source other.en \
        --valid-target other.es
    differ "^weft: trainer: rank 1 has different data than rank 0" --source other.en --target other.es "${valid[@]}"
    differ "^weft: rank 1: .*none.en: cannot be read" --source none.en --target train.es "${valid[@]}"
    differ "^weft: rank 1: command line: is wrong on this rank only" "${texts[@]}" "${valid[@]}" --steps many
}

case_ranks_with_different_instruction_sets()
{
    grep -qw avx2 /proc/cpuinfo || skip "this processor has one instruction set"
    "${limit[@]}" mpirun -n 1 "$weft" train "${pair[@]}" --steps 10 --out mixed : \
        -n 1 env WEFT_ISA=base "$weft" train "${pair[@]}" --steps 10 --out mixed >log 2>&1 || fail "$(cat log)"
    same_best plain mixed
    "$weft" train "${pair[@]}" --precision bf16 --steps 4 --out narrow >log 2>&1 || fail "$(cat log)"
    "${limit[@]}" mpirun -n 1 "$weft" train "${pair[@]}" --precision bf16 --steps 4 --out narrow-mixed : \
        -n 1 env WEFT_ISA=v3 "$weft" train "${pair[@]}" --precision bf16 --steps 4 --out narrow-mixed >log 2>&1 ||
        fail "$(cat log)"
    same_best narrow narrow-mixed
}

case_a_folder_that_is_not_shared()
{
    unshare -m true 2>/dev/null || skip "no file system can be mounted here"
    mkdir differ
    mixed "^weft: rank 1: differ/vocab.model: cannot be opened" \
        unshare -m sh -c 'mount -t tmpfs tmpfs differ && exec "$@"' sh
}

case_errors_of_all_ranks_are_printed_once()
{
    alike "^weft: none.json: cannot be opened" "$weft" train none.json
    alike "^weft: plain/model.safetensors: exists already" "$weft" train "${pair[@]}" --out plain
    alike "^weft: nothing: cannot be opened" "$weft" train --out plain --validate nothing
    alike "^weft: trainer: an update has 2 batches, which 3 processes cannot share" \
        "$weft" train "${pair[@]}" --accumulate 2 --steps 4 --out few
}

case_launchers_and_WEFT_TIMEOUT()
{
    expect 1 "weft: MPI: the launcher started 2 processes, but MPI finds 1" \
        "${limit[@]}" env PMI_SIZE=2 PMI_RANK=0 "$weft" train "${pair[@]}" --out alone
    expect 1 'weft: WEFT_TIMEOUT: "soon" is not a number of seconds' \
        "${limit[@]}" env WEFT_TIMEOUT=soon mpirun -n 2 "$weft" train "${pair[@]}" --out alone
}

run_cases
