/* Normalisation by the moments of channels. */

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
    fold_state all = {WIDE_ZERO, WIDE_ZERO};
    int piece, from, n;
    for (piece = 0; piece < pieces; piece++) {
        const int begin = piece_begin(count, pieces, piece);
        const int end = piece_begin(count, pieces, piece + 1);
        fold_state some = {WIDE_ZERO, WIDE_ZERO}, more;
        for (from = begin; from < end; from += n) {
            n = elements_together(t.volume, from, end);
            t.first = from;
            moments_of(t, n, t.volume == 1, &more);
            moments_merge(&some, from - begin, &more, n);
        }
        if (piece)
            moments_merge(&all, begin, &some, end - begin);
        else
            all = some;
    }
    return all;
}

/* *x -= a b. */
static void subtract_product(wide_float *x, wide_float a, const wide_float *b)
{
    wide_multiply(&a, b);
    wide_subtract(x, &a);
}

/* x is [images, channels, volume], and `count` is images times volume. eps is the bits of a double. */
static void batch_norm(const T *x, const T *gamma, const T *beta, T *y, T *means, T *variances,
                       int channels, int volume, int count, int pieces, uint64_t eps)
{
    int c, from, i, end;
    for (c = 0; c < channels; c++) {
        fold_state m = channel_moments(channel_of(x, c, channels, volume), count, pieces);
        const wide_float square = m.second;
        const T mean = wide_value(&m.first), variance = wide_mean(&m.second, count);
        const wide_float centre = wide_of(mean);
        wide_float rstd = wide_of(variance), scale = wide_of(gamma[c]), shift = wide_of(beta[c]);
        T factor, offset;
        invert_root(&rstd, eps);
        wide_multiply(&scale, &rstd);
        wide_subtract(&m.first, &centre);
        if (!mean_is_far(&centre, &square, count)) m.first = wide_int(0);
        subtract_product(&shift, m.first, &scale);
        factor = wide_value(&scale);
        offset = wide_value(&shift);
        for (from = 0; from < count; from += volume)
            for (i = from * channels + c * volume, end = i + volume; i < end; i++)
                y[i] = (x[i] - mean) * factor + offset;
        means[c] = count ? mean : (T)NAN;
        variances[c] = variance;
    }
}

/* The sum of dy (x - mean)^power over a channel, or of x - mean without dy; of dy where power is 0. */
static wide_float channel_sum(moment_terms t, int count, int pieces)
{
    wide_float all = WIDE_ZERO;
    int piece, from, n;
    for (piece = 0; piece < pieces; piece++) {
        const int begin = piece_begin(count, pieces, piece);
        const int end = piece_begin(count, pieces, piece + 1);
        const int columns = t.volume == 1, mean = !columns && t.power == 1 && !t.dy;
        wide_float some = WIDE_ZERO;
        for (from = begin; from < end; from += n) {
            wide_float more, terms;
            n = columns ? end - from : elements_together(t.volume, from, end);
            t.first = from;
            more = sum_of_terms(&t, n, columns);
            terms = wide_int(n);
            if (mean) wide_divide(&more, &terms);
            if (mean) wide_multiply(&more, &terms);
            wide_add_wide(&some, &more);
        }
        wide_add_wide(&all, &some);
    }
    return all;
}

static void batch_norm_grad(const T *x, const T *means, const T *variances, const T *dys,
                            const T *gamma, T *dx, T *dgammas, T *dbetas, int channels, int volume,
                            int count, int pieces, uint64_t eps)
{
    const wide_float fraction = count ? wide_part(count) : wide_int(0);
    int c, from, i, end;
    for (c = 0; c < channels; c++) {
        const T mean = means[c];
        const wide_float variance = wide_of(variances[c]), centre = wide_of(mean);
        moment_terms t = channel_of(dys, c, channels, volume);
        const wide_float dy = channel_sum(t, count, pieces);
        wide_float rstd = variance, product, low = wide_int(0), slope, scale = wide_of(gamma[c]),
                   offset = dy;
        T factor, shift, along;
        invert_root(&rstd, eps);
        t = channel_of(x, c, channels, volume);
        t.mean = mean;
        t.power = 1;
        if (mean_is_far(&centre, &variance, 1)) low = channel_sum(t, count, pieces);
        t.dy = dys + c * volume;
        product = channel_sum(t, count, pieces);
        wide_multiply(&low, &fraction);
        round_to_mean(mean, &low);
        subtract_product(&product, low, &dy);
        wide_multiply(&product, &rstd);
        slope = product;
        wide_multiply(&slope, &fraction);
        wide_multiply(&slope, &rstd);
        wide_multiply(&scale, &rstd);
        wide_multiply(&offset, &fraction);
        subtract_product(&offset, low, &slope);
        factor = wide_value(&scale);
        shift = wide_value(&offset);
        along = wide_value(&slope);
        for (from = 0; from < count; from += volume)
            for (i = from * channels + c * volume, end = i + volume; i < end; i++)
                dx[i] = factor * (dys[i] - shift - (x[i] - mean) * along);
        dgammas[c] = wide_value(&product);
        dbetas[c] = wide_value(&dy);
    }
}
