/* Loops over elements: a node calls a function for each element of its output. */
#include "nodes.h"

#include <limits.h>
#include <string.h>

/* Dimensions of a loop nest, outermost first, and the strides of all operands: output 0, then the
 * inputs. */
typedef struct nest {
    int rank;
    int64_t size[WEFT_MAX_RANK], stride[EMIT_MAX_OPERANDS][WEFT_MAX_RANK];
    size_t n;
} nest;

/* The stride of dimension d of the output's shape in operand t, which broadcasts to it. */
static int64_t stride_in(const weft_tensor *t, const weft_shape *shape, int d)
{
    const int axis = d - (shape->rank - t->shape.rank);
    return axis < 0 || t->shape.dim[axis] == 1 ? 0 : t->stride[axis];
}

/* Neighbouring dimensions are one loop where all operands continue from row to row. */
static nest nest_of(const emit_node *w)
{
    const weft_tensor *out = &w->tensors[w->node.n_in];
    nest l = {.n = w->node.n_in + 1};
    for (int d = 0; d < out->shape.rank; d++) {
        const int64_t size = out->shape.dim[d];
        bool joins = l.rank > 0;
        if (size == 1) continue;
        for (size_t k = 0; k < l.n; k++) {
            const int64_t step = stride_in(k ? &w->tensors[k - 1] : out, &out->shape, d);
            joins = joins && l.stride[k][l.rank - 1] == step * size;
        }
        if (!joins) l.rank++;
        l.size[l.rank - 1] = joins ? l.size[l.rank - 1] * size : size;
        for (size_t k = 0; k < l.n; k++)
            l.stride[k][l.rank - 1] = stride_in(k ? &w->tensors[k - 1] : out, &out->shape, d);
    }
    return l;
}

static void write_index(const nest *l, size_t operand, emit_text *to)
{
    bool first = true;
    weft__emit_text_print(to, "[");
    for (int d = 0; d < l->rank; d++) {
        const long long step = (long long)l->stride[operand][d];
        if (!step) continue;
        weft__emit_text_print(to, first ? "" : step < 0 ? " - " : " + ");
        if (step == 1)
            weft__emit_text_print(to, "i%d", d);
        else
            weft__emit_text_print(to, "i%d * %lld", d, first || step > 0 ? step : -step);
        first = false;
    }
    weft__emit_text_print(to, first ? "0]" : "]");
}

/* Element k of the inputs, from 1 on, as an argument. */
static void write_element(emit_node *w, const nest *l, size_t k, emit_text *to)
{
    const bool widens = !w->rows && emit_is_narrow(w, k - 1);
    if (widens) emit_need(w->f, "half_from_bf16");
    weft__emit_text_print(to, "%s%sin%zu", k > 1 ? ", " : "", widens ? "half_from_bf16(" : "", k);
    write_index(l, k, to);
    if (widens) weft__emit_text_print(to, ")");
}

/* A constant whose elements are equal, such as the gradient of a mean, is one element for all. */
static bool is_single(const emit_node *w, size_t i)
{
    return !w->rows && i < w->node.n_in && weft__emit_is_uniform(w->f, emit_operand(w, i));
}

void weft__emit_each(emit_node *w, const weft_source_call *call, const char *function)
{
    emit_text *to = &w->text;
    for (size_t i = 0; i < w->node.n_in; i++)
        if (is_single(w, i)) memset(w->tensors[i].stride, 0, sizeof w->tensors[i].stride);
    const nest l = nest_of(w);
    const bool rounds = !w->rows && emit_is_narrow(w, w->node.n_in);
    int indent = 8;
    if (rounds) emit_need(w->f, "half_to_bf16");
    weft__emit_text_print(to, "    {\n        ");
    for (size_t k = 0; k < l.n; k++) {
        const size_t i = k ? k - 1 : w->node.n_in;
        const bool wide = w->rows || !emit_is_narrow(w, i);
        const weft_dtype dtype = wide ? w->tensors[i].dtype : WEFT_BF16;
        weft__emit_text_print(to, "%s%s *%s%.0zu = ", k ? "const " : "", weft__emit_type(dtype),
                              k ? "in" : "out", k ? k : 0);
        if (is_single(w, i))
            weft__emit_single(w->f, emit_operand(w, i), to);
        else
            weft__emit_operand(w, i, k != 0, to);
        weft__emit_text_print(to, ";\n        ");
    }
    if (l.rank) {
        weft__emit_text_print(to, "int i0");
        for (int d = 1; d < l.rank; d++) weft__emit_text_print(to, ", i%d", d);
        weft__emit_text_print(to, ";\n        ");
    }
    for (int d = 0; d < l.rank; d++) {
        if (l.size[d] > INT_MAX) weft__emit_fail(w, WEFT_TOO_LARGE, "a size is over 2^31 - 1");
        if (d == l.rank - 1 && w->f->options->kernels == WEFT_EMIT_SIMD)
            weft__emit_text_print(to, "SIMD_LOOP\n%*s", indent, "");
        weft__emit_text_print(to, "for (i%d = 0; i%d < %lld; i%d++)\n%*s", d, d,
                              (long long)l.size[d], d, indent += 4, "");
    }
    weft__emit_text_print(to, "out");
    write_index(&l, 0, to);
    weft__emit_text_print(to, rounds ? " = half_to_bf16(%s(" : " = %s(", function);
    for (size_t k = 1; k < l.n; k++) write_element(w, &l, k, to);
    weft__emit_args(w, call, l.n > 1);
    weft__emit_text_print(to, rounds ? "));\n    }\n" : ");\n    }\n");
}
