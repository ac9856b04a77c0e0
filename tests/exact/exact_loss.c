/* Cross entropy over class indices, and sums at indices. See exact.h. */
#include "exact_math.h"

typedef struct cross_entropy_attr {
    int64_t ignore_index;
    double smoothing;
    int32_t sum;
} cross_entropy_attr;

static int64_t count_targets(const cross_entropy_attr *attr, const weft_tensor *target)
{
    int64_t n = 0;
    for (int64_t r = 0; r < numel(target); r++)
        n += ((const int32_t *)target->data)[r] != attr->ignore_index;
    return n;
}

/* A row's loss, and its lse as two numbers, each rounded. */
static T row_loss(const cross_entropy_attr *attr, const T *x, int64_t n, int32_t target, T *lse)
{
    T top = (T)-INFINITY, *e = malloc((size_t)(2 * n + 1) * sizeof *e), *apart = e + n;
    for (int64_t i = 0; i < n; i++) top = x[i] > top ? x[i] : top;
    const T shift = top == (T)-INFINITY ? 0 : top;
    for (int64_t i = 0; i < n; i++) {
        apart[i] = x[i] - shift;
        e[i] = vm_exp_down(apart[i]);
    }
    const double sum = sum_of_ranges(e, n), total = sum_of_ranges(apart, n);
    const double logarithm = vm_log_f64(sum);
    double loss = logarithm;
    lse[0] = (T)((double)shift + logarithm);
    lse[1] = sum == 0 ? 0 : (T)(((double)shift - (double)lse[0]) + logarithm);
    if (attr->smoothing < 1) loss -= (1 - attr->smoothing) * (double)apart[target];
    if (attr->smoothing > 0) loss -= attr->smoothing / (double)n * total;
    free(e);
    return sum == 0 ? (T)INFINITY : (T)loss;
}

EXACT(cross_entropy)
{
    UNUSED;
    const cross_entropy_attr *a = attr;
    const int64_t n = last_dim(in), counted = count_targets(a, &in[1]);
    const int32_t *target = in[1].data;
    double total = 0;
    for (int64_t r = 0; r < numel(&in[1]); r++) {
        const bool outside = target[r] < 0 || target[r] >= n;
        T lse[2];
        const T loss = row_loss(a, data(in) + r * n, n, outside ? 0 : target[r], lse);
        total += target[r] == a->ignore_index || outside ? 0 : (double)loss;
        data(&out[1])[r] = lse[0];
        data(&out[2])[r] = lse[1];
    }
    *data(out) = (T)(a->sum || !counted ? total : total / (double)counted);
}

/* Of logits, targets, lse, lse_low and dloss. */
EXACT(cross_entropy_grad)
{
    UNUSED;
    const cross_entropy_attr *a = attr;
    const int64_t n = last_dim(in), counted = count_targets(a, &in[1]);
    const int32_t *target = in[1].data;
    const T dloss = *data(&in[4]), scale = a->sum || !counted ? dloss : dloss / (T)counted;
    const T even = (T)(a->smoothing / (double)n);
    for (int64_t r = 0; r < numel(&in[1]); r++) {
        const T *x = data(in) + r * n, lse = data(&in[2])[r];
        const T factor = scale * (T)vm_exp_f64(-(double)data(&in[3])[r]);
        const bool counts = target[r] != a->ignore_index && target[r] >= 0 && target[r] < n;
        for (int64_t i = 0; i < n; i++) {
            T dx = factor * vm_exp(x[i] - lse) - scale * even;
            if (i == target[r]) dx -= scale * (T)(1 - a->smoothing);
            data(out)[r * n + i] = counts && lse != (T)-INFINITY ? dx : 0;
        }
    }
}

typedef struct embedding_attr {
    int64_t rows, padding_index;
} embedding_attr;

/* Of indices and dy [..., features]. The first 32 rows of an index are added one by one, then sums
 * of 32 more each. */
EXACT(embedding_grad)
{
    UNUSED;
    const embedding_attr *a = attr;
    const int64_t features = out->shape.dim[1], n = numel(in);
    const int32_t *index = in[0].data;
    for (int64_t row = 0; row < a->rows; row++)
        for (int64_t c = 0; c < features; c++) {
            T total = 0, block = 0;
            int64_t found = 0;
            for (int64_t i = 0; i < n; i++) {
                if (index[i] != row || index[i] == a->padding_index) continue;
                const T dy = data(&in[1])[i * features + c];
                if (found < 32) {
                    total += dy;
                } else {
                    block += dy;
                    if (found % 32 == 31) {
                        total += block;
                        block = 0;
                    }
                }
                found++;
            }
            if (found > 32 && found % 32) total += block;
            data(out)[row * features + c] = total;
        }
}

/* Of a table, indices and weights. */
EXACT(embedding_bag)
{
    UNUSED;
    const int64_t features = in->shape.dim[1], terms = last_dim(&in[1]);
    const int32_t *index = in[1].data;
    for (int64_t o = 0; o < numel(out); o++) {
        T total = 0;
        for (int64_t k = 0; k < terms; k++) {
            const int64_t at = o / features * terms + k;
            const T term = data(&in[2])[at] * data(in)[index[at] * features + o % features];
            total = k ? total + term : term;
        }
        data(out)[o] = total;
    }
}

/* Of x, indices along the axis, and updates. More than 32 updates along the axis are added up in
 * blocks of 32 for each element first. */
EXACT(scatter_add)
{
    UNUSED;
    const int axis = *(const int32_t *)attr;
    const int64_t size = out->shape.dim[axis], count = in[2].shape.dim[axis];
    int64_t inner = 1;
    for (int d = axis + 1; d < out->shape.rank; d++) inner *= out->shape.dim[d];
    for (int64_t o = 0; o < numel(out); o++) {
        const int64_t outer = o / (size * inner), at_axis = o / inner % size, column = o % inner;
        T total = data(in)[o], block = 0;
        int terms = 0;
        for (int64_t k = 0; k < count; k++) {
            const int64_t i = (outer * count + k) * inner + column;
            const T update = data(&in[2])[i];
            if (((const int32_t *)in[1].data)[i] != at_axis) continue;
            if (count <= 32) {
                total += update;
                continue;
            }
            block = terms ? block + update : update;
            if (++terms < 32) continue;
            total += block;
            terms = 0;
        }
        data(out)[o] = terms ? total + block : total;
    }
}

EXACT_TABLE(loss) = {
    ROW(cross_entropy),  ROW(cross_entropy_grad), ROW(embedding_bag),
    ROW(embedding_grad), ROW(scatter_add),        {NULL, NULL},
};
