/* Losses at their edges: infinite and refused sequences of CTC, norms of 0, probabilities of 0, and
 * what is refused. The golden cases compare all losses and gradients with PyTorch. */
#include "tests.h"

#include <weft/autograd.h>

#include <math.h>
#include <string.h>

enum { FRAMES = 4, BATCH = 3, CLASSES = 3, LABELS = 3 };

/* The loss of each sequence and its gradient, of uniform probabilities 1/3. */
static weft_status run_ctc(const int32_t *targets, const int32_t *frames, const int32_t *lengths,
                           double *loss, double *dx)
{
    double log_p[FRAMES * BATCH * CLASSES];
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "x", WEFT_F64, WEFT_SHAPE(FRAMES, BATCH, CLASSES)), grad;
    weft_value t = weft_input(g, "t", WEFT_I32, WEFT_SHAPE(BATCH, LABELS));
    weft_value f = weft_input(g, "f", WEFT_I32, WEFT_SHAPE(BATCH));
    weft_value n = weft_input(g, "n", WEFT_I32, WEFT_SHAPE(BATCH));
    weft_value y = weft_ctc(g, x, t, f, n, 0);
    weft_grad(g, weft_sum(g, y, WEFT_ALL_AXES, false), &x, 1, &grad);
    const weft_value out[2] = {y, weft_contiguous(g, grad)};
    weft_plan *plan = weft_plan_new(g, out, 2, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    for (size_t i = 0; i < sizeof log_p / sizeof *log_p; i++) log_p[i] = -log(3);
    weft_session_feed(s, x, log_p, sizeof log_p, NULL);
    weft_session_feed(s, t, targets, sizeof(int32_t[BATCH * LABELS]), NULL);
    weft_session_feed(s, f, frames, sizeof(int32_t[BATCH]), NULL);
    weft_session_feed(s, n, lengths, sizeof(int32_t[BATCH]), NULL);
    const weft_status status = weft_session_run(s, NULL);
    if (status == WEFT_OK) {
        weft_session_fetch(s, out[0], loss, sizeof(double[BATCH]), NULL);
        weft_session_fetch(s, out[1], dx, sizeof log_p, NULL);
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
    return status;
}

/* Two equal labels need three frames, three of them five: the loss of the second is infinite, and
 * its gradient 0. Of no label in no frames the probability is 1. */
static void test_infinite(void)
{
    static const int32_t targets[BATCH * LABELS] = {1, 1, 0, 2, 2, 2, 7, 7, 7};
    static const int32_t frames[BATCH] = {3, 4, 0}, lengths[BATCH] = {2, 3, 0};
    double loss[BATCH], dx[FRAMES * BATCH * CLASSES];
    CU_ASSERT_EQUAL_FATAL(run_ctc(targets, frames, lengths, loss, dx), WEFT_OK);
    CU_ASSERT_TRUE(test_near(loss[0], 3 * log(3)));
    CU_ASSERT_TRUE(isinf(loss[1]) && loss[1] > 0);
    CU_ASSERT_EQUAL(loss[2], 0);
    for (int t = 0; t < FRAMES; t++)
        for (int c = 0; c < CLASSES; c++) {
            /* The only alignment is 1, blank, 1. */
            const bool passes = t < 3 && c == (t == 1 ? 0 : 1);
            CU_ASSERT_TRUE(test_near(dx[(t * BATCH + 0) * CLASSES + c], passes ? -1 : 0));
            CU_ASSERT_EQUAL(dx[(t * BATCH + 1) * CLASSES + c], 0);
            CU_ASSERT_EQUAL(dx[(t * BATCH + 2) * CLASSES + c], 0);
        }
}

static void test_bad_sequences(void)
{
    static const int32_t good[BATCH * LABELS] = {1, 2, 1, 2, 1, 2, 1, 2, 1};
    static const int32_t blank[BATCH * LABELS] = {1, 2, 1, 2, 0, 2, 1, 2, 1};
    static const int32_t beyond[BATCH * LABELS] = {1, 2, 3, 2, 1, 2, 1, 2, 1};
    static const int32_t all[BATCH] = {4, 4, 4}, few[BATCH] = {3, 3, 3};
    static const int32_t long_one[BATCH] = {3, 5, 3}, negative[BATCH] = {3, -1, 3};
    double loss[BATCH], dx[FRAMES * BATCH * CLASSES];
    CU_ASSERT_EQUAL(run_ctc(good, all, few, loss, dx), WEFT_OK);
    CU_ASSERT_EQUAL(run_ctc(blank, all, few, loss, dx), WEFT_BAD_INDEX);
    CU_ASSERT_EQUAL(run_ctc(beyond, all, few, loss, dx), WEFT_BAD_INDEX);
    CU_ASSERT_EQUAL(run_ctc(good, long_one, few, loss, dx), WEFT_BAD_INDEX);
    CU_ASSERT_EQUAL(run_ctc(good, all, long_one, loss, dx), WEFT_BAD_INDEX);
    CU_ASSERT_EQUAL(run_ctc(good, negative, few, loss, dx), WEFT_BAD_INDEX);
}

/* A loss of two operands in one row and its gradients. */
static void run_pair(int which, const double *a, const double *b, double *loss, double *da)
{
    weft_error error = WEFT_NO_ERROR;
    weft_graph *g = weft_graph_new();
    weft_value x = weft_input(g, "a", WEFT_F64, WEFT_SHAPE(3)), grad;
    weft_value y = weft_input(g, "b", WEFT_F64, WEFT_SHAPE(3));
    weft_value l = which == 0   ? weft_cosine_similarity(g, x, y, 1e-8)
                   : which == 1 ? weft_kl_divergence_loss(g, y, x, WEFT_REDUCE_SUM)
                                : weft_l1_loss(g, x, y, WEFT_REDUCE_SUM);
    weft_grad(g, l, &x, 1, &grad);
    const weft_value out[2] = {l, weft_contiguous(g, grad)};
    weft_plan *plan = weft_plan_new(g, out, 2, NULL, &error);
    weft_session *s = weft_session_new(plan, NULL, NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    weft_session_feed(s, x, a, sizeof(double[3]), NULL);
    weft_session_feed(s, y, b, sizeof(double[3]), NULL);
    CU_ASSERT_EQUAL(weft_session_run(s, NULL), WEFT_OK);
    weft_session_fetch(s, out[0], loss, sizeof *loss, NULL);
    weft_session_fetch(s, out[1], da, sizeof(double[3]), NULL);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

/* A norm of 0 is eps, and has no gradient of its own; a probability of 0 has no term; |0| has no
 * slope. */
static void test_zeros(void)
{
    static const double zero[3] = {0, 0, 0}, b[3] = {3, 0, 4};
    static const double p[3] = {0, 0.25, 0.75}, log_q[3] = {-INFINITY, -1, -2};
    double loss, da[3];
    run_pair(0, zero, b, &loss, da);
    CU_ASSERT_EQUAL(loss, 0);
    CU_ASSERT_TRUE(test_near(da[0], 0.6e8) && da[1] == 0 && test_near(da[2], 0.8e8));
    run_pair(1, p, log_q, &loss, da);
    CU_ASSERT_TRUE(test_near(loss, 0.25 * (log(0.25) + 1) + 0.75 * (log(0.75) + 2)));
    CU_ASSERT_TRUE(da[0] == 0 && test_near(da[1], log(0.25) + 1 + 1));
    run_pair(2, b, b, &loss, da);
    CU_ASSERT_TRUE(loss == 0 && da[0] == 0 && da[1] == 0 && da[2] == 0);
}

static void test_refused(void)
{
    for (int i = 0; i < 8; i++) {
        weft_graph *g = weft_graph_new();
        weft_value a = weft_input(g, "a", WEFT_F32, WEFT_SHAPE(2, 3));
        weft_value b = weft_input(g, "b", WEFT_F32, WEFT_SHAPE(3));
        const weft_triplet_margin_loss_options o = {.p = -1};
        if (i == 0) weft_huber_loss(g, a, a, 0, WEFT_REDUCE_MEAN);
        if (i == 1) weft_smooth_l1_loss(g, a, a, -1, WEFT_REDUCE_MEAN);
        if (i == 2) weft_cosine_similarity(g, a, a, 0);
        if (i == 3) weft_triplet_margin_loss(g, a, a, a, &o);
        if (i == 4) weft_l1_loss(g, a, b, WEFT_REDUCE_MEAN);
        if (i == 5) weft_kl_divergence_loss(g, a, b, WEFT_REDUCE_MEAN);
        if (i == 6) weft_hinge_loss(g, a, b, WEFT_REDUCE_MEAN);
        if (i == 7) weft_cosine_embedding_loss(g, a, a, b, 0, WEFT_REDUCE_MEAN);
        CU_ASSERT_EQUAL(weft_graph_status(g), i < 4 ? WEFT_BAD_ARGUMENT : WEFT_BAD_SHAPE);
        weft_graph_free(g);
    }
}

void losses_tests(void)
{
    CU_pSuite suite = CU_add_suite("losses", NULL, NULL);
    CU_add_test(suite, "infinite losses of CTC", test_infinite);
    CU_add_test(suite, "bad sequences of CTC", test_bad_sequences);
    CU_add_test(suite, "zeros", test_zeros);
    CU_add_test(suite, "what is refused", test_refused);
}
