/* What a file of kernels needs. Each op's file is compiled once as plain C (builder, shape rule,
 * gradient, descriptor) and once for each instruction set and dtype with WEFT_KERNEL_ISA and
 * WEFT_KERNEL_DTYPE defined (kernels only):
 *
 *     #ifdef WEFT_KERNEL_ISA
 *     KERNEL(softmax) { ... T is float or double; call, tile are the parameters ... }
 *     #else
 *     ... the rest, with DECLARE_KERNELS(softmax) and .kernel = FLOAT_KERNELS(softmax) ...
 *     #endif
 *
 * Files under `float` in ops/meson.build are compiled for f32 and f64, those under `any` for i32
 * and bool too. No kernel is compiled with -ffast-math, which would lose NaNs. */
#ifndef WEFT_OPS_KERNELS_KERNEL_H
#define WEFT_OPS_KERNELS_KERNEL_H

#include "base/fma.h"

#include <weft/kernel.h>

#include <math.h>
#include <string.h>

#define WEFT_JOIN_(name, dtype, isa) weft_kernel_##name##_##dtype##_##isa
#define WEFT_JOIN(name, dtype, isa)  WEFT_JOIN_(name, dtype, isa)

#define TILE WEFT_TILE

static inline int64_t numel_of(const weft_shape *shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape->rank; i++) n *= shape->dim[i];
    return n;
}

/* A builder's axis as counted from the front; one outside [-rank, rank) stays as it is, for
 * weft_infer_axis to refuse. */
static inline int axis_from_front(int axis, int rank)
{
    return axis < 0 && axis >= -rank ? axis + rank : axis;
}

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Lines of a tensor along one axis, for ops that read an axis in order. Where the last dimension is
 * another and has stride 1, neighbouring lines are columns: a tile reads a range of them together,
 * row by row, so that memory is read in its own order. Else lines are read one by one. */
#define MIN_COLUMNS 128
#define MAX_COLUMNS 256

typedef struct lines {
    int axis;
    bool columns;
    int64_t length, count; /* of a line; of lines */
    int64_t width, run;    /* lines read together; lines that are neighbours */
    int64_t each;          /* lines of a tile */
} lines;

static inline lines lines_of(const weft_tensor *t, int axis)
{
    const int last = t->shape.rank - 1;
    lines l = {.axis = axis, .length = 1, .count = 1, .width = 1, .run = 1};
    for (int d = 0; d <= last; d++) {
        if (d == axis)
            l.length = t->shape.dim[d];
        else
            l.count *= t->shape.dim[d];
    }
    l.each = TILE / (l.length ? l.length : 1);
    l.columns = axis < last && t->stride[last] == 1;
    if (l.columns) {
        l.run = t->shape.dim[last];
        l.width = l.each < MIN_COLUMNS ? MIN_COLUMNS : l.each > MAX_COLUMNS ? MAX_COLUMNS : l.each;
    }
    if (l.each < l.width) l.each = l.width;
    return l;
}

static inline int64_t lines_tiles(const lines *l)
{
    return ceil_div(l->count, l->each);
}

/* Lines from `line` on that a tile reads together: up to its end and the end of the run. */
static inline int64_t lines_together(const lines *l, int64_t tile, int64_t line)
{
    int64_t end = (tile + 1) * l->each < l->count ? (tile + 1) * l->each : l->count;
    int64_t n = l->run - line % l->run;
    if (n > l->width) n = l->width;
    return n < end - line ? n : end - line;
}

/* Offset of the first element of line `index` of t. */
static inline int64_t line_offset(const weft_tensor *t, int axis, int64_t index)
{
    int64_t offset = 0;
    for (int d = t->shape.rank - 1; d >= 0; d--) {
        if (d == axis) continue;
        offset += index % t->shape.dim[d] * t->stride[d];
        index /= t->shape.dim[d];
    }
    return offset;
}

/* A loop over the ranges of lines of one tile. Declares them: `n` lines from `line` on. */
#define EACH_LINES(l, tile, line, n)                                                               \
    for (int64_t line = (tile) * (l).each, n;                                                      \
         line < (l).count && line < ((tile) + 1) * (l).each &&                                     \
         (n = lines_together(&(l), tile, line)) > 0;                                               \
         line += n)

#ifdef WEFT_KERNEL_ISA

#define KERNEL_TYPE_f32  float
#define KERNEL_TYPE_f64  double
#define KERNEL_TYPE_i32  int32_t
#define KERNEL_TYPE_b8   uint8_t
#define KERNEL_TYPE__(d) KERNEL_TYPE_##d
#define KERNEL_TYPE_(d)  KERNEL_TYPE__(d)
/* The element type of this build. Bool tensors hold bytes 0 and 1. */
#define T KERNEL_TYPE_(WEFT_KERNEL_DTYPE)

#define LINE (64 / (int64_t)sizeof(T)) /* elements of a line of the cache */

/* A loop that declares `i`, whose iterations the lanes of vectors share. */
#define SIMD_FOR(i, n) _Pragma("omp simd") for (int64_t i = 0; i < (n); i++)

#define KERNEL_IS_f32_f32 1
#define KERNEL_IS_f64_f64 1
#define KERNEL_IS_i32_i32 1
#define KERNEL_IS_b8_b8   1
#define KERNEL_IS__(a, b) KERNEL_IS_##a##_##b
#define KERNEL_IS_(a, b)  KERNEL_IS__(a, b)
/* For `#if`: 1 for the dtype of this build, else 0. */
#define KERNEL_IS(dtype) KERNEL_IS_(WEFT_KERNEL_DTYPE, dtype)
#define KERNEL_IS_FLOAT  (KERNEL_IS(f32) || KERNEL_IS(f64))

/* x y + z of T with one rounding. */
#if KERNEL_IS(f32)
#define FMA fma_f32
#elif KERNEL_IS(f64)
#define FMA fma_f64
#endif

#define KERNEL_NAME(name) WEFT_JOIN(name, WEFT_KERNEL_DTYPE, WEFT_KERNEL_ISA)
#define KERNEL(name)                                                                               \
    void KERNEL_NAME(name)(const weft_call *call, int64_t tile);                                   \
    void KERNEL_NAME(name)(const weft_call *call, int64_t tile)

/* Elements of an operand, `step` apart; 0 repeats one. */
typedef struct strided {
    const T *x;
    int64_t step;
} strided;

/* Rows of at most NARROW_ROW elements are too short for a loop each. A kernel that begins with
 * iterator_begin_narrow takes many of them as one run, and gets each operand from iterator_operand:
 * where it lies, or packed into a buffer of PACKED_RUN elements. */
#define NARROW_ROW 32
#define NARROW_RUN 512
#define PACKED_RUN (NARROW_RUN + NARROW_ROW)

static inline weft_iterator iterator_begin_narrow(const weft_call *call, int64_t tile)
{
    weft_iterator w = weft_iterator_begin(call, tile);
    const int last = w.rank - 1;
    if (last > 0 && w.dim[last] <= NARROW_ROW && w.stride[0][last - 1] == w.dim[last])
        w.max_rows = NARROW_RUN / w.dim[last];
    return w;
}

/* Operand k of a run, whose tensor begins at `data`, and its step. */
static inline const T *iterator_operand(weft_iterator *w, int k, const void *data, T *packed,
                                        int64_t *step)
{
    const int last = w->rank - 1;
    const int64_t row = w->dim[last], each = w->step[k];
    const T *x = (const T *)data + w->offset[k];
    *step = each;
    if (w->rows == 1) return x;
    const int64_t down = w->stride[k][last - 1];
    if (down == row * each) return x;
    *step = 1;
    if (down == 0 && w->packed_rows[k] >= w->rows && w->packed_offset[k] == w->offset[k])
        return packed;
    w->packed_rows[k] = w->rows;
    w->packed_offset[k] = w->offset[k];
    for (int64_t r = 0; r < w->rows; r++) {
        T *to = packed + r * row;
        if (each == 0) /* also beyond the row: the next row overwrites that */
            for (int64_t c = 0; c < NARROW_ROW; c++) to[c] = x[r * down];
        else
            for (int64_t c = 0; c < row; c++) to[c] = x[r * down + c * each];
    }
    return packed;
}

/* One loop over a run for each way that two operands usually lie: both dense, or one of them
 * repeated, whose element is then read once. Declares i, x and y for the body; reads w.count. */
#define PAIR_LOOP(first, second, ...)                                                              \
    _Pragma("omp simd") for (int64_t i = 0; i < w.count; i++)                                      \
    {                                                                                              \
        const T x = first, y = second;                                                             \
        __VA_ARGS__;                                                                               \
    }
#define EACH_PAIR(p, ps, q, qs, ...)                                                               \
    if ((ps) == 1 && (qs) == 1) {                                                                  \
        PAIR_LOOP((p)[i], (q)[i], __VA_ARGS__)                                                     \
    } else if ((ps) == 1 && (qs) == 0) {                                                           \
        const T only = (q)[0];                                                                     \
        PAIR_LOOP((p)[i], only, __VA_ARGS__)                                                       \
    } else if ((ps) == 0 && (qs) == 1) {                                                           \
        const T only = (p)[0];                                                                     \
        PAIR_LOOP(only, (q)[i], __VA_ARGS__)                                                       \
    } else {                                                                                       \
        PAIR_LOOP((p)[i * (ps)], (q)[i * (qs)], __VA_ARGS__)                                       \
    }

#else /* the plain build */

/* The kernels of the plain row of an `any` file. */
#define ANY_ROW_(name)                                                                             \
    KERNEL_ROW_(name, base, WEFT_F32, f32), KERNEL_ROW_(name, base, WEFT_F64, f64),                \
        KERNEL_ROW_(name, base, WEFT_I32, i32), KERNEL_ROW_(name, base, WEFT_BOOL, b8)

#ifdef WEFT_KERNEL_X86
#define DECLARE_KERNEL_(name, dtype)                                                               \
    void WEFT_JOIN(name, dtype, base)(const weft_call *, int64_t);                                 \
    void WEFT_JOIN(name, dtype, v3)(const weft_call *, int64_t);                                   \
    void WEFT_JOIN(name, dtype, v4)(const weft_call *, int64_t)
#define KERNEL_ROW_(name, isa, DTYPE, dtype) [DTYPE] = WEFT_JOIN(name, dtype, isa)
#define FLOAT_KERNELS(name)                                                                        \
    {                                                                                              \
        {KERNEL_ROW_(name, base, WEFT_F32, f32), KERNEL_ROW_(name, base, WEFT_F64, f64)},          \
            {KERNEL_ROW_(name, v3, WEFT_F32, f32), KERNEL_ROW_(name, v3, WEFT_F64, f64)},          \
            {KERNEL_ROW_(name, v4, WEFT_F32, f32), KERNEL_ROW_(name, v4, WEFT_F64, f64)},          \
    }
#define ANY_KERNELS(name)                                                                          \
    {                                                                                              \
        {ANY_ROW_(name)},                                                                          \
            {KERNEL_ROW_(name, v3, WEFT_F32, f32), KERNEL_ROW_(name, v3, WEFT_F64, f64)},          \
            {KERNEL_ROW_(name, v4, WEFT_F32, f32), KERNEL_ROW_(name, v4, WEFT_F64, f64)},          \
    }
/* Rows of a table: those of FLOAT_KERNELS, and `narrow` for operands that are stored as bf16. */
#define NARROW_ROW_(name, narrow, isa)                                                             \
    {KERNEL_ROW_(name, isa, WEFT_F32, f32), KERNEL_ROW_(name, isa, WEFT_F64, f64),                 \
     KERNEL_ROW_(narrow, isa, WEFT_BF16, f32)},
#define NARROW_ROWS(name, narrow)                                                                  \
    NARROW_ROW_(name, narrow, base) NARROW_ROW_(name, narrow, v3) NARROW_ROW_(name, narrow, v4)
/* ANY_KERNELS, and the kernel of f32 for operands that are stored as bf16. */
#define ANY_NARROW_KERNELS(name)                                                                   \
    {                                                                                              \
        {ANY_ROW_(name), KERNEL_ROW_(name, base, WEFT_BF16, f32)},                                 \
            NARROW_ROW_(name, name, v3) NARROW_ROW_(name, name, v4)                                \
    }
#else
#define DECLARE_KERNEL_(name, dtype)         void WEFT_JOIN(name, dtype, base)(const weft_call *, int64_t)
#define KERNEL_ROW_(name, isa, DTYPE, dtype) [DTYPE] = WEFT_JOIN(name, dtype, isa)
#define FLOAT_KERNELS(name)                                                                        \
    {                                                                                              \
        {KERNEL_ROW_(name, base, WEFT_F32, f32), KERNEL_ROW_(name, base, WEFT_F64, f64)},          \
    }
#define ANY_KERNELS(name)                                                                          \
    {                                                                                              \
        {ANY_ROW_(name)},                                                                          \
    }
#define NARROW_ROWS(name, narrow)                                                                  \
    {KERNEL_ROW_(name, base, WEFT_F32, f32), KERNEL_ROW_(name, base, WEFT_F64, f64),               \
     KERNEL_ROW_(narrow, base, WEFT_BF16, f32)},
#define ANY_NARROW_KERNELS(name)                                                                   \
    {                                                                                              \
        {ANY_ROW_(name), KERNEL_ROW_(name, base, WEFT_BF16, f32)},                                 \
    }
#endif
/* After NARROW_ROWS: the kernel with the processor's dot products of bf16. Processors with AMX take twice
 * as long for these as for fused multiply-adds, which compute the same bits. */
#ifdef WEFT_KERNEL_BF16
#define DECLARE_DOTS_KERNEL(name) void WEFT_JOIN(name, f32, v4_bf16)(const weft_call *, int64_t)
#define DOTS_ROWS(name)                                                                            \
    {[WEFT_BF16] = WEFT_JOIN(name, f32, v4_bf16)}, {[WEFT_BF16] = WEFT_JOIN(name, f32, v4)},
#else
#define DECLARE_DOTS_KERNEL(name) void WEFT_JOIN(name, f32, base)(const weft_call *, int64_t)
#define DOTS_ROWS(name)
#endif
/* For a file under `float` and one under `any`. An `any` file's kernel that makes sense for some
 * dtypes only is guarded by `#if KERNEL_IS_FLOAT` and declared as FLOAT. */
#define DECLARE_KERNELS(name)                                                                      \
    DECLARE_KERNEL_(name, f32);                                                                    \
    DECLARE_KERNEL_(name, f64)
#define DECLARE_ANY_KERNELS(name)                                                                  \
    DECLARE_KERNELS(name);                                                                         \
    void WEFT_JOIN(name, i32, base)(const weft_call *, int64_t);                                   \
    void WEFT_JOIN(name, b8, base)(const weft_call *, int64_t)

#endif
#endif
