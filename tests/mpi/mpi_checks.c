/* Exchanges over MPI; mpi_test.sh runs it. Usage: mpi_checks [WHAT], where WHAT is a function
 * below. Each rank that finds everything as expected says so. */
#include "exchange_checks.h"

#include <weft/mpi.h>

#include <mpi.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static weft_status print(const weft_error *error)
{
    if (error->status != WEFT_OK) fprintf(stderr, "%s: %s\n", error->where, error->message);
    return error->status;
}

/* Runs checks on all ranks; the exit status. */
static int run(int (*checks)(weft_communicator *communicator))
{
    weft_error error = {0};
    weft_communicator *world = weft_mpi_open(&error);
    if (!world) {
        print(&error);
        return 1;
    }
    const int failures = checks(world);
    /* One write, which lines of other ranks cannot divide. */
    char line[64];
    snprintf(line, sizeof line, "rank %d: %s\n", world->rank, failures ? "failed" : "as expected");
    fputs(line, stdout);
    fflush(stdout);
    weft_mpi_close(world, WEFT_OK);
    return failures > 0;
}

static int everything(void)
{
    return run(exchange_checks);
}

static int failure(void)
{
    return run(exchange_checks_of_failure);
}

static int silence(void)
{
    return run(exchange_checks_of_silence);
}

/* A message from rank 0 to rank 1 whose size is not the expected one. */
static int sizes_differ(weft_communicator *c)
{
    static const struct {
        size_t sent, expected;
        const char *message;
    } rows[] = {
        {8, 4, "rank 0 sends more than 4 bytes to rank 1, which expects 4"},
        {8, 900, "rank 0 sends 8 bytes to rank 1, which expects 900"},
    };
    int failures = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char data[1000] = "";
        weft_error error = {0};
        const weft_exchange send = {
            .kind = WEFT_SEND, .send = data, .bytes = rows[i].sent, .peer = 1};
        const weft_exchange receive = {
            .kind = WEFT_RECEIVE, .receive = data, .bytes = rows[i].expected, .peer = 0};
        if (c->rank == 0) {
            failures += weft_communicator_run(c, &send, &error) != WEFT_OK;
        } else if (c->rank == 1) {
            failures += weft_communicator_run(c, &receive, &error) != WEFT_BAD_ARGUMENT;
            failures += strcmp(error.message, rows[i].message) != 0;
        }
        if (c->rank < 2 && failures) fprintf(stderr, "rank %d: %s\n", c->rank, error.message);
    }
    return failures;
}

static int sizes(void)
{
    return run(sizes_differ);
}

/* The program begins and ends MPI, which then serves two communicators, one after the other. */
static int program(void)
{
    int level = 0, ended = 1;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    const int failures = run(exchange_checks) + run(sizes_differ);
    MPI_Finalized(&ended);
    MPI_Finalize();
    return failures > 0 || ended;
}

/* The program begins MPI without support for threads. */
static int single(void)
{
    MPI_Init(NULL, NULL);
    const int status = run(exchange_checks);
    MPI_Finalize();
    return status;
}

/* MPI has ended. */
static int twice(void)
{
    return run(sizes_differ) || run(sizes_differ);
}

/* Waits for the last rank, which calls `leave` instead. */
static int without_last(void (*leave)(weft_communicator *world, weft_error *error))
{
    weft_error error = {0};
    weft_communicator *world = weft_mpi_open(&error);
    if (!world) return 1;
    int own = 0, all[16];
    if (world->rank == world->size - 1)
        leave(world, &error);
    else
        weft_communicator_gather(world, &own, sizeof own, all, &error);
    weft_mpi_close(world, print(&error));
    return error.status != WEFT_OK;
}

static void report(weft_communicator *world, weft_error *error)
{
    weft_error_set(error, WEFT_BAD_FILE, "file", "cannot be read");
    world->fail(world->context, error);
}

static int fails(void)
{
    return without_last(report);
}

/* Fails without a word to the others. */
static void say_nothing(weft_communicator *world, weft_error *error)
{
    (void)world;
    weft_error_set(error, WEFT_BAD_FILE, "file", "cannot be read");
}

static int silent(void)
{
    return without_last(say_nothing);
}

static void die(weft_communicator *world, weft_error *error)
{
    (void)world;
    (void)error;
    raise(SIGKILL);
}

static int killed(void)
{
    return without_last(die);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } all[] = {{"everything", everything}, {"failure", failure}, {"silence", silence},
               {"sizes", sizes},           {"program", program}, {"single", single},
               {"twice", twice},           {"fails", fails},     {"silent", silent},
               {"killed", killed}};
    const char *what = argc > 1 ? argv[1] : "everything";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, what)) return all[i].run();
    fprintf(stderr, "usage: %s [WHAT]\n", argv[0]);
    return 2;
}
