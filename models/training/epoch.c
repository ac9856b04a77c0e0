/* The batches of an epoch: their order and their contents.
 *
 * An epoch shuffles the rows of each class, and then the batches. Order and hidden tokens depend on
 * (seed, epoch) only. */
#include "batches.h"

#include <weft/op.h>

#include <string.h>

/* Four random words for index i of a purpose in an epoch. */
static void draw(uint64_t seed, uint32_t purpose, uint64_t epoch, uint32_t i, uint32_t out[4])
{
    uint32_t counter[4] = {i, purpose, (uint32_t)epoch, (uint32_t)(epoch >> 32)};
    weft_philox(counter, seed ^ 0x7472616e696e67ull, out);
}

size_t weft__batches_draw_below(uint64_t seed, uint32_t purpose, uint64_t epoch, uint32_t i,
                                size_t n)
{
    uint32_t r[4];
    draw(seed, purpose, epoch, i, r);
    return (size_t)(((uint64_t)r[1] << 32 | r[0]) % n);
}

void weft__batches_shuffle(uint32_t *order, size_t n, uint64_t seed, uint32_t purpose,
                           uint64_t epoch)
{
    for (size_t i = n; i > 1; i--) {
        const size_t k = weft__batches_draw_below(seed, purpose, epoch, (uint32_t)i, i);
        const uint32_t old = order[k];
        order[k] = order[i - 1];
        order[i - 1] = old;
    }
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
        weft__batches_shuffle(order, b->class_first[class + 1] - b->class_first[class], b->o.seed,
                              DRAW_ROWS + (uint32_t) class, epoch);
    }
    for (size_t i = b->n_batches; i > 1; i--) {
        size_t k = weft__batches_draw_below(b->o.seed, DRAW_BATCHES, epoch, (uint32_t)i, i);
        data_batch old = b->batch_order[k];
        b->batch_order[k] = b->batch_order[i - 1];
        b->batch_order[i - 1] = old;
    }
}

weft_batch_shape weft_batches_shape(const weft_batches *batches, size_t index)
{
    if (!batches || index >= batches->n_batches) return (weft_batch_shape){0};
    uint32_t class = batches->batch_order[index].class;
    int64_t length = batches->o.lengths[class];
    return (weft_batch_shape){batches_class_rows(batches, class),
                              batches_are_pairs(batches) ? length : 0, length};
}

/* Writes a sequence, `eos` if there is room, and padding. */
static void put(int32_t *row, int64_t length, const int32_t *ids, size_t n, int32_t eos,
                int32_t pad)
{
    for (int64_t i = 0; i < length; i++)
        row[i] = (size_t)i < n ? ids[i] : (size_t)i == n ? eos : pad;
}

/* The number below which a fraction of the 32-bit words lies. */
static uint32_t threshold(double fraction)
{
    return fraction >= 1 ? UINT32_MAX : (uint32_t)(fraction * 4294967296.0);
}

/* Hides tokens of in[1 .. n] and writes the originals into out. */
static void hide(const weft_batches *b, uint32_t row, int64_t n, int32_t *in, int32_t *out)
{
    const weft_batch_options *o = &b->o;
    uint64_t seed = o->seed + 0x9E3779B97F4A7C15u * ((uint64_t)row + 1);
    int64_t fallback =
        1 + (int64_t)weft__batches_draw_below(seed, DRAW_MASKS, b->epoch, 0, (size_t)n);
    uint32_t limit = threshold(o->mask_fraction), r[4];
    bool any = false;
    for (int64_t i = 1; i <= n; i++) {
        draw(seed, DRAW_MASKS, b->epoch, (uint32_t)i, r);
        if (r[0] < limit) any = true;
    }
    for (int64_t i = 1; i <= n; i++) {
        draw(seed, DRAW_MASKS, b->epoch, (uint32_t)i, r);
        if (any ? r[0] >= limit : i != fallback) continue;
        out[i] = in[i];
        if (r[1] < threshold(0.8))
            in[i] = o->mask;
        else if (r[1] < threshold(0.9))
            in[i] = o->first_id + (int32_t)(r[2] % (uint64_t)(o->vocab - o->first_id));
    }
}

/* The tokens of a sequence, and those that are predicted. */
static void fill_whole(const weft_batches *b, const sequence *s, int64_t length, int32_t *in,
                       int32_t *out)
{
    const int32_t *ids = b->corpus->ids + s->target;
    for (int64_t i = 0; i < length; i++) {
        const bool has = (size_t)i + 1 < s->n_target;
        in[i] = has ? batches_token(ids[i]) : b->o.bos;
        out[i] = has ? batches_label(b, ids[i + 1]) : b->o.pad;
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
    if (o->whole) {
        fill_whole(b, s, length, in, out);
        return;
    }
    if (batches_are_pairs(b)) put(source, length, ids + s->source, s->n_source, o->eos, o->pad);
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
    const data_batch *info = &b->batch_order[index];
    int64_t length = shape.target_len, numel = shape.rows * length;
    size_t tokens = 0;
    for (int64_t i = (int64_t)info->rows * length; i < numel; i++) {
        if (batches_are_pairs(b)) source[i] = b->o.pad;
        target_in[i] = b->o.whole ? b->o.bos : b->o.pad;
        target_out[i] = b->o.pad;
    }
    for (int64_t r = 0; r < info->rows; r++)
        fill_row(b, b->order[info->first + (size_t)r], length, source ? source + r * length : NULL,
                 target_in + r * length, target_out + r * length);
    for (int64_t i = 0; i < numel; i++) tokens += target_out[i] != b->o.pad;
    return tokens;
}
