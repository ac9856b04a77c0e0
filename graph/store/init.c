/* Initial contents of states. A counter-based generator computes element i of a tensor from the
 * seed, the tensor's name and i alone. So the order of declarations does not matter, and a part of
 * a tensor is made without the rest. O(elements).
 */
#include "init.h"

#include "base/float_env.h"
#include "base/half.h"
#include "base/hash.h"
#include "base/vmath_sin.h"

#include <math.h>

/* Two uniform numbers in [0, 1) for element i. */
static void uniforms(uint64_t key, uint64_t i, double u[2])
{
    const uint32_t counter[4] = {(uint32_t)i, (uint32_t)(i >> 32), 0x696e6974u, 0};
    uint32_t r[4];
    weft_philox(counter, key, r);
    u[0] = weft_uniform(&r[0]);
    u[1] = weft_uniform(&r[2]);
}

typedef struct fans {
    double in, out;
} fans;

/* Of a weight [in, out], where a vector [n] counts as [1, n]; or, of the kinds CONV_, of
 * [out, in / groups, kernel...]. */
static fans fans_of(weft_init_kind kind, weft_shape shape)
{
    const double first = shape.rank > 0 ? (double)shape.dim[0] : 1;
    if (kind < WEFT_INIT_CONV_XAVIER_UNIFORM)
        return shape.rank > 1 ? (fans){first, (double)shape.dim[1]} : (fans){1, first};
    double kernel = 1;
    for (int d = 2; d < shape.rank; d++) kernel *= (double)shape.dim[d];
    return (fans){(double)shape.dim[1] * kernel, first * kernel};
}

/* Box & Muller 1958: N(0, 1) from two uniform numbers. */
static double normal(const double u[2])
{
    return sqrt(-2 * vm_log_f64(1 - u[0])) * vm_cos_f64(6.283185307179586 * u[1]);
}

static double element(const weft_init *init, fans fan, uint64_t key, uint64_t i)
{
    double u[2], spread = init->a, sum = fan.in + fan.out;
    if (init->kind == WEFT_INIT_CONSTANT) return init->a;
    uniforms(key, i, u);
    switch (init->kind) {
    case WEFT_INIT_UNIFORM:
        return init->a + (init->b - init->a) * u[0];
    case WEFT_INIT_NORMAL:
        return init->a + init->b * normal(u);
    case WEFT_INIT_XAVIER_UNIFORM:
    case WEFT_INIT_CONV_XAVIER_UNIFORM:
        return spread * sqrt(6 / sum) * (2 * u[0] - 1);
    case WEFT_INIT_XAVIER_NORMAL:
    case WEFT_INIT_CONV_XAVIER_NORMAL:
        return spread * sqrt(2 / sum) * normal(u);
    case WEFT_INIT_KAIMING_UNIFORM:
    case WEFT_INIT_CONV_KAIMING_UNIFORM:
        return spread * sqrt(3 / fan.in) * (2 * u[0] - 1);
    default:
        return spread / sqrt(fan.in) * normal(u);
    }
}

part_runs weft__part_runs_of(const weft_part *part, weft_shape shape)
{
    part_runs runs = {1, weft_shape_numel(shape), 0, 0};
    if (!part || !part->whole) return runs;
    int64_t inner = 1;
    for (int d = 0; d < part->axis; d++) runs.rows *= shape.dim[d];
    for (int d = part->axis + 1; d < shape.rank; d++) inner *= shape.dim[d];
    return (part_runs){runs.rows, shape.dim[part->axis] * inner, part->whole * inner,
                       part->first * inner};
}

weft_shape weft__part_whole(const weft_part *part, weft_shape shape)
{
    if (part && part->whole) shape.dim[part->axis] = part->whole;
    return shape;
}

void weft_init_fill(const weft_init *init, weft_dtype dtype, weft_shape shape,
                    const weft_part *part, uint64_t seed, const char *name, void *data)
{
    const part_runs runs = weft__part_runs_of(part, shape);
    const float_env env = float_env_set();
    const int64_t n = weft_shape_numel(shape);
    uint64_t key = hash_text(name) ^ (seed * 0x9E3779B97F4A7C15u);
    const fans fan = fans_of(init->kind, weft__part_whole(part, shape));
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i / runs.length * runs.stride + runs.offset + i % runs.length;
        double x = element(init, fan, key, (uint64_t)at);
        switch (dtype) {
        case WEFT_F32:
            ((float *)data)[i] = (float)x;
            break;
        case WEFT_F64:
            ((double *)data)[i] = x;
            break;
        case WEFT_I32:
            ((int32_t *)data)[i] = (int32_t)fmax(fmin(x, INT32_MAX), INT32_MIN);
            break;
        case WEFT_BF16:
            ((uint16_t *)data)[i] = half_to_bf16((float)x);
            break;
        case WEFT_U8:
            ((uint8_t *)data)[i] = (uint8_t)fmax(fmin(x, UINT8_MAX), 0);
            break;
        default:
            ((uint8_t *)data)[i] = x != 0;
            break;
        }
    }
    float_env_restore(env);
}
