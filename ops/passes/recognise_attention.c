/* attention: attention that is written as matrix products and a softmax, as in imported models,
 * becomes sdpa, which never stores the scores:
 *
 *     softmax(q k^T [c] [+ mask]) v
 *
 * q [batch, heads, query, width], k^T [batch, heads, width, keys], v [batch, heads, keys, width]. A
 * number c may multiply q, k^T or their product. A mask is where(seen, 0, -inf), or a constant of
 * zeros and large negative numbers with a zero in each row. where(isnan(softmax), 0, softmax) may
 * replace the softmax: sdpa returns zeros where everything is masked out. Left out in graphs that
 * differentiate a softmax: they need the weights anyway. It rounds differently. O(nodes), and the
 * elements of constant masks. */
#include "../passes.h"
#include "terms.h"

#include <weft/ops.h>

#include <math.h>

extern const weft_op weft_op_matmul, weft_op_softmax, weft_op_softmax_grad, weft_op_add;
extern const weft_op weft_op_mul, weft_op_where, weft_op_equal, weft_op_logical_not;

/* What has been found, walking up from the weights. */
typedef struct found {
    weft_value q, k;   /* q has the factor c */
    weft_value factor; /* c; WEFT_NO_VALUE: 1 */
    weft_value mask;   /* true where nothing is seen; WEFT_NO_VALUE: none */
} found;

static weft_value input(const weft_graph *g, const weft_node_info *node, size_t i)
{
    return weft_value_from_id(g, node->in[i]);
}

static bool is_number(const weft_graph *g, weft_value v, double wanted)
{
    weft_tensor t;
    return weft_constant_of(g, v, &t) && weft_shape_numel(t.shape) == 1 &&
           weft_tensor_element(&t, 0) == wanted;
}

/* where(isnan(x), 0, x) is x to the pass. */
static weft_value without_nan(const weft_graph *g, weft_value v)
{
    const weft_node_info where = terms_producer(g, v);
    if (where.op != &weft_op_where || !is_number(g, input(g, &where, 1), 0)) return v;
    const weft_node_info not_equal = terms_producer(g, input(g, &where, 0));
    if (not_equal.op != &weft_op_logical_not) return v;
    const weft_node_info equal = terms_producer(g, input(g, &not_equal, 0));
    const bool is_nan =
        equal.op == &weft_op_equal && equal.in[0] == where.in[2] && equal.in[1] == where.in[2];
    return is_nan ? input(g, &where, 2) : v;
}

/* Reads where(seen, 0, -inf) or where(unseen, -inf, 0). */
static bool mask_of_where(weft_graph *g, weft_value v, weft_value *mask)
{
    const weft_node_info where = terms_producer(g, v);
    if (where.op != &weft_op_where) return false;
    const weft_value a = input(g, &where, 1), b = input(g, &where, 2);
    const bool seen = is_number(g, a, 0) && is_number(g, b, -INFINITY);
    if (!seen && !(is_number(g, a, -INFINITY) && is_number(g, b, 0))) return false;
    *mask = input(g, &where, 0);
    if (seen) *mask = weft_logical_not(g, *mask);
    return true;
}

/* A number at or below this, added to a score, masks it out. */
#define UNSEEN (-1e30)

/* Reads a constant of zeros and numbers up to UNSEEN; of zeros alone, there is no mask. */
static bool mask_of_constant(weft_graph *g, weft_value v, weft_value *mask)
{
    weft_tensor t;
    if (!weft_constant_of(g, v, &t) || !weft_dtype_is_float(t.dtype) || t.shape.rank == 0)
        return false;
    const int64_t n = weft_shape_numel(t.shape), keys = t.shape.dim[t.shape.rank - 1];
    bool masked = false;
    for (int64_t i = 0, seen = 0; i < n; i++) {
        const double x = weft_tensor_element(&t, i);
        if (x != 0 && !(x <= UNSEEN)) return false;
        masked = masked || x != 0;
        seen += x == 0;
        if ((i + 1) % keys) continue;
        if (!seen) return false;
        seen = 0;
    }
    if (masked) *mask = weft_less(g, v, weft_scalar(g, t.dtype, 0));
    return true;
}

/* Takes a mask off a sum, of which it is one term. */
static weft_value without_mask(weft_graph *g, weft_value v, found *f)
{
    const weft_node_info add = terms_producer(g, v);
    for (size_t i = 0; add.op == &weft_op_add && i < 2; i++) {
        const weft_value term = input(g, &add, i), scores = input(g, &add, 1 - i);
        if (weft_shape_equal(weft_shape_of(g, scores), weft_shape_of(g, v)) &&
            (mask_of_where(g, term, &f->mask) || mask_of_constant(g, term, &f->mask)))
            return scores;
    }
    return v;
}

/* Takes a factor of one number off a product. */
static weft_value without_factor(weft_graph *g, weft_value v, found *f)
{
    const weft_node_info mul = terms_producer(g, v);
    for (size_t i = 0; mul.op == &weft_op_mul && i < 2; i++) {
        const weft_value c = input(g, &mul, i), rest = input(g, &mul, 1 - i);
        if (weft_shape_numel(weft_shape_of(g, c)) != 1 ||
            !weft_shape_equal(weft_shape_of(g, rest), weft_shape_of(g, v)))
            continue;
        f->factor = weft_is_value(f->factor) ? weft_mul(g, f->factor, c) : c;
        return rest;
    }
    return v;
}

/* Finds q and k of these weights. */
static bool find_scores(weft_graph *g, weft_value weights, found *f)
{
    const weft_node_info softmax = terms_producer(g, without_nan(g, weights));
    const int32_t *back = softmax.attr; /* the axis, from the last */
    if (softmax.op != &weft_op_softmax || *back != 0) return false;
    const weft_value scores = without_mask(g, input(g, &softmax, 0), f);
    const weft_node_info product = terms_producer(g, without_factor(g, scores, f));
    if (product.op != &weft_op_matmul) return false;
    f->q = without_factor(g, input(g, &product, 0), f);
    f->k = without_factor(g, input(g, &product, 1), f);
    return weft_rank_of(g, f->q) == 4 && weft_rank_of(g, f->k) == 4;
}

static weft_value permuted(weft_graph *g, weft_value x, int a, int b, int c, int d)
{
    return weft_permute(g, x, (weft_axes){4, {a, b, c, d}});
}

static bool visit(weft_rewrite *r)
{
    weft_graph *g = r->graph;
    found f = {.factor = WEFT_NO_VALUE, .mask = WEFT_NO_VALUE};
    if (r->node.op != &weft_op_matmul || weft_rank_of(g, r->in[0]) != 4 ||
        weft_rank_of(g, r->in[1]) != 4 || !find_scores(g, r->in[0], &f))
        return false;
    const weft_value v = r->in[1];
    for (int d = 0; d < 2; d++)
        if (weft_dim_of(g, f.q, d) != weft_dim_of(g, f.k, d) ||
            weft_dim_of(g, f.k, d) != weft_dim_of(g, v, d))
            return false;
    if (weft_is_value(f.mask) && weft_rank_of(g, f.mask) > 4) return false;
    if (weft_is_value(f.factor)) f.q = weft_mul(g, f.q, f.factor);
    const weft_sdpa_options options = {.scale = 1, .mask = f.mask};
    const weft_value q = permuted(g, f.q, 0, 2, 1, 3), k = permuted(g, f.k, 0, 3, 1, 2);
    const weft_value out = weft_sdpa(g, q, k, permuted(g, v, 0, 2, 1, 3), &options);
    r->out[0] = permuted(g, out, 0, 2, 1, 3);
    return true;
}

static bool needed(const weft_graph *graph)
{
    bool any = false;
    for (size_t n = 0; n < weft_graph_node_count(graph); n++) {
        const weft_op *op = weft_graph_node(graph, n).op;
        if (op == &weft_op_softmax_grad) return false;
        any = any || op == &weft_op_softmax;
    }
    return any;
}

const weft_pass weft__pass_attention = {
    .name = "attention",
    .doc = "attention written as matrix products and a softmax becomes sdpa",
    .visit = visit,
    .needed = needed,
};
