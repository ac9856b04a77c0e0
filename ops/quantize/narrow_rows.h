/* Rows of u8 as narrow_rows makes them: the scale, an f32, then a byte for each element, which is
 * scale (byte - 128). */
#ifndef WEFT_OPS_NARROW_ROWS_H
#define WEFT_OPS_NARROW_ROWS_H

#include "base/half.h"

#include <stdint.h>
#include <string.h>

#define NARROW_SCALE 4 /* bytes: WEFT_NARROW_SCALE of <weft/ops.h> */
#define NARROW_ZERO  128
#define NARROW_MAX   127

static inline float narrow_scale(const uint8_t *row)
{
    float scale;
    memcpy(&scale, row, sizeof scale);
    return scale;
}

#endif
