/* Plans of thousands of random graphs: the checker agrees, and the results are the same bits as
 * without any sharing of memory, at any number of threads; a corrupted plan fails the check. */
#include "random_cases.h"
#include "tests.h"

#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_VALUES  40
#define MAX_TARGETS 6

typedef struct random_graph {
    weft_graph *g;
    weft_value values[MAX_VALUES + 16];
    size_t n;
    weft_value state;
} random_graph;

static weft_value pick(random_graph *r, uint64_t *seed)
{
    return r->values[test_random(seed) % r->n];
}

/* One more node, chosen at random; every value is [rows, columns] of f32. */
static weft_value grow(random_graph *r, uint64_t *seed)
{
    weft_graph *g = r->g;
    weft_value a = pick(r, seed), b = pick(r, seed), parts[2];
    weft_shape s = weft_shape_of(g, a), t = weft_shape_of(g, b), joint;
    switch (test_random(seed) % 14) {
    case 0:
        return weft_transpose(g, a, 0, 1);
    case 1:
        return weft_slice(g, a, (int)(test_random(seed) % 2), 0, WEFT_END, 2);
    case 2:
        return weft_flip(g, a, (int)(test_random(seed) % 2));
    case 3:
        return weft_reshape(g, a, (weft_shape){2, {s.dim[1], s.dim[0]}});
    case 4:
        return weft_softmax(g, a, 1);
    case 5:
        return weft_tanh(g, a);
    case 6:
        return weft_relu(g, a);
    case 7:
        return weft_sum(g, a, WEFT_AXES((int)(test_random(seed) % 2)), true);
    case 8:
        parts[0] = parts[1] = a;
        return s.dim[0] > 40 ? weft_neg(g, a) : weft_concat(g, parts, 2, 0);
    case 9:
        return weft_layer_norm(g, a, WEFT_NO_VALUE, WEFT_NO_VALUE, 1e-5);
    case 10:
        return s.dim[1] == t.dim[0] ? weft_matmul(g, a, b) : weft_mul_scalar(g, a, 0.5);
    case 11:
        return weft_dropout(g, a, 0.3);
    default:
        if (!weft_shape_broadcast(s, t, &joint)) return weft_sigmoid(g, a);
        return test_random(seed) % 2 ? weft_add(g, a, b) : weft_mul(g, a, b);
    }
}

static void build_random(random_graph *r, uint64_t seed, size_t most)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 170};
    memset(r, 0, sizeof *r);
    r->g = weft_graph_new();
    for (int i = 0; i < 3; i++) {
        char name[32];
        snprintf(name, sizeof name, "x%d", i);
        weft_shape shape = {2, {sizes[test_random(&seed) % 6], sizes[test_random(&seed) % 6]}};
        r->values[r->n++] = weft_input(r->g, name, WEFT_F32, shape);
    }
    r->state = weft_state(r->g, "w", WEFT_F32, WEFT_SHAPE(3, 5), WEFT_INIT_XAVIER);
    r->values[r->n++] = r->state;
    size_t count = 4 + test_random(&seed) % (MAX_VALUES - 4);
    while (r->n < count && r->n - 4 < most) {
        weft_value v = grow(r, &seed);
        r->values[r->n++] = v;
    }
}

typedef struct result {
    float *data[MAX_TARGETS];
    size_t bytes[MAX_TARGETS];
    float state[15];
} result;

static bool run_once(const random_graph *r, const weft_value *targets, size_t n,
                     const weft_plan_options *options, int threads, result *out)
{
    weft_error error;
    bool good = false;
    memset(out, 0, sizeof *out);
    weft_params *params = weft_params_new();
    weft_plan *plan = weft_plan_new(r->g, targets, n, options, &error);
    weft_session_options so = {.threads = threads, .seed = 5, .poison = !options->no_reuse};
    weft_session *s = NULL;
    if (plan && weft_params_init(params, r->g, 3, &error) == WEFT_OK)
        s = weft_session_new(plan, params, &so, &error);
    if (s) {
        for (int i = 0; i < 3; i++) {
            weft_tensor t;
            if (weft_session_tensor(s, r->values[i], &t, NULL) != WEFT_OK) continue;
            uint64_t seed = 77 + (uint64_t)i;
            for (int64_t k = 0; k < weft_shape_numel(t.shape); k++)
                ((float *)t.data)[k] = (float)test_uniform(&seed, -2, 2);
        }
        good = weft_session_run(s, &error) == WEFT_OK && weft_session_run(s, &error) == WEFT_OK;
        for (size_t i = 0; i < n && good; i++) {
            weft_tensor t;
            if (weft_dtype_of(r->g, targets[i]) == WEFT_BOOL) continue; /* the group: no contents */
            good = weft_session_tensor(s, targets[i], &t, &error) == WEFT_OK;
            if (!good) break;
            out->bytes[i] = weft_tensor_bytes(t.dtype, t.shape);
            out->data[i] = malloc(out->bytes[i] + 1);
            memcpy(out->data[i], t.data, out->bytes[i]);
        }
        weft_tensor w;
        if (weft_params_find(params, "w", &w)) memcpy(out->state, w.data, sizeof out->state);
    }
    if (!good) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    return good;
}

static bool same_results(const result *a, const result *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a->bytes[i] != b->bytes[i] ||
            (a->bytes[i] && memcmp(a->data[i], b->data[i], a->bytes[i]) != 0))
            return false;
    return memcmp(a->state, b->state, sizeof a->state) == 0;
}

static void free_result(result *r)
{
    for (int i = 0; i < MAX_TARGETS; i++) free(r->data[i]);
}

static bool planned_as_unplanned(const random_case *c)
{
    static const int threads[] = {1, 2, 3, 4, 8};
    const uint64_t seed = c->seed;
    random_graph r;
    build_random(&r, seed, c->size);
    bool good = weft_graph_status(r.g) == WEFT_OK;
    if (!good) fprintf(stderr, "\n    %s\n", weft_graph_error(r.g)->message);
    uint64_t more = seed ^ 0xABCDEF;
    weft_value targets[MAX_TARGETS];
    size_t n = 1 + test_random(&more) % 3;
    for (size_t i = 0; i < n; i++) targets[i] = r.values[r.n - 1 - test_random(&more) % (r.n / 2)];
    if (test_random(&more) % 3 == 0) {
        weft_value next = weft_assign(r.g, r.state, weft_mul_scalar(r.g, r.state, 0.9));
        targets[n++] = weft_mul_scalar(r.g, r.state, 1);
        if (test_random(&more) % 2) { /* a version between two updates */
            targets[n++] = next;
            next = weft_assign(r.g, next, weft_add_scalar(r.g, next, 1));
        }
        targets[n++] = weft_group(r.g, &next, 1);
    }
    if (c->show) test_show_graph(r.g);
    weft_plan_options plain = {.no_reuse = true, .skip = "all"},
                      full = {.verify = true, .fixed_states = seed % 2};
    result expected, got;
    good = good && run_once(&r, targets, n, &plain, 1, &expected);
    if (good) {
        good = run_once(&r, targets, n, &full, threads[seed % 5], &got) &&
               same_results(&expected, &got, n);
        free_result(&got);
        free_result(&expected);
    }
    weft_graph_free(r.g);
    return good;
}

static void test_random_graphs(void)
{
    CU_ASSERT_TRUE(test_random_cases("planned = unplanned", 3000, planned_as_unplanned, NULL));
}

/* Moving any one operand, step or interval of a tight plan must be seen. */
static void test_corrupted_plans(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(64, 64)), h = x;
    for (int i = 0; i < 6; i++) h = weft_add(g, weft_matmul(g, h, x), weft_softmax(g, h, 1));
    weft_error error;
    weft_plan *plan = weft_plan_new(g, &h, 1, &(weft_plan_options){.verify = true}, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    size_t seen = 0, tried = 0;
    for (size_t i = 0; i < plan->n_operands; i++) {
        size_t old = plan->places[i].offset;
        plan->places[i].offset = (old + 64 * 64 * 4) % plan->stats.arena_bytes;
        seen += weft_plan_check(plan, NULL) != WEFT_OK;
        tried++;
        plan->places[i].offset = old;
    }
    CU_ASSERT_EQUAL(seen, tried);
    for (size_t i = 0; i + 1 < plan->n_steps; i++) {
        plan_step old = plan->steps[i];
        const node_record *next = &plan->graph->nodes[plan->steps[i + 1].node];
        bool depends = false;
        for (size_t k = 0; k < next->n_in; k++)
            depends |= plan->graph->values[next->in[k]].node == old.node;
        if (!depends) continue;
        plan->steps[i] = plan->steps[i + 1];
        plan->steps[i + 1] = old;
        CU_ASSERT_NOT_EQUAL(weft_plan_check(plan, NULL), WEFT_OK);
        plan->steps[i + 1] = plan->steps[i];
        plan->steps[i] = old;
    }
    CU_ASSERT_EQUAL(weft_plan_check(plan, NULL), WEFT_OK);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* What depends on constants only is computed in the plan, to the same bits; what is random, or may
 * find an index out of range, is not. */
static void test_folding(void)
{
    float got[2][6];
    weft_graph *g = weft_graph_new();
    const float data[6] = {1, -2, 3, 0.5f, 7, -4};
    weft_value c = weft_constant(g, WEFT_F32, WEFT_SHAPE(2, 3), data);
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3));
    weft_value product = weft_matmul(g, c, weft_transpose(g, c, 0, 1));
    weft_value y = weft_matmul(g, weft_softmax(g, product, -1), weft_add(g, x, weft_gelu(g, c)));
    weft_plan_options plain = {.skip = "fold", .verify = true}, folds = {.verify = true};
    for (int i = 0; i < 2; i++) {
        weft_error error = {0};
        weft_plan *plan = weft_plan_new(g, &y, 1, i ? &folds : &plain, &error);
        weft_session *s = weft_session_new(plan, NULL, NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        weft_session_feed(s, x, data, sizeof data, NULL);
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(s, y, got[i], sizeof got[i], NULL), WEFT_OK);
        size_t kernels = 0;
        for (size_t n = 0; n < weft_plan_graph(plan)->n_nodes; n++)
            kernels +=
                weft__graph_node_runs(weft_plan_graph(plan), &weft_plan_graph(plan)->nodes[n]);
        CU_ASSERT_EQUAL(kernels, i ? 2 : 5);
        weft_session_free(s);
        weft_plan_free(plan);
    }
    CU_ASSERT_EQUAL(memcmp(got[0], got[1], sizeof got[0]), 0);

    weft_value index = weft_fill(g, WEFT_I32, WEFT_SHAPE(2), 9); /* out of range */
    weft_value unfolded[2] = {weft_dropout(g, c, 0.5), weft_embedding(g, c, index, -1)};
    weft_error error = {0};
    weft_plan *plan = weft_plan_new(g, unfolded, 2, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_BAD_INDEX);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* A guard stands however constant what it reads is, and two equal ones become one that stands. */
static void test_guards(void)
{
    for (int count = 1; count <= 2; count++) {
        weft_graph *g = weft_graph_new();
        weft_value one = weft_scalar(g, WEFT_F32, 1), y[2];
        weft_value bad = weft_log(g, weft_scalar(g, WEFT_F32, -1));
        for (int i = 0; i < count; i++) y[i] = weft_require_finite(g, one, &bad, 1);
        weft_error error = {0};
        weft_plan *plan = weft_plan_new(g, y, (size_t)count, NULL, &error);
        weft_session *s = weft_session_new(plan, NULL, NULL, &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(s);
        CU_ASSERT_EQUAL(weft_session_run(s, &error), WEFT_NOT_FINITE);
        CU_ASSERT_STRING_EQUAL(error.where, "require_finite");
        weft_session_free(s);
        weft_plan_free(plan);
        weft_graph_free(g);
    }
}

static void kernel_never(const weft_call *call, int64_t tile)
{
    (void)tile;
    *(float *)call->out[0].data = 0;
    weft_call_fail(call, 7, 5);
}
static bool infer_scalar(weft_infer *infer)
{
    infer->out[0] = (weft_type){WEFT_F32, WEFT_SCALAR};
    return true;
}

/* A program's own op that fails and does not say so is left to the run all the same. */
static void test_undeclared_fault(void)
{
    const weft_op never = {.name = "never",
                           .n_out = 1,
                           .infer = infer_scalar,
                           .kernel = {{kernel_never}},
                           .gradient = WEFT_GRADIENT_NONE};
    weft_graph *g = weft_graph_new();
    weft_value y = weft_apply(g, &never, NULL, NULL, 0, NULL);
    weft_error error = {0};
    weft_plan *plan = weft_plan_new(g, &y, 1, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_BAD_INDEX);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* A target that is a version of a state which a later update of the plan overwrites retains what it
 * had; a state that is asked for by its own value reads what the store holds. */
static void test_versions(void)
{
    weft_graph *g = weft_graph_new();
    weft_value w = weft_state(g, "w", WEFT_F32, WEFT_SHAPE(2), WEFT_INIT_ONES);
    weft_value first = weft_assign(g, w, weft_mul_scalar(g, w, 2));
    weft_value old = weft_mul_scalar(g, first, 1);
    weft_value second = weft_assign(g, first, weft_add_scalar(g, first, 5));
    weft_value targets[] = {first, second, old, w};
    weft_error error = {0};
    weft_params *params = weft_params_new();
    CU_ASSERT_EQUAL(weft_params_init(params, g, 1, &error), WEFT_OK);
    weft_plan *plan = weft_plan_new(g, targets, 4, &(weft_plan_options){.verify = true}, &error);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    float expected = 1;
    for (int run = 0; run < 3; run++) {
        float got[4][2];
        CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
        for (int i = 0; i < 4; i++)
            CU_ASSERT_EQUAL(weft_session_fetch(s, targets[i], got[i], sizeof got[i], NULL),
                            WEFT_OK);
        CU_ASSERT_EQUAL(got[0][1], 2 * expected);
        CU_ASSERT_EQUAL(got[2][1], 2 * expected);
        expected = 2 * expected + 5;
        CU_ASSERT_EQUAL(got[1][1], expected);
        CU_ASSERT_EQUAL(got[3][1], expected);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
}

/* A plan of a pass that replaced w * 1 by the state w: the target would read the updated
 * parameter. */
static void test_wrong_version(void)
{
    weft_graph *g = weft_graph_new();
    weft_value w = weft_state(g, "w", WEFT_F32, WEFT_SHAPE(2), WEFT_INIT_ONES);
    weft_value y = weft_mul_scalar(g, w, 1), next = weft_assign(g, w, weft_add_scalar(g, w, 5));
    weft_value targets[] = {y, next};
    weft_error error = {0};
    weft_plan *plan = weft_plan_new(g, targets, 2, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    CU_ASSERT_EQUAL(weft_plan_check(plan, &error), WEFT_OK);
    const uint32_t was = plan->map[y.id], state = weft_graph_find(plan->graph, "w").id;
    plan->map[y.id] = state;
    CU_ASSERT_EQUAL(weft_plan_check(plan, &error), WEFT_INTERNAL);
    plan->targets[0].value.id = state;
    CU_ASSERT_EQUAL(weft_plan_check(plan, NULL), WEFT_INTERNAL);
    plan->targets[0].value.id = plan->map[y.id] = was;
    CU_ASSERT_EQUAL(weft_plan_check(plan, NULL), WEFT_OK);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* A graph whose values lie elsewhere, or are other versions, than their ops say is refused. */
static void test_wrong_storage(void)
{
    weft_graph *g = weft_graph_new();
    weft_value w = weft_state(g, "w", WEFT_F32, WEFT_SHAPE(2, 3), WEFT_INIT_ONES);
    weft_value transposed = weft_transpose(g, w, 0, 1), y = weft_neg(g, transposed);
    weft_value next = weft_assign(g, w, weft_mul_scalar(g, w, 2)),
               later = weft_slice(g, next, 0, 0, 1, 1);
    const weft_value all[] = {w, transposed, y, next, later};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        value_record *v = &g->values[all[i].id], old = *v;
        CU_ASSERT_EQUAL(weft_graph_verify(g, NULL), WEFT_OK);
        v->version = v->version == w.id ? next.id : w.id;
        if (all[i].id != w.id) CU_ASSERT_EQUAL(weft_graph_verify(g, NULL), WEFT_INTERNAL);
        *v = old;
        v->root = v->root == w.id ? y.id : w.id;
        if (all[i].id != w.id) CU_ASSERT_EQUAL(weft_graph_verify(g, NULL), WEFT_INTERNAL);
        *v = old;
        v->layout.offset++;
        CU_ASSERT_EQUAL(weft_graph_verify(g, NULL), WEFT_INTERNAL);
        *v = old;
    }
    weft_graph_free(g);
}

/* "expected NAME, ..., all": the optional passes of the library in their order, as the table of
 * DESIGN.md has them in rows that begin with | `NAME` |, or with more words after the name. */
static void expected_passes(char *text, size_t size)
{
    char line[1024], name[32], after[32];
    bool inside = false;
    FILE *file = fopen(WEFT_SOURCE_DIR "/DESIGN.md", "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    size_t n = (size_t)snprintf(text, size, "expected ");
    while (fgets(line, sizeof line, file)) {
        if (!strncmp(line, "| pass |", 8)) inside = true;
        if (inside && line[0] != '|') break;
        if (!inside || sscanf(line, "| `%31[a-z_]` %31s", name, after) != 2) continue;
        if (strcmp(after, "(required)") != 0 && n < size)
            n += (size_t)snprintf(text + n, size - n, "%s, ", name);
    }
    fclose(file);
    if (n < size) snprintf(text + n, size - n, "all");
}

/* Names of passes that there are not, or that are required, are refused. */
static void test_skipped_passes(void)
{
    weft_graph *g = weft_graph_new();
    weft_value y = weft_neg(g, weft_scalar(g, WEFT_F32, 1));
    static const char *const good[] = {
        "", "cse", "fold,fuse", "all", ",cse,,fold,", "join_slices,join_products,reuse_dropout"};
    char expected[512];
    expected_passes(expected, sizeof expected);
    static const char *const bad[] = {"ces", "cse,folds", "expand", "layout", "cse fold", "al"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        weft_plan *plan = weft_plan_new(g, &y, 1, &(weft_plan_options){.skip = good[i]}, NULL);
        CU_ASSERT_PTR_NOT_NULL(plan);
        weft_plan_free(plan);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        weft_error error;
        CU_ASSERT_PTR_NULL(weft_plan_new(g, &y, 1, &(weft_plan_options){.skip = bad[i]}, &error));
        CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
        CU_ASSERT_STRING_EQUAL(error.where, "weft_plan_options.skip");
        const char *list = strstr(error.message, "expected ");
        CU_ASSERT_PTR_NOT_NULL_FATAL(list);
        CU_ASSERT_STRING_EQUAL(list, expected);
    }
    weft_graph_free(g);
}

/* The position of the first step that runs the op; SIZE_MAX if there is none. */
static size_t step_of(const weft_plan *plan, const char *op, weft_plan_step *found)
{
    size_t n;
    const weft_plan_step *steps = weft_plan_steps(plan, &n);
    for (size_t i = 0; i < n; i++)
        if (!strcmp(weft_graph_node(weft_plan_graph(plan), steps[i].node).op->name, op)) {
            *found = steps[i];
            return i;
        }
    return SIZE_MAX;
}

/* A node that frees more than it writes runs before nodes that were declared earlier. */
static void test_order_for_memory(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(64, 64));
    weft_value large = weft_exp(g, x);
    weft_value other = weft_matmul(g, x, x);
    weft_value mask = weft_greater(g, large, x);
    weft_value y = weft_where(g, mask, other, x);
    weft_plan_step product = {0}, comparison = {0};
    weft_plan *plan = weft_plan_new(g, &y, 1, &(weft_plan_options){.skip = "all"}, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    const size_t first = step_of(plan, "greater", &comparison);
    CU_ASSERT_TRUE(first < step_of(plan, "matmul", &product));
    CU_ASSERT_TRUE(comparison.interval < product.interval);
    CU_ASSERT_EQUAL(weft_plan_check(plan, NULL), WEFT_OK);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* Two products that could run side by side run one after another: their packed operands, which are
 * as large as the operands, are then not there at the same time. */
static void test_split_intervals(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1024, 1024));
    weft_value y[2] = {weft_input(g, "y0", WEFT_F32, WEFT_SHAPE(1024, 1024)),
                       weft_input(g, "y1", WEFT_F32, WEFT_SHAPE(1024, 1024))};
    weft_value z[2] = {weft_matmul(g, x, weft_transpose(g, y[0], 0, 1)),
                       weft_matmul(g, x, weft_transpose(g, y[1], 0, 1))};
    weft_plan *plan = weft_plan_new(g, z, 2, NULL, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    size_t n, scratch = 0;
    const weft_plan_buffer *buffers = weft_plan_buffers(plan, &n);
    for (size_t i = 0; i < n; i++)
        if (buffers[i].first == buffers[i].last) scratch += buffers[i].bytes;
    const weft_plan_stats stats = weft_plan_stats_of(plan);
    /* A library of products (WEFT_GEMM) packs by itself: then nothing is saved. */
    CU_ASSERT_EQUAL(stats.intervals, scratch ? 2 : 1);
    CU_ASSERT_EQUAL(stats.arena_bytes<stats.sum_bytes, scratch> 0);
    CU_ASSERT_EQUAL(weft_plan_check(plan, NULL), WEFT_OK);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* A rectangle for each buffer, the scopes, and what is not a picture. */
static void test_picture(void)
{
    static char text[1 << 16];
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    weft_graph_push_scope(g, "a<b");
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(8, 8));
    weft_value y = weft_softmax(g, weft_matmul(g, x, x), -1);
    weft_graph_pop_scope(g);
    weft_value z = weft_matmul(g, y, x);
    weft_graph_push_scope(g, "gradual");
    z = weft_matmul(g, z, x);
    weft_graph_pop_scope(g);
    weft_graph_push_scope(g, "grad");
    z = weft_matmul(g, z, x);
    weft_graph_pop_scope(g);
    weft_plan *plan = weft_plan_new(g, &z, 1, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(plan);
    FILE *file = fmemopen(text, sizeof text, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(weft_plan_write_svg(plan, file, &error), WEFT_OK);
    fclose(file);
    size_t rectangles = 0;
    for (const char *at = text; (at = strstr(at, "<title>")); at++) rectangles++;
    size_t n_buffers;
    CU_ASSERT_PTR_NOT_NULL(weft_plan_buffers(plan, &n_buffers));
    CU_ASSERT_EQUAL(rectangles, n_buffers);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, ">a&lt;b</text>"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "(no scope)"));
    /* Gradients have the scope of what they are gradients of, here none. */
    CU_ASSERT_PTR_NOT_NULL(strstr(text, ">gradual</text>"));
    CU_ASSERT_PTR_NULL(strstr(text, ">grad</text>"));
    const char *peak = strstr(text, ">peak: ");
    CU_ASSERT_PTR_NOT_NULL_FATAL(peak);
    CU_ASSERT_TRUE(!strncmp(peak - 7, "\"start\"", 7) || !strncmp(peak - 8, "\"middle\"", 8));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "</svg>"));
    CU_ASSERT_EQUAL(weft_plan_write_svg(plan, NULL, &error), WEFT_BAD_ARGUMENT);
    file = fopen("/dev/full", "w");
    if (file) {
        CU_ASSERT_EQUAL(weft_plan_write_svg(plan, file, &error), WEFT_IO);
        fclose(file);
    }
    weft_plan_free(plan);
    weft_graph_free(g);
}

void plan_tests(void)
{
    CU_pSuite suite = CU_add_suite("plan", NULL, NULL);
    CU_add_test(suite, "constants are folded", test_folding);
    CU_add_test(suite, "guards are not", test_guards);
    CU_add_test(suite, "an undeclared fault is left to the run", test_undeclared_fault);
    CU_add_test(suite, "versions of a state", test_versions);
    CU_add_test(suite, "a target that reads another version", test_wrong_version);
    CU_add_test(suite, "storages and versions of values", test_wrong_storage);
    CU_add_test(suite, "names of passes to skip", test_skipped_passes);
    CU_add_test(suite, "3000 random graphs, planned = unplanned", test_random_graphs);
    CU_add_test(suite, "nodes that free memory run early", test_order_for_memory);
    CU_add_test(suite, "intervals are split where memory is short", test_split_intervals);
    CU_add_test(suite, "a picture of the arena", test_picture);
    CU_add_test(suite, "corrupted plans fail the check", test_corrupted_plans);
}
