/* weft/kernel.h - what the kernel of an elementwise op needs: an iterator over one tile of its
 * output and over inputs of any layout. A program's own op that declares `elementwise` and
 * WEFT_TAKES_ANY, and whose kernels iterate like this, takes views without a copy and can be fused:
 *
 *     static void kernel_scaled_sum(const weft_call *call, int64_t tile)
 *     {
 *         for (weft_iterator w = weft_iterator_begin(call, tile); weft_iterator_next(&w);) {
 *             float *y = (float *)call->out[0].data + w.offset[0];
 *             const float *a = (const float *)call->in[0].data + w.offset[1];
 *             const float *b = (const float *)call->in[1].data + w.offset[2];
 *             for (int64_t i = 0; i < w.count; i++)
 *                 y[i] = a[i * w.step[1]] + 2 * b[i * w.step[2]];
 *         }
 *     }
 *
 * Elements take O(1) each, rows O(rank). A dense tile is one run. */
#ifndef WEFT_KERNEL_H
#define WEFT_KERNEL_H

#include <weft/call.h>

#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Output 0 is operand 0, input i is operand i + 1. Inputs beyond the fifth are left out. */
#define WEFT_ITERATOR_OPERANDS 6

/* One tile as runs of `count` elements along the last dimension. The inputs broadcast to the shape
 * of the output. Dimensions that are contiguous in every operand are joined first. Within a run the
 * output's elements are contiguous: where they are not, as in a column of a larger tensor, each run
 * has one element. Offsets and steps count elements from the operand's `data`. */
typedef struct weft_iterator {
    int64_t count;                          /* elements of this run */
    int64_t offset[WEFT_ITERATOR_OPERANDS]; /* of the run's first element */
    int64_t step[WEFT_ITERATOR_OPERANDS]; /* from one element of a run to the next; 0 repeats one */
    /* private */
    int rank, n;
    int64_t rows, max_rows; /* that this run joins; that a run may join */
    int64_t packed_rows[WEFT_ITERATOR_OPERANDS], packed_offset[WEFT_ITERATOR_OPERANDS];
    int64_t position, end;
    int64_t dim[WEFT_MAX_RANK], index[WEFT_MAX_RANK]; /* index of the run's first element */
    int64_t stride[WEFT_ITERATOR_OPERANDS][WEFT_MAX_RANK];
} weft_iterator;

/* Iterates over elements [begin, end), in row-major order, of the shape of t[0]; t[1 .. n-1]
 * broadcast to it. It runs once a tile, and inlined it would add 1 to 2 kB to each kernel. */
static __attribute__((noinline, unused)) weft_iterator
weft_iterator_range(const weft_tensor *const *t, int n, int64_t begin, int64_t end)
{
    weft_iterator w;
    memset(&w, 0, sizeof w);
    w.n = n;
    w.max_rows = 1;
    w.position = begin;
    w.end = end;
    const weft_shape *shape = &t[0]->shape;
    for (int d = 0; d < shape->rank; d++) {
        if (shape->dim[d] == 1) continue;
        int64_t stride[WEFT_ITERATOR_OPERANDS];
        bool joins = w.rank > 0;
        for (int k = 0; k < n; k++) {
            const int axis = d - (shape->rank - t[k]->shape.rank);
            stride[k] = axis < 0 || t[k]->shape.dim[axis] == 1 ? 0 : t[k]->stride[axis];
            if (joins && w.stride[k][w.rank - 1] != stride[k] * shape->dim[d]) joins = false;
        }
        if (!joins) w.rank++;
        w.dim[w.rank - 1] = (joins ? w.dim[w.rank - 1] : 1) * shape->dim[d];
        for (int k = 0; k < n; k++) w.stride[k][w.rank - 1] = stride[k];
    }
    if (w.rank == 0 || (w.stride[0][w.rank - 1] != 1 && w.rank < WEFT_MAX_RANK)) {
        w.dim[w.rank] = 1;
        for (int k = 0; k < n; k++) w.stride[k][w.rank] = 1;
        w.rank++;
    }
    for (int k = 0; k < n; k++) w.step[k] = w.stride[k][w.rank - 1];
    int64_t rest = begin;
    for (int d = w.rank - 1; begin < end && d >= 0; d--) {
        w.index[d] = d == 0 ? rest : rest % w.dim[d];
        rest /= w.dim[d];
        for (int k = 0; k < n; k++) w.offset[k] += w.index[d] * w.stride[k][d];
    }
    return w;
}

/* Iterates over tile `tile` of an elementwise op: at most WEFT_TILE elements of output 0. */
static inline weft_iterator weft_iterator_begin(const weft_call *call, int64_t tile)
{
    const weft_tensor *t[WEFT_ITERATOR_OPERANDS] = {&call->out[0]};
    const weft_shape *shape = &call->out[0].shape;
    const int64_t begin = tile * WEFT_TILE;
    int64_t numel = 1;
    int n = 1;
    for (int d = 0; d < shape->rank; d++) numel *= shape->dim[d];
    for (size_t i = 0; i < call->n_in && n < WEFT_ITERATOR_OPERANDS; i++) t[n++] = &call->in[i];
    return weft_iterator_range(t, n, begin, begin + WEFT_TILE < numel ? begin + WEFT_TILE : numel);
}

/* Goes on to the next run; false after the last one. */
static inline bool weft_iterator_next(weft_iterator *w)
{
    const int last = w->rank - 1;
    if (w->position >= w->end) return false;
    if (w->count) { /* the run before ended with its row */
        int64_t by = w->rows;
        for (int k = 0; k < w->n; k++) w->offset[k] -= w->index[last] * w->step[k];
        w->index[last] = 0;
        for (int d = last - 1; d >= 0; d--, by = 1) {
            const bool carries = (w->index[d] += by) == w->dim[d];
            if (carries) w->index[d] = 0;
            for (int k = 0; k < w->n; k++)
                w->offset[k] += w->stride[k][d] * (carries ? by - w->dim[d] : by);
            if (!carries) break;
        }
    }
    const int64_t left = w->end - w->position, row = w->dim[last];
    w->rows = 1;
    w->count = row - w->index[last];
    if (w->max_rows > 1 && w->index[last] == 0 && left > row) {
        int64_t rows = w->dim[last - 1] - w->index[last - 1];
        if (rows > left / row) rows = left / row;
        w->rows = rows < w->max_rows ? rows : w->max_rows;
        w->count = w->rows * row;
    }
    if (w->count > left) w->count = left;
    w->position += w->count;
    return true;
}

#ifdef __cplusplus
}
#endif
#endif
