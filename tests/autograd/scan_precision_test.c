/* Loops whose plans store values as bf16: the bits of the same steps as nodes, forwards and of
 * gradients. */
#include "loops.h"
#include "tests.h"

#include <weft/session.h>

#include <stdlib.h>
#include <string.h>

enum { STEPS = 5, MAX_TARGETS = LOOP_MAX_OUT + LOOP_MAX_IN, MAX_BYTES = 1 << 20 };

/* Runs a plan of the graph and fetches the targets, one after another. Returns the bytes, and how many
 * values of the plan are stored as bf16. */
static size_t run(weft_graph *g, const weft_value *in, size_t n_in, const weft_value *targets,
                  size_t n, const weft_plan_options *options, char *results)
{
    weft_error e = WEFT_NO_ERROR;
    const weft_session_options session = {.threads = 3, .poison = true};
    weft_plan *plan = weft_plan_new(g, targets, n, options, &e);
    weft_session *s = plan ? weft_session_new(plan, NULL, &session, &e) : NULL;
    size_t bytes = 0;
    if (s) {
        loop_fill(s, g, in, n_in);
        weft_session_run(s, &e);
        for (size_t i = 0; i < n && e.status == WEFT_OK; i++) {
            weft_tensor t;
            weft_session_tensor(s, targets[i], &t, &e);
            const size_t size = weft_tensor_bytes(t.dtype, t.shape);
            CU_ASSERT_TRUE_FATAL(bytes + size <= MAX_BYTES);
            weft_session_fetch(s, targets[i], results + bytes, size, &e);
            bytes += size;
        }
    }
    if (e.status != WEFT_OK) fprintf(stderr, "\n    %s: %s\n", e.where, e.message);
    CU_ASSERT_EQUAL(e.status, WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
    return bytes;
}

/* Two nodes after a value, so that it is not a target, which would be stored as f32. */
static weft_value after_nodes(weft_graph *g, weft_value v)
{
    return weft_neg(g, weft_neg(g, v));
}

/* Compares a loop with the pass `unroll`. Nodes come before it, so what it reads may be stored as bf16. */
static void compare(const loop_cell *c, bool gradients, weft_plan_options options)
{
    weft_graph *g = weft_graph_new();
    weft_value in[LOOP_MAX_IN], read[LOOP_MAX_IN], out[LOOP_MAX_OUT], targets[MAX_TARGETS];
    size_t n = 0;
    loop_declare(g, c, WEFT_F32, STEPS, in);
    for (size_t i = 0; i < loop_inputs(c); i++) read[i] = after_nodes(g, in[i]);
    loop_by_scan(g, c, STEPS, read, out);
    for (size_t k = 0; k < loop_outputs(c); k++) targets[n++] = out[k] = after_nodes(g, out[k]);
    if (gradients) {
        weft_grad(g, loop_loss(g, out, loop_outputs(c), true), in, loop_inputs(c), targets + n);
        n += loop_inputs(c);
    }
    char *scan = calloc(2, MAX_BYTES), *unrolled = scan + MAX_BYTES;
    const size_t bytes = run(g, in, loop_inputs(c), targets, n, &options, scan);
    options.passes = &weft_pass_unroll;
    options.n_passes = 1;
    CU_ASSERT_EQUAL(run(g, in, loop_inputs(c), targets, n, &options, unrolled), bytes);
    if (memcmp(scan, unrolled, bytes)) {
        size_t wrong = 0;
        for (size_t i = 0; i < bytes / 4; i++)
            wrong += memcmp(scan + 4 * i, unrolled + 4 * i, 4) != 0;
        fprintf(stderr, "\n    %s, %s: %zu of %zu numbers have other bits\n", c->name,
                gradients ? "gradients" : "values", wrong, bytes / 4);
    }
    CU_ASSERT_EQUAL(memcmp(scan, unrolled, bytes), 0);
    free(scan);
    weft_graph_free(g);
}

/* The passes that are skipped add up the products of the steps in another order. */
static void test_bits(void)
{
    static const weft_precision precisions[] = {WEFT_PRECISION_F32, WEFT_PRECISION_BF16,
                                                WEFT_PRECISION_BF16_TILES};
    for (size_t p = 0; p < 3; p++)
        for (size_t i = 0; i < LOOP_CELLS; i++)
            for (int64_t least = 1; least <= 1024; least *= 32)
                for (int gradients = 0; gradients < 2; gradients++) {
                    const weft_plan_options o = {.precision = precisions[p],
                                                 .min_narrow = least,
                                                 .skip = "join_slices,join_products",
                                                 .verify = true};
                    compare(&loop_cells[i], gradients, o);
                }
}

void scan_precision_tests(void)
{
    CU_pSuite suite = CU_add_suite("scan_precision", NULL, NULL);
    CU_add_test(suite, "the bits of steps without a loop", test_bits);
}
