/* See exact_case.h: drawing shapes, layouts and values. */
#include "exact_case.h"
#include "reference_data.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int64_t exact_between(exact_case *c, int64_t low, int64_t high)
{
    if (c->size < (size_t)high) high = (int64_t)c->size;
    return high <= low ? low : low + (int64_t)(test_random(&c->state) % (uint64_t)(high - low + 1));
}

bool exact_one_of(exact_case *c, int n)
{
    return test_random(&c->state) % (uint64_t)n == 0;
}

double exact_number(exact_case *c, double low, double high)
{
    return test_uniform(&c->state, low, high);
}

int64_t exact_dim(exact_case *c, int64_t most)
{
    static const int64_t limit[] = {1, 4, 9, 9, 9, 20, 40, 40, 130, 300, 600, 1100, 5000, 40000};
    static const int64_t near[] = {8, 16, 32, 64, 128, 256, 512, 768, 1024, 4096};
    int64_t n;
    if (exact_one_of(c, 4)) {
        n = near[exact_between(c, 0, 9)] + exact_between(c, 0, 2) - 1;
        if ((size_t)n > c->size) n = (int64_t)c->size;
    } else {
        n = exact_between(c, exact_one_of(c, 30) ? 0 : 1, limit[test_random(&c->state) % 14]);
    }
    return n <= most ? n : most > 0 ? 1 + n % most : 0;
}

weft_shape exact_shape(exact_case *c, int rank, int64_t most)
{
    weft_shape shape = {rank, {0}};
    /* In an order of their own: the large dimension may be any. */
    const int first = rank ? (int)(test_random(&c->state) % (uint64_t)rank) : 0;
    for (int k = 0; k < rank; k++) {
        const int d = (first + k) % rank;
        shape.dim[d] = exact_dim(c, most);
        if (shape.dim[d]) most /= shape.dim[d];
    }
    return shape;
}

/* ---- Values ---- */

static double special(exact_case *c)
{
    const double smallest = c->dtype == WEFT_F32 ? 0x1p-149 : 0x1p-1074;
    const double largest = c->dtype == WEFT_F32 ? (double)FLT_MAX : DBL_MAX;
    const double list[] = {INFINITY, -INFINITY, (double)NAN,   0.0,
                           -0.0,     smallest,  -5 * smallest, largest};
    return list[test_random(&c->state) % 8];
}

static double value(exact_case *c)
{
    if (c->dtype == WEFT_BOOL) return exact_one_of(c, 2);
    if (c->dtype == WEFT_U8) return floor(exact_number(c, 0, 256));
    if (c->dtype == WEFT_I32)
        return exact_one_of(c, 8) ? INT32_MIN
                                  : rint(exact_number(c, -2, 2) * (c->kind ? 2 : 0x1p30));
    const double x = exact_number(c, -2, 2);
    const int exponents = c->dtype == WEFT_F32 ? 100 : 800;
    if (c->specials && exact_number(c, 0, 1) < c->density) return special(c);
    switch (c->kind) {
    case 0:
        return ldexp(x, (int)(test_random(&c->state) % 40) - 20);
    case 1:
        return ldexp(x, (int)(test_random(&c->state) % (2 * (uint64_t)exponents)) - exponents);
    case 2: /* far from zero */
        return 1000 + x;
    case 3: /* ties, and zeros of both signs */
        return exact_one_of(c, 4) ? (x < 0 ? -0.0 : 0.0) : rint(2 * x);
    case 4: /* subnormal and just above */
        return ldexp(x, (c->dtype == WEFT_F32 ? -128 : -1024) + c->shift);
    case 5:
        return 30 * x;
    default:
        return x;
    }
}

/* ---- Layouts ---- */

/* Sets strides for dimensions in the order `order`, the innermost first; `loose`: with gaps. */
static void place(exact_case *c, weft_tensor *t, const int *order, bool loose, bool steps)
{
    int64_t next = steps && exact_one_of(c, 4) ? exact_between(c, 2, 3) : 1;
    for (int k = 0; k < t->shape.rank; k++) {
        const int d = order[k];
        t->stride[d] = next;
        next *= t->shape.dim[d] ? t->shape.dim[d] : 1;
        if (loose && exact_one_of(c, 2)) next += exact_between(c, 1, 5);
    }
}

/* Strides for a tensor whose layout the op takes. */
static void draw_layout(exact_case *c, weft_tensor *t, weft_takes takes)
{
    const int rank = t->shape.rank;
    int order[WEFT_MAX_RANK];
    const bool any = takes == WEFT_TAKES_ANY, matrix = takes == WEFT_TAKES_MATRIX;
    const bool loose = exact_one_of(c, 2);
    for (int d = 0; d < rank; d++) order[d] = rank - 1 - d;
    if (takes == WEFT_TAKES_DENSE || exact_one_of(c, 3)) {
        place(c, t, order, false, false);
        return;
    }
    /* The dimensions from `fixed` on keep their places. */
    const int fixed = any ? 0 : matrix ? 2 : 1;
    for (int k = fixed; k < rank; k++) {
        const int other = k + (int)(test_random(&c->state) % (uint64_t)(rank - k)), d = order[k];
        order[k] = order[other];
        order[other] = d;
    }
    if (matrix && rank > 1 && exact_one_of(c, 2)) {
        order[0] = rank - 2;
        order[1] = rank - 1;
    }
    place(c, t, order, loose, any);
    for (int d = 0; d < rank - (any ? 0 : matrix ? 2 : 1); d++) {
        if (exact_one_of(c, 12)) t->stride[d] = 0;
        if (t->shape.dim[d] == 1 && exact_one_of(c, 3)) t->stride[d] = exact_between(c, 0, 9);
    }
    for (int d = 0; any && d < rank; d++)
        if (exact_one_of(c, 10)) t->stride[d] = -t->stride[d];
}

/* Allocates what the strides reach, and lets `data` point to the first element. Returns how many
 * elements there are, from *low on. */
static int64_t allocate(exact_case *c, weft_tensor *t, int64_t *low)
{
    int64_t high = 0;
    *low = 0;
    for (int d = 0; d < t->shape.rank; d++) {
        const int64_t reach = t->shape.dim[d] > 1 ? (t->shape.dim[d] - 1) * t->stride[d] : 0;
        *(reach < 0 ? low : &high) += reach;
    }
    const int64_t n = weft_shape_numel(t->shape) ? high - *low + 1 : 0;
    const size_t each = weft_dtype_bytes(t->dtype);
    char *memory = malloc((size_t)n * each + 1);
    c->owned[c->n_owned++] = memory;
    t->data = memory - (n ? *low : 0) * (int64_t)each;
    return n;
}

static weft_tensor *append(exact_case *c, weft_dtype dtype, weft_shape shape, weft_takes takes)
{
    weft_tensor *t = &c->in[c->n_in++];
    *t = (weft_tensor){.dtype = dtype, .shape = shape};
    draw_layout(c, t, takes);
    return t;
}

void exact_append(exact_case *c, weft_tensor t)
{
    c->in[c->n_in++] = t;
}

weft_tensor *exact_input(exact_case *c, weft_shape shape)
{
    weft_tensor *t = append(c, c->dtype, shape, c->op->takes);
    int64_t low;
    const int64_t n = allocate(c, t, &low);
    for (int64_t i = 0; i < n; i++) put(t, low + i, value(c));
    return t;
}

weft_tensor *exact_dense(exact_case *c, weft_shape shape)
{
    weft_tensor *t = append(c, c->dtype, shape, WEFT_TAKES_DENSE);
    int64_t low;
    const int64_t n = allocate(c, t, &low);
    for (int64_t i = 0; i < n; i++) put(t, i, value(c));
    return t;
}

weft_tensor *exact_numbers(exact_case *c, weft_dtype dtype, weft_shape shape, int64_t least,
                           int64_t most)
{
    weft_tensor *t = append(c, dtype, shape, c->op->takes);
    int64_t low;
    const int64_t n = allocate(c, t, &low);
    for (int64_t i = 0; i < n; i++)
        put(t, low + i, floor(exact_number(c, (double)least, (double)most + 1)));
    return t;
}

weft_tensor *exact_positive(exact_case *c, weft_shape shape, double least, double most)
{
    weft_tensor *t = append(c, c->dtype, shape, WEFT_TAKES_DENSE);
    int64_t low;
    const int64_t n = allocate(c, t, &low);
    for (int64_t i = 0; i < n; i++) put(t, i, exact_number(c, least, most));
    return t;
}
