/* Nodes of ONNX that must compute what other nodes, or their definition, compute: attention with a
 * past, products that broadcast, recurrent layers with activations of their own. */
#include "onnx_round.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const float *numbers(float *out, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) out[i] = (float)test_uniform(&seed, -1, 1);
    return out;
}

/* Two queries after a past of three keys. The causal mask of ONNX lets query i see the past and the
 * keys up to its own; all keys at once and a mask of that give the same. */
static void test_attention_past(void)
{
    enum { HEADS = 2, QUERIES = 2, PAST = 3, KEYS = PAST + QUERIES, DIM = 4 };
    static const weft_shape own = {4, {1, HEADS, QUERIES, DIM}}, old = {4, {1, HEADS, PAST, DIM}};
    static const char *const names[] = {"q", "k", "v", "past_k", "past_v"};
    float data[HEADS * PAST * DIM], mask[QUERIES * KEYS];
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    for (int i = 0; i < 5; i++) {
        const weft_shape shape = i < 3 ? own : old;
        write_floats(&p, g, names[i], shape,
                     numbers(data, (size_t)weft_shape_numel(shape), 7 + (uint64_t)i));
    }
    for (int i = 0; i < QUERIES * KEYS; i++) mask[i] = i % KEYS <= PAST + i / KEYS ? 0 : -INFINITY;
    write_floats(&p, g, "mask", WEFT_SHAPE(QUERIES, KEYS), mask);
    write_int(&p,
              write_node(&p, g, "Attention", "q k v - past_k past_v", "first present_k present_v"),
              "is_causal", 1);
    write_int(&p, write_node(&p, g, "Concat", "past_k k", "all_k"), "axis", 2);
    write_int(&p, write_node(&p, g, "Concat", "past_v v", "all_v"), "axis", 2);
    write_node(&p, g, "Attention", "q all_k all_v mask", "second");
    expect_equal(&p, g, 23, HEADS * QUERIES * DIM);
    weft__arena_free(&p);
}

/* A batch of one matrix, and of four. */
static void test_einsum_broadcast(void)
{
    float data[4 * 3 * 2];
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_floats(&p, g, "x", WEFT_SHAPE(1, 2, 3), numbers(data, 6, 1));
    write_floats(&p, g, "y", WEFT_SHAPE(4, 3, 2), numbers(data, 24, 2));
    write_text(&p, write_node(&p, g, "Einsum", "x y", "first"), "equation", "...ij,...jk->...ik");
    write_node(&p, g, "MatMul", "x y", "second");
    expect_equal(&p, g, 17, 16);
    weft__arena_free(&p);
}

/* Squares and cubes have an exponent of one number, and powers one for each element. */
static void test_powers(void)
{
    for (int exponent = 2; exponent <= 3; exponent++) {
        const float one = (float)exponent, all[6] = {one, one, one, one, one, one};
        float data[6];
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        write_floats(&p, g, "x", WEFT_SHAPE(2, 3), numbers(data, 6, 3));
        write_floats(&p, g, "one", WEFT_SHAPE(1), &one);
        write_floats(&p, g, "all", WEFT_SHAPE(2, 3), all);
        write_node(&p, g, "Pow", "x one", "first");
        write_node(&p, g, "Pow", "x all", "second");
        expect_equal(&p, g, 17, 6);
        weft__arena_free(&p);
    }
}

/* One step of an LSTM with one number, whose three activations differ; c begins at 0. The gates are
 * in the order i, o, f, c. */
static void test_activations(void)
{
    static const float weights[4] = {0.3f, -0.4f, 0.5f, 0.7f}, x = 2, recurrent[4] = {0};
    static const char *const names[] = {"Sigmoid", "Relu", "Tanh"};
    ProtobufCBinaryData strings[3];
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_floats(&p, g, "x", WEFT_SHAPE(1, 1, 1), &x);
    write_floats(&p, g, "w", WEFT_SHAPE(1, 4, 1), weights);
    write_floats(&p, g, "r", WEFT_SHAPE(1, 4, 1), recurrent);
    WeftOnnx__NodeProto *node = write_node(&p, g, "LSTM", "x w r", "y");
    write_int(&p, node, "hidden_size", 1);
    for (int i = 0; i < 3; i++)
        strings[i] = (ProtobufCBinaryData){strlen(names[i]), (uint8_t *)(uintptr_t)names[i]};
    WeftOnnx__AttributeProto *a = write_attribute(&p, node, "activations");
    a->strings = strings;
    a->n_strings = 3;
    write_int(&p, write_node(&p, g, "Flatten", "y", "first"), "axis", 0);
    const double i = 1 / (1 + exp(-0.6)), o = 1 / (1 + exp(0.8)), c = 1.4;
    const float wanted = (float)(o * tanh(i * c));
    write_floats(&p, g, "wanted", WEFT_SHAPE(1, 1), &wanted);
    write_node(&p, g, "Identity", "wanted", "second");
    expect_equal(&p, g, 17, 1);
    weft__arena_free(&p);
}

/* A long sequence, whose steps are a loop, and its halves, whose steps are nodes: the second half begins with the
 * states that the first one ends with. */
static void test_halves(const char *op, int gates, bool reverse, bool lengths)
{
    enum { HALF = 128, BATCH = 2, IN = 3, HIDDEN = 4 };
    static const weft_shape half = {3, {HALF, BATCH, IN}};
    static const int64_t ends[][BATCH] = {{HALF + 9, 2 * HALF}, {HALF, HALF}, {9, HALF}};
    const char *const names[] = {"xa", "xb"}, *const lens[] = {"n", "na", "nb"};
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    WeftOnnx__NodeProto *nodes[3];
    for (int i = 0; i < 2; i++) write_random(&p, g, names[i], half, 1, 3 + (uint64_t)i);
    write_random(&p, g, "w", WEFT_SHAPE(1, gates * HIDDEN, IN), 1, 5);
    write_random(&p, g, "r", WEFT_SHAPE(1, gates * HIDDEN, HIDDEN), 1, 6);
    write_random(&p, g, "b", WEFT_SHAPE(1, 2 * gates * HIDDEN), 1, 7);
    for (int i = 0; i < 3 && lengths; i++) write_longs(&p, g, lens[i], WEFT_SHAPE(BATCH), ends[i]);
    write_int(&p, write_node(&p, g, "Concat", "xa xb", "x"), "axis", 0);
    const char *const n = lengths ? "n" : "-";
    char all[64], early[64], late[64];
    snprintf(all, sizeof all, "x w r b %s", n);
    snprintf(early, sizeof early, "%s w r b %s", reverse ? "xb" : "xa", lengths ? "na" : "-");
    snprintf(late, sizeof late, "%s w r b %s h%s", reverse ? "xa" : "xb", lengths ? "nb" : "-",
             gates == 4 ? " c" : "");
    nodes[0] = write_node(&p, g, op, all, "first");
    nodes[1] = write_node(&p, g, op, early, gates == 4 ? "y1 h c" : "y1 h");
    nodes[2] = write_node(&p, g, op, late, "y2");
    for (int i = 0; i < 3; i++) {
        write_int(&p, nodes[i], "hidden_size", HIDDEN);
        if (reverse) write_text(&p, nodes[i], "direction", "reverse");
    }
    write_int(&p, write_node(&p, g, "Concat", reverse ? "y2 y1" : "y1 y2", "second"), "axis", 0);
    expect_equal(&p, g, 17, 2 * HALF * BATCH * HIDDEN);
    weft__arena_free(&p);
}

static void test_long_sequences(void)
{
    static const char *const ops[] = {"RNN", "GRU", "LSTM"};
    static const int gates[] = {1, 3, 4};
    for (int i = 0; i < 3; i++) {
        test_halves(ops[i], gates[i], false, false);
        test_halves(ops[i], gates[i], true, false);
        test_halves(ops[i], gates[i], false, true);
    }
}

void onnx_equal_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_equal", NULL, NULL);
    CU_add_test(suite, "powers of one exponent", test_powers);
    CU_add_test(suite, "attention with a past", test_attention_past);
    CU_add_test(suite, "Einsum that broadcasts", test_einsum_broadcast);
    CU_add_test(suite, "activations of an LSTM", test_activations);
    CU_add_test(suite, "long sequences", test_long_sequences);
}
