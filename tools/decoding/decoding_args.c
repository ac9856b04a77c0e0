/* The options that `weft translate` and `weft generate` share. */
#include "decoding.h"

#include <string.h>

static void take_run(const tool_option *option, void *into, char *path, const tool_parser *parser)
{
    decoding_runs *with = tool_field(option, into);
    if (with->n == DECODING_MODELS - 1)
        tool_usage_error(parser, "--with can be given %d times at most", DECODING_MODELS - 1);
    with->at[with->n++] = path;
}

static void take_weights(const tool_option *option, void *into, char *text,
                         const tool_parser *parser)
{
    decoding_weights *weights = tool_field(option, into);
    weights->n = 0;
    for (char *word = text; word; word = text) {
        text = strchr(word, ',');
        if (text) *text++ = 0;
        if (weights->n == DECODING_MODELS)
            tool_usage_error(parser, "--weights has more than %d numbers", DECODING_MODELS);
        weights->at[weights->n++] = tool_real(word, "a weight of --weights", 1e-6, 1e6, parser);
    }
}

static void check(void *into, const tool_parser *parser)
{
    const decoding_args *a = into;
    if (a->recompute && a->cache != WEFT_F32)
        tool_usage_error(parser, "--cache has no effect with --recompute, which has no caches");
    if (a->weights.n && a->weights.n != a->with.n + 1)
        tool_usage_error(parser, "--weights has %zu numbers for %zu models (--with adds models)",
                         a->weights.n, a->with.n + 1);
}

#define FIELD(field) TOOL_FIELD(decoding_args, field)
static const tool_option options[] = {
    {TOOL_ONE(decoding_args, folder, "FOLDER"), .required = true},
    {"checkpoint", "FILE", FIELD(checkpoint),
     "parameters (default: FOLDER/best.safetensors if it exists, else FOLDER/model.safetensors)"},
    {"with", "FOLDER", TOOL_INTO(decoding_args, with, take_run),
     "another run, or a checkpoint in its folder, with the same vocabulary: tokens are chosen by "
     "the mean of the models' probabilities; may be repeated"},
    {"weights", "W,W...", TOOL_INTO(decoding_args, weights, take_weights),
     "weights of the models in that mean, the one of FOLDER first (default: equal weights)"},
    {"threads", "N", FIELD(threads), "threads (default: all)", 0, 1024},
    {"batch", "N", FIELD(batch), "lines at a time", 1, 65536,
     TOOL_ALSO(decoding_args, batch_given)},
    {"chunk", "N", FIELD(chunk),
     "lines to read before the first is printed (default: 1024 for each process; 1 from a "
     "terminal)",
     1, INT32_MAX},
    {TOOL_INCLUDED(decoding_args, sampling, sampling_options), .group = 1},
    {"stats", NULL, FIELD(stats), "print the speed on standard error", .group = 3},
    {"recompute", NULL, FIELD(recompute), "use no caches: run the whole model for each token",
     .group = 3},
    {"cache", CACHE_DTYPES, TOOL_INTO(decoding_args, cache, take_cache_dtype),
     "how keys and values of earlier tokens are stored: bf16 in half the bytes, u8 in a quarter "
     "(default f32)",
     .group = 3},
    {0}};

const tool_command decoding_options = {.options = options, .check = check};
