/* Gradients of convolutions as products: the shape is that of the convolution. See plain/conv.h. */

/* ---- For the image ---- */

/* Columns of dy times the weights of 4 channels at a tap, added to dx at these places. */
static void simd_scatter_add(const simd_places *p, const T *total, T *dx, int source_size, int rows,
                             int n)
{
    int r, j;
    for (r = 0; r < rows; r++, dx += source_size, total += simd_width) {
        for (j = 0; p->dense && j < simd_width; j++) dx[p->at[0] + j] += total[j];
        for (j = 0; !p->dense && j < n; j++)
            if (p->at[j] >= 0) dx[p->at[j]] += total[j];
    }
}

static void conv_scatter_some(const conv_shape *s, const T *dy, const T *w, T *dx, int cut, int low,
                              int high, int from, int end)
{
    const simd_class all = simd_class_of(s, 0);
    T panel[128 * simd_width];
    int at[128], t, c, d, j, l, k, first;
    for (t = 0; t < s->taps; t++) {
        const int tap[3] = {t / s->kernel[2] / s->kernel[1], t / s->kernel[2] % s->kernel[1],
                            t % s->kernel[2]};
        const int offset[3] = {tap[0] * s->dilation[0], tap[1] * s->dilation[1],
                               tap[2] * s->dilation[2]};
        for (first = from; first < end; first += simd_width) {
            const int n = end - first < simd_width ? end - first : simd_width;
            simd_pixels p = simd_pixels_of(s, &all, first, n);
            simd_places places;
            simd_find_places(s, &p, offset, &places);
            for (j = 0, d = 0; j < n; j++) {
                const int i = p.base[cut * simd_width + j] + offset[cut];
                if (i < low || i >= high) places.at[j] = -1;
                d |= places.at[j] < 0;
            }
            places.dense = places.dense && !d;
            for (c = 0; c < s->channels; c += 4) {
                const int rows = s->channels - c < 4 ? s->channels - c : 4;
                T total[4 * simd_width] = {0};
                for (k = 0; k < s->results; k += 128) {
                    const int depth = s->results - k < 128 ? s->results - k : 128;
                    const T *columns = dy + k * s->result_size + first;
                    T sum[4 * simd_width] = {0};
                    for (l = 0; l < depth; l++) at[l] = (k + l) * s->own_weights;
                    if (n < simd_width && (c == 0 || s->results > 128))
                        simd_pack(columns, s->result_size, 1, 1, panel, depth, n);
                    simd_block(w + c * s->channel_weights + t, s->channel_weights, at,
                               n < simd_width ? panel : columns,
                               n < simd_width ? simd_width : s->result_size, rows, depth, sum);
                    for (j = 0; j < 4 * simd_width; j++) total[j] = k ? total[j] + sum[j] : sum[j];
                }
                simd_scatter_add(&places, total, dx + c * s->source_size, s->source_size, rows, n);
            }
        }
    }
}

/* ---- For the weights ---- */

/* Channels of the result that share a panel. */
enum { simd_results = 64 };

/* Sums for these channels of the result times simd_width of the source at a tap: pixels of all images
 * under way. */
typedef struct simd_weights {
    const T *x, *dy; /* of the first of these channels, in the first image */
    int x_step, dy_step, rows, columns;
    int image, pixel, place[3];
    int terms, at[128];
    T panel[128 * simd_width], part[simd_results * simd_width], total[simd_results * simd_width];
} simd_weights;

/* Adds the terms so far to `part`, or begins it. */
static void simd_weights_flush(const conv_shape *s, simd_weights *k, int adds)
{
    int r, j;
    for (r = 0; r < k->rows; r += 4) {
        T sum[4 * simd_width] = {0}, *part = k->part + r * simd_width;
        simd_block(k->dy + r * s->result_size, s->result_size, k->at, k->panel, simd_width,
                   k->rows - r < 4 ? k->rows - r : 4, k->terms, sum);
        for (j = 0; j < 4 * simd_width; j++) part[j] = adds ? part[j] + sum[j] : sum[j];
    }
    k->terms = 0;
}

/* The next pixel is a term, unless the tap reads padding there. */
static void simd_weights_term(const conv_shape *s, simd_weights *k, int place)
{
    T *to = k->panel + k->terms * simd_width;
    const T *from = k->x + k->image * k->x_step + place;
    int j;
    for (j = 0; j < simd_width; j++) to[j] = j < k->columns ? from[j * s->source_size] : 0;
    k->at[k->terms++] = k->image * k->dy_step + k->pixel;
}

static void simd_weights_piece(const conv_shape *s, simd_weights *k, const int *tap, int n,
                               int adds)
{
    int i;
    for (i = 0; i < n; i++) {
        const int place = conv_place(s, k->place, tap);
        if (place >= 0) {
            if (k->terms == 128) {
                simd_weights_flush(s, k, adds);
                adds = 1;
            }
            simd_weights_term(s, k, place);
        }
        conv_next(s->result, k->place);
        if (++k->pixel == s->result_size) {
            k->pixel = 0;
            k->image++;
        }
    }
    simd_weights_flush(s, k, adds);
}

static void simd_weights_sum(const conv_shape *s, simd_weights *k, const int *tap, int chunk,
                             int piece)
{
    const int pixels = s->images * s->result_size;
    int begin, from, j;
    k->image = k->pixel = k->place[0] = k->place[1] = k->place[2] = k->terms = 0;
    for (j = 0; j < simd_results * simd_width; j++) k->total[j] = k->part[j] = 0;
    for (begin = 0; begin < pixels; begin += chunk) {
        const int end = pixels - begin < chunk ? pixels : begin + chunk;
        for (from = begin; from < end; from += piece)
            simd_weights_piece(s, k, tap, end - from < piece ? end - from : piece, from > begin);
        for (j = 0; j < simd_results * simd_width; j++)
            k->total[j] = chunk < pixels ? k->total[j] + k->part[j] : k->part[j];
    }
}

static void conv_weights(const T *x, const T *dy, T *dw, const int *shape, int chunk, int piece)
{
    const conv_shape *s = (const conv_shape *)(const void *)shape;
    simd_weights k;
    int g, r, c, t, i, j;
    k.x_step = s->groups * s->channels * s->source_size;
    k.dy_step = s->groups * s->results * s->result_size;
    for (g = 0; g < s->groups; g++, dw += s->results * s->channels * s->taps)
        for (t = 0; t < s->taps; t++) {
            const int tap[3] = {t / s->kernel[2] / s->kernel[1], t / s->kernel[2] % s->kernel[1],
                                t % s->kernel[2]};
            for (r = 0; r < s->results; r += simd_results)
                for (c = 0; c < s->channels; c += simd_width) {
                    k.rows = s->results - r < simd_results ? s->results - r : simd_results;
                    k.columns = s->channels - c < simd_width ? s->channels - c : simd_width;
                    k.x = x + (g * s->channels + c) * s->source_size;
                    k.dy = dy + (g * s->results + r) * s->result_size;
                    simd_weights_sum(s, &k, tap, chunk, piece);
                    for (i = 0; i < k.rows; i++)
                        for (j = 0; j < k.columns; j++)
                            dw[((r + i) * s->channels + c + j) * s->taps + t] =
                                k.total[i * simd_width + j];
                }
        }
}

/* A row of an image, `at` elements from the first of n. */
typedef struct simd_row {
    const T *image;
    int at, size, n;
} simd_row;

/* Bits of lanes: simd_width zeros, ones, zeros. */
typedef struct simd_masks {
    T lane[3 * simd_width];
} simd_masks;

/* y [2] = elements first, first + step, ... of a row: zeros outside of it. */
static inline void simd_row_piece(const simd_row *row, int first, int step, const simd_masks *masks,
                                  simd_vector *y)
{
    const int left = row->size - first, from = row->at + first;
    const int low = first < 0 ? first < -simd_width ? simd_width : -first : 0;
    const int high = left < 0 ? 0 : left > simd_width ? simd_width : left;
    T some[simd_width];
    int j;
    if (step == 1 && from >= 0 && from + simd_width <= row->n) {
        const simd_bits *x = (const simd_bits *)(const void *)(row->image + from);
        const simd_bits *after = (const simd_bits *)(const void *)(masks->lane + simd_width - low);
        const simd_bits *before =
            (const simd_bits *)(const void *)(masks->lane + 2 * simd_width - high);
        y[0] = (simd_vector)(x[0] & after[0] & before[0]);
        y[1] = (simd_vector)(x[1] & after[1] & before[1]);
        return;
    }
    for (j = 0; j < simd_width; j++, first += step)
        some[j] = first >= 0 && first < row->size ? row->image[row->at + first] : 0;
    memcpy(y, some, sizeof some);
}

static double conv_plane_blocks(const conv_shape *s, const T *x, int x_step, const T *dy,
                                int dy_step, const int *tap, int rows, int columns)
{
    const int width = s->result[2], padded = (columns + 15) / 16 * 16, step = s->stride[2];
    double total = 0;
    simd_masks masks;
    int n, row, column, i, j, l;
    memset(&masks, 0, sizeof masks);
    memset(masks.lane + simd_width, 255, sizeof masks / 3);
    for (n = 0; n < s->images; n++, x += x_step, dy += dy_step)
        for (row = 0; row < s->result[1]; row += rows)
            for (column = 0; column < width; column += columns) {
                const int first = column * step + tap[2] * s->dilation[2] - s->begin[2];
                const int size = width - column < columns ? width - column : columns;
                simd_row of_dy, of_x;
                simd_vector lane[conv_lanes / simd_lanes] = {{0}}, a[2], b[2];
                of_dy.image = dy;
                of_dy.size = size;
                of_dy.n = s->result_size;
                of_x.image = x;
                of_x.n = s->source_size;
                for (i = row; i < row + rows && i < s->result[1]; i++) {
                    const int at = i * s->stride[1] + tap[1] * s->dilation[1] - s->begin[1];
                    const int inside = at >= 0 && at < s->source[1];
                    of_dy.at = i * width + column;
                    of_x.at = inside ? at * s->source[2] : 0;
                    of_x.size = inside ? s->source[2] : 0;
                    for (j = 0; j < padded; j += simd_width) {
                        simd_vector *sum = lane + j / simd_lanes % (conv_lanes / simd_lanes);
                        simd_row_piece(&of_dy, j, 1, &masks, a);
                        simd_row_piece(&of_x, first + j * step, step, &masks, b);
                        sum[0] = simd_fma(a[0], b[0], sum[0]);
                        sum[1] = simd_fma(a[1], b[1], sum[1]);
                    }
                }
                for (j = 0; j < conv_lanes / simd_lanes; j++)
                    for (l = 0; l < simd_lanes; l++) total += (double)lane[j][l];
            }
    return total;
}
