/* older.h - ranges of characters that are newer than parts of the package `tokenizers`. Not
 * installed. */
#ifndef WEFT_TOKENIZERS_OLDER_H
#define WEFT_TOKENIZERS_OLDER_H

#include <stddef.h>
#include <stdint.h>

/* Characters first .. last. Tables of them are sorted. */
typedef struct tk_range {
    uint32_t first, last;
} tk_range;

extern const tk_range weft__tk_newer_nonspacing[], weft__tk_newer_marks[],
    weft__tk_newer_punctuation[], weft__tk_newer_decompositions[];
extern const size_t weft__tk_newer_nonspacing_count, weft__tk_newer_marks_count,
    weft__tk_newer_punctuation_count, weft__tk_newer_decompositions_count;

#endif
