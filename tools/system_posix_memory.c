/* Memory on Linux and other POSIX systems: see system.h. What this process may still allocate is the
 * minimum of the machine's free memory, what its control groups allow, and its own limit. */
#include "system.h"

#ifdef WEFT_HAVE_MALLOC_TRIM
#include <malloc.h>
#endif
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* The number after a key, or of the whole file if that is NULL; NAN if there is none ("max"). */
static double number_of(const char *path, const char *key)
{
    char line[512];
    double number = NAN;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        size_t length = key ? strlen(key) : 0;
        if (key && strncmp(line, key, length) != 0) continue;
        char *end;
        const unsigned long long value = strtoull(line + length, &end, 10);
        if (end > line + length) number = (double)value;
        break;
    }
    if (file) fclose(file);
    return number;
}

/* What the control groups allow: the minimum over the group and all groups around it. */
static double group_rest(const char *root, char *group, const char *limit, const char *used)
{
    double rest = NAN;
    for (;;) {
        char path[2][1024];
        snprintf(path[0], sizeof path[0], "%s%s/%s", root, group, limit);
        snprintf(path[1], sizeof path[1], "%s%s/%s", root, group, used);
        rest = fmin(rest, number_of(path[0], NULL) - number_of(path[1], NULL));
        char *slash = strrchr(group, '/');
        if (!slash) return rest;
        *slash = 0;
    }
}

static double groups_rest(void)
{
    char line[512];
    double rest = NAN;
    FILE *file = fopen("/proc/self/cgroup", "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group) continue;
        *group++ = 0;
        if (!names[1])
            rest = fmin(rest, group_rest("/sys/fs/cgroup", group, "memory.max", "memory.current"));
        else if (strstr(names, "memory"))
            rest = fmin(rest, group_rest("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes",
                                         "memory.usage_in_bytes"));
    }
    if (file) fclose(file);
    return rest;
}

double system_memory_available(void)
{
    struct rlimit limit;
    double rest = 1024 * number_of("/proc/meminfo", "MemAvailable:");
    rest = fmin(rest, groups_rest());
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        rest =
            fmin(rest, (double)limit.rlim_cur - 1024 * number_of("/proc/self/status", "VmSize:"));
    return rest;
}

/* ---- The peak ---- */

/* Linux records the peak of the resident set; writing 5 to clear_refs resets it. */
void system_forget_peak(void)
{
#ifdef WEFT_HAVE_MALLOC_TRIM
    malloc_trim(0);
#endif
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return;
    fputs("5", file);
    fclose(file);
}

double system_memory_peak(void)
{
    double kib = number_of("/proc/self/status", "VmHWM:");
    struct rusage usage;
    if (isnan(kib) && getrusage(RUSAGE_SELF, &usage) == 0) kib = (double)usage.ru_maxrss;
    return kib * 1024;
}
