/* Waiting for threads: see progress.h. */
#include "progress.h"

bool weft__sleepers_init(sleepers *s)
{
    atomic_init(&s->count, 0);
    if (!weft__os_mutex_init(&s->lock)) return false;
    if (weft__os_condition_init(&s->changed)) return true;
    weft__os_mutex_free(&s->lock);
    return false;
}

void weft__sleepers_free(sleepers *s)
{
    weft__os_condition_free(&s->changed);
    weft__os_mutex_free(&s->lock);
}

/* Either this thread sees the sleeper's count, or the sleeper sees the new value: both write before
 * they read, in one order for all threads. */
void weft__progress_add(sleepers *s, atomic_ullong *value, uint64_t amount, uint64_t target)
{
    if (atomic_fetch_add(value, amount) + amount < target || !atomic_load(&s->count)) return;
    weft__os_lock(&s->lock);
    weft__os_signal(&s->changed);
    weft__os_unlock(&s->lock);
}

uint64_t weft__progress_sleep(sleepers *s, const atomic_ullong *value, uint64_t target)
{
    const uint64_t begin = clock_ns();
    weft__os_lock(&s->lock);
    atomic_fetch_add(&s->count, 1);
    while (atomic_load(value) < target) weft__os_wait(&s->changed, &s->lock);
    atomic_fetch_sub(&s->count, 1);
    weft__os_unlock(&s->lock);
    return clock_ns() - begin;
}

/* Lets another thread of the same core run for some cycles. */
static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

bool weft__progress_spin(const atomic_ullong *value, uint64_t target, uint64_t *spin_ns)
{
    uint64_t end = 0;
    for (;;) {
        for (int i = 0; i < 16; i++) {
            if (progress_reached(value, target)) {
                *spin_ns = SPIN_NS;
                return true;
            }
            relax();
        }
        const uint64_t now = clock_ns();
        if (!end) end = now + *spin_ns;
        if (now >= end) break;
    }
    if (*spin_ns > MIN_SPIN_NS) *spin_ns /= 2;
    return false;
}
