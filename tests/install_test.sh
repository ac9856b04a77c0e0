#!/usr/bin/env bash
# Installs into a prefix of its own, then builds programs there with nothing but what pkg-config
# says, as C11 and as C++17: a small one, those that stand in documents, as they stand there, and the
# examples. Runs them built by one compiler of each language; clang, if it is here, compiles them
# too. Each public header is compiled alone. README's program is built by CMake, too, and with the
# static library.
# Usage: install_test.sh BUILD_FOLDER
set -euo pipefail
build=$1
make_onnx=$(realpath -m "$build/tests/make_onnx") # absent without protobuf-c
source=$(realpath "$(dirname "$0")/..")
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
DESTDIR="$prefix" meson install -C "$build" --no-rebuild >/dev/null
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name weft.pc)")
export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR=$prefix
read -ra cflags <<<"$(pkg-config --cflags weft)"
read -ra libs <<<"$(pkg-config --libs weft)"
library=$(dirname "$(find "$prefix" -name 'libweft.so')")
warnings=(-Wall -Wextra -pedantic -Werror)

# `cc` may be a wrapper and its arguments ("ccache gcc").
runners=("${CC:-cc} -std=c11 -x c" "${CXX:-c++} -std=c++17 -x c++") checkers=()
if command -v clang >/dev/null; then checkers+=("clang -std=c11 -x c"); fi
if command -v clang++ >/dev/null; then checkers+=("clang++ -std=c++17 -x c++"); fi

# compile_as COMPILER_AND_LANGUAGE ARGUMENT ...
compile_as()
{
    local compiler
    read -ra compiler <<<"$1"
    shift
    "${compiler[@]}" "${warnings[@]}" "${cflags[@]}" "$@"
}

# run_as_all FILE OUTPUT: compiles FILE in all ways, and runs it; prints nothing unless that fails
# or the output does not begin with OUTPUT.
run_as_all()
{
    local file=$1 wanted=$2 language
    for language in ${checkers[@]+"${checkers[@]}"}; do
        compile_as "$language" -fsyntax-only "$file" || { echo "$file: $language"; exit 1; }
    done
    for language in "${runners[@]}"; do
        compile_as "$language" "$file" -x none "${libs[@]}" -o program
        LD_LIBRARY_PATH=$library OMP_NUM_THREADS=1 ./program >output ||
            { echo "$file failed: $language"; exit 1; }
        case $(cat output) in
        "$wanted"*) ;;
        *) echo "$file printed '$(cat output)', not '$wanted': $language"; exit 1 ;;
        esac
    done
}

cd "$prefix"
headers=0
for header in $(find "$prefix" -path '*/include/weft/*.h' -printf '%f\n' | sort); do
    echo "#include <weft/$header>" >header.c
    for language in "${runners[@]}" ${checkers[@]+"${checkers[@]}"}; do
        compile_as "$language" -fsyntax-only header.c ||
            { echo "<weft/$header> alone does not compile: $language"; exit 1; }
    done
    headers=$((headers + 1))
done
[ "$headers" -ge 9 ] || { echo "only $headers headers are installed"; exit 1; }

# Every macro of the headers that makes a value, in expressions and as initialisers.
cat >first.c <<'C'
#include <weft/weft.h>
static int calls;
static weft_value counted(weft_value v)
{
    calls++;
    return v;
}
int main(void)
{
    const int rows = 3;
    const int64_t columns = 4;
    weft_graph *g = weft_graph_new();
    weft_error error = WEFT_NO_ERROR;
    weft_value x = weft_fill(g, WEFT_F32, WEFT_SHAPE(rows, columns), 2.0), none = WEFT_NO_VALUE;
    weft_value w = weft_param(g, "w", WEFT_F32, WEFT_SHAPE(3), WEFT_INIT_ZEROS);
    weft_param(g, "one", WEFT_F32, WEFT_SCALAR, WEFT_INIT_ONES);
    weft_param(g, "xavier", WEFT_F32, WEFT_SHAPE((size_t)2, 3), WEFT_INIT_XAVIER);
    weft_value y = weft_matmul(g, x, weft_transpose(g, x, 0, 1));
    y = weft_sum(g, weft_sum(g, weft_add(g, y, w), WEFT_AXES(0, -1), true), WEFT_ALL_AXES, false);
    weft_optimizer adam = WEFT_ADAM_DEFAULT, adamw = WEFT_ADAMW_DEFAULT;
    weft_optimizer sgd = WEFT_DEFAULTS(weft_optimizer);
    weft_session_options one = WEFT_DEFAULTS(weft_session_options);
    one.threads = 1;
    adam = adamw;
    sgd.name = "sgd";
    adam.adam.beta1 = WEFT_ZERO;
    if (weft_is_value(none) || adam.kind != WEFT_ADAMW || error.status != WEFT_OK) return 1;
    weft_value step = weft_train_step(g, y, &w, 1, weft_scalar(g, WEFT_F32, 0), &sgd, NULL);
    weft_plan *plan = weft_plan_new(g, WEFT_VALUES(y, counted(step)), NULL, &error);
    weft_params *store = weft_params_new();
    if (calls != 1 || weft_params_init(store, g, 1, &error) != WEFT_OK) return 1;
    weft_session *s = weft_session_new(plan, store, &one, &error);
    float sum = 0;
    if (weft_run(s) != WEFT_OK || weft_fetch(s, y, &sum, sizeof sum) != WEFT_OK) return 1;
    weft_session_free(s), weft_plan_free(plan), weft_params_free(store), weft_graph_free(g);
    return printf("%g\n", (double)sum) < 0;
}
C
run_as_all first.c 144
echo "installed, linked and run: $(cat output)"

# The library on MPI, if there is one; <weft/mpi.h> was compiled above, without MPI's own headers.
if pkg-config --exists weft-mpi; then
    cat >mpi.c <<'C'
#include <weft/mpi.h>
int main(int argc, char **argv)
{
    (void)argv;
    weft_communicator *world = NULL;
    if (argc > 1 && weft_mpi_open(&world, NULL) != WEFT_OK) return 1;
    weft_mpi_close(world, WEFT_OK);
    return 0;
}
C
    weft_libs=("${libs[@]}")
    read -ra libs <<<"$(pkg-config --libs weft-mpi)"
    run_as_all mpi.c ""
    libs=("${weft_libs[@]}")
fi

# The first block of C in a document, and the second of the page about ONNX.
documents=(README.md docs/new-architecture.md docs/vision.md)
if [ -x "$make_onnx" ]; then
    "$make_onnx" mlp.onnx
    cp "$source"/tests/data/digits/*.npy "$source"/tests/data/digits/digits.onnx .
    documents+=(docs/onnx.md)
fi
cp -r "$source/tests/golden/huggingface/gpt2" .
documents+=(docs/convert.md)
# program DOCUMENT N: block N of C.
program()
{
    awk -v n="$2" '/^```c$/ { block++; next } /^```$/ { if (block == n) exit } block == n' "$source/$1" >document.c
    [ -s document.c ] || { echo "$1 has no program $2"; exit 1; }
    run_as_all document.c ""
}
for document in "${documents[@]}"; do
    program "$document" 1
done
[ -x "$make_onnx" ] && program docs/onnx.md 2
grep -q "digraph weft" mixer.dot || { echo "the mixer is not drawn"; exit 1; }
# The examples compile in all ways, and the quick ones run; examples_test.sh runs them all.
libs+=(-lm)
for example in "$source"/examples/*.c; do
    case $(basename "$example") in
    first.c | train.c | linear_regression.c | custom_op.c | custom_pass.c)
        rm -f counting.safetensors
        run_as_all "$example" "" ;;
    onnx_service.c)
        if ! pkg-config --exists libmicrohttpd; then continue; fi
        read -ra service_libs <<<"$(pkg-config --libs weft libmicrohttpd libcjson)"
        compile_as "${runners[0]}" "$example" -x none "${service_libs[@]}" -o service ;&
    *)
        for language in "${runners[@]}" ${checkers[@]+"${checkers[@]}"}; do
            compile_as "$language" -fsyntax-only "$example" || { echo "$example: $language"; exit 1; }
        done ;;
    esac
done

# ---- README's program in other ways than by pkg-config and the shared library ----

awk '/^```c$/ { on = 1; next } /^```$/ { if (on) exit } on' "$source/README.md" >first.c
# expect_loss COMMAND...: runs the program, which must print the loss.
expect_loss()
{
    "$@" >output && grep -q '^loss of XOR after 200 steps: 0\.0' output ||
        { echo "$* printed '$(cat output)'"; exit 1; }
}

# document_block LANGUAGE: the block of docs/install.md in that language.
document_block()
{
    awk -v opening="\`\`\`$1" '$0 == opening { on = 1; next } /^```$/ { if (on) exit } on' "$source/docs/install.md"
}

# The command of docs/install.md for the static library, with the folders of this installation.
static_library()
{
    local command
    if [ "$(pkg-config --print-requires-private weft | grep -cxE 'lib(cjson|zip|protobuf-c)')" != 3 ]; then
        echo "skipped: the static library: weft was built without libzip or protobuf-c"
        return
    fi
    command=$(sed -n 's/^    \(cc .*-l:libweft\.a.*\)/\1/p' "$source/docs/install.md")
    [ -n "$command" ] || { echo "docs/install.md has no command for the static library"; exit 1; }
    CPATH=$(dirname "$(find "$prefix" -path '*/include/weft')") LIBRARY_PATH=$library bash -c "$command"
    if ldd first | grep libweft; then
        echo "the program with the static library needs the shared one"
        exit 1
    fi
    expect_loss ./first
}
static_library

# CMake: the target, and versions that are refused.
if ! command -v cmake >/dev/null; then
    echo "skipped: the package for CMake: cmake is not installed"
    exit 0
fi
mkdir cmake && mv first.c cmake
document_block cmake | sed 's/(weft [0-9.]* REQUIRED)/(weft ${version} REQUIRED)/' >cmake/CMakeLists.txt
grep -qF '${version}' cmake/CMakeLists.txt || { echo "docs/install.md asks CMake for no version"; exit 1; }
# with_cmake VERSION: sets up the project, which asks for that version.
with_cmake()
{
    rm -rf cmake/build
    cmake -S cmake -B cmake/build -Dversion="$1" -DCMAKE_PREFIX_PATH="$(dirname "$(dirname "$library")")" >cmake.log 2>&1
}
version=$(pkg-config --modversion weft)
for wrong in 99 "${version%%.*}.999" "$version.1"; do
    if with_cmake "$wrong"; then
        echo "CMake takes version $version for $wrong"
        exit 1
    fi
done
for right in "" "${version%.*}" "$version"; do
    with_cmake "$right" || { cat cmake.log; echo "CMake does not take version $version for '$right'"; exit 1; }
done
cmake --build cmake/build >cmake.log 2>&1 || { cat cmake.log; exit 1; }
expect_loss cmake/build/first
echo "README's program, by pkg-config, with the static library, and by CMake: $(cat output)"
