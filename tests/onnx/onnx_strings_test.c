/* Strings in ONNX models: texts and their numbers, ops on known texts, and lookups in a run. */
#include "onnx_writer.h"
#include "tests.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_TEXTS 8

/* ---- Known texts ---- */

/* The first `n_out` outputs of a node op(x), or op(x, z) with texts z, on constant texts. */
typedef struct known {
    const char *op;
    weft_shape shape;
    const char *x[MAX_TEXTS];
    const char *z[2]; /* of [2], or no second input */
    const char *attribute, *text;
    const char *number; /* an attribute of the value 2 */
    weft_shape y_shape;
    const char *y[MAX_TEXTS + 4];
} known;

static written_graph *write_known(arena *p, const known *k)
{
    written_graph *g = write_graph(p);
    write_input(p, g, "x", ONNX_STRING, k->shape);
    if (k->z[0]) write_input(p, g, "z", ONNX_STRING, WEFT_SHAPE(2));
    WeftOnnx__NodeProto *node = write_node(p, g, k->op, k->z[0] ? "x z" : "x", "y");
    if (k->attribute) write_text(p, node, k->attribute, k->text);
    if (k->number) write_int(p, node, k->number, 2);
    write_output(p, g, "y");
    return g;
}

static weft_onnx *load_known(arena *p, const known *k, weft_error *error)
{
    const weft_onnx_constant constants[] = {{"x", WEFT_I32, k->shape, NULL, k->x},
                                            {"z", WEFT_I32, WEFT_SHAPE(2), NULL, k->z}};
    const weft_onnx_options options = {.constants = constants, .n_constants = k->z[0] ? 2 : 1};
    return load_written(p, write_known(p, k), 20, &options, error);
}

/* Fetches y, and compares its texts. */
static void expect_texts(const weft_onnx *m, const char *const *texts, weft_shape shape)
{
    weft_tensor y;
    weft_params *store = weft_params_new();
    weft_forward *forward = test_run_onnx(m, store, 0, NULL, &y);
    CU_ASSERT_TRUE_FATAL(y.dtype == WEFT_I32 && weft_shape_equal(y.shape, shape));
    for (int64_t i = 0; i < weft_shape_numel(shape); i++)
        CU_ASSERT_STRING_EQUAL(weft_onnx_text(m, ((const int32_t *)y.data)[i]), texts[i]);
    weft_forward_free(forward);
    weft_params_free(store);
}

static void test_known(void)
{
    static const known rows[] = {
        {"Identity", {1, {2}}, {"b", ""}, {NULL}, NULL, NULL, NULL, {1, {2}}, {"b", ""}},
        {"StringConcat",
         {2, {2, 1}},
         {"a", "\xc3\xa4"},
         {"", "z"},
         NULL,
         NULL,
         NULL,
         {2, {2, 2}},
         {"a", "az", "\xc3\xa4", "\xc3\xa4z"}},
        {"StringSplit",
         {1, {3}},
         {"a,b,,c", "", "d"},
         {NULL},
         "delimiter",
         ",",
         NULL,
         {2, {3, 4}},
         {"a", "b", "", "c", "", "", "", "", "d", "", "", ""}},
        {"StringSplit",
         {1, {2}},
         {"  a b\t c  d ", " "},
         {NULL},
         NULL,
         NULL,
         NULL,
         {2, {2, 4}},
         {"a", "b", "c", "d", "", "", "", ""}},
        {"StringSplit",
         {1, {2}},
         {"  a b\t c  d ", " "},
         {NULL},
         NULL,
         NULL,
         "maxsplit",
         {2, {2, 3}},
         {"a", "b", "c  d ", "", "", ""}},
        {"StringNormalizer",
         {2, {1, 3}},
         {"Mon day", "\xc3\x84", ""},
         {NULL},
         NULL,
         NULL,
         NULL,
         {2, {1, 3}},
         {"Mon day", "\xc3\x84", ""}},
        {"StringNormalizer",
         {1, {2}},
         {"aZ@[`{", "9"},
         {NULL},
         "case_change_action",
         "UPPER",
         NULL,
         {1, {2}},
         {"AZ@[`{", "9"}},
        {"StringNormalizer",
         {1, {1}},
         {"aZ@[`{"},
         {NULL},
         "case_change_action",
         "LOWER",
         NULL,
         {1, {1}},
         {"az@[`{"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        arena p = {.blocks = NULL};
        weft_error error = {0};
        weft_onnx *m = load_known(&p, &rows[i], &error);
        if (!m) fprintf(stderr, "\n    %s: %s: %s\n", rows[i].op, error.where, error.message);
        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        expect_texts(m, rows[i].y, rows[i].y_shape);
        weft_onnx_free(m);
        weft__arena_free(&p);
    }
}

/* ---- Numbers of texts ---- */

/* y = op(x, z) of texts that are fed: moved, compared and chosen as numbers. */
static void test_numbers(void)
{
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_STRING, WEFT_SHAPE(2));
    write_input(&p, g, "z", ONNX_STRING, WEFT_SHAPE(2));
    write_node(&p, g, "Equal", "x z", "same");
    write_node(&p, g, "Where", "same x x", "w");
    write_node(&p, g, "Shape", "w", "s");
    write_node(&p, g, "Reshape", "w s", "y");
    write_output(&p, g, "same");
    write_output(&p, g, "y");
    weft_onnx *m = must_load_written(&p, g, 19, NULL);
    weft_graph *graph = weft_graph_new();
    weft_value in[2], out[2];
    CU_ASSERT_EQUAL_FATAL(weft_onnx_build(graph, m, 0, in, out), WEFT_OK);
    const int32_t x[2] = {weft_onnx_text_number(m, "one"), weft_onnx_text_number(m, "two")};
    const int32_t z[2] = {weft_onnx_text_number(m, "two"), weft_onnx_text_number(m, "two")};
    CU_ASSERT_TRUE(x[0] != x[1] && x[1] == z[0] && z[0] == z[1]);
    CU_ASSERT_EQUAL(weft_onnx_text_number(m, ""), 0);
    CU_ASSERT_STRING_EQUAL(weft_onnx_text(m, x[1]), "two");
    CU_ASSERT_PTR_NULL(weft_onnx_text(m, -1));
    CU_ASSERT_PTR_NULL(weft_onnx_text(m, 1000));
    CU_ASSERT_PTR_NULL(weft_onnx_text(NULL, 0));
    CU_ASSERT_EQUAL(weft_onnx_text_number(NULL, "one"), -1);
    CU_ASSERT_EQUAL(weft_onnx_text_number(m, NULL), -1);
    weft_plan *plan = weft_plan_new(graph, out, 2, NULL, NULL);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, NULL) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    uint8_t same[2];
    int32_t y[2];
    CU_ASSERT_EQUAL(weft_session_feed(s, in[0], x, sizeof x, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(s, in[1], z, sizeof z, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, out[0], same, sizeof same, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, out[1], y, sizeof y, NULL), WEFT_OK);
    CU_ASSERT_TRUE(!same[0] && same[1] && y[0] == x[0] && y[1] == x[1]);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(graph);
    weft_onnx_free(m);
    weft__arena_free(&p);
}

/* ---- LabelEncoder ---- */

/* The node ai.onnx.ml.LabelEncoder that reads x and writes y. */
static WeftOnnx__NodeProto *encoder(arena *p, written_graph *g, int type)
{
    write_input(p, g, "x", type, WEFT_SHAPE(3));
    WeftOnnx__NodeProto *node = write_node(p, g, "LabelEncoder", "x", "y");
    node->domain = weft__arena_text(p, "ai.onnx.ml");
    write_output(p, g, "y");
    return node;
}

static void set_strings(arena *p, WeftOnnx__NodeProto *node, const char *name,
                        ProtobufCBinaryData *strings, size_t n)
{
    WeftOnnx__AttributeProto *a = write_attribute(p, node, name);
    a->strings = strings;
    a->n_strings = n;
}

/* Texts of an input to i32, in a run, also one that the model does not have when it is built; and
 * numbers to texts, before opset 2 by their position. */
static void test_classes(void)
{
    ProtobufCBinaryData classes[] = {{2, (uint8_t *)"ox"}, {3, (uint8_t *)"bee"}};
    for (int to_text = 0; to_text < 2; to_text++) {
        arena p = {.blocks = NULL};
        written_graph *g = write_graph(&p);
        WeftOnnx__NodeProto *node = encoder(&p, g, to_text ? ONNX_INT64 : ONNX_STRING);
        set_strings(&p, node, "classes_strings", classes, 2);
        weft_onnx *m = must_load_written(&p, g, 19, NULL);
        const int32_t x[3] = {to_text ? 1 : weft_onnx_text_number(m, "bee"),
                              to_text ? 7 : weft_onnx_text_number(m, "cat"),
                              to_text ? 0 : weft_onnx_text_number(m, "ox")};
        weft_tensor y;
        weft_params *store = weft_params_new();
        weft_forward *forward = test_run_onnx(m, store, 0, x, &y);
        const int32_t *got = y.data;
        if (to_text) {
            CU_ASSERT_STRING_EQUAL(weft_onnx_text(m, got[0]), "bee");
            CU_ASSERT_STRING_EQUAL(weft_onnx_text(m, got[1]), "_Unused");
            CU_ASSERT_STRING_EQUAL(weft_onnx_text(m, got[2]), "ox");
        } else {
            CU_ASSERT_TRUE(got[0] == 1 && got[1] == -1 && got[2] == 0);
        }
        weft_forward_free(forward);
        weft_params_free(store);
        weft_onnx_free(m);
        weft__arena_free(&p);
    }
}

/* Floats to floats: a NaN is a key, and the first of equal keys counts. */
static void test_numeric_keys(void)
{
    static const float x[3] = {NAN, 2.5f, 1};
    float keys[] = {2.5f, NAN, 2.5f}, values[] = {10, 20, 30};
    arena p = {.blocks = NULL};
    written_graph *g = write_graph(&p);
    WeftOnnx__NodeProto *node = encoder(&p, g, ONNX_FLOAT);
    WeftOnnx__AttributeProto *a = write_attribute(&p, node, "keys_floats");
    a->floats = keys;
    a->n_floats = 3;
    a = write_attribute(&p, node, "values_floats");
    a->floats = values;
    a->n_floats = 3;
    write_float(&p, node, "default_float", -1.5);
    weft_onnx *m = must_load_written(&p, g, 19, NULL);
    weft_tensor y;
    weft_params *store = weft_params_new();
    weft_forward *forward = test_run_onnx(m, store, 0, x, &y);
    const float *got = y.data;
    CU_ASSERT_TRUE(got[0] == 20 && got[1] == 10 && got[2] == -1.5f);
    weft_forward_free(forward);
    weft_params_free(store);
    weft_onnx_free(m);
    weft__arena_free(&p);
}

/* ---- Errors ---- */

static void expect_error(const weft_error *error, weft_status status, const char *text)
{
    const bool good = error->status == status && strstr(error->message, text);
    if (!good) fprintf(stderr, "\n    %s: %s\n", error->where, error->message);
    CU_ASSERT_TRUE(good);
}

static void test_errors(void)
{
    static const known letters = {"StringNormalizer",   {1, {1}}, {"\xc3\xa4"}, {NULL},
                                  "case_change_action", "LOWER",  NULL,         {1, {1}},
                                  {"\xc3\xa4"}},
                       matrix = {.op = "StringNormalizer", .shape = {2, {2, 1}}, .x = {"a", "b"}},
                       shapes = {.op = "StringConcat",
                                 .shape = {1, {3}},
                                 .x = {"a", "b", "c"},
                                 .z = {"d", "e"}};
    arena p = {.blocks = NULL};
    weft_error error = {0};
    CU_ASSERT_PTR_NULL(load_known(&p, &letters, &error));
    expect_error(&error, WEFT_BAD_DTYPE, "only ASCII letters have a case");
    CU_ASSERT_PTR_NULL(load_known(&p, &matrix, &error));
    expect_error(&error, WEFT_BAD_SHAPE, "must be [C] or [1, C]");
    CU_ASSERT_PTR_NULL(load_known(&p, &shapes, &error));
    expect_error(&error, WEFT_BAD_SHAPE, "do not broadcast");
    /* Texts that are fed have no contents during the import. */
    CU_ASSERT_PTR_NULL(load_written(&p, write_known(&p, &letters), 20, NULL, &error));
    expect_error(&error, WEFT_BAD_ARGUMENT, "they depend on data");
    weft__arena_free(&p);
}

static void test_other_types(void)
{
    arena p = {.blocks = NULL};
    weft_error error = {0};
    /* Numbers of texts are not for arithmetic, and no cast makes texts of numbers. */
    static const known sum = {.op = "Add", .shape = {1, {2}}, .x = {"a", "b"}, .z = {"d", "e"}};
    CU_ASSERT_PTR_NULL(load_known(&p, &sum, &error));
    expect_error(&error, WEFT_BAD_DTYPE, "does not work on strings");
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(1));
    write_int(&p, write_node(&p, g, "Cast", "x", "y"), "to", ONNX_STRING);
    write_output(&p, g, "y");
    CU_ASSERT_PTR_NULL(load_written(&p, g, 20, NULL, &error));
    expect_error(&error, WEFT_BAD_DTYPE, "STRING");
    g = write_graph(&p);
    encoder(&p, g, ONNX_FLOAT);
    CU_ASSERT_PTR_NULL(load_written(&p, g, 20, NULL, &error));
    expect_error(&error, WEFT_BAD_FILE, "needs as many values as keys");
    ProtobufCBinaryData cut = {3, (uint8_t *)"a\0b"};
    g = write_graph(&p);
    write_input(&p, g, "x", ONNX_STRING, WEFT_SHAPE(1));
    WeftOnnx__NodeProto *node = write_node(&p, g, "LabelEncoder", "x", "y");
    node->domain = weft__arena_text(&p, "ai.onnx.ml");
    set_strings(&p, node, "classes_strings", &cut, 1);
    write_output(&p, g, "y");
    CU_ASSERT_PTR_NULL(load_written(&p, g, 20, NULL, &error));
    expect_error(&error, WEFT_BAD_FILE, "has a string with a NUL");
    weft__arena_free(&p);
}

static void test_wrong_constants(void)
{
    static const known one = {.op = "Identity", .shape = {1, {1}}, .x = {"a"}};
    arena p = {.blocks = NULL};
    weft_error error = {0};
    static const char *const texts[] = {"a"}, *const absent[] = {NULL};
    static const int32_t number = 0;
    weft_onnx_constant constant = {"x", WEFT_I32, WEFT_SHAPE(1), &number, NULL};
    const weft_onnx_options options = {.constants = &constant, .n_constants = 1};
    CU_ASSERT_PTR_NULL(load_written(&p, write_known(&p, &one), 20, &options, &error));
    expect_error(&error, WEFT_BAD_DTYPE, "its constant contents are numbers");
    constant.texts = texts;
    CU_ASSERT_PTR_NULL(load_written(&p, write_known(&p, &one), 20, &options, &error));
    expect_error(&error, WEFT_BAD_ARGUMENT, "constant 0 has");
    constant.data = NULL;
    constant.texts = absent;
    CU_ASSERT_PTR_NULL(load_written(&p, write_known(&p, &one), 20, &options, &error));
    expect_error(&error, WEFT_BAD_ARGUMENT, "constant 0 has");
    weft__arena_free(&p);
}

/* ---- Memory ---- */

static weft_memory_file every_op;

static weft_status load_every_op(weft_error *error)
{
    static const char *const texts[] = {"ox bee", "ox"};
    const weft_onnx_constant constant = {"x", WEFT_I32, WEFT_SHAPE(2), NULL, texts};
    const weft_onnx_options options = {.constants = &constant, .n_constants = 1};
    weft_error_clear(error);
    weft_onnx_free(weft_onnx_load_from_memory(every_op, &options, error));
    return error->status;
}

static void test_memory(void)
{
    static const uint8_t codes[2] = {0x30, 0xb8};
    ProtobufCBinaryData classes[] = {{2, (uint8_t *)"ox"}, {3, (uint8_t *)"bee"}};
    arena p = {.blocks = NULL};
    size_t bytes;
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_STRING, WEFT_SHAPE(2));
    write_bytes(&p, g, "w", ONNX_FLOAT8E5M2, WEFT_SHAPE(2), codes);
    write_node(&p, g, "StringConcat", "x x", "both");
    write_node(&p, g, "StringSplit", "both", "split count");
    WeftOnnx__NodeProto *node = write_node(&p, g, "StringNormalizer", "both", "upper");
    write_text(&p, node, "case_change_action", "UPPER");
    node = write_node(&p, g, "LabelEncoder", "upper", "label");
    node->domain = weft__arena_text(&p, "ai.onnx.ml");
    set_strings(&p, node, "classes_strings", classes, 2);
    write_int(&p, write_node(&p, g, "Cast", "w", "half"), "to", ONNX_FLOAT8E4M3FN);
    write_output(&p, g, "split");
    write_output(&p, g, "label");
    write_output(&p, g, "half");
    every_op.data = write_model(&p, g, 20, &bytes);
    every_op.bytes = bytes;
    test_every_allocation_fails(load_every_op, 50);
    weft__arena_free(&p);
}

void onnx_strings_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_strings", NULL, NULL);
    CU_add_test(suite, "known texts", test_known);
    CU_add_test(suite, "numbers of texts", test_numbers);
    CU_add_test(suite, "classes", test_classes);
    CU_add_test(suite, "numeric keys", test_numeric_keys);
    CU_add_test(suite, "errors", test_errors);
    CU_add_test(suite, "strings for other ops", test_other_types);
    CU_add_test(suite, "constants of the wrong kind", test_wrong_constants);
    CU_add_test(suite, "every allocation fails once", test_memory);
}
