/* Where translations look in their sources: attention weights of the whole model over a source and
 * what it was translated to, as a picture or as alignments of words. */
#ifndef WEFT_TOOLS_ALIGNMENT_H
#define WEFT_TOOLS_ALIGNMENT_H

#include "decoding.h"

#include <stdio.h>

typedef struct aligner {
    const trained_run *run;
    weft_scorer *scorer;
    FILE *file; /* of alignment_write; NULL: none */
    const char *path;
    weft_error *error; /* the caller's, as below */
} aligner;

/* Takes the weights of a layer and a head, each from 0; layer -1: the last, head -1: the mean of
 * all. `path` is a file that alignment_write writes, or NULL. Must be closed, whatever came of it;
 * false after an error in *error, which must last: a model without such weights is one. */
bool alignment_open(aligner *a, const trained_run *run, int64_t layer, int64_t head, int threads,
                    const char *path, weft_error *error);
/* False if the file could not be written to its end; may be called twice. */
bool alignment_close(aligner *a);

/* Tokens of a line's first hypothesis, its end included; 0 if it has none. */
size_t alignment_rows(const text_line *line);
/* The weights of the source's tokens for each of those: [alignment_rows][n_ids], which the caller
 * frees. NULL on failure. */
double *alignment_weights(aligner *a, const text_line *line);
/* Writes a line of pairs SOURCE-TARGET for each line: the numbers, from 0, of a word of the source
 * and of a word of its first hypothesis as it is printed. Words are what blanks separate. Each word
 * of the hypothesis has one pair at most: with the word whose tokens have the greatest weight in
 * sum, on average over the tokens of the hypothesis's word. It has none where the source's end has
 * more than any word. */
bool alignment_write(aligner *a, const text_lines *lines);

#endif
