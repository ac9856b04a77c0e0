/* A message is a header and its bytes. Both sides number the exchanges of a communicator in the
 * same order, so an exchange finds its message by the communicator and this number. What is sent is
 * copied, and written as far as the pipe has room whenever one of the functions is called. */
#include "pipe_communicator.h"

#include "base/exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TAGS = 32768 };

typedef struct header {
    uint64_t group, key, bytes; /* the group FAILED: the bytes are a weft_error */
} header;

#define FAILED UINT64_MAX

typedef struct message {
    struct message *next;
    size_t at; /* bytes that were written or read, the header included */
    header header;
    char bytes[];
} message;

/* What the communicators of a process share. */
typedef struct wire {
    pthread_mutex_t lock;
    int from, to, rank;
    int members;
    uint64_t groups; /* made so far: the number of the next one */
    message *sending, *arrived;
    message *reading; /* NULL: between two messages or within a header */
    header next;
    size_t header_at;
    weft_error failure;
} wire;

typedef struct member {
    weft_communicator communicator;
    wire *wire;
    uint64_t group, collectives;
    uint32_t sent[TAGS], received[TAGS]; /* messages of each tag */
} member;

typedef struct request {
    uint64_t key;
    void *receive;
    size_t bytes;
} request;

/* ---- The pipes ---- */

static void append(message **list, message *m)
{
    while (*list) list = &(*list)->next;
    *list = m;
}

static void drop_first(message **list)
{
    message *m = *list;
    *list = m->next;
    free(m);
}

static message *message_new(header h)
{
    message *m = calloc(1, sizeof *m + h.bytes);
    if (m) m->header = h;
    return m;
}

/* Whether the pipe has no room, or nothing to read. An error ends the exchanges. */
static bool stops(wire *w, ssize_t n)
{
    if (n > 0) return false;
    if (n < 0 && errno == EINTR) return false;
    if (n == 0 || errno != EAGAIN)
        weft_error_set(&w->failure, WEFT_PEER, "pipe", "%s", n ? strerror(errno) : "closed");
    return true;
}

static void write_some(wire *w)
{
    while (w->sending && w->failure.status == WEFT_OK) {
        message *m = w->sending;
        const char *bytes = (const char *)&m->header;
        size_t left = sizeof m->header - m->at;
        if (m->at >= sizeof m->header) {
            bytes = m->bytes - sizeof m->header;
            left += m->header.bytes;
        }
        const ssize_t n = write(w->to, bytes + m->at, left);
        if (stops(w, n)) return;
        if (n > 0) m->at += (size_t)n;
        if (m->at == sizeof m->header + m->header.bytes) drop_first(&w->sending);
    }
}

static void arrive(wire *w)
{
    message *m = w->reading;
    w->reading = NULL;
    w->header_at = 0;
    if (m->header.group != FAILED) {
        append(&w->arrived, m);
        return;
    }
    weft_error other = {0};
    memcpy(&other, m->bytes, m->header.bytes < sizeof other ? m->header.bytes : sizeof other);
    exchange_peer_failed(&w->failure, 1 - w->rank, &other);
    free(m);
}

static void read_some(wire *w)
{
    while (w->failure.status == WEFT_OK) {
        message *m = w->reading;
        const ssize_t n =
            m ? read(w->from, m->bytes + m->at, m->header.bytes - m->at)
              : read(w->from, (char *)&w->next + w->header_at, sizeof w->next - w->header_at);
        if (stops(w, n)) return;
        if (n > 0) *(m ? &m->at : &w->header_at) += (size_t)n;
        if (!m && w->header_at == sizeof w->next) {
            m = w->reading = message_new(w->next);
            if (!m) weft_error_set(&w->failure, WEFT_NO_MEMORY, "pipe", "out of memory");
        }
        if (m && m->at == m->header.bytes) arrive(w);
    }
}

/* ---- The functions of a communicator ---- */

static weft_status queue(wire *w, header h, const void *bytes, weft_error *error)
{
    message *m = message_new(h);
    if (!m) return weft_error_set(error, WEFT_NO_MEMORY, "exchange", "out of memory");
    memcpy(m->bytes, bytes, h.bytes);
    append(&w->sending, m);
    write_some(w);
    return WEFT_OK;
}

/* The number of an exchange: the collective ones and the messages of each tag have their own. */
static uint64_t key_of(member *m, const weft_exchange *x)
{
    if (exchange_is_collective(x)) return m->collectives++;
    uint32_t *count = x->kind == WEFT_SEND ? m->sent : m->received;
    return ((uint64_t)(x->tag + 1) << 32) + count[x->tag]++;
}

static weft_status start(void *context, const weft_exchange *x, void **handle, weft_error *error)
{
    member *m = context;
    const int me = m->communicator.rank, other = 1 - me;
    request *q = calloc(1, sizeof *q);
    if (!q) return weft_error_set(error, WEFT_NO_MEMORY, "exchange", "out of memory");
    weft_status status = WEFT_OK;
    const exchange_piece own = exchange_sent(x, me, me), to = exchange_received(x, me);
    if (own.bytes && to.bytes)
        memcpy((char *)x->receive + to.offset, (const char *)x->send + own.offset, own.bytes);
    pthread_mutex_lock(&m->wire->lock);
    q->key = key_of(m, x);
    if (m->communicator.size > 1) {
        const exchange_piece out = exchange_sent(x, me, other), in = exchange_received(x, other);
        q->bytes = in.bytes;
        q->receive = in.bytes ? (char *)x->receive + in.offset : NULL;
        if (out.bytes)
            status = queue(m->wire, (header){m->group, q->key, out.bytes},
                           (const char *)x->send + out.offset, error);
    }
    pthread_mutex_unlock(&m->wire->lock);
    *handle = q;
    if (status != WEFT_OK) free(q);
    return status;
}

/* The place in the list of the message of a request that has arrived. */
static message **find_arrived(member *m, const request *q)
{
    message **at = &m->wire->arrived;
    while (*at && ((*at)->header.group != m->group || (*at)->header.key != q->key))
        at = &(*at)->next;
    return at;
}

static weft_status test(void *context, void *handle, bool *done, weft_error *error)
{
    member *m = context;
    wire *w = m->wire;
    request *q = handle;
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&w->lock);
    write_some(w);
    read_some(w);
    message **found = find_arrived(m, q);
    *done = !q->bytes || *found;
    if (q->bytes && *found) {
        if ((*found)->header.bytes != q->bytes)
            status =
                weft_error_set(error, WEFT_BAD_ARGUMENT, "exchange", "%llu bytes instead of %zu",
                               (unsigned long long)(*found)->header.bytes, q->bytes);
        else
            memcpy(q->receive, (*found)->bytes, q->bytes);
        drop_first(found);
    } else if (!*done) {
        status = weft_error_copy(error, &w->failure);
    }
    pthread_mutex_unlock(&w->lock);
    if (*done || status != WEFT_OK) free(q);
    return status;
}

static void progress(void *context)
{
    wire *w = ((member *)context)->wire;
    if (pthread_mutex_trylock(&w->lock)) return;
    write_some(w);
    read_some(w);
    pthread_mutex_unlock(&w->lock);
}

static void fail(void *context, const weft_error *error)
{
    wire *w = ((member *)context)->wire;
    pthread_mutex_lock(&w->lock);
    if (error) queue(w, (header){FAILED, 0, sizeof *error}, error, NULL);
    pthread_mutex_unlock(&w->lock);
}

/* The last one waits until the other process has read what was sent. */
static void member_free(weft_communicator *communicator)
{
    member *m = communicator->context;
    wire *w = m->wire;
    pthread_mutex_lock(&w->lock);
    const bool last = --w->members == 0;
    pthread_mutex_unlock(&w->lock);
    free(m);
    if (!last) return;
    while (w->sending && w->failure.status == WEFT_OK) write_some(w);
    while (w->sending) drop_first(&w->sending);
    while (w->arrived) drop_first(&w->arrived);
    free(w->reading);
    close(w->from);
    close(w->to);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

static weft_status split(void *context, int part, weft_communicator **communicator,
                         weft_error *error);

static weft_communicator *member_new(wire *w, int rank, int size, double seconds)
{
    member *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->communicator = (weft_communicator){.rank = rank,
                                          .size = size,
                                          .seconds = seconds,
                                          .context = m,
                                          .start = start,
                                          .test = test,
                                          .progress = progress,
                                          .split = split,
                                          .fail = fail,
                                          .free = member_free};
    m->wire = w;
    pthread_mutex_lock(&w->lock);
    m->group = w->groups++;
    w->members++;
    pthread_mutex_unlock(&w->lock);
    return &m->communicator;
}

static weft_status split(void *context, int part, weft_communicator **communicator,
                         weft_error *error)
{
    member *m = context;
    weft_communicator *c = &m->communicator;
    int parts[2] = {part, part};
    const weft_status status = weft_communicator_gather(c, &part, sizeof part, parts, error);
    if (status != WEFT_OK) return status;
    const bool both = c->size > 1 && parts[0] == parts[1];
    *communicator = member_new(m->wire, both ? c->rank : 0, both ? 2 : 1, c->seconds);
    return *communicator ? WEFT_OK
                         : weft_error_set(error, WEFT_NO_MEMORY, "communicator", "out of memory");
}

weft_communicator *pipe_communicator(int rank, const char *from, const char *to)
{
    wire *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    /* Opened for both, so that neither side waits for the other one here. */
    *w = (wire){
        .from = open(from, O_RDWR | O_NONBLOCK), .to = open(to, O_RDWR | O_NONBLOCK), .rank = rank};
    pthread_mutex_init(&w->lock, NULL);
    weft_communicator *c = w->from < 0 || w->to < 0 ? NULL : member_new(w, rank, 2, 300);
    if (c) return c;
    if (w->from >= 0) close(w->from);
    if (w->to >= 0) close(w->to);
    free(w);
    return NULL;
}
