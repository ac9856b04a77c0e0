/* The layers of a graph and its summary, on a graph that is small enough to write them out. */
#include "tests.h"

#include <base/text.h>

#include <weft/inspect.h>

#include <stdlib.h>
#include <string.h>

static char text[8192];

static const char *print(const weft_graph *g, const weft_summary_options *o)
{
    weft_error error = WEFT_NO_ERROR;
    FILE *file = fmemopen(text, sizeof text, "w");
    CU_ASSERT_PTR_NOT_NULL_FATAL(file);
    memset(text, 0, sizeof text);
    CU_ASSERT_EQUAL(weft_graph_print_summary(g, o, file, &error), WEFT_OK);
    fclose(file);
    return text;
}

/* Two linear layers in the scopes net.first and net.a_layer_with_a_long_name. */
static weft_graph *small_graph(bool train)
{
    const weft_optimizer sgd = {.kind = WEFT_SGD};
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2, 3));
    weft_graph_push_scope(g, "net");
    weft_graph_push_scope(g, "first");
    weft_value w = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(3, 500), WEFT_INIT_XAVIER);
    x = weft_relu(g, weft_matmul(g, x, w));
    weft_graph_pop_scope(g);
    weft_graph_push_scope(g, "a_layer_with_a_long_name");
    w = weft_param(g, "weight", WEFT_F32, WEFT_SHAPE(500, 4), WEFT_INIT_XAVIER);
    x = weft_matmul(g, x, w);
    weft_graph_pop_scope(g);
    weft_graph_pop_scope(g);
    const weft_value loss = weft_mean(g, x, WEFT_ALL_AXES, false);
    const weft_value rate = weft_input(g, "rate", WEFT_F32, WEFT_SCALAR);
    if (train) weft_train_update(g, loss, NULL, 0, rate, &sgd, NULL);
    CU_ASSERT_EQUAL_FATAL(weft_graph_status(g), WEFT_OK);
    return g;
}

static void test_text(void)
{
    weft_graph *g = small_graph(false);
    CU_ASSERT_STRING_EQUAL(
        print(g, NULL),
        "layer                       output                    parameters      MFLOP\n"
        "(no scope)                  f32 [2, 3]                         0      0.000\n"
        "net                         f32 [2, 4]                      3500      0.015\n"
        "  first                     f32 [2, 500]                    1500      0.007\n"
        "  a_layer_with_a_long_name  f32 [2, 4]                      2000      0.008\n"
        "\n"
        "parameters                3500   14.0 kB\n"
        "forward pass             0.015 MFLOP\n");
    const weft_summary_options narrow = {.width = 64, .depth = 2}, outer = {.depth = 1};
    for (const char *line = print(g, &narrow); *line; line += strcspn(line, "\n") + 1)
        CU_ASSERT_TRUE(strcspn(line, "\n") <= 64);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\n  a_la...g_name "));
    CU_ASSERT_PTR_NULL(strstr(print(g, &outer), "first"));
    weft_graph_free(g);
    g = small_graph(true);
    print(g, NULL);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(text, "\nnet                         f32 [2, 4]                      3500"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\nbackward pass "));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\nupdates "));
    CU_ASSERT_PTR_NULL(strstr(text, "not trainable"));
    weft_graph_free(g);
    g = weft_graph_new();
    weft_relu(g, weft_state(g, "mean", WEFT_F64, WEFT_SHAPE(5), WEFT_INIT_ZEROS));
    print(g, NULL);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(text, "\nother states                 5   40 B, not trainable\n"));
    weft_graph_free(g);
}

/* Outer layers have the sums of the inner ones, and every node of the forward pass is in one. */
static void test_layers(void)
{
    weft_graph *g = weft_graph_new();
    weft_built built;
    weft_layers all;
    weft_error error = WEFT_NO_ERROR;
    double parameters = 0, top = 0, flops = 0, top_flops = 0;
    CU_ASSERT_EQUAL_FATAL(
        weft_model_build_text(g, weft_model_find("transformer"), NULL, 0, true, &built, &error),
        WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_layers_find(g, &all, &error), WEFT_OK);
    for (size_t i = 0; i < weft_graph_node_count(g); i++) {
        const weft_node_info node = weft_graph_node(g, i);
        weft_cost cost;
        CU_ASSERT_TRUE_FATAL(all.of[i] < all.n);
        CU_ASSERT_STRING_EQUAL(all.layer[all.of[i]].scope, node.scope);
        CU_ASSERT_EQUAL(weft_graph_node_cost(g, i, &cost, NULL), WEFT_OK);
        flops += cost.flops;
    }
    weft_value params[512];
    const size_t n = test_params(g, params, 512);
    for (size_t i = 0; i < n; i++)
        parameters += (double)weft_shape_numel(weft_shape_of(g, params[i]));
    for (size_t i = 0; i < all.n; i++) {
        const weft_layer *l = &all.layer[i];
        CU_ASSERT_EQUAL(l->depth == 0, l->parent == SIZE_MAX);
        if (l->depth == 0) {
            top += l->parameters;
            top_flops += l->cost.flops;
            continue;
        }
        CU_ASSERT_TRUE_FATAL(l->parent < i);
        const weft_layer *up = &all.layer[l->parent];
        CU_ASSERT_EQUAL(up->depth + 1, l->depth);
        CU_ASSERT_EQUAL(strncmp(l->scope, up->scope, strlen(up->scope)), 0);
        CU_ASSERT_TRUE(up->parameters >= l->parameters && up->cost.flops >= l->cost.flops);
        CU_ASSERT_TRUE(weft_is_value(l->output));
        CU_ASSERT_TRUE(weft_is_value(l->input));
    }
    CU_ASSERT_EQUAL(top, parameters);
    CU_ASSERT_TRUE(fabs(top_flops - flops) <= ROUNDING_F64 * flops);
    weft_layers_free(&all);
    weft_graph_free(g);
}

/* Dots at the ends of a component, or several in a row, belong to a component: each ends, and none
 * is empty. */
static void test_dots(void)
{
    static const struct {
        const char *scope, *rows;
    } cases[] = {
        {"a.b", "\na  *\n  b  *"},   {".hidden", "\n.hidden  *"},
        {"..", "\n..  *"},           {".", "\n.  *"},
        {"a.", "\na.  *"},           {"a..", "\na..  *"},
        {"a..b", "\na  *\n  .b  *"}, {"..a...b.", "\n..a  *\n  ..b.  *"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weft_graph *g = weft_graph_new();
        const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2));
        weft_graph_push_scope(g, "%s", cases[i].scope);
        weft_relu(g, x);
        weft_graph_pop_scope(g);
        char pattern[64];
        snprintf(pattern, sizeof pattern, "*%s\nparameters*", cases[i].rows);
        CU_ASSERT_TRUE(weft__text_match(pattern, strlen(pattern), print(g, NULL)));
        weft_graph_free(g);
    }
}

static void test_failures(void)
{
    weft_graph *g = small_graph(false);
    weft_layers all;
    const weft_summary_options narrow = {.width = 47}, negative = {.depth = -1};
    CU_ASSERT_EQUAL(weft_graph_print_summary(g, NULL, NULL, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_graph_print_summary(g, &narrow, stdout, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_graph_print_summary(g, &negative, stdout, NULL), WEFT_BAD_ARGUMENT);
    CU_ASSERT_EQUAL(weft_layers_find(g, NULL, NULL), WEFT_BAD_ARGUMENT);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        CU_ASSERT_EQUAL(weft_graph_print_summary(g, NULL, full, NULL), WEFT_IO);
        fclose(full);
    } else {
        test_skip("a summary to a full disk", "there is no /dev/full");
    }
    weft_graph_fail(g, WEFT_BAD_SHAPE, "made to fail");
    CU_ASSERT_EQUAL(weft_layers_find(g, &all, NULL), WEFT_BAD_SHAPE);
    weft_layers_free(&all);
    weft_graph_free(g);
}

void summary_tests(void)
{
    CU_pSuite suite = CU_add_suite("summary", NULL, NULL);
    CU_add_test(suite, "text", test_text);
    CU_add_test(suite, "layers", test_layers);
    CU_add_test(suite, "dots", test_dots);
    CU_add_test(suite, "failures", test_failures);
}
