/* The ops that the graph itself knows: its leaves, the group, and the copy that layouts need. */
#include "ir/ir.h"

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
    return attr->init.kind != WEFT_INIT_CONSTANT ||
           weft_infer_scalar(infer, "init", attr->init.a, attr->dtype);
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

/* Elements of a tile; where a matrix is turned, columns of a tile at most, and rows at least. */
#define COPY_TILE    65536
#define COPY_COLUMNS 1024
#define COPY_ROWS    (COPY_TILE / COPY_COLUMNS)

/* A copy as loops over the elements of y, outermost first: dimensions of one element are left out,
 * those that lie behind each other in x are joined, and y is dense. Where x has its neighbours in
 * another dimension than y, in `across`, the two are a matrix to be turned; -1: rows of y are runs.
 */
typedef struct copy {
    int rank, across;
    int64_t dim[WEFT_MAX_RANK + 1], stride[WEFT_MAX_RANK + 1]; /* of x */
    int64_t numel, rows, columns; /* elements; of a tile, along the last dimension and `across` */
} copy;

static copy copy_of(const weft_tensor *x)
{
    copy c = {.across = -1, .numel = weft_shape_numel(x->shape)};
    for (int d = 0; d < x->shape.rank; d++) {
        const int64_t dim = x->shape.dim[d], stride = x->stride[d];
        if (dim == 1) continue;
        const bool joins = c.rank && c.stride[c.rank - 1] == dim * stride;
        if (!joins) c.dim[c.rank++] = 1;
        c.dim[c.rank - 1] *= dim;
        c.stride[c.rank - 1] = stride;
    }
    if (c.rank == 0) c.dim[c.rank++] = 1;
    for (int d = 0; d < c.rank - 1 && c.stride[c.rank - 1] != 1; d++)
        if (c.stride[d] == 1) c.across = d;
    if (c.across < 0 || c.numel == 0) return c;
    c.columns = c.dim[c.across] < COPY_COLUMNS ? c.dim[c.across] : COPY_COLUMNS;
    c.rows = COPY_TILE / c.columns < COPY_ROWS ? COPY_ROWS : COPY_TILE / c.columns;
    if (c.rows > c.dim[c.rank - 1]) c.rows = c.dim[c.rank - 1];
    return c;
}

static int64_t stretches(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}

static bool infer_contiguous(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return true;
}

static int64_t tiles_contiguous(const weft_call *call)
{
    const copy c = copy_of(&call->in[0]);
    if (c.across < 0 || c.numel == 0) return stretches(c.numel, COPY_TILE);
    const int64_t rows = c.dim[c.rank - 1], columns = c.dim[c.across];
    return c.numel / rows / columns * stretches(rows, c.rows) * stretches(columns, c.columns);
}

/* A block whose columns of x each fill a line of y, and whose rows are a line of x: read and
 * written whole, lines need not last in the cache. Four by four f32 are turned in registers. */
#define COPY_BLOCK 16

typedef uint32_t four __attribute__((vector_size(16), aligned(4), may_alias));

static inline void turn_four(const uint32_t *x, int64_t xs, uint32_t *y, int64_t ys)
{
    const four a = *(const four *)x, b = *(const four *)(x + xs);
    const four c = *(const four *)(x + 2 * xs), d = *(const four *)(x + 3 * xs);
    const four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const four cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
    const four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
    *(four *)y = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
    *(four *)(y + ys) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
    *(four *)(y + 2 * ys) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
    *(four *)(y + 3 * ys) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

#define TURN_ELEMENTS(rows, columns)                                                               \
    for (int64_t b = 0; b < (columns); b++)                                                        \
        for (int64_t a = 0; a < (rows); a++) y[b * ys + a] = x[a * xs + b];

static inline __attribute__((always_inline)) void turn_block_uint32_t(const uint32_t *x0,
                                                                      int64_t xs, uint32_t *y0,
                                                                      int64_t ys, int64_t rows,
                                                                      int64_t columns)
{
    for (int64_t j = 0; j < columns; j += 4)
        for (int64_t i = 0; i < rows; i += 4) {
            const uint32_t *x = x0 + i * xs + j;
            uint32_t *y = y0 + j * ys + i;
            if (i + 4 <= rows && j + 4 <= columns) {
                turn_four(x, xs, y, ys);
                continue;
            }
            TURN_ELEMENTS(rows - i < 4 ? rows - i : 4, columns - j < 4 ? columns - j : 4)
        }
}

#define TURN_BLOCK(type)                                                                           \
    static inline __attribute__((always_inline)) void turn_block_##type(                           \
        const type *x, int64_t xs, type *y, int64_t ys, int64_t rows, int64_t columns)             \
    {                                                                                              \
        TURN_ELEMENTS(rows, columns)                                                               \
    }
TURN_BLOCK(uint8_t)
TURN_BLOCK(uint64_t)

/* turn: y[j][i] = x[i][j] of a matrix of x. run: elements [begin, end) of y, row by row. */
#define COPIES(type)                                                                               \
    static void turn_##type(const type *x, int64_t xs, type *y, int64_t ys, int64_t rows,          \
                            int64_t columns)                                                       \
    {                                                                                              \
        for (int64_t i = 0; i < rows; i += COPY_BLOCK)                                             \
            for (int64_t j = 0; j < columns; j += COPY_BLOCK) {                                    \
                const int64_t height = rows - i < COPY_BLOCK ? rows - i : COPY_BLOCK;              \
                const int64_t width = columns - j < COPY_BLOCK ? columns - j : COPY_BLOCK;         \
                const type *from = x + i * xs + j;                                                 \
                type *to = y + j * ys + i;                                                         \
                if (height == COPY_BLOCK && width == COPY_BLOCK)                                   \
                    turn_block_##type(from, xs, to, ys, COPY_BLOCK, COPY_BLOCK);                   \
                else                                                                               \
                    turn_block_##type(from, xs, to, ys, height, width);                            \
            }                                                                                      \
    }                                                                                              \
    static void run_##type(const copy *c, const type *x, type *y, int64_t begin, int64_t end)      \
    {                                                                                              \
        const int last = c->rank - 1;                                                              \
        const int64_t row = c->dim[last], step = c->stride[last];                                  \
        int64_t index[WEFT_MAX_RANK + 1], rest = begin;                                            \
        for (int d = last; d >= 0; d--) {                                                          \
            index[d] = d ? rest % c->dim[d] : rest;                                                \
            rest /= c->dim[d];                                                                     \
            x += index[d] * c->stride[d];                                                          \
        }                                                                                          \
        for (int64_t n; begin < end; begin += n) {                                                 \
            n = row - index[last] < end - begin ? row - index[last] : end - begin;                 \
            if (step == 1)                                                                         \
                memcpy(y + begin, x, (size_t)n * sizeof *y);                                       \
            else                                                                                   \
                for (int64_t i = 0; i < n; i++) y[begin + i] = x[i * step];                        \
            x -= index[last] * step;                                                               \
            index[last] = 0;                                                                       \
            for (int d = last - 1; d >= 0; d--) {                                                  \
                x += c->stride[d];                                                                 \
                if (++index[d] < c->dim[d]) break;                                                 \
                x -= c->dim[d] * c->stride[d];                                                     \
                index[d] = 0;                                                                      \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void copy_##type(const copy *c, const type *x, type *y, int64_t tile)                   \
    {                                                                                              \
        if (c->across < 0) {                                                                       \
            const int64_t begin = tile * COPY_TILE, left = c->numel - begin;                       \
            run_##type(c, x, y, begin, begin + (left < COPY_TILE ? left : COPY_TILE));             \
            return;                                                                                \
        }                                                                                          \
        const turn t = turn_of(c, tile);                                                           \
        turn_##type(x + t.from, c->stride[c->rank - 1], y + t.to, t.ys, t.rows, t.columns);        \
    }

/* The matrix of x that a tile turns: where it begins in x and in y, where a row of y ends. */
typedef struct turn {
    int64_t from, to, ys, rows, columns;
} turn;

static turn turn_of(const copy *c, int64_t tile)
{
    const int last = c->rank - 1;
    const int64_t row_tiles = stretches(c->dim[last], c->rows);
    const int64_t column_tiles = stretches(c->dim[c->across], c->columns);
    const int64_t row = tile % row_tiles * c->rows;
    const int64_t column = tile / row_tiles % column_tiles * c->columns;
    int64_t rest = tile / row_tiles / column_tiles;
    turn t = {.from = row * c->stride[last] + column, .to = row};
    t.rows = c->dim[last] - row < c->rows ? c->dim[last] - row : c->rows;
    t.columns = c->dim[c->across] - column;
    if (t.columns > c->columns) t.columns = c->columns;
    for (int64_t d = last - 1, size = c->dim[last]; d >= 0; size *= c->dim[d--]) {
        if (d == c->across) {
            t.ys = size;
            t.to += column * size;
            continue;
        }
        const int64_t index = rest % c->dim[d];
        rest /= c->dim[d];
        t.from += index * c->stride[d];
        t.to += index * size;
    }
    return t;
}

COPIES(uint8_t)
COPIES(uint32_t)
COPIES(uint64_t)

static void kernel_contiguous(const weft_call *call, int64_t tile)
{
    const copy c = copy_of(&call->in[0]);
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    switch (weft_dtype_bytes(call->in[0].dtype)) {
    case 1:
        copy_uint8_t(&c, x, y, tile);
        break;
    case 4:
        copy_uint32_t(&c, x, y, tile);
        break;
    default:
        copy_uint64_t(&c, x, y, tile);
        break;
    }
}

static void cost_contiguous(const weft_call *call, weft_cost *cost)
{
    const weft_tensor *y = &call->out[0];
    cost->flops = 0;
    cost->bytes = 2.0 * (double)weft_tensor_bytes(y->dtype, y->shape);
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
    .tiles = tiles_contiguous,
    .cost = cost_contiguous,
    .vjp = vjp_contiguous,
    .samples = samples_contiguous,
    .n_samples = sizeof samples_contiguous / sizeof *samples_contiguous,
};
