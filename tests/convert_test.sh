#!/usr/bin/env bash
# Models of Hugging Face's transformers in the program: convert, run, and back. Usage:
# convert_test.sh PATH_OF_WEFT
set -uo pipefail
weft=$(realpath "$1")
tests=$(realpath "$(dirname "$0")")
golden=$tests/golden/huggingface
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# shellcheck source=tests/expect.sh
. "$tests/expect.sh"
export OMP_WAIT_POLICY=passive

expect 0 "LlamaForCausalLM" "$weft" convert --list

# Every model: its outputs are those of transformers, and what goes back is read again as the same.
for folder in "$golden"/*/; do
    name=$(basename "$folder")
    inputs=()
    for file in "$folder"inputs/*.npy; do
        inputs+=(--input "$(basename "$file" .npy)=$file")
    done
    "$weft" convert "$folder" -o "$name" >out 2>&1 || { fail "convert $name"; cat out; continue; }
    grep -q "parameters in .* tensors, saved in $name" out || fail "what convert $name prints"
    for run in "$name" "$name-again"; do
        "$weft" run "$run" "${inputs[@]}" --out "$run-out" >out 2>&1 || { fail "run $run"; cat out; }
        for file in "$folder"outputs/*.npy; do
            [ -f "$run-out/$(basename "$file")" ] || fail "$run has no $(basename "$file")"
        done
        expect 0 "equals the reference" "$weft" run "$run" "${inputs[@]}" --check "$folder"outputs \
            --rtol 1e-5 --atol 2e-5
        [ "$run" = "$name" ] || break
        "$weft" convert "$name" -o "$name-back" >out 2>&1 || { fail "convert $name back"; cat out; }
        "$weft" convert "$name-back" -o "$name-again" >out 2>&1 || { fail "convert $name again"; cat out; }
        python3 - "$name/model.safetensors" "$name-again/model.safetensors" <<'P' || fail "$name has other tensors"
import json, sys
def read(path):
    data = open(path, "rb").read()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    header.pop("__metadata__")
    return {k: (v["dtype"], v["shape"], data[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]])
            for k, v in header.items()}
sys.exit(read(sys.argv[1]) != read(sys.argv[2]))
P
    done
    cmp -s "$name-out/hidden.npy" "$name-again-out/hidden.npy" || fail "$name: other bits when read again"
done

# Same bits at any number of threads; sizes without arrays; inputs that do not fit.
for threads in 1 2; do
    "$weft" run llama --input target_in="$golden/llama/inputs/target_in.npy" --threads $threads \
        --out threads$threads >out || fail "run llama on $threads threads"
done
diff -r threads1 threads2 || fail "outputs at 1 and 2 threads differ"
expect 0 "logits  f32 [3, 5, 59]" "$weft" run gpt2 --random --dim batch=3 --dim length=5
expect 0 "logits  f32 [2, 4, 47]" "$weft" run marian --random --dim batch=2 --dim source_len=3 --dim target_len=4
expect 1 'gpt: has no size "rows"' "$weft" run gpt2 --random --dim rows=3
expect 1 "target_in: is not given" "$weft" run gpt2
expect 1 "is no input of the model" "$weft" run gpt2 --input target_in="$golden/gpt2/inputs/target_in.npy" \
    --input source="$golden/marian/inputs/source.npy"
expect 1 "none: has no NAME.npy of an output" "$weft" run gpt2 --random --check none
expect 1 "max_positions is 16" "$weft" run gpt2 --random --dim length=17
expect 1 "is no checkpoint, and no folder with a model.safetensors" "$weft" run "$work" --random

# A run of `weft train` goes to transformers' format, and its checkpoints, too.
words 60 1 >text
"$weft" train gpt --text text --valid-text text d_model=16 heads=2 d_ff=32 layers=1 max_positions=64 \
    --vocab 30 --steps 2 --measure=false --out own >out 2>&1 || { fail "train"; tail -3 out; }
expect 0 "saved in own-hf" "$weft" convert own -o own-hf
grep -q '"GPT2LMHeadModel"' own-hf/config.json || fail "own-hf/config.json has another architecture"
expect 0 "saved in own-file" "$weft" convert own/model.safetensors -o own-file
expect 0 "gpt vocab=29" "$weft" convert own-hf -o own-again
for run in own own-again; do
    "$weft" run $run --random --dim length=9 --out $run-out >out || fail "run $run"
done
cmp own-out/logits.npy own-again-out/logits.npy || fail "own and own-again have other logits"

# Errors are one line.
expect 1 "has a model already: choose another -o" "$weft" convert "$golden/gpt2" -o gpt2
expect 1 "has a model already: choose another -o" "$weft" convert gpt2 -o gpt2-back
expect 1 "is no checkpoint" "$weft" convert "$work" -o new
expect 1 "config.json names the one that is read" "$weft" convert "$golden/gpt2" -o new --architecture OPTForCausalLM
expect 1 "GPT2LMHeadModel, which is gpt" "$weft" convert llama -o new --architecture GPT2LMHeadModel
expect 1 "is no architecture that weft knows" "$weft" convert llama -o new --architecture Nothing
expect 1 "cannot be made" "$weft" convert "$golden/gpt2" -o none/new
expect 2 "expected DIR or RUN, and -o" "$weft" convert gpt2
expect 2 "one DIR or RUN only" "$weft" convert a b -o c
mkdir bad && cp "$golden/gpt2/config.json" bad
expect 1 "has neither model.safetensors nor" "$weft" convert bad -o new
head -c 5000 "$golden/gpt2/model.safetensors" >bad/model.safetensors
expect 1 "bad/model.safetensors" "$weft" convert bad -o new
[ ! -e new ] || fail "a failed conversion left a folder"

[ $failures -eq 0 ] && echo "models of Hugging Face: all passed"
exit $((failures > 0))
