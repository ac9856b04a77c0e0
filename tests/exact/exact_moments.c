/* Moments of some elements. See exact_math.h.
 *
 * Two passes: the mean, and the squares of the deviations from it. A mean that is more than four
 * standard deviations from zero is corrected by the mean of the deviations. */
#include "exact_math.h"

moments exact_moments(bool column, const T *x, int64_t n, T *space)
{
    const double sum = add_terms(column, 0, x, n);
    T mean = n ? (T)(sum / (double)n) : 0;
    double square = sum_of_squares(column, x, n, mean, space);
    if (mean_is_far(mean, square, n)) {
        const double low = corrected(column, x, n, &mean, &square, space);
        return (moments){(double)mean + low, square};
    }
    const double miss = n ? sum / (double)n - (double)mean : 0;
    const double rest = square - (double)n * miss * miss;
    return (moments){(double)mean + miss, rest < 0 ? 0 : rest};
}
