/* Roles and origins of nodes: what differentiation and training steps set, and passes retain; and
 * what a plan reports about its steps and buffers. */
#include "tests.h"

#include <stdlib.h>
#include <string.h>

typedef struct trained {
    weft_graph *g;
    weft_plan *plan;
    weft_role *roles; /* by origin */
    size_t n_origins;
} trained;

static void open_trained(trained *t)
{
    const weft_optimizer adam = WEFT_ADAM_DEFAULT;
    weft_built built;
    weft_error error = WEFT_NO_ERROR;
    *t = (trained){.g = weft_graph_new()};
    CU_ASSERT_EQUAL(weft_model_build_text(t->g, weft_model_find("gpt"),
                                          (const char *[]){"layers=2", "d_model=32"}, 2, true,
                                          &built, &error),
                    WEFT_OK);
    const size_t n_forward = weft_graph_node_count(t->g);
    const weft_value lr = weft_input(t->g, "rate", WEFT_F32, WEFT_SCALAR);
    const weft_value step = weft_train_update(t->g, built.loss, NULL, 0, lr, &adam, NULL);
    const size_t n = weft_graph_node_count(t->g);
    t->roles = calloc(n + 1, sizeof *t->roles);
    for (size_t i = 0; i < n; i++) {
        const weft_node_info node = weft_graph_node(t->g, i);
        CU_ASSERT_EQUAL_FATAL(node.origin, i + 1);
        t->roles[node.origin] = node.role;
        if (i < n_forward) CU_ASSERT_EQUAL(node.role.direction, WEFT_FORWARD);
    }
    t->n_origins = n;
    t->plan = weft_plan_new(t->g, WEFT_VALUES(built.loss, step), NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(t->plan);
}

static void close_trained(trained *t)
{
    weft_plan_free(t->plan);
    weft_graph_free(t->g);
    free(t->roles);
}

/* Every node of the forward pass with a matrix product has gradients that say so. */
static void test_roles(void)
{
    trained t;
    open_trained(&t);
    bool *has_gradient = calloc(t.n_origins + 1, sizeof *has_gradient);
    for (size_t s = 1; s <= t.n_origins; s++) {
        const weft_role role = t.roles[s];
        CU_ASSERT_TRUE(role.gradient_of < s);
        if (role.direction != WEFT_BACKWARD) CU_ASSERT_EQUAL(role.gradient_of, 0);
        has_gradient[role.gradient_of] = true;
        if (weft_graph_node(t.g, s - 1).op->updates) CU_ASSERT_EQUAL(role.direction, WEFT_UPDATE);
    }
    for (size_t s = 1; s <= t.n_origins; s++)
        if (!strcmp(weft_graph_node(t.g, s - 1).op->name, "matmul") &&
            t.roles[s].direction == WEFT_FORWARD)
            CU_ASSERT_TRUE(has_gradient[s]);
    const weft_role plain = weft_graph_set_role(t.g, (weft_role){WEFT_FORWARD, 0});
    CU_ASSERT_EQUAL(plain.direction, WEFT_FORWARD);
    free(has_gradient);
    close_trained(&t);
}

/* A plan's nodes have the roles of the nodes that they come from. */
static void test_passes(void)
{
    trained t;
    size_t directions[3] = {0};
    open_trained(&t);
    const weft_graph *g = weft_plan_graph(t.plan);
    for (size_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node_info node = weft_graph_node(g, i);
        CU_ASSERT_TRUE_FATAL(node.origin >= 1 && node.origin <= t.n_origins);
        CU_ASSERT_EQUAL(node.role.direction, t.roles[node.origin].direction);
        CU_ASSERT_EQUAL(node.role.gradient_of, t.roles[node.origin].gradient_of);
        directions[node.role.direction]++;
    }
    CU_ASSERT_TRUE(directions[WEFT_FORWARD] && directions[WEFT_BACKWARD] &&
                   directions[WEFT_UPDATE]);
    close_trained(&t);
}

/* A copy of a node keeps its origin; new nodes have others. */
static void test_copies(void)
{
    weft_graph *a = weft_graph_new(), *b = weft_graph_new();
    const weft_value x = weft_input(a, "x", WEFT_F32, WEFT_SCALAR);
    weft_graph_set_role(a, (weft_role){WEFT_BACKWARD, 1});
    weft_tanh(a, x);
    weft_value y = weft_graph_copy_node(b, a, 0, NULL, NULL);
    y = weft_graph_copy_node(b, a, 1, &y, NULL);
    weft_exp(b, y);
    CU_ASSERT_EQUAL(weft_graph_node(b, 1).origin, 2);
    CU_ASSERT_EQUAL(weft_graph_node(b, 1).role.direction, WEFT_BACKWARD);
    CU_ASSERT_EQUAL(weft_graph_node(b, 2).origin, 3);
    CU_ASSERT_EQUAL(weft_graph_node(b, 2).role.direction, WEFT_FORWARD);
    weft_graph_free(a);
    weft_graph_free(b);
}

/* Steps are in order, heads are in the intervals of their nodes, and what a step computes lies in a
 * buffer that is alive then. */
static void test_steps(void)
{
    trained t;
    open_trained(&t);
    size_t n, n_buffers;
    const weft_graph *g = weft_plan_graph(t.plan);
    const weft_plan_step *steps = weft_plan_steps(t.plan, &n);
    const weft_plan_buffer *buffers = weft_plan_buffers(t.plan, &n_buffers);
    size_t fused = 0, placed = 0, last_head = SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        const weft_node_info node = weft_graph_node(g, steps[i].node);
        if (i) CU_ASSERT_TRUE(steps[i].interval - steps[i - 1].interval <= 1);
        if (i) CU_ASSERT_TRUE(steps[i].superstep - steps[i - 1].superstep <= 1);
        CU_ASSERT_FALSE(steps[i].fixed);
        if (steps[i].head == steps[i].node)
            last_head = steps[i].node;
        else
            fused++;
        CU_ASSERT_EQUAL(steps[i].head, last_head);
        for (uint32_t k = 0; k < node.n_out; k++) {
            const size_t b = weft_plan_buffer_of(t.plan, weft_value_from_id(g, node.first_out + k));
            if (b == SIZE_MAX) continue;
            placed++;
            CU_ASSERT_TRUE_FATAL(b < n_buffers);
            CU_ASSERT_TRUE(buffers[b].first <= steps[i].interval &&
                           steps[i].interval <= buffers[b].last);
        }
        if (steps[i].scratch == SIZE_MAX) continue;
        CU_ASSERT_TRUE(node.op->scratch != NULL);
        CU_ASSERT_TRUE_FATAL(steps[i].scratch < n_buffers);
        CU_ASSERT_EQUAL(buffers[steps[i].scratch].first, steps[i].interval);
        CU_ASSERT_EQUAL(buffers[steps[i].scratch].last, steps[i].interval);
    }
    CU_ASSERT_EQUAL(fused, weft_plan_stats_of(t.plan).fused);
    CU_ASSERT_EQUAL(steps[n - 1].interval + 1, weft_plan_stats_of(t.plan).intervals);
    CU_ASSERT_TRUE(placed > 0);
    CU_ASSERT_EQUAL(weft_plan_buffer_of(t.plan, WEFT_NO_VALUE), SIZE_MAX);
    close_trained(&t);
}

void roles_tests(void)
{
    CU_pSuite suite = CU_add_suite("roles", NULL, NULL);
    CU_add_test(suite, "of a training step", test_roles);
    CU_add_test(suite, "retained by passes", test_passes);
    CU_add_test(suite, "of copies", test_copies);
    CU_add_test(suite, "steps and buffers of a plan", test_steps);
}
