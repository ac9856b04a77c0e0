/* weft_sdpa against the same attention made of plain ops, on sizes that cross the borders of its
 * blocks; and what only the fused op promises: queries that may attend nowhere, memory, the same
 * bits at any number of threads. */
#include "tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum mask_kind { NO_MASK, PADDING, SHARED, FULL, DEAD_ROWS, BLOCKS };

typedef struct config {
    int64_t batch, heads, kv_heads, queries, keys, dim, value_dim;
    enum mask_kind mask;
    bool causal;
    double dropout;
    bool packed; /* q, k, v are slices of one tensor */
    int64_t window;
} config;

static const config configs[] = {
    {2, 2, 2, 64, 64, 16, 16, NO_MASK, false, 0, false, 0},
    {1, 2, 2, 65, 63, 16, 16, NO_MASK, false, 0, false, 0},
    {1, 1, 1, 31, 129, 64, 64, NO_MASK, false, 0, false, 0},
    {2, 4, 2, 70, 130, 17, 23, NO_MASK, false, 0, false, 0},
    {1, 6, 2, 33, 65, 8, 48, FULL, false, 0, false, 0},
    {3, 2, 2, 100, 200, 16, 16, PADDING, false, 0, false, 0},
    {2, 2, 1, 97, 130, 12, 16, SHARED, false, 0, false, 0},
    {2, 2, 2, 70, 70, 16, 16, DEAD_ROWS, false, 0, false, 0},
    {1, 2, 2, 150, 200, 16, 16, BLOCKS, false, 0, false, 0},
    {1, 2, 2, 200, 200, 64, 64, NO_MASK, true, 0, true, 0},
    {1, 2, 1, 40, 170, 16, 24, NO_MASK, true, 0, false, 0},
    {1, 2, 1, 170, 40, 16, 24, NO_MASK, true, 0, false, 0}, /* 130 queries see nothing */
    {2, 2, 2, 70, 132, 16, 16, NO_MASK, false, 0.3, false, 0},
    {1, 3, 1, 67, 131, 16, 16, NO_MASK, true, 0.5, false, 0},
    {1, 2, 2, 66, 70, 16, 8, DEAD_ROWS, true, 0.2, false, 0},
    {2, 2, 2, 64, 64, 20, 20, PADDING, false, 0.1, true, 0},
    {1, 2, 1, 40, 1300, 16, 16, NO_MASK, false, 0, false, 0}, /* chunks of keys in backward */
    {1, 1, 1, 1100, 1100, 8, 8, FULL, true, 0.1, false, 0},
    {1, 1, 1, 330, 2100, 8, 8, NO_MASK, false, 0, false, 0}, /* groups of queries */
    {1, 1, 1, 330, 2100, 8, 8, FULL, true, 0.1, false, 700},
    {1, 2, 1, 200, 200, 16, 16, NO_MASK, true, 0, false, 70},
    {1, 2, 2, 150, 230, 16, 16, FULL, true, 0.2, false, 65},
    {1, 1, 1, 170, 170, 16, 16, PADDING, false, 0, false, 3},
    {1, 1, 1, 1200, 1200, 8, 8, NO_MASK, true, 0, false, 1},
    {1, 2, 1, 170, 40, 16, 24, NO_MASK, true, 0, false, 9},
    {1, 2, 1, 1, 200, 64, 64, PADDING, false, 0, false, 0}, /* few queries */
    {2, 4, 2, 3, 131, 17, 32, FULL, true, 0, false, 90},
    {1, 2, 2, 4, 70, 16, 16, DEAD_ROWS, false, 0, false, 0},
    {1, 2, 2, 2, 2200, 24, 16, BLOCKS, true, 0, false, 0},
    {1, 2, 1, 8, 3, 16, 16, NO_MASK, true, 0, false, 0}, /* 5 see nothing */
};

enum { OUT, DQ, DK, DV, RESULTS };
typedef struct results {
    double *data[RESULTS];
    int64_t n[RESULTS];
} results;

static void free_results(results *r)
{
    for (int i = 0; i < RESULTS; i++) free(r->data[i]);
}

/* Attention of plain ops on [batch, heads, len, dim]. */
static weft_value plain_attention(weft_graph *g, const config *c, weft_value q, weft_value k,
                                  weft_value v, weft_value mask)
{
    const int64_t repeat = c->heads / c->kv_heads;
    weft_value in[3] = {q, k, v};
    for (int i = 0; i < 3; i++) {
        in[i] = weft_permute(g, in[i], WEFT_AXES(0, 2, 1, 3));
        weft_shape s = weft_shape_of(g, in[i]);
        if (i == 0) continue;
        in[i] = weft_broadcast_to(g, weft_expand_dims(g, in[i], 2),
                                  WEFT_SHAPE(s.dim[0], s.dim[1], repeat, s.dim[2], s.dim[3]));
        in[i] = weft_reshape(g, in[i], WEFT_SHAPE(s.dim[0], c->heads, s.dim[2], s.dim[3]));
    }
    weft_value s = weft_matmul(g, in[0], weft_transpose(g, in[1], -1, -2));
    s = weft_mul_scalar(g, s, 1 / sqrt((double)c->dim));
    if (weft_is_value(mask)) s = weft_masked_fill(g, s, mask, -INFINITY);
    if (c->causal) {
        weft_value seen = weft_tril_mask(g, c->queries, c->keys, c->keys - c->queries);
        s = weft_masked_fill(g, s, weft_logical_not(g, seen), -INFINITY);
    }
    if (c->window) {
        weft_value past = weft_tril_mask(g, c->queries, c->keys, c->keys - c->queries - c->window);
        s = weft_masked_fill(g, s, past, -INFINITY);
    }
    weft_value p = weft_dropout(g, weft_softmax(g, s, -1), c->dropout);
    return weft_permute(g, weft_matmul(g, p, in[2]), WEFT_AXES(0, 2, 1, 3));
}

static weft_shape mask_shape(const config *c)
{
    switch (c->mask) {
    case PADDING:
        return WEFT_SHAPE(c->batch, 1, 1, c->keys);
    case SHARED:
    case BLOCKS:
        return WEFT_SHAPE(c->queries, c->keys);
    default:
        return WEFT_SHAPE(c->batch, c->heads, c->queries, c->keys);
    }
}

/* In DEAD_ROWS every fifth query may attend nowhere. */
static bool dead_row(int64_t query)
{
    return query % 5 == 2;
}

static uint8_t *mask_data(const config *c, size_t *bytes)
{
    int64_t n = weft_shape_numel(mask_shape(c));
    uint8_t *data = malloc((size_t)n);
    uint64_t state = 5;
    for (int64_t i = 0; i < n; i++) {
        const int64_t key = i % c->keys, query = i / c->keys % c->queries, b = i / c->keys;
        switch (c->mask) {
        case PADDING:
            data[i] = key >= c->keys - 1 - 50 * b || key % 11 == 3;
            break;
        case BLOCKS: /* whole blocks hidden, whole blocks seen, the same at the borders */
            data[i] = (query / 64 + key / 64) % 3 == 1;
            break;
        default:
            data[i] = test_uniform(&state, 0, 1) < 0.4 || (c->mask == DEAD_ROWS && dead_row(query));
        }
    }
    *bytes = (size_t)n;
    return data;
}

/* Feeds random values from a stream that depends on the size only. */
static void feed_random(weft_session *s, weft_value x, weft_dtype dtype, int64_t n, uint64_t seed)
{
    double *f64 = malloc((size_t)n * sizeof *f64);
    float *f32 = malloc((size_t)n * sizeof *f32);
    for (int64_t i = 0; i < n; i++) f32[i] = (float)(f64[i] = test_uniform(&seed, -1.5, 1.5));
    CU_ASSERT_EQUAL(dtype == WEFT_F64 ? weft_session_feed(s, x, f64, (size_t)n * sizeof *f64, NULL)
                                      : weft_session_feed(s, x, f32, (size_t)n * sizeof *f32, NULL),
                    WEFT_OK);
    free(f64);
    free(f32);
}

static void take(weft_session *s, weft_value x, results *r, int i)
{
    weft_tensor t;
    CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, x, &t, NULL) == WEFT_OK);
    r->n[i] = weft_shape_numel(t.shape);
    r->data[i] = malloc((size_t)(r->n[i] + 1) * sizeof(double));
    for (int64_t k = 0; k < r->n[i]; k++)
        r->data[i][k] = t.dtype == WEFT_F32 ? (double)((float *)t.data)[k] : ((double *)t.data)[k];
}

/* The inputs [batch, len, heads dim] split into heads; values[] are what is fed. */
static void make_inputs(weft_graph *g, const config *c, weft_dtype dtype, weft_value *fed,
                        weft_value *in)
{
    const weft_shape shapes[3] = {WEFT_SHAPE(c->batch, c->queries, c->heads, c->dim),
                                  WEFT_SHAPE(c->batch, c->keys, c->kv_heads, c->dim),
                                  WEFT_SHAPE(c->batch, c->keys, c->kv_heads, c->value_dim)};
    const char *const names[3] = {"q", "k", "v"};
    const int64_t width = c->heads * c->dim;
    weft_value all = WEFT_NO_VALUE;
    if (c->packed) all = weft_input(g, "qkv", dtype, WEFT_SHAPE(c->batch, c->keys, 3 * width));
    for (int i = 0; i < 3; i++) {
        fed[i] = c->packed ? all : weft_input(g, names[i], dtype, shapes[i]);
        in[i] = c->packed ? weft_slice(g, all, 2, i * width, (i + 1) * width, 1) : fed[i];
        in[i] = weft_reshape(g, in[i], shapes[i]);
    }
}

static void run(const config *c, weft_dtype dtype, bool fused, int threads, results *r)
{
    weft_graph *g = weft_graph_new();
    weft_value fed[3], in[3], mask = WEFT_NO_VALUE, targets[RESULTS];
    weft_error error = {0};
    memset(r, 0, sizeof *r);
    make_inputs(g, c, dtype, fed, in);
    if (c->mask != NO_MASK) mask = weft_input(g, "mask", WEFT_BOOL, mask_shape(c));
    targets[OUT] = fused ? weft_sdpa(g, in[0], in[1], in[2],
                                     &(weft_sdpa_options){.dropout = c->dropout,
                                                          .causal = c->causal,
                                                          .mask = mask,
                                                          .window = c->window})
                         : plain_attention(g, c, in[0], in[1], in[2], mask);
    weft_value dout = weft_input(g, "dout", dtype, weft_shape_of(g, targets[OUT]));
    weft_grad_of(g, &targets[OUT], &dout, 1, in, 3, &targets[DQ]);
    weft_plan *plan =
        weft_plan_new(g, targets, RESULTS, &(weft_plan_options){.verify = true}, &error);
    if (!plan) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    /* Heads are read as they lie. */
    for (size_t i = 0; fused && i < weft_graph_node_count(weft_plan_graph(plan)); i++)
        CU_ASSERT_PTR_NOT_EQUAL(weft_graph_node(weft_plan_graph(plan), i).op, &weft_op_contiguous);
    weft_session *s = weft_session_new(
        plan, NULL, &(weft_session_options){.threads = threads, .seed = 3, .poison = true}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (size_t i = 0; i < (c->packed ? 1 : 3); i++)
        feed_random(s, fed[i], dtype, weft_shape_numel(weft_shape_of(g, fed[i])), 10 + i);
    feed_random(s, dout, dtype, weft_shape_numel(weft_shape_of(g, dout)), 20);
    if (c->mask != NO_MASK) {
        size_t bytes;
        uint8_t *data = mask_data(c, &bytes);
        CU_ASSERT_EQUAL(weft_session_feed(s, mask, data, bytes, NULL), WEFT_OK);
        free(data);
    }
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL),
                    WEFT_OK); /* the second step: other dropout, the same scratch */
    for (int i = 0; i < RESULTS; i++) take(s, targets[i], r, i);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* Largest difference relative to the largest element. */
static double distance(const results *a, const results *b)
{
    double worst = 0;
    for (int k = 0; k < RESULTS; k++) {
        double scale = 1;
        if (a->n[k] != b->n[k]) return INFINITY;
        for (int64_t i = 0; i < b->n[k]; i++) scale = fmax(scale, fabs(b->data[k][i]));
        for (int64_t i = 0; i < b->n[k]; i++) {
            const double off = fabs(a->data[k][i] - b->data[k][i]) / scale;
            if (!(off <= worst)) worst = isnan(off) ? INFINITY : off;
        }
    }
    return worst;
}

static void against_plain(weft_dtype dtype, double limit)
{
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        results a, b;
        run(&configs[i], dtype, true, 2, &a);
        run(&configs[i], dtype, false, 2, &b);
        const double off = distance(&a, &b);
        if (off > limit) fprintf(stderr, "\n    configuration %zu differs by %g\n", i, off);
        CU_ASSERT_TRUE(off <= limit);
        free_results(&a);
        free_results(&b);
    }
}

static void test_f64(void)
{
    against_plain(WEFT_F64, ROUNDING_F64);
}

static void test_f32(void)
{
    against_plain(WEFT_F32, 2e-6); /* 33 roundings of 2^-24; the largest seen is 1.7e-6 */
}

static void test_threads(void)
{
    static const int threads[] = {2, 3, 4, 8};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        results a, b;
        run(&configs[i], WEFT_F32, true, 1, &a);
        for (size_t t = 0; t < 4; t++) {
            run(&configs[i], WEFT_F32, true, threads[t], &b);
            for (int k = 0; k < RESULTS; k++)
                CU_ASSERT_EQUAL(memcmp(a.data[k], b.data[k], (size_t)a.n[k] * sizeof *a.data[k]),
                                0);
            free_results(&b);
        }
        free_results(&a);
    }
}

/* Sum of |x| over the heads and features of one query. */
static double weight_of_query(const config *c, const double *x, int64_t dim, int64_t b, int64_t i)
{
    double sum = 0;
    for (int64_t k = 0; k < c->heads * dim; k++)
        sum += fabs(x[(b * c->queries + i) * c->heads * dim + k]);
    return sum;
}

static void test_dead_rows(void)
{
    for (size_t k = 0; k < sizeof configs / sizeof *configs; k++) {
        const config *c = &configs[k];
        results r;
        if (c->mask != DEAD_ROWS && !(c->causal && c->queries > c->keys)) continue;
        run(c, WEFT_F32, true, 2, &r);
        for (int64_t b = 0; b < c->batch; b++)
            for (int64_t i = 0; i < c->queries; i++) {
                const bool dead = c->mask == DEAD_ROWS ? dead_row(i) : i < c->queries - c->keys;
                const double y = weight_of_query(c, r.data[OUT], c->value_dim, b, i);
                const double dq = weight_of_query(c, r.data[DQ], c->dim, b, i);
                if (dead) {
                    CU_ASSERT_EQUAL(y, 0);
                    CU_ASSERT_EQUAL(dq, 0);
                } else if (!c->causal) {
                    CU_ASSERT_TRUE(y > 0);
                }
            }
        free_results(&r);
    }
}

/* The kernel and the expansion of a query that sees nothing, lse among the outputs. */
static void test_dead_lse(void)
{
    weft_graph *g = weft_graph_new();
    weft_value q = weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 3, 1, 4), 0.5);
    weft_value k = weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 2, 1, 4), 0.5);
    weft_value y = weft_sdpa(g, q, k, k, &(weft_sdpa_options){.causal = true});
    weft_node_info node = weft_graph_node(g, weft_producer_of(g, y));
    weft_value lse[4] = {weft_value_from_id(g, node.first_out + 1)}, out[3];
    weft_value in[3] = {q, k, k};
    weft_expand e = {g, node.attr, 3, 3, in, out};
    node.op->expand(&e);
    lse[1] = out[1];
    lse[2] = weft_value_from_id(g, node.first_out + 2); /* what rounding took: nothing in row 0 */
    lse[3] = out[2];
    weft_error error;
    weft_plan *plan = weft_plan_new(g, lse, 4, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (int i = 0; i < 4; i++) {
        float x[3];
        CU_ASSERT_EQUAL(weft_session_fetch(s, lse[i], x, sizeof x, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(x[0], i < 2 ? -INFINITY : 0);
        if (i >= 2) continue;
        CU_ASSERT_DOUBLE_EQUAL(x[1], 0.5, ROUNDING_F32);
        CU_ASSERT_DOUBLE_EQUAL(x[2], 0.5 + log(2), ROUNDING_F32);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* A query that sees nothing gets zeros, whatever the values are, from the kernel and the expansion:
 * with more sequences than queries, of which the first sees none of two keys. */
static void test_dead_values(void)
{
    enum { BATCH = 5, QUERIES = 3, SIZE = BATCH * QUERIES };
    weft_error error;
    weft_graph *g = weft_graph_new();
    weft_value q = weft_fill(g, WEFT_F32, WEFT_SHAPE(BATCH, QUERIES, 1, 1), 0.5), out[3], y[2];
    weft_value k = weft_fill(g, WEFT_F32, WEFT_SHAPE(BATCH, 2, 1, 1), 0.5);
    weft_value v = weft_fill(g, WEFT_F32, WEFT_SHAPE(BATCH, 2, 1, 1), INFINITY);
    y[0] = weft_sdpa(g, q, k, v, &(weft_sdpa_options){.causal = true});
    const weft_node_info node = weft_graph_node(g, weft_producer_of(g, y[0]));
    node.op->expand(&(weft_expand){g, node.attr, 3, 3, (weft_value[]){q, k, v}, out});
    y[1] = out[0];
    weft_plan *plan = weft_plan_new(g, y, 2, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (int i = 0; i < 2; i++) {
        float x[SIZE];
        CU_ASSERT_EQUAL(weft_session_fetch(s, y[i], x, sizeof x, NULL), WEFT_OK);
        for (int j = 0; j < SIZE; j++) CU_ASSERT_EQUAL(x[j] == 0, j % QUERIES == 0);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* weft_causal_mask hides what `causal` does, also where queries and keys are not as many. */
static void test_causal_mask(void)
{
    static const int64_t lengths[][2] = {{4, 4}, {3, 5}, {5, 3}, {1, 6}, {6, 1}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const int64_t queries = lengths[i][0], keys = lengths[i][1];
        weft_graph *g = weft_graph_new();
        weft_value q = weft_fill(g, WEFT_F64, WEFT_SHAPE(1, queries, 1, 2), 0.5), y[2];
        weft_value k = weft_reshape(g, weft_arange(g, WEFT_F64, 2 * keys, -1, 0.75),
                                    WEFT_SHAPE(1, keys, 1, 2));
        const weft_sdpa_options causal = {.causal = true},
                                masked = {.mask = weft_causal_mask(g, queries, keys)};
        y[0] = weft_sdpa(g, q, k, k, &causal);
        y[1] = weft_sdpa(g, q, k, k, &masked);
        weft_error error = {0};
        double out[2][12];
        weft_plan *plan = weft_plan_new(g, y, 2, NULL, &error);
        weft_session *s = weft_session_new(plan, NULL, NULL, &error);
        CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
        const size_t bytes = (size_t)queries * 2 * sizeof(double);
        for (int n = 0; n < 2; n++)
            CU_ASSERT_EQUAL(weft_session_fetch(s, y[n], out[n], bytes, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(memcmp(out[0], out[1], bytes), 0);
        weft_session_free(s);
        weft_plan_free(plan);
        weft_graph_free(g);
    }
}

static size_t arena_bytes(int64_t length, int64_t heads)
{
    weft_graph *g = weft_graph_new();
    weft_value in[3], targets[4];
    const char *const names[3] = {"q", "k", "v"};
    for (int i = 0; i < 3; i++)
        in[i] = weft_input(g, names[i], WEFT_F32, WEFT_SHAPE(1, length, heads, 64));
    targets[0] = weft_sdpa(g, in[0], in[1], in[2], &(weft_sdpa_options){.dropout = 0.1});
    weft_value dout = weft_input(g, "dout", WEFT_F32, weft_shape_of(g, targets[0]));
    weft_grad_of(g, targets, &dout, 1, in, 3, targets + 1);
    weft_error error;
    weft_plan *plan = weft_plan_new(g, targets, 4, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    size_t bytes = weft_plan_stats_of(plan).arena_bytes;
    weft_plan_free(plan);
    weft_graph_free(g);
    return bytes;
}

static void test_memory(void)
{
    const size_t inputs = 3 * 4096 * 8 * 64 * sizeof(float);
    const size_t short_arena = arena_bytes(4096, 8), long_arena = arena_bytes(8192, 8);
    CU_ASSERT_TRUE(short_arena < 6 * inputs);
    CU_ASSERT_TRUE(long_arena < 2 * short_arena + short_arena / 10);
    CU_ASSERT_TRUE(arena_bytes(8192, 1) < (size_t)8192 * 8192);
}

/* Attention to keys and values of bf16 or u8 has the bits of attention to the same numbers in f32.
 */
static void narrow_case(const config *c, weft_dtype keys, weft_dtype values, int threads)
{
    weft_graph *g = weft_graph_new();
    weft_error error = {0};
    weft_value fed[3], in[3], out[2];
    weft_tensor t[2];
    make_inputs(g, c, WEFT_F32, fed, in);
    const weft_sdpa_options o = {.causal = c->causal, .window = c->window};
    weft_value k = weft_narrow_rows(g, in[1], keys), v = weft_narrow_rows(g, in[2], values);
    out[0] = weft_sdpa(g, in[0], k, v, &o);
    out[1] =
        weft_sdpa(g, in[0], weft_widen_rows(g, k, WEFT_F32), weft_widen_rows(g, v, WEFT_F32), &o);
    weft_plan *plan = weft_plan_new(g, out, 2, &(weft_plan_options){.verify = true}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    weft_session *s =
        weft_session_new(plan, NULL, &(weft_session_options){.threads = threads}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (size_t i = 0; i < 3; i++)
        feed_random(s, fed[i], WEFT_F32, weft_shape_numel(weft_shape_of(g, fed[i])), 10 + i);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (int i = 0; i < 2; i++)
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, out[i], &t[i], NULL) == WEFT_OK);
    CU_ASSERT_EQUAL(
        memcmp(t[0].data, t[1].data, (size_t)weft_shape_numel(t[0].shape) * sizeof(float)), 0);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_narrow(void)
{
    static const config cases[] = {
        {2, 4, 2, 70, 130, 17, 23, NO_MASK, false, 0, false, 0},
        {3, 4, 1, 1, 200, 64, 64, NO_MASK, false, 0, false, 0},
        {1, 1, 1, 330, 2100, 8, 8, NO_MASK, true, 0, false, 70},
    };
    static const weft_dtype dtypes[][2] = {
        {WEFT_BF16, WEFT_BF16}, {WEFT_U8, WEFT_U8}, {WEFT_BF16, WEFT_U8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++)
            narrow_case(&cases[i], dtypes[k][0], dtypes[k][1], 1 + (int)k % 2);
}

/* A query has the same bits with few others and with many. */
static void few_case(weft_dtype dtype, int64_t keys, int64_t dim, int64_t value_dim, int64_t few,
                     bool masked)
{
    enum { MANY_QUERIES = 40, HEADS = 2 };
    weft_graph *g = weft_graph_new();
    weft_error error = {0};
    const int64_t all = MANY_QUERIES;
    weft_value q = weft_input(g, "q", dtype, WEFT_SHAPE(1, all, HEADS, dim));
    weft_value k = weft_input(g, "k", dtype, WEFT_SHAPE(1, keys, 1, dim));
    weft_value v = weft_input(g, "v", dtype, WEFT_SHAPE(1, keys, 1, value_dim)), out[2];
    weft_value hidden = WEFT_NO_VALUE;
    if (masked)
        hidden = weft_less(g, weft_input(g, "mask", dtype, WEFT_SHAPE(1, 1, all, keys)),
                           weft_scalar(g, dtype, 0));
    out[0] =
        weft_slice(g, weft_sdpa(g, q, k, v, &(weft_sdpa_options){.mask = hidden}), 1, 0, few, 1);
    if (masked) hidden = weft_slice(g, hidden, 2, 0, few, 1);
    out[0] = weft_contiguous(g, out[0]);
    out[1] =
        weft_sdpa(g, weft_slice(g, q, 1, 0, few, 1), k, v, &(weft_sdpa_options){.mask = hidden});
    weft_plan *plan = weft_plan_new(g, out, 2, &(weft_plan_options){.verify = true}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_tensor t[2];
    const char *const names[] = {"q", "k", "v", "mask"};
    for (size_t i = 0; i < (masked ? 4 : 3); i++) {
        const weft_value x = weft_graph_find(g, names[i]);
        feed_random(s, x, dtype, weft_shape_numel(weft_shape_of(g, x)), 30 + i);
    }
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    for (int i = 0; i < 2; i++)
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(s, out[i], &t[i], NULL) == WEFT_OK);
    CU_ASSERT_TRUE(test_same_tensors("t[0]", &t[0], &t[1]));
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_few(void)
{
    static const int64_t cases[][4] = {{200, 64, 64, 1}, {131, 17, 32, 3}, {65, 16, 48, 8},
                                       {2100, 8, 16, 2}, {70, 300, 16, 4}, {130, 20, 23, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int bits = 0; bits < 4; bits++)
            few_case(bits & 1 ? WEFT_F64 : WEFT_F32, cases[i][0], cases[i][1], cases[i][2],
                     cases[i][3], bits & 2);
}

/* What narrow_rows takes from a number, and rows that are zero or not finite. */
static void test_narrow_rows(void)
{
    enum { N = 37, ROWS = 5 };
    const double half_step = 0.5001; /* a byte rounds to half a step, f32 to 127 * 2^-24 = 8e-6 */
    weft_graph *g = weft_graph_new();
    weft_error error = {0};
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(ROWS, N)), y[2];
    y[0] = weft_widen_rows(g, weft_narrow_rows(g, x, WEFT_BF16), WEFT_F32);
    y[1] = weft_widen_rows(g, weft_narrow_rows(g, x, WEFT_U8), WEFT_F64);
    float in[ROWS][N];
    uint64_t random = 3;
    for (int i = 0; i < ROWS * N; i++)
        in[i / N][i % N] = i / N == 1 ? 0 : (float)test_uniform(&random, -3, 3);
    in[2][5] = INFINITY;
    in[3][N - 1] = NAN;
    for (int i = 0; i < N; i++) in[4][i] *= 1e-38f;
    weft_plan *plan = weft_plan_new(g, y, 2, NULL, &error);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &error) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    float bf16[ROWS][N];
    double bytes[ROWS][N];
    CU_ASSERT_EQUAL(weft_session_feed(s, x, in, sizeof in, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, y[0], bf16, sizeof bf16, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, y[1], bytes, sizeof bytes, NULL), WEFT_OK);
    double max = 0;
    for (int i = 0; i < N; i++) max = fmax(max, fabs((double)in[0][i]));
    for (int i = 0; i < N; i++) {
        CU_ASSERT_TRUE(fabs((double)bf16[0][i] - (double)in[0][i]) <= fabs((double)in[0][i]) / 256);
        CU_ASSERT_TRUE(fabs(bytes[0][i] - (double)in[0][i]) <= max / 127 * half_step);
        CU_ASSERT_EQUAL(bf16[1][i], 0);
        CU_ASSERT_EQUAL(bytes[1][i], 0);
        CU_ASSERT_TRUE(isnan(bytes[2][i]) && isnan(bytes[3][i]));
        CU_ASSERT_TRUE(fabs(bytes[4][i]) <= 3e-38); /* the largest that was put in */
    }
    CU_ASSERT_TRUE(isinf(bf16[2][5]) && isnan(bf16[3][N - 1]) && !isnan(bf16[3][0]));
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_narrow_refusals(void)
{
    for (int i = 0; i < 7; i++) {
        weft_graph *g = weft_graph_new();
        weft_value x = weft_fill(g, WEFT_F32, WEFT_SHAPE(1, 2, 1, 3), 1);
        weft_value k = weft_narrow_rows(g, x, WEFT_U8);
        weft_value wide = weft_fill(g, WEFT_F64, WEFT_SHAPE(1, 2, 1, 3), 1), y = WEFT_NO_VALUE;
        CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
        if (i == 0) y = weft_narrow_rows(g, x, WEFT_I32);
        if (i == 1) y = weft_widen_rows(g, x, WEFT_F32);
        if (i == 2) y = weft_widen_rows(g, k, WEFT_BOOL);
        if (i == 3) y = weft_cast(g, x, WEFT_BF16);
        if (i == 4) y = weft_sdpa(g, wide, k, k, NULL);
        if (i == 5)
            y = weft_widen_rows(g, weft_state(g, "s", WEFT_U8, WEFT_SHAPE(5, 3), WEFT_INIT_ZEROS),
                                WEFT_F32);
        if (i == 6) y = weft_sdpa(g, x, weft_slice(g, k, 3, 0, 6, 1), k, NULL);
        CU_ASSERT_FALSE(weft_is_value(y));
        CU_ASSERT_EQUAL(weft_graph_status(g), i < 5 ? WEFT_BAD_DTYPE : WEFT_BAD_SHAPE);
        weft_graph_free(g);
    }
}

static void test_refusals(void)
{
    static const weft_shape wrong[][3] = {
        {{4, {2, 3, 4, 5}}, {4, {2, 3, 3, 5}}, {4, {2, 3, 3, 5}}}, /* 3 does not divide 4 */
        {{4, {2, 3, 4, 5}}, {4, {2, 3, 4, 6}}, {4, {2, 3, 4, 5}}},
        {{4, {2, 3, 4, 5}}, {4, {2, 3, 4, 5}}, {4, {2, 2, 4, 5}}},
        {{3, {3, 4, 5}}, {3, {3, 4, 5}}, {3, {3, 4, 5}}},
    };
    for (size_t i = 0; i < 8; i++) {
        weft_graph *g = weft_graph_new();
        const weft_shape good = WEFT_SHAPE(2, 3, 4, 5);
        weft_sdpa_options o = {0};
        weft_value in[3];
        for (int k = 0; k < 3; k++) in[k] = weft_fill(g, WEFT_F32, i < 4 ? wrong[i][k] : good, 1);
        if (i == 4) o.dropout = 1;
        if (i == 5) o.mask = weft_fill(g, WEFT_BOOL, WEFT_SHAPE(2, 3, 3), 0);
        if (i == 6) o.scale = NAN;
        if (i == 7) o.window = -1;
        CU_ASSERT_FALSE(weft_is_value(weft_sdpa(g, in[0], in[1], in[2], &o)));
        CU_ASSERT_EQUAL(weft_graph_status(g),
                        i == 4 || i >= 6 ? WEFT_BAD_ARGUMENT : WEFT_BAD_SHAPE);
        CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->where, "sdpa"));
        weft_graph_free(g);
    }
}

/* Each score costs two products and an exponential, and half of them with `causal`; operands and
 * results are read and written once. */
static void test_cost(void)
{
    weft_graph *g = weft_graph_new();
    const weft_value q = weft_input(g, "q", WEFT_F32, WEFT_SHAPE(2, 5, 3, 4));
    const weft_value k = weft_input(g, "k", WEFT_F32, WEFT_SHAPE(2, 7, 3, 4));
    const weft_value v = weft_input(g, "v", WEFT_F32, WEFT_SHAPE(2, 7, 3, 6));
    const double scores = 2 * 3 * 5 * 7, flops = scores * (2 * 4 + 2 * 6 + 14);
    for (int causal = 0; causal < 2; causal++) {
        weft_cost cost;
        const weft_value y = weft_sdpa(g, q, k, v, &(weft_sdpa_options){.causal = causal});
        const size_t index = weft_producer_of(g, y);
        CU_ASSERT_EQUAL_FATAL(weft_graph_node_cost(g, index, &cost, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(cost.flops, causal ? flops / 2 : flops);
        double bytes = 0;
        const weft_value in[3] = {q, k, v};
        for (int i = 0; i < 3; i++)
            bytes += (double)weft_tensor_bytes(WEFT_F32, weft_shape_of(g, in[i]));
        const weft_node_info node = weft_graph_node(g, index);
        for (uint32_t i = 0; i < node.op->n_out; i++) {
            const weft_value out = weft_value_from_id(g, node.first_out + i);
            bytes += (double)weft_tensor_bytes(weft_dtype_of(g, out), weft_shape_of(g, out));
        }
        CU_ASSERT_EQUAL(cost.bytes, bytes);
    }
    weft_graph_free(g);
}

void attention_tests(void)
{
    CU_pSuite suite = CU_add_suite("attention", NULL, NULL);
    CU_add_test(suite, "f64 equals plain ops, with gradients", test_f64);
    CU_add_test(suite, "cost", test_cost);
    CU_add_test(suite, "f32 equals plain ops, with gradients", test_f32);
    CU_add_test(suite, "same bits at 1, 2, 3, 4, 8 threads", test_threads);
    CU_add_test(suite, "queries without keys to attend to", test_dead_rows);
    CU_add_test(suite, "lse of a query without keys", test_dead_lse);
    CU_add_test(suite, "a query without keys, with infinite values", test_dead_values);
    CU_add_test(suite, "causal attention equals its mask", test_causal_mask);
    CU_add_test(suite, "memory is linear in the length", test_memory);
    CU_add_test(suite, "few queries have the bits of many", test_few);
    CU_add_test(suite, "keys and values of bf16 and u8", test_narrow);
    CU_add_test(suite, "rows in fewer bits, and back", test_narrow_rows);
    CU_add_test(suite, "what cannot be stored in fewer bits", test_narrow_refusals);
    CU_add_test(suite, "wrong calls are refused", test_refusals);
}
