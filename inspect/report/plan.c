/* The plan in a report: its summary, and the facts by node that its sections share. O(nodes +
 * steps). */
#include "parts.h"

#include "plan_facts.h"
#include "run/profile.h"

#include <stdlib.h>
#include <string.h>

static void find_parameters(report_plan *p)
{
    size_t n;
    const weft_value *params = weft_graph_params(p->graph, &n);
    for (size_t i = 0; i < n; i++) p->nodes[weft_producer_of(p->graph, params[i])].trainable = true;
}

/* Collects the facts about the nodes of a plan; the caller frees p->nodes. False if memory is out.
 */
static bool open_plan(report_plan *p, const weft_plan *plan, json_maker *maker)
{
    *p = (report_plan){.plan = plan, .graph = weft_plan_graph(plan), .maker = maker};
    p->n_nodes = weft_graph_node_count(p->graph);
    p->steps = weft_plan_steps(plan, &p->n_steps);
    p->nodes = calloc(p->n_nodes + 1, sizeof *p->nodes);
    if (!p->nodes) return false;
    for (size_t i = 0; i < p->n_steps; i++) {
        report_node *node = &p->nodes[p->steps[i].node];
        node->step = i + 1;
        if (weft_graph_node_cost(p->graph, p->steps[i].node, &node->cost, NULL) != WEFT_OK)
            return false;
    }
    find_parameters(p);
    return true;
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
    json_add_number(p->maker, summary, "parameters", parameters);
    json_add_number(p->maker, summary, "trainable", trainable);
    json_add_number(p->maker, summary, "parameter_bytes", bytes);
}

static void add_summary(const report_plan *p, cJSON *subject)
{
    plan_fact facts[PLAN_FACTS];
    const weft_plan_stats stats = weft_plan_stats_of(p->plan);
    cJSON *summary = cJSON_GetObjectItemCaseSensitive(subject, "summary");
    if (!summary) summary = json_add_object(p->maker, subject, "summary");
    add_parameters(p, summary);
    weft__plan_facts(&stats, facts);
    for (size_t i = 0; i < PLAN_FACTS; i++)
        json_add_number(p->maker, summary, facts[i].name, facts[i].value);
    json_add_number(p->maker, summary, "workspace_bytes", (double)stats.workspace_bytes);
    json_add_text(p->maker, summary, "packing", weft_pack_end_text(stats.packed));
}

/* ---- The whole plan ---- */

static weft_status check_options(const weft_plan *plan, const weft_report_plan_options *o,
                                 weft_error *error)
{
    if (!plan) return weft_error_set(error, WEFT_BAD_ARGUMENT, "report", "the plan is NULL");
    if (!o->profile) return WEFT_OK;
    if (o->profile->all.plan != plan)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "report", "the profile is of another plan");
    if (!weft_profile_totals_of(o->profile).runs)
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "report", "the profile has no run");
    return WEFT_OK;
}

weft_status weft_report_add_plan(weft_report *report, const weft_plan *plan,
                                 const weft_report_plan_options *options, weft_error *error)
{
    report_plan p;
    cJSON *subject;
    static const weft_report_plan_options defaults = {0};
    const weft_report_plan_options *o = options ? options : &defaults;
    weft_error_clear(error);
    weft_status status = weft__report_subject(report, &subject, error);
    if (status == WEFT_OK) status = check_options(plan, o, error);
    if (status != WEFT_OK) return status;
    if (cJSON_HasObjectItem(subject, "summary"))
        return weft_error_set(error, WEFT_BAD_ARGUMENT, "report", "the subject has a plan already");
    bool good = open_plan(&p, plan, &report->maker);
    good = good && (!o->profile || weft__report_add_times(&p, o, subject));
    if (good) add_summary(&p, subject);
    good = good && weft__report_add_layers(&p, subject) && weft__report_add_nodes(&p, subject) &&
           weft__report_add_buffers(&p, subject);
    free(p.nodes);
    if (!good) report->maker.no_memory = true;
    return report->maker.no_memory ? weft__report_no_memory(error) : WEFT_OK;
}
