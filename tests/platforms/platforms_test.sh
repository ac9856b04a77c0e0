#!/usr/bin/env bash
# libweft for other processors, by cross compilers and QEMU, by another compiler, and without OpenMP: results have the
# recorded bits.
# Debian's packages: qemu-user, gcc-aarch64-linux-gnu, gcc-riscv64-linux-gnu, gcc-s390x-linux-gnu,
# gcc-arm-linux-gnueabihf. A case is skipped where one is missing.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
golden=$tests/golden/hashes.txt

# compile COMPILER FOLDER FLAG...: the program of hashes, with the libweft of a build folder.
compile()
{
    "$1" -std=gnu11 -O1 -ffp-contract=off -D_GNU_SOURCE -I"$tests/support" -I"$root/graph" -I"$root/ops" \
        -I"$root/autograd" -I"$2/graph" "$tests/ops/hashes.c" "$tests/support/samples.c" "$2/libweft.a" \
        -lm -ldl -o hashes "${@:3}" 2>errors || { fail "$1: $(head -n 5 errors)"; return 1; }
}

# same HASHES: they are the recorded ones.
same()
{
    cmp "$1" "$golden" || fail "$(diff "$golden" "$1" | head -n 6)"
}

# on QEMU TRIPLE FAMILY ENDIAN: the hashes of another processor.
on()
{
    local compiler=$2-gcc
    command -v "$compiler" >/dev/null || skip "$compiler is not installed"
    command -v "qemu-$1" >/dev/null || skip "qemu-$1 is not installed"
    cat >cross.ini <<-END
		[binaries]
		c = '$compiler'
		ar = '$2-ar'
		strip = '$2-strip'
		[host_machine]
		system = 'linux'
		cpu_family = '$3'
		cpu = '$3'
		endian = '$4'
	END
    meson setup other "$root" --cross-file cross.ini -Dcore=true -Dwerror=false >log 2>&1 && ninja -C other libweft.a >>log 2>&1 ||
        { fail "$(tail -n 5 log)"; return; }
    compile "$compiler" other -static -fopenmp || return
    "qemu-$1" ./hashes >got || fail "hashes on $1"
    same got
}

case_AArch64()
{
    on aarch64 aarch64-linux-gnu aarch64 little
}

case_RISC_V_of_64_bits()
{
    on riscv64 riscv64-linux-gnu riscv64 little
}

case_a_processor_of_32_bits()
{
    on arm arm-linux-gnueabihf arm little
}

case_a_processor_with_the_highest_byte_first()
{
    on s390x s390x-linux-gnu s390x big
}

# by_clang FLAG...: the hashes of each instruction set of this processor.
by_clang()
{
    local isa
    command -v clang >/dev/null || skip "clang is not installed"
    CC=clang meson setup other "$root" -Dcore=true -Dwerror=false "$@" >log 2>&1 && ninja -C other libweft.a >>log 2>&1 ||
        { fail "$(tail -n 5 log)"; return; }
    compile clang other -fopenmp || return
    for isa in base v3 v4 v4_bf16; do
        WEFT_ISA=$isa "$weft" info | grep -q "^isa  *$isa\b" || continue
        WEFT_ISA=$isa ./hashes >"$isa" || fail "hashes with $isa"
        same "$isa"
    done
}

case_clang()
{
    by_clang
}

case_clang_without_optimisation()
{
    by_clang -Dc_args=-O0
}

case_without_OpenMP()
{
    meson setup other "$root" -Dcore=true -Dopenmp=disabled -Disa=base -Dwerror=true -Dc_args=-O0 >log 2>&1 &&
        ninja -C other libweft.a >>log 2>&1 || { fail "$(tail -n 5 log)"; return; }
    compile cc other || return
    ./hashes >got || fail "hashes without OpenMP"
    same got
}

run_cases
