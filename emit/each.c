/* Loops over elements: a node calls a function for each element of its output. Nodes with equal loops, such as those that
 * add a bias to results of one size, share a function. */
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

/* The dtype in which operand k of the loop lies: output 0, then the inputs. */
static weft_dtype stored_in(const emit_node *w, size_t k)
{
    const size_t i = k ? k - 1 : w->node.n_in;
    return w->rows || !emit_is_narrow(w, i) ? w->tensors[i].dtype : WEFT_BF16;
}

/* Declares the pointer to operand k: "const float *in1". */
static void write_pointer(const emit_node *w, size_t k, emit_text *to)
{
    weft__emit_text_print(to, "%s%s *%s%.0zu", k ? "const " : "", weft__emit_type(stored_in(w, k)),
                          k ? "in" : "out", k ? k : 0);
}

static void write_address(emit_node *w, size_t k, emit_text *to)
{
    const size_t i = k ? k - 1 : w->node.n_in;
    if (is_single(w, i))
        weft__emit_single(w->f, emit_operand(w, i), to);
    else
        weft__emit_operand(w, i, k != 0, to);
}

/* The loops over the elements at the pointers. */
static void write_loops(emit_node *w, const weft_source_call *call, const char *function,
                        const nest *l, int indent)
{
    const bool rounds = !w->rows && emit_is_narrow(w, w->node.n_in);
    emit_text *to = &w->text;
    if (rounds) emit_need(w->f, "half_to_bf16");
    if (l->rank) {
        weft__emit_text_print(to, "int i0");
        for (int d = 1; d < l->rank; d++) weft__emit_text_print(to, ", i%d", d);
        weft__emit_text_print(to, ";\n%*s", indent, "");
    }
    for (int d = 0; d < l->rank; d++) {
        if (l->size[d] > INT_MAX) weft__emit_fail(w, WEFT_TOO_LARGE, "a size is over 2^31 - 1");
        if (d == l->rank - 1 && w->f->options->kernels == WEFT_EMIT_SIMD)
            weft__emit_text_print(to, "SIMD_LOOP\n%*s", indent, "");
        weft__emit_text_print(to, "for (i%d = 0; i%d < %lld; i%d++)\n%*s", d, d,
                              (long long)l->size[d], d, indent += 4, "");
    }
    weft__emit_text_print(to, "out");
    write_index(l, 0, to);
    weft__emit_text_print(to, rounds ? " = half_to_bf16(%s(" : " = %s(", function);
    for (size_t k = 1; k < l->n; k++) write_element(w, l, k, to);
    weft__emit_args(w, call, l->n > 1);
    weft__emit_text_print(to, rounds ? "));\n" : ");\n");
}

/* The number of the function with these parameters and this body, which is written if it is new. */
static size_t each_number(emit_file *f, const emit_text *text)
{
    const size_t *known = weft__name_table_find(&f->loops, text->text);
    if (known) return *known;
    const size_t number = ++f->n_loops;
    const char *copy = weft__arena_text(&f->steps.memory, text->text);
    if (!copy || !weft__name_table_put(&f->loops, copy, number)) f->steps.failed = true;
    weft__emit_text_print(&f->functions, "static void each_%zu", number);
    weft__emit_text_append(&f->functions, text);
    return number;
}

/* Writes the loops as a call of a function of the file. */
static void call_loops(emit_node *w, const weft_source_call *call, const char *function,
                       const nest *l)
{
    const emit_text own = w->text;
    w->text = (emit_text){0};
    weft__emit_text_print(&w->text, "(");
    for (size_t k = 0; k < l->n; k++) {
        if (k) weft__emit_text_print(&w->text, ", ");
        write_pointer(w, k, &w->text);
    }
    weft__emit_text_print(&w->text, ")\n{\n    ");
    write_loops(w, call, function, l, 4);
    weft__emit_text_print(&w->text, "}\n\n");
    emit_text text = w->text;
    w->text = own;
    w->text.failed |= text.failed;
    if (!text.failed) {
        weft__emit_text_print(&w->text, "    each_%zu(", each_number(w->f, &text));
        for (size_t k = 0; k < l->n; k++) {
            if (k) weft__emit_text_print(&w->text, EMIT_COMMA);
            write_address(w, k, &w->text);
        }
        weft__emit_text_print(&w->text, ");\n");
    }
    weft__emit_text_free(&text);
}

void weft__emit_each(emit_node *w, const weft_source_call *call, const char *function)
{
    emit_text *to = &w->text;
    for (size_t i = 0; i < w->node.n_in; i++)
        if (is_single(w, i)) memset(w->tensors[i].stride, 0, sizeof w->tensors[i].stride);
    const nest l = nest_of(w);
    /* Other arguments may differ where steps repeat, and may be members of what the step has. */
    if (!w->rows && !call->n_args) {
        call_loops(w, call, function, &l);
        return;
    }
    weft__emit_text_print(to, "    {\n        ");
    for (size_t k = 0; k < l.n; k++) {
        write_pointer(w, k, to);
        weft__emit_text_print(to, " = ");
        write_address(w, k, to);
        weft__emit_text_print(to, ";\n        ");
    }
    write_loops(w, call, function, &l, 8);
    weft__emit_text_print(to, "    }\n");
}
