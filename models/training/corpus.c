/* Corpora of token ids, and the cross-entropy of their unigram distribution. A sequence is appended
 * in amortised O(tokens). */
#include "batches.h"

#include "base/hash.h"
#include "base/vmath.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

weft_corpus *weft_corpus_new(void)
{
    weft_corpus *c = calloc(1, sizeof *c);
    if (c) c->source_hash = c->target_hash = HASH_START;
    return c;
}

void weft_corpus_free(weft_corpus *corpus)
{
    if (!corpus) return;
    free(corpus->ids);
    free(corpus->sequences);
    free(corpus);
}

static uint64_t hash_ids(uint64_t hash, const int32_t *ids, size_t n)
{
    hash = hash_number(hash, n);
    for (size_t i = 0; i < n; i++) hash = hash_number(hash, (uint32_t)ids[i]);
    return hash;
}

static bool reserve(weft_corpus *c, size_t ids)
{
    if (c->n == c->capacity) {
        size_t grown = c->capacity ? 2 * c->capacity : 1024;
        sequence *moved = realloc(c->sequences, grown * sizeof *moved);
        if (!moved) return false;
        c->sequences = moved;
        c->capacity = grown;
    }
    if (ids > c->id_capacity - c->n_ids) {
        size_t grown = 2 * c->id_capacity + ids + 16384;
        int32_t *moved = realloc(c->ids, grown * sizeof *moved);
        if (!moved) return false;
        c->ids = moved;
        c->id_capacity = grown;
    }
    return true;
}

weft_status weft_corpus_add(weft_corpus *corpus, const int32_t *source, size_t n_source,
                            const int32_t *target, size_t n_target, weft_error *error)
{
    weft_corpus *c = corpus;
    weft_error_clear(error);
    if (!c || (n_source && !source) || (n_target && !target))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "corpus",
                              "the corpus or a sequence is NULL");
    if (c->n >= UINT32_MAX || n_source > SIZE_MAX / 64 || n_target > SIZE_MAX / 64)
        return weft_error_set(error, WEFT_TOO_LARGE, "corpus", "the sequences are too long");
    if (!reserve(c, n_source + n_target))
        return weft_error_set(error, WEFT_NO_MEMORY, "corpus", "no memory for a sequence");
    c->sequences[c->n++] = (sequence){c->n_ids, c->n_ids + n_source, n_source, n_target};
    if (n_source) memcpy(c->ids + c->n_ids, source, n_source * sizeof *source);
    if (n_target) memcpy(c->ids + c->n_ids + n_source, target, n_target * sizeof *target);
    c->n_ids += n_source + n_target;
    c->source_hash = hash_ids(c->source_hash, source, n_source);
    c->target_hash = hash_ids(c->target_hash, target, n_target);
    return WEFT_OK;
}

size_t weft_corpus_count(const weft_corpus *corpus)
{
    return corpus ? corpus->n : 0;
}

double weft_corpus_unigram_entropy(const weft_corpus *counted, const weft_corpus *measured,
                                   int64_t vocab, int32_t eos)
{
    if (!counted || !measured || vocab < 1 || eos < 0 || eos >= vocab) return NAN;
    double *count = calloc((size_t)vocab, sizeof *count), total = (double)vocab, sum = 0, n = 0;
    if (!count) return NAN;
    for (size_t i = 0; i < counted->n; i++) {
        const sequence *s = &counted->sequences[i];
        for (size_t k = 0; k <= s->n_target; k++) {
            int32_t id = k < s->n_target ? counted->ids[s->target + k] : eos;
            if (id < 0 || id >= vocab) continue;
            count[id]++;
            total++;
        }
    }
    for (size_t i = 0; i < measured->n; i++) {
        const sequence *s = &measured->sequences[i];
        for (size_t k = 0; k <= s->n_target; k++) {
            int32_t id = k < s->n_target ? measured->ids[s->target + k] : eos;
            if (id < 0 || id >= vocab) continue;
            sum -= vm_log_f64((count[id] + 1) / total);
            n++;
        }
    }
    free(count);
    return n ? sum / n : NAN;
}
