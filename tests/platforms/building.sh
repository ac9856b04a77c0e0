# Sourced by the scripts of this folder: building weft in the folder of a case.

# Before a compiler in a list of meson: a cache, if there is one.
cached=$(command -v ccache >/dev/null && echo "'ccache', ")

# cross_file COMPILER FAMILY ENDIAN PREFIX [WRAPPER]: what meson needs to know of another processor. The compiler may
# have options.
cross_file()
{
    local words
    # shellcheck disable=SC2086
    printf -v words "'%s', " $1
    cat <<-END
		[binaries]
		c = [$cached$words]
		ar = '$4ar'
		strip = '$4strip'
		pkgconfig = 'pkg-config'
		${5:+exe_wrapper = [$5]}
		[host_machine]
		system = 'linux'
		cpu_family = '$2'
		cpu = '$2'
		endian = '$3'
	END
}

# build_other TARGET OPTION...: a target, in ./other.
build_other()
{
    meson setup other "$root" -Dwerror=false "${@:2}" >log 2>&1 && ninja -C other "$1" >>log 2>&1 || { fail "$(tail -n 5 log)"; return 1; }
}

# compile COMPILER LIBRARY_FOLDER PROGRAM FLAG...: hashes or files, with the libweft of a build folder. The compiler may
# have options.
compile()
{
    local -A sources=([hashes]="$tests/ops/hashes.c $tests/support/samples.c" [files]=$tests/platforms/files.c)
    # shellcheck disable=SC2086
    $1 -std=gnu11 -O1 -ffp-contract=off -D_GNU_SOURCE -I"$tests/support" -I"$root/graph" -I"$root/ops" \
        -I"$root/autograd" -I"$2/graph" ${sources[$3]} "$2/libweft.a" -lm -ldl -o "$3" "${@:4}" 2>errors ||
        { fail "$1: $(head -n 5 errors)"; return 1; }
}

# same HASHES: they are the recorded ones.
same()
{
    cmp "$1" "$tests/golden/hashes.txt" || fail "$(diff "$tests/golden/hashes.txt" "$1" | head -n 6)"
}

# in_registers TRIPLE INSTRUCTION: the kernel of matrix products multiplies 14 by 2 vectors with this instruction, and
# keeps their sums in registers: its loop does not use the stack.
in_registers()
{
    "$1-objdump" -d other/ops/libweft_ops_f32_base.a.p/matmul_matmul.c.o | awk -v multiply="$2" '
        /<gemm_sums_14>:/ { inside = 1 }
        inside && /^$/ { exit }
        inside && index($0, multiply) { print held $0; held = ""; found = 1; next }
        found { held = held $0 "\n" }' >loop
    [ "$(grep -c "$2" loop)" = 28 ] || fail "$(grep -c "$2" loop) vectors of sums"
    # Vectors of RISC-V go there by instructions of their own.
    ! grep -e '\[sp' -e '(sp)' -e '\bv[ls]1r' loop || fail "sums leave the registers"
}
