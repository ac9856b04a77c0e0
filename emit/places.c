/* Where values lie: in the arena at the plan's offsets, in the states, or in arrays of the file. */
#include "emit.h"

#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define STATE_ALIGNMENT 16

const char *weft__emit_identifier(const char *name, char buffer[EMIT_NAME_BYTES])
{
    size_t n = 0;
    if (isdigit((unsigned char)*name)) buffer[n++] = '_';
    for (; *name && n + 1 < EMIT_NAME_BYTES; name++)
        buffer[n++] = isalnum((unsigned char)*name) ? *name : '_';
    buffer[n] = 0;
    return buffer;
}

/* The input in whose storage output `out` of a node lies: of a view, and of an updated state. */
static weft_value storage_of(const emit_file *f, weft_value value)
{
    for (;;) {
        const weft_node_info node = weft_graph_node(f->g, weft_producer_of(f->g, value));
        const size_t out = value.id - node.first_out;
        if (node.op->updates > out)
            value = weft_value_from_id(f->g, node.in[out]);
        else if (node.op->alias)
            value = weft_value_from_id(f->g, node.in[0]);
        else
            return value;
    }
}

emit_place weft__emit_place(const emit_file *f, weft_value value)
{
    const weft_layout layout = weft_layout_of(f->g, value);
    const int64_t bytes = layout.offset * (int64_t)weft_dtype_bytes(weft_dtype_of(f->g, value));
    const size_t buffer = weft_plan_buffer_of(f->plan, value);
    if (buffer != SIZE_MAX) {
        const size_t offset = weft_plan_buffers(f->plan, NULL)[buffer].offset;
        return (emit_place){EMIT_ARENA, 0, (int64_t)offset + bytes};
    }
    const weft_value root = storage_of(f, value);
    for (size_t i = 0; i < f->n_states; i++)
        if (f->states[i].id == root.id && !f->states[i].array)
            return (emit_place){EMIT_STATES, root.id, (int64_t)f->states[i].offset + bytes};
    return (emit_place){EMIT_ARRAY, root.id, layout.offset};
}

/* ---- States ---- */

static bool is_updated(const emit_file *f, uint32_t id)
{
    size_t n;
    const weft_plan_step *steps = weft_plan_steps(f->plan, &n);
    for (size_t i = 0; i < n; i++) {
        const weft_node_info node = weft_graph_node(f->g, steps[i].node);
        for (size_t k = 0; k < node.op->updates; k++)
            if (storage_of(f, weft_value_from_id(f->g, node.in[k])).id == id) return true;
    }
    return false;
}

/* Whether a step reads or updates the state, or it is a target. */
static bool is_used(const emit_file *f, uint32_t id)
{
    size_t n;
    const weft_plan_step *steps = weft_plan_steps(f->plan, &n);
    for (size_t i = 0; i < n; i++) {
        const weft_node_info node = weft_graph_node(f->g, steps[i].node);
        for (size_t k = 0; k < node.n_in; k++)
            if (storage_of(f, weft_value_from_id(f->g, node.in[k])).id == id) return true;
    }
    return false;
}

bool weft__emit_find_states(emit_file *f)
{
    const size_t n = weft_graph_node_count(f->g);
    f->states = calloc(n + 1, sizeof *f->states);
    if (!f->states) {
        weft_error_set(f->error, WEFT_NO_MEMORY, "weft_emit", "out of memory");
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        const weft_node_info node = weft_graph_node(f->g, i);
        weft_tensor have;
        if (node.op != &weft_op_state || !is_used(f, node.first_out)) continue;
        emit_state *s = &f->states[f->n_states++];
        const weft_value value = weft_value_from_id(f->g, node.first_out);
        *s = (emit_state){.id = node.first_out,
                          .type = {weft_dtype_of(f->g, value), weft_shape_of(f->g, value)},
                          .name = weft_name_of(f->g, value),
                          .updated = is_updated(f, node.first_out)};
        if (f->options->params && !weft_params_find(f->options->params, s->name, &have)) {
            weft_error_set(f->error, WEFT_NOT_FOUND, s->name, "is not among the parameters given");
            return false;
        }
        s->bytes = weft_tensor_bytes(s->type.dtype, s->type.shape);
        s->array = f->options->params && !s->updated;
        if (s->array) continue;
        s->offset = f->state_bytes;
        f->state_bytes += (s->bytes + STATE_ALIGNMENT - 1) / STATE_ALIGNMENT * STATE_ALIGNMENT;
    }
    return true;
}

/* ---- Arrays ---- */

void weft__emit_array(emit_text *to, const char *name, const weft_tensor *tensor)
{
    char number[EMIT_NUMBER_BYTES];
    const int64_t n = weft_shape_numel(tensor->shape);
    const int rank = tensor->shape.rank;
    const int64_t row = rank && tensor->shape.dim[rank - 1] ? tensor->shape.dim[rank - 1] : 1;
    size_t column = 0;
    weft__emit_text_print(to, "static const %s %s[%lld] = {", weft__emit_type(tensor->dtype), name,
                          (long long)(n ? n : 1));
    for (int64_t i = 0; i < n; i++) {
        weft__emit_number(weft_tensor_element(tensor, i), tensor->dtype, number);
        const size_t length = strlen(number) + 2;
        if (i % row == 0 || column + length > 100) {
            weft__emit_text_print(to, "\n    ");
            column = 4;
        } else {
            weft__emit_text_print(to, " ");
        }
        weft__emit_text_print(to, "%s,", number);
        column += length;
    }
    weft__emit_text_print(to, n ? "\n};\n\n" : "0};\n\n");
}

/* The name of a state's or constant's array, which is written if it is not yet there. */
static void array_name(emit_file *f, uint32_t root, char buffer[EMIT_NAME_BYTES + 32])
{
    weft_tensor tensor;
    char identifier[EMIT_NAME_BYTES];
    const weft_value value = weft_value_from_id(f->g, root);
    const char *name = weft_name_of(f->g, value);
    const bool constant = weft_constant_of(f->g, value, &tensor);
    if (constant)
        weft__text_format(buffer, EMIT_NAME_BYTES + 32, "constant_%u", root);
    else
        weft__text_format(buffer, EMIT_NAME_BYTES + 32, "state_%s_%u",
                          weft__emit_identifier(name ? name : "", identifier), root);
    if (f->has_array[root]) return;
    f->has_array[root] = true;
    if (!constant && !weft_params_find(f->options->params, name, &tensor)) return;
    weft__emit_array(&f->arrays, buffer, &tensor);
}

void weft__emit_address(emit_file *f, weft_value value, bool is_const, emit_text *to)
{
    char name[EMIT_NAME_BYTES + 32];
    const emit_place at = weft__emit_place(f, value);
    if (at.storage == EMIT_ARRAY) {
        array_name(f, at.root, name);
        weft__emit_text_print(to, at.offset ? "%s + %lld" : "%s", name, (long long)at.offset);
        return;
    }
    weft__emit_text_print(to, "(%s%s *)(void *)(%s + %lld)", is_const ? "const " : "",
                          weft__emit_type(weft_dtype_of(f->g, value)),
                          at.storage == EMIT_ARENA ? "arena" : "states", (long long)at.offset);
}
