/* base/text.h - text that every folder of weft needs: numbers, names fit for a message, patterns.
 *
 * Nothing here depends on the locale that a program has set: the decimal point is a point. Not
 * installed.
 */
#ifndef WEFT_BASE_TEXT_H
#define WEFT_BASE_TEXT_H

#include <locale.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __APPLE__
#include <xlocale.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the number that `text` begins with, in any form of strtod ("0.5", "1e-3", "0x1p-2", "inf",
 * "nan"), and returns where it ends; NULL if there is none. Leading white space is refused. */
const char *text_read_double(const char *text, double *value);
/* The whole of `text` as a number; false if it is none, or if something follows it. */
bool text_to_double(const char *text, double *value);

/* Enough for any double, int64_t or uint64_t. */
#define TEXT_NUMBER_BYTES 32
/* Writes the shortest decimal number that reads back as `value` ("0.1", "1e-09", "inf") and returns
 * `buffer`. */
const char *text_from_double(double value, char buffer[TEXT_NUMBER_BYTES]);

/* snprintf, vsnprintf, fprintf and vfprintf with a decimal point in every locale. What does not fit
 * a buffer is cut, never within a UTF-8 character. */
int text_format(char *buffer, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int text_vformat(char *buffer, size_t size, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));
int text_print(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
int text_vprint(FILE *file, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

/* The calling thread uses the C locale from text_enter_c_locale to text_leave_c_locale: for code of
 * others that reads or writes numbers. */
typedef struct text_locale {
    locale_t own, before;
} text_locale;
text_locale text_enter_c_locale(void);
void text_leave_c_locale(text_locale locale);

/* Copies `text` so that it is one line that a terminal shows as it is: control characters and bytes
 * that are no UTF-8 become \n, \t, \r or \xNN. What does not fit in `size` bytes is cut, never
 * within a character. Returns `buffer`, which must not overlap `text`. */
const char *text_printable(char *buffer, size_t size, const char *text);

/* Whether the whole of `text` matches a pattern in which `*` stands for any characters and `?` for
 * one byte. Takes at most length x length steps. */
bool text_match(const char *pattern, size_t pattern_length, const char *text);

#ifdef __cplusplus
}
#endif
#endif
