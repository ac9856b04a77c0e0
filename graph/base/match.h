/* base/match.h - the names that two lists have in common, and those that one of them lacks. Not
 * installed. */
#ifndef WEFT_BASE_MATCH_H
#define WEFT_BASE_MATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The names themselves belong to the lists that were compared. */
typedef struct name_match {
    const char **matched, **missing, **unexpected; /* in the order of their lists */
    size_t n_matched, n_missing, n_unexpected;
} name_match;

/* Compares the names that are wanted with those that were found: one that is wanted only is
 * missing, one that was found only is unexpected. False if out of memory. O(n log n). */
WEFT_PRIVATE_API bool weft__match_names(name_match *m, const char *const *wanted, size_t n_wanted,
                                        const char *const *found, size_t n_found);
WEFT_PRIVATE_API void weft__match_free(name_match *m);
/* Writes how many are missing and unexpected, the first of them, and the nearest unexpected name to
 * a missing one; `what` is the plural of the named things. Cuts text that does not fit. */
WEFT_PRIVATE_API void weft__match_text(const name_match *m, const char *what, char *text,
                                       size_t size);

#ifdef __cplusplus
}
#endif
#endif
