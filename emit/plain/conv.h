/* Convolutions. All have three spatial dimensions; those that an image lacks come first, with size
 * 1. Each element of a result is a sum of weights and of elements of the source, which is the image,
 * or dy in the gradient for the image. */

typedef struct conv_shape {
    int images, groups, channels,
        results;                        /* channels of the source and of the result, of a group */
    int transposed, planes;             /* the gradient for the image; sums over taps alone */
    int finite;                         /* no weight is infinite or NaN */
    int source_size, result_size, taps; /* elements of a channel; taps of the kernel */
    int group_weights, channel_weights, own_weights; /* steps in w: from group to group, between
                                                        channels of the source, of the result */
    int source[3], result[3], kernel[3], stride[3], dilation[3], begin[3];
    int first[3], used[3]; /* taps that some window reads */
} conv_shape;

/* The element of the source that the result reads at a tap; -1: padding; -2: none, by the stride. */
static int conv_place(const conv_shape *s, const int *at, const int *tap)
{
    int d, i, place = 0, outside = 0;
    for (d = 0; d < 3; d++) {
        if (s->transposed) {
            i = at[d] + s->begin[d] - tap[d] * s->dilation[d];
            if (i % s->stride[d]) return -2;
            i /= s->stride[d];
        } else {
            i = at[d] * s->stride[d] + tap[d] * s->dilation[d] - s->begin[d];
        }
        if (i < 0 || i >= s->source[d])
            outside = 1;
        else
            place = place * s->source[d] + i;
    }
    return outside ? -1 : place;
}

/* Advances to the next element of a volume. */
static void conv_next(const int *size, int *at)
{
    int d;
    for (d = 2; d >= 0; d--) {
        if (++at[d] < size[d]) return;
        at[d] = 0;
    }
}

/* The element of the source that the result reads along a dimension, where the tap is `offset` elements from the
 * window's begin; -1: padding; -2: none, by the stride. */
static int conv_along(int transposed, int size, int stride, int at, int offset)
{
    int i = at * stride + offset;
    if (transposed) {
        i = at - offset;
        if (i % stride) return -2;
        i /= stride;
    }
    return i < 0 || i >= size ? -1 : i;
}

static int conv_all_finite(const conv_shape *s, const T *w)
{
    int c, t, all = 1;
    for (c = 0; c < s->channels; c++)
        for (t = 0; t < s->taps; t++) {
            const T x = w[c * s->channel_weights + t];
            all &= x - x == 0;
        }
    return all;
}

/* One element of the result, without padding if `inside`: the terms of each tap. Sums over taps alone of the gradient
 * for the image go backwards; others are cut into pieces of 128 terms. *padded: whether a tap reads padding. */
static T conv_terms(const conv_shape *s, const T *w, const T *x, const int *at, T bias, int inside,
                    int *padded)
{
    const int back = s->planes && s->transposed, whole = s->planes || inside;
    T total = 0, piece = whole ? bias : bias + 0;
    int i, j, k, c, terms = 0, pieces = 0;
    for (i = 0; i < s->used[0]; i++) {
        const int tap0 = s->first[0] + (back ? s->used[0] - 1 - i : i);
        const int in0 = conv_along(s->transposed, s->source[0], s->stride[0], at[0],
                                   tap0 * s->dilation[0] - s->begin[0]);
        for (j = 0; j < s->used[1]; j++) {
            const int tap1 = s->first[1] + (back ? s->used[1] - 1 - j : j);
            const int in1 = conv_along(s->transposed, s->source[1], s->stride[1], at[1],
                                       tap1 * s->dilation[1] - s->begin[1]);
            for (k = 0; k < s->used[2]; k++) {
                const int tap2 = s->first[2] + (back ? s->used[2] - 1 - k : k);
                const int in2 = conv_along(s->transposed, s->source[2], s->stride[2], at[2],
                                           tap2 * s->dilation[2] - s->begin[2]);
                const int outside = in0 < 0 || in1 < 0 || in2 < 0;
                const T *own = w + (tap0 * s->kernel[1] + tap1) * s->kernel[2] + tap2;
                const T *from = outside ? x : x + (in0 * s->source[1] + in1) * s->source[2] + in2;
                if (outside && inside) continue;
                if ((in0 == -2 || in1 == -2 || in2 == -2) && !s->planes) continue;
                if (outside) *padded = 1;
                for (c = 0; c < s->channels; c++) {
                    if (terms == 128 && !whole) {
                        total = pieces++ ? total + piece : piece;
                        piece = 0;
                        terms = 0;
                    }
                    piece = fma(own[c * s->channel_weights], outside ? 0 : from[c * s->source_size],
                                piece);
                    terms++;
                }
            }
        }
    }
    return pieces ? total + piece : piece;
}

/* One element of the result. Padding is multiplied as zeros; but if a weight is not finite, a NaN is
 * computed again without it. */
static T conv_sum(const conv_shape *s, const T *w, const T *x, const int *at, T bias)
{
    int padded = 0;
    T sum = conv_terms(s, w, x, at, bias, 0, &padded);
    if (!s->finite && sum != sum && padded && !conv_all_finite(s, w))
        sum = conv_terms(s, w, x, at, bias, 1, &padded);
    return sum;
}

/* The gradient for the image. `bias` may be NULL. */
static void conv_gather_back(const T *x, const T *w, const T *bias, T *y, const void *shape)
{
    const conv_shape *s = (const conv_shape *)(const void *)shape;
    int n, g, r, at[3];
    for (n = 0; n < s->images; n++)
        for (g = 0; g < s->groups; g++, x += s->channels * s->source_size)
            for (r = 0; r < s->results; r++) {
                const T *own = w + g * s->group_weights + r * s->own_weights;
                const T start = bias ? bias[g * s->results + r] : 0;
                for (at[0] = 0; at[0] < s->result[0]; at[0]++)
                    for (at[1] = 0; at[1] < s->result[1]; at[1]++)
                        for (at[2] = 0; at[2] < s->result[2]; at[2]++)
                            *y++ = conv_sum(s, own, x, at, start);
            }
}

/* ---- Convolutions, up to 32 elements of a row at a time ---- */

/* Adds a tap's products to n elements of a row, which read elements `at`, at + step and so on of a row of the source.
 * Returns whether padding was read, which is left out if `inside`. */
static int conv_add(T *sum, int n, T w, const T *x, int size, int at, int step, int inside)
{
    int p, padded = 0;
    for (p = 0; p < n; p++, at += step) {
        const int outside = at < 0 || at >= size;
        padded |= outside;
        if (!outside || !inside) sum[p] = fma(w, outside ? 0 : x[at], sum[p]);
    }
    return padded;
}

/* n elements of a row of the result, the first of which is `at`. Returns whether padding was read. */
static int conv_row(const conv_shape *s, const T *w, const T *x, const int *at, int n, T bias,
                    int inside, T *y)
{
    const int whole = s->planes || inside;
    T total[32];
    int i, j, k, c, p, terms = 0, padded = 0;
    if (!whole) bias += 0;
    for (p = 0; p < n; p++) {
        y[p] = bias;
        total[p] = (T)-0.0; /* which no sum is changed by */
    }
    for (i = s->first[0]; i < s->first[0] + s->used[0]; i++) {
        const int in0 = at[0] * s->stride[0] + i * s->dilation[0] - s->begin[0];
        for (j = s->first[1]; j < s->first[1] + s->used[1]; j++) {
            const int in1 = at[1] * s->stride[1] + j * s->dilation[1] - s->begin[1];
            const int outside = in0 < 0 || in0 >= s->source[0] || in1 < 0 || in1 >= s->source[1];
            const T *row = outside ? x : x + (in0 * s->source[1] + in1) * s->source[2];
            for (k = s->first[2]; k < s->first[2] + s->used[2]; k++) {
                const int in2 = at[2] * s->stride[2] + k * s->dilation[2] - s->begin[2];
                const T *own = w + (i * s->kernel[1] + j) * s->kernel[2] + k;
                for (c = 0; c < s->channels; c++) {
                    if (terms == 128) {
                        for (p = 0; p < n; p++) {
                            total[p] += y[p];
                            y[p] = 0;
                        }
                        terms = 0;
                    }
                    terms += !whole;
                    padded |= conv_add(y, n, own[c * s->channel_weights], row + c * s->source_size,
                                       outside ? 0 : s->source[2], in2, s->stride[2], inside);
                }
            }
        }
    }
    for (p = 0; p < n; p++) y[p] = total[p] + y[p];
    return padded;
}

/* Computes elements of a row that are NaN again without padding, where a weight is not finite. */
static void conv_repair(const conv_shape *s, const T *w, const T *x, const int *at, int n, T bias,
                        T *y)
{
    int p, one[3];
    one[0] = at[0];
    one[1] = at[1];
    for (p = 0; p < n; p++) {
        one[2] = at[2] + p;
        if (y[p] != y[p] && !conv_all_finite(s, w)) conv_row(s, w, x, one, 1, bias, 1, y + p);
    }
}

/* `bias` may be NULL. */
static void conv_gather(const T *x, const T *w, const T *bias, T *y, const void *shape)
{
    const conv_shape *s = (const conv_shape *)(const void *)shape;
    int image, g, r, at[3];
    for (image = 0; image < s->images; image++)
        for (g = 0; g < s->groups; g++, x += s->channels * s->source_size)
            for (r = 0; r < s->results; r++) {
                const T *own = w + g * s->group_weights + r * s->own_weights;
                const T start = bias ? bias[g * s->results + r] : 0;
                for (at[0] = 0; at[0] < s->result[0]; at[0]++)
                    for (at[1] = 0; at[1] < s->result[1]; at[1]++, y += s->result[2])
                        for (at[2] = 0; at[2] < s->result[2]; at[2] += 32) {
                            const int left = s->result[2] - at[2], n = left < 32 ? left : 32;
                            if (conv_row(s, own, x, at, n, start, 0, y + at[2]) && !s->finite)
                                conv_repair(s, own, x, at, n, start, y + at[2]);
                        }
            }
}

/* ---- The gradient for the image as a product that is added to it ----
 *
 * Elements [low, high) of the image along dimension `cut` are a slab. The 32 pixels of dy that follow
 * each other are multiplied with all weights, and added in the order of these. Here the shape is that
 * of the convolution: the source is the image dx, the result dy. */

/* A chain of fused multiply-adds over dy's channels, cut every 128. */
static T conv_column(const conv_shape *s, const T *w, const T *dy)
{
    T total = 0, piece = 0;
    int c;
    for (c = 0; c < s->results; c++) {
        if (c && c % 128 == 0) {
            total = c == 128 ? piece : total + piece;
            piece = 0;
        }
        piece = fma(w[c * s->own_weights], dy[c * s->result_size], piece);
    }
    return s->results <= 128 ? piece : total + piece;
}

/* Adds pixels [from, end) of dy, at most 32, to elements [low, high) of the cut. */
static void conv_scatter_some(const conv_shape *s, const T *dy, const T *w, T *dx, int cut, int low,
                              int high, int from, int end)
{
    int c, t, p, d, tap[3];
    for (c = 0; c < s->channels; c++)
        for (t = 0; t < s->taps; t++) {
            int rest = t;
            for (d = 2; d >= 0; d--) {
                tap[d] = rest % s->kernel[d];
                rest /= s->kernel[d];
            }
            for (p = from; p < end; p++) {
                int at[3], place, i;
                rest = p;
                for (d = 2; d >= 0; d--) {
                    at[d] = rest % s->result[d];
                    rest /= s->result[d];
                }
                place = conv_place(s, at, tap);
                i = at[cut] * s->stride[cut] + tap[cut] * s->dilation[cut] - s->begin[cut];
                if (place >= 0 && i >= low && i < high)
                    dx[c * s->source_size + place] +=
                        conv_column(s, w + c * s->channel_weights + t, dy + p);
            }
        }
}

static void conv_scatter(const T *dy, const T *w, T *dx, const void *shape, int cut, int slab)
{
    const conv_shape *s = (const conv_shape *)(const void *)shape;
    const int row = s->result_size / s->result[cut];
    int n, g, i, low, p;
    for (n = 0; n < s->images; n++)
        for (g = 0; g < s->groups; g++) {
            for (i = 0; i < s->channels * s->source_size; i++) dx[i] = 0;
            for (low = 0; low < s->source[cut]; low += slab) {
                const int high = low + slab < s->source[cut] ? low + slab : s->source[cut];
                const int from = low + s->begin[cut] - (s->kernel[cut] - 1) * s->dilation[cut];
                int last = (high - 1 + s->begin[cut]) / s->stride[cut] + 1;
                if (last > s->result[cut]) last = s->result[cut];
                p = from > 0 ? (from + s->stride[cut] - 1) / s->stride[cut] * row : 0;
                for (; p < last * row; p += 32)
                    conv_scatter_some(s, dy, w + g * s->group_weights, dx, cut, low, high, p,
                                      p + 32 < last * row ? p + 32 : last * row);
            }
            dy += s->results * s->result_size;
            dx += s->channels * s->source_size;
        }
}

/* ---- The gradient for the weights ----
 *
 * The shape is that of the convolution: the source is the image x, the result dy. */

/* Chunks of pixels of all images are cut into pieces, and those into chains of 128 terms. x and dy
 * are those of a channel in the first image, x_step and dy_step from image to image. */
static T conv_weight_sum(const conv_shape *s, const T *x, int x_step, const T *dy, int dy_step,
                         const int *tap, int chunk, int piece)
{
    const int pixels = s->images * s->result_size;
    int begin, from, i, image = 0, pixel = 0, at[3] = {0, 0, 0};
    T total = 0;
    for (begin = 0; begin < pixels; begin += chunk) {
        const int end = pixels - begin < chunk ? pixels : begin + chunk;
        T part = 0;
        for (from = begin; from < end; from += piece) {
            const int stop = end - from < piece ? end : from + piece;
            T sum = 0;
            int terms = 0, chains = 0;
            for (i = from; i < stop; i++) {
                const int place = conv_place(s, at, tap);
                if (place >= 0) {
                    if (terms == 128) {
                        part = from == begin && !chains ? sum : part + sum;
                        chains = 1;
                        terms = 0;
                        sum = 0;
                    }
                    sum = fma(x[image * x_step + place], dy[image * dy_step + pixel], sum);
                    terms++;
                }
                conv_next(s->result, at);
                if (++pixel == s->result_size) {
                    pixel = 0;
                    image++;
                }
            }
            part = from == begin && !chains ? sum : part + sum;
        }
        total = chunk < pixels ? total + part : part;
    }
    return total;
}

static void conv_weights(const T *x, const T *dy, T *dw, const void *shape, int chunk, int piece)
{
    const conv_shape *s = (const conv_shape *)(const void *)shape;
    const int x_step = s->groups * s->channels * s->source_size;
    const int dy_step = s->groups * s->results * s->result_size;
    int g, r, c, t, tap[3];
    for (g = 0; g < s->groups; g++, x += s->channels * s->source_size)
        for (r = 0; r < s->results; r++, dy += s->result_size)
            for (c = 0; c < s->channels; c++)
                for (t = 0; t < s->taps; t++) {
                    tap[0] = t / s->kernel[2] / s->kernel[1];
                    tap[1] = t / s->kernel[2] % s->kernel[1];
                    tap[2] = t % s->kernel[2];
                    *dw++ = conv_weight_sum(s, x + c * s->source_size, x_step, dy, dy_step, tap,
                                            chunk, piece);
                }
}

enum { conv_lanes = 64 / sizeof(T) };

/* Blocks of dy's rows, which end with zeros up to a multiple of 16 columns, have lanes. */
static wide_float conv_plane_blocks(const conv_shape *s, const T *x, int x_step, const T *dy,
                                    int dy_step, const int *tap, int rows, int columns)
{
    const int width = s->result[2], padded = (columns + 15) / 16 * 16;
    wide_float total = WIDE_ZERO;
    int n, row, column, i, j, at[3] = {0, 0, 0};
    for (n = 0; n < s->images; n++)
        for (row = 0; row < s->result[1]; row += rows)
            for (column = 0; column < width; column += columns) {
                T lane[conv_lanes] = {0};
                for (i = row; i < row + rows && i < s->result[1]; i++)
                    for (j = 0; j < padded; j++) {
                        const int inside = j < columns && column + j < width;
                        int place;
                        at[1] = i;
                        at[2] = column + j;
                        place = conv_place(s, at, tap);
                        lane[j % conv_lanes] =
                            fma(inside ? dy[n * dy_step + i * width + column + j] : 0,
                                place < 0 ? 0 : x[n * x_step + place], lane[j % conv_lanes]);
                    }
                for (j = 0; j < conv_lanes; j++) wide_add(&total, lane[j]);
            }
    return total;
}

/* A NaN is computed again without the padding. */
static T conv_plane_sum(const conv_shape *s, const T *x, int x_step, const T *dy, int dy_step,
                        const int *tap, int rows, int columns)
{
    wide_float total = conv_plane_blocks(s, x, x_step, dy, dy_step, tap, rows, columns);
    const T sum = wide_value(&total);
    int n, i, at[3] = {0, 0, 0};
    if (sum == sum) return sum;
    total = wide_int(0);
    for (n = 0; n < s->images; n++) {
        at[1] = at[2] = 0;
        for (i = 0; i < s->result_size; i++, conv_next(s->result, at)) {
            const int place = conv_place(s, at, tap);
            const T one = place >= 0 ? x[n * x_step + place] : 0;
            const wide_float term = wide_product(wide_of(one), wide_of(dy[n * dy_step + i]));
            if (place >= 0) wide_add_wide(&total, &term);
        }
    }
    return wide_value(&total);
}

static void conv_plane_weights(const T *x, const T *dy, T *dw, const void *shape, int rows,
                               int columns)
{
    const conv_shape *s = (const conv_shape *)(const void *)shape;
    const int x_step = s->groups * s->source_size;
    const int dy_step = s->groups * s->results * s->result_size;
    int g, r, t, tap[3];
    for (g = 0; g < s->groups; g++, x += s->source_size)
        for (r = 0; r < s->results; r++, dy += s->result_size)
            for (t = 0; t < s->taps; t++) {
                tap[0] = 0;
                tap[1] = t / s->kernel[2];
                tap[2] = t % s->kernel[2];
                *dw++ = conv_plane_sum(s, x, x_step, dy, dy_step, tap, rows, columns);
            }
}

/* ---- Images whose channels are innermost ---- */

typedef struct conv_rows_shape {
    int images, in[2], out[2], channels, columns, kernel[2], stride[2], dilation[2], begin[2];
} conv_rows_shape;

/* The pixel of image n that pixel [i, j] of the result reads at a tap; -1: padding. */
static int conv_rows_pixel(const conv_rows_shape *s, int n, int i, int j, int tap)
{
    const int row = i * s->stride[0] + tap / s->kernel[1] * s->dilation[0] - s->begin[0];
    const int column = j * s->stride[1] + tap % s->kernel[1] * s->dilation[1] - s->begin[1];
    if (row < 0 || row >= s->in[0] || column < 0 || column >= s->in[1]) return -1;
    return (n * s->in[0] + row) * s->in[1] + column;
}

/* One element of the result; w is the first weight of its column in panels of 32. */
static T conv_rows_sum(const conv_rows_shape *s, const T *x, const T *w, int n, int i, int j,
                       T bias)
{
    const int taps = s->kernel[0] * s->kernel[1];
    T total = 0, piece = bias + 0, inside = bias;
    int t, c, terms = 0, pieces = 0, padded = 0, finite = 1;
    for (t = 0; t < taps; t++) {
        const int pixel = conv_rows_pixel(s, n, i, j, t);
        padded |= pixel < 0;
        for (c = 0; c < s->channels; c++, w += 32) {
            if (terms == 128) {
                total = pieces++ ? total + piece : piece;
                piece = 0;
                terms = 0;
            }
            piece = fma(*w, pixel < 0 ? 0 : x[pixel * s->channels + c], piece);
            if (pixel >= 0) inside = fma(*w, x[pixel * s->channels + c], inside);
            finite &= *w - *w == 0;
            terms++;
        }
    }
    if (pieces) piece = total + piece;
    return piece != piece && padded && !finite ? inside : piece;
}

/* The taps inside alone; w is the first weight of channel c. */
static T conv_depthwise_sum(const conv_rows_shape *s, const T *x, const T *w, int n, int i, int j,
                            int c, T bias)
{
    const int taps = s->kernel[0] * s->kernel[1];
    int t;
    for (t = 0; t < taps; t++) {
        const int pixel = conv_rows_pixel(s, n, i, j, t);
        if (pixel >= 0) bias = fma(w[t * s->channels], x[pixel * s->channels + c], bias);
    }
    return bias;
}

static T conv_bounded(T x, int bounded, T low, T high)
{
    if (!bounded) return x;
    return x < low ? low : x > high ? high : x;
}

/* `bias` may be NULL. */
static void conv_rows(const T *x, const T *w, const T *bias, T *y, const void *shape, int bounded,
                      T low, T high)
{
    const conv_rows_shape *s = (const conv_rows_shape *)(const void *)shape;
    const int depth = s->kernel[0] * s->kernel[1] * s->channels;
    int n, i, j, c;
    for (n = 0; n < s->images; n++)
        for (i = 0; i < s->out[0]; i++)
            for (j = 0; j < s->out[1]; j++)
                for (c = 0; c < s->columns; c++)
                    *y++ = conv_bounded(conv_rows_sum(s, x, w + c / 32 * 32 * depth + c % 32, n, i,
                                                      j, bias ? bias[c] : 0),
                                        bounded, low, high);
}

static void conv_rows_depthwise(const T *x, const T *w, const T *bias, T *y, const void *shape,
                                int bounded, T low, T high)
{
    const conv_rows_shape *s = (const conv_rows_shape *)(const void *)shape;
    int n, i, j, c;
    for (n = 0; n < s->images; n++)
        for (i = 0; i < s->out[0]; i++)
            for (j = 0; j < s->out[1]; j++)
                for (c = 0; c < s->channels; c++)
                    *y++ = conv_bounded(
                        conv_depthwise_sum(s, x, w + c, n, i, j, c, bias ? bias[c] : 0), bounded,
                        low, high);
}
