/* Ops in shapes that their samples are too small for: sums that are cut, and each path of an op whose
 * kernels have several. */
#ifndef WEFT_TESTS_EMIT_SHAPES_H
#define WEFT_TESTS_EMIT_SHAPES_H

#include <weft/op.h>

typedef struct emit_shapes {
    const char *op;
    const weft_sample *samples;
    size_t n;
} emit_shapes;

/* Convolutions, pooling, panels, and sums of squares; ends with a NULL op. */
extern const emit_shapes emit_shapes_conv[];

#endif
