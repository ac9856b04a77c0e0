/* --before-after: a model's plan or times, without and with an optional pass of the planner. */
#ifndef WEFT_TOOLS_BEFORE_AFTER_H
#define WEFT_TOOLS_BEFORE_AFTER_H

#include "tool.h"

/* The help of the option of both commands. */
#define BEFORE_AFTER                                                                               \
    "print the effect of an optional pass of the planner, such as fuse: every figure without it "  \
    "and with it"

/* Print the statistics of both plans, or the rows of both profiles, and return the exit status. */
int plan_before_after(const model_args *model, bool train, const char *pass, bool json);

typedef struct profile_request {
    bool train, json;
    long runs, threads, depth, rows;
    weft_profile_by by;
    const char *by_name;
} profile_request;
int profile_before_after(const model_args *model, const profile_request *request, const char *pass);

#endif
