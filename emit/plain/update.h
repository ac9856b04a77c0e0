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

static void adam_elements(T *param, T *m, T *v, const T *grad, adam_factors f, int n)
{
    int i;
    for (i = 0; i < n; i++) {
        const T g = f.s * grad[i] + f.decay * param[i];
        m[i] = f.b1 * m[i] + f.a1 * g;
        v[i] = f.b2 * v[i] + f.a2 * g * g;
        param[i] = f.shrink * param[i] -
                   f.rate * (m[i] * f.correct_m) / ((T)sqrt((double)(v[i] * f.correct_v)) + f.e);
    }
}

static void adam_update(T *param, T *m, T *v, const T *grad, const T *lr, const T *step,
                        const T *scale, double beta1, double beta2, double weight_decay, double eps,
                        int decoupled, int n)
{
    const double t = (double)*step;
    adam_factors f;
    f.s = scale ? *scale : 1;
    f.rate = *lr;
    f.b1 = (T)beta1;
    f.a1 = (T)(1 - beta1);
    f.b2 = (T)beta2;
    f.a2 = (T)(1 - beta2);
    f.e = (T)eps;
    f.decay = decoupled ? 0 : (T)weight_decay;
    f.shrink = decoupled ? (T)(1 - (double)*lr * weight_decay) : 1;
    f.correct_m = (T)(1 / (1 - vm_pow_f64(beta1, t)));
    f.correct_v = (T)(1 / (1 - vm_pow_f64(beta2, t)));
    adam_elements(param, m, v, grad, f, n);
}

/* Adds the squares of n elements to *sum, in double: 16 lanes for each 16384. Begins with 0 where
 * `first` is set. */
static void square_sum(const T *x, int n, double *sum, int first)
{
    int from, i, c, half;
    if (first) *sum = 0;
    for (from = 0; from < n; from += 16384) {
        double lane[16] = {0};
        for (i = from; i < n && i < from + 16384; i++)
            lane[(i - from) % 16] += (double)x[i] * (double)x[i];
        for (half = 8; half; half /= 2)
            for (c = 0; c < half; c++) lane[c] += lane[c + half];
        *sum += lane[0];
    }
}

static void root_of_sum(const double *sum, T *norm)
{
    *norm = (T)sqrt(*sum);
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
