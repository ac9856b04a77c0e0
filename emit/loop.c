/* A scan as a loop in C. Before each step it sets where the body's function (bodies.c) reads and writes: the
 * slices of sequences and stacks, and of a carry the scan's output and a second buffer in turn, so that the
 * last step writes the output (plan/loop.c). Where some steps do not run, pointers say where the carries lie,
 * and the last of them are copied. The text does not depend on the number of steps, but for digits. */
#include "nodes.h"

#include "plan/plan.h"

typedef struct loop_text {
    emit_node *w;
    const plan_loop *loop;
    const scan_body *body;
    size_t number; /* of the body */
    emit_text *to;
} loop_text;

static weft_value input(const loop_text *l, uint32_t i)
{
    return emit_operand(l->w, i);
}

static weft_value output(const loop_text *l, uint32_t k)
{
    return emit_operand(l->w, l->w->node.n_in + k);
}

static size_t bytes_of(const loop_text *l, weft_value value)
{
    const emit_file *f = l->w->f;
    return weft_tensor_bytes(weft__emit_stored(f, value), weft_shape_of(f->g, value));
}

static size_t slice_bytes(const loop_text *l, weft_value stack)
{
    return bytes_of(l, stack) / (size_t)l->loop->scan->n;
}

/* Writes the address of the slice of step t. */
static void write_slice(const loop_text *l, weft_value stack, emit_text *to)
{
    const scan_attr *scan = l->loop->scan;
    weft__emit_bytes(l->w->f, stack, to);
    if (scan->reverse)
        weft__emit_text_print(to, " + (size_t)(%lld - t) * ", (long long)scan->n - 1);
    else
        weft__emit_text_print(to, " + (size_t)t * ");
    weft__emit_text_print(to, "%zu", slice_bytes(l, stack));
}

/* The address that carry c has in the second buffer. */
static void write_spare(const loop_text *l, uint32_t c, emit_text *to)
{
    weft__emit_text_print(to, "arena + ");
    weft__emit_hole_number(to, HOLE_OFFSET, (int64_t)(l->w->scratch_offset + l->loop->spare[c]));
}

/* The output in which carry c lies after a step: its own, or the stack that it is in as well. */
static uint32_t carried_in(const loop_text *l, uint32_t c)
{
    uint32_t k = l->body->n_carry;
    if (!l->loop->stacked[c]) return c;
    while (!l->loop->direct[k] || l->loop->value[k] != l->loop->value[c]) k++;
    return k;
}

/* What is the same in all steps, and the first carries. */
static void write_first(const loop_text *l)
{
    const scan_body *b = l->body;
    for (uint32_t i = 0; i < scan_inputs(b); i++) {
        const bool moves = b->when && i < b->n_carry;
        if (!moves && (!l->loop->in[i] || (i >= b->n_carry && i < b->n_carry + b->n_each)))
            continue;
        weft__emit_text_print(
            l->to, moves ? "        const unsigned char *carry%u = " : "        step.in%u = ", i);
        weft__emit_bytes(l->w->f, input(l, i), l->to);
        weft__emit_text_print(l->to, ";\n");
    }
}

static void write_slices(const loop_text *l)
{
    const scan_body *b = l->body;
    for (uint32_t i = b->n_carry; i < b->n_carry + b->n_each; i++) {
        if (!l->loop->in[i]) continue;
        weft__emit_text_print(l->to, "            step.in%u = ", i);
        write_slice(l, input(l, i), l->to);
        weft__emit_text_print(l->to, ";\n");
    }
    for (uint32_t k = b->n_carry; k < b->n_carry + b->n_out; k++) {
        weft__emit_text_print(l->to, "            step.out%u = ", k);
        write_slice(l, output(l, k), l->to);
        weft__emit_text_print(l->to, ";\n");
    }
}

/* Of an odd number of steps the even ones write the output, of an even number the odd ones; if some do not
 * run, a step writes where the carry does not lie. */
static void write_carries(const loop_text *l)
{
    for (uint32_t c = 0; c < l->body->n_carry; c++) {
        if (l->body->when && l->loop->in[c])
            weft__emit_text_print(l->to, "            step.in%u = carry%u;\n", c, c);
        if (l->loop->stacked[c]) continue;
        weft__emit_text_print(l->to, "            step.out%u = ", c);
        if (l->body->when) {
            weft__emit_text_print(l->to, "carry%u != ", c);
            weft__emit_bytes(l->w->f, output(l, c), l->to);
        } else {
            weft__emit_text_print(l->to, "t %% 2 == %d", (int)((l->loop->scan->n - 1) % 2));
        }
        weft__emit_text_print(l->to, " ? ");
        weft__emit_bytes(l->w->f, output(l, c), l->to);
        weft__emit_text_print(l->to, " : ");
        write_spare(l, c, l->to);
        weft__emit_text_print(l->to, ";\n");
    }
}

/* The first row of a stack that a step leaves empty, and all after it if the loop ends. */
static void write_empty(const loop_text *l, uint32_t k)
{
    const scan_attr *scan = l->loop->scan;
    const bool ends = scan_is_while(l->body);
    const size_t bytes = slice_bytes(l, output(l, k));
    if (!bytes) return;
    weft__emit_text_print(l->to, "                memset(");
    if (ends && scan->reverse)
        weft__emit_bytes(l->w->f, output(l, k), l->to);
    else
        write_slice(l, output(l, k), l->to);
    weft__emit_text_print(l->to, ", 0, ");
    if (ends) weft__emit_text_print(l->to, "(size_t)(%lld - t) * ", (long long)scan->n);
    weft__emit_text_print(l->to, "%zu);\n", bytes);
}

/* Leaves out a step that does not run. */
static void write_guard(const loop_text *l)
{
    const scan_body *b = l->body;
    if (!b->when) return;
    weft__emit_text_print(l->to, "            if (!*(");
    if (scan_is_while(b))
        weft__emit_text_print(l->to, "carry%u", b->when - 1);
    else
        write_slice(l, input(l, b->when - 1), l->to);
    weft__emit_text_print(l->to, ")) {\n");
    for (uint32_t k = b->n_carry; k < b->n_carry + b->n_out; k++) write_empty(l, k);
    weft__emit_text_print(l->to, "                %s;\n            }\n",
                          scan_is_while(b) ? "break" : "continue");
}

static void write_call(const loop_text *l, bool returns)
{
    weft__emit_text_print(l->to, "            %sbody_%zu(m, arena + ", returns ? "failed = " : "",
                          l->number);
    weft__emit_hole_number(l->to, HOLE_OFFSET, (int64_t)l->w->scratch_offset);
    weft__emit_text_print(l->to, ", &step);\n");
    if (returns)
        weft__emit_text_print(l->to, "            if (failed)\n                return failed;\n");
}

/* The carries that the next step reads. */
static void write_next(const loop_text *l)
{
    for (uint32_t c = 0; c < l->body->n_carry; c++)
        if (l->body->when || l->loop->in[c])
            weft__emit_text_print(l->to, "            %s%u = step.out%u;\n",
                                  l->body->when ? "carry" : "step.in", c, carried_in(l, c));
}

/* Copies the last carries that lie elsewhere: in stacks or, if some steps do not run, where they are. */
static void write_last(const loop_text *l)
{
    for (uint32_t c = 0; c < l->body->n_carry; c++) {
        const size_t bytes = bytes_of(l, output(l, c));
        if ((!l->body->when && !l->loop->stacked[c]) || !bytes) continue;
        if (l->body->when) {
            weft__emit_text_print(l->to, "        if (carry%u != ", c);
            weft__emit_bytes(l->w->f, output(l, c), l->to);
            weft__emit_text_print(l->to, ")\n    ");
        }
        weft__emit_text_print(l->to, "        memcpy(");
        weft__emit_bytes(l->w->f, output(l, c), l->to);
        if (l->body->when)
            weft__emit_text_print(l->to, ", carry%u, %zu);\n", c, bytes);
        else
            weft__emit_text_print(l->to, ", step.out%u, %zu);\n", carried_in(l, c), bytes);
    }
}

static const emit_body *body_of(const emit_file *f, const plan_loop *loop)
{
    const emit_body *body = f->bodies;
    while (body->loop != loop) body++;
    return body;
}

void weft__emit_loop(emit_node *w, const plan_loop *loop)
{
    const emit_body *body = body_of(w->f, loop);
    const loop_text l = {w, loop, loop->scan->body, body->same + 1, &w->text};
    w->called = true;
    weft__emit_text_print(l.to, "    {\n        loop_%zu step;\n        int t%s;\n", l.number,
                          body->returns ? ", failed" : "");
    write_first(&l);
    weft__emit_text_print(l.to, "        for (t = 0; t < %lld; t++) {\n", (long long)loop->scan->n);
    write_guard(&l);
    write_slices(&l);
    write_carries(&l);
    write_call(&l, body->returns);
    write_next(&l);
    weft__emit_text_print(l.to, "        }\n");
    write_last(&l);
    weft__emit_text_print(l.to, "    }\n");
}
