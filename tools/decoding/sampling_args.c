/* See sampling_args.h. */
#include "sampling_args.h"

void take_cache_dtype(const tool_option *option, void *into, char *text, const tool_parser *parser)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_U8};
    const int choice = tool_choice(option->argument, text);
    if (choice < 0)
        tool_usage_error(parser, "--cache must be one of %s, not \"%s\"", option->argument, text);
    *(weft_dtype *)tool_field(option, into) = dtypes[choice];
}

#define FIELD(field) TOOL_FIELD(sampling_args, field)
#define DRAWS        .group = 1, TOOL_ALSO(sampling_args, draws)
static const tool_option options[] = {
    {"min-length", "N", FIELD(min_length), "minimum number of tokens to generate", 0, 1 << 20,
     .shows_zero = true},
    {"no-repeat", "N", FIELD(no_repeat), "repeat no sequence of N tokens", 0, 1000},
    {"repetition-penalty", "R", FIELD(repetition_penalty),
     "multiply the log probability of each earlier token, prompt included, by R: with R above 1, "
     "a text repeats itself less",
     1e-6, 1e6},
    {"temperature", "T", FIELD(temperature), "temperature of sampling", 0, 1e6, DRAWS},
    {"top-k", "K", FIELD(top_k), "sample from the K most likely tokens", 0, INT32_MAX, DRAWS},
    {"top-p", "P", FIELD(top_p),
     "sample from the smallest set of most likely tokens with total probability P", 1e-9, 1, DRAWS},
    {"min-p", "P", FIELD(min_p),
     "sample from the tokens with at least P times the probability of the most likely one", 0, 1,
     DRAWS},
    {"seed", "N", FIELD(seed), "seed of sampling", 0, 0x1p63, .shows_zero = true, DRAWS},
    {0}};

const tool_command sampling_options = {.options = options};
