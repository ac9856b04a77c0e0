#!/usr/bin/env bash
# Programs with the static library hold the ops that they use: kernels of other families are left
# out. A program that finds ops by name holds all of them.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
includes=()
for folder in "$root"/{graph,ops,autograd} "$build/graph"; do includes+=("-I$folder"); done

# link_static FILE NAME: links the program FILE, whose symbols are then listed in NAME.symbols.
link_static()
{
    ${CC:-cc} -O2 "${includes[@]}" "$1" "$build/libweft.a" -Wl,--gc-sections -fopenmp -lm -o "$2" || return 1
    nm "$2" | sed 's/^[0-9a-f ]* [A-Za-z] //' >"$2.symbols"
}

prepare()
{
    echo 'int main(void) { return 0; }' >empty.c
    command -v nm >/dev/null || skip "nm is not installed"
    ${CC:-cc} empty.c -Wl,--gc-sections -fopenmp -o empty 2>log || skip "the linker drops no sections: $(tail -n 1 log)"
}

# lacks NAME FAMILY...: no kernel of these ops is in the program; a family is the beginning of names.
lacks()
{
    local name=$1 family
    shift
    for family in "$@"; do
        ! grep "^weft_kernel_$family" "$name.symbols" >found || fail "$name has $(head -n 1 found)"
    done
}

has()
{
    grep -q "^weft_kernel_$2_f32" "$1.symbols" || fail "$1 has no kernel of $2"
}

# calls NAME FUNCTION...: a program that plans and runs graphs, and calls these functions.
calls()
{
    local name=$1 function
    shift
    {
        printf '#include <weft/weft.h>\n#include <weft/losses.h>\n#include <weft/ops.h>\n'
        printf 'void *used[] = {\n'
        for function in weft_graph_new weft_plan_new weft_session_new weft_session_run weft_params_load "$@"; do
            printf '    (void *)%s,\n' "$function"
        done
        printf '};\nint main(int n, char **words)\n{\n    return used[n] == words;\n}\n'
    } >"$name.c"
    link_static "$name.c" "$name" || fail "$name is not linked"
}

case_a_training_step()
{
    link_static "$root/examples/first.c" first || fail "first.c is not linked"
    ./first || fail "first.c does not learn XOR"
    has first matmul
    has first tanh
    lacks first sdpa conv_ conv_f32 max_pool average_pool softmax log_softmax cross_entropy ctc layer_norm rms_norm \
        batch_norm embedding gather scatter_add matmul_quantized narrow_rows top_k dropout random bernoulli cumsum
    ! grep -q '^weft_op_find$' first.symbols || fail "first has the list of all ops"
    echo "examples/first.c has $(strip -o stripped first && stat -c %s stripped) bytes"
}

case_single_ops()
{
    calls add weft_add
    has add add
    lacks add matmul sum sub tanh sdpa conv_
    calls product weft_matmul
    has product matmul
    lacks product sdpa conv_ conv_f32 softmax matmul_quantized layer_norm embedding
    calls image weft_conv
    has image conv
    lacks image sdpa matmul_f32 softmax batch_norm average_pool
    calls norm weft_layer_norm
    has norm layer_norm
    lacks norm sdpa conv_ conv_f32 matmul batch_norm
    calls table weft_embedding
    has table embedding
    lacks table sdpa conv_ conv_f32 matmul
    calls log_softmax weft_log_softmax
    has log_softmax log_softmax
    lacks log_softmax sdpa conv_ conv_f32 matmul
}

case_ops_by_name()
{
    cat >names.c <<'END'
#include <weft/op.h>
#include <weft/ops.h>

#include <stdio.h>

int main(void)
{
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        if (weft_op_find(op->name) == op) printf("%s\n", op->name);
    }
}
END
    link_static names.c names || fail "names.c is not linked"
    grep -o 'X([a-z_0-9]*)' "$root/ops/list.h" | sed 's/X(\(.*\))/\1/' | sort >listed
    [ "$(wc -l <listed)" -gt 100 ] || fail "ops/list.h has $(wc -l <listed) ops"
    ./names | sort | diff - listed || fail "a static program does not find these ops"
    has names sdpa
    has names conv
}

run_cases
