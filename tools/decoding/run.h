/* A run of `weft train` or `weft convert`, read from its folder: checkpoint, model, vocabulary, and
 * how a text becomes the ids that the model reads. */
#ifndef WEFT_TOOLS_RUN_H
#define WEFT_TOOLS_RUN_H

#include "text/spm.h"
#include "tool.h"

#include "base/file.h"

#include <weft/saved.h>

#define TRAINED_BEGINS 2
#define TRAINED_ENDS   16

typedef struct trained_run {
    weft_saved_model *saved;
    weft_params *params;     /* of `saved` */
    const weft_model *model; /* NULL until it is known */
    weft_model_config config;
    weft_model_traits traits;
    bool documents;      /* its texts have several lines (data.unit) */
    int64_t trained_len; /* tokens of the longest row that it was trained on; 0: unknown */
    weft_tokenizer *source, *target; /* the same if they share FOLDER/vocab.model */
    bool shared;
    const char *vocabulary_path[2]; /* of source and target; NULL of the source if shared */
    /* The vocabulary is a tokenizer.json, which says what ids surround a text. Otherwise it is one
     * of SentencePiece, with those of `weft train`. */
    bool published;
    bool
        parse_special; /* special pieces in texts become their ids; false until a command sets it */
    /* Ids with which a translation begins. Other texts begin as the vocabulary says. */
    int32_t begins[TRAINED_BEGINS];
    size_t n_begins;
    int32_t ends[TRAINED_ENDS]; /* any of them ends a text */
    size_t n_ends;
} trained_run;

/* weft_saved_open, and the tokenisers of its vocabularies, which must exist. */
bool trained_open(trained_run *run, const char *folder, const char *checkpoint, weft_error *error);
void trained_close(trained_run *run);
/* The folder of the vocabulary that the model writes. Fails if its path is too long. */
bool trained_folder(const trained_run *run, char folder[FILE_PATH_BYTES], weft_error *error);
/* Whether a token ends a text. */
bool trained_ends_with(const trained_run *run, int32_t id);

/* Fails if the model has fewer learned positions than --context. */
bool trained_has_positions(const trained_run *run, int64_t context, weft_error *error);
/* The positions of one text: --context, or, if it is 0, those that the model was trained on, at most
 * `most`. 0 after an error. */
int64_t trained_context(const trained_run *run, int64_t context, int64_t most, weft_error *error);

/* The ids that searches must not choose, such as padding. The caller frees the list; NULL when
 * memory is out. */
int32_t *trained_banned(const trained_run *run, size_t *n);

/* What a text is for the model. */
typedef enum text_part {
    TEXT_SOURCE, /* to translate */
    TEXT_PROMPT, /* to continue: without what the vocabulary puts after a text */
    TEXT_TARGET, /* to score: the ids that are read and predicted */
    TEXT_CHAT    /* by a chat template: it has all special pieces, which become their ids */
} text_part;

typedef struct encoded_text {
    int32_t *ids; /* the caller frees them */
    size_t n;
    size_t before, after; /* how many of these are not of the text, at its beginning and end */
} encoded_text;

/* Encodes a text. An empty one has the ids that surround it. Fails for an id that the model lacks,
 * which a piece that was added to a published vocabulary may have. */
bool trained_encode(const trained_run *run, text_part part, const char *text, encoded_text *out,
                    weft_error *error);

#endif
