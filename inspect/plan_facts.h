/* The statistics of a plan as a list of numbers, for tables and JSON. Not installed. */
#ifndef WEFT_INSPECT_PLAN_FACTS_H
#define WEFT_INSPECT_PLAN_FACTS_H

#include <weft/plan.h>

typedef struct plan_fact {
    const char *name, *unit; /* the unit follows the number: " bytes" */
    double value;
} plan_fact;
#define PLAN_FACTS 17
void weft__plan_facts(const weft_plan_stats *stats, plan_fact facts[PLAN_FACTS]);

#endif
