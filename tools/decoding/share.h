/* Lines and results among the processes of `weft translate`. Every rank calls these functions, in
 * the same order; a single process also calls them. */
#ifndef WEFT_TOOLS_SHARE_H
#define WEFT_TOOLS_SHARE_H

#include "decoding.h"

/* False if any rank has an error, which *error then holds on every rank
 * (weft_communicator_agree). */
bool share_agree(weft_error *error);
/* Divides the lines of rank 0 into one contiguous share for each rank, as equal in length as
 * possible. *all becomes the number of all lines. False if any rank had an error before, or on
 * failure. */
bool share_lines(text_lines *lines, size_t *all, weft_error *error);
/* Moves the texts of all ranks to rank 0, in their order, or copies them to everyone; otherwise the
 * texts of the other ranks become empty. The caller frees them. False if any rank had an error
 * before, or on failure. */
bool share_text(char **text, size_t *bytes, bool everyone, weft_error *error);
/* The lowest rank for which `has` is true; -1 if there is none, or after an error. */
int share_first(bool has, weft_error *error);
/* Adds up the counts of all ranks; the seconds become those of the slowest. */
bool share_counts(decoding *d);

#endif
