/* member.h - the communicators of MPI, inside the library. */
#ifndef WEFT_MPI_MEMBER_H
#define WEFT_MPI_MEMBER_H

#include <weft/mpi.h>

#include "base/platform.h"

#include <mpi.h>

/* What a communicator shares with those made from it by split. */
typedef struct family {
    os_mutex lock;    /* around every call of MPI */
    MPI_Comm control; /* all ranks; messages of ranks that failed or are about to end */
    int rank, size;   /* in `control` */
    int members;
    bool began;         /* MPI was begun by weft_mpi_open */
    bool dropped;       /* an exchange was given up while MPI worked on it */
    weft_error own;     /* of this rank, in the messages that report it */
    weft_error failure; /* what every exchange returns after a rank or MPI failed */
} family;

typedef struct request request;

/* One communicator, which is also its context. */
typedef struct member {
    weft_communicator communicator;
    family *family;
    MPI_Comm collective; /* tag: the number of the exchange, modulo `tags` */
    MPI_Comm direct;     /* sends and receives, with their own tags */
    int tags, next_tag;
    unsigned polls;
    int *ranks;    /* in the first communicator, which messages name; NULL: the same */
    request *open; /* started, and neither done nor failed */
} member;

static inline int member_rank(const member *m, int r)
{
    return m->ranks ? m->ranks[r] : r;
}

/* Tags of the messages of `control`: the error of a rank that failed; a rank is about to end. */
enum { FAILED, ENDS };

/* Returns WEFT_PEER with MPI's message for `code`, or WEFT_OK. */
weft_status weft__mpi_check(int code, const char *call, weft_error *error);

/* Receives a message of a rank that failed; false if there is none. */
bool weft__failure_receive(family *f, weft_error *other, int *from);
/* Looks for a message of a rank that failed, and records it. The caller holds the lock. */
void weft__family_look(family *f);

/* The functions of the table. */
weft_status weft__request_start(void *context, const weft_exchange *x, void **handle,
                                weft_error *error);
weft_status weft__request_test(void *context, void *handle, bool *done, weft_error *error);
void weft__request_missing(void *context, void *handle, char *text, size_t size);
/* Abandons all open requests. The caller holds the lock. */
void weft__requests_drop(member *m);

#endif
