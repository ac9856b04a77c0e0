/* Reductions over any axes of any layout. The dimensions are split into kept and reduced ones,
 * those that lie behind each other joined. If the last kept dimension has stride 1 and the last
 * reduced one has not, a stretch of neighbouring outputs is folded together, its rows streaming by
 * (column path); else each output folds its own elements (row path).
 *
 * Elements are folded in blocks, which stay in the second-level cache, so that an op may pass over
 * one twice; a row whose elements lie apart is packed block by block. A block gives a state of one
 * or two f64 numbers, and states are merged in order. An op
 * is the four functions of a `fold`. Where outputs are too few to occupy the processor, pieces of
 * the blocks become tiles of their own, their states go to scratch, and a second phase merges them;
 * the pieces come from the shape alone. */
#include "kernels/extreme.h"
#include "kernels/kernel.h"
#include "kernels/sums.h"

typedef struct reduce_attr {
    int32_t count;
    int32_t axis[WEFT_MAX_RANK];
    bool keepdims;
    int32_t correction;
} reduce_attr;

#define COLUMNS      256  /* outputs folded together in the column path */
#define BLOCK_ROWS   256  /* elements of each in a block there */
#define BLOCK        4096 /* elements of a block of the row path */
#define PACKED       1024 /* of one whose elements lie apart */
#define WANTED_PARTS 64   /* that outputs are cut into pieces for */
#define NUMBERS      2    /* of a state */

/* The dimensions of x, kept and reduced, outermost first. */
typedef struct split {
    int n_kept, n_folded;
    int64_t kept[WEFT_MAX_RANK], kept_stride[WEFT_MAX_RANK];
    int64_t folded[WEFT_MAX_RANK], folded_stride[WEFT_MAX_RANK];
    int64_t count; /* elements folded into one output */
} split;

static inline bool is_reduced(const reduce_attr *attr, int axis)
{
    if (attr->count == 0) return true;
    for (int i = 0; i < attr->count; i++)
        if (attr->axis[i] == axis) return true;
    return false;
}

static inline void split_add(int *n, int64_t *dims, int64_t *strides, int64_t dim, int64_t stride)
{
    if (dim == 1) return;
    if (*n && strides[*n - 1] == dim * stride) {
        dims[*n - 1] *= dim;
        strides[*n - 1] = stride;
        return;
    }
    dims[*n] = dim;
    strides[(*n)++] = stride;
}

static inline split split_of(const weft_call *call)
{
    const weft_tensor *x = &call->in[0];
    split s = {0};
    s.count = 1;
    for (int d = 0; d < x->shape.rank; d++) {
        if (is_reduced(call->attr, d)) {
            s.count *= x->shape.dim[d];
            split_add(&s.n_folded, s.folded, s.folded_stride, x->shape.dim[d], x->stride[d]);
        } else {
            split_add(&s.n_kept, s.kept, s.kept_stride, x->shape.dim[d], x->stride[d]);
        }
    }
    return s;
}

static inline bool by_columns(const split *s)
{
    return s->n_kept && s->kept_stride[s->n_kept - 1] == 1 && s->n_folded &&
           s->folded_stride[s->n_folded - 1] != 1;
}

/* Do the elements that are folded into one output lie side by side? */
static inline bool by_dense_rows(const split *s)
{
    return !s->n_folded || s->folded_stride[s->n_folded - 1] == 1;
}

/* How the work is cut: tiles are stretches of outputs times pieces of their blocks. */
typedef struct cut {
    int64_t outputs, width, stretches; /* all, of a stretch, and how many stretches */
    int64_t length, block, per_row;    /* of a row of folded elements, of a block; blocks a row */
    int64_t blocks, pieces;
} cut;

static inline cut cut_of(const split *s, int64_t outputs)
{
    const bool columns = by_columns(s);
    const int64_t count = s->count ? s->count : 1, least = columns ? COLUMNS : 1;
    cut c = {.outputs = outputs, .width = TILE / count, .length = 1};
    if (c.width < least) c.width = least;
    c.stretches = ceil_div(outputs, c.width);
    if (s->n_folded) c.length = s->folded[s->n_folded - 1];
    c.block = columns ? BLOCK_ROWS : by_dense_rows(s) ? BLOCK : PACKED;
    c.per_row = ceil_div(c.length, c.block);
    c.blocks = s->count ? s->count / c.length * c.per_row : 0;
    c.pieces = c.stretches ? ceil_div(WANTED_PARTS, c.stretches) : 1;
    const int64_t by_size = (outputs < c.width ? outputs : c.width) * s->count / TILE;
    if (c.pieces > by_size) c.pieces = by_size;
    if (c.pieces > c.blocks) c.pieces = c.blocks;
    if (c.pieces < 1) c.pieces = 1;
    return c;
}

#ifdef WEFT_KERNEL_ISA
#include "kernels/vmath.h"

/* Offset of output `index`'s first element. */
static inline int64_t base_of(const split *s, int64_t index)
{
    int64_t offset = 0;
    for (int d = s->n_kept - 1; d >= 0; d--) {
        offset += index % s->kept[d] * s->kept_stride[d];
        index /= s->kept[d];
    }
    return offset;
}

/* Offset of row `index` of the folded elements: a run along the last folded dimension. */
static inline int64_t row_of(const split *s, int64_t index)
{
    int64_t offset = 0;
    for (int d = s->n_folded - 2; d >= 0; d--) {
        offset += index % s->folded[d] * s->folded_stride[d];
        index /= s->folded[d];
    }
    return offset;
}

/* States are arrays of NUMBERS * n numbers: the first of every output, then the second. */
typedef struct fold {
    /* The state of n neighbours; of none, what changes nothing when merged. */
    void (*row)(const T *x, int64_t n, double *state);
    /* The states of n neighbouring columns over `rows` rows, `step` apart; n <= COLUMNS. */
    void (*columns)(const T *x, int64_t rows, int64_t step, int64_t n, double *state);
    /* Adds to n states of `before` elements each those of `count` elements. */
    void (*merge)(double *state, int64_t before, const double *more, int64_t count, int64_t n);
    /* Writes n results. */
    void (*finish)(const double *state, int64_t count, const reduce_attr *attr, int64_t n, T *y);
} fold;

#define SIMD           _Pragma("omp simd")
#define PRAGMA(text)   _Pragma(#text)
#define SIMD_FOLD(...) PRAGMA(omp simd reduction(__VA_ARGS__))
#define EACH_COLUMN    SIMD for (int64_t c = 0; c < n; c++)

/* ---- sum, mean: the sum ---- */

static void sum_row(const T *x, int64_t n, double *state)
{
    state[0] = sum_of(x, n);
}

#define ELEMENT(i) x[(i)*step + (c)]
static void sum_columns(const T *x, int64_t rows, int64_t step, int64_t n, double *state)
{
    EACH_COLUMN state[c] = 0;
    SUM_COLUMNS(state, rows, n, ELEMENT)
}

static void sum_merge(double *state, int64_t before, const double *more, int64_t count, int64_t n)
{
    (void)before;
    (void)count;
    EACH_COLUMN state[c] += more[c];
}

static void sum_finish(const double *state, int64_t count, const reduce_attr *attr, int64_t n, T *y)
{
    (void)count;
    (void)attr;
    EACH_COLUMN y[c] = (T)state[c];
}

static void mean_finish(const double *state, int64_t count, const reduce_attr *attr, int64_t n,
                        T *y)
{
    (void)attr;
    EACH_COLUMN y[c] = (T)(state[c] / (double)count);
}

/* ---- max, min: the extreme, NaN once there was one ---- */

#define EXTREME(name, kind, beats, worst)                                                          \
    static T name##_of_row(const T *x, int64_t n)                                                  \
    {                                                                                              \
        T best = worst;                                                                            \
        int nan = 0;                                                                               \
        PRAGMA(omp simd reduction(kind : best) reduction(| : nan))                                 \
        for (int64_t i = 0; i < n; i++) {                                                          \
            best = x[i] beats best ? x[i] : best;                                                  \
            nan |= x[i] != x[i];                                                                   \
        }                                                                                          \
        return nan ? (T)NAN : extreme_of(best, worst, x, n, 1);                                    \
    }                                                                                              \
    static void name##_of_columns(const T *x, int64_t rows, int64_t step, int64_t n, T *best)      \
    {                                                                                              \
        EACH_COLUMN best[c] = worst;                                                               \
        for (int64_t i = 0; i < rows; i++) EACH_COLUMN                                             \
            {                                                                                      \
                const T v = ELEMENT(i);                                                            \
                best[c] = ((v beats best[c]) | (v != v)) ? v : best[c];                            \
            }                                                                                      \
    }                                                                                              \
    static void name##_row(const T *x, int64_t n, double *state)                                   \
    {                                                                                              \
        state[0] = (double)name##_of_row(x, n);                                                    \
    }                                                                                              \
    static void name##_columns(const T *x, int64_t rows, int64_t step, int64_t n, double *state)   \
    {                                                                                              \
        T best[COLUMNS];                                                                           \
        name##_of_columns(x, rows, step, n, best);                                                 \
        EACH_COLUMN state[c] = (double)best[c];                                                    \
    }                                                                                              \
    static void name##_merge(double *state, int64_t before, const double *more, int64_t count,     \
                             int64_t n)                                                            \
    {                                                                                              \
        (void)before;                                                                              \
        (void)count;                                                                               \
        EACH_COLUMN state[c] =                                                                     \
            ((more[c] beats state[c]) | (more[c] != more[c])) ? more[c] : state[c];                \
    }
EXTREME(max, max, >, (T)-INFINITY)
EXTREME(min, min, <, (T)INFINITY)

/* ---- variance: mean and sum of squared deviations, of a block by two passes, of blocks by the
 * rule of Chan, Golub & LeVeque (1983) ---- */

/* Of n elements with this sum and this sum of squared deviations from `mean`, the mean rounded.
 * What rounding added to the squares is taken away, but never more than there is. */
static inline void variance_state(double sum, T mean, double square, int64_t n, double *state,
                                  int64_t next)
{
    const double miss = n ? sum / (double)n - (double)mean : 0;
    state[0] = (double)mean + miss;
    const double rest = square - (double)n * miss * miss;
    state[next] = rest < 0 ? 0 : rest;
}

static void variance_row(const T *x, int64_t n, double *state)
{
    const double sum = sum_of(x, n);
    const T mean = n ? (T)(sum / (double)n) : 0;
#define TERM(i) ((x[i] - mean) * (x[i] - mean))
    SUM_ROW(square, n, TERM)
#undef TERM
    variance_state(sum, mean, square, n, state, 1);
}

#define SQUARE(i) ((ELEMENT(i) - mean[c]) * (ELEMENT(i) - mean[c]))
static void variance_columns(const T *x, int64_t rows, int64_t step, int64_t n, double *state)
{
    T mean[COLUMNS];
    double *square = state + n;
    sum_columns(x, rows, step, n, state);
    EACH_COLUMN
    {
        mean[c] = rows ? (T)(state[c] / (double)rows) : 0;
        square[c] = 0;
    }
    SUM_COLUMNS(square, rows, n, SQUARE)
    EACH_COLUMN variance_state(state[c], mean[c], square[c], rows, state + c, n);
}

static void variance_merge(double *state, int64_t before, const double *more, int64_t count,
                           int64_t n)
{
    const double all = (double)(before + count), share = all > 0 ? (double)count / all : 0;
    EACH_COLUMN
    {
        const double apart = more[c] - state[c];
        state[c] += apart * share;
        state[n + c] += more[n + c] + apart * apart * ((double)before * share);
    }
}

/* As PyTorch has it: NaN over no elements, x / 0 where the correction takes all of them. */
static void variance_finish(const double *state, int64_t count, const reduce_attr *attr, int64_t n,
                            T *y)
{
    const double divisor = fmax(0, (double)count - (double)attr->correction);
    EACH_COLUMN y[c] = (T)(state[n + c] / divisor);
}

/* ---- logsumexp: the largest element and the sum of e^(v - it) ---- */

/* An infinite or NaN maximum is the result; no exponential of it is needed. */
static inline T shift_of(T top)
{
    return top - top == 0 ? top : 0;
}

static void logsumexp_row(const T *x, int64_t n, double *state)
{
    const T top = max_of_row(x, n), shift = shift_of(top);
    double sum = 0;
    EACH_STRETCH(from, to, n)
    {
        T partial = 0;
        SIMD_FOLD(+ : partial) for (int64_t i = from; i < to; i++) partial += vm_exp_down(x[i] - shift);
        sum += (double)partial;
    }
    state[0] = (double)top;
    state[1] = sum;
}

static void logsumexp_columns(const T *x, int64_t rows, int64_t step, int64_t n, double *state)
{
    T top[COLUMNS], shift[COLUMNS];
    double *sum = state + n;
    max_of_columns(x, rows, step, n, top);
    EACH_COLUMN
    {
        shift[c] = shift_of(top[c]);
        state[c] = (double)top[c];
        sum[c] = 0;
    }
    for (int64_t from = 0; from < rows; from += SUM_ROWS) {
        T partial[COLUMNS] = {0};
        for (int64_t i = from; i < rows && i < from + SUM_ROWS; i++)
            EACH_COLUMN partial[c] += vm_exp_down(ELEMENT(i) - shift[c]);
        EACH_COLUMN sum[c] += (double)partial[c];
    }
}

static void logsumexp_merge(double *state, int64_t before, const double *more, int64_t count,
                            int64_t n)
{
    (void)before;
    (void)count;
    EACH_COLUMN
    {
        const double a = state[c], b = more[c], top = ((b > a) | (b != b)) ? b : a;
        const double shift = top - top == 0 ? top : 0;
        state[n + c] = state[n + c] * vm_exp_f64(a - shift) + more[n + c] * vm_exp_f64(b - shift);
        state[c] = top;
    }
}

static void logsumexp_finish(const double *state, int64_t count, const reduce_attr *attr, int64_t n,
                             T *y)
{
    (void)count;
    (void)attr;
    for (int64_t c = 0; c < n; c++)
        y[c] = (T)(state[c] - state[c] == 0 ? state[c] + log(state[n + c]) : state[c]);
}

/* ---- The walk, the same for all ---- */

/* Elements of one output in blocks before block `index`. */
static inline int64_t count_before(const cut *c, int64_t index)
{
    int64_t within = index % c->per_row * c->block;
    return index / c->per_row * c->length + within;
}

static inline int64_t count_between(const cut *c, const split *s, int64_t begin, int64_t end)
{
    return c->blocks == 0
               ? 0
               : (end == c->blocks ? s->count : count_before(c, end)) - count_before(c, begin);
}

/* The state of one block of n outputs (1 in the row path), whose first element is at x. */
static inline void fold_block(const fold *f, const split *s, const cut *c, const T *x, int64_t n,
                              int64_t index, double *state)
{
    const int64_t from = index % c->per_row * c->block, rest = c->length - from;
    const int64_t step = s->n_folded ? s->folded_stride[s->n_folded - 1] : 1;
    const int64_t count = rest < c->block ? rest : c->block;
    const T *block = x + row_of(s, index / c->per_row) + from * step;
    T packed[PACKED];
    if (by_columns(s)) {
        f->columns(block, count, step, n, state);
    } else if (by_dense_rows(s)) {
        f->row(block, count, state);
    } else {
        for (int64_t i = 0; i < count; i++) packed[i] = block[i * step];
        f->row(packed, count, state);
    }
}

/* The states of n outputs over one piece of their blocks. */
static void fold_piece(const fold *f, const split *s, const cut *c, const T *x, int64_t n,
                       int64_t piece, double *state)
{
    const int64_t begin = c->blocks * piece / c->pieces, end = c->blocks * (piece + 1) / c->pieces;
    double more[NUMBERS * COLUMNS];
    if (begin < end)
        fold_block(f, s, c, x, n, begin, state);
    else if (by_columns(s))
        f->columns(x, 0, 0, n, state);
    else
        f->row(x, 0, state);
    for (int64_t k = begin + 1; k < end; k++) {
        fold_block(f, s, c, x, n, k, more);
        f->merge(state, count_between(c, s, begin, k), more, count_between(c, s, k, k + 1), n);
    }
}

/* Phase 1: merges the pieces of n outputs from `first` on. A piece's states lie in scratch one
 * number after the other, outputs side by side. */
static void merge_pieces(const weft_call *call, const fold *f, const split *s, const cut *c,
                         int64_t first, int64_t n)
{
    double state[NUMBERS * COLUMNS], more[NUMBERS * COLUMNS];
    for (int64_t p = 0; p < c->pieces; p++) {
        const int64_t begin = c->blocks * p / c->pieces, end = c->blocks * (p + 1) / c->pieces;
        for (int64_t k = 0; k < NUMBERS; k++)
            memcpy((p ? more : state) + k * n,
                   (const double *)call->scratch + (p * NUMBERS + k) * c->outputs + first,
                   (size_t)n * sizeof *more);
        if (p)
            f->merge(state, count_between(c, s, 0, begin), more, count_between(c, s, begin, end),
                     n);
    }
    f->finish(state, s->count, call->attr, n, (T *)call->out[0].data + first);
}

static void reduce_tile(const weft_call *call, int64_t tile, const fold *f)
{
    const split s = split_of(call);
    const cut c = cut_of(&s, numel_of(&call->out[0].shape));
    const int64_t each = call->phase ? COLUMNS : c.width;
    const int64_t begin = (call->phase ? tile : tile / c.pieces) * each, piece = tile % c.pieces;
    const int64_t end = begin + each < c.outputs ? begin + each : c.outputs;
    if (call->phase) {
        merge_pieces(call, f, &s, &c, begin, end - begin);
        return;
    }
    const int64_t run = by_columns(&s) ? s.kept[s.n_kept - 1] : 1;
    double state[NUMBERS * COLUMNS];
    for (int64_t o = begin, n; o < end; o += n) {
        n = run - o % run;
        if (n > COLUMNS) n = COLUMNS;
        if (n > end - o) n = end - o;
        fold_piece(f, &s, &c, (const T *)call->in[0].data + base_of(&s, o), n, piece, state);
        if (c.pieces == 1)
            f->finish(state, s.count, call->attr, n, (T *)call->out[0].data + o);
        else
            for (int64_t k = 0; k < NUMBERS; k++)
                memcpy((double *)call->scratch + (piece * NUMBERS + k) * c.outputs + o,
                       state + k * n, (size_t)n * sizeof *state);
    }
}

#define REDUCE_KERNEL(name, folding, ending)                                                       \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        static const fold f = {folding##_row, folding##_columns, folding##_merge,                  \
                               ending##_finish};                                                   \
        reduce_tile(call, tile, &f);                                                               \
    }
REDUCE_KERNEL(sum, sum, sum)
REDUCE_KERNEL(mean, sum, mean)
REDUCE_KERNEL(max, max, sum)
REDUCE_KERNEL(min, min, sum)
REDUCE_KERNEL(variance, variance, variance)
REDUCE_KERNEL(logsumexp, logsumexp, logsumexp)

#else

#include <weft/ops.h>

static bool infer_reduce(weft_infer *infer)
{
    const reduce_attr *attr = infer->attr;
    weft_shape in = infer->in[0].shape, out = {0, {0}};
    if (!weft_infer_float(infer, 0)) return false;
    if (attr->count < 0 || attr->count > WEFT_MAX_RANK)
        return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "%d axes", attr->count);
    for (int i = 0; i < attr->count; i++) {
        int ignored;
        if (!weft_infer_axis(infer, in.rank, attr->axis[i], &ignored)) return false;
        for (int k = 0; k < i; k++)
            if (attr->axis[k] == attr->axis[i])
                return weft_infer_fail(infer, WEFT_BAD_ARGUMENT, "axis %d is named twice",
                                       attr->axis[i]);
    }
    for (int d = 0; d < in.rank; d++) {
        if (!is_reduced(attr, d))
            out.dim[out.rank++] = in.dim[d];
        else if (attr->keepdims)
            out.dim[out.rank++] = 1;
    }
    infer->out[0] = (weft_type){infer->in[0].dtype, out};
    return true;
}

static int64_t tiles_reduce(const weft_call *call)
{
    const split s = split_of(call);
    const cut c = cut_of(&s, numel_of(&call->out[0].shape));
    if (call->phase) return c.pieces == 1 ? 0 : ceil_div(c.outputs, COLUMNS);
    return c.stretches * c.pieces;
}

static size_t scratch_reduce(const weft_call *call)
{
    const split s = split_of(call);
    const cut c = cut_of(&s, numel_of(&call->out[0].shape));
    return c.pieces == 1 ? 0 : (size_t)(c.pieces * c.outputs * NUMBERS) * sizeof(double);
}

static void cost_reduce(const weft_call *call, weft_cost *cost)
{
    double n = (double)numel_of(&call->in[0].shape);
    cost->flops = n;
    cost->bytes = n * (double)weft_dtype_bytes(call->in[0].dtype);
}

/* ---- Gradients ---- */

/* An output-shaped value as if the reduced dimensions had been kept, so that it broadcasts to x. */
static weft_value kept(weft_vjp *v, weft_value y)
{
    weft_shape shape = weft_shape_of(v->graph, v->in[0]);
    for (int d = 0; d < shape.rank; d++)
        if (is_reduced(v->attr, d)) shape.dim[d] = 1;
    return weft_reshape(v->graph, y, shape);
}

static double folded_count(weft_vjp *v)
{
    double n = 1;
    weft_shape shape = weft_shape_of(v->graph, v->in[0]);
    for (int d = 0; d < shape.rank; d++)
        if (is_reduced(v->attr, d)) n *= (double)shape.dim[d];
    return n;
}

static weft_axes axes_of(const reduce_attr *attr)
{
    weft_axes axes = {attr->count, {0}};
    memcpy(axes.axis, attr->axis, sizeof axes.axis);
    return axes;
}

static void vjp_sum(weft_vjp *v)
{
    weft_shape shape = weft_shape_of(v->graph, v->in[0]);
    v->grad_in[0] = weft_broadcast_to(v->graph, kept(v, v->grad_out[0]), shape);
}

static void vjp_mean(weft_vjp *v)
{
    vjp_sum(v);
    v->grad_in[0] = weft_scale(v->graph, v->grad_in[0], 1.0 / folded_count(v));
}

static void vjp_extreme(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_value x = v->in[0];
    weft_value best = weft_cast(g, weft_equal(g, x, kept(v, v->out[0])), weft_dtype_of(g, x));
    weft_value ties = weft_sum(g, best, axes_of(v->attr), true);
    v->grad_in[0] = weft_mul(g, best, weft_div(g, kept(v, v->grad_out[0]), ties));
}
#define vjp_max vjp_extreme
#define vjp_min vjp_extreme

/* 2 (x - mean) / max(n - correction, 0) */
static void vjp_variance(weft_vjp *v)
{
    weft_graph *g = v->graph;
    const reduce_attr *attr = v->attr;
    weft_value mean = weft_mean(g, v->in[0], axes_of(attr), true);
    const double divisor = fmax(0, folded_count(v) - attr->correction);
    weft_value scaled = weft_scale(g, kept(v, v->grad_out[0]), 2.0 / divisor);
    v->grad_in[0] = weft_mul(g, weft_sub(g, v->in[0], mean), scaled);
}

/* e^(x - y) / sum e^(x - y): the sum is 1 but for the rounding of y. Where y is -inf every x is,
 * and 0 stands in for y, 1 for the sum, so that the result is 0. */
static void vjp_logsumexp(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_value y = kept(v, v->out[0]), low = weft_scalar(g, weft_dtype_of(g, y), -INFINITY);
    weft_value none = weft_equal(g, y, low);
    weft_value e = weft_exp(g, weft_sub(g, v->in[0], weft_masked_fill(g, y, none, 0.0)));
    weft_value sum = weft_masked_fill(g, weft_sum(g, e, axes_of(v->attr), true), none, 1.0);
    v->grad_in[0] = weft_mul(g, e, weft_div(g, kept(v, v->grad_out[0]), sum));
}

/* ---- Descriptors and builders ---- */

static const reduce_attr reduce_last = {1, {1}, false, 0}, reduce_first = {1, {0}, true, 1},
                         reduce_all = {0, {0}, false, 0}, reduce_outer = {2, {0, 2}, true, 0};
static const weft_attr_field reduce_fields[] = {
    {"axes", WEFT_ATTR_INTS, offsetof(reduce_attr, count)},
    {"keepdims", WEFT_ATTR_BOOL, offsetof(reduce_attr, keepdims)},
    {NULL, WEFT_ATTR_INT, 0},
};

#define REDUCE_OP(op, text)                                                                        \
    DECLARE_KERNELS(op);                                                                           \
    static const weft_sample samples_##op[] = {                                                    \
        {&reduce_last, 1, {{WEFT_FLOAT, {2, {3, 6}}, -2, 2, true}}},                               \
        {&reduce_first, 1, {{WEFT_FLOAT, {2, {4, 5}}, -2, 2, true}}},                              \
        {&reduce_all, 1, {{WEFT_FLOAT, {3, {2, 3, 4}}, -2, 2, true}}},                             \
        {&reduce_outer, 1, {{WEFT_FLOAT, {4, {3, 2, 2, 3}}, -2, 2, true}}},                        \
        {&reduce_last, 1, {{WEFT_FLOAT, {2, {0, 3}}, -2, 2, true}}},                               \
    };                                                                                             \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {                                                                 \
        .name = #op,                                                                               \
        .doc = text,                                                                               \
        .min_in = 1,                                                                               \
        .max_in = 1,                                                                               \
        .n_out = 1,                                                                                \
        .attr_size = sizeof(reduce_attr),                                                          \
        .attrs = reduce_fields,                                                                    \
        .infer = infer_reduce,                                                                     \
        .kernel = FLOAT_KERNELS(op),                                                               \
        .takes = WEFT_TAKES_ANY,                                                                   \
        .phases = 2,                                                                               \
        .tiles = tiles_reduce,                                                                     \
        .scratch = scratch_reduce,                                                                 \
        .cost = cost_reduce,                                                                       \
        .vjp = vjp_##op,                                                                           \
        .broadcasts = true,                                                                        \
        .samples = samples_##op,                                                                   \
        .n_samples = sizeof samples_##op / sizeof *samples_##op,                                   \
    };
REDUCE_OP(sum, "y = sum of x over the axes; 0 over no elements.")
REDUCE_OP(mean, "y = sum of x over the axes / their number.")
REDUCE_OP(max, "y = largest x over the axes; NaN if one is; ties share the gradient evenly.")
REDUCE_OP(min, "y = smallest x over the axes; NaN if one is; ties share the gradient evenly.")
REDUCE_OP(variance, "y = sum (x - mean)^2 / max(n - correction, 0) over the axes.")
REDUCE_OP(logsumexp, "y = ln sum e^x over the axes, shifted by the largest x.")

static weft_value reduce(weft_graph *graph, const weft_op *op, weft_value x, weft_axes axes,
                         bool keepdims, int correction)
{
    reduce_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.count = axes.count;
    attr.keepdims = keepdims;
    attr.correction = correction;
    int rank = weft_rank(graph, x);
    for (int i = 0; i < axes.count && i < WEFT_MAX_RANK; i++)
        attr.axis[i] = axis_from_front(axes.axis[i], rank);
    return weft_apply(graph, op, &attr, &x, 1, NULL);
}

#define REDUCE_BUILDER(op)                                                                         \
    weft_value weft_##op(weft_graph *graph, weft_value x, weft_axes axes, bool keepdims)           \
    {                                                                                              \
        return reduce(graph, &weft_op_##op, x, axes, keepdims, 0);                                 \
    }
REDUCE_BUILDER(sum)
REDUCE_BUILDER(mean)
REDUCE_BUILDER(max)
REDUCE_BUILDER(min)
REDUCE_BUILDER(logsumexp)

weft_value weft_variance(weft_graph *graph, weft_value x, weft_axes axes, bool keepdims,
                         int correction)
{
    return reduce(graph, &weft_op_variance, x, axes, keepdims, correction);
}

weft_value weft_sum_to(weft_graph *graph, weft_value x, weft_shape shape)
{
    weft_shape from = weft_shape_of(graph, x);
    weft_axes axes = {0, {0}};
    if (weft_shape_equal(from, shape) || !weft_is_value(x)) return x;
    int extra = from.rank - shape.rank;
    for (int d = 0; d < from.rank; d++)
        if (d < extra || (shape.dim[d - extra] == 1 && from.dim[d] != 1))
            axes.axis[axes.count++] = d;
    if (axes.count) x = weft_sum(graph, x, axes, true);
    return weft_reshape(graph, x, shape);
}

#endif
