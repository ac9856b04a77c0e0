/* Scans: the ops. The planner runs a scan as a loop over one plan of the body (graph/plan/loop.c,
 * graph/run/loop.c). O(nodes of the body). */
#include "scan.h"

/* An op has a fixed number of outputs, so scans of k outputs are the k-th of these. */
#define SCAN(k)                                                                                    \
    {                                                                                              \
        .name = "scan", .doc = "a body graph, applied n times: carries go from step to step",      \
        .min_in = 1, .max_in = WEFT_VARIADIC, .n_out = (k), .attr_size = sizeof(scan_attr),        \
        .attrs = weft__scan_attrs, .infer = weft__scan_infer, .cost = weft__scan_cost,             \
        .can_fail = true, .vjp = weft__scan_vjp, .expand = weft__scan_expand                       \
    }
#define SCANS(k) SCAN(k), SCAN((k) + 1), SCAN((k) + 2), SCAN((k) + 3)
static const weft_op scans[] = {SCANS(1),  SCANS(5),  SCANS(9),  SCANS(13),
                                SCANS(17), SCANS(21), SCANS(25), SCANS(29)};
_Static_assert(sizeof scans / sizeof *scans == WEFT_MAX_OUTPUTS, "a scan for each number");

void weft_scan(weft_graph *graph, const weft_scan_body *body, int64_t n,
               const weft_scan_inputs *inputs, weft_value *last, weft_value *stacked)
{
    weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}}; /* last[] and stacked[] may be among the inputs */
    if (weft_graph_status(graph) == WEFT_OK && weft__scan_check(graph, body, inputs)) {
        if (body->segment > 1 && n > body->segment)
            weft__scan_segments(graph, scans, body, n, inputs, out);
        else
            weft__scan_build(graph, scans, body, n, inputs, out);
    }
    const size_t n_carry = body ? body->n_carry : 0, n_out = body ? body->n_out : 0;
    for (size_t i = 0; last && i < n_carry; i++)
        last[i] = i < WEFT_MAX_OUTPUTS ? out[i] : WEFT_NO_VALUE;
    for (size_t i = 0; stacked && i < n_out; i++)
        stacked[i] = n_carry + i < WEFT_MAX_OUTPUTS ? out[n_carry + i] : WEFT_NO_VALUE;
}
