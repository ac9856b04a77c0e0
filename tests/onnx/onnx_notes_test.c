/* Notes of exported files: an import finds ops again by them, and only where the nodes are those
 * that weft writes. */
#include "onnx_round.h"

#include <stdlib.h>
#include <string.h>

/* ---- Notes ---- */

static char *first_note(WeftOnnx__ModelProto *model)
{
    for (size_t i = 0; i < model->graph->n_node; i++)
        if (model->graph->node[i]->doc_string) return model->graph->node[i]->doc_string;
    CU_FAIL_FATAL("there is no note");
    return NULL;
}

static void replace(char *text, const char *from, const char *to)
{
    char *at = strstr(text, from);
    CU_ASSERT_PTR_NOT_NULL_FATAL(at);
    CU_ASSERT_EQUAL_FATAL(strlen(from), strlen(to));
    memcpy(at, to, strlen(to));
}

static void lie_about_eps(WeftOnnx__ModelProto *model)
{
    replace(first_note(model), "eps=1e-06", "eps=1e-03");
}

static void lie_about_the_op(WeftOnnx__ModelProto *model)
{
    replace(first_note(model), "rms_norm", "rms_nerm");
}

static void lie_about_inputs(WeftOnnx__ModelProto *model)
{
    replace(first_note(model), "inputs=0.0", "inputs=9.9");
}

static void lie_about_nodes(WeftOnnx__ModelProto *model)
{
    replace(first_note(model), "nodes=6", "nodes=9");
}

/* Another number under the root, and another type of a node. */
static void change_constant(WeftOnnx__ModelProto *model)
{
    for (size_t i = 0; i < model->graph->n_node; i++) {
        WeftOnnx__NodeProto *node = model->graph->node[i];
        if (strcmp(node->op_type, "Constant") != 0) continue;
        WeftOnnx__TensorProto *t = node->attribute[0]->t;
        if (t->data_type == ONNX_FLOAT) memcpy(t->raw_data.data, &(float){0.5f}, sizeof(float));
    }
}

static void change_type(WeftOnnx__ModelProto *model)
{
    for (size_t i = 0; i < model->graph->n_node; i++)
        if (!strcmp(model->graph->node[i]->op_type, "Div"))
            memcpy(model->graph->node[i]->op_type, "Mul", 3);
}

static void cut_note(WeftOnnx__ModelProto *model)
{
    char *note = first_note(model);
    note[strlen(note) / 2] = 0;
}

/* A note counts only where the nodes are those that weft writes: otherwise they are read as they
 * are. A note that is wrong changes no value, and a changed node does. */
static void test_notes(void)
{
    static edit *const lies[] = {lie_about_eps, lie_about_the_op, lie_about_inputs, lie_about_nodes,
                                 cut_note};
    static edit *const changes[] = {change_constant, change_type};
    fixture f;
    small s = small_open();
    size_t nodes;
    static test_log log;
    round_open(&f);
    weft_params *results = weft_params_new();
    CU_ASSERT_EQUAL(run_graph(&(example){s.g, &s.y, 1, s.params, s.inputs}, 1, results, &f.error),
                    WEFT_OK);
    CU_ASSERT_EQUAL(weft_onnx_save(s.g, &s.y, 1, s.params, f.path, NULL, &f.error), WEFT_OK);
    CU_ASSERT_EQUAL(count_op(&f, "rms_norm"), 1);
    CU_ASSERT_EQUAL(count_op(&f, "sqrt"), 0);
    for (size_t i = 0; i < sizeof lies / sizeof *lies + sizeof changes / sizeof *changes; i++) {
        const bool lie = i < sizeof lies / sizeof *lies;
        weft_params *got = weft_params_new();
        CU_ASSERT_EQUAL(weft_onnx_save(s.g, &s.y, 1, s.params, f.path, NULL, &f.error), WEFT_OK);
        edit_file(&f, lie ? lies[i] : changes[i - sizeof lies / sizeof *lies]);
        test_log_to(&log);
        CU_ASSERT_EQUAL(count_op(&f, "rms_norm"), 0);
        test_log_to(NULL);
        CU_ASSERT_TRUE(lie || strstr(log.text, "its note of weft's op rms_norm is not used"));
        CU_ASSERT_EQUAL(count_op(&f, "sqrt"), 1);
        CU_ASSERT_TRUE(run_file(&f, s.inputs, 1, 1, got, &nodes));
        CU_ASSERT_EQUAL(near_results(results, got, 1), lie);
        weft_params_free(got);
    }
    weft_params_free(results);
    small_close(&s);
    round_close(&f);
}

static void read_inside(WeftOnnx__ModelProto *model)
{
    WeftOnnx__GraphProto *g = model->graph;
    WeftOnnx__NodeProto *last = g->node[g->n_node - 1];
    for (size_t i = 0; i < g->n_node; i++) /* the output becomes that of Sqrt, inside of the op */
        if (!strcmp(g->node[i]->op_type, "Sqrt")) {
            free(g->output[0]->name);
            g->output[0]->name = strdup(g->node[i]->output[0]);
        }
    CU_ASSERT_PTR_NOT_NULL(last);
}

/* A tensor inside of an op that was found again can still be read. */
static void test_inside(void)
{
    fixture f;
    small s = small_open();
    size_t nodes;
    round_open(&f);
    weft_params *got = weft_params_new();
    weft_value x = weft_graph_find(s.g, "x"),
               mean = weft_mean(s.g, weft_square(s.g, x), WEFT_AXES(-1), true);
    weft_value root = weft_sqrt(s.g, weft_add_scalar(s.g, mean, 1e-6));
    weft_params *results = weft_params_new();
    CU_ASSERT_EQUAL(run_graph(&(example){s.g, &root, 1, s.params, s.inputs}, 1, results, &f.error),
                    WEFT_OK);
    CU_ASSERT_EQUAL(weft_onnx_save(s.g, &s.y, 1, s.params, f.path, NULL, &f.error), WEFT_OK);
    edit_file(&f, read_inside);
    CU_ASSERT_TRUE(run_file(&f, s.inputs, 1, 1, got, &nodes));
    CU_ASSERT_TRUE(near_results(results, got, 1));
    weft_params_free(got);
    weft_params_free(results);
    small_close(&s);
    round_close(&f);
}

/* Fused ops of models are found again, none as its parts. */
static void test_fused(void)
{
    static const char *const ops[] = {"sdpa", "rms_norm", "silu", "embedding", "softmax", "sqrt"};
    char text[512];
    fixture f;
    weft_built built;
    round_open(&f);
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new();
    snprintf(text, sizeof text, "llama %s", weft_model_find("llama")->small);
    test_build_model(g, text, false, &built);
    CU_ASSERT_EQUAL(weft_params_init(params, g, 5, &f.error), WEFT_OK);
    CU_ASSERT_EQUAL(weft_onnx_save(g, &built.outputs[0], 1, params, f.path, NULL, &f.error),
                    WEFT_OK);
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++) {
        int count = 0;
        for (size_t i = 0; i < weft_graph_node_count(g); i++)
            count += !strcmp(weft_graph_node(g, i).op->name, ops[k]);
        CU_ASSERT_EQUAL(count_op(&f, ops[k]), count);
        CU_ASSERT_EQUAL(count > 0, k < 4);
    }
    weft_params_free(params);
    weft_graph_free(g);
    round_close(&f);
}

void onnx_notes_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_notes", NULL, NULL);
    CU_add_test(suite, "notes that lie, and changed nodes", test_notes);
    CU_add_test(suite, "a tensor inside of an op", test_inside);
    CU_add_test(suite, "fused ops are found again", test_fused);
}
