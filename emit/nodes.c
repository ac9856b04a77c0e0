/* The steps of a plan as calls of functions. */
#include "nodes.h"

#include "base/text.h"
#include "plan/plan.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

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

/* Finds the struct that the function reads the only array of ints of a call as. */
static void find_shape(emit_node *w, const weft_source_call *call, bool halves)
{
    char name[200];
    size_t n = 0, arrays = 0;
    weft__text_format(name, sizeof name, halves ? "%s_halves" : "%s", call->function);
    const char *text =
        weft__emit_items_text(&w->f->items, name, halves ? EMIT_HALVES : call->dtype, &n);
    for (size_t i = 0; i < call->n_args; i++) arrays += call->args[i].kind == WEFT_SOURCE_INTS;
    *w->shape = 0;
    if (text) weft__emit_shape_name(text, n, w->shape, sizeof w->shape);
    if (!*w->shape || arrays == 1) return;
    *w->shape = 0;
    w->f->keeps_shapes = true;
}

static void take_call(weft_source *s, const weft_source_call *call)
{
    emit_node *w = s->context;
    emit_file *f = w->f;
    char function[256];
    uint64_t halves;
    w->called = true;
    if (!find_function(w, call, function, sizeof function, &halves)) return;
    find_shape(w, call, halves != 0);
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
        weft__emit_hole_number(&w->text, HOLE_NODE, (int64_t)f->step + 1);
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
    weft__text_printable(name, sizeof name, weft__emit_node_name(w, full, sizeof full));
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
        weft_tensor constant;
        if (weft_constant_of(f->g, v, &constant)) w->tensors[i].data = constant.data;
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

static bool write_node(emit_file *f, const weft_plan_step *step, const plan_loop *loop)
{
    emit_node w = {.f = f, .node = weft_graph_node(f->g, step->node), .text = {.holes = true}};
    if (!w.node.op->source && !loop) {
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
        if (loop)
            weft__emit_loop(&w, loop);
        else if (by_rows(&w))
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
    for (size_t i = 0; i < n; i++) {
        f->step = f->first_step + i;
        if (!write_node(f, &steps[i], f->plan->steps[i].loop)) return false;
    }
    return true;
}
