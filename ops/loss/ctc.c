/* Connectionist temporal classification (Graves et al. 2006): minus the logarithm of the
 * probability that a sequence of frames spells a target, summed over all alignments. Between and
 * around the labels of a target of length L there may be blanks, so an alignment goes through 2L +
 * 1 states: state s is the blank for even s, label s / 2 for odd s. From frame to frame it stays,
 * goes on to the next state, or skips a blank between two different labels.
 *
 * alpha[t, s] is the logarithm of the probability of the frames up to t with an end in state s,
 * beta[t, s] that of the frames after t with a start there. The gradient of log_probs[t, n, c] is
 * minus the probability, given the target, that frame t is in a state of label c. Sums are in f64
 * and in logarithms, so nothing underflows. O(frames L) for each sequence, which is a tile. */
#include "ctc.h"
#include "kernels/kernel.h"

#ifdef WEFT_KERNEL_ISA
#include "base/vmath.h"

/* One sequence of the batch. */
typedef struct sequence {
    const T *log_probs; /* of the first frame; frames are `frame` apart */
    int64_t frame, frames, states;
    const int32_t *target;
    int32_t blank;
} sequence;

static int32_t checked(const weft_call *call, int32_t index, int64_t limit)
{
    if (index >= 0 && index < limit) return index;
    weft_call_fail(call, index, limit);
    return 0;
}

/* Sequence n of the call. The target must not hold the blank. */
static sequence sequence_of(const weft_call *call, int64_t n)
{
    const weft_shape x = call->in[0].shape, targets = call->in[1].shape;
    const int64_t batch = x.dim[1], classes = x.dim[2];
    const int32_t blank = ((const ctc_attr *)call->attr)->blank;
    const int32_t *target = (const int32_t *)call->in[1].data + n * targets.dim[1];
    sequence s = {(const T *)call->in[0].data + n * classes, batch * classes, 0, 0, target, blank};
    s.frames = checked(call, ((const int32_t *)call->in[2].data)[n], x.dim[0] + 1);
    int64_t length = checked(call, ((const int32_t *)call->in[3].data)[n], targets.dim[1] + 1);
    for (int64_t i = 0; i < length; i++) {
        if (target[i] >= 0 && target[i] < classes && target[i] != blank) continue;
        weft_call_fail(call, target[i], classes);
        length = 0;
    }
    s.states = 2 * length + 1;
    return s;
}

static inline int32_t label_of(const sequence *q, int64_t s)
{
    return s % 2 ? q->target[s / 2] : q->blank;
}

static inline bool may_skip_to(const sequence *q, int64_t s)
{
    return s % 2 && s > 1 && q->target[s / 2] != q->target[s / 2 - 1];
}

/* ln(e^a + e^b + e^c) */
static inline double log_sum(double a, double b, double c)
{
    double top = a > b ? a : b;
    top = c > top ? c : top;
    if (top == -INFINITY) return top;
    return top + vm_log_f64(vm_exp_f64(a - top) + vm_exp_f64(b - top) + vm_exp_f64(c - top));
}

/* alpha[t] from alpha[t - 1], or of frame 0 from NULL; `next` may not be `last`. */
static void step_alpha(const sequence *q, int64_t t, const double *last, double *next)
{
    const T *frame = q->log_probs + t * q->frame;
    for (int64_t s = 0; s < q->states; s++) {
        double reach = s < 2 ? 0 : -INFINITY;
        if (last)
            reach = log_sum(last[s], s ? last[s - 1] : -INFINITY,
                            may_skip_to(q, s) ? last[s - 2] : -INFINITY);
        next[s] = reach + (double)frame[label_of(q, s)];
    }
}

/* beta[t] from beta[t + 1] and the probabilities of frame t + 1, or of the last frame from NULL. */
static void step_beta(const sequence *q, int64_t t, const double *later, double *now)
{
    const T *frame = q->log_probs + (t + 1) * q->frame;
    for (int64_t s = 0; s < q->states; s++) {
        if (!later) {
            now[s] = s >= q->states - 2 ? 0 : -INFINITY;
            continue;
        }
        double reach[3] = {-INFINITY, -INFINITY, -INFINITY};
        for (int64_t k = 0; k < 3 && s + k < q->states; k++)
            if (k < 2 || may_skip_to(q, s + k))
                reach[k] = later[s + k] + (double)frame[label_of(q, s + k)];
        now[s] = log_sum(reach[0], reach[1], reach[2]);
    }
}

/* The logarithm of the target's probability, from alpha of the last frame. */
static double total_of(const sequence *q, const double *alpha)
{
    if (q->frames == 0) return q->states == 1 ? 0 : -INFINITY;
    return log_sum(alpha[q->states - 1], q->states > 1 ? alpha[q->states - 2] : -INFINITY,
                   -INFINITY);
}

KERNEL(ctc)
{
    const sequence q = sequence_of(call, tile);
    double *alpha = weft_call_workspace(call), *next = alpha + q.states;
    for (int64_t t = 0; t < q.frames; t++) {
        step_alpha(&q, t, t ? alpha : NULL, next);
        double *swap = alpha;
        alpha = next;
        next = swap;
    }
    ((T *)call->out[0].data)[tile] = (T)-total_of(&q, alpha);
}

/* Adds minus the probabilities of the states of a frame, times dy, to the gradient of the frame. */
static void add_posterior(const sequence *q, const double *alpha, const double *beta, double total,
                          double dy, T *dx)
{
    for (int64_t s = 0; s < q->states; s++)
        dx[label_of(q, s)] -= (T)(dy * vm_exp_f64(alpha[s] + beta[s] - total));
}

KERNEL(ctc_grad)
{
    const sequence q = sequence_of(call, tile);
    const weft_shape x = call->in[0].shape;
    double *alpha = weft_call_workspace(call), *beta = alpha + q.frames * q.states;
    double *later = beta + q.states;
    const double dy = (double)((const T *)call->in[4].data)[tile];
    T *dx = (T *)call->out[0].data + tile * x.dim[2];
    for (int64_t t = 0; t < x.dim[0]; t++)
        memset(dx + t * q.frame, 0, (size_t)x.dim[2] * sizeof *dx);
    for (int64_t t = 0; t < q.frames; t++)
        step_alpha(&q, t, t ? alpha + (t - 1) * q.states : NULL, alpha + t * q.states);
    const double total = total_of(&q, q.frames ? alpha + (q.frames - 1) * q.states : alpha);
    if (total == -INFINITY) return;
    for (int64_t t = q.frames - 1; t >= 0; t--) {
        step_beta(&q, t, t < q.frames - 1 ? later : NULL, beta);
        add_posterior(&q, alpha + t * q.states, beta, total, dy, dx + t * q.frame);
        double *swap = beta;
        beta = later;
        later = swap;
    }
}

#else

#include "batch.h"
#include "samples.h"

#include <weft/losses.h>
#include <weft/source.h>

extern const weft_op weft_op_ctc, weft_op_ctc_grad;

static bool infer_sequences(weft_infer *infer)
{
    char text[4][128];
    const weft_shape x = infer->in[0].shape, targets = infer->in[1].shape;
    const weft_shape frames = infer->in[2].shape, lengths = infer->in[3].shape;
    if (!weft_infer_float(infer, 0)) return false;
    for (size_t i = 1; i < 4; i++)
        if (!weft_infer_dtype(infer, i, WEFT_I32)) return false;
    if (x.rank != 3 || targets.rank != 2 || frames.rank != 1 || lengths.rank != 1 ||
        targets.dim[0] != x.dim[1] || frames.dim[0] != x.dim[1] || lengths.dim[0] != x.dim[1])
        return weft_infer_fail(
            infer, WEFT_BAD_SHAPE,
            "expected log_probs [frames, batch, classes], targets [batch, labels] and two lengths "
            "[batch], got %s, %s, %s and %s",
            weft_shape_text(x, text[0], sizeof *text),
            weft_shape_text(targets, text[1], sizeof *text),
            weft_shape_text(frames, text[2], sizeof *text),
            weft_shape_text(lengths, text[3], sizeof *text));
    const int32_t blank = ((const ctc_attr *)infer->attr)->blank;
    return (blank >= 0 && blank < x.dim[2]) ||
           weft_infer_fail(infer, WEFT_BAD_ARGUMENT,
                           "blank must be one of the %lld classes, got %d", (long long)x.dim[2],
                           blank);
}

static bool infer_ctc(weft_infer *infer)
{
    if (!infer_sequences(infer)) return false;
    infer->out[0] = (weft_type){infer->in[0].dtype, WEFT_SHAPE(infer->in[0].shape.dim[1])};
    return true;
}

static bool infer_ctc_grad(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return infer_sequences(infer) && weft_infer_same_dtype(infer, 0, 4) &&
           (weft_shape_equal(infer->in[4].shape, infer->in[2].shape) ||
            weft_infer_fail(infer, WEFT_BAD_SHAPE, "dy must have one number for each sequence"));
}

static int64_t tiles_ctc(const weft_call *call)
{
    return call->in[0].shape.dim[1];
}

static double states_of(const weft_call *call)
{
    return 2 * (double)call->in[1].shape.dim[1] + 1;
}

static size_t workspace_ctc(const weft_call *call)
{
    return (size_t)(2 * call->in[1].shape.dim[1] + 1) * 2 * sizeof(double);
}

static size_t workspace_ctc_grad(const weft_call *call)
{
    const int64_t states = 2 * call->in[1].shape.dim[1] + 1;
    return (size_t)(states * (call->in[0].shape.dim[0] + 2)) * sizeof(double);
}

/* Four logarithms and exponentials for each frame and state. */
static void cost_ctc(const weft_call *call, weft_cost *cost)
{
    const double n = (double)(call->in[0].shape.dim[0] * call->in[0].shape.dim[1]);
    cost->flops = 50 * n * states_of(call);
    cost->bytes =
        (double)numel_of(&call->in[0].shape) * (double)weft_dtype_bytes(call->in[0].dtype);
}

static void cost_ctc_grad(const weft_call *call, weft_cost *cost)
{
    cost_ctc(call, cost);
    cost->flops *= 2.2;
    cost->bytes *= 2;
}

static void vjp_ctc(weft_vjp *v)
{
    const weft_value in[] = {v->in[0], v->in[1], v->in[2], v->in[3], v->grad_out[0]};
    v->grad_in[0] = weft_apply(v->graph, &weft_op_ctc_grad, v->attr, in, 5, NULL);
}

/* The sizes, after n arguments; returns how many there are. */
static size_t source_sizes(const weft_source *s, weft_source_arg *args, size_t n)
{
    const weft_shape x = s->in[0].shape;
    args[n++] = WEFT_ARG_SCRATCH;
    for (int d = 0; d < 3; d++) args[n++] = WEFT_ARG_INT(x.dim[d]);
    args[n++] = WEFT_ARG_INT(s->in[1].shape.dim[1]);
    args[n++] = WEFT_ARG_INT(((const ctc_attr *)s->attr)->blank);
    return n;
}

static void source_ctc(weft_source *s)
{
    weft_source_arg args[12] = {WEFT_ARG_IN(0), WEFT_ARG_IN(1), WEFT_ARG_IN(2), WEFT_ARG_IN(3),
                                WEFT_ARG_OUT(0)};
    weft_source_try(s, "ctc", args, source_sizes(s, args, 5));
}

static void source_ctc_grad(weft_source *s)
{
    weft_source_arg args[12] = {WEFT_ARG_IN(0), WEFT_ARG_IN(1), WEFT_ARG_IN(2),
                                WEFT_ARG_IN(3), WEFT_ARG_IN(4), WEFT_ARG_OUT(0)};
    weft_source_try(s, "ctc_grad", args, source_sizes(s, args, 6));
}

/* Labels are from 1 on. Frames suffice for the targets of the first sample; where they do not, as
 * in some sequences of the second, the loss is infinite. */
#define LABELS(...)                                                                                \
    {                                                                                              \
        WEFT_I32, __VA_ARGS__, 1, 4, false                                                         \
    }
#define BETWEEN(low, high, ...)                                                                    \
    {                                                                                              \
        WEFT_I32, __VA_ARGS__, low, high, false                                                    \
    }
static const ctc_attr ctc_first = {0};
static const weft_sample samples_ctc[] = {
    {&ctc_first,
     4,
     {FLOATS({3, {7, 2, 4}}), LABELS({2, {2, 3}}), BETWEEN(6, 8, {1, {2}}),
      BETWEEN(0, 4, {1, {2}})}},
    {&ctc_first,
     4,
     {FLOATS({3, {1, 1, 4}}), LABELS({2, {1, 0}}), BETWEEN(0, 2, {1, {1}}),
      BETWEEN(0, 1, {1, {1}})}},
    {&ctc_first,
     4,
     {FLOATS({3, {3, 0, 4}}), LABELS({2, {0, 2}}), BETWEEN(0, 2, {1, {0}}),
      BETWEEN(0, 1, {1, {0}})}},
};
static const weft_sample samples_ctc_grad[] = {
    {&ctc_first,
     5,
     {FLOATS({3, {7, 2, 4}}), LABELS({2, {2, 3}}), BETWEEN(6, 8, {1, {2}}), BETWEEN(0, 4, {1, {2}}),
      FLOATS({1, {2}})}},
};
static const weft_attr_field ctc_fields[] = {
    {"blank", WEFT_ATTR_INT, offsetof(ctc_attr, blank)},
    {NULL, WEFT_ATTR_INT, 0},
};
/* [size, frames, n, classes], log_probs and their gradient, as [frames, size n, classes]. */
static weft_value join_sequences(weft_graph *g, weft_value x)
{
    const weft_value transposed = weft_transpose(g, x, 0, 1);
    const weft_shape s = weft_shape_of(g, transposed);
    const int64_t n = weft__batch_product(s.dim[1], s.dim[2]);
    return weft_reshape(g, transposed, WEFT_SHAPE(s.dim[0], n, s.dim[3]));
}

static weft_value part_sequences(const weft_batch *b, weft_value x)
{
    const weft_shape one = weft_shape_of(b->graph, b->one_out[0]);
    const weft_shape parts = WEFT_SHAPE(one.dim[0], b->size, one.dim[1], one.dim[2]);
    return weft_transpose(b->graph, weft_reshape(b->graph, x, parts), 0, 1);
}

/* The sequences of all examples are one list. */
static void batch_ctc(weft_batch *b)
{
    weft_value in[5];
    for (size_t i = 0; i < b->n_in; i++) {
        const weft_value x = weft__batch_in(b, i);
        in[i] = i ? weft__batch_fold(b->graph, x) : join_sequences(b->graph, x);
    }
    const weft_value y = weft_apply(b->graph, b->op, b->attr, in, b->n_in, NULL);
    const bool backward = b->n_in > 4;
    b->out[0] = backward ? part_sequences(b, y) : weft__batch_unfold(b, y, b->one_out[0]);
}

#define CTC_OP(op, text, words, count, ...)                                                        \
    DECLARE_KERNELS(op);                                                                           \
    const weft_op weft_op_##op = {.name = #op,                                                     \
                                  .doc = text,                                                     \
                                  .inputs = words,                                                 \
                                  .min_in = count,                                                 \
                                  .max_in = count,                                                 \
                                  .n_out = 1,                                                      \
                                  .attr_size = sizeof(ctc_attr),                                   \
                                  .attrs = ctc_fields,                                             \
                                  .infer = infer_##op,                                             \
                                  .kernel = FLOAT_KERNELS(op),                                     \
                                  .tiles = tiles_ctc,                                              \
                                  .workspace = workspace_##op,                                     \
                                  .cost = cost_##op,                                               \
                                  .source = source_##op,                                           \
                                  .can_fail = true,                                                \
                                  .batch = batch_ctc,                                              \
                                  .samples = samples_##op,                                         \
                                  .n_samples = sizeof samples_##op / sizeof *samples_##op,         \
                                  __VA_ARGS__};
CTC_OP(ctc,
       "loss[n] = -ln of the probability that the frames of sequence n spell its target, over "
       "all alignments (Graves et al. 2006).",
       "log_probs targets frames lengths", 4, .vjp = vjp_ctc)
CTC_OP(ctc_grad,
       "The gradient of ctc: minus the probability of each label in each frame, given the "
       "target; 0 where the loss is infinite.",
       "log_probs targets frames lengths dy", 5, .expand = weft__expand_ctc_grad)

weft_value weft_ctc(weft_graph *graph, weft_value log_probs, weft_value targets, weft_value frames,
                    weft_value lengths, int32_t blank)
{
    const weft_value in[] = {log_probs, targets, frames, lengths};
    return weft_apply(graph, &weft_op_ctc, &(ctc_attr){blank}, in, 4, NULL);
}

#endif
