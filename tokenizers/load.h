/* load.h - reading tokenizer.json. A loader remembers its first failure; after it, functions do
 * nothing and return defaults. Not installed. */
#ifndef WEFT_TOKENIZERS_LOAD_H
#define WEFT_TOKENIZERS_LOAD_H

#include "json/tree.h"

#include "state.h"

/* A value of the file, and where it is, for messages. */
typedef struct tk_place {
    const struct tk_place *in;
    const char *name; /* NULL: the index-th of an array */
    size_t index;
    const cJSON *json; /* NULL: there is none, or null */
} tk_place;

typedef struct tk_loader {
    const char *file; /* for messages */
    tk_state *state;
    weft_status status;
    weft_error *error;
} tk_loader;

/* Fails: "PLACE: ...". */
void weft__tk_refuse(tk_loader *l, const tk_place *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void weft__tk_no_memory(tk_loader *l);
/* Zeroed memory for n elements; NULL, and a failure, if there is none. */
void *weft__tk_alloc(tk_loader *l, size_t n, size_t size);
/* Makes room for one more element of an array of n, whose capacity follows from n. */
bool weft__tk_grow(tk_loader *l, void *array, size_t n, size_t size);

tk_place weft__tk_member(const tk_place *in, const char *name);
/* An array, whose length *n becomes; a failure if it is another value, or absent and `needed`. */
const cJSON *weft__tk_array(tk_loader *l, const tk_place *at, bool needed, size_t *n);
bool weft__tk_bool(tk_loader *l, const tk_place *in, const char *name, bool fallback);
/* A text, which lives as long as the JSON; `fallback` if it is absent, and a failure if that is
 * NULL. */
const char *weft__tk_string(tk_loader *l, const tk_place *in, const char *name,
                            const char *fallback);
/* The same, as a new text. */
char *weft__tk_string_copy(tk_loader *l, const tk_place *in, const char *name,
                           const char *fallback);
/* An integer in [0, most]. */
int64_t weft__tk_integer(tk_loader *l, const tk_place *at, int64_t most);
/* The `type` of a component. */
const char *weft__tk_type(tk_loader *l, const tk_place *at);
/* The pattern of a component: {"String": ...} or {"Regex": ...}. */
tk_regex *weft__tk_pattern(tk_loader *l, const tk_place *in);
/* The one character of a text. */
uint32_t weft__tk_character(tk_loader *l, const tk_place *in, const char *name,
                            const char *fallback);

/* The parts of the file. */
void weft__tk_load_normalizer(tk_loader *l, const tk_place *at);
void weft__tk_load_splitter(tk_loader *l, const tk_place *at);
void weft__tk_load_model(tk_loader *l, const tk_place *at);
void weft__tk_load_added(tk_loader *l, const tk_place *at);
void weft__tk_load_processor(tk_loader *l, const tk_place *at);
void weft__tk_load_decoder(tk_loader *l, const tk_place *at);
/* Whether `prepend_scheme`, or the older `add_prefix_space`, of a Metaspace says when to prepend. */
tk_prepend weft__tk_load_prepend(tk_loader *l, const tk_place *at);

#endif
