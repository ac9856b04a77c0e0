/* Cross entropy over class indices, straight from logits.
 *
 * With p = softmax(logits), C classes, smoothing e and target t, a row's loss is
 *     lse - (1 - e) logits[t] - e / C sum logits,    lse = ln sum e^logits
 * and its gradient p - (1 - e) onehot(t) - e / C. Forward stores lse, so that backward needs no
 * second pass for the sum. Adding a constant to all logits must not lose precision: the loss is
 * computed from differences to the largest logit, and lse is stored as two numbers, lse rounded and
 *     lse_low = ln sum e^(logits - lse),
 * the part that rounding removed. lse_low is nearly constant and has no gradient. Row losses are
 * summed in row order in a second phase; backward counts the rows in a first one. A row whose every
 * logit is -inf has no probabilities: its lse is -inf, its loss inf and its gradient zero, as
 * softmax has it. */
#include "kernels/extreme.h"
#include "kernels/kernel.h"
#include "kernels/narrow.h"
#include "kernels/sums.h"

typedef struct cross_entropy_attr {
    int64_t ignore_index;
    double smoothing;
    int32_t sum; /* instead of mean */
} cross_entropy_attr;

static inline int64_t classes_of(const weft_call *call)
{
    return call->in[0].shape.dim[call->in[0].shape.rank - 1];
}

static inline int64_t rows_per_tile(const weft_call *call)
{
    int64_t classes = classes_of(call);
    return TILE / (classes ? classes : 1) + 1;
}

#ifdef WEFT_KERNEL_ISA
#include "base/vmath.h"

static inline int64_t count_targets(const int32_t *target, int64_t rows, int64_t ignore)
{
    int64_t n = 0;
    for (int64_t r = 0; r < rows; r++) n += target[r] != ignore;
    return n;
}

static inline T row_loss(const cross_entropy_attr *attr, const T *x, int64_t n, int32_t target,
                         T *lse, T *lse_low)
{
    T top = (T)-INFINITY;
    double sum = 0, total = 0; /* of e^(x - top), of x - top */
    _Pragma("omp simd reduction(max : top)") for (int64_t i = 0; i < n; i++) top =
        x[i] > top ? x[i] : top;
    top = extreme_of(top, (T)-INFINITY, x, n, 1);
    const T shift = top == (T)-INFINITY ? 0 : top;
    EACH_RANGE(from, to, n)
    {
        T partial[SUM_LANES] = {0}, partial_total[SUM_LANES] = {0};
        EACH_LANE(i, c, from, to, partial[c] += vm_exp_down(x[i] - shift);
                  partial_total[c] += x[i] - shift)
        sum += (double)sum_of_lanes(partial);
        total += (double)sum_of_lanes(partial_total);
    }
    const double logarithm = vm_log_f64(sum);
    const bool dead = sum == 0;
    *lse = (T)((double)shift + logarithm);
    *lse_low = dead ? 0 : (T)(((double)shift - (double)*lse) + logarithm);
    if (dead) return (T)INFINITY; /* not if there is a NaN: then the loss is NaN */
    /* A weight of 0 is left out: 0 times -inf would be NaN. */
    double loss = logarithm;
    if (attr->smoothing < 1) loss -= (1 - attr->smoothing) * (double)(x[target] - shift);
    if (attr->smoothing > 0) loss -= attr->smoothing / (double)n * total;
    return (T)loss;
}

KERNEL(cross_entropy)
{
    const cross_entropy_attr *attr = call->attr;
    const int32_t *target = call->in[1].data;
    const int64_t n = classes_of(call), rows = numel_of(&call->in[1].shape);
    T *losses = call->scratch;
    if (call->phase == 1) {
        double total = 0;
        for (int64_t r = 0; r < rows; r++) total += (double)losses[r];
        int64_t counted = count_targets(target, rows, attr->ignore_index);
        *(T *)call->out[0].data = (T)(attr->sum || !counted ? total : total / (double)counted);
        return;
    }
    const int64_t each = rows_per_tile(call);
    for (int64_t r = tile * each; r < rows && r < (tile + 1) * each; r++) {
        const T *x = narrow_row(&call->in[0], r * n, n, weft_call_workspace(call));
        T *lse = (T *)call->out[1].data + r, *lse_low = (T *)call->out[2].data + r;
        bool ignored = target[r] == attr->ignore_index;
        bool outside = target[r] < 0 || target[r] >= n;
        if (!ignored && outside) weft_call_fail(call, target[r], n);
        T loss = row_loss(attr, x, n, outside ? 0 : target[r], lse, lse_low);
        losses[r] = ignored || outside ? 0 : loss;
    }
}

/* Inputs: logits, targets, lse, lse_low, dloss. */
KERNEL(cross_entropy_grad)
{
    const cross_entropy_attr *attr = call->attr;
    const int32_t *target = call->in[1].data;
    const int64_t n = classes_of(call), rows = numel_of(&call->in[1].shape);
    const int64_t each = rows_per_tile(call);
    int64_t *count = call->scratch;
    if (call->phase == 0) {
        *count = count_targets(target, rows, attr->ignore_index);
        return;
    }
    const int64_t counted = *count;
    const T dloss = *(const T *)call->in[4].data;
    const T scale = attr->sum || !counted ? dloss : dloss / (T)counted;
    const T even = (T)(attr->smoothing / (double)n);
    for (int64_t r = tile * each; r < rows && r < (tile + 1) * each; r++) {
        T *space = weft_call_workspace(call), *dx = narrow_target(&call->out[0], r * n, space);
        const T *x = narrow_row(&call->in[0], r * n, n, space),
                lse = ((const T *)call->in[2].data)[r];
        const T low = ((const T *)call->in[3].data)[r];
        bool counts = target[r] != attr->ignore_index && target[r] >= 0 && target[r] < n;
        if (!counts || lse == (T)-INFINITY) {
            memset(dx, 0, (size_t)n * sizeof *dx);
            narrow_store(&call->out[0], r * n, n, dx);
            continue;
        }
        /* e^-low goes into the factor: it is between 1 / classes and classes. */
        const T factor = scale * (T)vm_exp_f64(-(double)low);
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] =
            factor * vm_exp(x[i] - lse) - scale * even;
        dx[target[r]] -= scale * (T)(1 - attr->smoothing);
        narrow_store(&call->out[0], r * n, n, dx);
    }
}

#else

#include "samples.h"

#include "batch.h"
#include "onnx.h"
#include "source_bits.h"

#include <weft/ops.h>
#include <weft/source.h>

#include <string.h>

extern const weft_op weft_op_cross_entropy, weft_op_cross_entropy_grad;

static bool infer_rows(weft_infer *infer, weft_shape *rows)
{
    char a[128], b[128];
    const cross_entropy_attr *attr = infer->attr;
    if (!weft_infer_float(infer, 0) || !weft_infer_min_rank(infer, 0, 1) ||
        !weft_infer_dtype(infer, 1, WEFT_I32))
        return false;
    *rows = infer->in[0].shape;
    rows->rank--;
    if (infer->in[0].shape.dim[rows->rank] < 1 || !weft_shape_equal(*rows, infer->in[1].shape))
        return weft_infer_fail(infer, WEFT_BAD_SHAPE, "logits %s do not fit targets %s",
                               weft_shape_text(infer->in[0].shape, a, sizeof a),
                               weft_shape_text(infer->in[1].shape, b, sizeof b));
    return (attr->smoothing >= 0 && attr->smoothing <= 1) ||
           weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "label smoothing must be in [0, 1], got %g",
                           attr->smoothing);
}

static bool infer_cross_entropy(weft_infer *infer)
{
    weft_shape rows;
    if (!infer_rows(infer, &rows)) return false;
    infer->out[0] = (weft_type){infer->in[0].dtype, WEFT_SCALAR};
    infer->out[1] = infer->out[2] = (weft_type){infer->in[0].dtype, rows};
    return true;
}

static bool infer_cross_entropy_grad(weft_infer *infer)
{
    char a[128], b[128], c[128], d[128];
    weft_shape rows;
    const weft_type *in = infer->in;
    if (!infer_rows(infer, &rows) || !weft_infer_same_dtype(infer, 0, 2) ||
        !weft_infer_same_dtype(infer, 0, 3) || !weft_infer_same_dtype(infer, 0, 4))
        return false;
    infer->out[0] = in[0];
    return (weft_shape_equal(in[2].shape, rows) && weft_shape_equal(in[3].shape, rows) &&
            in[4].shape.rank == 0) ||
           weft_infer_fail(
               infer, WEFT_BAD_SHAPE, "lse and lse_low must be %s and dloss [], got %s, %s and %s",
               weft_shape_text(rows, a, sizeof a), weft_shape_text(in[2].shape, b, sizeof b),
               weft_shape_text(in[3].shape, c, sizeof c),
               weft_shape_text(in[4].shape, d, sizeof d));
}

static int64_t tiles_rows(const weft_call *call)
{
    if (call->phase == 1) return 1;
    return ceil_div(numel_of(&call->in[1].shape), rows_per_tile(call));
}

static int64_t tiles_grad(const weft_call *call)
{
    if (call->phase == 0) return 1;
    return ceil_div(numel_of(&call->in[1].shape), rows_per_tile(call));
}

static size_t scratch_count(const weft_call *call)
{
    (void)call;
    return sizeof(int64_t);
}

static size_t scratch_losses(const weft_call *call)
{
    return (size_t)numel_of(&call->in[1].shape) * weft_dtype_bytes(call->out[0].dtype);
}

/* A row of logits that are stored as bf16. */
static size_t workspace_row(const weft_call *call)
{
    return (size_t)classes_of(call) * sizeof(double);
}

/* Of `tensors` as large as the logits that are read or written. */
static weft_cost cost_of(const weft_call *call, int tensors)
{
    const double n = (double)numel_of(&call->in[0].shape);
    return (weft_cost){13 * n, tensors * n * (double)weft_dtype_bytes(call->in[0].dtype)};
}

static void cost_cross_entropy(const weft_call *call, weft_cost *cost)
{
    *cost = cost_of(call, 1);
}

static void cost_cross_entropy_grad(const weft_call *call, weft_cost *cost)
{
    *cost = cost_of(call, 2);
}

/* ---- Gradients ---- */

/* 1 for the rows that count, 0 for the others. */
static weft_value counted_rows(weft_graph *g, const cross_entropy_attr *attr, weft_value targets,
                               weft_dtype dtype)
{
    weft_value ignore =
        weft_cast(g, weft_scalar(g, WEFT_F64, (double)attr->ignore_index), WEFT_I32);
    return weft_cast(g, weft_logical_not(g, weft_equal(g, targets, ignore)), dtype);
}

/* True for the ignored rows whose lse is not finite: what is computed from them may be NaN, which
 * survives a product with 0. */
static weft_value unusable_rows(weft_graph *g, const cross_entropy_attr *attr, weft_value targets,
                                weft_value lse)
{
    const weft_dtype dtype = weft_dtype_of(g, lse);
    const weft_value zero = weft_scalar(g, dtype, 0.0);
    const weft_value ignored = weft_equal(g, counted_rows(g, attr, targets, dtype), zero);
    const weft_value not_finite = weft_not_equal(g, weft_sub(g, lse, lse), zero);
    return weft_logical_and(g, ignored, not_finite);
}

/* True for the rows whose every logit is -inf. */
static weft_value dead_rows(weft_graph *g, weft_value lse)
{
    return weft_equal(g, lse, weft_scalar(g, weft_dtype_of(g, lse), -INFINITY));
}

/* e^(logits - lse - lse_low); zeros in dead rows. */
static weft_value probabilities(weft_graph *g, weft_value logits, weft_value lse,
                                weft_value lse_low)
{
    weft_value finite = weft_masked_fill(g, lse, dead_rows(g, lse), 0.0);
    weft_value near = weft_sub(g, logits, weft_expand_dims(g, finite, -1));
    return weft_exp(g, weft_sub(g, near, weft_expand_dims(g, lse_low, -1)));
}

/* dlogits = dloss / count * counted * (e^(logits - lse - lse_low) - (1 - e) onehot - e / C) */
static void expand_cross_entropy_grad(weft_expand *e)
{
    const cross_entropy_attr *attr = e->attr;
    weft_graph *g = e->graph;
    weft_dtype dtype = weft_dtype_of(g, e->in[0]);
    int64_t classes = weft_dim_of(g, e->in[0], -1);
    weft_value counted = counted_rows(g, attr, e->in[1], dtype), scale = e->in[4];
    /* Rows without a gradient may hold NaN, which survives a product with 0. */
    weft_value ignored = weft_equal(g, counted, weft_scalar(g, dtype, 0.0));
    weft_value dead = weft_logical_or(g, dead_rows(g, e->in[2]), ignored);
    weft_value dead_row = weft_expand_dims(g, dead, -1);
    weft_value logits = weft_masked_fill(g, e->in[0], dead_row, 0.0);
    weft_value lse = weft_masked_fill(g, e->in[2], dead, 0.0);
    weft_value p = probabilities(g, logits, lse, weft_masked_fill(g, e->in[3], dead, 0.0));
    weft_value hot =
        weft_mul_scalar(g, weft_one_hot(g, e->in[1], classes, dtype), 1 - attr->smoothing);
    weft_value row = weft_add_scalar(g, weft_sub(g, p, hot), -attr->smoothing / (double)classes);
    if (!attr->sum) {
        weft_value n = weft_sum(g, counted, WEFT_ALL_AXES, false);
        scale = weft_div(g, scale, weft_maximum(g, n, weft_scalar(g, dtype, 1.0)));
    }
    e->out[0] = weft_masked_fill(g, weft_mul(g, row, scale), dead_row, 0.0);
}

static void vjp_cross_entropy(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_value whole = WEFT_NO_VALUE;
    if (weft_is_value(v->grad_out[0]))
        whole = weft_apply(g, &weft_op_cross_entropy_grad, v->attr,
                           (weft_value[]){v->in[0], v->in[1], v->out[1], v->out[2], v->grad_out[0]},
                           5, NULL);
    if (weft_is_value(v->grad_out[1])) { /* d lse / d logits = softmax */
        weft_value p = probabilities(g, v->in[0], v->out[1], v->out[2]);
        weft_value part = weft_mul(g, p, weft_expand_dims(g, v->grad_out[1], -1));
        weft_value unusable = unusable_rows(g, v->attr, v->in[1], v->out[1]);
        part = weft_masked_fill(g, part, weft_expand_dims(g, unusable, -1), 0.0);
        whole = weft_is_value(whole) ? weft_add(g, whole, part) : part;
    }
    v->grad_in[0] = whole;
}

#define TARGETS(...)                                                                               \
    {                                                                                              \
        WEFT_I32, __VA_ARGS__, 0, 5, false                                                         \
    }
static const cross_entropy_attr ce_plain = {-1, 0, 0}, ce_smooth = {2, 0.1, 0},
                                ce_sum = {-1, 0.2, 1};
static const weft_sample samples_cross_entropy[] = {
    {&ce_plain, 2, {FLOATS({2, {4, 5}}), TARGETS({1, {4}})}},
    {&ce_smooth, 2, {FLOATS({3, {2, 4, 5}}), TARGETS({2, {2, 4}})}},
    {&ce_sum, 2, {FLOATS({2, {3, 5}}), TARGETS({1, {3}})}},
    {&ce_plain, 2, {FLOATS({2, {0, 5}}), TARGETS({1, {0}})}},
    {&ce_plain, 2, {FLOATS({1, {5}}), TARGETS({0, {0}})}},
};
#define STATISTICS(...)                                                                            \
    {WEFT_FLOAT, __VA_ARGS__, 1, 3, false},                                                        \
    {                                                                                              \
        WEFT_FLOAT, __VA_ARGS__, -0.1, 0.1, false                                                  \
    }
static const weft_sample samples_cross_entropy_grad[] = {
    {&ce_plain,
     5,
     {FLOATS({2, {4, 5}}), TARGETS({1, {4}}), STATISTICS({1, {4}}), FLOATS({0, {0}})}},
    {&ce_smooth,
     5,
     {FLOATS({2, {6, 5}}), TARGETS({1, {6}}), STATISTICS({1, {6}}), FLOATS({0, {0}})}},
    {&ce_sum, 5, {FLOATS({2, {3, 5}}), TARGETS({1, {3}}), STATISTICS({1, {3}}), FLOATS({0, {0}})}},
    {&ce_plain,
     5,
     {FLOATS({2, {0, 5}}), TARGETS({1, {0}}), STATISTICS({1, {0}}), FLOATS({0, {0}})}},
};
static const weft_attr_field cross_entropy_fields[] = {
    {"ignore_index", WEFT_ATTR_INT64, offsetof(cross_entropy_attr, ignore_index)},
    {"smoothing", WEFT_ATTR_DOUBLE, offsetof(cross_entropy_attr, smoothing)},
    {"sum", WEFT_ATTR_INT, offsetof(cross_entropy_attr, sum)},
    {NULL, WEFT_ATTR_INT, 0},
};
/* ---- ONNX ---- */

/* x [...] with a last dimension of size 1 added. */
static weft_operand onnx_column(weft_export *e, weft_operand x)
{
    weft_shape shape = e->in_type[1].shape;
    shape.dim[shape.rank++] = 1;
    return onnx_reshape(e, x, shape);
}

/* -(1 - e) log p[target] - e / classes sum log p of each counted row, else 0; their sum, or their
 * mean over the counted rows, at least one. */
static void onnx_cross_entropy(weft_export *e)
{
    const cross_entropy_attr *attr = e->attr;
    const weft_type *x = &e->in_type[0];
    const double classes = (double)x->shape.dim[x->shape.rank - 1], smoothing = attr->smoothing;
    const bool ignores = attr->ignore_index != INT64_MIN;
    const weft_operand zero = weft_export_scalar(e, x->dtype, 0);
    const int64_t last = -1;
    if (e->wanted[1] || e->wanted[2]) {
        weft_export_fail(e, "its statistics have no counterpart in ONNX");
        return;
    }
    weft_operand counted = WEFT_NO_OPERAND, target = onnx_column(e, e->in[1]);
    if (ignores) {
        const weft_operand none = weft_export_scalar(e, WEFT_I32, (double)attr->ignore_index);
        counted = weft_export_unary(e, "Not", weft_export_binary(e, "Equal", target, none));
        const weft_operand in[] = {counted, target, weft_export_scalar(e, WEFT_I32, 0)};
        target = weft_export_node(e, "Where", in, 3, 1);
    }
    weft_operand log_p = weft_export_unary(e, "LogSoftmax", e->in[0]);
    weft_export_int(e, "axis", -1);
    weft_operand loss = weft_export_binary(e, "GatherElements", log_p, target);
    weft_export_int(e, "axis", -1);
    loss = weft_export_binary(e, "Mul", loss, weft_export_scalar(e, x->dtype, smoothing - 1));
    if (smoothing > 0) {
        weft_operand all = onnx_reduce(e, "ReduceSum", log_p, &last, 1, true, true);
        const weft_operand weight = weft_export_scalar(e, x->dtype, smoothing / classes);
        loss = weft_export_binary(e, "Sub", loss, weft_export_binary(e, "Mul", all, weight));
    }
    if (ignores) loss = weft_export_node(e, "Where", (weft_operand[]){counted, loss, zero}, 3, 1);
    e->out[0] = onnx_reduce(e, "ReduceSum", loss, NULL, 0, false, true);
    if (attr->sum) return;
    const int64_t rows = weft_shape_numel(e->in_type[1].shape);
    weft_operand count = weft_export_scalar(e, x->dtype, rows > 0 ? (double)rows : 1);
    if (ignores) {
        count = weft_export_unary(e, "Cast", counted);
        weft_export_int(e, "to", weft_export_type(x->dtype));
        count = onnx_reduce(e, "ReduceSum", count, NULL, 0, false, true);
        count = weft_export_binary(e, "Max", count, weft_export_scalar(e, x->dtype, 1));
    }
    e->out[0] = weft_export_binary(e, "Div", e->out[0], count);
}

/* After the tensors: rows, classes, the ignored target, smoothing, whether the loss is a mean; room for a
 * row if some are stored as bf16. */
static size_t source_last(weft_source *s, weft_source_arg *args, size_t n)
{
    const cross_entropy_attr *a = s->attr;
    args[n++] = WEFT_ARG_INT(!a->sum);
    if (s->in[0].dtype == WEFT_BF16 || s->out[0].dtype == WEFT_BF16)
        args[n++] = WEFT_ARG_SPACE(s->in[0].shape.dim[s->in[0].shape.rank - 1]);
    return n;
}

static void source_cross_entropy(weft_source *s)
{
    const cross_entropy_attr *a = s->attr;
    const int64_t classes = s->in[0].shape.dim[s->in[0].shape.rank - 1];
    const double kept = 1 - a->smoothing, even = a->smoothing / (double)classes;
    weft_source_arg args[13] = {WEFT_ARG_IN(0),
                                WEFT_ARG_IN(1),
                                WEFT_ARG_OUT(0),
                                WEFT_ARG_OUT(1),
                                WEFT_ARG_OUT(2),
                                WEFT_ARG_INT(weft_shape_numel(s->in[1].shape)),
                                WEFT_ARG_INT(classes),
                                WEFT_ARG_KEY(a->ignore_index),
                                WEFT_ARG_KEY(kept > 0 ? source_bits(-kept) : 0),
                                WEFT_ARG_KEY(even > 0 ? source_bits(-even) : 0)};
    weft_source_try(s, "cross_entropy", args, source_last(s, args, 10));
}

static void source_cross_entropy_grad(weft_source *s)
{
    const cross_entropy_attr *a = s->attr;
    const int64_t classes = s->in[0].shape.dim[s->in[0].shape.rank - 1];
    weft_source_arg args[13] = {WEFT_ARG_IN(0),
                                WEFT_ARG_IN(1),
                                WEFT_ARG_IN(2),
                                WEFT_ARG_IN(3),
                                WEFT_ARG_IN(4),
                                WEFT_ARG_OUT(0),
                                WEFT_ARG_INT(weft_shape_numel(s->in[1].shape)),
                                WEFT_ARG_INT(classes),
                                WEFT_ARG_KEY(a->ignore_index),
                                WEFT_ARG_NUMBER(1 - a->smoothing),
                                WEFT_ARG_NUMBER(a->smoothing / (double)classes)};
    weft_source_call_of(s, "cross_entropy_grad", args, source_last(s, args, 11));
}

/* A loss for each row: -(1 - e) log p[target] - e mean log p, 0 where the target is ignored. */
static weft_value rows_of(weft_graph *graph, weft_value logits, weft_value targets,
                          const weft_cross_entropy_loss_options *o)
{
    const double e = o->label_smoothing;
    weft_value log_p = weft_log_softmax(graph, logits, -1), ignored = WEFT_NO_VALUE;
    if (o->has_ignore_index) {
        const weft_value index = weft_scalar(graph, WEFT_I32, (double)o->ignore_index);
        ignored = weft_equal(graph, targets, index);
        targets = weft_masked_fill(graph, targets, ignored, 0);
    }
    weft_value picked = weft_gather(graph, log_p, weft_expand_dims(graph, targets, -1), -1);
    weft_value loss = weft_neg(graph, weft_squeeze(graph, picked, -1));
    if (e != 0) {
        weft_value mean = weft_mean(graph, log_p, WEFT_AXES(-1), false);
        loss = weft_mul_scalar(graph, loss, 1 - e);
        loss = weft_sub(graph, loss, weft_mul_scalar(graph, mean, e));
    }
    return weft_is_value(ignored) ? weft_masked_fill(graph, loss, ignored, 0) : loss;
}

/* ---- Batches ---- */

/* x of each example, divided by its number of counted rows if the loss is a mean. */
static weft_value per_count(const weft_batch *b, weft_value x)
{
    const cross_entropy_attr *attr = b->attr;
    weft_graph *g = b->graph;
    const weft_dtype dtype = weft_dtype_of(g, x);
    if (attr->sum) return x;
    const weft_value targets = weft__batch_in(b, 1), one = weft_scalar(g, dtype, 1.0);
    weft_value count = weft__batch_sums(g, counted_rows(g, attr, targets, dtype));
    count = weft_maximum(g, count, one);
    return weft_div(g, x, count);
}

static void batch_cross_entropy(weft_batch *b)
{
    const cross_entropy_attr *attr = b->attr;
    const weft_cross_entropy_loss_options o = {.label_smoothing = attr->smoothing,
                                               .has_ignore_index = attr->ignore_index != INT64_MIN,
                                               .ignore_index = attr->ignore_index};
    const weft_value logits = weft__batch_in(b, 0), targets = weft__batch_in(b, 1);
    weft__batch_front(b); /* lse and lse_low */
    const weft_value rows = rows_of(b->graph, logits, targets, &o);
    b->out[0] = per_count(b, weft__batch_sums(b->graph, rows));
}

/* Of the sum over all rows, times dloss / count of each example. */
static void batch_cross_entropy_grad(weft_batch *b)
{
    weft_graph *g = b->graph;
    const weft_dtype dtype = weft_dtype_of(g, b->in[0]);
    weft_value in[5];
    cross_entropy_attr attr;
    memcpy(&attr, b->attr, sizeof attr);
    attr.sum = 1;
    for (size_t i = 0; i < 4; i++) in[i] = weft__batch_in(b, i);
    in[4] = weft_scalar(g, dtype, 1.0);
    const weft_value whole = weft_apply(g, b->op, &attr, in, 5, NULL);
    weft_value scale = per_count(b, weft__batch_in(b, 4));
    scale = weft__batch_align(g, scale, weft_rank_of(g, b->one_in[0]));
    b->out[0] = weft_mul(g, whole, scale);
}

DECLARE_KERNELS(cross_entropy);
DECLARE_KERNELS(cross_entropy_grad);
const weft_op weft_op_cross_entropy = {
    .name = "cross_entropy",
    .doc = "loss = mean (or sum) over counted rows of lse - (1-e) logits[target] - e/C sum logits; "
           "also returns lse = ln sum e^logits of each row, and lse_low, the part that rounding "
           "removed.",
    .inputs = "logits targets",
    .min_in = 2,
    .max_in = 2,
    .n_out = 3,
    .attr_size = sizeof(cross_entropy_attr),
    .attrs = cross_entropy_fields,
    .infer = infer_cross_entropy,
    .kernel = {NARROW_ROWS(cross_entropy, cross_entropy)},
    .narrow_in = 1,
    .workspace = workspace_row,
    .takes = WEFT_TAKES_DENSE,
    .phases = 2,
    .tiles = tiles_rows,
    .scratch = scratch_losses,
    .cost = cost_cross_entropy,
    .can_fail = true,
    .onnx = onnx_cross_entropy,
    .source = source_cross_entropy,
    .batch = batch_cross_entropy,
    .vjp = vjp_cross_entropy,
    .samples = samples_cross_entropy,
    .n_samples = sizeof samples_cross_entropy / sizeof *samples_cross_entropy,
};
const weft_op weft_op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    .doc = "dlogits = dloss / count (e^(logits - lse - lse_low) - (1-e) onehot(target) - e/C) on "
           "counted rows, 0 on the others: cross_entropy backward.",
    .inputs = "logits targets lse lse_low dloss",
    .min_in = 5,
    .max_in = 5,
    .n_out = 1,
    .attr_size = sizeof(cross_entropy_attr),
    .attrs = cross_entropy_fields,
    .infer = infer_cross_entropy_grad,
    .kernel = {NARROW_ROWS(cross_entropy_grad, cross_entropy_grad)},
    .narrow_in = 1,
    .narrow_out = 1,
    .workspace = workspace_row,
    .takes = WEFT_TAKES_DENSE,
    .phases = 2,
    .tiles = tiles_grad,
    .scratch = scratch_count,
    .cost = cost_cross_entropy_grad,
    .inplace = 1,
    .expand = expand_cross_entropy_grad,
    .batch = batch_cross_entropy_grad,
    .source = source_cross_entropy_grad,
    .samples = samples_cross_entropy_grad,
    .n_samples = sizeof samples_cross_entropy_grad / sizeof *samples_cross_entropy_grad,
};

weft_value weft_cross_entropy_loss(weft_graph *graph, weft_value logits, weft_value targets,
                                   const weft_cross_entropy_loss_options *options)
{
    static const weft_cross_entropy_loss_options defaults = {0};
    const weft_cross_entropy_loss_options *o = options ? options : &defaults;
    if (!o->has_ignore_index && o->ignore_index > 0) {
        weft_graph_fail_in(graph, "cross_entropy", WEFT_BAD_ARGUMENT,
                           "ignore_index is %lld, but has_ignore_index is false",
                           (long long)o->ignore_index);
        return WEFT_NO_VALUE;
    }
    if (o->reduction == WEFT_REDUCE_NONE) return rows_of(graph, logits, targets, o);
    cross_entropy_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.ignore_index = o->has_ignore_index ? o->ignore_index : INT64_MIN; /* no target is that */
    attr.smoothing = o->label_smoothing;
    attr.sum = o->reduction == WEFT_REDUCE_SUM;
    return weft_apply(graph, &weft_op_cross_entropy, &attr, (weft_value[]){logits, targets}, 2,
                      NULL);
}

#endif
