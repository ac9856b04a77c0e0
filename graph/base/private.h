/* base/private.h - what the libraries of weft use of each other, and programs do not: exported in a
 * symbol version of its own (libweft.map.in). Not installed. */
#ifndef WEFT_BASE_PRIVATE_H
#define WEFT_BASE_PRIVATE_H

#include <weft/types.h>

#define WEFT_PRIVATE_API WEFT_API

#endif
