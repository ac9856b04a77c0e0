/* Where a system has no threads, nobody else holds a lock, and nobody changes what another one
 * waits for: see platform.h. */
#include "platform.h"

bool weft__os_mutex_init(os_mutex *mutex)
{
    *mutex = OS_MUTEX;
    return true;
}

void weft__os_mutex_free(os_mutex *mutex)
{
    (void)mutex;
}

void weft__os_lock(os_mutex *mutex)
{
    (void)mutex;
}

bool weft__os_try_lock(os_mutex *mutex)
{
    (void)mutex;
    return true;
}

void weft__os_unlock(os_mutex *mutex)
{
    (void)mutex;
}

bool weft__os_condition_init(os_condition *condition)
{
    *condition = 0;
    return true;
}

void weft__os_condition_free(os_condition *condition)
{
    (void)condition;
}

void weft__os_wait(os_condition *condition, os_mutex *mutex)
{
    (void)condition;
    (void)mutex;
}

void weft__os_signal(os_condition *condition)
{
    (void)condition;
}

void weft__os_run_once(os_once *once, void (*run)(void))
{
    if (!*once) run();
    *once = 1;
}

int weft__os_try_threads(int wanted, size_t stack)
{
    (void)wanted;
    (void)stack;
    return 0;
}
