/* The buffers of a report: where and when each lies in the arena, who writes it first, and why it
 * is retained until its end. O(nodes + edges). */
#include "parts.h"

#include <stdlib.h>

typedef struct buffer_use {
    size_t writer, reader; /* 1 + the node; 0: none */
    bool fed;              /* an input, which retains its contents */
    bool scratch;          /* only the writer uses it */
} buffer_use;

static buffer_use *use_of(const report_plan *p, buffer_use *uses, uint32_t id)
{
    const size_t buffer = weft_plan_buffer_of(p->plan, weft_value_from_id(p->graph, id));
    return buffer == SIZE_MAX ? NULL : &uses[buffer];
}

static void find_inputs(const report_plan *p, buffer_use *uses)
{
    for (size_t i = 0; i < p->n_nodes; i++) {
        const weft_node_info node = weft_graph_node(p->graph, i);
        buffer_use *use = node.op == &weft_op_input ? use_of(p, uses, node.first_out) : NULL;
        if (use) *use = (buffer_use){.writer = i + 1, .fed = true};
    }
}

static void find_users(const report_plan *p, buffer_use *uses)
{
    buffer_use *use;
    for (size_t i = 0; i < p->n_steps; i++) {
        const weft_node_info node = weft_graph_node(p->graph, p->steps[i].node);
        if (p->steps[i].scratch != SIZE_MAX)
            uses[p->steps[i].scratch] =
                (buffer_use){.writer = p->steps[i].node + 1, .scratch = true};
        for (size_t k = 0; k < node.n_in; k++)
            if ((use = use_of(p, uses, node.in[k]))) use->reader = p->steps[i].node + 1;
        for (size_t k = 0; k < node.n_out; k++)
            if ((use = use_of(p, uses, node.first_out + (uint32_t)k)) && !use->writer)
                use->writer = p->steps[i].node + 1;
    }
}

/* Why a buffer is alive until its last interval; NULL if that is only because it is written there.
 * A buffer that outlives the run has a last interval after those of the plan. */
static const char *reason_of(const report_plan *p, const buffer_use *use, bool outlives)
{
    const weft_plan_step *writer = report_step(p, use->writer - 1);
    if (!outlives) return use->reader ? "read by" : NULL;
    return use->fed || writer->fixed ? "kept" : "target";
}

static void add_buffer(const report_plan *p, const buffer_use *use, const weft_plan_buffer *buffer,
                       size_t n_intervals, cJSON *json)
{
    const bool outlives = buffer->last >= n_intervals;
    json_add_number(p->maker, json, "offset", (double)buffer->offset);
    json_add_number(p->maker, json, "bytes", (double)buffer->bytes);
    json_add_number(p->maker, json, "first", buffer->first);
    json_add_number(p->maker, json, "last", outlives ? (double)n_intervals - 1 : buffer->last);
    if (use->scratch) json_add_bool(p->maker, json, "scratch", true);
    if (use->writer) json_add_number(p->maker, json, "node", (double)(use->writer - 1));
    if (use->reader) json_add_number(p->maker, json, "reader", (double)(use->reader - 1));
    const char *reason = use->writer ? reason_of(p, use, outlives) : NULL;
    if (reason) json_add_text(p->maker, json, "reason", reason);
}

bool weft__report_add_buffers(const report_plan *p, cJSON *subject)
{
    size_t n;
    const weft_plan_buffer *buffers = weft_plan_buffers(p->plan, &n);
    const size_t n_intervals = weft_plan_stats_of(p->plan).intervals;
    buffer_use *uses = calloc(n + 1, sizeof *uses);
    if (!uses) return false;
    find_inputs(p, uses);
    find_users(p, uses);
    cJSON *json = json_add_array(p->maker, subject, "buffers");
    for (size_t i = 0; i < n; i++)
        add_buffer(p, &uses[i], &buffers[i], n_intervals, json_add_object(p->maker, json, NULL));
    free(uses);
    return true;
}
