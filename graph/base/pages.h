/* base/pages.h - which pages are in memory. Not installed. */
#ifndef WEFT_BASE_PAGES_H
#define WEFT_BASE_PAGES_H

#include <stddef.h>

#include "private.h"

/* Lets go of the whole pages in a part of a mapped file (weft__os_map), or of other memory. Later reads of
 * a file that was not written find the same bytes: the system reads the file again, or has it still. The
 * contents of other memory are lost. Does nothing where the system cannot. */
WEFT_PRIVATE_API void weft__os_forget(void *data, size_t bytes);
/* Sets memory from weft__arena_memory to zeros; where the system can do that itself, without pages until
 * they are used. */
void weft__os_zero(void *data, size_t bytes);

#endif
