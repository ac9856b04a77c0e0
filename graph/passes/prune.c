/* prune: the results of a scan that nothing reads are left out, such as what only the gradient reads, and
 * carries on which no result depends. O(nodes), once more for each carry. */
#include "rewrite.h"
#include "unroll.h"

#include "ir/scan.h"

#include <stdlib.h>

/* By value of the source: a node that a target needs reads it, or it is a target. */
static void *open_context(const weft_graph *graph, const plan_target *targets, size_t n_targets,
                          const weft_plan_options *options, const body_storage *storage)
{
    (void)options;
    (void)storage;
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

/* Finds the outputs of a scan that must stay, whose last values or stacks are `read`: also carries
 * on which these depend. False if out of memory. */
static bool find_needed(const scan_body *b, const uint8_t *read, bool *needed)
{
    const weft_graph *g = b->graph;
    uint8_t *alive = calloc(g->n_nodes + 1, 1);
    const bool good = alive;
    bool again = good, any = b->n_each;
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++) needed[k] = read[k];
    if (scan_is_while(b)) needed[b->when - 1] = true;
    while (again) {
        again = false;
        for (uint32_t k = 0; k < b->n_carry + b->n_out; k++)
            if (needed[k]) alive[g->values[b->out[k]].node] = 1;
        for (size_t n = g->n_nodes; n-- > 0;)
            for (size_t i = 0; alive[n] && i < g->nodes[n].n_in; i++)
                alive[g->values[g->nodes[n].in[i]].node] = 1;
        for (uint32_t i = 0; i < b->n_carry; i++) {
            if (needed[i] || !alive[g->values[b->in[i]].node]) continue;
            needed[i] = again = true;
        }
    }
    for (uint32_t i = 0; i < b->n_carry; i++) any |= needed[i];
    for (uint32_t i = 0; !any && i < b->n_carry; i++) needed[i] = true; /* a scan reads something */
    free(alive);
    return good;
}

/* Replaces the scan by one whose body has only the outputs that are needed. */
static void prune(weft_rewrite *r, const scan_attr *from, const bool *needed)
{
    const scan_body *old = from->body;
    const uint32_t n_in = scan_inputs(old);
    uint32_t out[WEFT_MAX_OUTPUTS], place[WEFT_MAX_OUTPUTS], n = 0;
    weft_value results[WEFT_MAX_OUTPUTS] = {{0, 0}};
    scan_body like = {.graph = old->graph,
                      .n_each = old->n_each,
                      .n_shared = old->n_shared,
                      .in = calloc(n_in + 1, sizeof *like.in),
                      .out = out};
    bool *used = calloc(n_in + 1, sizeof *used);
    for (uint32_t k = 0; k < old->n_carry + old->n_out; k++) {
        if (!needed[k]) continue;
        place[n] = k;
        out[n++] = old->out[k];
        like.n_carry += k < old->n_carry;
    }
    like.n_out = n - like.n_carry;
    scan_attr attr = *from;
    attr.body = NULL;
    if (like.in && used) {
        uint32_t kept = 0, read = 0;
        for (uint32_t i = 0; i < n_in; i++) {
            if (i < old->n_carry && !needed[i]) continue;
            r->in[kept] = r->in[i];
            like.in[kept++] = old->in[i];
            if (old->when == i + 1) like.when = kept;
        }
        attr.body = weft__scan_body_new(r->graph, old->graph, &like, used);
        for (uint32_t i = 0; i < kept; i++)
            if (used[i]) r->in[read++] = r->in[i];
        r->node.n_in = read;
    } else {
        weft_graph_fail_in(r->graph, "scan", WEFT_NO_MEMORY, "no memory");
    }
    if (attr.body) {
        attr.nodes = (int64_t)attr.body->graph->n_nodes;
        weft_apply(r->graph, &attr.ops[n - 1], &attr, r->in, r->node.n_in, results);
    }
    for (uint32_t k = 0; k < n; k++) r->out[place[k]] = results[k];
    weft__scan_body_release(attr.body);
    free(like.in);
    free(used);
}

static bool visit(weft_rewrite *r)
{
    const scan_attr *scan = scan_of(r->node.op, r->node.attr);
    const uint8_t *read = r->context;
    bool needed[WEFT_MAX_OUTPUTS], all = true;
    if (!scan) return false;
    if (!find_needed(scan->body, read + r->node.first_out, needed)) {
        weft_graph_fail_in(r->graph, "scan", WEFT_NO_MEMORY, "no memory");
        return true;
    }
    for (size_t k = 0; k < r->node.n_out; k++) all &= needed[k];
    if (!all) prune(r, scan, needed);
    return !all;
}

const pass weft__pass_prune = {.rule = {.name = "prune",
                                        .doc = "results of scans that nothing reads are left out",
                                        .visit = visit,
                                        .needed = weft__unroll_needed,
                                        .required = true},
                               .drops = true,
                               .open = open_context,
                               .close = free};
