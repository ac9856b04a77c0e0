/* The panels of a matrix: its columns, PANEL of them side by side. */
#ifndef WEFT_OPS_KERNELS_PANEL_H
#define WEFT_OPS_KERNELS_PANEL_H

#include "kernel.h"

#define PANEL 32 /* columns */

static inline int64_t panel_count(int64_t columns)
{
    return ceil_div(columns, PANEL);
}

#endif
