/* Waiting for exchanges, and the exchanges that programs need besides those of graphs. */
#include <weft/communicator.h>

#include "base/platform.h"
#include "base/exchange.h"

#include <stdlib.h>
#include <string.h>

/* ---- Exchanges ---- */

/* Bytes that this rank sends to others. */
static size_t sent_bytes(const weft_communicator *c, const weft_exchange *x)
{
    size_t bytes = 0;
    for (int r = 0; r < c->size; r++)
        if (r != c->rank) bytes += exchange_sent(x, c->rank, r).bytes;
    return bytes;
}

static bool is_valid(const weft_communicator *c, const weft_exchange *x)
{
    switch (x->kind) {
    case WEFT_ALL_TO_ALL:
        return x->send_bytes && x->receive_bytes;
    case WEFT_ALL_GATHER:
        return x->receive_bytes;
    case WEFT_BROADCAST:
    case WEFT_SEND:
    case WEFT_RECEIVE:
        return x->peer >= 0 && x->peer < c->size && x->tag >= 0 && x->tag < 32768;
    }
    return false;
}

weft_status weft_communicator_start(weft_communicator *communicator, const weft_exchange *exchange,
                                    void **request, weft_error *error)
{
    weft_error_clear(error);
    if (!communicator || !exchange || !request || !is_valid(communicator, exchange))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_communicator_start",
                              "a pointer is NULL, or peer or tag is out of range");
    communicator->traffic.exchanges++;
    communicator->traffic.sent_bytes += sent_bytes(communicator, exchange);
    return communicator->start(communicator->context, exchange, request, error);
}

/* Abandons an exchange, and with it the communicator, unless it has completed or another rank has
 * failed. This is tested after the ranks are listed: one that has just given up has left its
 * exchange and would be listed as well. */
static weft_status too_long(weft_communicator *c, void *request, bool *done, weft_error *error)
{
    weft_error late = WEFT_NO_ERROR;
    char ranks[128] = "";
    if (c->missing) c->missing(c->context, request, ranks, sizeof ranks);
    const weft_status status = c->test(c->context, request, done, error);
    if (status != WEFT_OK || *done) return status;
    weft_error_set(&late, WEFT_PEER, "exchange", "no answer%s%s for %g seconds",
                   ranks[0] ? " from " : "", ranks, c->seconds);
    c->fail(c->context, &late);
    c->test(c->context, request, done, NULL);
    return weft_error_copy(error, &late);
}

/* Polls: first without a pause, then yielding the processor, then sleeping for up to 1 ms. */
static void pause_after(unsigned polls)
{
    if (polls < 64) return;
    weft__os_pause(polls < 4096 ? 0 : polls < 16384 ? 50000 : 1000000);
}

weft_status weft_communicator_wait(weft_communicator *communicator, void *request,
                                   weft_error *error)
{
    weft_error_clear(error);
    if (!communicator)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_communicator_wait",
                              "the communicator is NULL");
    const double begin = clock_seconds();
    weft_status status = WEFT_OK;
    bool done = false;
    for (unsigned polls = 0; status == WEFT_OK && !done; polls += polls < 65536) {
        status = communicator->test(communicator->context, request, &done, error);
        if (status != WEFT_OK || done) break;
        if (communicator->seconds > 0 && clock_seconds() - begin > communicator->seconds)
            status = too_long(communicator, request, &done, error);
        else
            pause_after(polls);
    }
    communicator->traffic.waited += clock_seconds() - begin;
    return status;
}

/* For a rank that cannot take part in an exchange of all. */
static weft_status no_memory(weft_communicator *c, const char *where, weft_error *error)
{
    weft_error own = WEFT_NO_ERROR;
    weft_error_set(&own, WEFT_NO_MEMORY, where, "out of memory");
    c->fail(c->context, &own);
    return weft_error_copy(error, &own);
}

weft_status weft_communicator_run(weft_communicator *communicator, const weft_exchange *exchange,
                                  weft_error *error)
{
    weft_error_clear(error);
    void *request = NULL;
    const double begin = clock_seconds();
    weft_status status = weft_communicator_start(communicator, exchange, &request, error);
    if (status == WEFT_OK) status = weft_communicator_wait(communicator, request, error);
    if (status == WEFT_NO_MEMORY) return no_memory(communicator, "weft_communicator_run", error);
    if (communicator) communicator->traffic.in_flight += clock_seconds() - begin;
    return status;
}

weft_status weft_communicator_gather(weft_communicator *communicator, const void *own, size_t bytes,
                                     void *all, weft_error *error)
{
    weft_error_clear(error);
    if (!communicator)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_communicator_gather",
                              "the communicator is NULL");
    size_t *sizes = malloc((size_t)communicator->size * sizeof *sizes);
    if (!sizes) return no_memory(communicator, "weft_communicator_gather", error);
    for (int r = 0; r < communicator->size; r++) sizes[r] = bytes;
    const weft_exchange x = {
        .kind = WEFT_ALL_GATHER, .send = own, .receive = all, .receive_bytes = sizes};
    const weft_status status = weft_communicator_run(communicator, &x, error);
    free(sizes);
    return status;
}

/* The first rank with an error, of its own if there is one; -1: none. */
static int first_error(const weft_error *all, int n)
{
    int first = -1;
    for (int r = 0; r < n; r++)
        if (all[r].status != WEFT_OK &&
            (first < 0 || (all[first].status == WEFT_PEER && all[r].status != WEFT_PEER)))
            first = r;
    return first;
}

weft_status weft_communicator_agree(weft_communicator *communicator, const weft_error *own,
                                    weft_error *error)
{
    const weft_error mine = own ? *own : WEFT_NO_ERROR; /* `own` may be `error` */
    weft_error_clear(error);
    own = &mine;
    if (!communicator || communicator->size == 1) return weft_error_copy(error, own);
    weft_error *all = calloc((size_t)communicator->size, sizeof *all);
    if (!all) return no_memory(communicator, "weft_communicator_agree", error);
    weft_status status = weft_communicator_gather(communicator, own, sizeof *own, all, error);
    const int first = status == WEFT_OK ? first_error(all, communicator->size) : -1;
    if (first >= 0) {
        weft_error *e = &all[first];
        e->where[sizeof e->where - 1] = e->message[sizeof e->message - 1] = 0;
        status = e->status;
        if (first == communicator->rank)
            weft_error_copy(error, own);
        else
            weft_error_set(error, WEFT_PEER, "another process", "rank %d: %s: %s", first, e->where,
                           e->message);
    }
    free(all);
    return status;
}

void weft_communicator_free(weft_communicator *communicator)
{
    if (communicator) communicator->free(communicator);
}

/* ---- One process ---- */

static weft_status self_start(void *context, const weft_exchange *x, void **request,
                              weft_error *error)
{
    (void)context;
    (void)error;
    const size_t bytes =
        x->kind == WEFT_ALL_TO_ALL || x->kind == WEFT_ALL_GATHER ? x->receive_bytes[0] : x->bytes;
    *request = NULL;
    if (x->kind == WEFT_SEND || x->kind == WEFT_RECEIVE)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "exchange",
                              "a single process cannot send to another");
    if (bytes) memcpy(x->receive, x->send, bytes);
    return WEFT_OK;
}

static weft_status self_test(void *context, void *request, bool *done, weft_error *error)
{
    (void)context;
    (void)request;
    (void)error;
    *done = true;
    return WEFT_OK;
}

static weft_status self_split(void *context, int part, weft_communicator **communicator,
                              weft_error *error)
{
    (void)context;
    (void)part;
    *communicator = weft_communicator_new_self();
    return *communicator ? WEFT_OK
                         : weft_error_set(error, WEFT_NO_MEMORY, "communicator", "out of memory");
}

static void self_fail(void *context, const weft_error *error)
{
    (void)context;
    (void)error;
}

static void self_free(weft_communicator *communicator)
{
    free(communicator);
}

weft_communicator *weft_communicator_new_self(void)
{
    weft_communicator *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    *c = (weft_communicator){.size = 1,
                             .start = self_start,
                             .test = self_test,
                             .split = self_split,
                             .fail = self_fail,
                             .free = self_free};
    return c;
}
