/* Inputs of samples (weft_sample), which ops are tested with. The arguments after a limit are the
 * shape as an initialiser: FLOATS({2, {3, 5}}). */
#ifndef WEFT_OPS_SAMPLES_H
#define WEFT_OPS_SAMPLES_H

#include <weft/op.h>

/* Of the floating type under test, uniform in [-2, 2) and in [-1, 1). */
#define FLOATS(...)                                                                                \
    {                                                                                              \
        WEFT_FLOAT, __VA_ARGS__, -2, 2, false                                                      \
    }
#define UNIT_FLOATS(...)                                                                           \
    {                                                                                              \
        WEFT_FLOAT, __VA_ARGS__, -1, 1, false                                                      \
    }
/* Whole numbers in [0, limit). */
#define INDICES(limit, ...)                                                                        \
    {                                                                                              \
        WEFT_I32, __VA_ARGS__, 0, limit, false                                                     \
    }
/* A matrix in 8 or 4 bits, or its zero points, and their scales, in [0, 0.01). */
#define BYTES(...)                                                                                 \
    {                                                                                              \
        WEFT_U8, __VA_ARGS__, 0, 256, false                                                        \
    }
#define NIBBLES(...)                                                                               \
    {                                                                                              \
        WEFT_U8, __VA_ARGS__, 0, 16, false                                                         \
    }
#define SCALES(...)                                                                                \
    {                                                                                              \
        WEFT_FLOAT, __VA_ARGS__, 0, 0.01, false                                                    \
    }

#endif
