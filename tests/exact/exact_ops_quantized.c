/* What is drawn for quantised matrices, and rows in fewer bits: see exact_ops.c. */
#include "exact_case.h"

#include <string.h>

typedef struct quantized_attr {
    int32_t bits, group;
    bool whole;
} quantized_attr;

/* Returns k, the elements of a row of the matrix. */
static int64_t draw_groups(exact_case *c, quantized_attr *attr)
{
    memset(attr, 0, sizeof *attr);
    attr->bits = exact_one_of(c, 2) ? 8 : 4;
    attr->group = 32 * (int32_t)exact_between(c, 1, exact_one_of(c, 2) ? 1 : 5);
    return attr->group * exact_between(c, exact_one_of(c, 30) ? 0 : 1, exact_one_of(c, 4) ? 30 : 6);
}

/* Scales, zero points or minima of groups. */
static weft_shape groups_of(int64_t rows, int64_t k, const quantized_attr *attr)
{
    return WEFT_SHAPE(rows, k / attr->group);
}

static void draw_zeros(exact_case *c, int64_t rows, int64_t k, const quantized_attr *attr)
{
    if (exact_one_of(c, 2))
        exact_dense(c, groups_of(rows, k, attr));
    else
        exact_numbers(c, WEFT_U8, groups_of(rows, k, attr), 0, attr->bits == 8 ? 255 : 15);
}

static void draw_matmul_quantized(exact_case *c)
{
    quantized_attr attr;
    int64_t k = draw_groups(c, &attr);
    attr.whole = exact_one_of(c, 3);
    const bool one_scale = attr.whole && exact_one_of(c, 2); /* as weft_matmul_whole has it */
    if (one_scale) {
        attr.bits = 8;
        if (k == 0) k = 32;
        attr.group = (int32_t)k;
    }
    memcpy(c->attr.bytes, &attr, sizeof attr);
    const int64_t n = exact_between(c, 0, exact_one_of(c, 3) ? 300 : 40);
    weft_shape x = exact_shape(c, (int)exact_between(c, 0, 2), exact_one_of(c, 8) ? 300 : 30);
    x.dim[x.rank++] = k;
    if (attr.whole) c->kind = exact_one_of(c, 2) ? 5 : 2;
    exact_dense(c, x);
    exact_numbers(c, WEFT_U8, WEFT_SHAPE(n, k * attr.bits / 8), 0, 255);
    if (one_scale)
        exact_numbers(c, c->dtype, groups_of(n, k, &attr), 1, 1);
    else if (exact_one_of(c, 4))
        exact_dense(c, groups_of(n, k, &attr));
    else
        exact_positive(c, groups_of(n, k, &attr), 0, 0.02);
    draw_zeros(c, n, k, &attr);
}

static void draw_matmul_quantized_grad(exact_case *c)
{
    quantized_attr attr;
    const int64_t k = draw_groups(c, &attr);
    memcpy(c->attr.bytes, &attr, 2 * sizeof(int32_t));
    const int64_t n = exact_between(c, 0, exact_one_of(c, 3) ? 1000 : 40);
    weft_shape dy = exact_shape(c, (int)exact_between(c, 0, 2), exact_one_of(c, 8) ? 300 : 30);
    dy.dim[dy.rank++] = n;
    exact_dense(c, dy);
    exact_numbers(c, WEFT_U8, WEFT_SHAPE(n, k * attr.bits / 8), 0, 255);
    exact_dense(c, groups_of(n, k, &attr));
    draw_zeros(c, n, k, &attr);
}

static void draw_embedding_quantized(exact_case *c)
{
    quantized_attr attr;
    const int64_t k = draw_groups(c, &attr), rows = exact_between(c, 1, 40);
    memcpy(c->attr.bytes, &attr, sizeof attr);
    exact_numbers(c, WEFT_U8, WEFT_SHAPE(rows, k * attr.bits / 8), 0, 255);
    exact_dense(c, groups_of(rows, k, &attr));
    draw_zeros(c, rows, k, &attr);
    exact_numbers(c, WEFT_I32, exact_shape(c, (int)exact_between(c, 0, 2), 200), 0, rows - 1);
}

static void draw_narrow_rows(exact_case *c)
{
    const weft_dtype dtype = exact_one_of(c, 2) ? WEFT_BF16 : WEFT_U8;
    memcpy(c->attr.bytes, &dtype, sizeof dtype);
    exact_dense(c, exact_shape(c, (int)exact_between(c, 1, 3), exact_one_of(c, 8) ? 70000 : 3000));
}

/* Of what narrow_rows makes. */
static void draw_widen_rows(exact_case *c)
{
    weft_tensor rows[EXACT_OUTPUTS];
    draw_narrow_rows(c);
    const bool good = exact_forward(c, "narrow_rows", rows);
    memcpy(c->attr.bytes, &c->dtype, sizeof c->dtype);
    c->n_in = 0;
    if (good) exact_append(c, rows[0]);
}

/* ---- Bytes ---- */

typedef struct bytes_attr {
    double scale;
    int32_t zero;
} bytes_attr;

static void draw_bytes(exact_case *c)
{
    bytes_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.scale = exact_number(c, 0.001, 0.5);
    attr.zero = (int32_t)exact_between(c, 0, 255);
    memcpy(c->attr.bytes, &attr, sizeof attr);
    const weft_shape shape = exact_shape(c, (int)exact_between(c, 0, 4), 6000);
    if (!strcmp(c->op->name, "quantize_bytes"))
        exact_input(c, shape);
    else
        exact_numbers(c, WEFT_U8, shape, 0, 255);
}

typedef struct bytes_sum {
    double scale[3];
    int32_t zero[3], low, high;
} bytes_sum;

static void draw_add_bytes(exact_case *c)
{
    bytes_sum sum;
    memset(&sum, 0, sizeof sum);
    for (int i = 0; i < 3; i++) {
        sum.scale[i] = exact_number(c, 0.01, 0.1);
        sum.zero[i] = (int32_t)exact_between(c, 0, 255);
    }
    sum.low = (int32_t)exact_between(c, 0, 100);
    sum.high = (int32_t)exact_between(c, 100, 255);
    memcpy(c->attr.bytes, &sum, sizeof sum);
    const weft_shape shape = exact_shape(c, (int)exact_between(c, 0, 4), 6000);
    exact_input(c, shape);
    exact_input(c, shape);
}

/* ---- Panels ---- */

static void draw_panels(exact_case *c)
{
    exact_input(c, exact_shape(c, 2, 6000));
}

static void draw_matmul_panels(exact_case *c)
{
    const int64_t n = exact_dim(c, 300);
    int64_t m = exact_dim(c, 300), k = exact_dim(c, 1000);
    while (m * n * k > 2000000) *(m > 1 ? &m : &k) /= 2;
    memcpy(c->attr.bytes, &n, sizeof n);
    exact_dense(c, WEFT_SHAPE(m, k));
    exact_dense(c, WEFT_SHAPE((n + 31) / 32, k, 32));
}

const exact_op exact_packed_ops[] = {
    {"matmul_quantized", draw_matmul_quantized},
    {"matmul_quantized_grad", draw_matmul_quantized_grad},
    {"embedding_quantized", draw_embedding_quantized},
    {"narrow_rows", draw_narrow_rows},
    {"widen_rows", draw_widen_rows},
    {"quantize_bytes", draw_bytes},
    {"dequantize_bytes", draw_bytes},
    {"add_bytes", draw_add_bytes},
    {"panels", draw_panels},
    {"matmul_panels", draw_matmul_panels},
    {NULL, NULL},
};
