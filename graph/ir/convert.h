/* Blocks of matrices that are stored as bf16, widened to f32 and rounded back. */
#ifndef WEFT_GRAPH_CONVERT_H
#define WEFT_GRAPH_CONVERT_H

#include <weft/op.h>

/* Element [r, c] of the block in bf16 lies at r row + c column; the one in f32 is dense. */
typedef struct convert_block {
    int64_t rows, columns, row, column;
} convert_block;

/* The conversions for an instruction set. */
typedef struct convert {
    void (*widen)(const convert_block *block, const uint16_t *narrow, float *wide);
    void (*narrow)(const convert_block *block, const float *wide, uint16_t *narrow);
} convert;
convert weft__convert_for(weft_isa isa);

#endif
