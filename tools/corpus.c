/* Reading a corpus, sorting it into classes of length, making batches. */
#include "corpus.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const int32_t bucket_lengths[BUCKETS] = {16, 24, 32, 40, 48, 64, 96};

static weft_status out_of_memory(weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, "corpus", "out of memory");
}

static bool encode(const spm *vocabulary, const char *line, int32_t most, int32_t **ids,
                   int32_t *length)
{
    int32_t buffer[1024];
    size_t n = spm_encode(vocabulary, line, buffer, 1023);
    *ids = NULL;
    *length = n > 1023 ? INT32_MAX : (int32_t)n + 1;
    if (n == 0 || *length > most) return true;
    buffer[n] = SPM_EOS;
    *ids = malloc((n + 1) * sizeof **ids);
    if (!*ids) return false;
    memcpy(*ids, buffer, (n + 1) * sizeof **ids);
    return true;
}

static bool add_pair(corpus *c, size_t *capacity, const spm *vocabulary, const char *source,
                     const char *target, int32_t most)
{
    pair p = {0};
    if (c->n == *capacity) {
        size_t grown = *capacity ? 2 * *capacity : 1024;
        pair *pairs = realloc(c->pairs, grown * sizeof *pairs);
        if (!pairs) return false;
        c->pairs = pairs;
        *capacity = grown;
    }
    if (!encode(vocabulary, source, most, &p.source, &p.source_len) ||
        !encode(vocabulary, target, most, &p.target, &p.target_len)) {
        free(p.source);
        return false;
    }
    if (p.source && p.target) {
        c->pairs[c->n++] = p;
        return true;
    }
    if (p.source_len > most || p.target_len > most)
        c->too_long++;
    else
        c->empty++;
    free(p.source);
    free(p.target);
    return true;
}

/* One line without its end; false at the end of the file. */
static bool read_line(FILE *file, char **line, size_t *capacity)
{
    ssize_t n = getline(line, capacity, file);
    if (n < 0) return false;
    while (n && ((*line)[n - 1] == '\n' || (*line)[n - 1] == '\r')) (*line)[--n] = 0;
    return true;
}

static weft_status read_pairs(corpus *c, FILE *source, FILE *target, const char *source_path,
                              const char *target_path, const spm *vocabulary, int32_t most,
                              weft_error *error)
{
    char *a = NULL, *b = NULL;
    size_t a_size = 0, b_size = 0, capacity = 0, line = 0;
    weft_status status = WEFT_OK;
    for (;;) {
        bool more_a = read_line(source, &a, &a_size), more_b = read_line(target, &b, &b_size);
        if (more_a != more_b && !ferror(source) && !ferror(target))
            status = weft_error_set(error, WEFT_BAD_FILE, more_a ? target_path : source_path,
                                    "ends after %zu lines, %s goes on", line,
                                    more_a ? source_path : target_path);
        if (!more_a || !more_b) break;
        line++;
        if (!add_pair(c, &capacity, vocabulary, a, b, most)) {
            status = out_of_memory(error);
            break;
        }
    }
    free(a);
    free(b);
    if (ferror(source) || ferror(target))
        return weft_error_set(error, WEFT_IO, ferror(source) ? source_path : target_path,
                              "cannot be read: %s", strerror(errno));
    if (status == WEFT_OK && c->n == 0)
        status = weft_error_set(error, WEFT_BAD_FILE, source_path,
                                "gives no pair of sentences of 1 to %d tokens", most - 1);
    return status;
}

weft_status corpus_load(corpus *c, const char *source_path, const char *target_path,
                        const spm *vocabulary, int32_t most_len, weft_error *error)
{
    memset(c, 0, sizeof *c);
    FILE *source = fopen(source_path, "r");
    if (!source)
        return weft_error_set(error, WEFT_IO, source_path, "cannot be opened: %s", strerror(errno));
    FILE *target = fopen(target_path, "r");
    if (!target) {
        weft_error_set(error, WEFT_IO, target_path, "cannot be opened: %s", strerror(errno));
        fclose(source);
        return WEFT_IO;
    }
    weft_status status =
        read_pairs(c, source, target, source_path, target_path, vocabulary, most_len, error);
    fclose(source);
    fclose(target);
    if (status != WEFT_OK) corpus_free(c);
    return status;
}

void corpus_free(corpus *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->pairs[i].source);
        free(c->pairs[i].target);
    }
    free(c->pairs);
    memset(c, 0, sizeof *c);
}

int bucket_of(const pair *p)
{
    int b = 0;
    while (b < BUCKETS - 1 &&
           (p->source_len > bucket_lengths[b] || p->target_len > bucket_lengths[b]))
        b++;
    return b;
}

int64_t bucket_batch(int bucket, int64_t tokens)
{
    int64_t n = tokens / bucket_lengths[bucket];
    return n < 1 ? 1 : n;
}

static uint64_t random_of(uint64_t seed, uint64_t i)
{
    uint64_t z = seed * 0xD1342543DE82EF95u + (i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Fisher-Yates */
static void shuffle(uint32_t *order, size_t n, uint64_t seed)
{
    for (size_t i = n; i > 1; i--) {
        size_t k = random_of(seed, i) % i;
        uint32_t old = order[k];
        order[k] = order[i - 1];
        order[i - 1] = old;
    }
}

/* The pairs of class b, shuffled and filled up to whole batches, after e->order[*used]. */
static void add_bucket(epoch *e, const corpus *c, int b, int64_t tokens, uint64_t seed,
                       size_t *used)
{
    size_t first = *used, size = (size_t)bucket_batch(b, tokens);
    for (uint32_t i = 0; i < c->n; i++)
        if (bucket_of(&c->pairs[i]) == b) e->order[(*used)++] = i;
    size_t n = *used - first;
    if (!n) return;
    shuffle(e->order + first, n, seed + (uint64_t)b);
    while ((*used - first) % size) {
        e->order[*used] = e->order[first + (*used - first) % n];
        (*used)++;
    }
    for (size_t at = first; at < *used; at += size) {
        size_t left = first + n - at;
        e->batches[e->n_batches++] = (batch){b, at, (int64_t)(left < size ? left : size)};
    }
}

weft_status epoch_make(epoch *e, const corpus *c, int64_t tokens, uint64_t seed)
{
    size_t most = c->n;
    for (int b = 0; b < BUCKETS; b++) most += (size_t)bucket_batch(b, tokens);
    e->n_batches = 0;
    e->order = malloc(most * sizeof *e->order);
    e->batches = malloc(most * sizeof *e->batches);
    if (!e->order || !e->batches) {
        epoch_free(e);
        return WEFT_NO_MEMORY;
    }
    size_t used = 0;
    for (int b = 0; b < BUCKETS; b++) add_bucket(e, c, b, tokens, seed, &used);
    for (size_t i = e->n_batches; i > 1; i--) {
        size_t k = random_of(seed ^ 0xBA7C4, i) % i;
        batch old = e->batches[k];
        e->batches[k] = e->batches[i - 1];
        e->batches[i - 1] = old;
    }
    return WEFT_OK;
}

void epoch_free(epoch *e)
{
    free(e->order);
    free(e->batches);
    memset(e, 0, sizeof *e);
}

size_t batch_fill(const corpus *c, const uint32_t *order, int64_t rows, int64_t size, int32_t len,
                  int32_t *source, int32_t *target_in, int32_t *target_out)
{
    size_t tokens = 0, rest = (size_t)((size - rows) * len) * sizeof *source;
    memset(source + rows * len, SPM_PAD, rest);
    memset(target_in + rows * len, SPM_PAD, rest);
    memset(target_out + rows * len, SPM_PAD, rest);
    for (int64_t row = 0; row < rows; row++) {
        const pair *p = &c->pairs[order[row]];
        int32_t *s = source + row * len, *in = target_in + row * len, *out = target_out + row * len;
        for (int32_t i = 0; i < len; i++) {
            s[i] = i < p->source_len ? p->source[i] : SPM_PAD;
            out[i] = i < p->target_len ? p->target[i] : SPM_PAD;
            in[i] = i == 0 ? SPM_BOS : i < p->target_len ? p->target[i - 1] : SPM_PAD;
        }
        tokens += (size_t)p->target_len;
    }
    return tokens;
}

double unigram_entropy(const corpus *counted, const corpus *measured, int vocab)
{
    double *count = calloc((size_t)vocab, sizeof *count), total = vocab, sum = 0, n = 0;
    if (!count) return NAN;
    for (size_t i = 0; i < counted->n; i++)
        for (int32_t k = 0; k < counted->pairs[i].target_len; k++) {
            count[counted->pairs[i].target[k]]++;
            total++;
        }
    for (size_t i = 0; i < measured->n; i++)
        for (int32_t k = 0; k < measured->pairs[i].target_len; k++) {
            sum -= log((count[measured->pairs[i].target[k]] + 1) / total);
            n++;
        }
    free(count);
    return n ? sum / n : NAN;
}
