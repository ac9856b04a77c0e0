/* schema.h - the compiler of JSON schemas to regular expressions. Not installed. */
#ifndef WEFT_TOKENIZERS_SCHEMA_H
#define WEFT_TOKENIZERS_SCHEMA_H

#include "constraint.h"

#include "json/tree.h"

/* A character of a JSON string that needs no escape. */
#define SCHEMA_PLAIN "[^\"\\\\\\x00-\\x1f]"

/* A place in the schema: its name within another, or its index. */
typedef struct schema_place {
    const struct schema_place *in; /* NULL: the whole schema */
    const char *name;              /* NULL: `index` */
    size_t index;
} schema_place;

#define MAX_GROUPS 5000

/* A part of the schema that has a group of its own in the pattern. */
typedef struct schema_group {
    const cJSON *schema;
    char place[96]; /* for messages: where it was first referred to, without "#/" */
    int check;      /* of loops: 0 not yet, 1 in progress, 2 done */
} schema_group;

typedef struct schema_writer {
    const cJSON *root;
    char *text; /* the pattern so far, [n] of [capacity] */
    size_t n, capacity;
    schema_group *groups; /* [n_groups], the first of which is the whole schema */
    size_t n_groups;
    size_t work; /* comparisons so far */
    weft_status status;
    weft_error *error;
} schema_writer;

/* Ends the compilation with the first error: "#/properties/a: ..." */
void weft__schema_refuse(schema_writer *w, const schema_place *at, const char *format, ...)
    WEFT_PRINTF(3, 4);
/* Writes "#/a/b/3" and returns its length. */
size_t weft__schema_place(const schema_place *at, char *text, size_t size);
void weft__schema_no_memory(schema_writer *w);

void weft__schema_put(schema_writer *w, const char *format, ...) WEFT_PRINTF(2, 3);
/* Writes the bytes from `at` to `end` between two texts. */
void weft__schema_copy(schema_writer *w, const char *before, const char *at, const char *end,
                       const char *after);
/* Writes a text of n bytes so that it matches itself. */
void weft__schema_quote(schema_writer *w, const char *text, size_t n);
/* Writes a text as a JSON string. */
void weft__schema_text(schema_writer *w, const char *text);
/* Writes a JSON value, in which a space may follow colons and commas. */
void weft__schema_literal(schema_writer *w, const cJSON *value);

/* A keyword; NULL if the schema does not have it. */
const cJSON *weft__schema_keyword(const cJSON *schema, const char *name);
/* Reads a keyword that is a whole number of at most 65534; `none` without it. */
long weft__schema_count(schema_writer *w, const cJSON *schema, const char *name, long none,
                        const schema_place *at);

/* Counts comparisons, whose number is limited, so that every schema is compiled or refused in a
 * moment. False after an error. */
bool weft__schema_work(schema_writer *w, size_t n, const schema_place *at);
/* Writes a call of the group of a schema, which is new or has been called before. */
void weft__schema_call(schema_writer *w, const cJSON *schema, const schema_place *at);
/* What the $ref of a schema names; NULL after an error. */
const cJSON *weft__schema_reference(schema_writer *w, const cJSON *schema, const schema_place *at);
/* Fails for a schema that is reached again before a byte of JSON: it would have no end. `depth`
 * references lead to it. */
void weft__schema_check_loops(schema_writer *w, const cJSON *schema, const schema_place *at,
                              int depth);

/* Write what a schema allows of a type. */
void weft__schema_string(schema_writer *w, const cJSON *schema, const schema_place *at);
void weft__schema_number(schema_writer *w, const cJSON *schema, bool whole, const schema_place *at);

#endif
