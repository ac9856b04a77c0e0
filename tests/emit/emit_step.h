/* Writes a training step of a test as C. */
#ifndef WEFT_TESTS_EMIT_STEP_H
#define WEFT_TESTS_EMIT_STEP_H

#include <weft/graph.h>

/* Writes net_step.c and net_step.h into a folder: the step targets[1], whose loss is targets[0], with the rate
 * as an input, in an arena of at most `budget` bytes if that is not 0. Prints errors; returns whether it
 * succeeded. */
bool emit_step(weft_graph *g, const weft_value targets[2], weft_value rate, size_t budget,
               const char *folder);

#endif
