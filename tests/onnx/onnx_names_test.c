/* Names in models from ONNX files: the scopes that follow from them, and long ones. */
#include "onnx_writer.h"
#include "tests.h"

#include <weft/inspect.h>

#include <stdio.h>
#include <string.h>

/* The scope of the node that computes a named value, or of a parameter. */
static const char *scope_of(const weft_graph *g, const char *name)
{
    return weft_graph_node(g, weft_producer_of(g, weft_graph_find(g, name))).scope;
}

/* A node of each name, or of scopes in its metadata, from x to y, and the scopes that they have in
 * weft's graph. Weights lie in the scope of their names or, without one, in that of their node. */
static void test_scopes(void)
{
    static const struct {
        const char *node, *weight, *metadata, *scope, *weight_scope;
    } cases[] = {
        {"/encoder/layer.0/self/MatMul", "encoder.layer.0.self.weight", NULL,
         "encoder.layer.0.self.MatMul", "encoder.layer.0.self"},
        {"model/dense/MatMul", "model/dense/kernel", NULL, "model.dense.MatMul", "model.dense"},
        {"/a/Add", "onnx::Add_12", NULL, "a.Add", "a.Add"},
        {"Add_7", "b", NULL, "Add_7", "Add_7"},
        {"matmul_7", "b", NULL, "matmul_7", "matmul_7"},
        {"../../..", "b", NULL, "Add", "Add"},
        {"", "b", NULL, "Add", "Add"},
        {"/.hidden//x./Add", "..", NULL, ".hidden.x..Add", ".hidden.x..Add"},
        {"node_add_1", "blocks.0.fc.bias", "['', 'blocks.0', 'blocks.0.fc', 'add_1']",
         "blocks.0.fc.add_1", "blocks.0.fc"},
        {"node_add_1", "b", "['', 'add_1']", "add_1", "add_1"},
        {"node_add_1", "b", "['', \"it's\", 'add']", "it's.add", "it's.add"},
        {"node_add_1", "b", "['', 'a\\'b', 'add']", "a\\'b.add", "a\\'b.add"},
        {"/a/Add", "b", "", "a.Add", "a.Add"},
        {"/a/Add", "b", "['', '']", "a.Add", "a.Add"},
        {"/a/Add", "b", "['", "a.Add", "a.Add"},
        {"/a/Add", "b", "['open", "a.Add", "a.Add"},
        {"/a/Add", "b", "['open\\", "a.Add", "a.Add"},
    };
    static const float one[2] = {1, 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arena p = {.blocks = NULL};
        weft_value in, out;
        written_graph *g = write_graph(&p);
        char inputs[64];
        snprintf(inputs, sizeof inputs, "x %s", cases[i].weight);
        write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(2));
        write_floats(&p, g, cases[i].weight, WEFT_SHAPE(2), one);
        WeftOnnx__NodeProto *node = write_node(&p, g, "Add", inputs, "y");
        node->name = weft__arena_text(&p, cases[i].node);
        write_metadata(&p, node, "namespace", ": Net/other: Other");
        if (cases[i].metadata)
            write_metadata(&p, node, "pkg.torch.onnx.name_scopes", cases[i].metadata);
        write_output(&p, g, "y");
        weft_onnx *m = must_load_written(&p, g, 13, NULL);
        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        weft_graph *built = weft_graph_new();
        weft_layers layers;
        CU_ASSERT_EQUAL(weft_onnx_build(built, m, 1, &in, &out), WEFT_OK);
        CU_ASSERT_STRING_EQUAL(scope_of(built, "y"), cases[i].scope);
        CU_ASSERT_STRING_EQUAL(scope_of(built, weft_onnx_params(m, NULL)[0].name),
                               cases[i].weight_scope);
        CU_ASSERT_EQUAL(weft_layers_find(built, &layers, NULL), WEFT_OK);
        weft_layers_free(&layers);
        weft_graph_free(built);
        weft_onnx_free(m);
        weft__arena_free(&p);
    }
}

/* Names of any length load, whole; a scope that is too long is cut, and different ones stay so. */
static void test_long_names(void)
{
    enum { LENGTH = 5000 };
    static char x[LENGTH + 1], w[LENGTH + 1], y[LENGTH + 1], node[2][LENGTH + 1];
    static const float one[2] = {1, 2}, zero[2] = {0, 0};
    memset(x, 'x', LENGTH), memset(w, 'w', LENGTH), memset(y, 'y', LENGTH);
    memset(node, 'a', sizeof node);
    for (int i = 0; i < 2; i++) node[i][LENGTH] = 0, node[i][LENGTH - 1] = (char)('a' + i);
    for (int i = 20; i < LENGTH; i += 20) node[0][i] = node[1][i] = '/';
    arena p = {.blocks = NULL};
    weft_value in, out;
    written_graph *g = write_graph(&p);
    char inputs[2 * LENGTH + 8];
    snprintf(inputs, sizeof inputs, "%s %s", x, w);
    write_input(&p, g, x, ONNX_FLOAT, WEFT_SHAPE(2));
    write_floats(&p, g, w, WEFT_SHAPE(2), one);
    write_node(&p, g, "Add", inputs, "h")->name = node[0];
    write_node(&p, g, "Relu", "h", y)->name = node[1];
    write_output(&p, g, y);
    weft_onnx *m = must_load_written(&p, g, 13, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    weft_graph *built = weft_graph_new();
    CU_ASSERT_EQUAL_FATAL(weft_onnx_build(built, m, 1, &in, &out), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(weft_name_of(built, in), x);
    CU_ASSERT_STRING_EQUAL(weft_name_of(built, out), y);
    CU_ASSERT_STRING_EQUAL(weft_onnx_params(m, NULL)[0].name, w);
    const weft_node_info relu = weft_graph_node(built, weft_producer_of(built, out));
    const char *add = weft_graph_node(built, weft_producer_of(built, out) - 1).scope;
    CU_ASSERT_EQUAL(strncmp(add, relu.scope, 200), 0);
    CU_ASSERT_NOT_EQUAL(strcmp(add, relu.scope), 0);
    /* Scopes of gradients, and of their gradients, are longer. */
    for (int order = 1; order <= 2; order++) {
        const weft_value wrt = in;
        out = weft_sum(built, weft_square(built, out), WEFT_ALL_AXES, false);
        weft_grad(built, out, &wrt, 1, &out);
    }
    CU_ASSERT_EQUAL(weft_graph_error(built)->status, WEFT_OK);
    weft_params *store = weft_params_new();
    weft_tensor result;
    weft_forward *forward = test_run_onnx(m, store, 1, zero, &result);
    CU_ASSERT_EQUAL(((const float *)result.data)[1], 2);
    weft_forward_free(forward), weft_params_free(store), weft_graph_free(built);
    weft_onnx_free(m);
    weft__arena_free(&p);
}

/* Values between the nodes, named by the options, are outputs after those of the file. */
static void test_inner_outputs(void)
{
    static const char *const names[] = {"b", "y", "a", "b"}, *const wrong[] = {"c"};
    arena p = {.blocks = NULL};
    weft_error error = {0};
    weft_value in, out[3];
    size_t n;
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(2));
    write_node(&p, g, "Neg", "x", "a");
    write_node(&p, g, "Shape", "a", "b");
    write_node(&p, g, "Tanh", "a", "y");
    write_output(&p, g, "y");
    weft_onnx *m =
        must_load_written(&p, g, 17, &(weft_onnx_options){.outputs = names, .n_outputs = 4});
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    const weft_onnx_value *outputs = weft_onnx_outputs(m, &n);
    CU_ASSERT_EQUAL_FATAL(n, 3);
    CU_ASSERT_STRING_EQUAL(outputs[0].name, "y");
    CU_ASSERT_STRING_EQUAL(outputs[1].name, "b");
    CU_ASSERT_EQUAL(outputs[1].dtype, WEFT_I32);
    CU_ASSERT_STRING_EQUAL(outputs[2].name, "a");
    weft_graph *built = weft_graph_new();
    CU_ASSERT_EQUAL(weft_onnx_build(built, m, 0, &in, out), WEFT_OK);
    CU_ASSERT_EQUAL(weft_graph_find(built, "a").id, out[2].id);
    weft_graph_free(built);
    weft_onnx_free(m);
    m = load_written(&p, g, 17, &(weft_onnx_options){.outputs = wrong, .n_outputs = 1}, &error);
    CU_ASSERT_TRUE(!m && error.status == WEFT_NOT_FOUND && !strcmp(error.where, "c"));
    m = load_written(&p, g, 17, &(weft_onnx_options){.n_outputs = 1}, &error);
    CU_ASSERT_TRUE(!m && error.status == WEFT_BAD_ARGUMENT);
    weft__arena_free(&p);
}

void onnx_names_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_names", NULL, NULL);
    CU_add_test(suite, "scopes follow from names", test_scopes);
    CU_add_test(suite, "long names", test_long_names);
    CU_add_test(suite, "inner values as outputs", test_inner_outputs);
}
