/* A file under way: the plan, the items that it uses, and its texts. */
#ifndef WEFT_EMIT_PRIVATE_H
#define WEFT_EMIT_PRIVATE_H

#include "items.h"

#include <weft/emit.h>
#include <weft/source.h>

typedef enum emit_storage { EMIT_ARENA, EMIT_STATES, EMIT_ARRAY } emit_storage;

/* Where a value lies: an offset in bytes in the arena or the states, or in an array of the file. */
typedef struct emit_place {
    emit_storage storage;
    uint32_t root;  /* id of the state or constant */
    int64_t offset; /* bytes, of element [0, ..., 0] */
} emit_place;

typedef struct emit_state {
    uint32_t id; /* of the value in the plan's graph */
    weft_type type;
    const char *name;
    bool updated, array;  /* the plan updates it; it is an array of the file, read in place */
    size_t offset, bytes; /* in the states; bytes of its elements */
} emit_state;

typedef struct emit_file {
    const weft_plan *plan;
    const weft_graph *g;
    const weft_emit_options *options;
    weft_error *error;
    emit_items items;
    emit_text functions; /* items that are used, after those that they need */
    emit_text arrays;    /* constants */
    emit_text body;      /* of NAME_run */
    emit_state *states;
    size_t n_states, state_bytes;
    uint8_t *has_array; /* by value id: the constant is written */
    size_t n_ints;      /* arrays of ints so far */
    size_t step;        /* under way */
    bool uses_seed, can_fail;
} emit_file;

/* places.c: where a value of the plan's graph lies. */
emit_place weft__emit_place(const emit_file *f, weft_value value);
/* Finds the states, and how they lie in memory. False: an error is set. */
bool weft__emit_find_states(emit_file *f);
/* The address of a value as an expression, without a cast to the type of its elements where that is
 * an array. */
void weft__emit_address(emit_file *f, weft_value value, bool is_const, emit_text *to);
/* Writes an array of the elements of a tensor, in rows. */
void weft__emit_array(emit_text *to, const char *name, const weft_tensor *tensor);

/* nodes.c: writes all steps of the plan into f->body. False: an error is set. */
bool weft__emit_nodes(emit_file *f);

/* The name of a value as an identifier. */
#define EMIT_NAME_BYTES 128
const char *weft__emit_identifier(const char *name, char buffer[EMIT_NAME_BYTES]);

#endif
