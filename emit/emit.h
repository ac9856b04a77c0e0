/* A file under way: the plan, the items that it uses, and its texts. */
#ifndef WEFT_EMIT_PRIVATE_H
#define WEFT_EMIT_PRIVATE_H

#include "items.h"
#include "steps.h"

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
    bool updated;         /* by the plan */
    bool array;           /* read in place in an array of the file */
    size_t offset, bytes; /* in the states */
} emit_state;

/* A member of the struct of inputs and outputs. */
#define EMIT_NAME_BYTES 128
typedef struct emit_field {
    weft_value value; /* of the plan's graph */
    char name[EMIT_NAME_BYTES];
    bool output;
} emit_field;

/* What is known of a value, by its id. */
enum { EMIT_USED = 1, EMIT_UPDATED = 2, EMIT_HAS_ARRAY = 4 };

typedef struct emit_file {
    const weft_plan *plan;
    const weft_graph *g;
    const weft_emit_options *options;
    weft_error *error;
    emit_items items;
    emit_text functions; /* items that are used, after those that they need */
    emit_text arrays;    /* constants */
    emit_steps steps;    /* of the plan */
    emit_state *states;  /* in the order in which they lie in memory */
    size_t n_states, state_bytes, file_bytes;
    emit_field *fields;
    size_t n_fields;
    weft_value rate;    /* of the plan's graph; no value: none */
    uint8_t *flags;     /* by value id */
    uint32_t *state_of; /* by value id: its index in `states` + 1; 0: none */
    size_t arena_bytes; /* of the plan, and the workspace of kernels after it */
    size_t step;        /* under way */
    bool can_fail;
    bool keeps_shapes; /* shapes.c has nothing to do: some array is not known to be a struct */
} emit_file;

/* Sets the error "out of memory"; returns false. */
static inline bool emit_no_memory(const emit_file *f)
{
    weft_error_set(f->error, WEFT_NO_MEMORY, "weft_emit", "out of memory");
    return false;
}

/* Writes the item of this name into the functions, and what it is called to `buffer`; false if there
 * is none. */
static inline bool emit_function(emit_file *f, const char *name, weft_dtype dtype, char *buffer,
                                 size_t size)
{
    if (!weft__emit_items_write(&f->items, name, dtype, &f->functions)) return false;
    weft__emit_items_name(&f->items, name, dtype, buffer, size);
    return true;
}

/* Writes an item of the library, which is not generic, if it is not there yet. */
static inline void emit_need(emit_file *f, const char *name)
{
    weft__emit_items_write(&f->items, name, WEFT_F32, &f->functions);
}

/* places.c: the dtype of a value in memory: its own, or bf16 for an f32. */
weft_dtype weft__emit_stored(const emit_file *f, weft_value value);
/* Where a value of the plan's graph lies. */
emit_place weft__emit_place(const emit_file *f, weft_value value);
/* The state, constant or value of the arena in whose storage a value lies. */
weft_value weft__emit_storage_of(const emit_file *f, weft_value value);
/* The address of a value as an expression. An array has the type of its elements, all else a cast. */
void weft__emit_address(emit_file *f, weft_value value, bool is_const, emit_text *to);
/* Writes an array of the elements of a tensor, in rows. */
void weft__emit_array(emit_text *to, const char *name, const weft_tensor *tensor);

/* states.c: finds the states, and how they lie in memory. False: an error is set. */
bool weft__emit_find_states(emit_file *f);
/* Writes NAME_init, NAME_save and NAME_load, and the arrays that they read. False: no memory. */
bool weft__emit_write_states(emit_file *f, emit_text *to);

/* interface.c: the members of the struct of inputs and outputs. False: an error is set. */
bool weft__emit_find_fields(emit_file *f);
/* "int NAME_run(NAME *m, const NAME_io *io)". */
void weft__emit_prototype(const emit_file *f, emit_text *to);
void weft__emit_write_header(const emit_file *f, emit_text *to);
/* Copies of inputs into the arena, or of outputs out of it. */
void weft__emit_write_copies(emit_file *f, bool outputs, emit_text *to);

/* nodes.c: adds all steps of the plan to f->steps. False: an error is set. */
bool weft__emit_nodes(emit_file *f);

/* shapes.c: the struct that a function reads an array of ints as; "": none. */
void weft__emit_shape_name(const char *text, size_t n, char *name, size_t size);
/* Turns members of such structs that are the same in all arrays into constants of the functions. */
void weft__emit_fold_shapes(emit_file *f);

/* names.c: a name as an identifier of C and C++. */
const char *weft__emit_identifier(const char *name, char buffer[EMIT_NAME_BYTES]);
bool weft__emit_is_identifier(const char *name);

#endif
