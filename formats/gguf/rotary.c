/* Rotary positions that a GGUF file scales by tensors: the divisors of Llama 3's rule, and the factors
 * of LongRoPE. O(pairs). */
#include "config.h"
#include "file.h"

#include "base/text.h"
#include "base/vmath_pow.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* The number of pairs that rotate. */
static double pair_count(const gguf_reader *r)
{
    const double rotated = weft__gguf_number_of(r, "rope.dimension_count");
    return (rotated > 0 ? rotated : weft__gguf_head_width(r)) / 2;
}

/* ---- Rotary frequencies of Llama 3 ---- */

double weft__gguf_llama3_speed(double base, double factor, int64_t i, int64_t n)
{
    const double turns =
        GGUF_LLAMA3_POSITIONS * vm_pow_f64(base, -(double)i / (double)n) / 6.283185307179586;
    const double kept = turns < 1 ? 0 : turns > 4 ? 1 : (turns - 1) / 3;
    return (1 - kept) / factor + kept;
}

/* convert_hf_to_gguf.py writes by what the frequency of each pair is divided, in place of the rule
 * and its numbers. The largest is the factor; the others must follow from it. */
static weft_status read_rope_freqs(gguf_reader *r)
{
    char number[TEXT_NUMBER_BYTES];
    const weft_gguf_tensor *t = weft_gguf_find(r->file, GGUF_ROPE_FREQS);
    if (!t) return WEFT_OK;
    const double base = weft__gguf_key(r, "rope.freq_base")
                            ? weft__gguf_number_of(r, "rope.freq_base")
                            : 10000,
                 pairs = pair_count(r);
    if (t->shape.rank != 1 || (double)t->shape.dim[0] != pairs ||
        weft__gguf_is_scaled_by(r, "linear|yarn|longrope") || weft__gguf_has_factors(r))
        return weft_error_set(r->error, WEFT_BAD_FILE, r->file->path,
                              "%s must be one number for each of %.0f pairs, and the only scaling",
                              t->name, pairs);
    const int64_t n = t->shape.dim[0];
    float *divisors = malloc(sizeof *divisors * ((size_t)n + 1));
    if (!divisors) return weft_error_set(r->error, WEFT_NO_MEMORY, r->file->path, "no memory");
    weft_status status = weft_gguf_read(r->file, t, divisors, r->error);
    double factor = 1;
    for (int64_t i = 0; i < n && status == WEFT_OK; i++)
        if (divisors[i] > factor) factor = divisors[i];
    bool good = true;
    for (int64_t i = 0; i < n && status == WEFT_OK; i++) {
        const double speed = weft__gguf_llama3_speed(base, factor, i, n);
        good = good && fabs(divisors[i] * speed - 1) < 1e-4;
    }
    free(divisors);
    if (status != WEFT_OK) return status;
    if (!good)
        return weft_error_set(r->error, WEFT_BAD_FILE, r->file->path,
                              "%s are not those of Llama 3's rule with %d positions", t->name,
                              GGUF_LLAMA3_POSITIONS);
    if (factor == 1) return WEFT_OK;
    weft__gguf_add_word(r, "rotary_scaling", "llama3");
    weft__gguf_add_word(r, "rotary_factor", weft__text_from_double(factor, number));
    weft__gguf_add_word(r, "rotary_positions",
                        weft__text_from_double(GGUF_LLAMA3_POSITIONS, number));
    return WEFT_OK;
}

/* ---- LongRoPE ---- */

/* Reads one of the lists as the word "rotary_factors=a,b,...". */
static weft_status read_factors(gguf_reader *r, const weft_gguf_tensor *t)
{
    char number[TEXT_NUMBER_BYTES];
    float factors[WEFT_ROTARY_FACTORS];
    const weft_status status = weft_gguf_read(r->file, t, factors, r->error);
    size_t used = (size_t)snprintf(r->factors, sizeof r->factors, "rotary_factors=");
    for (int64_t i = 0; i < t->shape.dim[0] && status == WEFT_OK; i++) {
        const double x = (double)factors[i];
        if (!(x > 0 && x <= 1e9))
            return weft_error_set(r->error, WEFT_BAD_FILE, r->file->path,
                                  "number %lld of %s is not above 0 and at most 1e9", (long long)i,
                                  t->name);
        used += (size_t)snprintf(r->factors + used, sizeof r->factors - used, "%s%s", i ? "," : "",
                                 weft__text_from_double(x, number));
    }
    return status;
}

/* Takes the list for the context: up to the original length the short one. The other keys of
 * scaling must say nothing. */
static weft_status read_rope_factors(gguf_reader *r)
{
    static const char *const names[] = {GGUF_ROPE_SHORT, GGUF_ROPE_LONG};
    const double most = weft__gguf_number_of(r, "context_length"), pairs = pair_count(r);
    double positions = weft__gguf_number_of(r, "rope.scaling.original_context_length");
    char number[TEXT_NUMBER_BYTES];
    const weft_gguf_value *factor = weft__gguf_key(r, "rope.scaling.factor");
    if (!weft__gguf_has_factors(r)) return WEFT_OK;
    if (!(positions > 0 && positions <= most)) positions = most;
    for (int i = 0; i < 2; i++) {
        const weft_gguf_tensor *t = weft_gguf_find(r->file, names[i]);
        if (!t || t->shape.rank != 1 || (double)t->shape.dim[0] != pairs ||
            pairs > WEFT_ROTARY_FACTORS || pairs < 1)
            return weft_error_set(r->error, WEFT_BAD_FILE, r->file->path,
                                  "%s must be there and have a number for each of %.9g pairs, at "
                                  "most %d",
                                  names[i], pairs, WEFT_ROTARY_FACTORS);
    }
    if (weft__gguf_is_scaled_by(r, "linear|yarn") ||
        (factor && weft__gguf_number_of(r, "rope.scaling.factor") != 1))
        return weft_error_set(r->error, WEFT_BAD_FILE, r->file->path,
                              "%s must be the only scaling of rotary positions", names[0]);
    if ((double)r->context > most)
        return weft_error_set(r->error, WEFT_BAD_ARGUMENT, r->file->path,
                              "context_length is %.9g: a context of %lld is too long", most,
                              (long long)r->context);
    const bool is_long = (double)r->context > positions;
    weft__gguf_add_word(r, "rotary_scaling", "longrope");
    weft__gguf_add_word(r, "max_positions",
                        weft__text_from_double(is_long ? most : positions, number));
    return read_factors(r, weft_gguf_find(r->file, names[is_long]));
}

weft_status weft__gguf_read_rotary(gguf_reader *r)
{
    const weft_status status = read_rope_freqs(r);
    return status == WEFT_OK ? read_rope_factors(r) : status;
}
