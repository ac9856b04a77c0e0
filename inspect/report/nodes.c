/* The nodes of a report, and the ops that occur. O(nodes + edges). */
#include "parts.h"

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
    cJSON *outputs = json_add_array(p->maker, json, "outputs");
    for (size_t k = 0; k < node->n_out; k++) {
        const uint32_t id = node->first_out + (uint32_t)k;
        const weft_value value = weft_value_from_id(p->graph, id);
        const size_t buffer = weft_plan_buffer_of(p->plan, value);
        cJSON *output = json_add_object(p->maker, outputs, NULL);
        json_add_text(p->maker, output, "shape", weft__report_type(p->graph, value, text));
        json_add_number(
            p->maker, output, "bytes",
            (double)weft_tensor_bytes(p->graph->values[id].stored, weft_shape_of(p->graph, value)));
        if (buffer != SIZE_MAX) json_add_number(p->maker, output, "buffer", (double)buffer);
    }
}

static void add_inputs(const report_plan *p, const weft_node_info *node, cJSON *json)
{
    cJSON *inputs = json_add_array(p->maker, json, "in");
    for (size_t i = 0; i < node->n_in; i++) {
        const size_t producer =
            weft_producer_of(p->graph, weft_value_from_id(p->graph, node->in[i]));
        cJSON *input = json_add_object(p->maker, inputs, NULL);
        json_add_number(p->maker, input, "node", (double)producer);
        json_add_number(p->maker, input, "output",
                        node->in[i] - weft_graph_node(p->graph, producer).first_out);
    }
}

static void add_attributes(const report_plan *p, const weft_node_info *node, cJSON *json)
{
    char text[192];
    if (!node->op->attrs || !node->op->attrs[0].name) return;
    cJSON *attributes = json_add_object(p->maker, json, "attrs");
    for (const weft_attr_field *f = node->op->attrs; f->name; f++)
        json_add_text(p->maker, attributes, f->name,
                      weft_attr_text(f, node->attr, text, sizeof text));
}

static void add_step(const report_plan *p, size_t index, cJSON *json)
{
    const report_node *node = &p->nodes[index];
    const weft_plan_step *step = report_step(p, index);
    if (!step) return;
    json_add_number(p->maker, json, "step", (double)(node->step - 1));
    json_add_number(p->maker, json, "interval", step->interval);
    if (step->head != index) json_add_number(p->maker, json, "head", (double)step->head);
    if (step->fixed) json_add_bool(p->maker, json, "fixed", true);
    json_add_number(p->maker, json, "flops", node->cost.flops);
    json_add_number(p->maker, json, "bytes", node->cost.bytes);
    if (!node->timed) return;
    json_add_number(p->maker, json, "seconds", node->compute);
    json_add_number(p->maker, json, "waiting", node->waiting);
    json_add_number(p->maker, json, "roofline", node->roofline);
}

static void add_node(const report_plan *p, size_t index, const char *name, cJSON *json)
{
    static const char *const directions[] = {
        [WEFT_FORWARD] = "forward", [WEFT_BACKWARD] = "backward", [WEFT_UPDATE] = "update"};
    const weft_node_info node = weft_graph_node(p->graph, index);
    json_add_number(p->maker, json, "id", (double)index);
    json_add_text(p->maker, json, "name", name);
    json_add_text(p->maker, json, "op", node.op->name);
    json_add_text(p->maker, json, "scope", node.scope);
    json_add_text(p->maker, json, "phase", directions[node.role.direction]);
    json_add_text(p->maker, json, "kind", kind_of(p, index, node.op));
    add_outputs(p, &node, json);
    add_inputs(p, &node, json);
    add_attributes(p, &node, json);
    json_add_number(p->maker, json, "source", node.origin);
    if (node.role.gradient_of)
        json_add_number(p->maker, json, "gradient_of", node.role.gradient_of);
    add_step(p, index, json);
}

/* ---- Ops ---- */

/* The documentation of an op that occurs. */
static void add_op(const report_plan *p, const weft_op *op, cJSON *ops)
{
    if (cJSON_GetObjectItemCaseSensitive(ops, op->name)) return;
    cJSON *json = json_add_object(p->maker, ops, op->name);
    if (op->doc) json_add_text(p->maker, json, "doc", op->doc);
}

bool weft__report_add_nodes(const report_plan *p, cJSON *subject)
{
    node_names names;
    const bool good = weft__node_names_make(&names, p->graph);
    cJSON *nodes = json_add_array(p->maker, subject, "nodes");
    cJSON *ops = json_add_object(p->maker, subject, "ops");
    for (size_t i = 0; good && i < p->n_nodes; i++) {
        add_node(p, i, names.at[i], json_add_object(p->maker, nodes, NULL));
        add_op(p, weft_graph_node(p->graph, i).op, ops);
    }
    weft__node_names_free(&names);
    return good;
}
