/* Code that `weft translate` and `weft generate` share: options, reading lines, searching them in
 * batches, and printing the results. */
#ifndef WEFT_TOOLS_DECODING_H
#define WEFT_TOOLS_DECODING_H

#include "answer_rule.h"
#include "growing.h"
#include "run.h"
#include "sampling_args.h"

/* Maximum number of models in an ensemble. */
#define DECODING_MODELS 32

/* ---- The command line ---- */

/* Runs, or checkpoints in them, of --with. */
typedef struct decoding_runs {
    const char *at[DECODING_MODELS - 1];
    size_t n;
} decoding_runs;
/* Of the first model, then of those of --with; n = 0: equal weights. */
typedef struct decoding_weights {
    double at[DECODING_MODELS];
    size_t n;
} decoding_weights;

typedef struct decoding_args {
    const char *folder, *checkpoint;
    int threads;
    int64_t batch, chunk;
    int64_t context; /* tokens that a language model attends to; 0: as many as it was trained on */
    sampling_args sampling;
    bool batch_given; /* the user chose --batch */
    decoding_runs with;
    decoding_weights weights;
    bool stats, recompute;
    weft_dtype cache; /* of keys and values */
} decoding_args;
#define DECODING_DEFAULT                                                                           \
    {                                                                                              \
        .batch = 16, .sampling = SAMPLING_DEFAULT                                                  \
    }
/* The options of a decoding_args, and the argument FOLDER. */
extern const tool_command decoding_options;

/* ---- Lines ---- */

/* A line of input and its results. */
typedef struct text_line {
    char *text;
    int32_t *ids;           /* the source, or the prompt */
    size_t n_ids;           /* 0: an empty line, which is not searched */
    int64_t max_tokens;     /* maximum tokens to generate, in several windows if necessary */
    size_t number;          /* of the line, from 0 */
    weft_hypothesis *found; /* copies, whose tokens and log probabilities the line owns */
    size_t n_found;
    growing_text *growing; /* [n_growing], texts that are streamed or have stop texts; or NULL */
    size_t n_growing;
    weft_constrained_text **answers; /* [n_answers], what texts must match; NULL without a rule */
    size_t n_answers;
} text_line;
typedef struct text_lines {
    text_line *line;
    size_t n, capacity;
} text_lines;

/* Encodes the text into at most `max` ids, line->ids: a prompt loses its beginning, a source its
 * end, but neither what surrounds it. *whole becomes the number of ids without a limit. An empty
 * source has none. */
bool text_line_encode(text_line *line, const trained_run *run, text_part part, size_t max,
                      size_t *whole, weft_error *error);

/* ---- Decoding ---- */

typedef enum decoding_way { DECODING_GREEDY, DECODING_BEAM, DECODING_SAMPLE } decoding_way;

/* A model of --with. */
typedef struct decoding_member {
    trained_run run;
    weft_decoder *decoder, *slider;
} decoding_member;

typedef struct decoding_counts {
    size_t cut;       /* sources or prompts that were too long */
    size_t stopped;   /* texts of beam search that ended at max_len */
    size_t tokens;    /* found */
    size_t unmatched; /* texts that have all their tokens and do not match the rule yet */
    double seconds;   /* spent searching */
} decoding_counts;

typedef struct decoding {
    const decoding_args *a;
    trained_run run;
    weft_decoder *decoder;
    weft_decoder
        *slider; /* with one row a sentence, for texts that continue beyond the first window */
    decoding_member *others; /* [n_others], the other models of an ensemble */
    size_t n_others;
    weft_ensemble *ensemble,
        *slider_ensemble;            /* of all decoders, of all sliders; NULL: one model */
    int64_t max_len, max_source_len; /* positions that the decoders have */
    decoding_way way;
    weft_search_options options;
    stop_texts stops;        /* of a language model; owned by the command */
    answer_rule rule;        /* what texts must match */
    bool keep_lines;         /* texts are printed with their line ends */
    bool log_probs;          /* print each text as JSON, with the log probabilities of its tokens */
    bool stream;             /* print each text as it is generated; only with one text at a time */
    int32_t *banned;         /* those of options */
    decoding_counts counts;  /* of all processes after decoding_input */
    size_t lines;            /* read */
    weft_text_lines invalid; /* lines that are not UTF-8 */
    weft_error error;
} decoding;

/* Opens the runs and makes their decoders. The positions are limited by those of the models and,
 * for language models, by those of the training or by a->context. Sets `options` from the command
 * line. False after an error in d->error, as below. Must be closed in any case. */
bool decoding_open(decoding *d, const decoding_args *a, int64_t beams, int64_t max_len,
                   int64_t max_source_len);
void decoding_close(decoding *d);
/* Sets the error unless there is one already; returns false. */
bool decoding_fail(decoding *d, weft_status status, const char *where, const char *message);

/* The models: the run's, then those of --with. */
size_t decoding_models(const decoding *d);
const trained_run *decoding_run(const decoding *d, size_t i);
/* Opens the runs of --with; their vocabularies must equal the first one's. */
bool decoding_open_others(decoding *d);
/* Makes a decoder or a slider for each model, and one search model of all. */
bool decoding_make(decoding *d, const weft_decoder_options *o, bool slider);
/* Starts all decoders (weft_decoder_start). */
bool decoding_start(decoding *d, bool slider, const int32_t *const *sources, const size_t *lengths,
                    size_t n);
weft_search_model decoding_model(decoding *d, bool slider);
/* The counts of the first decoder, with the plans and memory of all. */
weft_decoder_info decoding_info(const decoding *d);
/* Closes runs and decoders. */
void decoding_close_all(decoding *d);

/* Searches from n <= a->batch prefixes with the started decoders or sliders, by d->options; NULL on
 * failure. `growing` are the nbest texts of each, or NULL; `answers` likewise. */
weft_search_result *decoding_search(decoding *d, bool slider, const weft_search_input *inputs,
                                    size_t n, growing_text *const *growing, void *const *answers);
/* Begins the answers of a line, if there is a rule. */
bool decoding_begin_answers(decoding *d, text_line *line);
void decoding_end_answers(text_line *line);
/* Moves what a line has found to the beginning of its answers. */
bool decoding_move_answers(decoding *d, const text_line *line);
/* Checks answers that are finished and moved: false if one of them could not go on. */
bool decoding_check_answers(decoding *d, const text_line *line);
/* Continues texts that have filled the decoder's positions: the tokens of the last half of the
 * positions become the prompt of a new search, as often as necessary. Texts of beam search are only
 * counted. */
bool decoding_slide(decoding *d, text_line *const *lines, size_t n);

/* Encodes a line and sets how many tokens to generate for it. */
typedef bool decoding_encode(void *context, text_line *line);
/* Called with lines that have been searched and printed; on several processes with their own lines,
 * on each of them. */
typedef bool decoding_after(void *context, const text_lines *lines);

/* The functions of a command. */
typedef struct decoding_work {
    void *context;
    decoding_encode *encode;
    decoding_after *after; /* may be NULL */
    bool scores;           /* print LINE ||| TEXT ||| SCORE, not the text alone */
} decoding_work;
/* Reads `chunk` lines of standard input at a time (0: 1024 for each process, or 1 from a terminal),
 * searches them in batches of similar length, and prints the results in order, one a line
 * (weft_text_clean). Several processes share the lines of a chunk; rank 0 reads and prints. Without
 * scores, an empty line stays an empty line. A language model continues its prompt, which is part
 * of the printed text. With d->stream, lines are searched one by one, whatever the chunk. */
bool decoding_input(decoding *d, const decoding_work *work);
/* The same for one line. */
bool decoding_text(decoding *d, const decoding_work *work, const char *text);

/* Prints the results of all ranks on standard output, unless one of them has an error. `scores` as
 * in decoding_work. */
bool decoding_print(decoding *d, const text_lines *lines, bool scores);
/* Ends the line of a partly printed text, before the message of an error. */
void decoding_end_streamed(const text_lines *lines);
/* Reports faults of the input on stderr. */
void decoding_print_notes(const decoding *d);
/* Reports lines, tokens and speed on stderr. */
void decoding_print_stats(const decoding *d);

#endif
