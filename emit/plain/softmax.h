/* softmax along lines of n elements, which are xs, ys, ... apart. The lines lie where dimensions `size` have
 * these strides. `columns`: with the sums of columns, else those of rows. */

#define LOWEST_f32 (-3.40282347e38f)
#define LOWEST_f64 (-1.7976931348623157e308)

/* The largest element; a finite number if that is -infinity, so that each e^(-infinity - it) is 0. */
static T line_shift(const T *x, int n, int step)
{
    T top = LOWEST;
    int i;
    for (i = 0; i < n; i++) top = x[i * step] > top ? x[i * step] : top;
    return top;
}

/* The sum of e^(x - shift) over n elements: ranges in lanes, or blocks of 32. */
static wide_float exp_sum(const T *x, int n, int step, T shift, int columns)
{
    const int range = columns ? 32 : 512;
    wide_float total = WIDE_ZERO;
    int from, i;
    for (from = 0; from < n; from += range) {
        T lane[16] = {0};
        for (i = from; i < n && i < from + range; i++)
            lane[columns ? 0 : (i - from) % 16] += vm_exp_down(x[i * step] - shift);
        wide_add(&total, columns ? lane[0] : sum_of_lanes(lane));
    }
    return total;
}

/* The sum of the whole 16s, and that of the rest. */
static wide_float line_sum(const T *x, int n)
{
    wide_float sum = range_sum(x, n / 16 * 16);
    const wide_float rest = range_sum(x + n / 16 * 16, n % 16);
    wide_add_wide(&sum, &rest);
    return sum;
}

static void softmax_line(const T *x, T *y, int n, int xs, int ys, int columns)
{
    const T shift = line_shift(x, n, xs);
    wide_float sum;
    T scale;
    int i;
    for (i = 0; i < n; i++) y[i * ys] = vm_exp_down(x[i * xs] - shift);
    sum = columns ? column_sum(y, n, ys) : line_sum(y, n);
    scale = wide_inverse(&sum);
    for (i = 0; i < n; i++) y[i * ys] *= scale;
}

static void softmax_lines(const T *x, T *y, int lines, int n, int xs, int ys, int columns, int rank,
                          const int *size, const int *x_stride, const int *y_stride)
{
    int l;
    for (l = 0; l < lines; l++)
        softmax_line(x + offset_of(size, x_stride, rank, l), y + offset_of(size, y_stride, rank, l),
                     n, xs, ys, columns);
}

static void log_softmax_lines(const T *x, T *y, int lines, int n, int xs, int ys, int columns,
                              int rank, const int *size, const int *x_stride, const int *y_stride)
{
    int l, i;
    for (l = 0; l < lines; l++) {
        const T *from = x + offset_of(size, x_stride, rank, l);
        T *to = y + offset_of(size, y_stride, rank, l);
        const T shift = line_shift(from, n, xs);
        const wide_float sum = exp_sum(from, n, xs, shift, columns), logarithm = wide_log(sum);
        const T lost = wide_value(&sum) == 0 ? 0 : wide_value(&logarithm);
        for (i = 0; i < n; i++) to[i * ys] = (from[i * xs] - shift) - lost;
    }
}

static void softmax_grad_lines(const T *y, const T *dy, T *dx, int lines, int n, int ys, int dys,
                               int dxs, int columns, int rank, const int *size, const int *y_stride,
                               const int *dy_stride, const int *dx_stride)
{
    int l, i;
    for (l = 0; l < lines; l++) {
        const T *from = y + offset_of(size, y_stride, rank, l);
        const T *grad = dy + offset_of(size, dy_stride, rank, l);
        T *to = dx + offset_of(size, dx_stride, rank, l), sum;
        moment_terms t = terms_of(from, n, ys);
        wide_float total;
        t.dy = grad;
        t.dy_step = dys;
        total = sum_of_terms(&t, n, columns);
        sum = wide_value(&total);
        for (i = 0; i < n; i++) to[i * dxs] = from[i * ys] * (grad[i * dys] - sum);
    }
}

static void log_softmax_grad_lines(const T *y, const T *dy, T *dx, int lines, int n, int ys,
                                   int dys, int dxs, int columns, int rank, const int *size,
                                   const int *y_stride, const int *dy_stride, const int *dx_stride)
{
    int l, i;
    for (l = 0; l < lines; l++) {
        const T *from = y + offset_of(size, y_stride, rank, l);
        const T *grad = dy + offset_of(size, dy_stride, rank, l);
        T *to = dx + offset_of(size, dx_stride, rank, l);
        const wide_float total = columns ? column_sum(grad, n, dys) : row_sum(grad, n, dys);
        const T sum = wide_value(&total);
        for (i = 0; i < n; i++) to[i * dxs] = grad[i * dys] - vm_exp(from[i * ys]) * sum;
    }
}

/* What is subtracted from exponents where the largest element is `top`. */
static double finite_or_zero(double top)
{
    return top - top == 0 ? top : 0;
}

/* The largest element and the sum of e^(x - it). */
static void logsumexp_elements(const T *x, int n, int step, int columns, fold_state *s)
{
    max_elements(x, n, step, columns, s);
    s->second = exp_sum(x, n, step, (T)finite_or_zero(s->first), columns);
}

static void logsumexp_merge(fold_state *s, int before, const fold_state *more, int count)
{
    const double a = s->first, b = more->first, top = a != a || a > b ? a : b;
    const double shift = finite_or_zero(top);
    (void)before;
    (void)count;
    s->first = top;
    s->second = s->second * vm_exp_f64(a - shift) + more->second * vm_exp_f64(b - shift);
}

static void reduce_logsumexp(const T *x, T *y, const void *cut, int correction)
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    int o;
    (void)correction;
    for (o = 0; o < c->outputs; o++) {
        fold_state s;
        fold_output(x, c, o, logsumexp_elements, logsumexp_merge, &s);
        y[o] = (T)(s.first - s.first == 0 ? s.first + vm_log_f64(s.second) : s.first);
    }
}
