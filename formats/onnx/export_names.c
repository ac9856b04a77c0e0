/* Names of an exported file. Leaves and named values keep the graph's names, and outputs have those
 * that the caller wants. Others are named after the scope and the op: "enc.0.attn/matmul_12". Names of
 * values are unique in the whole file, since a body must not redefine those around it; the bodies come
 * last, so that a name of the graph is not taken by one. */
#include "onnx/export.h"

#include "base/name_table.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

typedef struct naming {
    export_record *record;
    export_names *names;
    name_table taken; /* by name: the first number not yet appended to it */
} naming;

/* ---- Names that are taken ---- */

static weft_status no_memory(export_record *r)
{
    return weft_error_set(r->error, WEFT_NO_MEMORY, "export", "no memory for the names");
}

/* False if the name is taken, or out of memory (which the record's error says). */
static bool take(naming *n, const char *name)
{
    const size_t before = n->taken.count;
    if (!weft__name_table_put(&n->taken, name, 1)) no_memory(n->record);
    return n->taken.count > before;
}

/* A copy of the name in the record's memory, with a number appended if it is taken. */
static const char *take_unique(naming *n, const char *name)
{
    const size_t room = strlen(name) + TEXT_NUMBER_BYTES;
    char *copy = weft__arena_alloc(&n->record->memory, room);
    if (!copy || !weft__name_table_reserve(&n->taken, 1)) return no_memory(n->record), NULL;
    snprintf(copy, room, "%s", name);
    size_t *next = weft__name_table_find(&n->taken, name); /* the number that is tried next */
    while (next && weft__name_table_find(&n->taken, copy))
        snprintf(copy, room, "%s_%zu", name, (*next)++);
    take(n, copy);
    return copy;
}

/* ---- Outputs ---- */

/* The operand of an output, which a node computes and which differs from all other outputs.
 * is_output: by operand of the graph. */
static weft_operand own_operand(export_record *r, weft_operand operand, bool *is_output)
{
    const bool own = r->operands[operand.id].kind == EXPORT_OUTPUT && !is_output[operand.id];
    is_output[operand.id] = true;
    return own ? operand : weft__export_add_node(r, "Identity", &operand, 1, 1);
}

static weft_status name_output(naming *n, weft_value value, size_t i, size_t n_outputs,
                               const char *wanted, weft_operand operand)
{
    export_record *r = n->record;
    const char *own = weft_name_of(r->graph, value);
    char name[32] = "output";
    if (n_outputs > 1) snprintf(name, sizeof name, "output_%zu", i);
    if (wanted) {
        const char *copy = weft__arena_text(&r->memory, wanted);
        if (!copy) return no_memory(r);
        if (!wanted[0] || !take(n, copy))
            return weft_error_set(r->error, WEFT_BAD_ARGUMENT, wanted,
                                  "is not a valid output name: it is empty, or an input, a state "
                                  "or another output has it");
        n->names->operand[operand.id] = copy;
        return WEFT_OK;
    }
    n->names->operand[operand.id] = take_unique(n, own[0] ? own : name);
    return r->error->status;
}

/* ---- Values and nodes ---- */

static weft_status name_leaves(naming *n)
{
    export_record *r = n->record;
    for (size_t i = 1; i < r->n_operands; i++) {
        const export_operand *operand = &r->operands[i];
        if (operand->kind != EXPORT_LEAF) continue;
        const weft_value v = weft_value_from_id(r->graph, operand->index);
        n->names->operand[i] = weft__arena_text(&r->memory, weft_name_of(r->graph, v));
        if (!n->names->operand[i]) return no_memory(r);
        take(n, n->names->operand[i]);
    }
    return WEFT_OK;
}

static void name_constants(naming *n)
{
    export_record *r = n->record;
    char name[32];
    for (size_t k = 0; k < r->n_constants && r->error->status == WEFT_OK; k++) {
        snprintf(name, sizeof name, "constant_%zu", k);
        n->names->operand[r->constants[k].operand.id] = take_unique(n, name);
    }
}

/* Names a node after its label, and with its type and number if the label has several nodes. An import
 * removes what follows the scope (labels.c), so that a name does not grow with every round. */
static void name_node(naming *n, size_t index)
{
    export_record *r = n->record;
    const export_node *node = &r->nodes[index];
    const char *base = node->label->text;
    char name[EXPORT_NAME_BYTES + 64];
    if (node->label->n_nodes > 1)
        snprintf(name, sizeof name, "%s/%.24s_%zu", base, node->type, node->number);
    else
        snprintf(name, sizeof name, "%s", base);
    n->names->node[index] = weft__arena_text(&r->memory, name);
    if (!n->names->node[index]) {
        no_memory(r);
        return;
    }
    for (size_t k = 0; k < node->n_out && r->error->status == WEFT_OK; k++) {
        const uint32_t id = node->first_out.id + (uint32_t)k;
        const char *own = r->operands[id].name;
        if (!n->names->operand[id]) n->names->operand[id] = take_unique(n, own ? own : name);
    }
}

static void name_nodes(naming *n)
{
    export_record *r = n->record;
    for (size_t i = 0; i < r->n_nodes && r->error->status == WEFT_OK; i++)
        if (!r->nodes[i].body) name_node(n, i);
    for (size_t i = 1; i < r->n_operands && r->error->status == WEFT_OK; i++)
        if (r->operands[i].kind == EXPORT_BODY_IN)
            n->names->operand[i] = take_unique(n, r->operands[i].name);
    for (size_t i = 0; i < r->n_nodes && r->error->status == WEFT_OK; i++)
        if (r->nodes[i].body) name_node(n, i);
}

weft_status weft__export_name(export_record *r, const weft_value *outputs, size_t n_outputs,
                              const char *const *output_names, weft_operand *operands,
                              export_names *names)
{
    naming n = {.record = r, .names = names, .taken.memory = &r->memory};
    bool *is_output = weft__arena_alloc(&r->memory, r->n_operands * sizeof *is_output);
    if (!is_output) return no_memory(r);
    for (size_t i = 0; i < n_outputs && r->error->status == WEFT_OK; i++)
        operands[i] = own_operand(r, r->of_value[outputs[i].id], is_output);
    names->operand = weft__arena_alloc(&r->memory, r->n_operands * sizeof *names->operand);
    names->node = weft__arena_alloc(&r->memory, (r->n_nodes + 1) * sizeof *names->node);
    if (!names->operand || !names->node) return no_memory(r);
    if (r->error->status == WEFT_OK) name_leaves(&n);
    for (size_t i = 0; i < n_outputs && r->error->status == WEFT_OK; i++)
        name_output(&n, outputs[i], i, n_outputs, output_names ? output_names[i] : NULL,
                    operands[i]);
    if (r->error->status == WEFT_OK) name_constants(&n);
    if (r->error->status == WEFT_OK) name_nodes(&n);
    return r->error->status;
}
