#!/usr/bin/env bash
# The network of examples/emit learns on other processors: each prints what this one prints, the hash of the parameters
# among it. Debian's packages: those of tests/platforms, and gcc-arm-none-eabi, libnewlib-arm-none-eabi, qemu-system-arm.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
sources=(device.c net.c net_step.c)

prepare()
{
    cp "$root"/examples/emit/* .
    "$build/examples/emit" . 64 32 4 || fail "examples/emit"
    gcc -std=c99 -O2 -Wall "${sources[@]}" -o device && ./device >expected.txt || fail "this processor"
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
}

case_RISC_V_of_64_bits()
{
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
}

case_Cortex_M4()
{
    need arm-none-eabi-gcc qemu-system-arm
    sources+=(cortex_m4.c)
    by arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb -mfpu=fpv4-sp-d16 -mfloat-abi=hard -Os -T cortex_m4.ld -nostartfiles \
        --specs=nano.specs --specs=nosys.specs && prints qemu-system-arm -M mps2-an386 -nographic -monitor none \
        -serial none -semihosting-config enable=on,target=native -kernel there
}

run_cases
