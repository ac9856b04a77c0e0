/* Models from ONNX files: inputs, parameters and gradients; what is computed during the import;
 * control flow; external data; and files that are wrong or hostile. The models are written here.
 * tests/onnx_conformance compares the ops with ONNX's own cases. */
#include "onnx_writer.h"
#include "tests.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- A folder for the files of one test ---- */

typedef struct fixture {
    arena memory;
    char folder[64], path[96];
    weft_error error;
} fixture;

static void begin(fixture *f)
{
    memset(f, 0, sizeof *f);
    snprintf(f->folder, sizeof f->folder, "/tmp/weft-onnx-XXXXXX");
    CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/model.onnx", f->folder);
}

static void end(fixture *f)
{
    unlink(f->path);
    CU_ASSERT_EQUAL(rmdir(f->folder), 0);
    weft__arena_free(&f->memory);
}

static weft_onnx *load(fixture *f, written_graph *g, const weft_onnx_options *options)
{
    size_t bytes;
    const uint8_t *data = write_model(&f->memory, g, 13, &bytes);
    CU_ASSERT_TRUE_FATAL(write_file(f->path, data, bytes));
    return weft_onnx_load(f->path, options, &f->error);
}

/* The model must be refused with a status, and a line that contains `text`. */
static void refuse(fixture *f, written_graph *g, weft_status status, const char *text)
{
    weft_onnx *m = load(f, g, NULL);
    const bool good = !m && f->error.status == status &&
                      (strstr(f->error.message, text) || strstr(f->error.where, text));
    if (!good)
        fprintf(stderr, "\n    expected \"%s\", got \"%s\": %s: %s\n", text,
                weft_status_text(f->error.status), f->error.where, f->error.message);
    CU_ASSERT_TRUE(good);
    weft_onnx_free(m);
}

/* ---- A small network ---- */

static const float weights[6] = {1, 2, 3, 4, 5, 6};

/* y = x W^T + b reshaped to [N, 1, 2], with a shape that the model computes from x [N, 3]. W^T is
 * computed during the import too, but W must get its gradient through it. */
static written_graph *network(fixture *f)
{
    static const float bias[2] = {10, -20};
    static const int64_t zero = 0, tail[2] = {1, 2};
    arena *p = &f->memory;
    written_graph *g = write_graph(p);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(-1, 3));
    write_floats(p, g, "layer:W", WEFT_SHAPE(2, 3), weights);
    write_floats(p, g, "b", WEFT_SHAPE(2), bias);
    write_longs(p, g, "zero", WEFT_SHAPE(1), &zero);
    write_longs(p, g, "tail", WEFT_SHAPE(2), tail);
    write_node(p, g, "Transpose", "layer:W", "WT");
    write_node(p, g, "MatMul", "x WT", "h");
    write_node(p, g, "Add", "h b", "s");
    write_node(p, g, "Shape", "x", "shape");
    write_node(p, g, "Gather", "shape zero", "rows");
    write_attribute(p, write_node(p, g, "Concat", "rows tail", "new_shape"), "axis")->has_i = true;
    write_node(p, g, "Reshape", "s new_shape", "y");
    write_output(p, g, "y");
    return g;
}

static void test_network(void)
{
    static const float x[6] = {1, 0, 0, 0, 1, 1};
    fixture f;
    size_t n;
    begin(&f);
    weft_onnx *m = load(&f, network(&f), &(weft_onnx_options){.batch = 5});
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    const weft_onnx_value *inputs = weft_onnx_inputs(m, &n);
    CU_ASSERT_EQUAL_FATAL(n, 1);
    CU_ASSERT_TRUE(weft_shape_equal(inputs[0].shape, WEFT_SHAPE(5, 3)));
    const weft_onnx_value *outputs = weft_onnx_outputs(m, &n);
    CU_ASSERT_EQUAL_FATAL(n, 1);
    CU_ASSERT_TRUE(weft_shape_equal(outputs[0].shape, WEFT_SHAPE(5, 1, 2)));
    const weft_onnx_value *params = weft_onnx_params(m, &n);
    CU_ASSERT_EQUAL_FATAL(n, 2);
    CU_ASSERT_STRING_EQUAL(params[0].name, "layer_W");
    static const float wanted[4] = {11, -16, 15, -9};
    weft_params *store = weft_params_new();
    weft_tensor y;
    weft_forward *forward = test_run_onnx(m, store, 2, x, &y);
    CU_ASSERT_TRUE(weft_shape_equal(y.shape, WEFT_SHAPE(2, 1, 2)));
    for (int i = 0; i < 4; i++) CU_ASSERT_EQUAL(((const float *)y.data)[i], wanted[i]);
    weft_forward_free(forward), weft_params_free(store), weft_onnx_free(m);
    end(&f);
}

/* Large weights lie at one address, the model's, in all stores that share them; small ones, and those
 * of a store that has them already, are copied. */
static void test_shared(void)
{
    enum { ROWS = 16, COLUMNS = 128 };
    fixture f;
    begin(&f);
    float *large = weft__arena_alloc(&f.memory, ROWS * COLUMNS * sizeof *large);
    for (int i = 0; i < ROWS * COLUMNS; i++) large[i] = (float)i;
    written_graph *g = write_graph(&f.memory);
    write_input(&f.memory, g, "x", ONNX_FLOAT, WEFT_SHAPE(ROWS, COLUMNS));
    write_floats(&f.memory, g, "w", WEFT_SHAPE(ROWS, COLUMNS), large);
    write_floats(&f.memory, g, "b", WEFT_SHAPE(COLUMNS), large);
    write_node(&f.memory, g, "Mul", "x w", "h");
    write_node(&f.memory, g, "Add", "h b", "y");
    write_output(&f.memory, g, "y");
    weft_onnx *m = load(&f, g, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    weft_params *store[3];
    weft_tensor w[3], b[3];
    for (int i = 0; i < 3; i++) store[i] = weft_params_new();
    weft_params_add(store[2], "w", WEFT_F32, WEFT_SHAPE(ROWS, COLUMNS), NULL, NULL);
    for (int i = 0; i < 3; i++) {
        CU_ASSERT_EQUAL(weft_onnx_share_weights(m, store[i], &f.error), WEFT_OK);
        CU_ASSERT_TRUE_FATAL(weft_params_find(store[i], "w", &w[i]) &&
                             weft_params_find(store[i], "b", &b[i]));
        CU_ASSERT_EQUAL((uintptr_t)w[i].data % 64, 0);
        CU_ASSERT_EQUAL(memcmp(w[i].data, large, ROWS * COLUMNS * sizeof *large), 0);
        CU_ASSERT_EQUAL(memcmp(b[i].data, large, COLUMNS * sizeof *large), 0);
    }
    CU_ASSERT_PTR_EQUAL(w[0].data, w[1].data);
    CU_ASSERT_PTR_NOT_EQUAL(w[0].data, w[2].data);
    CU_ASSERT_PTR_NOT_EQUAL(b[0].data, b[1].data);
    for (int i = 0; i < 3; i++) weft_params_free(store[i]);
    store[0] = weft_params_new();
    weft_params_add(store[0], "w", WEFT_F32, WEFT_SHAPE(1), NULL, NULL);
    CU_ASSERT_EQUAL(weft_onnx_share_weights(m, store[0], &f.error), WEFT_BAD_SHAPE);
    CU_ASSERT_EQUAL(weft_onnx_share_weights(m, NULL, &f.error), WEFT_BAD_ARGUMENT);
    weft_params_free(store[0]);
    weft_onnx_free(m);
    end(&f);
}

/* d sum(y) / d W is the sum of the rows of x, for both rows of W. */
static void test_gradient(void)
{
    static const float x[6] = {1, 2, 3, 10, 20, 30};
    static const float wanted[6] = {11, 22, 33, 11, 22, 33};
    fixture f;
    weft_value in, out, gradient;
    float got[6] = {0};
    begin(&f);
    weft_onnx *m = load(&f, network(&f), NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    weft_graph *g = weft_graph_new();
    weft_params *store = weft_params_new();
    CU_ASSERT_EQUAL_FATAL(weft_onnx_build(g, m, 2, &in, &out), WEFT_OK);
    weft_value w = weft_graph_find(g, "layer_W");
    weft_grad(g, weft_sum(g, out, WEFT_ALL_AXES, false), &w, 1, &gradient);
    CU_ASSERT_EQUAL_FATAL(weft_onnx_copy_weights(m, store, &f.error), WEFT_OK);
    weft_plan *plan = weft_plan_new(g, &gradient, 1, NULL, &f.error);
    weft_session *s = weft_session_new(plan, store, NULL, &f.error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_feed(s, in, x, sizeof x, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_fetch(s, gradient, got, sizeof got, NULL), WEFT_OK);
    for (int i = 0; i < 6; i++) CU_ASSERT_EQUAL(got[i], wanted[i]);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(store);
    weft_graph_free(g);
    weft_onnx_free(m);
    end(&f);
}

/* Both pieces of W are computed again for the gradient, by one Split. */
static void test_several_outputs(void)
{
    static const float w[4] = {1, 2, 3, 4}, x[2] = {10, 20}, wanted[2] = {13, 44};
    fixture f;
    weft_value in, out;
    weft_tensor y;
    begin(&f);
    arena *p = &f.memory;
    written_graph *g = write_graph(p);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(-1, 2));
    write_floats(p, g, "W", WEFT_SHAPE(4), w);
    write_node(p, g, "Split", "W", "a b");
    write_node(p, g, "Mul", "x a", "h");
    write_node(p, g, "Add", "h b", "y");
    write_output(p, g, "y");
    weft_onnx *m = load(&f, g, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    weft_graph *built = weft_graph_new();
    CU_ASSERT_EQUAL(weft_onnx_build(built, m, 1, &in, &out), WEFT_OK);
    int slices = 0;
    for (size_t i = 0; i < weft_graph_node_count(built); i++)
        slices += !strcmp(weft_graph_node(built, i).op->name, "slice");
    CU_ASSERT_EQUAL(slices, 2);
    weft_graph_free(built);
    weft_params *store = weft_params_new();
    weft_forward *forward = test_run_onnx(m, store, 1, x, &y);
    EXPECT_SAME_BITS(WEFT_F32, y.data, wanted, 2);
    weft_forward_free(forward), weft_params_free(store), weft_onnx_free(m);
    end(&f);
}

/* ---- Integers ---- */

/* x [4] sliced from 1 to `bound`. */
static written_graph *sliced(fixture *f, const int64_t *bound)
{
    static const int64_t one = 1;
    written_graph *g = write_graph(&f->memory);
    write_input(&f->memory, g, "x", ONNX_FLOAT, WEFT_SHAPE(4));
    write_longs(&f->memory, g, "begin", WEFT_SHAPE(1), &one);
    write_longs(&f->memory, g, "end", WEFT_SHAPE(1), bound);
    write_node(&f->memory, g, "Slice", "x begin end", "y");
    write_output(&f->memory, g, "y");
    return g;
}

static void test_integers(void)
{
    static const int64_t absent = INT64_MAX, large = (int64_t)1 << 40;
    fixture f;
    size_t n;
    begin(&f);
    weft_onnx *m = load(&f, sliced(&f, &absent), NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_EQUAL(weft_onnx_outputs(m, &n)[0].shape.dim[0], 3);
    weft_onnx_free(m);
    refuse(&f, sliced(&f, &large), WEFT_BAD_DTYPE, "1099511627776, which does not fit i32");
    end(&f);
}

/* ---- Control flow ---- */

/* Doubles x [2] as often as the trip count says; the second output has all values on the way. */
static written_graph *doubling(fixture *f, bool known)
{
    static const int64_t trips = 3;
    arena *p = &f->memory;
    written_graph *g = write_graph(p), *body = write_graph(p);
    write_input(p, body, "i", ONNX_INT64, WEFT_SCALAR);
    write_input(p, body, "go_on", ONNX_BOOL, WEFT_SCALAR);
    write_input(p, body, "before", ONNX_FLOAT, WEFT_SHAPE(2));
    write_node(p, body, "Add", "before before", "after");
    write_node(p, body, "Identity", "go_on", "next");
    write_node(p, body, "Identity", "after", "seen");
    write_output(p, body, "next");
    write_output(p, body, "after");
    write_output(p, body, "seen");
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(2));
    if (known)
        write_longs(p, g, "trips", WEFT_SCALAR, &trips);
    else
        write_input(p, g, "trips", ONNX_INT64, WEFT_SCALAR);
    WeftOnnx__NodeProto *loop = write_node(p, g, "Loop", "trips - x", "last all");
    write_attribute(p, loop, "body")->g = &body->proto;
    write_output(p, g, "all");
    write_output(p, g, "last");
    return g;
}

/* Adds the rows of x [3, 2] one after another; the second output has all sums on the way. */
static written_graph *summing(fixture *f)
{
    arena *p = &f->memory;
    written_graph *g = write_graph(p), *body = write_graph(p);
    write_input(p, body, "before", ONNX_FLOAT, WEFT_SHAPE(2));
    write_input(p, body, "row", ONNX_FLOAT, WEFT_SHAPE(2));
    write_node(p, body, "Add", "before row", "after");
    write_node(p, body, "Identity", "after", "seen");
    write_output(p, body, "after");
    write_output(p, body, "seen");
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(3, 2));
    write_floats(p, g, "zero", WEFT_SHAPE(2), (const float[]){0, 0});
    WeftOnnx__NodeProto *scan = write_node(p, g, "Scan", "zero x", "last all");
    write_attribute(p, scan, "body")->g = &body->proto;
    write_int(p, scan, "num_scan_inputs", 1);
    write_output(p, g, "last");
    write_output(p, g, "all");
    return g;
}

static void test_loop(void)
{
    static const float x[2] = {1, 3}, wanted[6] = {2, 6, 4, 12, 8, 24};
    fixture f;
    begin(&f);
    weft_onnx *m = load(&f, doubling(&f, true), NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    weft_params *store = weft_params_new();
    weft_tensor y;
    weft_forward *forward = test_run_onnx(m, store, 0, x, &y);
    CU_ASSERT_TRUE(weft_shape_equal(y.shape, WEFT_SHAPE(3, 2)));
    for (int i = 0; i < 6; i++) CU_ASSERT_EQUAL(((const float *)y.data)[i], wanted[i]);
    weft_forward_free(forward);
    weft_params_free(store);
    weft_onnx_free(m);
    refuse(&f, doubling(&f, false), WEFT_BAD_ARGUMENT, "needs its trip count");

    static const int32_t two = 2;
    const weft_onnx_constant constant = {"trips", WEFT_I32, WEFT_SCALAR, &two, NULL};
    size_t n;
    m = load(&f, doubling(&f, false),
             &(weft_onnx_options){.constants = &constant, .n_constants = 1});
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_TRUE(weft_shape_equal(weft_onnx_outputs(m, &n)[0].shape, WEFT_SHAPE(2, 2)));
    weft_onnx_inputs(m, &n);
    CU_ASSERT_EQUAL(n, 1);
    weft_onnx_free(m);
    end(&f);
}

/* ---- External data ---- */

/* y = x + w, where w [3] is in a file. */
static written_graph *external(fixture *f, const char *location, const char *offset)
{
    arena *p = &f->memory;
    written_graph *g = write_graph(p);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(3));
    WeftOnnx__TensorProto *w = write_initializer(p, g, "w", ONNX_FLOAT, WEFT_SHAPE(3));
    write_external(p, w, location, offset);
    write_node(p, g, "Add", "x w", "y");
    write_output(p, g, "y");
    return g;
}

static void test_external(void)
{
    static const float data[5] = {0, 1, 2, 3, 4}, x[3] = {10, 20, 30};
    fixture f;
    char file[128], link[128];
    begin(&f);
    snprintf(file, sizeof file, "%s/w.bin", f.folder);
    snprintf(link, sizeof link, "%s/link", f.folder);
    CU_ASSERT_TRUE_FATAL(write_file(file, data, sizeof data));
    weft_onnx *m = load(&f, external(&f, "w.bin", "8"), NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_STRING_EQUAL(weft_onnx_data_file(m, 0), "w.bin");
    CU_ASSERT_PTR_NULL(weft_onnx_data_file(m, 1));
    weft_params *store = weft_params_new();
    weft_tensor y;
    weft_forward *forward = test_run_onnx(m, store, 0, x, &y);
    for (int i = 0; i < 3; i++) CU_ASSERT_EQUAL(((const float *)y.data)[i], x[i] + data[i + 2]);
    weft_forward_free(forward);
    weft_params_free(store);
    weft_onnx_free(m);

    refuse(&f, external(&f, "w.bin", "12"), WEFT_BAD_FILE, "needs bytes 12 to 24");
    refuse(&f, external(&f, "w.bin", "999999999999999999"), WEFT_BAD_FILE, "which has 20");
    refuse(&f, external(&f, "w.bin", "-8"), WEFT_BAD_FILE, "is not a number");
    refuse(&f, external(&f, "none.bin", "0"), WEFT_NOT_FOUND, "none.bin");
    refuse(&f, external(&f, "../w.bin", "0"), WEFT_BAD_FILE, "not in the model's folder");
    refuse(&f, external(&f, file, "0"), WEFT_BAD_FILE, "not in the model's folder");
    refuse(&f, external(&f, "", "0"), WEFT_BAD_FILE, "not in the model's folder");
    refuse(&f, external(&f, ".", "0"), WEFT_IO, "cannot be opened");
    CU_ASSERT_EQUAL(symlink("/etc/hostname", link), 0);
    refuse(&f, external(&f, "link", "0"), WEFT_IO, "cannot be opened");
    unlink(link);
    unlink(file);
    end(&f);
}

/* ---- A model in memory ---- */

static void test_in_memory(void)
{
    fixture f;
    size_t bytes;
    begin(&f);
    uint8_t *data = write_model(&f.memory, external(&f, "w.bin", "0"), 13, &bytes);
    weft_memory_file from = {data, bytes, "built in"};
    CU_ASSERT_PTR_NULL(weft_onnx_load_from_memory(from, NULL, &f.error));
    CU_ASSERT_EQUAL(f.error.status, WEFT_BAD_FILE);
    CU_ASSERT_STRING_EQUAL(f.error.where, "w");
    CU_ASSERT_STRING_EQUAL(
        f.error.message, "its data are in \"w.bin\": a model in memory cannot have external data");
    from.bytes /= 2;
    CU_ASSERT_PTR_NULL(weft_onnx_load_from_memory(from, NULL, &f.error));
    CU_ASSERT_STRING_EQUAL(f.error.where, "built in");
    CU_ASSERT_STRING_EQUAL(f.error.message, "is not an ONNX model, or is cut off");
    from.bytes = 0;
    CU_ASSERT_PTR_NULL(weft_onnx_load_from_memory(from, NULL, &f.error));
    CU_ASSERT_STRING_EQUAL(f.error.message, "is not a file of 1 to 2147483647 bytes");
    from.data = NULL;
    CU_ASSERT_PTR_NULL(weft_onnx_load_from_memory(from, NULL, &f.error));
    CU_ASSERT_EQUAL(f.error.status, WEFT_BAD_ARGUMENT);
    unlink(f.path);
    CU_ASSERT_EQUAL(rmdir(f.folder), 0);
    weft__arena_free(&f.memory);
}

/* The model has its own copy of all weights. */
static void test_memory_is_copied(void)
{
    static const float x[3] = {1, 2, 3};
    fixture f;
    size_t bytes;
    weft_tensor y[2];
    weft_forward *forward[2];
    weft_onnx *m[2];
    weft_params *store[2];
    begin(&f);
    m[0] = load(&f, network(&f), NULL);
    uint8_t *data = write_model(&f.memory, network(&f), 13, &bytes);
    m[1] = weft_onnx_load_from_memory((weft_memory_file){data, bytes, NULL}, NULL, &f.error);
    memset(data, 0, bytes);
    for (int i = 0; i < 2; i++) {
        CU_ASSERT_PTR_NOT_NULL_FATAL(m[i]);
        store[i] = weft_params_new();
        forward[i] = test_run_onnx(m[i], store[i], 0, x, &y[i]);
    }
    CU_ASSERT_TRUE(test_same_tensors("y", &y[0], &y[1]));
    for (int i = 0; i < 2; i++) {
        weft_forward_free(forward[i]);
        weft_params_free(store[i]);
        weft_onnx_free(m[i]);
    }
    end(&f);
}

/* ---- Wrong and hostile files ---- */

/* x [2] and one node. */
static written_graph *one_node(fixture *f, const char *op, const char *inputs, const char *output)
{
    written_graph *g = write_graph(&f->memory);
    write_input(&f->memory, g, "x", ONNX_FLOAT, WEFT_SHAPE(2));
    write_node(&f->memory, g, op, inputs, output);
    write_output(&f->memory, g, "y");
    return g;
}

static void test_wrong(void)
{
    static const float two[2] = {1, 2};
    fixture f;
    begin(&f);
    arena *p = &f.memory;
    refuse(&f, one_node(&f, "Frobnicate", "x", "y"), WEFT_NO_KERNEL, "\"Frobnicate\"");
    refuse(&f, one_node(&f, "Add", "x y", "y"), WEFT_BAD_FILE, "no node before it computes");
    refuse(&f, one_node(&f, "Add", "x", "y"), WEFT_BAD_FILE, "expected 2 to 2");
    refuse(&f, one_node(&f, "Split", "x", ""), WEFT_BAD_FILE, "0 outputs");
    refuse(&f, one_node(&f, "Relu", "x", "x"), WEFT_BAD_FILE, "have this name");
    refuse(&f, one_node(&f, "Relu", "x", "z"), WEFT_BAD_FILE, "no node computes");
    refuse(&f, one_node(&f, "MatMul", "x - ", "y"), WEFT_BAD_FILE, "2 inputs");
    refuse(&f, one_node(&f, "Tile", "x x", "y"), WEFT_BAD_ARGUMENT, "they depend on data");
    refuse(&f, one_node(&f, "If", "x", "y"), WEFT_BAD_ARGUMENT, "condition");

    written_graph *g = one_node(&f, "Add", "x w", "y");
    write_floats(p, g, "w", WEFT_SHAPE(2), two);
    g->initializers[0]->raw_data.len = 4;
    refuse(&f, g, WEFT_BAD_FILE, "4 bytes of raw data");
    g->initializers[0]->raw_data.len = 8;
    g->initializers[0]->dims[0] = INT64_MAX;
    refuse(&f, g, WEFT_BAD_FILE, "too many elements");
    g->initializers[0]->dims[0] = -2;
    refuse(&f, g, WEFT_BAD_FILE, "negative dimension");
    g->initializers[0]->dims[0] = 2;
    g->initializers[0]->n_dims = 9;
    g->initializers[0]->dims = weft__arena_alloc(p, 9 * sizeof(int64_t));
    refuse(&f, g, WEFT_BAD_SHAPE, "rank 9");
    g->initializers[0]->data_type = ONNX_STRING;
    g->nodes[0]->input[1] = g->nodes[0]->input[0];
    g->nodes[0]->n_input = 1;
    g->nodes[0]->op_type = weft__arena_text(p, "Relu");
    weft_onnx *m = load(&f, g, NULL); /* nothing reads the initializer */
    CU_ASSERT_PTR_NOT_NULL(m);
    weft_onnx_free(m);

    g = one_node(&f, "Relu", "x", "y");
    write_floats(p, g, "w", WEFT_SHAPE(2), two);
    write_floats(p, g, "w", WEFT_SHAPE(2), two);
    refuse(&f, g, WEFT_BAD_FILE, "have this name");
    CU_ASSERT_PTR_NULL(weft_onnx_load("/nonexistent.onnx", NULL, &f.error));
    CU_ASSERT_EQUAL(f.error.status, WEFT_NOT_FOUND);
    CU_ASSERT_PTR_NULL(weft_onnx_load(f.folder, NULL, &f.error));
    CU_ASSERT_EQUAL(f.error.status, WEFT_IO);
    end(&f);
}

/* Branches within branches, which protobuf-c would unpack recursively. */
static void test_nesting(void)
{
    fixture f;
    begin(&f);
    written_graph *g = one_node(&f, "Relu", "x", "y");
    for (int depth = 0; depth < 2000; depth++) {
        written_graph *outer = write_graph(&f.memory);
        WeftOnnx__NodeProto *node = write_node(&f.memory, outer, "If", "x", "y");
        write_attribute(&f.memory, node, "then_branch")->g = &g->proto;
        g = outer;
    }
    refuse(&f, g, WEFT_TOO_LARGE, "levels deep");
    end(&f);
}

/* A loop without end stops at the limit of nodes. */
static void test_endless(void)
{
    static const int64_t forever = INT64_MAX;
    fixture f;
    begin(&f);
    written_graph *g = doubling(&f, false);
    g->proto.n_input = 1;
    write_longs(&f.memory, g, "trips", WEFT_SCALAR, &forever);
    refuse(&f, g, WEFT_TOO_LARGE, "nodes");
    end(&f);
}

/* Loads changed bytes: the file is accepted, or refused with one line. */
static void load_bytes(fixture *f, const uint8_t *data, size_t bytes)
{
    CU_ASSERT_TRUE_FATAL(write_file(f->path, data, bytes));
    weft_onnx *m = weft_onnx_load(f->path, NULL, &f->error);
    CU_ASSERT_TRUE(m || (f->error.status != WEFT_OK && f->error.message[0] && f->error.where[0] &&
                         !strchr(f->error.message, '\n')));
    weft_onnx_free(m);
}

static void test_cut_and_changed(void)
{
    fixture f;
    size_t bytes;
    uint64_t random = 1;
    begin(&f);
    written_graph *const graphs[] = {network(&f), doubling(&f, true),
                                     external(&f, "model.onnx", "0")};
    for (size_t k = 0; k < sizeof graphs / sizeof *graphs; k++) {
        uint8_t *data = write_model(&f.memory, graphs[k], 13, &bytes);
        for (size_t n = 0; n < bytes; n++) load_bytes(&f, data, n);
        for (size_t i = 0; i < bytes; i++) {
            const uint8_t before = data[i];
            for (int bit = 0; bit < 8; bit++) {
                data[i] = (uint8_t)(before ^ 1 << bit);
                load_bytes(&f, data, bytes);
            }
            data[i] = (uint8_t)test_random(&random);
            load_bytes(&f, data, bytes);
            data[i] = before;
        }
    }
    end(&f);
}

/* Each message of two bytes becomes a struct of a hundred: many of them are refused. */
static void test_bloat(void)
{
    fixture f;
    const size_t bytes = (size_t)1 << 22;
    begin(&f);
    uint8_t *data = weft__arena_alloc(&f.memory, bytes + 16);
    size_t n = 0;
    data[n++] = 7 << 3 | 2; /* the graph, of `bytes` bytes */
    for (size_t left = bytes; left; left >>= 7)
        data[n++] = (uint8_t)((left & 127) | (left >> 7 ? 128 : 0));
    for (size_t i = 0; i < bytes; i += 2) data[n++] = 1 << 3 | 2, data[n++] = 0; /* empty nodes */
    load_bytes(&f, data, n);
    CU_ASSERT_EQUAL(f.error.status, WEFT_TOO_LARGE);
    end(&f);
}

/* ---- Memory ---- */

static char model_path[96];

/* Loads the model of model_path, builds it and takes its weights. */
static weft_status load_and_build(const char *path)
{
    (void)path;
    weft_error error = {0};
    weft_value in, out;
    weft_onnx *m = weft_onnx_load(model_path, NULL, &error);
    weft_graph *g = m ? weft_graph_new() : NULL;
    weft_params *store = weft_params_new();
    weft_status status = m ? WEFT_NO_MEMORY : error.status;
    if (!strcmp(error.message, "no memory for the model"))
        CU_ASSERT_STRING_EQUAL(error.where, model_path);
    if (g && store) status = weft_onnx_build(g, m, 2, &in, &out);
    if (g && store && status == WEFT_OK) status = weft_onnx_share_weights(m, store, &error);
    weft_params_free(store);
    weft_graph_free(g);
    weft_onnx_free(m);
    return status;
}

static void test_memory(void)
{
    fixture f;
    size_t bytes;
    begin(&f);
    memcpy(model_path, f.path, sizeof model_path);
    written_graph *const graphs[] = {network(&f), doubling(&f, true), summing(&f)};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        graphs[i]->proto.n_output = 1;
        const uint8_t *data = write_model(&f.memory, graphs[i], 13, &bytes);
        CU_ASSERT_TRUE_FATAL(write_file(f.path, data, bytes));
        test_fail_all(load_and_build);
    }
    end(&f);
}

void onnx_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx", NULL, NULL);
    CU_add_test(suite, "a network: inputs, parameters, outputs", test_network);
    CU_add_test(suite, "stores share large weights", test_shared);
    CU_add_test(suite, "gradients reach parameters", test_gradient);
    CU_add_test(suite, "several outputs that follow from a parameter", test_several_outputs);
    CU_add_test(suite, "integers that do not fit, and absent bounds", test_integers);
    CU_add_test(suite, "loops are unrolled", test_loop);
    CU_add_test(suite, "external data", test_external);
    CU_add_test(suite, "a model in memory", test_in_memory);
    CU_add_test(suite, "the bytes of a model in memory are copied", test_memory_is_copied);
    CU_add_test(suite, "wrong files", test_wrong);
    CU_add_test(suite, "nested bodies", test_nesting);
    CU_add_test(suite, "a loop without end", test_endless);
    CU_add_test(suite, "files that are cut off or changed", test_cut_and_changed);
    CU_add_test(suite, "every allocation fails once", test_memory);
    CU_add_test(suite, "messages that unpack to much memory", test_bloat);
}
