/* Convolutions: pixels of the result side by side. Each element is the sum that plain C computes, in its
 * order; where it is a NaN and padding was read, plain C computes it. */

/* Pixels of the result at which the same taps read the source: where that is dy and windows have a
 * stride, only every stride-th; else all. */
typedef struct simd_class {
    int first[3], step[3], size[3], n;
} simd_class;

/* Up to simd_width pixels of a class that follow each other, image after image. */
typedef struct simd_pixels {
    int n, padded;            /* whether some tap read padding */
    int base[3 * simd_width]; /* of each dimension: where offset 0 lies in the source */
    int at[3 * simd_width];   /* in the result */
    int image[simd_width];    /* where the pixel's image begins in the source */
    int to[simd_width];       /* in a channel of the first image of the result */
    int dense;                /* those are side by side */
    int linear,
        from; /* whether places of the source are, at each tap; where the first is at offset 0 */
    int low[3], high[3]; /* the least and the largest base of each dimension */
} simd_pixels;

/* Where pixels read the source at a tap; -1: padding. */
typedef struct simd_places {
    int at[simd_width];
    int dense; /* side by side, without padding */
    int from;  /* side by side but for padding, all within the source: place of the first; or -1 */
    T mask[simd_width]; /* bits: ones where a place is inside */
} simd_places;

/* Class i; there are as many as elements of a window's stride where the source is dy, else one. */
static simd_class simd_class_of(const conv_shape *s, int i)
{
    simd_class k;
    int d;
    k.n = 1;
    for (d = 2; d >= 0; d--) {
        k.step[d] = s->transposed ? s->stride[d] : 1;
        k.first[d] = i % k.step[d];
        i /= k.step[d];
        k.size[d] = (s->result[d] - k.first[d] + k.step[d] - 1) / k.step[d];
        k.n *= k.size[d];
    }
    return k;
}

static simd_pixels simd_pixels_of(const conv_shape *s, const simd_class *k, int first, int n)
{
    const int x_step = s->groups * s->channels * s->source_size;
    const int y_step = s->groups * s->results * s->result_size;
    simd_pixels p;
    int d, j, rest = first % k->n, image = first / k->n, left = k->n - rest, i[3];
    p.n = n;
    p.padded = p.from = 0;
    p.dense = p.linear = 1;
    for (d = 2; d >= 0; d--) {
        i[d] = rest % k->size[d];
        rest /= k->size[d];
        p.low[d] = p.high[d] = s->transposed ? i[d] : i[d] * s->stride[d] - s->begin[d];
    }
    for (j = 0; j < simd_width; j++) {
        int from = 0;
        for (d = 0; d < 3; d++) {
            const int base = s->transposed ? i[d] : i[d] * s->stride[d] - s->begin[d];
            p.at[d * simd_width + j] = k->first[d] + i[d] * k->step[d];
            p.base[d * simd_width + j] = base;
            p.low[d] = base < p.low[d] ? base : p.low[d];
            p.high[d] = base > p.high[d] ? base : p.high[d];
            from = from * s->source[d] + base;
        }
        p.image[j] = image * x_step;
        p.to[j] = image * y_step + (p.at[j] * s->result[1] + p.at[simd_width + j]) * s->result[2] +
                  p.at[2 * simd_width + j];
        from += p.image[j];
        if (!j) p.from = from;
        p.linear &= j >= n || from == p.from + j;
        p.dense &= j >= n || p.to[j] == p.to[0] + j;
        if (j + 1 >= n) continue; /* the last one again */
        conv_next(k->size, i);
        image += !--left;
        if (!left) left = k->n;
    }
    return p;
}

/* Tap t of the used ones, in the order of conv_sum. Returns its place in the kernel. */
static int simd_tap(const conv_shape *s, int t, int *tap)
{
    int d;
    for (d = 2; d >= 0; d--) {
        tap[d] = s->first[d] + t % s->used[d];
        t /= s->used[d];
    }
    return (tap[0] * s->kernel[1] + tap[1]) * s->kernel[2] + tap[2];
}

/* How far a tap is from the base; 0 if the class does not read it. */
static int simd_offset(const conv_shape *s, const simd_class *k, const int *tap, int *offset)
{
    int d;
    for (d = 0; d < 3; d++) {
        offset[d] = tap[d] * s->dilation[d];
        if (!s->transposed) continue;
        offset[d] = k->first[d] + s->begin[d] - offset[d];
        if (offset[d] % s->stride[d]) return 0;
        offset[d] /= s->stride[d];
    }
    return 1;
}

/* Places beyond the last pixel are padding. */
static void simd_find_places(const conv_shape *s, simd_pixels *p, const int *offset,
                             simd_places *to)
{
    const int d0 = offset[0], d1 = offset[1], d2 = offset[2], n = p->n;
    const int s0 = s->source[0], s1 = s->source[1], s2 = s->source[2];
    const int *base = p->base;
    const int first = p->from + (d0 * s1 + d1) * s2 + d2;
    int j, apart = 0, outside = 0, from = -1;
    to->from = -1;
    to->dense = p->linear && n == simd_width && p->low[0] + d0 >= 0 && p->high[0] + d0 < s0 &&
                p->low[1] + d1 >= 0 && p->high[1] + d1 < s1 && p->low[2] + d2 >= 0 &&
                p->high[2] + d2 < s2;
    if (to->dense) {
        for (j = 0; j < simd_width; j++) to->at[j] = first + j;
        return;
    }
    for (j = 0; j < simd_width; j++) {
        const int i0 = base[j] + d0, i1 = base[simd_width + j] + d1;
        const int i2 = base[2 * simd_width + j] + d2;
        const int inside =
            (i0 >= 0) & (i0 < s0) & (i1 >= 0) & (i1 < s1) & (i2 >= 0) & (i2 < s2) & (j < n);
        to->at[j] = inside ? p->image[j] + (i0 * s1 + i1) * s2 + i2 : -1;
        p->padded |= !inside & (j < n);
        outside |= !inside;
    }
    for (j = 0; j < simd_width && !p->linear; j++) apart |= to->at[j] != to->at[0] + j;
    to->dense = !apart && !outside;
    if (to->dense) return;
    for (j = 0; j < simd_width; j++) memset(&to->mask[j], to->at[j] < 0 ? 0 : 255, sizeof(T));
    if (p->linear) {
        from = first;
    } else {
        for (j = 0; j < simd_width; j++)
            if (to->at[j] >= 0) from = to->at[j] - j;
        for (j = 0; j < simd_width; j++)
            if (to->at[j] >= 0 && to->at[j] - j != from) from = -1;
    }
    if (from >= p->image[0] && from + simd_width <= p->image[0] + s0 * s1 * s2) to->from = from;
}

/* y = the elements at these places, zeros for padding. */
static inline void simd_gather(const T *x, const simd_places *p, T *y)
{
    const simd_bits *mask = (const simd_bits *)(const void *)p->mask;
    simd_bits *to = (simd_bits *)(void *)y;
    int j;
    if (p->from >= 0) {
        const simd_bits *two = (const simd_bits *)(const void *)(x + p->from);
        to[0] = two[0] & mask[0];
        to[1] = two[1] & mask[1];
        return;
    }
    for (j = 0; j < simd_width; j++) y[j] = p->at[j] < 0 ? 0 : x[p->at[j]];
}

/* Elements that are NaN, of a channel. */
static void simd_conv_again(const conv_shape *s, const simd_pixels *p, const T *w, const T *x,
                            T bias, T *y)
{
    int j, d, at[3];
    for (j = 0; j < p->n; j++) {
        if (y[p->to[j]] == y[p->to[j]]) continue;
        for (d = 0; d < 3; d++) at[d] = p->at[d * simd_width + j];
        y[p->to[j]] = conv_sum(s, w, x + p->image[j], at, bias);
    }
}

/* Columns of the source at taps and channels from *t and *c on: up to 128 terms, whose weights are `at`
 * elements from those of a channel of the result. Returns how many there are. */
static int simd_conv_pack(const conv_shape *s, const simd_class *k, simd_pixels *p, const T *x,
                          simd_places *places, int *t, int *c, T *panel, int *at)
{
    const int all = s->used[0] * s->used[1] * s->used[2];
    int depth = 0, tap[3], offset[3], j;
    while (depth < 128 && *t < all) {
        const int place = simd_tap(s, *t, tap);
        const int reads = simd_offset(s, k, tap, offset);
        if (reads && *c == 0) simd_find_places(s, p, offset, places);
        for (; reads && *c < s->channels && depth < 128; ++*c, depth++) {
            const T *from = x + *c * s->source_size;
            T *to = panel + depth * simd_width;
            at[depth] = *c * s->channel_weights + place;
            if (places->dense)
                for (j = 0; j < simd_width; j++) to[j] = from[places->at[0] + j];
            else
                simd_gather(from, places, to);
        }
        if (reads && *c < s->channels) break;
        *c = 0;
        ++*t;
    }
    return depth;
}

/* Pixels of all channels of a group: products of up to 128 terms, which are taps times channels. */
static void simd_conv_product(const conv_shape *s, const simd_class *k, const T *x, const T *w,
                              const T *bias, T *y, int first, int n)
{
    const int all = s->used[0] * s->used[1] * s->used[2];
    T panel[128 * simd_width];
    int at[128], t = 0, c = 0, r, i, j, terms = 0;
    simd_pixels p = simd_pixels_of(s, k, first, n);
    simd_places places;
    places.dense = 0;
    places.from = -1;
    at[0] = 0; /* where a class reads no tap */
    panel[0] = 0;
    do {
        const int depth = simd_conv_pack(s, k, &p, x, &places, &t, &c, panel, at);
        if (terms && !depth) break;
        for (r = 0; r < s->results; r += simd_rows) {
            const int rows = s->results - r < simd_rows ? s->results - r : simd_rows;
            T sum[simd_rows * simd_width] = {0}, *own = y + r * s->result_size;
            for (i = 0; i < rows && bias && !terms; i++)
                for (j = 0; j < n; j++) sum[i * simd_width + j] = bias[r + i] + 0;
            simd_block(w + r * s->own_weights, s->own_weights, at, panel, simd_width, rows, depth,
                       sum);
            if (p.dense) simd_store(sum, own + p.to[0], s->result_size, 1, rows, n, terms);
            for (i = 0; i < rows && !p.dense; i++)
                for (j = 0; j < n; j++) {
                    T *to = own + i * s->result_size + p.to[j];
                    *to = terms ? *to + sum[i * simd_width + j] : sum[i * simd_width + j];
                }
        }
        terms += depth;
    } while (t < all);
    for (r = 0; r < s->results && p.padded; r++)
        simd_conv_again(s, &p, w + r * s->own_weights, x, bias ? bias[r] : 0,
                        y + r * s->result_size);
}

static void simd_conv(const conv_shape *s, const T *x, const T *w, const T *bias, T *y)
{
    const int classes = s->transposed ? s->stride[0] * s->stride[1] * s->stride[2] : 1;
    const int x_step = s->channels * s->source_size, y_step = s->results * s->result_size;
    int c, i, g;
    if (s->planes) {
        simd_conv_planes(s, x, w, bias, y);
        return;
    }
    for (c = 0; c < classes; c++) {
        const simd_class k = simd_class_of(s, c);
        const int all = s->images * k.n;
        for (i = 0; i < all; i += simd_width)
            for (g = 0; g < s->groups; g++)
                simd_conv_product(s, &k, x + g * x_step, w + g * s->group_weights,
                                  bias ? bias + g * s->results : 0, y + g * y_step, i,
                                  all - i < simd_width ? all - i : simd_width);
    }
}

static void conv_gather(const T *x, const T *w, const T *bias, T *y, const void *shape)
{
    const conv_shape *s = (const conv_shape *)(const void *)shape;
    simd_conv(s, x, w, bias, y);
}

static void conv_gather_back(const T *x, const T *w, const T *bias, T *y, const void *shape)
{
    const conv_shape *s = (const conv_shape *)(const void *)shape;
    simd_conv(s, x, w, bias, y);
}
