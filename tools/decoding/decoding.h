/* What `weft translate` and `weft generate` share: their options, lines of text that share batches,
 * the search of a batch, and the printing of what was found. */
#ifndef WEFT_TOOLS_DECODING_H
#define WEFT_TOOLS_DECODING_H

#include "growing.h"
#include "run.h"
#include "text/texts.h"

/* Models of an ensemble at most. */
#define DECODING_MODELS 32

/* ---- The command line ---- */

typedef struct decoding_args {
    const char *folder, *checkpoint;
    int threads;
    int64_t batch, chunk, min_length, top_k, seed, no_repeat;
    int64_t context; /* tokens that a language model attends to; 0: as many as it was trained on */
    double temperature, top_p, repetition_penalty;
    bool draws;                            /* options of sampling were given */
    const char *with[DECODING_MODELS - 1]; /* folders of runs, or checkpoints in them */
    size_t n_with;
    double weights[DECODING_MODELS]; /* of the first model and of those of `with` */
    size_t n_weights;                /* 0: equal ones */
    bool stats, recompute;
} decoding_args;
#define DECODING_DEFAULT                                                                           \
    {                                                                                              \
        .batch = 16, .temperature = 1, .top_p = 1, .repetition_penalty = 1                         \
    }
/* A child for a command's argp; its input is a decoding_args. It takes the argument FOLDER, too. */
extern const struct argp decoding_argp;

/* ---- Lines ---- */

/* A line of text: what to go on from, and what came of it. */
typedef struct text_line {
    char *text;
    int32_t *ids;           /* the source, or the prompt */
    size_t n_ids;           /* 0: an empty line, for which nothing is searched */
    int64_t most;           /* tokens to find, if need be in several windows */
    size_t number;          /* of the line, from 0 */
    weft_hypothesis *found; /* copies; tokens are the line's, too */
    size_t n_found;
    growing_text *growing; /* [n_growing], texts that are watched as they are found; or NULL */
    size_t n_growing;
} text_line;
typedef struct text_lines {
    text_line *line;
    size_t n, capacity;
} text_lines;

/* Ids of the text into line->ids, at most `most` of them, with an end appended if `end` is not -1.
 * *whole becomes how many there would be. An empty text has none. */
weft_status text_line_encode(text_line *line, const spm *vocabulary, size_t most, int32_t end,
                             size_t *whole, weft_error *error);

/* ---- Decoding ---- */

typedef enum decoding_way { DECODING_GREEDY, DECODING_BEAM, DECODING_SAMPLE } decoding_way;

/* A model of --with. */
typedef struct decoding_member {
    trained_run run;
    weft_decoder *decoder, *slider;
} decoding_member;

typedef struct decoding {
    const decoding_args *a;
    trained_run run;
    weft_decoder *decoder;
    weft_decoder *slider; /* of one row a sentence, for texts that go on beyond the first window */
    decoding_member *others; /* [n_others], whose probabilities count like those of the first */
    size_t n_others;
    weft_ensemble *ensemble,
        *slider_ensemble;            /* of all decoders, of all sliders; NULL: one model */
    int64_t max_len, max_source_len; /* positions that the decoders have */
    size_t stopped;                  /* texts of a beam that ended at max_len */
    decoding_way way;
    weft_search_options options;
    stop_texts stops;      /* of a language model; the command's */
    bool stream;           /* print each text as it is found; with one text at a time only */
    int32_t *banned;       /* those of options */
    size_t lines, tokens;  /* read; found */
    texts_numbers invalid; /* lines that are not UTF-8 */
    double seconds;        /* of searching */
    weft_error error;
} decoding;

/* Opens the runs and makes their decoders, of at most the positions that each model can tell apart
 * and, if a language model, was trained on, or as many as a->context says. `options` begins with
 * what the command line says. Must be closed, whatever came of it; false after an error in
 * d->error, as below. */
bool decoding_open(decoding *d, const decoding_args *a, int64_t beams, int64_t max_len,
                   int64_t max_source_len);
void decoding_close(decoding *d);
/* Sets the error, if there is none yet; false. */
bool decoding_fail(decoding *d, weft_status status, const char *where, const char *message);

/* The models: the run's, then those of --with. */
size_t decoding_models(const decoding *d);
const trained_run *decoding_run(const decoding *d, size_t i);
/* Opens the runs of --with, whose vocabularies must be the first one's. */
bool decoding_open_others(decoding *d);
/* Makes a decoder of each model, or a slider, and one search model of all. */
bool decoding_make(decoding *d, const weft_decoder_options *o, bool slider);
/* weft_decoder_start of all. */
bool decoding_start(decoding *d, bool slider, const int32_t *const *sources, const size_t *lengths,
                    size_t n);
weft_search_model decoding_model(decoding *d, bool slider);
/* The first decoder's, with the plans and memory of all. */
weft_decoder_info decoding_info(const decoding *d);
/* Closes runs and decoders. */
void decoding_close_all(decoding *d);

/* Searches from n <= a->batch prefixes with the decoders or the sliders, which have been started,
 * by d->options; NULL on failure. `growing` are the nbest texts of each, or NULL. */
weft_search_result *decoding_search(decoding *d, bool slider, const weft_search_input *inputs,
                                    size_t n, growing_text *const *growing);
/* Goes on with texts that fill the decoder's positions before they have all their tokens: the last
 * half of the positions is read again as a prompt, as often as needed. A beam's texts stay as they
 * are and are counted. */
bool decoding_slide(decoding *d, text_line *const *lines, size_t n);

/* Encodes a line and says how many tokens to find for it. */
typedef bool decoding_encode(void *context, text_line *line);
/* Does something with lines that have been searched and printed. */
typedef bool decoding_after(void *context, const text_lines *lines);

/* What a command does with its lines. */
typedef struct decoding_work {
    void *context;
    decoding_encode *encode;
    decoding_after *after; /* may be NULL */
    bool scores;           /* print LINE ||| TEXT ||| SCORE, not the text alone */
} decoding_work;
/* Reads standard input, so many lines at a time (0: 1024, from a terminal 1), searches them in
 * batches of like length, and prints in their order what was found, a line each
 * (texts_clean), or an empty line for an empty one, unless with scores. A model without a source
 * goes on from its prompt, which is part of the text. If d->stream, lines are searched one by one,
 * whatever is said of chunks. */
bool decoding_input(decoding *d, const decoding_work *work);
/* The same for one line. */
bool decoding_text(decoding *d, const decoding_work *work, const char *text);

/* Tells on stderr what was wrong with the input. */
void decoding_print_notes(const decoding *d);
/* Tells lines, tokens and speed on stderr. */
void decoding_print_stats(const decoding *d);

#endif
