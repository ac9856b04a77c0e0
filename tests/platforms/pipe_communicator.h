/* A communicator of two processes, of any processors with the lowest byte first, through named pipes. */
#ifndef WEFT_TESTS_PIPE_COMMUNICATOR_H
#define WEFT_TESTS_PIPE_COMMUNICATOR_H

#include <weft/communicator.h>

/* Reads from one pipe and writes to the other, which the other rank has the other way round. NULL
 * if a pipe cannot be opened, or out of memory. */
weft_communicator *pipe_communicator(int rank, const char *from, const char *to);

#endif
