/* base/name_table.h - a hash table from names to numbers, for whatever is looked up by name and
 * grows with a file or a program. Not installed. */
#ifndef WEFT_BASE_NAME_TABLE_H
#define WEFT_BASE_NAME_TABLE_H

#include "arena.h"

#include <stdint.h>

#include "private.h"

typedef struct name_entry {
    const char *name; /* NULL: empty */
    uint64_t hash;
    size_t number;
} name_entry;

/* Zeros are an empty table. Names are not copied: they must outlive the table. */
typedef struct name_table {
    arena *memory; /* where the table lies; NULL: weft__name_table_free frees it */
    name_entry *entries;
    size_t count, capacity; /* the capacity is a power of two, or 0 */
    uint64_t key[2];
} name_table;

/* The number of a name; NULL if it is not in the table. The pointer holds until the next
 * weft__name_table_put. */
WEFT_PRIVATE_API size_t *weft__name_table_find(const name_table *table, const char *name);
/* The number of a name, which is put into the table with this one if it is new; NULL when memory is
 * out. */
WEFT_PRIVATE_API size_t *weft__name_table_put(name_table *table, const char *name, size_t number);
/* Makes room for `more` names; false if out of memory. */
WEFT_PRIVATE_API bool weft__name_table_reserve(name_table *table, size_t more);
/* Removes all names and keeps the room. */
void weft__name_table_clear(name_table *table);
WEFT_PRIVATE_API void weft__name_table_free(name_table *table);

#endif
