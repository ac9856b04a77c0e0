/* join_slices: a sum of slices that were put back among zeros becomes one concat.
 *
 * The gradient of a value of which T slices are used is a sum of T terms (slice_scatter), each of
 * them zero but for one piece. Adding them costs T times the whole tensor; concatenating them,
 * once. Pieces that overlap stay terms of the sum. A zero that was added may change the sign of a
 * zero. O(terms log terms) for each sum. */
#include "shape/slice.h"
#include "../passes.h"
#include "terms.h"

#include <weft/ops.h>

#include <stdlib.h>

extern const weft_op weft_op_add_n, weft_op_slice_scatter;

/* A term that is zero outside [begin, end) of its axis, where it is `inside`. */
typedef struct piece {
    int64_t begin, end;
    weft_value inside;
    size_t index; /* of the term */
} piece;

static int by_begin(const void *a, const void *b)
{
    const piece *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static bool as_piece(const weft_graph *graph, weft_value term, size_t index, int axis, piece *out)
{
    const weft_node_info node = terms_producer(graph, term);
    const slice_attr *attr = node.attr;
    if (node.op != &weft_op_slice_scatter || attr->axis != axis || attr->step != 1 ||
        attr->count < 1)
        return false;
    *out = (piece){attr->begin, attr->begin + attr->count, weft_value_from_id(graph, node.in[0]),
                   index};
    return true;
}

/* Finds the pieces of an axis, sorts them, and drops those that overlap one before. */
static size_t find_pieces(const weft_graph *graph, const weft_value *terms, size_t n, int axis,
                          piece *pieces)
{
    size_t found = 0, disjoint = 0;
    for (size_t i = 0; i < n; i++) found += as_piece(graph, terms[i], i, axis, &pieces[found]);
    qsort(pieces, found, sizeof *pieces, by_begin);
    for (size_t i = 0; i < found; i++)
        if (!disjoint || pieces[i].begin >= pieces[disjoint - 1].end)
            pieces[disjoint++] = pieces[i];
    return disjoint;
}

/* Zeros for [begin, end) of the axis. */
static weft_value gap(weft_graph *graph, weft_value like, int axis, int64_t begin, int64_t end)
{
    weft_shape shape = weft_shape_of(graph, like);
    shape.dim[axis] = end - begin;
    return weft_fill(graph, weft_dtype_of(graph, like), shape, 0.0);
}

/* Joins the pieces of an axis; the concat takes the place of the first. Returns how many terms the
 * sum has then. */
static size_t join_axis(weft_graph *graph, weft_value *terms, size_t n, int axis, piece *pieces,
                        weft_value *parts)
{
    size_t n_pieces = find_pieces(graph, terms, n, axis, pieces), n_parts = 0;
    if (n_pieces < 2) return n;
    const weft_value like = terms[pieces[0].index];
    int64_t size = weft_dim_of(graph, like, axis), at = 0;
    size_t first = pieces[0].index;
    for (size_t i = 0; i < n_pieces; i++) {
        if (pieces[i].begin > at) parts[n_parts++] = gap(graph, like, axis, at, pieces[i].begin);
        parts[n_parts++] = pieces[i].inside;
        at = pieces[i].end;
        if (pieces[i].index < first) first = pieces[i].index;
        terms[pieces[i].index] = WEFT_NO_VALUE;
    }
    if (at < size) parts[n_parts++] = gap(graph, like, axis, at, size);
    terms[first] = weft_concat(graph, parts, n_parts, axis);
    return terms_compact(terms, n);
}

static bool visit(weft_rewrite *r)
{
    const size_t n = r->node.n_in;
    if (r->node.op != &weft_op_add_n || n < 2) return false;
    piece *pieces = malloc(n * sizeof *pieces);
    weft_value *parts = malloc((2 * n + 1) * sizeof *parts);
    if (!pieces || !parts) {
        weft_graph_fail_in(r->graph, "add_n", WEFT_NO_MEMORY, "no memory for %zu terms", n);
    } else {
        for (int axis = 0; axis < weft_rank_of(r->graph, r->in[0]); axis++)
            r->node.n_in = join_axis(r->graph, r->in, r->node.n_in, axis, pieces, parts);
        r->out[0] = r->in[0];
    }
    free(pieces);
    free(parts);
    return r->node.n_in == 1 || weft_graph_status(r->graph) != WEFT_OK;
}

static bool needed(const weft_graph *graph)
{
    return terms_any(graph, &weft_op_add_n, &weft_op_slice_scatter);
}

const weft_pass weft__pass_join_slices = {
    .name = "join_slices",
    .doc = "a sum of zero-padded slices becomes one concat",
    .visit = visit,
    .needed = needed,
};
