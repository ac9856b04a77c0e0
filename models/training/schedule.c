/* Schedules of the learning rate: pure functions of the number of the update. */
#include "base/vmath_pow.h"
#include "base/vmath_sin.h"

#include <weft/train.h>

#include <math.h>

static const char *const names[] = {
#define NAME(name, text) text,
    WEFT_SCHEDULE_MAP(NAME)
#undef NAME
};

const char *weft_schedule_kind_name(weft_schedule_kind kind)
{
    return (size_t)kind < sizeof names / sizeof *names ? names[kind] : NULL;
}

/* The progress of the decay, in [0, 1]. With limits of updates and of time, the larger of the two
 * fractions counts. */
static double progress(const weft_schedule *s, double updates, double spent)
{
    double warmup = (double)s->warmup, total = (double)s->total, p = spent;
    double at = fmax(updates, spent * total);
    if (s->total) p = total > warmup ? (at - warmup) / (total - warmup) : at >= total;
    return p > 0 ? fmin(p, 1) : 0;
}

static const double pi = 3.14159265358979323846;

/* From `begin` to `end` by half a cosine, as p goes from 0 to 1. */
static double half_cosine(double begin, double end, double p)
{
    return end + (begin - end) * (1 + vm_cos_f64(pi * p)) / 2;
}

static double decayed(const weft_schedule *s, double updates, double spent)
{
    double warmup = s->warmup ? (double)s->warmup : 1;
    switch (s->kind) {
    case WEFT_SCHEDULE_LINEAR:
        return s->floor + (s->peak - s->floor) * (1 - progress(s, updates, spent));
    case WEFT_SCHEDULE_COSINE:
    case WEFT_SCHEDULE_ONE_CYCLE:
        return half_cosine(s->peak, s->floor, progress(s, updates, spent));
    case WEFT_SCHEDULE_STEP:
        return fmax(s->floor, s->peak / vm_pow_f64(10, floor(3 * progress(s, updates, spent))));
    case WEFT_SCHEDULE_EXPONENTIAL:
        return s->peak * vm_pow_f64(s->floor / s->peak, progress(s, updates, spent));
    case WEFT_SCHEDULE_INVERSE_SQRT:
        return fmax(s->floor, s->peak * fmin(1, sqrt(warmup / (updates + 1))));
    default:
        return s->peak;
    }
}

double weft_schedule_rate(const weft_schedule *schedule, uint64_t updates, double spent)
{
    if (!schedule) return 0;
    double rate = decayed(schedule, (double)updates, spent);
    if (updates + 1 >= schedule->warmup) return rate;
    if (schedule->kind == WEFT_SCHEDULE_ONE_CYCLE) {
        const double done = (double)updates / (double)(schedule->warmup - 1);
        const double q = fmin(1, fmax(done, spent / WEFT_WARMUP_BUDGET));
        return fmin(rate, half_cosine(schedule->peak / 25, schedule->peak, q));
    }
    double warm = schedule->peak * (double)(updates + 1) / (double)schedule->warmup;
    if (schedule->kind != WEFT_SCHEDULE_INVERSE_SQRT)
        warm = fmax(warm, schedule->peak * spent / WEFT_WARMUP_BUDGET);
    return fmin(rate, warm);
}

double weft_noam_peak(int64_t d_model, uint64_t warmup)
{
    return 1 / sqrt((double)d_model * (double)(warmup ? warmup : 1));
}
