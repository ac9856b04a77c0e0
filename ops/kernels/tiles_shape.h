/* The shapes of the tiles of AMX, for files that are compiled for it. */
#ifndef WEFT_OPS_KERNELS_TILES_SHAPE_H
#define WEFT_OPS_KERNELS_TILES_SHAPE_H

#include <immintrin.h>
#include <stdint.h>

/* As the processor reads it: bytes of a row, and rows, of each tile. */
typedef struct tiles_shape {
    uint8_t palette, start, none[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} tiles_shape;

/* Says how many rows of how many bytes the tiles have. The palette is 1. */
static inline void tiles_configure(const tiles_shape *shape)
{
    __asm__ volatile("" : : "r"(shape) : "memory"); /* the instruction reads all of it */
    _tile_loadconfig(shape);
}

#endif
