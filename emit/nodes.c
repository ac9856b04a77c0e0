/* The steps of a plan as calls of functions, and loops over elements. */
#include "nodes.h"

#include "base/text.h"

#include <weft/call.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The node's name, or its scope, for comments and errors. */
static const char *node_name(const emit_node *w, char *buffer, size_t size)
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
        weft_error_set(w->f->error, status, node_name(w, name, sizeof name), "%s", reason);
}

/* ---- Calls ---- */

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
    for (size_t i = 0; i < arg->n_integers; i++)
        weft__emit_text_print(&text, i ? ", %lld" : "%lld", int_of(w, arg->integers[i]));
    if (!arg->n_integers) weft__emit_text_print(&text, "0");
    if (!text.failed) weft__emit_hole_text(to, HOLE_INTS, WEFT_I32, text.text);
    to->failed |= text.failed;
    weft__emit_text_free(&text);
}

/* The offset of memory after the plan's arena, which ends after as many bytes. */
static size_t after_arena(emit_file *f, size_t bytes)
{
    const size_t offset = (weft_plan_stats_of(f->plan).arena_bytes + 7) / 8 * 8;
    if (f->arena_bytes < offset + bytes) f->arena_bytes = offset + bytes;
    return offset;
}

/* The offset of the node's scratch memory. A workspace of its kernel lies after the plan's arena. */
static size_t scratch_of(const emit_node *w)
{
    const weft_op *op = w->node.op;
    if (w->has_scratch || !op->workspace) return w->scratch_offset;
    const weft_call call = {.attr = w->node.attr,
                            .in = w->tensors,
                            .out = w->tensors + w->node.n_in,
                            .n_in = w->node.n_in,
                            .n_out = w->node.n_out};
    return after_arena(w->f, op->workspace(&call));
}

size_t weft__emit_space(emit_file *f, int64_t floats)
{
    return after_arena(f, (size_t)floats * sizeof(float));
}

void weft__emit_operand(emit_node *w, size_t i, bool is_const, emit_text *to)
{
    const emit_row *row = w->rows ? &w->rows[i] : NULL;
    if (row && row->narrow) {
        weft__emit_text_print(to, "(%sfloat *)(void *)(arena + ", is_const ? "const " : "");
        weft__emit_hole_number(to, HOLE_OFFSET, (int64_t)row->wide);
        weft__emit_text_print(to, ")");
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
            weft__emit_address(w->f, out, false, to);
        else
            weft__emit_text_print(to, "0");
        break;
    }
    case WEFT_SOURCE_SCRATCH:
        weft__emit_text_print(to, "(double *)(void *)(arena + ");
        weft__emit_hole_number(to, HOLE_OFFSET, (int64_t)scratch_of(w));
        weft__emit_text_print(to, ")");
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
        weft__emit_text_print(to, "(float *)(void *)(arena + ");
        weft__emit_hole_number(to, HOLE_OFFSET,
                               (int64_t)weft__emit_space(w->f, int_of(w, arg->integer)));
        weft__emit_text_print(to, ")");
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

/* ---- Lists of inputs ---- */

static bool has_terms(const weft_source_call *call)
{
    for (size_t i = 0; i < call->n_args; i++)
        if (call->args[i].kind == WEFT_SOURCE_TERMS) return true;
    return false;
}

/* Opens a block with an array of the addresses of all inputs. */
static void write_terms(emit_node *w, const char *type)
{
    emit_text *to = &w->text;
    weft__emit_text_print(to, "    {\n    const %s *terms[%zu];\n", type, w->node.n_in);
    for (size_t i = 0; i < w->node.n_in; i++) {
        weft__emit_text_print(to, "    terms[%zu] = ", i);
        weft__emit_operand(w, i, true, to);
        weft__emit_text_print(to, ";\n");
    }
}

/* ---- Operands that are stored as bf16 ---- */

static bool has_narrow(const emit_node *w)
{
    bool narrow = false;
    for (size_t i = 0; i < emit_operands(w); i++) narrow = narrow || emit_is_narrow(w, i);
    return narrow;
}

/* Bit i: operand i of a call in f32 is stored as bf16. */
static uint64_t halves_of(const emit_node *w, const weft_source_call *call)
{
    uint64_t halves = 0;
    int bit = 0;
    if (call->dtype != WEFT_F32 || call->each || w->rows) return 0;
    for (size_t k = 0; k < call->n_args; k++) {
        const weft_source_arg *arg = &call->args[k];
        const bool out = arg->kind == WEFT_SOURCE_OUT || arg->kind == WEFT_SOURCE_OUT_READ;
        const size_t first = out ? w->node.n_in : 0;
        const size_t i = first + (size_t)arg->integer;
        const size_t n = arg->kind == WEFT_SOURCE_TERMS ? w->node.n_in : 1;
        if (arg->kind == WEFT_SOURCE_NONE) bit++;
        if (arg->kind != WEFT_SOURCE_IN && !out && arg->kind != WEFT_SOURCE_TERMS) continue;
        for (size_t t = 0; t < n; t++, bit++)
            if (bit < 31 && weft__emit_stored(w->f, emit_operand(w, n > 1 ? t : i)) == WEFT_BF16)
                halves |= UINT64_C(1) << bit;
    }
    return halves;
}

/* Whether the library's kernels read and write bf16, so that the op's source sees it. */
static bool is_native(const weft_op *op)
{
    bool native = false;
    for (int isa = 0; isa < WEFT_ISAS; isa++) native = native || op->kernel[isa][WEFT_BF16];
    return native;
}

/* ---- The receiver ---- */

/* Writes the function of a call, and its name to `function`. *halves: its last argument; 0: it has none.
 * False: an error is set. */
static bool find_function(emit_node *w, const weft_source_call *call, char *function, size_t size,
                          uint64_t *halves)
{
    emit_file *f = w->f;
    char name[200], reason[384];
    *halves = halves_of(w, call);
    if (call->text && !weft__emit_items_add(&f->items, call->text)) {
        weft__emit_fail(w, WEFT_BAD_ARGUMENT, "another text has a function of the same name");
        return false;
    }
    if (*halves) {
        weft__text_format(name, sizeof name, "%s_halves", call->function);
        if (emit_function(f, name, EMIT_HALVES, function, size)) return true;
        if (has_narrow(w)) {
            weft__emit_fail(w, WEFT_NO_KERNEL,
                            "cannot be written with an operand that is stored as bf16: keep its "
                            "scope in f32 (--keep-f32)");
            return false;
        }
        *halves = 0;
    }
    if (emit_function(f, call->function, call->dtype, function, size)) return true;
    weft__text_format(reason, sizeof reason, "no function is called \"%s\"", call->function);
    weft__emit_fail(w, WEFT_BAD_ARGUMENT, reason);
    return false;
}

static void take_call(weft_source *s, const weft_source_call *call)
{
    emit_node *w = s->context;
    emit_file *f = w->f;
    char function[256];
    uint64_t halves;
    w->called = true;
    if (!find_function(w, call, function, sizeof function, &halves)) return;
    if (call->each && w->node.n_in >= EMIT_MAX_OPERANDS) {
        weft__emit_fail(w, WEFT_TOO_LARGE, "has more than 63 inputs");
        return;
    }
    if (call->each) {
        weft__emit_each(w, call, function);
        return;
    }
    const bool terms = has_terms(call);
    if (terms) write_terms(w, halves ? "void" : weft__emit_type(call->dtype));
    weft__emit_text_print(&w->text, call->fails ? "    if (%s(" : "    %s(", function);
    weft__emit_args(w, call, false);
    if (halves) weft__emit_text_print(&w->text, EMIT_COMMA "%llu", (unsigned long long)halves);
    f->can_fail |= call->fails;
    if (call->fails) {
        weft__emit_text_print(&w->text, "))\n        return ");
        weft__emit_hole_number(&w->text, HOLE_INT, (int64_t)f->step + 1);
    } else {
        weft__emit_text_print(&w->text, ")");
    }
    weft__emit_text_print(&w->text, ";\n");
    if (terms) weft__emit_text_print(&w->text, "    }\n");
}

static void take_refusal(weft_source *s, const char *reason)
{
    weft__emit_fail(s->context, WEFT_NO_KERNEL, reason);
}

/* ---- Nodes ---- */

/* "3. ffn.0 (matmul): y = a b   [1, 784] [784, 32] -> [1, 32]" as a comment; the formula is the first
 * sentence of the op's documentation. Names of ONNX files may have any characters. */
static void write_comment(emit_node *w, emit_text *to)
{
    char full[256], name[256], shape[128];
    weft__text_printable(name, sizeof name, node_name(w, full, sizeof full));
    for (char *at = name; (at = strchr(at, '*'));) *at = '.';
    const char *doc = w->node.op->doc ? w->node.op->doc : "";
    const char *end = strstr(doc, ". "), *semicolon = strchr(doc, ';');
    size_t length = end ? (size_t)(end - doc) : strcspn(doc, "\n");
    if (semicolon && (size_t)(semicolon - doc) < length) length = (size_t)(semicolon - doc);
    if (length && doc[length - 1] == '.') length--;
    weft__emit_text_print(to, "\n    /* %zu. %s: %.*s\n       ", w->f->step + 1, name,
                          (int)(length < 300 ? length : 300), doc);
    for (size_t i = 0; i < emit_operands(w); i++)
        weft__emit_text_print(to, "%s %s", i == w->node.n_in ? " ->" : "",
                              weft_shape_text(w->tensors[i].shape, shape, sizeof shape));
    weft__emit_text_print(to, " */\n");
}

/* Fills in the types and strides of the operands. */
static bool find_operands(emit_node *w)
{
    const emit_file *f = w->f;
    const bool native = is_native(w->node.op);
    for (size_t i = 0; i < emit_operands(w); i++) {
        const weft_value v = emit_operand(w, i);
        const weft_layout layout = weft_layout_of(f->g, v);
        w->tensors[i].dtype = native ? weft__emit_stored(f, v) : weft_dtype_of(f->g, v);
        w->tensors[i].shape = weft_shape_of(f->g, v);
        memcpy(w->tensors[i].stride, layout.stride, sizeof layout.stride);
        /* Loops add the sizes of blocks to indices of elements, which are ints. */
        if (weft_shape_numel(w->tensors[i].shape) <= INT_MAX / 2) continue;
        weft__emit_fail(w, WEFT_TOO_LARGE, "an operand has 2^30 elements or more");
        return false;
    }
    return true;
}

static void write_calls(emit_node *w)
{
    static const weft_source_receiver receiver = {take_call, take_refusal};
    const weft_op *op = w->node.op;
    const size_t key = op->key_output || !w->node.n_in ? w->node.n_in : 0;
    weft_source source = {.receiver = &receiver,
                          .context = w,
                          .attr = w->node.attr,
                          .in = w->tensors,
                          .out = w->tensors + w->node.n_in,
                          .n_in = w->node.n_in,
                          .n_out = w->node.n_out,
                          .dtype = weft_dtype_of(w->f->g, emit_operand(w, key))};
    op->source(&source);
    if (!w->called) weft__emit_fail(w, WEFT_NO_KERNEL, "this node cannot be written as C");
}

/* Whether the node is called for one row after another: an op whose functions read and write floats, with
 * operands that are stored as bf16. */
static bool by_rows(const emit_node *w)
{
    return has_narrow(w) && w->node.op->rowwise && !is_native(w->node.op);
}

static bool write_node(emit_file *f, const weft_plan_step *step)
{
    emit_node w = {.f = f, .node = weft_graph_node(f->g, step->node), .text = {.holes = true}};
    if (!w.node.op->source) {
        weft__emit_fail(&w, WEFT_NO_KERNEL, "this op cannot be written as C yet");
        return false;
    }
    w.tensors = calloc(emit_operands(&w), sizeof *w.tensors);
    if (!w.tensors) {
        weft__emit_fail(&w, WEFT_NO_MEMORY, "out of memory");
        return false;
    }
    w.has_scratch = step->scratch != SIZE_MAX;
    if (w.has_scratch) w.scratch_offset = weft_plan_buffers(f->plan, NULL)[step->scratch].offset;
    if (find_operands(&w)) {
        emit_text comment = {0};
        write_comment(&w, &comment);
        if (by_rows(&w))
            weft__emit_rows(&w, write_calls);
        else
            write_calls(&w);
        if (w.called) weft__emit_steps_add(&f->steps, &comment, &w.text);
        weft__emit_text_free(&comment);
    }
    weft__emit_text_free(&w.text);
    free(w.tensors);
    if (f->steps.failed) weft__emit_fail(&w, WEFT_NO_MEMORY, "out of memory");
    return f->error->status == WEFT_OK;
}

bool weft__emit_nodes(emit_file *f)
{
    size_t n;
    const weft_plan_step *steps = weft_plan_steps(f->plan, &n);
    for (f->step = 0; f->step < n; f->step++)
        if (!write_node(f, &steps[f->step])) return false;
    return true;
}
