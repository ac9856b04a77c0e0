/* Runs the program as one of several processes that MPI has started. */
#ifndef WEFT_TOOLS_PARALLEL_H
#define WEFT_TOOLS_PARALLEL_H

#include <weft/communicator.h>

#include <stdbool.h>

/* Begins MPI if a launcher (mpirun, srun) started this process as one of several; otherwise does
 * nothing. From then on, all ranks but 0 print to /dev/null, except for tool_fail and
 * tool_fail_text. When the process exits, MPI ends too: with exit status 0, or above 128 for a
 * signal, after all ranks have ended; with EXIT_USAGE as well, if all ranks refuse their command
 * lines. Otherwise, also where only some refuse theirs, it ends all ranks at once with EXIT_ERROR.
 * A command that accepts its command line therefore calls weft_communicator_agree before any other
 * exchange. Returns false, after a message of rank 0, if this process cannot take part. */
bool tool_world_begin(void);
/* All processes; NULL if there is only one. An exchange fails after WEFT_TIMEOUT seconds (default
 * 600, 0: no limit). */
weft_communicator *tool_world(void);
/* That number; WEFT_BAD_ARGUMENT if WEFT_TIMEOUT is not one. */
weft_status tool_timeout(double *seconds, weft_error *error);
/* Whether this is rank 0, or the only process. */
bool tool_is_first(void);

#endif
