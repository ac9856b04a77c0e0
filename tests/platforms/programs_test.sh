#!/usr/bin/env bash
# The program, with the other libraries, for AArch64 and as one static program with musl: the trainings of its models
# have the specified bits. And libweft for macOS. Needs the Debian archive, qemu-user and gcc-aarch64-linux-gnu,
# musl-tools, or zig. A case is skipped where one is missing.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
# shellcheck source=tests/platforms/building.sh
. "$tests/platforms/building.sh"
# shellcheck source=tests/platforms/packages.sh
. "$tests/platforms/packages.sh"

# try_program COMMAND...: `weft` of another platform, which exchanges ONNX files with this one.
try_program()
{
    "$@" check --bits >bits || fail "$(grep -v "as specified" bits)"
    [ "$(grep -c "as specified" bits)" -ge 17 ] || fail "only these models: $(cat bits)"
    "$@" export feed-forward -o there.onnx && "$weft" export feed-forward -o here.onnx || fail "export"
    cmp here.onnx there.onnx || fail "the exported files differ"
    "$@" run here.onnx --random --out there && "$weft" run there.onnx --random --out here || fail "run"
    diff -r here there || fail "the outputs of a model from a file differ"
}

case_AArch64()
{
    command -v aarch64-linux-gnu-gcc >/dev/null || skip "aarch64-linux-gnu-gcc is not installed"
    command -v qemu-aarch64 >/dev/null || skip "qemu-aarch64 is not installed"
    libraries_for arm64 aarch64
    build_other tools/weft --cross-file cross.ini -Dmpi=disabled -Dtests=disabled -Dc_args=-O1 || return
    try_program qemu-aarch64 -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=$library_path" other/tools/weft
}

# musl has no OpenMP: one thread.
case_one_static_program_with_musl()
{
    command -v musl-gcc >/dev/null || skip "musl-gcc is not installed"
    static_libraries musl-gcc
    cross_file musl-gcc x86_64 little '' >cross.ini
    cat >>cross.ini <<-END
		[properties]
		pkg_config_libdir = '$PWD/static/lib/pkgconfig'
		[built-in options]
		c_link_args = ['-static']
	END
    build_other tools/weft --cross-file cross.ini -Ddefault_library=static -Dopenmp=disabled -Dmpi=disabled \
        -Dtests=disabled -Dc_args=-O1 || return
    file other/tools/weft | grep -q "statically linked" || fail "the program is not static"
    other/tools/weft info | grep -q "^threads  *1$" || fail "$(other/tools/weft info)"
    cmp <(other/tools/weft fit --help) <("$weft" fit --help) || fail "another help"
    try_program other/tools/weft
}

# compiler_for_macOS PROCESSOR: ./zig-cc and ./zig-ar, for macOS.
compiler_for_macOS()
{
    local zig=(zig)
    command -v zig >/dev/null || zig=(python3 -m ziglang)
    "${zig[@]}" version >/dev/null 2>&1 || skip "zig is not installed"
    # Meson 1.0 does not know the linker of zig: this one answers as Apple's does.
    cat >zig-cc <<-END
		#!/bin/sh
		case " \$* " in
		    *" -Wl,--version "* | *" -Wl,-v "*) echo "ld: unknown option: -v, PROJECT:ld64-711" >&2; exit 1 ;;
		esac
		exec ${zig[*]} cc -target $1-macos -fno-sanitize=undefined "\$@"
	END
    printf '#!/bin/sh\nexec %s ar "$@"\n' "${zig[*]}" >zig-ar
    chmod +x zig-cc zig-ar
    export ZIG_GLOBAL_CACHE_DIR=$PWD/zig ZIG_LOCAL_CACHE_DIR=$PWD/zig
}

# on_macOS PROCESSOR: libweft compiles and links. Nothing here can run it.
on_macOS()
{
    compiler_for_macOS "$1"
    cross_file "$PWD/zig-cc" "$1" little "$PWD/zig-" >cross.ini
    sed -i "s/'linux'/'darwin'/" cross.ini
    build_other libweft.a --cross-file cross.ini -Dcore=true -Dopenmp=disabled -Disa=base -Dc_args=-O0 || return
    compile ./zig-cc other hashes || return
    file hashes | grep -q "Mach-O 64-bit.* executable" || fail "$(file hashes)"
}

case_macOS_on_Apple_silicon_compiles_and_links()
{
    on_macOS aarch64
}

case_macOS_on_x86_64_compiles_and_links()
{
    on_macOS x86_64
}

run_cases
