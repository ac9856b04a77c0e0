/* ctc and its gradient, in f64. See exact.h. The states of a target of L labels are blank, label,
 * blank, ..., blank: 2 L + 1 of them. */
#include "exact_math.h"

typedef struct ctc_attr {
    int32_t blank;
} ctc_attr;

/* One sequence, and the logarithms alpha and beta [frames, states]. */
typedef struct sequence {
    const weft_tensor *x; /* [frames, batch, classes] */
    int64_t n, frames, states;
    const int32_t *target;
    int32_t blank;
} sequence;

static sequence sequence_of(const void *attr, const weft_tensor *in, int64_t n)
{
    return (sequence){.x = in,
                      .n = n,
                      .frames = ((const int32_t *)in[2].data)[n],
                      .states = 2 * (int64_t)((const int32_t *)in[3].data)[n] + 1,
                      .target = (const int32_t *)in[1].data + n * in[1].shape.dim[1],
                      .blank = ((const ctc_attr *)attr)->blank};
}

static int32_t label_of(const sequence *q, int64_t s)
{
    return s % 2 ? q->target[s / 2] : q->blank;
}

/* Where class c of frame t lies. */
static int64_t place(const sequence *q, int64_t t, int32_t c)
{
    return (t * q->x->shape.dim[1] + q->n) * q->x->shape.dim[2] + c;
}

static double log_probability(const sequence *q, int64_t t, int64_t s)
{
    return (double)data(q->x)[place(q, t, label_of(q, s))];
}

/* Whether a path may go from state s - 2 to s. */
static bool skips_to(const sequence *q, int64_t s)
{
    return s >= 2 && s < q->states && s % 2 && label_of(q, s) != label_of(q, s - 2);
}

static double log_sum(double a, double b, double c)
{
    double top = a > b ? a : b;
    top = c > top ? c : top;
    if (top == -INFINITY) return top;
    return top + vm_log_f64((vm_exp_f64(a - top) + vm_exp_f64(b - top)) + vm_exp_f64(c - top));
}

static void fill_alpha(const sequence *q, double *alpha)
{
    for (int64_t t = 0; t < q->frames; t++)
        for (int64_t s = 0; s < q->states; s++) {
            const double *last = alpha + (t - 1) * q->states + s;
            double reach = s < 2 ? 0 : -INFINITY;
            if (t)
                reach = log_sum(last[0], s ? last[-1] : -INFINITY,
                                skips_to(q, s) ? last[-2] : -INFINITY);
            alpha[t * q->states + s] = reach + log_probability(q, t, s);
        }
}

static void fill_beta(const sequence *q, double *beta)
{
    for (int64_t t = q->frames - 1; t >= 0; t--)
        for (int64_t s = 0; s < q->states; s++) {
            const double *next = beta + (t + 1) * q->states + s;
            double way[3] = {-INFINITY, -INFINITY, -INFINITY};
            for (int64_t k = 0; k < 3 && s + k < q->states && t + 1 < q->frames; k++)
                if (k < 2 || skips_to(q, s + 2))
                    way[k] = next[k] + log_probability(q, t + 1, s + k);
            beta[t * q->states + s] = t + 1 < q->frames    ? log_sum(way[0], way[1], way[2])
                                      : s >= q->states - 2 ? 0
                                                           : -INFINITY;
        }
}

static double total_of(const sequence *q, const double *alpha)
{
    if (q->frames == 0) return q->states == 1 ? 0 : -INFINITY;
    const double *end = alpha + q->frames * q->states;
    return log_sum(end[-1], q->states > 1 ? end[-2] : -INFINITY, -INFINITY);
}

static double *new_table(const sequence *q)
{
    return malloc((size_t)(q->frames * q->states + 1) * sizeof(double));
}

EXACT(ctc)
{
    UNUSED;
    for (int64_t n = 0; n < numel(out); n++) {
        const sequence q = sequence_of(attr, in, n);
        double *alpha = new_table(&q);
        fill_alpha(&q, alpha);
        data(out)[n] = (T)-total_of(&q, alpha);
        free(alpha);
    }
}

EXACT(ctc_grad)
{
    UNUSED;
    memset(out->data, 0, (size_t)numel(out) * sizeof(T));
    for (int64_t n = 0; n < in->shape.dim[1]; n++) {
        const sequence q = sequence_of(attr, in, n);
        const double dy = (double)data(&in[4])[n];
        double *alpha = new_table(&q), *beta = new_table(&q);
        fill_alpha(&q, alpha);
        fill_beta(&q, beta);
        const double total = total_of(&q, alpha);
        for (int64_t i = 0; i < q.frames * q.states && total != -INFINITY; i++)
            data(out)[place(&q, i / q.states, label_of(&q, i % q.states))] -=
                (T)(dy * vm_exp_f64((alpha[i] + beta[i]) - total));
        free(alpha);
        free(beta);
    }
}

EXACT_TABLE(ctc) = {ROW(ctc), ROW(ctc_grad), {NULL, NULL}};
