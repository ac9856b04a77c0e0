/* Updates of states, in place. */

static void assign(T *state, const T *value, int n)
{
    int i;
    for (i = 0; i < n; i++) state[i] = value[i];
}

static void blend(T *state, const T *value, const T *decay, const T *weight, int n)
{
    int i;
    for (i = 0; i < n; i++)
        state[i] = *decay == 0 ? *weight * value[i] : *decay * state[i] + *weight * value[i];
}

/* `scale` may be NULL: 1. */
static void sgd_update(T *param, const T *grad, const T *lr, const T *scale, T decay, int n)
{
    const T s = scale ? *scale : 1;
    int i;
    for (i = 0; i < n; i++) param[i] -= *lr * (s * grad[i] + decay * param[i]);
}

static void momentum_update(T *param, T *buf, const T *grad, const T *lr, const T *scale, T decay,
                            T momentum, T weight, int nesterov, int n)
{
    const T s = scale ? *scale : 1;
    int i;
    for (i = 0; i < n; i++) {
        const T g = s * grad[i] + decay * param[i];
        buf[i] = momentum * buf[i] + weight * g;
        param[i] -= *lr * (nesterov ? g + momentum * buf[i] : buf[i]);
    }
}

/* What all elements of a parameter share: the gradient is s g + decay x, the moments keep b1 and b2 and
 * take a1 and a2 of it, and correct_m and correct_v remove their bias. */
typedef struct adam_factors {
    T s, rate, b1, a1, b2, a2, e, decay, shrink, correct_m, correct_v;
} adam_factors;

static T root_of(T x)
{
    wide_float root = wide_of(x);
    wide_root(&root);
    return wide_value(&root);
}

static void adam_elements(T *param, T *m, T *v, const T *grad, adam_factors f, int n)
{
    int i;
    for (i = 0; i < n; i++) {
        const T g = f.s * grad[i] + f.decay * param[i];
        m[i] = f.b1 * m[i] + f.a1 * g;
        v[i] = f.b2 * v[i] + f.a2 * g * g;
        param[i] = f.shrink * param[i] -
                   f.rate * (m[i] * f.correct_m) / (root_of(v[i] * f.correct_v) + f.e);
    }
}

/* 1 - x. */
static wide_float rest_of_one(wide_float x)
{
    wide_float rest = wide_int(1);
    wide_subtract(&rest, &x);
    return rest;
}

/* 1 / (1 - beta^t). */
static T adam_correction(wide_float beta, T t)
{
    wide_float rest = rest_of_one(wide_power(beta, t));
    wide_invert(&rest);
    return wide_value(&rest);
}

/* The numbers are the bits of doubles. */
static void adam_update(T *param, T *m, T *v, const T *grad, const T *lr, const T *step,
                        const T *scale, uint64_t beta1, uint64_t beta2, uint64_t weight_decay,
                        uint64_t eps, int decoupled, int n)
{
    const wide_float b1 = wide_of_bits(beta1), b2 = wide_of_bits(beta2);
    const wide_float a1 = rest_of_one(b1), a2 = rest_of_one(b2), e = wide_of_bits(eps);
    const wide_float decay = wide_of_bits(weight_decay);
    const wide_float shrink = rest_of_one(wide_product(wide_of(*lr), decay));
    adam_factors f;
    f.s = scale ? *scale : 1;
    f.rate = *lr;
    f.b1 = wide_value(&b1);
    f.a1 = wide_value(&a1);
    f.b2 = wide_value(&b2);
    f.a2 = wide_value(&a2);
    f.e = wide_value(&e);
    f.decay = decoupled ? 0 : wide_value(&decay);
    f.shrink = decoupled ? wide_value(&shrink) : 1;
    f.correct_m = adam_correction(b1, *step);
    f.correct_v = adam_correction(b2, *step);
    adam_elements(param, m, v, grad, f, n);
}

/* Adds the squares of n elements to the double with the bits *sum: 16 lanes for each 16384. Begins with 0 where
 * `first` is set. */
static void square_sum(const T *x, int n, void *sum, int first)
{
    wide_float total;
    uint64_t bits = 0;
    int from, i, c, half;
    if (!first) memcpy(&bits, sum, sizeof bits);
    total = wide_of_bits(bits);
    for (from = 0; from < n; from += 16384) {
        wide_float lane[16] = {WIDE_ZERO};
        for (i = from; i < n && i < from + 16384; i++) {
            const wide_float term = wide_of(x[i]), square = wide_product(term, term);
            wide_add_wide(&lane[(i - from) % 16], &square);
        }
        for (half = 8; half; half /= 2)
            for (c = 0; c < half; c++) wide_add_wide(&lane[c], &lane[c + half]);
        wide_add_wide(&total, &lane[0]);
    }
    bits = wide_bits(total);
    memcpy(sum, &bits, sizeof bits);
}

/* The root of the double with the bits *sum. */
static void root_of_sum(const void *sum, T *norm)
{
    wide_float root;
    uint64_t bits;
    memcpy(&bits, sum, sizeof bits);
    root = wide_of_bits(bits);
    wide_root(&root);
    *norm = wide_value(&root);
}

/* The sums of squares of each 16384 elements. */
static void square_sums(const T *x, int n, double *sums)
{
    int from;
    for (from = 0; from < n; from += 16384)
        square_sum(x + from, n - from < 16384 ? n - from : 16384, sums++, 1);
}

/* The root of the sum of n sums in an order; 1 if that is out of range. */
static int root_in_order(const double *sums, const int32_t *order, T *norm, int n, int limit)
{
    double total = 0;
    int k, bad = 0;
    for (k = 0; k < n; k++) {
        if (order[k] < 0 || order[k] >= limit)
            bad = 1;
        else
            total += sums[order[k]];
    }
    *norm = (T)sqrt(total);
    return bad;
}

static int is_not_finite(const T *x)
{
    return !(*x - *x == 0);
}
