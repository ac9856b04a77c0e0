/* Loops and branches in exported files: a scan is Scan or Loop, a choice is If, and the file has as many
 * nodes for 500 steps as for 5. Files are read again with the same bits; those that are kept
 * (WEFT_KEEP_EXPORTS) are compared with ONNX Runtime by tests/onnx/onnx_runtime.py. */
#include "loops.h"
#include "onnx_round.h"

#include <weft/autograd.h>
#include <weft/ops.h>

#include <stdlib.h>
#include <string.h>

enum { N = 3, MOST = 30 };

/* ---- Files ---- */

static int n_nodes, n_scans, n_loops, n_ifs;

static void count_graph(const WeftOnnx__GraphProto *g)
{
    for (size_t i = 0; i < g->n_node; i++) {
        const WeftOnnx__NodeProto *node = g->node[i];
        n_nodes++;
        n_scans += !strcmp(node->op_type, "Scan");
        n_loops += !strcmp(node->op_type, "Loop");
        n_ifs += !strcmp(node->op_type, "If");
        for (size_t k = 0; k < node->n_attribute; k++)
            if (node->attribute[k]->g) count_graph(node->attribute[k]->g);
    }
}

static void count_model(WeftOnnx__ModelProto *model)
{
    n_nodes = n_scans = n_loops = n_ifs = 0;
    count_graph(model->graph);
}

static void save(fixture *f, const weft_graph *g, const weft_value *out, size_t n)
{
    CU_ASSERT_EQUAL(weft_onnx_save(g, out, n, NULL, f->path, NULL, &f->error), WEFT_OK);
    if (f->error.status != WEFT_OK) printf("\n    %s: %s", f->error.where, f->error.message);
    edit_file(f, count_model);
}

/* Writes, reads and compares values of a graph without states. */
static void try_round(fixture *f, weft_graph *g, const weft_value *out, size_t n, const char *label)
{
    weft_params *inputs = weft_params_new();
    fill_inputs(inputs, g, NULL, WEFT_F32, 2);
    for (int opset = 17; opset <= 23; opset += 6) {
        char file[96];
        snprintf(file, sizeof file, "%s%d", label, opset);
        const bool good = round_trip(f, &(example){g, out, n, NULL, inputs}, opset, file);
        if (!good) printf("\n    %s: %s: %s", file, f->error.where, f->error.message);
        CU_ASSERT_TRUE(good);
        memset(&f->error, 0, sizeof f->error);
    }
    weft_params_free(inputs);
}

/* A file that is read and written again does not grow. */
static void stays_equal(fixture *f)
{
    edit_file(f, count_model);
    const int nodes = n_nodes, scans = n_scans, loops = n_loops, ifs = n_ifs;
    for (int round = 0; round < 2; round++) {
        weft_value in[MAX_VALUES], out[MAX_VALUES];
        size_t n = 0;
        weft_onnx *m = weft_onnx_load(f->path, NULL, &f->error);
        weft_graph *g = weft_graph_new();
        CU_ASSERT_EQUAL_FATAL(weft_onnx_build(g, m, 0, in, out), WEFT_OK);
        weft_onnx_outputs(m, &n);
        weft_onnx_free(m);
        save(f, g, out, n);
        weft_graph_free(g);
        CU_ASSERT_TRUE(n_scans == scans && n_loops == loops && n_ifs == ifs);
        CU_ASSERT_TRUE(n_nodes <= nodes);
        if (n_nodes > nodes) printf("\n    %d nodes became %d", nodes, n_nodes);
    }
}

/* ---- Scans ---- */

static void try_cell(fixture *f, const loop_cell *c, weft_dtype dtype, int64_t n, bool slopes)
{
    char label[80];
    weft_value in[LOOP_MAX_IN], out[LOOP_MAX_OUT + LOOP_MAX_IN];
    size_t n_out = loop_outputs(c);
    weft_graph *g = weft_graph_new();
    loop_declare(g, c, dtype, n, in);
    loop_by_scan(g, c, n, in, out);
    if (slopes) {
        const weft_value loss = loop_loss(g, out, n_out, true);
        weft_grad(g, loss, in, loop_inputs(c), out + n_out);
        n_out += loop_inputs(c);
    }
    snprintf(label, sizeof label, "scan %s%s %d-%s-", c->name, slopes ? " slopes" : "", (int)n,
             weft_dtype_name(dtype));
    for (char *at = label; *at; at++)
        if (*at == ' ') *at = '_';
    try_round(f, g, out, n_out, label);
    weft_graph_free(g);
}

static void test_cells(void)
{
    fixture f;
    round_open(&f);
    for (int cell = 0; cell <= LOOP_CELLS; cell++) {
        const loop_cell *c = cell < LOOP_CELLS ? &loop_cells[cell] : &loop_nested;
        /* Roundings of the wide network grow fivefold with each step. */
        const int64_t steps = cell == LOOP_WIDE_RNN ? 5 : 21;
        for (int kind = 0; kind < 4; kind++)
            try_cell(&f, c, kind & 1 ? WEFT_F64 : WEFT_F32, kind & 2 ? steps : 3, false);
        try_cell(&f, c, WEFT_F32, 5, true);
        try_cell(&f, c, WEFT_F64, 18, true);
    }
    round_close(&f);
}

/* The file does not grow with the steps. */
static void test_sizes(void)
{
    fixture f;
    int nodes[2];
    round_open(&f);
    for (int cell = 0; cell <= LOOP_CELLS; cell++) {
        const loop_cell *c = cell < LOOP_CELLS ? &loop_cells[cell] : &loop_nested;
        for (int k = 0; k < 2; k++) {
            weft_value in[LOOP_MAX_IN], out[LOOP_MAX_OUT];
            weft_graph *g = weft_graph_new();
            const int64_t n = k ? 500 : 5;
            loop_declare(g, c, WEFT_F32, n, in);
            loop_by_scan(g, c, n, in, out);
            save(&f, g, out, loop_outputs(c));
            nodes[k] = n_nodes;
            CU_ASSERT_EQUAL(n_scans, !c->n_each ? 0 : cell < LOOP_CELLS ? 1 : 2);
            CU_ASSERT_EQUAL(n_loops, !c->n_each);
            CU_ASSERT_EQUAL(n_ifs, 0);
            stays_equal(&f);
            weft_graph_free(g);
        }
        CU_ASSERT_EQUAL(nodes[0], nodes[1]);
    }
    round_close(&f);
}

/* An LSTM layer whose weights are parameters, in a scope. */
static void test_parameters(void)
{
    fixture f;
    round_open(&f);
    const loop_cell *c = &loop_cells[LOOP_LSTM];
    weft_graph *g = weft_graph_new();
    weft_params *params = weft_params_new(), *inputs = weft_params_new();
    weft_value in[LOOP_MAX_IN], out[LOOP_MAX_OUT];
    weft_graph_push_scope(g, "encoder");
    for (size_t i = 0; i < 3; i++) {
        char name[8];
        weft_shape shape = c->shape[i];
        snprintf(name, sizeof name, "x%zu", i);
        if (i == 2) shape = WEFT_SHAPE(20, c->shape[i].dim[0], c->shape[i].dim[1]);
        in[i] = weft_input(g, name, WEFT_F32, shape);
    }
    in[3] = weft_param(g, "input", WEFT_F32, c->shape[3], WEFT_INIT_XAVIER);
    in[4] = weft_param(g, "hidden", WEFT_F32, c->shape[4], WEFT_INIT_XAVIER);
    loop_by_scan(g, c, 20, in, out);
    weft_graph_pop_scope(g);
    CU_ASSERT_EQUAL(weft_params_init(params, g, 3, NULL), WEFT_OK);
    fill_inputs(inputs, g, NULL, WEFT_F32, 2);
    const example x = {g, out, loop_outputs(c), params, inputs};
    CU_ASSERT_TRUE(round_trip(&f, &x, 17, "scan_parameters-f32-17"));
    CU_ASSERT_TRUE(round_trip(&f, &x, 23, "scan_parameters-f32-23"));
    weft_params_free(params);
    weft_params_free(inputs);
    weft_graph_free(g);
    round_close(&f);
}

/* Ops of several nodes in a body are found again by their notes. */
static void test_notes(void)
{
    fixture f;
    round_open(&f);
    weft_graph *body = weft_graph_new(), *g = weft_graph_new();
    const weft_value h = weft_input(body, "h", WEFT_F32, WEFT_SHAPE(2, 4, 8));
    const weft_value gamma = weft_input(body, "gamma", WEFT_F32, WEFT_SHAPE(8));
    weft_value next = weft_rms_norm(body, h, gamma, 1e-6);
    next = weft_gelu(body, weft_add_scalar(body, next, 0.5));
    const weft_value in[2] = {weft_input(g, "h", WEFT_F32, WEFT_SHAPE(2, 4, 8)),
                              weft_input(g, "gamma", WEFT_F32, WEFT_SHAPE(8))};
    const weft_scan_body b = {.graph = body,
                              .n_carry = 1,
                              .carry_in = &h,
                              .carry_out = &next,
                              .n_shared = 1,
                              .shared = &gamma,
                              .n_out = 1,
                              .out = &next};
    weft_value out[2];
    weft_scan(g, &b, 18, &(weft_scan_inputs){&in[0], NULL, &in[1]}, &out[0], &out[1]);
    try_round(&f, g, out, 2, "loop_notes-f32-");
    CU_ASSERT_EQUAL(count_op(&f, "rms_norm"), 0); /* in the main graph */
    save(&f, g, out, 2);
    CU_ASSERT_EQUAL(n_loops, 1); /* it reads no sequence */
    stays_equal(&f);
    weft_graph_free(body);
    weft_graph_free(g);
    round_close(&f);
}

/* ---- Steps that do not run ---- */

/* x = x / 2 + row, until the largest element is at most 1. */
static void add_while(weft_graph *g, weft_dtype dtype, bool reverse, bool first, weft_value in[3],
                      weft_value out[4])
{
    weft_graph *body = weft_graph_new();
    const weft_value x = weft_input(body, "x", dtype, WEFT_SHAPE(N));
    const weft_value row = weft_input(body, "row", dtype, WEFT_SHAPE(N));
    const weft_value half = weft_mul_scalar(body, x, 0.5);
    const weft_value next = weft_add(body, half, weft_mul_scalar(body, row, 0.01));
    const weft_value largest = weft_max(body, next, WEFT_ALL_AXES, false);
    const weft_value limit = weft_cast(body, weft_scalar(body, WEFT_F32, 0.002), dtype);
    in[0] = weft_input(g, "x", dtype, WEFT_SHAPE(N));
    in[1] = weft_input(g, "rows", dtype, WEFT_SHAPE(MOST, N));
    in[2] = first ? weft_input(g, "first", WEFT_BOOL, WEFT_SCALAR) : WEFT_NO_VALUE;
    const weft_value stacks[2] = {next, x};
    const weft_scan_body b = {.graph = body,
                              .n_carry = 1,
                              .carry_in = &x,
                              .carry_out = &next,
                              .n_each = 1,
                              .each = &row,
                              .n_out = 2,
                              .out = stacks,
                              .reverse = reverse};
    const weft_while_steps steps = {MOST, in[2], weft_greater(body, largest, limit)};
    weft_while(g, &b, &steps, &(weft_scan_inputs){&in[0], &in[1], NULL}, out, out + 1, out + 3);
    weft_graph_free(body);
}

static void test_while(void)
{
    fixture f;
    round_open(&f);
    for (int kind = 0; kind < 8; kind++) {
        char label[80];
        weft_value in[3], out[7];
        const weft_dtype dtype = kind & 1 ? WEFT_F64 : WEFT_F32;
        weft_graph *g = weft_graph_new();
        add_while(g, dtype, kind & 2, kind & 4, in, out);
        snprintf(label, sizeof label, "while_%d-%s-", kind, weft_dtype_name(dtype));
        try_round(&f, g, out, 4, label);
        save(&f, g, out, 4);
        CU_ASSERT_EQUAL(n_loops, 1);
        CU_ASSERT_EQUAL(n_scans + n_ifs, 0);
        const weft_value loss = loop_loss(g, out, 3, true);
        weft_grad(g, loss, in, 2, out + 4);
        snprintf(label, sizeof label, "while_slopes_%d-%s-", kind, weft_dtype_name(dtype));
        try_round(&f, g, out, 6, label);
        save(&f, g, out, 6);
        CU_ASSERT_EQUAL(n_loops, 1);
        CU_ASSERT_EQUAL(n_scans, 1); /* the gradient: a sequence says which steps run */
        CU_ASSERT_EQUAL(n_ifs, 1);
        weft_graph_free(g);
    }
    round_close(&f);
}

/* Which branch, on x and a weight: x w + x, or exp(-x). */
static void add_choice(weft_graph *g, weft_value condition, weft_value x, weft_value w,
                       weft_value *out)
{
    const weft_dtype dtype = weft_dtype_of(g, x);
    weft_graph *a = weft_graph_new(), *b = weft_graph_new();
    const weft_value in_a[2] = {weft_input(a, "x", dtype, WEFT_SHAPE(N)),
                                weft_input(a, "w", dtype, WEFT_SHAPE(N))};
    const weft_value in_b = weft_input(b, "x", dtype, WEFT_SHAPE(N));
    const weft_value from[2] = {x, w};
    const weft_value product = weft_mul(a, in_a[0], in_a[1]);
    const weft_value out_a[2] = {weft_add(a, product, in_a[0]), product};
    const weft_value out_b[2] = {weft_exp(b, weft_neg(b, in_b)), in_b};
    const weft_branch yes = {a, 2, in_a, from, out_a}, no = {b, 1, &in_b, &x, out_b};
    weft_cond(g, condition, &yes, &no, 2, out);
    weft_graph_free(a);
    weft_graph_free(b);
}

static void test_choice(void)
{
    fixture f;
    round_open(&f);
    for (int kind = 0; kind < 4; kind++) {
        char label[80];
        weft_value out[4];
        const weft_dtype dtype = kind & 1 ? WEFT_F64 : WEFT_F32;
        weft_graph *g = weft_graph_new();
        const weft_value in[2] = {weft_input(g, "x", dtype, WEFT_SHAPE(N)),
                                  weft_input(g, "w", dtype, WEFT_SHAPE(N))};
        weft_value c = weft_input(g, "c", WEFT_BOOL, WEFT_SCALAR);
        if (kind & 2) c = weft_logical_not(g, c);
        add_choice(g, c, in[0], in[1], out);
        snprintf(label, sizeof label, "choice_%d-%s-", kind, weft_dtype_name(dtype));
        try_round(&f, g, out, 2, label);
        save(&f, g, out, 2);
        CU_ASSERT_EQUAL(n_ifs, 1);
        CU_ASSERT_EQUAL(n_scans + n_loops, 0);
        stays_equal(&f);
        weft_grad(g, loop_loss(g, out, 2, true), in, 2, out + 2);
        snprintf(label, sizeof label, "choice_slopes_%d-%s-", kind, weft_dtype_name(dtype));
        try_round(&f, g, out, 4, label);
        weft_graph_free(g);
    }
    round_close(&f);
}

/* A choice in each step of a scan, some of whose steps do not run. */
static void test_mask(void)
{
    fixture f;
    round_open(&f);
    for (int reverse = 0; reverse < 2; reverse++) {
        weft_graph *body = weft_graph_new(), *g = weft_graph_new();
        weft_value in[4], out[5], outer[4];
        in[0] = weft_input(body, "x", WEFT_F32, WEFT_SHAPE(N));
        in[1] = weft_input(body, "w", WEFT_F32, WEFT_SHAPE(N));
        in[2] = weft_input(body, "runs", WEFT_BOOL, WEFT_SCALAR);
        in[3] = weft_input(body, "chosen", WEFT_BOOL, WEFT_SCALAR);
        add_choice(body, in[3], in[0], in[1], out);
        const weft_value next = weft_tanh(body, out[0]);
        outer[0] = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(N));
        outer[1] = weft_input(g, "w", WEFT_F32, WEFT_SHAPE(MOST, N));
        outer[2] = weft_input(g, "runs", WEFT_BOOL, WEFT_SHAPE(MOST));
        outer[3] = weft_input(g, "chosen", WEFT_BOOL, WEFT_SHAPE(MOST));
        const weft_scan_body b = {.graph = body,
                                  .n_carry = 1,
                                  .carry_in = in,
                                  .carry_out = &next,
                                  .n_each = 3,
                                  .each = in + 1,
                                  .n_out = 2,
                                  .out = out,
                                  .when = in[2],
                                  .reverse = reverse};
        weft_scan(g, &b, MOST, &(weft_scan_inputs){outer, outer + 1, NULL}, out, out + 1);
        try_round(&f, g, out, 3, reverse ? "mask_reverse-f32-" : "mask-f32-");
        save(&f, g, out, 3);
        CU_ASSERT_EQUAL(n_scans, 1);
        CU_ASSERT_EQUAL(n_ifs, 2);
        stays_equal(&f);
        weft_grad(g, loop_loss(g, out, 3, true), outer, 2, out + 3);
        try_round(&f, g, out, 5, reverse ? "mask_slopes_reverse-f32-" : "mask_slopes-f32-");
        weft_graph_free(body);
        weft_graph_free(g);
    }
    round_close(&f);
}

/* ---- Errors ---- */

/* Adds a row of a table. */
static void build_lookup(weft_graph *g, const weft_value *in, weft_value *out)
{
    const int32_t row = 2;
    const weft_value index = weft_constant(g, WEFT_I32, WEFT_SCALAR, &row);
    const weft_value sum = weft_add(g, in[0], weft_embedding(g, in[2], index, -1));
    out[0] = out[1] = weft_mul(g, sum, in[1]);
}

/* An op without a form, in a body: the gradient of a table. */
static void test_refused(void)
{
    static const loop_cell lookup = {
        "lookup", build_lookup, 1, 1, 1, 1, {{1, {3}}, {1, {3}}, {2, {4, 3}}}, false, 1};
    fixture f;
    weft_value in[LOOP_MAX_IN], out[LOOP_MAX_OUT], slope;
    round_open(&f);
    weft_graph *g = weft_graph_new();
    loop_declare(g, &lookup, WEFT_F32, 4, in);
    loop_by_scan(g, &lookup, 4, in, out);
    weft_grad(g, loop_loss(g, out, 2, true), &in[2], 1, &slope);
    CU_ASSERT_EQUAL(weft_onnx_save(g, &slope, 1, NULL, f.path, NULL, &f.error), WEFT_NO_KERNEL);
    CU_ASSERT_STRING_EQUAL(f.error.where, "grad/scan");
    CU_ASSERT_PTR_NOT_NULL(strstr(f.error.message, "embedding_grad in its body"));
    weft_graph_free(g);
    round_close(&f);
}

static weft_graph *saved;
static weft_value saved_out[6];

static weft_status save_all(const char *path)
{
    weft_error error = {0};
    weft_onnx_save(saved, saved_out, 6, NULL, path, NULL, &error);
    if (error.status == WEFT_OK) weft_onnx_free(weft_onnx_load(path, NULL, &error));
    return error.status;
}

static void test_memory(void)
{
    weft_value in[3];
    saved = weft_graph_new();
    add_while(saved, WEFT_F32, false, true, in, saved_out);
    add_choice(saved, in[2], in[0], saved_out[0], saved_out + 4);
    test_fail_all(save_all);
    weft_graph_free(saved);
}

/* With some changed bytes, a file with loops is refused or read. */
static void test_changed_bytes(void)
{
    fixture f;
    weft_value in[3], out[6];
    uint64_t state = 5;
    round_open(&f);
    weft_graph *g = weft_graph_new();
    add_while(g, WEFT_F32, true, true, in, out);
    add_choice(g, in[2], in[0], out[0], out + 4);
    CU_ASSERT_EQUAL(weft_onnx_save(g, out, 6, NULL, f.path, NULL, &f.error), WEFT_OK);
    weft_graph_free(g);
    FILE *file = fopen(f.path, "rb");
    char data[1 << 14], changed[sizeof data];
    const size_t n = fread(data, 1, sizeof data, file);
    fclose(file);
    CU_ASSERT_TRUE_FATAL(n < sizeof data);
    for (int i = 0; i < (TEST_SANITIZED ? 300 : 1500); i++) {
        weft_error error = {0};
        memcpy(changed, data, n);
        for (int k = 0; k < 1 + i % 3; k++)
            changed[test_random(&state) % n] = (char)test_random(&state);
        CU_ASSERT_TRUE_FATAL(write_file(f.path, changed, n));
        weft_onnx *m = weft_onnx_load(f.path, NULL, &error);
        CU_ASSERT_EQUAL(m != NULL, error.status == WEFT_OK);
        weft_onnx_free(m);
    }
    round_close(&f);
}

void onnx_export_loop_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_export_loop", NULL, NULL);
    CU_add_test(suite, "scans, and their gradients", test_cells);
    CU_add_test(suite, "the nodes of a file", test_sizes);
    CU_add_test(suite, "parameters", test_parameters);
    CU_add_test(suite, "notes in bodies", test_notes);
    CU_add_test(suite, "loops that end by their data", test_while);
    CU_add_test(suite, "branches", test_choice);
    CU_add_test(suite, "steps that do not run", test_mask);
    CU_add_test(suite, "an op without a form in a body", test_refused);
    CU_add_test(suite, "files that are changed", test_changed_bytes);
    CU_add_test(suite, "every allocation fails once", test_memory);
}
