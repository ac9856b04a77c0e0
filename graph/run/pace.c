/* Trials of runs on one thread: see pace.h. */
#include "pace.h"

#include "base/log.h"

#define MAX_SERIES 63
#define BETWEEN    16 /* runs of the team after a trial that was not faster */

static void record_alone(pace *p, uint64_t ns)
{
    const bool trial = p->series == 0;
    p->alone--;
    if (!trial) return;
    if (ns >= p->team_ns) {
        p->together = BETWEEN;
        return;
    }
    p->series = p->alone = 1;
    if (!p->reported)
        p->reported = weft__log(WEFT_LOG_INFO, "weft_session_run",
                                "the machine is busy: runs use one thread while that is faster");
}

static void record_team(pace *p, uint64_t ns, uint64_t slept_ns)
{
    p->team_ns = ns;
    if (p->together) {
        p->together--;
    } else if (slept_ns < ns / 4) {
        p->series = 0;
    } else {
        if (p->series) p->series = p->series < MAX_SERIES ? 2 * p->series + 1 : MAX_SERIES;
        p->alone = p->series ? p->series : 1;
    }
}

void weft__pace_record(pace *p, bool alone, uint64_t ns, uint64_t slept_ns)
{
    if (alone)
        record_alone(p, ns);
    else
        record_team(p, ns, slept_ns);
}
