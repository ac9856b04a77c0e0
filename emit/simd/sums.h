/* Sums in the orders of plain/sums.h and plain/norm.h: lanes side by side. */

/* See plain/sums.h. */
static inline T sum_of_lanes(T *lane)
{
    const simd_four *four = (const simd_four *)(const void *)lane;
    const simd_four sum = (four[0] + four[2]) + (four[1] + four[3]);
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* Adds n terms to 16 lanes, from the first one on. */
static inline void simd_add_lanes(const T *x, int n, T *lane)
{
    int i, c;
    for (i = 0; i + 16 <= n; i += 16)
        for (c = 0; c < 16; c++) lane[c] += x[i + c];
    for (c = 0; i + c < n; c++) lane[c] += x[i + c];
}

/* y = n terms from term `from` on; see term_at. */
static void simd_terms(const moment_terms *t, int from, int n, T *y)
{
    const int apart = t->volume == 1; /* each term is an image */
    const int step = apart ? t->jump : t->step, dy_step = apart ? t->jump : t->dy_step;
    const T mean = t->mean;
    int i, k, some;
    for (i = 0; i < n; i += some, y += some) {
        const int first = from + i + t->first, image = apart ? 0 : first / t->volume;
        const int within = first - image * t->volume, left = apart ? n : t->volume - within;
        const T *x = t->x + image * t->jump + within * step;
        some = n - i < left ? n - i : left;
        for (k = 0; k < some; k++) y[k] = x[k * step];
        for (k = 0; t->power && k < some; k++) y[k] -= mean;
        for (k = 0; t->power == 2 && k < some; k++) y[k] *= y[k];
        if (t->dy) {
            const T *dy = t->dy + image * t->jump + within * dy_step;
            for (k = 0; k < some; k++) y[k] = dy[k * dy_step] * y[k];
        }
    }
}

static double sum_of_terms(const moment_terms *t, int n, int columns)
{
    double lane[16] = {0}, total = 0;
    T y[512], rest[16] = {0};
    int from, i, c;
    for (from = 0; from < n; from += 512) {
        const int some = n - from < 512 ? n - from : 512;
        const int whole = columns ? some / 8 * 8 : some / 128 * 128;
        simd_terms(t, from, some, y);
        for (i = 0; columns && i < whole; i += 8) total += (double)sum_of_eight(y + i, 1);
        for (; columns && i < some; i++) total += (double)y[i];
        for (i = 0; !columns && i < whole; i += 128)
            for (c = 0; c < 16; c++) lane[c] += (double)sum_of_eight(y + i + c, 16);
        if (!columns) simd_add_lanes(y + whole, some - whole, rest);
    }
    if (columns) return total;
    sum_of_eight_lanes(lane);
    sum_of_eight_lanes(lane + 8);
    total = lane[0] + lane[8];
    return total + (double)sum_of_lanes(rest);
}

/* See plain/norm.h. */
static T sum_of_rest(const T *x, int n, T mean, int square)
{
    simd_four s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    T lane[16];
    simd_four *four = (simd_four *)(void *)lane;
    int i, c;
    for (i = 0; i + 16 <= n; i += 16) {
        const simd_four *at = (const simd_four *)(const void *)(x + i);
        simd_four x0 = at[0] - mean, x1 = at[1] - mean, x2 = at[2] - mean, x3 = at[3] - mean;
        if (square) x0 *= x0, x1 *= x1, x2 *= x2, x3 *= x3;
        s0 += x0, s1 += x1, s2 += x2, s3 += x3;
    }
    four[0] = s0, four[1] = s1, four[2] = s2, four[3] = s3;
    for (c = 0; i + c < n; c++) lane[c] += moment_term(x[i + c], mean, square);
    return sum_of_lanes(lane);
}

static double row_sum(const T *x, int n, int step)
{
    const moment_terms t = terms_of(x, n, step);
    return sum_of_terms(&t, n, 0);
}

static double range_sum(const T *x, int n)
{
    double total = 0;
    int from;
    for (from = 0; from < n; from += 512) {
        T lane[16] = {0};
        simd_add_lanes(x + from, n - from < 512 ? n - from : 512, lane);
        total += (double)sum_of_lanes(lane);
    }
    return total;
}

/* ---- Softmax and losses ---- */

static double exp_sum(const T *x, int n, int step, T shift, int columns)
{
    const int range = columns ? 32 : 512;
    double total = 0;
    int from, i;
    for (from = 0; from < n; from += range) {
        const int some = n - from < range ? n - from : range;
        T lane[16] = {0}, y[512];
        for (i = 0; i < some; i++) y[i] = x[(from + i) * step] - shift;
        for (i = 0; i < some; i++) y[i] = vm_exp_down(y[i]);
        for (i = 0; columns && i < some; i++) lane[0] += y[i];
        if (!columns) simd_add_lanes(y, some, lane);
        total += (double)(columns ? lane[0] : sum_of_lanes(lane));
    }
    return total;
}

static void cross_entropy_sums(const T *x, int n, T shift, double *sum, double *apart)
{
    int from, i;
    *sum = *apart = 0;
    for (from = 0; from < n; from += 512) {
        const int some = n - from < 512 ? n - from : 512;
        T e[16] = {0}, a[16] = {0}, y[512];
        for (i = 0; i < some; i++) y[i] = x[from + i] - shift;
        simd_add_lanes(y, some, a);
        for (i = 0; i < some; i++) y[i] = vm_exp_down(y[i]);
        simd_add_lanes(y, some, e);
        *sum += (double)sum_of_lanes(e);
        *apart += (double)sum_of_lanes(a);
    }
}

/* ---- Gradients of norms of rows ---- */

static void norm_row_grad(const T *x, const T *mean, T rstd, T low, const T *dy, const T *gamma,
                          T *dx, int n)
{
    const T centre = mean ? *mean : 0;
    double sum = 0, product = 0;
    T g_mean, along;
    int from, i;
    for (from = 0; from < n; from += 512) {
        const int some = n - from < 512 ? n - from : 512;
        T lane[16] = {0}, other[16] = {0}, g[512], along_x[512];
        for (i = 0; i < some; i++) g[i] = gamma ? dy[from + i] * gamma[from + i] : dy[from + i];
        for (i = 0; i < some; i++) along_x[i] = g[i] * (((x[from + i] - centre) - low) * rstd);
        simd_add_lanes(g, some, lane);
        simd_add_lanes(along_x, some, other);
        sum += (double)sum_of_lanes(lane);
        product += (double)sum_of_lanes(other);
    }
    g_mean = mean ? (T)(sum / (double)n) : 0;
    along = (T)(product / (double)n);
    SIMD_LOOP
    for (i = 0; i < n; i++) {
        const T xhat = ((x[i] - centre) - low) * rstd, g = gamma ? dy[i] * gamma[i] : dy[i];
        dx[i] = rstd * (g - g_mean - xhat * along);
    }
}

static void norm_columns_grad(const T *x, const T *mean, const T *rstd, const T *low, const T *dy,
                              int rows, int n, uint64_t *total)
{
    int from, r, i;
    for (from = 0; from < n; from += 64) {
        const int some = n - from < 64 ? n - from : 64;
        T gamma[64] = {0}, beta[64] = {0};
        for (r = 0; r < rows; r++) {
            const T *own = x + r * n + from, *grad = dy + r * n + from;
            const T centre = mean ? mean[r] : 0, lost = low[r], factor = rstd[r];
            for (i = 0; i < some; i++) {
                gamma[i] += grad[i] * (((own[i] - centre) - lost) * factor);
                beta[i] += grad[i];
            }
        }
        for (i = 0; i < some; i++) {
            add_to_bits(&total[from + i], gamma[i]);
            add_to_bits(&total[n + from + i], beta[i]);
        }
    }
}

/* ---- Sums of several inputs ---- */

static void add_n(T *y, const T *const *x, int inputs, int n)
{
    int from, first, i, j;
    for (from = 0; from < n; from += 64) {
        const int some = n - from < 64 ? n - from : 64;
        T sum[64] = {0};
        for (first = 0; first < inputs; first += 32) {
            T block[64];
            for (i = 0; i < some; i++) block[i] = x[first][from + i];
            for (j = first + 1; j < inputs && j < first + 32; j++)
                for (i = 0; i < some; i++) block[i] += x[j][from + i];
            for (i = 0; i < some; i++) sum[i] = first ? sum[i] + block[i] : block[i];
        }
        for (i = 0; i < some; i++) y[from + i] = sum[i];
    }
}
