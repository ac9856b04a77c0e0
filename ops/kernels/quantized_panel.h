/* Products of many rows of floats with a quantised matrix: 16 rows of weights are packed into a panel
 * first, so that each of the lanes of a vector has a row of its own and nothing is added across
 * lanes. The bits are those of quantized_kernel.h. On AVX2 (quantized_panel_avx2.h), and on
 * AVX512_VNNI (quantized_panel_vnni.h). */
#ifndef WEFT_OPS_KERNELS_QUANTIZED_PANEL_H
#define WEFT_OPS_KERNELS_QUANTIZED_PANEL_H

#include "quantized_kernel.h"

/* Rows of weights of a panel. */
#define QUANTIZED_COLUMNS 16

/* The fewest rows of x that pay for packing a panel, on AVX512_VNNI and on AVX2 alone. */
#define QUANTIZED_VNNI_ROWS 32
#define QUANTIZED_MIN_ROWS  8

/* Bytes of a panel: for each block the weights, in at most 16 bits, their scales and their zero
 * points or minima. */
static inline int64_t quantized_panel_bytes(int64_t k, int64_t element)
{
    return quantized_chunks(k) * QUANTIZED_LANES * QUANTIZED_COLUMNS *
           (2 * QUANTIZED_BLOCK + 2 * element);
}

#ifdef WEFT_KERNEL_ISA

/* Blocks of QUANTIZED_COLUMNS rows. */
typedef struct quantized_panel {
    int64_t blocks; /* of a row */
    T *scale;       /* [blocks, QUANTIZED_COLUMNS] */
    T *minimum;     /* likewise; or, in the same place, */
    int32_t *zero;  /* likewise */
    uint8_t *q;     /* the weights, as the functions below pack them */
} quantized_panel;

/* y[r * y_row + j] = x[r] w[j] for QUANTIZED_ROWS rows of x from `first` on. */
typedef void quantized_panel_function(const quantized_rows *x, int64_t first,
                                      const quantized_panel *p, T *y, int64_t y_row);

/* Packs a chunk of QUANTIZED_COLUMNS rows, whose zero points, one for each block of each row, are in
 * `zero`, or are NULL. */
typedef void quantized_pack_function(int bits, const uint8_t *const *rows, const int32_t *zero,
                                     uint8_t *to);

static inline quantized_panel quantized_panel_at(void *space, int64_t blocks, int64_t chunks)
{
    const int64_t n = chunks * QUANTIZED_LANES * QUANTIZED_COLUMNS;
    quantized_panel p = {.blocks = blocks, .scale = space};
    p.minimum = p.scale + n;
    p.zero = (int32_t *)(void *)p.minimum;
    p.q = (uint8_t *)(p.minimum + n);
    return p;
}

/* Packs rows [begin, begin + QUANTIZED_COLUMNS) of m, whose chunks take `chunk_bytes` in a panel. */
static inline void quantized_pack(int bits, const quantized_matrix *m, int64_t begin,
                                  int64_t chunks, const quantized_panel *p,
                                  quantized_pack_function *pack, int64_t chunk_bytes)
{
    const int64_t whole = m->blocks / QUANTIZED_LANES, bytes = QUANTIZED_CHUNK * bits / 8;
    const uint8_t *rows[QUANTIZED_COLUMNS];
    uint8_t last[QUANTIZED_COLUMNS][QUANTIZED_CHUNK];
    for (int64_t n = 0; n < QUANTIZED_COLUMNS; n++) {
        quantized_weight_row w;
        quantized_open(bits, m->minimum, m, begin + n, &w);
        rows[n] = w.q;
        if (m->blocks % QUANTIZED_LANES) memcpy(last[n], w.last_q, sizeof last[n]);
        for (int64_t b = 0; b < chunks * QUANTIZED_LANES; b++) {
            const bool end = b >= whole * QUANTIZED_LANES;
            const int64_t at = end ? b - whole * QUANTIZED_LANES : b;
            p->scale[b * QUANTIZED_COLUMNS + n] = (end ? w.last_scale : w.scale)[at];
            if (m->minimum)
                p->minimum[b * QUANTIZED_COLUMNS + n] = (end ? w.last_minimum : w.minimum)[at];
            else
                p->zero[b * QUANTIZED_COLUMNS + n] = (end ? w.last_zero : w.zero)[at];
        }
    }
    for (int64_t c = 0; c < chunks; c++) {
        for (int n = 0; c == whole && n < QUANTIZED_COLUMNS; n++) rows[n] = last[n];
        const int64_t block = c * QUANTIZED_LANES * QUANTIZED_COLUMNS;
        pack(bits, rows, m->minimum ? NULL : p->zero + block, p->q + c * chunk_bytes);
        for (int n = 0; n < QUANTIZED_COLUMNS; n++) rows[n] += bytes;
    }
}

#endif
#endif
