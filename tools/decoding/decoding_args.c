/* The options that `weft translate` and `weft generate` share. */
#include "decoding.h"

#include <string.h>

enum {
    KEY_THREADS = 300,
    KEY_CHECKPOINT,
    KEY_WITH,
    KEY_WEIGHTS,
    KEY_BATCH,
    KEY_CHUNK,
    KEY_MIN_LENGTH,
    KEY_TEMPERATURE,
    KEY_TOP_K,
    KEY_TOP_P,
    KEY_SEED,
    KEY_NO_REPEAT,
    KEY_REPETITION_PENALTY,
    KEY_STATS,
    KEY_RECOMPUTE,
    KEY_CACHE
};

static const struct argp_option options[] = {
    {"checkpoint", KEY_CHECKPOINT, "FILE", 0,
     "parameters (default: FOLDER/best.safetensors if it exists, else FOLDER/model.safetensors)",
     0},
    {"with", KEY_WITH, "FOLDER", 0,
     "another run, or a checkpoint in its folder, with the same vocabulary: tokens are chosen by "
     "the mean of the models' probabilities; may be repeated",
     0},
    {"weights", KEY_WEIGHTS, "W,W...", 0,
     "weights of the models in that mean, the one of FOLDER first (default: equal weights)", 0},
    {"threads", KEY_THREADS, "N", 0, "threads (default: all)", 0},
    {"batch", KEY_BATCH, "N", 0, "lines at a time (default 16)", 0},
    {"chunk", KEY_CHUNK, "N", 0,
     "lines to read before the first is printed (default: 1024 for each process; 1 from a "
     "terminal)",
     0},
    {"min-length", KEY_MIN_LENGTH, "N", 0, "minimum number of tokens to generate (default 0)", 1},
    {"no-repeat", KEY_NO_REPEAT, "N", 0, "repeat no sequence of N tokens", 1},
    {"repetition-penalty", KEY_REPETITION_PENALTY, "R", 0,
     "multiply the log probability of each earlier token, prompt included, by R: "
     "with R above 1, a text repeats itself less (default 1)",
     1},
    {"temperature", KEY_TEMPERATURE, "T", 0, "temperature of sampling (default 1)", 2},
    {"top-k", KEY_TOP_K, "K", 0, "sample from the K most likely tokens", 2},
    {"top-p", KEY_TOP_P, "P", 0,
     "sample from the smallest set of most likely tokens with total probability P", 2},
    {"seed", KEY_SEED, "N", 0, "seed of sampling (default 0)", 2},
    {"stats", KEY_STATS, NULL, 0, "print the speed on standard error", 3},
    {"recompute", KEY_RECOMPUTE, NULL, 0, "use no caches: run the whole model for each token", 3},
    {"cache", KEY_CACHE, "f32|bf16|u8", 0,
     "how keys and values of earlier tokens are stored: bf16 in half the bytes, u8 in a quarter "
     "(f32)",
     3},
    {0}};

static void add_run(decoding_args *a, const char *path, struct argp_state *state)
{
    if (a->n_with == DECODING_MODELS - 1)
        argp_error(state, "--with can be given %d times at most", DECODING_MODELS - 1);
    a->with[a->n_with++] = path;
}

static void read_weights(decoding_args *a, char *text, struct argp_state *state)
{
    a->n_weights = 0;
    for (char *word; (word = strsep(&text, ","));) {
        if (a->n_weights == DECODING_MODELS)
            argp_error(state, "--weights has more than %d numbers", DECODING_MODELS);
        a->weights[a->n_weights++] = tool_real(word, "a weight of --weights", 1e-6, 1e6, state);
    }
}

static weft_dtype cache_dtype(const char *text, struct argp_state *state)
{
    static const weft_dtype dtypes[] = {WEFT_F32, WEFT_BF16, WEFT_U8};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(text, weft_dtype_name(dtypes[i]))) return dtypes[i];
    tool_usage_error(state, "--cache is \"%s\", expected f32, bf16 or u8", text);
    return WEFT_F32;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    decoding_args *a = state->input;
    switch (key) {
    case KEY_THREADS:
        a->threads = (int)tool_number(text, "--threads", 0, 1024, state);
        return 0;
    case KEY_CHECKPOINT:
        a->checkpoint = text;
        return 0;
    case KEY_WITH:
        add_run(a, text, state);
        return 0;
    case KEY_WEIGHTS:
        read_weights(a, text, state);
        return 0;
    case KEY_BATCH:
        a->batch = tool_number(text, "--batch", 1, 65536, state);
        return 0;
    case KEY_CHUNK:
        a->chunk = tool_number(text, "--chunk", 1, INT32_MAX, state);
        return 0;
    case KEY_MIN_LENGTH:
        a->min_length = tool_number(text, "--min-length", 0, 1 << 20, state);
        return 0;
    case KEY_TEMPERATURE:
        a->temperature = tool_real(text, "--temperature", 0, 1e6, state);
        a->draws = true;
        return 0;
    case KEY_TOP_K:
        a->top_k = tool_number(text, "--top-k", 0, INT32_MAX, state);
        a->draws = true;
        return 0;
    case KEY_TOP_P:
        a->top_p = tool_real(text, "--top-p", 1e-9, 1, state);
        a->draws = true;
        return 0;
    case KEY_SEED:
        a->seed = tool_number(text, "--seed", 0, INT64_MAX, state);
        a->draws = true;
        return 0;
    case KEY_NO_REPEAT:
        a->no_repeat = tool_number(text, "--no-repeat", 0, 1000, state);
        return 0;
    case KEY_REPETITION_PENALTY:
        a->repetition_penalty = tool_real(text, "--repetition-penalty", 1e-6, 1e6, state);
        return 0;
    case KEY_STATS:
        a->stats = true;
        return 0;
    case KEY_RECOMPUTE:
        a->recompute = true;
        return 0;
    case KEY_CACHE:
        a->cache = cache_dtype(text, state);
        return 0;
    case ARGP_KEY_ARG:
        if (a->folder) argp_error(state, "only one FOLDER can be given");
        a->folder = text;
        return 0;
    case ARGP_KEY_END:
        if (!a->folder) argp_error(state, "FOLDER is missing");
        if (a->recompute && a->cache != WEFT_F32)
            argp_error(state, "--cache has no effect with --recompute, which has no caches");
        if (a->n_weights && a->n_weights != a->n_with + 1)
            argp_error(state, "--weights has %zu numbers for %zu models (--with adds models)",
                       a->n_weights, a->n_with + 1);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp decoding_argp = {options, parse, NULL, NULL, NULL, NULL, NULL};
