/* See onnx_checks.h. */
#include "onnx_checks.h"

#include "tests.h"

#include <weft/autograd.h>

#include <stdio.h>
#include <string.h>

#define MAX_INPUTS 8

/* An input of doubles, in [low, high). */
static void fill(const weft_onnx_value *input, double low, double high, uint64_t *random,
                 double *data)
{
    CU_ASSERT_EQUAL_FATAL(input->dtype, WEFT_F64);
    for (int64_t i = 0; i < weft_shape_numel(input->shape); i++)
        data[i] = test_uniform(random, low, high);
}

/* Counts the values that are checked. */
static void count_checked(void *context, size_t done, size_t n)
{
    size_t *count = context;
    CU_ASSERT_TRUE(done == ++*count && done <= n);
}

void check_written_gradients(written_graph *g, arena *memory, int64_t opset, double low,
                             double high)
{
    weft_error error = {0};
    weft_value in[MAX_INPUTS], out;
    weft_check_feed feeds[MAX_INPUTS];
    weft_check_result result;
    uint64_t random = 7;
    size_t n, done = 0;
    write_output(memory, g, "y");
    weft_onnx *m = must_load_written(memory, g, opset, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    weft_graph *graph = weft_graph_new();
    weft_params *store = weft_params_new();
    CU_ASSERT_EQUAL_FATAL(weft_onnx_build(graph, m, 0, in, &out), WEFT_OK);
    const weft_onnx_value *inputs = weft_onnx_inputs(m, &n);
    CU_ASSERT_TRUE_FATAL(n <= MAX_INPUTS);
    for (size_t i = 0; i < n; i++) {
        const size_t bytes = weft_tensor_bytes(inputs[i].dtype, inputs[i].shape);
        double *data = weft__arena_alloc(memory, bytes);
        fill(&inputs[i], low, high, &random, data);
        feeds[i] = (weft_check_feed){in[i], data, bytes};
    }
    weft_value loss = weft_sum(graph, weft_square(graph, out), WEFT_ALL_AXES, false);
    const weft_status status = weft_check_gradient(graph,
                                                   &(weft_gradient_check){.loss = loss,
                                                                          .wrt = in,
                                                                          .n = n,
                                                                          .params = store,
                                                                          .feeds = feeds,
                                                                          .n_feeds = n,
                                                                          .seed = 1,
                                                                          .progress = count_checked,
                                                                          .context = &done},
                                                   &result, &error);
    if (status != WEFT_OK || !(result.worst_error < DIFFERENCES))
        fprintf(stderr, "\n    %s: %g at %s; %s: %s\n", g->nodes[0]->op_type, result.worst_error,
                result.where, error.where, error.message);
    CU_ASSERT_EQUAL(status, WEFT_OK);
    CU_ASSERT_TRUE(result.checked > 0 && result.worst_error < DIFFERENCES);
    CU_ASSERT_EQUAL(done, n);
    weft_params_free(store);
    weft_graph_free(graph);
    weft_onnx_free(m);
}

void refuse_written(arena *p, written_graph *g, int64_t opset, weft_status status, const char *text)
{
    weft_error error = {0};
    CU_ASSERT_PTR_NULL(load_written(p, g, opset, NULL, &error));
    CU_ASSERT_EQUAL(error.status, status);
    if (!strstr(error.message, text)) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_TRUE(strstr(error.message, text) != NULL);
}
