/* The exchanges of a session's runs with other processes: see exchanges.h. */
#include "exchanges.h"

#include "base/platform.h"
#include "ir/call.h"

#include <stdlib.h>
#include <string.h>

bool weft__exchanges_init(exchanges *e, const weft_plan *plan)
{
    bool any = false;
    for (size_t i = 0; i < plan->n_steps; i++)
        any |= plan->graph->nodes[plan->steps[i].node].op->exchanges;
    if (!any) return true;
    e->flights = calloc(plan->n_steps, sizeof *e->flights);
    e->waited_ns = calloc(plan->n_steps, sizeof *e->waited_ns);
    e->n_flights = plan->n_steps;
    return e->flights && e->waited_ns;
}

void weft__exchanges_free(exchanges *e)
{
    free(e->flights);
    free(e->waited_ns);
    free(e->communicators);
}

weft_status weft__exchanges_bind(exchanges *e, weft_communicator *const *communicators, size_t n,
                                 weft_error *error)
{
    if (!e->flights || !n) return WEFT_OK;
    if (!communicators)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "weft_session_new",
                              "the list of communicators is NULL");
    e->communicators = malloc(n * sizeof(weft_communicator *));
    if (!e->communicators)
        return weft_error_set(error, WEFT_NO_MEMORY, "weft_session_new", "out of memory");
    memcpy(e->communicators, communicators, n * sizeof(weft_communicator *));
    e->n_communicators = n;
    return WEFT_OK;
}

void weft__exchanges_progress(exchanges *e)
{
    if (!atomic_load_explicit(&e->under_way, memory_order_relaxed)) return;
    for (size_t i = 0; i < e->n_communicators; i++)
        if (e->communicators[i] && e->communicators[i]->progress)
            e->communicators[i]->progress(e->communicators[i]->context);
}

void weft__exchanges_begin(exchanges *e)
{
    atomic_store(&e->ended, 0);
    atomic_store(&e->failed, false);
}

void weft__exchanges_abandon(exchanges *e, const weft_error *error)
{
    const bool common =
        error->status == WEFT_NOT_FINITE && atomic_load(&e->ended) && !atomic_load(&e->under_way);
    if (!e->flights || common) return;
    for (size_t i = 0; i < e->n_communicators; i++)
        if (e->communicators[i]) e->communicators[i]->fail(e->communicators[i]->context, error);
    for (size_t i = 0; i < e->n_flights; i++) {
        flight *f = &e->flights[i];
        bool done;
        if (f->communicator)
            f->communicator->test(f->communicator->context, f->request, &done, NULL);
        f->communicator = NULL;
    }
    atomic_store(&e->under_way, 0);
}

int32_t weft_call_start_exchange(const weft_call *call, int group, int size,
                                 const weft_exchange *exchange)
{
    exchanges *e = call->run ? call->run->exchanges : NULL;
    weft_error error = WEFT_NO_ERROR;
    if (!e || group < 0 || (size_t)group >= e->n_communicators || !e->communicators[group]) {
        weft_error_set(&error, WEFT_BAD_ARGUMENT, "exchange",
                       "the session has no communicator %d (weft_session_options.communicators)",
                       group);
        weft__call_fail_with(call, &error);
        return -1;
    }
    /* The other processes would mistake the next exchange for the one that failed. */
    if (atomic_load(&e->failed)) return -1;
    flight *f = &e->flights[call->node];
    f->start = clock_seconds();
    f->communicator = e->communicators[group];
    if (f->communicator->size != size)
        weft_error_set(&error, WEFT_BAD_ARGUMENT, "exchange",
                       "communicator %d has size %d, the graph expects %d", group,
                       f->communicator->size, size);
    if (error.status == WEFT_OK &&
        weft_communicator_start(f->communicator, exchange, &f->request, &error) == WEFT_OK) {
        atomic_fetch_add(&e->under_way, 1);
        return (int32_t)call->node;
    }
    f->communicator = NULL;
    atomic_store(&e->failed, true);
    weft__call_fail_with(call, &error);
    return -1;
}

void weft_call_wait_exchange(const weft_call *call, int32_t number)
{
    exchanges *e = call->run ? call->run->exchanges : NULL;
    weft_error error = WEFT_NO_ERROR;
    if (!e || number < 0 || (size_t)number >= e->n_flights || !e->flights[number].communicator)
        return; /* it did not start, which the run reports */
    flight *f = &e->flights[number];
    weft_communicator *c = f->communicator;
    const uint64_t begin = clock_ns();
    const weft_status status = weft_communicator_wait(c, f->request, &error);
    e->waited_ns[call->node] += clock_ns() - begin;
    c->traffic.in_flight += clock_seconds() - f->start;
    f->communicator = NULL;
    atomic_fetch_sub(&e->under_way, 1);
    atomic_fetch_add(&e->ended, 1);
    if (status != WEFT_OK) weft__call_fail_with(call, &error);
}
