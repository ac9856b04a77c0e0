/* ONNX nodes with random numbers, which are new in each run also where inputs are known; TopK
 * and MelWeightMatrix. */
#include "onnx_writer.h"
#include "tests.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two runs of the outputs of a file, [count] floats each. */
static void run_twice(weft_onnx *m, size_t n_outputs, size_t count, float *first, float *second)
{
    weft_error error = {0};
    weft_value in[1], out[4];
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    weft_graph *graph = weft_graph_new();
    CU_ASSERT_EQUAL_FATAL(weft_onnx_build(graph, m, 0, in, out), WEFT_OK);
    weft_plan *plan = weft_plan_new(graph, out, n_outputs, NULL, &error);
    weft_params *params = weft_params_new();
    CU_ASSERT_EQUAL(weft_onnx_copy_weights(m, params, &error), WEFT_OK);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (int run = 0; run < 2; run++) {
        CU_ASSERT_EQUAL_FATAL(weft_session_run(s, NULL), WEFT_OK);
        for (size_t i = 0; i < n_outputs; i++)
            weft_session_fetch(s, out[i], (run ? second : first) + i * count, count * sizeof *first,
                               NULL);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(graph);
    weft_onnx_free(m);
}

static void run_file_twice(arena *p, written_graph *g, size_t n_outputs, size_t count, float *first,
                           float *second)
{
    run_twice(must_load_written(p, g, 17, NULL), n_outputs, count, first, second);
}

enum { DRAWN = 4000 };

static double mean_of(const float *x)
{
    double sum = 0;
    for (int i = 0; i < DRAWN; i++) sum += (double)x[i] / DRAWN;
    return sum;
}

/* Random nodes draw new numbers in each run although their inputs are known. The limits of means
 * are five standard errors: 5 / sqrt(4000) = 0.08 deviations. */
static void test_draws(void)
{
    static float first[4 * DRAWN], second[4 * DRAWN], zeros[DRAWN];
    static const float mean[4] = {3, -1, 3, 0.25}, deviation[4] = {0.577f, 2, 0.577f, 0.433f};
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    for (int i = 0; i < DRAWN; i++) zeros[i] = 0.25f;
    write_floats(&p, g, "x", WEFT_SHAPE(DRAWN), zeros);
    for (int k = 0; k < 4; k++) {
        static const char *const ops[] = {"RandomUniform", "RandomNormalLike", "RandomUniformLike",
                                          "Bernoulli"};
        static const char *const outputs[] = {"y0", "y1", "y2", "y3"};
        static int64_t shape[1] = {DRAWN};
        WeftOnnx__NodeProto *node = write_node(&p, g, ops[k], k ? "x" : "", outputs[k]);
        if (k % 2 == 0) write_float(&p, node, "low", 2);
        if (k % 2 == 0) write_float(&p, node, "high", 4);
        if (k == 1) write_float(&p, node, "mean", -1);
        if (k == 1) write_float(&p, node, "scale", 2);
        if (k == 0) {
            WeftOnnx__AttributeProto *a = write_attribute(&p, node, "shape");
            a->ints = shape;
            a->n_ints = 1;
        }
        write_output(&p, g, outputs[k]);
    }
    run_file_twice(&p, g, 4, DRAWN, first, second);
    for (int k = 0; k < 4; k++) {
        const float *x = first + k * DRAWN;
        CU_ASSERT_TRUE(fabs(mean_of(x) - (double)mean[k]) < 0.08 * (double)deviation[k]);
        CU_ASSERT_NOT_EQUAL(memcmp(x, second + k * DRAWN, sizeof(float[DRAWN])), 0);
    }
    weft__arena_free(&p);
}

/* Random ops of a graph become nodes of ONNX, which draw numbers of the same distributions. */
static void test_export(void)
{
    static float first[3 * DRAWN], second[3 * DRAWN];
    static const float mean[3] = {3, -1, 0.25}, deviation[3] = {0.577f, 2, 0.433f};
    const weft_shape shape = WEFT_SHAPE(DRAWN);
    weft_error error = {0};
    char path[] = "/tmp/weft-random-XXXXXX";
    const int file = mkstemp(path);
    CU_ASSERT_FATAL(file >= 0 && close(file) == 0);
    weft_graph *g = weft_graph_new();
    const weft_value out[3] = {weft_random_uniform(g, WEFT_F32, shape, 2, 4),
                               weft_random_normal(g, WEFT_F32, shape, -1, 2),
                               weft_bernoulli(g, weft_fill(g, WEFT_F32, shape, 0.25))};
    CU_ASSERT_EQUAL(weft_onnx_save(g, out, 3, NULL, path, NULL, &error), WEFT_OK);
    run_twice(weft_onnx_load(path, NULL, &error), 3, DRAWN, first, second);
    for (int k = 0; k < 3; k++) {
        const float *x = first + k * DRAWN;
        CU_ASSERT_TRUE(fabs(mean_of(x) - (double)mean[k]) < 0.08 * (double)deviation[k]);
        CU_ASSERT_NOT_EQUAL(memcmp(x, second + k * DRAWN, sizeof(float[DRAWN])), 0);
    }
    for (int i = 0; i < DRAWN; i++) CU_ASSERT_TRUE(first[i] >= 2 && first[i] < 4);
    weft_graph_free(g);
    unlink(path);
}

/* Dropout as the file asks for it: with the mask, elements are dropped where it is false. */
static void test_dropout(void)
{
    static const float ratio = 0.25f;
    static const uint8_t yes = 1;
    static float first[2 * DRAWN], second[2 * DRAWN], ones[DRAWN];
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    for (int i = 0; i < DRAWN; i++) ones[i] = 1;
    write_floats(&p, g, "x", WEFT_SHAPE(DRAWN), ones);
    write_floats(&p, g, "ratio", WEFT_SCALAR, &ratio);
    write_bytes(&p, g, "training", ONNX_BOOL, WEFT_SCALAR, &yes);
    write_node(&p, g, "Dropout", "x ratio training", "y mask");
    write_int(&p, write_node(&p, g, "Cast", "mask", "kept"), "to", ONNX_FLOAT);
    write_output(&p, g, "y");
    write_output(&p, g, "kept");
    run_file_twice(&p, g, 2, DRAWN, first, second);
    /* Five standard errors: 5 sqrt(0.25 0.75 / 4000) = 0.034. */
    CU_ASSERT_TRUE(fabs(mean_of(first + DRAWN) - 0.75) < 0.034);
    CU_ASSERT_NOT_EQUAL(memcmp(first, second, sizeof ones), 0);
    for (int i = 0; i < DRAWN; i++)
        CU_ASSERT_TRUE(fabsf(first[i] - first[DRAWN + i] / 0.75f) < (float)ROUNDING_F32);
    weft__arena_free(&p);
}

/* The values and indices of more elements than a heap holds, and of integers; ties by index. */
static void test_top_k(void)
{
    static float first[8], second[8];
    static const float x[8] = {1, 5, 5, -2, 0, 7, 5, 1};
    static const int64_t k = 4;
    static const float values[4] = {7, 5, 5, 5}, indices[4] = {5, 1, 2, 6};
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_floats(&p, g, "x", WEFT_SHAPE(8), x);
    write_longs(&p, g, "k", WEFT_SHAPE(1), &k);
    write_node(&p, g, "TopK", "x k", "y i");
    write_int(&p, write_node(&p, g, "Cast", "i", "at"), "to", ONNX_FLOAT);
    write_output(&p, g, "y");
    write_output(&p, g, "at");
    run_file_twice(&p, g, 2, 4, first, second);
    CU_ASSERT_EQUAL(memcmp(first, values, sizeof values), 0);
    CU_ASSERT_EQUAL(memcmp(first + 4, indices, sizeof indices), 0);
    weft__arena_free(&p);
}

/* The triangle of one mel bin over the frequencies of a transform, by ONNX's definition: its three
 * edges divide 0 to 4000 Hz, which are 2146 mel, in three: 0, 715 and 1431 mel, or 0, 620 and 1791
 * Hz. Multiplied by 17 / 8000 they are 0, 1.3 and 3.8, rounded down. */
static void test_mel_bin(void)
{
    static const int64_t bins = 1, length = 16, rate = 8000;
    static const float low = 0, high = 4000;
    static const float wanted[9] = {0, 1, 0.5f};
    float first[9], second[9];
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_longs(&p, g, "bins", WEFT_SCALAR, &bins);
    write_longs(&p, g, "length", WEFT_SCALAR, &length);
    write_longs(&p, g, "rate", WEFT_SCALAR, &rate);
    write_floats(&p, g, "low", WEFT_SCALAR, &low);
    write_floats(&p, g, "high", WEFT_SCALAR, &high);
    write_node(&p, g, "MelWeightMatrix", "bins length rate low high", "y");
    write_output(&p, g, "y");
    run_file_twice(&p, g, 1, 9, first, second);
    for (int i = 0; i < 9; i++) CU_ASSERT_EQUAL(first[i], wanted[i]);
    weft__arena_free(&p);
}

void onnx_random_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_random", NULL, NULL);
    CU_add_test(suite, "random numbers", test_draws);
    CU_add_test(suite, "random numbers of an exported graph", test_export);
    CU_add_test(suite, "dropout as the file asks", test_dropout);
    CU_add_test(suite, "the largest elements", test_top_k);
    CU_add_test(suite, "one mel bin", test_mel_bin);
}
