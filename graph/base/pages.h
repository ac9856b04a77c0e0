/* base/pages.h - which pages of a mapped file (weft__os_map) are in memory. Not installed. */
#ifndef WEFT_BASE_PAGES_H
#define WEFT_BASE_PAGES_H

#include <stddef.h>

#include "private.h"

/* Lets go of the pages of a mapped file that were read. Later reads find the same bytes: the system
 * reads the file again, or has it still. Does nothing where the system cannot. */
WEFT_PRIVATE_API void weft__os_forget(void *data, size_t bytes);

#endif
