/* base/guess.h - the name that was probably meant by one that is not known. Not installed. */
#ifndef WEFT_BASE_GUESS_H
#define WEFT_BASE_GUESS_H

#include <stddef.h>

#include "private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A search for the known name that is nearest to `text`. Begin with weft__guess_of, call
 * weft__guess_try for each known name, then read `name`: NULL if none is near. */
typedef struct guess {
    const char *text, *name;
    size_t length, distance; /* of `text`; of `name` to it, or the first one that is too far */
} guess;

/* For a text that ends after `length` bytes. At most a third of its letters may differ. */
WEFT_PRIVATE_API guess weft__guess_of(const char *text, size_t length);
WEFT_PRIVATE_API void weft__guess_try(guess *g, const char *name);

#define GUESS_BYTES 96
/* "; did you mean \"NAME\"?", or "" if no name is near. Returns `buffer`. */
WEFT_PRIVATE_API const char *weft__guess_text(const guess *g, char buffer[GUESS_BYTES]);

#ifdef __cplusplus
}
#endif
#endif
