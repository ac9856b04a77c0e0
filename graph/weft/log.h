/* weft/log.h - what weft decides on its own.
 *
 * weft prints nothing. Failures are reported by statuses and weft_error. What is not a failure, but
 * may surprise, goes to a function of the program: fewer threads than asked for, kernels of weft
 * instead of a library's, small pages instead of huge ones, passes that the environment skips. */
#ifndef WEFT_LOG_H
#define WEFT_LOG_H

#include <weft/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_log_level {
    WEFT_LOG_INFO,   /* as asked for, in another way: nothing to do */
    WEFT_LOG_WARNING /* less than asked for: slower, or less safe */
} weft_log_level;

/* `where` is what the line is about, such as "weft_session_new"; `text` is one line of printable
 * characters, without a newline. Both are valid during the call only.
 *
 * The function is called on the thread that makes the decision, which may be one of a run. weft
 * makes one call at a time. What the function does in weft itself is not reported. */
typedef void (*weft_log_fn)(void *context, weft_log_level level, const char *where,
                            const char *text);

/* Sets the function for the process; NULL, as at first: none. When it returns, the function that
 * was set before is not called any more. A decision that holds for the process, such as a library
 * that lacks a kernel, is reported once. */
WEFT_API void weft_log_set(weft_log_fn log, void *context);

#ifdef __cplusplus
}
#endif
#endif
