/* Batches of token sequences, as the trainer reads them. */
#include <weft/train.h>

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
