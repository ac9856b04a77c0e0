/* Convolution, its gradient for the image, and pooling. See exact.h.
 *
 * Zeros of the padding are terms like others, except at taps that lie in the padding for all pixels
 * and where a product is added to the image. */
#include "exact_conv.h"

/* Taps of dimension d that any pixel reads inside of the image: n from *first on, at least one. */
static int64_t used_taps(const conv_sizes *z, int d, int64_t *first)
{
    const int64_t before = z->begin[d] - (z->out[d] - 1) * z->stride[d];
    int64_t end = up(z->in[d] + z->begin[d], z->dilation[d]);
    *first = before > 0 ? up(before, z->dilation[d]) : 0;
    if (*first >= z->kernel[d]) *first = z->kernel[d] - 1;
    if (end > z->kernel[d]) end = z->kernel[d];
    return end > *first ? end - *first : 1;
}

/* One sum: of weights and of the elements of the source that they are multiplied with. */
typedef struct sum {
    T total, piece;
    int64_t terms;
} sum;

static void add_term(sum *s, T weight, T x)
{
    if (s->terms && s->terms % CHAIN == 0) {
        s->total = s->terms == CHAIN ? s->piece : s->total + s->piece;
        s->piece = 0;
    }
    s->piece = FMA(weight, x, s->piece);
    s->terms++;
}

static T finished(const sum *s)
{
    return s->terms <= CHAIN ? s->piece : s->total + s->piece;
}

/* Whether a tap of the used ones belongs to the class of an element: those of a class differ by
 * `every` taps from the class's first one, which reads at the element if the stride allows it. */
static bool reads_at(const conv_sizes *z, int64_t element, const int64_t *tap)
{
    int64_t at[DIMS];
    coordinates(element, z->in, at);
    for (int d = 0; d < DIMS; d++)
        if ((at[d] + z->begin[d] - tap[d] * z->dilation[d]) % z->stride[d] != 0) return false;
    return true;
}

/* By a product: the terms have the order [tap, channel]. `transposed`: for the image. */
static T by_product(const conv_sizes *z, bool transposed, const T *w, const T *source,
                    int64_t element, T bias)
{
    const int64_t channels = transposed ? z->out_channels : z->in_channels;
    int64_t first[DIMS], count[DIMS], tap[DIMS];
    for (int d = 0; d < DIMS; d++) count[d] = used_taps(z, d, &first[d]);
    sum s = {0, bias + 0, 0};
    for (int64_t t = 0; t < volume_of(count); t++) {
        coordinates(t, count, tap);
        for (int d = 0; d < DIMS; d++) tap[d] += first[d];
        if (transposed && !reads_at(z, element, tap)) continue;
        const int64_t k = (tap[0] * z->kernel[1] + tap[1]) * z->kernel[2] + tap[2];
        const int64_t pixel = transposed ? pixel_of(z, element, k) : pixel_at(z, element, k);
        for (int64_t c = 0; c < channels; c++) {
            const T *x = source + c * (transposed ? z->out_volume : z->in_volume);
            const int64_t weight = transposed ? c * z->in_channels * z->taps : c * z->taps;
            add_term(&s, w[weight + k], pixel < 0 ? 0 : x[pixel]);
        }
    }
    return finished(&s);
}

/* By planes: the sum over taps alone. For the image the taps go backwards, and where the stride
 * leaves no pixel there are zeros. */
static T by_planes(const conv_sizes *z, bool transposed, const T *w, const T *source,
                   int64_t element, T bias)
{
    T s = bias;
    for (int64_t t = 0; t < z->taps; t++) {
        const int64_t k = transposed ? z->taps - 1 - t : t;
        const int64_t pixel = transposed ? pixel_of(z, element, k) : pixel_at(z, element, k);
        s = FMA(w[k], pixel < 0 ? 0 : source[pixel], s);
    }
    return s;
}

/* Whether a product has a term for a tap at an element: zeros if that is padding. */
static bool is_multiplied(const conv_sizes *z, bool transposed, int64_t element, int64_t k)
{
    int64_t tap[DIMS], first;
    coordinates(k, z->kernel, tap);
    for (int d = 0; d < DIMS; d++) {
        const int64_t n = used_taps(z, d, &first);
        if (tap[d] < first || tap[d] >= first + n) return false;
    }
    return !transposed || reads_at(z, element, tap);
}

/* `y`, or the terms inside of the image alone, one after the other, if it is a NaN that may be the
 * product of padding and a weight that is not finite. */
static T without_padding(const conv_sizes *z, bool transposed, const T *w, const T *source,
                         int64_t element, T bias, T y)
{
    const bool planes = weft__conv_path_of(z, transposed) == 1, backwards = transposed && planes;
    const int64_t channels = transposed ? z->out_channels : z->in_channels;
    bool finite = true, padded = false;
    T s = bias;
    for (int64_t t = 0; t < z->taps; t++) {
        const int64_t k = backwards ? z->taps - 1 - t : t;
        const int64_t pixel = transposed ? pixel_of(z, element, k) : pixel_at(z, element, k);
        padded |= pixel < 0 && (planes || is_multiplied(z, transposed, element, k));
        for (int64_t c = 0; c < channels; c++) {
            const T *x = source + c * (transposed ? z->out_volume : z->in_volume);
            const T weight = w[(transposed ? c * z->in_channels : c) * z->taps + k];
            finite &= isfinite(weight) != 0;
            if (pixel >= 0) s = FMA(weight, x[pixel], s);
        }
    }
    return isnan(y) && padded && !finite ? s : y;
}

EXACT(conv)
{
    UNUSED;
    const conv_sizes z = sizes_of(attr, &in[0].shape, &in[1].shape, &out->shape);
    const bool planes = weft__conv_path_of(&z, false) == 1;
    for (int64_t o = 0; o < numel(out); o++) {
        const int64_t pixel = o % z.out_volume,
                      channel = o / z.out_volume % (z.groups * z.out_channels);
        const int64_t image = o / z.out_volume / (z.groups * z.out_channels);
        const int64_t group = channel / z.out_channels;
        const T *x = data(&in[0]) + (image * z.groups + group) * z.in_channels * z.in_volume;
        const T *w = data(&in[1]) + channel * z.in_channels * z.taps;
        const T bias = n_in > 2 ? data(&in[2])[channel] : 0;
        const T y = (planes ? by_planes : by_product)(&z, false, w, x, pixel, bias);
        data(out)[o] = without_padding(&z, false, w, x, pixel, bias, y);
    }
}

/* ---- A product that is added to the image ---- */

/* How the image is cut: along the first dimension that is not 1, into slabs. */
typedef struct slabs {
    int cut;
    int64_t size;
} slabs;

static slabs slabs_of(const conv_sizes *z)
{
    slabs s = {0, 0};
    while (s.cut < DIMS - 1 && z->in[s.cut] == 1 && z->out[s.cut] == 1) s.cut++;
    const int64_t in = z->in[s.cut];
    int64_t n = up(16, z->images * z->groups);
    const double flops = 2.0 * (double)(z->in_channels * z->taps) * (double)z->out_channels *
                         (double)z->out_volume / 1e6;
    if ((double)n > flops) n = flops < 1 ? 1 : (int64_t)flops;
    const int64_t reach = 4 * (z->kernel[s.cut] - 1) * z->dilation[s.cut];
    const int64_t pixels = up(32 * z->out[s.cut] * z->stride[s.cut], z->out_volume);
    s.size = up(in, n);
    if (s.size < reach) s.size = reach;
    if (s.size < pixels) s.size = pixels;
    if (s.size > in) s.size = in;
    return s;
}

/* Pixels [begin, end) of a group reach elements [low, high) along the cut: 32 of them at a time are
 * multiplied, and added in the order of taps. */
static void add_slab(const conv_sizes *z, const slabs *s, int64_t low, const T *w, const T *dy,
                     T *dx)
{
    const int64_t cut = s->cut, high = low + s->size < z->in[cut] ? low + s->size : z->in[cut];
    const int64_t from = low + z->begin[cut] - (z->kernel[cut] - 1) * z->dilation[cut];
    const int64_t row = z->out_volume / z->out[cut];
    int64_t last = (high - 1 + z->begin[cut]) / z->stride[cut] + 1;
    if (last > z->out[cut]) last = z->out[cut];
    for (int64_t first = from > 0 ? up(from, z->stride[cut]) * row : 0; first < last * row;
         first += 32)
        for (int64_t r = 0; r < z->in_channels * z->taps; r++)
            for (int64_t pixel = first; pixel < first + 32 && pixel < last * row; pixel++) {
                int64_t at[DIMS];
                const int64_t element = pixel_at(z, pixel, r % z->taps);
                if (element < 0) continue;
                coordinates(element, z->in, at);
                if (at[cut] < low || at[cut] >= high) continue;
                sum product = {0, 0, 0};
                for (int64_t c = 0; c < z->out_channels; c++)
                    add_term(&product, w[c * z->in_channels * z->taps + r],
                             dy[c * z->out_volume + pixel]);
                dx[r / z->taps * z->in_volume + element] += finished(&product);
            }
}

/* Of dy and the weights. */
EXACT(conv_grad_input)
{
    UNUSED;
    const conv_sizes z = sizes_of(attr, &out->shape, &in[1].shape, &in[0].shape);
    const int path = weft__conv_path_of(&z, true);
    const int64_t wide = z.in_channels * z.taps;
    for (int64_t i = 0; i < z.images * z.groups; i++) {
        const T *dy = data(&in[0]) + i * z.out_channels * z.out_volume;
        const T *w = data(&in[1]) + i % z.groups * z.out_channels * wide;
        T *dx = data(out) + i * z.in_channels * z.in_volume;
        const slabs s = path == 2 ? slabs_of(&z) : (slabs){0, 1};
        for (int64_t k = 0; k < z.in_channels * z.in_volume; k++) {
            const T *own = w + k / z.in_volume * z.taps;
            if (path == 2) {
                dx[k] = 0;
                continue;
            }
            const T y = (path ? by_planes : by_product)(&z, true, own, dy, k % z.in_volume, 0);
            dx[k] = without_padding(&z, true, own, dy, k % z.in_volume, 0, y);
        }
        for (int64_t low = 0; path == 2 && low < z.in[s.cut]; low += s.size)
            add_slab(&z, &s, low, w, dy, dx);
    }
}

/* ---- Pooling ---- */

typedef struct pool_attr {
    conv_attr window;
    weft_shape kernel;
    bool ceil_mode, count_pad;
} pool_attr;

/* The first of the largest elements of a window, or the first NaN, and its place in the channel. */
EXACT(max_pool)
{
    UNUSED;
    const pool_attr *a = attr;
    weft_shape w = {a->kernel.rank + 2, {1, 1}};
    memcpy(w.dim + 2, a->kernel.dim, (size_t)a->kernel.rank * sizeof *w.dim);
    const conv_sizes z = sizes_of(&a->window, &in->shape, &w, &out->shape);
    for (int64_t o = 0; o < numel(out); o++) {
        const T *x = data(in) + o / z.out_volume * z.in_volume;
        int64_t best = -1;
        for (int64_t t = 0; t < z.taps; t++) {
            const int64_t i = pixel_at(&z, o % z.out_volume, t);
            if (i < 0) continue;
            if (best < 0 || x[i] > x[best] || (isnan(x[i]) && !isnan(x[best]))) best = i;
        }
        data(out)[o] = best < 0 ? (T)-INFINITY : x[best];
        ((int32_t *)out[1].data)[o] = (int32_t)best;
    }
}

EXACT_TABLE(conv) = {ROW(conv), ROW(conv_grad_input), ROW(max_pool), {NULL, NULL}};
