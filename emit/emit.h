/* A file under way: the plan, the items that it uses, and its texts. */
#ifndef WEFT_EMIT_PRIVATE_H
#define WEFT_EMIT_PRIVATE_H

#include "items.h"
#include "steps.h"

#include <weft/emit.h>
#include <weft/source.h>

struct plan_loop;

typedef enum emit_storage {
    EMIT_ARENA,
    EMIT_STATES,
    EMIT_ARRAY,
    EMIT_LOOP_IN, /* what a step of the loop reads there, or writes there: bodies.c */
    EMIT_LOOP_OUT
} emit_storage;

/* Where a value lies: an offset in bytes, but in an array of the file in elements. */
typedef struct emit_place {
    emit_storage storage;
    uint32_t root;  /* id of the state or constant; the index of a loop's input or output */
    int64_t offset; /* of element [0, ..., 0] */
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

/* The body of a loop, which is a function. */
typedef struct emit_body {
    const struct plan_loop *loop;
    size_t first_step, n_steps;
    emit_text members; /* of the struct that says where a step reads and writes */
    emit_text copies;  /* what follows the steps */
    bool returns;      /* it may fail */
    size_t same;       /* the first body with the same text: its own place, or one before it */
} emit_body;

/* What is known of a value, by its id. */
enum { EMIT_USED = 1, EMIT_UPDATED = 2, EMIT_HAS_ARRAY = 4 };

typedef struct emit_file {
    /* The plan under way: that of the file, or that of a loop's body. */
    const weft_plan *plan;
    const weft_graph *g;
    const struct plan_loop *loop; /* NULL: the plan is that of the file */
    uint8_t *flags;               /* by value id */
    size_t first_step;            /* in the file; the steps of bodies come first */

    const weft_emit_options *options;
    weft_error *error;
    emit_items items;
    emit_text functions;  /* items that are used, after those that they need */
    emit_text arrays;     /* constants */
    name_table constants; /* that places share: numbers of their arrays, by the text of these */
    name_table loops;     /* functions over elements: their numbers, by their texts */
    size_t n_loops;
    emit_steps steps;  /* of all plans */
    emit_body *bodies; /* [n_bodies]; those in the body of another come before it */
    size_t n_bodies;
    emit_state *states; /* in the order in which they lie in memory */
    size_t n_states, state_bytes, file_bytes;
    emit_field *fields;
    size_t n_fields;
    weft_value rate;    /* of the plan's graph; no value: none */
    uint32_t *state_of; /* by value id of the file's plan: its index in `states` + 1; 0: none */
    size_t plan_bytes;  /* the arena of the file's plan */
    size_t arena_bytes; /* the same, and the workspace of kernels after it */
    size_t step;        /* under way: its place in `steps` */
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
/* The same as the address of a byte. */
void weft__emit_bytes(emit_file *f, weft_value value, emit_text *to);
/* Whether a value lies in a constant with several elements, all of the same bytes; the address of one of these. */
bool weft__emit_is_uniform(const emit_file *f, weft_value value);
void weft__emit_single(emit_file *f, weft_value value, emit_text *to);
/* Writes an array of the elements of a tensor, in rows. */
void weft__emit_array(emit_text *to, const char *name, const weft_tensor *tensor);

/* states.c: marks the storages that the steps of the plan read and update, and those of its results. */
void weft__emit_mark_storages(emit_file *f);
/* Finds the states, and how they lie in memory. False: an error is set. */
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

/* nodes.c: adds all steps of the plan under way to f->steps. False: an error is set. */
bool weft__emit_nodes(emit_file *f);

/* bodies.c: adds the steps of the plan and, before them, those of the bodies of its loops. False: an
 * error is set. */
bool weft__emit_plan(emit_file *f);
/* Writes the bodies as functions. */
void weft__emit_write_bodies(emit_file *f, emit_text *to);
void weft__emit_free_bodies(emit_file *f);

/* shapes.c: the struct that a function reads an array of ints as; "": none. */
void weft__emit_shape_name(const char *text, size_t n, char *name, size_t size);
/* Turns members of such structs that are the same in all arrays into constants of the functions. */
void weft__emit_fold_shapes(emit_file *f);

/* names.c: a name as an identifier of C and C++. */
const char *weft__emit_identifier(const char *name, char buffer[EMIT_NAME_BYTES]);
bool weft__emit_is_identifier(const char *name);

#endif
