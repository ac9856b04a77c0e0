/* Batches of graphs (weft_vmap): every op of the list on each of its samples, with each choice of batched
 * inputs, against a loop over the examples; and the batch of its gradients, and the gradients of its
 * batch.
 *
 * Values have the bits of the loop unless the op is in `rounded`, which says why; those and gradients
 * agree to rounding. `refused` names the ops that weft_vmap refuses, and why. An entry that is out of date
 * fails as well. */
#include "value_pairs.h"
#include "ops_of_passes.h"
#include "quantize/bytes.h"
#include "tests.h"

#include <weft/transform.h>

#include <stdlib.h>
#include <string.h>

typedef struct named_op {
    const char *op, *reason;
} named_op;

static const named_op refused[] = {
    OPS_OF_PASSES,
    {"conv_bytes", "a convolution of quantised models of files"},
    {"conv_bytes_depthwise", "a convolution of quantised models of files"},
    {"max_pool_bytes", "a pooling of quantised models of files"},
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
    /* Pairs of a batch and the stack of a loop: outputs, their gradients; then gradients of both by
     * the batches. */
    weft_value targets[2 * (WEFT_MAX_OUTPUTS + 2 * WEFT_SAMPLE_INPUTS)];
    size_t n_pairs;
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

/* The outputs of the op on in[]; rows of bf16 and u8, and bytes, which few ops take, as floats. */
static void outputs_of(op_case *c, const weft_value *in, weft_value *out)
{
    weft_apply(c->g, c->op, c->sample->attr, in, c->n_in, out);
    for (size_t k = 0; k < c->op->n_out; k++) {
        const weft_dtype dtype = weft_dtype_of(c->g, out[k]);
        if (strstr(c->op->name, "bytes") && dtype == WEFT_U8)
            out[k] = weft__dequantize_bytes(c->g, out[k], 1, 0);
        else if (dtype == WEFT_BF16 || dtype == WEFT_U8)
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

/* Adds pairs of the gradients of a batch of outputs and of its loop, by whatever is given. */
static void add_gradients(op_case *c)
{
    weft_value wrt[WEFT_SAMPLE_INPUTS], y[WEFT_MAX_OUTPUTS], w[WEFT_MAX_OUTPUTS];
    weft_value grads[WEFT_SAMPLE_INPUTS];
    size_t n = 0;
    for (size_t i = 0; i < c->n_in; i++)
        if (weft_dtype_is_float(weft_dtype_of(c->g, c->given[i]))) wrt[n++] = c->given[i];
    for (size_t of = 0; of < 2; of++) {
        size_t n_y = 0;
        for (size_t k = 0; k < c->op->n_out; k++) {
            const weft_value value = c->targets[2 * k + of];
            if (!weft_dtype_is_float(weft_dtype_of(c->g, value))) continue;
            w[n_y] = random_like(c->g, value, 91 + k);
            y[n_y++] = value;
        }
        weft_grad_of(c->g, y, w, n_y, wrt, n, grads);
        for (size_t i = 0; i < n; i++) c->targets[2 * (c->n_pairs + i) + of] = grads[i];
    }
    c->n_pairs += n;
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
    if (gradients) add_gradients(c);
    CU_ASSERT_EQUAL(weft_graph_status(c->g), WEFT_OK);
    return weft_graph_status(c->g) == WEFT_OK;
}

/* ---- Runs ---- */

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
        const bool wide = weft_dtype_of(c->g, c->targets[0]) == WEFT_F64;
        const double limit = wide ? 1e-14 : 1e-6;
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
}
