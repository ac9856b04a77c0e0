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
    int base = 0;
    T term;
    i += t->first;
    if (i >= t->volume) {
        base = i / t->volume * t->jump;
        i %= t->volume;
    }
    term = t->x[base + i * t->step];
    if (t->power) term -= t->mean;
    if (t->power == 2) term *= term;
    return t->dy ? t->dy[base + i * t->dy_step] * term : term;
}

/* row_sum or column_sum of n terms. */
static wide_float sum_of_terms(const moment_terms *t, int n, int columns)
{
    const int step = columns ? 8 : 128, apart = step / 8, whole = n / step * step;
    wide_float lane[16] = {WIDE_ZERO};
    T eight[8], rest[16] = {0};
    int i, c, k;
    for (i = 0; i < whole; i += step)
        for (c = 0; c < apart; c++) {
            for (k = 0; k < 8; k++) eight[k] = term_at(t, i + c + k * apart);
            wide_add(&lane[c], sum_of_eight(eight, 1));
        }
    for (; columns && i < n; i++) wide_add(&lane[0], term_at(t, i));
    if (columns) return lane[0];
    if (whole) {
        sum_of_eight_lanes(lane);
        sum_of_eight_lanes(lane + 8);
        wide_add_wide(&lane[0], &lane[8]);
    }
    for (; i < n; i++) rest[i % 16] += term_at(t, i);
    wide_add(&lane[0], sum_of_lanes(rest));
    return lane[0];
}

/* *sum becomes the sum of the terms' first or second powers. */
static void sum_of_powers(moment_terms *t, int n, int columns, int power, wide_float *sum)
{
    t->power = power;
    *sum = sum_of_terms(t, n, columns);
}

/* *x -= n y^2. Returns whether the result is negative. */
static int subtract_squares(wide_float *x, int n, const wide_float *y)
{
    wide_float product = wide_int(-(int64_t)n);
    wide_multiply(&product, y);
    wide_multiply(&product, y);
    wide_add_wide(x, &product);
    return wide_is_negative(x);
}

/* Whether the mean is more than four deviations from zero, given the sum of n squares: whether n mean^2 exceeds
 * 16 times that. */
static int mean_is_far(const wide_float *mean, const wide_float *square, int n)
{
    wide_float least = *square;
    wide_scale(&least, 4);
    return subtract_squares(&least, n, mean);
}

/* Corrects a mean that is far from zero. Sets *low to how far the mean is above it, and *square to the sum of
 * squares. */
static void correct_moments(moment_terms *t, int n, int columns, wide_float *low,
                            wide_float *square)
{
    const wide_float count = wide_int(n);
    wide_float lost;
    sum_of_powers(t, n, columns, 1, low);
    wide_divide(low, &count);
    wide_add(low, t->mean);
    t->mean = wide_value(low);
    sum_of_powers(t, n, columns, 1, low);
    lost = *low;
    wide_divide(low, &count);
    sum_of_powers(t, n, columns, 2, square);
    if (columns) {
        wide_multiply(&lost, low);
        wide_subtract(square, &lost);
        if (wide_is_negative(square)) *square = wide_int(0);
    } else if (subtract_squares(square, n, low)) {
        *square = wide_int(0);
    }
}

/* *low if a number that is so much above `mean` may be rounded to it, else 0. */
static void round_to_mean(T mean, wide_float *low)
{
    const T unit = (T)(sizeof(T) == 4 ? 1.1920928955078125e-07 : 2.220446049250313e-16);
    const wide_float factor = wide_of(mean < 0 ? -unit : unit);
    const T finite = wide_value(low) - wide_value(low);
    wide_float bound = wide_of(mean);
    wide_multiply(&bound, &factor);
    if (wide_is_negative(low))
        wide_add_wide(&bound, low);
    else
        wide_subtract(&bound, low);
    if (finite != 0 || wide_is_negative(&bound)) *low = wide_int(0);
}

/* The mean and the sum of squared deviations from it. */
static void moments_of(moment_terms t, int n, int columns, fold_state *s)
{
    const wide_float count = wide_int(n);
    wide_float miss, mean;
    sum_of_powers(&t, n, columns, 0, &miss);
    if (n) wide_divide(&miss, &count);
    t.mean = n ? wide_value(&miss) : 0;
    mean = wide_of(t.mean);
    sum_of_powers(&t, n, columns, 2, &s->second);
    if (mean_is_far(&mean, &s->second, n)) {
        correct_moments(&t, n, columns, &s->first, &s->second);
        wide_add(&s->first, t.mean);
        return;
    }
    wide_subtract(&miss, &mean);
    s->first = mean;
    wide_add_wide(&s->first, &miss);
    if (subtract_squares(&s->second, n, &miss)) s->second = wide_int(0);
}

static void moments_merge(fold_state *s, int before, const fold_state *more, int count)
{
    const wide_float all = wide_int(before + count);
    wide_float fraction = wide_int(count), apart = more->first, square, weight = wide_int(before);
    if (before + count > 0) wide_divide(&fraction, &all);
    wide_subtract(&apart, &s->first);
    square = apart;
    wide_multiply(&square, &apart);
    wide_multiply(&weight, &fraction);
    wide_multiply(&square, &weight);
    wide_multiply(&apart, &fraction);
    wide_add_wide(&s->first, &apart);
    wide_add_wide(&square, &more->second);
    wide_add_wide(&s->second, &square);
}

static void moments_elements(const T *x, int n, int step, int columns, fold_state *s)
{
    moments_of(terms_of(x, n, step), n, columns, s);
}

static void reduce_variance(const T *x, T *y, const void *cut, int correction)
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    const int n = c->count - correction;
    fold_state s;
    int o;
    for (o = 0; o < c->outputs; o++) {
        fold_output(x, c, o, moments_elements, moments_merge, &s);
        y[o] = wide_mean(&s.second, n > 0 ? n : 0);
    }
}

/* *x becomes 1 / sqrt(*x + eps), where eps is the bits of a double. */
static void invert_root(wide_float *x, uint64_t eps)
{
    const wide_float more = wide_of_bits(eps);
    wide_add_wide(x, &more);
    wide_root(x);
    wide_invert(x);
}

/* x - mean, or its square. */
static T moment_term(T x, T mean, int square)
{
    x -= mean;
    return square ? x * x : x;
}

/* The sum of fewer than 128 of these terms, in lanes. */
static T sum_of_rest(const T *x, int n, T mean, int square)
{
    T lane[16];
    int i, c;
    for (c = 0; c < 16; c++) {
        T rest = 0;
        for (i = c; i < n; i += 16) rest += moment_term(x[i], mean, square);
        lane[c] = rest;
    }
    return sum_of_lanes(lane);
}

/* *sum becomes the row_sum of these terms. For rows of norms alone, which take less code than sum_of_terms. */
static void sum_of_deviations(const T *x, int n, T mean, int square, wide_float *sum)
{
    const int whole = n / 128 * 128;
    int i, c, k;
    *sum = wide_of(sum_of_rest(x + whole, n - whole, mean, square));
    if (whole) {
        wide_float total[16] = {WIDE_ZERO};
        T eight[8];
        for (i = 0; i < whole; i += 128)
            for (c = 0; c < 16; c++) {
                for (k = 0; k < 8; k++) eight[k] = moment_term(x[i + c + 16 * k], mean, square);
                wide_add(&total[c], sum_of_eight(eight, 1));
            }
        sum_of_eight_lanes(total);
        sum_of_eight_lanes(total + 8);
        wide_add_wide(&total[0], &total[8]);
        wide_add_wide(sum, &total[0]);
    }
}

/* Normalises rows of n elements; if not `centred`, by the root of the mean square alone. gamma, beta, mean and rstd
 * may be NULL. eps is the bits of a double. */
static void norm_rows(const T *x, const T *gamma, const T *beta, T *y, T *means, T *rstd, int rows,
                      int n, int centred, uint64_t eps)
{
    const wide_float count = wide_int(n);
    wide_float fraction = wide_int(n);
    int r, i;
    wide_invert(&fraction);
    for (r = 0; r < rows; r++, x += n, y += n) {
        wide_float square, centre;
        T mean = 0, low = 0, scale;
        if (centred) {
            sum_of_deviations(x, n, 0, 0, &square);
            wide_multiply(&square, &fraction);
            mean = wide_value(&square);
        }
        centre = wide_of(mean);
        sum_of_deviations(x, n, mean, 1, &square);
        if (centred && mean_is_far(&centre, &square, n)) {
            sum_of_deviations(x, n, mean, 0, &square);
            wide_divide(&square, &count);
            wide_add_wide(&square, &centre);
            mean = wide_value(&square);
            sum_of_deviations(x, n, mean, 0, &centre);
            wide_divide(&centre, &count);
            low = wide_value(&centre);
            sum_of_deviations(x, n, mean, 1, &square);
            if (subtract_squares(&square, n, &centre)) square = wide_int(0);
        }
        wide_multiply(&square, &fraction);
        invert_root(&square, eps);
        scale = wide_value(&square);
        if (means) means[r] = mean;
        if (rstd) rstd[r] = scale;
        for (i = 0; i < n; i++) {
            T out = ((x[i] - mean) - low) * scale;
            if (gamma) out *= gamma[i];
            if (beta || !gamma) out += beta ? beta[i] : 0;
            y[i] = out;
        }
    }
}

/* What rounding removed from the mean of a row, if it is far from zero; else 0. */
static T row_low(const T *x, int n, const T *mean, T rstd)
{
    const wide_float factor = wide_of(rstd), count = wide_int(n),
                     centre = wide_of(mean ? *mean : 0);
    wide_float low = factor;
    wide_multiply(&low, &factor);
    wide_invert(&low);
    if (!mean || !mean_is_far(&centre, &low, 1)) return 0;
    sum_of_deviations(x, n, *mean, 0, &low);
    wide_divide(&low, &count);
    round_to_mean(*mean, &low);
    return wide_value(&low);
}

/* dx of a row. */
static void norm_row_grad(const T *x, const T *mean, T rstd, T low, const T *dy, const T *gamma,
                          T *dx, int n)
{
    const T centre = mean ? *mean : 0;
    wide_float sum = WIDE_ZERO, product = WIDE_ZERO;
    T g_mean, along;
    int from, i;
    for (from = 0; from < n; from += 512) {
        T lane[16] = {0}, other[16] = {0};
        for (i = from; i < n && i < from + 512; i++) {
            const T g = gamma ? dy[i] * gamma[i] : dy[i];
            lane[i % 16] += g;
            other[i % 16] += g * (((x[i] - centre) - low) * rstd);
        }
        wide_add(&sum, sum_of_lanes(lane));
        wide_add(&product, sum_of_lanes(other));
    }
    g_mean = mean ? wide_mean(&sum, n) : 0;
    along = wide_mean(&product, n);
    for (i = 0; i < n; i++) {
        const T xhat = ((x[i] - centre) - low) * rstd, g = gamma ? dy[i] * gamma[i] : dy[i];
        dx[i] = rstd * (g - g_mean - xhat * along);
    }
}

/* Adds x to the double with these bits. */
static void add_to_bits(uint64_t *bits, T x)
{
    wide_float sum = wide_of_bits(*bits);
    wide_add(&sum, x);
    *bits = wide_bits(sum);
}

/* Adds the sums over at most 32 rows of dy times the normalised x, and of dy, to `total`, which has the bits of
 * doubles. */
static void norm_columns_grad(const T *x, const T *mean, const T *rstd, const T *low, const T *dy,
                              int rows, int n, uint64_t *total)
{
    int i, r;
    for (i = 0; i < n; i++) {
        T gamma = 0, beta = 0;
        for (r = 0; r < rows; r++) {
            const T centred = (x[r * n + i] - (mean ? mean[r] : 0)) - low[r];
            gamma += dy[r * n + i] * (centred * rstd[r]);
            beta += dy[r * n + i];
        }
        add_to_bits(&total[i], gamma);
        add_to_bits(&total[n + i], beta);
    }
}

/* The sum of the doubles with these bits, which are `step` apart. */
static T sum_of_bits(const uint64_t *bits, int n, int step)
{
    wide_float sum = WIDE_ZERO;
    for (; n > 0; n--, bits += step) {
        const wide_float x = wide_of_bits(*bits);
        wide_add_wide(&sum, &x);
    }
    return wide_value(&sum);
}

/* dgamma, and dbeta unless it is NULL: the sums [tiles, 2, n] over tiles. */
static void norm_add_tiles(const uint64_t *sums, int tiles, int n, T *dgamma, T *dbeta)
{
    int i;
    for (i = 0; i < n; i++) {
        dgamma[i] = sum_of_bits(sums + i, tiles, 2 * n);
        if (dbeta) dbeta[i] = sum_of_bits(sums + n + i, tiles, 2 * n);
    }
}

/* dx, and the sums over rows: 32 rows in T, those of a tile of `each` rows in double, then tiles. `sums` has
 * the bits of 2 n doubles for each tile. */
static void norm_rows_grad(const T *x, const T *mean, const T *rstd, const T *dy, const T *gamma,
                           T *dx, T *dgamma, T *dbeta, void *sums, int rows, int n, int each)
{
    const int tiles = (rows + each - 1) / each;
    uint64_t *total = (uint64_t *)sums;
    int tile, r, first;
    for (tile = 0; tile < tiles; tile++, total += 2 * n) {
        const int end = rows - tile * each < each ? rows : (tile + 1) * each;
        memset(total, 0, 2 * (size_t)n * sizeof *total);
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
    norm_add_tiles((const uint64_t *)sums, tiles, n, dgamma, dbeta);
}
