/* What whole answers (answer.c) and streams (stream.c) share. */
#ifndef WEFT_TOOLS_ANSWER_H
#define WEFT_TOOLS_ANSWER_H

#include "server.h"

#include "json/add.h"

/* The text of a tree, which is freed; NULL if memory is out. */
char *answer_print(json_maker *m, cJSON *json);
void answer_null(json_maker *m, cJSON *to, const char *name);
/* The object of an answer, with what all of them have. */
cJSON *answer_begin(const job *j, json_maker *m, const char *object);
void answer_usage(const job *j, json_maker *m, cJSON *to);
/* Adds bytes [from, to) of the text of an answer. */
void answer_text(json_maker *m, cJSON *json, const char *name, const job_choice *c, size_t from,
                 size_t to);
/* Adds the log probabilities of n tokens from `first` on, or null if they are not wanted. */
void answer_scores(const job_choice *c, json_maker *m, cJSON *to, size_t first, size_t n);

#endif
