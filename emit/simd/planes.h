/* Convolutions whose channels do not mix, and their gradients for the image: each plane of the result is sums over
 * the taps of a plane of the source, which is copied with its padding, so that vectors need no test for the edges. Each
 * element is the sum that plain C computes. */

/* Elements of a slab; taps, of which docs/arithmetic.md has no more. */
enum { simd_slab_size = 16384 / sizeof(T), simd_taps = 768 };

/* What rows of a result read of a plane of the source. Where windows have a stride, column c of a row is number
 * c / stride of phase c % stride, so that what a tap reads lies side by side. In the gradient for the image, zeros are
 * between the elements of dy, and the kernel is flipped. */
typedef struct simd_slab {
    int phase, width;  /* columns of a phase, of all of a row */
    int fits;          /* rows of the result, at most; 0: not even one */
    int at[simd_taps]; /* of a tap */
    T x[simd_slab_size];
} simd_slab;

/* The slab of rows of `columns`, a multiple of simd_lanes. */
static void simd_slab_of(const conv_shape *s, int columns, simd_slab *p)
{
    const int reach = (s->kernel[2] - 1) * s->dilation[2], step = s->transposed ? 1 : s->stride[2];
    int t, left;
    p->fits = 0;
    if (columns > simd_slab_size || reach > simd_slab_size || step > simd_slab_size) return;
    p->phase = columns + (reach / step + simd_lanes - 1) / simd_lanes * simd_lanes;
    if (p->phase > simd_slab_size / step) return;
    p->width = p->phase * step;
    left = simd_slab_size / p->width - 1 - (s->kernel[1] - 1) * s->dilation[1];
    if (left < 0) return;
    p->fits = left / (s->transposed ? 1 : s->stride[1]) + 1;
    for (t = 0; t < s->taps; t++) {
        const int column = t % s->kernel[2] * s->dilation[2];
        p->at[t] =
            t / s->kernel[2] * s->dilation[1] * p->width + column % step * p->phase + column / step;
    }
}

/* to [n] = elements first, first + step, ... of a row of `size`: zeros outside of it. n is a multiple of simd_lanes. */
static inline void simd_fill(const T *row, int size, int first, int step, int n, T *to)
{
    const simd_vector zero = {0};
    const int left = size > first ? size - first : 0;
    int low = first < 0 ? -first : 0, high = left, j;
    if (step > 1) {
        low = (low + step - 1) / step;
        high = (left + step - 1) / step;
    }
    if (high > n) high = n;
    for (j = 0; j < n; j += simd_lanes) *(simd_vector *)(void *)(to + j) = zero;
    j = low;
    for (; step == 1 && j + simd_lanes <= high; j += simd_lanes)
        *(simd_vector *)(void *)(to + j) = *(const simd_vector *)(const void *)(row + first + j);
    for (; j < high; j++) to[j] = row[first + j * step];
}

/* to [n] = elements from `first` on of a row with step - 1 zeros after each of its elements. */
static inline void simd_spread(const T *row, int size, int first, int step, int n, T *to)
{
    const simd_vector zero = {0};
    int i = first > 0 ? (first + step - 1) / step : 0, j;
    for (j = 0; j < n; j += simd_lanes) *(simd_vector *)(void *)(to + j) = zero;
    for (j = i * step - first; i < size && j < n; i++, j += step) to[j] = row[i];
}

/* What rows [row, row + n) of a result read, from a column on. */
static void simd_fill_slab(const conv_shape *s, const T *x, int row, int n, int column,
                           simd_slab *p)
{
    const int back = s->transposed, spread = back ? s->stride[1] : 1;
    const int reach = (s->kernel[1] - 1) * s->dilation[1], step = back ? 1 : s->stride[1];
    const int first = row * step - (back ? reach - s->begin[1] : s->begin[1]);
    int r, q;
    for (r = 0; r <= (n - 1) * step + reach; r++) {
        const int at = first + r, inside = at >= 0 && (spread == 1 || at % spread == 0);
        const int i = spread == 1 || !inside ? at : at / spread;
        const int size = inside && i < s->source[1] ? s->source[2] : 0;
        const T *from = size ? x + i * s->source[2] : x;
        T *to = p->x + r * p->width;
        if (back)
            simd_spread(from, size, column - ((s->kernel[2] - 1) * s->dilation[2] - s->begin[2]),
                        s->stride[2], p->phase, to);
        for (q = 0; !back && q < s->stride[2]; q++)
            simd_fill(from, size, column * s->stride[2] + q - s->begin[2], s->stride[2], p->phase,
                      to + q * p->phase);
    }
}

/* Rows of a plane of the result, whose slab is filled: four vectors side by side, numbered row by row. */
static void simd_plane_taps(const conv_shape *s, const simd_slab *p, const T *w, T bias, int rows,
                            T *y)
{
    const simd_vector zero = {0};
    const int across = s->result[2], step = (s->transposed ? 1 : s->stride[1]) * p->width;
    const int w_step = s->transposed ? -1 : 1;
    int row = 0, column = 0, t, v, j, n;
    if (s->transposed) w += s->taps - 1;
    while (row < rows) {
        const T *x[4] = {p->x, p->x, p->x, p->x};
        T *to[4], sums[4 * simd_lanes];
        int count[4];
        simd_vector *sum = (simd_vector *)(void *)sums;
        simd_vector s0 = bias - zero, s1 = s0, s2 = s0, s3 = s0;
        for (n = 0; n < 4 && row < rows; n++) {
            const int left = across - column;
            x[n] = p->x + row * step + column;
            to[n] = y + row * across + column;
            count[n] = left < simd_lanes ? left : simd_lanes;
            column += simd_lanes;
            row += column >= across;
            if (column >= across) column = 0;
        }
        for (t = 0; t < s->taps; t++) {
            const simd_vector factor = w[t * w_step] - zero;
            const int at = p->at[t];
            s0 = simd_fma(factor, *(const simd_vector *)(const void *)(x[0] + at), s0);
            s1 = simd_fma(factor, *(const simd_vector *)(const void *)(x[1] + at), s1);
            s2 = simd_fma(factor, *(const simd_vector *)(const void *)(x[2] + at), s2);
            s3 = simd_fma(factor, *(const simd_vector *)(const void *)(x[3] + at), s3);
        }
        sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
        for (v = 0; v < n; v++) {
            if (count[v] == simd_lanes)
                *(simd_vector *)(void *)to[v] = sum[v];
            else
                for (j = 0; j < count[v]; j++) to[v][j] = sums[v * simd_lanes + j];
        }
    }
}

/* Elements of a plane of the result as plain C computes them: all, or those that are NaN. */
static void simd_plane_again(const conv_shape *s, const T *w, const T *x, T bias, int all, T *y)
{
    int i, at[3] = {0, 0, 0};
    for (i = 0; i < s->result_size; i++, conv_next(s->result, at))
        if (all || y[i] != y[i]) y[i] = conv_sum(s, w, x, at, bias);
}

/* `bias` may be NULL. */
static void simd_conv_planes(const conv_shape *s, const T *x, const T *w, const T *bias, T *y)
{
    simd_slab p;
    int image, g, r, row;
    simd_slab_of(s, (s->result[2] + simd_lanes - 1) / simd_lanes * simd_lanes, &p);
    for (image = 0; image < s->images; image++)
        for (g = 0; g < s->groups; g++, x += s->source_size)
            for (r = 0; r < s->results; r++, y += s->result_size) {
                const T *own = w + g * s->group_weights + r * s->own_weights;
                const T start = bias ? bias[g * s->results + r] : 0;
                for (row = 0; p.fits && row < s->result[1]; row += p.fits) {
                    const int left = s->result[1] - row, rows = left < p.fits ? left : p.fits;
                    if (!r || left > p.fits || row) simd_fill_slab(s, x, row, rows, 0, &p);
                    simd_plane_taps(s, &p, own, start, rows, y + row * s->result[2]);
                }
                if (!p.fits || !conv_all_finite(s, own))
                    simd_plane_again(s, own, x, start, !p.fits, y);
            }
}
