/* Rotary positions (Su et al. 2021), and the ways to scale their frequencies for texts longer than
 * those of the training. Everything is computed in f64 by base/vmath, not by libm: the frequencies
 * are part of docs/arithmetic.md. O(positions x width). */
#include "shared.h"
#include "base/vmath.h"
#include "base/vmath_pow.h"
#include "base/vmath_sin.h"

#include <weft/models.h>

#include <math.h>
#include <stdlib.h>

#define TURN 6.283185307179586 /* radians */

/* ---- Frequencies ---- */

/* A rule with its defaults, and the range of pairs that YaRN interpolates. */
typedef struct frequencies {
    weft_rotary_scaling scaling;
    double width, base;
    double first, last; /* YaRN: pairs up to `first` keep their frequency, from `last` on all is
                           scaled */
    double magnitude;   /* of cosines and sines */
} frequencies;

/* The pair, as a fraction, that makes `turns` turns in the positions of the training. */
static double pair_of(const frequencies *f, double turns)
{
    const double positions = (double)f->scaling.positions;
    return f->width * vm_log_f64(positions / (turns * TURN)) / (2 * vm_log_f64(f->base));
}

static frequencies frequencies_of(const weft_rotary_scaling *scaling, int64_t width, double base)
{
    frequencies f = {.width = (double)width, .base = base, .magnitude = 1};
    weft_rotary_scaling *s = &f.scaling;
    if (scaling) *s = *scaling;
    if (s->factor == 0) s->factor = 1;
    if (s->slow == 0) s->slow = 1;
    if (s->fast == 0) s->fast = s->rule == WEFT_ROTARY_YARN ? 32 : 4;
    if (s->rule == WEFT_ROTARY_LONGROPE && s->magnitude != 0) f.magnitude = s->magnitude;
    if (s->rule != WEFT_ROTARY_YARN) return f;
    const double first = floor(pair_of(&f, s->fast)), last = ceil(pair_of(&f, s->slow));
    f.first = first > 0 ? first : 0;
    f.last = last < f.width - 1 ? last : f.width - 1;
    if (f.first == f.last) f.last += 0.001;
    f.magnitude = s->magnitude;
    if (f.magnitude == 0) f.magnitude = s->factor > 1 ? 0.1 * vm_log_f64(s->factor) + 1 : 1;
    return f;
}

static double bounded(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* The angle of pair i between two positions. */
static double frequency_at(const frequencies *f, int64_t i)
{
    const weft_rotary_scaling *s = &f->scaling;
    const double plain = vm_pow_f64(f->base, -2 * (double)i / f->width);
    double kept = 0; /* how much of the frequency is not scaled */
    switch (s->rule) {
    case WEFT_ROTARY_PLAIN:
        return plain;
    case WEFT_ROTARY_LINEAR:
        return plain / s->factor;
    case WEFT_ROTARY_LONGROPE:
        return plain / (double)s->factors[i];
    case WEFT_ROTARY_LLAMA3:
        kept = bounded(((double)s->positions * plain / TURN - s->slow) / (s->fast - s->slow));
        break;
    case WEFT_ROTARY_YARN:
        kept = 1 - bounded(((double)i - f->first) / (f->last - f->first));
        break;
    }
    return (1 - kept) * (plain / s->factor) + kept * plain;
}

/* Whether each pair has a factor, and no other number is there. */
static bool has_factors(const frequencies *f)
{
    const float *factors = f->scaling.factors;
    int64_t n = 0;
    while (n < WEFT_ROTARY_FACTORS && factors[n] > 0) n++;
    return 2 * n == (int64_t)f->width && (n == WEFT_ROTARY_FACTORS || factors[n] == 0);
}

/* NULL, or why the angles of `length` positions cannot be computed. */
static const char *problem_of(const frequencies *f, int64_t length)
{
    const weft_rotary_scaling *s = &f->scaling;
    const bool by_turns = s->rule == WEFT_ROTARY_LLAMA3 || s->rule == WEFT_ROTARY_YARN;
    if ((unsigned)s->rule > WEFT_ROTARY_LONGROPE) return "invalid rule of scaling";
    if (!(s->factor > 0)) return "the factor of scaling must be above 0";
    if (by_turns && s->positions < 1) return "scaling needs the positions of the training";
    if (by_turns && !(s->slow > 0 && s->fast > s->slow))
        return "the fast turns of scaling must be more than the slow ones, and these above 0";
    if (s->rule == WEFT_ROTARY_YARN && !(f->base > 1 && s->magnitude >= 0))
        return "YaRN needs a base above 1 and a magnitude of 0 or more";
    if (s->rule != WEFT_ROTARY_LONGROPE) return NULL;
    if (!has_factors(f)) return "LongRoPE needs a factor above 0 for each pair, at most 64";
    if (!(s->magnitude >= 0)) return "LongRoPE needs a magnitude of 0 or more";
    if (s->positions > 0 && length > s->positions)
        return "the length is above the positions that the factors of LongRoPE are for";
    return NULL;
}

/* ---- Angles ---- */

weft_rotary weft_nn_scaled_rotary_angles(weft_graph *graph, weft_dtype dtype, int64_t length,
                                         int64_t width, double base,
                                         const weft_rotary_scaling *scaling)
{
    weft_graph *g = graph;
    weft_rotary angles = {WEFT_NO_VALUE, WEFT_NO_VALUE};
    const int64_t half = width / 2;
    if (width < 2 || width % 2 || !(base > 0)) {
        weft_graph_fail_in(g, "weft_nn_rotary", WEFT_BAD_SHAPE,
                           "x must be [batch, length, heads, an even width] and the base above 0");
        return angles;
    }
    const frequencies f = frequencies_of(scaling, width, base);
    const char *problem = problem_of(&f, length);
    if (problem) weft_graph_fail_in(g, "weft_nn_rotary", WEFT_BAD_ARGUMENT, "%s", problem);
    double *cosines = weft__table_new(g, "weft_nn_rotary", length, half), *sines = NULL;
    if (cosines) sines = weft__table_new(g, "weft_nn_rotary", length, half);
    if (!sines) {
        free(cosines);
        return angles;
    }
    for (int64_t i = 0; i < half; i++) {
        const double frequency = frequency_at(&f, i);
        for (int64_t at = 0; at < length; at++) {
            const double angle = (double)at * frequency;
            cosines[at * half + i] = f.magnitude * vm_cos_f64(angle);
            sines[at * half + i] = f.magnitude * vm_sin_f64(angle);
        }
    }
    angles.cosines = weft__table_value(g, dtype, WEFT_SHAPE(length, half), cosines);
    angles.sines = weft__table_value(g, dtype, WEFT_SHAPE(length, half), sines);
    return angles;
}

weft_rotary weft_nn_rotary_angles(weft_graph *graph, weft_dtype dtype, int64_t length,
                                  int64_t head_dim, double base)
{
    return weft_nn_scaled_rotary_angles(graph, dtype, length, head_dim, base, NULL);
}

/* ---- Rotating ---- */

/* Rotates the pairs (x[i], x[i + half]) of x [batch, length, heads, width] by angles with cosines c
 * and sines s, [length, 1, half]. What follows the pairs stays as it is. */
static weft_value rotate_pairs(weft_graph *g, weft_value x, weft_value c, weft_value s)
{
    const int64_t width = weft_dim_of(g, x, -1), half = weft_dim_of(g, c, -1);
    weft_value a = weft_slice(g, x, -1, 0, half, 1), b = weft_slice(g, x, -1, half, 2 * half, 1);
    const weft_value ac = weft_mul(g, a, c), bs = weft_mul(g, b, s), first = weft_sub(g, ac, bs);
    const weft_value bc = weft_mul(g, b, c), as = weft_mul(g, a, s), second = weft_add(g, bc, as);
    weft_value parts[3] = {first, second, WEFT_NO_VALUE};
    const bool rest = 2 * half < width;
    if (rest) parts[2] = weft_slice(g, x, -1, 2 * half, width, 1);
    return weft_concat(g, parts, rest ? 3 : 2, -1);
}

/* Rows of angles [positions, half] as [length, 1, half]: the first ones, or those from `position`
 * on; for positions [rows] as [rows, length, 1, half]. */
static weft_value rows_for(weft_graph *g, weft_value angles, int64_t length, weft_value position)
{
    if (weft_is_value(position)) {
        weft_value at = weft_nn_positions_at(g, position, length);
        return weft_embedding(g, angles, weft_expand_dims(g, at, -1), -1);
    }
    if (weft_dim_of(g, angles, 0) != length) angles = weft_slice(g, angles, 0, 0, length, 1);
    return weft_expand_dims(g, angles, 1);
}

weft_value weft_nn_rotate(weft_graph *graph, weft_value x, const weft_rotary *angles,
                          weft_value position)
{
    weft_graph *g = graph;
    if (weft_graph_status(g) != WEFT_OK) return WEFT_NO_VALUE;
    if (!angles || weft_rank_of(g, x) != 4 ||
        weft_dim_of(g, x, -1) < 2 * weft_dim_of(g, angles->cosines, -1)) {
        weft_graph_fail_in(g, "weft_nn_rotary", WEFT_BAD_SHAPE,
                           "x must be [batch, length, heads, an even width] and the base above 0");
        return WEFT_NO_VALUE;
    }
    int64_t length = weft_dim_of(g, x, 1);
    const weft_value cosines = rows_for(g, angles->cosines, length, position);
    return rotate_pairs(g, x, cosines, rows_for(g, angles->sines, length, position));
}

weft_value weft_nn_rotary(weft_graph *graph, weft_value x, double base)
{
    weft_rotary angles = weft_nn_rotary_angles(
        graph, weft_dtype_of(graph, x), weft_dim_of(graph, x, 1), weft_dim_of(graph, x, -1), base);
    return weft_nn_rotate(graph, x, &angles, WEFT_NO_VALUE);
}

weft_value weft_nn_rotary_at(weft_graph *graph, weft_value x, double base, weft_value position,
                             int64_t max_positions)
{
    weft_rotary angles = weft_nn_rotary_angles(graph, weft_dtype_of(graph, x), max_positions,
                                               weft_dim_of(graph, x, -1), base);
    return weft_nn_rotate(graph, x, &angles, position);
}
