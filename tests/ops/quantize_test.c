/* Quantised matrices: the op's kernels against its definition, to the bit on every instruction set,
 * for any threads and rows; quantising one matrix; errors. */
#include "tests.h"

#include <weft/quantize.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- The product ---- */

typedef struct product {
    int64_t m, n, k;
    int bits, group;
    float *x, *scale, *y;
    uint8_t *q, *zero;
} product;

static product make_product(int64_t m, int64_t n, int64_t k, int bits, int group)
{
    product p = {.m = m, .n = n, .k = k, .bits = bits, .group = group};
    const size_t groups = (size_t)(n * k / group), bytes = (size_t)(n * k * bits / 8);
    uint64_t random = (uint64_t)(m + 3 * n + 7 * k + bits);
    p.x = malloc((size_t)(m * k) * sizeof *p.x + 1);
    p.y = malloc((size_t)(m * n) * sizeof *p.y + 1);
    p.scale = malloc(groups * sizeof *p.scale + 1);
    p.q = malloc(bytes + 1);
    p.zero = malloc(groups + 1);
    for (int64_t i = 0; i < m * k; i++) p.x[i] = (float)test_uniform(&random, -2, 2);
    for (size_t i = 0; i < groups; i++) p.scale[i] = (float)test_uniform(&random, 0.001, 0.02);
    for (size_t i = 0; i < groups; i++)
        p.zero[i] = (uint8_t)(test_random(&random) % (bits == 8 ? 256 : 16));
    for (size_t i = 0; i < bytes; i++) p.q[i] = (uint8_t)test_random(&random);
    return p;
}

static void free_product(product *p)
{
    free(p->x);
    free(p->y);
    free(p->scale);
    free(p->q);
    free(p->zero);
}

/* Computes rows [first, first + rows) of y, which begin at `y`. */
static void run_rows(const product *p, int64_t first, int64_t rows, int threads, float *y)
{
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    const weft_shape groups = WEFT_SHAPE(p->n, p->k / p->group);
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(rows, p->k));
    const weft_value q = weft_input(g, "q", WEFT_U8, WEFT_SHAPE(p->n, p->k * p->bits / 8));
    const weft_value scale = weft_input(g, "scale", WEFT_F32, groups);
    const weft_value zero = weft_input(g, "zero", WEFT_U8, groups);
    const weft_value out = weft_matmul_quantized(g, x, q, scale, zero, p->bits, p->group);
    weft_plan *plan = weft_plan_new(g, &out, 1, &(weft_plan_options){.verify = true}, &error);
    if (!plan) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    weft_session *s = weft_session_new(
        plan, NULL, &(weft_session_options){.threads = threads, .poison = true}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    const size_t n_groups = (size_t)(p->n * p->k / p->group);
    weft_session_feed(s, x, p->x + first * p->k, (size_t)(rows * p->k) * sizeof *p->x, NULL);
    weft_session_feed(s, q, p->q, (size_t)(p->n * p->k * p->bits / 8), NULL);
    weft_session_feed(s, scale, p->scale, n_groups * sizeof *p->scale, NULL);
    weft_session_feed(s, zero, p->zero, n_groups, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, out, y, (size_t)(rows * p->n) * sizeof *y, NULL),
                    WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* Element [i, j], from the definition: sums of whole numbers of each block of 32. *size becomes the
 * sum of the blocks' sizes, by which rounding is bounded. */
static double element(const product *p, int64_t i, int64_t j, double *size)
{
    double y = 0;
    *size = 0;
    for (int64_t b = 0; b < p->k; b += 32) {
        const float *x = p->x + i * p->k + b;
        const int64_t at = j * p->k + b, g = at / p->group;
        float max = 0;
        for (int c = 0; c < 32; c++) max = fmaxf(max, fabsf(x[c]));
        const float by = 127 / max, scale = max > 0 ? max / 127 : 0;
        int32_t sum = 0;
        for (int c = 0; c < 32; c++) {
            const int64_t e = at + c;
            const int q = p->bits == 8 ? p->q[e] : p->q[e / 2] >> e % 2 * 4 & 15;
            sum += (int32_t)(max > 0 ? nearbyintf(x[c] * by) : 0) * (q - p->zero[g]);
        }
        y += (double)scale * (double)p->scale[g] * sum;
        *size += fabs((double)scale * (double)p->scale[g] * sum);
    }
    return y;
}

/* A block rounds some times in f32, and so does the sum of up to 128 blocks: 160 * 2^-24 = 1e-5. */
static void expect_definition(const product *p)
{
    double worst = 0;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double size;
            const double y = element(p, i, j, &size);
            const double off = fabs((double)p->y[i * p->n + j] - y) / fmax(size, 1e-30);
            worst = off <= worst ? worst : off;
        }
    if (!(worst < 1e-5))
        printf("\n    %lld %lld %lld: %g\n", (long long)p->m, (long long)p->n, (long long)p->k,
               worst);
    CU_ASSERT_TRUE(worst < 1e-5);
}

static bool same(const product *p, const float *y, int64_t first, int64_t rows)
{
    return !memcmp(p->y + first * p->n, y, (size_t)(rows * p->n) * sizeof *y);
}

static const struct {
    int64_t m, n, k;
    int group;
} sizes[] = {
    {1, 1, 32, 32},     {1, 7, 64, 32},      {2, 33, 96, 96},    {3, 5, 512, 32},
    {5, 40, 544, 32},   {8, 17, 1024, 64},   {9, 300, 480, 160}, {15, 16, 1056, 352},
    {17, 9, 96, 32},    {1, 500, 2048, 128}, {300, 70, 160, 32}, {4, 3, 4096, 4096},
    {37, 35, 544, 544}, {64, 16, 768, 64},
};
#define SIZES (sizeof sizes / sizeof *sizes)

static void test_definition(void)
{
    for (size_t i = 0; i < 2 * SIZES; i++) {
        product p = make_product(sizes[i / 2].m, sizes[i / 2].n, sizes[i / 2].k, i % 2 ? 4 : 8,
                                 sizes[i / 2].group);
        run_rows(&p, 0, p.m, 1, p.y);
        expect_definition(&p);
        free_product(&p);
    }
}

/* The largest sums: a product of pairs of bytes in 16 bits would saturate. */
static void test_extremes(void)
{
    for (int bits = 4; bits <= 8; bits += 4)
        for (int sign = -1; sign <= 1; sign += 2) {
            product p = make_product(3, 20, 608, bits, 32);
            for (int64_t i = 0; i < p.m * p.k; i++) p.x[i] = (float)sign;
            memset(p.q, 255, (size_t)(p.n * p.k * bits / 8));
            memset(p.zero, 0, (size_t)(p.n * p.k / 32));
            run_rows(&p, 0, p.m, 1, p.y);
            expect_definition(&p);
            free_product(&p);
        }
}

/* Other threads, instruction sets, and rows alone: the same bits. */
static void test_bits(void)
{
    static const char *const isas[] = {"base", "v3", "v4"};
    const char *old = getenv("WEFT_ISA");
    char *kept = old ? strdup(old) : NULL;
    for (size_t i = 0; i < 2 * SIZES; i++) {
        product p = make_product(sizes[i / 2].m, sizes[i / 2].n, sizes[i / 2].k, i % 2 ? 4 : 8,
                                 sizes[i / 2].group);
        float *y = malloc((size_t)(p.m * p.n) * sizeof *y);
        run_rows(&p, 0, p.m, 1, p.y);
        for (int threads = 2; threads <= 4; threads++) {
            run_rows(&p, 0, p.m, threads, y);
            CU_ASSERT_TRUE(same(&p, y, 0, p.m));
        }
        for (int isa = 0; isa < 3; isa++) {
            setenv("WEFT_ISA", isas[isa], 1);
            run_rows(&p, 0, p.m, 1, y);
            CU_ASSERT_TRUE(same(&p, y, 0, p.m));
        }
        unsetenv("WEFT_ISA");
        if (kept) setenv("WEFT_ISA", kept, 1);
        for (int64_t row = 0; row < p.m && row < 20; row += 3) {
            run_rows(&p, row, 1, 1, y);
            CU_ASSERT_TRUE(same(&p, y, row, 1));
        }
        free(y);
        free_product(&p);
    }
    free(kept);
}

/* A row with an infinity or a NaN is NaN, its neighbours are not; zeros are zeros; the smallest
 * numbers do not become NaN. */
static void test_special(void)
{
    product p = make_product(5, 6, 96, 8, 32);
    p.x[0 * p.k + 40] = INFINITY;
    p.x[1 * p.k + 95] = NAN;
    for (int64_t i = 0; i < p.k; i++) p.x[2 * p.k + i] = 0;
    for (int64_t i = 0; i < p.k; i++) p.x[3 * p.k + i] = i % 2 ? 1e-45f : -1e-44f;
    run_rows(&p, 0, p.m, 1, p.y);
    for (int64_t j = 0; j < p.n; j++) {
        CU_ASSERT_TRUE(isnan(p.y[0 * p.n + j]) && isnan(p.y[1 * p.n + j]));
        CU_ASSERT_TRUE(p.y[2 * p.n + j] == 0);
        CU_ASSERT_TRUE(fabsf(p.y[3 * p.n + j]) < 1e-38f);
        CU_ASSERT_TRUE(isfinite(p.y[4 * p.n + j]));
    }
    free_product(&p);
}

/* ---- A matrix ---- */

/* A number with about the normal distribution. */
static float normal(uint64_t *random)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += test_uniform(random, -0.5, 0.5);
    return (float)sum;
}

/* Products of quantised normal weights are near those of the weights. The errors seen are 0.0072,
 * 0.0079, 0.076 and 0.097 of the norm. */
static void test_weights(void)
{
    static const struct {
        int bits, group;
        double limit;
    } cases[] = {{8, 32, 0.008}, {8, 256, 0.012}, {4, 32, 0.09}, {4, 128, 0.12}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        product p = make_product(4, 48, 512, cases[c].bits, cases[c].group);
        float *w = malloc((size_t)(p.n * p.k) * sizeof *w);
        uint64_t random = 9;
        double off = 0, all = 0;
        for (int64_t i = 0; i < p.n * p.k; i++) w[i] = normal(&random);
        CU_ASSERT_EQUAL(
            weft_quantize(
                w, &(weft_quantized_matrix){p.n, p.k, p.bits, p.group, p.q, p.scale, p.zero}, NULL),
            WEFT_OK);
        run_rows(&p, 0, p.m, 1, p.y);
        for (int64_t i = 0; i < p.m * p.n; i++) {
            double y = 0;
            for (int64_t e = 0; e < p.k; e++)
                y += (double)p.x[i / p.n * p.k + e] * (double)w[i % p.n * p.k + e];
            off += ((double)p.y[i] - y) * ((double)p.y[i] - y);
            all += y * y;
        }
        const double error = sqrt(off / all);
        if (!(error < cases[c].limit)) printf("\n    %d bits: error %g\n", p.bits, error);
        CU_ASSERT_TRUE(error < cases[c].limit);
        free(w);
        free_product(&p);
    }
}

/* What a step can represent comes back as it was, and an error is at most half a step. */
static void test_matrix(void)
{
    float w[64], back[64], scale[2];
    uint8_t q[64], zero[2];
    uint64_t random = 4;
    for (int i = 0; i < 64; i++) w[i] = (float)(i % 16 - 5) * 0.25f;
    CU_ASSERT_EQUAL(weft_quantize(w, &(weft_quantized_matrix){2, 32, 4, 32, q, scale, zero}, NULL),
                    WEFT_OK);
    CU_ASSERT_EQUAL(zero[0], 5);
    CU_ASSERT_EQUAL(
        weft_dequantize(&(weft_quantized_matrix){2, 32, 4, 32, q, scale, zero}, back, NULL),
        WEFT_OK);
    for (int i = 0; i < 64; i++) CU_ASSERT_DOUBLE_EQUAL(back[i], w[i], ROUNDING_F32);
    for (int i = 0; i < 64; i++) w[i] = (float)test_uniform(&random, -1, 3);
    CU_ASSERT_EQUAL(weft_quantize(w, &(weft_quantized_matrix){1, 64, 8, 32, q, scale, zero}, NULL),
                    WEFT_OK);
    CU_ASSERT_EQUAL(zero[0], 128);
    CU_ASSERT_EQUAL(
        weft_dequantize(&(weft_quantized_matrix){1, 64, 8, 32, q, scale, zero}, back, NULL),
        WEFT_OK);
    /* Half a step, and the roundings of f32 of at most 255 steps: 255 * 4 * 2^-24 = 6e-5. */
    for (int i = 0; i < 64; i++)
        CU_ASSERT_DOUBLE_EQUAL(back[i], w[i], 0.5001 * (double)scale[i / 32]);
    weft_error error = {0};
    test_fail_allocation(1);
    CU_ASSERT_EQUAL(
        weft_quantize(w, &(weft_quantized_matrix){1, 64, 8, 32, q, scale, zero}, &error),
        WEFT_NO_MEMORY);
    test_fail_allocation(0);
    memset(w, 0, sizeof w);
    w[40] = 1e-45f;
    for (int bits = 4; bits <= 8; bits += 4) {
        CU_ASSERT_EQUAL(
            weft_quantize(w, &(weft_quantized_matrix){1, 64, bits, 32, q, scale, zero}, NULL),
            WEFT_OK);
        CU_ASSERT_EQUAL(
            weft_dequantize(&(weft_quantized_matrix){1, 64, bits, 32, q, scale, zero}, back, NULL),
            WEFT_OK);
        for (int i = 0; i < 64; i++) CU_ASSERT_TRUE(back[i] >= 0 && back[i] <= 1e-44f);
    }
}

static void test_matrix_errors(void)
{
    float w[64] = {0}, scale[2];
    uint8_t q[64], zero[2];
    const struct {
        int64_t rows, columns;
        int bits, group;
        const float *w;
        weft_status status;
    } cases[] = {
        {1, 64, 8, 32, w, WEFT_OK},
        {0, 64, 8, 32, NULL, WEFT_OK},
        {1, 64, 5, 32, w, WEFT_BAD_ARGUMENT},
        {1, 64, 8, 33, w, WEFT_BAD_ARGUMENT},
        {1, 64, 8, 0, w, WEFT_BAD_ARGUMENT},
        {1, 48, 4, 32, w, WEFT_BAD_ARGUMENT},
        {-1, 64, 4, 32, w, WEFT_BAD_ARGUMENT},
        {INT64_MAX, 64, 4, 32, w, WEFT_BAD_ARGUMENT},
        {1, 64, 8, 32, NULL, WEFT_BAD_ARGUMENT},
    };
    weft_error error = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CU_ASSERT_EQUAL(
            weft_quantize(cases[i].w,
                          &(weft_quantized_matrix){cases[i].rows, cases[i].columns, cases[i].bits,
                                                   cases[i].group, q, scale, zero},
                          NULL),
            cases[i].status);
    CU_ASSERT_EQUAL(
        weft_dequantize(&(weft_quantized_matrix){1, 64, 8, 32, NULL, scale, zero}, w, NULL),
        WEFT_BAD_ARGUMENT);
    w[33] = INFINITY;
    CU_ASSERT_EQUAL(
        weft_quantize(w, &(weft_quantized_matrix){2, 32, 8, 32, q, scale, zero}, &error),
        WEFT_NOT_FINITE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "[1, 1]"));
}

/* Rows of a table, and the error of an index out of range. */
static void test_lookup(void)
{
    enum { ROWS = 9, FEW = 96, MANY = WEFT_TILE + 32, N = 5 };
    static const int32_t at[N] = {8, 0, 3, 3, 7}, wrong[N] = {0, 1, 9, 2, 3};
    static float w[ROWS * MANY], back[ROWS * MANY], y[N * MANY], scale[ROWS * MANY / 32];
    static uint8_t q[ROWS * MANY], zero[ROWS * MANY / 32];
    for (int k = 0; k < 4; k++) {
        const int bits = k % 2 ? 8 : 4, features = k < 2 ? FEW : MANY, n_groups = features / 32;
        uint64_t random = 6;
        weft_error error = {0};
        for (int i = 0; i < ROWS * features; i++) w[i] = (float)test_uniform(&random, -1, 2);
        CU_ASSERT_EQUAL(
            weft_quantize(w, &(weft_quantized_matrix){ROWS, features, bits, 32, q, scale, zero},
                          NULL),
            WEFT_OK);
        weft_dequantize(&(weft_quantized_matrix){ROWS, features, bits, 32, q, scale, zero}, back,
                        NULL);
        weft_graph *g = weft_graph_new();
        const weft_shape groups = WEFT_SHAPE(ROWS, n_groups);
        const weft_value table = weft_input(g, "t", WEFT_U8, WEFT_SHAPE(ROWS, features * bits / 8));
        const weft_value scales = weft_input(g, "s", WEFT_F32, groups);
        const weft_value zeros = weft_input(g, "z", WEFT_U8, groups);
        const weft_value index = weft_input(g, "i", WEFT_I32, WEFT_SHAPE(N));
        const weft_value out = weft_embedding_quantized(g, table, scales, zeros, index, bits, 32);
        weft_plan *plan = weft_plan_new(g, &out, 1, NULL, &error);
        weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &error) : NULL;
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        weft_session_feed(s, table, q, (size_t)(ROWS * features * bits / 8), NULL);
        weft_session_feed(s, scales, scale, (size_t)(ROWS * n_groups) * sizeof *scale, NULL);
        weft_session_feed(s, zeros, zero, (size_t)(ROWS * n_groups), NULL);
        weft_session_feed(s, index, at, sizeof at, NULL);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(s, out, y, (size_t)(N * features) * sizeof *y, NULL),
                        WEFT_OK);
        for (int i = 0; i < N; i++)
            CU_ASSERT_EQUAL(
                memcmp(y + i * features, back + at[i] * features, (size_t)features * sizeof *y), 0);
        weft_session_feed(s, index, wrong, sizeof wrong, NULL);
        CU_ASSERT_NOT_EQUAL(weft_session_run(s, &error), WEFT_OK);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "9"));
        CU_ASSERT_FALSE(
            weft_is_value(weft_embedding_quantized(g, table, zeros, zeros, index, bits, 32)));
        weft_session_free(s);
        weft_plan_free(plan);
        weft_graph_free(g);
    }
}

static void check_whole(int m, int n, int k)
{
    double *x = malloc((size_t)(m * k) * sizeof *x), *got = malloc((size_t)(m * n) * sizeof *got);
    uint8_t *q = malloc((size_t)(n * k)), *zero = malloc((size_t)n);
    uint64_t random = 4;
    for (int i = 0; i < m * k; i++) x[i] = (double)(test_random(&random) % 300) - 150;
    for (int i = 0; i < n * k; i++) q[i] = (uint8_t)test_random(&random);
    for (int i = 0; i < n; i++) zero[i] = (uint8_t)(60 * i);
    weft_graph *g = weft_graph_new();
    weft_error error = {0};
    weft_value in = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(m, k)), y[2];
    const weft_value weight = weft_constant(g, WEFT_U8, WEFT_SHAPE(n, k), q);
    const weft_value zeros = weft_constant(g, WEFT_U8, WEFT_SHAPE(n, 1), zero);
    y[0] = weft_matmul_whole(g, in, weight, zeros);
    y[1] = weft_cast(g, weft_matmul_whole(g, weft_cast(g, in, WEFT_F32), weight, zeros), WEFT_F64);
    weft_plan *plan = weft_plan_new(g, y, 2, NULL, &error);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &error) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_feed(s, in, x, (size_t)(m * k) * sizeof *x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (int t = 0; t < 2; t++) {
        int wrong = 0;
        CU_ASSERT_EQUAL(weft_session_fetch(s, y[t], got, (size_t)(m * n) * sizeof *got, NULL),
                        WEFT_OK);
        for (int i = 0; i < m * n; i++) {
            double sum = 0;
            for (int c = 0; c < k; c++)
                sum += fmax(-128, fmin(127, x[i / n * k + c])) * (q[i % n * k + c] - zero[i % n]);
            wrong += got[i] != sum;
        }
        CU_ASSERT_EQUAL(wrong, 0);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    free(x);
    free(got);
    free(q);
    free(zero);
}

/* Whole numbers, in f32 and f64: exact, also where x is not between -128 and 127, with few rows and
 * with enough rows that weights are packed. */
static void test_whole(void)
{
    check_whole(3, 5, 96);
    check_whole(43, 37, 288);
    check_whole(32, 16, 1024);
    weft_graph *g = weft_graph_new();
    const weft_value weight = weft_input(g, "q", WEFT_U8, WEFT_SHAPE(5, 40));
    CU_ASSERT_FALSE(
        weft_is_value(weft_matmul_whole(g, weft_input(g, "x", WEFT_F64, WEFT_SHAPE(3, 40)), weight,
                                        weft_input(g, "zero", WEFT_U8, WEFT_SHAPE(5, 1)))));
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
    weft_graph_free(g);
}

/* ---- The gradient with regard to x ---- */

/* Of sum(y dy) by the op, and by a product with the widened matrix, in the order of a chain. */
static void check_gradient(int64_t m, int64_t n, int64_t k, int bits, bool minima, int threads)
{
    weft_error error = {0};
    product p = make_product(m, n, k, bits, 32);
    uint64_t random = 5;
    for (int64_t i = 0; i < m * n; i++) p.y[i] = (float)test_uniform(&random, -1, 1);
    float *wide = malloc((size_t)(n * k) * sizeof *wide), *got = malloc((size_t)(m * k) * 4 + 1);
    for (int64_t i = 0; i < n * k; i++) {
        const int q = bits == 8 ? p.q[i] : p.q[i / 2] >> i % 2 * 4 & 15;
        const float scaled = p.scale[i / 32] * (float)q;
        wide[i] = minima ? scaled + p.scale[i / 32] : p.scale[i / 32] * (float)(q - p.zero[i / 32]);
    }
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(m, k));
    const weft_value scale = weft_constant(g, WEFT_F32, WEFT_SHAPE(n, k / 32), p.scale);
    const weft_value zero = weft_constant(g, WEFT_U8, WEFT_SHAPE(n, k / 32), p.zero);
    const weft_value q = weft_constant(g, WEFT_U8, WEFT_SHAPE(n, k * bits / 8), p.q);
    const weft_value y = weft_matmul_quantized(g, x, q, scale, minima ? scale : zero, bits, 32);
    const weft_value dy = weft_constant(g, WEFT_F32, WEFT_SHAPE(m, n), p.y);
    weft_value dx;
    weft_grad_of(g, &y, &dy, 1, &x, 1, &dx);
    weft_plan *plan = weft_plan_new(g, &dx, 1, NULL, &error);
    weft_session *s =
        plan ? weft_session_new(plan, NULL, &(weft_session_options){.threads = threads}, &error)
             : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, dx, got, (size_t)(m * k) * sizeof *got, NULL), WEFT_OK);
    size_t wrong = 0;
    for (int64_t i = 0; i < m * k; i++) {
        float sum = 0;
        for (int64_t first = 0; first < n; first += 128) {
            float chain = 0;
            for (int64_t j = first; j < n && j < first + 128; j++)
                chain = fmaf(p.y[i / k * n + j], wide[j * k + i % k], chain);
            sum = first ? chain + sum : chain;
        }
        wrong += memcmp(&sum, &got[i], sizeof sum) != 0;
    }
    CU_ASSERT_EQUAL(wrong, 0);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    free(wide);
    free(got);
    free_product(&p);
}

static void test_gradient(void)
{
    check_gradient(3, 5, 64, 8, false, 1);
    check_gradient(90, 200, 96, 4, false, 2);
    check_gradient(1, 900, 64, 8, true, 2);
    check_gradient(520, 40, 160, 4, true, 2);
}

/* There is no gradient of scales, nor of products of whole numbers. */
static void test_no_gradient(void)
{
    for (int whole = 0; whole < 2; whole++) {
        weft_graph *g = weft_graph_new();
        const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 32));
        const weft_value scale = weft_input(g, "scale", WEFT_F32, WEFT_SHAPE(3, 1));
        const weft_value zero = weft_input(g, "zero", WEFT_U8, WEFT_SHAPE(3, 1));
        const weft_value q = weft_input(g, "q", WEFT_U8, WEFT_SHAPE(3, 32));
        const weft_value y = whole ? weft_matmul_whole(g, x, q, zero)
                                   : weft_matmul_quantized(g, x, q, scale, zero, 8, 32);
        weft_value gradient;
        weft_grad(g, weft_sum(g, y, WEFT_ALL_AXES, false), whole ? &x : &scale, 1, &gradient);
        CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_NO_GRADIENT);
        weft_graph_free(g);
    }
}

/* ---- Errors of the op ---- */

static weft_status op_status(weft_dtype dtype, int64_t k, int64_t width, int64_t groups, int bits,
                             int group)
{
    weft_graph *g = weft_graph_new();
    const weft_value y =
        weft_matmul_quantized(g, weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, k)),
                              weft_input(g, "q", dtype, WEFT_SHAPE(3, width)),
                              weft_input(g, "scale", WEFT_F32, WEFT_SHAPE(3, groups)),
                              weft_input(g, "zero", WEFT_U8, WEFT_SHAPE(3, groups)), bits, group);
    const weft_status status = weft_graph_status(g);
    CU_ASSERT_EQUAL(weft_is_value(y), status == WEFT_OK);
    weft_graph_free(g);
    return status;
}

static weft_status grid_status(double scale, double low, double high)
{
    weft_graph *g = weft_graph_new();
    weft_fake_quantize(g, weft_input(g, "x", WEFT_F32, WEFT_SCALAR), scale, low, high);
    const weft_status status = weft_graph_status(g);
    weft_graph_free(g);
    return status;
}

static void test_op_errors(void)
{
    CU_ASSERT_EQUAL(grid_status(0.5, -2, -2), WEFT_OK);
    CU_ASSERT_EQUAL(grid_status(0, -2, 3), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(grid_status(1e-60, -2, 3), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(grid_status((double)NAN, -2, 3), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(grid_status(0.5, 3, -2), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(grid_status(0.5, -2, 2.5), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(op_status(WEFT_U8, 64, 64, 2, 8, 32), WEFT_OK);
    CU_ASSERT_EQUAL(op_status(WEFT_U8, 64, 32, 1, 4, 64), WEFT_OK);
    CU_ASSERT_EQUAL(op_status(WEFT_U8, 64, 64, 2, 7, 32), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(op_status(WEFT_U8, 64, 64, 4, 8, 16), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(op_status(WEFT_U8, 80, 80, 2, 8, 32), WEFT_BAD_SHAPE);
    CU_ASSERT_EQUAL(op_status(WEFT_U8, 64, 64, 2, 4, 32), WEFT_BAD_SHAPE);
    CU_ASSERT_EQUAL(op_status(WEFT_U8, 64, 64, 3, 8, 32), WEFT_BAD_SHAPE);
    CU_ASSERT_EQUAL(op_status(WEFT_I32, 64, 64, 2, 8, 32), WEFT_BAD_DTYPE);
}

void quantize_tests(void)
{
    CU_pSuite suite = CU_add_suite("quantize", NULL, NULL);
    CU_add_test(suite, "products equal their definition", test_definition);
    CU_add_test(suite, "the largest sums", test_extremes);
    CU_add_test(suite, "same bits for threads, instruction sets and rows", test_bits);
    CU_add_test(suite, "infinities, NaN, zeros and the smallest numbers", test_special);
    CU_add_test(suite, "near the products of the weights", test_weights);
    CU_add_test(suite, "a matrix", test_matrix);
    CU_add_test(suite, "errors of a matrix", test_matrix_errors);
    CU_add_test(suite, "rows of a table", test_lookup);
    CU_add_test(suite, "whole numbers", test_whole);
    CU_add_test(suite, "the gradient of a product equals its definition", test_gradient);
    CU_add_test(suite, "what has no gradient", test_no_gradient);
    CU_add_test(suite, "errors of the op", test_op_errors);
}
