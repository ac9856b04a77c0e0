/* What can be counted in place of timed: nodes, barriers, fused nodes and memory of whole models
 * stay near what they are. A limit is a little above the number of the day it was set; whoever goes
 * below one permanently sets it again. */
#include "tests.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct limit {
    const char *model;
    bool training;
    size_t nodes, barriers; /* at most */
    size_t fused;           /* at least */
    size_t arena_bytes;     /* at most */
} limit;

static const limit limits[] = {
    {"encoder", false, 160, 46, 43, 104000000},
    {"encoder", true, 600, 136, 83, 850000000},
    {"transformer-base", true, 2390, 450, 230, 460000000},
    {"transformer-shared", true, 1850, 382, 178, 31500000},
};

static weft_value training_step(weft_graph *g, weft_value loss)
{
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_value lr = weft_input(g, "lr", WEFT_F32, WEFT_SCALAR);
    return weft_train_update(g, loss, NULL, 0, lr, &adam, NULL);
}

static bool within(const limit *l, const weft_plan_stats *s)
{
    if (s->nodes <= l->nodes && s->barriers <= l->barriers && s->fused >= l->fused &&
        s->arena_bytes <= l->arena_bytes && s->arena_bytes >= s->lower_bound_bytes)
        return true;
    fprintf(stderr,
            "\n    %s%s: %zu nodes (at most %zu), %zu barriers (%zu), %zu fused (at least %zu), "
            "arena %zu (at most %zu)\n",
            l->model, l->training ? ", training" : "", s->nodes, l->nodes, s->barriers, l->barriers,
            s->fused, l->fused, s->arena_bytes, l->arena_bytes);
    return false;
}

static void test_models(void)
{
    weft_gemm_backend backend = WEFT_GEMM_BACKENDS;
    if (getenv("WEFT_SKIP") || weft_gemm_chosen(WEFT_F32, &backend, NULL) != WEFT_OK ||
        backend != WEFT_GEMM_WEFT) {
        test_skip("counts", "they are of all passes and of weft's own GEMM");
        return;
    }
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        weft_error error = {0};
        weft_built built;
        weft_graph *g = weft_graph_new();
        test_build_model(g, limits[i].model, limits[i].training, &built);
        weft_value targets[2] = {built.outputs[0]};
        if (limits[i].training) {
            targets[0] = built.loss;
            targets[1] = training_step(g, built.loss);
        }
        weft_plan *plan = weft_plan_new(g, targets, limits[i].training ? 2 : 1, NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
        weft_plan_stats stats = weft_plan_stats_of(plan);
        CU_ASSERT_TRUE(within(&limits[i], &stats));
        weft_plan_free(plan);
        weft_graph_free(g);
    }
}

/* What measure.h promises of the backends, whatever is installed. */
static void test_backends(void)
{
    static const char *const names[] = {"weft", "openblas", "onednn"};
    weft_error error = {0};
    weft_gemm_info info;
    weft_gemm_backend backend;
    for (int b = 0; b < WEFT_GEMM_BACKENDS; b++) {
        error = (weft_error){0};
        weft_status status = weft_gemm_info_of((weft_gemm_backend)b, &info, &error);
        CU_ASSERT_STRING_EQUAL(info.name, names[b]);
        CU_ASSERT_TRUE(status == WEFT_OK || status == WEFT_NO_BACKEND);
        CU_ASSERT_EQUAL(status == WEFT_OK && b != WEFT_GEMM_WEFT, info.path[0] != '\0');
        CU_ASSERT_EQUAL(status != WEFT_OK, error.message[0] != '\0');
    }
    CU_ASSERT_EQUAL(weft_gemm_info_of(WEFT_GEMM_BACKENDS, &info, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_gemm_info_of(WEFT_GEMM_WEFT, NULL, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_gemm_chosen(WEFT_I32, &backend, NULL), WEFT_BAD_DTYPE);
    /* oneDNN has no GEMM of f64. */
    if (weft_gemm_chosen(WEFT_F64, &backend, NULL) == WEFT_OK)
        CU_ASSERT_NOT_EQUAL(backend, WEFT_GEMM_ONEDNN);
    /* OpenBLAS has none of bf16. A library that is missing is missing for every dtype that it is
     * chosen for. */
    if (weft_gemm_chosen(WEFT_BF16, &backend, NULL) == WEFT_OK)
        CU_ASSERT_NOT_EQUAL(backend, WEFT_GEMM_OPENBLAS);
    const char *chosen = getenv("WEFT_GEMM");
    if (chosen && strcmp(chosen, "onednn") == 0)
        CU_ASSERT_EQUAL(weft_gemm_chosen(WEFT_BF16, NULL, NULL),
                        weft_gemm_chosen(WEFT_F32, NULL, NULL));
}

void counts_tests(void)
{
    CU_pSuite suite = CU_add_suite("counts", NULL, NULL);
    CU_add_test(suite, "nodes, barriers and memory of models", test_models);
    CU_add_test(suite, "backends of GEMM", test_backends);
}
