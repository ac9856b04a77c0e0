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
    int n_kept, n_folded;       /* dimensions; the sizes and strides of both follow */
    int kept[8], kept_stride[8], folded[8], folded_stride[8];
} reduce_cut;

static int offset_of(const int *size, const int *stride, int n, int index)
{
    int d, offset = 0;
    for (d = n - 1; d >= 0; d--) {
        offset += index % size[d] * stride[d];
        index /= size[d];
    }
    return offset;
}

typedef fold_state fold_elements(const T *x, int n, int step, int columns);
typedef fold_state fold_merge(fold_state a, int before, fold_state b, int count);

/* Elements before block `index`. */
static int before_block(const reduce_cut *c, int index)
{
    if (index == c->blocks) return c->count;
    return index / c->per_row * c->length + index % c->per_row * c->block;
}

/* The state of blocks [begin, end) of the output whose elements begin at x. Without blocks, that of no
 * elements. */
static fold_state fold_blocks(const T *x, const reduce_cut *c, int begin, int end,
                              fold_elements *elements, fold_merge *merge)
{
    fold_state sum = {WIDE_ZERO, WIDE_ZERO};
    int k = begin, i;
    do {
        const int from = before_block(c, k), n = k < end ? before_block(c, k + 1) - from : 0;
        const T *first = n ? x + offset_of(c->folded, c->folded_stride, c->n_folded, from) : x;
        int step = c->n_folded ? c->folded_stride[c->n_folded - 1] : 1;
        T some[32];
        fold_state more;
        if (c->packed) {
            for (i = 0; i < n; i++)
                some[i] = x[offset_of(c->folded, c->folded_stride, c->n_folded, from + i)];
            first = some;
            step = 1;
        }
        more = elements(first, n, step, c->columns);
        sum = k == begin ? more : merge(sum, from - before_block(c, begin), more, n);
    } while (++k < end);
    return sum;
}

static fold_state fold_output(const T *x, const reduce_cut *c, fold_elements *elements,
                              fold_merge *merge)
{
    fold_state sum = {WIDE_ZERO, WIDE_ZERO};
    int piece;
    for (piece = 0; piece < c->pieces; piece++) {
        const int begin = c->blocks / c->pieces * piece + c->blocks % c->pieces * piece / c->pieces;
        const int end =
            c->blocks / c->pieces * (piece + 1) + c->blocks % c->pieces * (piece + 1) / c->pieces;
        const fold_state more = fold_blocks(x, c, begin, end, elements, merge);
        const int before = c->blocks ? before_block(c, begin) : 0;
        const int count = c->blocks ? before_block(c, end) - before : 0;
        sum = piece ? merge(sum, before, more, count) : more;
    }
    return sum;
}

/* Where the elements of output o begin. */
static const T *first_of(const T *x, const reduce_cut *c, int o)
{
    return x + offset_of(c->kept, c->kept_stride, c->n_kept, o);
}

static fold_state sum_elements(const T *x, int n, int step, int columns)
{
    fold_state s = {WIDE_ZERO, WIDE_ZERO};
    s.first = columns ? column_sum(x, n, step) : row_sum(x, n, step);
    return s;
}

static fold_state sum_merge(fold_state a, int before, fold_state b, int count)
{
    (void)before;
    (void)count;
    wide_add_wide(&a.first, b.first);
    return a;
}

static void reduce_sum(const T *x, T *y, const int *cut, int correction)
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    int o;
    (void)correction;
    for (o = 0; o < c->outputs; o++)
        y[o] = wide_value(fold_output(first_of(x, c, o), c, sum_elements, sum_merge).first);
}

static void reduce_mean(const T *x, T *y, const int *cut, int correction)
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    int o;
    (void)correction;
    for (o = 0; o < c->outputs; o++)
        y[o] =
            wide_mean(fold_output(first_of(x, c, o), c, sum_elements, sum_merge).first, c->count);
}

/* A row has a product for each of 16 lanes. */
static fold_state prod_elements(const T *x, int n, int step, int columns)
{
    const int lanes = columns ? 1 : 16;
    double lane[16];
    fold_state s = {0, 0};
    int i, half;
    for (i = 0; i < lanes; i++) lane[i] = 1;
    for (i = 0; i < n; i++) lane[i % lanes] *= (double)x[i * step];
    for (half = lanes / 2; half; half /= 2)
        for (i = 0; i < half; i++) lane[i] *= lane[i + half];
    s.first = lane[0];
    return s;
}

static fold_state prod_merge(fold_state a, int before, fold_state b, int count)
{
    (void)before;
    (void)count;
    a.first *= b.first;
    return a;
}

static void reduce_prod(const T *x, T *y, const int *cut, int correction)
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    int o;
    (void)correction;
    for (o = 0; o < c->outputs; o++)
        y[o] = (T)fold_output(first_of(x, c, o), c, prod_elements, prod_merge).first;
}

static T larger(T a, T b)
{
    return a != a || a > b ? a : b;
}

static fold_state max_elements(const T *x, int n, int step, int columns)
{
    fold_state s = {WIDE_ZERO, WIDE_ZERO};
    T top = (T)-INFINITY;
    int i;
    (void)columns;
    for (i = 0; i < n; i++) top = larger(top, x[i * step]);
    s.first = wide_of(top);
    return s;
}

static fold_state max_merge(fold_state a, int before, fold_state b, int count)
{
    (void)before;
    (void)count;
    a.first = wide_of(larger(wide_value(a.first), wide_value(b.first)));
    return a;
}

/* 0, never -0, as wide_of. */
static void reduce_max(const T *x, T *y, const int *cut, int correction)
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    int o;
    (void)correction;
    for (o = 0; o < c->outputs; o++)
        y[o] = wide_value(fold_output(first_of(x, c, o), c, max_elements, max_merge).first);
}

/* The least number is the largest with the other sign. */
static fold_state min_elements(const T *x, int n, int step, int columns)
{
    fold_state s = {WIDE_ZERO, WIDE_ZERO};
    T top = (T)-INFINITY;
    int i;
    (void)columns;
    for (i = 0; i < n; i++) top = larger(top, -x[i * step]);
    s.first = wide_of(top);
    return s;
}

static void reduce_min(const T *x, T *y, const int *cut, int correction)
{
    const reduce_cut *c = (const reduce_cut *)(const void *)cut;
    int o;
    (void)correction;
    for (o = 0; o < c->outputs; o++)
        y[o] = 0 - wide_value(fold_output(first_of(x, c, o), c, min_elements, max_merge).first);
}
