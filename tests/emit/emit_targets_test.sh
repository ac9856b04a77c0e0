#!/usr/bin/env bash
# The network of examples/emit learns on other processors: each prints what this one prints, the hash of the parameters
# among it. So do a Transformer and a CNN whose functions have vectors (weft emit --kernels simd). Debian's packages:
# those of tests/platforms, and gcc-arm-none-eabi, libnewlib-arm-none-eabi, qemu-system-arm, gcc-avr, avr-libc, simavr.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
sources=(device.c net.c net_step.c)

prepare()
{
    cp "$root"/examples/emit/* .
    "$build/examples/emit" . 64 32 4 || fail "examples/emit"
    gcc -std=c99 -O2 -Wall "${sources[@]}" -o device && ./device >expected.txt || fail "this processor"
    prepare_vectors
}

# vectors.c prints the losses and a hash of the states after each of two steps. What it prints without vectors is expected.
prepare_vectors()
{
    cat >vectors.c <<-'END'
		#include "cnn.h"
		#include "gpt.h"
		#include <stdio.h>
		static union { double align; unsigned char bytes[GPT_ARENA_BYTES + CNN_ARENA_BYTES]; } arena;
		static union { double align; unsigned char bytes[GPT_STATE_BYTES]; } gpt_states;
		static union { double align; unsigned char bytes[CNN_STATE_BYTES]; } cnn_states;
		static unsigned char gpt_file[GPT_FILE_BYTES], cnn_file[CNN_FILE_BYTES];
		static unsigned long hash(const unsigned char *bytes, size_t n)
		{
		    uint32_t h = 2166136261u;
		    while (n--) h = (h ^ *bytes++) * 16777619u;
		    return h;
		}
		int main(void)
		{
		    gpt g = {&arena, &gpt_states, 0, 0};
		    cnn c = {&arena, &cnn_states, 0, 0};
		    int32_t ids[13], label = 3;
		    float image[64], loss[2];
		    int i, step;
		    for (i = 0; i < 13; i++) ids[i] = 1 + i * 7 % 19;
		    for (i = 0; i < 64; i++) image[i] = (float)(i * 5 % 17) / 16;
		    gpt_init(&g);
		    cnn_init(&c);
		    for (step = 0; step < 2; step++) {
		        gpt_io x = {ids, ids + 1, loss};
		        cnn_io y = {image, &label, loss + 1};
		        if (gpt_step(&g, &x, 0.01f) || cnn_step(&c, &y, 0.01f)) return 1;
		        gpt_save(&g, gpt_file);
		        cnn_save(&c, cnn_file);
		        printf("%.9g %08lx, %.9g %08lx\n", loss[0], hash(gpt_file, GPT_FILE_BYTES), loss[1],
		               hash(cnn_file, CNN_FILE_BYTES));
		    }
		    return 0;
		}
	END
    local kernels
    for kernels in plain simd; do
        "$weft" emit gpt --train layers=1 batch=1 length=12 max_positions=12 d_model=32 heads=2 d_ff=64 vocab=20 \
            --kernels $kernels -o gpt.c && "$weft" emit "$tests/data/digits/digits.onnx" --train --loss cross-entropy \
            --kernels $kernels -o cnn.c || fail "weft emit"
        [ $kernels = simd ] || { gcc -std=c99 -O1 vectors.c gpt.c cnn.c -o vectors && ./vectors >vectors.txt; } ||
            fail "this processor, without vectors"
    done
    grep -q simd_ gpt.c && grep -q simd_ cnn.c || fail "no vectors"
}

# with_vectors: what is compiled and expected from here on.
with_vectors()
{
    sources=(vectors.c gpt.c cnn.c)
    cp vectors.txt expected.txt
}

# need PROGRAM...: skips where one is missing.
need()
{
    local program
    for program in "$@"; do command -v "$program" >/dev/null || skip "$program is not installed"; done
}

# by COMPILER FLAG...: compiles the network into ./there.
by()
{
    "$@" -Wall "${sources[@]}" -o there >errors.txt 2>&1 || { fail "$*:"; head errors.txt; return 1; }
}

# prints COMMAND...: what this processor prints.
prints()
{
    timeout 600 "$@" </dev/null >printed.txt 2>&1 || fail "$* has status $?"
    equal "what is printed" "$(cat expected.txt)" "$(cat printed.txt)"
}

# on QEMU COMPILER FLAG...
on()
{
    need "$2" "qemu-$1"
    by "${@:2}" -static && prints "qemu-$1" ./there
}

# The three lines of docs/emit.md.
case_this_processor()
{
    [ "$(grep -c . expected.txt)" = 3 ] || fail "expected three lines, got $(cat expected.txt)"
    while IFS= read -r line; do
        grep -qxF "    $line" "$root/docs/emit.md" || fail "docs/emit.md lacks \"$line\""
    done <expected.txt
    local before after
    before=$(sed -n 's/^recognised before: \([0-9]*\) of 200/\1/p' expected.txt)
    after=$(sed -n 's/^recognised after:  \([0-9]*\) of 200/\1/p' expected.txt)
    [ "$before" -lt 100 ] && [ "$after" -gt 180 ] || fail "recognised $before before and $after after"
}

case_AArch64()
{
    on aarch64 aarch64-linux-gnu-gcc -std=c99 -O2
    with_vectors
    on aarch64 aarch64-linux-gnu-gcc -std=c99 -O1 -fno-math-errno
}

case_RISC_V_of_64_bits()
{
    on riscv64 riscv64-linux-gnu-gcc -std=c99 -O2
    with_vectors
    on riscv64 riscv64-linux-gnu-gcc -std=c99 -O2
}

case_a_processor_of_32_bits()
{
    on arm arm-linux-gnueabihf-gcc -std=c99 -O2
}

# With -std=c99 gcc computes floats as doubles there, which the file refuses.
case_a_processor_with_the_highest_byte_first()
{
    on s390x s390x-linux-gnu-gcc -std=gnu99 -O2
    ! s390x-linux-gnu-gcc -std=c99 -c net.c 2>errors.txt && grep -q 'round as IEEE 754 says' errors.txt ||
        fail "floats are computed as doubles"
}

case_WebAssembly()
{
    need clang node
    echo 'int main(void) { return 0; }' >empty.c
    clang --target=wasm32-wasi empty.c -o empty.wasm 2>/dev/null ||
        skip "clang for WebAssembly (clang, wasi-libc, libclang-rt-14-dev-wasm32, lld) is not installed"
    by clang --target=wasm32-wasi -std=c99 -O2 && prints node --no-warnings "$tests/platforms/wasi.mjs" there
    with_vectors
    by clang --target=wasm32-wasi -std=c99 -O2 -msimd128 && prints node --no-warnings "$tests/platforms/wasi.mjs" there
}

case_Cortex_M4()
{
    need arm-none-eabi-gcc qemu-system-arm
    local list files=("${sources[@]}" cortex_m4.c)
    # Doubles as integers of the file, by libgcc's functions, and by those of doubles.c.
    for list in "${files[*]}" "${files[*]} -DWEFT_OWN_DOUBLES=0" "${files[*]} -DWEFT_OWN_DOUBLES=0 doubles.c"; do
        read -ra sources <<<"$list"
        by arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard -Os -T cortex_m4.ld \
            -nostartfiles --specs=nano.specs --specs=nosys.specs && prints qemu-system-arm -M mps2-an386 -nographic \
            -monitor none -serial none -semihosting-config enable=on,target=native -kernel there
    done
}

# avr_prints: what simavr prints, which writes a dot for the end of a line, and colours.
avr_prints()
{
    timeout 600 simavr -m atmega2560 -f 16000000 there </dev/null 2>&1 | sed $'s/\e\\[[0-9;]*m//g; s/\\.$//' |
        grep -v '^Loaded ' >printed.txt
    equal "what is printed" "$(cat expected.txt)" "$(cat printed.txt)"
}

# There int has 16 bits, and double 32. A network 16-8-4, for 8 KB of memory.
case_AVR()
{
    need avr-gcc simavr
    [ -e /usr/lib/avr/include/avr/io.h ] || skip "avr-libc is not installed"
    mkdir avr && cp "$root"/examples/emit/* avr && cd avr || return
    "$build/examples/emit" . 16 8 4 || fail "examples/emit"
    sources+=(-DINPUTS=16 -DSTEPS=100 -DNO_FILES)
    by gcc -std=c99 -O2 && ./there >expected.txt || fail "this processor"
    sources+=(atmega2560.c)
    by avr-gcc -mmcu=atmega2560 -std=c99 -Os -Wextra -Wconversion || return
    avr_prints
}

# Norms, log softmax, clipping and Adam, with examples far from zero, whose means are corrected.
case_AVR_norms_and_Adam()
{
    need avr-gcc simavr
    [ -e /usr/lib/avr/include/avr/io.h ] || skip "avr-libc is not installed"
    mkdir norms && cp "$root"/examples/emit/atmega2560.c norms && cd norms || return
    "$build/tests/emit_norms" . || fail "emit_norms"
    cat >norms.c <<-'END'
		#include "net_step.h"
		#include <stdio.h>
		#include <string.h>
		static union { double align; unsigned char bytes[NET_STEP_ARENA_BYTES]; } arena;
		static union { double align; unsigned char bytes[NET_STEP_STATE_BYTES]; } states;
		int main(void)
		{
		    net_step m = {&arena, &states, 0, 0};
		    float x[12], loss;
		    int32_t target;
		    uint32_t hash = 2166136261u, bits;
		    int step, i, shift;
		    net_step_io io;
		    io.x = x;
		    io.target = &target;
		    io.loss = &loss;
		    net_step_init(&m);
		    for (step = 0; step < 20; step++) {
		        target = step % 3;
		        for (i = 0; i < 12; i++)
		            x[i] = (float)((i + 1) * (step % 3 + 1) % 7) / 4 + (step % 2 ? 300.0f : 0.0f);
		        if (net_step_step(&m, &io, 0.02f)) return 1;
		    }
		    for (i = 0; i < NET_STEP_STATE_BYTES; i += 4) {
		        memcpy(&bits, states.bytes + i, sizeof bits);
		        for (shift = 0; shift < 32; shift += 8) hash = (hash ^ (bits >> shift & 255)) * 16777619u;
		    }
		    printf("hash of the states: %08lx\n", (unsigned long)hash);
		    return 0;
		}
	END
    sources=(norms.c net_step.c)
    by gcc -std=c99 -O2 && ./there >expected.txt || fail "this processor"
    by gcc -std=c99 -O2 -DWEFT_OWN_DOUBLES=1 && prints ./there
    sources+=(atmega2560.c)
    # Without NAME_save and NAME_load, whose text of the file's header would take 2 KB of RAM.
    by avr-gcc -mmcu=atmega2560 -std=c99 -Os -Wextra -Wconversion -ffunction-sections -fdata-sections \
        -Wl,--gc-sections && avr_prints
}

run_cases
