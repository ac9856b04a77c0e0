/* The plan in a report: its summary, and the facts by node that its sections share. O(nodes +
 * steps). */
#include "report.h"

#include <stdlib.h>
#include <string.h>

static weft_status no_memory(weft_error *error)
{
    return weft_error_set(error, WEFT_NO_MEMORY, "report", "out of memory");
}

static void find_parameters(report_plan *p)
{
    size_t n;
    const weft_value *params = weft_graph_params(p->graph, &n);
    for (size_t i = 0; i < n; i++) p->nodes[weft_producer_of(p->graph, params[i])].trainable = true;
}

weft_status report_plan_open(report_plan *p, const weft_plan *plan, weft_error *error)
{
    *p = (report_plan){.plan = plan, .graph = weft_plan_graph(plan)};
    p->n_nodes = weft_graph_node_count(p->graph);
    p->steps = weft_plan_steps(plan, &p->n_steps);
    p->nodes = calloc(p->n_nodes + 1, sizeof *p->nodes);
    if (!p->nodes) return no_memory(error);
    for (size_t i = 0; i < p->n_steps; i++) {
        report_node *node = &p->nodes[p->steps[i].node];
        node->step = i + 1;
        if (weft_graph_node_cost(p->graph, p->steps[i].node, &node->cost, NULL) != WEFT_OK)
            return no_memory(error);
    }
    find_parameters(p);
    return WEFT_OK;
}

void report_plan_close(report_plan *p)
{
    free(p->nodes);
    *p = (report_plan){.plan = NULL};
}

const char *report_type(const weft_graph *graph, weft_value value, char text[REPORT_TYPE_BYTES])
{
    const int n =
        snprintf(text, REPORT_TYPE_BYTES, "%s ", weft_dtype_name(weft_dtype_of(graph, value)));
    weft_shape_text(weft_shape_of(graph, value), text + n, REPORT_TYPE_BYTES - (size_t)n);
    return text;
}

/* ---- The summary ---- */

static void add_parameters(const report_plan *p, cJSON *summary)
{
    double parameters = 0, trainable = 0, bytes = 0;
    for (size_t i = 0; i < p->n_nodes; i++) {
        const weft_node_info node = weft_graph_node(p->graph, i);
        if (node.op != &weft_op_state) continue;
        const weft_value value = weft_value_from_id(p->graph, node.first_out);
        const weft_shape shape = weft_shape_of(p->graph, value);
        if (node.role.direction == WEFT_FORWARD) parameters += (double)weft_shape_numel(shape);
        if (!p->nodes[i].trainable) continue;
        trainable += (double)weft_shape_numel(shape);
        bytes += (double)weft_tensor_bytes(weft_dtype_of(p->graph, value), shape);
    }
    cJSON_AddNumberToObject(summary, "parameters", parameters);
    cJSON_AddNumberToObject(summary, "trainable", trainable);
    cJSON_AddNumberToObject(summary, "parameter_bytes", bytes);
}

weft_status report_add_plan(const report_plan *p, cJSON *subject, weft_error *error)
{
    plan_fact facts[TOOL_PLAN_FACTS];
    const weft_plan_stats stats = weft_plan_stats_of(p->plan);
    cJSON *summary = cJSON_GetObjectItemCaseSensitive(subject, "summary");
    if (!summary) summary = cJSON_AddObjectToObject(subject, "summary");
    add_parameters(p, summary);
    tool_plan_facts(&stats, facts);
    for (size_t i = 0; i < TOOL_PLAN_FACTS; i++)
        cJSON_AddNumberToObject(summary, facts[i].name, facts[i].value);
    cJSON_AddNumberToObject(summary, "workspace_bytes", (double)stats.workspace_bytes);
    cJSON_AddStringToObject(summary, "packing", weft_pack_end_text(stats.packed));
    weft_status status = report_add_layers(p, subject, error);
    if (status == WEFT_OK) status = report_add_nodes(p, subject, error);
    return status == WEFT_OK ? report_add_buffers(p, subject, error) : status;
}
