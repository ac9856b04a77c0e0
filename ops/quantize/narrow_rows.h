/* Rows of u8 as narrow_rows makes them: the scale, an f32 from its lowest byte on, then a byte for
 * each element, which is scale (byte - 128). */
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
    const uint32_t bits =
        row[0] | (uint32_t)row[1] << 8 | (uint32_t)row[2] << 16 | (uint32_t)row[3] << 24;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

static inline void narrow_set_scale(uint8_t *row, float scale)
{
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    for (int b = 0; b < NARROW_SCALE; b++) row[b] = (uint8_t)(bits >> (8 * b));
}

#endif
