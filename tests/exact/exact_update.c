/* Optimiser updates and the norm of gradients. See exact.h. */
#include "base/vmath_pow.h"
#include "exact_math.h"

static T scalar(const weft_tensor *t)
{
    return *data(t);
}

/* Inputs: state, value, decay, weight. */
EXACT(blend)
{
    UNUSED;
    const T decay = scalar(&in[2]), weight = scalar(&in[3]);
    for (int64_t i = 0; i < numel(&in[1]); i++) {
        const T value = weight * data(&in[1])[i];
        data(out)[i] = decay == 0 ? value : decay * data(out)[i] + value;
    }
}

/* Inputs: param, grad, lr[, scale]. */
EXACT(sgd_update)
{
    UNUSED;
    const sgd_attr *a = attr;
    const T lr = scalar(&in[2]), scale = a->scaled ? scalar(&in[3]) : 1, decay = (T)a->weight_decay;
    T *param = data(out) + a->first;
    for (int64_t i = 0; i < numel(&in[1]); i++)
        param[i] -= lr * (scale * data(&in[1])[i] + decay * param[i]);
}

/* Inputs: param, buf, grad, lr[, scale]. */
EXACT(momentum_update)
{
    UNUSED;
    const sgd_attr *a = attr;
    const T lr = scalar(&in[3]), scale = a->scaled ? scalar(&in[4]) : 1, decay = (T)a->weight_decay;
    const T momentum = (T)a->momentum, weight = (T)(1 - a->dampening);
    T *param = data(out) + a->first, *buf = data(&out[1]);
    for (int64_t i = 0; i < numel(&in[2]); i++) {
        const T g = scale * data(&in[2])[i] + decay * param[i];
        buf[i] = momentum * buf[i] + weight * g;
        param[i] -= lr * (a->nesterov ? g + momentum * buf[i] : buf[i]);
    }
}

/* Inputs: param, m, v, grad, lr, t[, scale]. */
EXACT(adam_update)
{
    UNUSED;
    const adam_attr *a = attr;
    const T lr = scalar(&in[4]), scale = a->scaled ? scalar(&in[6]) : 1;
    const double t = (double)scalar(&in[5]);
    const T b1 = (T)a->beta1, a1 = (T)(1 - a->beta1), b2 = (T)a->beta2, a2 = (T)(1 - a->beta2);
    const T decay = a->decoupled ? 0 : (T)a->weight_decay, eps = (T)a->eps;
    const T shrink = a->decoupled ? (T)(1 - (double)lr * a->weight_decay) : 1;
    const T correct_m = (T)(1 / (1 - vm_pow_f64(a->beta1, t)));
    const T correct_v = (T)(1 / (1 - vm_pow_f64(a->beta2, t)));
    T *param = data(out) + a->first, *m = data(&out[1]), *v = data(&out[2]);
    for (int64_t i = 0; i < numel(&in[3]); i++) {
        const T g = scale * data(&in[3])[i] + decay * param[i];
        m[i] = b1 * m[i] + a1 * g;
        v[i] = b2 * v[i] + a2 * g * g;
        const T root = (T)sqrt((double)(v[i] * correct_v));
        param[i] = shrink * param[i] - lr * (m[i] * correct_m) / (root + eps);
    }
}

/* Squares of a tile of TILE elements are added in f64, in 16 lanes. */
static double square_sum(const weft_tensor *t, int64_t from)
{
    double lane[LANES] = {0};
    for (int64_t i = from; i < numel(t) && i < from + TILE; i++)
        lane[i % LANES] += (double)data(t)[i] * (double)data(t)[i];
    for (int half = LANES / 2; half; half /= 2)
        for (int c = 0; c < half; c++) lane[c] += lane[c + half];
    return lane[0];
}

/* The sums of tiles are added in order. */
EXACT(global_norm)
{
    UNUSED;
    double total = 0;
    for (size_t k = 0; k < n_in; k++)
        for (int64_t from = 0; from < numel(&in[k]); from += TILE)
            total += square_sum(&in[k], from);
    *data(out) = (T)sqrt(total);
}

/* global_norm in two ops. */
EXACT(square_sums)
{
    UNUSED;
    double *sum = out->data;
    for (size_t k = 0; k < n_in; k++)
        for (int64_t from = 0; from < numel(&in[k]); from += TILE)
            *sum++ = square_sum(&in[k], from);
}

EXACT(root_of_sum)
{
    UNUSED;
    double total = 0;
    for (int64_t k = 0; k < numel(&in[1]); k++)
        total += ((const double *)in[0].data)[((const int32_t *)in[1].data)[k]];
    *data(out) = (T)sqrt(total);
}

EXACT_TABLE(update) = {
    ROW(blend),       ROW(sgd_update),  ROW(momentum_update), ROW(adam_update),
    ROW(global_norm), ROW(square_sums), ROW(root_of_sum),     {NULL, NULL},
};
