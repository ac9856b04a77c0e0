/* The gradient of a convolution for its weights. See exact.h.
 *
 * By a product, the pixels of all images are cut into chunks, and these into pieces. Each 128 terms
 * of a piece that lie inside of the image are a chain of fused multiply-adds; chains are added in
 * order, then chunks. By planes, the products of a block of pixels have lanes, which are added in
 * f64; a NaN is replaced by the sum of the terms inside of the image, in f64. */
#include "exact_conv.h"

typedef struct pieces {
    int64_t pixels, chunk, piece;
} pieces;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static pieces pieces_of(const conv_sizes *z)
{
    const bool swapped =
        z->pointwise && (z->in_channels < z->out_channels || z->out_channels >= 128);
    const int64_t rows = swapped ? z->out_channels : z->in_channels;
    const int64_t columns = swapped ? z->in_channels : z->out_channels;
    pieces p = {.pixels = z->images * z->out_volume};
    /* A tile is at most tile_n columns, tile_t taps, and some rows. */
    int64_t tiles_n = up(columns, 128);
    const int64_t tile_n = round_up(up(columns, tiles_n), 32);
    tiles_n = up(columns, tile_n);
    int64_t tiles_t = up(z->taps, 147456 / (14 * tile_n));
    const int64_t tile_t = up(z->taps, tiles_t);
    tiles_t = up(z->taps, tile_t);
    int64_t tiles_m = up(rows, 147456 / (tile_t * tile_n));
    const double flops =
        2.0 * (double)(z->groups * rows) * (double)(columns * z->taps) * (double)p.pixels;
    const int64_t tiles = flops < 16e6 ? (int64_t)(flops / 1e6) : 16;
    const int64_t others = z->groups * tiles_n * tiles_t, most = rows < 14 ? 128 : 512;
    const int64_t all = up(p.pixels, most);
    if (others * all * tiles_m < tiles) tiles_m = up(tiles, others * all);
    tiles_m = up(rows, round_up(up(rows, tiles_m), 14));
    int64_t chunks = least(up(tiles, others * tiles_m), all);
    if (chunks < 1) chunks = 1;
    const int64_t row = z->pointwise || z->out[2] > 128 ? 16 : z->out[2];
    p.chunk = round_up(up(p.pixels, chunks), row);
    p.piece = round_up(up(p.chunk, up(p.chunk, most)), row);
    if (p.piece > most) p.piece = most / row * row;
    return p;
}

/* Where the channels of a weight begin in the first image, and the steps from image to image. */
typedef struct operands {
    const T *x, *dy;
    int64_t x_image, dy_image;
} operands;

static T by_product(const conv_sizes *z, const pieces *p, const operands *o, int64_t tap)
{
    T total = 0;
    for (int64_t begin = 0; begin < p->pixels; begin += p->chunk) {
        const int64_t end = least(p->pixels, begin + p->chunk);
        T chunk = 0;
        bool first = true;
        for (int64_t from = begin; from < end; from += p->piece) {
            T sum = 0;
            for (int64_t i = from, n = 0; i < least(end, from + p->piece); i++) {
                const int64_t image = i / z->out_volume, pixel = i % z->out_volume;
                const int64_t element = pixel_at(z, pixel, tap);
                if (element < 0) continue;
                if (n++ == CHAIN) {
                    chunk = first ? sum : chunk + sum;
                    first = false;
                    sum = 0;
                    n = 1;
                }
                sum = FMA(o->x[image * o->x_image + element], o->dy[image * o->dy_image + pixel],
                          sum);
            }
            chunk = first ? sum : chunk + sum;
            first = false;
        }
        total = p->chunk < p->pixels ? total + chunk : chunk;
    }
    return total;
}

/* The element that column j of row i of the result reads at a tap, also beyond the last column. */
static int64_t element_at(const conv_sizes *z, int64_t i, int64_t j, int64_t tap)
{
    const int64_t row = i * z->stride[1] + tap / z->kernel[2] * z->dilation[1] - z->begin[1];
    const int64_t column = j * z->stride[2] + tap % z->kernel[2] * z->dilation[2] - z->begin[2];
    const bool inside = row >= 0 && row < z->in[1] && column >= 0 && column < z->in[2];
    return inside ? row * z->in[2] + column : -1;
}

/* A block's rows end with zeros, up to a multiple of 16 columns. */
static T by_planes(const conv_sizes *z, const operands *o, int64_t tap)
{
    const int64_t height = z->out[1], width = z->out[2], span = 64 / (int64_t)sizeof(T);
    const int64_t columns = up(width, up(width, 1024)), rows = least(3072 / columns, height);
    double total = 0;
    for (int64_t image = 0; image < z->images; image++)
        for (int64_t row = 0; row < height; row += rows)
            for (int64_t column = 0; column < width; column += columns) {
                T lane[LANES] = {0};
                for (int64_t i = row; i < least(height, row + rows); i++)
                    for (int64_t j = 0; j < round_up(columns, 16); j++) {
                        const int64_t pixel = i * width + column + j;
                        const bool inside = j < columns && column + j < width;
                        const int64_t element = element_at(z, i, column + j, tap);
                        const T dy = inside ? o->dy[image * o->dy_image + pixel] : 0;
                        const T x = element < 0 ? 0 : o->x[image * o->x_image + element];
                        lane[j % span] = FMA(dy, x, lane[j % span]);
                    }
                for (int64_t c = 0; c < span; c++) total += (double)lane[c];
            }
    if (!isnan(total)) return (T)total;
    total = 0;
    for (int64_t i = 0; i < z->images * z->out_volume; i++) {
        const int64_t image = i / z->out_volume, pixel = i % z->out_volume;
        const int64_t element = pixel_at(z, pixel, tap);
        if (element >= 0)
            total += (double)o->x[image * o->x_image + element] *
                     (double)o->dy[image * o->dy_image + pixel];
    }
    return (T)total;
}

/* Of x and dy. */
EXACT(conv_grad_weight)
{
    UNUSED;
    const conv_sizes z = sizes_of(attr, &in[0].shape, &out->shape, &in[1].shape);
    const bool planes = weft__conv_weight_is_direct(&z);
    const pieces p = planes || !numel(out) ? (pieces){0, 1, 1} : pieces_of(&z);
    for (int64_t i = 0; i < numel(out); i++) {
        const int64_t channel = i / z.taps / z.in_channels, group = channel / z.out_channels;
        const int64_t from = group * z.in_channels + i / z.taps % z.in_channels;
        const operands o = {
            data(&in[0]) + from * z.in_volume, data(&in[1]) + channel * z.out_volume,
            z.groups * z.in_channels * z.in_volume, z.groups * z.out_channels * z.out_volume};
        data(out)[i] = planes ? by_planes(&z, &o, i % z.taps) : by_product(&z, &p, &o, i % z.taps);
    }
}

EXACT_TABLE(conv_weight) = {ROW(conv_grad_weight), {NULL, NULL}};
