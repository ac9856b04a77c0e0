/* Loops: each loop of support/loops.c with one step, and with numbers of steps that are even and odd, and the
 * gradients of all it reads; a product with the Hessian; loops whose bodies have layers that repeat, other loops,
 * convolutions and workspaces; equal layers of loops; training; and a step that fails. */
#include "emit_cases.h"
#include "loops.h"

#include <weft/autograd.h>
#include <weft/losses.h>
#include <weft/transform.h>

#include <stdio.h>
#include <string.h>

/* h = tanh(layer_norm(h w)) several times, and the CTC loss of its rows, whose kernel has a workspace. */
static void build_deep(weft_graph *g, const weft_value *in, weft_value *out)
{
    const int32_t targets[2] = {1, 2}, lengths[2] = {4, 2};
    const weft_value ids = weft_constant(g, WEFT_I32, WEFT_SHAPE(1, 2), targets);
    const weft_value frames = weft_constant(g, WEFT_I32, WEFT_SHAPE(1), lengths);
    const weft_value count = weft_constant(g, WEFT_I32, WEFT_SHAPE(1), lengths + 1);
    weft_value h = weft_add(g, in[0], in[1]);
    for (int layer = 0; layer < 6; layer++)
        h = weft_tanh(g, weft_layer_norm(g, weft_matmul(g, h, in[2]), in[3], in[4], 1e-5));
    const weft_value scores = weft_log_softmax(g, weft_reshape(g, h, WEFT_SHAPE(4, 1, 5)), -1);
    out[0] = h;
    out[1] = weft_ctc_loss(g, scores, ids, frames, count, NULL);
    out[2] = weft_softmax(g, h, -1);
}

/* A convolved image, to which a loop of 3 steps adds others. */
static void build_images(weft_graph *g, const weft_value *in, weft_value *out)
{
    const loop_cell sum = {"sum", loop_cells[LOOP_SUM].build,       1,    1, 0,
                           1,     {{3, {2, 4, 5}}, {3, {2, 4, 5}}}, true, 0};
    const weft_conv_options around = {.pad_begin = {1, 1}, .pad_end = {1, 1}};
    const weft_value image = weft_conv(g, weft_stack(g, in, 1, 0), in[2], WEFT_NO_VALUE, &around);
    const weft_value steps[] = {weft_reshape(g, image, WEFT_SHAPE(2, 4, 5)), in[1]};
    loop_by_scan(g, &sum, 3, steps, out);
}

static const loop_cell deep = {
    "deep", build_deep, 1, 1, 3, 2, {{2, {4, 5}}, {2, {4, 5}}, {2, {5, 5}}, {1, {5}}, {1, {5}}},
    false,  0};
static const loop_cell images = {"images",
                                 build_images,
                                 1,
                                 1,
                                 1,
                                 1,
                                 {{3, {2, 4, 5}}, {4, {3, 2, 4, 5}}, {4, {2, 2, 3, 3}}},
                                 false,
                                 0};

static test_case begin(const char *name, weft_dtype dtype, int64_t n, int64_t min_narrow)
{
    test_case c = {
        .g = weft_graph_new(), .params = weft_params_new(), .vocab = 6, .min_narrow = min_narrow};
    snprintf(c.name, sizeof c.name, "loop_%s_%s_%lld", name, weft_dtype_name(dtype), (long long)n);
    for (char *at = c.name; *at; at++)
        if (*at == ' ') *at = '_';
    return c;
}

/* Writes the case, with all targets as outputs unless some are. */
static void end(test_case *c, int steps)
{
    weft_error error = {0};
    if (!c->n_outputs) c->n_outputs = c->n_targets;
    if (weft_graph_status(c->g) != WEFT_OK)
        printf("refused: %s: %s: %s\n", c->name, weft_graph_error(c->g)->where,
               weft_graph_error(c->g)->message);
    weft_params_init(c->params, c->g, 1, &error);
    emit_write_case(c, steps);
    weft_params_free(c->params);
    weft_graph_free(c->g);
}

/* The outputs of a loop of n steps, and the gradients of all inputs. */
static void add_loop(test_case *c, const loop_cell *cell, weft_dtype dtype, int64_t n)
{
    weft_value in[LOOP_MAX_IN], *out = c->targets + c->n_targets;
    weft_graph_push_scope(c->g, "loop%zu", c->n_targets);
    loop_declare(c->g, cell, dtype, n, in);
    loop_by_scan(c->g, cell, n, in, out);
    c->n_targets += loop_outputs(cell);
    const weft_value loss = loop_loss(c->g, out, loop_outputs(cell), true);
    weft_grad(c->g, loss, in, loop_inputs(cell), c->targets + c->n_targets);
    c->n_targets += loop_inputs(cell);
    weft_graph_pop_scope(c->g);
}

static void write_loops(weft_dtype dtype, int64_t n, int64_t min_narrow)
{
    const loop_cell *const larger[] = {&loop_nested, &deep, &images};
    test_case c = begin("cells", dtype, n, min_narrow);
    for (size_t i = 0; i < LOOP_CELLS; i++) {
        if (i == LOOP_CELLS / 2) {
            end(&c, 2);
            c = begin("more_cells", dtype, n, min_narrow);
        }
        add_loop(&c, &loop_cells[i], dtype, n);
    }
    end(&c, 2);
    c = begin("larger", dtype, n, min_narrow);
    for (size_t i = 0; i < 3; i++) add_loop(&c, larger[i], dtype, n);
    end(&c, 2);
}

/* A product of the Hessian with the inputs: loops in reverse and their gradients. */
static void write_hessian(const loop_cell *cell, int64_t min_narrow)
{
    test_case c = begin("hessian", WEFT_F32, 5, min_narrow);
    weft_value in[LOOP_MAX_IN], out[LOOP_MAX_OUT];
    loop_declare(c.g, cell, WEFT_F32, 5, in);
    loop_by_scan(c.g, cell, 5, in, out);
    c.n_targets = loop_inputs(cell);
    weft_hvp(c.g, loop_loss(c.g, out, loop_outputs(cell), true), in, in, c.n_targets, c.targets);
    end(&c, 1);
}

static weft_value matrix(weft_graph *g, const char *name, int64_t rows, int64_t columns)
{
    const weft_init init = {WEFT_INIT_NORMAL, 0, 0.4};
    return weft_param(g, name, WEFT_F32, WEFT_SHAPE(rows, columns), init);
}

/* h = z h + (1 - z) tanh(x w), where z = sigmoid(h u), stacked. */
static void build_gated(weft_graph *g, const weft_value *in, weft_value *out)
{
    const weft_value z = weft_sigmoid(g, weft_matmul(g, in[0], in[3]));
    const weft_value y = weft_tanh(g, weft_matmul(g, in[1], in[2]));
    const weft_value rest = weft_add_scalar(g, weft_neg(g, z), 1), kept = weft_mul(g, z, in[0]);
    out[0] = out[1] = weft_add(g, kept, weft_mul(g, rest, y));
}

/* Layers, each a loop over the steps of the one before it: the bodies of all are one function. */
static weft_value add_layers(weft_graph *g, int layers, int64_t n, weft_value x)
{
    const loop_cell gated = {"gated",
                             build_gated,
                             1,
                             1,
                             2,
                             1,
                             {{2, {2, 6}}, {2, {2, 6}}, {2, {6, 6}}, {2, {6, 6}}},
                             false,
                             0};
    for (int layer = 0; layer < layers; layer++) {
        weft_value out[2];
        weft_graph_push_scope(g, "layer%d", layer);
        const weft_value zero = weft_fill(g, WEFT_F32, WEFT_SHAPE(2, 6), 0);
        const weft_value w = matrix(g, "w", 6, 6), u = matrix(g, "u", 6, 6);
        loop_by_scan(g, &gated, n, (weft_value[]){zero, x, w, u}, out);
        weft_graph_pop_scope(g);
        x = out[1];
    }
    return x;
}

static void write_layers(int64_t min_narrow)
{
    test_case c = begin("layers", WEFT_F32, 7, min_narrow);
    const weft_value x = weft_input(c.g, "x", WEFT_F32, WEFT_SHAPE(7, 2, 6));
    c.targets[c.n_targets++] = add_layers(c.g, 6, 7, x);
    end(&c, 2);
}

/* The loss, and one update, of a model whose targets[0] is. */
static void train(test_case *c)
{
    const weft_optimizer adam = WEFT_ADAM_DEFAULT;
    c->rate = weft_input(c->g, "lr", WEFT_F32, WEFT_SCALAR);
    c->targets[2] = weft_train_update(c->g, c->targets[0], NULL, 0, c->rate, &adam, &c->targets[1]);
    c->n_targets = 3;
    c->n_outputs = 2;
}

static void write_training(int64_t min_narrow)
{
    test_case c = begin("training", WEFT_F32, 7, min_narrow);
    const weft_value x = weft_input(c.g, "x", WEFT_F32, WEFT_SHAPE(7, 2, 6));
    const weft_value y = add_layers(c.g, 2, 7, x);
    c.targets[0] = loop_loss(c.g, &y, 1, true);
    train(&c);
    end(&c, 3);
}

/* Training on a sum of rows of a table. The third update names a row that the table lacks, and changes no state. */
static void write_failure(int64_t min_narrow)
{
    enum { STEPS = 4, ROWS = 5 };
    test_case c = begin("failure", WEFT_F32, STEPS, min_narrow);
    weft_graph *body = weft_graph_new();
    const weft_value in[] = {weft_input(body, "h", WEFT_F32, WEFT_SHAPE(3)),
                             weft_input(body, "i", WEFT_I32, WEFT_SCALAR),
                             weft_input(body, "table", WEFT_F32, WEFT_SHAPE(ROWS, 3))};
    const weft_value start = weft_input(c.g, "start", WEFT_F32, WEFT_SHAPE(3)),
                     indices = weft_input(c.g, "indices", WEFT_I32, WEFT_SHAPE(STEPS)),
                     table = matrix(c.g, "table", ROWS, 3);
    weft_value last;
    const weft_value next = weft_add(body, in[0], weft_embedding(body, in[2], in[1], -1));
    const weft_scan_body lookup = {.graph = body,
                                   .n_carry = 1,
                                   .carry_in = in,
                                   .carry_out = &next,
                                   .n_each = 1,
                                   .each = &in[1],
                                   .n_shared = 1,
                                   .shared = &in[2]};
    weft_scan(c.g, &lookup, STEPS, &(weft_scan_inputs){&start, &indices, &table}, &last, NULL);
    weft_graph_free(body);
    c.targets[0] = loop_loss(c.g, &last, 1, true);
    train(&c);
    end(&c, 8);
}

/* x halved until its largest element is small, at most `most` times. */
static void add_while(test_case *c, weft_value x, int64_t most, double small)
{
    weft_graph *b = weft_graph_new();
    const weft_value now = weft_input(b, "now", WEFT_F32, WEFT_SHAPE(5));
    const weft_value by = weft_input(b, "by", WEFT_F32, WEFT_SCALAR), next = weft_mul(b, now, by);
    const weft_value largest = weft_max(b, weft_abs(b, next), WEFT_ALL_AXES, false);
    const weft_value half = weft_scalar(c->g, WEFT_F32, 0.5);
    const weft_scan_body body = {.graph = b,
                                 .n_carry = 1,
                                 .carry_in = &now,
                                 .carry_out = &next,
                                 .n_shared = 1,
                                 .shared = &by,
                                 .n_out = 1,
                                 .out = &next};
    const weft_while_steps steps = {
        .most = most, .go_on = weft_greater(b, largest, weft_scalar(b, WEFT_F32, small))};
    weft_value *to = c->targets + c->n_targets;
    weft_while(c->g, &body, &steps, &(weft_scan_inputs){&x, NULL, &half}, to, &to[1], &to[2]);
    weft_grad(c->g, loop_loss(c->g, to, 2, false), &x, 1, &to[3]);
    c->n_targets += 4;
    weft_graph_free(b);
}

/* Sums of some rows, from either end. */
static void add_mask(test_case *c, weft_value x, weft_value rows, bool reverse)
{
    static const uint8_t pattern[6] = {1, 0, 0, 1, 1, 0};
    weft_graph *b = weft_graph_new();
    const weft_value h = weft_input(b, "h", WEFT_F32, WEFT_SHAPE(5));
    const weft_value each[] = {weft_input(b, "row", WEFT_F32, WEFT_SHAPE(5)),
                               weft_input(b, "runs", WEFT_BOOL, WEFT_SCALAR)};
    const weft_value next = weft_tanh(b, weft_mul(b, h, each[0]));
    const weft_value runs = weft_constant(c->g, WEFT_BOOL, WEFT_SHAPE(6), pattern);
    const weft_scan_body body = {.graph = b,
                                 .n_carry = 1,
                                 .carry_in = &h,
                                 .carry_out = &next,
                                 .n_each = 2,
                                 .each = each,
                                 .n_out = 1,
                                 .out = &next,
                                 .reverse = reverse,
                                 .when = each[1]};
    weft_value *to = c->targets + c->n_targets;
    const weft_value sequences[] = {rows, runs};
    weft_scan(c->g, &body, 6, &(weft_scan_inputs){&x, sequences, NULL}, to, &to[1]);
    weft_grad(c->g, loop_loss(c->g, to, 2, false), WEFT_VALUES(x, rows), &to[2]);
    c->n_targets += 4;
    weft_graph_free(b);
}

/* exp(x) or -x, and the gradient of that. */
static void add_branch(test_case *c, weft_value x, weft_value condition)
{
    weft_graph *yes = weft_graph_new(), *no = weft_graph_new();
    const weft_value a = weft_input(yes, "a", WEFT_F32, WEFT_SHAPE(5)), y = weft_exp(yes, a);
    const weft_value b = weft_input(no, "b", WEFT_F32, WEFT_SHAPE(5)), z = weft_neg(no, b);
    const weft_branch branches[2] = {{yes, 1, &a, &x, &y}, {no, 1, &b, &x, &z}};
    weft_value *to = c->targets + c->n_targets;
    weft_cond(c->g, condition, &branches[0], &branches[1], 1, to);
    weft_grad(c->g, loop_loss(c->g, to, 1, false), &x, 1, &to[1]);
    c->n_targets += 2;
    weft_graph_free(yes);
    weft_graph_free(no);
}

/* Steps that do not run. */
static void write_conditions(int64_t min_narrow)
{
    test_case c = begin("conditions", WEFT_F32, 6, min_narrow);
    const weft_value x = weft_input(c.g, "x", WEFT_F32, WEFT_SHAPE(5));
    const weft_value rows = weft_input(c.g, "rows", WEFT_F32, WEFT_SHAPE(6, 5));
    const weft_value all = weft_sum(c.g, x, WEFT_ALL_AXES, false),
                     zero = weft_scalar(c.g, WEFT_F32, 0);
    add_while(&c, x, 20, 0.01);
    add_while(&c, x, 3, 0.01);
    add_while(&c, x, 2, 1e9);
    add_mask(&c, x, rows, false);
    add_mask(&c, x, rows, true);
    add_branch(&c, x, weft_greater(c.g, all, zero));
    add_branch(&c, x, weft_less_equal(c.g, all, zero));
    end(&c, 2);
}

/* An LSTM of n steps. The outputs are its last carry, a loss, and the gradients of the weights: those of the
 * sequence are stacked as well. */
static void write_length(int64_t n)
{
    const loop_cell *lstm = &loop_cells[LOOP_LSTM];
    test_case c = begin("length", WEFT_F32, n, 0);
    weft_value in[LOOP_MAX_IN], out[LOOP_MAX_OUT];
    loop_declare(c.g, lstm, WEFT_F32, n, in);
    loop_by_scan(c.g, lstm, n, in, out);
    c.targets[0] = out[0];
    c.targets[1] = loop_loss(c.g, out, 2, true);
    weft_grad(c.g, c.targets[1], (weft_value[]){in[3], in[4], in[2]}, 3, c.targets + 2);
    c.n_outputs = 4;
    c.n_targets = 5;
    end(&c, 1);
}

void emit_write_lengths(void)
{
    write_length(10);
    write_length(1000);
    write_length(100000);
}

void emit_write_loops(int64_t min_narrow)
{
    static const int64_t lengths[] = {1, 4, 5};
    for (int dtype = WEFT_F32; dtype <= (min_narrow ? WEFT_F32 : WEFT_F64); dtype++)
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
            write_loops((weft_dtype)dtype, lengths[n], min_narrow);
    write_hessian(&loop_cells[LOOP_LSTM], min_narrow);
    write_layers(min_narrow);
    write_training(min_narrow);
    write_conditions(min_narrow);
    write_failure(min_narrow);
}
