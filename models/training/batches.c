/* Batches of equal shape from the rows of a corpus.
 *
 * Rows are sorted by class of length, in O(classes * sequences), and each class is cut into
 * batches. A last batch that is not full is filled with rows of padding, so an epoch has every row
 * once. */
#include "batches.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

/* ---- Rows ---- */

/* The length of a sequence's row, special tokens included. */
static size_t row_length(const weft_batches *b, const sequence *s)
{
    size_t n = s->n_target;
    if (b->o.whole) return n - 1;
    if (batches_are_pairs(b) && s->n_source > n) n = s->n_source;
    return n + (b->o.mode == WEFT_BATCH_MASKED ? 2 : 1);
}

static size_t class_of(const weft_batches *b, size_t length)
{
    size_t class = 0;
    while (class < b->o.n_lengths - 1 && length > (size_t)b->o.lengths[class]) class ++;
    return class;
}

/* The tokens that a row of the sequence predicts, of those up to the last length. */
static size_t predicted(const weft_batches *b, const sequence *s)
{
    const size_t limit = (size_t)b->o.lengths[b->o.n_lengths - 1];
    const int32_t *ids = b->corpus->ids + s->target;
    size_t n = 0;
    for (size_t i = 1; i < s->n_target && (i <= limit || b->o.mode == WEFT_BATCH_BLOCKS); i++)
        n += ids[i] >= 0;
    return n;
}

/* Whether the sequence is used; counts it if it is left out or cut. */
static bool takes(weft_batches *b, const sequence *s)
{
    size_t limit = (size_t)b->o.lengths[b->o.n_lengths - 1];
    if (!s->n_target || (b->o.whole && !predicted(b, s)) ||
        (batches_are_pairs(b) && !s->n_source)) {
        b->counts.empty++;
        return false;
    }
    size_t length = row_length(b, s);
    bool fits = length <= limit || b->o.mode == WEFT_BATCH_BLOCKS;
    if (!fits && !b->o.truncate) {
        b->counts.left_out++;
        return false;
    }
    b->counts.cut += !fits;
    if (length > limit) length = limit;
    if (length > b->counts.longest) b->counts.longest = length;
    return true;
}

/* Appends a sequence at position n of the stream; returns the position after it. */
static size_t append(weft_batches *b, const sequence *s, size_t n)
{
    const int32_t *ids = b->corpus->ids + s->target;
    if (b->o.whole) {
        for (size_t i = 0; i + 1 < s->n_target; i++, n++) {
            b->stream_in[n] = batches_token(ids[i]);
            b->stream_out[n] = batches_label(b, ids[i + 1]);
        }
        return n;
    }
    b->stream_in[n] = b->o.bos;
    memcpy(b->stream_in + n + 1, ids, s->n_target * sizeof *ids);
    memcpy(b->stream_out + n, ids, s->n_target * sizeof *ids);
    n += s->n_target + 1;
    b->stream_out[n - 1] = b->o.eos;
    return n;
}

/* Lists the blocks that predict something. */
static void list_blocks(weft_batches *b, size_t blocks, size_t length)
{
    b->counts.rows = 0;
    for (size_t i = 0; i < blocks; i++) {
        bool any = !b->o.whole;
        for (size_t k = i * length; !any && k < (i + 1) * length; k++)
            any = b->stream_out[k] != b->o.pad;
        if (any) b->rows[b->counts.rows++] = (uint32_t)i;
    }
    b->class_first[b->o.n_lengths] = b->counts.rows;
}

static bool make_stream(weft_batches *b)
{
    const weft_corpus *c = b->corpus;
    size_t length = (size_t)b->o.lengths[b->o.n_lengths - 1], n = 0;
    for (size_t i = 0; i < c->n; i++)
        if (takes(b, &c->sequences[i])) n += row_length(b, &c->sequences[i]);
    size_t blocks = (n + length - 1) / length;
    b->stream_in = malloc((blocks * length + 1) * sizeof *b->stream_in);
    b->stream_out = malloc((blocks * length + 1) * sizeof *b->stream_out);
    b->rows = malloc((blocks + 1) * sizeof *b->rows);
    b->order = malloc((blocks + 1) * sizeof *b->order);
    if (!b->stream_in || !b->stream_out || !b->rows || !b->order) return false;
    n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const sequence *s = &c->sequences[i];
        if (!s->n_target || (b->o.whole && !predicted(b, s))) continue;
        n = append(b, s, n);
        b->counts.tokens += b->o.whole ? predicted(b, s) : s->n_target + 1;
    }
    b->n_stream = n;
    for (; n < blocks * length; n++) {
        b->stream_in[n] = b->o.whole ? b->o.bos : b->o.pad;
        b->stream_out[n] = b->o.pad;
    }
    list_blocks(b, blocks, length);
    b->counts.longest = b->n_stream < length ? b->n_stream : length;
    return true;
}

/* Sorts the sequences by class; each class is in the order of the corpus. */
static bool make_rows(weft_batches *b)
{
    const weft_corpus *c = b->corpus;
    uint8_t *classes = malloc(c->n + 1);
    b->rows = malloc((c->n + 1) * sizeof *b->rows);
    b->order = malloc((c->n + 1) * sizeof *b->order);
    if (!classes || !b->rows || !b->order) {
        free(classes);
        return false;
    }
    size_t limit = (size_t)b->o.lengths[b->o.n_lengths - 1];
    for (size_t i = 0; i < c->n; i++) {
        const sequence *s = &c->sequences[i];
        classes[i] = UINT8_MAX;
        if (!takes(b, s)) continue;
        classes[i] = (uint8_t)class_of(b, row_length(b, s));
        size_t shown = s->n_target + (b->o.mode != WEFT_BATCH_MASKED);
        b->counts.tokens += b->o.whole ? predicted(b, s) : shown < limit ? shown : limit;
    }
    for (size_t class = 0; class < b->o.n_lengths; class ++) {
        b->class_first[class] = b->counts.rows;
        for (size_t i = 0; i < c->n; i++)
            if (classes[i] == class) b->rows[b->counts.rows++] = (uint32_t)i;
        b->class_first[class + 1] = b->counts.rows;
    }
    free(classes);
    return true;
}

static bool make_batches(weft_batches *b)
{
    size_t n = 0;
    for (size_t class = 0; class < b->o.n_lengths; class ++) {
        size_t rows = b->class_first[class + 1] - b->class_first[class];
        size_t each = (size_t)batches_class_rows(b, class);
        n += (rows + each - 1) / each;
    }
    b->batches = malloc((n + 1) * sizeof *b->batches);
    b->batch_order = malloc((n + 1) * sizeof *b->batch_order);
    if (!b->batches || !b->batch_order) return false;
    for (size_t class = 0; class < b->o.n_lengths; class ++) {
        size_t each = (size_t)batches_class_rows(b, class), end = b->class_first[class + 1];
        for (size_t first = b->class_first[class]; first < end; first += each)
            b->batches[b->n_batches++] = (data_batch){
                (uint32_t) class, (uint32_t)(end - first < each ? end - first : each), first};
    }
    b->counts.batches = n;
    return true;
}

/* ---- Making them ---- */

static bool check_options(const weft_corpus *corpus, const weft_batch_options *o, weft_error *error)
{
    const char *wrong = NULL;
    if (!corpus) {
        wrong = "the corpus is NULL";
    } else if (o->n_lengths < 1 || o->n_lengths > WEFT_MAX_LENGTHS) {
        wrong = "lengths are required, 1 to 32 of them";
    } else {
        for (size_t i = 0; i < o->n_lengths; i++)
            if (o->lengths[i] < (i ? o->lengths[i - 1] + 1 : 3) || o->lengths[i] > 1 << 20)
                wrong = "lengths must ascend and lie from 3 to 1048576";
        if (o->tokens < 1 || o->tokens > INT32_MAX) wrong = "tokens must be 1 to 2147483647";
        if (!(o->mask_fraction >= 0 && o->mask_fraction <= 1)) wrong = "mask_share must be 0 to 1";
        const int32_t special[] = {o->bos, o->whole ? o->bos : o->pad, o->whole ? o->bos : o->eos};
        for (int i = 0; i < 3; i++)
            if (special[i] < 0 || special[i] >= o->vocab)
                wrong = "a special token is not in the vocabulary";
        if (o->whole && o->mode != WEFT_BATCH_LINES && o->mode != WEFT_BATCH_BLOCKS)
            wrong = "whole sequences are for lines and blocks";
        if (o->whole && o->pad >= 0 && o->pad < o->vocab)
            wrong = "the label of what is not predicted is in the vocabulary";
        if (o->vocab < 1) wrong = "vocab is required: the number of ids";
        if (!wrong && !o->whole && o->eos == o->pad)
            wrong = "eos and pad are the same token, so no loss would count the end";
        if (o->mode == WEFT_BATCH_MASKED &&
            (o->mask < 0 || o->mask >= o->vocab || o->first_id < 0 || o->first_id >= o->vocab))
            wrong = "the mask token or the first id is not in the vocabulary";
    }
    if (wrong) weft_error_set(error, WEFT_BAD_ARGUMENT, "batches", "%s", wrong);
    return !wrong;
}

static bool check_ids(const weft_corpus *c, const weft_batch_options *o, weft_error *error)
{
    const int64_t vocab = o->vocab;
    for (size_t i = 0; i < c->n_ids; i++) {
        const int32_t id = o->whole ? batches_token(c->ids[i]) : c->ids[i];
        if (id >= 0 && id < vocab) continue;
        weft_error_set(error, WEFT_BAD_INDEX, "batches", "token %d is outside [0, %lld)", c->ids[i],
                       (long long)vocab);
        return false;
    }
    return true;
}

weft_batches *weft_batches_new(const weft_corpus *corpus, const weft_batch_options *options,
                               weft_error *error)
{
    static const weft_batch_options defaults = {0};
    const weft_batch_options *o = options ? options : &defaults;
    weft_error_clear(error);
    if (!check_options(corpus, o, error) || !check_ids(corpus, o, error)) return NULL;
    weft_batches *b = calloc(1, sizeof *b);
    if (b) {
        b->o = *o;
        if (b->o.mask_fraction == 0) b->o.mask_fraction = 0.15;
        b->corpus = corpus;
    }
    bool blocks = o->mode == WEFT_BATCH_BLOCKS;
    if (!b || !(blocks ? make_stream(b) : make_rows(b)) || !make_batches(b)) {
        weft_error_set(error, WEFT_NO_MEMORY, "batches", "out of memory");
    } else if (!b->n_batches) {
        weft_error_set(error, WEFT_BAD_ARGUMENT, "batches",
                       "no sequence of up to %d tokens: %zu are longer, %zu empty",
                       o->lengths[o->n_lengths - 1], b->counts.left_out, b->counts.empty);
    } else {
        weft_batches_start(b, 0);
        return b;
    }
    weft_batches_free(b);
    return NULL;
}

void weft_batches_free(weft_batches *batches)
{
    if (!batches) return;
    free(batches->stream_in);
    free(batches->stream_out);
    free(batches->rows);
    free(batches->order);
    free(batches->batches);
    free(batches->batch_order);
    free(batches);
}

weft_batch_counts weft_batches_counts(const weft_batches *batches)
{
    return batches ? batches->counts : (weft_batch_counts){0};
}

/* A hash of the rows in their classes, and of the options that fill and shuffle them. */
static uint64_t hash_rows(const weft_batches *b)
{
    const weft_batch_options *o = &b->o;
    uint64_t fraction, hash = hash_number(HASH_START, o->mode);
    for (size_t class = 0; class < o->n_lengths; class ++) {
        size_t first = b->class_first[class], end = b->class_first[class + 1];
        if (first == end) continue;
        hash = hash_number(hash, (uint64_t)o->lengths[class]);
        hash = hash_number(hash, (uint64_t)batches_class_rows(b, class));
        hash = hash_number(hash, end - first);
        for (size_t i = first; i < end; i++) hash = hash_number(hash, b->rows[i]);
    }
    memcpy(&fraction, &o->mask_fraction, sizeof fraction);
    const uint64_t numbers[] = {
        o->seed,           (uint32_t)o->pad,      (uint32_t)o->bos,   (uint32_t)o->eos,
        (uint32_t)o->mask, (uint32_t)o->first_id, (uint64_t)o->vocab, fraction};
    size_t n = o->mode == WEFT_BATCH_MASKED ? 8 : 4;
    for (size_t i = 0; i < n; i++) hash = hash_number(hash, numbers[i]);
    return o->whole ? hash_number(hash, 1) : hash;
}

weft_data_hashes weft_batches_hashes(const weft_batches *batches)
{
    const weft_batches *b = batches;
    if (!b) return (weft_data_hashes){0};
    return (weft_data_hashes){batches_are_pairs(b) ? b->corpus->source_hash : HASH_START,
                              b->corpus->target_hash, hash_rows(b)};
}

size_t weft_batches_max_elements(const weft_batches *batches)
{
    size_t max = 0;
    for (size_t i = 0; batches && i < batches->n_batches; i++) {
        weft_batch_shape s = weft_batches_shape(batches, i);
        size_t n = (size_t)(s.rows * s.target_len);
        if (n > max) max = n;
    }
    return max;
}
