#!/usr/bin/env bash
# What weft_emit writes compiles without warnings, needs no library, and has the bits of libweft: all ops, and the models
# of the list.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
# shellcheck source=tests/emit/compile.sh
. "$tests/emit/compile.sh"

prepare()
{
    local folder
    mkdir ops models some simd bf16 bf16_simd own lengths
    for folder in ops models some simd bf16 bf16_simd own lengths; do cp "$tests/emit/emit_driver.h" "$folder"; done
    "$build/tests/emit_cases" ops --ops >ops.txt || fail "emit_cases ops"
    "$build/tests/emit_cases" models --models >models.txt || fail "emit_cases models"
    "$build/tests/emit_cases" some transformer mobilenet lstm loops >some.txt || fail "emit_cases some"
    "$build/tests/emit_cases" simd --simd matmul conv conv_grad_input conv_grad_weight sdpa sdpa_grad softmax \
        layer_norm layer_norm_grad batch_norm batch_norm_grad cross_entropy log_softmax softmax_grad add_n variance tanh \
        add sum adam_update odd wide quantized matmul_quantized matmul_whole loops transformer mobilenet lstm >simd.txt || fail "emit_cases --simd"
    # Ops that have functions for bf16, some that are written around them, and models.
    "$build/tests/emit_cases" bf16 --bf16 matmul matmul_tiles sdpa sdpa_grad layer_norm_grad rms_norm_grad cross_entropy \
        cross_entropy_grad sum mean prod max min variance logsumexp concat contiguous dropout bernoulli add_n softmax \
        log_softmax softmax_grad log_softmax_grad layer_norm rms_norm tanh where cast equal masked_fill odd loops \
        feed-forward encoder transformer gpt llama lstm mobilenet resnet >bf16.txt || fail "emit_cases --bf16"
    "$build/tests/emit_cases" bf16_simd --simd --bf16 matmul matmul_tiles sdpa sdpa_grad sum softmax layer_norm_grad add wide loops \
        gpt lstm resnet >bf16_simd.txt || fail "emit_cases --simd --bf16"
    "$build/tests/emit_cases" lengths lengths >lengths.txt || fail "emit_cases lengths"
    cp "$root"/examples/emit/* .
    "$build/examples/emit" . 64 32 4 || fail "examples/emit"
}

# Ops without samples, and those that exchange data, are not written.
case_all_ops_can_be_written()
{
    local refused
    refused=$(sed -n 's/^refused: \(op\|random\)_\(.*\)_f[36][24]: .*/\2/p' ops.txt | sort -u | paste -sd' ')
    equal "the ops that cannot be written" "" "$refused"
    ! grep -hE '^(refused: [^or]|cannot )' ops.txt models.txt some.txt simd.txt lengths.txt || fail "cases that were left out"
    ! grep -h '^refused' bf16.txt bf16_simd.txt || fail "cases with bf16 that were left out"
}

case_ops_by_gcc()
{
    cases_by ops 548 gcc -std=c99 -O2 "${warnings[@]}"
}

case_ops_by_clang()
{
    cases_by ops 548 clang -std=c99 -O1 "${warnings[@]}"
}

case_models_by_gcc()
{
    cases_by models 32 gcc -std=c99 -O1 "${warnings[@]}" || return
    # The states that the driver has saved, as the library reads them.
    expect 0 "the states of 16 models are equal" "$build/tests/emit_cases" . --saved
}

# For this processor: its fused operations are used.
case_some_models_for_this_processor()
{
    cases_by some 22 gcc -std=c99 -O2 -march=native -fno-math-errno "${warnings[@]}"
}

case_some_models_without_undefined_behaviour()
{
    cases_by some 22 gcc -std=c99 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all
}

# With vectors: the ops whose functions are written twice, some loops over elements, and models. For a processor with
# fused operations and without.
case_vectors_by_gcc()
{
    cases_by simd 58 gcc -std=c99 -O2 -march=native "${warnings[@]}"
}

case_vectors_by_clang()
{
    cases_by simd 58 clang -std=c99 -O1 "${warnings[@]}"
}

case_vectors_without_undefined_behaviour()
{
    cases_by simd 58 gcc -std=c99 -O1 -g -march=native -fsanitize=address,undefined -fno-sanitize-recover=all
}

# Values stored as bf16, with the library's roundings and products.
case_bf16_by_gcc()
{
    cases_by bf16 80 gcc -std=c99 -O2 "${warnings[@]}"
}

case_bf16_by_clang()
{
    cases_by bf16 80 clang -std=c99 -O1 -march=native "${warnings[@]}"
}

case_bf16_without_undefined_behaviour()
{
    cases_by bf16 80 gcc -std=c99 -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=all
}

case_bf16_with_vectors()
{
    cases_by bf16_simd 29 gcc -std=c99 -O2 -march=native "${warnings[@]}"
}

case_bf16_of_a_program()
{
    expect 0 "refused: own: narrow (own): cannot be written with an operand that is stored as bf16" \
        "$build/tests/emit_cases" own --bf16 own
    expect 0 "1 files written, 0 refused" "$build/tests/emit_cases" own own
    "$weft" emit gpt --train --precision bf16 layers=9 batch=1 length=64 d_model=16 heads=2 d_ff=16 vocab=32 -o bf16.c \
        >printed.txt || fail "weft emit --precision bf16"
    grep -q 'half_to_bf16' bf16.c && grep -q ': 8 times [0-9]*\. ' bf16.c || fail "bf16, or layers that repeat"
}

# C++ takes the files as well.
case_cpp()
{
    command -v g++ >/dev/null || skip "g++ is not installed"
    for file in net.c net_step.c simd/transformer_step.c bf16/gpt_step.c; do
        g++ -x c++ -std=c++17 -Wall -Wextra -c "$file" -o "$file.o" >errors.txt 2>&1 || { fail "g++ $file:"; head errors.txt; }
    done
}

case_nothing_but_memory_functions_is_needed()
{
    local needed
    gcc -std=c99 -Os -ffreestanding -c net_step.c -o net_step.o || { fail "gcc -ffreestanding"; return; }
    needed=$(nm -u net_step.o | awk '{print $2}' | grep -vE '^(memcpy|memset|memcmp|_GLOBAL_OFFSET_TABLE_|__stack_chk_fail)$')
    equal "symbols that are not defined" "" "$needed"
}

# With doubles as integers, where a file needs them for sums only.
case_ops_without_doubles()
{
    cases_by ops 532 gcc -std=c99 -O1 -DWEFT_OWN_DOUBLES=1 "${warnings[@]}"
}

case_sums_without_doubles()
{
    gcc -std=c99 -O2 -Wall -Wextra -Wno-unused-function -DWEFT_OWN_DOUBLES=1 -I "$root" -I "$root/graph" \
        "$tests/emit/wide_check.c" -o check -lm || fail "gcc"
    ./check || fail "other bits than this processor's"
}

# What a program may link on a processor without doubles.
case_arithmetic_of_doubles()
{
    gcc -std=c99 -O2 -Wall -Wextra "$tests/emit/doubles_check.c" doubles.c -o check || fail "gcc"
    ./check || fail "other bits than this processor's"
}

case_the_same_plan_writes_the_same_files()
{
    mkdir again
    "$build/examples/emit" again 64 32 4
    cmp net_step.c again/net_step.c && cmp net_step.h again/net_step.h || fail "other files the second time"
}

# A program may write inputs into the arena, and read outputs there.
case_inputs_and_outputs_lie_in_the_arena()
{
    "$weft" emit rnn length=2 batch=1 vocab=8 -o rnn.c >log.txt || fail "weft emit rnn"
    cat >main.c <<-'END'
		#include "rnn.h"
		#include <string.h>
		static union { double align; unsigned char bytes[RNN_ARENA_BYTES]; } arena;
		int main(void)
		{
		    static const int32_t ids[2] = {3, 5};
		    float output[2 * 8];
		    rnn m = {&arena, NULL, 0, 0};
		    rnn_io by_pointer = {ids, output}, in_place = {NULL, NULL};
		    if (rnn_run(&m, &by_pointer)) return 1;
		    memset(arena.bytes, 0, sizeof arena.bytes);
		    memcpy(arena.bytes + RNN_OFFSET_target_in, ids, sizeof ids);
		    if (rnn_run(&m, &in_place)) return 2;
		    return memcmp(arena.bytes + RNN_OFFSET_output, output, sizeof output) ? 3 : 0;
		}
	END
    gcc -std=c99 main.c rnn.c -o main && ./main || fail "status $?"
}

# calls LAYERS: how many products the step of a model with as many layers calls.
calls()
{
    "$weft" emit gpt --train "layers=$1" batch=1 length=4 d_model=8 heads=2 d_ff=8 vocab=10 -o "gpt$1.c" >printed.txt ||
        fail "gpt of $1 layers"
    grep -c ' matmul_[a-z_]*f32(' "gpt$1.c"
}

case_layers_are_written_once()
{
    equal "calls of products in 3 and in 9 layers" "$(calls 3)" "$(calls 9)"
    grep -q ': 8 times 20. ' gpt9.c || fail "the layers do not repeat"
}

# All convolutions of this model have one image, and not all have as many channels.
case_sizes_that_all_calls_share_are_constants()
{
    "$weft" emit mobilenet width=0.1 image_size=16 classes=3 batch=1 last=64 -o cnn.c >printed.txt || fail "weft emit"
    sed -n '/^typedef struct conv_shape {/,/^}/p' cnn.c >struct.txt
    grep -qw channels struct.txt || fail "the struct lacks a size that differs: $(cat struct.txt)"
    ! grep -qw images struct.txt || fail "the struct has a size that all calls share: $(cat struct.txt)"
    ! grep -q -- '->images' cnn.c || fail "a function reads a size that all calls share"
}

# The number of steps of a loop changes digits only.
case_loops_are_written_once()
{
    local n
    cases_by lengths 3 gcc -std=c99 -O2 "${warnings[@]}" || return
    for n in 10 1000 100000; do
        cat "loop_length_f32_$n.h" "loop_length_f32_$n.c" | tr -d '0-9 \n' >"text_$n.txt"
        cmp "text_$n.txt" text_10.txt || fail "the file of $n steps differs"
    done
}

# A gated cell and its constant; layers of it are a loop of loops.
case_loops_with_equal_bodies_share_a_function()
{
    equal "functions of bodies" 1 "$(grep -c '^static void body_[0-9]*(' some/loop_layers_f32_7.c)"
    grep -q ': 6 times 2\. ' some/loop_layers_f32_7.c || fail "the layers do not repeat"
}

case_names_of_files()
{
    mkdir names
    expect 0 "names/my-net.c: " "$weft" emit rnn length=2 batch=1 -o names/my-net.c
    expect 0 "names/x.c: " "$weft" emit rnn length=2 batch=1 --prefix other -o names/x.c
    grep -q 'my_net_run(' names/my-net.h && grep -q 'other_run(' names/x.h || fail "names of functions"
    (cd names && gcc -std=c99 -c my-net.c x.c) || fail "headers that are not found"
}

# Parameters that a step does not update are constants, and batch norms are folded into convolutions: the files have the
# bits of `weft run`, and the states are those that learn.
case_frozen_parameters_are_constants()
{
    "$weft" export mobilenet width=0.1 image_size=16 classes=3 batch=1 last=64 -o model.onnx >log.txt || fail "weft export"
    npy x.npy '<f4' '1, 3, 16, 16' "$(printf '\\x00\\x00\\x80\\x3e\\x00\\x00\\xc0\\xbf%.0s' {1..384})"
    expect 0 "nodes; arena" "$weft" emit model.onnx -o all.c
    expect 0 "states 780 B" "$weft" emit model.onnx --train --train-on 'classifier.*' --optimizer sgd -o some.c
    expect 0 "nodes; arena" "$weft" emit mobilenet width=0.1 image_size=16 classes=3 batch=1 last=64 --train \
        --train-on 'features.17.*,classifier.*' -o listed.c
    # A matrix [3, 64] and 3 biases.
    grep -qxF '#define SOME_STATE_BYTES 780' some.h || fail "the states: $(grep STATE_BYTES some.h)"
    ! grep -q 'y = x^(-1/2)' all.c || fail "variances are not folded"
    cat >main.c <<-'END'
		#include "all.h"
		#include "some.h"
		#include <stdio.h>
		#include <stdlib.h>
		int main(void)
		{
		    static float x[768];
		    float y[3], loss[2];
		    all m = {malloc(ALL_ARENA_BYTES), NULL, 0, 0};
		    some s = {malloc(SOME_ARENA_BYTES), malloc(SOME_STATE_BYTES), 0, 0};
		    all_io io = {x, y};
		    fseek(stdin, 128, SEEK_SET);
		    if (fread(x, sizeof *x, 768, stdin) != 768 || all_run(&m, &io)) return 1;
		    fwrite(y, sizeof *y, 3, stdout);
		    some_init(&s);
		    for (int i = 0; i < 2; i++) some_step(&s, &(some_io){x, &loss[i]}, 0.1f);
		    return !(loss[1] < loss[0]);
		}
	END
    gcc -std=c99 -O1 "${warnings[@]}" main.c all.c some.c -o main >errors.txt 2>&1 || { fail "gcc:"; head errors.txt; }
    gcc -std=c99 -O1 "${warnings[@]}" -c listed.c -o listed.o || fail "listed.c"
    ./main <x.npy >here.bin || fail "the loss does not fall"
    expect 0 "logits" "$weft" run model.onnx --input "input=x.npy" --out outputs
    cmp here.bin <(tail -c +129 outputs/logits.npy) || fail "other bits than those of weft run"
}

case_errors()
{
    expect 2 "--train-on needs --train" "$weft" emit rnn --train-on '*' -o x.c
    expect 1 "no parameter matches the group classifer.*" "$weft" emit mobilenet --train --train-on 'classifer.*' -o x.c
    expect 2 "name it .c" "$weft" emit rnn -o rnn.txt
    expect 2 "MODEL, RUN or FILE.onnx is missing" "$weft" emit -o x.c
    expect 1 "is not an identifier of C" "$weft" emit feed-forward d_model=8 d_ff=8 --prefix 2x -o x.c
    expect 2 "must be one of plain|simd" "$weft" emit feed-forward d_model=8 d_ff=8 --kernels fast -o x.c
    expect 1 "No such file or directory" "$weft" emit feed-forward d_model=8 d_ff=8 -o missing/x.c
    [ ! -e x.c ] || fail "a file was written in spite of the error"
}

run_cases
