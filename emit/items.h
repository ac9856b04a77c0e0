/* Items of C text: functions, types, constants and macros, which a file has only where something
 * uses them.
 *
 * Text is split at the end of each top-level declaration. An item needs those whose names occur in
 * it. Where it mentions T, or needs an item that does, it is generic: it is written once for each
 * dtype, under its name and the dtype's suffix, as are names that exist with that suffix only
 * (vm_exp for vm_exp_f32).
 *
 * EMIT_HALVES is f32, but an item NAME_halves replaces NAME, also in the items that need NAME. Of two
 * texts under one name, all take the first, but EMIT_HALVES the second where no NAME_halves replaces a
 * name in the first. */
#ifndef WEFT_EMIT_ITEMS_H
#define WEFT_EMIT_ITEMS_H

#include "text.h"

#include "base/name_table.h"

#define EMIT_MAX_NAMES 8
#define EMIT_MAX_NAME  200 /* bytes; a longer one is not found */

typedef struct emit_item {
    const char *text; /* of n bytes */
    size_t n;
    const char *name[EMIT_MAX_NAMES]; /* what it declares, [n_names] */
    size_t length[EMIT_MAX_NAMES], n_names;
    bool generic, halves;          /* halves: EMIT_HALVES has a text of its own */
    bool written[EMIT_HALVES + 1]; /* of an item that is not generic: [0] */
} emit_item;

typedef struct emit_items {
    emit_item *items;
    size_t n, room;
    name_table numbers; /* of items, by name */
    arena memory;       /* of these names */
    char **texts;       /* copies that the items point into */
    size_t n_texts;
    bool doubles; /* an item that was written computes in doubles, other than as a wide_float */
    bool failed;  /* no memory */
} emit_items;

/* Adds the items of a text. The first item of a name stays: false if one of the text has the name, but
 * not the text, of one that is there. */
bool weft__emit_items_add(emit_items *all, const char *text);
/* Writes the item of this name for the dtype, after all that it needs and that is not yet written. False
 * if there is none. */
bool weft__emit_items_write(emit_items *all, const char *name, weft_dtype dtype, emit_text *to);
/* The name under which a file has an item for the dtype: `buffer` is large enough for any. */
const char *weft__emit_items_name(const emit_items *all, const char *name, weft_dtype dtype,
                                  char *buffer, size_t size);
/* The text of the item that has this name for the dtype, of *n bytes; NULL if there is none. */
const char *weft__emit_items_text(const emit_items *all, const char *name, weft_dtype dtype,
                                  size_t *n);
/* The next identifier at or after *at, outside of comments and text literals; its length, or 0 at the end. */
size_t weft__emit_next_name(const char *text, size_t n, size_t *at);
void weft__emit_items_free(emit_items *all);

/* The library of plain C (emit/plain), and functions of it with vectors (emit/simd), which are added
 * before it where they are wanted. */
extern const char weft__emit_library[], weft__emit_simd[];

#endif
