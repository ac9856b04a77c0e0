/* Attention weights of translations over their sources, as a picture or as word alignments. */
#ifndef WEFT_TOOLS_ALIGNMENT_H
#define WEFT_TOOLS_ALIGNMENT_H

#include "base/file.h"
#include "decoding.h"

#include <stdio.h>

typedef struct aligner {
    const trained_run *run;
    weft_scorer *scorer;
    file_writer writer; /* of the file that alignment_write writes, if `writes` */
    bool writes;
    FILE *file; /* in memory: the lines of one call of alignment_write */
    const char *path;
    weft_error *error; /* the caller's, see alignment_open */
} aligner;

/* Selects the weights of a layer and a head, each from 0; layer -1: the last, head -1: the mean of
 * all. `path` is the file that alignment_write writes, or NULL. Returns false after an error in
 * *error, for example if the model has no such weights. `error` must outlive the alignment, which
 * must be closed in any case. */
bool alignment_open(aligner *a, const trained_run *run, int64_t layer, int64_t head, int threads,
                    const char *path, weft_error *error);
/* Replaces the file by the lines that were written, whole or not at all. False if it could not be
 * written; may be called twice. */
bool alignment_close(aligner *a);

/* Tokens of a line's first hypothesis with its end; 0 if there is no hypothesis. */
size_t alignment_rows(const text_line *line);
/* The weights of these tokens over the source's: [alignment_rows][n_ids], which the caller frees.
 * NULL on failure. */
double *alignment_weights(aligner *a, const text_line *line);
/* Writes, on rank 0 for the lines of all ranks, a line of pairs SOURCE-TARGET for each line: the
 * numbers, from 0, of a word of the source and of a word of its first hypothesis as printed. Blanks
 * separate words. The weight of a source word is the sum over its tokens, averaged over the tokens
 * of the target word. Each target word is paired with the source word of the largest weight, or
 * with none if the source's end has a larger one. */
bool alignment_write(aligner *a, const text_lines *lines);

#endif
