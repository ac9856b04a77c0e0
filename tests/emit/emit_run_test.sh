#!/usr/bin/env bash
# weft emit RUN: what `weft train`, `weft fit`, `weft convert` and `weft quantize` have written, as C with the bits of
# `weft run`; and files of states, to the device and back.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
warnings=(-std=c99 -O1 -Wall -Wextra -Wconversion -pedantic -Werror)

prepare()
{
    "$build/tests/make_run" gpt.safetensors gpt vocab=20 d_model=32 heads=2 d_ff=64 layers=1 max_positions=64 dropout=0 ||
        fail "make_run"
    for bits in 8 4; do
        expect 0 "in $bits bits" "$weft" quantize gpt.safetensors -o gpt-$bits.safetensors --bits $bits
    done
    npy ids.npy '<i4' '2, 3' '\x05\0\0\0\x09\0\0\0\x01\0\0\0\x07\0\0\0\0\0\0\0\x13\0\0\0'
    # Writes the output of net_run for the bytes of its input on stdin.
    cat >run.c <<'END'
#include "net.h"
#include <stdio.h>
static union { double align; unsigned char bytes[NET_ARENA_BYTES]; } arena;
static char in[1 << 16], out[1 << 16];
int main(void)
{
    net m = {&arena, NULL, 0, 0};
    net_io io = {(void *)in, (void *)out};
    return fread(in, 1, sizeof in, stdin) == 0 || net_run(&m, &io) || fwrite(out, 1, sizeof out, stdout) != sizeof out;
}
END
}

# same_output NPY INPUT: net.c computes the array of a file from the data of another.
same_output()
{
    local bytes
    gcc "${warnings[@]}" run.c net.c -o run || { fail "gcc"; return; }
    bytes=$(($(stat -c %s "$1") - 128))
    tail -c +129 "$2" | ./run >out.bin || fail "net_run"
    tail -c +129 "$1" | cmp - <(head -c $bytes out.bin) || fail "$1 differs from what net_run computes"
}

case_checkpoints_in_32_8_and_4_bits()
{
    for run in gpt gpt-8 gpt-4; do
        expect 0 "net.c" "$weft" emit $run.safetensors batch=2 length=3 -o net.c
        expect 0 "logits" "$weft" run $run.safetensors --input target_in=ids.npy --out $run
        same_output $run/logits.npy ids.npy
    done
    equal "functions of 4 bits" "$(grep -c 'static void matmul_quantized' net.c)" 1
}

case_a_folder_and_a_checkpoint_in_it()
{
    mkdir run
    cp gpt.safetensors run/best.safetensors
    "$build/tests/make_run" run/model.safetensors gpt vocab=20 d_model=32 heads=2 d_ff=64 layers=2 max_positions=64
    expect 0 "net.c" "$weft" emit run batch=2 length=3 -o net.c
    expect 0 "best.c" "$weft" emit gpt.safetensors batch=2 length=3 --prefix net -o best.c
    tail -n +3 net.c >a; tail -n +3 best.c >b
    cmp a b || fail "the best checkpoint is not the default"
    expect 0 "other.c" "$weft" emit run --checkpoint run/model.safetensors batch=2 length=3 -o other.c
    grep -q 'layer.1' other.c || fail "--checkpoint has no effect"
}

# With the weights that were trained, and the running statistics of its normalisations.
case_a_run_of_weft_fit()
{
    need_program make_onnx
    cp "$tests"/data/digits/*.npy "$tests"/data/digits/digits.onnx .
    expect 0 "after 20 steps" "$weft" fit digits.onnx --x x.npy --y y.npy --loss cross-entropy --measure=false --threads 1 \
        --warmup 0 --floor 0 --steps 20 --out fitted
    npy four.npy '<f4' '4, 1, 8, 8' "$(printf '\\x00\\x00\\x80\\x3f\\x00\\x00\\x%02x\\x40' {0..127})"
    expect 0 "net.c" "$weft" emit fitted --batch 4 -o net.c
    expect 0 "logits" "$weft" run fitted --batch 4 --input image=four.npy --out out
    same_output out/logits.npy four.npy
}

# Each step has the bits of one of weft fit: weights, running statistics, moments.
case_steps_of_weft_fit()
{
    need_program make_onnx
    local fit=("$weft" fit digits.onnx --x one.npy --y label.npy --batch 1 --loss cross-entropy --measure=false --threads 1
        --warmup 0 --lr 0.01 --schedule constant)
    cp "$tests/data/digits/digits.onnx" .
    npy one.npy '<f4' '1, 1, 8, 8' "$(printf '\\x00\\x00\\x%02x\\x40' {0..63})"
    npy label.npy '<i4' '1,' '\x03\0\0\0'
    cat >learn.c <<'END'
#include "net.h"
#include <stdio.h>
static union { double align; unsigned char bytes[NET_ARENA_BYTES]; } arena;
static union { double align; unsigned char bytes[NET_STATE_BYTES]; } states;
static float image[64];
static unsigned char file[NET_FILE_BYTES];
int main(void)
{
    net m = {&arena, &states, 0, 0};
    int32_t label = 3;
    float loss;
    net_io io = {image, &label, &loss};
    net_init(&m);
    if (fread(image, sizeof image, 1, stdin) != 1 || net_step(&m, &io, 0.01f)) return 1;
    net_save(&m, file);
    return fwrite(file, sizeof file, 1, stdout) != 1;
}
END
    step()
    {
        expect 0 "net.c" "$weft" emit "$@" --train -o net.c
        gcc "${warnings[@]}" learn.c net.c -o learn && tail -c +129 one.npy | ./learn >device.safetensors || fail "the step"
        equal "tensors of $1 after a step" "$("$build/tests/list_tensors" "$run/model.safetensors")" \
            "$("$build/tests/list_tensors" device.safetensors)"
    }
    run=sgd
    expect 0 "after 1 steps" "${fit[@]}" --optimizer sgd --clip 0 --steps 1 --out sgd
    step digits.onnx --loss cross-entropy --optimizer sgd
    expect 0 "after 1 steps" "${fit[@]}" --steps 1 --out first
    run=second
    expect 0 "after 2 steps" "${fit[@]}" --steps 2 --out second
    step first
}

case_adapters_are_part_of_the_weights()
{
    words 200 3 >text
    small=(d_model=32 heads=2 d_ff=64 layers=1 positions=sinusoidal --vocab 30 --batch-tokens 128 --warmup 1 --measure=false)
    expect 0 "finished" "$weft" train gpt --text text --valid-text text "${small[@]}" --steps 3 --out base
    expect 0 "finished" "$weft" train --from base --text text --valid-text text --lora 2 --batch-tokens 128 --warmup 1 \
        --measure=false --steps 3 --out adapted
    expect 0 "net.c" "$weft" emit adapted batch=2 length=3 -o net.c
    expect 0 "logits" "$weft" run adapted --input target_in=ids.npy --out out
    same_output out/logits.npy ids.npy
}

# A step on the device goes on with the moments of a checkpoint, and weft with what the device has saved.
case_states_go_to_the_device_and_back()
{
    local good bad
    expect 0 "net.c" "$weft" emit gpt.safetensors --train batch=2 length=6 -o net.c
    gcc "${warnings[@]}" -I. "$tests/emit/emit_state.c" net.c -o state || { fail "gcc"; return; }
    ./state -s -s -o two.safetensors -s -o three.safetensors || fail "two steps and one"
    ./state two.safetensors -s -o again.safetensors >printed || fail "one step from a file"
    cmp three.safetensors again.safetensors || fail "a step after NAME_load has other bits"
    # weft reads the model of the file, and its moments into another step.
    expect 0 "logits" "$weft" run two.safetensors --input target_in=ids.npy --out two
    expect 0 "net.c" "$weft" emit two.safetensors --train batch=2 length=6 -o net.c
    gcc "${warnings[@]}" -I. "$tests/emit/emit_state.c" net.c -o state || { fail "gcc"; return; }
    ./state -s -o again.safetensors || fail "one step from constants"
    cmp three.safetensors again.safetensors || fail "a step of an emitted checkpoint has other bits"
    # As another program would write it, and damaged.
    gcc -std=c99 -g -fsanitize=address,undefined -fno-sanitize-recover=all -I. "$tests/emit/emit_state.c" net.c -o checked ||
        { fail "gcc -fsanitize"; return; }
    mkdir files
    python3 "$tests/emit/emit_files.py" two.safetensors files || fail "emit_files.py"
    ./checked files/good-* >printed || fail "good files: $(tail -n 1 printed)"
    grep refused printed && fail "good files are refused"
    for good in files/good-*; do
        ./checked "$good" -s -o again.safetensors >printed && cmp three.safetensors again.safetensors || fail "$good"
    done
    ./checked files/bad-* >printed 2>errors || fail "bad files: $(tail -n 1 printed) $(head -n 3 errors)"
    grep loaded printed && fail "bad files are loaded"
    bad=$(find files -name 'bad-*' | wc -l)
    # Numbers of bf16, from a file and as constants of half the size.
    ./checked files/rounded.safetensors -s -o rounded >log || fail "a step from rounded numbers"
    ./checked files/half.safetensors -s -o half >log && cmp rounded half || fail "a step from bf16"
    expect 0 "net.c" "$weft" emit files/half.safetensors --train batch=2 length=6 -o net.c
    grep -q "uint16_t first_embedding" net.c || fail "numbers of bf16 are not constants of 16 bits"
    gcc "${warnings[@]}" -I. "$tests/emit/emit_state.c" net.c -o state && ./state -s -o half && cmp rounded half ||
        fail "a step from constants of bf16"
    equal "the number of refused files" "$bad" "$(grep -c refused printed)"
}

case_errors()
{
    expect 1 "is quantised, expected parameters in f32" "$weft" emit gpt-8.safetensors --train -o x.c
    expect 1 "is not a batch size of \"gpt\"" "$weft" emit gpt.safetensors d_model=64 -o x.c
    expect 1 "none.safetensors" "$weft" emit none.safetensors -o x.c
    expect 2 "--checkpoint needs RUN" "$weft" emit rnn --checkpoint gpt.safetensors -o x.c
    expect 2 "MODEL, RUN or FILE.onnx is missing" "$weft" emit -o x.c
    expect 2 "--loss is for FILE.onnx" "$weft" emit gpt.safetensors --train --loss mse -o x.c
    expect 2 "--optimizer and --loss need --train" "$weft" emit digits.onnx --loss mse -o x.c
    mkdir empty
    expect 1 "is neither a checkpoint nor a folder with a model.safetensors" "$weft" emit empty -o x.c
    cp gpt.safetensors run.c
    expect 1 "is a file that the command reads" "$weft" emit gpt.safetensors --checkpoint run.c -o run.c
    [ ! -e x.c ] || fail "a file was written in spite of the error"
}

run_cases
