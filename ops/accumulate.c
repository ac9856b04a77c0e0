/* Sums of many terms, as gradients are of a value that is used at every step of a sequence.
 *
 * T slices of one axis each give a term that is zero but for one piece: added up, they would cost T
 * times the whole tensor; laid side by side by one concat, once. T products a_t b_t into one large
 * matrix (the gradient of a recurrent weight) would each be written and read again; they are
 *     sum_t a_t b_t = [a_1 ... a_T] [b_1; ...; b_T],
 * one product that sums inside BLAS. O(terms log terms). */
#include "slice.h"

#include <weft/ops.h>

#include <stdlib.h>

extern const weft_op weft_op_slice_scatter, weft_op_matmul;

/* What one more node costs, in elements that could be copied meanwhile. */
#define NODE_ELEMENTS 4096

/* A term that is zero outside [begin, end) of its axis, where it is `inside`. */
typedef struct piece {
    int64_t begin, end;
    weft_value inside;
    size_t index; /* of the term */
} piece;

typedef struct sum {
    weft_graph *graph;
    weft_value *terms;
    size_t n;
} sum;

static weft_node_info maker(const weft_graph *graph, weft_value value)
{
    return weft_graph_node(graph, weft_producer(graph, value));
}

static int by_begin(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Drops the terms that became no values, keeping the order of the others. */
static void close_up(sum *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n; i++)
        if (weft_is_value(s->terms[i])) s->terms[kept++] = s->terms[i];
    s->n = kept;
}

/* ---- Pieces ---- */

static bool as_piece(const sum *s, size_t index, int axis, piece *out)
{
    weft_node_info node = maker(s->graph, s->terms[index]);
    const slice_attr *attr = node.attr;
    if (node.op != &weft_op_slice_scatter || attr->axis != axis || attr->step != 1 ||
        attr->count < 1)
        return false;
    *out = (piece){attr->begin, attr->begin + attr->count, weft_value_from_id(s->graph, node.in[0]),
                   index};
    return true;
}

/* Zeros for [begin, end) of the axis. */
static weft_value gap(const sum *s, weft_value like, int axis, int64_t begin, int64_t end)
{
    weft_shape shape = weft_shape_of(s->graph, like);
    shape.dim[axis] = end - begin;
    return weft_fill(s->graph, weft_dtype_of(s->graph, like), shape, 0.0);
}

/* One concat for the pieces of an axis that do not overlap; it takes the place of the first. */
static void join_pieces(sum *s, int axis, piece *pieces, weft_value *parts)
{
    size_t n = 0, disjoint = 0, n_parts = 0;
    for (size_t i = 0; i < s->n; i++) n += as_piece(s, i, axis, &pieces[n]);
    qsort(pieces, n, sizeof *pieces, by_begin);
    for (size_t i = 0; i < n; i++)
        if (!disjoint || pieces[i].begin >= pieces[disjoint - 1].end)
            pieces[disjoint++] = pieces[i];
    if (disjoint < 2) return;
    weft_value like = s->terms[pieces[0].index];
    int64_t size = weft_dim(s->graph, like, axis), at = 0;
    size_t place = pieces[0].index;
    for (size_t i = 0; i < disjoint; i++) {
        if (pieces[i].begin > at) parts[n_parts++] = gap(s, like, axis, at, pieces[i].begin);
        parts[n_parts++] = pieces[i].inside;
        at = pieces[i].end;
        if (pieces[i].index < place) place = pieces[i].index;
        s->terms[pieces[i].index] = WEFT_NO_VALUE;
    }
    if (at < size) parts[n_parts++] = gap(s, like, axis, at, size);
    s->terms[place] = weft_concat(s->graph, parts, n_parts, axis);
    close_up(s);
}

/* ---- Products ---- */

/* A term a [..., m, k] times b [..., k, n] whose leading dimensions are its own. */
static bool as_product(const sum *s, size_t index, weft_value *a, weft_value *b)
{
    weft_node_info node = maker(s->graph, s->terms[index]);
    if (node.op != &weft_op_matmul) return false;
    *a = weft_value_from_id(s->graph, node.in[0]);
    *b = weft_value_from_id(s->graph, node.in[1]);
    weft_shape shape = weft_shape_of(s->graph, s->terms[index]), left = shape, right = shape;
    left.dim[left.rank - 1] = right.dim[right.rank - 2] = weft_dim(s->graph, *a, -1);
    return weft_shape_equal(weft_shape_of(s->graph, *a), left) &&
           weft_shape_equal(weft_shape_of(s->graph, *b), right);
}

static double numel(const sum *s, weft_value value)
{
    return (double)weft_shape_numel(weft_shape_of(s->graph, value));
}

/* One product for all of them, if copying the factors is less than what it saves. */
static void join_products(sum *s, weft_value *left, weft_value *right)
{
    weft_value a, b;
    double factors = 0, products = 0;
    size_t n = 0, place = 0;
    for (size_t i = s->n; i-- > 0;) {
        if (!as_product(s, i, &a, &b)) continue;
        factors += numel(s, a) + numel(s, b);
        products += numel(s, s->terms[i]) + NODE_ELEMENTS;
        place = i;
        n++;
    }
    if (n < 2 || factors > products) return;
    n = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (!as_product(s, i, &a, &b)) continue;
        left[n] = weft_transpose(s->graph, a, -1, -2);
        right[n++] = b;
        s->terms[i] = WEFT_NO_VALUE;
    }
    a = weft_transpose(s->graph, weft_concat(s->graph, left, n, -2), -1, -2);
    s->terms[place] = weft_matmul(s->graph, a, weft_concat(s->graph, right, n, -2));
    close_up(s);
}

/* Two terms or more, all of this graph and of one type; anything else weft_add_n tells about. */
static bool terms_fit(const weft_graph *graph, const weft_value *x, size_t n)
{
    if (weft_graph_status(graph) != WEFT_OK || !x || n < 2) return false;
    for (size_t i = 0; i < n; i++)
        if (!x[i].id || weft_value_from_id(graph, x[i].id).graph != x[i].graph ||
            weft_dtype_of(graph, x[i]) != weft_dtype_of(graph, x[0]) ||
            !weft_shape_equal(weft_shape_of(graph, x[i]), weft_shape_of(graph, x[0])))
            return false;
    return true;
}

weft_value weft_accumulate(weft_graph *graph, const weft_value *x, size_t n)
{
    if (!terms_fit(graph, x, n)) return weft_add_n(graph, x, n);
    sum s = {graph, malloc(n * sizeof *x), n};
    weft_value *parts = malloc((2 * n + 1) * sizeof *parts);
    piece *pieces = malloc(n * sizeof *pieces);
    weft_value total = WEFT_NO_VALUE;
    if (s.terms && parts && pieces) {
        for (size_t i = 0; i < n; i++) s.terms[i] = x[i];
        for (int axis = 0; axis < weft_rank(graph, x[0]); axis++)
            join_pieces(&s, axis, pieces, parts);
        join_products(&s, parts, parts + n);
        total = s.n == 1 ? s.terms[0] : weft_add_n(graph, s.terms, s.n);
    } else {
        weft_graph_fail_in(graph, "weft_accumulate", WEFT_NO_MEMORY, "no memory for %zu terms", n);
    }
    free(s.terms);
    free(parts);
    free(pieces);
    return total;
}
