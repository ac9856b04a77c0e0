/* Communicators of MPI: beginning and ending MPI, splitting, and failures of ranks. */
#include "member.h"

#include "base/exchange.h"

#include <stdlib.h>

/* How long a rank that failed waits until MPI has delivered its messages to the others. */
#define FAIL_SECONDS 1.0
/* How long it then waits for the others to end as well, before it ends all processes. */
#define END_SECONDS 5.0
/* How long a rank waits for another one to end all processes, before it does so itself. */
#define PEER_SECONDS 20.0

/* ---- Failures ---- */

static void progress(void *context)
{
    family *f = ((member *)context)->family;
    /* Whoever holds the lock makes progress. */
    if (!weft__os_try_lock(&f->lock)) return;
    weft__family_look(f);
    weft__os_unlock(&f->lock);
}

/* Sends bytes of the family to all other ranks. */
static void notify(family *f, int tag, const void *data, int bytes)
{
    const double begin = clock_seconds();
    bool left = false;
    for (int i = 1; i < f->size; i++) {
        MPI_Request send;
        int done = 0, code = MPI_Isend(data, bytes, MPI_BYTE, (f->rank + i) % f->size, tag,
                                       f->control, &send);
        while (code == MPI_SUCCESS && !done && clock_seconds() - begin < FAIL_SECONDS)
            code = MPI_Test(&send, &done, MPI_STATUS_IGNORE);
        left |= !done;
    }
    /* MPI still reads from the family, which is therefore not freed. */
    if (left) f->members++;
}

static void fail(void *context, const weft_error *error)
{
    family *f = ((member *)context)->family;
    weft__os_lock(&f->lock);
    /* If another rank failed first, it has notified all ranks. */
    weft__family_look(f);
    if (f->failure.status == WEFT_OK) {
        weft_error_set(&f->own, WEFT_PEER, error ? error->where : "weft", "%s",
                       error ? error->message : "failed");
        exchange_peer_failed(&f->failure, f->rank, error);
        notify(f, FAILED, &f->own, sizeof f->own);
    }
    weft__os_unlock(&f->lock);
}

/* ---- Making and freeing ---- */

static void member_free(weft_communicator *communicator)
{
    member *m = communicator->context;
    family *f = m->family;
    weft__os_lock(&f->lock);
    weft__requests_drop(m);
    const bool last = --f->members == 0;
    /* These calls may wait for the other ranks. */
    if (f->failure.status == WEFT_OK) {
        MPI_Comm_free(&m->collective);
        MPI_Comm_free(&m->direct);
        if (last) MPI_Comm_free(&f->control);
    }
    weft__os_unlock(&f->lock);
    free(m->ranks);
    free(m);
    if (!last) return;
    weft__os_mutex_free(&f->lock);
    free(f);
}

static weft_status split(void *context, int part, weft_communicator **communicator,
                         weft_error *error);

/* Asks MPI what is to be known of the member's two communicators. */
static weft_status member_init(member *m, family *f, double seconds, weft_error *error)
{
    weft_communicator *c = &m->communicator;
    *c = (weft_communicator){.seconds = seconds,
                             .context = m,
                             .start = weft__request_start,
                             .test = weft__request_test,
                             .missing = weft__request_missing,
                             .progress = progress,
                             .split = split,
                             .fail = fail,
                             .free = member_free};
    m->family = f;
    int *bound = NULL, found = 0;
    if (weft__mpi_check(MPI_Comm_rank(m->collective, &c->rank), "MPI_Comm_rank", error) !=
            WEFT_OK ||
        weft__mpi_check(MPI_Comm_size(m->collective, &c->size), "MPI_Comm_size", error) != WEFT_OK)
        return WEFT_PEER;
    /* MPI guarantees tags up to 32767 at least. */
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &bound, &found);
    m->tags = found && *bound > 32767 ? *bound : 32767;
    f->members++;
    return WEFT_OK;
}

/* Makes the communicators of a part in MPI. All ranks have arrived here, so this does not wait for
 * long, unless they make two splits at the same time in different orders. */
static weft_status split_mpi(member *from, member *to, const int *parts, weft_error *error)
{
    const weft_communicator *c = &from->communicator;
    int first = 0, n = 0; /* MPI wants parts >= 0: the lowest rank's number */
    while (parts[first] != parts[c->rank]) first++;
    for (int r = 0; r < c->size; r++)
        if (parts[r] == parts[c->rank]) to->ranks[n++] = member_rank(from, r);
    weft__os_lock(&from->family->lock);
    weft_status status = weft__mpi_check(
        MPI_Comm_split(from->collective, first, c->rank, &to->collective), "MPI_Comm_split", error);
    if (status == WEFT_OK)
        status = weft__mpi_check(MPI_Comm_split(from->direct, first, c->rank, &to->direct),
                                 "MPI_Comm_split", error);
    if (status == WEFT_OK) status = member_init(to, from->family, c->seconds, error);
    weft__os_unlock(&from->family->lock);
    return status;
}

static weft_status split(void *context, int part, weft_communicator **communicator,
                         weft_error *error)
{
    member *m = context;
    weft_communicator *c = &m->communicator;
    const size_t n = (size_t)c->size;
    weft_error own = {0};
    int *parts = malloc(n * sizeof *parts);
    member *made = calloc(1, sizeof *made);
    if (made) made->ranks = malloc(n * sizeof *made->ranks);
    *communicator = NULL;
    if (!parts || !made || !made->ranks)
        weft_error_set(&own, WEFT_NO_MEMORY, "communicator", "out of memory");
    /* MPI_Comm_split waits for all ranks, so all of them must get there, or none. */
    weft_status status = weft_communicator_agree(c, &own, error);
    if (status == WEFT_OK) status = weft_communicator_gather(c, &part, sizeof part, parts, error);
    if (status == WEFT_OK) status = split_mpi(m, made, parts, error);
    free(parts);
    if (status == WEFT_OK) {
        *communicator = &made->communicator;
    } else if (made) {
        free(made->ranks);
        free(made);
    }
    return status;
}

/* ---- Beginning and ending MPI ---- */

/* Begins MPI, or checks that the program has begun it well. */
static weft_status begin(family *f, weft_error *error)
{
    int begun = 0, ended = 0, level = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    if (ended)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_mpi_open",
                              "MPI has ended, and a process can begin it only once");
    const weft_status status =
        begun ? weft__mpi_check(MPI_Query_thread(&level), "MPI_Query_thread", error)
              : weft__mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level),
                                "MPI_Init_thread", error);
    f->began = !begun && status == WEFT_OK;
    if (status != WEFT_OK || level >= MPI_THREAD_SERIALIZED) return status;
    return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_mpi_open",
                          begun ? "the program began MPI without support for threads: call "
                                  "MPI_Init_thread with MPI_THREAD_SERIALIZED"
                                : "this MPI does not support threads (MPI_THREAD_SERIALIZED)");
}

static weft_status open_world(family *f, member *m, weft_error *error)
{
    const weft_status status = begin(f, error);
    if (status != WEFT_OK) return status;
    MPI_Comm *const comms[] = {&f->control, &m->collective, &m->direct};
    for (size_t i = 0; i < sizeof comms / sizeof *comms; i++)
        if (weft__mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, comms[i]), "MPI_Comm_dup", error) !=
                WEFT_OK ||
            weft__mpi_check(MPI_Comm_set_errhandler(*comms[i], MPI_ERRORS_RETURN),
                            "MPI_Comm_set_errhandler", error) != WEFT_OK)
            return WEFT_PEER;
    /* Some errors of requests go there instead, which one depends on the version of MPI. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (member_init(m, f, 0, error) != WEFT_OK) return WEFT_PEER;
    f->rank = m->communicator.rank;
    f->size = m->communicator.size;
    return WEFT_OK;
}

weft_communicator *weft_mpi_open(weft_error *error)
{
    weft_error_clear(error);
    family *f = calloc(1, sizeof *f);
    member *m = calloc(1, sizeof *m);
    weft_status status =
        f && m ? WEFT_OK : weft_error_set(error, WEFT_NO_MEMORY, "weft_mpi_open", "out of memory");
    const bool locked = status == WEFT_OK && weft__os_mutex_init(&f->lock);
    if (status == WEFT_OK && !locked)
        status = weft_error_set(error, WEFT_NO_MEMORY, "weft_mpi_open", "no mutex");
    if (status == WEFT_OK) status = open_world(f, m, error);
    if (status == WEFT_OK) return &m->communicator;
    if (locked) {
        weft__os_mutex_free(&f->lock);
        if (f->began) MPI_Finalize();
    }
    free(f);
    free(m);
    return NULL;
}

static void nap(void)
{
    weft__os_pause(10000000);
}

/* Receives the message of a rank that is about to end, which says whether it abandoned exchanges;
 * false if there is none. */
static bool receive_end(family *f, bool *dropped)
{
    int found = 0;
    bool theirs = false;
    MPI_Status s;
    if (MPI_Iprobe(MPI_ANY_SOURCE, ENDS, f->control, &found, &s) != MPI_SUCCESS || !found ||
        MPI_Recv(&theirs, sizeof theirs, MPI_BYTE, s.MPI_SOURCE, ENDS, f->control, &s) !=
            MPI_SUCCESS)
        return false;
    *dropped |= theirs;
    return true;
}

/* Waits for all ranks to get here, and returns if MPI can then end as usual: no rank has given up
 * an exchange, whose messages MPI might wait for. Otherwise one rank ends all processes, the lowest
 * of those that failed by themselves and so have notified the others. Only one: MPI prints a few
 * lines for each rank that does, and the launcher of Open MPI may lose output, or crash. */
static void end_together(family *f)
{
    const double begin = clock_seconds();
    bool first = f->own.status != WEFT_OK, dropped = f->dropped;
    weft_error other = {0};
    int from, ended = 1;
    notify(f, ENDS, &f->dropped, sizeof f->dropped);
    while (clock_seconds() - begin < (first ? END_SECONDS : PEER_SECONDS)) {
        if (weft__failure_receive(f, &other, &from)) first &= from > f->rank;
        ended += receive_end(f, &dropped);
        if (ended == f->size && !dropped) return;
        if (ended == f->size && first) break;
        nap();
    }
    MPI_Abort(MPI_COMM_WORLD, 1);
}

void weft_mpi_close(weft_communicator *world, weft_status status)
{
    if (!world) return;
    family *f = ((member *)world->context)->family;
    const bool began = f->began;
    if (status != WEFT_OK) {
        const weft_error error = {status, "weft_mpi_close", "this process has failed"};
        /* If it agreed with the others on an error, they may still be reading that. */
        if (status == WEFT_PEER)
            weft_error_copy(&f->failure, &error);
        else
            fail(world->context, &error);
        weft__requests_drop(world->context);
        if (began) end_together(f);
    }
    /* After a failure, member_free does not wait for other ranks. */
    weft_communicator_free(world);
    if (began) MPI_Finalize();
}
