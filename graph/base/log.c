/* The program's function for reports. A lock protects it and serialises its calls. A thread that is
 * in such a call holds the lock, so what it reports or sets meanwhile must not take it again. */
#include "log.h"
#include "platform.h"
#include "text.h"

#include <stdarg.h>

static os_mutex lock = OS_MUTEX;
static weft_log_fn function;
static void *function_context;
static atomic_bool is_set;
static _Thread_local bool calling;

static void take_lock(void)
{
    if (!calling) weft__os_lock(&lock);
}

static void give_lock(void)
{
    if (!calling) weft__os_unlock(&lock);
}

/* No other thread of the parent holds the lock in the child. */
__attribute__((constructor)) static void watch_forks(void)
{
    (void)weft__os_watch_forks(take_lock, give_lock, give_lock);
}

void weft_log_set(weft_log_fn log, void *context)
{
    take_lock();
    function = log;
    function_context = context;
    atomic_store(&is_set, log != NULL);
    give_lock();
}

bool weft__log_first(atomic_bool *done)
{
    return atomic_load(&is_set) && !calling && !atomic_exchange(done, true);
}

bool weft__log(weft_log_level level, const char *where, const char *format, ...)
{
    char text[256], line[sizeof text], place[128];
    va_list arguments;
    if (!atomic_load(&is_set) || calling) return false;
    va_start(arguments, format);
    weft__text_vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    weft__text_printable(line, sizeof line, text);
    weft__text_printable(place, sizeof place, where);
    weft__os_lock(&lock);
    calling = true;
    const bool reported = function != NULL;
    if (reported) function(function_context, level, place, line);
    calling = false;
    weft__os_unlock(&lock);
    return reported;
}
