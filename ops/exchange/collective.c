/* Collectives: ops that combine the values of all ranks of a group. They have no kernels and expand
 * into exchanges and plain ops; a group of one rank expands into the value itself.
 *
 * A sum is made in pieces: an all-to-all brings piece r of all ranks to rank r, which adds them in
 * the order of the ranks, and an all-gather distributes the sums. A rank sends 2 (size - 1) / size
 * times its elements, the least that is possible, and each element is added on one rank only, so
 * all ranks have the same bits. */
#include <weft/parallel.h>

#include <stdlib.h>
#include <string.h>

typedef struct collective_attr {
    int32_t group, rank, size;
    int32_t peer, tag; /* peer: the root, or the other side of a message */
    weft_dtype dtype;  /* of what is received; as is the shape */
    weft_shape shape;
} collective_attr;

static weft_ranks ranks_of(const collective_attr *attr)
{
    return (weft_ranks){attr->group, attr->rank, attr->size};
}

/* ---- Shape rules ---- */

static bool group_fits(weft_infer *infer)
{
    const collective_attr *a = infer->attr;
    if (a->size < 1 || a->rank < 0 || a->rank >= a->size || a->group < 0)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                               "rank %d of %d ranks in group %d: ranks are 0 to size - 1, groups "
                               "count from 0",
                               a->rank, a->size, a->group);
    if (a->peer < 0 || a->peer >= a->size)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "rank %d is outside of the %d ranks",
                               a->peer, a->size);
    if (a->tag < 0 || a->tag > WEFT_MAX_TAG)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "the tag must be 0 to %d, got %d",
                               WEFT_MAX_TAG, a->tag);
    return true;
}

static bool infer_same(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return group_fits(infer);
}

static bool infer_sum(weft_infer *infer)
{
    return weft_infer_float(infer, 0) && infer_same(infer);
}

static bool infer_reduce_scatter(weft_infer *infer)
{
    const int32_t size = ((const collective_attr *)infer->attr)->size;
    if (!infer_sum(infer) || !weft_infer_min_rank(infer, 0, 1)) return false;
    if (infer->in[0].shape.dim[0] % size)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "dimension 0 is %lld, expected a multiple of the %d ranks",
                               (long long)infer->in[0].shape.dim[0], size);
    infer->out[0].shape.dim[0] /= size;
    return true;
}

static bool infer_all_gather(weft_infer *infer)
{
    const int32_t size = ((const collective_attr *)infer->attr)->size;
    if (!infer_same(infer) || !weft_infer_min_rank(infer, 0, 1)) return false;
    int64_t *rows = &infer->out[0].shape.dim[0];
    if (*rows > INT64_MAX / size)
        return weft_infer_fail(infer, WEFT_TOO_LARGE, "%d ranks times %lld rows overflow", size,
                               (long long)*rows);
    *rows *= size;
    return true;
}

static bool infer_send(weft_infer *infer)
{
    infer->out[0] = (weft_type){infer->in[0].dtype, {1, {0}}};
    return group_fits(infer);
}

static bool infer_receive(weft_infer *infer)
{
    const collective_attr *attr = infer->attr;
    char text[128];
    if (!weft_infer_dtype(infer, 0, attr->dtype)) return false;
    if (!weft_shape_equal(infer->in[0].shape, (weft_shape){1, {0}}))
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "`after` must be empty, [0], got %s",
                               weft_shape_text(infer->in[0].shape, text, sizeof text));
    infer->out[0] = (weft_type){attr->dtype, attr->shape};
    return group_fits(infer);
}

/* ---- Expansions ---- */

/* Where piece `rank` of n elements begins. */
static int64_t cut(int64_t n, int64_t rank, int64_t size)
{
    return n / size * rank + n % size * rank / size;
}

/* Two lists of a number for each rank, the first with the sizes of even pieces of n elements. The
 * caller frees them; NULL, with the graph's error, if out of memory. */
static int64_t *even_pieces(weft_graph *g, const collective_attr *attr, int64_t n)
{
    int64_t *counts = calloc(2 * (size_t)attr->size, sizeof *counts);
    if (!counts) weft_graph_fail_in(g, "exchange", WEFT_NO_MEMORY, "out of memory");
    for (int r = 0; counts && r < attr->size; r++)
        counts[r] = cut(n, r + 1, attr->size) - cut(n, r, attr->size);
    return counts;
}

static weft_value exchange(weft_graph *g, const collective_attr *attr, weft_exchange_kind kind,
                           const int64_t *send, const int64_t *receive, weft_value x)
{
    const weft_exchange_sizes sizes = {send, receive, attr->peer, attr->tag};
    return weft_exchange_end(g, weft_exchange_begin(g, ranks_of(attr), kind, &sizes, &x, 1));
}

/* The sum over ranks of this rank's piece of x, [counts[rank]], for pieces of these sizes. */
static weft_value sum_of_piece(weft_graph *g, const collective_attr *attr, weft_value x,
                               int64_t *counts)
{
    const int64_t own = counts[attr->rank];
    for (int r = 0; r < attr->size; r++) counts[attr->size + r] = own;
    weft_value all = exchange(g, attr, WEFT_ALL_TO_ALL, counts, counts + attr->size, x);
    weft_value sum = weft_slice(g, all, 0, 0, own, 1);
    for (int64_t r = 1; r < attr->size; r++)
        sum = weft_add(g, sum, weft_slice(g, all, 0, r * own, (r + 1) * own, 1));
    return sum;
}

static void expand_sum(weft_expand *e)
{
    const collective_attr *attr = e->attr;
    weft_graph *g = e->graph;
    const weft_shape shape = weft_shape_of(g, e->in[0]);
    e->out[0] = e->in[0];
    if (attr->size == 1) return;
    int64_t *counts = even_pieces(g, attr, weft_shape_numel(shape));
    if (!counts) return;
    weft_value sum = sum_of_piece(g, attr, e->in[0], counts);
    sum = exchange(g, attr, WEFT_ALL_GATHER, NULL, counts, sum);
    e->out[0] = weft_reshape(g, sum, shape);
    free(counts);
}

static void expand_copy(weft_expand *e)
{
    e->out[0] = e->in[0];
}

static void expand_reduce_scatter(weft_expand *e)
{
    const collective_attr *attr = e->attr;
    weft_graph *g = e->graph;
    weft_shape shape = weft_shape_of(g, e->in[0]);
    e->out[0] = e->in[0];
    if (attr->size == 1) return;
    int64_t *counts = even_pieces(g, attr, weft_shape_numel(shape));
    if (!counts) return;
    shape.dim[0] /= attr->size;
    e->out[0] = weft_reshape(g, sum_of_piece(g, attr, e->in[0], counts), shape);
    free(counts);
}

static void expand_all_gather(weft_expand *e)
{
    const collective_attr *attr = e->attr;
    weft_graph *g = e->graph;
    weft_shape shape = weft_shape_of(g, e->in[0]);
    e->out[0] = e->in[0];
    if (attr->size == 1) return;
    shape.dim[0] *= attr->size;
    int64_t *counts = even_pieces(g, attr, weft_shape_numel(shape));
    if (!counts) return;
    weft_value all = exchange(g, attr, WEFT_ALL_GATHER, NULL, counts, e->in[0]);
    e->out[0] = weft_reshape(g, all, shape);
    free(counts);
}

static void expand_broadcast(weft_expand *e)
{
    const collective_attr *attr = e->attr;
    weft_graph *g = e->graph;
    e->out[0] = e->in[0];
    if (attr->size > 1)
        e->out[0] = weft_reshape(g, exchange(g, attr, WEFT_BROADCAST, NULL, NULL, e->in[0]),
                                 weft_shape_of(g, e->in[0]));
}

/* The root owns all elements, the other ranks none. Their zeros depend on the exchange, so that it
 * takes place. */
static void expand_sum_to_rank(weft_expand *e)
{
    const collective_attr *attr = e->attr;
    weft_graph *g = e->graph;
    const weft_shape shape = weft_shape_of(g, e->in[0]);
    const int64_t n = weft_shape_numel(shape), none = 0;
    e->out[0] = e->in[0];
    if (attr->size == 1) return;
    int64_t *counts = even_pieces(g, attr, 0);
    if (!counts) return;
    counts[attr->peer] = n;
    weft_value sum = sum_of_piece(g, attr, e->in[0], counts);
    if (attr->rank != attr->peer) sum = weft_pad(g, sum, &none, &n, 0);
    e->out[0] = weft_reshape(g, sum, shape);
    free(counts);
}

static void expand_send(weft_expand *e)
{
    e->out[0] = exchange(e->graph, e->attr, WEFT_SEND, NULL, NULL, e->in[0]);
}

static void expand_receive(weft_expand *e)
{
    const collective_attr *attr = e->attr;
    int64_t *counts = even_pieces(e->graph, attr, 0);
    if (!counts) return;
    counts[attr->peer] = weft_shape_numel(attr->shape);
    weft_value received = exchange(e->graph, attr, WEFT_RECEIVE, NULL, counts, e->in[0]);
    e->out[0] = weft_reshape(e->graph, received, attr->shape);
    free(counts);
}

/* ---- Gradients ---- */

#define VJP(name, gradient)                                                                        \
    static void vjp_##name(weft_vjp *v)                                                            \
    {                                                                                              \
        const collective_attr *attr = v->attr;                                                     \
        const weft_ranks ranks = ranks_of(attr);                                                   \
        weft_graph *graph = v->graph;                                                              \
        const weft_value g = v->grad_out[0];                                                       \
        v->grad_in[0] = gradient;                                                                  \
    }
VJP(sum_over_ranks, weft_copy_to_ranks(graph, ranks, g))
VJP(copy_to_ranks, weft_sum_over_ranks(graph, ranks, g))
VJP(reduce_scatter, weft_all_gather(graph, ranks, g))
VJP(all_gather, weft_reduce_scatter(graph, ranks, g))
VJP(broadcast_ranks, weft_sum_to_rank(graph, ranks, g, attr->peer))
VJP(sum_to_rank, weft_broadcast_ranks(graph, ranks, g, attr->peer))
VJP(send, weft_receive(graph, ranks, weft_dtype_of(graph, g), weft_shape_of(graph, v->in[0]),
                       attr->peer, attr->tag, g))
VJP(receive, weft_send(graph, ranks, g, attr->peer, attr->tag))

/* ---- Descriptors and builders ---- */

#define GROUP_FIELDS                                                                               \
    {"group", WEFT_ATTR_INT, offsetof(collective_attr, group)},                                    \
        {"rank", WEFT_ATTR_INT, offsetof(collective_attr, rank)},                                  \
    {                                                                                              \
        "size", WEFT_ATTR_INT, offsetof(collective_attr, size)                                     \
    }
#define LAST_FIELD                                                                                 \
    {                                                                                              \
        NULL, WEFT_ATTR_INT, 0                                                                     \
    }
static const weft_attr_field group_fields[] = {GROUP_FIELDS, LAST_FIELD};
static const weft_attr_field root_fields[] = {
    GROUP_FIELDS, {"root", WEFT_ATTR_INT, offsetof(collective_attr, peer)}, LAST_FIELD};
static const weft_attr_field message_fields[] = {
    GROUP_FIELDS,
    {"peer", WEFT_ATTR_INT, offsetof(collective_attr, peer)},
    {"tag", WEFT_ATTR_INT, offsetof(collective_attr, tag)},
    LAST_FIELD};

#define COLLECTIVE(op, shape_rule, expansion, fields, text)                                        \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {                                                                 \
        .name = #op,                                                                               \
        .doc = text,                                                                               \
        .min_in = 1,                                                                               \
        .max_in = 1,                                                                               \
        .n_out = 1,                                                                                \
        .attr_size = sizeof(collective_attr),                                                      \
        .attrs = fields,                                                                           \
        .infer = shape_rule,                                                                       \
        .can_fail = true,                                                                          \
        .exchanges = true,                                                                         \
        .vjp = vjp_##op,                                                                           \
        .expand = expansion,                                                                       \
    };
COLLECTIVE(sum_over_ranks, infer_sum, expand_sum, group_fields,
           "y = the sum of x over the ranks of a group, on all of them.")
COLLECTIVE(copy_to_ranks, infer_sum, expand_copy, group_fields,
           "y = x, equal on all ranks, whose gradient is the sum of the ranks' gradients.")
COLLECTIVE(reduce_scatter, infer_reduce_scatter, expand_reduce_scatter, group_fields,
           "y = this rank's rows of the sum of x over ranks.")
COLLECTIVE(all_gather, infer_all_gather, expand_all_gather, group_fields,
           "y = the rows of all ranks, in the order of the ranks.")
COLLECTIVE(broadcast_ranks, infer_same, expand_broadcast, root_fields, "y = x of the root.")
COLLECTIVE(sum_to_rank, infer_sum, expand_sum_to_rank, root_fields,
           "y = the sum of x over ranks on the root, zeros on the others.")
COLLECTIVE(send, infer_send, expand_send, message_fields, "Sends x to another rank; y is empty.")
COLLECTIVE(receive, infer_receive, expand_receive, message_fields,
           "y = what another rank sends. The input is empty and orders the node.")

static weft_value apply(weft_graph *g, const weft_op *op, weft_ranks ranks, int32_t peer,
                        int32_t tag, weft_value x)
{
    collective_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.group = ranks.group;
    attr.rank = ranks.rank;
    attr.size = ranks.size;
    attr.peer = peer;
    attr.tag = tag;
    return weft_apply(g, op, &attr, &x, 1, NULL);
}

weft_value weft_sum_over_ranks(weft_graph *graph, weft_ranks ranks, weft_value x)
{
    return apply(graph, &weft_op_sum_over_ranks, ranks, 0, 0, x);
}

weft_value weft_copy_to_ranks(weft_graph *graph, weft_ranks ranks, weft_value x)
{
    return apply(graph, &weft_op_copy_to_ranks, ranks, 0, 0, x);
}

weft_value weft_all_reduce(weft_graph *graph, weft_ranks ranks, weft_value x)
{
    return weft_copy_to_ranks(graph, ranks, weft_sum_over_ranks(graph, ranks, x));
}

weft_value weft_reduce_scatter(weft_graph *graph, weft_ranks ranks, weft_value x)
{
    return apply(graph, &weft_op_reduce_scatter, ranks, 0, 0, x);
}

weft_value weft_all_gather(weft_graph *graph, weft_ranks ranks, weft_value x)
{
    return apply(graph, &weft_op_all_gather, ranks, 0, 0, x);
}

weft_value weft_broadcast_ranks(weft_graph *graph, weft_ranks ranks, weft_value x, int32_t root)
{
    return apply(graph, &weft_op_broadcast_ranks, ranks, root, 0, x);
}

weft_value weft_sum_to_rank(weft_graph *graph, weft_ranks ranks, weft_value x, int32_t root)
{
    return apply(graph, &weft_op_sum_to_rank, ranks, root, 0, x);
}

weft_value weft_send(weft_graph *graph, weft_ranks ranks, weft_value x, int32_t to, int32_t tag)
{
    return apply(graph, &weft_op_send, ranks, to, tag, x);
}

weft_value weft_receive(weft_graph *graph, weft_ranks ranks, weft_dtype dtype, weft_shape shape,
                        int32_t from, int32_t tag, weft_value after)
{
    collective_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.group = ranks.group;
    attr.rank = ranks.rank;
    attr.size = ranks.size;
    attr.peer = from;
    attr.tag = tag;
    attr.dtype = dtype;
    attr.shape = shape;
    if (!weft_is_value(after)) after = weft_fill(graph, dtype, WEFT_SHAPE(0), 0);
    return weft_apply(graph, &weft_op_receive, &attr, &after, 1, NULL);
}
