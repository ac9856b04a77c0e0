/* Recurrent layers: many steps are one loop (weft_scan), few are nodes, with the same bits.
 *
 * Internally time is axis 0: one GEMM [len * batch, in] x W_x computes the input product of all
 * steps, and the rows of step t are contiguous in its result. A step is then h W_h and elementwise
 * ops. In the backward pass, the gradients of W_x, W_h and x take one matrix product each over all
 * steps: the gradient of the loop stacks the operands, and join_slices and join_products concatenate
 * those of nodes. */
#include <weft/models.h>
#include <weft/scan.h>

#include <math.h>

static int64_t gates_of(weft_recurrent_kind kind)
{
    static const int64_t gates[] = {[WEFT_RNN] = 1, [WEFT_LSTM] = 4, [WEFT_GRU] = 3};
    return gates[kind];
}

/* ---- One step ---- */

weft_recurrent weft_nn_recurrent_declare(weft_graph *graph, const char *name,
                                         weft_recurrent_kind kind, weft_dtype dtype, int64_t in,
                                         int64_t hidden)
{
    weft_recurrent layer = {.kind = kind, .in = in, .hidden = hidden};
    if ((unsigned)kind > WEFT_GRU || in < 1 || hidden < 1 || hidden > INT32_MAX) {
        weft_graph_fail_in(graph, "weft_nn_recurrent_declare", WEFT_BAD_ARGUMENT,
                           "\"%s\": invalid layer of kind %d from width %lld to %lld", name,
                           (int)kind, (long long)in, (long long)hidden);
        return layer;
    }
    int64_t width = gates_of(kind) * hidden;
    bool simple = kind == WEFT_RNN;
    weft_init init_x = {WEFT_INIT_NORMAL, 0, 1 / sqrt((double)(simple ? in : in + hidden))};
    weft_init init_h = {WEFT_INIT_NORMAL, 0, 1 / sqrt((double)(simple ? hidden : in + hidden))};
    weft_graph_push_scope(graph, "%s", name);
    layer.weight_x = weft_param(graph, "weight_x", dtype, WEFT_SHAPE(in, width), init_x);
    layer.weight_h = weft_param(graph, "weight_h", dtype, WEFT_SHAPE(hidden, width), init_h);
    layer.bias = weft_param(graph, "bias", dtype, WEFT_SHAPE(width), WEFT_INIT_ZEROS);
    if (kind == WEFT_GRU)
        layer.bias_h = weft_param(graph, "bias_h", dtype, WEFT_SHAPE(hidden), WEFT_INIT_ZEROS);
    weft_graph_pop_scope(graph);
    return layer;
}

static bool has_layer(weft_graph *g, const weft_recurrent *layer, const char *function)
{
    if (!layer) weft_graph_fail_in(g, function, WEFT_BAD_ARGUMENT, "the layer is NULL");
    return layer;
}

weft_value weft_nn_recurrent_project(weft_graph *graph, const weft_recurrent *layer, weft_value x)
{
    if (!has_layer(graph, layer, "weft_nn_recurrent_project")) return WEFT_NO_VALUE;
    weft_value product = weft_rank_of(graph, x) == 2 ? weft_matmul_shared(graph, x, layer->weight_x)
                                                     : weft_matmul(graph, x, layer->weight_x);
    return weft_add(graph, product, layer->bias);
}

static weft_recurrent_state lstm_step(weft_graph *g, weft_value x, weft_value h, weft_value c)
{
    weft_value gates[4];
    weft_chunk(g, weft_add(g, x, h), -1, 4, gates);
    weft_value forget = weft_sigmoid(g, gates[0]), input = weft_sigmoid(g, gates[1]);
    weft_value candidate = weft_tanh(g, gates[2]), output = weft_sigmoid(g, gates[3]);
    weft_recurrent_state next;
    const weft_value kept = weft_mul(g, forget, c);
    next.c = weft_add(g, kept, weft_mul(g, input, candidate));
    next.h = weft_mul(g, output, weft_tanh(g, next.c));
    return next;
}

/* (1 - z) n + z h = n + z (h - n) */
static weft_value gru_step(weft_graph *g, const weft_recurrent *layer, weft_value x, weft_value hw,
                           weft_value h)
{
    weft_value from_x[2], from_h[2], gates[2];
    const int64_t sizes[2] = {2 * layer->hidden, layer->hidden};
    weft_split(g, x, -1, sizes, 2, from_x);
    weft_split(g, hw, -1, sizes, 2, from_h);
    weft_chunk(g, weft_sigmoid(g, weft_add(g, from_x[0], from_h[0])), -1, 2, gates);
    weft_value reset = weft_mul(g, gates[0], weft_add(g, from_h[1], layer->bias_h));
    weft_value candidate = weft_tanh(g, weft_add(g, from_x[1], reset));
    return weft_add(g, candidate, weft_mul(g, gates[1], weft_sub(g, h, candidate)));
}

weft_recurrent_state weft_nn_recurrent_step(weft_graph *graph, const weft_recurrent *layer,
                                            weft_value projected, weft_recurrent_state state)
{
    weft_recurrent_state next = {.h = WEFT_NO_VALUE, .c = WEFT_NO_VALUE};
    if (!has_layer(graph, layer, "weft_nn_recurrent_step")) return next;
    weft_value hw = weft_matmul_shared(graph, state.h, layer->weight_h);
    if (layer->kind == WEFT_LSTM)
        next = lstm_step(graph, projected, hw, state.c);
    else if (layer->kind == WEFT_GRU)
        next.h = gru_step(graph, layer, projected, hw, state.h);
    else
        next.h = weft_tanh(graph, weft_add(graph, projected, hw));
    return next;
}

weft_recurrent_state weft_nn_recurrent_zeros(weft_graph *graph, weft_recurrent_kind kind,
                                             weft_dtype dtype, int64_t batch, int64_t hidden)
{
    weft_value zeros = weft_fill(graph, dtype, WEFT_SHAPE(batch, hidden), 0.0);
    return (weft_recurrent_state){zeros, kind == WEFT_LSTM ? zeros : WEFT_NO_VALUE};
}

/* ---- All steps ---- */

/* Transposes [batch, len, ...] and [len, batch, ...]: a view. */
static weft_value time_and_batch(weft_graph *g, weft_value x)
{
    return weft_transpose(g, x, 0, 1);
}

static weft_recurrent_state first_state(weft_graph *g, const weft_recurrent *layer,
                                        weft_dtype dtype, int64_t batch,
                                        const weft_nn_recurrent_options *o)
{
    weft_recurrent_state state = o->initial;
    weft_recurrent_state zeros =
        weft_nn_recurrent_zeros(g, layer->kind, dtype, batch, layer->hidden);
    if (!weft_is_value(state.h)) state.h = zeros.h;
    if (!weft_is_value(state.c) || layer->kind != WEFT_LSTM) state.c = zeros.c;
    return state;
}

/* From this many steps on, they are a loop: a plan of it takes the same time for any number of them. */
#define MIN_LOOP_STEPS 16

/* The inputs of all steps, [len * batch, ...], projected. */
typedef struct sequence {
    weft_value projected;
    int64_t len, batch;
} sequence;

/* The state before a step where it is masked, bool [batch, 1], and else the one after it. */
static weft_recurrent_state unless_masked(weft_graph *g, weft_value masked,
                                          weft_recurrent_state before, weft_recurrent_state after)
{
    weft_recurrent_state next = {.c = WEFT_NO_VALUE};
    next.h = weft_where(g, masked, before.h, after.h);
    if (weft_is_value(after.c)) next.c = weft_where(g, masked, before.c, after.c);
    return next;
}

/* Builds the steps in order as nodes. Sets *all to h of all steps, [len, batch, hidden]. */
static weft_recurrent_state unroll(weft_graph *g, const weft_recurrent *layer, const sequence *x,
                                   weft_recurrent_state state, const weft_nn_recurrent_options *o,
                                   weft_value *all)
{
    weft_value h[MIN_LOOP_STEPS];
    for (int64_t step = 0; step < x->len; step++) {
        const int64_t t = o->reverse ? x->len - 1 - step : step;
        weft_value rows = weft_slice(g, x->projected, 0, t * x->batch, (t + 1) * x->batch, 1);
        weft_recurrent_state next = weft_nn_recurrent_step(g, layer, rows, state);
        if (weft_is_value(o->mask)) {
            const weft_value masked = weft_slice(g, o->mask, 1, t, t + 1, 1); /* [batch, 1] */
            next = unless_masked(g, masked, state, next);
        }
        state = next;
        h[t] = state.h;
    }
    *all = weft_reshape(g, weft_concat(g, h, (size_t)x->len, 0),
                        WEFT_SHAPE(x->len, x->batch, layer->hidden));
    return state;
}

/* What a step reads in the body of the loop, or the loop outside of it: x and the mask in each[]. */
typedef struct loop_inputs {
    weft_value carry[2], each[2], shared[2];
} loop_inputs;

static weft_value input_like(weft_graph *body, const char *name, const weft_graph *g, weft_value v)
{
    return weft_input(body, name, weft_dtype_of(g, v), weft_shape_of(g, v));
}

/* Declares what a step reads, of which `from` is read outside. */
static void declare_step(weft_graph *body, const weft_graph *g, const sequence *x,
                         const loop_inputs *from, loop_inputs *in)
{
    static const char *const names[][2] = {{"h", "c"}, {"weight_h", "bias_h"}};
    const int64_t width = weft_dim_of(g, x->projected, 1);
    for (int i = 0; i < 2; i++) {
        if (weft_is_value(from->carry[i]))
            in->carry[i] = input_like(body, names[0][i], g, from->carry[i]);
        if (weft_is_value(from->shared[i]))
            in->shared[i] = input_like(body, names[1][i], g, from->shared[i]);
    }
    in->each[0] =
        weft_input(body, "x", weft_dtype_of(g, x->projected), WEFT_SHAPE(x->batch, width));
    if (weft_is_value(from->each[1]))
        in->each[1] = weft_input(body, "masked", WEFT_BOOL, WEFT_SHAPE(x->batch, 1));
}

/* The same steps as one loop. Sets *all to h of all steps, [len, batch, hidden]. */
static weft_recurrent_state loop(weft_graph *g, const weft_recurrent *layer, const sequence *x,
                                 weft_recurrent_state state, const weft_nn_recurrent_options *o,
                                 weft_value *all)
{
    const bool is_masked = weft_is_value(o->mask), has_c = layer->kind == WEFT_LSTM;
    const int64_t width = weft_dim_of(g, x->projected, 1);
    loop_inputs in = {.carry = {WEFT_NO_VALUE}};
    loop_inputs from = {.carry = {state.h, state.c}, .shared = {layer->weight_h, layer->bias_h}};
    from.each[0] = weft_reshape(g, x->projected, WEFT_SHAPE(x->len, x->batch, width));
    if (is_masked) from.each[1] = weft_expand_dims(g, weft_transpose(g, o->mask, 0, 1), -1);
    weft_graph *b = weft_graph_new();
    declare_step(b, g, x, &from, &in);
    weft_recurrent inner = *layer;
    inner.weight_h = in.shared[0];
    inner.bias_h = in.shared[1];
    const weft_recurrent_state before = {in.carry[0], in.carry[1]};
    weft_recurrent_state next = weft_nn_recurrent_step(b, &inner, in.each[0], before);
    if (is_masked) next = unless_masked(b, in.each[1], before, next);
    const weft_value out[2] = {next.h, next.c};
    weft_value last[2] = {WEFT_NO_VALUE, WEFT_NO_VALUE};
    const weft_scan_body body = {.graph = b,
                                 .n_carry = has_c ? 2 : 1,
                                 .carry_in = in.carry,
                                 .carry_out = out,
                                 .n_each = is_masked ? 2 : 1,
                                 .each = in.each,
                                 .n_shared = layer->kind == WEFT_GRU ? 2 : 1,
                                 .shared = in.shared,
                                 .n_out = 1,
                                 .out = out,
                                 .reverse = o->reverse};
    const weft_scan_inputs inputs = {from.carry, from.each, from.shared};
    weft_scan(g, &body, x->len, &inputs, last, all);
    weft_graph_free(b);
    return (weft_recurrent_state){last[0], last[1]};
}

weft_value weft_nn_recurrent(weft_graph *graph, const char *name, weft_recurrent_kind kind,
                             weft_value x, int64_t hidden, const weft_nn_recurrent_options *options,
                             weft_recurrent_state *last)
{
    static const weft_nn_recurrent_options defaults = {0};
    const weft_nn_recurrent_options *o = options ? options : &defaults;
    weft_recurrent_state state = {WEFT_NO_VALUE, WEFT_NO_VALUE};
    if (last) *last = state;
    weft_graph *g = graph;
    int64_t batch = weft_dim_of(g, x, 0), len = weft_dim_of(g, x, 1), in = weft_dim_of(g, x, 2);
    if (weft_graph_status(g) != WEFT_OK) return WEFT_NO_VALUE;
    if (weft_rank_of(g, x) != 3 || len < 1 || batch < 1) {
        char text[128];
        weft_graph_fail_in(g, "weft_nn_recurrent", WEFT_BAD_SHAPE,
                           "\"%s\": expected [batch, len, in] with at least one step, got %s", name,
                           weft_shape_text(weft_shape_of(g, x), text, sizeof text));
        return WEFT_NO_VALUE;
    }
    weft_dtype dtype = weft_dtype_of(g, x);
    weft_recurrent layer = weft_nn_recurrent_declare(g, name, kind, dtype, in, hidden);
    weft_graph_push_scope(g, "%s", name);
    weft_value rows = weft_reshape(g, time_and_batch(g, x), WEFT_SHAPE(len * batch, in));
    const sequence steps = {weft_nn_recurrent_project(g, &layer, rows), len, batch};
    const weft_recurrent_state first = first_state(g, &layer, dtype, batch, o);
    weft_value all = WEFT_NO_VALUE;
    state = len < MIN_LOOP_STEPS ? unroll(g, &layer, &steps, first, o, &all)
                                 : loop(g, &layer, &steps, first, o, &all);
    weft_value y = time_and_batch(g, all);
    weft_graph_pop_scope(g);
    if (last) *last = state;
    return y;
}

/* ---- Stacks ---- */

static weft_value concat_pair(weft_graph *g, weft_value a, weft_value b)
{
    return weft_is_value(a) ? weft_concat(g, (weft_value[]){a, b}, 2, -1) : WEFT_NO_VALUE;
}

static void halves(weft_graph *g, weft_value x, weft_value *left, weft_value *right)
{
    weft_value pieces[2] = {WEFT_NO_VALUE, WEFT_NO_VALUE};
    if (weft_is_value(x)) weft_chunk(g, x, -1, 2, pieces);
    *left = pieces[0];
    *right = pieces[1];
}

/* A layer in both directions, each of half the width, in the current scope. */
static weft_value both_directions(weft_graph *g, weft_recurrent_kind kind, weft_value x,
                                  int64_t hidden, const weft_nn_recurrent_options *options,
                                  weft_recurrent_state *last)
{
    weft_recurrent_state ends[2];
    weft_nn_recurrent_options forward = *options, backward = *options;
    backward.reverse = true;
    halves(g, options->initial.h, &forward.initial.h, &backward.initial.h);
    halves(g, options->initial.c, &forward.initial.c, &backward.initial.c);
    weft_value a = weft_nn_recurrent(g, "forward", kind, x, hidden / 2, &forward, &ends[0]);
    weft_value b = weft_nn_recurrent(g, "backward", kind, x, hidden / 2, &backward, &ends[1]);
    last->h = concat_pair(g, ends[0].h, ends[1].h);
    last->c = concat_pair(g, ends[0].c, ends[1].c);
    /* Concatenated with time as axis 0, as in memory. */
    const weft_value onwards = time_and_batch(g, a), back = time_and_batch(g, b);
    return time_and_batch(g, concat_pair(g, onwards, back));
}

weft_value weft_nn_recurrent_stack(weft_graph *graph, const char *name, weft_recurrent_kind kind,
                                   weft_value x, int64_t hidden,
                                   const weft_nn_recurrent_stack_options *options,
                                   weft_recurrent_state *last)
{
    static const weft_nn_recurrent_stack_options defaults = {0};
    const weft_nn_recurrent_stack_options *o = options ? options : &defaults;
    int64_t layers = o->layers ? o->layers : 1;
    if (layers < 1 || layers > WEFT_RECURRENT_LAYERS || (o->bidirectional && hidden % 2)) {
        weft_graph_fail_in(graph, "weft_nn_recurrent_stack", WEFT_BAD_ARGUMENT,
                           "\"%s\": expected 1 to %d layers, of an even width if bidirectional, "
                           "got %lld layers of width %lld",
                           name, WEFT_RECURRENT_LAYERS, (long long)layers, (long long)hidden);
        return WEFT_NO_VALUE;
    }
    weft_graph_push_scope(graph, "%s", name);
    for (int64_t i = 0; i < layers; i++) {
        char layer[24];
        weft_recurrent_state end = {WEFT_NO_VALUE, WEFT_NO_VALUE};
        weft_nn_recurrent_options one = {.mask = o->mask};
        if (o->initial) one.initial = o->initial[i];
        snprintf(layer, sizeof layer, "%lld", (long long)i);
        if (i) x = weft_dropout(graph, x, o->dropout);
        if (o->bidirectional) {
            weft_graph_push_scope(graph, "%s", layer);
            x = both_directions(graph, kind, x, hidden, &one, &end);
            weft_graph_pop_scope(graph);
        } else {
            x = weft_nn_recurrent(graph, layer, kind, x, hidden, &one, &end);
        }
        if (last) last[i] = end;
    }
    weft_graph_pop_scope(graph);
    return x;
}
