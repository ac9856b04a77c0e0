/* Losses. */

/* The number of targets that count: those that are not `ignored`, an int64_t. */
static int targets_counted(const int32_t *target, int rows, uint64_t ignored)
{
    int r, n = 0;
    for (r = 0; r < rows; r++) n += (uint64_t)target[r] != ignored;
    return n;
}

/* The sums of e^(x - shift) and of x - shift over n elements. */
static void cross_entropy_sums(const T *x, int n, T shift, wide_float *sum, wide_float *apart)
{
    int from, i;
    for (from = 0; from < n; from += 512) {
        T e[16] = {0}, a[16] = {0};
        for (i = from; i < n && i < from + 512; i++) {
            e[i % 16] += vm_exp_down(x[i] - shift);
            a[i % 16] += x[i] - shift;
        }
        wide_add(sum, sum_of_lanes(e));
        wide_add(apart, sum_of_lanes(a));
    }
}

/* Adds the loss of a row to *total; lse, and what rounding removed from it. 1 if the target is out of
 * range. `kept` and `even` are -(1 - smoothing) and -smoothing / n as the bits of doubles, or 0. */
static int cross_entropy_row(const T *x, int32_t target, T *lse, T *lse_low, int n,
                             uint64_t ignored, uint64_t kept, uint64_t even, wide_float *total)
{
    const T shift = line_shift(x, n, 1);
    wide_float sum = WIDE_ZERO, apart = WIDE_ZERO, row, high = wide_of(shift), low = high;
    cross_entropy_sums(x, n, shift, &sum, &apart);
    row = wide_log(sum);
    wide_add_wide(&high, &row);
    *lse = wide_value(&high);
    wide_add(&low, -*lse);
    wide_add_wide(&low, &row);
    *lse_low = *lse == (T)-INFINITY ? 0 : wide_value(&low);
    if ((uint64_t)target == ignored) return 0;
    if (target < 0 || target >= n) return 1;
    if (kept) {
        const wide_float term = wide_product(wide_of_bits(kept), wide_of(x[target] - shift));
        wide_add_wide(&row, &term);
    }
    if (even) {
        const wide_float term = wide_product(wide_of_bits(even), apart);
        wide_add_wide(&row, &term);
    }
    wide_add(total, *lse == (T)-INFINITY ? (T)INFINITY : wide_value(&row));
    return 0;
}

/* Cross entropy of logits x [rows, n] and targets; lse and lse_low are [rows]. `mean`: the loss is divided
 * by the number of targets that count. 1 if a target is out of range. */
static int cross_entropy(const T *x, const int32_t *target, T *loss, T *lse, T *lse_low, int rows,
                         int n, uint64_t ignored, uint64_t kept, uint64_t even, int mean)
{
    const int counted = mean ? targets_counted(target, rows, ignored) : 0;
    wide_float total = WIDE_ZERO;
    int r, bad = 0;
    for (r = 0; r < rows; r++)
        bad |= cross_entropy_row(x + r * n, target[r], lse + r, lse_low + r, n, ignored, kept, even,
                                 &total);
    *loss = counted ? wide_mean(&total, counted) : wide_value(&total);
    return bad;
}

/* dx of a row, which may lie where x does. `kept` and `even` are 1 - smoothing and smoothing / n. */
static void cross_entropy_grad_row(const T *x, int32_t target, T lse, T lse_low, T scale, T *dx,
                                   int n, uint64_t ignored, T kept, T even)
{
    const T factor = scale * wide_exp(-lse_low);
    const int counts = (uint64_t)target != ignored && target >= 0 && target < n;
    int i;
    for (i = 0; i < n; i++) {
        T d = factor * vm_exp(x[i] - lse) - scale * even;
        if (i == target) d -= scale * kept;
        dx[i] = counts && lse != (T)-INFINITY ? d : 0;
    }
}

static void cross_entropy_grad(const T *x, const int32_t *target, const T *lse, const T *lse_low,
                               const T *dloss, T *dx, int rows, int n, uint64_t ignored, T kept,
                               T even, int mean)
{
    const int counted = mean ? targets_counted(target, rows, ignored) : 0;
    const T scale = counted ? *dloss / (T)counted : *dloss;
    int r;
    for (r = 0; r < rows; r++)
        cross_entropy_grad_row(x + r * n, target[r], lse[r], lse_low[r], scale, dx + r * n, n,
                               ignored, kept, even);
}
