/* Naive references of dropout, losses and updates. See reference.h. */
#include "reference_data.h"

/* ---- Training; seed 0, step 0 ---- */

typedef struct dropout_attr {
    double p;
    uint64_t key;
} dropout_attr;
REFERENCE(dropout)
{
    UNUSED;
    const dropout_attr *a = attr;
    for (int64_t i = 0; i < numel(out); i++) {
        const uint32_t counter[4] = {(uint32_t)(i / 4), 0, 0, 0};
        uint32_t bits[4];
        weft_philox(counter, a->key, bits);
        bool kept = (double)bits[i % 4] >= floor(a->p * 4294967296.0);
        data(out)[i] = kept ? data(in)[i] / (1 - a->p) : 0;
    }
}
typedef struct cross_entropy_attr {
    int64_t ignore_index;
    double smoothing;
    int32_t sum;
} cross_entropy_attr;
/* The target distribution at class c. */
static double wanted(const cross_entropy_attr *a, int64_t target, int64_t c, int64_t classes)
{
    return (1 - a->smoothing) * (target == c) + a->smoothing / (double)classes;
}
REFERENCE(cross_entropy)
{
    UNUSED;
    const cross_entropy_attr *a = attr;
    double total = 0, counted = 0;
    ROWS(n)
    {
        double sum = 0;
        int64_t target = (int64_t)get(&in[1], r);
        for (int64_t i = 0; i < n; i++) sum += exp(data(in)[r * n + i]);
        data(&out[1])[r] = log(sum);
        if (target == a->ignore_index) continue;
        counted++;
        for (int64_t i = 0; i < n; i++)
            total -= wanted(a, target, i, n) * (data(in)[r * n + i] - log(sum));
    }
    *data(out) = a->sum || counted == 0 ? total : total / counted;
}
REFERENCE(cross_entropy_grad)
{
    UNUSED;
    const cross_entropy_attr *a = attr;
    double counted = 0;
    for (int64_t r = 0; r < numel(&in[1]); r++)
        counted += (int64_t)get(&in[1], r) != a->ignore_index;
    ROWS(n)
    for (int64_t i = 0; i < n; i++) {
        int64_t target = (int64_t)get(&in[1], r);
        double p = exp(data(in)[r * n + i] - data(&in[2])[r] - data(&in[3])[r]);
        if (target != a->ignore_index)
            data(out)[r * n + i] =
                *data(&in[4]) / (a->sum ? 1 : counted) * (p - wanted(a, target, i, n));
    }
}
REFERENCE(mse)
{
    UNUSED;
    for (int64_t i = 0; i < numel(in); i++) *data(out) += pow(data(&in[0])[i] - data(&in[1])[i], 2);
    if (!*(const int32_t *)attr) *data(out) /= (double)numel(in);
}
REFERENCE(bce_with_logits)
{
    UNUSED;
    for (int64_t i = 0; i < numel(in); i++) {
        double p = 1 / (1 + exp(-data(&in[0])[i])), t = data(&in[1])[i];
        *data(out) -= t * log(p) + (1 - t) * log(1 - p);
    }
    if (!*(const int32_t *)attr) *data(out) /= (double)numel(in);
}
REFERENCE(assign)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) put(out, i, get(&in[1], i));
}
REFERENCE(blend)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++)
        data(out)[i] = *data(&in[2]) * data(in)[i] + *data(&in[3]) * data(&in[1])[i];
}
REFERENCE(require_finite)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) data(out)[i] = data(in)[i];
}
REFERENCE(cache_write)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) {
        int64_t at[WEFT_MAX_RANK], first = (int64_t)get(&in[2], 0);
        coordinates(out->shape, i, at);
        at[1] -= first;
        bool written = at[0] < in[1].shape.dim[0] && at[1] >= 0 && at[1] < in[1].shape.dim[1];
        put(out, i, written ? get(&in[1], index_at(&in[1], in[1].shape, at)) : get(in, i));
    }
}
REFERENCE(cache_reorder)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) {
        int64_t at[WEFT_MAX_RANK];
        coordinates(out->shape, i, at);
        if (at[0] < in[1].shape.dim[0] && at[1] < (int64_t)get(&in[2], 0))
            at[0] = (int64_t)get(&in[1], at[0]);
        put(out, i, get(in, index_at(in, in->shape, at)));
    }
}
typedef struct sgd_attr {
    int64_t first;
    double momentum, weight_decay;
    bool nesterov, scaled;
} sgd_attr;
/* The parameter's elements of which `piece` has the gradient; the others stay as they are. */
static double *begin_piece(int64_t first, const weft_tensor *in, weft_tensor *out)
{
    for (int64_t i = 0; i < numel(out); i++) data(out)[i] = data(in)[i];
    return data(out) + first;
}
REFERENCE(sgd_update)
{
    UNUSED;
    const sgd_attr *a = attr;
    double lr = *data(&in[2]), scale = a->scaled ? *data(&in[3]) : 1;
    double *param = begin_piece(a->first, in, out);
    for (int64_t i = 0; i < numel(&in[1]); i++)
        param[i] -= lr * (scale * data(&in[1])[i] + a->weight_decay * param[i]);
}
REFERENCE(momentum_update)
{
    UNUSED;
    const sgd_attr *a = attr;
    double lr = *data(&in[3]), scale = a->scaled ? *data(&in[4]) : 1;
    double *param = begin_piece(a->first, in, out);
    for (int64_t i = 0; i < numel(&in[2]); i++) {
        double g = scale * data(&in[2])[i] + a->weight_decay * param[i];
        double b = a->momentum * data(&in[1])[i] + g;
        data(&out[1])[i] = b;
        param[i] -= lr * (a->nesterov ? g + a->momentum * b : b);
    }
}
typedef struct adam_attr {
    int64_t first;
    double beta1, beta2, eps, weight_decay;
    bool decoupled, scaled;
} adam_attr;
REFERENCE(adam_update)
{
    UNUSED;
    const adam_attr *a = attr;
    double lr = *data(&in[4]), t = *data(&in[5]), scale = n_in == 7 ? *data(&in[6]) : 1;
    double *param = begin_piece(a->first, in, out);
    for (int64_t i = 0; i < numel(&in[3]); i++) {
        double p = param[i], g = scale * data(&in[3])[i];
        if (a->decoupled)
            p -= lr * a->weight_decay * p;
        else
            g += a->weight_decay * p;
        double m = a->beta1 * data(&in[1])[i] + (1 - a->beta1) * g;
        double v = a->beta2 * data(&in[2])[i] + (1 - a->beta2) * g * g;
        data(&out[1])[i] = m;
        data(&out[2])[i] = v;
        param[i] =
            p - lr * (m / (1 - pow(a->beta1, t))) / (sqrt(v / (1 - pow(a->beta2, t))) + a->eps);
    }
}

const reference references_training[] = {
    SAME(require_finite),
    SAME(dropout),
    SAME(cross_entropy),
    SAME(cross_entropy_grad),
    SAME(mse),
    SAME(bce_with_logits),
    SAME(assign),
    SAME(blend),
    SAME(cache_write),
    SAME(cache_reorder),
    SAME(sgd_update),
    SAME(momentum_update),
    SAME(adam_update),
    {NULL, NULL},
};
