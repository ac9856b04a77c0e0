/* Types of `weft logprob`: texts with their sources, and their scores. */
#ifndef WEFT_TOOLS_LOGPROB_H
#define WEFT_TOOLS_LOGPROB_H

#include "run.h"

#include <stdio.h>

/* Between the fields of a list of hypotheses. */
#define NBEST_SEPARATOR " ||| "

typedef struct logprob_args {
    const char *folder, *checkpoint, *source;
    int threads;
    int64_t batch;
    bool nbest, tokens, json;
} logprob_args;

/* Lines of a file, one at a time. */
typedef struct line_reader {
    const char *path; /* as messages name it */
    FILE *file;
    char *line;
    size_t capacity, length, lines;
} line_reader;

/* A line or document with its tokens and source. */
typedef struct scored_text {
    char *line; /* as read */
    char *text; /* the text to score: the line, or a field of it */
    size_t
        number; /* number of the line or document, or of the source that the line names, from 1 */
    bool whole; /* counts in the total: text and source are UTF-8 and not empty */
    int32_t *source, *ids;
    size_t n_source, n_ids; /* with what surrounds texts */
    bool ended;             /* the last id ends the text */
    double *scores;         /* [scored_tokens] */
} scored_text;

/* The tokens that have a probability: all but the first. */
static inline size_t scored_tokens(const scored_text *text)
{
    return text->n_ids ? text->n_ids - 1 : 0;
}

typedef struct logprob {
    const logprob_args *a;
    trained_run run;
    weft_scorer *scorer;
    bool has_source;
    int64_t most;              /* learned positions; INT64_MAX: no limit */
    int64_t context;           /* of a language model; INT64_MAX: no limit */
    line_reader input, source; /* source.file NULL: none */
    char **sources;            /* all of them, for --nbest */
    size_t n_sources;
    scored_text *texts; /* of a chunk */
    size_t n;
    size_t read, beyond;              /* texts; longer than the model was trained on */
    weft_text_lines invalid;          /* lines that are not UTF-8 */
    size_t lines, tokens, characters; /* of the total */
    double log_prob;
    weft_error error;
} logprob;

/* Sets the error; returns false. */
bool logprob_no_memory(logprob *p);

/* logprob_read.c: appends a text with its source to p->texts, which has room for it; false at the
 * end and on an error. */
bool logprob_read(logprob *p);
/* Reads all sources, for lines that name them. */
bool logprob_sources(logprob *p);
/* Fails if there are more sources than texts. */
bool logprob_check_end(logprob *p);
/* Frees the texts that were read. */
void logprob_clear(logprob *p);

#endif
