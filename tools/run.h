/* What `weft train` left in a folder: a checkpoint, the model that it is of, its vocabulary. */
#ifndef WEFT_TOOLS_RUN_H
#define WEFT_TOOLS_RUN_H

#include "spm.h"
#include "tool.h"

typedef struct trained_run {
    weft_params *params;
    const weft_model *model;
    double values[WEFT_MODEL_OPTIONS];
    spm *source, *target; /* the same if FOLDER/vocab.model is shared */
} trained_run;

/* Reads FOLDER/vocab.model, or vocab.source.model and vocab.target.model, and the checkpoint: the
 * file that is named, or else FOLDER/best.safetensors, or else FOLDER/model.safetensors. */
bool trained_open(trained_run *run, const char *folder, const char *checkpoint, weft_error *error);
void trained_close(trained_run *run);

/* One sentence as lines of text share a batch: what to go on with, and what came of it. */
typedef struct text_line {
    char *text;
    int32_t *ids;
    size_t n_ids;           /* 0: an empty line */
    size_t number;          /* of the line, from 0 */
    weft_hypothesis *found; /* copies; tokens are the line's, too */
    size_t n_found;
} text_line;
typedef struct text_lines {
    text_line *line;
    size_t n, capacity;
} text_lines;

/* Reads up to `most` lines, without their ends, into an empty list; *number counts lines. False if
 * memory is out; n is 0 at the end of the input. */
bool text_lines_read(text_lines *lines, size_t most, size_t *number, FILE *file);
void text_lines_clear(text_lines *lines);
/* Ids of the text into line->ids, at most `most` of them, with an end appended if `end` is not -1.
 * Returns how many there would be, SIZE_MAX if memory is out. An empty text has none. */
size_t text_line_encode(text_line *line, const spm *vocabulary, size_t most, int32_t end);
/* Copies a sentence's part of a result. */
bool text_line_keep(text_line *line, const weft_search_result *result, size_t sentence);
/* The text of tokens; the caller frees it. */
char *tool_decode(const spm *vocabulary, const int32_t *tokens, size_t n);

/* For argp, as tool_number: a number of any kind. */
double tool_real(const char *text, const char *what, double least, double most,
                 struct argp_state *state);

/* What `weft translate` and `weft generate` share: how to choose tokens. */
typedef struct sampling_args {
    bool sample;
    double temperature, top_p;
    int64_t top_k, seed, no_repeat;
} sampling_args;
#define SAMPLING_DEFAULT                                                                           \
    {                                                                                              \
        .temperature = 1, .top_p = 1                                                               \
    }
enum { KEY_TEMPERATURE = 300, KEY_TOP_K, KEY_TOP_P, KEY_SEED, KEY_NO_REPEAT };
#define SAMPLING_OPTIONS                                                                           \
    {"temperature", KEY_TEMPERATURE, "T", 0, "of sampling (default 1)", 2},                        \
        {"top-k", KEY_TOP_K, "K", 0, "draw from the K most likely tokens only", 2},                \
        {"top-p",                                                                                  \
         KEY_TOP_P,                                                                                \
         "P",                                                                                      \
         0,                                                                                        \
         "draw from the fewest most likely tokens that have probability P together",               \
         2},                                                                                       \
        {"seed", KEY_SEED, "N", 0, "of sampling (default 0)", 2},                                  \
    {                                                                                              \
        "no-repeat", KEY_NO_REPEAT, "N", 0, "no N tokens in a row twice", 2                        \
    }
/* False if the key is none of these. */
bool sampling_parse(sampling_args *args, int key, const char *text, struct argp_state *state);
/* Options of a search over texts: its end, what is never chosen, and these arguments. */
weft_search_options sampling_options(const sampling_args *args);

#endif
