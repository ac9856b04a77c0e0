/* What is drawn for ops that move or make elements: see exact_ops.c. */
#include "exact_case.h"

#include <string.h>

static void set_attr(exact_case *c, const void *attr, size_t bytes)
{
    memcpy(c->attr.bytes, attr, bytes);
}
#define SET_ATTR(c, attr) set_attr(c, &(attr), sizeof(attr))

static weft_shape any_shape(exact_case *c, int least)
{
    return exact_shape(c, (int)exact_between(c, least, 4), exact_one_of(c, 10) ? 70000 : 6000);
}

static int32_t axis_in(exact_case *c, const weft_shape *shape)
{
    return (int32_t)(test_random(&c->state) % (uint64_t)shape->rank);
}

static void draw_contiguous(exact_case *c)
{
    exact_input(c, any_shape(c, 0));
}

/* ---- Parts of tensors ---- */

static void draw_concat(exact_case *c)
{
    weft_shape shape = any_shape(c, 1);
    const int32_t axis = axis_in(c, &shape);
    SET_ATTR(c, axis);
    for (int64_t i = exact_between(c, 1, 6); i > 0; i--) {
        exact_input(c, shape);
        shape.dim[axis] = exact_between(c, 0, 9);
    }
}

typedef struct pad_attr {
    weft_shape before, after;
    double value;
} pad_attr;

static void draw_pad(exact_case *c)
{
    const weft_shape shape = exact_shape(c, (int)exact_between(c, 0, 3), 3000);
    pad_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.before.rank = attr.after.rank = shape.rank;
    for (int d = 0; d < shape.rank; d++) {
        attr.before.dim[d] = exact_one_of(c, 2) ? exact_between(c, 0, 5) : 0;
        attr.after.dim[d] = exact_one_of(c, 2) ? exact_between(c, 0, 5) : 0;
    }
    attr.value = c->dtype == WEFT_F32 || c->dtype == WEFT_F64 ? exact_number(c, -2, 2) : 1;
    SET_ATTR(c, attr);
    exact_input(c, shape);
}

typedef struct slice_attr {
    int32_t axis;
    int64_t begin, step, count, size;
} slice_attr;

static void draw_slice_scatter(exact_case *c)
{
    weft_shape shape = any_shape(c, 1);
    slice_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.axis = axis_in(c, &shape);
    attr.size = shape.dim[attr.axis];
    if (attr.size) {
        attr.begin = exact_between(c, 0, attr.size - 1);
        attr.step = exact_one_of(c, 2) ? 1 : exact_between(c, 1, 4);
        if (exact_one_of(c, 3)) attr.step = -attr.step;
        const int64_t most = 1 + (attr.step > 0 ? (attr.size - 1 - attr.begin) / attr.step
                                                : attr.begin / -attr.step);
        attr.count = exact_between(c, 0, most);
    } else {
        attr.step = 1;
    }
    shape.dim[attr.axis] = attr.count;
    SET_ATTR(c, attr);
    exact_input(c, shape);
}

/* ---- Elements at indices ---- */

static void draw_embedding(exact_case *c)
{
    const int64_t rows = exact_between(c, 1, 60);
    exact_input(c, WEFT_SHAPE(rows, exact_dim(c, 300)));
    exact_numbers(c, WEFT_I32, exact_shape(c, (int)exact_between(c, 0, 2), 300), 0, rows - 1);
}

static void draw_gather(exact_case *c)
{
    weft_shape shape = any_shape(c, 1);
    const int32_t axis = axis_in(c, &shape);
    const int64_t size = shape.dim[axis] ? shape.dim[axis] : (shape.dim[axis] = 1);
    SET_ATTR(c, axis);
    exact_input(c, shape);
    shape.dim[axis] = exact_between(c, 0, 40);
    exact_numbers(c, WEFT_I32, shape, 0, size - 1);
}

typedef struct one_hot_attr {
    int64_t classes;
    weft_dtype dtype;
} one_hot_attr;

static void draw_one_hot(exact_case *c)
{
    one_hot_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.classes = exact_between(c, 0, 50);
    attr.dtype = c->dtype;
    SET_ATTR(c, attr);
    exact_numbers(c, WEFT_I32, exact_shape(c, (int)exact_between(c, 0, 3), 1000), -1, attr.classes);
}

/* ---- Numbers that are made ---- */

typedef struct generate_attr {
    weft_dtype dtype;
    weft_shape shape;
    double start, step;
} generate_attr;

static void draw_generate(exact_case *c)
{
    const bool mask = !strcmp(c->op->name, "tril_mask"), fill = !strcmp(c->op->name, "fill");
    const bool real = c->dtype == WEFT_F32 || c->dtype == WEFT_F64;
    generate_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.dtype = c->dtype;
    const weft_shape shape = mask ? exact_shape(c, 2, 40000) : WEFT_SHAPE(exact_dim(c, 40000));
    attr.shape.rank = fill ? 0 : shape.rank;
    for (int d = 0; d < attr.shape.rank; d++) attr.shape.dim[d] = shape.dim[d];
    attr.start = real ? exact_number(c, -9, 9) : (double)exact_between(c, 0, 1);
    attr.step = real ? exact_number(c, -1, 1) : (double)(c->dtype == WEFT_I32);
    if (mask) {
        attr.start = (double)exact_between(c, -50, 50);
        attr.step = 0;
    }
    SET_ATTR(c, attr);
}

/* ---- States ---- */

static void draw_assign(exact_case *c)
{
    const weft_shape shape = any_shape(c, 0);
    exact_input(c, shape);
    exact_input(c, shape);
}

static weft_shape draw_cache(exact_case *c)
{
    weft_shape state = exact_shape(c, (int)exact_between(c, 2, 4), 20000);
    for (int d = 0; d < 2; d++)
        if (state.dim[d] == 0) state.dim[d] = 1;
    exact_input(c, state);
    return state;
}

static void draw_cache_write(exact_case *c)
{
    const weft_shape state = draw_cache(c);
    weft_shape value = state;
    value.dim[0] = exact_between(c, 0, state.dim[0]);
    value.dim[1] = exact_between(c, 0, state.dim[1]);
    exact_input(c, value);
    const bool own = exact_one_of(c, 2); /* a position for each row */
    exact_numbers(c, WEFT_I32, own ? WEFT_SHAPE(value.dim[0]) : WEFT_SCALAR, 0,
                  state.dim[1] - value.dim[1]);
}

static void draw_cache_reorder(exact_case *c)
{
    const weft_shape state = draw_cache(c);
    exact_numbers(c, WEFT_I32, WEFT_SHAPE(exact_between(c, 0, state.dim[0])), 0, state.dim[0] - 1);
    exact_numbers(c, WEFT_I32, WEFT_SCALAR, 0, state.dim[1]);
}

static void draw_require_finite(exact_case *c)
{
    exact_input(c, any_shape(c, 0));
    for (int64_t i = exact_between(c, 1, 3); i > 0; i--) exact_positive(c, WEFT_SCALAR, -2, 2);
}

const exact_op exact_move_ops[] = {
    {"contiguous", draw_contiguous},
    {"concat", draw_concat},
    {"pad", draw_pad},
    {"slice_scatter", draw_slice_scatter},
    {"embedding", draw_embedding},
    {"gather", draw_gather},
    {"one_hot", draw_one_hot},
    {"fill", draw_generate},
    {"arange", draw_generate},
    {"tril_mask", draw_generate},
    {"assign", draw_assign},
    {"cache_write", draw_cache_write},
    {"cache_reorder", draw_cache_reorder},
    {"require_finite", draw_require_finite},
    {NULL, NULL},
};

/* ---- Random numbers ---- */

typedef struct dropout_attr {
    double p;
    uint64_t key;
} dropout_attr;

static void draw_dropout(exact_case *c)
{
    dropout_attr attr = {exact_one_of(c, 6) ? 0 : exact_number(c, 0, 1), test_random(&c->state)};
    SET_ATTR(c, attr);
    exact_input(c, any_shape(c, 0));
}

typedef struct random_attr {
    weft_dtype dtype;
    weft_shape shape;
    double a, b;
    uint64_t key;
} random_attr;

static void draw_random(exact_case *c)
{
    random_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.key = test_random(&c->state);
    attr.dtype = c->dtype;
    attr.shape = any_shape(c, 0);
    attr.a = exact_number(c, -2, 2);
    attr.b = exact_one_of(c, 2) ? 2 : 2 + exact_number(c, 0, 3);
    if (!strcmp(c->op->name, "random_uniform") && exact_one_of(c, 3)) { /* few numbers */
        attr.a = 1;
        attr.b = 1 + exact_between(c, 0, 3) * (c->dtype == WEFT_F32 ? 0x1p-23 : 0x1p-52);
    }
    SET_ATTR(c, attr);
}

static void draw_bernoulli(exact_case *c)
{
    random_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.key = test_random(&c->state);
    SET_ATTR(c, attr);
    c->kind = exact_one_of(c, 2) ? 6 : c->kind;
    exact_input(c, any_shape(c, 0));
}

const exact_op exact_drawn_ops[] = {
    {"dropout", draw_dropout},
    {"random_uniform", draw_random},
    {"random_normal", draw_random},
    {"bernoulli", draw_bernoulli},
    {NULL, NULL},
};
