/* Scans as nodes of ONNX, whose bodies are graphs. Where all steps run, and read a sequence, the node
 * is Scan. Where data decide the end, or without a sequence, it is Loop; then a step gathers its row
 * of a sequence. Where a sequence says which steps run, it is Scan with an If in its body. A scan of one
 * such step is If (export_branch.c). O(nodes of the body). */
#include "onnx/export_scan.h"

#include <string.h>

bool weft__export_open_step(export_record *r, export_frame *step, const scan_body *b,
                            const weft_operand *in, const bool *wanted)
{
    weft_value out[WEFT_MAX_OUTPUTS];
    size_t n = 0;
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++)
        if (k < b->n_carry || wanted[k]) out[n++] = weft_value_from_id(b->graph, b->out[k]);
    if (export_failed(r) || !weft__export_open_frame(r, step, b->graph, true, out, n)) return false;
    for (uint32_t i = b->n_carry + b->n_each; i < scan_inputs(b); i++)
        step->of_value[b->in[i]] = in[i];
    return true;
}

/* An input of the ONNX body for input i of the weft body. */
static weft_operand add_input(export_record *r, const scan_body *b, uint32_t i)
{
    const char *name = weft_name_of(b->graph, weft_value_from_id(b->graph, b->in[i]));
    if (!name[0]) name = i < b->n_carry ? "carry" : "row";
    return weft__export_body_in(r, export_type_of(b, b->in[i]), export_shape_of(b, b->in[i]), name);
}

static void add_output(export_record *r, const scan_body *b, uint32_t k, weft_operand operand)
{
    weft__export_body_out(r, export_type_of(b, b->out[k]), export_shape_of(b, b->out[k]), operand);
}

static weft_operand add_int64s(export_record *r, const int64_t *values, int64_t n)
{
    return weft__export_add_constant(r, WEFT_ONNX_INT64, WEFT_SHAPE(n), values);
}

/* ---- Scan ---- */

/* The outputs of the ONNX body: a step, or an If that runs it. */
static void write_scan_body(export_record *r, const scan_body *b, const bool *wanted,
                            const weft_operand *in, export_frame *step)
{
    weft_operand out = WEFT_NO_OPERAND;
    for (uint32_t i = 0; i < b->n_carry + b->n_each; i++) step->of_value[b->in[i]] = in[i];
    if (b->when) {
        const export_arm arms[2] = {{b, in, wanted, step, false}, {b, in, wanted, NULL, false}};
        out = weft__export_if(r, in[b->when - 1], arms, export_count(b, wanted));
    } else if (!weft__export_frame_nodes(r, step)) {
        return;
    }
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++) {
        if (k >= b->n_carry && !wanted[k]) continue;
        add_output(r, b, k, b->when ? out : step->of_value[b->out[k]]);
        out.id++;
    }
}

/* Says in which direction `count` sequences or stacks of a Scan in reverse run. */
static void reverse_all(export_record *r, const char *name, size_t count)
{
    int64_t *ones = weft__arena_alloc(&r->memory, (count + 1) * sizeof *ones);
    if (!ones) weft__export_no_memory(r);
    for (size_t i = 0; ones && i < count; i++) ones[i] = 1;
    if (ones && count) weft__export_add_ints(r, name, ones, count);
}

static void write_scan(export_record *r, weft_export *e, const scan_attr *a)
{
    const scan_body *b = a->body;
    export_frame step;
    const size_t n_in = b->n_carry + b->n_each, n_out = export_count(b, e->wanted);
    weft_operand *in = weft__arena_alloc(&r->memory, n_in * sizeof *in);
    const uint32_t body = weft__export_begin_body(r, n_in, n_out);
    if (!in) weft__export_no_memory(r);
    for (uint32_t i = 0; in && i < n_in; i++) in[i] = add_input(r, b, i);
    if (weft__export_open_step(r, &step, b, e->in, e->wanted))
        write_scan_body(r, b, e->wanted, in, &step);
    weft__export_end_body(r);
    weft_operand out = weft__export_add_node(r, "Scan", e->in, n_in, n_out);
    if (export_failed(r)) return;
    r->nodes[r->n_nodes - 1].bodies[0] = body;
    weft__export_add_int(r, "num_scan_inputs", b->n_each);
    if (a->reverse) reverse_all(r, "scan_input_directions", b->n_each);
    if (a->reverse) reverse_all(r, "scan_output_directions", n_out - b->n_carry);
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++)
        if (k < b->n_carry || e->wanted[k]) e->out[k].id = out.id++;
}

/* ---- Loop ---- */

/* A scan as Loop. The carry that says whether a step runs becomes the condition. */
typedef struct repetition {
    export_record *r;
    const weft_export *e;
    const scan_attr *scan;
    const scan_body *body;
    export_frame step;
    weft_operand number; /* of the iteration */
} repetition;

static bool is_condition(const repetition *l, uint32_t carry)
{
    return l->body->when == carry + 1;
}

/* Whether a carry of the scan is one of the Loop. */
static bool is_carried(const repetition *l, uint32_t carry)
{
    return !is_condition(l, carry) || l->e->wanted[carry];
}

/* The rows that an iteration reads. */
static void gather_rows(repetition *l)
{
    export_record *r = l->r;
    const scan_body *b = l->body;
    const int64_t last = l->scan->n - 1;
    weft_operand at = l->number;
    if (l->scan->reverse && b->n_each) {
        const weft_operand in[2] = {
            weft__export_add_constant(r, WEFT_ONNX_INT64, WEFT_SCALAR, &last), at};
        at = weft__export_add_node(r, "Sub", in, 2, 1);
    }
    for (uint32_t i = b->n_carry; i < b->n_carry + b->n_each; i++) {
        const weft_operand in[2] = {l->e->in[i], at};
        l->step.of_value[b->in[i]] = weft__export_add_node(r, "Gather", in, 2, 1);
    }
}

/* The ONNX body: its inputs are the number of the iteration, the condition and the carries. */
static void write_loop_body(repetition *l)
{
    export_record *r = l->r;
    const scan_body *b = l->body;
    l->number = weft__export_body_in(r, WEFT_ONNX_INT64, WEFT_SCALAR, "iteration");
    const weft_operand runs = weft__export_body_in(r, WEFT_ONNX_BOOL, WEFT_SCALAR, "runs");
    if (!weft__export_open_step(r, &l->step, b, l->e->in, l->e->wanted)) return;
    for (uint32_t i = 0; i < b->n_carry; i++) {
        const weft_operand in = is_carried(l, i) ? add_input(r, b, i) : runs;
        l->step.of_value[b->in[i]] = is_condition(l, i) ? runs : in;
    }
    gather_rows(l);
    if (!weft__export_frame_nodes(r, &l->step)) return;
    const weft_operand goes_on = b->when ? l->step.of_value[b->out[b->when - 1]] : runs;
    weft__export_body_out(r, WEFT_ONNX_BOOL, WEFT_SCALAR, goes_on);
    for (uint32_t k = 0; k < b->n_carry + b->n_out; k++)
        if (k < b->n_carry ? is_carried(l, k) : l->e->wanted[k])
            add_output(r, b, k, l->step.of_value[b->out[k]]);
}

/* Rows [iterations, ...] with zeros after them, of which there are as many as steps that did not
 * run. */
static weft_operand pad_rows(export_record *r, weft_operand rows, int64_t n, int rank)
{
    static const int64_t zeros[WEFT_MAX_RANK] = {0};
    const weft_operand shape = weft__export_add_node(r, "Shape", &rows, 1, 1);
    weft__export_add_int(r, "end", 1);
    const weft_operand less[2] = {add_int64s(r, &n, 1), shape};
    const weft_operand rest = weft__export_add_node(r, "Sub", less, 2, 1);
    const weft_operand pads[3] = {add_int64s(r, zeros, rank), rest, add_int64s(r, zeros, rank - 1)};
    const weft_operand all = weft__export_add_node(r, "Concat", pads, rank > 1 ? 3 : 2, 1);
    weft__export_add_int(r, "axis", 0);
    const weft_operand in[2] = {rows, all};
    return weft__export_add_node(r, "Pad", in, 2, 1);
}

/* Rows in the opposite order. */
static weft_operand reverse_rows(export_record *r, weft_operand rows, int64_t n)
{
    const int64_t begin = n - 1, end = -n - 1, axis = 0, step = -1;
    const weft_operand in[5] = {rows, add_int64s(r, &begin, 1), add_int64s(r, &end, 1),
                                add_int64s(r, &axis, 1), add_int64s(r, &step, 1)};
    return weft__export_add_node(r, "Slice", in, 5, 1);
}

static void write_loop(export_record *r, weft_export *e, const scan_attr *a)
{
    const scan_body *b = a->body;
    repetition l = {.r = r, .e = e, .scan = a, .body = b};
    weft_operand in[2 + WEFT_MAX_OUTPUTS] = {
        weft__export_add_constant(r, WEFT_ONNX_INT64, WEFT_SCALAR, &a->n)};
    size_t n_in = 2, n_out = 0;
    if (b->when) in[1] = e->in[b->when - 1];
    for (uint32_t i = 0; i < b->n_carry; i++)
        if (is_carried(&l, i)) in[n_in++] = e->in[i];
    for (uint32_t k = b->n_carry; k < b->n_carry + b->n_out; k++) n_out += e->wanted[k];
    const uint32_t body = weft__export_begin_body(r, n_in, 1 + n_in - 2 + n_out);
    write_loop_body(&l);
    weft__export_end_body(r);
    weft_operand out = weft__export_add_node(r, "Loop", in, n_in, n_in - 2 + n_out);
    if (export_failed(r)) return;
    r->nodes[r->n_nodes - 1].bodies[0] = body;
    for (uint32_t i = 0; i < b->n_carry; i++)
        if (is_carried(&l, i)) e->out[i].id = out.id++;
    for (uint32_t k = b->n_carry; k < b->n_carry + b->n_out; k++) {
        if (!e->wanted[k]) continue;
        weft_operand rows = {out.id++};
        if (b->when) rows = pad_rows(r, rows, a->n, e->out_type[k].shape.rank);
        e->out[k] = a->reverse ? reverse_rows(r, rows, a->n) : rows;
    }
}

void weft__export_scan(export_record *r, weft_export *e)
{
    const scan_attr *a = e->attr;
    if (scan_is_while(a->body) || !a->body->n_each)
        write_loop(r, e, a);
    else
        write_scan(r, e, a);
}
