#!/usr/bin/env bash
# The program, with the other libraries, for AArch64, for Windows, and as one static program with musl: the trainings of
# its models have the specified bits. A process on AArch64 and one of this processor train one model. And libweft for macOS. Needs the Debian archive, qemu-user and
# gcc-aarch64-linux-gnu, gcc-mingw-w64-x86-64-posix and wine64, musl-tools, or zig. A case is skipped where one is
# missing.
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

# pair_of COMPILER BUILD: the program pair.c, ./pair-BUILD.
pair_of()
{
    local room include=()
    for room in graph ops autograd models distributed; do include+=("-I$root/$room" "-I$2/$room"); done
    ninja -C "$2" libweft.a libweft-models.a libweft-distributed.a >>log 2>&1 || { fail "$(tail -n 5 log)"; return 1; }
    "$1" -std=gnu11 -O1 -ffp-contract=off -D_GNU_SOURCE "${include[@]}" "$tests/platforms/pair.c" "$tests/platforms/pipe_communicator.c" \
        -L"$2" -l:libweft-distributed.a -l:libweft-models.a -l:libweft.a -lm -ldl -fopenmp -static -o "pair-${2##*/}" 2>errors ||
        { fail "$1: $(head -n 5 errors)"; return 1; }
}

# One training on a process of this processor and one of the processor of ./other.
train_together()
{
    pair_of "${CC:-gcc}" "$build" && pair_of aarch64-linux-gnu-gcc other || return
    mkfifo to_here to_there # named pipes
    "./pair-${build##*/}" >alone && [ "$(sort -u -k 3 alone | wc -l)" = 1 ] || fail "alone: $(cat alone)"
    "./pair-${build##*/}" 0 to_here to_there >pair.here &
    timeout 300 qemu-aarch64 ./pair-other 1 to_there to_here >pair.there || fail "the process there"
    wait $! || fail "the process here"
    cmp alone pair.here && cmp alone pair.there || fail "the trained parameters differ: $(cat pair.here pair.there)"
}

case_AArch64()
{
    command -v aarch64-linux-gnu-gcc >/dev/null || skip "aarch64-linux-gnu-gcc is not installed"
    command -v qemu-aarch64 >/dev/null || skip "qemu-aarch64 is not installed"
    libraries_for arm64 aarch64
    build_other tools/weft --cross-file cross.ini -Dmpi=disabled -Dtests=disabled -Dc_args=-O1 || return
    try_program qemu-aarch64 -L /usr/aarch64-linux-gnu -E "LD_LIBRARY_PATH=$library_path" other/tools/weft
    train_together
}

# musl has no OpenMP: one thread. This and the program for Windows have the kernels of the baseline: platforms_test.sh runs
# the others there.
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
        -Dtests=disabled -Disa=base -Dc_args=-O1 || return
    file other/tools/weft | grep -q "statically linked" || fail "the program is not static"
    other/tools/weft info | grep -q "^threads  *1$" || fail "$(other/tools/weft info)"
    cmp <(other/tools/weft fit --help) <("$weft" fit --help) || fail "another help"
    try_program other/tools/weft
}

# program_for_windows: ./other/tools/weft.exe, and ./gnuplot.exe, which copies the number of lines that it gets.
program_for_windows()
{
    export WINEPREFIX=$PWD/wine WINEDEBUG=-all
    command -v x86_64-w64-mingw32-gcc-posix >/dev/null || skip "x86_64-w64-mingw32-gcc-posix is not installed"
    command -v wine >/dev/null || skip "wine is not installed"
    static_libraries x86_64-w64-mingw32-gcc-posix
    cat >libraries.ini <<-END
		[binaries]
		c = [$cached'x86_64-w64-mingw32-gcc-posix']
		pkgconfig = 'pkg-config'
		[properties]
		pkg_config_libdir = '$PWD/static/lib/pkgconfig'
	END
    cat >gnuplot.c <<-END
		#include <stdio.h>
		int main(void) { int c, n = 0; while ((c = getchar()) != EOF) n += c == '\\n'; printf("%d", n); return n < 10; }
	END
    build_other tools/weft.exe --cross-file "$tests/platforms/windows.ini" --cross-file libraries.ini -Dtests=disabled -Disa=base -Dc_args=-O1 &&
        x86_64-w64-mingw32-gcc-posix gnuplot.c -o gnuplot.exe
}

# Texts, streams, paths and other programs, which systems have in their own ways.
files_on_windows()
{
    local windows=(wine other/tools/weft.exe) name=$'folder \xCF\x81'
    cmp <("${windows[@]}" fit --help) <("$weft" fit --help) || fail "another help"
    "${windows[@]}" info >facts && grep -q "^threads  *[1-9]" facts || fail "info: $(cat facts)"
    expect 1 "weft: missing.onnx: cannot be opened: No such file or directory" "${windows[@]}" run missing.onnx --random
    expect 2 'weft: no command "tran" (see `weft --help`); did you mean "train"?' "${windows[@]}" tran
    expect 1 "weft was built without libmicrohttpd" "${windows[@]}" fit nothing.onnx --watch --x a --y b --loss mse
    "${windows[@]}" dot gpt -o "$name.dot" && "$weft" dot gpt -o here.dot && cmp here.dot "$name.dot" || fail "dot"
    words 50 1 | tee hypotheses | gzip >hypotheses.gz
    words 50 2 >references
    "$weft" score hypotheses references >want
    "${windows[@]}" score hypotheses.gz references | cmp - want || fail "gzip is read differently"
    "${windows[@]}" score - references <hypotheses | cmp - want || fail "standard input is read differently"
    head -c 60 hypotheses.gz >damaged.gz
    expect 1 "weft: damaged.gz: is damaged or truncated" "${windows[@]}" score damaged.gz references
}

# A run that begins here is continued there, and the other way round; each has the hashes of one that was not interrupted.
trainings_on_windows()
{
    local windows=(wine other/tools/weft.exe) run
    cp "$tests"/data/digits/*.npy "$tests/data/digits/digits.onnx" .
    local digits=(fit digits.onnx --x x.npy --y y.npy --valid-x valid_x.npy --valid-y valid_y.npy --loss cross-entropy
        --measure=false --steps 20 --hash-every 5 --save-every 10 --keep 2)
    "$weft" "${digits[@]}" --out here >log 2>&1 && "${windows[@]}" "${digits[@]}" --out 'runs\there' >>log 2>&1 ||
        fail "$(tail -n 3 log)"
    for run in here runs/there; do
        grep '"parameters"' "$run/metrics.jsonl" >"$run.hashes"
        expect 1 "exists already" "${windows[@]}" "${digits[@]}" --out "$run"
        (cd "$run" && cp step-10.safetensors model.safetensors && rm step-20.safetensors)
    done
    [ "$(wc -l <here.hashes)" = 4 ] && cmp here.hashes runs/there.hashes || fail "the trained parameters differ"
    expect 0 "finished after 20 steps" "${windows[@]}" fit --resume --out here
    sed -i "s/Z:$(sed 's/\//\\\//g' <<<"$PWD")/$(sed 's/\//\\\//g' <<<"$PWD")/" runs/there/recipe.json
    expect 0 "finished after 20 steps" "$weft" fit --resume --out runs/there
    for run in here runs/there; do
        grep '"parameters"' "$run/metrics.jsonl" | cmp - here.hashes || fail "a continued run differs"
    done
    "${windows[@]}" plot here runs/there -o losses.svg && [ "$(cat losses.svg)" -gt 40 ] || fail "gnuplot did not get its script"
}

# press_ctrl_c RUN: once it has begun.
press_ctrl_c()
{
    for _ in $(seq 100); do [ ! -s "$1/metrics.jsonl" ] || break; sleep 0.1; done
    printf '\003'
    sleep 2
}

# Ctrl-C on a terminal saves the run.
interrupts_on_windows()
{
    command -v script >/dev/null || return
    press_ctrl_c stopped | timeout 60 script -qec "wine other/tools/weft.exe fit digits.onnx --x x.npy --y y.npy \
        --loss cross-entropy --measure=false --minutes 1 --log-every 10 --out stopped" /dev/null >log
    [ "${PIPESTATUS[1]}" = 130 ] || fail "Ctrl-C did not end the training: $(tail -c 300 log)"
    expect 1 "exists already" "$weft" fit digits.onnx --x x.npy --y y.npy --loss cross-entropy --out stopped
}

case_the_program_on_Windows()
{
    program_for_windows || return
    try_program wine other/tools/weft.exe
    files_on_windows
    trainings_on_windows
    interrupts_on_windows
    wineserver -k # it would still write into the folder
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
