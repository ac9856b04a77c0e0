/* The vectors of a list that are nearest to another one. */
#ifndef WEFT_TOOLS_NEAREST_H
#define WEFT_TOOLS_NEAREST_H

#include <stddef.h>

typedef struct near_line {
    size_t line;
    double cosine;
} near_line;

/* Fills `found` with the lines of vectors [n][width] whose cosine with `vector` is largest, largest
 * first and of equals the lower line first, without the line `except`. Returns their number, at
 * most `most`. The cosine with a vector of zeros is 0. O(n (width + most)). */
size_t nearest_find(const float *vectors, size_t n, size_t width, const float *vector,
                    size_t except, near_line *found, size_t most);

#endif
