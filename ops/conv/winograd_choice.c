/* When a convolution is computed by Winograd's method, and by which tile: see winograd.h. */
#include "winograd.h"

/* The work of each way, in products of one pixel, channel and column of a sum. The constants are
 * fitted to the times of layers with 7 to 56 lines and 64 to 512 channels on an AMD EPYC with AVX2,
 * which took 0.85 to 1.2 times what they estimate. */
#define TRANSFORM_INPUT  10.0 /* a position of a tile and channel */
#define TRANSFORM_OUTPUT 10.0 /* a position of a tile and column */
#define READ_WEIGHT      6.0  /* a position of a channel and column */
/* The method has to gain at least this much, since it needs more memory and rounds more. */
#define MIN_GAIN 1.15

static double work_of(const conv_sizes *z, int64_t m)
{
    const double positions = (double)((m + 2) * (m + 2));
    const double tiles =
        (double)z->images * (double)ceil_div(z->out[1], m) * (double)ceil_div(z->out[2], m);
    const double channels = (double)z->in_channels, columns = (double)z->out_channels;
    return positions * (tiles * channels * columns +
                        tiles * (channels * TRANSFORM_INPUT + columns * TRANSFORM_OUTPUT) +
                        channels * columns * READ_WEIGHT);
}

int64_t weft__winograd_choice(const conv_sizes *z)
{
    int64_t first, taps[2];
    for (int d = 0; d < 2; d++) conv_used_taps(z, d + 1, &first, &taps[d]);
    double best = (double)(z->images * z->out_volume) * (double)(taps[0] * taps[1]) *
                  (double)z->in_channels * (double)z->out_channels / MIN_GAIN;
    int64_t tile = 0;
    for (int64_t m = 2; m <= 4; m += 2) {
        const double work = work_of(z, m);
        if (work >= best) continue;
        best = work;
        tile = m;
    }
    return tile;
}
