#!/usr/bin/env bash
# `weft fit`: a network of PyTorch learns handwritten digits; runs that are killed and resumed, frozen parameters,
# several inputs, the page about ONNX models, and refused options and data.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
list=$build/tests/list_tensors
make_onnx=$build/tests/make_onnx
quick=(--measure=false --threads 1 --warmup 0 --floor 0 --log-every 1)
digits=("$weft" fit digits.onnx --x x.npy --y y.npy --valid-x valid_x.npy --valid-y valid_y.npy --loss cross-entropy
    "${quick[@]}")
# A run that is long enough to be killed, and one without validation, for what is refused.
long=("${digits[@]}" --steps 200 --save-every 10 --valid-every 20 --optimizer sgd --momentum 0.9 --lr 0.05 --ema 0.9
    --accumulate 2)
unlost=("$weft" fit digits.onnx "${quick[@]}" --steps 1)
short=("${unlost[@]}" --loss cross-entropy)
both=(--x x.npy --y y.npy)
# Two inputs: the model of make_onnx mlp.
mlp=("$weft" fit mlp.onnx "${quick[@]}" --batch 2 --output logits --steps 3)

prepare()
{
    need_program make_onnx
    cp "$tests"/data/digits/*.npy "$tests"/data/digits/digits.onnx .
    "$make_onnx" mlp.onnx mlp || fail "make_onnx mlp"
    npy in.npy '<f4' '4, 3' "$(printf '\\x00\\x00\\x80\\x3f%.0s' {1..12})"
    npy ids.npy '<i8' '4, 2' "$(printf '\\x0%d\\x00\\x00\\x00\\x00\\x00\\x00\\x00' 1 0 2 3 1 2 0 4)"
    npy targets.npy '<f4' '4, 4' "$(printf '\\x00\\x00\\x80\\x3f%.0s' {1..16})"
    expect 0 "finished after 200 steps" "${long[@]}" --out whole
    expect 0 "after 1 steps" "${digits[@]}" --steps 1 --out all
    expect 0 "after 1 steps" "${digits[@]}" --steps 1 --train 'classifier.*' --out classifier
    expect 0 "finished after 3 steps" "${mlp[@]}" --x ids=ids.npy --x x=in.npy --y targets.npy --loss mse --out mlp-mse
}

# tensors RUN PATTERN: the hashes of some tensors of its checkpoint.
tensors()
{
    "$list" "$1/model.safetensors" | grep -E "$2"
}

# The metrics, without times.
numbers()
{
    sed -E 's/,"seconds":[^,}]*//; s/,"rows_per_second":[^,}]*//' "$1/metrics.jsonl"
}

# same_bits WHAT RUN OTHER: the runs have the same tensors.
same_bits()
{
    [ "$(tensors "$2" .)" = "$(tensors "$3" .)" ] || fail "$1"
}

# refuse TEXT OPTION...: status 1 and the text, and no folder.
refuse()
{
    local text=$1
    shift
    expect 1 "$text" "$@" --out refused
    [ -e refused ] && fail "$* leaves a folder" && rm -rf refused
}

# need_mpi: skips where weft fit cannot be several processes.
need_mpi()
{
    # shellcheck source=tests/support/mpirun.sh
    . "$tests/support/mpirun.sh"
    export WEFT_TIMEOUT=60
    # What Open MPI's modules leave allocated is not weft's.
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
    command -v mpirun >/dev/null || skip "there is no mpirun"
    case $(timeout -k 20 90 mpirun -n 2 "$weft" fit 2>&1) in
        *"built without MPI"*) skip "weft was built without MPI" ;;
    esac
}

# The command of docs/onnx.md, with PyTorch's settings; PyTorch reaches 98.9 to 99.2 %.
case_the_command_of_the_page_learns_digits()
{
    page=$(sed -n 's/^    \$ weft fit \(digits.onnx.*\)$/\1/p' "$root/docs/onnx.md" | head -n 1)
    [ -n "$page" ] || fail "docs/onnx.md has no command for the digits"
    read -ra command <<<"$page"
    expect 0 "finished after 900 steps" "$weft" fit "${command[@]}" --measure=false --threads 2 --log-every 1
    accuracy=$(sed -n 's/.*"accuracy":\([0-9.]*\).*/\1/p' digits/metrics.jsonl | tail -n 1)
    awk -v a="$accuracy" 'BEGIN { exit !(a >= 0.98) }' || fail "an accuracy of $accuracy, expected 0.98"
    for file in model.safetensors best.safetensors model.onnx recipe.json metrics.jsonl; do
        [ -s digits/$file ] || fail "the run has no $file"
    done
    cmp -s digits.onnx digits/model.onnx || fail "model.onnx is another file"
}

case_weft_run_takes_the_folder_of_a_run()
{
    expect 0 "logits  f32 [3, 10]" "$weft" run whole --batch 3 --random
    expect 0 "logits  f32 [3, 10]" "$weft" run whole/model.safetensors --batch 3 --random
    "$weft" run whole --batch 3 --random --out best >one.txt
    expect 1 "logits  differs" "$weft" run digits.onnx --batch 3 --random --check best
}

case_threads_change_no_bits()
{
    expect 0 "finished after 200 steps" "${long[@]}" --threads 2 --out threads
    same_bits "two threads compute different bits from one" whole threads
}

case_a_killed_and_resumed_run_has_the_same_bits()
{
    "${long[@]}" --out killed >killed.txt 2>&1 &
    pid=$!
    for ((i = 0; i < 1200; i++)); do
        { [ -s killed/metrics.jsonl ] && [ "$(wc -l <killed/metrics.jsonl)" -gt 40 ]; } && break
        sleep 0.05
    done
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    expect 0 "finished after 200 steps" "$weft" fit --resume --out killed
    same_bits "a resumed run computes different bits" whole killed
    [ "$(numbers whole)" = "$(numbers killed)" ] || fail "a resumed run has other metrics"
}

case_a_signal_saves_and_ends()
{
    "${digits[@]}" --steps 1000000 --out stopped >stopped.txt 2>&1 &
    pid=$!
    for ((i = 0; i < 600; i++)); do
        [ -s stopped/metrics.jsonl ] && break
        sleep 0.1
    done
    kill -TERM $pid
    wait $pid
    [ $? -eq 143 ] || fail "SIGTERM does not end with status 143"
    grep -q "stopped by a signal after" stopped.txt || fail "SIGTERM: $(tail -n 1 stopped.txt)"
    [ -s stopped/model.safetensors ] || fail "SIGTERM leaves no checkpoint"
}

# Running statistics move with the weights; frozen parameters do not, and have no states.
case_only_chosen_parameters_are_trained()
{
    expect 0 "after 2 steps" "${digits[@]}" --steps 2 --train 'classifier.*' --out again
    [ "$(tensors all '^encoder.1.running_mean')" != "$(tensors classifier '^encoder.1.running_mean')" ] ||
        fail "running_mean is not updated"
    [ "$(tensors classifier '^encoder')" = "$(tensors again '^encoder')" ] || fail "--train changes other tensors"
    [ "$(tensors classifier '^classifier')" != "$(tensors again '^classifier')" ] || fail "--train trains nothing"
    [ -z "$(tensors classifier '^opt.*encoder')" ] || fail "frozen parameters have states of the optimiser"
}

case_frozen_statistics_and_weights_stay()
{
    expect 0 "after 1 steps" "${digits[@]}" --steps 1 --freeze '*.running_*,encoder.0.*' --out statistics
    [ "$(tensors statistics 'running')" = "$(tensors classifier 'running')" ] || fail "--freeze changes statistics"
    [ "$(tensors statistics '^encoder.0.weight')" = "$(tensors classifier '^encoder.0.weight')" ] ||
        fail "--freeze changes a weight"
    [ "$(tensors statistics '^encoder.3.weight')" != "$(tensors classifier '^encoder.3.weight')" ] ||
        fail "--freeze freezes everything"
}

case_a_run_begins_with_another_and_other_options()
{
    expect 0 "begins with 17 of the 17 tensors" "${digits[@]}" --steps 1 --from all/model.safetensors --out from
    expect 0 '"accuracy":' "${digits[@]}" --steps 1 --json --best-by accuracy --out json
    expect 0 "finished after 2 steps" "$weft" fit digits.onnx --x image=x.npy --y y.npy --loss cross-entropy \
        "${quick[@]}" --epochs 1 --batch 700 --drop-last --output logits --label-smoothing 0.1 --out dropped
}

case_a_run_is_exported_again()
{
    expect 0 "trained.onnx: opset 17" "$weft" export all --batch 3 -o trained.onnx
    expect 0 "logits" "$weft" run all --batch 3 --random --out of_run
    expect 0 "logits" "$weft" run trained.onnx --random --out of_file
    cmp of_run/logits.npy of_file/logits.npy || fail "an exported run computes other bits"
    expect 0 "other.onnx" "$weft" export all --checkpoint classifier/model.safetensors -o other.onnx
    cmp -s trained.onnx other.onnx && fail "--checkpoint exports the same"
}

case_several_processes_compute_the_same_bits()
{
    need_mpi
    shared=("${digits[@]}" --steps 10 --accumulate 4 --valid-every 5)
    expect 0 "finished after 10 steps" "${shared[@]}" --out alone
    for zero in 1 3; do
        expect 0 "finished after 10 steps" timeout -k 20 90 mpirun -n 2 "${shared[@]}" --zero $zero --out zero-$zero
        [ "$(tensors alone '^(enc|class)')" = "$(tensors zero-$zero '^(enc|class)')" ] ||
            fail "two processes compute other bits with --zero $zero"
        [ "$(numbers alone | grep validation)" = "$(numbers zero-$zero | grep validation)" ] ||
            fail "two processes have other validations with --zero $zero"
    done
}

case_two_inputs_and_the_other_losses()
{
    for loss in bce l1 huber; do
        expect 0 "finished after 3 steps" "${mlp[@]}" --x ids=ids.npy --x x=in.npy --y targets.npy --loss $loss \
            --out mlp-$loss
    done
    expect 0 "finished after 3 steps" "${mlp[@]}" --x in.npy --x ids.npy --y targets.npy --loss mse --out in-order
    same_bits "named inputs differ from those in order" mlp-mse in-order
}

# A loss of probabilities takes their logits, however the file computes the softmax.
case_probabilities()
{
    npy classes.npy '<i4' '4' '\x00\x00\x00\x00\x03\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00'
    inputs=("${quick[@]}" --batch 2 --steps 3 --x in.npy --x ids.npy)
    entropy=(--y classes.npy --loss cross-entropy)
    for kind in softmax quotient sigmoid flat; do
        "$make_onnx" $kind.onnx $kind || fail "make_onnx $kind"
    done
    expect 0 "finished after 3 steps" "$weft" fit mlp.onnx "${inputs[@]}" "${entropy[@]}" --output logits --out logits
    for kind in softmax quotient; do
        expect 0 "p is a softmax: the loss is of its input, the logits" "$weft" fit $kind.onnx "${inputs[@]}" \
            "${entropy[@]}" --out of-$kind
        same_bits "the loss of a $kind is not of its logits" logits of-$kind
    done
    expect 0 "finished after 3 steps" "$weft" fit softmax.onnx "${inputs[@]}" "${entropy[@]}" --output logits --out inner
    same_bits "an inner value as output" logits inner
    expect 0 "finished after 3 steps" "$weft" fit mlp.onnx "${inputs[@]}" --y targets.npy --loss bce --output logits \
        --out bce
    expect 0 "p is a sigmoid" "$weft" fit sigmoid.onnx "${inputs[@]}" --y targets.npy --loss bce --out of-sigmoid
    same_bits "the loss of a sigmoid is not of its logits" bce of-sigmoid
    "$weft" fit softmax.onnx "${inputs[@]}" --y targets.npy --loss mse --out mse 2>&1 | grep -q "is a softmax" &&
        fail "a mean of squares takes logits"
    expect 0 "gradients of all parameters are exactly zero" "$weft" fit flat.onnx "${inputs[@]}" "${entropy[@]}" --out flat
    grep -c "exactly zero" <<<"$("$weft" fit flat.onnx "${inputs[@]}" "${entropy[@]}" --out again 2>&1)" | grep -qx 1 ||
        fail "the warning is printed more than once"
    refuse "nothing: is to be an output, but it is not a value" "$weft" fit softmax.onnx "${inputs[@]}" "${entropy[@]}" \
        --output nothing
}

case_arrays_of_an_archive()
{
    "$weft" run mlp.onnx --random --input none.npz 2>&1 | grep -q "built without libzip" &&
        skip "weft was built without libzip"
    python3 - <<'PYTHON' || fail "python3 cannot write an archive"
import zipfile
with zipfile.ZipFile("data.npz", "w") as archive:
    for name in "in", "ids", "targets":
        archive.write(name + ".npy")
PYTHON
    archived=("${mlp[@]}" --loss mse)
    expect 0 "finished after 3 steps" "${archived[@]}" --x ids=data.npz:ids --x x=data.npz:in \
        --y data.npz:targets --out archived
    same_bits "an archive has other data" mlp-mse archived
    refuse 'data.npz: has no array "y"' "${archived[@]}" --x data.npz:in --x data.npz:ids --y data.npz:y
    refuse "none.npz: cannot be read" "${archived[@]}" --x none.npz:in --x data.npz:ids --y data.npz:y
}

# The run has copies of all files.
case_a_model_with_external_data()
{
    outside=("$weft" fit outside/mlp.onnx --x in.npy --x ids.npy --y targets.npy "${quick[@]}" --batch 2
        --output logits --loss mse)
    mkdir -p outside/weights
    (cd outside && "$make_onnx" mlp.onnx external weights/table.bin) || fail "make_onnx external"
    expect 0 "finished after 3 steps" "${outside[@]}" --steps 3 --out external
    same_bits "external data are other weights" mlp-mse external
    rm -r outside
    expect 0 "logits  f32 [2, 4]" "$weft" run external --batch 2 --random
    mkdir outside
    (cd outside && "$make_onnx" mlp.onnx external model.safetensors) || fail "make_onnx external"
    refuse 'has weights in "model.safetensors", but the run writes' "${outside[@]}" --steps 1
}

case_data_that_are_refused()
{
    refuse "nowhere.npy: cannot be read" "${short[@]}" --x x.npy --y nowhere.npy
    refuse "valid_y.npy: has 360 rows, but" "${short[@]}" --x x.npy --y valid_y.npy
    refuse "has 1437 rows, fewer than a batch of 1438" "${short[@]}" "${both[@]}" --batch 1438
    refuse "a batch of the input image [29, 1, 8, 8]" "${short[@]}" --x y.npy --y y.npy
    refuse "a batch of the input fit.target [29, 10]" "${short[@]}" "${both[@]}" --loss mse
    refuse '"img" is not an input of the model' "${short[@]}" --x img=x.npy --y y.npy
    refuse "has 1 inputs, but there are 2 arrays" "${short[@]}" "${both[@]}" --x y.npy
    npy labels.npy '|u1' '4,' '\x01\x00\x0a\x03'
    npy images.npy '|u1' '4, 8, 8' "$(printf '\\x01%.0s' {1..256})"
    refuse "is f32, the input fit.target takes i32" "${short[@]}" --x images.npy --y in.npy --batch 2
    refuse "labels.npy: the label 10 of row 2 is outside [0, 10)" "${short[@]}" --x images.npy --y labels.npy --batch 2
}

case_options_that_are_refused()
{
    refuse "has no loss of its own: choose a --loss" "${unlost[@]}" "${both[@]}"
    refuse "expected a model" "$weft" fit "${both[@]}"
    refuse "expected data: --x and --y" "${short[@]}"
    refuse "validation needs both" "${short[@]}" "${both[@]}" --valid-x x.npy
    refuse '--train: "clasifier.*" matches no parameter' "${short[@]}" "${both[@]}" --train 'clasifier.*'
    refuse '--freeze: "nothing" matches no parameter' "${short[@]}" "${both[@]}" --freeze 'encoder.0.*,nothing'
    refuse "every parameter is frozen" "${short[@]}" "${both[@]}" --freeze '*'
    refuse "probabilities: is to be an output, but it is not a value" "${short[@]}" "${both[@]}" --output probabilities
    refuse "exclude each other" "${short[@]}" "${both[@]}" --epochs 3
    refuse "--best-by must be loss or accuracy" "${short[@]}" "${both[@]}" --best-by bleu
    refuse "only cross-entropy and bce have an accuracy" "${short[@]}" "${both[@]}" --loss mse --best-by accuracy
    refuse "--dim expects NAME=N" "${short[@]}" "${both[@]}" --dim batch
    expect 2 "no model" "$weft" fit nothing "${both[@]}" --out refused
}

case_runs_that_are_refused()
{
    expect 1 "has no run to resume" "$weft" fit --resume --out refused
    expect 1 "exists already: continue it with --resume" "${digits[@]}" --out whole
    expect 1 "was trained on data other" "$weft" fit --resume --out whole --x valid_x.npy --y valid_y.npy
    expect 1 "in a recipe of weft train" "$weft" train --resume --out whole
}

# The checkpoint has adapters alone; run and export add them to the weights of the file.
case_adapters_are_trained_next_to_a_file()
{
    local run=("${digits[@]}" --lora 4 --lora-alpha 8 --lora-dropout 0.1 --lr 1e-2 --schedule constant)
    expect 0 "after 12 steps" "${run[@]}" --steps 12 --out parts-whole
    expect 0 "after 6 steps" "${run[@]}" --steps 6 --out parts
    expect 0 "after 12 steps" "$weft" fit --resume --steps 12 --threads 2 --out parts
    same_bits "the resumed training has other tensors" parts-whole parts
    [ "$(tensors parts . | grep -v '^opt\.' | sed 's/ .*//' | tr '\n' ' ')" = "classifier.weight.lora_a classifier.weight.lora_b " ] ||
        fail "there are other tensors than the adapters of the classifier"
    expect 0 "logits" "$weft" run parts --batch 4 --random --out adapted
    expect 0 "14618 parameters" "$weft" export parts --batch 4 -o adapted.onnx
    expect 0 "0 of 40 elements beyond" "$weft" run adapted.onnx --random --check adapted
    expect 1 "40 of 40 elements beyond" "$weft" run digits.onnx --batch 4 --random --check adapted
    expect 1 "was trained with rank=4" "$weft" fit --resume --lora 3 --steps 20 --out parts
    refuse "need --lora" "${short[@]}" "${both[@]}" --lora-alpha 2
    refuse "need the weights of FILE.onnx" "$weft" fit gpt "${quick[@]}" "${both[@]}" --steps 1 --lora 2
    refuse "not of --from" "${short[@]}" "${both[@]}" --lora 2 --from whole/model.safetensors
    refuse "is frozen" "${short[@]}" "${both[@]}" --lora 2 --train 'classifier.*'
    refuse "no matrix of a product in f32 matches" "${short[@]}" "${both[@]}" --lora 2 --lora-on 'features*'
}

run_cases
