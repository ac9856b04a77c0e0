/* RNN, GRU and LSTM of ONNX. The products of all inputs come before the first step. Many steps are one
 * loop (weft_scan), few are nodes, with the same bits. Shapes: x [time, batch, in], W [directions, gates hidden, in], R [directions, gates hidden,
 * hidden], B [directions, 2 gates hidden]. */
#include "onnx/import.h"
#include "onnx/ops.h"
#include "onnx/quantized.h"

#include <weft/scan.h>

#include <stdio.h>
#include <string.h>

#define MAX_GATES 4
/* From this many steps on, they are a loop. A plan with fixed states packs the weights of nodes in the first run
 * only, but those of a body in each run: 40 steps of an LSTM of 512 units, with one row, took 14 % longer as a
 * loop. */
#define MIN_LOOP_STEPS 256

enum { X, W, R, B, LENGTHS, H0, C0, PEEPHOLES, W_SCALE, W_ZERO, R_SCALE, R_ZERO };

typedef struct layer layer;

/* Computes a step from the gates' sums of x, xw[gate] [batch, hidden], and updates h and c. */
typedef void step_function(layer *l, const weft_value *xw);

typedef weft_value activation(weft_graph *g, weft_value x);

struct layer {
    onnx_node *n;
    weft_graph *g;
    int gates, direction, directions;
    int64_t time, batch, hidden;
    bool reverse;
    bool quantized; /* W and R are whole numbers, transposed: [directions, in, gates hidden] */
    step_function *step;
    activation *act[3];
    weft_value r[MAX_GATES], wb[MAX_GATES],
        rb[MAX_GATES];             /* r[gate]: [hidden, hidden], transposed */
    weft_value r_scale[MAX_GATES]; /* of quantized r, less its zero point, in f64 */
    weft_value peephole[3];        /* of i, o and f */
    weft_value h, c;               /* [batch, hidden] */
};

/* ---- Steps ---- */

static weft_value activate(layer *l, int which, weft_value x)
{
    const double clip = weft__attr_float(l->n, "clip", 0);
    return l->act[which](l->g, clip > 0 ? weft_clamp(l->g, x, -clip, clip) : x);
}

static weft_value add_bias(layer *l, weft_value x, weft_value bias)
{
    return weft_is_value(bias) ? weft_add(l->g, x, bias) : x;
}

/* x, which is quantized as a whole, times a matrix of whole numbers in f64 and its scale. */
static weft_value quantized_product(weft_graph *g, weft_value x, weft_value matrix,
                                    weft_value scale)
{
    const dynamic_quantized q = weft__quantize_dynamically(g, x);
    const weft_value whole = weft_cast(g, weft_sub(g, q.whole, q.zero), WEFT_F64);
    scale = weft_mul(g, weft_cast(g, q.scale, WEFT_F64), scale);
    return weft_cast(g, weft_mul(g, weft_matmul_shared(g, whole, matrix), scale), WEFT_F32);
}

/* The sum of a gate, with both biases. */
static weft_value gate_sum(layer *l, const weft_value *xw, int gate, weft_value h)
{
    weft_value product = l->quantized ? quantized_product(l->g, h, l->r[gate], l->r_scale[gate])
                                      : weft_matmul_shared(l->g, h, l->r[gate]);
    weft_value sum = weft_add(l->g, xw[gate], product);
    return add_bias(l, add_bias(l, sum, l->wb[gate]), l->rb[gate]);
}

static void step_rnn(layer *l, const weft_value *xw)
{
    l->h = activate(l, 0, gate_sum(l, xw, 0, l->h));
}

static weft_value one_less(weft_graph *g, weft_value x)
{
    return weft_add_scalar(g, weft_neg(g, x), 1);
}

/* Gates z, r, h. */
static void step_gru(layer *l, const weft_value *xw)
{
    weft_graph *g = l->g;
    weft_value z = activate(l, 0, gate_sum(l, xw, 0, l->h));
    weft_value r = activate(l, 0, gate_sum(l, xw, 1, l->h)), sum;
    if (weft__attr_int(l->n, "linear_before_reset", 0)) {
        weft_value linear = add_bias(l, weft_matmul_shared(g, l->h, l->r[2]), l->rb[2]);
        weft_value of_x = add_bias(l, xw[2], l->wb[2]);
        sum = weft_add(g, of_x, weft_mul(g, r, linear));
    } else {
        sum = gate_sum(l, xw, 2, weft_mul(g, r, l->h));
    }
    weft_value h = activate(l, 1, sum);
    weft_value updated = weft_mul(g, one_less(g, z), h);
    l->h = weft_add(g, updated, weft_mul(g, z, l->h));
}

static weft_value peek(layer *l, weft_value sum, int which, weft_value c)
{
    const weft_value p = l->peephole[which];
    return weft_is_value(p) ? weft_add(l->g, sum, weft_mul(l->g, p, c)) : sum;
}

/* Gates i, o, f, c. */
static void step_lstm(layer *l, const weft_value *xw)
{
    weft_graph *g = l->g;
    weft_value i = activate(l, 0, peek(l, gate_sum(l, xw, 0, l->h), 0, l->c)), f;
    if (weft__attr_int(l->n, "input_forget", 0))
        f = one_less(g, i);
    else
        f = activate(l, 0, peek(l, gate_sum(l, xw, 2, l->h), 2, l->c));
    weft_value inner = activate(l, 1, gate_sum(l, xw, 3, l->h));
    weft_value remembered = weft_mul(g, f, l->c);
    weft_value c = weft_add(g, remembered, weft_mul(g, i, inner));
    weft_value o = activate(l, 0, peek(l, gate_sum(l, xw, 1, l->h), 1, c));
    l->h = weft_mul(g, o, activate(l, 2, c));
    l->c = c;
}

/* ---- Parameters of a direction ---- */

static const struct {
    const char *name;
    activation *function;
} activations[] = {{"Tanh", weft_tanh}, {"Sigmoid", weft_sigmoid}, {"Relu", weft_relu}};

/* Activations that the node names, `count` for each direction, instead of the defaults. */
static void choose_activations(layer *l, size_t count)
{
    const WeftOnnx__AttributeProto *a = weft__attr_find(l->n, "activations");
    if (!a) return;
    for (size_t k = 0; k < count; k++) {
        const size_t at = (size_t)l->direction * count + k;
        l->act[k] = NULL;
        for (size_t i = 0; i < sizeof activations / sizeof *activations; i++)
            if (at < a->n_strings && a->strings[at].len == strlen(activations[i].name) &&
                !memcmp(a->strings[at].data, activations[i].name, a->strings[at].len))
                l->act[k] = activations[i].function;
        if (!l->act[k]) {
            weft__node_fail(l->n, WEFT_NO_KERNEL,
                            "unsupported activation; expected Tanh, Sigmoid or Relu");
            return;
        }
    }
}

/* Part `index` of the direction's rows of an input, each of `hidden` elements along axis 1. */
static weft_value part_of(layer *l, size_t input, int index)
{
    weft_value all =
        weft_slice(l->g, weft__in_value(l->n, input), 0, l->direction, l->direction + 1, 1);
    all = weft_squeeze(l->g, all, 0);
    return weft_slice(l->g, all, 0, index * l->hidden, (index + 1) * l->hidden, 1);
}

/* The scale or zero point of a gate: input `input` is [directions], or has one for each column. */
static weft_value quantization_of(layer *l, size_t input, int gate)
{
    weft_value all =
        weft_slice(l->g, weft__in_value(l->n, input), 0, l->direction, l->direction + 1, 1);
    if (weft_rank_of(l->g, all) == 2) {
        all = weft_squeeze(l->g, all, 0);
        all = weft_slice(l->g, all, 0, gate * l->hidden, (gate + 1) * l->hidden, 1);
    }
    return weft_cast(l->g, all, WEFT_F64);
}

/* The matrix of a gate, less its zero point, in f64. */
static weft_value whole_part(layer *l, size_t input, size_t zero, int gate)
{
    weft_value all =
        weft_slice(l->g, weft__in_value(l->n, input), 0, l->direction, l->direction + 1, 1);
    all = weft_slice(l->g, all, 2, gate * l->hidden, (gate + 1) * l->hidden, 1);
    all = weft_cast(l->g, weft_squeeze(l->g, all, 0), WEFT_F64);
    return weft_sub(l->g, all, quantization_of(l, zero, gate));
}

/* [directions, batch, hidden], or batch first with layout 1, or zeros. */
static weft_value initial(layer *l, size_t input, weft_dtype dtype)
{
    if (!has_in(l->n, input)) return weft_fill(l->g, dtype, WEFT_SHAPE(l->batch, l->hidden), 0);
    const int axis = weft__attr_int(l->n, "layout", 0) ? 1 : 0;
    weft_value all =
        weft_slice(l->g, weft__in_value(l->n, input), axis, l->direction, l->direction + 1, 1);
    return weft_squeeze(l->g, all, axis);
}

static void take_parameters(layer *l, weft_dtype dtype)
{
    for (int i = 0; i < l->gates; i++) {
        if (l->quantized) {
            l->r[i] = whole_part(l, R, R_ZERO, i);
            l->r_scale[i] = quantization_of(l, R_SCALE, i);
        } else {
            l->r[i] = weft_transpose(l->g, part_of(l, R, i), 0, 1);
        }
        l->wb[i] = has_in(l->n, B) ? part_of(l, B, i) : WEFT_NO_VALUE;
        l->rb[i] = has_in(l->n, B) ? part_of(l, B, l->gates + i) : WEFT_NO_VALUE;
    }
    for (int i = 0; i < 3; i++)
        l->peephole[i] = has_in(l->n, PEEPHOLES) ? part_of(l, PEEPHOLES, i) : WEFT_NO_VALUE;
    l->h = initial(l, H0, dtype);
    l->c = l->gates == 4 ? initial(l, C0, dtype) : l->h;
}

/* ---- Running ---- */

/* What the steps read: the products of the gates, [time, batch, hidden], and, if sequences may end
 * before, whether they run, bool [time, batch, 1]. Of one step, without time. */
typedef struct sequences {
    weft_value xw[MAX_GATES], runs;
} sequences;

static weft_value unless_ended(layer *l, weft_value runs, weft_value value, weft_value old)
{
    return weft_is_value(runs) ? weft_where(l->g, runs, value, old) : value;
}

/* One step; a row whose sequence has ended keeps h and c. Returns its y, [batch, hidden]. */
static weft_value take_step(layer *l, const sequences *step)
{
    const weft_value h = l->h, c = l->c;
    l->step(l, step->xw);
    const weft_value zero = weft_scalar(l->g, weft_dtype_of(l->g, h), 0);
    const weft_value y = unless_ended(l, step->runs, l->h, zero);
    l->h = unless_ended(l, step->runs, l->h, h);
    if (l->gates == 4) l->c = unless_ended(l, step->runs, l->c, c);
    return y;
}

static weft_value row_of(weft_graph *g, weft_value sequence, int64_t t)
{
    if (!weft_is_value(sequence)) return WEFT_NO_VALUE;
    return weft_squeeze(g, weft_slice(g, sequence, 0, t, t + 1, 1), 0);
}

/* Returns y of all steps, [time, batch, hidden]. */
static weft_value run_as_nodes(layer *l, const sequences *all)
{
    weft_value y[MIN_LOOP_STEPS];
    for (int64_t k = 0; k < l->time; k++) {
        const int64_t t = l->reverse ? l->time - 1 - k : k;
        sequences step = {.runs = row_of(l->g, all->runs, t)};
        for (int i = 0; i < l->gates; i++) step.xw[i] = row_of(l->g, all->xw[i], t);
        y[t] = take_step(l, &step);
    }
    return weft_stack(l->g, y, (size_t)l->time, 0);
}

#define MAX_OUTSIDE (4 * MAX_GATES + 3)

/* What a body reads, and what that is outside of it. */
typedef struct outside {
    weft_value in[MAX_OUTSIDE], from[MAX_OUTSIDE];
    size_t n;
} outside;

/* Replaces a value, unless it is none, by an input of the body that is like a value of `g`. */
static void read_outside(weft_graph *body, const weft_graph *g, outside *o, const char *kind,
                         weft_value like, weft_value *value)
{
    char name[32];
    if (!weft_is_value(*value)) return;
    snprintf(name, sizeof name, "%s%zu", kind, o->n);
    o->from[o->n] = *value;
    o->in[o->n++] = *value = weft_input(body, name, weft_dtype_of(g, like), weft_shape_of(g, like));
}

/* Lets the layer of a body read its parameters outside. */
static void read_parameters(weft_graph *body, const weft_graph *g, outside *shared, layer *l)
{
    for (int i = 0; i < l->gates; i++) {
        weft_value *const all[] = {&l->r[i], &l->wb[i], &l->rb[i], &l->r_scale[i]};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            read_outside(body, g, shared, "parameter", *all[k], all[k]);
    }
    for (int i = 0; i < 3; i++)
        read_outside(body, g, shared, "parameter", l->peephole[i], &l->peephole[i]);
}

/* The same as one loop. */
static weft_value run_as_loop(layer *l, const sequences *all)
{
    weft_graph *g = l->g, *b = weft_graph_new();
    outside carries = {.n = 0}, each = {.n = 0}, shared = {.n = 0};
    sequences step = *all;
    layer inner = *l;
    inner.g = b;
    read_outside(b, g, &carries, "state", l->h, &inner.h);
    if (l->gates == 4) read_outside(b, g, &carries, "state", l->c, &inner.c);
    for (int i = 0; i < l->gates; i++)
        read_outside(b, g, &each, "x", row_of(g, all->xw[i], 0), &step.xw[i]);
    read_outside(b, g, &each, "runs", row_of(g, all->runs, 0), &step.runs);
    read_parameters(b, g, &shared, &inner);
    weft_value y = take_step(&inner, &step), last[2] = {WEFT_NO_VALUE, WEFT_NO_VALUE};
    const weft_value next[2] = {inner.h, inner.c};
    const weft_scan_body body = {.graph = b,
                                 .n_carry = carries.n,
                                 .carry_in = carries.in,
                                 .carry_out = next,
                                 .n_each = each.n,
                                 .each = each.in,
                                 .n_shared = shared.n,
                                 .shared = shared.in,
                                 .n_out = 1,
                                 .out = &y,
                                 .reverse = l->reverse};
    const weft_scan_inputs inputs = {carries.from, each.from, shared.from};
    weft_value stacked = WEFT_NO_VALUE;
    weft_scan(g, &body, l->time, &inputs, last, &stacked);
    weft_graph_free(b);
    l->h = last[0];
    l->c = last[1];
    return stacked;
}

/* Where sequences have not ended, bool [time, batch, 1]; WEFT_NO_VALUE if all have one length. */
static weft_value running(layer *l)
{
    if (!has_in(l->n, LENGTHS)) return WEFT_NO_VALUE;
    weft_graph *g = l->g;
    const weft_value lengths =
        weft_reshape(g, weft__in_value(l->n, LENGTHS), WEFT_SHAPE(1, l->batch, 1));
    const weft_value steps = weft_arange(g, WEFT_I32, l->time, 0, 1);
    return weft_greater(g, lengths, weft_reshape(g, steps, WEFT_SHAPE(l->time, 1, 1)));
}

/* Runs one direction over x [time, batch, in]; returns y [time, 1, batch, hidden]. */
static weft_value run_direction(layer *l, weft_value x)
{
    weft_graph *g = l->g;
    sequences all = {.runs = running(l)};
    const int64_t in = weft_dim_of(g, x, 2);
    weft_value flat = weft_reshape(g, x, WEFT_SHAPE(l->time * l->batch, in));
    take_parameters(l, weft_dtype_of(g, x));
    for (int i = 0; i < l->gates; i++) {
        weft_value product;
        if (l->quantized) {
            const weft_value w = whole_part(l, W, W_ZERO, i);
            product = quantized_product(g, flat, w, quantization_of(l, W_SCALE, i));
        } else {
            product = weft_matmul(g, flat, weft_transpose(g, part_of(l, W, i), 0, 1));
        }
        all.xw[i] = weft_reshape(g, product, WEFT_SHAPE(l->time, l->batch, l->hidden));
    }
    if (weft__node_failed(l->n)) return WEFT_NO_VALUE;
    const weft_value y = l->time < MIN_LOOP_STEPS ? run_as_nodes(l, &all) : run_as_loop(l, &all);
    return weft_expand_dims(g, y, 1);
}

/* Sets an output of final states [directions, batch, hidden]. */
static void set_final(layer *l, size_t output, const weft_value *states)
{
    if (!has_out(l->n, output)) return;
    weft_value all = weft_stack(l->g, states, (size_t)l->directions, 0);
    weft__set_out(l->n, output,
                  weft__attr_int(l->n, "layout", 0) ? weft_transpose(l->g, all, 0, 1) : all);
}

static void run_all(layer *l, weft_value x)
{
    weft_graph *g = l->g;
    weft_value all[2], h[2], c[2];
    const bool batch_first = weft__attr_int(l->n, "layout", 0);
    activation *const defaults[3] = {l->act[0], l->act[1], l->act[2]};
    for (l->direction = 0; l->direction < l->directions; l->direction++) {
        const int d = l->direction;
        memcpy(l->act, defaults, sizeof defaults);
        choose_activations(l, l->gates == 1 ? 1 : (size_t)l->gates - 1);
        if (d == 1) l->reverse = true;
        if (weft__node_failed(l->n)) return;
        all[d] = run_direction(l, x);
        if (weft__node_failed(l->n)) return;
        h[d] = l->h;
        c[d] = l->c;
    }
    weft_value joined = weft_concat(g, all, (size_t)l->directions, 1);
    if (has_out(l->n, 0))
        weft__set_out(l->n, 0,
                      batch_first ? weft_permute(g, joined, WEFT_AXES(2, 0, 1, 3)) : joined);
    set_final(l, 1, h);
    if (l->gates == 4) set_final(l, 2, c);
}

static void map_recurrent(onnx_node *n, layer l)
{
    weft_value x = weft__in_value(n, X);
    const weft_shape s = weft__in_shape(n, X), r = weft__in_shape(n, R);
    const bool both = weft__attr_is(n, "direction", "bidirectional", "forward");
    l.n = n;
    l.g = n->graph;
    if (s.rank != 3 || r.rank != 3 || weft__in_shape(n, W).rank != 3) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "needs x, W and R of rank 3");
        return;
    }
    const bool batch_first = weft__attr_int(n, "layout", 0);
    l.time = s.dim[batch_first ? 1 : 0];
    l.batch = s.dim[batch_first ? 0 : 1];
    l.hidden = r.dim[l.quantized ? 1 : 2];
    l.directions = both ? 2 : 1;
    l.reverse = weft__attr_is(n, "direction", "reverse", "forward");
    if (batch_first) x = weft_transpose(n->graph, x, 0, 1);
    if ((l.reverse || both) && has_in(n, LENGTHS)) {
        weft__node_fail(n, WEFT_NO_KERNEL,
                        "reversed sequences of unequal lengths are not supported");
        return;
    }
    if (l.time < 1 || l.time > INT32_MAX || r.dim[0] != l.directions) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "has %lld steps and parameters of %lld directions",
                        (long long)l.time, (long long)r.dim[0]);
        return;
    }
    run_all(&l, x);
}

void weft__map_RNN(onnx_node *n)
{
    map_recurrent(n, (layer){.gates = 1, .step = step_rnn, .act = {weft_tanh}});
}

void weft__map_GRU(onnx_node *n)
{
    map_recurrent(n, (layer){.gates = 3, .step = step_gru, .act = {weft_sigmoid, weft_tanh}});
}

void weft__map_LSTM(onnx_node *n)
{
    map_recurrent(
        n, (layer){.gates = 4, .step = step_lstm, .act = {weft_sigmoid, weft_tanh, weft_tanh}});
}

/* W and R are quantized; x and h are, as wholes, when they are multiplied. */
void weft__microsoft_DynamicQuantizeLSTM(onnx_node *n)
{
    for (size_t i = W_SCALE; i <= R_ZERO; i++)
        if (!has_in(n, i)) {
            weft__node_fail(n, WEFT_BAD_FILE, "has no input %zu", i);
            return;
        }
    map_recurrent(n, (layer){.gates = 4,
                             .quantized = true,
                             .step = step_lstm,
                             .act = {weft_sigmoid, weft_tanh, weft_tanh}});
}
