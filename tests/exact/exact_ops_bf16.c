/* See exact_case.h: ops whose operands or results are stored as bf16. They are drawn as in f32. */
#include "exact_case.h"
#include "exact_bf16.h"

#include "base/half.h"

#include <stdlib.h>

/* Element i of t, in row-major order, as an offset. */
static int64_t offset_of(const weft_tensor *t, int64_t i)
{
    int64_t offset = 0;
    for (int d = t->shape.rank - 1; d >= 0; i /= t->shape.dim[d--])
        offset += i % t->shape.dim[d] * t->stride[d];
    return offset;
}

/* ---- Drawing ---- */

/* Chooses some of the inputs `in` and outputs `out`, at least one, and rounds their elements. Now
 * and then, all numbers are so small that products of two are near the smallest normal one. */
static void choose_narrow(exact_case *c, unsigned in, unsigned out)
{
    const float factor = exact_one_of(c, 4) ? ldexpf(1, -(int)exact_between(c, 60, 66)) : 1;
    while (!(c->narrow_in | c->narrow_out)) {
        c->narrow_in = (unsigned)test_random(&c->state) & in;
        c->narrow_out = (unsigned)test_random(&c->state) & out;
    }
    if (exact_one_of(c, 2)) c->narrow_in = in;
    for (size_t i = 0; i < c->n_in && i < 32; i++) {
        const int64_t n = weft_shape_numel(c->in[i].shape);
        float *x = c->in[i].data;
        if (!(in >> i & 1)) continue;
        for (int64_t k = 0; k < n; k++) {
            float *at = x + offset_of(&c->in[i], k);
            if (factor != 1 && fabsf(*at) > 0x1p-40f) *at *= factor;
            if (c->narrow_in >> i & 1) *at = bf16_round(*at);
        }
    }
}

static void draw_matmul(exact_case *c)
{
    c->dtype = WEFT_F32;
    exact_matmul_ops[0].draw(c);
    choose_narrow(c, 3, 1);
}

/* Also in f32 alone, and longer sums than a task packs at once. */
static void draw_tiles(exact_case *c)
{
    c->dtype = WEFT_F32;
    if (exact_one_of(c, 8)) {
        const int64_t k = exact_between(c, 2040, 2200);
        exact_input(c, WEFT_SHAPE(exact_between(c, 1, 40), k));
        exact_input(c, WEFT_SHAPE(k, exact_between(c, 1, 40)));
    } else {
        exact_matmul_ops[0].draw(c);
    }
    if (!exact_one_of(c, 3)) choose_narrow(c, 3, 1);
}

static void draw_attention(exact_case *c)
{
    enum { QKV = 7, DOUT = 1 << 6 };
    c->dtype = WEFT_F32;
    exact_attention_ops[0].draw(c);
    choose_narrow(c, c->op->n_out == 3 && c->n_in > 6 ? QKV | DOUT : QKV, 0);
}

const exact_op exact_bf16_ops[] = {
    {"matmul", draw_matmul},
    {"matmul_tiles", draw_tiles},
    {"sdpa", draw_attention},
    {"sdpa_grad", draw_attention},
    {NULL, NULL},
};

/* ---- Storage ---- */

void exact_mark_narrow(exact_case *c, weft_tensor *out)
{
    for (size_t i = 0; i < c->n_in && i < 32; i++)
        if (c->narrow_in >> i & 1) c->in[i].dtype = WEFT_BF16;
    for (size_t k = 0; k < c->op->n_out; k++)
        if (c->narrow_out >> k & 1) out[k].dtype = WEFT_BF16;
}

/* The same elements with the same strides, from `odd` bf16 after an even place on. */
static void store(exact_case *c, weft_tensor *t, int64_t odd)
{
    int64_t reach = 1 + odd;
    const int64_t n = weft_shape_numel(t->shape);
    for (int d = 0; n && d < t->shape.rank; d++) reach += (t->shape.dim[d] - 1) * t->stride[d];
    uint16_t *to = calloc((size_t)reach, sizeof *to);
    const float *x = t->data;
    c->owned[c->n_owned++] = to;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = offset_of(t, i);
        to[odd + at] = half_to_bf16(x[at]);
    }
    t->data = to + odd;
}

void exact_store_narrow(exact_case *c, weft_tensor *out)
{
    for (size_t i = 0; i < c->n_in && i < 32; i++)
        if (c->narrow_in >> i & 1) store(c, &c->in[i], exact_one_of(c, 4));
    for (size_t k = 0; k < c->op->n_out; k++)
        if (c->narrow_out >> k & 1) store(c, &out[k], 0);
}
