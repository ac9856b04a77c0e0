/* Reads text files as sequences of token ids. */
#ifndef WEFT_TOOLS_TEXTS_H
#define WEFT_TOOLS_TEXTS_H

#include "spm.h"

#include <weft/train.h>

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the next line without its end (LF or CRLF), which may contain zeros; false at the end of
 * the file or if it cannot be read. The caller frees *line. */
bool texts_read_line(FILE *file, char **line, size_t *capacity, size_t *length);
/* Is it UTF-8 (RFC 3629: no overlong form, no surrogate, nothing over U+10FFFF) without zeros? */
bool texts_is_utf8(const char *text, size_t length);
/* Makes UTF-8 one line that a terminal shows as it is, or several if `lines`: control characters
 * other than tabs, and the separators U+2028 and U+2029, become spaces. */
void texts_clean(char *text, bool lines);

/* The unit of text that becomes one sequence: a line, or the lines up to an empty one with the line
 * ends between them. The values are those of data.unit. */
typedef enum texts_unit { TEXTS_LINE, TEXTS_DOCUMENT } texts_unit;

/* Numbers of lines, from 1; messages list the first of them. */
#define TEXTS_LISTED 8
typedef struct texts_numbers {
    size_t n, at[TEXTS_LISTED];
} texts_numbers;
void texts_number(texts_numbers *numbers, size_t line);
/* "line 3", "lines 3, 7", or "12 lines: 1, 2, 3, ..."; returns `text`. */
#define TEXTS_NUMBERS_TEXT 256
const char *texts_numbers_text(const texts_numbers *numbers, char text[TEXTS_NUMBERS_TEXT]);

typedef struct texts_counts {
    size_t units;          /* of each file */
    texts_numbers invalid; /* left out: not UTF-8, or with a zero byte; of pairs, in either file */
    /* Code points, as the vocabulary normalises them, of the target lines that have 1 to
     * max_tokens tokens, and one for the end of each of these lines. */
    size_t characters;
} texts_counts;

/* Adds the units of a file, or of a pair of files (source_path NULL otherwise) to a corpus, without
 * the line's end (LF or CRLF) and a byte order mark. Errors: a file that cannot be read or has no
 * line, files of unequal numbers of lines, files of which most is not UTF-8. `max_tokens` is only
 * for the count of characters. */
weft_status texts_read(weft_corpus *corpus, const char *source_path, const spm *source_vocabulary,
                       const char *target_path, const spm *target_vocabulary, texts_unit unit,
                       size_t max_tokens, texts_counts *counts, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
