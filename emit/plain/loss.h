/* Losses. */

/* The number of targets that count. */
static int targets_counted(const int32_t *target, int rows, double ignored)
{
    int r, n = 0;
    for (r = 0; r < rows; r++) n += (double)target[r] != ignored;
    return n;
}

/* The sums of e^(x - shift) and of x - shift over n elements. */
static void cross_entropy_sums(const T *x, int n, T shift, double *sum, double *apart)
{
    int from, i;
    *sum = *apart = 0;
    for (from = 0; from < n; from += 512) {
        T e[16] = {0}, a[16] = {0};
        for (i = from; i < n && i < from + 512; i++) {
            e[i % 16] += vm_exp_down(x[i] - shift);
            a[i % 16] += x[i] - shift;
        }
        *sum += (double)sum_of_lanes(e);
        *apart += (double)sum_of_lanes(a);
    }
}

/* Adds the loss of a row to *total; lse, and what rounding removed from it. 1 if the target is out of
 * range. */
static int cross_entropy_row(const T *x, int32_t target, T *lse, T *lse_low, int n, double ignored,
                             double smoothing, double *total)
{
    T top = (T)-INFINITY, shift;
    double sum, apart, logarithm, row;
    int i;
    for (i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
    shift = top == (T)-INFINITY ? 0 : top;
    cross_entropy_sums(x, n, shift, &sum, &apart);
    logarithm = vm_log_f64(sum);
    *lse = (T)((double)shift + logarithm);
    *lse_low = sum == 0 ? 0 : (T)(((double)shift - (double)*lse) + logarithm);
    if ((double)target == ignored) return 0;
    if (target < 0 || target >= n) return 1;
    row = logarithm;
    if (smoothing < 1) row -= (1 - smoothing) * (double)(x[target] - shift);
    if (smoothing > 0) row -= smoothing / (double)n * apart;
    *total += sum == 0 ? (double)(T)INFINITY : (double)(T)row;
    return 0;
}

/* Cross entropy of logits x [rows, n] and targets; lse and lse_low are [rows]. `mean`: the loss is divided
 * by the number of targets that count. 1 if a target is out of range. */
static int cross_entropy(const T *x, const int32_t *target, T *loss, T *lse, T *lse_low, int rows,
                         int n, double ignored, double smoothing, int mean)
{
    const int counted = targets_counted(target, rows, ignored);
    double total = 0;
    int r, bad = 0;
    for (r = 0; r < rows; r++)
        bad |= cross_entropy_row(x + r * n, target[r], lse + r, lse_low + r, n, ignored, smoothing,
                                 &total);
    *loss = (T)(!mean || !counted ? total : total / (double)counted);
    return bad;
}

/* dx of a row, which may lie where x does. */
static void cross_entropy_grad_row(const T *x, int32_t target, T lse, T lse_low, T scale, T *dx,
                                   int n, double ignored, double smoothing)
{
    const T factor = scale * (T)vm_exp_f64(-(double)lse_low), even = (T)(smoothing / (double)n);
    const int counts = (double)target != ignored && target >= 0 && target < n;
    int i;
    for (i = 0; i < n; i++) {
        T d = factor * vm_exp(x[i] - lse) - scale * even;
        if (i == target) d -= scale * (T)(1 - smoothing);
        dx[i] = counts && lse != (T)-INFINITY ? d : 0;
    }
}

static void cross_entropy_grad(const T *x, const int32_t *target, const T *lse, const T *lse_low,
                               const T *dloss, T *dx, int rows, int n, double ignored,
                               double smoothing, int mean)
{
    const int counted = targets_counted(target, rows, ignored);
    const T scale = !mean || !counted ? *dloss : *dloss / (T)counted;
    int r;
    for (r = 0; r < rows; r++)
        cross_entropy_grad_row(x + r * n, target[r], lse[r], lse_low[r], scale, dx + r * n, n,
                               ignored, smoothing);
}
