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
typedef struct random_attr {
    weft_dtype dtype;
    weft_shape shape;
    double a, b;
    uint64_t key;
} random_attr;
/* A fraction in [0, 1) of `words` words from word w on: of 24 bits, 32 bits (`whole`) or 53. */
static double fraction(const random_attr *a, int64_t w, int64_t words, bool whole)
{
    uint32_t bits[2] = {0, 0};
    for (int64_t k = 0; k < words; k++) {
        const uint32_t counter[4] = {(uint32_t)((w + k) / 4), 0, 0, 0};
        uint32_t four[4];
        weft_philox(counter, a->key, four);
        bits[k] = four[(w + k) % 4];
    }
    if (words == 2) return weft_uniform(bits);
    return whole ? ldexp(bits[0], -32) : ldexp(bits[0] >> 8, -24);
}
REFERENCE(random_uniform)
{
    UNUSED;
    const random_attr *a = attr;
    const int64_t words = out->dtype == WEFT_F32 ? 1 : 2;
    for (int64_t i = 0; i < numel(out); i++)
        put(out, i, a->a + (a->b - a->a) * fraction(a, i * words, words, false));
}
REFERENCE(random_normal)
{
    UNUSED;
    const random_attr *a = attr;
    const int64_t words = out->dtype == WEFT_F32 ? 1 : 2;
    for (int64_t i = 0; i < numel(out); i++) {
        const int64_t w = i / 2 * 2 * words;
        const double u =
            words == 1 ? fraction(a, w, 1, true) + ldexp(1, -32) : 1 - fraction(a, w, 2, true);
        const double angle = 2 * M_PI * fraction(a, w + words, words, true);
        put(out, i, a->a + a->b * sqrt(-2 * log(u)) * (i % 2 ? sin(angle) : cos(angle)));
    }
}
REFERENCE(bernoulli)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++)
        put(out, i, fraction(attr, i, 1, true) < get(in, i) ? 1 : 0);
}

/* ctc by the sum over all alignments: every path of labels for the frames is written out, and the
 * ones that spell the target count. */
typedef struct ctc_attr {
    int32_t blank;
} ctc_attr;
static bool spells(const int64_t *path, int64_t frames, const weft_tensor *targets, int64_t n,
                   int64_t length, int32_t blank)
{
    int64_t at = 0;
    for (int64_t t = 0; t < frames; t++) {
        if (path[t] == blank || (t && path[t] == path[t - 1])) continue;
        if (at == length || path[t] != (int64_t)get(targets, n * targets->shape.dim[1] + at++))
            return false;
    }
    return at == length;
}
/* The probability of the target of sequence n, and of it with label c in frame t at of[t, c]. */
static double ctc_probability(const void *attr, const weft_tensor *in, int64_t n, double *of)
{
    const int64_t batch = in->shape.dim[1], classes = in->shape.dim[2];
    const int64_t frames = (int64_t)get(&in[2], n);
    int64_t path[16] = {0}, paths = 1;
    double total = 0;
    for (int64_t t = 0; t < frames; t++) paths *= classes;
    for (int64_t k = 0; k < paths; k++) {
        double log_p = 0;
        for (int64_t t = 0, rest = k; t < frames; t++, rest /= classes) {
            path[t] = rest % classes;
            log_p += data(in)[(t * batch + n) * classes + path[t]];
        }
        if (!spells(path, frames, &in[1], n, (int64_t)get(&in[3], n),
                    ((const ctc_attr *)attr)->blank))
            continue;
        total += exp(log_p);
        for (int64_t t = 0; of && t < frames; t++) of[t * classes + path[t]] += exp(log_p);
    }
    return total;
}
REFERENCE(ctc)
{
    UNUSED;
    for (int64_t n = 0; n < numel(out); n++) put(out, n, -log(ctc_probability(attr, in, n, NULL)));
}
REFERENCE(ctc_grad)
{
    UNUSED;
    const int64_t batch = in->shape.dim[1], classes = in->shape.dim[2], row = batch * classes;
    for (int64_t n = 0; n < batch; n++) {
        double *of = calloc((size_t)(in->shape.dim[0] * classes) + 1, sizeof *of);
        const double total = ctc_probability(attr, in, n, of);
        for (int64_t i = 0; i < in->shape.dim[0] * classes; i++)
            put(out, i / classes * row + n * classes + i % classes,
                total > 0 ? -of[i] / total * get(&in[4], n) : 0);
        free(of);
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
/* Adds the loss of element i of n: mean (0), sum (1) or each (2). */
static void add_loss(const void *attr, weft_tensor *out, int64_t i, int64_t n, double loss)
{
    const int32_t reduction = *(const int32_t *)attr;
    data(out)[reduction == 2 ? i : 0] += reduction == 0 ? loss / (double)n : loss;
}
REFERENCE(mse)
{
    UNUSED;
    for (int64_t i = 0; i < numel(in); i++)
        add_loss(attr, out, i, numel(in), pow(data(&in[0])[i] - data(&in[1])[i], 2));
}
REFERENCE(bce_with_logits)
{
    UNUSED;
    for (int64_t i = 0; i < numel(in); i++) {
        double p = 1 / (1 + exp(-data(&in[0])[i])), t = data(&in[1])[i];
        add_loss(attr, out, i, numel(in), -t * log(p) - (1 - t) * log(1 - p));
    }
}
REFERENCE(blend)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++)
        data(out)[i] = *data(&in[2]) * data(in)[i] + *data(&in[3]) * data(&in[1])[i];
}
typedef struct sgd_attr {
    int64_t first;
    double momentum, dampening, weight_decay;
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
        double b = a->momentum * data(&in[1])[i] + (1 - a->dampening) * g;
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
    SAME(dropout),
    SAME(random_uniform),
    SAME(random_normal),
    SAME(bernoulli),
    SAME(ctc),
    SAME(ctc_grad),
    SAME(cross_entropy),
    SAME(cross_entropy_grad),
    SAME(mse),
    SAME(bce_with_logits),
    SAME(blend),
    SAME(sgd_update),
    SAME(momentum_update),
    SAME(adam_update),
    {NULL, NULL},
};
