/* Where graphs are cut into stages, what each stage has, and what cannot be cut. */
#include "ranks.h"
#include "tests.h"

#include "pipeline.h"

#include <string.h>

static weft_ranks rank_of(int me, int size)
{
    return (weft_ranks){0, me, size};
}

/* ---- Balance ---- */

/* How many of the layers `prefix`.0 ... have all their parameters on stage `me` alone. */
static int whole_layers(const weft_stage *stage, const weft_graph *g, int layers, int me, int size)
{
    weft_value params[256];
    const size_t n = test_params(g, params, 256);
    int count = 0;
    for (int layer = 0; layer < layers; layer++) {
        char prefix[32];
        bool inside = true;
        size_t found = 0;
        snprintf(prefix, sizeof prefix, "layer.%d.", layer);
        for (size_t i = 0; i < n; i++) {
            const char *name = weft_name_of(g, params[i]);
            if (strncmp(name, prefix, strlen(prefix)) != 0) continue;
            found++;
            for (int r = 0; r < size; r++)
                inside = inside && weft__stage_holds(stage, name, r) == (r == me);
        }
        CU_ASSERT_TRUE_FATAL(found > 0);
        count += inside;
    }
    return count;
}

static void test_balance(void)
{
    weft_graph *g = weft_graph_new();
    weft_built built;
    test_build_model(g, "gpt layers=6 d_model=512 heads=8 d_ff=2048 vocab=100 length=32 batch=4",
                     true, &built);
    weft_stage *stages[3];
    for (int r = 0; r < 3; r++) {
        weft_error error = WEFT_NO_ERROR;
        stages[r] = weft__stage_new(g, &built.loss, 1, true, rank_of(r, 3), &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(stages[r]);
        for (int of = 0; of < 3; of++) CU_ASSERT_EQUAL(whole_layers(stages[r], g, 6, of, 3), 2);
    }
    /* All agree on who computes what, and each has what it computes. */
    weft_value v;
    size_t computed[3] = {0};
    for (uint32_t id = 1; weft_is_value(v = weft_value_from_id(g, id)); id++) {
        const int of = weft__stage_of(stages[0], v);
        CU_ASSERT_TRUE(of == weft__stage_of(stages[1], v) && of == weft__stage_of(stages[2], v));
        if (of < 0) continue;
        CU_ASSERT_TRUE(weft_is_value(weft__stage_value(stages[of], v)));
        computed[of]++;
    }
    CU_ASSERT_TRUE(computed[0] > 10 && computed[1] > 10 && computed[2] > 10);
    CU_ASSERT_EQUAL(weft__stage_of(stages[0], built.loss), 2);
    CU_ASSERT_FALSE(weft_is_value(weft__stage_value(stages[1], built.loss)));
    CU_ASSERT_EQUAL(weft__stage_of(stages[0], weft_built_input(&built, "target_in")), 0);
    CU_ASSERT_EQUAL(weft__stage_of(stages[0], weft_built_input(&built, "target_out")), 2);
    CU_ASSERT_FALSE(weft__stage_holds(stages[0], "no such parameter", 0));
    CU_ASSERT_FALSE(weft__stage_holds(stages[0], "layer.0.attn.query.weight", 3));
    for (int r = 0; r < 3; r++) {
        weft_graph *own = weft__stage_graph(stages[r]);
        CU_ASSERT_EQUAL(weft_graph_verify(own, NULL), WEFT_OK);
        weft__stage_free(stages[r]);
        weft_graph_free(own);
    }
    weft_graph_free(g);
}

/* Every cut is worse than the one before it: more stages need more than the best place. */
static void test_growing(void)
{
    enum { STEPS = 4 };
    weft_graph *g = weft_graph_new();
    weft_value h[STEPS], x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 4));
    for (int i = 0; i < STEPS; i++) {
        char name[8];
        snprintf(name, sizeof name, "w%d", i);
        h[i] = x = weft_matmul(
            g, x, weft_param(g, name, WEFT_F32, WEFT_SHAPE(4 << i, 8 << i), WEFT_INIT_XAVIER));
    }
    for (int r = 0; r < STEPS; r++) {
        weft_error error = WEFT_NO_ERROR;
        weft_stage *stage = weft__stage_new(g, &x, 1, true, rank_of(r, STEPS), &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(stage);
        for (int i = 0; i < STEPS; i++) CU_ASSERT_EQUAL(weft__stage_of(stage, h[i]), i);
        weft__stage_free(stage);
    }
    weft_graph_free(g);
}

/* ---- Without a backward pass ---- */

enum { ROWS = 2, WIDTH = 4, LAYERS = 4 };

typedef struct net {
    weft_graph *g;
    weft_value x, view, hidden[LAYERS], y, counter;
} net;

/* y = tanh(... tanh(x w0) ... w3), a view of a parameter, and a counter. */
static net net_new(void)
{
    net n = {.g = weft_graph_new()};
    weft_value count = weft_state(n.g, "count", WEFT_F64, WEFT_SCALAR, WEFT_INIT_ZEROS);
    n.y = n.x = weft_input(n.g, "x", WEFT_F64, WEFT_SHAPE(ROWS, WIDTH));
    n.counter = weft_assign(n.g, count, weft_add_scalar(n.g, count, 1));
    weft_value shared =
        weft_param(n.g, "shared", WEFT_F64, WEFT_SHAPE(ROWS * WIDTH), WEFT_INIT_ONES);
    n.view = weft_reshape(n.g, shared, WEFT_SHAPE(ROWS, WIDTH));
    for (int i = 0; i < LAYERS; i++) {
        weft_graph_push_scope(n.g, "block.%d", i);
        weft_value w = weft_param(n.g, "w", WEFT_F64, WEFT_SHAPE(WIDTH, WIDTH), WEFT_INIT_XAVIER);
        n.y = n.hidden[i] = weft_name(n.g, weft_tanh(n.g, weft_matmul(n.g, n.y, w)), "hidden");
        weft_graph_pop_scope(n.g);
    }
    return n;
}

typedef struct forward {
    double whole[ROWS * WIDTH], y[ROWS * WIDTH], count;
} forward;

/* Runs a net, or a stage of one, twice, and reads y and the counter where they are not NO_VALUE. */
static void run_net(const net *part, weft_value sent, weft_communicator *c, double *out,
                    double *count, weft_error *error)
{
    weft_graph *g = part->g;
    const weft_value x = part->x, y = part->y, counter = part->counter;
    const weft_session_options o = {
        .threads = 1, .communicators = &c, .n_communicators = c != NULL};
    const weft_value all[3] = {y, counter, sent};
    weft_value targets[3];
    size_t n = 0;
    for (int i = 0; i < 3; i++)
        if (weft_is_value(all[i])) targets[n++] = all[i];
    weft_params *store = weft_params_new();
    weft_plan *plan = NULL;
    weft_session *s = NULL;
    double data[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) data[i] = i - 3.5;
    if (weft_params_init(store, g, 3, error) == WEFT_OK)
        plan = weft_plan_new(g, targets, n, &(weft_plan_options){.verify = true}, error);
    if (plan) s = weft_session_new(plan, store, &o, error);
    if (s && weft_is_value(x)) weft_session_feed(s, x, data, sizeof data, NULL);
    for (int i = 0; s && error->status == WEFT_OK && i < 2; i++) weft_session_run(s, error);
    if (s && weft_is_value(y)) weft_session_fetch(s, y, out, ROWS * WIDTH * sizeof *out, NULL);
    if (s && weft_is_value(counter)) weft_session_fetch(s, counter, count, sizeof *count, NULL);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(store);
}

static void forward_stage(rank *r)
{
    forward *f = r->shared;
    weft_communicator *c = r->communicator;
    net n = net_new();
    const weft_value targets[2] = {n.y, n.counter};
    weft_stage *stage =
        weft__stage_new(n.g, targets, 2, false, rank_of(c->rank, c->size), &r->error);
    weft_graph_free(n.g);
    if (!stage) return;
    weft_graph *g = weft__stage_graph(stage);
    const weft_value sent = weft__stage_sent(stage);
    const net part = {.g = g,
                      .x = weft__stage_value(stage, n.x),
                      .y = weft__stage_value(stage, n.y),
                      .counter = weft__stage_value(stage, n.counter)};
    run_net(&part, sent, c, f->y, &f->count, &r->error);
    if (weft_graph_status(g) != WEFT_OK) weft_error_copy(&r->error, weft_graph_error(g));
    weft__stage_free(stage);
    weft_graph_free(g);
}

static void test_forward(void)
{
    rank ranks[MAX_RANKS];
    for (int size = 1; size <= 4; size++) {
        forward f = {.count = -1};
        weft_error error = WEFT_NO_ERROR;
        double count = 0;
        net n = net_new();
        run_net(&n, WEFT_NO_VALUE, NULL, f.whole, &count, &error);
        CU_ASSERT_EQUAL(error.status, WEFT_OK);
        run_ranks(size, forward_stage, &f, ranks);
        expect_good(ranks, size);
        CU_ASSERT_EQUAL(memcmp(f.whole, f.y, sizeof f.y), 0);
        CU_ASSERT_TRUE(f.y[0] != 0);
        CU_ASSERT_EQUAL(count, 2);
        CU_ASSERT_EQUAL(f.count, 2);
        weft_graph_free(n.g);
    }
}

/* ---- Names ---- */

/* What a stage has keeps names and scopes, also what it receives. */
static void test_names(void)
{
    net n = net_new();
    for (int r = 0; r < 2; r++) {
        weft_error error = WEFT_NO_ERROR;
        int named = 0;
        weft_stage *stage = weft__stage_new(n.g, &n.y, 1, true, rank_of(r, 2), &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(stage);
        weft_graph *g = weft__stage_graph(stage);
        for (int i = 0; i < LAYERS; i++) {
            const weft_value v = weft__stage_value(stage, n.hidden[i]);
            if (!weft_is_value(v)) continue;
            named++;
            CU_ASSERT_STRING_EQUAL(weft_name_of(g, v), weft_name_of(n.g, n.hidden[i]));
            if (weft__stage_of(stage, n.hidden[i]) != r) continue;
            CU_ASSERT_STRING_EQUAL(weft_graph_node(g, weft_producer_of(g, v)).scope,
                                   weft_graph_node(n.g, weft_producer_of(n.g, n.hidden[i])).scope);
        }
        CU_ASSERT_TRUE(named > 0);
        /* Nothing counts unless it is a target. */
        CU_ASSERT_EQUAL(weft__stage_of(stage, n.counter), -1);
        CU_ASSERT_FALSE(weft_is_value(weft__stage_value(stage, n.counter)));
        weft__stage_free(stage);
        weft_graph_free(g);
    }
    weft_graph_free(n.g);
}

/* A target that depends on no parameter is computed by the last stage. */
static void test_counter(void)
{
    net n = net_new();
    weft_error error = WEFT_NO_ERROR;
    const weft_value targets[2] = {n.counter, n.y};
    weft_stage *stage = weft__stage_new(n.g, targets, 2, true, rank_of(0, 2), &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(stage);
    CU_ASSERT_EQUAL(weft__stage_of(stage, n.counter), 1);
    CU_ASSERT_TRUE(weft__stage_holds(stage, "count", 1));
    CU_ASSERT_FALSE(weft__stage_holds(stage, "count", 0));
    weft__stage_free(stage);
    weft_graph_free(n.g);
}

/* A view that is declared early is part of the stage that reads it, and nothing is sent. */
static void test_views(void)
{
    net n = net_new();
    weft_value late = weft_add(n.g, n.y, n.view);
    for (int r = 0; r < 2; r++) {
        weft_error error = WEFT_NO_ERROR;
        weft_stage *stage = weft__stage_new(n.g, &late, 1, true, rank_of(r, 2), &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(stage);
        CU_ASSERT_FALSE(weft__stage_holds(stage, "shared", 0));
        CU_ASSERT_TRUE(weft__stage_holds(stage, "shared", 1));
        CU_ASSERT_EQUAL(weft__stage_of(stage, n.view), 1);
        weft__stage_free(stage);
    }
    weft_graph_free(n.g);
}

/* ---- When exchanges begin and end ---- */

/* The exchanges of a graph, in order: > begins to send, < to receive, . ends; | is before `pause`.
 */
static void list_exchanges(const weft_graph *g, weft_value pause, char *text)
{
    for (size_t k = 0; k < weft_graph_node_count(g); k++) {
        const weft_node_info node = weft_graph_node(g, k);
        if (weft_is_value(pause) && weft_producer_of(g, pause) == k) *text++ = '|';
        if (!strcmp(node.op->name, "exchange_wait")) *text++ = '.';
        if (strcmp(node.op->name, "exchange_start") != 0) continue;
        const weft_value received = weft_value_from_id(g, node.first_out);
        *text++ = weft_dim_of(g, received, 0) ? '<' : '>';
    }
    *text = 0;
}

static void test_order(void)
{
    static const char *const expected[3] = {"><|..", "<.><|..>.", "<.>."};
    for (int r = 0; r < 3; r++) {
        net n = net_new();
        char text[64];
        weft_error error = WEFT_NO_ERROR;
        weft_value pause, loss = weft_mean(n.g, weft_square(n.g, n.y), WEFT_ALL_AXES, false);
        weft_stage *stage = weft__stage_new(n.g, &loss, 1, true, rank_of(r, 3), &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(stage);
        weft_graph *g = weft__stage_graph(stage);
        const weft_value one = weft_scalar(g, WEFT_F64, 1);
        weft__stage_grad(stage, &(weft_grad_values){&loss, &one, 1, NULL, 0}, NULL, NULL, &pause);
        CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
        CU_ASSERT_EQUAL(weft_is_value(pause), r < 2);
        list_exchanges(g, pause, text);
        CU_ASSERT_STRING_EQUAL(text, expected[r]);
        weft__stage_free(stage);
        weft_graph_free(g);
        weft_graph_free(n.g);
    }
}

/* ---- Outputs of several stages ---- */

/* The gradient of x, from cotangents of the first hidden layer and of y. */
static weft_value gradient_of_x(const net *n, weft_stage *stage, net *part)
{
    const weft_value outputs[2] = {n->hidden[0], n->y};
    weft_value cotangents[2], sent = WEFT_NO_VALUE;
    for (int i = 0; i < 2; i++)
        cotangents[i] = weft_fill(part->g, WEFT_F64, WEFT_SHAPE(ROWS, WIDTH), i ? 3 : 1);
    const weft_grad_values values = {outputs, cotangents, 2, &part->x, weft_is_value(part->x)};
    if (stage)
        sent = weft__stage_grad(stage, &values, &part->y, NULL, NULL);
    else
        weft_grad_each(part->g, &values, &part->y, NULL);
    return sent;
}

static void backward_stage(rank *r)
{
    forward *f = r->shared;
    weft_communicator *c = r->communicator;
    net n = net_new();
    const weft_value targets[2] = {n.hidden[0], n.y};
    weft_stage *stage =
        weft__stage_new(n.g, targets, 2, true, rank_of(c->rank, c->size), &r->error);
    weft_graph_free(n.g);
    if (!stage) return;
    net part = {.g = weft__stage_graph(stage), .x = weft__stage_value(stage, n.x)};
    const weft_value sent = gradient_of_x(&n, stage, &part);
    run_net(&part, sent, c, f->y, NULL, &r->error);
    if (weft_graph_status(part.g) != WEFT_OK) weft_error_copy(&r->error, weft_graph_error(part.g));
    weft__stage_free(stage);
    weft_graph_free(part.g);
}

static void test_outputs(void)
{
    rank ranks[MAX_RANKS];
    for (int size = 2; size <= 4; size++) {
        forward f = {.count = 0};
        weft_error error = WEFT_NO_ERROR;
        net n = net_new(), whole = {.g = n.g, .x = n.x};
        gradient_of_x(&n, NULL, &whole);
        run_net(&whole, WEFT_NO_VALUE, NULL, f.whole, NULL, &error);
        CU_ASSERT_EQUAL(error.status, WEFT_OK);
        run_ranks(size, backward_stage, &f, ranks);
        expect_good(ranks, size);
        CU_ASSERT_EQUAL(memcmp(f.whole, f.y, sizeof f.y), 0);
        CU_ASSERT_TRUE(f.y[0] != 0);
        weft_graph_free(n.g);
    }
}

/* ---- What cannot be cut ---- */

static void expect_refused(const weft_graph *g, const weft_value *targets, size_t n,
                           weft_ranks ranks, const char *message)
{
    weft_error error = WEFT_NO_ERROR;
    CU_ASSERT_PTR_NULL(weft__stage_new(g, targets, n, true, ranks, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, message));
    if (!strstr(error.message, message)) printf("\n    %s: %s\n", error.where, error.message);
}

static void test_refusals(void)
{
    net n = net_new(), other = net_new();
    const weft_value wrong[2] = {n.y, other.y};
    expect_refused(n.g, &n.y, 1, rank_of(0, 9), "fewer than 9 stages");
    expect_refused(n.g, &n.x, 1, rank_of(0, 2), "the graph has 0");
    expect_refused(n.g, wrong, 2, rank_of(0, 2), "target 1 does not belong");
    expect_refused(n.g, WEFT_VALUES(WEFT_NO_VALUE), rank_of(0, 2), "target 0 does not belong");
    expect_refused(n.g, NULL, 0, rank_of(0, 2), "no targets");
    expect_refused(n.g, &n.y, 1, rank_of(2, 2), "rank 2 is outside [0, 2)");
    expect_refused(n.g, &n.y, 1, rank_of(0, 0), "rank 0 is outside [0, 0)");
    expect_refused(NULL, &n.y, 1, rank_of(0, 2), "the graph is NULL");
    weft_graph_fail(other.g, WEFT_BAD_ARGUMENT, "an earlier error");
    expect_refused(other.g, &other.y, 1, rank_of(0, 2), "an earlier error");
    weft_graph_free(n.g);
    weft_graph_free(other.g);
}

/* A state that the first stage would update, and the last one reads. */
static void test_updates(void)
{
    net n = net_new();
    weft_value kept = weft_state(n.g, "kept", WEFT_F64, WEFT_SHAPE(ROWS, WIDTH), WEFT_INIT_ZEROS);
    weft_value late = weft_add(n.g, n.y, weft_reshape(n.g, kept, WEFT_SHAPE(ROWS, WIDTH)));
    const weft_value together[2] = {weft_assign(n.g, kept, late), late};
    expect_refused(n.g, WEFT_VALUES(weft_assign(n.g, kept, n.hidden[0]), late), rank_of(0, 8),
                   "reads this state, but does not compute its update (assign)");
    for (int r = 0; r < 2; r++) {
        weft_error error = WEFT_NO_ERROR;
        weft_stage *stage = weft__stage_new(n.g, together, 2, true, rank_of(r, 2), &error);
        CU_ASSERT_PTR_NOT_NULL(stage);
        CU_ASSERT_EQUAL(weft__stage_holds(stage, "kept", r), r == 1);
        weft__stage_free(stage);
    }
    weft_graph_free(n.g);
}

static void test_backward_refusals(void)
{
    static const struct {
        const char *message;
        weft_status status;
    } expected[] = {{"made without `training`", WEFT_BAD_ARGUMENT},
                    {"no stage computes one of the outputs", WEFT_BAD_ARGUMENT},
                    {"wrt or grads is NULL", WEFT_BAD_ARGUMENT},
                    {"cotangent 0 is f32", WEFT_BAD_SHAPE}};
    for (int i = 0; i < 4; i++) {
        net n = net_new();
        weft_error error = WEFT_NO_ERROR;
        weft_value loss = weft_mean(n.g, n.y, WEFT_ALL_AXES, false);
        weft_stage *stage = weft__stage_new(n.g, &loss, 1, i > 0, rank_of(0, 1), &error);
        CU_ASSERT_PTR_NOT_NULL_FATAL(stage);
        weft_graph *g = weft__stage_graph(stage);
        weft_value pause, one = weft_scalar(g, i == 3 ? WEFT_F32 : WEFT_F64, 1);
        const weft_grad_values values = {i == 1 ? &n.counter : &loss, &one, 1, NULL, i == 2};
        weft_value all = weft__stage_grad(stage, &values, NULL, NULL, &pause);
        CU_ASSERT_FALSE(weft_is_value(pause));
        CU_ASSERT_FALSE(weft_is_value(all));
        CU_ASSERT_EQUAL(weft_graph_status(g), expected[i].status);
        CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, expected[i].message));
        weft__stage_free(stage);
        weft_graph_free(g);
        weft_graph_free(n.g);
    }
    CU_ASSERT_FALSE(weft_is_value(
        weft__stage_grad(NULL, &(weft_grad_values){NULL, NULL, 0, NULL, 0}, NULL, NULL, NULL)));
    CU_ASSERT_FALSE(weft_is_value(weft__stage_sent(NULL)));
    CU_ASSERT_PTR_NULL(weft__stage_graph(NULL));
    CU_ASSERT_EQUAL(weft__stage_of(NULL, WEFT_NO_VALUE), -1);
    CU_ASSERT_FALSE(weft_is_value(weft__stage_value(NULL, WEFT_NO_VALUE)));
    weft__stage_free(NULL);
}

void stage_cuts_tests(void)
{
    CU_pSuite suite = CU_add_suite("stage_cuts", NULL, NULL);
    CU_add_test(suite, "six layers in three stages", test_balance);
    CU_add_test(suite, "values that only grow", test_growing);
    CU_add_test(suite, "without a backward pass", test_forward);
    CU_add_test(suite, "names and scopes", test_names);
    CU_add_test(suite, "a target without parameters", test_counter);
    CU_add_test(suite, "views of parameters", test_views);
    CU_add_test(suite, "when exchanges begin and end", test_order);
    CU_add_test(suite, "outputs of several stages", test_outputs);
    CU_add_test(suite, "what cannot be cut", test_refusals);
    CU_add_test(suite, "states that are updated", test_updates);
    CU_add_test(suite, "backward passes that are refused", test_backward_refusals);
}
