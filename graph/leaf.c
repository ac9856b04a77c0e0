/* The ops that the graph itself knows: its leaves, the group, and the copy that layouts need. */
#include "internal.h"

#include <string.h>

static bool infer_input(weft_infer *infer)
{
    const weft_input_attr *attr = infer->attr;
    infer->out[0] = (weft_type){attr->dtype, attr->shape};
    return true;
}

static bool infer_state(weft_infer *infer)
{
    const weft_state_attr *attr = infer->attr;
    infer->out[0] = (weft_type){attr->dtype, attr->shape};
    return true;
}

static bool infer_constant(weft_infer *infer)
{
    const weft_constant_attr *attr = infer->attr;
    infer->out[0] = (weft_type){attr->dtype, attr->shape};
    return true;
}

static bool infer_group(weft_infer *infer)
{
    infer->out[0] = (weft_type){WEFT_BOOL, {1, {0}}};
    return true;
}

static const weft_attr_field input_attrs[] = {
    {"dtype", WEFT_ATTR_DTYPE, offsetof(weft_input_attr, dtype)},
    {"shape", WEFT_ATTR_SHAPE, offsetof(weft_input_attr, shape)},
    {NULL, WEFT_ATTR_INT, 0},
};
static const weft_attr_field state_attrs[] = {
    {"dtype", WEFT_ATTR_DTYPE, offsetof(weft_state_attr, dtype)},
    {"shape", WEFT_ATTR_SHAPE, offsetof(weft_state_attr, shape)},
    {"trainable", WEFT_ATTR_BOOL, offsetof(weft_state_attr, trainable)},
    {NULL, WEFT_ATTR_INT, 0},
};
static const weft_attr_field constant_attrs[] = {
    {"dtype", WEFT_ATTR_DTYPE, offsetof(weft_constant_attr, dtype)},
    {"shape", WEFT_ATTR_SHAPE, offsetof(weft_constant_attr, shape)},
    {NULL, WEFT_ATTR_INT, 0},
};

const weft_op weft_op_input = {
    .name = "input",
    .doc = "A tensor that the program feeds before a run.",
    .n_out = 1,
    .attr_size = sizeof(weft_input_attr),
    .attrs = input_attrs,
    .infer = infer_input,
    .gradient = WEFT_GRADIENT_ZERO,
};

const weft_op weft_op_state = {
    .name = "state",
    .doc = "A tensor of the parameter store: a trainable parameter or other state.",
    .n_out = 1,
    .attr_size = sizeof(weft_state_attr),
    .attrs = state_attrs,
    .infer = infer_state,
    .gradient = WEFT_GRADIENT_ZERO,
};

const weft_op weft_op_constant = {
    .name = "constant",
    .doc = "A tensor whose contents belong to the graph.",
    .n_out = 1,
    .attr_size = sizeof(weft_constant_attr),
    .attrs = constant_attrs,
    .infer = infer_constant,
    .gradient = WEFT_GRADIENT_ZERO,
};

const weft_op weft_op_group = {
    .name = "group",
    .doc = "An empty value that is there once all its inputs are: one target for many.",
    .max_in = WEFT_VARIADIC,
    .n_out = 1,
    .infer = infer_group,
    .takes = WEFT_TAKES_ANY,
    .gradient = WEFT_GRADIENT_NONE,
};

/* ---- contiguous ---- */

#define COPY_TILE 65536

static bool infer_contiguous(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return true;
}

static int64_t parts_contiguous(const weft_call *call)
{
    return (weft_shape_numel(call->out[0].shape) + COPY_TILE - 1) / COPY_TILE;
}

/* Columns of a transposed copy that are read together, so that a line of memory is used whole. */
#define COPY_COLUMNS 16

/* Copies elements [begin, end) of row-major order, run by run along the last dimension; whole rows
 * of a transposed matrix several at a time. */
#define COPY_RUNS(type)                                                                            \
    static void copy_rows_##type(const type *x, int64_t step, type *y, int64_t row, int64_t rows)  \
    {                                                                                              \
        for (int64_t c = 0; c < row; c += COPY_COLUMNS)                                            \
            for (int64_t r = 0; r < rows; r++)                                                     \
                for (int64_t i = c; i < row && i < c + COPY_COLUMNS; i++)                          \
                    y[r * row + i] = x[i * step + r];                                              \
    }                                                                                              \
    static void copy_##type(const weft_tensor *x, type *y, int64_t begin, int64_t end)             \
    {                                                                                              \
        int last = x->shape.rank - 1;                                                              \
        int64_t row = last < 0 ? 1 : x->shape.dim[last], step = last < 0 ? 0 : x->stride[last];    \
        bool transposed = last > 0 && step != 1 && x->stride[last - 1] == 1;                       \
        while (begin < end) {                                                                      \
            int64_t column = begin % row, rest = begin / row, from = column * step, rows = 0;      \
            if (transposed && column == 0) {                                                       \
                rows = x->shape.dim[last - 1] - rest % x->shape.dim[last - 1];                     \
                if (rows > (end - begin) / row) rows = (end - begin) / row;                        \
            }                                                                                      \
            for (int d = last - 1; d >= 0; d--) {                                                  \
                from += rest % x->shape.dim[d] * x->stride[d];                                     \
                rest /= x->shape.dim[d];                                                           \
            }                                                                                      \
            int64_t n = row - column < end - begin ? row - column : end - begin;                   \
            const type *source = (const type *)x->data + from;                                     \
            if (rows > 1) {                                                                        \
                n = rows * row;                                                                    \
                copy_rows_##type(source, step, y + begin, row, rows);                              \
            } else if (step == 1) {                                                                \
                memcpy(y + begin, source, (size_t)n * sizeof *y);                                  \
            } else {                                                                               \
                for (int64_t i = 0; i < n; i++) y[begin + i] = source[i * step];                   \
            }                                                                                      \
            begin += n;                                                                            \
        }                                                                                          \
    }
COPY_RUNS(uint8_t)
COPY_RUNS(uint32_t)
COPY_RUNS(uint64_t)

static void kernel_contiguous(const weft_call *call, int64_t part)
{
    const weft_tensor *x = &call->in[0];
    int64_t numel = weft_shape_numel(x->shape), begin = part * COPY_TILE;
    int64_t end = begin + COPY_TILE < numel ? begin + COPY_TILE : numel;
    switch (weft_dtype_bytes(x->dtype)) {
    case 1:
        copy_uint8_t(x, call->out[0].data, begin, end);
        break;
    case 4:
        copy_uint32_t(x, call->out[0].data, begin, end);
        break;
    default:
        copy_uint64_t(x, call->out[0].data, begin, end);
        break;
    }
}

static void cost_contiguous(const weft_call *call, weft_cost *cost)
{
    const weft_tensor *y = &call->out[0];
    cost->flops = 0;
    cost->bytes = 2.0 * (double)weft_shape_numel(y->shape) * (double)weft_dtype_bytes(y->dtype);
}

static void vjp_contiguous(weft_vjp *vjp)
{
    vjp->grad_in[0] = vjp->grad_out[0];
}

static const weft_sample samples_contiguous[] = {
    {NULL, 1, {{WEFT_FLOAT, {2, {3, 5}}, -1, 1, false}}},
    {NULL, 1, {{WEFT_I32, {2, {4, 2}}, 0, 9, false}}},
    {NULL, 1, {{WEFT_FLOAT, {2, {0, 3}}, -1, 1, false}}},
};

const weft_op weft_op_contiguous = {
    .name = "contiguous",
    .doc = "A dense row-major copy: y = x. Inserted where an op cannot take a view.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer_contiguous,
    .kernel = {{kernel_contiguous, kernel_contiguous, kernel_contiguous, kernel_contiguous}},
    .takes = WEFT_TAKES_ANY,
    .parts = parts_contiguous,
    .cost = cost_contiguous,
    .vjp = vjp_contiguous,
    .samples = samples_contiguous,
    .n_samples = sizeof samples_contiguous / sizeof *samples_contiguous,
};
