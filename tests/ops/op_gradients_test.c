/* Gradients of every op, on each of its samples, against central differences; and that the check notices gradients and
 * declarations that are wrong. */
#include "tests.h"

#include <math.h>
#include <string.h>

/* Prints what is wrong with a sample's gradient, and fails. */
static void report(const weft_op *op, size_t sample, const char *what, double got)
{
    fprintf(stderr, "\n    %s, sample %zu: %s: %g\n", op->name, sample, what, got);
    CU_FAIL("a gradient differs");
}

/* The suite ops runs the same kernels, so that sanitizers need no more than one seed here. */
static void check_gradient(const weft_op *op, size_t sample)
{
    for (int order = 1; order <= 2; order++)
        for (uint64_t seed = 1; seed <= (TEST_SANITIZED ? 1 : 3); seed++) {
            weft_check_result r;
            weft_error error = {0};
            if (weft_check_op(op, sample, order, -1, seed, &r, &error) != WEFT_OK) {
                fprintf(stderr, "\n    %s: %s: %s\n", op->name, error.where, error.message);
                report(op, sample, "the gradient cannot be checked, order", order);
            } else if (!(r.worst_error <= DIFFERENCES)) {
                report(op, sample, r.where, r.worst_error);
            } else {
                CU_PASS("near");
            }
        }
}

static void test_gradients(void)
{
    for (size_t i = 0; i < weft_op_count(); i++)
        for (size_t k = 0; k < weft_op_at(i)->n_samples; k++) check_gradient(weft_op_at(i), k);
}

/* ---- Ops that declare what their kernels do not do ---- */

static bool infer_same(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return true;
}

/* Element i of an operand that a kernel wrongly takes for dense; 0 beyond its storage. */
static double dense_element(const weft_tensor *x, int64_t i)
{
    int64_t last = 0;
    for (int d = 0; d < x->shape.rank; d++)
        if (x->stride[d] > 0) last += (x->shape.dim[d] - 1) * x->stride[d];
    return i <= last ? ((const double *)x->data)[i] : 0;
}

/* y = 2 x and y = x in reverse order, of dense operands in one tile. */
static void dense_double(const weft_call *call, int64_t tile)
{
    double *y = call->out[0].data;
    const int64_t n = weft_shape_numel(call->out[0].shape);
    for (int64_t i = tile ? n : 0; i < n; i++) y[i] = 2 * dense_element(&call->in[0], i);
}

static void dense_reverse(const weft_call *call, int64_t tile)
{
    double *y = call->out[0].data;
    const int64_t n = weft_shape_numel(call->out[0].shape);
    for (int64_t i = tile ? n : 0; i < n; i++) y[i] = dense_element(&call->in[0], n - 1 - i);
}

static void expect_layouts(const weft_op *op, const char *inputs)
{
    weft_check_result r;
    weft_error error;
    CU_ASSERT_EQUAL_FATAL(weft_check_op(op, 0, 1, -1, 1, &r, &error), WEFT_OK);
    CU_ASSERT_EQUAL(r.worst_error > 0, inputs != NULL);
    if (inputs) CU_ASSERT_PTR_NOT_NULL(strstr(r.where, inputs));
}

/* The check notices an op that takes layouts, works on blocks, or overwrites an input, although its
 * kernel cannot. */
static void test_false_declarations(void)
{
    static const weft_sample samples[] = {{NULL, 1, {{WEFT_FLOAT, {2, {3, 5}}, -2, 2, true}}}};
    weft_op op = {.name = "false",
                  .doc = "y = 2 x",
                  .min_in = 1,
                  .max_in = 1,
                  .n_out = 1,
                  .infer = infer_same,
                  .kernel[WEFT_ISA_BASE][WEFT_F64] = dense_double,
                  .gradient = WEFT_GRADIENT_ZERO,
                  .samples = samples,
                  .n_samples = 1};
    expect_layouts(&op, NULL);
    op.takes = WEFT_TAKES_ANY;
    expect_layouts(&op, "transposed inputs");
    op.takes = WEFT_TAKES_ROWS; /* a row of [3, 5] may be 11 elements from the next */
    expect_layouts(&op, "inputs");
    op.takes = WEFT_TAKES_DENSE;
    op.kernel[WEFT_ISA_BASE][WEFT_F64] = dense_reverse;
    expect_layouts(&op, NULL);
    op.inplace = 1;
    expect_layouts(&op, "inputs"); /* first the copies that are made of views */
}

/* Of relu_grad's first input only the sign counts: its gradient is zero. */
static bool gradient_is_zero(const weft_op *op, size_t input)
{
    return !strcmp(op->name, "relu_grad") && input == 0;
}

/* A flipped sign in any one gradient must fail the check, unless the gradient is zero. */
static void test_flipped(void)
{
    size_t caught = 0;
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        if (op->gradient != WEFT_GRADIENT_VJP || !op->n_samples) continue;
        for (size_t k = 0; k < op->samples[0].n_in; k++) {
            weft_check_result r;
            if (op->samples[0].in[k].dtype != WEFT_FLOAT || gradient_is_zero(op, k)) continue;
            CU_ASSERT_EQUAL(weft_check_op(op, 0, 1, (int)k, 1, &r, NULL), WEFT_OK);
            if (r.worst_error > 1e-3) {
                caught++;
            } else {
                report(op, 0, "a flipped gradient passes, input", (double)k);
            }
        }
    }
    CU_ASSERT_TRUE(caught > 60);
}

void op_gradients_tests(void)
{
    CU_pSuite suite = CU_add_suite("op_gradients", NULL, NULL);
    CU_add_test(suite, "gradients of first and second order", test_gradients);
    CU_add_test(suite, "a flipped gradient is seen", test_flipped);
    CU_add_test(suite, "false declarations are seen", test_false_declarations);
}
