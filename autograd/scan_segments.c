/* A scan in segments: a scan over segments, whose body is the scan of one segment. The gradient of the outer
 * one computes the carries within a segment again, from those that came into it. The steps that
 * fill no whole segment run last. O(operands). */
#include "scan.h"

#include <stdlib.h>
#include <string.h>

typedef struct segments {
    weft_graph *graph;
    const weft_op *ops;
    const weft_scan_body *body; /* of one step */
    int64_t n, length, count;   /* steps; of a segment; segments */
    weft_graph *one;            /* what a segment computes */
    weft_scan_body outer;       /* the body of the scan over segments */
    weft_value *in;             /* [carries, sequences, shared] of `one` */
    weft_value *out;       /* [WEFT_MAX_OUTPUTS]: carries, stacks and what it stores, of `one` */
    weft_value *sequences; /* [n_each] of the graph, for one of the scans */
    weft_value *carry;     /* [n_carry] of the graph */
    weft_value *stacks[2]; /* [n_out] of whole segments, and of the rest */
} segments;

/* An input of `one` like a value of the body, or like `n` of them. */
static weft_value input_like(const segments *s, weft_value value, int64_t n)
{
    weft_type type = {weft_dtype_of(s->body->graph, value), weft_shape_of(s->body->graph, value)};
    if (n) type.shape = scan_stack_shape(type.shape, n);
    return weft__scan_input(s->one, &type);
}

/* Builds what a segment computes. */
static void build_segment(segments *s)
{
    const weft_scan_body *b = s->body;
    const size_t n_carry = b->n_carry, n_each = b->n_each;
    weft_value *each = s->in + n_carry, *shared = each + n_each;
    weft_scan_body step = *b;
    for (size_t i = 0; i < n_carry; i++) s->in[i] = input_like(s, b->carry_in[i], 0);
    for (size_t i = 0; i < n_each; i++) each[i] = input_like(s, b->each[i], s->length);
    for (size_t i = 0; i < b->n_shared; i++) shared[i] = input_like(s, b->shared[i], 0);
    step.segment = 0;
    weft__scan_build(s->one, s->ops, &step, s->length, &(weft_scan_inputs){s->in, each, shared},
                     s->out);
    s->outer = (weft_scan_body){.graph = s->one,
                                .n_carry = n_carry,
                                .carry_in = s->in,
                                .carry_out = s->out,
                                .n_each = n_each,
                                .each = each,
                                .n_shared = b->n_shared,
                                .shared = shared,
                                .n_out = b->n_out,
                                .out = s->out + n_carry,
                                .reverse = b->reverse,
                                .segment = 1};
    for (size_t i = 0; i < n_carry; i++)
        if (weft_is_value(b->when) && b->carry_in[i].id == b->when.id) s->outer.when = s->in[i];
}

/* The rows of the sequences that whole segments read, or the others. */
static void take_rows(segments *s, const weft_value *each, bool rest)
{
    weft_graph *g = s->graph;
    const int64_t whole = s->count * s->length, left = s->n - whole;
    const int64_t from = s->body->reverse == rest ? 0 : rest ? whole : left;
    const int64_t rows = rest ? left : whole;
    for (size_t i = 0; i < s->body->n_each; i++) {
        const weft_shape one = weft_shape_of(s->body->graph, s->body->each[i]);
        weft_value x = each[i];
        if (left) x = weft_slice(g, x, 0, from, from + rows, 1);
        if (!rest)
            x = weft_reshape(g, x, scan_stack_shape(scan_stack_shape(one, s->length), s->count));
        s->sequences[i] = x;
    }
}

/* Joins the rows of both scans. */
static void join_stacks(segments *s, weft_value *stacked)
{
    weft_graph *g = s->graph;
    const int64_t whole = s->count * s->length;
    for (size_t k = 0; k < s->body->n_out && weft_graph_status(g) == WEFT_OK; k++) {
        const weft_shape one = weft_shape_of(s->body->graph, s->body->out[k]);
        const weft_value rows = weft_reshape(g, s->stacks[0][k], scan_stack_shape(one, whole));
        const weft_value rest = s->stacks[1][k];
        weft_value both[2] = {s->body->reverse ? rest : rows, s->body->reverse ? rows : rest};
        stacked[k] = s->n == whole ? rows : weft_concat(g, both, 2, 0);
    }
}

/* Adds a scan on the carries, which it replaces. */
static void add_scan(segments *s, const weft_scan_body *b, int64_t n,
                     const weft_scan_inputs *inputs, weft_value *stacks)
{
    weft_value out[WEFT_MAX_OUTPUTS] = {{0, 0}};
    if (weft_graph_status(s->graph) == WEFT_OK && weft__scan_check(s->graph, b, inputs))
        weft__scan_build(s->graph, s->ops, b, n, inputs, out);
    if (b->n_carry) memcpy(s->carry, out, b->n_carry * sizeof *out);
    if (b->n_out) memcpy(stacks, out + b->n_carry, b->n_out * sizeof *out);
}

static void run(segments *s, const weft_scan_inputs *inputs, weft_value *out)
{
    const size_t n_carry = s->body->n_carry;
    weft_scan_body rest = *s->body;
    build_segment(s);
    if (n_carry) memcpy(s->carry, inputs->carry, n_carry * sizeof *s->carry);
    take_rows(s, inputs->each, false);
    const weft_scan_inputs all = {s->carry, s->sequences, inputs->shared};
    add_scan(s, &s->outer, s->count, &all, s->stacks[0]);
    if (s->n > s->count * s->length) {
        take_rows(s, inputs->each, true);
        rest.segment = 0;
        add_scan(s, &rest, s->n - s->count * s->length, &all, s->stacks[1]);
    }
    if (n_carry) memcpy(out, s->carry, n_carry * sizeof *out);
    join_stacks(s, out + n_carry);
}

void weft__scan_segments(weft_graph *graph, const weft_op *ops, const weft_scan_body *body,
                         int64_t n, const weft_scan_inputs *inputs, weft_value *out)
{
    /* What a segment computes may have as many outputs as a scan. */
    const size_t room =
        3 * (body->n_carry + body->n_each + body->n_shared + body->n_out) + WEFT_MAX_OUTPUTS;
    segments s = {.graph = graph,
                  .ops = ops,
                  .body = body,
                  .n = n,
                  .length = body->segment,
                  .count = n / body->segment,
                  .one = weft_graph_new()};
    s.in = calloc(room, sizeof *s.in);
    if (!s.one || !s.in) {
        scan_no_memory(graph);
    } else {
        s.out = s.in + body->n_carry + body->n_each + body->n_shared;
        s.sequences = s.out + WEFT_MAX_OUTPUTS;
        s.carry = s.sequences + body->n_each;
        s.stacks[0] = s.carry + body->n_carry;
        s.stacks[1] = s.stacks[0] + body->n_out;
        run(&s, inputs, out);
    }
    weft_graph_free(s.one);
    free(s.in);
}
