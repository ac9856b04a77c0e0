/* The variables of the environment that weft reads, WEFT_*. A wrong value is an error in every
 * command, even in one that does not use it. */
#include "parallel.h"
#include "tool.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>

/* Seconds of an exchange, unless WEFT_TIMEOUT sets another limit. */
#define TIMEOUT_SECONDS 600

weft_status tool_timeout(double *seconds, weft_error *error)
{
    const char *text = getenv("WEFT_TIMEOUT");
    *seconds = TIMEOUT_SECONDS;
    if (!text || !*text ||
        (weft__text_to_double(text, seconds) && isfinite(*seconds) && *seconds >= 0))
        return WEFT_OK;
    return weft_error_set(error, WEFT_BAD_ARGUMENT, "WEFT_TIMEOUT",
                          "\"%s\" is not a number of seconds (0: no limit)", text);
}

static weft_status check_timeout(weft_error *error)
{
    double seconds;
    return tool_timeout(&seconds, error);
}

/* Also an error if the library is missing. */
static weft_status check_gemm(weft_error *error)
{
    return weft_gemm_chosen(WEFT_F32, NULL, error);
}

/* The planner checks the names of passes, so a graph of one input is planned. */
static weft_status check_skip(weft_error *error)
{
    weft_graph *g = weft_graph_new();
    const weft_value x = weft_input(g, "x", WEFT_F32, WEFT_SCALAR);
    weft_plan *plan = weft_plan_new(g, &x, 1, NULL, error);
    weft_plan_free(plan);
    weft_graph_free(g);
    return plan ? WEFT_OK : error->status;
}

static weft_status check_isa(weft_error *error)
{
    return weft_instruction_set(error) ? WEFT_OK : error->status;
}

weft_status tool_check_environment(weft_error *error)
{
    static const struct {
        const char *name;
        weft_status (*check)(weft_error *error);
    } variables[] = {
        {"WEFT_ISA", check_isa},
        {"WEFT_GEMM", check_gemm},
        {"WEFT_SKIP", check_skip},
        {"WEFT_TIMEOUT", check_timeout},
    };
    weft_status status = WEFT_OK;
    for (size_t i = 0; status == WEFT_OK && i < sizeof variables / sizeof *variables; i++)
        if (getenv(variables[i].name)) status = variables[i].check(error);
    return status;
}
