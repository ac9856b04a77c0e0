/* Convolutions: pixels of the result side by side. Each element is the sum that plain C computes, in its
 * order; where it is a NaN and padding was read, plain C computes it. */

/* Up to simd_width pixels of the result that follow each other. */
typedef struct simd_pixels {
    int n, padded;            /* whether some tap read padding */
    int base[3 * simd_width]; /* of each dimension: where tap 0 lies in the source */
    int at[3 * simd_width];   /* in the result */
} simd_pixels;

/* Where pixels read the source at a tap; -1: padding. */
typedef struct simd_places {
    int at[simd_width];
    int dense; /* side by side, without padding */
} simd_places;

static simd_pixels simd_pixels_of(const conv_shape *s, int first, int n)
{
    simd_pixels p;
    int d, j;
    p.n = n;
    p.padded = 0;
    for (j = 0; j < simd_width; j++) {
        int rest = j < n ? first + j : first;
        for (d = 2; d >= 0; d--) {
            const int at = rest % s->result[d];
            rest /= s->result[d];
            p.at[d * simd_width + j] = at;
            p.base[d * simd_width + j] =
                s->transposed ? at + s->begin[d] : at * s->stride[d] - s->begin[d];
        }
    }
    return p;
}

/* Places beyond the last pixel are padding. */
static void simd_find_places(const conv_shape *s, simd_pixels *p, const int *tap, simd_places *to)
{
    const int sign = s->transposed ? -1 : 1, n = p->n;
    const int d0 = sign * tap[0] * s->dilation[0], d1 = sign * tap[1] * s->dilation[1];
    const int d2 = sign * tap[2] * s->dilation[2];
    const int s0 = s->source[0], s1 = s->source[1], s2 = s->source[2];
    const int *base = p->base;
    int j, apart = 0, padding = 0;
    for (j = 0; j < simd_width; j++) {
        const int i0 = base[j] + d0, i1 = base[simd_width + j] + d1;
        const int i2 = base[2 * simd_width + j] + d2;
        const int inside = (i0 >= 0) & (i0 < s0) & (i1 >= 0) & (i1 < s1) & (i2 >= 0) & (i2 < s2) &
                           (j < n);
        to->at[j] = inside ? (i0 * s1 + i1) * s2 + i2 : -1;
        padding |= !inside & (j < n);
    }
    for (j = 0; j < simd_width; j++) apart |= to->at[j] != to->at[0] + j;
    p->padded |= padding;
    to->dense = !apart && to->at[0] >= 0;
}

/* y = the elements at these places, zeros for padding. */
static inline void simd_gather(const T *x, const simd_places *p, T *y)
{
    int j;
    for (j = 0; j < simd_width; j++) y[j] = p->at[j] < 0 ? 0 : x[p->at[j]];
}

/* Elements that are NaN, of a channel: y is its first one. */
static void simd_conv_again(const conv_shape *s, const simd_pixels *p, const T *w, const T *x,
                            T bias, T *y, int first)
{
    int j, d, at[3];
    for (j = 0; j < p->n; j++) {
        if (y[first + j] == y[first + j]) continue;
        for (d = 0; d < 3; d++) at[d] = p->at[d * simd_width + j];
        y[first + j] = conv_sum(s, w, x, at, bias);
    }
}

/* Pixels of all channels of a group: products of up to 128 terms, which are taps times channels. */
static void simd_conv_product(const conv_shape *s, const T *x, const T *w, const T *bias, T *y,
                              int first, int n)
{
    const int all = s->used[0] * s->used[1] * s->used[2];
    T panel[128 * simd_width];
    int at[128], tap[3], t = 0, c = 0, r, j, terms = 0, k = 0;
    simd_pixels p = simd_pixels_of(s, first, n);
    simd_places places;
    places.dense = 0;
    do {
        int depth = 0;
        for (; depth < 128 && t < all; depth++) {
            const T *from = x + c * s->source_size;
            T *to = panel + depth * simd_width;
            if (c == 0) {
                k = conv_tap(s, t, tap);
                simd_find_places(s, &p, tap, &places);
            }
            at[depth] = c * s->channel_weights + k;
            if (places.dense)
                for (j = 0; j < simd_width; j++) to[j] = from[places.at[0] + j];
            else
                simd_gather(from, &places, to);
            if (++c == s->channels) {
                c = 0;
                t++;
            }
        }
        for (r = 0; r < s->results; r += 4) {
            const int rows = s->results - r < 4 ? s->results - r : 4;
            T sum[4 * simd_width] = {0}, *own = y + r * s->result_size + first;
            int i;
            for (i = 0; i < rows && (!terms || s->planes); i++)
                for (j = 0; j < n; j++)
                    sum[i * simd_width + j] = terms      ? own[i * s->result_size + j]
                                              : !bias    ? 0
                                              : s->planes ? bias[r + i]
                                                         : bias[r + i] + 0;
            simd_block(w + r * s->own_weights, s->own_weights, at, panel, simd_width, rows, depth,
                       sum);
            simd_store(sum, own, s->result_size, 1, rows, n, terms && !s->planes);
        }
        terms += depth;
    } while (t < all);
    for (r = 0; r < s->results && p.padded; r++)
        simd_conv_again(s, &p, w + r * s->own_weights, x, bias ? bias[r] : 0,
                        y + r * s->result_size, first);
}

/* Pixels of an image's channels, each of which is a sum over up to 32 taps of one channel. */
static void simd_conv_taps(const conv_shape *s, const T *x, const T *w, const T *bias, T *y,
                           int first, int n)
{
    const int all = s->used[0] * s->used[1] * s->used[2];
    simd_pixels p = simd_pixels_of(s, first, n);
    simd_places places[32];
    int k[32], t, g, r, j, tap[3];
    for (t = 0; t < all; t++) {
        k[t] = conv_tap(s, t, tap);
        simd_find_places(s, &p, tap, &places[t]);
    }
    for (g = 0; g < s->groups; g++, x += s->source_size)
        for (r = 0; r < s->results; r++, y += s->result_size) {
            const T *own = w + g * s->group_weights + r * s->own_weights;
            const T start = bias ? bias[g * s->results + r] : 0;
            const simd_vector zero = {0};
            simd_vector s0 = start - zero, s1 = s0;
            T sum[simd_width];
            for (t = 0; t < all; t++) {
                const simd_vector weight = own[k[t]] - zero;
                T some[simd_width];
                const T *at = x + places[t].at[0];
                const simd_vector *two;
                if (!places[t].dense) {
                    simd_gather(x, &places[t], some);
                    at = some;
                }
                two = (const simd_vector *)(const void *)at;
                s0 = simd_fma(weight, two[0], s0);
                s1 = simd_fma(weight, two[1], s1);
            }
            memcpy(sum, &s0, SIMD_BYTES);
            memcpy(sum + simd_lanes, &s1, SIMD_BYTES);
            for (j = 0; j < n; j++) y[first + j] = sum[j];
            if (p.padded) simd_conv_again(s, &p, own, x, start, y, first);
        }
}

static void conv_gather(const T *x, const T *w, const T *bias, T *y, const int *shape)
{
    const conv_shape *s = (const conv_shape *)(const void *)shape;
    const int strides = s->transposed && s->stride[0] * s->stride[1] * s->stride[2] > 1;
    const int taps = s->planes && s->channels == 1 && s->used[0] * s->used[1] * s->used[2] <= 32;
    int n, g, r, i;
    for (n = 0; n < s->images; n++) {
        for (i = 0; taps && !strides && i < s->result_size; i += simd_width)
            simd_conv_taps(s, x, w, bias, y, i,
                           s->result_size - i < simd_width ? s->result_size - i : simd_width);
        for (g = 0; g < s->groups; g++) {
            const T *own = w + g * s->group_weights, *first = bias ? bias + g * s->results : 0;
            for (r = 0; strides && r < s->results; r++)
                conv_channel(s, own + r * s->own_weights, x, first ? first[r] : 0,
                             y + r * s->result_size);
            for (i = 0; !taps && !strides && i < s->result_size; i += simd_width)
                simd_conv_product(s, x, own, first, y, i,
                                  s->result_size - i < simd_width ? s->result_size - i
                                                                  : simd_width);
            x += s->channels * s->source_size;
            y += s->results * s->result_size;
        }
    }
}
