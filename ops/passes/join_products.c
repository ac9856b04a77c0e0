/* join_products: a sum of thin matrix products becomes one product.
 *
 * The gradient of a matrix that is used in T steps is a sum of T products a_t b_t, each of which is
 * written and read again. They are
 *     sum_t a_t b_t = [a_1 ... a_T] [b_1; ...; b_T],
 * one product that sums inside GEMM, in the order of the terms; it rounds differently. The pass
 * joins products only if the factors are smaller than what joining them saves. O(terms) for each
 * sum. */
#include "../passes.h"
#include "terms.h"

#include <weft/ops.h>

#include <stdlib.h>

extern const weft_op weft_op_add_n, weft_op_matmul;

/* The cost of one more node, in elements that could be copied meanwhile. */
#define NODE_ELEMENTS 4096

/* Whether a term is a [..., m, k] times b [..., k, n] with leading dimensions equal to its own. */
static bool as_product(const weft_graph *graph, weft_value term, weft_value *a, weft_value *b)
{
    const weft_node_info node = terms_producer(graph, term);
    if (node.op != &weft_op_matmul) return false;
    *a = weft_value_from_id(graph, node.in[0]);
    *b = weft_value_from_id(graph, node.in[1]);
    weft_shape shape = weft_shape_of(graph, term), left = shape, right = shape;
    left.dim[left.rank - 1] = right.dim[right.rank - 2] = weft_dim_of(graph, *a, -1);
    return weft_shape_equal(weft_shape_of(graph, *a), left) &&
           weft_shape_equal(weft_shape_of(graph, *b), right);
}

static double numel(const weft_graph *graph, weft_value value)
{
    return (double)weft_shape_numel(weft_shape_of(graph, value));
}

/* Whether there are two products or more, whose factors cost less to copy than joining saves. */
static bool is_worth(const weft_graph *graph, const weft_value *terms, size_t n)
{
    weft_value a, b;
    double factors = 0, saved = 0;
    size_t found = 0;
    for (size_t i = n; i-- > 0;) {
        if (!as_product(graph, terms[i], &a, &b)) continue;
        factors += numel(graph, a) + numel(graph, b);
        saved += numel(graph, terms[i]) + NODE_ELEMENTS;
        found++;
    }
    return found >= 2 && factors <= saved;
}

/* Joins all products of a sum; the product takes the place of the first. Returns how many terms the
 * sum has then. left and right have room for n values each. */
static size_t join(weft_graph *graph, weft_value *terms, size_t n, weft_value *left,
                   weft_value *right)
{
    size_t found = 0, first = 0;
    for (size_t i = 0; i < n; i++) {
        weft_value a, b;
        if (!as_product(graph, terms[i], &a, &b)) continue;
        if (!found) first = i;
        left[found] = weft_transpose(graph, a, -1, -2);
        right[found++] = b;
        terms[i] = WEFT_NO_VALUE;
    }
    weft_value a = weft_transpose(graph, weft_concat(graph, left, found, -2), -1, -2);
    terms[first] = weft_matmul(graph, a, weft_concat(graph, right, found, -2));
    return terms_compact(terms, n);
}

static bool visit(weft_rewrite *r)
{
    const size_t n = r->node.n_in;
    if (r->node.op != &weft_op_add_n || !is_worth(r->graph, r->in, n)) return false;
    weft_value *factors = malloc(2 * n * sizeof *factors);
    if (!factors) {
        weft_graph_fail_in(r->graph, "add_n", WEFT_NO_MEMORY, "no memory for %zu terms", n);
        return true;
    }
    r->node.n_in = join(r->graph, r->in, n, factors, factors + n);
    r->out[0] = r->in[0];
    free(factors);
    return r->node.n_in == 1;
}

static bool needed(const weft_graph *graph)
{
    return terms_any(graph, &weft_op_add_n, &weft_op_matmul);
}

const weft_pass weft__pass_join_products = {
    .name = "join_products",
    .doc = "a sum of thin matrix products becomes one product",
    .visit = visit,
    .needed = needed,
};
