/* What is drawn for the ops of training: see exact_ops.c. */
#include "exact_case.h"

#include <math.h>
#include <string.h>

static void set_attr(exact_case *c, const void *attr, size_t bytes)
{
    memcpy(c->attr.bytes, attr, bytes);
}
#define SET_ATTR(c, attr) set_attr(c, &(attr), sizeof(attr))

static weft_shape vector(int64_t n)
{
    return WEFT_SHAPE(n);
}

/* ---- Normalisation ---- */

typedef struct norm_attr {
    double eps;
    bool rms, gamma, beta;
} norm_attr;

static int64_t elements(exact_case *c)
{
    return exact_one_of(c, 8) ? 150000 : 6000;
}

/* The statistics of a backward pass: mostly those of the forward pass, which runs with `attr`. */
static void draw_statistics(exact_case *c, const char *forward, int n, weft_shape shape)
{
    weft_tensor out[EXACT_OUTPUTS];
    const bool own = exact_one_of(c, 4) || !exact_forward(c, forward, out);
    for (int k = 1; k <= n; k++) {
        if (!own)
            exact_append(c, out[k]);
        else if (k < n)
            exact_dense(c, shape);
        else
            exact_positive(c, shape, 0.01, 3);
    }
}

static void draw_norm(exact_case *c)
{
    norm_attr attr;
    memset(&attr, 0, sizeof attr);
    const bool backward = strstr(c->op->name, "grad") != NULL;
    attr.eps = 1e-5;
    attr.rms = !strncmp(c->op->name, "rms", 3);
    SET_ATTR(c, attr);
    weft_shape shape = exact_shape(c, (int)exact_between(c, 1, 3), elements(c));
    if (exact_one_of(c, backward ? 20 : 60)) /* as many tiles of rows as there may be */
        shape = WEFT_SHAPE(exact_between(c, 1100, 1200), exact_between(c, 500, 600));
    weft_shape rows = shape;
    const int64_t n = shape.dim[shape.rank - 1];
    rows.dim[rows.rank - 1] = 1;
    exact_dense(c, shape);
    if (backward) {
        draw_statistics(c, attr.rms ? "rms_norm" : "layer_norm", 2 - attr.rms, rows);
        exact_dense(c, shape);
    }
    attr.gamma = exact_one_of(c, 2);
    attr.beta = !attr.rms && exact_one_of(c, 2);
    if (attr.gamma) exact_dense(c, vector(n));
    if (attr.beta && !backward) exact_dense(c, vector(n));
    SET_ATTR(c, attr);
}

static void draw_batch_norm(exact_case *c)
{
    const double eps = 1e-5;
    SET_ATTR(c, eps);
    weft_shape shape = exact_shape(c, (int)exact_between(c, 2, 4), elements(c));
    if (exact_one_of(c, 8)) /* images about as large as those that are read where they lie */
        shape =
            WEFT_SHAPE(exact_between(c, 1, 20), exact_between(c, 1, 3), exact_between(c, 230, 280));
    if (exact_one_of(c, 100)) /* channels in pieces */
        shape =
            WEFT_SHAPE(exact_between(c, 1, 10), exact_between(c, 1, 3), exact_between(c, 1, 50000));
    if (exact_one_of(c, 150))
        shape = WEFT_SHAPE(2, exact_between(c, 1, 3), exact_between(c, 150000, 300000));
    const weft_shape channels = vector(shape.dim[1]);
    exact_dense(c, shape);
    const weft_tensor gamma = *exact_dense(c, channels);
    exact_dense(c, channels);
    if (strcmp(c->op->name, "batch_norm_grad") != 0) return;
    weft_tensor out[EXACT_OUTPUTS];
    const bool good = exact_forward(c, "batch_norm", out);
    c->n_in = 1;
    if (good && !exact_one_of(c, 4)) {
        exact_append(c, out[1]);
        exact_append(c, out[2]);
    } else {
        exact_dense(c, channels);
        exact_positive(c, channels, 0, 3);
    }
    exact_dense(c, shape);
    exact_append(c, gamma);
}

const exact_op exact_norm_ops[] = {
    {"layer_norm", draw_norm},
    {"rms_norm", draw_norm},
    {"layer_norm_grad", draw_norm},
    {"rms_norm_grad", draw_norm},
    {"batch_norm", draw_batch_norm},
    {"batch_norm_grad", draw_batch_norm},
    {NULL, NULL},
};

/* ---- Losses ---- */

typedef struct cross_entropy_attr {
    int64_t ignore_index;
    double smoothing;
    int32_t sum;
} cross_entropy_attr;

static void draw_cross_entropy(exact_case *c)
{
    cross_entropy_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.smoothing = exact_one_of(c, 2) ? exact_number(c, 0, 1) : 0;
    attr.sum = exact_one_of(c, 2);
    attr.ignore_index = exact_one_of(c, 2) ? -1 : 0;
    SET_ATTR(c, attr);
    weft_shape shape = exact_shape(c, (int)exact_between(c, 1, 3), elements(c)), rows = shape;
    const int last = shape.rank - 1;
    if (shape.dim[last] == 0) shape.dim[last] = 1;
    rows.rank--;
    exact_dense(c, shape);
    exact_numbers(c, WEFT_I32, rows, -(int64_t)exact_one_of(c, 2), shape.dim[last] - 1);
    if (!strcmp(c->op->name, "cross_entropy")) return;
    draw_statistics(c, "cross_entropy", 2, rows);
    exact_positive(c, (weft_shape){0, {0}}, -2, 2);
}

typedef struct embedding_attr {
    int64_t rows, padding_index;
} embedding_attr;

static void draw_embedding_grad(exact_case *c)
{
    embedding_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.rows = exact_between(c, 1, 40);
    attr.padding_index = exact_one_of(c, 2) ? -1 : 0;
    SET_ATTR(c, attr);
    const weft_shape index = exact_shape(c, (int)exact_between(c, 1, 2), 1500);
    const int64_t features = exact_between(c, 1, 80);
    weft_shape dy = index;
    dy.dim[dy.rank++] = features;
    exact_numbers(c, WEFT_I32, index, 0, exact_one_of(c, 2) ? attr.rows - 1 : 0);
    exact_dense(c, dy);
}

static void draw_embedding_bag(exact_case *c)
{
    const int64_t rows = exact_between(c, 1, 60);
    exact_dense(c, WEFT_SHAPE(rows, exact_dim(c, 300)));
    const weft_shape index = exact_shape(c, (int)exact_between(c, 1, 3), 300);
    exact_numbers(c, WEFT_I32, index, 0, rows - 1);
    exact_dense(c, index);
}

static void draw_scatter_add(exact_case *c)
{
    const weft_shape shape = exact_shape(c, (int)exact_between(c, 1, 3), 2000);
    const int32_t axis = (int32_t)exact_between(c, 0, shape.rank - 1);
    SET_ATTR(c, axis);
    weft_shape updates = shape;
    updates.dim[axis] = exact_between(c, 0, exact_one_of(c, 2) ? 40 : 150);
    exact_dense(c, shape);
    exact_numbers(c, WEFT_I32, updates, 0, shape.dim[axis] - 1);
    exact_dense(c, updates);
}

/* Some sequences have too few frames for their target. */
static void draw_ctc(exact_case *c)
{
    const int64_t batch = exact_between(c, 1, 4), classes = exact_between(c, 2, 6);
    const int64_t frames = exact_between(c, 0, exact_one_of(c, 4) ? 60 : 12);
    const int64_t labels = exact_between(c, 0, exact_one_of(c, 4) ? 30 : 5);
    const int32_t blank = exact_one_of(c, 2) ? 0 : (int32_t)classes - 1;
    SET_ATTR(c, blank);
    exact_dense(c, WEFT_SHAPE(frames, batch, classes));
    exact_numbers(c, WEFT_I32, WEFT_SHAPE(batch, labels), blank == 0, classes - 1 - (blank != 0));
    exact_numbers(c, WEFT_I32, vector(batch), exact_one_of(c, 2) ? frames : 0, frames);
    exact_numbers(c, WEFT_I32, vector(batch), exact_one_of(c, 2) ? labels : 0, labels);
    if (!strcmp(c->op->name, "ctc_grad")) exact_dense(c, vector(batch));
}

const exact_op exact_loss_ops[] = {
    {"ctc", draw_ctc},
    {"ctc_grad", draw_ctc},
    {"cross_entropy", draw_cross_entropy},
    {"cross_entropy_grad", draw_cross_entropy},
    {"embedding_bag", draw_embedding_bag},
    {"embedding_grad", draw_embedding_grad},
    {"scatter_add", draw_scatter_add},
    {NULL, NULL},
};

/* ---- Updates ---- */

static void scalar(exact_case *c, double low, double high)
{
    exact_positive(c, (weft_shape){0, {0}}, low, high);
}

static void draw_blend(exact_case *c)
{
    const weft_shape shape = exact_shape(c, (int)exact_between(c, 0, 3), elements(c));
    exact_dense(c, shape);
    exact_dense(c, shape);
    scalar(c, 0, exact_one_of(c, 4) ? 0 : 1);
    scalar(c, 0, 1);
}

static void draw_sgd(exact_case *c)
{
    sgd_attr attr;
    memset(&attr, 0, sizeof attr);
    const bool momentum = !strcmp(c->op->name, "momentum_update");
    attr.momentum = momentum ? exact_number(c, 0.5, 1) : 0;
    attr.dampening = momentum && exact_one_of(c, 3) ? exact_number(c, 0, 1) : 0;
    attr.nesterov = momentum && attr.dampening == 0 && exact_one_of(c, 2);
    attr.weight_decay = exact_one_of(c, 2) ? 0 : 0.01;
    attr.scaled = exact_one_of(c, 2);
    SET_ATTR(c, attr);
    const weft_shape shape = exact_shape(c, (int)exact_between(c, 0, 3), elements(c));
    for (int k = 0; k < (momentum ? 3 : 2); k++) exact_dense(c, shape);
    scalar(c, 0, 0.1);
    if (attr.scaled) scalar(c, 0, 1);
}

static void draw_adam(exact_case *c)
{
    adam_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.beta1 = 0.9;
    attr.beta2 = exact_one_of(c, 2) ? 0.95 : 0.999;
    attr.eps = 1e-8;
    attr.weight_decay = exact_one_of(c, 2) ? 0 : 0.1;
    attr.decoupled = exact_one_of(c, 2);
    attr.scaled = exact_one_of(c, 2);
    SET_ATTR(c, attr);
    const weft_shape shape = exact_shape(c, (int)exact_between(c, 0, 3), elements(c));
    exact_dense(c, shape);
    exact_dense(c, shape);
    exact_positive(c, shape, 0, 2);
    exact_dense(c, shape);
    scalar(c, 0, 0.1);
    scalar(c, 1, exact_one_of(c, 2) ? 3 : 1000);
    if (attr.scaled) scalar(c, 0, 1);
}

static void draw_norms(exact_case *c)
{
    const int64_t n = exact_between(c, 1, 6);
    for (int64_t i = 0; i < n; i++)
        exact_dense(c, exact_shape(c, (int)exact_between(c, 0, 3), elements(c)));
}

static void draw_root_of_sum(exact_case *c)
{
    const weft_dtype dtype = c->dtype;
    const int64_t n = exact_between(c, 1, 40);
    SET_ATTR(c, dtype);
    c->dtype = WEFT_F64;
    exact_positive(c, vector(n), 0, 9);
    exact_numbers(c, WEFT_I32, vector(exact_between(c, 0, 60)), 0, n - 1);
    c->dtype = dtype;
}

const exact_op exact_update_ops[] = {
    {"square_sums", draw_norms},   {"root_of_sum", draw_root_of_sum},
    {"blend", draw_blend},         {"sgd_update", draw_sgd},
    {"momentum_update", draw_sgd}, {"adam_update", draw_adam},
    {"global_norm", draw_norms},   {NULL, NULL},
};

/* ---- Attention ---- */

typedef struct sdpa_attr {
    double scale, p;
    uint64_t key;
    int64_t window;
    bool causal, mask, dlse;
} sdpa_attr;

/* A mask that hides about half of the keys, all of them or none, for all queries or for each. */
static void draw_mask(exact_case *c, const int64_t *full)
{
    weft_shape shape = {4, {full[0], full[1], full[2], full[3]}};
    for (int d = 0; d < 3; d++)
        if (exact_one_of(c, 2)) shape.dim[d] = 1;
    const int64_t least = exact_one_of(c, 6), most = least || !exact_one_of(c, 6);
    weft_tensor *t = exact_numbers(c, WEFT_BOOL, shape, least, most);
    const int64_t whole = exact_one_of(c, 2) ? exact_between(c, 0, full[3]) : 0;
    /* The first keys are hidden from all, so that some blocks of them are left out. */
    for (int64_t row = 0; row < shape.dim[0] * shape.dim[1] * shape.dim[2]; row++) {
        const int64_t *s = t->stride;
        const int64_t at = row / shape.dim[2] / shape.dim[1] * s[0] +
                           row / shape.dim[2] % shape.dim[1] * s[1] + row % shape.dim[2] * s[2];
        for (int64_t k = 0; k < whole; k++) ((uint8_t *)t->data)[at + k * s[3]] = 1;
    }
}

static void draw_sdpa(exact_case *c)
{
    sdpa_attr attr;
    memset(&attr, 0, sizeof attr);
    const bool backward = !strcmp(c->op->name, "sdpa_grad");
    const int64_t kv_heads = exact_between(c, 1, 2), heads = kv_heads * exact_between(c, 1, 2);
    const int64_t batch = exact_between(c, 1, 2), keys = exact_one_of(c, 12)
                                                             ? exact_between(c, 1000, 2200)
                                                             : exact_between(c, 1, 200);
    const int64_t queries = keys > 300           ? exact_between(c, 1, 3)
                            : exact_one_of(c, 2) ? exact_between(c, 1, 9)
                                                 : exact_between(c, 1, 140);
    int64_t dim = exact_between(c, 1, 20),
            value_dim = exact_one_of(c, 2) ? 16 : exact_between(c, 1, 20);
    if (exact_one_of(c, 20) && queries < 9) dim = exact_between(c, 200, 600);
    attr.scale = exact_one_of(c, 2) ? 1 : exact_number(c, 0, 1);
    attr.causal = exact_one_of(c, 2);
    attr.window = exact_one_of(c, 3) ? exact_between(c, 1, 100) : 0;
    attr.mask = exact_one_of(c, 2);
    attr.dlse = backward && exact_one_of(c, 2);
    attr.p = exact_one_of(c, 3) ? exact_number(c, 0, 1) : 0;
    attr.key = test_random(&c->state);
    SET_ATTR(c, attr);
    const weft_shape q = WEFT_SHAPE(batch, queries, heads, dim),
                     out = WEFT_SHAPE(batch, queries, heads, value_dim);
    const weft_shape lse = WEFT_SHAPE(batch, heads, queries);
    exact_input(c, q);
    exact_input(c, WEFT_SHAPE(batch, keys, kv_heads, dim));
    exact_input(c, WEFT_SHAPE(batch, keys, kv_heads, value_dim));
    if (attr.mask) draw_mask(c, (int64_t[]){batch, heads, queries, keys});
    if (!backward) return;
    const weft_tensor mask = c->in[3];
    weft_tensor found[EXACT_OUTPUTS];
    if (!exact_forward(c, "sdpa", found)) return;
    c->n_in = 3;
    for (int k = 0; k < 3; k++) exact_append(c, found[k]);
    exact_input(c, out);
    if (attr.mask) exact_append(c, mask);
    if (attr.dlse) exact_input(c, lse);
}

const exact_op exact_attention_ops[] = {
    {"sdpa", draw_sdpa}, {"sdpa_grad", draw_sdpa}, {NULL, NULL}};
