/* Batches of graphs: every op of the list on each of its samples, with each choice of batched inputs,
 * and its gradients, against a loop over the examples; then batches of derivatives, derivatives of
 * batches, and batches of batches.
 *
 * Values have the bits of the loop unless the op is in `rounded`, which says why; those and gradients
 * agree to rounding. `refused` names the ops that weft_vmap refuses, and why. An entry that is out of date
 * fails as well. */
#include "tests.h"

#include <weft/transform.h>

#include <stdlib.h>
#include <string.h>

typedef struct named_op {
    const char *op, *reason;
} named_op;

static const named_op refused[] = {
    {"panels", "the panels of a product, which passes make"},
    {"matmul_panels", "a product with panels, which passes make"},
    {"conv_rows", "a convolution that passes make"},
    {"conv_rows_depthwise", "a convolution that passes make"},
    {"square_sums", "a part of the norm of gradients"},
    {"root_of_sum", "a part of the norm of gradients"},
    {"require_finite", "guards what updates read"},
    {"assign", "writes a state"},
    {"blend", "writes a state"},
    {"cache_write", "writes a state"},
    {"cache_reorder", "writes a state"},
    {"sgd_update", "writes states"},
    {"momentum_update", "writes states"},
    {"adam_update", "writes states"},
};

/* Ops whose values differ from those of the loop by rounding. */
static const named_op rounded[] = {
    {"sum", "a sum is cut into pieces by the number of results"},
    {"mean", "a sum is cut into pieces by the number of results"},
    {"prod", "a product is cut into pieces by the number of results"},
    {"logsumexp", "a sum is cut into pieces by the number of results"},
    {"layer_norm_grad", "sums over the rows of an example by simpler ops"},
    {"rms_norm_grad", "sums over the rows of an example by simpler ops"},
    {"cross_entropy", "the loss of an example by simpler ops"},
    {"cross_entropy_grad", "the gradient of a sum, divided by the rows of each example"},
    {"global_norm", "the sums of squares by simpler ops"},
    {"mse", "by its expansion"},
    {"bce_with_logits", "by its expansion"},
    {"batch_norm", "by its expansion"},
    {"batch_norm_grad", "by its expansion"},
};

static bool is_in(const named_op *table, size_t n, const char *op)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(table[i].op, op)) return true;
    return false;
}
#define LISTED(table, op) is_in(table, sizeof(table) / sizeof *(table), op)

/* ---- A case: an op on one sample, some of whose inputs are batched ---- */

#define EXAMPLES 3

typedef struct op_case {
    weft_graph *g;
    const weft_op *op;
    const weft_sample *sample;
    weft_dtype dtype;
    unsigned mask; /* bit i: input i is batched */
    int64_t size;
    size_t n_in, n_batched;
    weft_value one[WEFT_SAMPLE_INPUTS],
        given[WEFT_SAMPLE_INPUTS]; /* a batch, or the shared value */
    weft_value inputs[WEFT_SAMPLE_INPUTS], batches[WEFT_SAMPLE_INPUTS];
    void *data[WEFT_SAMPLE_INPUTS]; /* of given[] */
    weft_value targets[2 * (WEFT_MAX_OUTPUTS + WEFT_SAMPLE_INPUTS)];
    size_t n_pairs; /* of a batch and the stack of a loop */
} op_case;

static void declare_input(op_case *c, size_t i)
{
    const weft_sample_input *input = &c->sample->in[i];
    const weft_dtype dtype = input->dtype == WEFT_FLOAT ? c->dtype : input->dtype;
    const bool batched = c->mask >> i & 1;
    weft_shape whole = {input->shape.rank + 1, {c->size}};
    char name[2][32];
    snprintf(name[0], sizeof name[0], "one%zu", i);
    snprintf(name[1], sizeof name[1], "given%zu", i);
    for (int d = 1; d < whole.rank; d++) whole.dim[d] = input->shape.dim[d - 1];
    const int64_t count = batched ? c->size : 1;
    const size_t bytes = weft_tensor_bytes(dtype, input->shape);
    c->data[i] = malloc((size_t)count * bytes + 8);
    for (int64_t e = 0; e < count; e++)
        weft_sample_input_fill(input, c->dtype, 5 + 100 * i + 7 * (uint64_t)e,
                               (char *)c->data[i] + (size_t)e * bytes);
    c->one[i] = i < c->op->updates ? weft_state(c->g, name[0], dtype, input->shape, WEFT_INIT_ZEROS)
                : batched          ? weft_input(c->g, name[0], dtype, input->shape)
                                   : weft_input(c->g, name[1], dtype, input->shape);
    c->given[i] = batched ? weft_input(c->g, name[1], dtype, whole) : c->one[i];
    if (!batched) return;
    c->inputs[c->n_batched] = c->one[i];
    c->batches[c->n_batched++] = c->given[i];
}

/* Input i of example e. */
static weft_value example(const op_case *c, size_t i, int64_t e)
{
    if (!(c->mask >> i & 1)) return c->given[i];
    const weft_value row = weft_slice(c->g, c->given[i], 0, e, e + 1, 1);
    return weft_squeeze(c->g, row, 0);
}

static weft_value random_like(weft_graph *g, weft_value value, uint64_t seed)
{
    const weft_dtype dtype = weft_dtype_of(g, value);
    const weft_sample_input numbers = {dtype, weft_shape_of(g, value), -1, 1, false};
    void *data = malloc(weft_tensor_bytes(dtype, numbers.shape) + 8);
    weft_sample_input_fill(&numbers, dtype, seed, data);
    const weft_value constant = weft_constant(g, dtype, numbers.shape, data);
    free(data);
    return constant;
}

/* The outputs of the op on in[]; rows of bf16 and u8, which few ops take, as floats. */
static void outputs_of(op_case *c, const weft_value *in, weft_value *out)
{
    weft_apply(c->g, c->op, c->sample->attr, in, c->n_in, out);
    for (size_t k = 0; k < c->op->n_out; k++) {
        const weft_dtype dtype = weft_dtype_of(c->g, out[k]);
        if (dtype == WEFT_BF16 || dtype == WEFT_U8)
            out[k] = weft_widen_rows(c->g, out[k], c->dtype);
    }
}

/* The gradients of the floats of in[]; returns their number, 0 if there are none. */
static size_t gradients_of(op_case *c, const weft_value *in, const weft_value *out,
                           weft_value *grads)
{
    weft_value y[WEFT_MAX_OUTPUTS], w[WEFT_MAX_OUTPUTS], wrt[WEFT_SAMPLE_INPUTS];
    size_t n_y = 0, n = 0;
    for (size_t k = 0; k < c->op->n_out; k++) {
        if (!weft_dtype_is_float(weft_dtype_of(c->g, out[k]))) continue;
        w[n_y] = random_like(c->g, out[k], 37 + k);
        y[n_y++] = out[k];
    }
    for (size_t i = 0; i < c->n_in; i++)
        if (weft_dtype_is_float(weft_dtype_of(c->g, in[i]))) wrt[n++] = in[i];
    if (!n_y) n = 0;
    if (n) weft_grad_of(c->g, y, w, n_y, wrt, n, grads);
    return n;
}

/* Whether the op has gradients, tried on a graph of its own. */
static bool has_gradients(const op_case *c)
{
    weft_value in[WEFT_SAMPLE_INPUTS], out[WEFT_MAX_OUTPUTS], grads[WEFT_SAMPLE_INPUTS];
    op_case trial = *c;
    trial.g = weft_graph_new();
    for (size_t i = 0; i < c->n_in; i++) {
        const weft_sample_input *input = &c->sample->in[i];
        const weft_dtype dtype = input->dtype == WEFT_FLOAT ? c->dtype : input->dtype;
        char name[32];
        snprintf(name, sizeof name, "x%zu", i);
        in[i] = i < c->op->updates ? weft_state(trial.g, name, dtype, input->shape, WEFT_INIT_ZEROS)
                                   : weft_input(trial.g, name, dtype, input->shape);
    }
    outputs_of(&trial, in, out);
    const bool any = gradients_of(&trial, in, out, grads) > 0;
    const bool good = any && weft_graph_status(trial.g) == WEFT_OK;
    weft_graph_free(trial.g);
    return good;
}

/* Builds the batch, and the loop; false if the op is refused. */
static bool build(op_case *c)
{
    enum { MAX = WEFT_MAX_OUTPUTS + WEFT_SAMPLE_INPUTS };
    weft_value one[MAX], whole[MAX], loop[EXAMPLES][MAX], in[WEFT_SAMPLE_INPUTS];
    for (size_t i = 0; i < c->n_in; i++) declare_input(c, i);
    size_t n = c->op->n_out;
    const bool gradients = has_gradients(c);
    outputs_of(c, c->one, one);
    if (gradients) n += gradients_of(c, c->one, one, one + n);
    CU_ASSERT_EQUAL(weft_graph_status(c->g), WEFT_OK);
    weft_vmap(c->g, one, n, c->inputs, c->batches, c->n_batched, whole);
    if (weft_graph_status(c->g)) return false;
    for (int64_t e = 0; e < c->size; e++) {
        for (size_t i = 0; i < c->n_in; i++) in[i] = example(c, i, e);
        outputs_of(c, in, loop[e]);
        if (gradients) gradients_of(c, in, loop[e], loop[e] + c->op->n_out);
    }
    for (size_t k = 0; k < n; k++) {
        weft_value each[EXAMPLES];
        for (int64_t e = 0; e < c->size; e++) each[e] = loop[e][k];
        c->targets[2 * k] = whole[k];
        c->targets[2 * k + 1] = weft_stack(c->g, each, (size_t)c->size, 0);
    }
    c->n_pairs = n;
    CU_ASSERT_EQUAL(weft_graph_status(c->g), WEFT_OK);
    return weft_graph_status(c->g) == WEFT_OK;
}

/* ---- Numbers ---- */

/* The largest distance of floats, relative to the largest number or 1; for others, whether a byte
 * differs. 0: the same bits. */
static double distance(weft_dtype dtype, const void *a, const void *b, size_t bytes)
{
    double worst = 0, scale = 1;
    if (!memcmp(a, b, bytes)) return 0;
    if (!weft_dtype_is_float(dtype)) return INFINITY;
    for (size_t k = 0; k < bytes / weft_dtype_bytes(dtype); k++) {
        const bool wide = dtype == WEFT_F64;
        const double x = wide ? ((const double *)a)[k] : (double)((const float *)a)[k];
        const double y = wide ? ((const double *)b)[k] : (double)((const float *)b)[k];
        if (isfinite(y)) scale = fmax(scale, fabs(y));
        if (x == y || (isnan(x) && isnan(y))) continue;
        if (!(fabs(x - y) <= worst)) worst = fabs(x - y);
    }
    return worst / scale;
}

/* The largest distance between the targets of each pair. */
static double pairs_off(weft_graph *g, weft_session *s, const weft_value *targets, size_t n_pairs)
{
    double worst = 0;
    for (size_t k = 0; k < n_pairs; k++) {
        const weft_value *pair = &targets[2 * k];
        const weft_dtype dtype = weft_dtype_of(g, pair[0]);
        const weft_shape shape = weft_shape_of(g, pair[0]);
        const size_t bytes = weft_tensor_bytes(dtype, shape);
        void *data[2] = {malloc(bytes + 8), malloc(bytes + 8)};
        CU_ASSERT_TRUE(weft_shape_equal(shape, weft_shape_of(g, pair[1])));
        for (int i = 0; i < 2; i++)
            CU_ASSERT_EQUAL(weft_session_fetch(s, pair[i], data[i], bytes, NULL), WEFT_OK);
        worst = fmax(worst, distance(dtype, data[0], data[1], bytes));
        free(data[0]);
        free(data[1]);
    }
    return worst;
}

/* The distances of values, and of gradients. */
static void run_case(const op_case *c, double off[2])
{
    const weft_session_options one_thread = {.threads = 1};
    weft_error error = WEFT_NO_ERROR;
    const size_t n_out = c->op->n_out;
    off[0] = off[1] = INFINITY;
    weft_plan *plan = weft_plan_new(c->g, c->targets, 2 * c->n_pairs, NULL, &error);
    weft_session *s = plan ? weft_session_new(plan, NULL, &one_thread, &error) : NULL;
    for (size_t i = 0; s && i < c->n_in; i++) {
        const weft_dtype dtype = weft_dtype_of(c->g, c->given[i]);
        const size_t bytes = weft_tensor_bytes(dtype, weft_shape_of(c->g, c->given[i]));
        weft_session_feed(s, c->given[i], c->data[i], bytes,
                          NULL); /* one that nothing reads is refused */
    }
    if (s && weft_session_run(s, &error) == WEFT_OK) {
        off[0] = pairs_off(c->g, s, c->targets, n_out);
        off[1] = pairs_off(c->g, s, c->targets + 2 * n_out, c->n_pairs - n_out);
    }
    if (error.status) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    CU_ASSERT_EQUAL(error.status, WEFT_OK);
    weft_session_free(s);
    weft_plan_free(plan);
}

typedef struct outcome {
    size_t checked, refused;
    double worst; /* of the values */
} outcome;

static void check_case(op_case *c, outcome *o)
{
    c->g = weft_graph_new();
    if (build(c)) {
        /* Some sums of numbers of at most 2, in another order. */
        const double limit = c->dtype == WEFT_F64 ? 1e-14 : 1e-6;
        double off[2];
        run_case(c, off);
        o->checked++;
        o->worst = fmax(o->worst, off[0]);
        if (!(off[0] <= limit && off[1] <= limit))
            fprintf(stderr,
                    "\n    %s %s, inputs 0x%x, %d examples: off by %.3g, gradients by %.3g\n",
                    c->op->name, weft_dtype_name(c->dtype), c->mask, (int)c->size, off[0], off[1]);
        CU_ASSERT_TRUE(off[0] <= limit && off[1] <= limit);
    } else {
        const weft_error *e = weft_graph_error(c->g);
        const bool good = e->status == WEFT_BAD_ARGUMENT && strstr(e->where, c->op->name) &&
                          strstr(e->message, "cannot be batched");
        if (!good) fprintf(stderr, "\n    %s: %s: %s\n", c->op->name, e->where, e->message);
        CU_ASSERT_TRUE(good);
        o->refused++;
    }
    for (size_t i = 0; i < c->n_in; i++) free(c->data[i]);
    weft_graph_free(c->g);
}

/* All inputs, and each alone; several examples, and one. */
static outcome check_op(const weft_op *op, weft_dtype dtype)
{
    outcome o = {0, 0, 0};
    for (size_t k = 0; k < op->n_samples; k++) {
        const weft_sample *sample = &op->samples[k];
        const unsigned all = (1u << sample->n_in) - 1;
        for (size_t i = 0; i <= sample->n_in && sample->n_in; i++) {
            if (i < sample->n_in && sample->n_in == 1) continue;
            for (int64_t size = 1; size <= EXAMPLES; size += EXAMPLES - 1) {
                op_case c = {.op = op, .sample = sample, .dtype = dtype, .size = size};
                c.n_in = sample->n_in;
                c.mask = i < sample->n_in ? 1u << i : all;
                check_case(&c, &o);
            }
        }
    }
    return o;
}

static void check_refusals(const weft_op *op, const outcome *o)
{
    const bool listed = LISTED(refused, op->name);
    if ((o->refused > 0) != listed)
        fprintf(stderr, "\n    %s: %zu cases are refused, but the table has %s\n", op->name,
                o->refused, listed ? "an entry" : "none");
    CU_ASSERT_EQUAL(o->refused > 0, listed);
    CU_ASSERT_TRUE(!o->refused || !o->checked);
}

static void test_ops(void)
{
    size_t checked = 0;
    for (size_t i = 0; i < weft_op_count(); i++) {
        const weft_op *op = weft_op_at(i);
        const outcome f32 = check_op(op, WEFT_F32), f64 = check_op(op, WEFT_F64);
        const bool listed = LISTED(rounded, op->name), rounds = f32.worst > 0 || f64.worst > 0;
        check_refusals(op, &f32);
        check_refusals(op, &f64);
        if (rounds != listed)
            fprintf(stderr, "\n    %s: off by %.2g in f32 and %.2g in f64, but %s in `rounded`\n",
                    op->name, f32.worst, f64.worst, listed ? "is" : "not");
        CU_ASSERT_EQUAL(rounds, listed);
        checked += f32.checked > 0;
    }
    printf("%zu ops ", checked);
    CU_ASSERT_TRUE(checked > 100);
}

/* ---- Compositions, in f64 ---- */

enum { IN = 3, HIDDEN = 5, OUT = 2, BATCH = 4, WEIGHTS = 3 };

/* A network of one hidden layer, its parameters and the loss of one example. */
typedef struct net {
    weft_graph *g;
    weft_value w[WEIGHTS]; /* weights, bias, weights */
    weft_value x, t, xs, ts;
    weft_value loss, losses[BATCH];
} net;

static weft_value loss_of(const net *n, const weft_value *w, weft_value x, weft_value t)
{
    weft_graph *g = n->g;
    const weft_value row = weft_reshape(g, x, WEFT_SHAPE(1, IN));
    weft_value h = weft_tanh(g, weft_add(g, weft_matmul(g, row, w[0]), w[1]));
    h = weft_reshape(g, weft_matmul(g, h, w[2]), WEFT_SHAPE(OUT));
    return weft_sum(g, weft_square(g, weft_sub(g, h, t)), WEFT_ALL_AXES, false);
}

static weft_value constant_of(weft_graph *g, weft_shape shape, uint64_t seed)
{
    return random_like(g, weft_fill(g, WEFT_F64, shape, 0), seed);
}

static weft_value row_of(const net *n, weft_value batch, int64_t e)
{
    const weft_value row = weft_slice(n->g, batch, 0, e, e + 1, 1);
    return weft_squeeze(n->g, row, 0);
}

static net open_net(void)
{
    net n = {.g = weft_graph_new()};
    n.w[0] = constant_of(n.g, WEFT_SHAPE(IN, HIDDEN), 1);
    n.w[1] = constant_of(n.g, WEFT_SHAPE(HIDDEN), 2);
    n.w[2] = constant_of(n.g, WEFT_SHAPE(HIDDEN, OUT), 3);
    n.xs = constant_of(n.g, WEFT_SHAPE(BATCH, IN), 4);
    n.ts = constant_of(n.g, WEFT_SHAPE(BATCH, OUT), 5);
    n.x = weft_input(n.g, "x", WEFT_F64, WEFT_SHAPE(IN));
    n.t = weft_input(n.g, "t", WEFT_F64, WEFT_SHAPE(OUT));
    n.loss = loss_of(&n, n.w, n.x, n.t);
    for (int e = 0; e < BATCH; e++) {
        const weft_value x = row_of(&n, n.xs, e), t = row_of(&n, n.ts, e);
        n.losses[e] = loss_of(&n, n.w, x, t);
    }
    return n;
}

/* Runs pairs of targets, and closes the network. */
static void expect_pairs(net *n, const weft_value *targets, size_t n_pairs)
{
    weft_error error = WEFT_NO_ERROR;
    if (weft_graph_status(n->g))
        fprintf(stderr, "\n    %s: %s\n", weft_graph_error(n->g)->where,
                weft_graph_error(n->g)->message);
    CU_ASSERT_EQUAL(weft_graph_verify(n->g, &error), WEFT_OK);
    weft_plan *plan = weft_plan_new(n->g, targets, 2 * n_pairs, NULL, &error);
    weft_session *s = plan ? weft_session_new(plan, NULL, NULL, &error) : NULL;
    CU_ASSERT_TRUE(s && weft_session_run(s, &error) == WEFT_OK);
    const double off = s ? pairs_off(n->g, s, targets, n_pairs) : INFINITY;
    if (!(off < 1e-13)) fprintf(stderr, "\n    off by %.3g; %s\n", off, error.message);
    CU_ASSERT_TRUE(off < 1e-13);
    weft_session_free(s);
    weft_plan_free(plan);
    weft_graph_free(n->g);
}

static void over_examples(net *n, const weft_value *one, size_t count, weft_value *whole)
{
    weft_vmap(n->g, one, count, (weft_value[]){n->x, n->t}, (weft_value[]){n->xs, n->ts}, 2, whole);
}

/* The gradients of each example, from one gradient. */
static void test_per_example_gradients(void)
{
    net n = open_net();
    weft_value one[WEIGHTS], whole[WEIGHTS], each[BATCH][WEIGHTS], targets[2 * WEIGHTS];
    weft_grad(n.g, n.loss, n.w, WEIGHTS, one);
    over_examples(&n, one, WEIGHTS, whole);
    for (int e = 0; e < BATCH; e++) weft_grad(n.g, n.losses[e], n.w, WEIGHTS, each[e]);
    for (int k = 0; k < WEIGHTS; k++) {
        weft_value list[BATCH];
        for (int e = 0; e < BATCH; e++) list[e] = each[e][k];
        targets[2 * k] = whole[k];
        targets[2 * k + 1] = weft_stack(n.g, list, BATCH, 0);
    }
    expect_pairs(&n, targets, WEIGHTS);
}

/* The gradient, forward mode, and products with the Hessian of the sum of a batch. */
static void test_derivatives_of_a_batch(void)
{
    net n = open_net();
    weft_value whole, targets[6 * WEIGHTS + 2], v[WEIGHTS], a[WEIGHTS], b[WEIGHTS];
    size_t k = 0;
    over_examples(&n, &n.loss, 1, &whole);
    const weft_value sum = weft_sum(n.g, whole, WEFT_ALL_AXES, false);
    const weft_value loop = weft_add_n(n.g, n.losses, BATCH);
    for (int i = 0; i < WEIGHTS; i++) v[i] = random_like(n.g, n.w[i], 20 + (uint64_t)i);
    weft_grad(n.g, sum, n.w, WEIGHTS, a);
    weft_grad(n.g, loop, n.w, WEIGHTS, b);
    for (int i = 0; i < WEIGHTS; i++) targets[k++] = a[i], targets[k++] = b[i];
    weft_hvp(n.g, sum, n.w, v, WEIGHTS, a);
    weft_hvp(n.g, loop, n.w, v, WEIGHTS, b);
    for (int i = 0; i < WEIGHTS; i++) targets[k++] = a[i], targets[k++] = b[i];
    weft_jvp(n.g, &sum, 1, n.w, v, WEIGHTS, &targets[k]);
    weft_jvp(n.g, &loop, 1, n.w, v, WEIGHTS, &targets[k + 1]);
    expect_pairs(&n, targets, k / 2 + 1);
}

/* Forward mode, a product with the Hessian, and the whole Hessian of each example. */
static void test_batches_of_derivatives(void)
{
    net n = open_net();
    const weft_value v = constant_of(n.g, WEFT_SHAPE(IN), 9);
    weft_value one[3], whole[3], list[3][BATCH], targets[6];
    weft_jvp(n.g, &n.loss, 1, &n.x, &v, 1, &one[0]);
    weft_hvp(n.g, n.loss, &n.x, &v, 1, &one[1]);
    weft_hessian(n.g, n.loss, &n.x, 1, &one[2]);
    over_examples(&n, one, 3, whole);
    for (int e = 0; e < BATCH; e++) {
        const weft_value x = row_of(&n, n.xs, e), t = row_of(&n, n.ts, e);
        const weft_value loss = loss_of(&n, n.w, x, t);
        weft_jvp(n.g, &loss, 1, &x, &v, 1, &list[0][e]);
        weft_hvp(n.g, loss, &x, &v, 1, &list[1][e]);
        weft_hessian(n.g, loss, &x, 1, &list[2][e]);
    }
    for (int k = 0; k < 3; k++) {
        targets[2 * k] = whole[k];
        targets[2 * k + 1] = weft_stack(n.g, list[k], BATCH, 0);
    }
    expect_pairs(&n, targets, 3);
}

/* An ensemble of networks on each example: losses [networks, examples]. */
static void test_nested(void)
{
    enum { NETS = 3 };
    net n = open_net();
    weft_value whole, nested, many[WEIGHTS], rows[NETS];
    for (int i = 0; i < WEIGHTS; i++) {
        weft_shape shape = weft_shape_of(n.g, n.w[i]), all = {shape.rank + 1, {NETS}};
        for (int d = 0; d < shape.rank; d++) all.dim[d + 1] = shape.dim[d];
        many[i] = constant_of(n.g, all, 30 + (uint64_t)i);
    }
    over_examples(&n, &n.loss, 1, &whole);
    weft_vmap(n.g, &whole, 1, n.w, many, WEIGHTS, &nested);
    for (int m = 0; m < NETS; m++) {
        weft_value w[WEIGHTS], losses[BATCH];
        for (int i = 0; i < WEIGHTS; i++) w[i] = row_of(&n, many[i], m);
        for (int e = 0; e < BATCH; e++) {
            const weft_value x = row_of(&n, n.xs, e), t = row_of(&n, n.ts, e);
            losses[e] = loss_of(&n, w, x, t);
        }
        rows[m] = weft_stack(n.g, losses, BATCH, 0);
    }
    const weft_value stack = weft_stack(n.g, rows, NETS, 0);
    expect_pairs(&n, (weft_value[]){nested, stack}, 1);
}

/* Stopped gradients stay stopped, outputs that depend on no batched input are repeated, an input may
 * be in the middle of the graph, and may be an output. */
static void test_edges(void)
{
    net n = open_net();
    weft_graph *g = n.g;
    const weft_value middle = weft_square(g, n.x),
                     y = weft_mul(g, weft_stop_gradient(g, middle), middle);
    const weft_value s = weft_sum(g, n.w[1], WEFT_ALL_AXES, false);
    weft_value whole[3], grad;
    weft_vmap(g, (weft_value[]){y, s, middle}, 3, &middle, &n.xs, 1, whole);
    const weft_value total = weft_sum(g, whole[0], WEFT_ALL_AXES, false);
    weft_grad(g, total, &n.xs, 1, &grad); /* of the factor that is not stopped */
    CU_ASSERT_EQUAL(whole[2].id, n.xs.id);
    const weft_value square = weft_square(g, n.xs);
    const weft_value repeated = weft_broadcast_to(g, s, WEFT_SHAPE(BATCH));
    expect_pairs(&n, (weft_value[]){whole[0], square, whole[1], repeated, grad, n.xs}, 3);
}

/* A program's own op without a rule is refused by its name, and so is a value of the highest rank. */
static bool infer_same(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return true;
}

static bool alias_same(const void *attr, const weft_type *in, const weft_layout *in_layout,
                       const weft_type *out, weft_layout *out_layout)
{
    (void)attr, (void)in, (void)out;
    *out_layout = *in_layout;
    return true;
}

static void test_refused(void)
{
    static const weft_op own = {.name = "own",
                                .doc = "y = x",
                                .min_in = 1,
                                .max_in = 1,
                                .n_out = 1,
                                .infer = infer_same,
                                .takes = WEFT_TAKES_ANY,
                                .alias = alias_same};
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SHAPE(2));
    const weft_value xs = weft_input(g, "xs", WEFT_F32, WEFT_SHAPE(3, 2));
    const weft_value y = weft_apply(g, &own, NULL, &x, 1, NULL);
    weft_value whole;
    weft_vmap(g, &y, 1, &x, &xs, 1, &whole);
    CU_ASSERT_FALSE(weft_is_value(whole));
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_ARGUMENT);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->where, "own"));
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, "no batching rule"));
    weft_graph_free(g);

    g = weft_graph_new();
    const weft_value a = weft_input(g, "a", WEFT_F32, WEFT_SHAPE(2));
    const weft_value as = weft_input(g, "as", WEFT_F32, WEFT_SHAPE(3, 2));
    const weft_value high = weft_reshape(g, a, WEFT_SHAPE(1, 1, 1, 1, 1, 1, 1, 2));
    weft_vmap(g, &high, 1, &a, &as, 1, &whole);
    CU_ASSERT_EQUAL(weft_graph_status(g), WEFT_BAD_SHAPE);
    CU_ASSERT_PTR_NOT_NULL(strstr(weft_graph_error(g)->message, "more than 8 dimensions"));
    weft_graph_free(g);
}

static void test_table(void)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CU_ASSERT_PTR_NOT_NULL(weft_op_find(refused[i].op));
        CU_ASSERT_TRUE(strlen(refused[i].reason) > 10);
    }
    for (size_t i = 0; i < sizeof rounded / sizeof *rounded; i++)
        CU_ASSERT_PTR_NOT_NULL(weft_op_find(rounded[i].op));
}

void vmap_tests(void)
{
    CU_pSuite suite = CU_add_suite("vmap", NULL, NULL);
    CU_add_test(suite, "every op and its gradient", test_ops);
    CU_add_test(suite, "the tables of ops", test_table);
    CU_add_test(suite, "the gradient of each example", test_per_example_gradients);
    CU_add_test(suite, "derivatives of a batch", test_derivatives_of_a_batch);
    CU_add_test(suite, "a batch of derivatives", test_batches_of_derivatives);
    CU_add_test(suite, "a batch of a batch", test_nested);
    CU_add_test(suite, "shared outputs, stopped gradients, inputs in the middle", test_edges);
    CU_add_test(suite, "what is refused", test_refused);
}
