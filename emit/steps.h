/* The steps of a file: texts with holes, where a number or an array may differ when the same code
 * appears again. Steps that repeat are written once, as a function (repeat.c). */
#ifndef WEFT_EMIT_STEPS_H
#define WEFT_EMIT_STEPS_H

#include "text.h"

#include "base/name_table.h"

/* In the text of a step: a comma between arguments, with a new line after it where a line is full. */
#define EMIT_COMMA "\3"

typedef enum emit_hole_kind {
    HOLE_OFFSET, /* size_t: bytes in the arena or in the states */
    HOLE_INT,    /* int */
    HOLE_NODE,   /* int: the number of the step's node */
    HOLE_KEY,    /* uint64_t */
    HOLE_INTS,   /* const int *: an array of the file, given by its numbers */
    HOLE_SHAPE, /* const void *: the same, read as a struct; its name and a colon precede the numbers */
    HOLE_ARRAY /* const TYPE *: an element of an array of the file, given by an expression */
} emit_hole_kind;
#define EMIT_HOLE_KINDS 7

typedef struct emit_hole {
    emit_hole_kind kind;
    weft_dtype dtype; /* of an array's elements */
    int64_t value;    /* of arrays: the number of their text */
} emit_hole;

typedef struct emit_step {
    const char *comment;
    size_t shape;      /* the number of its text without the values of holes */
    size_t first_hole; /* of n_holes */
    size_t n_holes;
} emit_step;

/* Lists lie in texts, which grow: of emit_step, of emit_hole, and of texts, whose numbers are their
 * places. */
typedef struct emit_steps {
    emit_text steps, holes, shapes, ints, expressions;
    name_table shape_numbers, ints_numbers, expression_numbers;
    arena memory; /* of the texts */
    bool failed;  /* no memory */
} emit_steps;

/* Write a value: as a hole if the text has them (to->holes). */
void weft__emit_hole_number(emit_text *to, emit_hole_kind kind, int64_t value);
void weft__emit_hole_text(emit_text *to, emit_hole_kind kind, weft_dtype dtype, const char *text);

/* Adds a step. */
void weft__emit_steps_add(emit_steps *s, const emit_text *comment, const emit_text *text);
const emit_step *weft__emit_steps_list(const emit_steps *s, size_t *n);
const emit_hole *weft__emit_steps_holes(const emit_steps *s, const emit_step *step);
/* Whether the n steps from a on are the same as those from b on, but for the numbers of their nodes. */
bool weft__emit_steps_same(const emit_steps *s, size_t a, size_t b, size_t n);
/* Forgets the steps from `first` on. */
void weft__emit_steps_drop(emit_steps *s, size_t first);
/* Whether the step may end the function that it is in. */
bool weft__emit_step_returns(const emit_steps *s, const emit_step *step);
/* The value of a hole as C. */
void weft__emit_hole_write(const emit_steps *s, const emit_hole *hole, emit_text *to);
/* The name of the member of kind `kind` and this number that holds the values of a hole. */
void weft__emit_hole_member(emit_hole_kind kind, int number, emit_text *to);
/* Writes a step. Where member[i] is not negative, hole i is that member of *at, else its value. No
 * members: all are values. */
void weft__emit_step_write(const emit_steps *s, const emit_step *step, const int *member,
                           emit_text *to);
/* Array i of ints: its numbers, after the name of the struct that they are and a colon, if they are read as one;
 * NULL after the last. Replaced by "NAME:{...}", it is an object of that struct. */
const char *weft__emit_steps_array(const emit_steps *s, size_t i);
void weft__emit_steps_set_array(emit_steps *s, size_t i, const emit_text *numbers);
/* Writes the arrays of ints. */
void weft__emit_steps_ints(const emit_steps *s, emit_text *to);
void weft__emit_steps_free(emit_steps *s);

/* The n steps of a function from `first` on; and what the functions that repeat some of them share with
 * it: parameters, the same as arguments of a call, and their first lines. */
typedef struct emit_block {
    size_t first, n;
    const char *parameters, *arguments, *begin;
} emit_block;

/* repeat.c: writes the steps of a block to `body`. Those that repeat are loops there, which call functions
 * for each row of a table; functions and tables go to `functions`. */
void weft__emit_repeats(emit_steps *s, const emit_block *block, emit_text *functions,
                        emit_text *body);

#endif
