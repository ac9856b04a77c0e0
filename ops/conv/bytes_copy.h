/* Copies of what a tile of a convolution reads of an image of bytes (conv_bytes.h), with padding
 * around it. */
#ifndef WEFT_OPS_CONV_BYTES_COPY_H
#define WEFT_OPS_CONV_BYTES_COPY_H

#include "conv_bytes.h"

#ifdef WEFT_KERNEL_ISA

/* A window of an image: lines and pixels from `line` and `pixel` on, which may lie outside, and some
 * of its channels. The copy has `bytes` for each pixel; those beyond the channels are 0. */
typedef struct bytes_window {
    int64_t line, lines, pixel, width, channel, channels, bytes;
    int zero; /* the padding */
} bytes_window;

/* Padding instead of `n` pixels. */
static inline void bytes_pad(const bytes_window *w, int64_t n, uint8_t *to)
{
    if (w->bytes == w->channels) {
        memset(to, w->zero, (size_t)(n * w->bytes));
        return;
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < w->bytes; c++)
            to[i * w->bytes + c] = c < w->channels ? (uint8_t)w->zero : 0;
}

/* One line, from the first pixel of the line on; `from` is NULL for a line outside. */
static inline void bytes_copy_line(const bytes_window *w, const conv_rows_sizes *z,
                                   const uint8_t *from, uint8_t *to)
{
    int64_t begin = w->pixel < 0 ? -w->pixel : 0, end = z->in[1] - w->pixel;
    if (begin > w->width || !from) begin = w->width;
    if (end > w->width) end = w->width;
    if (end < begin) end = begin;
    bytes_pad(w, begin, to);
    if (end > begin) from += (w->pixel + begin) * z->channels + w->channel;
    if (end > begin && w->bytes == z->channels)
        memcpy(to + begin * w->bytes, from, (size_t)((end - begin) * w->bytes));
    else if (end > begin && w->channels == 3 && w->bytes == 4)
        for (int64_t i = begin; i < end; i++, from += 3) {
            const uint8_t four[4] = {from[0], from[1], from[2], 0};
            memcpy(to + 4 * i, four, 4);
        }
    else
        for (int64_t i = begin; i < end; i++, from += z->channels) {
            memcpy(to + i * w->bytes, from, (size_t)w->channels);
            memset(to + i * w->bytes + w->channels, 0, (size_t)(w->bytes - w->channels));
        }
    bytes_pad(w, w->width - end, to + end * w->bytes);
}

/* `x` is the image. */
static inline void bytes_copy(const bytes_window *w, const conv_rows_sizes *z, const uint8_t *x,
                              uint8_t *to)
{
    for (int64_t l = w->line; l < w->line + w->lines; l++, to += w->width * w->bytes)
        bytes_copy_line(w, z, l >= 0 && l < z->in[0] ? x + l * z->in[1] * z->channels : NULL, to);
}

#endif
#endif
