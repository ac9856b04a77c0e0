/* Fusion: thousands of random graphs full of nodes that can be fused. Their results have the same
 * bits as those of a plan without fusion and without any sharing of memory, at any number of
 * threads. Then ops of a program's own, with operands that no op of the library has. */
#include "random_cases.h"
#include "tests.h"

#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

#define GRAPHS (TEST_SANITIZED ? 150 : 2400)

#define MAX_INPUTS  24
#define MAX_VALUES  40
#define MAX_MASKS   8
#define MAX_TARGETS 4
/* Of one value, so that a case takes milliseconds. */
#define MAX_ELEMENTS 70000
#define MAX_FLOPS    5e6

typedef struct fusion_case {
    weft_graph *g;
    weft_dtype dtype;
    uint64_t seed;
    weft_value inputs[MAX_INPUTS], values[MAX_VALUES + 4], masks[MAX_MASKS];
    size_t n_inputs, n_values, n_masks;
    weft_value targets[MAX_TARGETS];
    size_t n_targets;
} fusion_case;

static size_t below(fusion_case *c, size_t n)
{
    return test_random(&c->seed) % n;
}

static weft_value input_of(fusion_case *c, weft_shape shape)
{
    char name[32];
    for (size_t i = 0; i < c->n_inputs; i++)
        if (weft_shape_equal(weft_shape_of(c->g, c->inputs[i]), shape) &&
            (c->n_inputs == MAX_INPUTS || below(c, 2)))
            return c->inputs[i];
    if (c->n_inputs == MAX_INPUTS) return weft_fill(c->g, c->dtype, shape, 0.75);
    snprintf(name, sizeof name, "x%zu", c->n_inputs);
    return c->inputs[c->n_inputs++] = weft_input(c->g, name, c->dtype, shape);
}

/* Mostly the newest, so that fused groups become long. */
static weft_value pick(fusion_case *c)
{
    return c->values[below(c, 3) ? c->n_values - 1 : below(c, c->n_values)];
}

static bool small(weft_shape s)
{
    return weft_shape_numel(s) <= MAX_ELEMENTS;
}

/* Something that broadcasts with a: to its shape mostly. */
static weft_value operand_for(fusion_case *c, weft_value a)
{
    weft_graph *g = c->g;
    weft_shape s = weft_shape_of(g, a), joint;
    const int last = s.rank - 1;
    weft_value other = pick(c);
    switch (below(c, 14)) {
    case 0:
        return input_of(c, (weft_shape){1, {s.dim[last]}});
    case 1:
        return input_of(c, WEFT_SHAPE(s.dim[last - 1], 1));
    case 2:
        return input_of(c, WEFT_SHAPE(1, s.dim[last]));
    case 3:
        return weft_scalar(g, c->dtype, 1.25);
    case 4:
        return input_of(c, s.rank < 3 ? s : WEFT_SHAPE(s.dim[0], 1, s.dim[2]));
    case 5:
        return input_of(c, s.rank < 3 ? s : WEFT_SHAPE(1, s.dim[1], s.dim[2]));
    case 6: /* a's own first or last row, seen by all rows */
        return below(c, 2) ? weft_slice(g, a, last - 1, 0, 1, 1)
                           : weft_slice(g, a, last - 1, s.dim[last - 1] - 1, WEFT_END, 1);
    case 7:
        return weft_slice(g, a, last, 0, 1, 1);
    case 8: /* a's own transpose, if it fits */
        return s.dim[last] == s.dim[last - 1] ? weft_transpose(g, a, last, last - 1) : a;
    case 9:
        return weft_sum(g, a, WEFT_AXES(below(c, 2) ? -1 : -2), true);
    case 10:
        return weft_flip(g, a, last - (int)below(c, 2));
    default:
        return weft_shape_broadcast(s, weft_shape_of(g, other), &joint) && small(joint)
                   ? other
                   : input_of(c, s);
    }
}

static weft_value a_product(fusion_case *c, weft_value a)
{
    static const int64_t columns[] = {1, 3, 16, 32, 33, 64, 65, 100, 150, 170};
    weft_graph *g = c->g;
    weft_shape s = weft_shape_of(g, a);
    const int last = s.rank - 1;
    int64_t k = s.dim[last], n = columns[below(c, 10)];
    weft_value b;
    switch (below(c, 5)) {
    case 0: /* a batch of its own */
        b = input_of(c, s.rank < 3 ? WEFT_SHAPE(k, n) : WEFT_SHAPE(s.dim[0], k, n));
        break;
    case 1: /* its own transpose: a is read by rows that the fused group has not reached */
        n = s.dim[last - 1];
        b = weft_transpose(g, a, last, last - 1);
        break;
    case 2:
        b = weft_transpose(g, input_of(c, WEFT_SHAPE(n, k)), 0, 1);
        break;
    case 3:
        n = k;
        b = input_of(c, WEFT_SHAPE(k, k));
        break;
    default:
        b = input_of(c, WEFT_SHAPE(k, n));
    }
    double flops = 2.0 * (double)weft_shape_numel(s) * (double)n;
    if (flops > MAX_FLOPS || weft_shape_numel(s) / k * n > MAX_ELEMENTS) return weft_tanh(g, a);
    weft_value y = weft_matmul(g, a, b);
    return below(c, 2) ? y : weft_mul(g, y, input_of(c, WEFT_SCALAR));
}

static weft_value a_view(fusion_case *c, weft_value a)
{
    weft_graph *g = c->g;
    weft_shape s = weft_shape_of(g, a);
    const int last = s.rank - 1;
    switch (below(c, 6)) {
    case 0:
        return weft_transpose(g, a, last, last - 1);
    case 1: /* the same elements on other rows */
        if (s.rank == 3) return weft_reshape(g, a, WEFT_SHAPE(s.dim[0] * s.dim[1], s.dim[2]));
        return weft_reshape(g, a, WEFT_SHAPE(s.dim[1], s.dim[0]));
    case 2:
        if (s.rank == 3) return weft_transpose(g, a, 0, 1);
        return s.dim[0] % 2 ? weft_reshape(g, a, WEFT_SHAPE(1, s.dim[0], s.dim[1]))
                            : weft_reshape(g, a, WEFT_SHAPE(2, s.dim[0] / 2, s.dim[1]));
    case 3:
        return weft_slice(g, a, last - (int)below(c, 2), 0, WEFT_END, 2);
    case 4:
        return weft_flip(g, a, last - (int)below(c, 2));
    default: /* one half, whose rows lie as in the whole */
        return weft_slice(g, a, last - 1, s.dim[last - 1] / 2, WEFT_END, 1);
    }
}

static weft_value a_row_op(fusion_case *c, weft_value a)
{
    weft_graph *g = c->g;
    weft_shape s = weft_shape_of(g, a), row = {1, {s.dim[s.rank - 1]}};
    weft_value gamma = WEFT_NO_VALUE, beta = WEFT_NO_VALUE, y;
    switch (below(c, 6)) {
    case 0:
        return weft_softmax(g, a, -1);
    case 1:
        return weft_log_softmax(g, a, -1);
    case 2:
        return weft_softmax(g, a, -2); /* down the columns: no row op */
    case 3:
        gamma = input_of(c, row);
        return weft_rms_norm(g, a, gamma, 1e-5);
    case 4: /* a row of the fused group's own output as gamma */
        gamma = weft_reshape(
            g, weft_slice(g, weft_reshape(g, a, WEFT_SHAPE(-1, row.dim[0])), 0, 0, 1, 1), row);
        beta = input_of(c, row);
        return weft_layer_norm(g, a, gamma, beta, 1e-5);
    default: /* with the mean, one number a row */
        y = weft_layer_norm(g, a, gamma, beta, 1e-5);
        return below(c, 2) ? y : weft_mul(g, y, weft_value_from_id(g, y.id + 1));
    }
}

static weft_value a_mask(fusion_case *c, weft_value a)
{
    weft_graph *g = c->g;
    weft_shape joint;
    weft_value mask = weft_greater(g, a, operand_for(c, a));
    if (below(c, 3) == 0) mask = weft_logical_not(g, mask);
    if (c->n_masks && below(c, 3) == 0) {
        weft_value other = c->masks[below(c, c->n_masks)];
        if (weft_shape_broadcast(weft_shape_of(g, mask), weft_shape_of(g, other), &joint) &&
            small(joint))
            mask = weft_logical_and(g, mask, other);
    }
    c->masks[c->n_masks < MAX_MASKS ? c->n_masks++ : below(c, MAX_MASKS)] = mask;
    return mask;
}

static weft_value masked(fusion_case *c, weft_value a)
{
    weft_graph *g = c->g;
    weft_value mask = c->n_masks && below(c, 2) ? c->masks[below(c, c->n_masks)] : a_mask(c, a);
    weft_shape s = weft_shape_of(g, a), joint;
    if (!weft_shape_broadcast(s, weft_shape_of(g, mask), &joint) || !small(joint))
        return weft_sigmoid(g, a);
    if (below(c, 4) == 0) return weft_add(g, a, weft_cast(g, mask, c->dtype));
    if (weft_shape_equal(s, joint) && below(c, 2)) return weft_masked_fill(g, a, mask, 0.5);
    return weft_where(g, mask, a, below(c, 2) ? weft_scalar(g, c->dtype, -1.0) : weft_neg(g, a));
}

static weft_value a_sum(fusion_case *c, weft_value a)
{
    weft_value x[4] = {a};
    size_t n = 1, wanted = 2 + below(c, 3);
    weft_shape s = weft_shape_of(c->g, a);
    for (size_t i = 0; i < c->n_values && n < wanted; i++)
        if (weft_shape_equal(weft_shape_of(c->g, c->values[i]), s)) x[n++] = c->values[i];
    return n > 1 ? weft_add_n(c->g, x, n) : weft_abs(c->g, a);
}

static weft_value pair(fusion_case *c, weft_value a)
{
    weft_graph *g = c->g;
    weft_value b = operand_for(c, a);
    switch (below(c, 6)) {
    case 0:
        return weft_sub(g, a, b);
    case 1:
        return weft_sub(g, b, a);
    case 2:
        return weft_mul(g, a, weft_tanh(g, b));
    case 3:
        return weft_maximum(g, a, b);
    default:
        return below(c, 2) ? weft_add(g, a, b) : weft_add(g, b, a);
    }
}

static weft_value grow(fusion_case *c)
{
    static weft_value (*const unary[])(weft_graph *, weft_value) = {
        weft_relu, weft_tanh, weft_sigmoid, weft_neg, weft_gelu, weft_silu, weft_abs, weft_sin};
    weft_value a = pick(c);
    switch (below(c, 16)) {
    case 0:
    case 1:
        return a_product(c, a);
    case 2:
    case 3:
        return a_view(c, a);
    case 4:
    case 5:
        return a_row_op(c, a);
    case 6:
        return weft_dropout(c->g, a, 0.3);
    case 7:
    case 8:
        return masked(c, a);
    case 9:
        return a_sum(c, a);
    case 10:
    case 11:
        return unary[below(c, sizeof unary / sizeof *unary)](c->g, a);
    default:
        return pair(c, a);
    }
}

static weft_shape first_shape(fusion_case *c)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 17, 32, 33, 64, 65, 100, 128, 170, 200};
    int64_t rows = sizes[below(c, 13)], columns = sizes[below(c, 13)];
    switch (below(c, 8)) {
    case 0: /* wider than a block */
        return WEFT_SHAPE(1 + (int64_t)below(c, 3), 16384 + (int64_t)below(c, 5000));
    case 1:
        return WEFT_SHAPE(2, rows, columns < 100 ? columns : 100);
    case 2:
        return WEFT_SHAPE(3, 1 + rows % 70, columns);
    case 3: /* taller than a block */
        return WEFT_SHAPE(7000 + (int64_t)below(c, 3000), 1 + (int64_t)below(c, 6));
    case 4: /* square: its transpose fits */
        return WEFT_SHAPE(rows, rows);
    default:
        return WEFT_SHAPE(rows, columns);
    }
}

static void build_case(fusion_case *c, uint64_t seed, size_t most)
{
    *c = (fusion_case){.g = weft_graph_new(), .seed = seed};
    c->dtype = below(c, 4) ? WEFT_F32 : WEFT_F64;
    c->values[c->n_values++] = input_of(c, first_shape(c));
    weft_value other = input_of(c, weft_shape_of(c->g, c->values[0]));
    c->values[c->n_values++] = other;
    size_t count = 5 + below(c, MAX_VALUES - 5);
    while (c->n_values < count && c->n_values - 2 < most) {
        weft_value v = grow(c);
        c->values[c->n_values++] = v;
    }
    weft_value newest = c->values[c->n_values - 1];
    if (below(c, 5) == 0) { /* and a backward pass */
        weft_value loss = weft_sum(c->g, newest, WEFT_ALL_AXES, false), grad;
        weft_grad(c->g, loss, &other, 1, &grad);
        newest = grad;
    }
    c->targets[c->n_targets++] = newest;
    for (size_t more = below(c, 3); more; more--) c->targets[c->n_targets++] = pick(c);
    if (c->n_masks && below(c, 4) == 0) c->targets[c->n_targets++] = c->masks[0];
}

/* What was seen in the plans, to know that the cases are worth their time. */
typedef struct seen {
    size_t fused, product_heads, row_heads, other_heads, wide, rows_fused, taken_over, retained;
} seen;

static void count_fused(const weft_plan *plan, seen *s)
{
    uint32_t last_interval = (uint32_t)plan->n_intervals;
    for (size_t i = 0; i < plan->n_steps; i++) {
        const plan_step *step = &plan->steps[i];
        const node_record *node = &plan->graph->nodes[step->node];
        if (step->n_fused) {
            s->product_heads += node->op->block != NULL;
            s->row_heads += node_rows(node) != 0;
            s->other_heads += node->op->elementwise;
            s->wide += !node->op->block && step->block_columns < step->columns;
        }
        if (!step->fused) continue;
        const place *out = &plan->places[step->first_operand + node->n_in];
        s->fused++;
        s->rows_fused += node_rows(node) != 0;
        s->retained += plan->buffers[plan->buffer_of[node->first_out] - 1].last == last_interval;
        for (size_t k = 0; k < node->n_in; k++) {
            const place *in = &plan->places[step->first_operand + k];
            s->taken_over += in->kind == STORAGE_ARENA && in->offset == out->offset;
        }
    }
}

typedef struct result {
    void *data[MAX_TARGETS];
    size_t bytes[MAX_TARGETS];
} result;

static void free_result(result *r)
{
    for (size_t i = 0; i < MAX_TARGETS; i++) free(r->data[i]);
    memset(r, 0, sizeof *r);
}

static void feed_inputs(const fusion_case *c, weft_session *s)
{
    for (size_t i = 0; i < c->n_inputs; i++) {
        weft_tensor t;
        uint64_t seed = 1000 + i;
        if (weft_session_tensor(s, c->inputs[i], &t, NULL) != WEFT_OK) continue;
        for (int64_t k = 0; k < weft_shape_numel(t.shape); k++) {
            double x = test_uniform(&seed, -1, 1);
            if (t.dtype == WEFT_F32)
                ((float *)t.data)[k] = (float)x;
            else
                ((double *)t.data)[k] = x;
        }
    }
}

static bool run_case(const fusion_case *c, const weft_plan_options *options, int threads, seen *s,
                     result *out)
{
    weft_error error = {0};
    memset(out, 0, sizeof *out);
    weft_plan *plan = weft_plan_new(c->g, c->targets, c->n_targets, options, &error);
    weft_session_options so = {.threads = threads, .seed = 5, .poison = !options->no_reuse};
    weft_session *session = plan ? weft_session_new(plan, NULL, &so, &error) : NULL;
    bool good = session != NULL;
    if (good) feed_inputs(c, session);
    /* Twice: the second run meets what the first has left. */
    good = good && weft_session_run(session, NULL) == WEFT_OK &&
           weft_session_run(session, NULL) == WEFT_OK;
    for (size_t i = 0; good && i < c->n_targets; i++) {
        weft_tensor t;
        good = weft_session_tensor(session, c->targets[i], &t, NULL) == WEFT_OK;
        if (!good) break;
        out->bytes[i] = weft_tensor_bytes(t.dtype, t.shape);
        out->data[i] = malloc(out->bytes[i] + 1);
        memcpy(out->data[i], t.data, out->bytes[i]);
    }
    if (good && s) count_fused(plan, s);
    if (!good) fprintf(stderr, "\n    %s: %s\n", error.where, error.message);
    weft_session_free(session);
    weft_plan_free(plan);
    return good;
}

static bool same_results(const result *a, const result *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a->bytes[i] != b->bytes[i] || memcmp(a->data[i], b->data[i], a->bytes[i]) != 0)
            return false;
    return true;
}

static bool same_on_every_way(const random_case *random)
{
    seen *s = random->data;
    static const struct {
        weft_plan_options options;
        int threads;
    } ways[] = {
        {{.verify = true}, 1},   {{.verify = true}, 2},
        {{.verify = true}, 5},   {{.verify = true, .skip = "fuse"}, 2},
        {{.no_reuse = true}, 2},
    };
    /* All passes but those that may round differently. */
    const weft_plan_options plain = {.no_reuse = true, .skip = "reuse_dropout,cse,fold,fuse"};
    fusion_case c;
    build_case(&c, random->seed, random->size);
    if (random->show) test_show_graph(c.g);
    result expected, got;
    bool good = weft_graph_status(c.g) == WEFT_OK;
    if (!good) fprintf(stderr, "\n    %s\n", weft_graph_error(c.g)->message);
    good = good && run_case(&c, &plain, 1, NULL, &expected);
    for (size_t w = 0; good && w < sizeof ways / sizeof *ways; w++) {
        good = run_case(&c, &ways[w].options, ways[w].threads, w ? NULL : s, &got) &&
               same_results(&expected, &got, c.n_targets);
        if (!good && random->show) fprintf(stderr, "    it differs on way %zu\n", w);
        free_result(&got);
    }
    free_result(&expected);
    weft_graph_free(c.g);
    return good;
}

static void test_random_graphs(void)
{
    seen s = {0};
    const bool good = test_random_cases("fused = not fused", GRAPHS, same_on_every_way, &s);
    CU_ASSERT_TRUE(good);
    if (!good || getenv("WEFT_TEST_SEED")) return;
    /* The cases have what they are for. */
    CU_ASSERT_TRUE(s.fused > 5 * GRAPHS);
    CU_ASSERT_TRUE(s.product_heads > GRAPHS / 4);
    CU_ASSERT_TRUE(s.row_heads > GRAPHS / 8);
    CU_ASSERT_TRUE(s.other_heads > GRAPHS);
    CU_ASSERT_TRUE(s.wide > GRAPHS / 20);
    CU_ASSERT_TRUE(s.rows_fused > GRAPHS / 4);
    CU_ASSERT_TRUE(s.taken_over > GRAPHS);
    CU_ASSERT_TRUE(s.retained > GRAPHS / 8);
}

/* ---- Ops of a program's own ---- */

/* y = x + the sum of all rows of w: row by row of x, but the whole of w. */
static bool infer_first(weft_infer *infer)
{
    infer->out[0] = infer->in[0];
    return true;
}
static unsigned first_by_row(const void *attr)
{
    (void)attr;
    return 1;
}
static void kernel_plus_column_sums(const weft_call *call, int64_t tile)
{
    const weft_tensor *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    const int64_t columns = x->shape.dim[1];
    (void)tile;
    for (int64_t c = 0; c < columns; c++) {
        float sum = 0;
        for (int64_t r = 0; r < w->shape.dim[0]; r++)
            sum += ((const float *)w->data)[r * w->stride[0] + c * w->stride[1]];
        for (int64_t r = 0; r < x->shape.dim[0]; r++)
            ((float *)y->data)[r * y->stride[0] + c] =
                ((const float *)x->data)[r * x->stride[0] + c] + sum;
    }
}
static int64_t one_tile(const weft_call *call)
{
    (void)call;
    return 1;
}
static const weft_op op_plus_column_sums = {.name = "plus_column_sums",
                                            .doc = "y[r, c] = x[r, c] + sum_i w[i, c]",
                                            .min_in = 2,
                                            .max_in = 2,
                                            .n_out = 1,
                                            .infer = infer_first,
                                            .kernel = {{kernel_plus_column_sums}},
                                            .tiles = one_tile,
                                            .rowwise = first_by_row,
                                            .gradient = WEFT_GRADIENT_NONE};

/* y = -x, and of each row its first and its last element: an output with two numbers a row. */
static bool infer_ends(weft_infer *infer)
{
    infer->out[0] = infer->out[1] = infer->in[0];
    infer->out[1].shape.dim[1] = 2;
    return true;
}
static void kernel_ends(const weft_call *call, int64_t tile)
{
    const weft_tensor *x = &call->in[0], *y = &call->out[0], *ends = &call->out[1];
    const int64_t columns = x->shape.dim[1];
    (void)tile;
    for (int64_t r = 0; r < x->shape.dim[0]; r++) {
        const float *row = (const float *)x->data + r * x->stride[0];
        float *pair_of = (float *)ends->data + r * ends->stride[0];
        for (int64_t c = 0; c < columns; c++) ((float *)y->data)[r * y->stride[0] + c] = -row[c];
        pair_of[0] = row[0];
        pair_of[1] = row[columns - 1];
    }
}
static const weft_op op_ends = {.name = "ends",
                                .doc = "y = -x; (x[r, 0], x[r, n - 1])",
                                .min_in = 1,
                                .max_in = 1,
                                .n_out = 2,
                                .infer = infer_ends,
                                .kernel = {{kernel_ends}},
                                .tiles = one_tile,
                                .rowwise = first_by_row,
                                .gradient = WEFT_GRADIENT_NONE};

/* y = 2 x in blocks of MIRROR rows, and 3 x, of which each tile writes the block as far from the
 * end. */
#define MIRROR 32
static bool infer_mirror(weft_infer *infer)
{
    infer->out[0] = infer->out[1] = infer->in[0];
    return true;
}
static int64_t tiles_mirror(const weft_call *call)
{
    return call->out[0].shape.dim[0] / MIRROR;
}
static void block_mirror(const weft_call *call, int64_t tile, weft_block *block)
{
    *block = (weft_block){tile * MIRROR, MIRROR, 0, call->out[0].shape.dim[1]};
}
static void kernel_mirror(const weft_call *call, int64_t tile)
{
    const int64_t n = MIRROR * call->in[0].shape.dim[1], there = call->tiles - 1 - tile;
    const float *x = call->in[0].data;
    for (int64_t i = tile * n; i < (tile + 1) * n; i++) ((float *)call->out[0].data)[i] = 2 * x[i];
    for (int64_t i = there * n; i < (there + 1) * n; i++)
        ((float *)call->out[1].data)[i] = 3 * x[i];
}
static const weft_op op_mirror = {.name = "mirror",
                                  .doc = "y = 2 x, z = 3 x",
                                  .min_in = 1,
                                  .max_in = 1,
                                  .n_out = 2,
                                  .infer = infer_mirror,
                                  .kernel = {{kernel_mirror}},
                                  .tiles = tiles_mirror,
                                  .block = block_mirror,
                                  .gradient = WEFT_GRADIENT_NONE};

/* Runs the targets with fusion and without: the bits must be the same, and something fused. */
static void expect_same(fusion_case *c)
{
    const weft_plan_options plain = {.no_reuse = true, .skip = "fuse"}, fused = {.verify = true};
    result expected, got;
    seen s = {0};
    CU_ASSERT_TRUE_FATAL(run_case(c, &plain, 1, NULL, &expected));
    for (int threads = 1; threads <= 5; threads += 2) {
        CU_ASSERT_TRUE(run_case(c, &fused, threads, &s, &got));
        CU_ASSERT_TRUE(same_results(&expected, &got, c->n_targets));
        free_result(&got);
    }
    CU_ASSERT_TRUE(s.fused > 0);
    free_result(&expected);
    weft_graph_free(c->g);
}

static void test_whole_operand(void)
{
    fusion_case c = {.g = weft_graph_new()};
    weft_value x = weft_relu(c.g, input_of(&c, WEFT_SHAPE(400, 100)));
    weft_value w = weft_sum(c.g, input_of(&c, WEFT_SHAPE(2, 400, 100)), WEFT_AXES(0), false);
    weft_value y = weft_apply(c.g, &op_plus_column_sums, NULL, (weft_value[]){x, w}, 2, NULL);
    c.targets[c.n_targets++] = weft_add(c.g, w, y);
    expect_same(&c);
}

static void test_two_a_row(void)
{
    fusion_case c = {.g = weft_graph_new()};
    weft_value out[2], x = input_of(&c, WEFT_SHAPE(400, 100));
    weft_apply(c.g, &op_ends, NULL, &x, 1, out);
    c.targets[c.n_targets++] = weft_tanh(c.g, weft_relu(c.g, out[0]));
    c.targets[c.n_targets++] = out[1];
    expect_same(&c);
}

static void test_second_output(void)
{
    fusion_case c = {.g = weft_graph_new()};
    weft_value out[2], x = input_of(&c, WEFT_SHAPE(8 * MIRROR, 100));
    weft_apply(c.g, &op_mirror, NULL, &x, 1, out);
    c.targets[c.n_targets++] = weft_relu(c.g, out[0]);
    c.targets[c.n_targets++] = weft_tanh(c.g, out[1]);
    expect_same(&c);
}

/* A matrix product whose last tile is one column: its block is a column of a wider output. */
static void test_column_block(void)
{
    fusion_case c = {.g = weft_graph_new()};
    weft_value a = input_of(&c, WEFT_SHAPE(96, 3000)), b = input_of(&c, WEFT_SHAPE(3000, 33));
    weft_value y = weft_add(c.g, weft_matmul(c.g, a, b), input_of(&c, WEFT_SHAPE(33)));
    weft_value mask = weft_greater(c.g, y, weft_relu(c.g, y));
    weft_value chosen = weft_where(c.g, mask, weft_sin(c.g, y), weft_tanh(c.g, y));
    weft_value sum = weft_add_n(c.g, (weft_value[]){y, chosen, weft_dropout(c.g, y, 0.5)}, 3);
    c.targets[c.n_targets++] = weft_masked_fill(c.g, sum, mask, 0.5);
    c.targets[c.n_targets++] = weft_cast(c.g, mask, WEFT_F64);
    expect_same(&c);
}

void fusion_tests(void)
{
    CU_pSuite suite = CU_add_suite("fusion", NULL, NULL);
    CU_add_test(suite, "random graphs, fused = not fused", test_random_graphs);
    CU_add_test(suite, "a block of one column", test_column_block);
    CU_add_test(suite, "an operand of which every block needs the whole", test_whole_operand);
    CU_add_test(suite, "an output of two numbers a row", test_two_a_row);
    CU_add_test(suite, "an output that is not made by blocks", test_second_output);
}
