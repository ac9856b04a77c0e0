/* base/log.h - reports to the program's function: see weft/log.h. Not installed. */
#ifndef WEFT_BASE_LOG_H
#define WEFT_BASE_LOG_H

#include "private.h"

#include <weft/log.h>

#include <stdatomic.h>

/* Reports a line; false if the program has no function, which costs one load. */
WEFT_PRIVATE_API bool weft__log(weft_log_level level, const char *where, const char *format, ...)
    WEFT_PRINTF(3, 4);

/* Whether to report an event that is reported once: sets *done, which is false at first. False
 * without a function of the program. */
WEFT_PRIVATE_API bool weft__log_first(atomic_bool *done);

#endif
