/* The steps of a plan as calls of functions, and loops over elements. */
#include "emit.h"

#include "base/text.h"

#include <weft/call.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Of a loop over elements. */
#define MAX_OPERANDS 64

/* A node under way. */
typedef struct node_writer {
    emit_file *f;
    weft_node_info node;
    weft_tensor *tensors; /* inputs, then outputs; without data */
    size_t scratch_offset;
    emit_text text; /* with holes */
    bool has_scratch, called;
} node_writer;

static weft_value operand(const node_writer *w, size_t i)
{
    return weft_value_from_id(w->f->g, i < w->node.n_in
                                           ? w->node.in[i]
                                           : w->node.first_out + (uint32_t)(i - w->node.n_in));
}

static const char *node_name(const node_writer *w, char *buffer, size_t size)
{
    const char *name = weft_name_of(w->f->g, operand(w, w->node.n_in)), *scope = w->node.scope;
    if (name && *name)
        weft__text_format(buffer, size, "%s (%s)", name, w->node.op->name);
    else
        weft__text_format(buffer, size, "%s%s%s", scope, *scope ? "." : "", w->node.op->name);
    return buffer;
}

static void fail(node_writer *w, weft_status status, const char *reason)
{
    char name[256];
    if (w->f->error->status == WEFT_OK)
        weft_error_set(w->f->error, status, node_name(w, name, sizeof name), "%s", reason);
}

/* ---- Calls ---- */

/* Fails for a number that is not an int. */
static long long int_of(node_writer *w, int64_t number)
{
    if (number > INT_MAX || number < -INT_MAX)
        fail(w, WEFT_TOO_LARGE, "a size or stride is over 2^31 - 1");
    return (long long)number;
}

/* The array has no name before all steps are known: equal ones are one. */
static void write_ints(node_writer *w, const weft_source_arg *arg, emit_text *to)
{
    emit_text text = {0};
    for (size_t i = 0; i < arg->n_integers; i++)
        weft__emit_text_print(&text, i ? ", %lld" : "%lld", int_of(w, arg->integers[i]));
    if (!arg->n_integers) weft__emit_text_print(&text, "0");
    if (!text.failed) weft__emit_hole_text(to, HOLE_INTS, WEFT_I32, text.text);
    to->failed |= text.failed;
    weft__emit_text_free(&text);
}

/* The offset of the node's scratch memory. A workspace of its kernel lies after the plan's arena. */
static size_t scratch_of(const node_writer *w)
{
    const weft_op *op = w->node.op;
    if (w->has_scratch || !op->workspace) return w->scratch_offset;
    const weft_call call = {.attr = w->node.attr,
                            .in = w->tensors,
                            .out = w->tensors + w->node.n_in,
                            .n_in = w->node.n_in,
                            .n_out = w->node.n_out};
    const size_t offset = (weft_plan_stats_of(w->f->plan).arena_bytes + 7) / 8 * 8;
    const size_t end = offset + op->workspace(&call);
    if (w->f->arena_bytes < end) w->f->arena_bytes = end;
    return offset;
}

static void write_arg(node_writer *w, const weft_source_arg *arg, weft_dtype dtype, emit_text *to)
{
    char number[EMIT_NUMBER_BYTES];
    switch (arg->kind) {
    case WEFT_SOURCE_IN:
        weft__emit_address(w->f, operand(w, (size_t)arg->integer), true, to);
        if (arg->offset) weft__emit_text_print(to, " + %lld", (long long)arg->offset);
        break;
    case WEFT_SOURCE_OUT:
        weft__emit_address(w->f, operand(w, w->node.n_in + (size_t)arg->integer), false, to);
        if (arg->offset) weft__emit_text_print(to, " + %lld", (long long)arg->offset);
        break;
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
    }
}

/* Writes the arguments; `begun`: others stand before them. */
static void write_args(node_writer *w, const weft_source_call *call, bool begun)
{
    for (size_t i = 0; i < call->n_args; i++) {
        if (i || begun) weft__emit_text_print(&w->text, EMIT_COMMA);
        write_arg(w, &call->args[i], call->dtype, &w->text);
    }
}

/* ---- Loops over elements ---- */

/* Dimensions of a loop nest, outermost first, and the strides of all operands: output 0, then the
 * inputs. */
typedef struct nest {
    int rank;
    int64_t size[WEFT_MAX_RANK], stride[MAX_OPERANDS][WEFT_MAX_RANK];
    size_t n;
} nest;

/* The stride of dimension d of the output's shape in operand t, which broadcasts to it. */
static int64_t stride_in(const weft_tensor *t, const weft_shape *shape, int d)
{
    const int axis = d - (shape->rank - t->shape.rank);
    return axis < 0 || t->shape.dim[axis] == 1 ? 0 : t->stride[axis];
}

/* Neighbouring dimensions are one loop where all operands continue from row to row. */
static nest nest_of(const node_writer *w)
{
    const weft_tensor *out = &w->tensors[w->node.n_in];
    nest l = {.n = w->node.n_in + 1};
    for (int d = 0; d < out->shape.rank; d++) {
        const int64_t size = out->shape.dim[d];
        bool joins = l.rank > 0;
        if (size == 1) continue;
        for (size_t k = 0; k < l.n; k++) {
            const int64_t step = stride_in(k ? &w->tensors[k - 1] : out, &out->shape, d);
            joins = joins && l.stride[k][l.rank - 1] == step * size;
        }
        if (!joins) l.rank++;
        l.size[l.rank - 1] = joins ? l.size[l.rank - 1] * size : size;
        for (size_t k = 0; k < l.n; k++)
            l.stride[k][l.rank - 1] = stride_in(k ? &w->tensors[k - 1] : out, &out->shape, d);
    }
    return l;
}

static void write_index(const nest *l, size_t operand, emit_text *to)
{
    bool first = true;
    weft__emit_text_print(to, "[");
    for (int d = 0; d < l->rank; d++) {
        const long long step = (long long)l->stride[operand][d];
        if (!step) continue;
        weft__emit_text_print(to, first ? "" : step < 0 ? " - " : " + ");
        if (step == 1)
            weft__emit_text_print(to, "i%d", d);
        else
            weft__emit_text_print(to, "i%d * %lld", d, first || step > 0 ? step : -step);
        first = false;
    }
    weft__emit_text_print(to, first ? "0]" : "]");
}

static void write_each(node_writer *w, const weft_source_call *call, const char *function)
{
    emit_text *to = &w->text;
    const nest l = nest_of(w);
    int indent = 8;
    weft__emit_text_print(to, "    {\n        ");
    for (size_t k = 0; k < l.n; k++) {
        const size_t i = k ? k - 1 : w->node.n_in;
        weft__emit_text_print(to, "%s%s *%s%.0zu = ", k ? "const " : "",
                              weft__emit_type(w->tensors[i].dtype), k ? "in" : "out", k ? k : 0);
        weft__emit_address(w->f, operand(w, i), k != 0, to);
        weft__emit_text_print(to, ";\n        ");
    }
    if (l.rank) {
        weft__emit_text_print(to, "int i0");
        for (int d = 1; d < l.rank; d++) weft__emit_text_print(to, ", i%d", d);
        weft__emit_text_print(to, ";\n        ");
    }
    for (int d = 0; d < l.rank; d++) {
        if (l.size[d] > INT_MAX) fail(w, WEFT_TOO_LARGE, "a size is over 2^31 - 1");
        if (d == l.rank - 1 && w->f->options->kernels == WEFT_EMIT_SIMD)
            weft__emit_text_print(to, "SIMD_LOOP\n%*s", indent, "");
        weft__emit_text_print(to, "for (i%d = 0; i%d < %lld; i%d++)\n%*s", d, d,
                              (long long)l.size[d], d, indent += 4, "");
    }
    weft__emit_text_print(to, "out");
    write_index(&l, 0, to);
    weft__emit_text_print(to, " = %s(", function);
    for (size_t k = 1; k < l.n; k++) {
        weft__emit_text_print(to, k > 1 ? ", in%zu" : "in%zu", k);
        write_index(&l, k, to);
    }
    write_args(w, call, l.n > 1);
    weft__emit_text_print(to, ");\n    }\n");
}

/* ---- Lists of inputs ---- */

static bool has_terms(const weft_source_call *call)
{
    for (size_t i = 0; i < call->n_args; i++)
        if (call->args[i].kind == WEFT_SOURCE_TERMS) return true;
    return false;
}

/* Opens a block with an array of the addresses of all inputs. */
static void write_terms(node_writer *w, weft_dtype dtype)
{
    emit_text *to = &w->text;
    weft__emit_text_print(to, "    {\n    const %s *terms[%zu];\n", weft__emit_type(dtype),
                          w->node.n_in);
    for (size_t i = 0; i < w->node.n_in; i++) {
        weft__emit_text_print(to, "    terms[%zu] = ", i);
        weft__emit_address(w->f, operand(w, i), true, to);
        weft__emit_text_print(to, ";\n");
    }
}

/* ---- The receiver ---- */

static void take_call(weft_source *s, const weft_source_call *call)
{
    node_writer *w = s->context;
    emit_file *f = w->f;
    char function[256], reason[384];
    w->called = true;
    if (call->text && !weft__emit_items_add(&f->items, call->text)) {
        fail(w, WEFT_BAD_ARGUMENT, "another text has a function of the same name");
        return;
    }
    if (!emit_function(f, call->function, call->dtype, function, sizeof function)) {
        weft__text_format(reason, sizeof reason, "no function is called \"%s\"", call->function);
        fail(w, WEFT_BAD_ARGUMENT, reason);
        return;
    }
    if (call->each && w->node.n_in >= MAX_OPERANDS) {
        fail(w, WEFT_TOO_LARGE, "has more than 63 inputs");
        return;
    }
    if (call->each) {
        write_each(w, call, function);
        return;
    }
    const bool terms = has_terms(call);
    if (terms) write_terms(w, call->dtype);
    weft__emit_text_print(&w->text, call->fails ? "    if (%s(" : "    %s(", function);
    write_args(w, call, false);
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
    fail(s->context, WEFT_NO_KERNEL, reason);
}

/* ---- Nodes ---- */

/* "3. ffn.0 (matmul): y = a b   [1, 784] [784, 32] -> [1, 32]" as a comment; the formula is the first
 * sentence of the op's documentation. Names of ONNX files may have any characters. */
static void write_comment(node_writer *w, emit_text *to)
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
    for (size_t i = 0; i < w->node.n_in + w->node.n_out; i++)
        weft__emit_text_print(to, "%s %s", i == w->node.n_in ? " ->" : "",
                              weft_shape_text(w->tensors[i].shape, shape, sizeof shape));
    weft__emit_text_print(to, " */\n");
}

/* Fills in the types and strides of the operands. */
static bool find_operands(node_writer *w)
{
    const emit_file *f = w->f;
    for (size_t i = 0; i < w->node.n_in + w->node.n_out; i++) {
        const weft_value v = operand(w, i);
        const weft_layout layout = weft_layout_of(f->g, v);
        w->tensors[i].dtype = weft_dtype_of(f->g, v);
        w->tensors[i].shape = weft_shape_of(f->g, v);
        memcpy(w->tensors[i].stride, layout.stride, sizeof layout.stride);
        /* Loops add the sizes of blocks to indices of elements, which are ints. */
        if (weft_shape_numel(w->tensors[i].shape) <= INT_MAX / 2) continue;
        fail(w, WEFT_TOO_LARGE, "an operand has 2^30 elements or more");
        return false;
    }
    return true;
}

static void write_calls(node_writer *w)
{
    static const weft_source_receiver receiver = {take_call, take_refusal};
    const weft_op *op = w->node.op;
    weft_source source = {.receiver = &receiver,
                          .context = w,
                          .attr = w->node.attr,
                          .in = w->tensors,
                          .out = w->tensors + w->node.n_in,
                          .n_in = w->node.n_in,
                          .n_out = w->node.n_out,
                          .dtype = op->key_output || !w->node.n_in ? w->tensors[w->node.n_in].dtype
                                                                   : w->tensors[0].dtype};
    op->source(&source);
    if (!w->called) fail(w, WEFT_NO_KERNEL, "this node cannot be written as C");
}

static bool write_node(emit_file *f, const weft_plan_step *step)
{
    node_writer w = {.f = f, .node = weft_graph_node(f->g, step->node), .text = {.holes = true}};
    if (!w.node.op->source) {
        fail(&w, WEFT_NO_KERNEL, "this op cannot be written as C yet");
        return false;
    }
    w.tensors = calloc(w.node.n_in + w.node.n_out, sizeof *w.tensors);
    if (!w.tensors) {
        fail(&w, WEFT_NO_MEMORY, "out of memory");
        return false;
    }
    w.has_scratch = step->scratch != SIZE_MAX;
    if (w.has_scratch) w.scratch_offset = weft_plan_buffers(f->plan, NULL)[step->scratch].offset;
    if (find_operands(&w)) {
        emit_text comment = {0};
        write_comment(&w, &comment);
        write_calls(&w);
        if (w.called) weft__emit_steps_add(&f->steps, &comment, &w.text);
        weft__emit_text_free(&comment);
    }
    weft__emit_text_free(&w.text);
    free(w.tensors);
    if (f->steps.failed) fail(&w, WEFT_NO_MEMORY, "out of memory");
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
