/* regex.h - patterns that split texts. Not installed. */
#ifndef WEFT_TOKENIZERS_REGEX_H
#define WEFT_TOKENIZERS_REGEX_H

#include "work.h"

typedef struct tk_regex tk_regex;

/* Compiles a regular expression in the syntax of Oniguruma (Ruby's), or a text that is found as it
 * is. NULL on failure: *why says what is wrong, or is NULL if memory ran out. */
tk_regex *weft__tk_regex_new(const char *pattern, bool is_regex, char why[160]);
/* GPT-2's pattern, by which ByteLevel splits. */
extern const char weft__tk_gpt2_pattern[];
void weft__tk_regex_free(tk_regex *r);
void weft__tk_match_data_free(void *match_data);

/* Appends to w->matches those in `text`, n bytes of valid UTF-8, and the ranges between them;
 * `base` is added to all positions. */
void weft__tk_regex_match(const tk_regex *r, tk_work *w, const char *text, size_t n, size_t base);

/* ---- Scanners (scan.c): the patterns of widespread models, written by hand ---- */

/* The end of the match that begins at `at`, which is before n. Every character belongs to one. */
typedef size_t tk_scan(const char *text, size_t at, size_t n);
/* The scanner that finds what a regular expression finds; NULL if there is none. */
tk_scan *weft__tk_scanner_of(const char *pattern);

#endif
