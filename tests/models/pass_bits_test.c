/* Optional passes and bits (docs/arithmetic.md): plans with and without each pass, of all models of
 * the list and of graphs made for the passes. A pass keeps all bits, or is named below with what it
 * changes. */
#include "commands/changing_passes.h"
#include "tests.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- What passes change ---- */

typedef enum changes {
    NOTHING,
    SIGN_OF_ZERO,
    BITS /* and some case must show it */
} changes;

static const struct {
    const char *pass;
    changes changes;
    const char *why;
} passes[] = {
    {"join_slices", SIGN_OF_ZERO, "a zero that was added makes +0 of -0"},
    {"join_products", BITS, "one product over all terms rounds less often than a sum of products"},
    {"reuse_dropout", NOTHING, NULL},
    {"cse", NOTHING, NULL},
    {"fold_conv", BITS,
     "scales and shifts are multiplied into weights and bias, and rounded there"},
    {"fold", NOTHING, NULL},
    {"attention", BITS, "an online softmax instead of products and a softmax"},
    {"channels_last", BITS, "sums over an image add along other strides"},
    {"winograd", BITS, "Winograd's method rounds the transforms of images and weights"},
    {"pack_weights", BITS, "a chain where the product would be by dots"},
    {"tiles", BITS, "operands are rounded to bf16, and sums have another order"},
    {"precision", BITS, "values are rounded to bf16"},
    {"recompute", NOTHING, NULL},
    {"fuse", NOTHING, NULL},
};
enum { PASSES = sizeof passes / sizeof *passes };

/* ---- Cases ---- */

#define MAX_TARGETS 256

typedef struct pass_case {
    const char *name;
    weft_graph *graph;
    weft_value targets[MAX_TARGETS];
    size_t n;
    int64_t vocab;
    weft_plan_options options;
} pass_case;

static weft_value input(pass_case *c, const char *name, weft_shape shape)
{
    return weft_input(c->graph, name, WEFT_F32, shape);
}

static weft_value parameter(pass_case *c, const char *name, weft_shape shape)
{
    return weft_param(c->graph, name, WEFT_F32, shape, (weft_init){WEFT_INIT_UNIFORM, -1, 1});
}

static void target(pass_case *c, weft_value value)
{
    CU_ASSERT_TRUE_FATAL(c->n < MAX_TARGETS);
    c->targets[c->n++] = value;
}

/* The gradients of y for x, with a cotangent that is an input. */
static void gradients(pass_case *c, weft_value y, const weft_value *x, size_t n)
{
    const weft_value dy = input(c, "dy", weft_shape_of(c->graph, y));
    CU_ASSERT_TRUE_FATAL(c->n + n <= MAX_TARGETS);
    weft_grad_of(c->graph, &y, &dy, 1, x, n, c->targets + c->n);
    c->n += n;
}

/* Slices of a split, some of whose gradients are -0. */
static void slices(pass_case *c)
{
    static const char *const names[] = {"a", "b", "c"};
    const weft_value x = input(c, "x", WEFT_SHAPE(4, 12));
    weft_value parts[3];
    for (int i = 0; i < 3; i++)
        parts[i] = weft_mul(c->graph, weft_slice(c->graph, x, 1, 4 * i, 4 * i + 4, 1),
                            weft_relu(c->graph, input(c, names[i], WEFT_SHAPE(4, 4))));
    gradients(c, weft_concat(c->graph, parts, 3, 1), &x, 1);
}

/* Steps that share a matrix, as of a recurrent layer. */
static void products(pass_case *c)
{
    const weft_value w = parameter(c, "w", WEFT_SHAPE(24, 24));
    weft_value h = input(c, "h", WEFT_SHAPE(3, 24));
    for (int i = 0; i < 5; i++) h = weft_tanh(c->graph, weft_matmul(c->graph, h, w));
    gradients(c, h, &w, 1);
}

static void dropouts(pass_case *c)
{
    const weft_value x = input(c, "x", WEFT_SHAPE(30, 40));
    gradients(c, weft_dropout(c->graph, weft_relu(c->graph, x), 0.3), &x, 1);
}

static void attention(pass_case *c)
{
    const weft_value q = input(c, "q", WEFT_SHAPE(2, 3, 20, 16)),
                     k = input(c, "k", WEFT_SHAPE(2, 3, 70, 16)),
                     v = input(c, "v", WEFT_SHAPE(2, 3, 70, 16));
    weft_value s = weft_matmul(c->graph, q, weft_transpose(c->graph, k, -1, -2));
    s = weft_softmax(c->graph, weft_mul_scalar(c->graph, s, 0.25), -1);
    target(c, weft_matmul(c->graph, s, v));
}

/* Batch norm in evaluation, and what may follow a convolution. */
static void convolutions(pass_case *c)
{
    weft_graph *g = c->graph;
    const weft_conv_options pad = {.pad_begin = {1, 1}, .pad_end = {1, 1}},
                            wise = {.pad_begin = {1, 1}, .pad_end = {1, 1}, .groups = 40};
    weft_value x = input(c, "x", WEFT_SHAPE(2, 3, 17, 19));
    x = weft_conv(g, x, parameter(c, "w1", WEFT_SHAPE(40, 3, 3, 3)), WEFT_NO_VALUE, &pad);
    x = weft_mul(g, x,
                 weft_reshape(g, parameter(c, "scale", WEFT_SHAPE(40)), WEFT_SHAPE(40, 1, 1)));
    x = weft_relu(g, weft_add(g, x, parameter(c, "shift", WEFT_SHAPE(40, 1, 1))));
    target(c, weft_conv(g, x, parameter(c, "w2", WEFT_SHAPE(40, 1, 3, 3)), WEFT_NO_VALUE, &wise));
    x = weft_conv(g, x, parameter(c, "w3", WEFT_SHAPE(33, 40, 1, 1)), WEFT_NO_VALUE, NULL);
    target(c, weft_max_pool(g, x, &(weft_pool_options){.kernel = {2, 2}, .stride = {2, 2}}, NULL));
    target(c, weft_mean(g, x, WEFT_AXES(2, 3), false));
    c->options.fixed_states = true;
}

/* As many channels as Winograd's method needs to pay. */
static void wide_convolution(pass_case *c)
{
    const weft_value x = input(c, "x", WEFT_SHAPE(1, 64, 12, 12));
    target(c, weft_conv(c->graph, x, parameter(c, "w", WEFT_SHAPE(64, 64, 3, 3)), WEFT_NO_VALUE,
                        &(weft_conv_options){.pad_begin = {1, 1}, .pad_end = {1, 1}}));
    c->options.fixed_states = true;
}

/* Kernels of more taps than a product adds in one chain. */
static void large_kernels(pass_case *c)
{
    const weft_value x = input(c, "x", WEFT_SHAPE(2, 4, 30, 31)),
                     one = weft_slice(c->graph, x, 1, 0, 1, 1);
    const weft_value w = parameter(c, "w", WEFT_SHAPE(4, 1, 12, 13)),
                     v = parameter(c, "v", WEFT_SHAPE(1, 1, 12, 13));
    target(c, weft_conv(c->graph, x, w, WEFT_NO_VALUE, &(weft_conv_options){.groups = 4}));
    target(c, weft_conv(c->graph, one, v, WEFT_NO_VALUE, NULL));
    c->options.fixed_states = true;
}

/* A matrix whose columns lie dense, and one whose rows do. */
static void fixed_products(pass_case *c)
{
    const weft_value x = input(c, "x", WEFT_SHAPE(5, 256));
    const weft_value table = parameter(c, "table", WEFT_SHAPE(70, 256));
    target(c, weft_matmul(c->graph, x, parameter(c, "w", WEFT_SHAPE(256, 90))));
    target(c, weft_matmul(c->graph, x, weft_transpose(c->graph, table, 0, 1)));
    c->options.fixed_states = true;
}

static void narrow(pass_case *c)
{
    const weft_value x = input(c, "x", WEFT_SHAPE(64, 64));
    weft_value y =
        weft_exp(c->graph, weft_matmul(c->graph, x, parameter(c, "v", WEFT_SHAPE(64, 64))));
    target(c, weft_matmul(c->graph, y, parameter(c, "w", WEFT_SHAPE(64, 9))));
    c->options.precision = WEFT_PRECISION_BF16;
}

static void tiles(pass_case *c)
{
    narrow(c);
    c->options.precision = WEFT_PRECISION_BF16_TILES;
}

/* Layers whose outputs the backward pass reads, or computes again. */
static void deep(pass_case *c)
{
    weft_value w[12], x = input(c, "x", WEFT_SHAPE(64, 16));
    char name[8];
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "w%d", i);
        w[i] = parameter(c, name, WEFT_SHAPE(16, 16));
        x = weft_gelu(c->graph, weft_add_scalar(c->graph, weft_matmul(c->graph, x, w[i]), 0.5));
    }
    gradients(c, x, w, 12);
}

static const struct {
    const char *name;
    void (*build)(pass_case *c);
} graphs[] = {
    {"large kernels", large_kernels},
    {"slices", slices},
    {"products", products},
    {"dropouts", dropouts},
    {"attention", attention},
    {"convolutions", convolutions},
    {"wide convolution", wide_convolution},
    {"fixed products", fixed_products},
    {"narrow", narrow},
    {"tiles", tiles},
};
enum { GRAPHS = sizeof graphs / sizeof *graphs };

/* ---- Running them ---- */

static void fill(weft_dtype dtype, int64_t n, int64_t vocab, uint64_t seed, void *data)
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == WEFT_F32)
            ((float *)data)[i] = n == 1 ? 1e-3f : (float)test_uniform(&seed, -1, 1);
        else if (dtype == WEFT_I32)
            ((int32_t *)data)[i] = vocab ? (int32_t)(test_random(&seed) % (uint64_t)vocab) : 0;
        else
            ((uint8_t *)data)[i] = test_random(&seed) % 8 == 0;
    }
}

static void feed_all(const pass_case *c, weft_session *s)
{
    for (size_t i = 0; i < weft_graph_node_count(c->graph); i++) {
        const weft_node_info node = weft_graph_node(c->graph, i);
        if (strcmp(node.op->name, "input") != 0) continue;
        const weft_value x = weft_value_from_id(c->graph, node.first_out);
        const weft_dtype dtype = weft_dtype_of(c->graph, x);
        const weft_shape shape = weft_shape_of(c->graph, x);
        void *data = calloc(1, weft_tensor_bytes(dtype, shape) + 1);
        fill(dtype, weft_shape_numel(shape), c->vocab, i + 1, data);
        CU_ASSERT_EQUAL(weft_session_feed(s, x, data, weft_tensor_bytes(dtype, shape), NULL),
                        WEFT_OK);
        free(data);
    }
}

/* The targets of a plan without the passes of `skip`, one after the other. */
static char *run(const pass_case *c, const char *skip, size_t *bytes, weft_plan_stats *stats)
{
    weft_error error = {0};
    weft_plan_options options = c->options;
    options.skip = skip;
    weft_params *params = weft_params_new();
    weft_plan *plan = weft_plan_new(c->graph, c->targets, c->n, &options, &error);
    weft_session *s = NULL;
    if (plan && weft_params_init(params, c->graph, 1, &error) == WEFT_OK)
        s = weft_session_new(plan, params, &(weft_session_options){.seed = 1}, &error);
    if (!s) fprintf(stderr, "\n    %s: %s: %s\n", c->name, error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    feed_all(c, s);
    CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
    char *all = NULL;
    *bytes = 0;
    for (size_t i = 0; i < c->n; i++) {
        const size_t n = weft_tensor_bytes(weft_dtype_of(c->graph, c->targets[i]),
                                           weft_shape_of(c->graph, c->targets[i]));
        all = realloc(all, *bytes + n + 1);
        CU_ASSERT_EQUAL(weft_session_fetch(s, c->targets[i], all + *bytes, n, NULL), WEFT_OK);
        *bytes += n;
    }
    if (stats) *stats = weft_plan_stats_of(plan);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    return all;
}

static changes compare(const char *a, const char *b, size_t bytes)
{
    changes found = NOTHING;
    for (size_t i = 0; i < bytes; i += sizeof(float)) {
        float x, y;
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        if (!memcmp(&x, &y, sizeof x) || (isnan(x) && isnan(y))) continue;
        if (x == y && found == NOTHING) found = SIGN_OF_ZERO;
        if (!(x == y)) found = BITS;
    }
    return found;
}

/* Compares plans with all passes and without each; found[p] becomes the most that pass p changed. */
static void try_case(const pass_case *c, changes *found)
{
    size_t bytes, other;
    CU_ASSERT_EQUAL_FATAL(weft_graph_status(c->graph), WEFT_OK);
    char *all = run(c, NULL, &bytes, NULL);
    for (size_t p = 0; p < PASSES; p++) {
        char *without = run(c, passes[p].pass, &other, NULL);
        const changes changed = bytes == other ? compare(all, without, bytes) : BITS;
        if (changed > found[p]) found[p] = changed;
        if (changed > passes[p].changes)
            fprintf(stderr, "\n    %s: %s changes %s\n", c->name, passes[p].pass,
                    changed == BITS ? "bits" : "the sign of a zero");
        CU_ASSERT_TRUE(changed <= passes[p].changes);
        free(without);
    }
    free(all);
}

static void open_case(pass_case *c, const char *name)
{
    memset(c, 0, sizeof *c);
    c->name = name;
    c->graph = weft_graph_new();
}

/* A model at its small size: its loss and gradients, or its outputs. */
static void open_model(pass_case *c, const weft_model *model, bool training)
{
    char text[512];
    weft_built built;
    open_case(c, model->name);
    snprintf(text, sizeof text, "%s %s", model->name, model->small);
    test_build_model(c->graph, text, training, &built);
    c->vocab = built.vocab;
    c->options.fixed_states = !training;
    for (size_t i = 0; i < built.n_outputs && !training; i++)
        if (weft_dtype_is_float(weft_dtype_of(c->graph, built.outputs[i])))
            target(c, built.outputs[i]);
    if (!training) return;
    weft_value params[MAX_TARGETS];
    const size_t n = test_params(c->graph, params, MAX_TARGETS - 1);
    target(c, built.loss);
    weft_grad(c->graph, built.loss, params, n, c->targets + 1);
    c->n += n;
}

/* With the arena that recomputing allows to be a tenth smaller. */
static void try_small_arena(pass_case *c, changes *found)
{
    size_t bytes;
    weft_plan_stats stats;
    free(run(c, NULL, &bytes, &stats));
    c->options.memory_budget = stats.arena_bytes / 10 * 9;
    char *again = run(c, NULL, &bytes, &stats), *all;
    CU_ASSERT_TRUE(stats.recomputed > 0 || test_skips_pass("recompute"));
    c->options.memory_budget = 0;
    all = run(c, NULL, &bytes, NULL);
    const changes changed = compare(all, again, bytes);
    CU_ASSERT_EQUAL(changed, NOTHING);
    for (size_t p = 0; p < PASSES; p++)
        if (!strcmp(passes[p].pass, "recompute")) found[p] = changed;
    free(again);
    free(all);
}

static void test_passes(void)
{
    changes found[PASSES] = {NOTHING};
    pass_case c;
    for (size_t i = 0; i < GRAPHS; i++) {
        open_case(&c, graphs[i].name);
        graphs[i].build(&c);
        try_case(&c, found);
        weft_graph_free(c.graph);
    }
    for (size_t i = 0; i < 2 * weft_model_count(); i++) {
        open_model(&c, weft_model_at(i / 2), i % 2);
        try_case(&c, found);
        weft_graph_free(c.graph);
    }
    open_case(&c, "deep");
    deep(&c);
    try_small_arena(&c, found);
    weft_graph_free(c.graph);
    for (size_t p = 0; p < PASSES; p++) {
        if (found[p] == passes[p].changes || test_skips_pass(passes[p].pass)) continue;
        fprintf(stderr, "\n    %s: no case shows that \"%s\"\n", passes[p].pass, passes[p].why);
        CU_FAIL("a pass keeps bits that it was said to change");
    }
}

/* Every optional pass of the library is listed: the message about an unknown one names them. */
static void test_listed(void)
{
    weft_error error = {0};
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(1));
    CU_ASSERT_PTR_NULL(weft_plan_new(g, &x, 1, &(weft_plan_options){.skip = "none"}, &error));
    char *at = strstr(error.message, "expected "), *rest = NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    for (char *word = strtok_r(at + strlen("expected "), ", ", &rest); word;
         word = strtok_r(NULL, ", ", &rest)) {
        size_t p = 0;
        while (p < PASSES && strcmp(passes[p].pass, word) != 0) p++;
        if (p == PASSES && strcmp(word, "all") != 0)
            fprintf(stderr, "\n    %s is not listed\n", word);
        CU_ASSERT_TRUE(p < PASSES || !strcmp(word, "all"));
    }
    weft_graph_free(g);
}

/* Whether the program names a pass where it prints hashes. */
static bool is_named(const char *pass)
{
    for (size_t i = 0; i < sizeof changing_passes / sizeof *changing_passes; i++)
        if (!strcmp(changing_passes[i], pass)) return true;
    return false;
}

static void test_named(void)
{
    for (size_t p = 0; p < PASSES; p++)
        CU_ASSERT_EQUAL(is_named(passes[p].pass), passes[p].changes != NOTHING);
}

void pass_bits_tests(void)
{
    CU_pSuite suite = CU_add_suite("pass_bits", NULL, NULL);
    CU_add_test(suite, "plans with and without each optional pass", test_passes);
    CU_add_test(suite, "every optional pass is listed", test_listed);
    CU_add_test(suite, "weft check --bits names passes that change bits", test_named);
}
