/* einsum of two operands: subscripts become permutations, reshapes and one matmul.
 *
 * Letters fall into four sorts: batch (in both operands and the result), contracted (in both, not
 * in the result), and free (in one operand and the result); a letter in only one operand is summed
 * over first. Then a is brought to [batch, free_a, contracted], b to [batch, contracted, free_b],
 * and the product to the order of the result. */
#include "samples.h"

#include <weft/export.h>
#include <weft/ops.h>

#include <ctype.h>
#include <string.h>

typedef struct einsum_attr {
    char subscripts[64];
} einsum_attr;

typedef struct terms {
    char a[16], b[16], out[16];
} terms;

static bool take_term(weft_infer *infer, const char *text, const char **at, char *term)
{
    size_t n = 0;
    for (; isalpha((unsigned char)**at); (*at)++) {
        term[n] = 0;
        if (strchr(term, **at))
            return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                                   "\"%s\": the letter '%c' at %d repeats within one operand", text,
                                   **at, (int)(*at - text));
        if (n == WEFT_MAX_RANK)
            return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "\"%s\": more than %d letters", text,
                                   WEFT_MAX_RANK);
        term[n++] = **at;
    }
    term[n] = 0;
    return true;
}

static bool parse(weft_infer *infer, const char *text, terms *t)
{
    const char *at = text;
    if (!take_term(infer, text, &at, t->a)) return false;
    if (*at != ',')
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "\"%s\": expected ',' at %d", text,
                               (int)(at - text));
    at++;
    if (!take_term(infer, text, &at, t->b)) return false;
    if (at[0] != '-' || at[1] != '>')
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "\"%s\": expected '->' at %d", text,
                               (int)(at - text));
    at += 2;
    if (!take_term(infer, text, &at, t->out)) return false;
    if (*at)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "\"%s\": unexpected '%c' at %d", text, *at,
                               (int)(at - text));
    return true;
}

static int64_t size_of(const terms *t, weft_shape a, weft_shape b, char letter)
{
    const char *in_a = strchr(t->a, letter), *in_b = strchr(t->b, letter);
    return in_a ? a.dim[in_a - t->a] : in_b ? b.dim[in_b - t->b] : -1;
}

static bool infer_einsum(weft_infer *infer)
{
    const char *text = ((const einsum_attr *)infer->attr)->subscripts;
    terms t;
    if (!weft_infer_float(infer, 0) || !weft_infer_same_dtype(infer, 0, 1) ||
        !parse(infer, text, &t))
        return false;
    weft_shape a = infer->in[0].shape, b = infer->in[1].shape;
    weft_shape out = {(int32_t)strlen(t.out), {0}};
    if ((size_t)a.rank != strlen(t.a) || (size_t)b.rank != strlen(t.b))
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "\"%s\" is for ranks %zu and %zu, got %d and %d", text, strlen(t.a),
                               strlen(t.b), a.rank, b.rank);
    for (size_t i = 0; t.a[i]; i++) {
        const char *in_b = strchr(t.b, t.a[i]);
        if (in_b && b.dim[in_b - t.b] != a.dim[i])
            return weft_infer_fail(infer, WEFT_BAD_SHAPE, "\"%s\": '%c' is %lld and %lld", text,
                                   t.a[i], (long long)a.dim[i], (long long)b.dim[in_b - t.b]);
    }
    for (int i = 0; i < out.rank; i++) {
        out.dim[i] = size_of(&t, a, b, t.out[i]);
        if (out.dim[i] < 0)
            return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                                   "\"%s\": '%c' of the result is in neither operand", text,
                                   t.out[i]);
    }
    infer->out[0] = (weft_type){infer->in[0].dtype, out};
    return true;
}

/* Sums away the letters of `term` that are neither in `other` nor in `out`. */
static weft_value drop_alone(weft_graph *g, weft_value x, char *term, const char *other,
                             const char *out)
{
    weft_axes axes = {0, {0}};
    char kept[16];
    size_t n = 0;
    for (int i = 0; term[i]; i++) {
        if (strchr(other, term[i]) || strchr(out, term[i]))
            kept[n++] = term[i];
        else
            axes.axis[axes.count++] = i;
    }
    kept[n] = 0;
    strcpy(term, kept);
    return axes.count ? weft_sum(g, x, axes, false) : x;
}

/* Brings x to the letters of three groups in this order, each group one dimension. */
static weft_value arrange(weft_graph *g, weft_value x, const char *term, const char *const *groups)
{
    weft_axes order = {0, {0}};
    weft_shape shape = {3, {1, 1, 1}};
    for (int k = 0; k < 3; k++)
        for (const char *c = groups[k]; *c; c++) {
            int axis = (int)(strchr(term, *c) - term);
            order.axis[order.count++] = axis;
            shape.dim[k] *= weft_dim_of(g, x, axis);
        }
    return weft_reshape(g, weft_permute(g, x, order), shape);
}

static void append(char *term, char letter)
{
    size_t n = strlen(term);
    term[n] = letter;
    term[n + 1] = 0;
}

static void expand_einsum(weft_expand *e)
{
    weft_graph *g = e->graph;
    const char *text = ((const einsum_attr *)e->attr)->subscripts;
    weft_error ignored = {0};
    weft_infer infer = {.error = &ignored};
    terms t;
    char batch[16] = "", contracted[16] = "", free_a[16] = "", free_b[16] = "", result[48] = "";
    if (!parse(&infer, text, &t)) return;
    weft_shape full_a = weft_shape_of(g, e->in[0]), full_b = weft_shape_of(g, e->in[1]);
    terms whole = t;
    weft_value a = drop_alone(g, e->in[0], t.a, t.b, t.out);
    weft_value b = drop_alone(g, e->in[1], t.b, t.a, t.out);
    for (const char *c = t.a; *c; c++) {
        bool in_b = strchr(t.b, *c) != NULL, in_out = strchr(t.out, *c) != NULL;
        append(!in_b ? free_a : in_out ? batch : contracted, *c);
    }
    for (const char *c = t.b; *c; c++)
        if (!strchr(t.a, *c)) append(free_b, *c);
    a = arrange(g, a, t.a, (const char *const[]){batch, free_a, contracted});
    b = arrange(g, b, t.b, (const char *const[]){batch, contracted, free_b});
    snprintf(result, sizeof result, "%s%s%s", batch, free_a, free_b);
    weft_shape shape = {0, {0}};
    weft_axes order = {0, {0}};
    for (const char *c = result; *c; c++)
        shape.dim[shape.rank++] = size_of(&whole, full_a, full_b, *c);
    for (const char *c = t.out; *c; c++)
        order.axis[order.count++] = (int32_t)(strchr(result, *c) - result);
    e->out[0] = weft_permute(g, weft_reshape(g, weft_matmul(g, a, b), shape), order);
}

static const einsum_attr ein_attention = {"nqhd,nkhd->nhqk"}, ein_matrix = {"ij,jk->ki"},
                         ein_outer = {"i,j->ij"}, ein_dot = {"ij,ij->"}, ein_alone = {"bij,bk->bk"};
static const weft_sample samples_einsum[] = {
    {&ein_attention, 2, {UNIT_FLOATS({4, {2, 2, 2, 3}}), UNIT_FLOATS({4, {2, 3, 2, 3}})}},
    {&ein_matrix, 2, {UNIT_FLOATS({2, {3, 4}}), UNIT_FLOATS({2, {4, 2}})}},
    {&ein_outer, 2, {UNIT_FLOATS({1, {3}}), UNIT_FLOATS({1, {4}})}},
    {&ein_dot, 2, {UNIT_FLOATS({2, {3, 4}}), UNIT_FLOATS({2, {3, 4}})}},
    {&ein_alone, 2, {UNIT_FLOATS({3, {2, 3, 2}}), UNIT_FLOATS({2, {2, 4}})}},
};
static void onnx_einsum(weft_export *e)
{
    weft_export_same(e, "Einsum");
    weft_export_text(e, "equation", ((const einsum_attr *)e->attr)->subscripts);
}

static const weft_attr_field einsum_fields[] = {
    {"subscripts", WEFT_ATTR_TEXT, offsetof(einsum_attr, subscripts)},
    {NULL, WEFT_ATTR_INT, 0},
};
extern const weft_op weft_op_einsum;
const weft_op weft_op_einsum = {
    .name = "einsum",
    .doc =
        "Einstein summation of two operands: the product of their elements at each assignment of "
        "the letters, summed over the letters that the result does not have. Becomes permute, "
        "reshape and matmul.",
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attr_size = sizeof(einsum_attr),
    .attrs = einsum_fields,
    .infer = infer_einsum,
    .expand = expand_einsum,
    .onnx = onnx_einsum,
    .samples = samples_einsum,
    .n_samples = sizeof samples_einsum / sizeof *samples_einsum,
};

weft_value weft_einsum(weft_graph *graph, const char *subscripts, weft_value a, weft_value b)
{
    einsum_attr attr;
    memset(&attr, 0, sizeof attr);
    if (!subscripts || strlen(subscripts) >= sizeof attr.subscripts) {
        weft_graph_fail_in(graph, "einsum", WEFT_BAD_ARGUMENT,
                           "the subscripts are NULL or over %zu bytes", sizeof attr.subscripts - 1);
        return WEFT_NO_VALUE;
    }
    memcpy(attr.subscripts, subscripts, strlen(subscripts));
    return weft_apply(graph, &weft_op_einsum, &attr, (weft_value[]){a, b}, 2, NULL);
}
