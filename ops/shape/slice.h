/* The attribute that slice and slice_scatter share. */
#ifndef WEFT_OPS_SLICE_H
#define WEFT_OPS_SLICE_H

#include <stdint.h>

typedef struct slice_attr {
    int32_t axis;
    int64_t begin, step, count; /* element i of the result is element begin + i step of x */
    int64_t size;               /* of the axis in x */
} slice_attr;

#endif
