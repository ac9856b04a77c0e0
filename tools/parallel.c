/* See parallel.h. A single process does not start MPI: that takes long, and fails where no launcher
 * can be reached. */
#include "parallel.h"

#include "tool.h"

#include <stdlib.h>

#ifdef WEFT_HAVE_MPI
#include <weft/mpi.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#endif

/* How long the process waits for the other ranks to end as it does. */
#define END_SECONDS 2
/* How long a process that failed waits for the launcher to read its message, in naps of 1 ms. */
#define MAX_NAPS 500

/* Variables that launchers set for each process: the number of processes and the rank. Slurm sets
 * its number in any job step, but the rank of PMIx only in one that starts processes for MPI. */
static const struct {
    const char *size, *rank;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, /* mpirun of Open MPI */
    {"PMI_SIZE", "PMI_RANK"},                         /* MPICH, Intel MPI, srun --mpi=pmi2 */
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},   /* MVAPICH */
    {"SLURM_STEP_NUM_TASKS", "PMIX_RANK"},            /* srun --mpi=pmix */
};

static weft_communicator *world;

weft_communicator *tool_world(void)
{
    return world;
}

bool tool_is_first(void)
{
    return !world || world->rank == 0;
}

/* How many processes a launcher has started, and which of them this one is. */
static long launched(long *rank)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const char *size = getenv(launchers[i].size), *number = getenv(launchers[i].rank);
        if (!size || !number) continue;
        *rank = strtol(number, NULL, 10);
        return strtol(size, NULL, 10);
    }
    *rank = 0;
    return 1;
}

#ifdef WEFT_HAVE_MPI
/* Where this rank prints its errors. */
static int errors_fd = STDERR_FILENO;

/* Whether the command line is wrong on all ranks. It is an error for weft_communicator_agree, which
 * the continuing ranks call next. */
static bool all_refuse(void)
{
    const weft_error own = {WEFT_BAD_ARGUMENT, "command line",
                            "is wrong on this rank only: run the command alone to see why"};
    weft_error *all = calloc((size_t)world->size, sizeof *all);
    world->seconds = END_SECONDS;
    bool good = all && weft_communicator_gather(world, &own, sizeof own, all, NULL) == WEFT_OK;
    for (int r = 0; good && r < world->size; r++) good = all[r].status == own.status;
    free(all);
    /* Rank 0 has printed why. */
    if (!good && world->rank) tool_fail(&own);
    return good;
}

/* Waits until the launcher has read the message of this rank: Open MPI's loses what is still in the
 * pipe when it ends the processes. */
static void wait_for_launcher(void)
{
    struct stat pipe;
    int unread = 0;
    if (fstat(errors_fd, &pipe) != 0 || !S_ISFIFO(pipe.st_mode)) return;
    for (int i = 0; i < MAX_NAPS; i++) {
        if (ioctl(errors_fd, FIONREAD, &unread) != 0 || unread == 0) return;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

/* Runs when the process exits, also by a usage error. */
static void end_world(int status, void *unused)
{
    (void)unused;
    fflush(stdout);
    bool good = status == EXIT_GOOD || status > 128 || (status == EXIT_USAGE && all_refuse());
    /* mpirun ends the processes by SIGTERM, which a command may have caught. */
    if (!good) {
        signal(SIGTERM, SIG_DFL);
        wait_for_launcher();
    }
    weft_mpi_close(world, good ? WEFT_OK : tool_failed_by_another() ? WEFT_PEER : WEFT_IO);
    /* The launcher ends with the status of whichever rank fails first: all have the same one. */
    if (!good && status == EXIT_USAGE) _exit(EXIT_ERROR);
}

/* Makes all ranks but 0 print nothing but errors. */
static weft_status be_quiet(weft_error *error)
{
    if (world->rank == 0) return WEFT_OK;
    const int shown = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    FILE *errors = shown < 0 ? NULL : fdopen(shown, "w");
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (!errors || nowhere < 0 || dup2(nowhere, STDOUT_FILENO) < 0 ||
        dup2(nowhere, STDERR_FILENO) < 0)
        return weft_error_set(error, WEFT_IO, "/dev/null", "cannot be opened");
    setvbuf(errors, NULL, _IOLBF, 0);
    close(nowhere);
    errors_fd = shown;
    tool_fail_as(world->rank, errors);
    return WEFT_OK;
}

static weft_status open_world(long size, weft_error *error)
{
    double seconds;
    if (tool_timeout(&seconds, error) != WEFT_OK || !(world = weft_mpi_open(error)))
        return error->status;
    world->seconds = seconds;
    if (world->size != size) {
        weft_error_set(error, WEFT_PEER, "MPI",
                       "the launcher started %ld processes, but MPI finds %d: they may be of "
                       "different MPI libraries",
                       size, world->size);
        weft_mpi_close(world, WEFT_OK);
        world = NULL;
        return WEFT_PEER;
    }
    if (on_exit(end_world, NULL) != 0)
        return weft_error_set(error, WEFT_NO_MEMORY, "MPI", "out of memory");
    return be_quiet(error);
}
#else
static weft_status open_world(long size, weft_error *error)
{
    double seconds;
    if (tool_timeout(&seconds, error) != WEFT_OK) return error->status;
    return weft_error_set(error, WEFT_BAD_ARGUMENT, "MPI",
                          "this is one of %ld processes, but weft was built without MPI", size);
}
#endif

bool tool_world_begin(void)
{
    weft_error error = WEFT_NO_ERROR;
    long rank;
    const long size = launched(&rank);
    if (size <= 1 || open_world(size, &error) == WEFT_OK) return true;
    if (rank == 0 || world) tool_fail(&error);
    return false;
}
