/* If on an input: the outputs and gradients are those of the chosen branch, the only one that runs.
 * Branches of different types, and branches that do not fit the inputs. */
#include "onnx_writer.h"
#include "tests.h"

#include <weft/autograd.h>

#include <stdio.h>
#include <string.h>

#define N 3

static const float x_data[N] = {1, -2, 3};

/* A body of one node, which computes `output` of the model's values. */
static written_graph *body(arena *p, const char *op, const char *inputs, const char *output)
{
    written_graph *g = write_graph(p);
    write_node(p, g, op, inputs, output);
    write_output(p, g, output);
    return g;
}

static void write_if(arena *p, written_graph *g, const char *condition, written_graph *yes,
                     written_graph *no, const char *output)
{
    WeftOnnx__NodeProto *node = write_node(p, g, "If", condition, output);
    node->name = weft__arena_text(p, "choice");
    write_attribute(p, node, "then_branch")->g = &yes->proto;
    write_attribute(p, node, "else_branch")->g = &no->proto;
}

/* A model of the inputs x [3] and c, bools. */
static written_graph *start(arena *p, weft_shape condition)
{
    written_graph *g = write_graph(p);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(N));
    write_input(p, g, "c", ONNX_BOOL, condition);
    write_output(p, g, "y");
    return g;
}

/* Runs with a condition; y and the gradient of its sum are of `n` elements and N. */
static weft_status run(weft_onnx *m, bool condition, float *y, size_t n, float *gradient,
                       weft_error *error)
{
    weft_value in[2], targets[2];
    weft_graph *g = weft_graph_new();
    CU_ASSERT_EQUAL(weft_onnx_build(g, m, 0, in, targets), WEFT_OK);
    weft_value sum = weft_sum(g, targets[0], WEFT_ALL_AXES, false);
    weft_grad(g, sum, in, 1, &targets[1]);
    weft_params *store = weft_params_new();
    weft_onnx_copy_weights(m, store, NULL);
    weft_plan *plan = weft_plan_new(g, targets, 2, NULL, error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, error) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_feed(s, in[0], x_data, sizeof x_data, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(s, in[1], &(uint8_t){condition}, 1, NULL), WEFT_OK);
    const weft_status status = weft_session_run(s, error);
    if (status == WEFT_OK) {
        CU_ASSERT_EQUAL(weft_session_fetch(s, targets[0], y, n * sizeof *y, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(s, targets[1], gradient, N * sizeof *gradient, NULL),
                        WEFT_OK);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(store);
    weft_graph_free(g);
    return status;
}

static void expect(weft_onnx *m, bool condition, const float *y, const float *gradient)
{
    float got[N], slope[N];
    CU_ASSERT_EQUAL_FATAL(run(m, condition, got, N, slope, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(memcmp(got, y, sizeof got), 0);
    for (int i = 0; i < N; i++) CU_ASSERT_EQUAL(slope[i], gradient[i]);
}

/* A branch of a parameter of the model, and one without. */
static void test_chosen(void)
{
    static const float w[N] = {2, 3, 4}, product[N] = {2, -6, 12}, negated[N] = {-1, 2, -3};
    static const float minus[N] = {-1, -1, -1};
    for (int rank = 0; rank < 2; rank++) {
        arena p = {.blocks = NULL};
        written_graph *g = start(&p, rank ? WEFT_SHAPE(1) : WEFT_SCALAR);
        write_floats(&p, g, "w", WEFT_SHAPE(N), w);
        write_if(&p, g, "c", body(&p, "Mul", "x w", "a"), body(&p, "Neg", "x", "b"), "y");
        weft_onnx *m = must_load_written(&p, g, 17, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        expect(m, true, product, w);
        expect(m, false, negated, minus);
        weft_onnx_free(m);
        weft__arena_free(&p);
    }
}

/* An If in a branch of another one, on the opposite condition. */
static void test_nested(void)
{
    static const float doubled[N] = {2, -4, 6}, two[N] = {2, 2, 2}, same[N] = {1, -2, 3};
    static const float one[N] = {1, 1, 1};
    arena p = {.blocks = NULL};
    written_graph *g = start(&p, WEFT_SCALAR);
    written_graph *outer = write_graph(&p);
    write_node(&p, g, "Not", "c", "d");
    write_if(&p, outer, "d", body(&p, "Neg", "x", "e"), body(&p, "Add", "x x", "f"), "a");
    write_output(&p, outer, "a");
    write_if(&p, g, "c", outer, body(&p, "Identity", "x", "b"), "y");
    weft_onnx *m = must_load_written(&p, g, 17, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    expect(m, true, doubled, two);
    expect(m, false, same, one);
    weft_onnx_free(m);
    weft__arena_free(&p);
}

static void refuse(arena *p, written_graph *g, weft_status status, const char *message)
{
    weft_error error = {0};
    weft_onnx *m = load_written(p, g, 17, NULL, &error);
    CU_ASSERT_PTR_NULL(m);
    CU_ASSERT_EQUAL(error.status, status);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, message));
    if (!strstr(error.message, message))
        fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    weft_onnx_free(m);
}

static void test_types(void)
{
    static const int64_t row[2] = {1, N};
    arena p = {.blocks = NULL};
    written_graph *g = start(&p, WEFT_SCALAR);
    write_longs(&p, g, "row", WEFT_SHAPE(2), row);
    write_if(&p, g, "c", body(&p, "Reshape", "x row", "a"), body(&p, "Neg", "x", "b"), "y");
    refuse(&p, g, WEFT_BAD_SHAPE,
           "it is f32 [1, 3] or f32 [3]; fix the input that the condition depends on (--constant");
    g = start(&p, WEFT_SCALAR);
    write_if(&p, g, "c", body(&p, "IsNaN", "x", "a"), body(&p, "Neg", "x", "b"), "y");
    refuse(&p, g, WEFT_BAD_SHAPE, "it is bool [3] or f32 [3]");
    g = start(&p, WEFT_SHAPE(2));
    write_if(&p, g, "c", body(&p, "Abs", "x", "a"), body(&p, "Neg", "x", "b"), "y");
    refuse(&p, g, WEFT_BAD_ARGUMENT, "one bool");
    g = start(&p, WEFT_SCALAR);
    write_attribute(&p, write_node(&p, g, "If", "c", "y"), "then_branch")->g =
        &body(&p, "Abs", "x", "a")->proto;
    refuse(&p, g, WEFT_BAD_FILE, "no body \"else_branch\"");
    weft__arena_free(&p);
}

/* [2, 2] of three elements: the branch is left out, and a run that chooses it fails. */
static void test_left_out(void)
{
    static const int64_t square[2] = {2, 2};
    static const float negated[N] = {-1, 2, -3}, minus[N] = {-1, -1, -1};
    for (int k = 0; k < 2; k++) {
        arena p = {.blocks = NULL};
        weft_error error = {0};
        float y[N], slope[N];
        written_graph *g = start(&p, WEFT_SCALAR), *wrong = body(&p, "Reshape", "x square", "a");
        written_graph *right = body(&p, "Neg", "x", "b");
        write_longs(&p, g, "square", WEFT_SHAPE(2), square);
        write_if(&p, g, "c", k ? wrong : right, k ? right : wrong, "y");
        weft_onnx *m = must_load_written(&p, g, 17, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        expect(m, !k, negated, minus);
        CU_ASSERT_EQUAL(run(m, k, y, N, slope, &error), WEFT_BAD_INDEX);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.where, "choice"));
        weft_onnx_free(m);
        weft__arena_free(&p);
    }
    arena p = {.blocks = NULL};
    written_graph *g = start(&p, WEFT_SCALAR);
    write_longs(&p, g, "square", WEFT_SHAPE(2), square);
    write_if(&p, g, "c", body(&p, "Reshape", "x square", "a"), body(&p, "Reshape", "x square", "b"),
             "y");
    refuse(&p, g, WEFT_BAD_SHAPE, "neither of its branches");
    g = start(&p, WEFT_SCALAR);
    write_if(&p, g, "c", body(&p, "Frobnicate", "x", "a"), body(&p, "Neg", "x", "b"), "y");
    refuse(&p, g, WEFT_NO_KERNEL, "Frobnicate");
    weft__arena_free(&p);
}

/* What would fail, or divide by zero in the gradient, if it ran: indices of 5 where the other branch is
 * chosen, and roots of negative numbers. */
static void test_not_chosen(void)
{
    static const float negated[N] = {-1, 2, -3}, minus[N] = {-1, -1, -1};
    static const float first[N] = {1, 1, 1}, three[N] = {3, 0, 0};
    static const int64_t fives[N] = {5, 5, 5};
    for (int k = 0; k < 2; k++) {
        arena p = {.blocks = NULL};
        written_graph *g = start(&p, WEFT_SCALAR);
        write_longs(&p, g, "fives", WEFT_SHAPE(N), fives);
        write_int(&p, write_node(&p, g, "Cast", "c", "one"), "to", ONNX_INT64);
        write_node(&p, g, "Mul", "one fives", "indices");
        written_graph *other =
            k ? body(&p, "Gather", "x indices", "b") : body(&p, "Sqrt", "x", "b");
        write_if(&p, g, "c", body(&p, "Neg", "x", "a"), other, "y");
        weft_onnx *m = must_load_written(&p, g, 17, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        expect(m, true, negated, minus);
        if (k) expect(m, false, first, three);
        weft_onnx_free(m);
        weft__arena_free(&p);
    }
}

/* Running statistics cannot move in a branch that data choose. */
static void test_statistics(void)
{
    static const float numbers[N] = {1, 1, 1};
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(2, N));
    write_input(&p, g, "c", ONNX_BOOL, WEFT_SCALAR);
    write_output(&p, g, "y");
    static const char *const names[] = {"scale", "bias", "mean", "variance"};
    for (int i = 0; i < 4; i++) write_floats(&p, g, names[i], WEFT_SHAPE(N), numbers);
    write_if(&p, g, "c", body(&p, "BatchNormalization", "x scale bias mean variance", "a"),
             body(&p, "Neg", "x", "b"), "y");
    weft_onnx *m = must_load_written(&p, g, 17, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    const weft_builder b = weft_onnx_builder(m);
    for (int training = 0; training < 2; training++) {
        weft_built built;
        weft_graph *graph = weft_graph_new();
        const weft_build_options o = {.shape = {2, 0, 0}, .training = training};
        const weft_status status = b.build(b.context, graph, &o, &built);
        CU_ASSERT_EQUAL(status, training ? WEFT_BAD_ARGUMENT : WEFT_OK);
        if (training)
            CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(graph)->message, "--constant"));
        weft_graph_free(graph);
    }
    weft_onnx_free(m);
    weft__arena_free(&p);
}

void onnx_branch_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_branch", NULL, NULL);
    CU_add_test(suite, "the chosen branch and its gradient", test_chosen);
    CU_add_test(suite, "the other branch does not run", test_not_chosen);
    CU_add_test(suite, "branches in branches", test_nested);
    CU_add_test(suite, "branches of different types", test_types);
    CU_add_test(suite, "branches that do not fit", test_left_out);
    CU_add_test(suite, "running statistics in a branch", test_statistics);
}
