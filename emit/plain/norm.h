/* Moments, and normalisation by them. */

/* Terms that are computed from elements: those of x are `step` apart, of dy, if there is one, `dy_step`;
 * after each `volume` of them the next are `jump` further. The first one is term `first`. */
typedef struct moment_terms {
    const T *x, *dy;
    int first, step, dy_step, volume, jump;
    T mean;
    int power; /* of x - mean: 1, or 2; 0: the term is x itself */
} moment_terms;

static moment_terms terms_of(const T *x, int n, int step)
{
    moment_terms t;
    t.x = x;
    t.dy = 0;
    t.first = 0;
    t.step = t.dy_step = step;
    t.volume = n > 0 ? n : 1;
    t.jump = 0;
    t.mean = 0;
    t.power = 0;
    return t;
}

/* Term i: x, x - mean, (x - mean)^2, or dy times one of the first two. */
static T term_at(const moment_terms *t, int i)
{
    int within = i + t->first, base = 0;
    T term;
    if (within >= t->volume) {
        base = within / t->volume * t->jump;
        within %= t->volume;
    }
    term = t->x[base + within * t->step];
    if (t->power) term -= t->mean;
    if (t->power == 2) term *= term;
    return t->dy ? t->dy[base + within * t->dy_step] * term : term;
}

/* row_sum or column_sum of n terms. */
static double sum_of_terms(const moment_terms *t, int n, int columns)
{
    const int whole = columns ? n / 8 * 8 : n / 128 * 128;
    T eight[8], rest[16] = {0};
    double lane[16] = {0}, total = 0;
    int i, c, k;
    if (columns) {
        for (i = 0; i < whole; i += 8) {
            for (k = 0; k < 8; k++) eight[k] = term_at(t, i + k);
            total += (double)sum_of_eight(eight, 1);
        }
        for (i = whole; i < n; i++) total += (double)term_at(t, i);
        return total;
    }
    for (i = 0; i < whole; i += 128)
        for (c = 0; c < 16; c++) {
            for (k = 0; k < 8; k++) eight[k] = term_at(t, i + c + 16 * k);
            lane[c] += (double)sum_of_eight(eight, 1);
        }
    if (whole) {
        total += sum_of_eight_lanes(lane);
        total += sum_of_eight_lanes(lane + 8);
    }
    for (i = whole; i < n; i++) rest[(i - whole) % 16] += term_at(t, i);
    return total + (double)sum_of_lanes(rest);
}

/* The sum of the terms' first or second powers. */
static double sum_of_powers(moment_terms *t, int n, int columns, int power)
{
    t->power = power;
    return sum_of_terms(t, n, columns);
}

/* Whether the mean is more than four deviations from zero, given the sum of n squares. */
static int mean_is_far(T mean, double square, int n)
{
    return 16 * square < (double)n * (double)mean * (double)mean;
}

/* Corrects a mean that is far from zero. Returns how far the mean is above it; *square becomes the sum of
 * squares. */
static double correct_moments(moment_terms *t, int n, int columns, double *square)
{
    double sum, low, rest;
    t->mean = (T)((double)t->mean + sum_of_powers(t, n, columns, 1) / (double)n);
    sum = sum_of_powers(t, n, columns, 1);
    low = sum / (double)n;
    rest = sum_of_powers(t, n, columns, 2) - (columns ? sum * low : (double)n * low * low);
    *square = rest < 0 ? 0 : rest;
    return low;
}

/* `low` if a number that is so much above `mean` may be rounded to it, else 0. */
static double mean_rounding(T mean, double low)
{
    const double unit = sizeof(T) == 4 ? 1.1920928955078125e-07 : 2.220446049250313e-16;
    return fabs(low) <= unit * fabs((double)mean) ? low : 0;
}

/* The mean and the sum of squared deviations from it. */
static fold_state moments_of(moment_terms t, int n, int columns)
{
    const double sum = sum_of_powers(&t, n, columns, 0);
    double square, miss, rest;
    fold_state s;
    t.mean = n ? (T)(sum / (double)n) : 0;
    square = sum_of_powers(&t, n, columns, 2);
    if (mean_is_far(t.mean, square, n)) {
        const double low = correct_moments(&t, n, columns, &s.second);
        s.first = (double)t.mean + low;
        return s;
    }
    miss = n ? sum / (double)n - (double)t.mean : 0;
    rest = square - (double)n * miss * miss;
    s.first = (double)t.mean + miss;
    s.second = rest < 0 ? 0 : rest;
    return s;
}

static fold_state moments_merge(fold_state a, int before, fold_state b, int count)
{
    const double all = (double)before + (double)count;
    const double fraction = all > 0 ? (double)count / all : 0, apart = b.first - a.first;
    a.first += apart * fraction;
    a.second += b.second + apart * apart * ((double)before * fraction);
    return a;
}

static fold_state moments_elements(const T *x, int n, int step, int columns)
{
    return moments_of(terms_of(x, n, step), n, columns);
}

static void reduce_variance(const T *x, T *y, const int *cut, int correction)
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    const double n = (double)c->count - (double)correction;
    int o;
    for (o = 0; o < c->outputs; o++)
        y[o] = (T)(fold_output(first_of(x, c, o), c, moments_elements, moments_merge).second /
                   (n > 0 ? n : 0));
}

/* Normalises rows of n elements. Without `mean`, by the root of the mean square alone; gamma and beta may
 * be NULL. */
static void norm_rows(const T *x, const T *gamma, const T *beta, T *y, T *mean, T *rstd, int rows,
                      int n, double eps)
{
    const double fraction = 1 / (double)n;
    int r, i;
    for (r = 0; r < rows; r++, x += n, y += n) {
        moment_terms t = terms_of(x, n, 1);
        double square;
        T low = 0;
        if (mean) t.mean = (T)(sum_of_powers(&t, n, 0, 0) * fraction);
        square = sum_of_powers(&t, n, 0, 2);
        if (mean && mean_is_far(t.mean, square, n)) low = (T)correct_moments(&t, n, 0, &square);
        if (mean) mean[r] = t.mean;
        rstd[r] = (T)(1 / sqrt(square * fraction + eps));
        for (i = 0; i < n; i++) {
            T out = ((x[i] - t.mean) - low) * rstd[r];
            if (gamma) out *= gamma[i];
            if (beta || !gamma) out += beta ? beta[i] : 0;
            y[i] = out;
        }
    }
}

/* What rounding removed from the mean of a row, if it is far from zero; else 0. */
static T row_low(const T *x, int n, const T *mean, T rstd)
{
    moment_terms t = terms_of(x, n, 1);
    if (!mean || !mean_is_far(*mean, 1 / ((double)rstd * (double)rstd), 1)) return 0;
    t.mean = *mean;
    return (T)mean_rounding(*mean, sum_of_powers(&t, n, 0, 1) / (double)n);
}

/* dx of a row. */
static void norm_row_grad(const T *x, const T *mean, T rstd, T low, const T *dy, const T *gamma,
                          T *dx, int n)
{
    const T centre = mean ? *mean : 0;
    double sum = 0, product = 0;
    T g_mean, along;
    int from, i;
    for (from = 0; from < n; from += 512) {
        T lane[16] = {0}, other[16] = {0};
        for (i = from; i < n && i < from + 512; i++) {
            const T g = gamma ? dy[i] * gamma[i] : dy[i];
            lane[i % 16] += g;
            other[i % 16] += g * (((x[i] - centre) - low) * rstd);
        }
        sum += (double)sum_of_lanes(lane);
        product += (double)sum_of_lanes(other);
    }
    g_mean = mean ? (T)(sum / (double)n) : 0;
    along = (T)(product / (double)n);
    for (i = 0; i < n; i++) {
        const T xhat = ((x[i] - centre) - low) * rstd, g = gamma ? dy[i] * gamma[i] : dy[i];
        dx[i] = rstd * (g - g_mean - xhat * along);
    }
}

/* Adds the sums over at most 32 rows of dy times the normalised x, and of dy, to `total`. */
static void norm_columns_grad(const T *x, const T *mean, const T *rstd, const T *low, const T *dy,
                              int rows, int n, double *total)
{
    int i, r;
    for (i = 0; i < n; i++) {
        T gamma = 0, beta = 0;
        for (r = 0; r < rows; r++) {
            const T centred = (x[r * n + i] - (mean ? mean[r] : 0)) - low[r];
            gamma += dy[r * n + i] * (centred * rstd[r]);
            beta += dy[r * n + i];
        }
        total[i] += (double)gamma;
        total[n + i] += (double)beta;
    }
}

/* dgamma, and dbeta unless it is NULL: the sums [tiles, 2, n] over tiles. */
static void norm_add_tiles(const double *sums, int tiles, int n, T *dgamma, T *dbeta)
{
    int tile, i;
    for (i = 0; i < n; i++) {
        double some = 0, other = 0;
        for (tile = 0; tile < tiles; tile++) {
            some += sums[(size_t)tile * 2 * (size_t)n + (size_t)i];
            other += sums[((size_t)tile * 2 + 1) * (size_t)n + (size_t)i];
        }
        dgamma[i] = (T)some;
        if (dbeta) dbeta[i] = (T)other;
    }
}

/* dx, and the sums over rows: 32 rows in T, those of a tile of `each` rows in double, then tiles. `sums` has
 * 2 n numbers for each tile. */
static void norm_rows_grad(const T *x, const T *mean, const T *rstd, const T *dy, const T *gamma,
                           T *dx, T *dgamma, T *dbeta, double *sums, int rows, int n, int each)
{
    const int tiles = (rows + each - 1) / each;
    int tile, r, first, i;
    for (tile = 0; tile < tiles; tile++) {
        const int end = rows - tile * each < each ? rows : (tile + 1) * each;
        double *total = sums + (size_t)tile * 2 * (size_t)n;
        for (i = 0; i < 2 * n; i++) total[i] = 0;
        for (first = tile * each; first < end; first += 32) {
            const int last = end - first < 32 ? end : first + 32;
            T low[32];
            for (r = first; r < last; r++) {
                low[r - first] = row_low(x + r * n, n, mean ? mean + r : 0, rstd[r]);
                norm_row_grad(x + r * n, mean ? mean + r : 0, rstd[r], low[r - first], dy + r * n,
                              gamma, dx + r * n, n);
            }
            norm_columns_grad(x + first * n, mean ? mean + first : 0, rstd + first, low,
                              dy + first * n, last - first, n, total);
        }
    }
    norm_add_tiles(sums, tiles, n, dgamma, dbeta);
}

/* Where the pieces of a channel of n elements begin. */
static int piece_begin(int n, int pieces, int piece)
{
    return n / pieces * piece + n % pieces * piece / pieces;
}

/* Elements of a channel from `from` on that are added up together. */
static int elements_together(int volume, int from, int end)
{
    const int left = end - from, image = volume - from % volume;
    const int n = image < left ? image : left;
    if (volume == 1) return left < 64 ? left : 64;
    if (n >= 256) return n < 4096 ? n : 4096;
    return left < 4096 ? left : 4096;
}

/* The elements of a channel, image by image. */
static moment_terms channel_of(const T *x, int c, int channels, int volume)
{
    moment_terms t = terms_of(x + c * volume, volume, 1);
    t.jump = channels * volume;
    return t;
}

static fold_state channel_moments(moment_terms t, int count, int pieces)
{
    fold_state all = {0, 0};
    int piece, from, n;
    for (piece = 0; piece < pieces; piece++) {
        const int begin = piece_begin(count, pieces, piece);
        const int end = piece_begin(count, pieces, piece + 1);
        fold_state some = {0, 0};
        for (from = begin; from < end; from += n) {
            n = elements_together(t.volume, from, end);
            t.first = from;
            some = moments_merge(some, from - begin, moments_of(t, n, t.volume == 1), n);
        }
        all = piece ? moments_merge(all, begin, some, end - begin) : some;
    }
    return all;
}

/* x is [images, channels, volume], and `count` is images times volume. */
static void batch_norm(const T *x, const T *gamma, const T *beta, T *y, T *means, T *variances,
                       int channels, int volume, int count, int pieces, double eps)
{
    int c, from, i, end;
    for (c = 0; c < channels; c++) {
        const fold_state m = channel_moments(channel_of(x, c, channels, volume), count, pieces);
        const T mean = (T)m.first, variance = (T)(m.second / (double)count);
        const double low = mean_is_far(mean, m.second, count) ? m.first - (double)mean : 0;
        const double scale = (double)gamma[c] * (1 / sqrt((double)variance + eps));
        const T shift = (T)((double)beta[c] - low * scale);
        for (from = 0; from < count; from += volume)
            for (i = from * channels + c * volume, end = i + volume; i < end; i++)
                y[i] = (x[i] - mean) * (T)scale + shift;
        means[c] = count ? mean : (T)NAN;
        variances[c] = variance;
    }
}

/* The sum of dy (x - mean)^power over a channel, or of x - mean without dy; of dy where power is 0. */
static double channel_sum(moment_terms t, int count, int pieces)
{
    double all = 0;
    int piece, from, n;
    for (piece = 0; piece < pieces; piece++) {
        const int begin = piece_begin(count, pieces, piece);
        const int end = piece_begin(count, pieces, piece + 1);
        const int columns = t.volume == 1, mean = !columns && t.power == 1 && !t.dy;
        double some = 0;
        for (from = begin; from < end; from += n) {
            double more;
            n = columns ? end - from : elements_together(t.volume, from, end);
            t.first = from;
            more = sum_of_terms(&t, n, columns);
            some += mean ? more / (double)n * (double)n : more;
        }
        all += some;
    }
    return all;
}

static void batch_norm_grad(const T *x, const T *means, const T *variances, const T *dys,
                            const T *gamma, T *dx, T *dgammas, T *dbetas, int channels, int volume,
                            int count, int pieces, double eps)
{
    const double fraction = count ? 1 / (double)count : 0;
    int c, from, i, end;
    for (c = 0; c < channels; c++) {
        const T mean = means[c], variance = variances[c];
        const double rstd = 1 / sqrt((double)variance + eps);
        moment_terms t = channel_of(dys, c, channels, volume);
        const double dy = channel_sum(t, count, pieces);
        double product, low = 0, dgamma, slope;
        T scale, offset;
        t = channel_of(x, c, channels, volume);
        t.mean = mean;
        t.power = 1;
        if (mean_is_far(mean, (double)variance, 1)) low = channel_sum(t, count, pieces);
        t.dy = dys + c * volume;
        product = channel_sum(t, count, pieces);
        low = mean_rounding(mean, low * fraction);
        dgamma = (product - low * dy) * rstd;
        slope = dgamma * fraction * rstd;
        scale = (T)((double)gamma[c] * rstd);
        offset = (T)(dy * fraction - low * slope);
        for (from = 0; from < count; from += volume)
            for (i = from * channels + c * volume, end = i + volume; i < end; i++)
                dx[i] = scale * (dys[i] - offset - (x[i] - mean) * (T)slope);
        dgammas[c] = (T)dgamma;
        dbetas[c] = (T)dy;
    }
}
