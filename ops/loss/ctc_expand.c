/* ctc_grad as plain ops, for its own gradient: alpha and beta of ctc.c, a frame after the other.
 * All sequences of the batch go through all frames and states; masks exclude those that a sequence
 * lacks. */
#include "ctc.h"

#include <weft/losses.h>
#include <weft/ops.h>

#include <math.h>
#include <stdlib.h>

/* What does not change from frame to frame. */
typedef struct lattice {
    weft_graph *g;
    weft_dtype dtype;
    int64_t frames, batch, classes, states;
    weft_value labels;   /* i32 [batch, states] */
    weft_value may_skip; /* bool: the state can be reached from two states before */
    weft_value is_end;   /* bool: an alignment can end in the state */
    weft_value count;    /* i32 [batch, 1]: frames of each sequence */
    weft_value log_p;    /* [frames, batch, states] */
} lattice;

/* x [batch, states] moved by `by` states, towards higher ones if it is positive; `value` comes in.
 */
static weft_value moved(const lattice *l, weft_value x, int64_t by, double value)
{
    const int64_t size = by < 0 ? -by : by, shift = size < l->states ? size : l->states;
    const int64_t before[2] = {0, by > 0 ? shift : 0}, after[2] = {0, by < 0 ? shift : 0};
    x = by > 0 ? weft_slice(l->g, x, 1, 0, l->states - shift, 1)
               : weft_slice(l->g, x, 1, shift, l->states, 1);
    return weft_pad(l->g, x, before, after, value);
}

static weft_value without(const lattice *l, weft_value x, weft_value allowed)
{
    return weft_masked_fill(l->g, x, weft_logical_not(l->g, allowed), -INFINITY);
}

static weft_value log_sum(const lattice *l, weft_value a, weft_value b, weft_value c)
{
    const weft_value all[3] = {a, b, c};
    return weft_logsumexp(l->g, weft_stack(l->g, all, 3, 0), WEFT_AXES(0), false);
}

static weft_value frame(const lattice *l, weft_value x, int64_t t)
{
    return weft_squeeze(l->g, weft_slice(l->g, x, 0, t, t + 1, 1), 0);
}

/* Targets with blanks between and around them. Labels that do not count become blanks. */
static weft_value labels_of(const lattice *l, weft_value targets, weft_value lengths, int32_t blank)
{
    weft_graph *g = l->g;
    const int64_t count = weft_dim_of(g, targets, 1);
    weft_value index = weft_arange(g, WEFT_I32, count, 0, 1);
    weft_value counts = weft_less(g, index, lengths);
    const weft_value none = weft_scalar(g, WEFT_I32, blank);
    const weft_value blanks = weft_fill(g, WEFT_I32, weft_shape_of(g, targets), blank);
    const weft_value labels = weft_where(g, counts, targets, none);
    const weft_value pairs = weft_stack(g, (weft_value[]){blanks, labels}, 2, 2);
    const weft_value line = weft_reshape(g, pairs, WEFT_SHAPE(l->batch, 2 * count));
    const weft_value last = weft_fill(g, WEFT_I32, WEFT_SHAPE(l->batch, 1), blank);
    return weft_concat(g, (weft_value[]){line, last}, 2, 1);
}

static lattice lattice_of(const weft_expand *e)
{
    weft_graph *g = e->graph;
    const int32_t blank = ((const ctc_attr *)e->attr)->blank;
    const weft_shape x = weft_shape_of(g, e->in[0]);
    lattice l = {.g = g,
                 .dtype = weft_dtype_of(g, e->in[0]),
                 .frames = x.dim[0],
                 .batch = x.dim[1],
                 .classes = x.dim[2]};
    l.states = 2 * weft_dim_of(g, e->in[1], 1) + 1;
    weft_value lengths = weft_expand_dims(g, e->in[3], 1);
    l.labels = labels_of(&l, e->in[1], lengths, blank);
    l.count = weft_expand_dims(g, e->in[2], 1);
    weft_value index = weft_arange(g, WEFT_F64, l.states, 0, 1);
    weft_value end = weft_mul_scalar(g, weft_cast(g, lengths, WEFT_F64), 2);
    weft_value even = weft_mul_scalar(g, weft_floor(g, weft_mul_scalar(g, index, 0.5)), 2);
    weft_value odd = weft_not_equal(g, index, even);
    weft_value differs = weft_not_equal(g, l.labels, moved(&l, l.labels, 2, blank));
    l.may_skip = weft_logical_and(g, differs, odd);
    const weft_value is_last = weft_equal(g, index, end);
    l.is_end = weft_logical_or(g, is_last, weft_equal(g, index, weft_add_scalar(g, end, -1)));
    weft_value places = weft_broadcast_to(g, weft_expand_dims(g, l.labels, 0),
                                          WEFT_SHAPE(l.frames, l.batch, l.states));
    l.log_p = weft_gather(g, e->in[0], places, 2);
    return l;
}

/* alpha of the next frame, or of the first one without `last`. */
static weft_value next_alpha(const lattice *l, weft_value last, int64_t t)
{
    weft_graph *g = l->g;
    weft_value p = frame(l, l->log_p, t);
    if (!weft_is_value(last)) {
        const weft_value index = weft_arange(g, WEFT_I32, l->states, 0, 1);
        return without(l, p, weft_less(g, index, weft_scalar(g, WEFT_I32, 2)));
    }
    weft_value skip = without(l, moved(l, last, 2, -INFINITY), l->may_skip);
    return weft_add(g, log_sum(l, last, moved(l, last, 1, -INFINITY), skip), p);
}

/* beta of frame t from that of frame t + 1; a sequence whose last frame t is begins here. */
static weft_value next_beta(const lattice *l, weft_value later, int64_t t)
{
    weft_graph *g = l->g;
    const weft_shape shape = WEFT_SHAPE(l->batch, l->states);
    weft_value ends = without(l, weft_fill(g, l->dtype, shape, 0), l->is_end);
    if (!weft_is_value(later)) return ends;
    weft_value reach = weft_add(g, later, frame(l, l->log_p, t + 1));
    weft_value skip = moved(l, without(l, reach, l->may_skip), -2, -INFINITY);
    weft_value sum = log_sum(l, reach, moved(l, reach, -1, -INFINITY), skip);
    weft_value last = weft_equal(g, l->count, weft_scalar(g, WEFT_I32, (double)t + 1));
    return weft_where(g, last, ends, sum);
}

/* The gradient of frame t: minus dy times the probabilities of the states, at their labels. */
static weft_value frame_gradient(const lattice *l, weft_value both, weft_value dy, int64_t t)
{
    weft_graph *g = l->g;
    weft_value total = weft_logsumexp(g, both, WEFT_AXES(1), true);
    weft_value none = weft_equal(g, total, weft_scalar(g, l->dtype, -INFINITY));
    weft_value p = weft_exp(g, weft_sub(g, both, weft_masked_fill(g, total, none, 0)));
    weft_value counts = weft_less(g, weft_scalar(g, WEFT_I32, (double)t), l->count);
    p = weft_masked_fill(g, p, weft_logical_not(g, counts), 0);
    weft_value zeros = weft_fill(g, l->dtype, WEFT_SHAPE(l->batch, l->classes), 0);
    return weft_scatter_add(g, zeros, l->labels, weft_neg(g, weft_mul(g, p, dy)), 1);
}

void weft__expand_ctc_grad(weft_expand *e)
{
    weft_graph *g = e->graph;
    const lattice l = lattice_of(e);
    const weft_value dy = weft_expand_dims(g, e->in[4], 1);
    weft_value later = WEFT_NO_VALUE;
    if (l.frames == 0) {
        e->out[0] = weft_mul_scalar(g, e->in[0], 1);
        return;
    }
    weft_value *alpha = malloc((size_t)l.frames * sizeof *alpha);
    if (!alpha) {
        weft_graph_fail_in(g, "ctc_grad", WEFT_NO_MEMORY, "no memory for %lld frames",
                           (long long)l.frames);
        return;
    }
    for (int64_t t = 0; t < l.frames; t++)
        alpha[t] = next_alpha(&l, t ? alpha[t - 1] : WEFT_NO_VALUE, t);
    for (int64_t t = l.frames - 1; t >= 0; t--) {
        later = next_beta(&l, later, t);
        alpha[t] = frame_gradient(&l, weft_add(g, alpha[t], later), dy, t);
    }
    e->out[0] = weft_stack(g, alpha, (size_t)l.frames, 0);
    free(alpha);
}
