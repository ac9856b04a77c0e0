/* Operands and other arguments of calls, as text. */
#include "nodes.h"

#include "base/text.h"

#include <weft/call.h>

#include <limits.h>

const char *weft__emit_node_name(const emit_node *w, char *buffer, size_t size)
{
    const char *name = weft_name_of(w->f->g, emit_operand(w, w->node.n_in)), *scope = w->node.scope;
    if (name && *name)
        weft__text_format(buffer, size, "%s (%s)", name, w->node.op->name);
    else
        weft__text_format(buffer, size, "%s%s%s", scope, *scope ? "." : "", w->node.op->name);
    return buffer;
}

void weft__emit_fail(emit_node *w, weft_status status, const char *reason)
{
    char name[256];
    if (w->f->error->status == WEFT_OK)
        weft_error_set(w->f->error, status, weft__emit_node_name(w, name, sizeof name), "%s",
                       reason);
}

/* Fails for a number that is not an int. */
static long long int_of(emit_node *w, int64_t number)
{
    if (number > INT_MAX || number < -INT_MAX)
        weft__emit_fail(w, WEFT_TOO_LARGE, "a size or stride is over 2^31 - 1");
    return (long long)number;
}

/* The array has no name before all steps are known: equal ones are one. */
static void write_ints(emit_node *w, const weft_source_arg *arg, emit_text *to)
{
    emit_text text = {0};
    if (*w->shape) weft__emit_text_print(&text, "%s:", w->shape);
    for (size_t i = 0; i < arg->n_integers; i++)
        weft__emit_text_print(&text, i ? ", %lld" : "%lld", int_of(w, arg->integers[i]));
    if (!arg->n_integers) weft__emit_text_print(&text, "0");
    if (!text.failed)
        weft__emit_hole_text(to, *w->shape ? HOLE_SHAPE : HOLE_INTS, WEFT_I32, text.text);
    to->failed |= text.failed;
    weft__emit_text_free(&text);
}

/* The offset of memory after the arena of the file's plan, which ends after as many bytes. */
static size_t after_arena(emit_file *f, size_t bytes)
{
    const size_t offset = (f->plan_bytes + 7) / 8 * 8;
    if (f->arena_bytes < offset + bytes) f->arena_bytes = offset + bytes;
    return offset;
}

void weft__emit_after(const emit_node *w, size_t offset, emit_text *to)
{
    weft__emit_text_print(to, w->f->loop ? "((unsigned char *)m->arena + " : "(arena + ");
    weft__emit_hole_number(to, HOLE_OFFSET, (int64_t)offset);
    weft__emit_text_print(to, ")");
}

/* The node's scratch memory. A workspace of its kernel lies after the arena. */
static void write_scratch(const emit_node *w, emit_text *to)
{
    const weft_op *op = w->node.op;
    if (w->has_scratch || !op->workspace) {
        weft__emit_text_print(to, "(arena + ");
        weft__emit_hole_number(to, HOLE_OFFSET, (int64_t)w->scratch_offset);
        weft__emit_text_print(to, ")");
        return;
    }
    const weft_call call = {.attr = w->node.attr,
                            .in = w->tensors,
                            .out = w->tensors + w->node.n_in,
                            .n_in = w->node.n_in,
                            .n_out = w->node.n_out};
    weft__emit_after(w, after_arena(w->f, op->workspace(&call)), to);
}

size_t weft__emit_space(emit_file *f, int64_t floats)
{
    return after_arena(f, (size_t)floats * sizeof(float));
}

void weft__emit_operand(emit_node *w, size_t i, bool is_const, emit_text *to)
{
    const emit_row *row = w->rows ? &w->rows[i] : NULL;
    if (row && row->narrow) {
        weft__emit_text_print(to, "(%sfloat *)(void *)", is_const ? "const " : "");
        weft__emit_after(w, row->wide, to);
        return;
    }
    if (!weft_shape_numel(w->tensors[i].shape) && is_const) {
        /* Not an array without elements, which compilers may find to be read. */
        weft__emit_text_print(to, "(const %s *)(void *)arena",
                              weft__emit_type(w->tensors[i].dtype));
        return;
    }
    weft__emit_address(w->f, emit_operand(w, i), is_const, to);
    if (row && row->by_row && row->row)
        weft__emit_text_print(to, " + r * %lld", (long long)row->row);
}

static void write_arg(emit_node *w, const weft_source_arg *arg, weft_dtype dtype, emit_text *to)
{
    char number[EMIT_NUMBER_BYTES];
    switch (arg->kind) {
    case WEFT_SOURCE_IN:
        weft__emit_operand(w, (size_t)arg->integer, true, to);
        if (arg->offset) weft__emit_text_print(to, " + %lld", (long long)arg->offset);
        break;
    case WEFT_SOURCE_OUT:
        weft__emit_operand(w, w->node.n_in + (size_t)arg->integer, false, to);
        if (arg->offset) weft__emit_text_print(to, " + %lld", (long long)arg->offset);
        break;
    case WEFT_SOURCE_OUT_READ: {
        const weft_value out = emit_operand(w, w->node.n_in + (size_t)arg->integer);
        if (w->f->flags[weft__emit_storage_of(w->f, out).id] & EMIT_USED)
            weft__emit_operand(w, w->node.n_in + (size_t)arg->integer, false, to);
        else
            weft__emit_text_print(to, "0");
        break;
    }
    case WEFT_SOURCE_SCRATCH:
        weft__emit_text_print(to, "(double *)(void *)");
        write_scratch(w, to);
        break;
    case WEFT_SOURCE_INT:
        weft__emit_hole_number(to, HOLE_INT, int_of(w, arg->integer));
        break;
    case WEFT_SOURCE_NUMBER:
        weft__emit_text_print(to, "%s", weft__emit_number(arg->number, dtype, number));
        break;
    case WEFT_SOURCE_DOUBLE:
        weft__emit_text_print(to, "%s", weft__emit_number(arg->number, WEFT_F64, number));
        break;
    case WEFT_SOURCE_KEY:
        weft__emit_hole_number(to, HOLE_KEY, arg->integer);
        break;
    case WEFT_SOURCE_SEED:
        weft__emit_text_print(to, "m->seed" EMIT_COMMA "m->runs");
        break;
    case WEFT_SOURCE_INTS:
        write_ints(w, arg, to);
        break;
    case WEFT_SOURCE_TERMS:
        weft__emit_text_print(to, "terms");
        break;
    case WEFT_SOURCE_NONE:
        weft__emit_text_print(to, "0");
        break;
    case WEFT_SOURCE_SPACE:
        weft__emit_text_print(to, "(float *)(void *)");
        weft__emit_after(w, weft__emit_space(w->f, int_of(w, arg->integer)), to);
        break;
    }
}

void weft__emit_args(emit_node *w, const weft_source_call *call, bool begun)
{
    for (size_t i = 0; i < call->n_args; i++) {
        if (i || begun) weft__emit_text_print(&w->text, EMIT_COMMA);
        write_arg(w, &call->args[i], call->dtype, &w->text);
    }
}
