/* weft/mpi.h - a communicator of MPI, in the library weft-mpi.
 *
 * Exchanges are point-to-point messages of MPI, so a rank that does not answer can be named. They
 * advance only inside calls of the communicator; nothing is done in the background. A process makes
 * one split at a time. Messages name ranks as in MPI_COMM_WORLD.
 */
#ifndef WEFT_MPI_H
#define WEFT_MPI_H

#include <weft/communicator.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the communicator of all processes; each of them must call it. Begins MPI unless the program
 * has done so, which then needs MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE. With the former, the
 * program must not call MPI while weft does. Errors of MPI become errors of weft: for this the
 * error handler of MPI_COMM_WORLD and MPI_COMM_SELF becomes MPI_ERRORS_RETURN. NULL on failure:
 * WEFT_PEER if MPI fails. */
WEFT_API weft_communicator *weft_mpi_open(weft_error *error);
/* Frees it, after those split from it, and ends MPI if weft_mpi_open began it; NULL is accepted.
 * `status` is how this process ends. Unless it is WEFT_OK, all processes end: if each of them
 * closes the world within a few seconds, MPI ends as usual and this call returns; otherwise MPI
 * ends them with exit status 1, and it does not return. WEFT_PEER means that another process failed
 * first and has notified all others; any other error makes their exchanges fail. If the program
 * began MPI, ending it is left to the program.
 *
 * After an exchange has failed, MPI may still read what it could not cancel. So close the world
 * with an error before freeing what was sent. */
WEFT_API void weft_mpi_close(weft_communicator *world, weft_status status);

#ifdef __cplusplus
}
#endif
#endif
