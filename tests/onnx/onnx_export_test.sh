#!/usr/bin/env bash
# weft export: models, runs and files, read again with the same bits, and its errors. Where Python has the packages
# onnx and onnxruntime, onnx_runtime.py compares all models, ops and loops with ONNX Runtime; PYTHON names the interpreter.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"

prepare()
{
    need_program make_onnx
    "$build/tests/make_onnx" mlp.onnx mlp || fail "make_onnx"
}

# same_bits A B: two files compute the same from the same synthetic inputs, at 1 and 2 threads.
same_bits()
{
    local threads
    rm -rf ref
    "$weft" run "$1" --random --threads 1 --out ref >out 2>&1 || fail "run $1: $(tail -n 1 out)"
    for threads in 1 2; do
        expect 0 "largest difference 0" "$weft" run "$2" --random --threads $threads --check ref \
            --rtol 0 --atol 0
    done
}

case_models_are_read_again_with_the_same_bits()
{
    local model sizes
    for model in transformer bert gpt llama lstm seq2seq; do
        sizes=(batch=2 target_len=5)
        case $model in transformer | seq2seq) sizes+=(source_len=6) ;; esac
        case $model in bert | gpt | llama | lstm) sizes=(batch=2 length=5) ;; esac
        expect 0 "$model.onnx: opset 17," "$weft" export $model vocab=50 "${sizes[@]}" -o $model.onnx
        expect 0 "again.onnx: opset 20," "$weft" export $model.onnx --opset 20 -o again.onnx
        same_bits $model.onnx again.onnx
    done
}

case_a_loss()
{
    expect 0 "loss.onnx" "$weft" export gpt vocab=50 batch=1 length=4 --loss -o loss.onnx
    expect 0 "loss  f32 []" "$weft" run loss.onnx --random
}

case_parameters_depend_on_the_seed_only()
{
    expect 0 "seed" "$weft" export --help
    "$weft" export gpt vocab=50 batch=2 length=5 -o gpt.onnx >out || fail "export"
    "$weft" export gpt vocab=50 batch=2 length=5 --seed 2 -o other.onnx >out || fail "export --seed"
    cmp -s gpt.onnx other.onnx && fail "--seed changes no parameter"
    "$weft" export gpt vocab=50 batch=2 length=5 -o other.onnx >out || fail "export"
    cmp gpt.onnx other.onnx || fail "equal exports are different files"
}

case_a_file_with_another_batch()
{
    expect 0 "copy.onnx" "$weft" export mlp.onnx --batch 3 -o copy.onnx
    "$weft" run mlp.onnx --random --batch 3 --out ref >out || fail "run mlp.onnx"
    expect 0 "logits  equals the reference: 0 of 12 elements beyond the tolerance, largest difference 0" \
        "$weft" run copy.onnx --random --check ref --rtol 0 --atol 0
}

case_parameters_in_a_second_file()
{
    expect 0 "gpt.onnx" "$weft" export gpt vocab=50 batch=2 length=5 -o gpt.onnx
    mkdir external
    expect 0 "external/gpt.onnx" "$weft" export gpt.onnx --external -o external/gpt.onnx
    [ -s external/gpt.onnx.data ] || fail "--external writes no second file"
    same_bits gpt.onnx external/gpt.onnx
}

case_a_run()
{
    words 300 1 >text
    "$weft" train --source text --target text --valid-source text --valid-target text --vocab 40 \
        --batch-tokens 128 --warmup 5 --steps 4 --out run d_model=16 heads=2 d_ff=32 encoder_layers=1 \
        decoder_layers=1 >out 2>&1 || fail "train: $(tail -n 1 out)"
    expect 0 "run.onnx: opset 17," "$weft" export run batch=3 -o run.onnx
    expect 0 "f32 [3, " "$weft" run run.onnx --random
    expect 0 "again.onnx" "$weft" export run.onnx -o again.onnx
    same_bits run.onnx again.onnx
    expect 1 "is not a batch size" "$weft" export run d_model=32 -o x.onnx
    expect 1 "none.safetensors" "$weft" export run --checkpoint none.safetensors -o x.onnx
}

case_errors()
{
    expect 2 "-o FILE.onnx is missing" "$weft" export gpt
    expect 2 "MODEL, RUN or FILE.onnx is missing" "$weft" export -o x.onnx
    expect 2 "no model \"none\"" "$weft" export none -o x.onnx
    expect 2 "--opset" "$weft" export gpt --opset 16 -o x.onnx
    expect 2 "--checkpoint needs RUN" "$weft" export gpt --checkpoint x -o x.onnx
    expect 2 "FILE.onnx has no loss" "$weft" export mlp.onnx --loss -o x.onnx
    expect 1 "cannot be written" "$weft" export gpt -o none/x.onnx
    expect 1 "gpt" "$weft" export gpt nonsense=1 -o x.onnx
    [ -e x.onnx ] && fail "a failed export leaves a file"
}

case_ONNX_Runtime_computes_the_same()
{
    local python=${PYTHON:-python3}
    "$python" -c 'import onnx, onnxruntime, numpy' 2>/dev/null ||
        skip "$python has no packages onnx, onnxruntime and numpy"
    mkdir kept
    local suite
    for suite in onnx_export onnx_export_loop; do
        WEFT_KEEP_EXPORTS=$PWD/kept "$build/tests/weft_tests" $suite >out 2>&1 || fail "$suite"
    done
    "$python" "$tests/onnx/onnx_runtime.py" "$weft" kept || fail "onnx_runtime.py"
}

run_cases
