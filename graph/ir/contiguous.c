/* The op `contiguous`: a dense copy of a tensor of any layout. It copies runs where x and y share
 * their innermost dimension, and transposes in blocks where they do not. O(elements). */
#include "ir/ir.h"

#include "base/half.h"
#include "ir/convert.h"
#include "ir/isa.h"

#include <weft/export.h>
#include <weft/source.h>

#include <string.h>

/* Elements of a tile. A tile that transposes has at most COPY_COLUMNS columns and, so that there
 * are COPY_TILE elements, at least COPY_ROWS rows, if the matrix has as many. */
#define COPY_TILE    65536
#define COPY_COLUMNS 1024
#define COPY_ROWS    (COPY_TILE / COPY_COLUMNS)

/* A copy as nested loops over the elements of y, which is dense, outermost loop first. Dimensions
 * of size 1 are left out, and dimensions that are contiguous in x are merged. If the elements of x
 * are adjacent along a dimension other than the last, `across`, these two are a matrix to
 * transpose. */
typedef struct copy {
    int rank, across;                                          /* across: -1 if rows are copied */
    int64_t dim[WEFT_MAX_RANK + 1], stride[WEFT_MAX_RANK + 1]; /* of x */
    int64_t numel;
    int64_t rows, columns; /* of a tile that transposes: along the last dimension, and `across` */
    convert convert;       /* where x and y are stored differently */
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

static int64_t ceil_div(int64_t n, int64_t each)
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
    if (c.across < 0 || c.numel == 0) return ceil_div(c.numel, COPY_TILE);
    const int64_t rows = c.dim[c.rank - 1], columns = c.dim[c.across];
    return c.numel / rows / columns * ceil_div(rows, c.rows) * ceil_div(columns, c.columns);
}

/* A block of 16 x 16 f32 reads whole cache lines of x and writes whole lines of y, so lines need
 * not stay in the cache between blocks. Inside, 4 x 4 elements are transposed in registers. */
#define COPY_BLOCK 16

typedef uint32_t four __attribute__((vector_size(16), aligned(4), may_alias));

static inline void transpose_four(const uint32_t *x, int64_t xs, uint32_t *y, int64_t ys)
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

/* y[b * ys + a] = x[a * xs + b]; declares a and b, so that it serves elements of any type. */
#define TRANSPOSE_ELEMENTS(rows, columns)                                                          \
    for (int64_t b = 0; b < (columns); b++)                                                        \
        for (int64_t a = 0; a < (rows); a++) y[b * ys + a] = x[a * xs + b];

static inline __attribute__((always_inline)) void transpose_block_uint32_t(const uint32_t *x0,
                                                                           int64_t xs, uint32_t *y0,
                                                                           int64_t ys, int64_t rows,
                                                                           int64_t columns)
{
    for (int64_t j = 0; j < columns; j += 4)
        for (int64_t i = 0; i < rows; i += 4) {
            const uint32_t *x = x0 + i * xs + j;
            uint32_t *y = y0 + j * ys + i;
            if (i + 4 <= rows && j + 4 <= columns) {
                transpose_four(x, xs, y, ys);
                continue;
            }
            TRANSPOSE_ELEMENTS(rows - i < 4 ? rows - i : 4, columns - j < 4 ? columns - j : 4)
        }
}

#define TRANSPOSE_BLOCK(type)                                                                      \
    static inline __attribute__((always_inline)) void transpose_block_##type(                      \
        const type *x, int64_t xs, type *y, int64_t ys, int64_t rows, int64_t columns)             \
    {                                                                                              \
        TRANSPOSE_ELEMENTS(rows, columns)                                                          \
    }
TRANSPOSE_BLOCK(uint8_t)
TRANSPOSE_BLOCK(uint16_t)
TRANSPOSE_BLOCK(uint64_t)

/* transpose: y[j][i] = x[i][j] for a matrix of x. run: elements [begin, end) of y, row by row. */
#define TRANSPOSE(type)                                                                            \
    static void transpose_##type(const type *x, int64_t xs, type *y, int64_t ys, int64_t rows,     \
                                 int64_t columns)                                                  \
    {                                                                                              \
        for (int64_t i = 0; i < rows; i += COPY_BLOCK)                                             \
            for (int64_t j = 0; j < columns; j += COPY_BLOCK) {                                    \
                const int64_t height = rows - i < COPY_BLOCK ? rows - i : COPY_BLOCK;              \
                const int64_t width = columns - j < COPY_BLOCK ? columns - j : COPY_BLOCK;         \
                const type *from = x + i * xs + j;                                                 \
                type *to = y + j * ys + i;                                                         \
                if (height == COPY_BLOCK && width == COPY_BLOCK)                                   \
                    transpose_block_##type(from, xs, to, ys, COPY_BLOCK, COPY_BLOCK);              \
                else                                                                               \
                    transpose_block_##type(from, xs, to, ys, height, width);                       \
            }                                                                                      \
    }

/* Both, for elements of type `from` that become elements of type `to`. */
#define COPIES(name, source, target, convert)                                                      \
    static void run_##name(const copy *c, const source *x, target *y, int64_t begin, int64_t end)  \
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
                run_dense_##name(c, x, y + begin, n);                                              \
            else                                                                                   \
                for (int64_t i = 0; i < n; i++) y[begin + i] = convert(x[i * step]);               \
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
    static void copy_##name(const copy *c, const source *x, target *y, int64_t tile)               \
    {                                                                                              \
        if (c->across < 0) {                                                                       \
            const int64_t begin = tile * COPY_TILE, left = c->numel - begin;                       \
            run_##name(c, x, y, begin, begin + (left < COPY_TILE ? left : COPY_TILE));             \
            return;                                                                                \
        }                                                                                          \
        const matrix m = matrix_of(c, tile);                                                       \
        transpose_##name(x + m.from, c->stride[c->rank - 1], y + m.to, m.ys, m.rows, m.columns);   \
    }

/* The matrix that a tile transposes: its offsets in x and y, and the stride of its rows in y. */
typedef struct matrix {
    int64_t from, to, ys, rows, columns;
} matrix;

static matrix matrix_of(const copy *c, int64_t tile)
{
    const int last = c->rank - 1;
    const int64_t row_tiles = ceil_div(c->dim[last], c->rows);
    const int64_t column_tiles = ceil_div(c->dim[c->across], c->columns);
    const int64_t row = tile % row_tiles * c->rows;
    const int64_t column = tile / row_tiles % column_tiles * c->columns;
    int64_t rest = tile / row_tiles / column_tiles;
    matrix m = {.from = row * c->stride[last] + column, .to = row};
    m.rows = c->dim[last] - row < c->rows ? c->dim[last] - row : c->rows;
    m.columns = c->dim[c->across] - column;
    if (m.columns > c->columns) m.columns = c->columns;
    for (int64_t d = last - 1, size = c->dim[last]; d >= 0; size *= c->dim[d--]) {
        if (d == c->across) {
            m.ys = size;
            m.to += column * size;
            continue;
        }
        const int64_t index = rest % c->dim[d];
        rest /= c->dim[d];
        m.from += index * c->stride[d];
        m.to += index * size;
    }
    return m;
}

#define AS_IT_IS(x) (x)
#define RUN_DENSE(type)                                                                            \
    static inline void run_dense_##type(const copy *c, const type *x, type *y, int64_t n)          \
    {                                                                                              \
        (void)c;                                                                                   \
        memcpy(y, x, (size_t)n * sizeof *y);                                                       \
    }
RUN_DENSE(uint8_t)
RUN_DENSE(uint16_t)
RUN_DENSE(uint32_t)
RUN_DENSE(uint64_t)
TRANSPOSE(uint8_t)
TRANSPOSE(uint16_t)
TRANSPOSE(uint32_t)
TRANSPOSE(uint64_t)
COPIES(uint8_t, uint8_t, uint8_t, AS_IT_IS)
COPIES(uint16_t, uint16_t, uint16_t, AS_IT_IS)
COPIES(uint32_t, uint32_t, uint32_t, AS_IT_IS)
COPIES(uint64_t, uint64_t, uint64_t, AS_IT_IS)

/* Between bf16 and f32, which the planner alone asks for: see passes/precision.c. */
#define TRANSPOSE_CONVERTED(name, source, target, convert)                                         \
    static void transpose_##name(const source *x, int64_t xs, target *y, int64_t ys, int64_t rows, \
                                 int64_t columns)                                                  \
    {                                                                                              \
        for (int64_t b = 0; b < columns; b++)                                                      \
            for (int64_t a = 0; a < rows; a++) y[b * ys + a] = convert(x[a * xs + b]);             \
    }
static inline void run_dense_widened(const copy *c, const uint16_t *x, float *y, int64_t n)
{
    c->convert.widen(&(convert_block){1, n, n, 1}, x, y);
}

static inline void run_dense_rounded(const copy *c, const float *x, uint16_t *y, int64_t n)
{
    c->convert.narrow(&(convert_block){1, n, n, 1}, x, y);
}

TRANSPOSE_CONVERTED(widened, uint16_t, float, half_from_bf16)
TRANSPOSE_CONVERTED(rounded, float, uint16_t, half_to_bf16)
COPIES(widened, uint16_t, float, half_from_bf16)
COPIES(rounded, float, uint16_t, half_to_bf16)

static void kernel_contiguous(const weft_call *call, int64_t tile)
{
    copy c = copy_of(&call->in[0]);
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    if (call->in[0].dtype != call->out[0].dtype) {
        c.convert = weft__convert_for(weft__isa_best());
        if (call->in[0].dtype == WEFT_BF16)
            copy_widened(&c, x, y, tile);
        else
            copy_rounded(&c, x, y, tile);
        return;
    }
    switch (weft_dtype_bytes(call->in[0].dtype)) {
    case 1:
        copy_uint8_t(&c, x, y, tile);
        break;
    case 2:
        copy_uint16_t(&c, x, y, tile);
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
    cost->bytes = (double)weft_tensor_bytes(call->in[0].dtype, y->shape) +
                  (double)weft_tensor_bytes(y->dtype, y->shape);
}

static void source_contiguous(weft_source *s)
{
    weft_source_each(s, NULL, "copy_of", NULL, 0);
}

static void vjp_contiguous(weft_vjp *vjp)
{
    vjp->grad_in[0] = vjp->grad_out[0];
}

static void onnx_contiguous(weft_export *e)
{
    weft_export_same(e, "Identity");
}

static const weft_sample samples_contiguous[] = {
    {NULL, 1, {{WEFT_FLOAT, {2, {3, 5}}, -1, 1, false}}},
    {NULL, 1, {{WEFT_I32, {2, {4, 2}}, 0, 9, false}}},
    {NULL, 1, {{WEFT_FLOAT, {2, {0, 3}}, -1, 1, false}}},
};

static void batch_contiguous(weft_batch *b)
{
    weft_apply(b->graph, b->op, NULL, b->in, 1, b->out);
}

const weft_op weft_op_contiguous = {
    .name = "contiguous",
    .doc = "A dense row-major copy: y = x. Inserted where an op cannot take a view.",
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = infer_contiguous,
    .kernel = {{kernel_contiguous, kernel_contiguous, kernel_contiguous, kernel_contiguous,
                kernel_contiguous, kernel_contiguous}},
    .narrow_in = 1,
    .narrow_out = 1,
    .takes = WEFT_TAKES_ANY,
    .batch = batch_contiguous,
    .tiles = tiles_contiguous,
    .cost = cost_contiguous,
    .onnx = onnx_contiguous,
    .source = source_contiguous,
    .vjp = vjp_contiguous,
    .samples = samples_contiguous,
    .n_samples = sizeof samples_contiguous / sizeof *samples_contiguous,
};
