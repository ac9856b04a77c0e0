/* base/text.h - numbers as text, printable names for messages, and patterns.
 *
 * Nothing here depends on the program's locale: the decimal point is always a point. Not installed.
 */
#ifndef WEFT_BASE_TEXT_H
#define WEFT_BASE_TEXT_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "private.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the number at the beginning of `text`, in any form of strtod ("0.5", "1e-3", "0x1p-2",
 * "inf", "nan"), and returns a pointer to what follows; NULL if no number begins there. Leading
 * white space is refused. */
WEFT_PRIVATE_API const char *weft__text_read_double(const char *text, double *value);
/* Reads the whole of `text` as a number; false if it is not one, or if anything follows it. */
WEFT_PRIVATE_API bool weft__text_to_double(const char *text, double *value);

/* Enough for any double, int64_t or uint64_t. */
#define TEXT_NUMBER_BYTES 32
/* Writes the shortest decimal number that reads back as `value` ("0.1", "1e-09", "inf") and returns
 * `buffer`. */
WEFT_PRIVATE_API const char *weft__text_from_double(double value, char buffer[TEXT_NUMBER_BYTES]);

/* snprintf, vsnprintf, fprintf and vfprintf with a decimal point in every locale. Text that does
 * not fit the buffer is truncated, never within a UTF-8 character. */
WEFT_PRIVATE_API int weft__text_format(char *buffer, size_t size, const char *format, ...)
    WEFT_PRINTF(3, 4);
WEFT_PRIVATE_API int weft__text_vformat(char *buffer, size_t size, const char *format,
                                        va_list arguments) WEFT_PRINTF(3, 0);
WEFT_PRIVATE_API int weft__text_print(FILE *file, const char *format, ...) WEFT_PRINTF(2, 3);
int weft__text_vprint(FILE *file, const char *format, va_list arguments) WEFT_PRINTF(2, 0);

/* Bytes of the UTF-8 character (RFC 3629) at the beginning of a text; 0 if it is not valid, or at
 * the end. A byte that is not part of one is written as U+FFFD into JSON, SVG and DOT. */
WEFT_PRIVATE_API size_t weft__text_character_bytes(const char *text);
#define TEXT_REPLACEMENT "\xEF\xBF\xBD"
/* Writes the character at the beginning of a text, or U+FFFD, and returns its bytes, at least 1. */
WEFT_PRIVATE_API size_t weft__text_put_character(FILE *file, const char *text);
WEFT_PRIVATE_API bool weft__text_is_utf8(const char *text);

/* Copies `text` into `buffer` as one line that is safe to print on a terminal: control characters
 * and bytes that are not UTF-8 become \n, \t, \r or \xNN. Text that does not fit in `size` bytes is
 * truncated, never within a character. Returns `buffer`, which must not overlap `text`. */
WEFT_PRIVATE_API const char *weft__text_printable(char *buffer, size_t size, const char *text);

/* Writes a number of bytes with three digits and a decimal unit ("12.3 MB", "512 B"), as in all
 * human-readable output, and returns `buffer`. */
#define TEXT_SIZE_BYTES 40
WEFT_PRIVATE_API const char *weft__text_from_bytes(double bytes, char buffer[TEXT_SIZE_BYTES]);
/* The decimals, 3 to 0, with which a number in a table has three digits. */
WEFT_PRIVATE_API int weft__text_decimals(double x);
/* Characters of a text in UTF-8. */
WEFT_PRIVATE_API int weft__text_length(const char *text);
/* Prints a text as weft__text_printable makes it, filled with spaces to `width` characters; a
 * longer one has "..." in its middle. */
WEFT_PRIVATE_API void weft__text_print_left(FILE *file, const char *text, int width);

/* Whether the whole of `text` matches a pattern, in which `*` matches any characters and `?` one
 * byte. O(pattern length x text length). */
WEFT_PRIVATE_API bool weft__text_match(const char *pattern, size_t pattern_length,
                                       const char *text);
/* The bytes of the first component of a scope. Single dots separate components. Further dots, and
 * dots at the ends of the scope, belong to a component: "a..b" is "a" and ".b", and "a." is one. So
 * each is followed by a dot or the end, and only that of "" is empty. */
WEFT_PRIVATE_API size_t weft__text_component(const char *scope);
/* Which of a comma-separated list of scopes, or NULL, is `name` or a scope around it: the first one from 1;
 * 0: none. */
size_t weft__text_in_scopes(const char *list, const char *name);

#ifdef __cplusplus
}
#endif
#endif
