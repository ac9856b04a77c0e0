/* Sizes that data decide. A model computes the same from an input that is fed as from one that is
 * constant, where every size is known: the positions that count are equal, and the others are zero.
 * (The sums here are of numbers that f32 adds exactly, whatever their order.) */
#include "onnx_checks.h"
#include "onnx_writer.h"
#include "tests.h"

#include <weft/autograd.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#define ROWS    4
#define COLUMNS 3
#define NUMEL   (ROWS * COLUMNS)

/* ---- Models ---- */

/* What a case writes after "at" [n, 2], the positions of the elements of x [4, 3] that are not 0,
 * and "v" [n], those elements. Its result is "y". */
typedef void chain(arena *p, written_graph *g);

static void write_list(arena *p, written_graph *g, const char *name, int64_t a, int64_t b)
{
    const int64_t list[2] = {a, b};
    write_longs(p, g, name, WEFT_SHAPE(2), list);
}

static void write_one(arena *p, written_graph *g, const char *name, int64_t value)
{
    write_longs(p, g, name, WEFT_SHAPE(1), &value);
}

/* [n, 3]: v times a row. */
static void write_matrix(arena *p, written_graph *g)
{
    static const float row[COLUMNS] = {1, -0.5F, 2};
    write_one(p, g, "last", 1);
    write_floats(p, g, "row", WEFT_SHAPE(1, COLUMNS), row);
    write_node(p, g, "Unsqueeze", "v last", "column");
    write_node(p, g, "MatMul", "column row", "m");
}

static void elements(arena *p, written_graph *g)
{
    write_node(p, g, "Identity", "v", "y");
}

static void arithmetic(arena *p, written_graph *g)
{
    write_node(p, g, "Exp", "v", "e");
    write_node(p, g, "Mul", "e v", "y");
}

static void sum(arena *p, written_graph *g)
{
    write_node(p, g, "ReduceSum", "v", "y");
}

static void mean(arena *p, written_graph *g)
{
    write_matrix(p, g);
    write_node(p, g, "ReduceMean", "m", "y");
}

static void largest(arena *p, written_graph *g)
{
    write_matrix(p, g);
    WeftOnnx__NodeProto *node = write_node(p, g, "ReduceMax", "m", "y");
    write_ints(p, node, "axes", &(const int64_t){0}, 1);
    write_int(p, node, "keepdims", 0);
}

static void smallest_of_rows(arena *p, written_graph *g)
{
    write_matrix(p, g);
    WeftOnnx__NodeProto *node = write_node(p, g, "ReduceMin", "m", "y");
    write_ints(p, node, "axes", &(const int64_t){1}, 1);
    write_int(p, node, "keepdims", 0);
}

static void joined(arena *p, written_graph *g)
{
    write_node(p, g, "Neg", "v", "w");
    write_int(p, write_node(p, g, "Concat", "v w v", "y"), "axis", 0);
}

static void constant_of_shape(arena *p, written_graph *g)
{
    write_matrix(p, g);
    write_node(p, g, "Shape", "m", "s");
    write_node(p, g, "ConstantOfShape", "s", "z");
    write_node(p, g, "Cos", "z", "y");
}

static void counted(arena *p, written_graph *g)
{
    static const int64_t number[2] = {0, 1};
    write_longs(p, g, "zero", WEFT_SCALAR, &number[0]);
    write_longs(p, g, "one", WEFT_SCALAR, &number[1]);
    write_node(p, g, "Size", "v", "s");
    write_node(p, g, "Range", "zero s one", "y");
}

static void flattened(arena *p, written_graph *g)
{
    write_one(p, g, "flat", -1);
    write_node(p, g, "Reshape", "at flat", "y");
}

static void shaped_again(arena *p, written_graph *g)
{
    write_one(p, g, "flat", -1);
    write_list(p, g, "pairs", -1, 2);
    write_node(p, g, "Reshape", "at flat", "f");
    write_node(p, g, "Reshape", "f pairs", "y");
}

static void cut(arena *p, written_graph *g)
{
    write_one(p, g, "from", 1);
    write_one(p, g, "to", 4);
    write_node(p, g, "Slice", "v from to", "y");
}

static void cut_to_size(arena *p, written_graph *g)
{
    write_one(p, g, "from", 0);
    write_one(p, g, "flat", -1);
    write_node(p, g, "Reshape", "x flat", "f");
    write_node(p, g, "Shape", "v", "to");
    write_node(p, g, "Slice", "f from to", "y");
}

static void best(arena *p, written_graph *g)
{
    write_one(p, g, "flat", -1);
    write_node(p, g, "Reshape", "x flat", "f");
    write_node(p, g, "Shape", "v", "k");
    write_node(p, g, "TopK", "f k", "t i");
    write_node(p, g, "Identity", "t", "y");
}

/* As many as there are, at most two: the same for the largest size and for the one below it. */
static void best_two(arena *p, written_graph *g)
{
    write_one(p, g, "two", 2);
    write_node(p, g, "Shape", "v", "s");
    write_node(p, g, "Min", "two s", "k");
    write_node(p, g, "TopK", "v k", "t i");
    write_node(p, g, "Identity", "t", "y");
}

static void scattered(arena *p, written_graph *g)
{
    static const float zeros[NUMEL];
    write_floats(p, g, "zeros", WEFT_SHAPE(ROWS, COLUMNS), zeros);
    write_node(p, g, "ScatterND", "zeros at v", "y");
}

static void expanded(arena *p, written_graph *g)
{
    write_one(p, g, "two", 2);
    write_node(p, g, "Shape", "v", "s");
    write_int(p, write_node(p, g, "Concat", "two s", "wanted"), "axis", 0);
    write_node(p, g, "Expand", "v wanted", "y");
}

static void probabilities(arena *p, written_graph *g)
{
    write_matrix(p, g);
    write_node(p, g, "Softmax", "m", "y");
}

static void chosen_again(arena *p, written_graph *g)
{
    static const float zero = 0;
    write_floats(p, g, "zero", WEFT_SCALAR, &zero);
    write_node(p, g, "Greater", "v zero", "c");
    write_int(p, write_node(p, g, "Compress", "v c", "y"), "axis", 0);
}

static void found_again(arena *p, written_graph *g)
{
    static const float one = 1;
    write_floats(p, g, "one", WEFT_SCALAR, &one);
    write_node(p, g, "Sub", "v one", "d");
    write_node(p, g, "NonZero", "d", "y");
}

static void index_of_best(arena *p, written_graph *g)
{
    write_matrix(p, g);
    WeftOnnx__NodeProto *node = write_node(p, g, "ArgMax", "m", "y");
    write_int(p, node, "axis", 1);
    write_int(p, node, "keepdims", 0);
}

static void picked(arena *p, written_graph *g)
{
    write_one(p, g, "row", 0);
    write_int(p, write_node(p, g, "Gather", "at row", "r"), "axis", 1);
    write_node(p, g, "Gather", "x r", "y");
}

/* The outputs of Unique as one list: what it found, where each is first, which one each element is,
 * and how often each is there. */
static void join_unique(arena *p, written_graph *g)
{
    for (int i = 0; i < 3; i++) {
        static const char *const lists[] = {"first", "group", "times"};
        static const char *const floats[] = {"f", "g", "t"};
        write_int(p, write_node(p, g, "Cast", lists[i], floats[i]), "to", ONNX_FLOAT);
    }
    write_int(p, write_node(p, g, "Concat", "u f g t", "y"), "axis", 0);
}

static void different(arena *p, written_graph *g)
{
    write_node(p, g, "Unique", "v", "u first group times");
    join_unique(p, g);
}

static void different_in_order(arena *p, written_graph *g)
{
    WeftOnnx__NodeProto *node = write_node(p, g, "Unique", "x", "u first group times");
    write_int(p, node, "sorted", 0);
    join_unique(p, g);
}

/* Of a matrix, all of whose elements are compared, though data decide its size. */
static void different_of_pairs(arena *p, written_graph *g)
{
    write_node(p, g, "Unique", "found", "i first group times");
    write_int(p, write_node(p, g, "Cast", "i", "u"), "to", ONNX_FLOAT);
    join_unique(p, g);
}

/* The different rows of the positions. */
static void different_rows(arena *p, written_graph *g)
{
    write_one(p, g, "row", 0);
    write_int(p, write_node(p, g, "Gather", "at row", "r"), "axis", 1);
    WeftOnnx__NodeProto *node = write_node(p, g, "Unique", "r", "y");
    write_int(p, node, "axis", 0);
    write_int(p, node, "sorted", 0);
}

static void different_columns(arena *p, written_graph *g)
{
    write_int(p, write_node(p, g, "Concat", "x x", "m"), "axis", 1);
    write_int(p, write_node(p, g, "Unique", "m", "y"), "axis", 1);
}

/* The rows of x that have an element, twice as large, in a matrix of ones; the other rows stay. */
static void replaced_rows(arena *p, written_graph *g)
{
    static const float ones[NUMEL] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    write_floats(p, g, "ones", WEFT_SHAPE(ROWS, COLUMNS), ones);
    write_one(p, g, "first", 0);
    write_one(p, g, "last", 1);
    write_int(p, write_node(p, g, "Gather", "at first", "r"), "axis", 1);
    write_node(p, g, "Unique", "r", "u");
    write_node(p, g, "Gather", "x u", "some");
    write_node(p, g, "Add", "some some", "doubled");
    write_node(p, g, "Shape", "some", "s");
    write_node(p, g, "Unsqueeze", "u last", "column");
    write_node(p, g, "Expand", "column s", "i");
    write_node(p, g, "ScatterElements", "ones i doubled", "y");
}

/* An image of each element and of one more, made larger twice. */
static void enlarged(arena *p, written_graph *g)
{
    static const float kernel[4] = {1, 2, 3, 4}, scales[4] = {1, 1, 2, 3};
    static const int64_t image[4] = {-1, 1, 1, 1};
    write_longs(p, g, "image", WEFT_SHAPE(4), image);
    write_floats(p, g, "kernel", WEFT_SHAPE(1, 1, 2, 2), kernel);
    write_floats(p, g, "scales", WEFT_SHAPE(4), scales);
    write_floats(p, g, "one", WEFT_SHAPE(1), kernel);
    write_int(p, write_node(p, g, "Concat", "v one", "w"), "axis", 0);
    write_node(p, g, "Reshape", "w image", "images");
    write_node(p, g, "ConvTranspose", "images kernel", "larger");
    write_node(p, g, "Resize", "larger - scales", "y");
}

/* A condition of true, false, true. */
static void write_condition(arena *p, written_graph *g)
{
    static const int64_t numbers[3] = {1, 0, 1};
    write_longs(p, g, "numbers", WEFT_SHAPE(3), numbers);
    write_int(p, write_node(p, g, "Cast", "numbers", "chosen"), "to", ONNX_BOOL);
}

/* Of all elements of a matrix [2, n + 2], whatever n is. */
static void chosen_of_all(arena *p, written_graph *g)
{
    static const int64_t more[4] = {7, 8, 9, 10};
    write_condition(p, g);
    write_longs(p, g, "more", WEFT_SHAPE(2, 2), more);
    write_int(p, write_node(p, g, "Concat", "found more", "m"), "axis", 1);
    write_node(p, g, "Compress", "m chosen", "y");
}

/* Along another dimension than the one whose size data decide. */
static void chosen_columns(arena *p, written_graph *g)
{
    write_matrix(p, g);
    write_condition(p, g);
    write_int(p, write_node(p, g, "Compress", "m chosen", "y"), "axis", 1);
}

static chain *const chains[] = {
    elements,
    arithmetic,
    sum,
    mean,
    largest,
    smallest_of_rows,
    joined,
    counted,
    flattened,
    shaped_again,
    cut,
    cut_to_size,
    best,
    best_two,
    scattered,
    expanded,
    probabilities,
    chosen_again,
    found_again,
    index_of_best,
    picked,
    constant_of_shape,
    different,
    different_in_order,
    different_of_pairs,
    different_rows,
    different_columns,
    replaced_rows,
    enlarged,
    chosen_of_all,
    chosen_columns,
};

static written_graph *write_chain(arena *p, chain *write)
{
    written_graph *g = write_graph(p);
    write_input(p, g, "x", ONNX_FLOAT, WEFT_SHAPE(ROWS, COLUMNS));
    write_output(p, g, "y");
    write_node(p, g, "NonZero", "x", "found");
    write_node(p, g, "Transpose", "found", "at");
    write_node(p, g, "GatherND", "x at", "v");
    write(p, g);
    return g;
}

/* ---- Runs ---- */

typedef struct result {
    weft_tensor y;
    double data[26 * NUMEL], rest; /* rest: the largest number that does not count */
} result;

static int64_t offset_of(const weft_tensor *t, int64_t i)
{
    int64_t at = 0;
    for (int k = t->shape.rank - 1; k >= 0; k--) {
        at += i % t->shape.dim[k] * t->stride[k];
        i /= t->shape.dim[k];
    }
    return at;
}

static double element_at(const weft_tensor *t, int64_t i)
{
    const weft_tensor one = {.data = (char *)t->data +
                                     offset_of(t, i) * (int64_t)weft_dtype_bytes(t->dtype),
                             .dtype = t->dtype};
    return weft_tensor_element(&one, 0);
}

/* Runs a model of x and y; x is fed unless it is a constant of the model. */
static bool run(weft_onnx *m, const float *x, bool fed, result *r, weft_error *error)
{
    weft_value in[1], out[2];
    size_t n_out;
    weft_graph *g = weft_graph_new();
    const weft_onnx_value *listed = weft_onnx_outputs(m, &n_out);
    CU_ASSERT_EQUAL_FATAL(weft_onnx_build(g, m, 0, in, out), WEFT_OK);
    weft_params *store = weft_params_new();
    CU_ASSERT_EQUAL(weft_onnx_copy_weights(m, store, NULL), WEFT_OK);
    weft_plan *plan = weft_plan_new(g, out, n_out, NULL, error);
    weft_session *s = plan ? weft_session_new(plan, store, NULL, error) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    if (fed) CU_ASSERT_EQUAL(weft_session_feed(s, in[0], x, NUMEL * sizeof *x, NULL), WEFT_OK);
    weft_tensor all;
    const bool good = weft_session_run(s, error) == WEFT_OK &&
                      weft_session_tensor(s, out[0], &all, error) == WEFT_OK &&
                      weft_onnx_output(m, s, out, 0, &r->y, error) == WEFT_OK;
    double sum_all = 0, sum_counted = 0;
    for (int64_t i = 0; good && i < weft_shape_numel(all.shape); i++)
        sum_all += fabs(element_at(&all, i));
    for (int64_t i = 0; good && i < weft_shape_numel(r->y.shape); i++)
        sum_counted += fabs(r->data[i] = element_at(&r->y, i));
    r->rest = sum_all - sum_counted;
    CU_ASSERT_EQUAL(fed || !listed[0].size, true);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_params_free(store);
    weft_graph_free(g);
    return good;
}

/* Some numbers are 0; all of them in the first draw, none in the second. */
static void draw(int seed, float *x)
{
    uint64_t random = (uint64_t)seed;
    for (int i = 0; i < NUMEL; i++) {
        const double v = test_uniform(&random, -2, 2);
        x[i] = seed == 0 || (seed > 1 && test_random(&random) % 2) ? 0 : (float)rint(4 * v) / 4;
        if (seed == 1 && x[i] == 0) x[i] = 1;
    }
}

static void check_chain(chain *write, size_t number)
{
    for (int seed = 0; seed < 6; seed++) {
        arena p = {.blocks = NULL};
        float x[NUMEL];
        static result got, wanted;
        weft_error error = {0};
        draw(seed, x);
        const weft_onnx_constant constant = {"x", WEFT_F32, WEFT_SHAPE(ROWS, COLUMNS), x, NULL};
        const weft_onnx_options o = {.constants = &constant, .n_constants = 1};
        weft_onnx *data = must_load_written(&p, write_chain(&p, write), 17, NULL);
        weft_onnx *known = must_load_written(&p, write_chain(&p, write), 17, &o);
        CU_ASSERT_FATAL(data && known);
        bool good = run(data, x, true, &got, &error) && run(known, x, false, &wanted, &error);
        good = good && got.y.dtype == wanted.y.dtype &&
               weft_shape_equal(got.y.shape, wanted.y.shape) && (got.rest == 0 || isnan(got.rest));
        for (int64_t i = 0; good && i < weft_shape_numel(got.y.shape); i++)
            good = got.data[i] == wanted.data[i] || (isnan(got.data[i]) && isnan(wanted.data[i]));
        if (!good)
            fprintf(stderr, "\n    chain %zu, draw %d: rank %d, size %lld and %lld: %s\n", number,
                    seed, got.y.shape.rank, (long long)got.y.shape.dim[0],
                    (long long)wanted.y.shape.dim[0], error.message);
        CU_ASSERT_TRUE(good);
        weft_onnx_free(data);
        weft_onnx_free(known);
        weft__arena_free(&p);
    }
}

static void test_chains(void)
{
    for (size_t i = 0; i < sizeof chains / sizeof *chains; i++) check_chain(chains[i], i);
}

/* ---- Lists, gradients and errors ---- */

static void test_outputs(void)
{
    size_t n;
    arena p = {.blocks = NULL};
    weft_onnx *m = must_load_written(&p, write_chain(&p, shaped_again), 17, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    const weft_onnx_value *out = weft_onnx_outputs(m, &n);
    CU_ASSERT_EQUAL_FATAL(n, 2);
    CU_ASSERT_TRUE(weft_shape_equal(out[0].shape, WEFT_SHAPE(NUMEL, 2)));
    CU_ASSERT_EQUAL(out[0].size, 1);
    CU_ASSERT_EQUAL(out[0].axis, 0);
    CU_ASSERT_STRING_EQUAL(out[1].name, "y.size");
    CU_ASSERT_TRUE(out[1].dtype == WEFT_I32 && out[1].shape.rank == 0 && out[1].size == 0);
    weft_error error;
    weft_tensor t;
    const weft_value none[2] = {WEFT_NO_VALUE, WEFT_NO_VALUE};
    CU_ASSERT_EQUAL(weft_onnx_output(m, NULL, none, 2, &t, &error), WEFT_BAD_ARGUMENT);
    weft_onnx_free(m);
    weft__arena_free(&p);
}

static void squares(arena *p, written_graph *g)
{
    write_node(p, g, "Mul", "v v", "y");
}

/* d sum(v^2) / dx = 2 x: positions that do not count have no gradient. */
static void test_gradient(void)
{
    float x[NUMEL], slope[NUMEL];
    arena p = {.blocks = NULL};
    weft_value in[1], out[2], targets[1];
    weft_error error = {0};
    weft_onnx *m = must_load_written(&p, write_chain(&p, squares), 17, NULL);
    weft_graph *g = weft_graph_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_EQUAL_FATAL(weft_onnx_build(g, m, 0, in, out), WEFT_OK);
    weft_value total = weft_sum(g, out[0], WEFT_ALL_AXES, false);
    weft_grad(g, total, in, 1, targets);
    weft_plan *plan = weft_plan_new(g, targets, 1, NULL, &error);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &error) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (int seed = 0; seed < 4; seed++) {
        draw(seed, x);
        CU_ASSERT_EQUAL(weft_session_feed(s, in[0], x, sizeof x, NULL), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_run(s, &error), WEFT_OK);
        CU_ASSERT_EQUAL(weft_session_fetch(s, targets[0], slope, sizeof slope, NULL), WEFT_OK);
        for (int i = 0; i < NUMEL; i++) CU_ASSERT_EQUAL(slope[i], 2 * x[i]);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    weft_onnx_free(m);
    weft__arena_free(&p);
}

static void third(arena *p, written_graph *g)
{
    write_one(p, g, "two", 2);
    write_node(p, g, "Gather", "v two", "y");
}

static void last(arena *p, written_graph *g)
{
    write_one(p, g, "minus", -1);
    write_node(p, g, "Gather", "v minus", "y");
}

static void best_three(arena *p, written_graph *g)
{
    write_one(p, g, "three", 3);
    write_node(p, g, "TopK", "v three", "y i");
}

/* An index beyond the size ends the run, though the largest size has room for it; and so does a
 * count beyond it. */
static void test_index(void)
{
    static const float few[NUMEL] = {5, 0, 6}, more[NUMEL] = {5, 0, 6, 0, 7};
    arena p = {.blocks = NULL};
    static result r;
    weft_error error = {0};
    weft_onnx *m = must_load_written(&p, write_chain(&p, third), 17, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_FALSE(run(m, few, true, &r, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_INDEX);
    CU_ASSERT_TRUE(run(m, more, true, &r, &error));
    CU_ASSERT_EQUAL(r.data[0], 7);
    weft_onnx_free(m);
    m = must_load_written(&p, write_chain(&p, last), 17, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_TRUE(run(m, few, true, &r, &error));
    CU_ASSERT_EQUAL(r.data[0], 6);
    weft_onnx_free(m);
    m = must_load_written(&p, write_chain(&p, best_three), 17, NULL);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_FALSE(run(m, few, true, &r, &error));
    CU_ASSERT_EQUAL(error.status, WEFT_BAD_INDEX);
    CU_ASSERT_TRUE(run(m, more, true, &r, &error));
    CU_ASSERT_TRUE(weft_shape_equal(r.y.shape, WEFT_SHAPE(3)));
    CU_ASSERT_TRUE(r.data[0] == 7 && r.data[1] == 6 && r.data[2] == 5);
    weft_onnx_free(m);
    weft__arena_free(&p);
}

static void running(arena *p, written_graph *g)
{
    write_longs(p, g, "zero", WEFT_SCALAR, &(const int64_t){0});
    write_node(p, g, "CumSum", "v zero", "y");
}

static void holes(arena *p, written_graph *g)
{
    write_one(p, g, "flat", -1);
    write_node(p, g, "Reshape", "found flat", "y");
}

static void table(arena *p, written_graph *g)
{
    write_one(p, g, "last", 1);
    write_node(p, g, "Unsqueeze", "v last", "column");
    write_node(p, g, "Mul", "v column", "y");
}

static void softmax_over_all(arena *p, written_graph *g)
{
    write_node(p, g, "Softmax", "v", "y");
}

static void repeated(arena *p, written_graph *g)
{
    write_node(p, g, "Shape", "v", "s");
    write_node(p, g, "Tile", "v s", "y");
}

static void cut_from_size(arena *p, written_graph *g)
{
    write_one(p, g, "to", 9);
    write_node(p, g, "Shape", "v", "from");
    write_node(p, g, "Slice", "v from to", "y");
}

static void test_refused(void)
{
    static const struct {
        chain *write;
        const char *message;
    } rows[] = {
        {running, "reads \"v\", whose size data decide"},
        {holes, "joins dimension 1, whose size data decide, with those before it"},
        {table, "two dimensions, 1 and 0, whose sizes data decide"},
        {softmax_over_all, "reads \"v\", whose size data decide"},
        {repeated, "whose size data decide"},
        {cut_from_size, "needs a step of 1 and bounds from 0 along dimension 0"},
    };
    arena p = {.blocks = NULL};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refuse_written(&p, write_chain(&p, rows[i].write), 17, WEFT_NO_KERNEL, rows[i].message);
    written_graph *g = write_graph(&p);
    write_input(&p, g, "x", ONNX_FLOAT, WEFT_SHAPE(ROWS, COLUMNS));
    write_output(&p, g, "y");
    write_node(&p, g, "TopK", "x", "y i");
    refuse_written(&p, g, 17, WEFT_BAD_FILE, "has no input 1 (k)");
    weft__arena_free(&p);
}

/* ---- NonMaxSuppression ---- */

#define BOXES 5

/* Boxes 0, 1 and 4 lie on one another, 2 and 3 apart. The least score is fed. */
static void test_boxes(void)
{
    static const float boxes[BOXES][4] = {
        {0, 0, 2, 2}, {0, 0.1F, 2, 2.1F}, {5, 5, 7, 7}, {9, 9, 8, 8}, {0, 0, 2, 1.9F}};
    static const float scores[2][BOXES] = {{0.5F, 0.9F, 0.1F, 0.8F, 0.9F}, {0, 0, 0.7F, 0, 0.3F}};
    static const int32_t wanted[][3] = {{0, 0, 1}, {0, 0, 3}, {0, 1, 2}, {0, 1, 4}};
    static const float overlap = 0.5F, least = 0.2F;
    arena p = {.blocks = NULL};
    weft_value in[3], out[2];
    weft_error error = {0};
    weft_tensor t;
    written_graph *w = write_graph(&p);
    write_input(&p, w, "boxes", ONNX_FLOAT, WEFT_SHAPE(1, BOXES, 4));
    write_input(&p, w, "scores", ONNX_FLOAT, WEFT_SHAPE(1, 2, BOXES));
    write_input(&p, w, "least", ONNX_FLOAT, WEFT_SHAPE(1));
    write_one(&p, w, "limit", 3);
    write_floats(&p, w, "overlap", WEFT_SHAPE(1), &overlap);
    write_output(&p, w, "y");
    write_node(&p, w, "NonMaxSuppression", "boxes scores limit overlap least", "y");
    weft_onnx *m = must_load_written(&p, w, 17, NULL);
    weft_graph *g = weft_graph_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_TRUE(weft_shape_equal(weft_onnx_outputs(m, NULL)[0].shape, WEFT_SHAPE(6, 3)));
    CU_ASSERT_EQUAL_FATAL(weft_onnx_build(g, m, 0, in, out), WEFT_OK);
    weft_plan *plan = weft_plan_new(g, out, 2, NULL, &error);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &error) : NULL;
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    CU_ASSERT_EQUAL(weft_session_feed(s, in[0], boxes, sizeof boxes, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(s, in[1], scores, sizeof scores, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_feed(s, in[2], &least, sizeof least, NULL), WEFT_OK);
    CU_ASSERT_EQUAL(weft_session_run(s, &error), WEFT_OK);
    CU_ASSERT_EQUAL_FATAL(weft_onnx_output(m, s, out, 0, &t, &error), WEFT_OK);
    CU_ASSERT_TRUE_FATAL(weft_shape_equal(t.shape, WEFT_SHAPE(4, 3)));
    for (int64_t i = 0; i < 12; i++) CU_ASSERT_EQUAL(element_at(&t, i), wanted[i / 3][i % 3]);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    weft_onnx_free(m);
    weft__arena_free(&p);
}

void onnx_sizes_tests(void)
{
    CU_pSuite suite = CU_add_suite("onnx_sizes", NULL, NULL);
    CU_add_test(suite, "fed as known", test_chains);
    CU_add_test(suite, "outputs and their sizes", test_outputs);
    CU_add_test(suite, "gradient", test_gradient);
    CU_add_test(suite, "indices beyond a size", test_index);
    CU_add_test(suite, "what is refused", test_refused);
    CU_add_test(suite, "boxes", test_boxes);
}
