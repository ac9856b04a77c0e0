/* Vocabularies that become those of GGUF files. Not installed. */
#ifndef WEFT_FORMATS_GGUF_SAVE_VOCABULARY_H
#define WEFT_FORMATS_GGUF_SAVE_VOCABULARY_H

#include "save.h"
#include "tokenizer.h"

#include <cjson/cJSON.h>

typedef struct writer_piece {
    const char *text; /* NULL: no piece has the id */
    int type;
    float score;
    bool made; /* by a merge */
} writer_piece;

typedef struct vocabulary_writer {
    gguf_saver *s;
    cJSON *json, *config; /* tokenizer.json and tokenizer_config.json, or NULL */
    const cJSON *model;
    const gguf_split *split; /* NULL: SentencePiece */
    const char *bos, *eos;   /* pieces that are put around a text; NULL: none */
    bool add_space;
    writer_piece *pieces; /* [n], by id */
    size_t n;
    name_table ids;
} vocabulary_writer;

/* ---- components.c ---- */

weft_status weft__gguf_refuse_tokenizer(vocabulary_writer *v, const char *format, ...)
    WEFT_PRINTF(2, 3);
/* A member that is not null; NULL if there is none. */
const cJSON *weft__gguf_member(const cJSON *json, const char *key);
/* Finds what splits texts and what surrounds them, or refuses a component that GGUF
 * files cannot say. */
weft_status weft__gguf_read_components(vocabulary_writer *v);

#endif
