/* Lines of several tensors of one shape along one axis, for kernels that go through them (kernel.h
 * has those of one tensor).
 *
 * Neighbouring lines are columns, also across several dimensions if these are contiguous in all
 * tensors. Where lines are short and few are neighbours, loops over them would be too short to pay:
 * SHORT_LINES of them are packed into columns first. */
#ifndef WEFT_OPS_KERNELS_LINES_H
#define WEFT_OPS_KERNELS_LINES_H

#include "kernel.h"

#define SHORT_LINE 16

/* The lines of t[0 .. n-1]. How they are cut into tiles depends on the shape alone. */
static inline lines lines_along(const weft_tensor *const *t, int n, int axis)
{
    const weft_shape *shape = &t[0]->shape;
    int last = shape->rank - 1;
    lines l = lines_of(t[0], axis);
    while (last > axis && shape->dim[last] == 1) last--;
    l.columns = axis < last;
    for (int k = 0; k < n; k++) l.columns &= t[k]->stride[last] == 1;
    l.run = l.columns ? shape->dim[last] : 1;
    if (l.width > 1 && !l.columns) l.width = 1;
    for (int d = last - 1; l.columns && d > axis; d--) {
        for (int k = 0; k < n && shape->dim[d] != 1; k++)
            if (t[k]->stride[d] != l.run) return l;
        l.run *= shape->dim[d];
    }
    return l;
}

/* Whether the elements of a line lie side by side in all tensors. */
static inline bool lines_are_dense(const lines *l, const weft_tensor *const *t, int n)
{
    bool dense = true;
    for (int k = 0; k < n; k++) dense &= t[k]->stride[l->axis] == 1;
    return dense || l->length == 1;
}

static inline bool lines_are_short(const lines *l)
{
    return l->length <= SHORT_LINE && l->run < SHORT_LINE;
}

#ifdef WEFT_KERNEL_ISA

/* Two blocks of short lines take 8 KiB of a stack that may have only 32. */
#define SHORT_LINES (int64_t)(256 / sizeof(T))

/* The same for short lines: declares `n`, at most SHORT_LINES, and `line`. */
#define EACH_SHORT_LINES(l, tile, line, n)                                                         \
    for (int64_t line = (tile) * (l).each, n; (n = short_lines_together(&(l), tile, line)) > 0;    \
         line += n)

static inline int64_t short_lines_together(const lines *l, int64_t tile, int64_t line)
{
    const int64_t end = (tile + 1) * l->each < l->count ? (tile + 1) * l->each : l->count;
    return end - line < SHORT_LINES ? end - line : SHORT_LINES;
}

/* Offsets of the first elements of n lines from `line` on. */
static inline void lines_offsets(const weft_tensor *t, const lines *l, int64_t line, int64_t n,
                                 int64_t *offset)
{
    int last = t->shape.rank - 1;
    while (last > 0 && (last == l->axis || t->shape.dim[last] == 1)) last--;
    const int64_t run = last == l->axis ? 1 : t->shape.dim[last], step = t->stride[last];
    for (int64_t i = 0, within = line % run; i < n; within = 0) {
        const int64_t first = line_offset(t, l->axis, line + i) - within * step;
        for (; within < run && i < n; within++) offset[i++] = first + within * step;
    }
}

/* Packs n short lines from `line` on into columns: [length, n]. */
static inline void lines_pack(const weft_tensor *t, const lines *l, int64_t line, int64_t n,
                              T *packed)
{
    int64_t offset[SHORT_LINES];
    lines_offsets(t, l, line, n, offset);
    for (int64_t i = 0; i < l->length; i++) {
        const T *x = (const T *)t->data + i * t->stride[l->axis];
        for (int64_t c = 0; c < n; c++) packed[i * n + c] = x[offset[c]];
    }
}

/* The inverse. */
static inline void lines_unpack(const T *packed, const weft_tensor *t, const lines *l, int64_t line,
                                int64_t n)
{
    int64_t offset[SHORT_LINES];
    lines_offsets(t, l, line, n, offset);
    for (int64_t i = 0; i < l->length; i++) {
        T *x = (T *)t->data + i * t->stride[l->axis];
        for (int64_t c = 0; c < n; c++) x[offset[c]] = packed[i * n + c];
    }
}

#endif
#endif
