#!/usr/bin/env bash
# The program with little memory: every allocation of a command made to fail once, in turn (failing_malloc.c). Each
# time it either prints all that it should and succeeds, or reports in one line that memory ran out and exits with 1.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
weft=$build/tests/weft_failing
export OMP_NUM_THREADS=1

# every_allocation COMMAND...: it reads the file that $input names, if any.
every_allocation()
{
    local all survived wrong
    if ! WEFT_FAIL_ALLOCATION=each "$@" <"${input:-/dev/null}" >printed 2>&1; then
        fail "$* fails with all its memory: $(tail -n 2 printed)"
        return
    fi
    all=$(head -n 1 printed)
    [ "$all" -gt 10 ] || fail "$* made $all allocations, which is too few to be true"
    tail -n +2 printed >results
    survived=$(grep -c '^survived$' results)
    wrong=$(grep -cv '^survived$\|^reported$' results)
    [ "$wrong" -eq 0 ] || fail "$*: $wrong of $all failures go wrong: $(grep -m 3 '^allocation' results)"
    # What needs no memory to be right is the exception: buffers of stdio, and the like.
    [ $((4 * survived)) -lt "$all" ] || fail "$*: $survived of $all failures make no difference"
    [ "$(wc -l <results)" -eq "$all" ] || fail "$*: not every run has reported how it ended"
}

case_lists_of_ops_and_models()
{
    every_allocation "$weft" ops --json
    every_allocation "$weft" models --json
    every_allocation "$weft" models
    every_allocation "$weft" models rnn --json
}

case_plans()
{
    mkdir lists
    printf 'lower,upper,size\n0,4,4\n2,6,4\n4,9,8\n' >lists/list.16.csv
    every_allocation "$weft" plan rnn --json
    every_allocation "$weft" plan --instances lists --json
}

case_reports()
{
    every_allocation "$weft" report feed-forward --no-time --json
    "$weft" report feed-forward --no-time --json >saved.json || fail "report"
    every_allocation "$weft" report saved.json --json
}

case_the_report_of_a_run()
{
    mkdir run
    printf '{"model": "gpt", "data": {"valid_source": "a"}}' >run/recipe.json
    printf '{"step":1,"loss":2}\n{"step":2,"samples":[{"source":"a","translation":"b","reference":"c"}]}\n' \
        >run/metrics.jsonl
    every_allocation "$weft" report run --json
}

case_scores()
{
    printf 'one line\nanother one\n' >a
    printf 'one line\nthe other one\n' >b
    every_allocation "$weft" score a b --json
    every_allocation "$weft" score a b --sentences --json
    every_allocation "$weft" score a b --against b --samples 10 --json
}

# SentencePiece bears no failed allocation, so the program has memory in reserve for it.
case_vocabularies()
{
    yes 'some words of a text, again and again' | head -n 50 >text
    printf 'one line\nanother one\n' >words
    echo 20 21 22 >ids
    "$weft" vocab train text -o small.model --size 40 >/dev/null 2>&1 || fail "vocab train"
    input=words every_allocation "$weft" vocab encode small.model
    input=ids every_allocation "$weft" vocab decode small.model
}

case_runs_with_a_tokenizer_json()
{
    need_program tokenizer_ids
    local words='{"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "a": 1, "b": 2, "c": 3}}'
    for run in gpt bert; do
        mkdir $run
        echo "{\"model\": $words, \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}}" >$run/tokenizer.json
        echo '{"eos_token_id": [3, 2]}' >$run/generation_config.json
        echo '[{"path": "1_Pooling", "type": "Pooling"}]' >$run/modules.json
        mkdir $run/1_Pooling && echo '{"pooling_mode": "mean"}' >$run/1_Pooling/config.json
        "$build/tests/make_run" $run/model.safetensors $run vocab=4 d_model=8 heads=1 d_ff=8 layers=1 max_positions=64 \
            pad_id=0 || fail "no $run"
    done
    printf 'a b\nc a b a\n' >lines
    input=lines every_allocation "$weft" vocab encode bert --special
    input=lines every_allocation "$weft" embed bert
    input=lines every_allocation "$weft" embed bert --nearest 1
    every_allocation "$weft" generate gpt --prompt "a b" --tokens 3 --temperature 0 --stream
    input=lines every_allocation "$weft" logprob gpt
}

case_ONNX_files()
{
    need_program make_onnx
    "$build/tests/make_onnx" mlp.onnx || fail "make_onnx"
    every_allocation "$weft" models mlp.onnx --json
    every_allocation "$weft" plan mlp.onnx --train --json
}

run_cases
