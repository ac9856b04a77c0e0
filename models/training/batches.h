/* Corpora and batches: the corpus (corpus.c), its rows in batches (batches.c), and the order and
 * contents of an epoch's batches (epoch.c). */
#ifndef WEFT_MODELS_BATCHES_H
#define WEFT_MODELS_BATCHES_H

#include <weft/train.h>

typedef struct sequence {
    size_t source, target; /* indices into the corpus's ids */
    size_t n_source, n_target;
} sequence;

struct weft_corpus {
    int32_t *ids;
    size_t n_ids, id_capacity;
    sequence *sequences;
    size_t n, capacity;
    uint64_t source_hash, target_hash; /* of all ids and lengths so far */
};

/* A batch of a class: rows order[first .. first + rows - 1]. */
typedef struct data_batch {
    uint32_t class, rows;
    size_t first;
} data_batch;

struct weft_batches {
    weft_batch_options o;
    const weft_corpus *corpus;
    int32_t *stream_in, *stream_out; /* mode blocks: the concatenated sequences */
    size_t n_stream;
    uint32_t *rows;  /* sequences (mode blocks: block numbers), sorted by class */
    uint32_t *order; /* the same, shuffled within each class */
    size_t class_first[WEFT_MAX_LENGTHS + 1];
    data_batch *batches, *batch_order;
    size_t n_batches;
    uint64_t epoch;
    weft_batch_counts counts;
};

static inline bool batches_are_pairs(const weft_batches *b)
{
    return b->o.mode == WEFT_BATCH_PAIRS;
}

/* The token of an id of a sequence, and what is predicted: its token or, without one, `pad`. */
static inline int32_t batches_token(int32_t id)
{
    return id < 0 ? -1 - id : id;
}

static inline int32_t batches_label(const weft_batches *b, int32_t id)
{
    return id < 0 ? b->o.pad : id;
}

/* Rows of a full batch of a class. */
static inline int64_t batches_class_rows(const weft_batches *b, size_t class)
{
    int64_t rows = b->o.tokens / b->o.lengths[class];
    return rows > 0 ? rows : 1;
}

/* Purposes of random numbers; the shuffle of a class has DRAW_ROWS + class. */
enum { DRAW_ROWS, DRAW_BATCHES = 64, DRAW_MASKS };

/* A number in [0, n) for index i of a purpose in an epoch; probabilities differ by less than
 * n / 2^64. (epoch.c) */
size_t weft__batches_draw_below(uint64_t seed, uint32_t purpose, uint64_t epoch, uint32_t i,
                                size_t n);
/* Shuffles the n rows of an order (Fisher-Yates). */
void weft__batches_shuffle(uint32_t *order, size_t n, uint64_t seed, uint32_t purpose,
                           uint64_t epoch);

#endif
