/* The nodes of a report, and the ops that occur. O(nodes + edges). */
#include "report.h"

#include "ir/ir.h"
#include "node_names.h"

/* ---- Nodes ---- */

static const char *kind_of(const report_plan *p, size_t index, const weft_op *op)
{
    static const struct {
        const weft_op *op;
        const char *kind;
    } leaves[] = {{&weft_op_input, "input"},
                  {&weft_op_constant, "constant"},
                  {&weft_op_group, "group"},
                  {&weft_op_track, "group"}};
    for (size_t i = 0; i < sizeof leaves / sizeof *leaves; i++)
        if (op == leaves[i].op) return leaves[i].kind;
    if (op == &weft_op_state) return p->nodes[index].trainable ? "parameter" : "state";
    return op->alias ? "view" : op->updates ? "update" : "op";
}

static void add_outputs(const report_plan *p, const weft_node_info *node, cJSON *json)
{
    char text[REPORT_TYPE_BYTES];
    cJSON *outputs = cJSON_AddArrayToObject(json, "outputs");
    for (size_t k = 0; k < node->n_out; k++) {
        const uint32_t id = node->first_out + (uint32_t)k;
        const weft_value value = weft_value_from_id(p->graph, id);
        const size_t buffer = weft_plan_buffer_of(p->plan, value);
        cJSON *output = cJSON_CreateObject();
        cJSON_AddStringToObject(output, "shape", report_type(p->graph, value, text));
        cJSON_AddNumberToObject(
            output, "bytes",
            (double)weft_tensor_bytes(p->graph->values[id].stored, weft_shape_of(p->graph, value)));
        if (buffer != SIZE_MAX) cJSON_AddNumberToObject(output, "buffer", (double)buffer);
        cJSON_AddItemToArray(outputs, output);
    }
}

static void add_inputs(const report_plan *p, const weft_node_info *node, cJSON *json)
{
    cJSON *inputs = cJSON_AddArrayToObject(json, "in");
    for (size_t i = 0; i < node->n_in; i++) {
        const size_t producer =
            weft_producer_of(p->graph, weft_value_from_id(p->graph, node->in[i]));
        cJSON *input = cJSON_CreateObject();
        cJSON_AddNumberToObject(input, "node", (double)producer);
        cJSON_AddNumberToObject(input, "output",
                                node->in[i] - weft_graph_node(p->graph, producer).first_out);
        cJSON_AddItemToArray(inputs, input);
    }
}

static void add_attributes(const weft_node_info *node, cJSON *json)
{
    char text[192];
    if (!node->op->attrs || !node->op->attrs[0].name) return;
    cJSON *attributes = cJSON_AddObjectToObject(json, "attrs");
    for (const weft_attr_field *f = node->op->attrs; f->name; f++)
        cJSON_AddStringToObject(attributes, f->name,
                                weft_attr_text(f, node->attr, text, sizeof text));
}

static void add_step(const report_plan *p, size_t index, cJSON *json)
{
    const report_node *node = &p->nodes[index];
    const weft_plan_step *step = report_step(p, index);
    if (!step) return;
    cJSON_AddNumberToObject(json, "step", (double)(node->step - 1));
    cJSON_AddNumberToObject(json, "group", step->interval);
    if (step->head != index) cJSON_AddNumberToObject(json, "head", (double)step->head);
    if (step->fixed) cJSON_AddTrueToObject(json, "fixed");
    cJSON_AddNumberToObject(json, "flops", node->cost.flops);
    cJSON_AddNumberToObject(json, "bytes", node->cost.bytes);
    if (!node->timed) return;
    cJSON_AddNumberToObject(json, "seconds", node->compute);
    cJSON_AddNumberToObject(json, "waiting", node->waiting);
    cJSON_AddNumberToObject(json, "roofline", node->roofline);
}

static cJSON *node_json(const report_plan *p, size_t index, const char *name)
{
    static const char *const directions[] = {
        [WEFT_FORWARD] = "forward", [WEFT_BACKWARD] = "backward", [WEFT_UPDATE] = "update"};
    const weft_node_info node = weft_graph_node(p->graph, index);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddNumberToObject(json, "id", (double)index);
    cJSON_AddStringToObject(json, "name", name);
    cJSON_AddStringToObject(json, "op", node.op->name);
    cJSON_AddStringToObject(json, "scope", node.scope);
    cJSON_AddStringToObject(json, "phase", directions[node.role.direction]);
    cJSON_AddStringToObject(json, "kind", kind_of(p, index, node.op));
    add_outputs(p, &node, json);
    add_inputs(p, &node, json);
    add_attributes(&node, json);
    cJSON_AddNumberToObject(json, "source", node.origin);
    if (node.role.gradient_of) cJSON_AddNumberToObject(json, "gradient_of", node.role.gradient_of);
    add_step(p, index, json);
    return json;
}

/* ---- Ops ---- */

/* The documentation of an op that occurs. */
static void add_op(const weft_op *op, cJSON *ops)
{
    if (cJSON_GetObjectItemCaseSensitive(ops, op->name)) return;
    cJSON *json = cJSON_AddObjectToObject(ops, op->name);
    if (op->doc) cJSON_AddStringToObject(json, "doc", op->doc);
}

weft_status report_add_nodes(const report_plan *p, cJSON *subject, weft_error *error)
{
    node_names names;
    const bool good = weft__node_names_make(&names, p->graph);
    cJSON *nodes = cJSON_AddArrayToObject(subject, "nodes");
    cJSON *ops = cJSON_AddObjectToObject(subject, "ops");
    for (size_t i = 0; good && i < p->n_nodes; i++) {
        cJSON_AddItemToArray(nodes, node_json(p, i, names.at[i]));
        add_op(weft_graph_node(p->graph, i).op, ops);
    }
    weft__node_names_free(&names);
    return good ? WEFT_OK : weft_error_set(error, WEFT_NO_MEMORY, "report", "out of memory");
}
