/* Exchanges of data with other processes, in two nodes: exchange_start packs its inputs and begins,
 * exchange_wait ends. Nodes between them run while the data travel. So the planner knows the
 * lifetimes of both buffers: from the first node to the second. */
#include "kernels/kernel.h"

#include <weft/parallel.h>

#include <stdlib.h>

typedef struct exchange_attr {
    int32_t kind; /* weft_exchange_kind */
    int32_t group, size, peer, tag;
    int64_t received; /* elements */
} exchange_attr;

extern const weft_op weft_op_exchange_start, weft_op_exchange_wait;

/* ---- exchange_start: inputs are counts [2, size] and what is packed; outputs are the received and
 * the sent elements and the number of the exchange ---- */

/* Copies the elements [begin, end) of the concatenated inputs. */
static void pack(const weft_call *call, int64_t begin, int64_t end)
{
    const size_t bytes = weft_dtype_bytes(call->out[1].dtype);
    int64_t before = 0;
    for (size_t i = 1; i < call->n_in && before < end; i++) {
        const int64_t n = numel_of(&call->in[i].shape);
        const int64_t low = begin > before ? begin : before;
        const int64_t high = end < before + n ? end : before + n;
        if (low < high)
            memcpy((char *)call->out[1].data + (size_t)low * bytes,
                   (const char *)call->in[i].data + (size_t)(low - before) * bytes,
                   (size_t)(high - low) * bytes);
        before += n;
    }
}

static void start(const weft_call *call)
{
    const exchange_attr *attr = call->attr;
    const size_t bytes = weft_dtype_bytes(call->out[1].dtype), size = (size_t)attr->size;
    const int32_t *counts = call->in[0].data;
    size_t *sizes = call->scratch;
    for (size_t r = 0; r < 2 * size; r++) sizes[r] = (size_t)counts[r] * bytes;
    const bool sends = attr->kind != WEFT_RECEIVE;
    const weft_exchange x = {
        .kind = (weft_exchange_kind)attr->kind,
        .send = call->out[1].data,
        .receive = call->out[0].data,
        .send_bytes = sizes,
        .receive_bytes = sizes + size,
        .bytes = (size_t)numel_of(&call->out[sends ? 1 : 0].shape) * bytes,
        .peer = attr->peer,
        .tag = attr->tag,
    };
    *(int32_t *)call->out[2].data = weft_call_start_exchange(call, attr->group, attr->size, &x);
}

static void kernel_start(const weft_call *call, int64_t tile)
{
    const int64_t n = numel_of(&call->out[1].shape), begin = tile * TILE;
    if (call->phase == 1)
        start(call);
    else
        pack(call, begin, begin + TILE < n ? begin + TILE : n);
}

static int64_t tiles_start(const weft_call *call)
{
    return call->phase == 1 ? 1 : ceil_div(numel_of(&call->out[1].shape), TILE);
}

static size_t scratch_start(const weft_call *call)
{
    return 2 * (size_t)((const exchange_attr *)call->attr)->size * sizeof(size_t);
}

static bool infer_start(weft_infer *infer)
{
    const exchange_attr *attr = infer->attr;
    int64_t sent = 0;
    if (!weft_infer_dtype(infer, 0, WEFT_I32)) return false;
    if (!weft_shape_equal(infer->in[0].shape, (weft_shape){2, {2, attr->size}}))
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "the counts must be [2, %d]", attr->size);
    for (size_t i = 1; i < infer->n_in; i++) {
        if (!weft_infer_same_dtype(infer, 1, i)) return false;
        sent += weft_shape_numel(infer->in[i].shape);
    }
    const weft_dtype dtype = infer->in[1].dtype;
    infer->out[0] = (weft_type){dtype, {1, {attr->received}}};
    infer->out[1] = (weft_type){dtype, {1, {sent}}};
    infer->out[2] = (weft_type){WEFT_I32, WEFT_SCALAR};
    return true;
}

static void cost_start(const weft_call *call, weft_cost *cost)
{
    cost->flops = 0;
    cost->bytes = 2 * (double)weft_tensor_bytes(call->out[1].dtype, call->out[1].shape);
}

/* ---- exchange_wait: inputs received, sent, number; output: the received elements ---- */

static void kernel_wait(const weft_call *call, int64_t tile)
{
    const int64_t n = numel_of(&call->out[0].shape), begin = tile * TILE;
    const int64_t end = begin + TILE < n ? begin + TILE : n;
    const size_t bytes = weft_dtype_bytes(call->out[0].dtype);
    if (call->phase == 0)
        weft_call_wait_exchange(call, *(const int32_t *)call->in[2].data);
    else if (call->out[0].data != call->in[0].data)
        memcpy((char *)call->out[0].data + (size_t)begin * bytes,
               (const char *)call->in[0].data + (size_t)begin * bytes,
               (size_t)(end - begin) * bytes);
}

static int64_t tiles_wait(const weft_call *call)
{
    return call->phase == 0 ? 1 : ceil_div(numel_of(&call->out[0].shape), TILE);
}

static bool infer_wait(weft_infer *infer)
{
    if (!weft_infer_same_dtype(infer, 0, 1) || !weft_infer_dtype(infer, 2, WEFT_I32)) return false;
    infer->out[0] = infer->in[0];
    return true;
}

static void cost_wait(const weft_call *call, weft_cost *cost)
{
    cost->flops = 0;
    cost->bytes = (double)weft_tensor_bytes(call->out[0].dtype, call->out[0].shape);
}

/* ---- Descriptors and builders ---- */

/* clang-format off */
#define EVERY_DTYPE(kernel) {{[WEFT_F32] = kernel, [WEFT_F64] = kernel, [WEFT_I32] = kernel, [WEFT_BOOL] = kernel}}
/* clang-format on */
static const weft_attr_field start_fields[] = {
    {"kind", WEFT_ATTR_INT, offsetof(exchange_attr, kind)},
    {"group", WEFT_ATTR_INT, offsetof(exchange_attr, group)},
    {"peer", WEFT_ATTR_INT, offsetof(exchange_attr, peer)},
    {"tag", WEFT_ATTR_INT, offsetof(exchange_attr, tag)},
    {"received", WEFT_ATTR_INT64, offsetof(exchange_attr, received)},
    {NULL, WEFT_ATTR_INT, 0},
};
const weft_op weft_op_exchange_start = {
    .name = "exchange_start",
    .doc = "Packs its inputs one after another and begins an exchange with other processes.",
    .inputs = "counts",
    .min_in = 2,
    .max_in = WEFT_VARIADIC,
    .n_out = 3,
    .attr_size = sizeof(exchange_attr),
    .attrs = start_fields,
    .infer = infer_start,
    .kernel = EVERY_DTYPE(kernel_start),
    .phases = 2,
    .tiles = tiles_start,
    .scratch = scratch_start,
    .cost = cost_start,
    .can_fail = true,
    .exchanges = true,
    .gradient = WEFT_GRADIENT_NONE,
};
const weft_op weft_op_exchange_wait = {
    .name = "exchange_wait",
    .doc = "Waits for an exchange with other processes; y is what was received.",
    .inputs = "received sent number",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .infer = infer_wait,
    .kernel = EVERY_DTYPE(kernel_wait),
    .phases = 2,
    .tiles = tiles_wait,
    .cost = cost_wait,
    .inplace = 1,
    .can_fail = true,
    .exchanges = true,
    .gradient = WEFT_GRADIENT_NONE,
};

/* The counts of both directions as a constant [2, size]; absent counts are zeros. */
static weft_value counts_value(weft_graph *g, int32_t size, const int64_t *send,
                               const int64_t *receive, int64_t *received)
{
    int32_t *counts = malloc(2 * (size_t)size * sizeof *counts);
    weft_value value = WEFT_NO_VALUE;
    bool good = counts != NULL;
    if (!counts) weft_graph_fail_in(g, "exchange", WEFT_NO_MEMORY, "out of memory");
    for (int32_t r = 0; good && r < size; r++) {
        const int64_t s = send ? send[r] : 0, e = receive ? receive[r] : 0;
        counts[r] = (int32_t)s;
        counts[size + r] = (int32_t)e;
        *received += e;
        good = s >= 0 && s <= INT32_MAX && e >= 0 && e <= INT32_MAX;
        if (!good)
            weft_graph_fail_in(g, "exchange", WEFT_TOO_LARGE,
                               "a piece has %lld elements, at most 2^31 - 1 can be exchanged",
                               (long long)(s > e ? s : e));
    }
    if (good) value = weft_constant(g, WEFT_I32, (weft_shape){2, {2, size}}, counts);
    free(counts);
    return value;
}

weft_flight weft_exchange_begin(weft_graph *graph, weft_ranks ranks, weft_exchange_kind kind,
                                const weft_exchange_sizes *sizes, const weft_value *x, size_t n)
{
    const weft_exchange_sizes none = {0}, *o = sizes ? sizes : &none;
    weft_flight flight = {WEFT_NO_VALUE, WEFT_NO_VALUE, WEFT_NO_VALUE};
    exchange_attr attr;
    memset(&attr, 0, sizeof attr);
    if (ranks.size < 1 || ranks.rank < 0 || ranks.rank >= ranks.size || !x || !n) {
        weft_graph_fail_in(graph, "exchange", WEFT_BAD_ARGUMENT,
                           x && n ? "rank %d is outside [0, %d)" : "there is nothing to exchange",
                           ranks.rank, ranks.size);
        return flight;
    }
    attr.kind = (int32_t)kind;
    attr.group = ranks.group;
    attr.size = ranks.size;
    attr.peer = o->peer;
    attr.tag = o->tag;
    weft_value *in = malloc((n + 1) * sizeof *in), out[3];
    if (!in) {
        weft_graph_fail_in(graph, "exchange", WEFT_NO_MEMORY, "out of memory");
        return flight;
    }
    in[0] = counts_value(graph, ranks.size, o->send, o->receive, &attr.received);
    memcpy(in + 1, x, n * sizeof *in);
    if (kind == WEFT_BROADCAST)
        for (size_t i = 0; i < n; i++)
            attr.received += weft_shape_numel(weft_shape_of(graph, x[i]));
    if (weft_is_value(weft_apply(graph, &weft_op_exchange_start, &attr, in, n + 1, out)))
        flight = (weft_flight){out[0], out[1], out[2]};
    free(in);
    return flight;
}

weft_value weft_exchange_end(weft_graph *graph, weft_flight flight)
{
    return weft_apply(graph, &weft_op_exchange_wait, NULL,
                      (weft_value[]){flight.received, flight.sent, flight.number}, 3, NULL);
}
