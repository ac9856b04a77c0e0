/* Where values lie: in the arena at the plan's offsets, in the states, or in arrays of the file. */
#include "emit.h"

#include "base/text.h"
#include "ir/ir.h"
#include "plan/plan.h"

#include <string.h>

weft_dtype weft__emit_stored(const emit_file *f, weft_value value)
{
    return f->g->values[value.id].stored;
}

weft_value weft__emit_storage_of(const emit_file *f, weft_value value)
{
    /* A view lies in its input's storage, and an updated state in that of the state. */
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

/* A value in a buffer of a loop's body that is given: in what a step reads or writes. */
static emit_place place_in_loop(const plan_loop *l, size_t buffer, int64_t offset)
{
    const scan_body *b = l->scan->body;
    uint32_t k = 0;
    for (uint32_t i = 0; i < scan_inputs(b); i++)
        if (l->in[i] == buffer + 1) return (emit_place){EMIT_LOOP_IN, i, offset};
    while (k + 1 < b->n_carry + b->n_out &&
           !(l->direct[k] && l->body->buffer_of[l->value[k]] == buffer + 1))
        k++;
    return (emit_place){EMIT_LOOP_OUT, k, offset};
}

emit_place weft__emit_place(const emit_file *f, weft_value value)
{
    const weft_layout layout = weft_layout_of(f->g, value);
    const int64_t bytes = layout.offset * (int64_t)weft_dtype_bytes(weft__emit_stored(f, value));
    const size_t buffer = weft_plan_buffer_of(f->plan, value);
    if (buffer != SIZE_MAX && f->loop && f->plan->given[buffer])
        return place_in_loop(f->loop, buffer, bytes);
    if (buffer != SIZE_MAX) {
        const size_t offset = weft_plan_buffers(f->plan, NULL)[buffer].offset;
        return (emit_place){EMIT_ARENA, 0, (int64_t)offset + bytes};
    }
    const weft_value root = weft__emit_storage_of(f, value);
    const uint32_t state = f->loop ? 0 : f->state_of[root.id];
    if (state && !f->states[state - 1].array)
        return (emit_place){EMIT_STATES, root.id, (int64_t)f->states[state - 1].offset + bytes};
    return (emit_place){EMIT_ARRAY, root.id, layout.offset};
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

/* The name of an array that all constants with these elements share: those of bodies, so that equal bodies have
 * equal texts, and single elements. */
static void shared_name(emit_file *f, const weft_tensor *tensor, char buffer[EMIT_NAME_BYTES + 32])
{
    emit_text text = {0};
    weft__emit_array(&text, "", tensor);
    const size_t *known = text.failed ? NULL : weft__name_table_find(&f->constants, text.text);
    const size_t number = known ? *known : f->constants.count + 1;
    weft__text_format(buffer, EMIT_NAME_BYTES + 32, "shared_constant_%zu", number);
    if (!known) {
        const char *copy = text.failed ? NULL : weft__arena_text(&f->steps.memory, text.text);
        if (!copy || !weft__name_table_put(&f->constants, copy, number)) f->steps.failed = true;
        weft__emit_array(&f->arrays, buffer, tensor);
    }
    weft__emit_text_free(&text);
}

/* The name of a state's or constant's array, which is written if it is not yet there. */
static void array_name(emit_file *f, uint32_t root, char buffer[EMIT_NAME_BYTES + 32])
{
    weft_tensor tensor;
    char identifier[EMIT_NAME_BYTES];
    const weft_value value = weft_value_from_id(f->g, root);
    const char *name = weft_name_of(f->g, value);
    const bool constant = weft_constant_of(f->g, value, &tensor);
    if (constant && f->loop) {
        shared_name(f, &tensor, buffer);
        return;
    }
    if (constant)
        weft__text_format(buffer, EMIT_NAME_BYTES + 32, "constant_%u", root);
    else
        weft__text_format(buffer, EMIT_NAME_BYTES + 32, "state_%s_%u",
                          weft__emit_identifier(name ? name : "", identifier), root);
    if (f->flags[root] & EMIT_HAS_ARRAY) return;
    f->flags[root] |= EMIT_HAS_ARRAY;
    if (constant || weft_params_find(f->options->params, name, &tensor))
        weft__emit_array(&f->arrays, buffer, &tensor);
}

/* The element of an array of the file. */
static void write_element(emit_file *f, const emit_place *at, weft_dtype dtype, emit_text *to)
{
    char name[EMIT_NAME_BYTES + 32], expression[EMIT_NAME_BYTES + 64];
    array_name(f, at->root, name);
    weft__text_format(expression, sizeof expression, at->offset ? "%s + %lld" : "%s", name,
                      (long long)at->offset);
    weft__emit_hole_text(to, HOLE_ARRAY, dtype, expression);
}

bool weft__emit_is_uniform(const emit_file *f, weft_value value)
{
    weft_tensor t;
    if (!weft_constant_of(f->g, weft__emit_storage_of(f, value), &t)) return false;
    const size_t one = weft_dtype_bytes(t.dtype), all = weft_tensor_bytes(t.dtype, t.shape);
    return all > one && !memcmp(t.data, (const char *)t.data + one, all - one);
}

void weft__emit_single(emit_file *f, weft_value value, emit_text *to)
{
    weft_tensor t;
    char name[EMIT_NAME_BYTES + 32];
    weft_constant_of(f->g, weft__emit_storage_of(f, value), &t);
    t.shape = WEFT_SHAPE(1);
    shared_name(f, &t, name);
    weft__emit_hole_text(to, HOLE_ARRAY, t.dtype, name);
}

/* The byte of the arena, of the states, or of what a step of a loop reads or writes. */
static void write_byte(const emit_place *at, emit_text *to)
{
    if (at->storage == EMIT_LOOP_IN || at->storage == EMIT_LOOP_OUT)
        weft__emit_text_print(to, "loop->%s%u + ", at->storage == EMIT_LOOP_IN ? "in" : "out",
                              at->root);
    else
        weft__emit_text_print(to, at->storage == EMIT_ARENA ? "arena + " : "states + ");
    weft__emit_hole_number(to, HOLE_OFFSET, at->offset);
}

void weft__emit_address(emit_file *f, weft_value value, bool is_const, emit_text *to)
{
    const weft_dtype dtype = weft__emit_stored(f, value);
    const emit_place at = weft__emit_place(f, value);
    if (at.storage == EMIT_ARRAY) {
        write_element(f, &at, dtype, to);
        return;
    }
    weft__emit_text_print(to, "(%s%s *)(%svoid *)(", is_const ? "const " : "",
                          weft__emit_type(dtype), at.storage == EMIT_LOOP_IN ? "const " : "");
    write_byte(&at, to);
    weft__emit_text_print(to, ")");
}

void weft__emit_bytes(emit_file *f, weft_value value, emit_text *to)
{
    const emit_place at = weft__emit_place(f, value);
    if (at.storage != EMIT_ARRAY) {
        write_byte(&at, to);
        return;
    }
    weft__emit_text_print(to, "(const unsigned char *)(const void *)(");
    write_element(f, &at, weft__emit_stored(f, value), to);
    weft__emit_text_print(to, ")");
}
