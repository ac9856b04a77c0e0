#!/usr/bin/env bash
# Installs into a prefix of its own, then builds programs there with nothing but what pkg-config
# says, as C11 and as C++17: a small one, those that stand in documents, as they stand there, and the
# examples. Runs them built by one compiler of each language; clang, if it is here, compiles them
# as well. Each public header is compiled alone. README's program is also built by CMake and with the
# static library.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
prefix=$work/prefix
warnings=(-Wall -Wextra -pedantic -Werror)
# `cc` may be a wrapper and its arguments ("ccache gcc").
runners=("${CC:-cc} -std=c11 -x c" "${CXX:-c++} -std=c++17 -x c++")
checkers=()
if command -v clang >/dev/null; then checkers+=("clang -std=c11 -x c"); fi
if command -v clang++ >/dev/null; then checkers+=("clang++ -std=c++17 -x c++"); fi

prepare()
{
    DESTDIR="$prefix" meson install -C "$build" --no-rebuild >log || { fail "meson install: $(tail -n 3 log)"; return; }
    PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name weft.pc)")
    export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR=$prefix
    read -ra cflags <<<"$(pkg-config --cflags weft)"
    read -ra libs <<<"$(pkg-config --libs weft-inspect weft-formats)"
    library=$(dirname "$(find "$prefix" -name 'libweft.so')")
    include=$(find "$prefix" -path '*/include/weft')
    readme_program >first.c
}

# The first program of README.md.
readme_program()
{
    awk '/^```c$/ { on = 1; next } /^```$/ { if (on) exit } on' "$root/README.md"
}

# compile_as COMPILER_AND_LANGUAGE ARGUMENT ...
compile_as()
{
    local compiler
    read -ra compiler <<<"$1"
    shift
    "${compiler[@]}" "${warnings[@]}" "${cflags[@]}" "$@"
}

# check_as_all FILE [COMPILER_AND_LANGUAGE...]: compiles FILE by these and by clang.
check_as_all()
{
    local file=$1 language
    shift
    for language in "$@" ${checkers[@]+"${checkers[@]}"}; do
        compile_as "$language" -fsyntax-only "$file" || fail "$file: $language"
    done
}

# run_as_all FILE OUTPUT: compiles FILE in all ways, and runs it; the output begins with OUTPUT.
run_as_all()
{
    local file=$1 wanted=$2 language
    check_as_all "$file"
    for language in "${runners[@]}"; do
        compile_as "$language" "$file" -x none "${libs[@]}" -o program || { fail "$file: $language"; continue; }
        LD_LIBRARY_PATH=$library OMP_NUM_THREADS=1 ./program >output || fail "$file failed: $language"
        case $(cat output) in
            "$wanted"*) ;;
            *) fail "$file printed '$(cat output)', not '$wanted': $language" ;;
        esac
    done
}

# program DOCUMENT N: block N of C.
program()
{
    awk -v n="$2" '/^```c$/ { block++; next } /^```$/ { if (block == n) exit } block == n' "$root/$1" >document.c
    [ -s document.c ] || fail "$1 has no program $2"
    run_as_all document.c ""
}

# expect_loss COMMAND...: runs the program, which must print the loss.
expect_loss()
{
    "$@" >output && grep -q '^loss of XOR after 200 steps: 0\.0' output || fail "$* printed '$(cat output)'"
}

# document_block LANGUAGE: the block of docs/install.md in that language.
document_block()
{
    awk -v opening="\`\`\`$1" '$0 == opening { on = 1; next } /^```$/ { if (on) exit } on' "$root/docs/install.md"
}

# with_cmake VERSION: sets up the project, which asks for that version.
with_cmake()
{
    rm -rf cmake/build
    cmake -S cmake -B cmake/build -Dversion="$1" -DCMAKE_PREFIX_PATH="$(dirname "$(dirname "$library")")" >cmake.log 2>&1
}

case_each_header_alone()
{
    local header headers=0
    for header in "$include"/*.h; do
        echo "#include <weft/$(basename "$header")>" >header.c
        check_as_all header.c "${runners[@]}"
        [ $failures -eq 0 ] || { cat header.c; return; }
        headers=$((headers + 1))
    done
    [ "$headers" -ge 20 ] || fail "only $headers headers are installed"
}

# Every macro of the headers that makes a value, in expressions and as initialisers.
case_the_macros_of_the_headers()
{
    run_as_all "$tests/packages/macros.c" 144
}

# The library on MPI; <weft/mpi.h> is compiled above, without MPI's own headers.
case_the_library_on_MPI()
{
    pkg-config --exists weft-mpi || skip "weft was built without MPI"
    cat >mpi.c <<'C'
#include <weft/mpi.h>
int main(int argc, char **argv)
{
    (void)argv;
    weft_communicator *world = argc > 1 ? weft_mpi_open(NULL) : NULL;
    if (argc > 1 && !world) return 1;
    weft_mpi_close(world, WEFT_OK);
    return 0;
}
C
    read -ra libs <<<"$(pkg-config --libs weft-mpi)"
    run_as_all mpi.c ""
}

# README's program needs the library weft alone, and this one libm and OpenMP.
case_the_library_weft_alone()
{
    local needed
    read -ra libs <<<"$(pkg-config --libs weft)"
    program README.md 1
    needed=$(readelf -d program | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^lib(weft|c|m)\.so\.[0-9]+$')
    [ -z "$needed" ] || fail "README's program needs $needed"
    needed=$(readelf -d "$library/libweft.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -vE '^(lib(c|m|dl|gomp|omp|asan|ubsan|tsan)|ld-linux.*)\.so(\.|$)')
    [ -z "$needed" ] || fail "libweft.so needs $needed"
}

# pkg-config also finds what is built and not installed.
case_the_build_folder()
{
    local flags
    read -ra flags <<<"$(env -u PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_PATH="$build/meson-uninstalled" \
        pkg-config --cflags --libs weft)"
    cc first.c "${flags[@]}" -o uninstalled || fail "first.c does not compile against the build folder"
    LD_LIBRARY_PATH=$build expect_loss ./uninstalled
}

# Each library is linked by a program that names it alone, whose other libraries follow from pkg-config. The shared
# one needs no more of weft's libraries than these.
case_each_library()
{
    local name header needs needed call
    while read -r name header needs call; do
        [ "$name" != weft-tokenizers ] || pkg-config --exists weft-tokenizers || continue
        needed=$(readelf -d "$library/lib$name.so" | sed -n 's/.*(NEEDED).*\[lib\(weft[a-z-]*\)\.so.*/\1/p' | sort | paste -sd,)
        [ "${needed:--}" = "$needs" ] || fail "lib$name.so needs $needed, expected $needs"
        printf '#include <weft/%s.h>\nint main(void)\n{\n    %s;\n    return 0;\n}\n' "$header" "$call" >library.c
        read -ra libs <<<"$(pkg-config --libs "$name")"
        run_as_all library.c ""
    done <<'END'
weft weft - weft_graph_free(weft_graph_new())
weft-emit emit weft weft_emit(NULL, NULL, NULL)
weft-inspect inspect weft weft_graph_print_summary(NULL, NULL, NULL, NULL)
weft-inspect report weft weft_report_free(NULL)
weft-text text weft weft_tokenizer_free(NULL)
weft-tokenizers tokenizers weft,weft-text weft_tokenizer_free(weft_tokenizer_load_json(NULL, NULL))
weft-tokenizers chat weft,weft-text weft_chat_template_free(weft_chat_template_load(NULL, NULL))
weft-models train weft weft_trainer_free(NULL)
weft-distributed distributed weft,weft-models weft_trainer_processes_of(NULL)
weft-formats formats weft,weft-models weft_onnx_free(NULL)
END
}

# The first block of C in a document.
case_programs_of_documents()
{
    cp -r "$tests/golden/huggingface/gpt2" .
    cp -r "$tests/golden/huggingface/bert-encoder" bert
    program docs/new-architecture.md 1
    grep -q "digraph weft" mixer.dot || fail "the mixer is not drawn"
    program docs/vision.md 1
    program docs/convert.md 1
    program docs/convert.md 2
}

case_programs_of_the_page_about_ONNX()
{
    need_program make_onnx
    "$build/tests/make_onnx" mlp.onnx || fail "make_onnx"
    cp "$tests"/data/digits/*.npy "$tests"/data/digits/digits.onnx .
    program docs/onnx.md 1
    program docs/onnx.md 2
}

# The examples compile in all ways, and the quick ones run; examples_test.sh runs them all.
case_examples()
{
    local example
    libs+=(-lm)
    for example in "$root"/examples/*.c; do
        case $(basename "$example") in
            first.c | train.c | linear_regression.c | custom_op.c | custom_pass.c)
                rm -f counting.safetensors
                run_as_all "$example" ""
                ;;
            onnx_service.c) ;; # below
            *) check_as_all "$example" "${runners[@]}" ;;
        esac
    done
}

case_the_example_of_a_service()
{
    local service_libs
    pkg-config --exists libmicrohttpd || skip "libmicrohttpd is not installed"
    read -ra service_libs <<<"$(pkg-config --libs weft-formats libmicrohttpd libcjson)"
    compile_as "${runners[0]}" "$root/examples/onnx_service.c" -x none "${service_libs[@]}" -o service ||
        fail "onnx_service.c is not linked"
    check_as_all "$root/examples/onnx_service.c" "${runners[@]}"
}

# The commands of docs/install.md for a prefix in the home folder, which nothing else knows. The files of this
# installation are moved there, and no variable helps to find them.
case_a_prefix_of_your_own()
{
    local home=$prefix/home commands
    commands=$(sed -n '/^## A prefix of your own/,/^## /s/^    \(export \|cc \|\.\/\)/\1/p' "$root/docs/install.md")
    [ -n "$commands" ] || fail "docs/install.md has no commands for a prefix of your own"
    mkdir "$home" && cp -r "$(dirname "$(dirname "$include")")" "$home/weft"
    sed -i "s|^prefix=.*|prefix=$home/weft|" "$(find "$home" -name weft.pc)"
    expect_loss env -u PKG_CONFIG_SYSROOT_DIR -u LD_LIBRARY_PATH -u PKG_CONFIG_PATH HOME="$home" bash -ec "$commands"
}

# The command of docs/install.md for the static library, with the folders of this installation.
case_the_static_library()
{
    local command
    command=$(sed -n 's/^    \(cc .*-l:libweft\.a.*\)/\1/p' "$root/docs/install.md")
    [ -n "$command" ] || fail "docs/install.md has no command for the static library"
    CPATH=$(dirname "$include") LIBRARY_PATH=$library bash -c "$command" || fail "$command"
    ldd first | grep libweft && fail "the program with the static library needs the shared one"
    expect_loss ./first
    echo "README's program with the static library has $(strip -o stripped first && stat -c %s stripped) bytes"
}

# The target, and versions that are refused.
case_the_package_for_CMake()
{
    local version wrong right
    command -v cmake >/dev/null || skip "cmake is not installed"
    mkdir cmake && mv first.c cmake
    document_block cmake | sed 's/(weft [0-9.]* REQUIRED)/(weft ${version} REQUIRED)/' >cmake/CMakeLists.txt
    grep -qF '${version}' cmake/CMakeLists.txt || fail "docs/install.md asks CMake for no version"
    version=$(pkg-config --modversion weft)
    for wrong in 99 "${version%%.*}.999" "$version.1"; do
        with_cmake "$wrong" && fail "CMake takes version $version for $wrong"
    done
    for right in "" "${version%.*}" "$version"; do
        with_cmake "$right" || { fail "CMake does not take version $version for '$right'"; cat cmake.log; }
    done
    cmake --build cmake/build >cmake.log 2>&1 || { fail "cmake --build"; cat cmake.log; }
    expect_loss cmake/build/first
}

run_cases
