/* Reductions over axes. Each output folds the elements along some dimensions, in blocks along the last
 * of them; the states of blocks are merged in order within each of some pieces, and those of pieces
 * in order. */

/* The numbers of some elements: of most ops the first only. */
typedef struct fold_state {
    wide_float first, second;
} fold_state;

/* How one call is computed. */
typedef struct reduce_cut {
    int outputs, count;         /* elements folded into each */
    int columns, packed;        /* sums of a column; all elements of an output are one block */
    int length, block, per_row; /* of the last folded dimension, of a block; blocks in it */
    int blocks, pieces;         /* of an output */
    int n_kept, n_folded;       /* dimensions */
    int dims[32]; /* sizes and strides of those kept, sizes and strides of those folded */
} reduce_cut;

/* Where the element of an index lies in n dimensions. */
static int offset_in(const int *size, const int *stride, int n, int index)
{
    int d, offset = 0;
    for (d = n - 1; d >= 0; d--) {
        offset += index % size[d] * stride[d];
        index /= size[d];
    }
    return offset;
}

/* The same, so that a file without dimensions needs no loop over them. */
static int offset_of(const int *size, const int *stride, int n, int index)
{
    return n ? offset_in(size, stride, n, index) : 0;
}

/* Where the folded element of an index lies. */
static int folded_offset(const reduce_cut *c, int index)
{
    const int *size = c->dims + 2 * c->n_kept;
    return offset_of(size, size + c->n_folded, c->n_folded, index);
}

/* Sets *s to the state of n elements; adds the state of `count` elements to that of `before`. */
typedef void fold_elements(const T *x, int n, int step, int columns, fold_state *s);
typedef void fold_merge(fold_state *s, int before, const fold_state *more, int count);

/* How far apart the folded elements are along the last dimension. */
static int folded_step(const reduce_cut *c)
{
    return c->n_folded ? c->dims[2 * c->n_kept + 2 * c->n_folded - 1] : 1;
}

/* Elements before block `index`. */
static int before_block(const reduce_cut *c, int index)
{
    if (index == c->blocks) return c->count;
    return index / c->per_row * c->length + index % c->per_row * c->block;
}

/* The state of blocks [begin, end) of the output whose elements begin at x. Without blocks, that of no
 * elements. */
static void fold_blocks(const T *x, const reduce_cut *c, int begin, int end,
                        fold_elements *elements, fold_merge *merge, fold_state *s)
{
    int k = begin, i;
    do {
        const int from = before_block(c, k), n = k < end ? before_block(c, k + 1) - from : 0;
        const T *first = n ? x + folded_offset(c, from) : x;
        int step = folded_step(c);
        T some[32];
        fold_state more;
        if (c->packed) {
            for (i = 0; i < n; i++) some[i] = x[folded_offset(c, from + i)];
            first = some;
            step = 1;
        }
        elements(first, n, step, c->columns, k == begin ? s : &more);
        if (k > begin) merge(s, from - before_block(c, begin), &more, n);
    } while (++k < end);
}

/* The state of output o. */
static void fold_output(const T *x, const reduce_cut *c, int o, fold_elements *elements,
                        fold_merge *merge, fold_state *s)
{
    int piece;
    x += offset_of(c->dims, c->dims + c->n_kept, c->n_kept, o);
    if (c->packed ? 0 : c->pieces == 1 && c->blocks == 1) {
        elements(x, c->count, folded_step(c), c->columns, s);
        return;
    }
    for (piece = 0; piece < c->pieces; piece++) {
        const int begin = c->blocks / c->pieces * piece + c->blocks % c->pieces * piece / c->pieces;
        const int end =
            c->blocks / c->pieces * (piece + 1) + c->blocks % c->pieces * (piece + 1) / c->pieces;
        const int before = c->blocks ? before_block(c, begin) : 0;
        const int count = c->blocks ? before_block(c, end) - before : 0;
        fold_state more;
        fold_blocks(x, c, begin, end, elements, merge, piece ? &more : s);
        if (piece) merge(s, before, &more, count);
    }
}

static void sum_elements(const T *x, int n, int step, int columns, fold_state *s)
{
    s->first = columns ? column_sum(x, n, step) : row_sum(x, n, step);
}

static void sum_merge(fold_state *s, int before, const fold_state *more, int count)
{
    (void)before;
    (void)count;
    wide_add_wide(&s->first, &more->first);
}

static void reduce_sum(const T *x, T *y, const void *cut, int correction)
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    fold_state s;
    int o;
    (void)correction;
    for (o = 0; o < c->outputs; o++) {
        fold_output(x, c, o, sum_elements, sum_merge, &s);
        y[o] = wide_value(&s.first);
    }
}

static void reduce_mean(const T *x, T *y, const void *cut, int correction)
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    fold_state s;
    int o;
    (void)correction;
    for (o = 0; o < c->outputs; o++) {
        fold_output(x, c, o, sum_elements, sum_merge, &s);
        y[o] = wide_mean(&s.first, c->count);
    }
}

/* A row has a product for each of 16 lanes. */
static void prod_elements(const T *x, int n, int step, int columns, fold_state *s)
{
    const int lanes = columns ? 1 : 16;
    double lane[16];
    int i, half;
    for (i = 0; i < lanes; i++) lane[i] = 1;
    for (i = 0; i < n; i++) lane[i % lanes] *= (double)x[i * step];
    for (half = lanes / 2; half; half /= 2)
        for (i = 0; i < half; i++) lane[i] *= lane[i + half];
    s->first = lane[0];
}

static void prod_merge(fold_state *s, int before, const fold_state *more, int count)
{
    (void)before;
    (void)count;
    s->first *= more->first;
}

static void reduce_prod(const T *x, T *y, const void *cut, int correction)
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    fold_state s;
    int o;
    (void)correction;
    for (o = 0; o < c->outputs; o++) {
        fold_output(x, c, o, prod_elements, prod_merge, &s);
        y[o] = (T)s.first;
    }
}

static T larger(T a, T b)
{
    return a != a || a > b ? a : b;
}

static void max_elements(const T *x, int n, int step, int columns, fold_state *s)
{
    T top = (T)-INFINITY;
    int i;
    (void)columns;
    for (i = 0; i < n; i++) top = larger(top, x[i * step]);
    s->first = wide_of(top);
}

static void max_merge(fold_state *s, int before, const fold_state *more, int count)
{
    (void)before;
    (void)count;
    s->first = wide_of(larger(wide_value(&s->first), wide_value(&more->first)));
}

/* 0, never -0, as wide_of. */
static void reduce_max(const T *x, T *y, const void *cut, int correction)
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    fold_state s;
    int o;
    (void)correction;
    for (o = 0; o < c->outputs; o++) {
        fold_output(x, c, o, max_elements, max_merge, &s);
        y[o] = wide_value(&s.first);
    }
}

/* The least number is the largest with the other sign. */
static void min_elements(const T *x, int n, int step, int columns, fold_state *s)
{
    T top = (T)-INFINITY;
    int i;
    (void)columns;
    for (i = 0; i < n; i++) top = larger(top, -x[i * step]);
    s->first = wide_of(top);
}

static void reduce_min(const T *x, T *y, const void *cut, int correction)
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    fold_state s;
    int o;
    (void)correction;
    for (o = 0; o < c->outputs; o++) {
        fold_output(x, c, o, min_elements, max_merge, &s);
        y[o] = 0 - wide_value(&s.first);
    }
}
