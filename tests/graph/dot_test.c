/* DOT export: escaping, scopes as clusters, and that Graphviz, where it is there, takes it. */
#include "tests.h"

#include <weft/scan.h>

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char text[65536];

/* The DOT text of a graph; "" if it cannot be had. */
static const char *dot_with(const weft_graph *graph, const weft_dot_options *options)
{
    weft_error error = {0};
    FILE *file = tmpfile();
    text[0] = 0;
    if (!file) return text;
    CU_ASSERT_EQUAL(weft_graph_write_dot(graph, options, file, &error), WEFT_OK);
    rewind(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return text;
}

static const char *dot_of(const weft_graph *graph)
{
    return dot_with(graph, NULL);
}

static size_t occurrences(const char *in, const char *what)
{
    size_t n = 0;
    while ((in = strstr(in, what))) {
        n++;
        in += strlen(what);
    }
    return n;
}

/* Scopes a, b.c, b, a again: every leaf kind, a name that needs escaping, a braced name. */
static weft_graph *scoped_graph(void)
{
    const float bias[3] = {1, 2, 3};
    weft_graph *g = weft_graph_new();
    weft_graph_push_scope(g, "a");
    weft_value x = weft_input(g, "x\"q\\{", WEFT_F32, WEFT_SHAPE(2, 3));
    weft_graph_pop_scope(g);
    weft_graph_push_scope(g, "b");
    weft_graph_push_scope(g, "c");
    weft_value w = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(3, 3), WEFT_INIT_XAVIER);
    x = weft_matmul(g, x, w);
    weft_graph_pop_scope(g);
    x = weft_relu(g, x);
    weft_graph_pop_scope(g);
    weft_graph_push_scope(g, "a");
    x = weft_add(g, x, weft_constant(g, WEFT_F32, WEFT_SHAPE(3), bias));
    weft_name(g, x, "out");
    weft_graph_pop_scope(g);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_OK);
    return g;
}

static void test_labels(void)
{
    weft_graph *g = scoped_graph();
    const char *dot = dot_of(g);
    CU_ASSERT_PTR_NOT_NULL(strstr(dot, "label=\"a.x\\\"q\\\\{\\nf32 [2, 3]\""));
    CU_ASSERT_PTR_NOT_NULL(strstr(dot, "label=\"b.c.weight\\nf32 [3, 3]\""));
    CU_ASSERT_PTR_NOT_NULL(strstr(dot, "label=\"a.out\\nadd\\nf32 [2, 3]\""));
    CU_ASSERT_EQUAL(occurrences(dot, "shape=ellipse"), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "shape=box3d"), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "shape=note"), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "shape="), weft_graph_node_count(g));
    CU_ASSERT_EQUAL(occurrences(dot, " -> "), 5);
    weft_graph_free(g);
}

/* A scope that is entered twice goes by one name; one in another scope lies in its cluster. */
static void test_clusters(void)
{
    weft_graph *g = scoped_graph();
    const char *dot = dot_of(g);
    CU_ASSERT_EQUAL(occurrences(dot, "subgraph \"cluster_a\" {"), 2);
    CU_ASSERT_EQUAL(occurrences(dot, "subgraph \"cluster_b\" {"), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "subgraph \"cluster_b.c\" {"), 1);
    const char *outer = strstr(dot, "cluster_b\""), *inner = strstr(dot, "cluster_b.c\"");
    CU_ASSERT_TRUE(outer && inner && outer < inner && !memchr(outer, '}', (size_t)(inner - outer)));
    CU_ASSERT_EQUAL(occurrences(dot, "subgraph "), 4);
    CU_ASSERT_EQUAL(occurrences(dot, "\n}"), 5);
    weft_graph_free(g);
}

/* Dots that separate nothing belong to a component: its cluster, or its box, has a name. */
static void test_dots(void)
{
    weft_graph *g = weft_graph_new();
    const weft_dot_options boxes = {.depth = 2};
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2));
    weft_graph_push_scope(g, "..a...b.");
    x = weft_relu(g, x);
    weft_graph_pop_scope(g);
    weft_graph_push_scope(g, "..");
    weft_relu(g, x);
    weft_graph_pop_scope(g);
    const char *dot = dot_of(g);
    CU_ASSERT_PTR_NOT_NULL(strstr(dot, "subgraph \"cluster_..a\" {"));
    CU_ASSERT_PTR_NOT_NULL(strstr(dot, "subgraph \"cluster_..a...b.\" {"));
    CU_ASSERT_PTR_NOT_NULL(strstr(dot, "subgraph \"cluster_..\" {"));
    CU_ASSERT_EQUAL(occurrences(dot, "subgraph "), 3);
    CU_ASSERT_EQUAL(occurrences(dot, "\n}"), 4);
    CU_ASSERT_PTR_NOT_NULL(strstr(dot_with(g, &boxes), "\"..a...b.\\n1 node\""));
    weft_graph_free(g);
}

/* Attributes read `name=value`, by the names that the builders give them. */
static void test_attributes(void)
{
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3, 4));
    const int64_t before[] = {0, 1, 2}, after[] = {3, 0, 0};
    weft_leaky_relu(g, x, 0.25);
    weft_clamp(g, x, -0.5, 1.5);
    weft_permute(g, x, WEFT_AXES(0, -1, 1));
    weft_max(g, x, WEFT_AXES(0, 2), true);
    weft_min(g, x, WEFT_ALL_AXES, false);
    weft_pad(g, x, before, after, 7);
    weft_einsum(g, "abc,abd->acd", x, x);
    CU_ASSERT_EQUAL_FATAL(weft_graph_status(g), WEFT_OK);
    const char *dot = dot_of(g);
    static const char *const labels[] = {
        "label=\"leaky_relu\\nslope=0.25\\nf32 ",
        "label=\"clamp\\nlow=-0.5\\nhigh=1.5\\nf32 ",
        "label=\"permute\\naxes=[0,2,1]\\nf32 ",
        "label=\"max\\naxes=[0,2]\\nkeepdims=yes\\nf32 ",
        "label=\"min\\naxes=[]\\nkeepdims=no\\nf32 ",
        "label=\"pad\\nbefore=[0,1,2]\\nafter=[3,0,0]\\nvalue=7\\nf32 ",
        "label=\"einsum\\nsubscripts=abc,abd->acd\\nf32 ",
    };
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
        if (occurrences(dot, labels[i]) != 1) {
            fprintf(stderr, "\n    no %s\n", labels[i]);
            CU_FAIL("an attribute is not drawn");
        }
    char shown[8];
    const weft_node_info max = weft_graph_node(g, 4);
    CU_ASSERT_STRING_EQUAL(weft_attr_text(max.op->attrs, max.attr, shown, sizeof shown), "[0,2]");
    CU_ASSERT_STRING_EQUAL(weft_attr_text(max.op->attrs, max.attr, shown, 4), "[0,");
    const weft_attr_field word = {"word", WEFT_ATTR_TEXT, 0};
    CU_ASSERT_STRING_EQUAL(weft_attr_text(&word, "5 %d", shown, sizeof shown), "5 %d");
    weft_graph_free(g);
}

/* Messages of shape rules end with the attributes. */
static void test_messages(void)
{
    weft_graph *g = weft_graph_new();
    weft_permute(g, weft_fill(g, WEFT_F32, WEFT_SHAPE(2, 3), 1), WEFT_AXES(1, 1));
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, " (axes=[1,1])"));
    weft_graph_free(g);
    g = weft_graph_new();
    weft_clamp(g, weft_fill(g, WEFT_F32, WEFT_SHAPE(2, 3), 1), 2, -1);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, " (low=2 high=-1)"));
    weft_graph_free(g);
}

/* ---- Boxes and roles ---- */

/* loss = mean of relu(x w.0) w.1, in the scopes net.first and net.second, and its training step. */
static weft_graph *trained_graph(void)
{
    const weft_optimizer sgd = {.kind = WEFT_SGD};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3));
    weft_graph_push_scope(g, "net");
    weft_graph_push_scope(g, "first");
    weft_value w = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(3, 5), WEFT_INIT_XAVIER);
    x = weft_relu(g, weft_matmul(g, x, w));
    weft_graph_pop_scope(g);
    weft_graph_push_scope(g, "second");
    w = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(5, 4), WEFT_INIT_XAVIER);
    x = weft_matmul(g, x, w);
    weft_graph_pop_scope(g);
    weft_graph_pop_scope(g);
    const weft_value loss = weft_name(g, weft_mean(g, x, WEFT_ALL_AXES, false), "loss");
    const weft_value rate = weft_input(g, "rate", WEFT_F32, WEFT_SCALAR);
    weft_train_update(g, loss, NULL, 0, rate, &sgd, NULL);
    CU_ASSERT_EQUAL_FATAL(weft_graph_status(g), WEFT_OK);
    return g;
}

static size_t nodes_of_role(const weft_graph *g, weft_direction direction)
{
    size_t n = 0;
    for (size_t i = 0; i < weft_graph_node_count(g); i++)
        n += weft_graph_node(g, i).role.direction == direction;
    return n;
}

/* A role that is left out takes the inputs and states with it that only it reads. */
static void test_roles(void)
{
    weft_graph *g = trained_graph();
    const size_t all = weft_graph_node_count(g), updates = nodes_of_role(g, WEFT_UPDATE),
                 backward = nodes_of_role(g, WEFT_BACKWARD);
    CU_ASSERT_TRUE(updates > 0 && backward > 0);
    const char *dot = dot_of(g);
    CU_ASSERT_EQUAL(occurrences(dot, "[shape="), all);
    CU_ASSERT_EQUAL(occurrences(dot, "#1d8a6b"), updates);
    CU_ASSERT_EQUAL(occurrences(dot, "#d07a1a"), backward);
    CU_ASSERT_EQUAL(occurrences(dot, "label=\"rate"), 1);
    dot = dot_with(g, &(weft_dot_options){.no_update = true});
    CU_ASSERT_EQUAL(occurrences(dot, "#1d8a6b"), 0);
    CU_ASSERT_EQUAL(occurrences(dot, "#d07a1a"), backward);
    CU_ASSERT_EQUAL(occurrences(dot, "label=\"rate"), 0);
    CU_ASSERT_EQUAL(occurrences(dot, "shape=box3d"), 2);
    dot = dot_with(g, &(weft_dot_options){.no_backward = true});
    CU_ASSERT_EQUAL(occurrences(dot, "#1d8a6b") + occurrences(dot, "#d07a1a"), 0);
    CU_ASSERT_EQUAL(occurrences(dot, "label=\"loss"), 1);
    weft_graph_free(g);
}

/* Scopes are boxes with their nodes and parameters; edges of a box are joined and have shapes. */
static void test_boxes(void)
{
    weft_graph *g = trained_graph();
    const char *dot = dot_with(g, &(weft_dot_options){.depth = 2, .no_backward = true});
    CU_ASSERT_EQUAL(occurrences(dot, "label=\"net.first\\n3 nodes\\n15 parameters\""), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "label=\"net.second\\n2 nodes\\n20 parameters\""), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "label=\"[2, 5]\""), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "shape="), 4); /* and x, and loss */
    CU_ASSERT_EQUAL(occurrences(dot, " -> "), 3);
    CU_ASSERT_EQUAL(occurrences(dot, "subgraph"), 0);
    dot = dot_with(g, &(weft_dot_options){.depth = 1, .no_backward = true});
    CU_ASSERT_EQUAL(occurrences(dot, "label=\"net\\n5 nodes\\n35 parameters\""), 1);
    CU_ASSERT_EQUAL(occurrences(dot, " -> "), 2);
    /* A gradient is in a box of the scope of its node, and points upwards. */
    dot = dot_with(g, &(weft_dot_options){.depth = 2, .no_update = true});
    CU_ASSERT_EQUAL(occurrences(dot, "label=\"net.first\\ngradient, "), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "label=\"net.second\\ngradient, "), 1);
    CU_ASSERT_TRUE(occurrences(dot, "dir=back") >= 1);
    CU_ASSERT_EQUAL(weft_graph_write_dot(g, &(weft_dot_options){.depth = -1}, stdout, NULL),
                    WEFT_BAD_ARGUMENT);
    weft_graph_free(g);
}

/* A loop is drawn with its body, in a cluster whose nodes have names of their own. */
static void test_bodies(void)
{
    weft_graph *g = weft_graph_new(), *b = weft_graph_new();
    const weft_value h = weft_input(b, "h", WEFT_F32, WEFT_SHAPE(2));
    const weft_value x = weft_input(b, "x", WEFT_F32, WEFT_SHAPE(2));
    const weft_value next = weft_tanh(b, weft_mul(b, h, x));
    const weft_value start = weft_input(g, "start", WEFT_F32, WEFT_SHAPE(2));
    const weft_value xs = weft_input(g, "xs", WEFT_F32, WEFT_SHAPE(4, 2));
    const weft_scan_body body = {
        .graph = b, .n_carry = 1, .carry_in = &h, .carry_out = &next, .n_each = 1, .each = &x};
    const weft_scan_inputs inputs = {.carry = &start, .each = &xs};
    weft_value last;
    weft_scan(g, &body, 4, &inputs, &last, NULL);
    const char *dot = dot_of(g);
    CU_ASSERT_EQUAL(occurrences(dot, "label=\"a step of scan, 4 nodes\""), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "subgraph "), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "n2_3 [shape=box"), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "n0 -> n2_0 [style=dashed, label=\"carry\"]"), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "n1 -> n2_1 [style=dashed, label=\"slice\"]"), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "n2_2 -> n2_3;"), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "n2_3 -> n2 [style=dashed, label=\"last\"]"), 1);
    CU_ASSERT_EQUAL(occurrences(dot, "n2_3 -> n2_0 [style=dotted, constraint=false"), 1);
    weft_graph_free(b);
    weft_graph_free(g);
}

static void test_failures(void)
{
    weft_error error = {0};
    weft_graph *g = scoped_graph();
    CU_ASSERT_EQUAL(weft_graph_write_dot(g, NULL, NULL, &error), WEFT_BAD_ARGUMENT);
    CU_ASSERT_NOT_EQUAL(weft_graph_write_dot(NULL, NULL, stdout, NULL), WEFT_OK);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        memset(&error, 0, sizeof error);
        CU_ASSERT_EQUAL(weft_graph_write_dot(g, NULL, full, &error), WEFT_IO);
        CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "No space left"));
        fclose(full);
    } else {
        test_skip("dot to a full disk", "there is no /dev/full");
    }
    weft_graph_fail(g, WEFT_BAD_SHAPE, "made to fail");
    memset(&error, 0, sizeof error);
    CU_ASSERT_EQUAL(weft_graph_write_dot(g, NULL, stdout, &error), WEFT_BAD_SHAPE);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "made to fail"));
    weft_graph_free(g);
}

/* Graphviz reads the text back, and then has three clusters. */
static void test_graphviz(void)
{
    char path[] = "/tmp/weft-dot-XXXXXX", command[128], canon[16384];
    if (system("command -v dot >/dev/null 2>&1") != 0) {
        test_skip("dot -Tcanon", "the program dot is not installed");
        return;
    }
    weft_error error = {0};
    weft_graph *g = scoped_graph();
    int descriptor = mkstemp(path);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    CU_ASSERT_EQUAL(weft_graph_write_dot(g, NULL, file, &error), WEFT_OK);
    fclose(file);
    snprintf(command, sizeof command, "dot -Tcanon %s 2>&1", path);
    FILE *pipe = popen(command, "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(pipe);
    canon[fread(canon, 1, sizeof canon - 1, pipe)] = 0;
    CU_ASSERT_EQUAL(pclose(pipe), 0);
    CU_ASSERT_EQUAL(occurrences(canon, "subgraph "), 3);
    CU_ASSERT_EQUAL(occurrences(canon, "rror"), 0);
    unlink(path);
    weft_graph_free(g);
}

void dot_tests(void)
{
    CU_pSuite suite = CU_add_suite("dot", NULL, NULL);
    CU_add_test(suite, "labels", test_labels);
    CU_add_test(suite, "clusters", test_clusters);
    CU_add_test(suite, "dots", test_dots);
    CU_add_test(suite, "attributes", test_attributes);
    CU_add_test(suite, "attributes in messages", test_messages);
    CU_add_test(suite, "roles", test_roles);
    CU_add_test(suite, "boxes", test_boxes);
    CU_add_test(suite, "bodies of loops", test_bodies);
    CU_add_test(suite, "failures", test_failures);
    CU_add_test(suite, "graphviz", test_graphviz);
}
