#!/usr/bin/env bash
# weft export: models, runs and files, read again with the same bits, and its errors. Where Python
# has the packages onnx and onnxruntime, onnx_runtime.py compares all models and ops with ONNX
# Runtime; PYTHON names the interpreter.
# Usage: onnx_export_test.sh PATH_OF_WEFT PATH_OF_MAKE_ONNX [PATH_OF_WEFT_TESTS]
set -uo pipefail
weft=$(realpath "$1")
tests=$(realpath "$(dirname "$0")")
if [ ! -x "$2" ]; then
    echo "skipped: export of ONNX files: weft was built without protobuf-c"
    exit 0
fi
make_onnx=$(realpath "$2")
suites=${3:+$(realpath "$3")}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# shellcheck source=tests/expect.sh
. "$tests/expect.sh"
export OMP_WAIT_POLICY=passive

# same_bits A B: two files compute the same from the same made-up inputs, at 1 and 2 threads.
same_bits()
{
    rm -rf ref
    "$weft" run "$1" --random --threads 1 --out ref >out 2>&1 || fail "run $1: $(tail -n 1 out)"
    for threads in 1 2; do
        expect 0 "greatest difference 0" "$weft" run "$2" --random --threads $threads --check ref \
            --rtol 0 --atol 0
    done
}

# ---- Models ----
for model in transformer bert gpt llama lstm seq2seq; do
    sizes=(batch=2 target_len=5)
    case $model in transformer | seq2seq) sizes+=(source_len=6) ;; esac
    case $model in bert | gpt | llama | lstm) sizes=(batch=2 length=5) ;; esac
    expect 0 "$model.onnx: opset 17," "$weft" export $model vocab=50 "${sizes[@]}" -o $model.onnx
    expect 0 "again.onnx: opset 20," "$weft" export $model.onnx --opset 20 -o again.onnx
    same_bits $model.onnx again.onnx
done
expect 0 "loss.onnx" "$weft" export gpt vocab=50 batch=1 length=4 --loss -o loss.onnx
expect 0 "loss  f32 []" "$weft" run loss.onnx --random
expect 0 "seed" "$weft" export --help
"$weft" export gpt vocab=50 batch=2 length=5 --seed 2 -o other.onnx >out || fail "export --seed"
cmp -s gpt.onnx other.onnx && fail "--seed changes no parameter"
"$weft" export gpt vocab=50 batch=2 length=5 -o other.onnx >out || fail "export"
cmp gpt.onnx other.onnx || fail "equal exports are different files"

# ---- Files ----
"$make_onnx" mlp.onnx mlp || fail "make_onnx"
expect 0 "copy.onnx" "$weft" export mlp.onnx --batch 3 -o copy.onnx
rm -rf ref
"$weft" run mlp.onnx --random --batch 3 --out ref >out || fail "run mlp.onnx"
expect 0 "logits  equals the reference: 0 of 12 elements beyond the tolerance, greatest difference 0" \
    "$weft" run copy.onnx --random --check ref --rtol 0 --atol 0
mkdir external
expect 0 "external/gpt.onnx" "$weft" export gpt.onnx --external -o external/gpt.onnx
[ -s external/gpt.onnx.data ] || fail "--external writes no second file"
same_bits gpt.onnx external/gpt.onnx

# ---- A run ----
words 300 1 >text
"$weft" train --source text --target text --valid-source text --valid-target text --vocab 40 \
    --batch-tokens 128 --warmup 5 --steps 4 --out run d_model=16 heads=2 d_ff=32 encoder_layers=1 \
    decoder_layers=1 >out 2>&1 || fail "train: $(tail -n 1 out)"
expect 0 "run.onnx: opset 17," "$weft" export run batch=3 -o run.onnx
expect 0 "f32 [3, " "$weft" run run.onnx --random
expect 0 "again.onnx" "$weft" export run.onnx -o again.onnx
same_bits run.onnx again.onnx
expect 1 "is no size of a batch" "$weft" export run d_model=32 -o x.onnx
expect 1 "none.safetensors" "$weft" export run --checkpoint none.safetensors -o x.onnx

# ---- Errors ----
expect 2 "-o FILE.onnx is missing" "$weft" export gpt
expect 2 "MODEL, RUN or FILE is missing" "$weft" export -o x.onnx
expect 2 "no model \"none\"" "$weft" export none -o x.onnx
expect 2 "--opset" "$weft" export gpt --opset 16 -o x.onnx
expect 2 "--checkpoint needs RUN" "$weft" export gpt --checkpoint x -o x.onnx
expect 2 "FILE.onnx has no loss" "$weft" export mlp.onnx --loss -o x.onnx
expect 1 "cannot be written" "$weft" export gpt -o none/x.onnx
expect 1 "gpt" "$weft" export gpt nonsense=1 -o x.onnx
[ -e x.onnx ] && fail "a failed export leaves a file"

# ---- ONNX Runtime ----
python=${PYTHON:-python3}
if ! "$python" -c 'import onnx, onnxruntime, numpy' 2>/dev/null; then
    echo "skipped: exported files in ONNX Runtime: $python has no packages onnx, onnxruntime and numpy"
else
    mkdir kept
    [ -z "$suites" ] || WEFT_KEEP_EXPORTS=$PWD/kept "$suites" onnx_export >out 2>&1 || fail "onnx_export"
    "$python" "$tests/onnx_runtime.py" "$weft" kept || fail "onnx_runtime.py"
fi
[ $failures -eq 0 ] && echo "export of ONNX files: all passed"
exit $((failures > 0))
