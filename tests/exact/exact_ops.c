/* What is drawn for each op: its attribute and the shapes of its inputs. See exact_case.h.
 * Attribute structs are declared again as the ops' files declare them. */
#include "exact_case.h"

#include <math.h>
#include <string.h>

/* Most cases are small; some have many tiles. */
static int64_t elements(exact_case *c)
{
    return exact_one_of(c, 10) ? 150000 : 6000;
}

static void set_attr(exact_case *c, const void *attr, size_t bytes)
{
    memcpy(c->attr.bytes, attr, bytes);
}
#define SET_ATTR(c, attr) set_attr(c, &(attr), sizeof(attr))

static weft_shape dims(int rank, const int64_t *dim)
{
    weft_shape s = {rank, {0}};
    memcpy(s.dim, dim, (size_t)rank * sizeof *dim);
    return s;
}
#define DIMS(rank, ...) dims(rank, (int64_t[]){__VA_ARGS__})

/* ---- Elementwise ---- */

static void draw_unary(exact_case *c)
{
    const double a = exact_number(c, -1, 1), both[2] = {a, a + exact_number(c, 0, 1)};
    if (c->op->attr_size) set_attr(c, both, c->op->attr_size);
    exact_input(c, exact_shape(c, (int)exact_between(c, 0, 4), elements(c)));
}

static void draw_grid(exact_case *c)
{
    const double low = (double)exact_between(c, -8, 0),
                 grid[3] = {exact_number(c, 0.05, 1), low, low + (double)exact_between(c, 0, 15)};
    SET_ATTR(c, grid);
    exact_input(c, exact_shape(c, (int)exact_between(c, 0, 4), elements(c)));
}

static void draw_cast(exact_case *c)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_F64, WEFT_I32, WEFT_BOOL};
    SET_ATTR(c, dtypes[exact_between(c, 0, 3)]);
    exact_input(c, exact_shape(c, (int)exact_between(c, 0, 4), elements(c)));
}

/* Integers of all bits are floats of all kinds. */
static void draw_bitcast(exact_case *c)
{
    const weft_shape shape = exact_shape(c, (int)exact_between(c, 0, 4), elements(c));
    const weft_dtype to = c->dtype == WEFT_F32 ? WEFT_I32 : WEFT_F32;
    SET_ATTR(c, to);
    if (to == WEFT_I32)
        exact_input(c, shape);
    else
        exact_numbers(c, WEFT_I32, shape, INT32_MIN, INT32_MAX);
}

/* A shape that broadcasts to `shape`. */
static weft_shape part_of(exact_case *c, weft_shape shape)
{
    const int lost = exact_one_of(c, 3) ? (int)exact_between(c, 0, shape.rank) : 0;
    weft_shape s = {shape.rank - lost, {0}};
    for (int d = 0; d < s.rank; d++) s.dim[d] = exact_one_of(c, 5) ? 1 : shape.dim[d + lost];
    return s;
}

static void draw_binary(exact_case *c)
{
    const bool ordered = !strncmp(c->op->name, "less", 4) || !strncmp(c->op->name, "greater", 7);
    if (ordered && c->dtype == WEFT_BOOL) c->dtype = WEFT_I32;
    const weft_shape shape = exact_shape(c, (int)exact_between(c, 0, 4), elements(c));
    const bool whole = exact_one_of(c, 2);
    exact_input(c, whole ? shape : part_of(c, shape));
    exact_input(c, whole ? part_of(c, shape) : shape);
}

static void draw_add_n(exact_case *c)
{
    const weft_shape shape = exact_shape(c, (int)exact_between(c, 0, 3), 3000);
    const int64_t n = exact_one_of(c, 3) ? exact_between(c, 1, 79) : exact_between(c, 1, 6);
    for (int64_t i = 0; i < n; i++) exact_input(c, shape);
}

static void draw_where(exact_case *c)
{
    const weft_shape shape = exact_shape(c, (int)exact_between(c, 0, 4), elements(c));
    const bool fill = !strcmp(c->op->name, "masked_fill");
    const bool real = c->dtype == WEFT_F32 || c->dtype == WEFT_F64;
    const double number = real ? exact_number(c, -2, 2) : 1;
    if (fill) SET_ATTR(c, number);
    if (fill) exact_input(c, shape);
    exact_numbers(c, WEFT_BOOL, part_of(c, shape), 0, 1);
    for (int k = 0; k < 2 && !fill; k++) exact_input(c, k ? shape : part_of(c, shape));
}

const exact_op exact_elementwise_ops[] = {
#define UNARY(name)  {#name, draw_unary},
#define BINARY(name) {#name, draw_binary},
    UNARY(neg) UNARY(abs) UNARY(sign) UNARY(floor) UNARY(ceil) UNARY(round) UNARY(atan) UNARY(exp)
        UNARY(log) UNARY(expm1) UNARY(log1p) UNARY(sqrt) UNARY(rsqrt) UNARY(square)
            UNARY(reciprocal) UNARY(sin) UNARY(cos) UNARY(tanh) UNARY(sigmoid) UNARY(relu)
                UNARY(leaky_relu) UNARY(gelu) UNARY(gelu_tanh) UNARY(silu) UNARY(softplus)
                    UNARY(erf) UNARY(clamp) BINARY(add) BINARY(sub) BINARY(mul) BINARY(div)
                        BINARY(pow) BINARY(maximum) BINARY(minimum) BINARY(relu_grad) BINARY(equal)
                            BINARY(not_equal) BINARY(less) BINARY(less_equal) BINARY(greater)
                                BINARY(greater_equal) BINARY(logical_and) BINARY(logical_or)
                                    UNARY(logical_not){"add_n", draw_add_n},
    {"where", draw_where},
    {"masked_fill", draw_where},
    {"fake_quantize", draw_grid},
    {"cast", draw_cast},
    {"bitcast", draw_bitcast},
    {NULL, NULL},
};

/* ---- Reductions ---- */

typedef struct reduce_attr {
    int32_t count, axis[WEFT_MAX_RANK];
    bool keepdims;
    int32_t correction;
} reduce_attr;

static void draw_reduction(exact_case *c)
{
    weft_shape shape = exact_shape(c, (int)exact_between(c, 1, 4), elements(c));
    if (exact_one_of(c, 100)) /* all pieces that there may be */
        shape = WEFT_SHAPE(exact_between(c, 1100, 1200), exact_between(c, 1000, 1100));
    reduce_attr attr;
    memset(&attr, 0, sizeof attr);
    for (int d = 0; d < shape.rank; d++)
        if (exact_one_of(c, 2)) attr.axis[attr.count++] = d;
    attr.keepdims = exact_one_of(c, 2);
    attr.correction = !strcmp(c->op->name, "variance") && exact_one_of(c, 2);
    SET_ATTR(c, attr);
    exact_input(c, shape);
}

const exact_op exact_reduction_ops[] = {
    {"sum", draw_reduction},       {"mean", draw_reduction},
    {"prod", draw_reduction},      {"max", draw_reduction},
    {"min", draw_reduction},       {"variance", draw_reduction},
    {"logsumexp", draw_reduction}, {NULL, NULL},
};

/* ---- Along one axis ---- */

typedef struct scan_attr {
    int32_t axis;
    bool keepdims, reverse;
} scan_attr;

static void draw_softmax(exact_case *c)
{
    const weft_shape shape = exact_shape(c, (int)exact_between(c, 1, 4), elements(c));
    const int32_t back = exact_one_of(c, 2) ? 0 : (int32_t)exact_between(c, 0, shape.rank - 1);
    SET_ATTR(c, back);
    for (int k = 0; k < c->op->max_in; k++) exact_input(c, shape);
}

static void draw_scan(exact_case *c)
{
    weft_shape shape = exact_shape(c, (int)exact_between(c, 1, 4), elements(c));
    scan_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = (int32_t)exact_between(c, 0, shape.rank - 1);
    attr.keepdims = exact_one_of(c, 2);
    attr.reverse = exact_one_of(c, 2);
    if (shape.dim[attr.axis] == 0) shape.dim[attr.axis] = 1;
    SET_ATTR(c, attr);
    exact_input(c, shape);
}

static void draw_prod_grad(exact_case *c)
{
    const weft_shape shape = exact_shape(c, 2, elements(c));
    exact_input(c, shape);
    exact_input(c, DIMS(1, shape.dim[0]));
}

typedef struct top_k_attr {
    int64_t k;
    int32_t axis;
    bool largest;
} top_k_attr;

static void draw_top_k(exact_case *c)
{
    const weft_shape shape = exact_shape(c, (int)exact_between(c, 1, 3), elements(c));
    top_k_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = (int32_t)exact_between(c, 0, shape.rank - 1);
    const int64_t n = shape.dim[attr.axis];
    attr.k = exact_one_of(c, 3) ? n : exact_between(c, 0, exact_one_of(c, 2) ? n / 64 : n);
    attr.largest = exact_one_of(c, 2);
    SET_ATTR(c, attr);
    exact_input(c, shape);
}

static void draw_suppress(exact_case *c)
{
    const double threshold = exact_one_of(c, 3) ? 0 : 0.1 * (double)exact_between(c, 0, 9);
    SET_ATTR(c, threshold);
    exact_input(c, DIMS(3, exact_between(c, 1, 3), exact_between(c, 0, 60), 4));
}

const exact_op exact_row_ops[] = {
    {"top_k", draw_top_k},
    {"suppress", draw_suppress},
    {"softmax", draw_softmax},
    {"log_softmax", draw_softmax},
    {"softmax_grad", draw_softmax},
    {"log_softmax_grad", draw_softmax},
    {"cumsum", draw_scan},
    {"argmax", draw_scan},
    {"argmin", draw_scan},
    {"prod_grad", draw_prod_grad},
    {NULL, NULL},
};

/* ---- Matrix products ---- */

static int64_t chosen(exact_case *c, const int64_t *list, int64_t n)
{
    const int64_t size = list[exact_between(c, 0, n - 1)];
    return (size_t)size < c->size ? size : (int64_t)c->size;
}

/* Small ones, long ones, batches, and sizes around those at which elements become dot products;
 * rarely a number of rows that leaves a tile of few, and products that pack an operand once for all
 * tiles. */
static void draw_matmul(exact_case *c)
{
    static const int64_t rows[] = {1, 2, 5, 47, 48, 49}, columns[] = {1, 2, 15, 16, 17},
                         depths[] = {47, 48, 49, 127, 128, 129};
    int64_t m = exact_dim(c, 300), n = exact_dim(c, 300), k = exact_dim(c, 300);
    if (exact_one_of(c, 4)) k = exact_between(c, 700, 1700);
    if (exact_one_of(c, 6)) m = exact_between(c, 1, 1000);
    while (m * n * k > 2000000) *(n > 1 ? &n : &k) /= 2;
    if (exact_one_of(c, 3)) {
        m = chosen(c, rows, 6);
        n = chosen(c, columns, 5);
        k = chosen(c, depths, 6);
    }
    if (exact_one_of(c, 40)) {
        m = exact_between(c, 4033, 4050);
        n = exact_between(c, 2, 4);
        k = exact_between(c, 128, 131);
    } else if (exact_one_of(c, 30)) {
        m = exact_one_of(c, 3) ? exact_between(c, 100, 310) : exact_between(c, 4033, 4050);
        k = exact_between(c, 128, 131);
        n = 25000000 / (m * k) + 1; /* 5e7 flops */
    }
    const int64_t dim[] = {exact_between(c, 1, 3), exact_between(c, 1, 3), m, k};
    const int rank = m * n * k > 300000 ? 2 : (int)exact_between(c, 2, 4);
    const int other = exact_one_of(c, 2) ? 2 : rank;
    exact_input(c, dims(rank, dim + 4 - rank));
    const int64_t second[] = {exact_one_of(c, 3) ? 1 : dim[0], exact_one_of(c, 3) ? 1 : dim[1], k,
                              n};
    exact_input(c, dims(other, second + 4 - other));
}

static void draw_matmul_tiles(exact_case *c)
{
    c->dtype = WEFT_F32;
    draw_matmul(c);
}

const exact_op exact_matmul_ops[] = {
    {"matmul", draw_matmul}, {"matmul_tiles", draw_matmul_tiles}, {NULL, NULL}};
