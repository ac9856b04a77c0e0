/* What the files of the pass `precision` share. */
#ifndef WEFT_GRAPH_PRECISION_H
#define WEFT_GRAPH_PRECISION_H

#include "fuse.h"

#include "ir/scan.h"

#include <weft/plan.h>

/* The least number of elements of a value that is stored as bf16. */
static inline int64_t precision_least(const weft_plan_options *options)
{
    return options->min_narrow ? options->min_narrow : WEFT_MIN_NARROW;
}

/* Whether a node, not a scan, can write an output or read an input that is stored as bf16.
 * (precision_rules.c) */
bool weft__precision_can_write(const weft_graph *graph, uint32_t node, size_t output);
bool weft__precision_can_read(const weft_graph *graph, uint32_t node, size_t input);
/* Whether a value owns its storage, is large enough and may be rounded. (precision_rules.c) */
bool weft__precision_may_narrow(const weft_graph *graph, uint32_t id,
                                const weft_plan_options *options);
/* The same, and whether its node can write it as bf16: as far as its readers agree, it is stored so.
 * (precision_rules.c) */
bool weft__precision_may_compute(const weft_graph *graph, uint32_t id,
                                 const weft_plan_options *options);
/* How the operands of a scan of the graph are stored, which the caller frees: by input, of a sequence or a
 * shared value whether the body can read bf16, of a carry whether it is stored so; then by output, whether
 * it is stored as bf16. NULL: out of memory. (precision_body.c) */
uint8_t *weft__precision_scan_forms(const weft_graph *graph, size_t node,
                                    const weft_plan_options *options);

#endif
