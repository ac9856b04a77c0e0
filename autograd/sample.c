/* Contents for the inputs of an op's samples. */
#include "check.h"

#include "base/number.h"

#include <math.h>

/* Value i of n. Each value has a cell of [low, high) of its own, in an order that the seed chooses,
 * and is rounded to a grid of 0.05. The grid is shifted by 1/4 or 3/4 of its width, as the hundreds
 * of the seed say, so that no value equals one of another input or a round number. */
static double distinct_value(const weft_sample_input *input, uint64_t seed, int64_t i, int64_t n)
{
    int64_t stride = 1 + 2 * (int64_t)(seed % 7);
    /* A stride without a common divisor with n visits every cell. */
    while (n > 1 && number_gcd((uint64_t)n, (uint64_t)stride) != 1) stride += 2;
    int64_t cell = (i * stride + (int64_t)(seed % 1000)) % (n ? n : 1);
    double width = (input->high - input->low) / (double)(n ? n : 1);
    double x = input->low + width * ((double)cell + 0.25 + 0.5 * check_uniform(seed, (uint64_t)i));
    return 0.05 * (floor(x / 0.05) + (seed / 100 % 2 ? 0.75 : 0.25));
}

void weft_sample_input_fill(const weft_sample_input *input, weft_dtype dtype, uint64_t seed,
                            void *data)
{
    if (!input || !data) return;
    int64_t n = weft_shape_numel(input->shape);
    weft_dtype d = input->dtype == WEFT_FLOAT ? dtype : input->dtype;
    for (int64_t i = 0; i < n; i++) {
        double u = check_uniform(seed, (uint64_t)i),
               x = input->low + (input->high - input->low) * u;
        if (input->distinct) x = distinct_value(input, seed, i, n);
        switch (d) {
        case WEFT_F32:
            ((float *)data)[i] = (float)x;
            break;
        case WEFT_F64:
            ((double *)data)[i] = x;
            break;
        case WEFT_I32:
            ((int32_t *)data)[i] = (int32_t)floor(x);
            break;
        case WEFT_U8:
            ((uint8_t *)data)[i] = (uint8_t)floor(x);
            break;
        default:
            ((uint8_t *)data)[i] = u < input->high;
            break;
        }
    }
}
