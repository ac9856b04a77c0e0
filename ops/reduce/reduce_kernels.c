/* The kernels of reductions over any axes of any layout, O(elements). The dimensions are split into
 * kept and reduced ones, and contiguous dimensions are joined. If the last kept dimension has
 * stride 1 and the last reduced one has not, neighbouring outputs are folded together, row by row
 * (column path); else each output folds its own elements (row path).
 *
 * Elements are folded in blocks, which stay in the second-level cache, so that an op may pass over
 * one twice. A block whose elements lie apart is packed, one that is stored as bf16 is widened. A
 * block is reduced to a state of one or two f64 numbers, and states are merged in order. An op is
 * the four functions of a `fold`. Where outputs are too few to occupy the processor, pieces of the
 * blocks become tiles of their own, their states go to scratch, and a second phase merges them; the
 * pieces come from the shape alone. */
#include "reduce.h"

#include "kernels/extreme.h"
#include "kernels/moments.h"
#include "kernels/narrow.h"
#include "kernels/sums.h"
#include "base/vmath.h"

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
    /* The state of n neighbours; of none, the neutral state of merging. */
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

/* ---- sum, mean: the sum ---- */

static void sum_row(const T *x, int64_t n, double *state)
{
    state[0] = sum_of(x, n);
}

#define ELEMENT(i) x[(i)*step + (c)]
static inline __attribute__((always_inline)) void
sum_columns(const T *x, int64_t rows, int64_t step, int64_t n, double *state)
{
    SIMD_FOR (c, n) state[c] = 0;
    SUM_COLUMNS(state, rows, n, ELEMENT)
}

static void sum_merge(double *state, int64_t before, const double *more, int64_t count, int64_t n)
{
    (void)before;
    (void)count;
    SIMD_FOR (c, n) state[c] += more[c];
}

static void sum_finish(const double *state, int64_t count, const reduce_attr *attr, int64_t n, T *y)
{
    (void)count;
    (void)attr;
    SIMD_FOR (c, n) y[c] = (T)state[c];
}

static void mean_finish(const double *state, int64_t count, const reduce_attr *attr, int64_t n,
                        T *y)
{
    (void)attr;
    SIMD_FOR (c, n) y[c] = (T)(state[c] / (double)count);
}

/* ---- prod: the product ---- */

static void prod_row(const T *x, int64_t n, double *state)
{
    double product[SUM_LANES];
    for (int64_t c = 0; c < SUM_LANES; c++) product[c] = 1;
    EACH_LANE(i, c, 0, n, product[c] *= (double)x[i])
    for (int64_t half = SUM_LANES / 2; half; half /= 2)
        for (int64_t c = 0; c < half; c++) product[c] *= product[c + half];
    state[0] = product[0];
}

static void prod_columns(const T *x, int64_t rows, int64_t step, int64_t n, double *state)
{
    SIMD_FOR (c, n) state[c] = 1;
    for (int64_t i = 0; i < rows; i++)
        SIMD_FOR (c, n) state[c] *= (double)ELEMENT(i);
}

static void prod_merge(double *state, int64_t before, const double *more, int64_t count, int64_t n)
{
    (void)before;
    (void)count;
    SIMD_FOR (c, n) state[c] *= more[c];
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
        SIMD_FOR (c, n) best[c] = worst;                                                           \
        for (int64_t i = 0; i < rows; i++)                                                         \
            SIMD_FOR (c, n) {                                                                      \
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
        SIMD_FOR (c, n) state[c] = (double)best[c];                                                \
    }                                                                                              \
    static void name##_merge(double *state, int64_t before, const double *more, int64_t count,     \
                             int64_t n)                                                            \
    {                                                                                              \
        (void)before;                                                                              \
        (void)count;                                                                               \
        SIMD_FOR (c, n)                                                                            \
            state[c] = ((more[c] beats state[c]) | (more[c] != more[c])) ? more[c] : state[c];     \
    }
EXTREME(max, max, >, (T)-INFINITY)
EXTREME(min, min, <, (T)INFINITY)

/* Which of several zeros is found depends on the width of vectors: the result is 0, never -0. */
static void extreme_finish(const double *state, int64_t count, const reduce_attr *attr, int64_t n,
                           T *y)
{
    (void)count;
    (void)attr;
    SIMD_FOR (c, n) y[c] = (T)(state[c] + 0.0);
}

/* ---- variance: mean and sum of squared deviations ---- */

/* As in PyTorch: NaN over no elements, x / 0 where the correction removes all of them. */
static void variance_finish(const double *state, int64_t count, const reduce_attr *attr, int64_t n,
                            T *y)
{
    const double divisor = fmax(0, (double)count - (double)attr->correction);
    SIMD_FOR (c, n) y[c] = (T)(state[n + c] / divisor);
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
    EACH_RANGE(from, to, n)
    {
        T partial[SUM_LANES] = {0};
        EACH_LANE(i, c, from, to, partial[c] += vm_exp_down(x[i] - shift))
        sum += (double)sum_of_lanes(partial);
    }
    state[0] = (double)top;
    state[1] = sum;
}

static void logsumexp_columns(const T *x, int64_t rows, int64_t step, int64_t n, double *state)
{
    T top[COLUMNS], shift[COLUMNS];
    double *sum = state + n;
    max_of_columns(x, rows, step, n, top);
    SIMD_FOR (c, n) {
        shift[c] = shift_of(top[c]);
        state[c] = (double)top[c];
        sum[c] = 0;
    }
    for (int64_t from = 0; from < rows; from += SUM_ROWS) {
        T partial[COLUMNS] = {0};
        for (int64_t i = from; i < rows && i < from + SUM_ROWS; i++)
            SIMD_FOR (c, n) partial[c] += vm_exp_down(ELEMENT(i) - shift[c]);
        SIMD_FOR (c, n) sum[c] += (double)partial[c];
    }
}

static void logsumexp_merge(double *state, int64_t before, const double *more, int64_t count,
                            int64_t n)
{
    (void)before;
    (void)count;
    SIMD_FOR (c, n) {
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
        y[c] = (T)(state[c] - state[c] == 0 ? state[c] + vm_log_f64(state[n + c]) : state[c]);
}

/* ---- The loops, the same for all ---- */

/* They are compiled for each fold that they are called with as a constant. */
#define INLINE static inline __attribute__((always_inline))

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

/* The elements to fold, from `first` on, and room for those of a block in T. */
typedef struct source {
    const weft_tensor *x;
    int64_t first;
    T *space;
} source;

/* `rows` rows of n neighbours from element `first` on, *step apart: where they lie, or widened. */
static inline const T *rows_from(const source *x, int64_t first, int64_t rows, int64_t n,
                                 int64_t *step)
{
    if (x->x->dtype != WEFT_BF16) return (const T *)x->x->data + first;
    for (int64_t i = 0; i < rows; i++) narrow_row(x->x, first + i * *step, n, x->space + i * n);
    *step = n;
    return x->space;
}

/* n elements from `first` on, `step` apart, side by side. */
static inline const T *packed_from(const source *x, int64_t first, int64_t n, int64_t step)
{
    for (int64_t i = 0; i < n; i++)
        x->space[i] = *narrow_row(x->x, first + i * step, 1, x->space + i);
    return x->space;
}

/* The state of one block of n outputs (1 in the row path). */
INLINE void fold_block(const fold *f, const split *s, const cut *c, const source *x, int64_t n,
                       int64_t index, double *state)
{
    const int64_t from = index % c->per_row * c->block, rest = c->length - from;
    int64_t step = s->n_folded ? s->folded_stride[s->n_folded - 1] : 1;
    const int64_t count = rest < c->block ? rest : c->block;
    const int64_t first = x->first + row_of(s, index / c->per_row) + from * step;
    if (by_columns(s)) {
        const T *rows = rows_from(x, first, count, n, &step);
        f->columns(rows, count, step, n, state);
    } else if (by_dense_rows(s)) {
        f->row(narrow_row(x->x, first, count, x->space), count, state);
    } else {
        f->row(packed_from(x, first, count, step), count, state);
    }
}

/* The states of n outputs over one piece of their blocks. */
INLINE void fold_piece(const fold *f, const split *s, const cut *c, const source *x, int64_t n,
                       int64_t piece, double *state)
{
    const int64_t begin = c->blocks * piece / c->pieces, end = c->blocks * (piece + 1) / c->pieces;
    double more[NUMBERS * COLUMNS];
    if (begin < end)
        fold_block(f, s, c, x, n, begin, state);
    else if (by_columns(s))
        f->columns(x->x->data, 0, 0, n, state);
    else
        f->row(x->x->data, 0, state);
    for (int64_t k = begin + 1; k < end; k++) {
        fold_block(f, s, c, x, n, k, more);
        f->merge(state, count_between(c, s, begin, k), more, count_between(c, s, k, k + 1), n);
    }
}

/* Phase 1: merges the pieces of n outputs from `first` on. A piece's states lie in scratch one
 * number after the other, outputs side by side. */
INLINE void merge_pieces(const weft_call *call, const fold *f, const split *s, const cut *c,
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

/* Offsets of the first elements of n outputs from `index` on. */
static void bases_of(const split *s, int64_t index, int64_t n, int64_t *offset)
{
    const int last = s->n_kept - 1;
    const int64_t run = s->kept[last], step = s->kept_stride[last];
    for (int64_t i = 0, within = index % run; i < n; within = 0) {
        const int64_t first = base_of(s, index + i) - within * step;
        for (; within < run && i < n; within++) offset[i++] = first + within * step;
    }
}

/* Outputs [begin, end), whose few elements are packed side by side. */
INLINE void fold_packed(const weft_call *call, const fold *f, const split *s, int64_t begin,
                        int64_t end)
{
    const weft_tensor *x = &call->in[0];
    T *packed = weft_call_workspace(call);
    const int64_t length = s->n_folded ? s->folded[s->n_folded - 1] : 1;
    const int64_t step = s->n_folded ? s->folded_stride[s->n_folded - 1] : 0;
    for (int64_t o = begin, n; o < end; o += n) {
        int64_t offset[COLUMNS];
        double state[NUMBERS * COLUMNS];
        n = end - o < COLUMNS ? end - o : COLUMNS;
        bases_of(s, o, n, offset);
        for (int64_t i = 0; i < s->count; i++) {
            const int64_t at = row_of(s, i / length) + i % length * step;
            for (int64_t c = 0; c < n; c++)
                packed[i * n + c] = *narrow_row(x, offset[c] + at, 1, packed + i * n + c);
        }
        f->columns(packed, s->count, n, n, state);
        f->finish(state, s->count, call->attr, n, (T *)call->out[0].data + o);
    }
}

INLINE void reduce_with(const weft_call *call, int64_t tile, const fold *f)
{
    const split s = split_of(call);
    const cut c = cut_of(&s, numel_of(&call->out[0].shape));
    if (by_packed_columns(&s) && c.pieces == 1) {
        const int64_t first = tile * c.width, rest = c.outputs - first;
        fold_packed(call, f, &s, first, first + (rest < c.width ? rest : c.width));
        return;
    }
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
        const source x = {&call->in[0], base_of(&s, o), weft_call_workspace(call)};
        fold_piece(f, &s, &c, &x, n, piece, state);
        if (c.pieces == 1)
            f->finish(state, s.count, call->attr, n, (T *)call->out[0].data + o);
        else
            for (int64_t k = 0; k < NUMBERS; k++)
                memcpy((double *)call->scratch + (piece * NUMBERS + k) * c.outputs + o,
                       state + k * n, (size_t)n * sizeof *state);
    }
}

/* The same for any fold. */
static __attribute__((noinline)) void reduce_tile(const weft_call *call, int64_t tile,
                                                  const fold *f)
{
    reduce_with(call, tile, f);
}

/* Compiled once for both: only the end differs. */
static __attribute__((noinline)) void sum_tile(const weft_call *call, int64_t tile, bool mean)
{
    const fold f = {sum_row, sum_columns, sum_merge, mean ? mean_finish : sum_finish};
    reduce_with(call, tile, &f);
}

KERNEL(sum)
{
    sum_tile(call, tile, false);
}

KERNEL(mean)
{
    sum_tile(call, tile, true);
}

#define REDUCE_KERNEL(name, loops, folding, ending)                                                \
    KERNEL(name)                                                                                   \
    {                                                                                              \
        static const fold f = {folding##_row, folding##_columns, folding##_merge,                  \
                               ending##_finish};                                                   \
        loops(call, tile, &f);                                                                     \
    }
REDUCE_KERNEL(prod, reduce_with, prod, sum)
REDUCE_KERNEL(max, reduce_with, max, extreme)
REDUCE_KERNEL(min, reduce_with, min, extreme)
/* Each row takes so long that a call of its function does not count. */
REDUCE_KERNEL(variance, reduce_tile, moments, variance)
REDUCE_KERNEL(logsumexp, reduce_tile, logsumexp, logsumexp)
