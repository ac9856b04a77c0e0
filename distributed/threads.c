/* A communicator whose ranks are threads of one process, for tests.
 *
 * One mutex guards everything. Each rank has a list of its open requests. The call of `start` that
 * completes an exchange (by the last rank, or the second side of a message) checks it and copies
 * the bytes of all ranks, so no data is stored in between. A request therefore costs a search
 * through the open requests of the other ranks. */
#include <weft/distributed.h>

#include "base/exchange.h"
#include "base/platform.h"

#include <stdlib.h>
#include <string.h>

/* ---- Records ---- */

typedef struct request {
    struct request *next;
    weft_exchange exchange; /* with sizes of its own */
    uint64_t sequence;      /* of a collective exchange: its number on this rank */
    bool done;
    weft_error error; /* valid once done */
    size_t sizes[];   /* send_bytes, receive_bytes */
} request;

typedef struct member member;

/* The ranks of one communicator. Freed with its world. */
typedef struct group {
    struct group *next;
    int size;
    struct {
        member *member; /* NULL: not there yet, or gone */
        bool gone;
        int rank; /* in the first communicator; messages name this one */
    } ranks[];
} group;

/* What a communicator shares with those made from it by split. */
typedef struct world {
    os_mutex lock;
    int members;
    group *groups;
    weft_error failure; /* of the rank that called `fail` */
} world;

/* One rank of one communicator, which is also its context. */
struct member {
    weft_communicator communicator;
    world *world;
    group *group;
    request *open; /* in the order of their start, unless done and tested */
    uint64_t sequence;
};

/* ---- Completing an exchange ---- */

static const char *kind_name(weft_exchange_kind kind)
{
    static const char *const names[] = {[WEFT_ALL_TO_ALL] = "an all-to-all",
                                        [WEFT_ALL_GATHER] = "an all-gather",
                                        [WEFT_BROADCAST] = "a broadcast",
                                        [WEFT_SEND] = "a send",
                                        [WEFT_RECEIVE] = "a receive"};
    return names[kind];
}

static request *open_collective(const member *m, uint64_t sequence)
{
    for (request *q = m ? m->open : NULL; q; q = q->next)
        if (!q->done && exchange_is_collective(&q->exchange) && q->sequence == sequence) return q;
    return NULL;
}

static request *open_message(const member *m, weft_exchange_kind kind, int peer, int tag)
{
    for (request *q = m ? m->open : NULL; q; q = q->next)
        if (!q->done && q->exchange.kind == kind && q->exchange.peer == peer &&
            q->exchange.tag == tag)
            return q;
    return NULL;
}

/* Checks what rank `from` sends to rank `to`, and copies it if `copy` is set. */
static void pass_piece(const group *g, int from, const weft_exchange *sent, int to,
                       const weft_exchange *received, bool copy, weft_error *error)
{
    const exchange_piece a = exchange_sent(sent, from, to), b = exchange_received(received, from);
    if (a.bytes != b.bytes)
        weft_error_set(error, WEFT_BAD_ARGUMENT, "exchange",
                       "rank %d sends %zu bytes to rank %d, which expects %zu", g->ranks[from].rank,
                       a.bytes, g->ranks[to].rank, b.bytes);
    else if (copy && a.bytes)
        memcpy((char *)received->receive + b.offset, (const char *)sent->send + a.offset, a.bytes);
}

static void finish(request *q, const weft_error *error)
{
    q->error = *error;
    q->done = true;
}

/* Completes a collective exchange if all ranks have started it. */
static void complete_collective(const group *g, uint64_t sequence)
{
    weft_error error = {0};
    const request *first = open_collective(g->ranks[0].member, sequence);
    for (int r = 0; r < g->size; r++) {
        const request *q = open_collective(g->ranks[r].member, sequence);
        if (!q) return;
        const weft_exchange *x = &q->exchange, *y = &first->exchange;
        if (x->kind != y->kind)
            weft_error_set(&error, WEFT_BAD_ARGUMENT, "exchange", "rank %d began %s, rank %d %s",
                           g->ranks[0].rank, kind_name(y->kind), g->ranks[r].rank,
                           kind_name(x->kind));
        else if (x->kind == WEFT_BROADCAST && x->peer != y->peer)
            weft_error_set(&error, WEFT_BAD_ARGUMENT, "exchange",
                           "rank %d expects a broadcast of rank %d, rank %d one of rank %d",
                           g->ranks[0].rank, g->ranks[y->peer].rank, g->ranks[r].rank,
                           g->ranks[x->peer].rank);
    }
    for (int copy = 0; copy < 2 && error.status == WEFT_OK; copy++)
        for (int from = 0; from < g->size; from++)
            for (int to = 0; to < g->size; to++)
                pass_piece(g, from, &open_collective(g->ranks[from].member, sequence)->exchange, to,
                           &open_collective(g->ranks[to].member, sequence)->exchange, copy, &error);
    for (int r = 0; r < g->size; r++) finish(open_collective(g->ranks[r].member, sequence), &error);
}

/* Completes a message if its other side has been started: the earliest on both sides. */
static void complete_message(const member *m, const weft_exchange *x)
{
    const int own = m->communicator.rank;
    const bool sends = x->kind == WEFT_SEND;
    request *mine = open_message(m, x->kind, x->peer, x->tag);
    request *other = open_message(m->group->ranks[x->peer].member, sends ? WEFT_RECEIVE : WEFT_SEND,
                                  own, x->tag);
    if (!mine || !other) return;
    weft_error error = {0};
    if (sends)
        pass_piece(m->group, own, x, x->peer, &other->exchange, true, &error);
    else
        pass_piece(m->group, x->peer, &other->exchange, own, x, true, &error);
    finish(mine, &error);
    finish(other, &error);
}

static void complete(const member *m, const request *q)
{
    /* The program may have freed the buffers of exchanges that failed. */
    if (m->world->failure.status != WEFT_OK) return;
    if (exchange_is_collective(&q->exchange))
        complete_collective(m->group, q->sequence);
    else
        complete_message(m, &q->exchange);
}

/* ---- The functions of a communicator ---- */

static request *request_new(const weft_exchange *x, int size)
{
    const size_t n = (size_t)size;
    request *q = calloc(1, sizeof *q + 2 * n * sizeof *q->sizes);
    if (!q) return NULL;
    q->exchange = *x;
    if (x->kind == WEFT_ALL_TO_ALL)
        q->exchange.send_bytes = memcpy(q->sizes, x->send_bytes, n * sizeof *q->sizes);
    if (x->kind == WEFT_ALL_TO_ALL || x->kind == WEFT_ALL_GATHER)
        q->exchange.receive_bytes = memcpy(q->sizes + n, x->receive_bytes, n * sizeof *q->sizes);
    return q;
}

static weft_status start(void *context, const weft_exchange *x, void **handle, weft_error *error)
{
    member *m = context;
    request *q = request_new(x, m->communicator.size);
    if (!q) return weft_error_set(error, WEFT_NO_MEMORY, "exchange", "out of memory");
    weft__os_lock(&m->world->lock);
    request **end = &m->open;
    while (*end) end = &(*end)->next;
    *end = q;
    q->sequence = m->sequence;
    m->sequence += exchange_is_collective(x);
    complete(m, q);
    weft__os_unlock(&m->world->lock);
    *handle = q;
    return WEFT_OK;
}

/* Whether an open request still waits for the rank r. */
static bool waits_for(const member *m, const request *q, int r)
{
    if (!exchange_is_collective(&q->exchange)) return q->exchange.peer == r;
    return !open_collective(m->group->ranks[r].member, q->sequence);
}

static weft_status find_gone(const member *m, const request *q, weft_error *error)
{
    for (int r = 0; r < m->group->size; r++)
        if (m->group->ranks[r].gone && waits_for(m, q, r))
            return weft_error_set(error, WEFT_PEER, "exchange", "rank %d has ended",
                                  m->group->ranks[r].rank);
    return WEFT_OK;
}

static weft_status test(void *context, void *handle, bool *done, weft_error *error)
{
    member *m = context;
    request *q = handle;
    weft_status status;
    weft__os_lock(&m->world->lock);
    *done = q->done;
    if (q->done)
        status = weft_error_copy(error, &q->error);
    else if (m->world->failure.status != WEFT_OK)
        status = weft_error_copy(error, &m->world->failure);
    else
        status = find_gone(m, q, error);
    if (q->done || status != WEFT_OK) {
        request **at = &m->open;
        while (*at != q) at = &(*at)->next;
        *at = q->next;
        free(q);
    }
    weft__os_unlock(&m->world->lock);
    return status;
}

static void missing(void *context, void *handle, char *text, size_t size)
{
    const member *m = context;
    const request *q = handle;
    text[0] = 0;
    weft__os_lock(&m->world->lock);
    for (int r = 0; r < m->group->size && !q->done; r++)
        if (waits_for(m, q, r)) exchange_add_rank(text, size, m->group->ranks[r].rank);
    weft__os_unlock(&m->world->lock);
}

static void fail(void *context, const weft_error *error)
{
    const member *m = context;
    world *w = m->world;
    weft__os_lock(&w->lock);
    exchange_peer_failed(&w->failure, m->group->ranks[m->communicator.rank].rank, error);
    weft__os_unlock(&w->lock);
}

/* Unlocks the world, and frees it after its last member. */
static void leave(world *w)
{
    const bool last = w->members == 0;
    weft__os_unlock(&w->lock);
    if (!last) return;
    for (group *next; w->groups; w->groups = next) {
        next = w->groups->next;
        free(w->groups);
    }
    weft__os_mutex_free(&w->lock);
    free(w);
}

static void member_free(weft_communicator *communicator)
{
    member *m = communicator->context;
    world *w = m->world;
    weft__os_lock(&w->lock);
    m->group->ranks[communicator->rank].member = NULL;
    m->group->ranks[communicator->rank].gone = true;
    for (request *next; m->open; m->open = next) {
        next = m->open->next;
        free(m->open);
    }
    free(m);
    w->members--;
    leave(w);
}

/* ---- Groups ---- */

/* Both return NULL if out of memory. The caller holds the lock of the world. */
static group *group_new(world *w, int size)
{
    group *g = calloc(1, sizeof *g + (size_t)size * sizeof *g->ranks);
    if (!g) return NULL;
    g->size = size;
    g->next = w->groups;
    w->groups = g;
    return g;
}

static weft_status split(void *context, int part, weft_communicator **communicator,
                         weft_error *error);

static member *member_new(world *w, group *g, int rank, double seconds)
{
    member *m = calloc(1, sizeof *m);
    g->ranks[rank].member = m;
    g->ranks[rank].gone = !m;
    if (!m) return NULL;
    *m = (member){.communicator = {.rank = rank,
                                   .size = g->size,
                                   .seconds = seconds,
                                   .context = m,
                                   .start = start,
                                   .test = test,
                                   .missing = missing,
                                   .split = split,
                                   .fail = fail,
                                   .free = member_free},
                  .world = w,
                  .group = g};
    w->members++;
    return m;
}

/* The group of the ranks with this rank's part, which the lowest of them makes. */
static group *part_new(const member *m, const int *parts)
{
    int size = 0, own = m->communicator.rank;
    for (int r = 0; r < m->communicator.size; r++) {
        if (parts[r] != parts[own]) continue;
        if (r < own) return NULL;
        size++;
    }
    weft__os_lock(&m->world->lock);
    group *g = group_new(m->world, size);
    for (int r = own, i = 0; g && i < size; r++)
        if (parts[r] == parts[own]) g->ranks[i++].rank = m->group->ranks[r].rank;
    weft__os_unlock(&m->world->lock);
    return g;
}

static weft_status join(member *m, const int *parts, group **groups,
                        weft_communicator **communicator, weft_error *error)
{
    const int own = m->communicator.rank;
    group *mine = part_new(m, parts);
    const weft_status status =
        weft_communicator_gather(&m->communicator, &mine, sizeof mine, groups, error);
    if (status != WEFT_OK) return status;
    int first = own, rank = 0;
    for (int r = own - 1; r >= 0; r--) {
        if (parts[r] != parts[own]) continue;
        first = r;
        rank++;
    }
    if (!groups[first] && first != own)
        return weft_error_set(error, WEFT_PEER, "communicator", "rank %d: out of memory",
                              m->group->ranks[first].rank);
    weft__os_lock(&m->world->lock);
    member *made =
        groups[first] ? member_new(m->world, groups[first], rank, m->communicator.seconds) : NULL;
    weft__os_unlock(&m->world->lock);
    if (!made) return weft_error_set(error, WEFT_NO_MEMORY, "communicator", "out of memory");
    *communicator = &made->communicator;
    return WEFT_OK;
}

static weft_status split(void *context, int part, weft_communicator **communicator,
                         weft_error *error)
{
    member *m = context;
    const size_t n = (size_t)m->communicator.size;
    int *parts = malloc(n * sizeof *parts);
    group **groups = malloc(n * sizeof *groups);
    *communicator = NULL;
    weft_status status =
        parts && groups
            ? weft_communicator_gather(&m->communicator, &part, sizeof part, parts, error)
            : weft_error_set(error, WEFT_NO_MEMORY, "communicator", "out of memory");
    if (status == WEFT_OK) status = join(m, parts, groups, communicator, error);
    free(parts);
    free(groups);
    return status;
}

weft_status weft_communicator_new_threads(int size, double seconds, weft_communicator **all,
                                          weft_error *error)
{
    weft_error_clear(error);
    if (size < 1 || !all)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_communicator_new_threads",
                              "%d ranks, or a NULL array; expected 1 rank or more", size);
    world *w = calloc(1, sizeof *w);
    if (!w || !weft__os_mutex_init(&w->lock)) {
        free(w);
        return weft_error_set(error, WEFT_NO_MEMORY, "communicator", "out of memory");
    }
    weft__os_lock(&w->lock);
    group *g = group_new(w, size);
    for (int r = 0; g && r < size; r++) {
        g->ranks[r].rank = r;
        member *m = member_new(w, g, r, seconds);
        all[r] = m ? &m->communicator : NULL;
    }
    const bool good = g && w->members == size;
    for (int r = 0; g && !good && r < size; r++) {
        free(g->ranks[r].member);
        all[r] = NULL;
    }
    if (!good) w->members = 0;
    leave(w);
    return good ? WEFT_OK : weft_error_set(error, WEFT_NO_MEMORY, "communicator", "out of memory");
}
