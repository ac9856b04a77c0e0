/* Examples of prompts and answers in JSON Lines, for trainings whose loss counts answers only. */
#ifndef WEFT_TOOLS_EXAMPLES_H
#define WEFT_TOOLS_EXAMPLES_H

#include "training.h"

/* The ids of an example as weft_batch_options.whole has them: -1 - x for a token that is read but
 * not predicted. */
typedef struct example {
    int32_t *ids; /* the caller frees them */
    size_t n;
} example;

/* What conversations.c needs to make examples of conversations. */
typedef struct conversation_reader {
    const weft_tokenizer *tokenizer;
    struct weft_chat_template *chat;
    trained_run run; /* of which only the ends of texts are used */
} conversation_reader;

/* Loads the chat template next to the vocabulary. Must be closed in any case. */
bool conversation_reader_open(conversation_reader *c, const training *t, weft_error *error);
void conversation_reader_close(conversation_reader *c);
/* The example of a conversation, {"messages": [...]}, perhaps with "tools". */
bool conversation_reader_encode(const conversation_reader *c, const cJSON *json, example *out,
                                weft_error *error);

#endif
