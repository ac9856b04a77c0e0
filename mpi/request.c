/* Exchanges as messages of MPI: each piece is one message, or several if it is long; an empty piece
 * sends none. Rank r sends to r+1, r+2, ..., so that not all send to the same. */
#include "member.h"

#include "base/exchange.h"

#include <stdlib.h>
#include <string.h>

/* Of one message; MPI counts bytes as an int. Tests lower it. */
#ifndef WEFT_MPI_MAX_BYTES
#define WEFT_MPI_MAX_BYTES ((size_t)1 << 30)
#endif
/* Tests of exchanges between two checks for a rank that failed. */
#define POLLS_PER_LOOK 16

typedef struct message {
    MPI_Request handle;
    int peer;
    int bytes;
    bool received;
} message;

struct request {
    request *next;
    int n, done; /* messages, and how many of the first of them are done */
    message messages[];
};

/* ---- Records ---- */

static size_t messages_of(size_t bytes)
{
    return bytes / WEFT_MPI_MAX_BYTES + (bytes % WEFT_MPI_MAX_BYTES != 0);
}

/* With room for the messages of an exchange; NULL if out of memory. */
static request *request_new(const weft_communicator *c, const weft_exchange *x)
{
    size_t n = 0;
    for (int r = 0; r < c->size; r++)
        n += messages_of(exchange_sent(x, c->rank, r).bytes) +
             messages_of(exchange_received(x, r).bytes);
    return calloc(1, sizeof(request) + n * sizeof(message));
}

/* Takes a request off the list and frees it. Receives that are under way are cancelled; MPI may
 * refuse to cancel sends. */
static void request_drop(member *m, request *q)
{
    request **at = &m->open;
    while (*at != q) at = &(*at)->next;
    *at = q->next;
    if (q->done < q->n) m->family->dropped = true;
    for (int i = q->done; i < q->n; i++) {
        if (q->messages[i].received) MPI_Cancel(&q->messages[i].handle);
        MPI_Request_free(&q->messages[i].handle);
    }
    free(q);
}

void weft__requests_drop(member *m)
{
    while (m->open) request_drop(m, m->open);
}

/* ---- Starting ---- */

/* Where an exchange goes in MPI. */
typedef struct route {
    MPI_Comm comm;
    int tag;
} route;

/* `data` is written if `received`, else read. */
static weft_status post(request *q, route to, int peer, const void *data, size_t bytes,
                        bool received, weft_error *error)
{
    int code = MPI_SUCCESS;
    for (size_t at = 0; at < bytes && code == MPI_SUCCESS;) {
        const size_t rest = bytes - at;
        const int n = (int)(rest < WEFT_MPI_MAX_BYTES ? rest : WEFT_MPI_MAX_BYTES);
        char *place = (char *)data + at;
        message *x = &q->messages[q->n];
        *x = (message){.peer = peer, .bytes = n, .received = received};
        code = received ? MPI_Irecv(place, n, MPI_BYTE, peer, to.tag, to.comm, &x->handle)
                        : MPI_Isend(place, n, MPI_BYTE, peer, to.tag, to.comm, &x->handle);
        q->n += code == MPI_SUCCESS;
        at += (size_t)n;
    }
    return weft__mpi_check(code, received ? "MPI_Irecv" : "MPI_Isend", error);
}

/* All receives first, so that what arrives finds its place. */
static weft_status post_all(const weft_communicator *c, request *q, route to,
                            const weft_exchange *x, weft_error *error)
{
    weft_status status = WEFT_OK;
    for (int i = 1; i <= c->size && status == WEFT_OK; i++) {
        const int r = (c->rank + c->size - i) % c->size;
        if (r == c->rank && exchange_is_collective(x)) continue;
        const exchange_piece p = exchange_received(x, r);
        if (p.bytes) status = post(q, to, r, (char *)x->receive + p.offset, p.bytes, true, error);
    }
    for (int i = 1; i <= c->size && status == WEFT_OK; i++) {
        const int r = (c->rank + i) % c->size;
        if (r == c->rank && exchange_is_collective(x)) continue;
        const exchange_piece p = exchange_sent(x, c->rank, r);
        if (p.bytes)
            status = post(q, to, r, (const char *)x->send + p.offset, p.bytes, false, error);
    }
    return status;
}

/* The piece of a collective exchange that stays on this rank. */
static weft_status copy_own(const member *m, const weft_exchange *x, weft_error *error)
{
    const int own = m->communicator.rank;
    const exchange_piece from = exchange_sent(x, own, own), to = exchange_received(x, own);
    if (from.bytes != to.bytes)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "exchange",
                              "rank %d sends %zu bytes to itself, but expects %zu",
                              member_rank(m, own), from.bytes, to.bytes);
    if (to.bytes)
        memcpy((char *)x->receive + to.offset, (const char *)x->send + from.offset, to.bytes);
    return WEFT_OK;
}

weft_status weft__request_start(void *context, const weft_exchange *x, void **handle,
                                weft_error *error)
{
    member *m = context;
    const bool collective = exchange_is_collective(x);
    if (collective && copy_own(m, x, error) != WEFT_OK) return WEFT_BAD_ARGUMENT;
    request *q = request_new(&m->communicator, x);
    if (!q) return weft_error_set(error, WEFT_NO_MEMORY, "exchange", "out of memory");
    weft__os_lock(&m->family->lock);
    q->next = m->open;
    m->open = q;
    const route to = collective ? (route){m->collective, m->next_tag} : (route){m->direct, x->tag};
    if (collective) m->next_tag = (m->next_tag + 1) % m->tags;
    weft_status status = weft_error_copy(error, &m->family->failure);
    if (status == WEFT_OK) status = post_all(&m->communicator, q, to, x, error);
    if (status != WEFT_OK) request_drop(m, q);
    weft__os_unlock(&m->family->lock);
    *handle = status == WEFT_OK ? q : NULL;
    return status;
}

/* ---- Testing ---- */

/* What a receive found: MPI reports a message that is too long as an error. */
static weft_status check_received(const member *m, const message *x, const MPI_Status *s, int code,
                                  weft_error *error)
{
    int class = MPI_SUCCESS, bytes = 0;
    if (code != MPI_SUCCESS) MPI_Error_class(code, &class);
    if (class != MPI_SUCCESS && class != MPI_ERR_TRUNCATE)
        return weft__mpi_check(code, "a receive", error);
    if (class == MPI_ERR_TRUNCATE)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "exchange",
                              "rank %d sends more than %d bytes to rank %d, which expects %d",
                              member_rank(m, x->peer), x->bytes, m->family->rank, x->bytes);
    if (MPI_Get_count(s, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes == x->bytes) return WEFT_OK;
    return weft_error_set(error, WEFT_BAD_ARGUMENT, "exchange",
                          "rank %d sends %d bytes to rank %d, which expects %d",
                          member_rank(m, x->peer), bytes, m->family->rank, x->bytes);
}

/* Asks MPI for the messages in their order, up to the first that is not done; asking for one makes
 * progress with all. */
static weft_status advance(const member *m, request *q, weft_error *error)
{
    weft_status status = WEFT_OK;
    while (q->done < q->n && status == WEFT_OK) {
        message *x = &q->messages[q->done];
        MPI_Status s;
        int done = 0;
        const int code = MPI_Test(&x->handle, &done, &s);
        if (code == MPI_SUCCESS && !done) break;
        q->done++;
        status = x->received ? check_received(m, x, &s, code, error)
                             : weft__mpi_check(code, "a send", error);
    }
    return status;
}

weft_status weft__request_test(void *context, void *handle, bool *done, weft_error *error)
{
    member *m = context;
    request *q = handle;
    family *f = m->family;
    *done = false;
    weft__os_lock(&f->lock);
    weft_status status = weft_error_copy(error, &f->failure);
    if (status == WEFT_OK) status = advance(m, q, error);
    if (status == WEFT_OK && q->done < q->n && m->polls++ % POLLS_PER_LOOK == 0) {
        weft__family_look(f);
        status = weft_error_copy(error, &f->failure);
    }
    *done = status == WEFT_OK && q->done == q->n;
    if (*done || status != WEFT_OK) request_drop(m, q);
    weft__os_unlock(&f->lock);
    return status;
}

void weft__request_missing(void *context, void *handle, char *text, size_t size)
{
    const member *m = context;
    const request *q = handle;
    text[0] = 0;
    weft__os_lock(&m->family->lock);
    for (int r = 0; r < m->communicator.size; r++) {
        bool waits = false;
        for (int i = q->done; i < q->n && !waits; i++) {
            int done = 0;
            MPI_Status s;
            if (q->messages[i].peer != r) continue;
            waits =
                MPI_Request_get_status(q->messages[i].handle, &done, &s) == MPI_SUCCESS && !done;
        }
        if (waits) exchange_add_rank(text, size, member_rank(m, r));
    }
    weft__os_unlock(&m->family->lock);
}
