/* Which ids surround the texts of a run. */
#ifndef WEFT_TOOLS_SPECIAL_H
#define WEFT_TOOLS_SPECIAL_H

#include "run.h"

/* Finds the ids with which texts begin and end. Fails if a published model that translates does not
 * say with what a translation begins. */
bool special_find(trained_run *run, weft_error *error);

#endif
