/* Update nodes for states that grow by one position a run: keys and values of a decoder. Both work
 * in place and touch only what they change. */
#include "kernels/kernel.h"
#include "samples.h"

#include <weft/ops.h>
#include <weft/source.h>

#include <string.h>

/* A state is [rows, max_len, ...]: elements of one position of one row. */
static inline int64_t position_elements(const weft_tensor *state)
{
    int64_t n = 1;
    for (int d = 2; d < state->shape.rank; d++) n *= state->shape.dim[d];
    return n;
}

static inline int64_t at_least_one(int64_t n)
{
    return n > 0 ? n : 1;
}

/* Rows of the value that one tile of cache_write copies. */
static inline int64_t rows_of_tile(const weft_tensor *value)
{
    int64_t row = at_least_one(value->shape.dim[1] * position_elements(value));
    return at_least_one(TILE / row);
}

/* Positions that one tile of cache_reorder moves, of all rows. */
static inline int64_t positions_per_tile(const weft_tensor *state)
{
    return at_least_one(TILE / at_least_one(state->shape.dim[0] * position_elements(state)));
}

/* ---- Kernels, which move bytes of any dtype ---- */

static void kernel_write(const weft_call *call, int64_t tile)
{
    const weft_tensor *state = &call->out[0], *value = &call->in[1];
    const int32_t *positions = call->in[2].data;
    const bool own = call->in[2].shape.rank > 0; /* each row is at a position of its own */
    const int64_t each = position_elements(state) * (int64_t)weft_dtype_bytes(state->dtype);
    const int64_t max_len = state->shape.dim[1], rows = value->shape.dim[0];
    const int64_t count = value->shape.dim[1], block = rows_of_tile(value), row = tile * block;
    const int64_t end = row + block < rows ? row + block : rows;
    for (int64_t i = row; i < end; i++) {
        const int64_t position = positions[own ? i : 0];
        if (position >= 0 && position + count <= max_len) continue;
        weft_call_fail(call, position, max_len - count + 1);
        return;
    }
    for (int64_t i = row; i < end; i++)
        memcpy((char *)state->data + (i * max_len + positions[own ? i : 0]) * each,
               (const char *)value->data + i * count * each, (size_t)(count * each));
}

/* A tile owns a range of positions: rows that change are copied aside before any is written. */
static void kernel_reorder(const weft_call *call, int64_t tile)
{
    const weft_tensor *state = &call->out[0];
    const int32_t *parents = call->in[1].data;
    const int64_t length = *(const int32_t *)call->in[2].data, n = call->in[1].shape.dim[0];
    const int64_t rows = state->shape.dim[0], max_len = state->shape.dim[1];
    const int64_t each = position_elements(state) * (int64_t)weft_dtype_bytes(state->dtype);
    const int64_t block = positions_per_tile(state);
    const int64_t begin = tile * block, whole = length < max_len ? length : max_len;
    const int64_t end = begin + block < whole ? begin + block : whole;
    if (tile == 0 && (length < 0 || length > max_len)) weft_call_fail(call, length, max_len + 1);
    for (int64_t i = 0; i < n; i++) {
        if (parents[i] >= 0 && parents[i] < rows) continue;
        weft_call_fail(call, parents[i], rows);
        return;
    }
    if (end <= begin) return;
    const size_t run = (size_t)((end - begin) * each);
    char *data = (char *)state->data + begin * each, *aside = weft_call_workspace(call);
    for (int64_t i = 0; i < n; i++)
        if (parents[i] != i)
            memcpy(aside + (size_t)i * run, data + parents[i] * max_len * each, run);
    for (int64_t i = 0; i < n; i++)
        if (parents[i] != i) memcpy(data + i * max_len * each, aside + (size_t)i * run, run);
}

/* ---- Shapes and sizes ---- */

static bool infer_scalar_index(weft_infer *infer, size_t i)
{
    char name[128], text[128];
    if (!weft_infer_dtype(infer, i, WEFT_I32)) return false;
    if (infer->in[i].shape.rank == 0) return true;
    return weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s must be a scalar, got %s",
                           weft_infer_input(infer, i, name, sizeof name),
                           weft_shape_text(infer->in[i].shape, text, sizeof text));
}

/* The positions of cache_write: a scalar, or one for each row of the value. */
static bool infer_positions(weft_infer *infer)
{
    const weft_shape *position = &infer->in[2].shape, *value = &infer->in[1].shape;
    char name[128], text[128];
    if (!weft_infer_dtype(infer, 2, WEFT_I32)) return false;
    if (position->rank == 0 ||
        (position->rank == 1 && value->rank > 0 && position->dim[0] == value->dim[0]))
        return true;
    return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                           "%s must be a scalar, or have one position for each row, got %s",
                           weft_infer_input(infer, 2, name, sizeof name),
                           weft_shape_text(*position, text, sizeof text));
}

static bool infer_cache_write(weft_infer *infer)
{
    const weft_shape *state = &infer->in[0].shape, *value = &infer->in[1].shape;
    char a[128], b[128];
    if (!weft_infer_min_rank(infer, 0, 2) || !weft_infer_same_dtype(infer, 0, 1) ||
        !infer_positions(infer))
        return false;
    bool fits = state->rank == value->rank && value->dim[0] <= state->dim[0] &&
                value->dim[1] <= state->dim[1];
    for (int d = 2; fits && d < state->rank; d++) fits = state->dim[d] == value->dim[d];
    if (!fits)
        return weft_infer_fail(infer, WEFT_BAD_SHAPE,
                               "the value must have at most the rows and positions of the state, "
                               "and its other dimensions: a state %s, a value %s",
                               weft_shape_text(*state, a, sizeof a),
                               weft_shape_text(*value, b, sizeof b));
    infer->out[0] = infer->in[0];
    return true;
}

static bool infer_cache_reorder(weft_infer *infer)
{
    const weft_shape *parents = &infer->in[1].shape;
    char text[128];
    if (!weft_infer_min_rank(infer, 0, 2) || !weft_infer_dtype(infer, 1, WEFT_I32) ||
        !infer_scalar_index(infer, 2))
        return false;
    if (parents->rank != 1 || parents->dim[0] > infer->in[0].shape.dim[0])
        return weft_infer_fail(
            infer, WEFT_BAD_SHAPE,
            "parents must be one for each of the first rows, at most %lld, got %s",
            (long long)infer->in[0].shape.dim[0], weft_shape_text(*parents, text, sizeof text));
    infer->out[0] = infer->in[0];
    return true;
}

static int64_t tiles_cache_write(const weft_call *call)
{
    return ceil_div(call->in[1].shape.dim[0], rows_of_tile(&call->in[1]));
}

static int64_t tiles_cache_reorder(const weft_call *call)
{
    return ceil_div(call->in[0].shape.dim[1], positions_per_tile(&call->in[0]));
}

static size_t workspace_cache_reorder(const weft_call *call)
{
    const weft_tensor *state = &call->in[0];
    const int64_t block = positions_per_tile(state), max_len = state->shape.dim[1];
    return (size_t)(call->in[1].shape.dim[0] * position_elements(state) *
                    (block < max_len ? block : max_len)) *
           weft_dtype_bytes(state->dtype);
}

static void cost_cache_write(const weft_call *call, weft_cost *cost)
{
    cost->flops = 0;
    cost->bytes = 2.0 * (double)weft_tensor_bytes(call->in[1].dtype, call->in[1].shape);
}

/* The most that it can move: the length is not known before the run. */
static void cost_cache_reorder(const weft_call *call, weft_cost *cost)
{
    const weft_tensor *state = &call->in[0];
    cost->flops = 0;
    cost->bytes = 2.0 * (double)(call->in[1].shape.dim[0] * state->shape.dim[1]) *
                  (double)position_elements(state) * (double)weft_dtype_bytes(state->dtype);
}

static void source_cache_write(weft_source *s)
{
    const weft_tensor *state = &s->out[0], *value = &s->in[1];
    const weft_source_arg args[] = {
        WEFT_ARG_OUT(0),
        WEFT_ARG_IN(1),
        WEFT_ARG_IN(2),
        WEFT_ARG_INT(s->in[2].shape.rank > 0),
        WEFT_ARG_INT(value->shape.dim[0]),
        WEFT_ARG_INT(value->shape.dim[1]),
        WEFT_ARG_INT(state->shape.dim[1]),
        WEFT_ARG_INT(position_elements(state) * (int64_t)weft_dtype_bytes(state->dtype))};
    weft_source_try(s, "cache_write", args, sizeof args / sizeof *args);
}

static void source_cache_reorder(weft_source *s)
{
    const weft_tensor *state = &s->out[0];
    const weft_source_arg args[] = {
        WEFT_ARG_OUT(0),
        WEFT_ARG_IN(1),
        WEFT_ARG_IN(2),
        WEFT_ARG_INT(state->shape.dim[0]),
        WEFT_ARG_INT(s->in[1].shape.dim[0]),
        WEFT_ARG_INT(state->shape.dim[1]),
        WEFT_ARG_INT(position_elements(state) * (int64_t)weft_dtype_bytes(state->dtype))};
    weft_source_try(s, "cache_reorder", args, sizeof args / sizeof *args);
}

#define EVERY_DTYPE(kernel)                                                                        \
    {                                                                                              \
        {                                                                                          \
            [WEFT_F32] = kernel, [WEFT_F64] = kernel, [WEFT_I32] = kernel, [WEFT_BOOL] = kernel,   \
            [WEFT_BF16] = kernel, [WEFT_U8] = kernel                                               \
        }                                                                                          \
    }
static const weft_sample samples_cache_write[] = {
    {NULL,
     3,
     {UNIT_FLOATS({4, {3, 5, 2, 3}}), UNIT_FLOATS({4, {3, 1, 2, 3}}), INDICES(5, {0, {0}})}},
    {NULL, 3, {UNIT_FLOATS({3, {4, 6, 3}}), UNIT_FLOATS({3, {2, 3, 3}}), INDICES(4, {0, {0}})}},
    {NULL, 3, {INDICES(9, {2, {2, 4}}), INDICES(9, {2, {2, 2}}), INDICES(3, {0, {0}})}},
};
static const weft_sample samples_cache_reorder[] = {
    {NULL, 3, {UNIT_FLOATS({4, {4, 5, 2, 3}}), INDICES(4, {1, {4}}), INDICES(6, {0, {0}})}},
    {NULL, 3, {UNIT_FLOATS({3, {5, 300, 40}}), INDICES(5, {1, {3}}), INDICES(301, {0, {0}})}},
    {NULL, 3, {INDICES(9, {2, {3, 4}}), INDICES(3, {1, {3}}), INDICES(5, {0, {0}})}},
};

extern const weft_op weft_op_cache_write, weft_op_cache_reorder;
const weft_op weft_op_cache_write = {
    .name = "cache_write",
    .doc = "state[i, position + j, ...] = value[i, j, ...]; the rest of the state stays. "
           "position[i] instead, if there is one for each row.",
    .inputs = "state value position",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .infer = infer_cache_write,
    .kernel = EVERY_DTYPE(kernel_write),
    .takes = WEFT_TAKES_DENSE,
    .tiles = tiles_cache_write,
    .cost = cost_cache_write,
    .updates = 1,
    .can_fail = true,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_cache_write,
    .samples = samples_cache_write,
    .n_samples = sizeof samples_cache_write / sizeof *samples_cache_write,
};
const weft_op weft_op_cache_reorder = {
    .name = "cache_reorder",
    .doc = "state[i, j, ...] = old state[parents[i], j, ...] for j < length; the rest stays.",
    .inputs = "state parents length",
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .infer = infer_cache_reorder,
    .kernel = EVERY_DTYPE(kernel_reorder),
    .takes = WEFT_TAKES_DENSE,
    .tiles = tiles_cache_reorder,
    .workspace = workspace_cache_reorder,
    .cost = cost_cache_reorder,
    .updates = 1,
    .can_fail = true,
    .gradient = WEFT_GRADIENT_NONE,
    .source = source_cache_reorder,
    .samples = samples_cache_reorder,
    .n_samples = sizeof samples_cache_reorder / sizeof *samples_cache_reorder,
};

weft_value weft_cache_write(weft_graph *graph, weft_value state, weft_value value,
                            weft_value position)
{
    return weft_apply(graph, &weft_op_cache_write, NULL, (weft_value[]){state, value, position}, 3,
                      NULL);
}

weft_value weft_cache_reorder(weft_graph *graph, weft_value state, weft_value parents,
                              weft_value length)
{
    return weft_apply(graph, &weft_op_cache_reorder, NULL, (weft_value[]){state, parents, length},
                      3, NULL);
}
