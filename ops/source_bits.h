/* Doubles as arguments of functions in C, which may run where the compiler has none. */
#ifndef WEFT_OPS_SOURCE_BITS_H
#define WEFT_OPS_SOURCE_BITS_H

#include <stdint.h>
#include <string.h>

/* The bits of x, for WEFT_ARG_KEY. */
static inline int64_t source_bits(double x)
{
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

#endif
