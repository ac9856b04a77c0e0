/* prune: the stacks of a scan that nothing reads are left out, such as those of the carries, which only the
 * gradient reads. O(nodes). */
#include "rewrite.h"

#include "ir/scan.h"

#include <stdlib.h>

/* By value of the source: a node that a target needs reads it, or it is a target. */
static void *open_context(const weft_graph *graph, const plan_target *targets, size_t n_targets,
                          const weft_plan_options *options)
{
    (void)options;
    uint8_t *read = calloc(graph->n_values + 1, 1);
    for (size_t i = 0; read && i < n_targets; i++) read[targets[i].value.id] = 1;
    for (size_t n = graph->n_nodes; read && n-- > 0;) {
        const node_record *node = &graph->nodes[n];
        bool alive = false;
        for (uint32_t k = 0; k < node->op->n_out; k++) alive |= read[node->first_out + k];
        for (size_t i = 0; alive && i < node->n_in; i++) read[node->in[i]] = 1;
    }
    return read;
}

/* Replaces the scan by one whose body has only the outputs that are read. */
static void prune(weft_rewrite *r, const scan_attr *from, const uint8_t *read)
{
    const scan_body *old = from->body;
    uint32_t out[WEFT_MAX_OUTPUTS], place[WEFT_MAX_OUTPUTS], n = 0;
    weft_value results[WEFT_MAX_OUTPUTS] = {{0, 0}};
    for (uint32_t k = 0; k < old->n_carry + old->n_out; k++) {
        if (k >= old->n_carry && !read[r->node.first_out + k]) continue;
        place[n] = k;
        out[n++] = old->out[k];
    }
    const scan_body like = {.graph = old->graph,
                            .n_carry = old->n_carry,
                            .n_each = old->n_each,
                            .n_shared = old->n_shared,
                            .n_out = n - old->n_carry,
                            .in = old->in,
                            .out = out,
                            .when = old->when};
    bool *used = calloc(r->node.n_in + 1, sizeof *used);
    scan_attr attr = *from;
    attr.body = used ? weft__scan_body_new(r->graph, old->graph, &like, used) : NULL;
    if (!used) weft_graph_fail_in(r->graph, "scan", WEFT_NO_MEMORY, "no memory");
    size_t n_in = 0;
    for (size_t i = 0; attr.body && i < r->node.n_in; i++)
        if (used[i]) r->in[n_in++] = r->in[i];
    if (attr.body) {
        attr.nodes = (int64_t)attr.body->graph->n_nodes;
        /* Scans of k outputs are the k-th of an array (autograd/scan.c). */
        weft_apply(r->graph, r->node.op - (r->node.n_out - n), &attr, r->in, n_in, results);
    }
    for (uint32_t k = 0; k < n; k++) r->out[place[k]] = results[k];
    weft__scan_body_release(attr.body);
    free(used);
}

static bool visit(weft_rewrite *r)
{
    const scan_attr *scan = scan_of(r->node.op, r->node.attr);
    const uint8_t *read = r->context;
    bool all = true;
    if (!scan) return false;
    for (size_t k = scan->body->n_carry; k < r->node.n_out; k++) all &= read[r->node.first_out + k];
    if (all) return false;
    prune(r, scan, read);
    return true;
}

static bool needed(const weft_graph *graph)
{
    for (size_t n = 0; n < graph->n_nodes; n++)
        if (scan_of(graph->nodes[n].op, graph->nodes[n].attr)) return true;
    return false;
}

const pass weft__pass_prune = {.rule = {.name = "prune",
                                        .doc = "stacks of scans that nothing reads are left out",
                                        .visit = visit,
                                        .needed = needed,
                                        .required = true},
                               .drops = true,
                               .open = open_context,
                               .close = free};
