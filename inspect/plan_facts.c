/* See plan_facts.h. */
#include "plan_facts.h"

#include <string.h>

void weft__plan_facts(const weft_plan_stats *s, plan_fact facts[PLAN_FACTS])
{
    const plan_fact all[PLAN_FACTS] = {
        {"nodes", "", (double)s->nodes},
        {"intervals", "", (double)s->intervals},
        {"barriers", "", (double)s->barriers},
        {"fused", " nodes", (double)s->fused},
        {"fixed", " nodes", (double)s->fixed},
        {"narrow", " values in bf16", (double)s->narrow},
        {"recomputed", " nodes", (double)s->recomputed},
        {"recomputed_flops", " flop a run", s->recomputed_flops},
        {"recomputed_time", " of the time without, estimated", s->recomputed_time},
        {"buffers", "", (double)s->buffers},
        {"sum_bytes", " bytes", (double)s->sum_bytes},
        {"arena_bytes", " bytes", (double)s->arena_bytes},
        {"lower_bound_bytes", " bytes", (double)s->lower_bound_bytes},
        {"ratio", "", s->ratio},
        {"state_bytes", " bytes", (double)s->state_bytes},
        {"flops", " flop a run", s->flops},
        {"bytes", " bytes moved a run", s->bytes}};
    memcpy(facts, all, sizeof all);
}
