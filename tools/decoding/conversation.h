/* A conversation with a language model: messages, the tokens that the decoder has read, and answers
 * that are printed as they grow. The decoder reads only what it has not read before. */
#ifndef WEFT_TOOLS_CONVERSATION_H
#define WEFT_TOOLS_CONVERSATION_H

#include "answer_rule.h"
#include "growing.h"
#include "run.h"
#include "sampling_args.h"

/* Positions, unless the user wants more: their keys and values take memory. */
#define CONVERSATION_LEN 4096

typedef struct conversation_args {
    const char *folder, *checkpoint;
    const char *chat_template; /* NULL: that of the folder */
    int threads;
    int64_t tokens;  /* maximum of an answer */
    int64_t context; /* positions; 0: those of the training, at most CONVERSATION_LEN */
    sampling_args sampling;
    answer_rule_args rule;
    weft_dtype cache; /* of keys and values */
} conversation_args;

typedef struct conversation_message {
    char *role, *content; /* owned */
} conversation_message;

typedef struct conversation_stats {
    size_t reused, read, found;         /* tokens of the last answer: known before, read, new */
    double read_seconds, found_seconds; /* spent on the two latter */
    double log_prob;                    /* of the new tokens, the end included */
} conversation_stats;

typedef struct conversation {
    const conversation_args *a;
    trained_run run;
    struct weft_chat_template *chat;
    weft_decoder *decoder;
    weft_sampler *sampler;
    weft_sampling_options sampling;
    answer_rule rule; /* what answers must match */
    int32_t *banned;
    int64_t context;
    char *system; /* NULL: none */
    conversation_message *messages;
    size_t n, capacity;
    size_t first;  /* messages before it are no longer part of the context */
    int32_t *read; /* [context], the tokens that the decoder has read */
    size_t n_read;
    uint64_t answers; /* given so far, which select random numbers */
    conversation_stats stats;
    volatile bool *interrupted; /* becomes true when the user interrupts an answer */
    weft_error error;
} conversation;

/* Opens the run. False after an error in c->error. Must be closed in any case. */
bool conversation_open(conversation *c, const conversation_args *a, volatile bool *interrupted);
void conversation_close(conversation *c);

/* Sets the system's message; NULL or "": none. */
bool conversation_set_system(conversation *c, const char *text);
bool conversation_add(conversation *c, const char *role, const char *content);
/* Removes the last messages beyond n. */
void conversation_cut(conversation *c, size_t n);

/* Answers the messages so far: prints the answer on standard output with a line end, and adds it.
 * An interrupted answer ends early, and is added unless it is empty. If older messages no longer
 * fit, a line on standard error says how many are left out. */
bool conversation_answer(conversation *c);

/* Messages as lines of JSON, {"role": ..., "content": ...}. Loading replaces all messages. */
bool conversation_save(conversation *c, const char *path);
bool conversation_load(conversation *c, const char *path);

#endif
