#!/usr/bin/env bash
# Every command that loads refuses a checkpoint without one of its tensors, or with one that its model does not have,
# with a line that names it, and leaves files that exist as they are. Commands do not write over their own input.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
export OMP_NUM_THREADS=1
fit=("$weft" fit digits.onnx --x x.npy --y y.npy --loss cross-entropy --measure=false --threads 1 --optimizer sgd
    --momentum 0.9 --lr 0.05)
without_onnx= # the reason why the program cannot write ONNX files

# A language model, one for translation, one that is quantised, and a fitted model of an ONNX file.
prepare()
{
    local small=(d_model=32 heads=2 d_ff=32 --vocab 200 --batch-tokens 256 --warmup 5 --measure=false --threads 1
        --steps 3)
    for l in en es; do head -n 60 "$data/train.$l" >"a.$l"; done
    expect 0 "finished after 3" "$weft" train gpt layers=1 "${small[@]}" --text a.en --valid-text a.en --ema 0.9 \
        --out gpt
    expect 0 "finished after 3" "$weft" train transformer encoder_layers=1 decoder_layers=1 "${small[@]}" \
        --source a.en --target a.es --out pair
    expect 0 "saved in" "$weft" quantize gpt -o small
    npy ids.npy '<i4' '1, 1' '\x05\0\0\0'
    "$weft" export gpt -o whole.onnx >log 2>&1 || without_onnx=$(grep -o "weft was built without.*" log) ||
        fail "weft export: $(tail -n 1 log)"
    [ -z "$without_onnx" ] || return
    cp "$tests"/data/digits/*.npy "$tests"/data/digits/digits.onnx .
    expect 0 "finished after 2" "${fit[@]}" --steps 2 --out digits
}

need_onnx()
{
    [ -z "$without_onnx" ] || skip "$without_onnx"
}

# refuses NAME COMMAND...: the command fails with one line that has the name, and leaves the file `kept` alone.
refuses()
{
    local name=$1 got status
    shift
    echo kept >kept
    got=$("$@" 2>&1 <a.en)
    status=$?
    if [ $status -ne 1 ] || ! grep '^weft: ' <<<"$got" | grep -qF -- "$name" || [ "$(grep -c '^weft: ' <<<"$got")" -ne 1 ]; then
        fail "$* gave status $status, expected 1 and one line with \"$name\"; it printed:"
        head -n 4 <<<"$got"
    fi
    cmp -s kept <(echo kept) || fail "$* wrote over a file"
    [ ! -e new ] || { fail "$* left a file"; rm -rf new; }
}

# damage RUN CHANGE...: the run "cut", with changed checkpoints.
damage()
{
    local run=$1 file
    shift
    rm -rf cut
    cp -r "$run" cut
    for file in cut/*.safetensors; do
        case $file in *.rank-*) continue ;; esac
        python3 "$tests/tools/without.py" "$run/${file#cut/}" "$file" "$@" 2>/dev/null || rm "$file"
    done
}

# of_text RUN NAME: what takes any checkpoint of a language model
of_text()
{
    refuses "$2" "$weft" run "$1" --input target_in=ids.npy --out new
    refuses "$2" "$weft" logprob "$1"
    refuses "$2" "$weft" generate "$1" --prompt In --tokens 2
}

# of_f32 RUN NAME: what takes parameters in f32
of_f32()
{
    refuses "$2" "$weft" quantize "$1" -o kept.safetensors
    refuses "$2" "$weft" quantize "$1" -o new
    refuses "$2" "$weft" convert "$1" -o new
    refuses "$2" "$weft" average "$1"/model.safetensors -o kept
    refuses "$2" "$weft" average gpt/model.safetensors "$1"/model.safetensors -o kept
    refuses "$2" "$weft" train --from "$1" --text a.en --steps 1 --measure=false --out new
    refuses "$2" "$weft" train --resume --steps 4 --out "$1"
    refuses "$2" "$weft" train --out "$1" --validate "$1/model.safetensors"
    refuses "$2" "$weft" report "$1" -o kept
}

# keeps FILE COMMAND...: the command is refused, and the file stays as it is.
keeps()
{
    local file=$1
    shift
    cp "$file" before
    expect 1 "is a file that the command reads: choose another output" "$@"
    cmp -s "$file" before || fail "$* wrote over its input"
}

case_a_tensor_of_a_language_model()
{
    local change
    for change in layer.0.attn.q.weight embedding layer.norm.beta; do
        damage gpt "$change"
        of_text cut "$change"
        of_f32 cut "$change"
    done
}

case_exporting_without_a_tensor()
{
    local change
    need_onnx
    for change in layer.0.attn.q.weight embedding layer.norm.beta; do
        damage gpt "$change"
        refuses "$change" "$weft" export cut -o kept
    done
}

case_fewer_layers_than_the_options_say()
{
    damage gpt "@model_options=$(python3 - <<'PYTHON'
import json, struct
with open("gpt/model.safetensors", "rb") as file:
    header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
print(header["__metadata__"]["model_options"].replace("layers=1", "layers=40"))
PYTHON
)"
    of_text cut layer.1.
    refuses layer.1. "$weft" convert cut -o new
    refuses layer.1. "$weft" average cut/model.safetensors -o kept
}

case_a_name_that_is_nearly_right()
{
    damage gpt layer.0.ffn.in.weight=layer.0.ffn.in.wieght
    of_text cut layer.0.ffn.in.wieght
    refuses '"layer.0.ffn.in.wieght" meant to be "layer.0.ffn.in.weight"' "$weft" run cut --input target_in=ids.npy
}

case_a_quantised_matrix()
{
    local change
    for change in layer.0.ffn.in.weight.q layer.0.attn.q.weight.scale layer.0.attn.v.weight.zero layer.0.ffn.in.bias; do
        damage small "$change"
        of_text cut "$change"
    done
    damage small layer.0.ffn.in.weight.q layer.0.ffn.in.weight.scale layer.0.ffn.in.weight.zero
    of_text cut layer.0.ffn.in.weight
}

case_a_tensor_of_a_model_for_translation()
{
    damage pair dec.0.ffn.in.weight
    refuses dec.0.ffn.in.weight "$weft" translate cut
    refuses dec.0.ffn.in.weight "$weft" run cut --random --out new
    refuses dec.0.ffn.in.weight "$weft" train --from cut --source a.en --target a.es --steps 1 --measure=false --out new
}

case_training_that_goes_on()
{
    local change resume=("$weft" train --resume --steps 5 --out cut)
    for change in layer.0.attn.q.weight opt.m.layer.0.attn.q.weight opt.v.embedding opt.step ema.layer.norm.gamma; do
        damage gpt "$change"
        cp cut/model.safetensors before
        refuses "$change" "${resume[@]}"
        cmp -s cut/model.safetensors before || fail "a refused training changed its checkpoint"
    done
    for change in step train.state; do
        damage gpt "@$change"
        refuses "\"$change\"" "${resume[@]}"
    done
}

case_a_tensor_of_a_model_of_ONNX()
{
    local change
    need_onnx
    for change in classifier.weight encoder.0.weight encoder.1.running_mean encoder.1.running_var; do
        damage digits "$change"
        refuses "$change" "$weft" run cut --batch 1 --random --out new
        refuses "$change" "$weft" run cut/model.safetensors --batch 1 --random
        refuses "$change" "$weft" export cut -o kept
        refuses "$change" "$weft" fit --resume --steps 3 --out cut
        refuses "$change" "${fit[@]}" --steps 1 --from cut/model.safetensors --out new
    done
}

case_fitting_that_goes_on()
{
    need_onnx
    damage digits classifier.weight
    expect 0 "begins with 16 of the 17 tensors" "${fit[@]}" --steps 1 --from cut/model.safetensors --partial --out part
    damage digits opt.buf.classifier.weight
    refuses opt.buf.classifier.weight "$weft" fit --resume --steps 3 --out cut
    damage digits @train.state
    refuses train.state "$weft" fit --resume --steps 3 --out cut
}

case_checkpoints_are_not_written_over()
{
    cp gpt/best.safetensors own.safetensors
    ln -s own.safetensors link.safetensors
    keeps own.safetensors "$weft" quantize own.safetensors -o own.safetensors
    keeps own.safetensors "$weft" quantize own.safetensors -o ./link.safetensors
    keeps own.safetensors "$weft" quantize link.safetensors -o own.safetensors
    keeps own.safetensors "$weft" average gpt/best.safetensors own.safetensors -o own.safetensors
    expect 1 "has a model already: choose another -o" "$weft" convert gpt -o gpt
    expect 0 "saved in fresh.safetensors" "$weft" quantize own.safetensors -o fresh.safetensors
}

case_files_of_a_run_are_not_written_over()
{
    local file
    for file in metrics.jsonl recipe.json best.safetensors vocab.model; do
        keeps gpt/$file "$weft" report ./gpt --json --no-time -o gpt/$file
        keeps gpt/$file "$weft" report ./gpt --json --no-time -o "$PWD/gpt/../gpt/$file"
    done
    "$weft" report ./gpt --json --no-time -o gpt/report.json
    expect 0 "" "$weft" report ./gpt --json --no-time -o gpt/report.json
    keeps gpt/report.json "$weft" report gpt/report.json -o gpt/report.json
    keeps gpt/metrics.jsonl "$weft" plot gpt -o gpt/metrics.jsonl
}

case_texts_are_not_written_over()
{
    cp a.en copied
    keeps copied "$weft" vocab train copied --size 100 --force -o copied
}

case_ONNX_files_are_not_written_over()
{
    local command
    need_onnx
    keeps digits.onnx "$weft" export digits.onnx -o digits.onnx
    keeps digits/model.onnx "$weft" export digits -o digits/model.onnx
    keeps digits/model.safetensors "$weft" export digits -o digits/model.safetensors
    ln -s digits.onnx link.dot
    for command in dot report "report gpt --against"; do
        # shellcheck disable=SC2086
        keeps digits.onnx "$weft" $command digits.onnx -o digits.onnx
    done
    keeps digits.onnx "$weft" dot digits.onnx -o link.dot
    keeps digits.onnx "$weft" plan digits.onnx --svg digits.onnx
    keeps digits.onnx "$weft" profile digits.onnx --runs 1 --trace digits.onnx
    keeps digits/model.onnx "$weft" report digits -o digits/model.onnx
}

case_a_second_file_of_parameters_is_not_written_over()
{
    need_onnx
    "$weft" export digits.onnx --batch 1437 --external -o outside.onnx >/dev/null || fail "export"
    keeps outside.onnx.data "$weft" dot outside.onnx -o outside.onnx.data
    keeps outside.onnx.data "$weft" run outside.onnx --random --dump logits=outside.onnx.data
}

case_inputs_of_a_run_are_not_written_over()
{
    local run=("$weft" run digits.onnx --batch 1437 --random)
    need_onnx
    mkdir inputs && cp x.npy inputs/logits.npy
    keeps x.npy "${run[@]}" --input "image=x.npy" --dump logits=x.npy
    keeps inputs/logits.npy "${run[@]}" --input "image=inputs/logits.npy" --out inputs
    keeps inputs/logits.npy "${run[@]}" --check inputs --out inputs
    keeps inputs/logits.npy "${run[@]}" --check inputs --dump logits=inputs/logits.npy
    keeps digits.onnx "${run[@]}" --dump logits=digits.onnx
    keeps digits/model.safetensors "$weft" run digits --random --dump logits=digits/model.safetensors
}

run_cases
