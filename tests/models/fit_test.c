/* Losses and accuracies of weft_fit_builder, and batches of arrays. */
#include "tests.h"

#include <weft/fit.h>

#include <stdlib.h>
#include <string.h>

/* ---- A model whose output is its input, scaled ---- */

typedef struct shape_of_rows {
    weft_shape row; /* of the output, without the rows */
    weft_dtype dtype;
} shape_of_rows;

static weft_status build(void *context, weft_graph *g, const weft_build_options *options,
                         weft_built *built)
{
    const shape_of_rows *s = context;
    weft_shape shape = {.rank = s->row.rank + 1, .dim = {options->shape.rows}};
    for (int i = 0; i < s->row.rank; i++) shape.dim[i + 1] = s->row.dim[i];
    *built = (weft_built){.n_inputs = 1, .n_outputs = 1};
    built->inputs[0] = weft_input(g, "x", s->dtype, shape);
    const weft_value scale = weft_param(g, "scale", s->dtype, WEFT_SCALAR, WEFT_INIT_ONES);
    built->outputs[0] = weft_mul(g, built->inputs[0], scale);
    return weft_graph_status(g);
}

static weft_fit fit_of(shape_of_rows *s, weft_loss_kind loss)
{
    return (weft_fit){.model = {.name = "scaled", .build = build, .context = s}, .loss = loss};
}

/* ---- Losses ---- */

typedef struct measures {
    double loss, accuracy; /* NAN if there is none */
} measures;

/* The measures of one batch. */
static measures run(const weft_fit *fit, int64_t rows, const double *x, size_t n_x,
                    const void *target, size_t target_bytes)
{
    measures m = {NAN, NAN};
    weft_error error = {0};
    weft_built b;
    weft_graph *g = weft_graph_new();
    const weft_build_options options = {.shape = {.rows = rows}, .training = true};
    const weft_builder builder = weft_fit_builder(fit);
    CU_ASSERT_EQUAL_FATAL(builder.build(builder.context, g, &options, &b), WEFT_OK);
    CU_ASSERT_STRING_EQUAL(weft_name_of(g, b.inputs[1]), "fit.target");
    const bool has = weft_is_value(b.accuracy);
    const weft_value targets[2] = {b.loss, b.accuracy};
    weft_plan *plan = weft_plan_new(g, targets, has ? 2 : 1, NULL, &error);
    weft_params *params = weft_params_new();
    weft_params_init(params, g, 1, &error);
    weft_session *s = weft_session_new(plan, params, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_feed(s, b.inputs[0], x, n_x * sizeof *x, NULL);
    weft_session_feed(s, b.inputs[1], target, target_bytes, NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    weft_session_fetch(s, b.loss, &m.loss, sizeof m.loss, NULL);
    if (has) weft_session_fetch(s, b.accuracy, &m.accuracy, sizeof m.accuracy, NULL);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(params);
    weft_graph_free(g);
    return m;
}

static void test_elementwise(void)
{
    shape_of_rows s = {WEFT_SHAPE(2), WEFT_F64};
    const double x[4] = {0.5, -3, 2, 0.25}, t[4] = {1, 0, 0, 1};
    measures m;
    double want[3] = {0, 0, 0}, bce = 0;
    for (int i = 0; i < 4; i++) {
        const double d = fabs(x[i] - t[i]);
        want[0] += d * d / 4;
        want[1] += d / 4;
        want[2] += (d < 1 ? d * d / 2 : d - 0.5) / 4;
        bce += (fmax(x[i], 0) - x[i] * t[i] + log1p(exp(-fabs(x[i])))) / 4;
    }
    const weft_loss_kind kinds[] = {WEFT_LOSS_MSE, WEFT_LOSS_L1, WEFT_LOSS_HUBER};
    for (int k = 0; k < 3; k++) {
        const weft_fit fit = fit_of(&s, kinds[k]);
        m = run(&fit, 2, x, 4, t, sizeof t);
        CU_ASSERT_TRUE(test_near(m.loss, want[k]));
        CU_ASSERT_TRUE(isnan(m.accuracy));
    }
    const weft_fit fit = fit_of(&s, WEFT_LOSS_BCE);
    m = run(&fit, 2, x, 4, t, sizeof t);
    CU_ASSERT_TRUE(test_near(m.loss, bce));
    CU_ASSERT_EQUAL(m.accuracy, 0.75);
}

/* -log softmax(x)[t] of three logits at a distance. */
static double nll(const double *x, size_t stride, int32_t t)
{
    double sum = 0;
    for (size_t i = 0; i < 3; i++) sum += exp(x[i * stride]);
    return log(sum) - x[(size_t)t * stride];
}

/* Classes in the last dimension, and in the second one of [rows, classes, width]. */
static void test_cross_entropy(void)
{
    shape_of_rows last = {WEFT_SHAPE(2, 3), WEFT_F64}, second = {WEFT_SHAPE(3, 2), WEFT_F64};
    const double x[6] = {0.1, 2, -1, 3, 0.5, 1};
    const int32_t t[2] = {1, 2};
    measures m;
    weft_fit fit = fit_of(&last, WEFT_LOSS_CROSS_ENTROPY);
    m = run(&fit, 1, x, 6, t, sizeof t);
    CU_ASSERT_TRUE(test_near(m.loss, (nll(x, 1, 1) + nll(x + 3, 1, 2)) / 2));
    CU_ASSERT_EQUAL(m.accuracy, 0.5); /* 2 is the largest of the first, 3 that of the second */
    fit = fit_of(&second, WEFT_LOSS_CROSS_ENTROPY);
    fit.class_axis = 1;
    m = run(&fit, 1, x, 6, t, sizeof t);
    CU_ASSERT_TRUE(test_near(m.loss, (nll(x, 2, 1) + nll(x + 1, 2, 2)) / 2));
    CU_ASSERT_EQUAL(m.accuracy, 0); /* of 0.1 -1 0.5 class 2, of 2 3 1 class 1 */
}

static void refused(const weft_fit *fit, weft_status status, const char *message)
{
    weft_built b;
    weft_graph *g = weft_graph_new();
    const weft_build_options options = {.shape = {.rows = 2}};
    const weft_builder builder = weft_fit_builder(fit);
    builder.build(builder.context, g, &options, &b);
    CU_ASSERT_EQUAL(weft_graph_status(g), status);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, message));
    weft_graph_free(g);
}

static void test_refused_losses(void)
{
    shape_of_rows s = {WEFT_SHAPE(2), WEFT_F64}, scalar = {WEFT_SCALAR, WEFT_F64};
    weft_fit fit = fit_of(&s, WEFT_LOSS_MSE);
    fit.output = 1;
    refused(&fit, WEFT_BAD_ARGUMENT, "has no output 1, only 1");
    fit = fit_of(&s, (weft_loss_kind)17);
    refused(&fit, WEFT_BAD_ARGUMENT, "no such loss");
    fit = fit_of(&scalar, WEFT_LOSS_CROSS_ENTROPY);
    refused(&fit, WEFT_BAD_SHAPE, "[rows, ..., classes]");
    CU_ASSERT_STRING_EQUAL(weft_loss_kind_name(WEFT_LOSS_BCE), "bce");
    CU_ASSERT_PTR_NULL(weft_loss_kind_name((weft_loss_kind)17));
    CU_ASSERT_PTR_NULL(weft_fit_builder(NULL).build);
}

/* ---- Arrays ---- */

enum { ROWS = 7 };

typedef struct arrays {
    int32_t x[ROWS][3], y[ROWS];
} arrays;

static arrays make_arrays(void)
{
    arrays a;
    for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < 3; i++) a.x[r][i] = 10 * r + i;
        a.y[r] = r % 3;
    }
    return a;
}

static weft_arrays *open_arrays(const weft_fit *fit, arrays *a, const weft_array_options *o,
                                weft_error *error)
{
    const weft_array list[2] = {
        {"x.npy", weft_tensor_dense(a->x, WEFT_I32, WEFT_SHAPE(ROWS, 1, 3))},
        {"y.npy", weft_tensor_dense(a->y, WEFT_I32, WEFT_SHAPE(ROWS))}};
    return weft_arrays_new(fit, list, 2, o, error);
}

/* Reads all batches of an epoch; order[] becomes the rows in their order. Returns how many. */
static int read_epoch(const weft_batch_source *source, uint64_t epoch, int *order)
{
    int n = 0;
    source->start(source->context, epoch);
    for (size_t b = 0; b < source->batches; b++) {
        float x[ROWS][3];
        int32_t y[ROWS];
        void *const inputs[2] = {x, y};
        size_t weight = 0;
        weft_error error = {0};
        const weft_batch_shape shape = source->shape(source->context, b);
        CU_ASSERT_EQUAL(source->fill(source->context, b, inputs, &weight, &error), WEFT_OK);
        CU_ASSERT_EQUAL((int64_t)weight, shape.rows);
        for (int64_t r = 0; r < shape.rows; r++) {
            order[n] = (int)x[r][0] / 10;
            for (int i = 0; i < 3; i++) CU_ASSERT_EQUAL(x[r][i], (float)(10 * order[n] + i));
            CU_ASSERT_EQUAL(y[r], order[n] % 3);
            n++;
        }
    }
    return n;
}

/* Each row once in an epoch, with a smaller last batch or without it; another order each epoch. */
static void test_batches(void)
{
    shape_of_rows s = {WEFT_SHAPE(3), WEFT_F32};
    const weft_fit fit = fit_of(&s, WEFT_LOSS_CROSS_ENTROPY);
    arrays data = make_arrays();
    weft_error error = {0};
    int first[ROWS], again[ROWS], second[ROWS], seen[ROWS] = {0};
    weft_array_options o = {.rows = 3, .seed = 4};
    weft_arrays *a = open_arrays(&fit, &data, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(a);
    weft_batch_source source = weft_arrays_source(a);
    CU_ASSERT_EQUAL(source.batches, 3);
    CU_ASSERT_EQUAL(source.shape(source.context, 2).rows, 1);
    CU_ASSERT_EQUAL(read_epoch(&source, 0, first), ROWS);
    CU_ASSERT_EQUAL(read_epoch(&source, 1, second), ROWS);
    CU_ASSERT_EQUAL(read_epoch(&source, 0, again), ROWS);
    for (int r = 0; r < ROWS; r++) seen[first[r]]++;
    for (int r = 0; r < ROWS; r++) CU_ASSERT_EQUAL(seen[r], 1);
    CU_ASSERT_EQUAL(memcmp(first, again, sizeof first), 0);
    CU_ASSERT_NOT_EQUAL(memcmp(first, second, sizeof first), 0);
    const weft_data_hashes hashes = source.hashes;
    weft_arrays_free(a);
    o.drop_last = true;
    data.y[3]++;
    a = open_arrays(&fit, &data, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(a);
    data.y[3]--;
    source = weft_arrays_source(a);
    CU_ASSERT_EQUAL(source.batches, 2);
    CU_ASSERT_EQUAL(read_epoch(&source, 0, first), 6);
    CU_ASSERT_EQUAL(source.hashes.source, hashes.source);
    CU_ASSERT_NOT_EQUAL(source.hashes.target, hashes.target);
    CU_ASSERT_NOT_EQUAL(source.hashes.batches, hashes.batches);
    weft_arrays_free(a);
    o = (weft_array_options){.rows = 100, .in_order = true};
    a = open_arrays(&fit, &data, &o, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(a);
    source = weft_arrays_source(a);
    CU_ASSERT_EQUAL(source.batches, 1);
    CU_ASSERT_EQUAL(read_epoch(&source, 5, first), ROWS);
    for (int r = 0; r < ROWS; r++) CU_ASSERT_EQUAL(first[r], r);
    weft_arrays_free(a);
}

static void expect_refused(const weft_fit *fit, arrays *data, const weft_array_options *o,
                           weft_status status, const char *message)
{
    weft_error error = {0};
    weft_arrays *a = open_arrays(fit, data, o, &error);
    CU_ASSERT_PTR_NULL(a);
    CU_ASSERT_EQUAL(error.status, status);
    if (!strstr(error.message, message)) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, message));
    weft_arrays_free(a);
}

static void test_refused_arrays(void)
{
    shape_of_rows s = {WEFT_SHAPE(3), WEFT_F32}, four = {WEFT_SHAPE(4), WEFT_F32},
                  fixed = {WEFT_SHAPE(3), WEFT_I32};
    const weft_fit fit = fit_of(&s, WEFT_LOSS_CROSS_ENTROPY);
    const weft_fit wide = fit_of(&four, WEFT_LOSS_CROSS_ENTROPY), bce = fit_of(&s, WEFT_LOSS_BCE);
    const weft_fit integers = fit_of(&fixed, WEFT_LOSS_MSE);
    const weft_array_options o = {.rows = 3}, many = {.rows = 8}, none = {.rows = 0};
    arrays data = make_arrays();
    expect_refused(&fit, &data, &none, WEFT_BAD_ARGUMENT, "rows (of a batch) is required");
    expect_refused(&fit, &data, &many, WEFT_BAD_ARGUMENT, "has 7 rows, fewer than a batch of 8");
    expect_refused(&wide, &data, &o, WEFT_BAD_SHAPE,
                   "has the shape [7, 1, 3], a batch of the input x [1, 4]");
    expect_refused(&bce, &data, &o, WEFT_BAD_SHAPE,
                   "has the shape [7], a batch of the input fit.target [1, 3]");
    expect_refused(&integers, &data, &o, WEFT_BAD_DTYPE, "must be f32 or f64");
    data.y[5] = 3;
    expect_refused(&fit, &data, &o, WEFT_BAD_INDEX, "the label 3 of row 5 is outside [0, 3)");
    data.y[5] = -1;
    expect_refused(&fit, &data, &o, WEFT_BAD_INDEX, "the label -1 of row 5 is outside [0, 3)");
    weft_error error = {0};
    double labels[ROWS] = {0};
    const weft_array list[2] = {{"x.npy", weft_tensor_dense(data.x, WEFT_I32, WEFT_SHAPE(ROWS, 3))},
                                {"y.npy", weft_tensor_dense(labels, WEFT_F64, WEFT_SHAPE(ROWS))}};
    CU_ASSERT_PTR_NULL(weft_arrays_new(&fit, list, 2, &o, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_DTYPE);
    CU_ASSERT_STRING_EQUAL(error.message, "is f64, the input fit.target takes i32");
    CU_ASSERT_PTR_NULL(weft_arrays_new(&fit, list, 1, &o, &error));
    CU_ASSERT_STRING_EQUAL(error.message, "has 2 inputs with the targets, but there are 1 arrays");
    weft_array uneven[2] = {list[0], list[1]};
    uneven[1].tensor.shape.dim[0] = 6;
    CU_ASSERT_PTR_NULL(weft_arrays_new(&fit, uneven, 2, &o, &error));
    CU_ASSERT_STRING_EQUAL(error.message, "has 6 rows, but x.npy has 7");
    CU_ASSERT_PTR_NULL(weft_arrays_new(NULL, list, 2, &o, &error));
    weft_arrays_free(NULL);
}

/* Every allocation fails once. */
static weft_status open_once(const char *path)
{
    static shape_of_rows s = {{1, {3}}, WEFT_F32};
    const weft_fit fit = fit_of(&s, WEFT_LOSS_CROSS_ENTROPY);
    arrays data = make_arrays();
    weft_error error = {0};
    (void)path;
    for (int64_t rows = 2; rows < 8 && error.status == WEFT_OK; rows++) {
        const weft_array_options o = {.rows = rows, .drop_last = rows == 3};
        weft_arrays_free(open_arrays(&fit, &data, &o, &error));
    }
    return error.status;
}

static void test_no_memory(void)
{
    test_fail_all(open_once);
}

void fit_tests(void)
{
    CU_pSuite s = CU_add_suite("fit", NULL, NULL);
    CU_add_test(s, "elementwise losses", test_elementwise);
    CU_add_test(s, "cross entropy", test_cross_entropy);
    CU_add_test(s, "refused losses", test_refused_losses);
    CU_add_test(s, "batches of arrays", test_batches);
    CU_add_test(s, "refused arrays", test_refused_arrays);
    CU_add_test(s, "no memory", test_no_memory);
}
