/* See nearest.h. */
#include "nearest.h"

#include <math.h>

/* Sums of independent lanes, which the compiler can keep in vectors. */
#define LANES 8

static double dot(const float *a, const float *b, size_t n)
{
    double sums[LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (size_t k = 0; k < LANES; k++) sums[k] += (double)a[i + k] * (double)b[i + k];
    for (; i < n; i++) sums[0] += (double)a[i] * (double)b[i];
    for (size_t k = 0; k < LANES; k++) sum += sums[k];
    return sum;
}

size_t nearest_find(const float *vectors, size_t n, size_t width, const float *vector,
                    size_t except, near_line *found, size_t most)
{
    const double own = dot(vector, vector, width);
    size_t count = 0;
    for (size_t i = 0; most && i < n; i++) {
        const float *other = vectors + i * width;
        if (i == except) continue;
        const double norms = sqrt(own * dot(other, other, width));
        const double cosine = norms > 0 ? dot(vector, other, width) / norms : 0;
        if (count == most && !(cosine > found[count - 1].cosine)) continue;
        size_t at = count < most ? count++ : count - 1;
        for (; at > 0 && cosine > found[at - 1].cosine; at--) found[at] = found[at - 1];
        found[at] = (near_line){i, cosine};
    }
    return count;
}
