/* Gradients of convolutions as products: the shape is that of the convolution. See plain/conv.h. */

/* ---- For the image ---- */

/* Columns of dy times the weights of simd_rows channels at a tap, added to dx at these places. */
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
            for (c = 0; c < s->channels; c += simd_rows) {
                const int rows = s->channels - c < simd_rows ? s->channels - c : simd_rows;
                T total[simd_rows * simd_width] = {0};
                for (k = 0; k < s->results; k += 128) {
                    const int depth = s->results - k < 128 ? s->results - k : 128;
                    const T *columns = dy + k * s->result_size + first;
                    T sum[simd_rows * simd_width] = {0};
                    for (l = 0; l < depth; l++) at[l] = (k + l) * s->own_weights;
                    if (n < simd_width && (c == 0 || s->results > 128))
                        simd_pack(columns, s->result_size, 1, 1, panel, depth, n);
                    simd_block(w + c * s->channel_weights + t, s->channel_weights, at,
                               n < simd_width ? panel : columns,
                               n < simd_width ? simd_width : s->result_size, rows, depth, sum);
                    for (j = 0; j < simd_rows * simd_width; j++)
                        total[j] = k ? total[j] + sum[j] : sum[j];
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
    for (r = 0; r < k->rows; r += simd_rows) {
        T sum[simd_rows * simd_width] = {0}, *part = k->part + r * simd_width;
        simd_block(k->dy + r * s->result_size, s->result_size, k->at, k->panel, simd_width,
                   k->rows - r < simd_rows ? k->rows - r : simd_rows, k->terms, sum);
        for (j = 0; j < simd_rows * simd_width; j++) part[j] = adds ? part[j] + sum[j] : sum[j];
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

/* The sums of `rows` channels of the result, [rows, simd_width]. */
static const T *simd_weights_sum(const conv_shape *s, simd_weights *k, const int *tap, int chunk,
                                 int piece)
{
    const int pixels = s->images * s->result_size, one = pixels <= chunk;
    int begin, from, j;
    k->image = k->pixel = k->place[0] = k->place[1] = k->place[2] = k->terms = 0;
    for (j = 0; (!one || !pixels) && j < simd_results * simd_width; j++)
        k->total[j] = k->part[j] = 0;
    for (begin = 0; begin < pixels; begin += chunk) {
        const int end = pixels - begin < chunk ? pixels : begin + chunk;
        for (from = begin; from < end; from += piece)
            simd_weights_piece(s, k, tap, end - from < piece ? end - from : piece, from > begin);
        for (j = 0; !one && j < simd_results * simd_width; j++) k->total[j] += k->part[j];
    }
    return one ? k->part : k->total;
}

static void conv_weights(const T *x, const T *dy, T *dw, const void *shape, int chunk, int piece)
{
    const conv_shape *s = (const conv_shape *)(const void *)shape;
    simd_weights k;
    const T *sum;
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
                    sum = simd_weights_sum(s, &k, tap, chunk, piece);
                    for (i = 0; i < k.rows; i++)
                        for (j = 0; j < k.columns; j++)
                            dw[((r + i) * s->channels + c + j) * s->taps + t] =
                                sum[i * simd_width + j];
                }
        }
}

/* ---- For the weights, where channels do not mix ---- */

/* Elements of rows of dy that are computed together. */
enum { simd_rows_size = 12288 / sizeof(T) };

/* Rows of a block of dy, which end with zeros, and what they read of a plane. */
typedef struct simd_plane_rows {
    int padded, fits; /* columns; rows, at most */
    simd_slab slab;
    T dy[simd_rows_size];
} simd_plane_rows;

static void simd_plane_rows_of(const conv_shape *s, int rows, int columns, simd_plane_rows *p)
{
    p->padded = (columns + 15) / 16 * 16;
    simd_slab_of(s, p->padded, &p->slab);
    p->fits = simd_rows_size / p->padded;
    if (p->fits > p->slab.fits) p->fits = p->slab.fits;
    if (p->fits > rows) p->fits = rows;
}

/* Adds the products of n rows at three taps to their lanes. */
static void simd_plane_dots(const simd_plane_rows *p, const T *x0, const T *x1, const T *x2,
                            int step, int n, T *lane)
{
    int part, r, j;
    for (part = 0; part < conv_lanes; part += simd_width, lane += simd_width) {
        simd_vector *l0 = (simd_vector *)(void *)lane;
        simd_vector *l1 = (simd_vector *)(void *)(lane + conv_lanes);
        simd_vector *l2 = (simd_vector *)(void *)(lane + 2 * conv_lanes);
        simd_vector s00 = l0[0], s01 = l0[1], s10 = l1[0], s11 = l1[1], s20 = l2[0], s21 = l2[1];
        for (r = 0; r < n; r++)
            for (j = part; j < p->padded; j += conv_lanes) {
                const T *from = p->dy + r * p->padded + j;
                const simd_vector *two = (const simd_vector *)(const void *)from;
                const simd_vector *a = (const simd_vector *)(const void *)(x0 + r * step + j);
                const simd_vector *b = (const simd_vector *)(const void *)(x1 + r * step + j);
                const simd_vector *c = (const simd_vector *)(const void *)(x2 + r * step + j);
                s00 = simd_fma(two[0], a[0], s00);
                s01 = simd_fma(two[1], a[1], s01);
                s10 = simd_fma(two[0], b[0], s10);
                s11 = simd_fma(two[1], b[1], s11);
                s20 = simd_fma(two[0], c[0], s20);
                s21 = simd_fma(two[1], c[1], s21);
            }
        l0[0] = s00, l0[1] = s01, l1[0] = s10, l1[1] = s11, l2[0] = s20, l2[1] = s21;
    }
}

/* Adds a block of a plane to the sums of all taps. */
static void simd_plane_block(const conv_shape *s, simd_plane_rows *p, const T *x, const T *dy,
                             int row, int rows, int column, int columns, double *total)
{
    const int step = s->stride[1] * p->slab.width;
    int t, from, l, k, r;
    for (t = 0; t < s->taps; t += 3) {
        const int *at = p->slab.at + t, n = s->taps - t < 3 ? s->taps - t : 3;
        const T *x0 = p->slab.x + at[0], *x1 = n > 1 ? p->slab.x + at[1] : x0;
        const T *x2 = n > 2 ? p->slab.x + at[2] : x0;
        T lane[3 * conv_lanes] = {0};
        for (from = 0; from < rows; from += p->fits) {
            const int some = rows - from < p->fits ? rows - from : p->fits;
            const T *own = dy + (row + from) * s->result[2] + column;
            const int fills = t == 0 || rows > p->fits;
            if (fills) simd_fill_slab(s, x, row + from, some, column, &p->slab);
            for (r = 0; fills && r < some; r++)
                simd_fill(own + r * s->result[2], columns, 0, 1, p->padded, p->dy + r * p->padded);
            simd_plane_dots(p, x0, x1, x2, step, some, lane);
        }
        for (l = 0; l < conv_lanes; l++)
            for (k = 0; k < n; k++) total[t + k] += (double)lane[k * conv_lanes + l];
    }
}

static void conv_plane_weights(const T *x, const T *dy, T *dw, const void *shape, int rows,
                               int columns)
{
    const conv_shape *s = (const conv_shape *)(const void *)shape;
    const int x_step = s->groups * s->source_size,
              dy_step = s->groups * s->results * s->result_size;
    const int down = s->result[1], across = s->result[2];
    simd_plane_rows p;
    int c, n, t, i, j;
    simd_plane_rows_of(s, rows, columns, &p);
    for (c = 0; c < s->groups * s->results; c++, dy += s->result_size) {
        const T *from = x + c / s->results * s->source_size;
        double total[simd_taps];
        for (t = 0; t < s->taps; t++) total[t] = 0;
        for (n = 0; p.fits > 0 && n < s->images; n++)
            for (i = 0; i < down; i += rows)
                for (j = 0; j < across; j += columns)
                    simd_plane_block(s, &p, from + n * x_step, dy + n * dy_step, i,
                                     down - i < rows ? down - i : rows, j,
                                     across - j < columns ? across - j : columns, total);
        for (t = 0; t < s->taps; t++) {
            const int tap[3] = {0, t / s->kernel[2], t % s->kernel[2]};
            *dw++ = p.fits > 0 && total[t] == total[t]
                        ? (T)total[t]
                        : conv_plane_sum(s, from, x_step, dy, dy_step, tap, rows, columns);
        }
    }
}
