/* Losses. */

/* The number of targets that count. */
static int targets_counted(const int32_t *target, int rows, double ignored)
{
    int r, n = 0;
    for (r = 0; r < rows; r++) n += (double)target[r] != ignored;
    return n;
}

/* Cross entropy of logits x [rows, n] and targets; lse and what rounding removed from it are
 * [rows]. `mean`: the loss is divided by the number of targets that count. 1 if a target is out of
 * range. */
static int cross_entropy(const T *x, const int32_t *target, T *loss, T *lse, T *lse_low, int rows,
                         int n, double ignored, double smoothing, int mean)
{
    const int counted = targets_counted(target, rows, ignored);
    double total = 0;
    int r, i, from, bad = 0;
    for (r = 0; r < rows; r++, x += n) {
        const int outside = target[r] < 0 || target[r] >= n;
        T top = (T)-INFINITY, shift;
        double sum = 0, apart = 0, logarithm, row;
        for (i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
        shift = top == (T)-INFINITY ? 0 : top;
        for (from = 0; from < n; from += 512) {
            T e[16] = {0}, a[16] = {0};
            for (i = from; i < n && i < from + 512; i++) {
                e[i % 16] += vm_exp_down(x[i] - shift);
                a[i % 16] += x[i] - shift;
            }
            sum += (double)sum_of_lanes(e);
            apart += (double)sum_of_lanes(a);
        }
        logarithm = vm_log_f64(sum);
        lse[r] = (T)((double)shift + logarithm);
        lse_low[r] = sum == 0 ? 0 : (T)(((double)shift - (double)lse[r]) + logarithm);
        if ((double)target[r] == ignored) continue;
        if (outside) {
            bad = 1;
            continue;
        }
        row = logarithm;
        if (smoothing < 1) row -= (1 - smoothing) * (double)(x[target[r]] - shift);
        if (smoothing > 0) row -= smoothing / (double)n * apart;
        total += sum == 0 ? (double)(T)INFINITY : (double)(T)row;
    }
    *loss = (T)(!mean || !counted ? total : total / (double)counted);
    return bad;
}

static void cross_entropy_grad(const T *x, const int32_t *target, const T *lse, const T *lse_low,
                               const T *dloss, T *dx, int rows, int n, double ignored,
                               double smoothing, int mean)
{
    const int counted = targets_counted(target, rows, ignored);
    const T scale = !mean || !counted ? *dloss : *dloss / (T)counted;
    const T even = (T)(smoothing / (double)n);
    int r, i;
    for (r = 0; r < rows; r++, x += n, dx += n) {
        const T factor = scale * (T)vm_exp_f64(-(double)lse_low[r]);
        const int counts = (double)target[r] != ignored && target[r] >= 0 && target[r] < n;
        for (i = 0; i < n; i++) {
            T d = factor * vm_exp(x[i] - lse[r]) - scale * even;
            if (i == target[r]) d -= scale * (T)(1 - smoothing);
            dx[i] = counts && lse[r] != (T)-INFINITY ? d : 0;
        }
    }
}
