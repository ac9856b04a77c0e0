/* base/number.h - arithmetic on whole numbers. Not installed. */
#ifndef WEFT_BASE_NUMBER_H
#define WEFT_BASE_NUMBER_H

#include <stdint.h>

/* The greatest common divisor (Euclid, O(log b)); gcd(a, 0) = a. */
static inline uint64_t number_gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

#endif
