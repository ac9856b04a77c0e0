/* Corpora of token ids, and batches of equal shape made of them.
 *
 * Rows lie sorted by class of length; an epoch shuffles each class, cuts it into batches and
 * shuffles those. A class that does not fill its last batch leaves rows of padding, so that an
 * epoch has every row once. */
#include <weft/train.h>

#include "base/hash.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct sequence {
    size_t source, target; /* in ids */
    size_t n_source, n_target;
} sequence;

struct weft_corpus {
    int32_t *ids;
    size_t n_ids, id_capacity;
    sequence *sequences;
    size_t n, capacity;
    uint64_t source_hash, target_hash; /* of all ids so far, and of the lengths */
};

/* Rows [first, first + n) of the order are batch `index`'s. */
typedef struct batch {
    uint32_t class, rows;
    size_t first;
} batch;

struct weft_batches {
    weft_batch_options o;
    const weft_corpus *corpus;
    int32_t *stream_in, *stream_out; /* blocks: what rows are cut from */
    size_t n_stream;
    uint32_t *rows, *order; /* sequences (blocks: numbers of blocks) by class; as shuffled */
    size_t class_first[WEFT_MAX_LENGTHS + 1];
    batch *batches, *batch_order;
    size_t n_batches;
    uint64_t epoch;
    weft_batch_counts counts;
};

/* ---- The corpus ---- */

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
                            const int32_t *target, size_t n_target)
{
    weft_corpus *c = corpus;
    if (!c || (n_source && !source) || (n_target && !target)) return WEFT_BAD_ARGUMENT;
    if (c->n >= UINT32_MAX || n_source > SIZE_MAX / 64 || n_target > SIZE_MAX / 64)
        return WEFT_TOO_LARGE;
    if (!reserve(c, n_source + n_target)) return WEFT_NO_MEMORY;
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

double weft_unigram_entropy(const weft_corpus *counted, const weft_corpus *measured, int64_t vocab,
                            int32_t eos)
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
            sum -= log((count[id] + 1) / total);
            n++;
        }
    }
    free(count);
    return n ? sum / n : NAN;
}

/* ---- Rows ---- */

static bool is_pairs(const weft_batches *b)
{
    return b->o.mode == WEFT_BATCH_PAIRS;
}

/* Tokens of a sequence's row with the special ones. */
static size_t row_length(const weft_batches *b, const sequence *s)
{
    size_t n = s->n_target;
    if (is_pairs(b) && s->n_source > n) n = s->n_source;
    return n + (b->o.mode == WEFT_BATCH_MASKED ? 2 : 1);
}

static size_t class_of(const weft_batches *b, size_t length)
{
    size_t class = 0;
    while (class < b->o.n_lengths - 1 && length > (size_t)b->o.lengths[class]) class ++;
    return class;
}

static int64_t class_rows(const weft_batches *b, size_t class)
{
    int64_t rows = b->o.tokens / b->o.lengths[class];
    return rows > 0 ? rows : 1;
}

/* Is the sequence used? Counts it if not. */
static bool takes(weft_batches *b, const sequence *s)
{
    size_t limit = (size_t)b->o.lengths[b->o.n_lengths - 1];
    if (!s->n_target || (is_pairs(b) && !s->n_source)) {
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

static bool make_stream(weft_batches *b)
{
    const weft_corpus *c = b->corpus;
    size_t length = (size_t)b->o.lengths[b->o.n_lengths - 1], n = 0;
    for (size_t i = 0; i < c->n; i++)
        if (takes(b, &c->sequences[i])) n += c->sequences[i].n_target + 1;
    size_t blocks = (n + length - 1) / length;
    b->stream_in = malloc((blocks * length + 1) * sizeof *b->stream_in);
    b->stream_out = malloc((blocks * length + 1) * sizeof *b->stream_out);
    b->rows = malloc((blocks + 1) * sizeof *b->rows);
    b->order = malloc((blocks + 1) * sizeof *b->order);
    if (!b->stream_in || !b->stream_out || !b->rows || !b->order) return false;
    n = 0;
    for (size_t i = 0; i < c->n; i++) {
        const sequence *s = &c->sequences[i];
        if (!s->n_target) continue;
        b->stream_in[n] = b->o.bos;
        memcpy(b->stream_in + n + 1, c->ids + s->target, s->n_target * sizeof *c->ids);
        memcpy(b->stream_out + n, c->ids + s->target, s->n_target * sizeof *c->ids);
        n += s->n_target + 1;
        b->stream_out[n - 1] = b->o.eos;
    }
    b->n_stream = n;
    for (; n < blocks * length; n++) b->stream_in[n] = b->stream_out[n] = b->o.pad;
    for (size_t i = 0; i < blocks; i++) b->rows[i] = (uint32_t)i;
    size_t class = b->o.n_lengths - 1;
    b->class_first[class + 1] = b->counts.rows = blocks;
    b->counts.tokens = b->n_stream;
    b->counts.longest = b->n_stream < length ? b->n_stream : length;
    return true;
}

/* Sorts the sequences by class, in the corpus's order within each. */
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
        b->counts.tokens += shown < limit ? shown : limit;
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
        size_t each = (size_t)class_rows(b, class);
        n += (rows + each - 1) / each;
    }
    b->batches = malloc((n + 1) * sizeof *b->batches);
    b->batch_order = malloc((n + 1) * sizeof *b->batch_order);
    if (!b->batches || !b->batch_order) return false;
    for (size_t class = 0; class < b->o.n_lengths; class ++) {
        size_t each = (size_t)class_rows(b, class), end = b->class_first[class + 1];
        for (size_t first = b->class_first[class]; first < end; first += each)
            b->batches[b->n_batches++] = (batch){
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
        wrong = "there is no corpus";
    } else if (o->n_lengths < 1 || o->n_lengths > WEFT_MAX_LENGTHS) {
        wrong = "lengths are required, 1 to 32 of them";
    } else {
        for (size_t i = 0; i < o->n_lengths; i++)
            if (o->lengths[i] < (i ? o->lengths[i - 1] + 1 : 3) || o->lengths[i] > 1 << 20)
                wrong = "lengths must ascend and lie from 3 to 1048576";
        if (o->tokens < 1 || o->tokens > INT32_MAX) wrong = "tokens must be 1 to 2147483647";
        if (!(o->mask_share >= 0 && o->mask_share <= 1)) wrong = "mask_share must be 0 to 1";
        const int32_t special[] = {o->pad, o->bos, o->eos};
        for (int i = 0; i < 3; i++)
            if (special[i] < 0 || special[i] >= o->vocab)
                wrong = "a special token is not in the vocabulary";
        if (o->vocab < 1) wrong = "vocab is required: the number of ids";
        if (!wrong && o->eos == o->pad)
            wrong = "eos and pad are one token, so that no end would count in a loss";
        if (o->mode == WEFT_BATCH_MASKED &&
            (o->mask < 0 || o->mask >= o->vocab || o->first_id < 0 || o->first_id >= o->vocab))
            wrong = "the mask token or the first id is not in the vocabulary";
    }
    if (wrong) weft_error_set(error, WEFT_BAD_ARGUMENT, "batches", "%s", wrong);
    return !wrong;
}

static bool check_ids(const weft_corpus *c, int64_t vocab, weft_error *error)
{
    for (size_t i = 0; i < c->n_ids; i++) {
        if (c->ids[i] >= 0 && c->ids[i] < vocab) continue;
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
    if (error) memset(error, 0, sizeof *error);
    if (!check_options(corpus, o, error) || !check_ids(corpus, o->vocab, error)) return NULL;
    weft_batches *b = calloc(1, sizeof *b);
    if (b) {
        b->o = *o;
        if (b->o.mask_share == 0) b->o.mask_share = 0.15;
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

/* Of the rows in their classes, and of what fills and orders them. */
static uint64_t hash_rows(const weft_batches *b)
{
    const weft_batch_options *o = &b->o;
    uint64_t share, hash = hash_number(HASH_START, o->mode);
    for (size_t class = 0; class < o->n_lengths; class ++) {
        size_t first = b->class_first[class], end = b->class_first[class + 1];
        if (first == end) continue;
        hash = hash_number(hash, (uint64_t)o->lengths[class]);
        hash = hash_number(hash, (uint64_t)class_rows(b, class));
        hash = hash_number(hash, end - first);
        for (size_t i = first; i < end; i++) hash = hash_number(hash, b->rows[i]);
    }
    memcpy(&share, &o->mask_share, sizeof share);
    const uint64_t numbers[] = {
        o->seed,           (uint32_t)o->pad,      (uint32_t)o->bos,   (uint32_t)o->eos,
        (uint32_t)o->mask, (uint32_t)o->first_id, (uint64_t)o->vocab, share};
    size_t n = o->mode == WEFT_BATCH_MASKED ? 8 : 4;
    for (size_t i = 0; i < n; i++) hash = hash_number(hash, numbers[i]);
    return hash;
}

weft_data_hashes weft_batches_hashes(const weft_batches *batches)
{
    const weft_batches *b = batches;
    if (!b) return (weft_data_hashes){0};
    return (weft_data_hashes){is_pairs(b) ? b->corpus->source_hash : HASH_START,
                              b->corpus->target_hash, hash_rows(b)};
}

size_t weft_batches_most(const weft_batches *batches)
{
    size_t most = 0;
    for (size_t i = 0; batches && i < batches->n_batches; i++) {
        weft_batch_shape s = weft_batches_shape(batches, i);
        size_t n = (size_t)(s.rows * s.target_len);
        if (n > most) most = n;
    }
    return most;
}

/* ---- An epoch ---- */

enum { DRAW_ROWS, DRAW_BATCHES = 64, DRAW_MASKS };

static void draw(uint64_t seed, uint32_t what, uint64_t epoch, uint32_t i, uint32_t out[4])
{
    uint32_t counter[4] = {i, what, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
    weft_philox(counter, seed ^ 0x7472616e696e67ull, out);
}

/* One of n; the odds differ by less than n / 2^64. */
static size_t draw_below(uint64_t seed, uint32_t what, uint64_t epoch, uint32_t i, size_t n)
{
    uint32_t r[4];
    draw(seed, what, epoch, i, r);
    return (size_t)(((uint64_t)r[1] << 32 | r[0]) % n);
}

void weft_batches_start(weft_batches *batches, uint64_t epoch)
{
    weft_batches *b = batches;
    if (!b) return;
    b->epoch = epoch;
    memcpy(b->order, b->rows, b->counts.rows * sizeof *b->rows);
    memcpy(b->batch_order, b->batches, b->n_batches * sizeof *b->batches);
    for (size_t class = 0; class < b->o.n_lengths; class ++) {
        uint32_t *order = b->order + b->class_first[class];
        for (size_t i = b->class_first[class + 1] - b->class_first[class]; i > 1; i--) {
            size_t k = draw_below(b->o.seed, DRAW_ROWS + (uint32_t) class, epoch, (uint32_t)i, i);
            uint32_t old = order[k];
            order[k] = order[i - 1];
            order[i - 1] = old;
        }
    }
    for (size_t i = b->n_batches; i > 1; i--) {
        size_t k = draw_below(b->o.seed, DRAW_BATCHES, epoch, (uint32_t)i, i);
        batch old = b->batch_order[k];
        b->batch_order[k] = b->batch_order[i - 1];
        b->batch_order[i - 1] = old;
    }
}

weft_batch_shape weft_batches_shape(const weft_batches *batches, size_t index)
{
    if (!batches || index >= batches->n_batches) return (weft_batch_shape){0};
    uint32_t class = batches->batch_order[index].class;
    int64_t length = batches->o.lengths[class];
    return (weft_batch_shape){class_rows(batches, class), is_pairs(batches) ? length : 0, length};
}

/* Writes a sequence, its end if there is room, padding. */
static void put(int32_t *row, int64_t length, const int32_t *ids, size_t n, int32_t eos,
                int32_t pad)
{
    for (int64_t i = 0; i < length; i++)
        row[i] = (size_t)i < n ? ids[i] : (size_t)i == n ? eos : pad;
}

/* A share of `least` tokens of 2^32. */
static uint32_t threshold(double share)
{
    return share >= 1 ? UINT32_MAX : (uint32_t)(share * 4294967296.0);
}

/* Hides tokens of in[1 .. n], which out then asks for. */
static void hide(const weft_batches *b, uint32_t row, int64_t n, int32_t *in, int32_t *out)
{
    const weft_batch_options *o = &b->o;
    uint64_t seed = o->seed + 0x9E3779B97F4A7C15u * ((uint64_t)row + 1);
    int64_t sure = 1 + (int64_t)draw_below(seed, DRAW_MASKS, b->epoch, 0, (size_t)n);
    uint32_t limit = threshold(o->mask_share), r[4];
    bool any = false;
    for (int64_t i = 1; i <= n; i++) {
        draw(seed, DRAW_MASKS, b->epoch, (uint32_t)i, r);
        if (r[0] < limit) any = true;
    }
    for (int64_t i = 1; i <= n; i++) {
        draw(seed, DRAW_MASKS, b->epoch, (uint32_t)i, r);
        if (any ? r[0] >= limit : i != sure) continue;
        out[i] = in[i];
        if (r[1] < threshold(0.8))
            in[i] = o->mask;
        else if (r[1] < threshold(0.9))
            in[i] = o->first_id + (int32_t)(r[2] % (uint64_t)(o->vocab - o->first_id));
    }
}

static void fill_row(const weft_batches *b, uint32_t row, int64_t length, int32_t *source,
                     int32_t *in, int32_t *out)
{
    const weft_batch_options *o = &b->o;
    if (o->mode == WEFT_BATCH_BLOCKS) {
        memcpy(in, b->stream_in + (size_t)row * (size_t)length, (size_t)length * sizeof *in);
        memcpy(out, b->stream_out + (size_t)row * (size_t)length, (size_t)length * sizeof *out);
        return;
    }
    const sequence *s = &b->corpus->sequences[row];
    const int32_t *ids = b->corpus->ids;
    if (is_pairs(b)) put(source, length, ids + s->source, s->n_source, o->eos, o->pad);
    in[0] = o->bos;
    if (o->mode == WEFT_BATCH_MASKED) {
        put(in + 1, length - 1, ids + s->target, s->n_target, o->eos, o->pad);
        for (int64_t i = 0; i < length; i++) out[i] = o->pad;
        int64_t n = (int64_t)s->n_target < length - 1 ? (int64_t)s->n_target : length - 1;
        hide(b, row, n, in, out);
        return;
    }
    put(out, length, ids + s->target, s->n_target, o->eos, o->pad);
    for (int64_t i = 1; i < length; i++) in[i] = out[i] == o->pad ? o->pad : out[i - 1];
}

size_t weft_batches_fill(const weft_batches *batches, size_t index, int32_t *source,
                         int32_t *target_in, int32_t *target_out)
{
    const weft_batches *b = batches;
    if (!b || index >= b->n_batches) return 0;
    weft_batch_shape shape = weft_batches_shape(b, index);
    const batch *info = &b->batch_order[index];
    int64_t length = shape.target_len, numel = shape.rows * length;
    size_t tokens = 0;
    for (int64_t i = (int64_t)info->rows * length; i < numel; i++) {
        if (is_pairs(b)) source[i] = b->o.pad;
        target_in[i] = target_out[i] = b->o.pad;
    }
    for (int64_t r = 0; r < info->rows; r++)
        fill_row(b, b->order[info->first + (size_t)r], length, source ? source + r * length : NULL,
                 target_in + r * length, target_out + r * length);
    for (int64_t i = 0; i < numel; i++) tokens += target_out[i] != b->o.pad;
    return tokens;
}

/* ---- As a source of the trainer ---- */

static weft_batch_shape source_shape(void *context, size_t index)
{
    return weft_batches_shape(context, index);
}

static void source_start(void *context, uint64_t epoch)
{
    weft_batches_start(context, epoch);
}

static weft_status source_fill(void *context, size_t index, void *const *inputs, size_t *weight,
                               weft_error *error)
{
    const weft_batches *b = context;
    const bool pairs = weft_batches_shape(b, index).source_len > 0;
    void *const *targets = inputs + pairs;
    (void)error;
    *weight = weft_batches_fill(b, index, pairs ? inputs[0] : NULL, targets[0], targets[1]);
    return WEFT_OK;
}

weft_batch_source weft_batches_source(weft_batches *batches)
{
    const weft_batch_counts counts = weft_batches_counts(batches);
    const bool pairs = batches && weft_batches_shape(batches, 0).source_len > 0;
    return (weft_batch_source){.batches = counts.batches,
                               .n_inputs = pairs ? 3 : 2,
                               .input_dtypes = {WEFT_I32, WEFT_I32, WEFT_I32},
                               .longest = counts.longest,
                               .hashes = weft_batches_hashes(batches),
                               .shape = source_shape,
                               .fill = source_fill,
                               .start = source_start,
                               .context = batches};
}
