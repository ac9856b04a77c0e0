/* Holds ops and a whole Transformer against what PyTorch computed (golden/make_golden.py): outputs,
 * the gradient of every input and parameter, and the losses of 50 Adam steps, in f32 and in f64.
 * Errors are relative and norm-wise: |a - b| <= limit |b|. */
#include "golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Single ops ---- */

static weft_value on_mask(weft_graph *g, weft_value x)
{
    return weft_cast(g, x, WEFT_BOOL);
}
static weft_value padded(weft_graph *g, weft_value x)
{
    return weft_pad(g, x, (const int64_t[]){0, 2}, (const int64_t[]){3, 1}, 0.5);
}
static weft_value entropy(weft_graph *g, const weft_value *x, int64_t ignore, double smoothing,
                          weft_reduction reduction)
{
    return weft_cross_entropy_loss(
        g, x[0], x[1],
        &(weft_cross_entropy_loss_options){.ignore_index = ignore,
                                           .has_ignore_index = ignore >= 0,
                                           .label_smoothing = smoothing,
                                           .reduction = reduction});
}
static weft_value transposed(weft_graph *g, weft_value x)
{
    return weft_transpose(g, x, -1, -2);
}

static weft_value triplet(weft_graph *g, const weft_value *x, double p, bool swap)
{
    const weft_triplet_margin_loss_options o = {.margin = 0.5, .p = p, .swap = swap};
    return weft_triplet_margin_loss(g, x[0], x[1], x[2], &o);
}
/* x: logits, targets, numbers of frames and of labels. */
static weft_value ctc(weft_graph *g, const weft_value *x, weft_reduction reduction)
{
    const weft_ctc_loss_options o = {.blank = 1, .reduction = reduction, .zero_infinity = true};
    return weft_ctc_loss(g, weft_log_softmax(g, x[0], -1), x[1], x[2], x[3], &o);
}

/* name of the case in the file, the value made of its inputs x[0], x[1], ... */
#define CASES(X)                                                                                   \
    X(exp, weft_exp(g, x[0]))                                                                      \
    X(log, weft_log(g, x[0]))                                                                      \
    X(expm1, weft_expm1(g, x[0]))                                                                  \
    X(log1p, weft_log1p(g, x[0]))                                                                  \
    X(prod, weft_prod(g, x[0], WEFT_AXES(0, 2), true))                                             \
    X(sqrt, weft_sqrt(g, x[0]))                                                                    \
    X(rsqrt, weft_rsqrt(g, x[0]))                                                                  \
    X(reciprocal, weft_reciprocal(g, x[0]))                                                        \
    X(sin, weft_sin(g, x[0]))                                                                      \
    X(cos, weft_cos(g, x[0]))                                                                      \
    X(tanh, weft_tanh(g, x[0]))                                                                    \
    X(sigmoid, weft_sigmoid(g, x[0]))                                                              \
    X(erf, weft_erf(g, x[0]))                                                                      \
    X(abs, weft_abs(g, x[0]))                                                                      \
    X(relu, weft_relu(g, x[0]))                                                                    \
    X(leaky_relu, weft_leaky_relu(g, x[0], 0.1))                                                   \
    X(clamp, weft_clamp(g, x[0], -0.95, 1.25))                                                     \
    X(gelu, weft_gelu(g, x[0]))                                                                    \
    X(gelu_tanh, weft_gelu_tanh(g, x[0]))                                                          \
    X(silu, weft_silu(g, x[0]))                                                                    \
    X(softplus, weft_softplus(g, x[0]))                                                            \
    X(div, weft_div(g, x[0], x[1]))                                                                \
    X(pow, weft_pow(g, x[0], x[1]))                                                                \
    X(pow_scalar, weft_pow_scalar(g, x[0], 2.5))                                                   \
    X(maximum, weft_maximum(g, x[0], x[1]))                                                        \
    X(minimum, weft_minimum(g, x[0], x[1]))                                                        \
    X(where, weft_where(g, on_mask(g, x[0]), x[1], x[2]))                                          \
    X(sum, weft_sum(g, x[0], WEFT_AXES(1), false))                                                 \
    X(mean, weft_mean(g, x[0], WEFT_AXES(0, 2), true))                                             \
    X(max, weft_max(g, x[0], WEFT_AXES(1), false))                                                 \
    X(min, weft_min(g, x[0], WEFT_AXES(0), true))                                                  \
    X(variance, weft_variance(g, x[0], WEFT_AXES(1), false, 0))                                    \
    X(variance_sample, weft_variance(g, x[0], WEFT_ALL_AXES, false, 1))                            \
    X(logsumexp, weft_logsumexp(g, x[0], WEFT_AXES(0, 2), false))                                  \
    X(cumsum, weft_cumsum(g, x[0], 1, false))                                                      \
    X(cumsum_reverse, weft_cumsum(g, x[0], 0, true))                                               \
    X(softmax, weft_softmax(g, x[0], -1))                                                          \
    X(softmax_middle, weft_softmax(g, x[0], 1))                                                    \
    X(softmax_masked, weft_softmax(g, weft_masked_fill(g, x[0], on_mask(g, x[1]), -INFINITY), -1)) \
    X(log_softmax, weft_log_softmax(g, x[0], -1))                                                  \
    X(layer_norm, weft_layer_norm(g, x[0], x[1], x[2], 1e-5))                                      \
    X(rms_norm, weft_rms_norm(g, x[0], x[1], 1e-6))                                                \
    X(matmul, weft_matmul(g, x[0], x[1]))                                                          \
    X(matmul_weight, weft_matmul(g, x[0], x[1]))                                                   \
    X(matmul_transposed, weft_matmul(g, transposed(g, x[0]), transposed(g, x[1])))                 \
    X(einsum, weft_einsum(g, "nqhd,nkhd->nhqk", x[0], x[1]))                                       \
    X(embedding, weft_embedding(g, x[0], x[1], 2))                                                 \
    X(gather, weft_gather(g, x[0], x[1], 1))                                                       \
    X(scatter_add, weft_scatter_add(g, x[0], x[1], x[2], 1))                                       \
    X(slice, weft_slice(g, x[0], 1, WEFT_END, WEFT_END, -2))                                       \
    X(permute, weft_permute(g, x[0], WEFT_AXES(2, 0, 1)))                                          \
    X(concat, weft_concat(g, x, 2, 1))                                                             \
    X(pad, padded(g, x[0]))                                                                        \
    X(tril, weft_tril(g, x[0], 1))                                                                 \
    X(cross_entropy, entropy(g, x, 3, 0.1, WEFT_REDUCE_MEAN))                                      \
    X(cross_entropy_sum, entropy(g, x, -1, 0, WEFT_REDUCE_SUM))                                    \
    X(mse, weft_mse_loss(g, x[0], x[1], WEFT_REDUCE_MEAN))                                         \
    X(bce_with_logits, weft_bce_with_logits_loss(g, x[0], x[1], WEFT_REDUCE_SUM))                  \
    X(global_norm, weft_global_norm(g, x, 2))                                                      \
    X(batch_norm, weft_batch_norm(g, x[0], x[1], x[2], 1e-5, NULL, NULL))                          \
    X(top_k, weft_top_k(g, x[0], 3, 1, true, NULL))                                                \
    X(sort, weft_sort(g, x[0], 0, false, NULL))                                                    \
    X(cross_entropy_none, entropy(g, x, 3, 0.1, WEFT_REDUCE_NONE))                                 \
    X(mse_none, weft_mse_loss(g, x[0], x[1], WEFT_REDUCE_NONE))                                    \
    X(bce_none, weft_bce_with_logits_loss(g, x[0], x[1], WEFT_REDUCE_NONE))                        \
    X(l1_loss, weft_l1_loss(g, x[0], x[1], WEFT_REDUCE_MEAN))                                      \
    X(huber_loss, weft_huber_loss(g, x[0], x[1], 0.7, WEFT_REDUCE_SUM))                            \
    X(smooth_l1_loss, weft_smooth_l1_loss(g, x[0], x[1], 0.7, WEFT_REDUCE_NONE))                   \
    X(kl_divergence,                                                                               \
      weft_kl_divergence_loss(g, weft_log_softmax(g, x[0], -1), x[1], WEFT_REDUCE_SUM))            \
    X(hinge_loss, weft_hinge_loss(g, x[0], x[1], WEFT_REDUCE_MEAN))                                \
    X(cosine_similarity, weft_cosine_similarity(g, x[0], x[1], 1e-8))                              \
    X(cosine_embedding_loss,                                                                       \
      weft_cosine_embedding_loss(g, x[0], x[1], x[2], 0.2, WEFT_REDUCE_MEAN))                      \
    X(triplet_margin_loss, triplet(g, x, 2, false))                                                \
    X(triplet_margin_loss_swap, triplet(g, x, 3, true))                                            \
    X(ctc, ctc(g, x, WEFT_REDUCE_NONE))                                                            \
    X(ctc_loss, ctc(g, x, WEFT_REDUCE_MEAN))

#define DEFINE(name, value)                                                                        \
    static weft_value case_##name(weft_graph *g, const weft_value *x)                              \
    {                                                                                              \
        return value;                                                                              \
    }
CASES(DEFINE)
#undef DEFINE

typedef struct op_case {
    const char *name;
    weft_value (*build)(weft_graph *g, const weft_value *x);
} op_case;

static const op_case cases[] = {
#define ROW(name, value) {#name, case_##name},
    CASES(ROW)
#undef ROW
};

#define MAX_INPUTS 4

static void check_case(const op_case *c, weft_params *store, double limit)
{
    char name[96];
    int of[MAX_INPUTS];
    size_t n = 0, n_wrt = 0;
    weft_error error = {0};
    weft_value x[MAX_INPUTS], wrt[MAX_INPUTS], targets[MAX_INPUTS + 1], cotangent;
    weft_graph *g = weft_graph_new();
    for (; n < MAX_INPUTS; n++) {
        snprintf(name, sizeof name, "%s.x%zu", c->name, n);
        if (!golden_state(g, store, name, &x[n])) break;
        if (!weft_dtype_is_float(weft_dtype_of(g, x[n]))) continue;
        of[n_wrt] = (int)n;
        wrt[n_wrt++] = x[n];
    }
    snprintf(name, sizeof name, "%s.cotangent", c->name);
    CU_ASSERT_TRUE_FATAL(n > 0 && golden_state(g, store, name, &cotangent));
    targets[0] = weft_contiguous(g, c->build(g, x));
    weft_grad_of(g, targets, &cotangent, 1, wrt, n_wrt, targets + 1);
    for (size_t i = 0; i < n_wrt; i++) targets[i + 1] = weft_contiguous(g, targets[i + 1]);
    weft_plan_options check = {.verify = true};
    weft_plan *plan = weft_plan_new(g, targets, n_wrt + 1, &check, &error);
    weft_session *s = weft_session_new(plan, store, NULL, &error);
    if (!s || weft_session_run(s, NULL) != WEFT_OK) {
        printf("\n    %s: %s: %s\n", c->name, error.where, error.message);
        CU_FAIL("a case does not run");
    } else {
        snprintf(name, sizeof name, "%s.out", c->name);
        golden_target(s, store, targets[0], name, limit, 0);
        for (size_t i = 0; i < n_wrt; i++) {
            snprintf(name, sizeof name, "%s.grad%d", c->name, of[i]);
            golden_target(s, store, targets[i + 1], name, limit, 0);
        }
    }
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(g);
}

static void test_ops(void)
{
    for (size_t p = 0; p < sizeof golden_precisions / sizeof *golden_precisions; p++) {
        weft_params *store = golden_load(GOLDEN("ops.safetensors"), "", golden_precisions[p].dtype);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
            check_case(&cases[i], store, golden_precisions[p].limit);
        weft_params_free(store);
    }
}

/* Every case of the file has its row above. */
static void test_no_case_left_out(void)
{
    weft_params *store = golden_load(GOLDEN("ops.safetensors"), "", WEFT_F32);
    size_t in_file = 0;
    for (size_t i = 0; i < weft_params_count(store); i++)
        in_file += strstr(weft_params_name(store, i), ".out") != NULL;
    CU_ASSERT_EQUAL(in_file, sizeof cases / sizeof *cases);
    weft_params_free(store);
}

/* ---- The Transformer ---- */

#define MAX_PARAMS 256
#define STEPS      50

typedef struct rig {
    weft_graph *g;
    weft_built built;
    weft_value params[MAX_PARAMS], grads[MAX_PARAMS], lr, norm, step;
    size_t n;
    weft_params *store;
    weft_plan *plan;
    weft_session *session;
} rig;

static void rig_open(rig *r, const weft_value *targets, size_t n)
{
    weft_error error = {0};
    r->plan = weft_plan_new(r->g, targets, n, NULL, &error);
    if (weft_params_init(r->store, r->g, 1, &error) == WEFT_OK)
        r->session = weft_session_new(r->plan, r->store, NULL, &error);
    if (!r->session) printf("\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(r->session);
    const weft_value *inputs = r->built.inputs;
    for (size_t i = 0; i < r->built.n_inputs; i++) {
        weft_tensor t;
        CU_ASSERT_TRUE_FATAL(weft_params_find(r->store, weft_name_of(r->g, inputs[i]), &t));
        size_t bytes = (size_t)weft_shape_numel(t.shape) * sizeof(int32_t);
        CU_ASSERT_EQUAL_FATAL(weft_session_feed(r->session, inputs[i], t.data, bytes, NULL),
                              WEFT_OK);
    }
}

static void rig_close(rig *r)
{
    weft_session_free(r->session);
    weft_plan_free(r->plan);
    weft_params_free(r->store);
    weft_graph_free(r->g);
}

static void rig_build(rig *r, const char *path, bool post_norm, weft_dtype dtype)
{
    const weft_transformer_config c = {
        .text =
            {.dtype = dtype,
             .d_model = 32,
             .tied = post_norm,
             .scaled_embeddings = true,
             .positions = WEFT_POSITIONS_SINUSOIDAL,
             .dropout = 0.3,
             .label_smoothing = 0.1,
             .block = {.attention = {.heads = 4, .bias = true, .out_bias = true, .dropout = 0.3},
                       .feed_forward = {.d_ff = 64, .bias = true, .dropout = 0.3},
                       .norm_position = post_norm ? WEFT_POST_NORM : WEFT_PRE_NORM,
                       .eps = 1e-5,
                       .dropout = 0.3}},
        .source_vocab = 50,
        .target_vocab = 50,
        .encoder_layers = 2,
        .decoder_layers = 2};
    const weft_build_options build = {.shape = {3, 7, 6}};
    *r = (rig){.g = weft_graph_new(), .store = golden_load(path, "", dtype)};
    r->built = weft_transformer_build(r->g, &c, &build);
    CU_ASSERT_EQUAL_FATAL(weft_graph_status(r->g), WEFT_OK);
    r->n = test_params(r->g, r->params, MAX_PARAMS);
    CU_ASSERT_TRUE_FATAL(r->n > 0 && r->n <= MAX_PARAMS);
}

/* Some gradients are zero but for rounding (that of a key's bias: softmax does not see it), so that
 * the floor of their error is a part of the norm of the whole gradient. */
static void check_gradients(const char *path, bool post_norm, weft_dtype dtype, double limit)
{
    rig r;
    char name[128];
    weft_value targets[MAX_PARAMS + 3];
    rig_build(&r, path, post_norm, dtype);
    weft_grad(r.g, r.built.loss, r.params, r.n, r.grads);
    for (size_t i = 0; i < r.n; i++) targets[i] = weft_contiguous(r.g, r.grads[i]);
    const weft_value results[] = {r.built.outputs[0], r.built.loss, r.built.metric};
    static const char *const result_names[] = {"logits", "loss", "nll"};
    memcpy(targets + r.n, results, sizeof results);
    rig_open(&r, targets, r.n + 3);
    CU_ASSERT_EQUAL_FATAL(weft_session_run(r.session, NULL), WEFT_OK);
    for (int i = 0; i < 3; i++)
        golden_target(r.session, r.store, results[i], result_names[i], limit, 0);
    weft_tensor norms;
    CU_ASSERT_TRUE_FATAL(weft_params_find(r.store, "norms", &norms));
    size_t in_file = 0;
    for (size_t i = 0; i < weft_params_count(r.store); i++)
        in_file += !strncmp(weft_params_name(r.store, i), "grad.", 5);
    CU_ASSERT_EQUAL(in_file, r.n);
    for (size_t i = 0; i < r.n; i++) {
        snprintf(name, sizeof name, "grad.%s", weft_name_of(r.g, r.params[i]));
        golden_target(r.session, r.store, targets[i], name, limit,
                      GOLDEN_FLOOR * limit * golden_element(&norms, 0));
    }
    rig_close(&r);
}

static void check_training(const char *path, bool post_norm, weft_dtype dtype, double limit)
{
    rig r;
    double losses[STEPS], norms[STEPS];
    const double lr = 1e-3;
    const float lr32 = 1e-3f;
    weft_optimizer adam = WEFT_ADAM_DEFAULT;
    rig_build(&r, path, post_norm, dtype);
    r.lr = weft_input(r.g, "lr", dtype, WEFT_SCALAR);
    r.step = weft_train_update(r.g, r.built.loss, r.params, r.n, r.lr, &adam, &r.norm);
    const weft_value targets[] = {r.built.loss, r.norm, r.step};
    rig_open(&r, targets, 3);
    weft_status fed = dtype == WEFT_F32
                          ? weft_session_feed(r.session, r.lr, &lr32, sizeof lr32, NULL)
                          : weft_session_feed(r.session, r.lr, &lr, sizeof lr, NULL);
    CU_ASSERT_EQUAL(fed, WEFT_OK);
    for (int i = 0; i < STEPS; i++) {
        weft_tensor loss, norm;
        CU_ASSERT_EQUAL_FATAL(weft_session_run(r.session, NULL), WEFT_OK);
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(r.session, r.built.loss, &loss, NULL) == WEFT_OK);
        CU_ASSERT_TRUE_FATAL(weft_session_tensor(r.session, r.norm, &norm, NULL) == WEFT_OK);
        losses[i] = golden_element(&loss, 0);
        norms[i] = golden_element(&norm, 0);
    }
    weft_tensor wanted, got = weft_tensor_dense(losses, WEFT_F64, WEFT_SHAPE(STEPS));
    CU_ASSERT_TRUE(weft_params_find(r.store, "losses", &wanted));
    CU_ASSERT_TRUE(golden_agrees("losses", &got, &wanted, limit, 0));
    CU_ASSERT_TRUE(golden_element(&wanted, STEPS - 1) < golden_element(&wanted, 0) / 2);
    got.data = norms;
    CU_ASSERT_TRUE(weft_params_find(r.store, "norms", &wanted));
    /* Errors of the parameters grow faster in gradients than in the loss, which is near a minimum.
     */
    CU_ASSERT_TRUE(golden_agrees("norms", &got, &wanted, limit * 10, 0));
    rig_close(&r);
}

static const char *const files[] = {GOLDEN("transformer_pre_norm.safetensors"),
                                    GOLDEN("transformer.safetensors")};

static void test_transformer_gradients(void)
{
    for (size_t p = 0; p < sizeof golden_precisions / sizeof *golden_precisions; p++)
        for (int post = 0; post < 2; post++)
            check_gradients(files[post], post, golden_precisions[p].dtype,
                            golden_precisions[p].limit);
}

static void test_transformer_training(void)
{
    for (size_t p = 0; p < sizeof golden_precisions / sizeof *golden_precisions; p++)
        for (int post = 0; post < 2; post++)
            check_training(files[post], post, golden_precisions[p].dtype,
                           golden_precisions[p].limit);
}

void golden_tests(void)
{
    CU_pSuite suite = CU_add_suite("golden", NULL, NULL);
    CU_add_test(suite, "ops as PyTorch", test_ops);
    CU_add_test(suite, "no case left out", test_no_case_left_out);
    CU_add_test(suite, "logits, loss and every gradient of the Transformer",
                test_transformer_gradients);
    CU_add_test(suite, "losses of 50 Adam steps", test_transformer_training);
}
