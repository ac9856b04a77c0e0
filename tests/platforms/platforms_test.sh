#!/usr/bin/env bash
# libweft for other processors, by cross compilers and QEMU, for Windows and WebAssembly, and by other compilers:
# results have the recorded bits. Debian's packages: qemu-user, gcc-aarch64-linux-gnu, gcc-riscv64-linux-gnu,
# gcc-s390x-linux-gnu, gcc-arm-linux-gnueabihf, musl-tools, gcc-mingw-w64-x86-64-posix, wine64, clang, clang-19,
# wasi-libc, libclang-rt-14-dev-wasm32, lld, nodejs, chromium, chromium-driver, python3-selenium. A case is skipped where
# one is missing.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
# shellcheck source=tests/platforms/building.sh
. "$tests/platforms/building.sh"
# shellcheck source=tests/platforms/packages.sh
. "$tests/platforms/packages.sh"

# on QEMU TRIPLE FAMILY ENDIAN OPTION...: the hashes of another processor.
on()
{
    local compiler=$2-gcc
    command -v "$compiler" >/dev/null || skip "$compiler is not installed"
    command -v "qemu-$1" >/dev/null || skip "qemu-$1 is not installed"
    cross_file "$compiler" "$3" "$4" "$2-" >cross.ini
    build_other libweft.a --cross-file cross.ini -Dcore=true "${@:5}" && compile "$compiler" other hashes -static -fopenmp || return
    "qemu-$1" ./hashes >got || fail "hashes on $1"
    same got
}

# files_cross QEMU TRIPLE: files of parameters are the same bytes here and there, and read as the same numbers.
files_cross()
{
    compile "$2-gcc" other files -static -fopenmp && mv files there && compile "${CC:-gcc}" "$build" files -fopenmp || return
    mkdir here_folder there_folder
    ./files write here_folder && "qemu-$1" ./there write there_folder && diff -r here_folder there_folder ||
        fail "the files differ"
    "qemu-$1" ./there read here_folder && ./files read there_folder || fail "the files are read differently"
}

case_AArch64()
{
    on aarch64 aarch64-linux-gnu aarch64 little
    in_registers aarch64-linux-gnu fmla
}

case_RISC_V_of_64_bits()
{
    on riscv64 riscv64-linux-gnu riscv64 little -Dc_args=-O1
}

# By clang, since gcc has these vectors from version 14 on. They are longer than those of the kernels.
case_RISC_V_of_64_bits_with_vectors()
{
    local compiler="clang-19 --target=riscv64-linux-gnu -march=rv64gcv"
    command -v clang-19 >/dev/null || skip "clang-19 is not installed"
    command -v riscv64-linux-gnu-gcc >/dev/null || skip "riscv64-linux-gnu-gcc, for its C library, is not installed"
    qemu_with_vectors riscv64
    cross_file "$compiler" riscv64 little riscv64-linux-gnu- >cross.ini
    build_other libweft.a --cross-file cross.ini -Dcore=true -Dopenmp=disabled && compile "$compiler" other hashes -static || return
    in_registers riscv64-linux-gnu vfmacc.vf
    "$qemu" -cpu rv64,v=true,vext_spec=v1.0,vlen=256 ./hashes >got || fail "hashes on riscv64 with vectors of 256 bits"
    same got
}

case_a_processor_of_32_bits_and_its_files()
{
    on arm arm-linux-gnueabihf arm little -Dc_args=-O1
    files_cross arm arm-linux-gnueabihf
}

case_a_processor_with_the_highest_byte_first_and_its_files()
{
    on s390x s390x-linux-gnu s390x big -Dc_args=-O1
    files_cross s390x s390x-linux-gnu
}

# web: makes the page of docs/browser, with its libweft for WebAssembly, once for all cases.
web()
{
    page=$base/web
    [ -f "$page/digits.html" ] && return
    echo 'int main(void) { return 0; }' >empty.c
    clang --target=wasm32-wasi empty.c -o empty.wasm 2>/dev/null ||
        skip "clang for WebAssembly (clang, wasi-libc, libclang-rt-14-dev-wasm32, lld) is not installed"
    "$root/docs/browser/build.sh" "$page" >log 2>&1 || { fail "$(tail -n 5 log)"; exit 1; }
}

case_WebAssembly()
{
    command -v node >/dev/null || skip "nodejs is not installed"
    web
    compile clang "$page/core" hashes --target=wasm32-wasi -msimd128 -mbulk-memory -Wl,-z,stack-size=1048576 || return
    node --no-warnings "$tests/platforms/wasi.mjs" hashes >got || fail "hashes in Node.js"
    same got
}

case_WebAssembly_in_a_browser()
{
    local digits=("$root"/tests/data/digits/{x,y,valid_x,valid_y}.npy) python=
    for one in python3 /usr/bin/python3; do
        if "$one" -c 'import selenium' 2>/dev/null; then python=$one && break; fi
    done
    [ -n "$python" ] || skip "python3-selenium is not installed"
    command -v chromium >/dev/null && command -v chromedriver >/dev/null || skip "chromium or its driver is not installed"
    web
    "$build/docs/digits" "${digits[@]}" 300 >expected.txt || fail "the program of the page, on this processor"
    "$python" "$tests/docs/digits_browser.py" "$page/digits.html" expected.txt || fail "the page"
}

# The page compares with what was recorded.
case_the_program_of_the_page()
{
    local digits=("$root"/tests/data/digits/{x,y,valid_x,valid_y}.npy) isa
    for isa in base v3 v4; do
        WEFT_ISA=$isa "$weft" info | grep -q "^isa  *$isa\b" || continue
        WEFT_ISA=$isa "$build/docs/digits" "${digits[@]}" >got || fail "digits with $isa"
        cmp got "$root/docs/browser/expected.txt" || fail "digits with $isa: $(diff "$root/docs/browser/expected.txt" got | head -n 6)"
    done
    expect 2 "usage: digits" "$build/docs/digits"
    expect 1 "nothing: expected a file of NumPy" "$build/docs/digits" nothing y x y
}

# by COMPILER FLAG OPTION...: the hashes of each instruction set of this processor, or of the baseline with -Disa=base. The
# flag links the program.
by()
{
    local isa
    command -v "$1" >/dev/null || skip "$1 is not installed"
    CC=$1 build_other libweft.a -Dcore=true "${@:3}" && compile "$1" other hashes "$2" || return
    for isa in base v3 v4 v4_bf16 v4_amx; do
        [[ $isa = base || " $* " != *" -Disa=base "* ]] || continue
        WEFT_ISA=$isa "$weft" info | grep -q "^isa  *$isa\b" || continue
        WEFT_ISA=$isa ./hashes >"$isa" || fail "hashes with $isa"
        same "$isa"
    done
}

# Kernels of all instruction sets at -O3; the suites that clang compiles have ThreadSanitizer.
case_clang()
{
    by clang -fopenmp -Dwerror=true
}

# One source has the kernels of all instruction sets; gcc compiles them all without optimisation.
case_clang_without_optimisation()
{
    by clang -fopenmp -Disa=base -Dc_args=-O0
}

# The libraries that need no other, the hashes of each instruction set, and suites.
case_Windows()
{
    local isa
    export WINEPREFIX=$PWD/wine WINEDEBUG=-all
    command -v x86_64-w64-mingw32-gcc-posix >/dev/null || skip "x86_64-w64-mingw32-gcc-posix is not installed"
    command -v wine >/dev/null || skip "wine is not installed"
    echo "[binaries]
c = [$cached'x86_64-w64-mingw32-gcc-posix']" >compiler.ini
    build_other tests/weft_tests.exe --cross-file "$tests/platforms/windows.ini" --cross-file compiler.ini -Djson=disabled -Dtests=enabled -Dc_args=-O1 &&
        ninja -C other tests/result_hashes.exe tests/model_bits.exe >>log 2>&1 || { fail "$(tail -n 5 log)"; return; }
    for isa in base v3 v4 v4_bf16; do
        WEFT_ISA=$isa "$weft" info | grep -q "^isa  *$isa\b" || continue
        WEFT_ISA=$isa wine other/tests/result_hashes.exe 2>errors | tr -d '\r' >"$isa"
        same "$isa"
    done
    wine other/tests/model_bits.exe 2>errors | tr -d '\r' >models
    [ "$(grep -c "as specified" models)" -ge 17 ] || fail "models: $(grep -v "as specified" models errors)"
    wine other/tests/weft_tests.exe platform exact session >suites 2>&1 || fail "$(grep -B 1 FAILED suites | head -n 20)"
    wineserver -k # it would still write into the folder
}

case_gcc_without_optimisation()
{
    by gcc -fopenmp -Dc_args=-O0
}

# musl has no OpenMP.
case_a_static_program_with_musl()
{
    by musl-gcc -static -Dopenmp=disabled -Dc_args=-O0
    file hashes | grep -q "statically linked" || fail "the program is not static"
}

# A processor without an instruction set that WEFT_ISA asks for: one line says so.
case_older_processors_of_this_kind()
{
    [ "$(uname -m)" = x86_64 ] || skip "this is not x86-64"
    command -v qemu-x86_64 >/dev/null || skip "qemu-x86_64 is not installed"
    qemu-x86_64 -cpu Nehalem "$weft" info 2>/dev/null | grep -q "^isa  *base" || fail "Nehalem does not have base"
    WEFT_ISA=v4 qemu-x86_64 -cpu Haswell-v1 "$weft" info 2>&1 | grep -v "^qemu-x86_64: warning" >got
    grep -q "^isa  *v3" got || fail "Haswell does not have v3: $(cat got)"
    [ "$(grep -c "lacks v4: kernels are those of v3" got)" = 1 ] || fail "no line about v4: $(cat got)"
}

run_cases
