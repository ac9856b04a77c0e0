/* Reductions over any axes. See exact.h.
 *
 * The result depends on how x lies in memory. Dimensions that continue each other are joined
 * first. Where the last kept dimension has stride 1 and the last reduced one has not, or where few
 * elements are reduced to each output, the sums are those of a column, else those of a row. The
 * elements of an output come in blocks, along the last reduced dimension; the numbers of blocks are
 * merged in order within each of some pieces, and those of pieces in order. */
#include "exact_math.h"

typedef struct reduce_attr {
    int32_t count, axis[WEFT_MAX_RANK];
    bool keepdims;
    int32_t correction;
} reduce_attr;

/* Joined dimensions, outermost first. */
typedef struct dimensions {
    int n;
    int64_t size[WEFT_MAX_RANK], stride[WEFT_MAX_RANK], count;
} dimensions;

static void append(dimensions *d, int64_t size, int64_t stride)
{
    d->count *= size;
    if (size == 1) return;
    if (d->n && d->stride[d->n - 1] == size * stride) {
        d->size[d->n - 1] *= size;
        d->stride[d->n - 1] = stride;
        return;
    }
    d->size[d->n] = size;
    d->stride[d->n++] = stride;
}

/* Where element `index` of the joined dimensions lies. */
static int64_t offset_of(const dimensions *d, int64_t index)
{
    int64_t offset = 0;
    for (int k = d->n - 1; k >= 0; k--) {
        offset += index % d->size[k] * d->stride[k];
        index /= d->size[k];
    }
    return offset;
}

/* How one call is computed. */
typedef struct plan {
    dimensions kept, reduced;
    bool columns;                   /* the sums are those of a column */
    int64_t length, block, per_row; /* of the last reduced dimension, of a block; blocks in it */
    int64_t blocks, pieces;
} plan;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static plan plan_of(const reduce_attr *attr, const weft_tensor *x, int64_t outputs)
{
    plan p = {.kept = {.count = 1}, .reduced = {.count = 1}, .length = 1};
    for (int d = 0; d < x->shape.rank; d++) {
        bool reduced = attr->count == 0;
        for (int k = 0; k < attr->count; k++) reduced |= attr->axis[k] == d;
        append(reduced ? &p.reduced : &p.kept, x->shape.dim[d], x->stride[d]);
    }
    const int64_t count = p.reduced.count,
                  reduced_step = p.reduced.n ? p.reduced.stride[p.reduced.n - 1] : 1;
    p.columns = p.kept.n && p.kept.stride[p.kept.n - 1] == 1 && reduced_step != 1;
    if (p.reduced.n) p.length = p.reduced.size[p.reduced.n - 1];
    p.block = p.columns ? 256 : reduced_step == 1 ? 4096 : 1024;
    p.per_row = round_up(p.length, p.block) / p.block;
    p.blocks = count ? count / p.length * p.per_row : 0;
    /* Pieces make 64 tiles of it, but none has fewer than TILE elements. */
    int64_t width = TILE / (count ? count : 1);
    if (width < (p.columns ? 256 : 1)) width = p.columns ? 256 : 1;
    const int64_t ranges = round_up(outputs, width) / width;
    p.pieces = ranges ? round_up(64, ranges) / ranges : 1;
    p.pieces = least(p.pieces, least(least(outputs, width) * count / TILE, p.blocks));
    if (p.pieces < 1) p.pieces = 1;
    /* Few elements are one block of a column. */
    const bool few = count <= 32 && p.kept.n && (!p.columns || p.kept.size[p.kept.n - 1] < 8);
    if (few) {
        p.columns = true;
        p.length = p.block = count;
        p.per_row = p.blocks = count > 0;
    }
    return p;
}

/* The numbers of some elements: of most ops the first only. */
typedef struct state {
    double first, second;
} state;

typedef struct fold {
    state (*elements)(const T *x, int64_t n, bool column);
    state (*merge)(state a, int64_t before, state b, int64_t count);
    double (*finish)(state s, int64_t count, const reduce_attr *attr);
} fold;

/* Elements before block `index`. */
static int64_t before_block(const plan *p, int64_t index)
{
    if (index == p->blocks) return p->reduced.count;
    return index / p->per_row * p->length + index % p->per_row * p->block;
}

/* The numbers of blocks [begin, end) of an output whose elements begin at x. */
static state fold_blocks(const plan *p, const fold *f, const T *x, int64_t begin, int64_t end)
{
    T element[4096] = {0};
    state sum = f->elements(element, 0, p->columns);
    for (int64_t k = begin; k < end; k++) {
        const int64_t from = before_block(p, k), n = before_block(p, k + 1) - from;
        for (int64_t i = 0; i < n; i++) element[i] = x[offset_of(&p->reduced, from + i)];
        const state more = f->elements(element, n, p->columns);
        sum = k == begin ? more : f->merge(sum, from - before_block(p, begin), more, n);
    }
    return sum;
}

static void reduce(const reduce_attr *attr, const weft_tensor *x, weft_tensor *y, const fold *f)
{
    const plan p = plan_of(attr, x, numel(y));
    for (int64_t o = 0; o < numel(y); o++) {
        const T *first = data(x) + offset_of(&p.kept, o);
        state sum = {0, 0};
        for (int64_t piece = 0; piece < p.pieces; piece++) {
            const int64_t begin = p.blocks * piece / p.pieces,
                          end = p.blocks * (piece + 1) / p.pieces;
            const state more = fold_blocks(&p, f, first, begin, end);
            const int64_t before = p.blocks ? before_block(&p, begin) : 0;
            const int64_t count = p.blocks ? before_block(&p, end) - before : 0;
            sum = piece ? f->merge(sum, before, more, count) : more;
        }
        data(y)[o] = (T)f->finish(sum, p.reduced.count, attr);
    }
}

/* ---- The ops ---- */

static state sum_elements(const T *x, int64_t n, bool column)
{
    return (state){add_terms(column, 0, x, n), 0};
}
static state sum_merge(state a, int64_t before, state b, int64_t count)
{
    (void)before, (void)count;
    return (state){a.first + b.first, 0};
}
static double first_finish(state s, int64_t count, const reduce_attr *attr)
{
    (void)count, (void)attr;
    return s.first;
}
static double mean_finish(state s, int64_t count, const reduce_attr *attr)
{
    (void)attr;
    return s.first / (double)count;
}

/* A row has a product for each of 16 lanes. */
static state prod_elements(const T *x, int64_t n, bool column)
{
    double lane[LANES];
    const int lanes = column ? 1 : LANES;
    for (int c = 0; c < lanes; c++) lane[c] = 1;
    for (int64_t i = 0; i < n; i++) lane[i % lanes] *= (double)x[i];
    for (int half = lanes / 2; half; half /= 2)
        for (int c = 0; c < half; c++) lane[c] *= lane[c + half];
    return (state){lane[0], 0};
}
static state prod_merge(state a, int64_t before, state b, int64_t count)
{
    (void)before, (void)count;
    return (state){a.first * b.first, 0};
}

static double larger(double a, double b)
{
    return a != a || a > b ? a : b;
}
static state max_elements(const T *x, int64_t n, bool column)
{
    (void)column;
    double top = -INFINITY;
    for (int64_t i = 0; i < n; i++) top = larger(top, (double)x[i]);
    return (state){top, 0};
}
static state max_merge(state a, int64_t before, state b, int64_t count)
{
    (void)before, (void)count;
    return (state){larger(a.first, b.first), 0};
}
static state min_elements(const T *x, int64_t n, bool column)
{
    (void)column;
    double low = INFINITY;
    for (int64_t i = 0; i < n; i++) low = -larger(-low, -(double)x[i]);
    return (state){low, 0};
}
static state min_merge(state a, int64_t before, state b, int64_t count)
{
    (void)before, (void)count;
    return (state){-larger(-a.first, -b.first), 0};
}
/* 0, never -0. */
static double extreme_finish(state s, int64_t count, const reduce_attr *attr)
{
    (void)count, (void)attr;
    return s.first == 0 ? 0 : s.first;
}

static state variance_elements(const T *x, int64_t n, bool column)
{
    T space[4096];
    const moments m = exact_moments(column, x, n, space);
    return (state){m.mean, m.square};
}
static state variance_merge(state a, int64_t before, state b, int64_t count)
{
    const moments m =
        merged((moments){a.first, a.second}, before, (moments){b.first, b.second}, count);
    return (state){m.mean, m.square};
}
static double variance_finish(state s, int64_t count, const reduce_attr *attr)
{
    return s.second / fmax(0, (double)count - (double)attr->correction);
}

/* The largest element and the sum of e^(x - it); e^x if that is infinite or NaN. */
static state logsumexp_elements(const T *x, int64_t n, bool column)
{
    T e[4096];
    const T top = (T)max_elements(x, n, column).first, shift = isfinite(top) ? top : 0;
    for (int64_t i = 0; i < n; i++) e[i] = vm_exp_down(x[i] - shift);
    return (state){(double)top, column ? sum_of_rows(e, n) : sum_of_ranges(e, n)};
}
static state logsumexp_merge(state a, int64_t before, state b, int64_t count)
{
    (void)before, (void)count;
    const double top = larger(a.first, b.first), shift = isfinite(top) ? top : 0;
    return (state){top,
                   a.second * vm_exp_f64(a.first - shift) + b.second * vm_exp_f64(b.first - shift)};
}
static double logsumexp_finish(state s, int64_t count, const reduce_attr *attr)
{
    (void)count, (void)attr;
    return isfinite(s.first) ? s.first + vm_log_f64(s.second) : s.first;
}

#define REDUCTION(name, folding, ending)                                                           \
    EXACT(name)                                                                                    \
    {                                                                                              \
        UNUSED;                                                                                    \
        reduce(attr, in, out, &(fold){folding##_elements, folding##_merge, ending##_finish});      \
    }
REDUCTION(sum, sum, first)
REDUCTION(mean, sum, mean)
REDUCTION(prod, prod, first)
REDUCTION(max, max, extreme)
REDUCTION(min, min, extreme)
REDUCTION(variance, variance, variance)
REDUCTION(logsumexp, logsumexp, logsumexp)

EXACT_TABLE(reduce) = {
    ROW(sum), ROW(mean), ROW(prod), ROW(max), ROW(min), ROW(variance), ROW(logsumexp), {NULL, NULL},
};
