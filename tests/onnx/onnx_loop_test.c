/* Loop and Scan that stay loops: whose end depends on data, or that have many iterations. Their values,
 * the sizes of what they stack, and their gradients. */
#include "onnx_writer.h"
#include "tests.h"

#include <weft/autograd.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { N = 3, MOST = 40, MANY = 200 };

/* A body of a Loop on one carry; its nodes compute "next", and "go_on" from it. */
static written_graph *start_body(arena *p)
{
    written_graph *b = write_graph(p);
    write_input(p, b, "i", ONNX_INT64, WEFT_SCALAR);
    write_input(p, b, "goes", ONNX_BOOL, WEFT_SCALAR);
    write_input(p, b, "now", ONNX_FLOAT, WEFT_SHAPE(N));
    return b;
}

static void end_body(arena *p, written_graph *b, const char *condition, const char *stacked)
{
    write_output(p, b, condition);
    write_output(p, b, "next");
    if (stacked) write_output(p, b, stacked);
}

static void write_loop(arena *p, written_graph *g, written_graph *body, const char *inputs,
                       const char *outputs)
{
    WeftOnnx__NodeProto *node = write_node(p, g, "Loop", inputs, outputs);
    node->name = weft__arena_text(p, "repeat");
    write_attribute(p, node, "body")->g = &body->proto;
}

/* y = x halved (by w) until its largest element is at most `limit`; all[] are the values on the way. */
static written_graph *halving(arena *p, bool stacks)
{
    static const int64_t most = MOST;
    static const float half[N] = {0.5f, 0.5f, 0.5f}, limit = 1;
    written_graph *g = write_graph(p), *b = start_body(p);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(N));
    write_longs(p, g, "most", WEFT_SCALAR, &most);
    write_floats(p, g, "w", WEFT_SHAPE(N), half);
    write_floats(p, g, "limit", WEFT_SCALAR, &limit);
    write_node(p, b, "Mul", "now w", "next");
    write_int(p, write_node(p, b, "ReduceMax", "next", "largest"), "keepdims", 0);
    write_node(p, b, "Greater", "largest limit", "go_on");
    write_node(p, b, "Identity", "next", "seen");
    end_body(p, b, "go_on", stacks ? "seen" : NULL);
    write_loop(p, g, b, "most - x", stacks ? "y all" : "y");
    write_output(p, g, "y");
    if (stacks) write_output(p, g, "all");
    return g;
}

/* A model, its graph, and a session that computes outputs and the gradient of the sum of the first. */
typedef struct running {
    arena memory;
    weft_onnx *model;
    weft_graph *g;
    weft_params *params;
    weft_plan *plan;
    weft_session *session;
    weft_value in[4], out[4], slope;
    size_t n_out;
} running;

static running *begin(running *r, written_graph *written, bool slope)
{
    weft_error e = {.status = WEFT_OK};
    weft_value targets[5];
    r->model = must_load_written(&r->memory, written, 17, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->model);
    weft_onnx_outputs(r->model, &r->n_out);
    r->g = weft_graph_new();
    CU_ASSERT_EQUAL(weft_onnx_build(r->g, r->model, 0, r->in, r->out), WEFT_OK);
    memcpy(targets, r->out, sizeof r->out);
    if (slope) {
        const weft_value sum = weft_sum(r->g, r->out[0], WEFT_ALL_AXES, false);
        weft_grad(r->g, sum, r->in, 1, &r->slope);
        targets[r->n_out] = r->slope;
    }
    r->params = weft_params_new();
    weft_onnx_copy_weights(r->model, r->params, NULL);
    r->plan =
        weft_plan_new(r->g, targets, r->n_out + slope, &(weft_plan_options){.verify = true}, &e);
    r->session = r->plan ? weft_session_new(r->plan, r->params, NULL, &e) : NULL;
    if (!r->session) fprintf(stderr, "\n    %s: %s\n", e.where, e.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->session);
    return r;
}

static void end(running *r)
{
    weft_session_free(r->session);
    weft_plan_free(r->plan);
    weft_params_free(r->params);
    weft_graph_free(r->g);
    weft_onnx_free(r->model);
    weft__arena_free(&r->memory);
}

static void run(running *r, const void *const *data)
{
    for (size_t i = 0; data[i]; i++) {
        const weft_shape shape = weft_shape_of(r->g, r->in[i]);
        const size_t bytes = weft_tensor_bytes(weft_dtype_of(r->g, r->in[i]), shape);
        CU_ASSERT_EQUAL(weft_session_feed(r->session, r->in[i], data[i], bytes, NULL), WEFT_OK);
    }
    CU_ASSERT_EQUAL_FATAL(weft_session_run(r->session, NULL), WEFT_OK);
}

/* ---- Ends that depend on data ---- */

static void test_condition(void)
{
    static const float numbers[][N] = {{1, 2, 3}, {100, 2, 3}, {0.5f, 0.25f, 0}, {1e12f, 0, 0}};
    for (int stacks = 0; stacks < 2; stacks++) {
        running r = {.n_out = 0};
        begin(&r, halving(&r.memory, stacks), true);
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            float y[N], slope[N], x[N], factor = 1;
            int steps = 0;
            run(&r, (const void *[]){numbers[k], NULL});
            weft_session_fetch(r.session, r.out[0], y, sizeof y, NULL);
            weft_session_fetch(r.session, r.slope, slope, sizeof slope, NULL);
            memcpy(x, numbers[k], sizeof x);
            do {
                for (int i = 0; i < N; i++) x[i] *= 0.5f;
                factor *= 0.5f;
                steps++;
            } while (fmaxf(fmaxf(x[0], x[1]), x[2]) > 1 && steps < MOST);
            for (int i = 0; i < N; i++) {
                CU_ASSERT_EQUAL(y[i], x[i]);
                CU_ASSERT_EQUAL(slope[i], factor);
            }
            weft_tensor all;
            if (!stacks) continue;
            CU_ASSERT_EQUAL(weft_onnx_output(r.model, r.session, r.out, 1, &all, NULL), WEFT_OK);
            CU_ASSERT_TRUE(weft_shape_equal(all.shape, WEFT_SHAPE(steps, N)));
            const float *rows = all.data;
            for (int i = 0; i < N; i++) CU_ASSERT_EQUAL(rows[(steps - 1) * N + i], x[i]);
        }
        end(&r);
    }
}

/* y = x + trips * (0 + 1 + .. ): a trip count that is an input, and the number of the iteration. */
static written_graph *counting(arena *p, bool condition)
{
    written_graph *g = write_graph(p), *b = start_body(p);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(N));
    write_input(p, g, "trips", ONNX_INT64, WEFT_SCALAR);
    if (condition) write_input(p, g, "first", ONNX_BOOL, WEFT_SCALAR);
    write_int(p, write_node(p, b, "Cast", "i", "number"), "to", ONNX_FLOAT);
    write_node(p, b, "Add", "now number", "next");
    write_node(p, b, "Identity", "goes", "go_on");
    end_body(p, b, "go_on", NULL);
    write_loop(p, g, b, condition ? "trips first x" : "trips - x", "y");
    write_output(p, g, "y");
    return g;
}

static void test_trips(void)
{
    static const float x[N] = {1, 2, 3};
    for (int condition = 0; condition < 2; condition++) {
        running r = {.n_out = 0};
        begin(&r, counting(&r.memory, condition), false);
        for (int32_t trips = -1; trips < 6; trips++)
            for (uint8_t first = 0; first < 1 + condition; first++) {
                float y[N];
                const bool runs = !condition || first;
                run(&r, (const void *[]){x, &trips, condition ? &first : NULL, NULL});
                weft_session_fetch(r.session, r.out[0], y, sizeof y, NULL);
                const int sum = runs && trips > 0 ? trips * (trips - 1) / 2 : 0;
                for (int i = 0; i < N; i++) CU_ASSERT_EQUAL(y[i], x[i] + (float)sum);
            }
        end(&r);
    }
}

/* ---- Many iterations ---- */

/* h = tanh(h w + x), MANY times: a known trip count. */
static written_graph *repeating(arena *p)
{
    static const int64_t trips = MANY;
    written_graph *g = write_graph(p), *b = start_body(p);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(N));
    write_longs(p, g, "trips", WEFT_SCALAR, &trips);
    write_random(p, g, "w", WEFT_SHAPE(N, N), 0.7, 3);
    write_node(p, b, "MatMul", "now w", "product");
    write_node(p, b, "Add", "product x", "sum");
    write_node(p, b, "Tanh", "sum", "next");
    write_node(p, b, "Identity", "next", "seen");
    write_node(p, b, "Identity", "goes", "go_on");
    end_body(p, b, "go_on", "seen");
    write_loop(p, g, b, "trips - x", "y all");
    write_output(p, g, "y");
    write_output(p, g, "all");
    return g;
}

static void test_many(void)
{
    static const float x[N] = {0.25f, -0.5f, 1};
    running r = {.n_out = 0};
    float y[N], all[MANY][N], h[N], w[N][N];
    begin(&r, repeating(&r.memory), true);
    CU_ASSERT_TRUE(weft_plan_stats_of(r.plan).nodes < 30);
    run(&r, (const void *[]){x, NULL});
    weft_session_fetch(r.session, r.out[0], y, sizeof y, NULL);
    weft_session_fetch(r.session, r.out[1], all, sizeof all, NULL);
    weft_tensor weight;
    CU_ASSERT_TRUE_FATAL(weft_params_find(r.params, "w", &weight));
    memcpy(w, weight.data, sizeof w);
    memcpy(h, x, sizeof h);
    for (int t = 0; t < MANY; t++) {
        float next[N];
        for (int j = 0; j < N; j++) {
            double sum = x[j];
            for (int i = 0; i < N; i++) sum += (double)h[i] * w[i][j];
            next[j] = (float)tanh(sum);
        }
        for (int i = 0; i < N; i++) CU_ASSERT_DOUBLE_EQUAL(all[t][i], next[i], 1e-5);
        memcpy(h, next, sizeof h);
    }
    CU_ASSERT_EQUAL(memcmp(y, all[MANY - 1], sizeof y), 0);
    end(&r);
}

/* Sums of the rows of x [MANY, N] or [N, MANY] in either direction. */
static written_graph *summing(arena *p, bool columns, bool reverse, bool prepend)
{
    static const float zeros[N] = {0, 0, 0};
    const int64_t axis = columns, from = reverse, to = prepend;
    written_graph *g = write_graph(p), *b = write_graph(p);
    write_input(p, b, "before", ONNX_FLOAT, WEFT_SHAPE(N));
    write_input(p, b, "row", ONNX_FLOAT, WEFT_SHAPE(N));
    write_node(p, b, "Add", "before row", "after");
    write_node(p, b, "Identity", "after", "seen");
    write_output(p, b, "after");
    write_output(p, b, "seen");
    write_input(p, g, "x", ONNX_FLOAT, columns ? WEFT_SHAPE(N, MANY) : WEFT_SHAPE(MANY, N));
    write_floats(p, g, "zero", WEFT_SHAPE(N), zeros);
    WeftOnnx__NodeProto *scan = write_node(p, g, "Scan", "zero x", "last all");
    write_attribute(p, scan, "body")->g = &b->proto;
    write_int(p, scan, "num_scan_inputs", 1);
    write_ints(p, scan, "scan_input_axes", &axis, 1);
    write_ints(p, scan, "scan_output_axes", &axis, 1);
    write_ints(p, scan, "scan_input_directions", &from, 1);
    write_ints(p, scan, "scan_output_directions", &to, 1);
    write_output(p, g, "last");
    write_output(p, g, "all");
    return g;
}

static void test_scan(void)
{
    static float x[MANY][N], turned[N][MANY], all[MANY * N];
    for (int t = 0; t < MANY; t++)
        for (int i = 0; i < N; i++) turned[i][t] = x[t][i] = (float)((t * 7 + i * 3) % 11);
    for (int kind = 0; kind < 8; kind++) {
        const bool columns = kind & 1, reverse = kind & 2, prepend = kind & 4;
        running r = {.n_out = 0};
        float sum[N] = {0, 0, 0}, last[N];
        begin(&r, summing(&r.memory, columns, reverse, prepend), true);
        CU_ASSERT_TRUE(weft_plan_stats_of(r.plan).nodes < 30);
        run(&r, (const void *[]){columns ? (const void *)turned : x, NULL});
        weft_session_fetch(r.session, r.out[0], last, sizeof last, NULL);
        weft_session_fetch(r.session, r.out[1], all, sizeof all, NULL);
        for (int step = 0; step < MANY; step++) {
            const int t = reverse ? MANY - 1 - step : step, at = prepend ? MANY - 1 - step : step;
            for (int i = 0; i < N; i++) {
                sum[i] += x[t][i];
                CU_ASSERT_EQUAL(all[columns ? i * MANY + at : at * N + i], sum[i]);
            }
        }
        CU_ASSERT_EQUAL(memcmp(last, sum, sizeof sum), 0);
        end(&r);
    }
}

/* ---- Loops in loops ---- */

/* In each of MANY iterations the inner loop halves until the largest element is at most the limit, and
 * then x is added. */
static written_graph *nested(arena *p)
{
    static const int64_t trips = MANY, most = MOST;
    static const float half[N] = {0.5f, 0.5f, 0.5f}, limit = 1;
    written_graph *g = write_graph(p), *b = start_body(p), *inner = write_graph(p);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(N));
    write_longs(p, g, "trips", WEFT_SCALAR, &trips);
    write_longs(p, g, "most", WEFT_SCALAR, &most);
    write_floats(p, g, "w", WEFT_SHAPE(N), half);
    write_floats(p, g, "limit", WEFT_SCALAR, &limit);
    write_input(p, inner, "j", ONNX_INT64, WEFT_SCALAR);
    write_input(p, inner, "more", ONNX_BOOL, WEFT_SCALAR);
    write_input(p, inner, "inner_now", ONNX_FLOAT, WEFT_SHAPE(N));
    write_node(p, inner, "Mul", "inner_now w", "inner_next");
    write_int(p, write_node(p, inner, "ReduceMax", "inner_next", "largest"), "keepdims", 0);
    write_node(p, inner, "Greater", "largest limit", "inner_go_on");
    write_output(p, inner, "inner_go_on");
    write_output(p, inner, "inner_next");
    write_loop(p, b, inner, "most - now", "halved");
    write_node(p, b, "Add", "halved x", "next");
    write_node(p, b, "Identity", "goes", "go_on");
    end_body(p, b, "go_on", NULL);
    write_loop(p, g, b, "trips - x", "y");
    write_output(p, g, "y");
    return g;
}

static void test_nested(void)
{
    static const float x[N] = {3, 5, 7};
    running r = {.n_out = 0};
    float y[N], now[N];
    begin(&r, nested(&r.memory), true);
    CU_ASSERT_TRUE(weft_plan_stats_of(r.plan).nodes < 40);
    run(&r, (const void *[]){x, NULL});
    weft_session_fetch(r.session, r.out[0], y, sizeof y, NULL);
    memcpy(now, x, sizeof now);
    for (int t = 0; t < MANY; t++) {
        do {
            for (int i = 0; i < N; i++) now[i] *= 0.5f;
        } while (fmaxf(fmaxf(now[0], now[1]), now[2]) > 1);
        for (int i = 0; i < N; i++) now[i] += x[i];
    }
    for (int i = 0; i < N; i++) CU_ASSERT_EQUAL(y[i], now[i]);
    end(&r);
}

/* ---- Bytes ---- */

/* A convolution in bytes of a value from outside, also outside: y = x + 2 (its result). */
static written_graph *convolving(arena *p)
{
    static const float scale = 0.0625f, result_scale = 0.25f, limit = 2;
    static const int8_t w[2 * 2 * 9] = {1, -2, 3, 4, -5, 6, 7, -8, 9, 10, -11, 12,
                                        1, 2,  3, 4, 5,  6, 7, 8,  9, 1,  2,   3,
                                        4, 5,  6, 7, 8,  9, 1, 2,  3, 4,  5,   6};
    static const uint8_t zero = 128;
    static const int8_t no_zero = 0;
    static const int64_t most = MOST, pads[] = {1, 1, 1, 1};
    written_graph *g = write_graph(p), *b = write_graph(p);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(1, 2, 4, 4));
    write_floats(p, g, "s", WEFT_SCALAR, &scale);
    write_floats(p, g, "sy", WEFT_SCALAR, &result_scale);
    write_bytes(p, g, "z", ONNX_UINT8, WEFT_SCALAR, &zero);
    write_bytes(p, g, "zw", ONNX_INT8, WEFT_SCALAR, &no_zero);
    write_bytes(p, g, "w", ONNX_INT8, WEFT_SHAPE(2, 2, 3, 3), w);
    write_longs(p, g, "most", WEFT_SCALAR, &most);
    write_floats(p, g, "limit", WEFT_SCALAR, &limit);
    write_node(p, g, "QuantizeLinear", "x s z", "xq");
    write_ints(p, write_node(p, g, "QLinearConv", "xq s z w s zw sy z", "yq"), "pads", pads, 4);
    write_node(p, g, "DequantizeLinear", "yq sy z", "outside");
    write_input(p, b, "i", ONNX_INT64, WEFT_SCALAR);
    write_input(p, b, "goes", ONNX_BOOL, WEFT_SCALAR);
    write_input(p, b, "now", ONNX_FLOAT, WEFT_SHAPE(1, 2, 4, 4));
    write_input(p, b, "count", ONNX_FLOAT, WEFT_SCALAR);
    write_ints(p, write_node(p, b, "QLinearConv", "xq s z w s zw sy z", "bq"), "pads", pads, 4);
    write_node(p, b, "DequantizeLinear", "bq sy z", "inside");
    write_node(p, b, "Add", "now inside", "next");
    write_node(p, b, "Add", "count one", "counted");
    write_node(p, b, "Less", "counted limit", "go_on");
    end_body(p, b, "go_on", NULL);
    write_output(p, b, "counted");
    static const float one = 1, nothing = 0;
    write_floats(p, g, "one", WEFT_SCALAR, &one);
    write_floats(p, g, "nothing", WEFT_SCALAR, &nothing);
    write_int(p, write_node(p, g, "ReduceMax", "x", "largest"), "keepdims", 0);
    write_node(p, g, "Mul", "largest nothing", "first");
    write_loop(p, g, b, "most - x first", "y n");
    write_output(p, g, "y");
    write_output(p, g, "outside");
    return g;
}

static void test_bytes(void)
{
    float x[32], y[32], outside[32];
    running r = {.n_out = 0};
    begin(&r, convolving(&r.memory), false);
    for (int i = 0; i < 32; i++) x[i] = (float)(i % 7) - 3;
    run(&r, (const void *[]){x, NULL});
    weft_session_fetch(r.session, r.out[0], y, sizeof y, NULL);
    weft_session_fetch(r.session, r.out[1], outside, sizeof outside, NULL);
    for (int i = 0; i < 32; i++) CU_ASSERT_EQUAL(y[i], x[i] + outside[i] + outside[i]);
    end(&r);
}

/* ---- What is refused, or unrolled ---- */

/* A Loop whose end depends on data and whose body changes the shape of its carry, draws random numbers, or
 * has no number of stacked rows. */
static written_graph *wrong(arena *p, int kind)
{
    static const float limit = 1;
    static const int64_t most = MOST;
    written_graph *g = write_graph(p), *b = start_body(p);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(N));
    write_floats(p, g, "limit", WEFT_SCALAR, &limit);
    write_longs(p, g, "most", WEFT_SCALAR, &most);
    if (kind == 0) write_int(p, write_node(p, b, "Concat", "now now", "next"), "axis", 0);
    if (kind == 1) write_node(p, b, "RandomUniformLike", "now", "next");
    if (kind == 2) write_node(p, b, "Neg", "now", "next");
    write_int(p, write_node(p, b, "ReduceMax", "now", "largest"), "keepdims", 0);
    write_node(p, b, "Greater", "largest limit", "go_on");
    write_node(p, b, "Identity", "next", "seen");
    end_body(p, b, "go_on", kind == 2 ? "seen" : NULL);
    write_loop(p, g, b, kind == 2 ? "- - x" : "most - x", kind == 2 ? "y all" : "y");
    write_output(p, g, "y");
    return g;
}

static void test_refusals(void)
{
    static const char *const messages[] = {
        "output 1 of its body is f32 [6], and the input that it becomes is f32 [3]",
        "data decide how often its body draws random numbers", "needs its trip count"};
    for (int kind = 0; kind < 3; kind++) {
        arena p = {.blocks = NULL};
        weft_error e = {.status = WEFT_OK};
        CU_ASSERT_PTR_NULL(load_written(&p, wrong(&p, kind), 17, NULL, &e));
        if (!strstr(e.message, messages[kind]))
            fprintf(stderr, "\n    %s: %s\n", e.where, e.message);
        CU_ASSERT_PTR_NOT_NULL(strstr(e.message, messages[kind]));
        CU_ASSERT_PTR_NOT_NULL(strstr(e.where, "repeat (Loop)"));
        weft__arena_free(&p);
    }
}

/* A known number of iterations, of a body that cannot be repeated as one node: it is unrolled. */
static void test_unrolled(void)
{
    static const int64_t trips = 20;
    static const float x[N] = {1, 2, 3};
    running r = {.n_out = 0};
    float y[N];
    written_graph *g = write_graph(&r.memory), *b = start_body(&r.memory);
    write_input(&r.memory, g, "x", ONNX_FLOAT, WEFT_SHAPE(N));
    write_longs(&r.memory, g, "trips", WEFT_SCALAR, &trips);
    write_node(&r.memory, b, "RandomUniformLike", "now", "noise");
    write_node(&r.memory, b, "Add", "now noise", "next");
    write_node(&r.memory, b, "Identity", "goes", "go_on");
    end_body(&r.memory, b, "go_on", NULL);
    write_loop(&r.memory, g, b, "trips - x", "y");
    write_output(&r.memory, g, "y");
    begin(&r, g, false);
    run(&r, (const void *[]){x, NULL});
    weft_session_fetch(r.session, r.out[0], y, sizeof y, NULL);
    for (int i = 0; i < N; i++) CU_ASSERT_TRUE(y[i] > x[i] && y[i] < x[i] + 20);
    end(&r);
}

void onnx_loop_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_loop", NULL, NULL);
    CU_add_test(suite, "a Loop until a condition of its data", test_condition);
    CU_add_test(suite, "a trip count that is an input", test_trips);
    CU_add_test(suite, "a Loop of many iterations", test_many);
    CU_add_test(suite, "a Scan of many iterations", test_scan);
    CU_add_test(suite, "a Loop in a Loop", test_nested);
    CU_add_test(suite, "bytes from outside of a Loop", test_bytes);
    CU_add_test(suite, "loops that are refused", test_refusals);
    CU_add_test(suite, "loops that are unrolled", test_unrolled);
}
