/* Options, such as those of choosing tokens, that `weft translate`, `weft generate` and `weft chat` share. */
#ifndef WEFT_TOOLS_SAMPLING_ARGS_H
#define WEFT_TOOLS_SAMPLING_ARGS_H

#include "options.h"

typedef struct sampling_args {
    int64_t min_length, no_repeat, top_k, seed;
    double temperature, top_p, min_p, repetition_penalty;
    bool draws; /* the user chose options of sampling */
} sampling_args;
#define SAMPLING_DEFAULT                                                                           \
    {                                                                                              \
        .temperature = 1, .top_p = 1, .repetition_penalty = 1                                      \
    }
extern const tool_command sampling_options;

/* Takes how keys and values are stored, one of CACHE_DTYPES, into a weft_dtype. */
#define CACHE_DTYPES "f32|bf16|u8"
tool_take take_cache_dtype;

#endif
