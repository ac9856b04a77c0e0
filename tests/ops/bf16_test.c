/* Products of bf16 against their references, bit for bit, with each instruction set; and the dot
 * product of the processor against what docs/arithmetic.md says that it computes. */
#include "exact_bf16.h"
#include "exact_case.h"

#include "base/platform.h"
#include "ir/isa.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && (!defined(__GNUC__) || defined(__clang__) || __GNUC__ >= 10)
#include <immintrin.h>
#define HAS_DOTS 1
#endif

/* Sets WEFT_ISA, and returns a copy of what it was. */
static char *keep_isa(weft_isa isa)
{
    const char *old = getenv("WEFT_ISA");
    char *kept = old ? strdup(old) : NULL;
    weft__os_set_variable("WEFT_ISA", weft__isa_name(isa));
    return kept;
}

static void restore_isa(char *kept)
{
    weft__os_set_variable("WEFT_ISA", kept);
    free(kept);
}

/* ---- The instruction ---- */

#ifdef HAS_DOTS

#define LANES 16

typedef struct dots {
    uint32_t sum[LANES], a[LANES], b[LANES];
} dots;

__attribute__((target("avx512f,avx512bf16"))) static void multiply(const dots *x, uint32_t *y)
{
    _mm512_storeu_ps(y, _mm512_dpbf16_ps(_mm512_loadu_ps(x->sum), (__m512bh)_mm512_loadu_ps(x->a),
                                         (__m512bh)_mm512_loadu_ps(x->b)));
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A bf16: any, an exponent near that of 1, one whose products are near the smallest normal number,
 * or a special one. */
static uint32_t draw_bf16(uint64_t *state, int kind)
{
    static const uint16_t special[] = {0,      0x8000, 1,      0x8001, 0x7f,   0x80,   0x8080,
                                       0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x3f80, 0xbf80};
    const uint64_t x = test_random(state);
    switch (kind) {
    case 0:
        return x & 0xffff;
    case 1:
        return (x & 0x807f) | (118 + (x >> 20) % 20) << 7;
    case 2:
        return (x & (x >> 40 & 1 ? 0x807f : 0x8000)) | (48 + (x >> 20) % 20) << 7;
    default:
        return special[(x >> 8) % (sizeof special / sizeof *special)];
    }
}

/* A sum: any, one that nearly cancels a product, or one near the smallest normal number. */
static uint32_t draw_sum(uint64_t *state, uint32_t a, uint32_t b)
{
    const uint64_t x = test_random(state);
    const float product = -float_of(a & 0xffff0000) * float_of(b & 0xffff0000);
    uint32_t bits;
    memcpy(&bits, &product, sizeof bits);
    switch (x % 4) {
    case 0:
        return (uint32_t)(x >> 32);
    case 1:
        return bits + (uint32_t)(x >> 8) % 5 - 2;
    case 2:
        return (uint32_t)(x >> 32 & 0x80000000) | (0x00800000 + (uint32_t)(x >> 8) % 3 - 1);
    default:
        return (uint32_t)(x >> 32 & 0x807fffff) | ((uint32_t)(x >> 8) % 4) << 23;
    }
}

/* How many of n cases differ from the specification. */
static int count_different(int n)
{
    int different = 0;
    uint64_t state = 31;
    for (int i = 0; i < n; i += LANES) {
        dots x;
        uint32_t got[LANES];
        const int kind = (int)(test_random(&state) % 4);
        for (int l = 0; l < LANES; l++) {
            x.a[l] = draw_bf16(&state, kind) | draw_bf16(&state, kind) << 16;
            x.b[l] = draw_bf16(&state, kind) | draw_bf16(&state, kind) << 16;
            x.sum[l] = draw_sum(&state, x.a[l], x.b[l]);
        }
        multiply(&x, got);
        for (int l = 0; l < LANES; l++) {
            const float a[2] = {float_of(x.a[l] << 16), float_of(x.a[l] & 0xffff0000)};
            const float b[2] = {float_of(x.b[l] << 16), float_of(x.b[l] & 0xffff0000)};
            const float wanted = bf16_pair(a, b, float_of(x.sum[l])), y = float_of(got[l]);
            const bool same = isnan(wanted) ? isnan(y) : !memcmp(&wanted, &y, sizeof y);
            if (!same && different++ < 5)
                fprintf(stderr, "\n    sum %08x, pairs %08x %08x: %a, expected %a", x.sum[l],
                        x.a[l], x.b[l], (double)y, (double)wanted);
        }
    }
    return different;
}

/* A processor that differs is not offered v4_bf16: its kernels would have other bits. */
static void test_dots(void)
{
    if (!__builtin_cpu_supports("avx512bf16")) {
        test_skip("the processor's dot product of bf16", "it has no AVX512_BF16");
        return;
    }
    const bool fits = count_different(1 << 20) == 0;
    char *kept = keep_isa(WEFT_ISA_V4_BF16);
    CU_ASSERT_EQUAL(fits, weft__isa_best() == WEFT_ISA_V4_BF16);
    restore_isa(kept);
}

#else

static void test_dots(void)
{
    test_skip("the processor's dot product of bf16", "it has no AVX512_BF16");
}

#endif

/* ---- The kernels ---- */

static void check(const char *test, weft_isa isa)
{
    char *kept = keep_isa(isa);
    if (weft__isa_best() == isa)
        CU_ASSERT_TRUE(test_random_cases(test, TEST_SANITIZED ? 30 : 400, exact_holds,
                                         (void *)(uintptr_t)exact_bf16_ops));
    restore_isa(kept);
}

static void test_base(void)
{
    check("bits of bf16, base", WEFT_ISA_BASE);
}

static void test_v3(void)
{
    check("bits of bf16, v3", WEFT_ISA_V3);
}

static void test_v4(void)
{
    check("bits of bf16, v4", WEFT_ISA_V4);
}

static void test_v4_bf16(void)
{
    check("bits of bf16, v4_bf16", WEFT_ISA_V4_BF16);
}

static void test_v4_amx(void)
{
    check("bits of bf16, v4_amx", WEFT_ISA_V4_AMX);
}

/* ---- Plans ---- */

enum { ROWS = 70, DEPTH = 300, COLUMNS = 40 };

/* x times w in a scope, by tiles in the graph or as the options of the plan say. */
static void run_product(const float *x, const float *w, bool tiles,
                        const weft_plan_options *options, float *y)
{
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    const weft_value a = weft_input(g, "a", WEFT_F32, WEFT_SHAPE(ROWS, DEPTH));
    const weft_value b = weft_input(g, "b", WEFT_F32, WEFT_SHAPE(DEPTH, COLUMNS));
    weft_graph_push_scope(g, "layer");
    const weft_value c = (tiles ? weft_matmul_tiles : weft_matmul)(g, a, b);
    weft_graph_pop_scope(g);
    weft_plan *plan = weft_plan_new(g, &c, 1, options, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_feed(s, a, x, sizeof(float) * ROWS * DEPTH, NULL);
    weft_session_feed(s, b, w, sizeof(float) * DEPTH * COLUMNS, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, c, y, sizeof(float) * ROWS * COLUMNS, NULL), WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* bf16-tiles makes matmul_tiles of large products, outside of scopes that stay in f32. */
static void test_plans(void)
{
    static float x[ROWS * DEPTH], w[DEPTH * COLUMNS], by_tiles[ROWS * COLUMNS],
        by_chains[ROWS * COLUMNS], y[ROWS * COLUMNS];
    uint64_t random = 1;
    for (int i = 0; i < ROWS * DEPTH; i++) x[i] = (float)test_uniform(&random, -1, 1);
    for (int i = 0; i < DEPTH * COLUMNS; i++) w[i] = (float)test_uniform(&random, -1, 1);
    run_product(x, w, true, NULL, by_tiles);
    run_product(x, w, false, NULL, by_chains);
    CU_ASSERT_NOT_EQUAL(memcmp(by_tiles, by_chains, sizeof y), 0);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        CU_ASSERT_TRUE(fabsf(by_tiles[i] - by_chains[i]) < 0.1f);
    const struct {
        weft_plan_options options;
        bool tiles;
    } cases[] = {
        {{.precision = WEFT_PRECISION_BF16_TILES}, true},
        {{.precision = WEFT_PRECISION_BF16_TILES, .min_narrow = ROWS * DEPTH}, true},
        {{.precision = WEFT_PRECISION_BF16_TILES, .min_narrow = ROWS * DEPTH + 1}, false},
        {{.precision = WEFT_PRECISION_BF16_TILES, .keep_f32 = "other,layer"}, false},
        {{.precision = WEFT_PRECISION_BF16_TILES, .skip = "tiles"}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_product(x, w, false, &cases[i].options, y);
        CU_ASSERT_EQUAL(memcmp(y, cases[i].tiles ? by_tiles : by_chains, sizeof y), 0);
    }
}

void bf16_tests(void)
{
    CU_pSuite suite = CU_add_suite("bf16", NULL, NULL);
    CU_add_test(suite, "the processor's dot product of bf16", test_dots);
    CU_add_test(suite, "bits of bf16, base", test_base);
    CU_add_test(suite, "bits of bf16, v3", test_v3);
    CU_add_test(suite, "bits of bf16, v4", test_v4);
    CU_add_test(suite, "bits of bf16, v4_bf16", test_v4_bf16);
    CU_add_test(suite, "bits of bf16, v4_amx", test_v4_amx);
    CU_add_test(suite, "plans with products by tiles", test_plans);
}
