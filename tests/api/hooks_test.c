/* What a program may replace: where memory comes from. */
#include "tests.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Allocators ---- */

/* Counts what it allocates; can fail, and return memory that is not aligned. */
typedef struct counter {
    long live, calls, fail_at; /* call fail_at fails; 0: none */
    size_t live_bytes;
    bool misaligned;
} counter;

static void *take(void *context, size_t bytes)
{
    counter *c = context;
    if (++c->calls == c->fail_at) return NULL;
    char *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!memory) return NULL;
    c->live++;
    c->live_bytes += bytes;
    memset(memory, 0xA5, bytes); /* the contents may be anything */
    return memory + (c->misaligned ? 8 : 0);
}

static void give(void *context, void *memory, size_t bytes)
{
    counter *c = context;
    c->live--;
    c->live_bytes -= bytes;
    free((char *)memory - (c->misaligned ? 8 : 0));
}

/* y = dropout(x w) w, of parameters that need more than one block of a store. */
typedef struct network {
    weft_graph *g;
    weft_value x, y;
    weft_plan *plan;
} network;

enum { SIZE = 200 };

static network network_new(void)
{
    network n = {.g = weft_graph_new()};
    const weft_shape square = WEFT_SHAPE(SIZE, SIZE);
    n.x = weft_input(n.g, "x", WEFT_F32, square);
    weft_value w = weft_param(n.g, "w", WEFT_F32, square, WEFT_INIT_XAVIER);
    weft_value v = weft_param(n.g, "v", WEFT_F32, square, WEFT_INIT_XAVIER);
    n.y = weft_matmul(n.g, weft_dropout(n.g, weft_matmul(n.g, n.x, w), 0.5), v);
    n.plan = weft_plan_new(n.g, &n.y, 1, &(weft_plan_options){.verify = true}, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(n.plan);
    return n;
}

static void network_free(network *n)
{
    weft_plan_free(n->plan);
    weft_graph_free(n->g);
}

static weft_status run(const network *n, weft_session *s, float *y)
{
    float x[SIZE * SIZE];
    for (int i = 0; i < SIZE * SIZE; i++) x[i] = (float)(i % 17) - 8;
    weft_status status = weft_feed(s, n->x, x, sizeof x);
    if (status == WEFT_OK) status = weft_run(s);
    return status == WEFT_OK ? weft_fetch(s, n->y, y, sizeof x) : status;
}

/* Makes a store and a session, runs, and frees both. */
static weft_status run_with(const network *n, const weft_allocator *from, float *y,
                            weft_error *error)
{
    const weft_session_options so = {.threads = 2, .seed = 7, .allocator = from};
    const weft_params_options po = {.allocator = from};
    weft_params *store = weft_params_new_with(&po, error);
    weft_status status = store ? weft_params_init(store, n->g, 1, error) : error->status;
    weft_session *s = status == WEFT_OK ? weft_session_new(n->plan, store, &so, error) : NULL;
    if (status == WEFT_OK) status = s ? run(n, s, y) : error->status;
    weft_session_free(s);
    weft_params_free(store);
    return status;
}

static void test_counting(void)
{
    static float want[SIZE * SIZE], got[SIZE * SIZE];
    weft_error error = WEFT_NO_ERROR;
    counter c = {0};
    const weft_allocator from = {take, give, &c}, none = {.context = &c};
    network n = network_new();
    CU_ASSERT_EQUAL(run_with(&n, NULL, want, &error), WEFT_OK);
    CU_ASSERT_EQUAL(run_with(&n, &from, got, &error), WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(want, got, sizeof want), 0);
    CU_ASSERT_TRUE(c.calls >= 4); /* two parameters, the arena and the workspace */
    CU_ASSERT_TRUE(c.live == 0 && c.live_bytes == 0);
    /* Zeros are weft's own allocator. */
    c.calls = 0;
    CU_ASSERT_EQUAL(run_with(&n, &none, got, &error), WEFT_OK);
    CU_ASSERT_EQUAL(c.calls, 0);
    network_free(&n);
}

/* Each allocation fails in turn, and everything is given back. */
static void test_failing(void)
{
    static float y[SIZE * SIZE];
    long failed = 0;
    network n = network_new();
    for (long i = 1;; i++) {
        weft_error error = WEFT_NO_ERROR;
        counter c = {.fail_at = i};
        const weft_allocator from = {take, give, &c};
        const weft_status status = run_with(&n, &from, y, &error);
        CU_ASSERT_TRUE(c.live == 0 && c.live_bytes == 0);
        if (c.calls < i) break;
        failed++;
        CU_ASSERT_EQUAL(status, WEFT_NO_MEMORY);
        CU_ASSERT_EQUAL(error.status, WEFT_NO_MEMORY);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "no memory for"));
    }
    CU_ASSERT_TRUE(failed >= 4);
    network_free(&n);
}

static void test_misaligned(void)
{
    static float y[SIZE * SIZE];
    weft_error error = WEFT_NO_ERROR;
    counter c = {.misaligned = true};
    const weft_allocator from = {take, give, &c};
    const weft_session_options so = {.allocator = &from};
    network n = network_new();
    CU_ASSERT_EQUAL(run_with(&n, &from, y, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.where, "w");
    CU_ASSERT_STRING_EQUAL(error.message, "the allocator's memory is not 64-byte aligned");
    weft_params *store = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_init(store, n.g, 1, NULL), WEFT_OK);
    CU_ASSERT_PTR_NULL(weft_session_new(n.plan, store, &so, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_STRING_EQUAL(error.message,
                           "the allocator's memory for an arena is not 64-byte aligned");
    CU_ASSERT_TRUE(c.calls == 2 && c.live == 0 && c.live_bytes == 0);
    weft_params_free(store);
    network_free(&n);
}

static void test_half_allocator(void)
{
    weft_error error = WEFT_NO_ERROR;
    const weft_allocator halves[] = {{.allocate = take}, {.release = give}};
    network n = network_new();
    for (int i = 0; i < 2; i++) {
        const weft_session_options so = {.allocator = &halves[i]};
        const weft_params_options po = {.allocator = &halves[i]};
        CU_ASSERT_PTR_NULL(weft_params_new_with(&po, &error));
        CU_ASSERT_STRING_EQUAL(error.message, "the allocator needs both allocate and release");
        CU_ASSERT_PTR_NULL(weft_session_new(n.plan, NULL, &so, &error));
        CU_ASSERT_STRING_EQUAL(error.message, "the allocator needs both allocate and release");
        CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    }
    network_free(&n);
}

/* A file that replaces tensors, and parts that replace a store, use its allocator too. */
static void test_store(void)
{
    char path[64];
    weft_tensor t;
    counter c = {0};
    const weft_allocator from = {take, give, &c};
    const weft_params_options po = {.allocator = &from};
    snprintf(path, sizeof path, "/tmp/weft-hooks-%ld.safetensors", (long)getpid());
    network n = network_new();
    weft_params *store = weft_params_new_with(&po, NULL);
    CU_ASSERT_EQUAL_FATAL(weft_params_init(store, n.g, 1, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_params_save(store, path, NULL, NULL), WEFT_OK);
    const long before = c.live;
    CU_ASSERT_EQUAL(weft_params_load(store, path, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(c.live, before);
    c.fail_at = c.calls + 1;
    CU_ASSERT_EQUAL(weft_params_load(store, path, NULL), WEFT_NO_MEMORY);
    CU_ASSERT_EQUAL(c.live, before);
    CU_ASSERT_EQUAL(weft_params_keep_parts(store, n.g, NULL, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(c.live, before);
    CU_ASSERT_TRUE(weft_params_get(store, "w", &t) && (uintptr_t)t.data % 64 == 0);
    weft_params_free(store);
    CU_ASSERT_TRUE(c.live == 0 && c.live_bytes == 0);
    unlink(path);
    network_free(&n);
}

void hooks_tests(void)
{
    CU_pSuite suite = CU_add_suite("hooks", NULL, NULL);
    CU_add_test(suite, "an allocator that counts", test_counting);
    CU_add_test(suite, "an allocator that fails", test_failing);
    CU_add_test(suite, "an allocator without alignment", test_misaligned);
    CU_add_test(suite, "half an allocator", test_half_allocator);
    CU_add_test(suite, "an allocator of a store's changes", test_store);
}
