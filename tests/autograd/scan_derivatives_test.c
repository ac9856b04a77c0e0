/* Derivatives of loops (weft_scan): gradients, products with Hessians, forward mode and batches next
 * to those of the steps by hand, and central differences. */
#include "loops.h"
#include "tests.h"
#include "value_pairs.h"

#include <weft/transform.h>

#include <stdlib.h>

/* ---- Gradients ---- */

/* Derivatives of a scan and of its steps by hand. */
typedef enum derivative { GRADIENT, HESSIAN_PRODUCT, FORWARD_MODE, BATCH } derivative;

/* Fills results[] with a derivative of outputs[], and returns how many there are. */
static size_t derive(weft_graph *g, const loop_cell *c, derivative kind, const weft_value *in,
                     const weft_value *out, weft_value *results)
{
    const size_t n_in = loop_inputs(c), n_out = loop_outputs(c);
    weft_value vectors[LOOP_MAX_IN];
    for (size_t i = 0; i < n_in; i++) vectors[i] = random_like(g, in[i], 70 + i);
    switch (kind) {
    case GRADIENT:
        weft_grad(g, loop_loss(g, out, n_out, true), in, n_in, results);
        return n_in;
    case HESSIAN_PRODUCT:
        weft_hvp(g, loop_loss(g, out, n_out, true), in, vectors, n_in, results);
        return n_in;
    case FORWARD_MODE:
        weft_jvp(g, out, n_out, in, vectors, n_in, results);
        return n_out;
    default: /* two examples, with another in[0] */
        weft_vmap(g, out, n_out, in,
                  (weft_value[]){weft_stack(g, (weft_value[]){vectors[0], in[0]}, 2, 0)}, 1,
                  results);
        return n_out;
    }
}

/* How far the derivatives of a scan are from those of its steps by hand. */
static double compare_derivatives(const loop_cell *c, derivative kind, int64_t n)
{
    weft_graph *g = weft_graph_new();
    weft_value in[LOOP_MAX_IN], out[2][LOOP_MAX_OUT], results[2][LOOP_MAX_IN],
        targets[2 * LOOP_MAX_IN];
    size_t n_results = 0;
    loop_declare(g, c, WEFT_F64, n, in);
    loop_by_scan(g, c, n, in, out[0]);
    loop_by_hand(g, c, n, in, out[1]);
    for (int i = 0; i < 2; i++) n_results = derive(g, c, kind, in, out[i], results[i]);
    for (size_t k = 0; k < n_results; k++) {
        targets[2 * k] = results[0][k];
        targets[2 * k + 1] = results[1][k];
    }
    const weft_plan_options verify = {.verify = true};
    const weft_session_options o = {.threads = 2, .poison = true};
    const double off = loop_run_pairs(g, c, in, targets, n_results, &verify, &o);
    weft_graph_free(g);
    return off;
}

static void expect_derivatives(const loop_cell *c, int64_t n)
{
    static const char *const names[] = {"gradients", "products with the Hessian", "forward mode",
                                        "batch"};
    for (int kind = GRADIENT; kind <= BATCH; kind++) {
        const double off = compare_derivatives(c, (derivative)kind, n);
        if (!(off < ROUNDING_F64))
            fprintf(stderr, "\n    %s, %d steps, %s: off by %g\n", c->name, (int)n, names[kind],
                    off);
        CU_ASSERT_TRUE(off < ROUNDING_F64);
    }
}

static void test_derivatives(void)
{
    for (size_t i = 0; i < LOOP_CELLS; i++)
        for (int64_t n = 1; n <= 6; n += 5) expect_derivatives(&loop_cells[i], n);
    expect_derivatives(&loop_nested, 3);
    for (size_t i = 0; i < LOOP_CELLS; i++) {
        loop_cell c = loop_cells[i];
        c.segment = 2;
        expect_derivatives(&c, 5);
    }
}

/* How far the gradient by one input is from that of the steps by hand. */
static double compare_one(const loop_cell *c, size_t input, int64_t n)
{
    weft_graph *g = weft_graph_new();
    weft_value in[LOOP_MAX_IN], out[LOOP_MAX_OUT], targets[2];
    loop_declare(g, c, WEFT_F64, n, in);
    for (int i = 0; i < 2; i++) {
        (i ? loop_by_hand : loop_by_scan)(g, c, n, in, out);
        weft_grad(g, loop_loss(g, out, loop_outputs(c), true), &in[input], 1, &targets[i]);
    }
    const double off = loop_run_pairs(g, c, in, targets, 1, NULL, NULL);
    weft_graph_free(g);
    return off;
}

static void test_one_input(void)
{
    for (size_t i = 0; i < LOOP_CELLS; i++)
        for (size_t k = 0; k < loop_inputs(&loop_cells[i]); k++)
            CU_ASSERT_TRUE(compare_one(&loop_cells[i], k, 5) < ROUNDING_F64);
}

/* Central differences of all inputs. */
static void test_differences(void)
{
    for (size_t i = 0; i < LOOP_CELLS; i++) {
        const loop_cell *c = &loop_cells[i];
        weft_graph *g = weft_graph_new();
        weft_value in[LOOP_MAX_IN], out[LOOP_MAX_OUT];
        weft_check_feed feeds[LOOP_MAX_IN];
        weft_check_result result;
        loop_declare(g, c, WEFT_F64, 4, in);
        loop_by_scan(g, c, 4, in, out);
        for (size_t k = 0; k < loop_inputs(c); k++) {
            const weft_shape shape = weft_shape_of(g, in[k]);
            const size_t bytes = weft_tensor_bytes(WEFT_F64, shape);
            const weft_sample_input numbers = {WEFT_F64, shape, -0.5, 0.5, false};
            void *data = malloc(bytes);
            weft_sample_input_fill(&numbers, WEFT_F64, 20 + k, data);
            feeds[k] = (weft_check_feed){in[k], data, bytes};
        }
        const weft_value loss = loop_loss(g, out, loop_outputs(c), true);
        const weft_gradient_check check = {.loss = loss,
                                           .wrt = in,
                                           .n = loop_inputs(c),
                                           .feeds = feeds,
                                           .n_feeds = loop_inputs(c),
                                           .per_value = 6};
        CU_ASSERT_EQUAL(weft_check_gradient(g, &check, &result, NULL), WEFT_OK);
        if (!(result.worst_error < SMOOTH_DIFFERENCES))
            fprintf(stderr, "\n    %s: off by %g\n", c->name, result.worst_error);
        CU_ASSERT_TRUE(result.worst_error < SMOOTH_DIFFERENCES);
        for (size_t k = 0; k < loop_inputs(c); k++) free((void *)(uintptr_t)feeds[k].data);
        weft_graph_free(g);
    }
}

void scan_derivatives_tests(void)
{
    CU_pSuite suite = CU_add_suite("scan_derivatives", NULL, NULL);
    CU_add_test(suite, "derivatives and batches", test_derivatives);
    CU_add_test(suite, "gradients by one input", test_one_input);
    CU_add_test(suite, "central differences", test_differences);
}
