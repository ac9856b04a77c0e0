/* Newer ops of ONNX that become several ops: results of long inputs, gradients against differences,
 * and what is refused. */
#include "onnx_checks.h"
#include "onnx_writer.h"
#include "tests.h"

#include <math.h>
#include <string.h>

/* ---- LinearAttention ---- */

/* Two queries share each of two states. */
enum { HEADS = 2, GROUP = 2, KEY_DIM = 3, VALUE_DIM = 2, TOKENS = 150 };

/* The recurrence as it is defined, token by token; `in`: query, key, value, decay and beta. */
static void attend(const double *const in[5], int rule, int tokens, int decays, double *y)
{
    double state[HEADS][KEY_DIM][VALUE_DIM] = {{{0}}};
    for (int t = 0; t < tokens; t++)
        for (int h = 0; h < HEADS; h++) {
            const double *q = in[0] + (t * HEADS + h) * GROUP * KEY_DIM;
            const double *k = in[1] + (t * HEADS + h) * KEY_DIM;
            const double *v = in[2] + (t * HEADS + h) * VALUE_DIM;
            for (int d = 0; d < KEY_DIM; d++)
                for (int m = 0; m < VALUE_DIM && rule & 1; m++)
                    state[h][d][m] *= exp(in[3][(t * HEADS + h) * decays + d % decays]);
            for (int m = 0; m < VALUE_DIM; m++) {
                double u = v[m];
                for (int d = 0; d < KEY_DIM && rule & 2; d++) u -= state[h][d][m] * k[d];
                if (rule & 2) u *= in[4][t * HEADS + h];
                for (int d = 0; d < KEY_DIM; d++) state[h][d][m] += k[d] * u;
                for (int j = 0; j < GROUP; j++) {
                    double sum = 0;
                    for (int d = 0; d < KEY_DIM; d++) sum += q[j * KEY_DIM + d] * state[h][d][m];
                    y[((t * HEADS + h) * GROUP + j) * VALUE_DIM + m] = sum / sqrt(KEY_DIM);
                }
            }
        }
}

static const char *const rules[] = {"linear", "gated", "delta", "gated_delta"};
static const char *const names[] = {"q", "k", "v", "decay", "beta"};

/* Bit 0 of the rule: decays; bit 1: the delta rule. */
static written_graph *linear_attention(arena *p, int rule, int64_t tokens, int decays)
{
    const int64_t widths[] = {HEADS * GROUP * KEY_DIM, HEADS * KEY_DIM, HEADS * VALUE_DIM,
                              HEADS * decays, HEADS};
    char inputs[64];
    written_graph *g = write_graph(p);
    for (int i = 0; i < 5; i++)
        if (i < 3 || rule >> (i - 3) & 1)
            write_input(p, g, names[i], ONNX_DOUBLE, WEFT_SHAPE(1, tokens, widths[i]));
    snprintf(inputs, sizeof inputs, "q k v - %s %s", rule & 1 ? "decay" : "-",
             rule & 2 ? "beta" : "-");
    WeftOnnx__NodeProto *node = write_node(p, g, "LinearAttention", inputs, "y");
    write_int(p, node, "q_num_heads", HEADS * GROUP);
    write_int(p, node, "kv_num_heads", HEADS);
    write_text(p, node, "update_rule", rules[rule]);
    return g;
}

/* Several chunks equal the recurrence, and no decay overflows. */
static void check_chunks(int rule, int decays)
{
    arena p = {.blocks = NULL};
    double *data[5], *want = weft__arena_alloc(&p, TOKENS * HEADS * GROUP * VALUE_DIM * 8);
    const int widths[] = {GROUP * KEY_DIM, KEY_DIM, VALUE_DIM, decays, 1};
    const void *inputs[5];
    weft_error error = {0};
    weft_tensor y;
    uint64_t random = 5;
    int n = 0;
    for (int i = 0; i < 5; i++) {
        data[i] = weft__arena_alloc(&p, (size_t)(TOKENS * HEADS * widths[i]) * 8);
        for (int k = 0; k < TOKENS * HEADS * widths[i]; k++)
            data[i][k] = i < 3    ? test_uniform(&random, -0.5, 0.5)
                         : i == 3 ? k % 7 ? test_uniform(&random, -40, 0) : -INFINITY
                                  : test_uniform(&random, 0, 1);
        if (i < 3 || rule >> (i - 3) & 1) inputs[n++] = data[i];
    }
    attend((const double *const *)data, rule, TOKENS, decays, want);
    written_graph *g = linear_attention(&p, rule, TOKENS, decays);
    write_output(&p, g, "y");
    weft_onnx *m = must_load_written(&p, g, 27, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    const weft_builder builder = weft_onnx_builder(m);
    const weft_build_options o = {.shape.rows = 1};
    weft_params *store = weft_params_new();
    weft_forward *forward = weft_forward_new(&builder, store, NULL, &error);
    CU_ASSERT_EQUAL_FATAL(weft_forward_run(forward, &o, inputs, &error), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_forward_output(forward, 0, &y));
    double worst = 0;
    for (int i = 0; i < TOKENS * HEADS * GROUP * VALUE_DIM; i++)
        worst = fmax(worst, fabs(((const double *)y.data)[i] - want[i]));
    /* A few hundred roundings of 2^-53 of numbers below 20. */
    CU_ASSERT_TRUE(worst < 1e-12);
    if (!(worst < 1e-12)) fprintf(stderr, "\n    %s: %g\n", rules[rule], worst);
    weft_forward_free(forward);
    weft_params_free(store);
    weft_onnx_free(m);
    weft__arena_free(&p);
}

static void test_linear_attention(void)
{
    for (int rule = 0; rule < 4; rule++) check_chunks(rule, 1);
    check_chunks(1, KEY_DIM);
    check_chunks(3, KEY_DIM);
}

/* The layer also has a past state, and y is its result and its new state. */
static void add_states(arena *p, written_graph *g)
{
    static const int64_t flat = -1;
    WeftOnnx__NodeProto *node = g->nodes[0];
    write_input(p, g, "past", ONNX_DOUBLE, WEFT_SHAPE(1, HEADS, KEY_DIM, VALUE_DIM));
    node->input[3] = (char *)(uintptr_t) "past";
    node->output[0] = (char *)(uintptr_t) "result";
    node->output[node->n_output++] = (char *)(uintptr_t) "present";
    write_longs(p, g, "flat", WEFT_SHAPE(1), &flat);
    write_node(p, g, "Reshape", "result flat", "r");
    write_node(p, g, "Reshape", "present flat", "s");
    write_int(p, write_node(p, g, "Concat", "r s", "y"), "axis", 0);
}

/* Also across the border of chunks: k = 3 has 18 tokens; and with states: k = 6 and 7. */
static void test_linear_gradients(void)
{
    for (int k = 0; k < 8; k++) {
        arena p = {.blocks = NULL};
        const int rule = k < 4 ? k : k == 4 ? 1 : 3;
        const bool long_text = k == 3 || k == 7;
        written_graph *g = linear_attention(&p, rule, long_text ? 18 : 3, k < 4 ? 1 : KEY_DIM);
        if (k >= 6) add_states(&p, g);
        check_written_gradients(g, &p, 27, -0.8, 0.4);
        weft__arena_free(&p);
    }
}

static void test_linear_refused(void)
{
    arena p = {.blocks = NULL};
    written_graph *g = linear_attention(&p, 0, 3, 1);
    write_text(&p, g->nodes[0], "update_rule", "gated");
    g->nodes[0]->attribute[2] = g->nodes[0]->attribute[3];
    write_output(&p, g, "y");
    refuse_written(&p, g, 27, WEFT_BAD_FILE, "does not fit its inputs decay and beta");
    g = linear_attention(&p, 1, 3, 2);
    write_output(&p, g, "y");
    refuse_written(&p, g, 27, WEFT_BAD_SHAPE, "do not fit its keys");
    g = linear_attention(&p, 2, 3, 1);
    g->nodes[0]->attribute[1]->i = 3;
    write_output(&p, g, "y");
    refuse_written(&p, g, 27, WEFT_BAD_SHAPE, "multiple of kv_num_heads");
    weft__arena_free(&p);
}

/* ---- CausalConvWithState, FlexAttention ---- */

static void test_causal_conv(void)
{
    for (int k = 0; k < 2; k++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        write_input(&p, g, "x", ONNX_DOUBLE, WEFT_SHAPE(2, 3, 4));
        write_input(&p, g, "w", ONNX_DOUBLE, WEFT_SHAPE(3, 1, 3));
        write_input(&p, g, "b", ONNX_DOUBLE, WEFT_SHAPE(3));
        write_input(&p, g, "past", ONNX_DOUBLE, WEFT_SHAPE(2, 3, k ? 3 : 2));
        WeftOnnx__NodeProto *node = write_node(&p, g, "CausalConvWithState", "x w b past", "y");
        write_text(&p, node, "activation", "silu");
        if (k) {
            write_output(&p, g, "y");
            refuse_written(&p, g, 27, WEFT_BAD_SHAPE, "its past state is not [2, 3, 2]");
        } else {
            check_written_gradients(g, &p, 27, -1, 1);
        }
        weft__arena_free(&p);
    }
}

/* Bodies: a soft cap of the scores, and a factor of the probabilities; k = 1: one that is wrong. */
static void test_flex_attention(void)
{
    static const int64_t flat[1] = {-1};
    for (int k = 0; k < 2; k++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p), *cap = write_graph(&p), *wrong = write_graph(&p);
        write_input(&p, g, "q", ONNX_DOUBLE, WEFT_SHAPE(1, 4, 3, 2));
        write_input(&p, g, "k", ONNX_DOUBLE, WEFT_SHAPE(1, 2, 3, 2));
        write_input(&p, g, "v", ONNX_DOUBLE, WEFT_SHAPE(1, 2, 3, 3));
        write_input(&p, cap, "s", ONNX_DOUBLE, WEFT_SHAPE(1, 4, 3, 3));
        write_node(&p, cap, "Tanh", "s", "t");
        write_output(&p, cap, "t");
        write_input(&p, wrong, "r", ONNX_DOUBLE, WEFT_SHAPE(1, 4, 3, 3));
        write_longs(&p, wrong, "flat", WEFT_SHAPE(1), flat);
        write_node(&p, wrong, "Reshape", "r flat", "z");
        write_output(&p, wrong, "z");
        WeftOnnx__NodeProto *node = write_node(&p, g, "FlexAttention", "q k v", "y");
        node->domain = (char *)(uintptr_t) "ai.onnx.preview";
        write_float(&p, node, "scale", 0.7);
        write_attribute(&p, node, "score_mod")->g = &cap->proto;
        if (k) {
            write_attribute(&p, node, "prob_mod")->g = &wrong->proto;
            write_output(&p, g, "y");
            refuse_written(&p, g, 26, WEFT_BAD_SHAPE, "\"prob_mod\" changes the shape");
        } else {
            check_written_gradients(g, &p, 26, -1, 1);
        }
        weft__arena_free(&p);
    }
}

/* ---- DeformConv ---- */

/* Of two groups, two groups of offsets, strides, dilations, padding on one side, in 2 and 1
 * dimensions; then a mask that does not fit. */
static void test_deform_conv(void)
{
    for (int k = 0; k < 3; k++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        const bool flat = k == 1;
        write_input(&p, g, "x", ONNX_DOUBLE, flat ? WEFT_SHAPE(2, 2, 6) : WEFT_SHAPE(1, 4, 4, 5));
        write_input(&p, g, "w", ONNX_DOUBLE, flat ? WEFT_SHAPE(2, 2, 3) : WEFT_SHAPE(2, 2, 2, 2));
        write_input(&p, g, "at", ONNX_DOUBLE, flat ? WEFT_SHAPE(2, 3, 4) : WEFT_SHAPE(1, 16, 2, 3));
        write_input(&p, g, "b", ONNX_DOUBLE, WEFT_SHAPE(2));
        write_input(&p, g, "m", ONNX_DOUBLE,
                    k == 2 ? WEFT_SHAPE(1, 7, 2, 3)
                    : flat ? WEFT_SHAPE(2, 3, 4)
                           : WEFT_SHAPE(1, 8, 2, 3));
        WeftOnnx__NodeProto *node = write_node(&p, g, "DeformConv", "x w at b m", "y");
        if (!flat) {
            write_int(&p, node, "group", 2);
            write_int(&p, node, "offset_group", 2);
            write_ints(&p, node, "strides", (int64_t[]){2, 2}, 2);
            write_ints(&p, node, "dilations", (int64_t[]){2, 1}, 2);
            write_ints(&p, node, "pads", (int64_t[]){1, 0, 0, 1}, 4);
        }
        if (k == 2) {
            write_output(&p, g, "y");
            refuse_written(&p, g, 22, WEFT_BAD_SHAPE, "input 4 does not have 8 channels");
        } else {
            check_written_gradients(g, &p, 22, -0.9, 0.9);
        }
        weft__arena_free(&p);
    }
}

/* ---- BitCast ---- */

/* Types whose bits weft does not have are refused. */
static void test_bitcast(void)
{
    static const struct {
        int from, to;
        weft_status status;
        const char *text;
    } cases[] = {
        {ONNX_FLOAT, ONNX_INT64, WEFT_BAD_ARGUMENT, "type FLOAT has 32 bits, type 7 has 64"},
        {ONNX_FLOAT16, ONNX_INT16, WEFT_NO_KERNEL, "bits of FLOAT16 as INT16"},
        {ONNX_BFLOAT16, ONNX_FLOAT16, WEFT_NO_KERNEL, "bits of BFLOAT16 as FLOAT16"},
        {ONNX_INT32, ONNX_UINT32, WEFT_NO_KERNEL, "bits of INT32 as UINT32"},
        {ONNX_DOUBLE, ONNX_INT64, WEFT_NO_KERNEL, "bits of DOUBLE as INT64"},
        {ONNX_FLOAT, 99, WEFT_BAD_ARGUMENT, "type FLOAT has 32 bits, type 99 has 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        write_input(&p, g, "x", cases[i].from, WEFT_SHAPE(2));
        write_int(&p, write_node(&p, g, "BitCast", "x", "y"), "to", cases[i].to);
        write_output(&p, g, "y");
        refuse_written(&p, g, 26, cases[i].status, cases[i].text);
        weft__arena_free(&p);
    }
}

/* ---- Trees ---- */

/* Node 0 leads to node 1 and a leaf, node 1 to `next`, a node or a leaf. */
static written_graph *tree(arena *p, int64_t feature, int64_t next, int64_t leaf, int64_t weights)
{
    static const int64_t roots[1] = {0}, zeros[2] = {0, 0}, ones[2] = {1, 1}, at_leaves[2] = {1, 3};
    const int64_t children[2] = {1, next}, are_leaves[2] = {0, leaf}, at[2] = {feature, 0};
    written_graph *g = write_graph(p);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(3, 2));
    WeftOnnx__NodeProto *node = write_node(p, g, "TreeEnsemble", "x", "y");
    node->domain = (char *)(uintptr_t) "ai.onnx.ml";
    write_ints(p, node, "nodes_featureids", at, 2);
    write_ints(p, node, "nodes_truenodeids", children, 2);
    write_ints(p, node, "nodes_trueleafs", are_leaves, 2);
    write_ints(p, node, "nodes_falsenodeids", zeros, 2);
    write_ints(p, node, "nodes_falseleafs", ones, 2);
    write_ints(p, node, "nodes_modes", zeros, 2);
    write_ints(p, node, "nodes_splits", zeros, 2);
    write_ints(p, node, "tree_roots", roots, 1);
    write_ints(p, node, "leaf_targetids", zeros, 2);
    write_ints(p, node, "leaf_weights", at_leaves, (size_t)weights);
    write_output(p, g, "y");
    return g;
}

/* Only the first row passes both nodes, to leaf 1. */
static void check_tree(weft_onnx *m)
{
    static const float x[] = {0, -1, 1, -1, 0, 1}, want[] = {3, 1, 1};
    const weft_builder builder = weft_onnx_builder(m);
    const weft_build_options o = {.shape.rows = 3};
    const void *inputs[] = {x};
    weft_error error = {0};
    weft_tensor y;
    weft_params *store = weft_params_new();
    weft_forward *forward = weft_forward_new(&builder, store, NULL, &error);
    CU_ASSERT_EQUAL_FATAL(weft_forward_run(forward, &o, inputs, &error), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_forward_output(forward, 0, &y));
    CU_ASSERT_EQUAL_FATAL(weft_shape_numel(y.shape), 3);
    CU_ASSERT_EQUAL(memcmp(y.data, want, sizeof want), 0);
    weft_forward_free(forward);
    weft_params_free(store);
}

static void test_trees(void)
{
    arena p = {.blocks = NULL};
    weft_onnx *m = must_load_written(&p, tree(&p, 1, 1, 1, 2), 21, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    check_tree(m);
    weft_onnx_free(m);
    refuse_written(&p, tree(&p, 1, 0, 0, 2), 21, WEFT_TOO_LARGE, "or a cycle");
    refuse_written(&p, tree(&p, 2, 1, 1, 2), 21, WEFT_BAD_FILE, "node 0 has a feature");
    refuse_written(&p, tree(&p, 1, 2, 1, 2), 21, WEFT_BAD_FILE, "node 1 has a feature, a child");
    refuse_written(&p, tree(&p, 1, 1, 1, 1), 21, WEFT_BAD_FILE, "leaf_weights has 1 numbers");
    /* An attribute with two lists: the floats count. */
    static const float weight = 0.5F;
    written_graph *g = tree(&p, 1, 1, 1, 2);
    WeftOnnx__AttributeProto *both = g->nodes[0]->attribute[g->nodes[0]->n_attribute - 1];
    both->floats = (float *)(uintptr_t)&weight;
    both->n_floats = 1;
    refuse_written(&p, g, 21, WEFT_BAD_FILE, "leaf_weights has 1 numbers, expected 2");
    g = tree(&p, 1, 1, 1, 2);
    write_int(&p, g->nodes[0], "post_transform", 4);
    refuse_written(&p, g, 21, WEFT_NO_KERNEL, "post_transform PROBIT is not supported");
    weft__arena_free(&p);
}

/* ---- Sequences ---- */

/* The parts of x are split off, changed one by one, put in another order and joined: once along an
 * axis, once along a new one. */
static void test_sequences(void)
{
    static const int64_t sizes[] = {1, 2, 1}, front = 0, last = -1;
    for (int k = 0; k < 2; k++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p), *body = write_graph(&p);
        write_input(&p, g, "x", ONNX_DOUBLE, WEFT_SHAPE(2, 4));
        write_input(&p, g, "factor", ONNX_DOUBLE, WEFT_SHAPE(2, 1));
        write_longs(&p, g, "sizes", WEFT_SHAPE(3), sizes);
        write_longs(&p, g, "front", WEFT_SCALAR, &front);
        write_longs(&p, g, "last", WEFT_SCALAR, &last);
        write_input(&p, body, "a", ONNX_DOUBLE, WEFT_SHAPE(2, 1));
        write_input(&p, body, "b", ONNX_DOUBLE, WEFT_SHAPE(2, 1));
        write_node(&p, body, "Tanh", "a", "t");
        write_node(&p, body, "Mul", "t b", "u");
        write_output(&p, body, "u");
        write_int(&p, write_node(&p, g, "SplitToSequence", k ? "x" : "x sizes", "parts"), "axis",
                  1);
        WeftOnnx__NodeProto *map = write_node(&p, g, "SequenceMap", "parts factor", "changed");
        write_attribute(&p, map, "body")->g = &body->proto;
        write_node(&p, g, "Identity", "changed", "same");
        write_node(&p, g, "SequenceAt", "same last", "end");
        write_node(&p, g, "SequenceErase", "same", "fewer");
        write_node(&p, g, "SequenceInsert", "fewer end front", "turned");
        write_node(&p, g, "Optional", "turned", "present");
        write_node(&p, g, "OptionalGetElement", "present", "taken");
        WeftOnnx__NodeProto *join = write_node(&p, g, "ConcatFromSequence", "taken", "y");
        write_int(&p, join, "axis", -1);
        write_int(&p, join, "new_axis", k);
        check_written_gradients(g, &p, 17, -1, 1);
        weft__arena_free(&p);
    }
}

/* A node of one sequence of x and x that is refused. */
static void refuse_sequence(const char *op, const char *inputs, weft_status status,
                            const char *text)
{
    static const int64_t two = 2, sizes[] = {1, 2};
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(4));
    write_input(&p, g, "at", ONNX_INT64, WEFT_SCALAR);
    write_longs(&p, g, "two", WEFT_SCALAR, &two);
    write_longs(&p, g, "sizes", WEFT_SHAPE(2), sizes);
    write_node(&p, g, "SequenceConstruct", "x x", "s");
    write_node(&p, g, "SequenceEmpty", "", "nothing");
    write_node(&p, g, "Optional", "", "absent");
    write_int(&p, write_node(&p, g, op, inputs, "y"), "axis", 0);
    write_output(&p, g, "y");
    refuse_written(&p, g, 17, status, text);
    weft__arena_free(&p);
}

static void test_sequences_refused(void)
{
    refuse_sequence("SequenceAt", "s two", WEFT_BAD_INDEX,
                    "position 2 is outside of a sequence of 2 values");
    refuse_sequence("SequenceAt", "s at", WEFT_BAD_ARGUMENT,
                    "(position) during the import, but they depend on data");
    refuse_sequence("SequenceErase", "nothing", WEFT_BAD_INDEX, "outside of a sequence of 0");
    refuse_sequence("SequenceLength", "x", WEFT_BAD_DTYPE, "input 0 is not a sequence");
    refuse_sequence("Neg", "s", WEFT_BAD_DTYPE, "but it is a sequence or an absent value");
    refuse_sequence("Identity", "s", WEFT_BAD_DTYPE, "but it is a sequence or an absent value");
    refuse_sequence("ConcatFromSequence", "nothing", WEFT_BAD_SHAPE, "without values");
    refuse_sequence("SplitToSequence", "x sizes", WEFT_BAD_SHAPE, "parts of 3 elements do not fit");
    refuse_sequence("OptionalGetElement", "absent", WEFT_BAD_ARGUMENT, "has no element");
}

/* A sequence keeps the size of its value that data decide; a split by such a size is refused. */
static void test_sizes(void)
{
    static const int64_t first = 0;
    for (int k = 0; k < 2; k++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(5));
        write_longs(&p, g, "first", WEFT_SCALAR, &first);
        write_node(&p, g, "NonZero", "x", "found");
        write_int(&p, write_node(&p, g, k ? "SplitToSequence" : "SequenceConstruct", "found", "s"),
                  "axis", 1);
        write_node(&p, g, "SequenceAt", "s first", "y");
        write_output(&p, g, "y");
        if (k) {
            refuse_written(&p, g, 17, WEFT_NO_KERNEL, "whose size data decide");
        } else {
            size_t n;
            weft_onnx *m = must_load_written(&p, g, 17, NULL);
            CU_ASSERT_PTR_NOT_NULL_FATAL(m);
            CU_ASSERT_EQUAL(weft_onnx_outputs(m, &n)[0].size, 1);
            weft_onnx_free(m);
        }
        weft__arena_free(&p);
    }
}

void onnx_newer_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_newer", NULL, NULL);
    CU_add_test(suite, "LinearAttention by chunks", test_linear_attention);
    CU_add_test(suite, "gradients of LinearAttention", test_linear_gradients);
    CU_add_test(suite, "LinearAttention that does not fit", test_linear_refused);
    CU_add_test(suite, "gradients of CausalConvWithState", test_causal_conv);
    CU_add_test(suite, "gradients of FlexAttention", test_flex_attention);
    CU_add_test(suite, "gradients of DeformConv", test_deform_conv);
    CU_add_test(suite, "trees of files", test_trees);
    CU_add_test(suite, "gradients through sequences", test_sequences);
    CU_add_test(suite, "sequences that do not fit", test_sequences_refused);
    CU_add_test(suite, "sequences and sizes that data decide", test_sizes);
    CU_add_test(suite, "bits that weft does not have", test_bitcast);
}
