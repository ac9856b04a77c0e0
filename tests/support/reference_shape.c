/* Naive references of views, and of sums at indices. See reference.h. */
#include "reference_data.h"

/* ---- Shapes ---- */

REFERENCE(permute)
{
    UNUSED;
    const int32_t *order = (const int32_t *)attr + 1;
    for (int64_t i = 0; i < numel(out); i++) {
        int64_t at[WEFT_MAX_RANK], from[WEFT_MAX_RANK];
        coordinates(out->shape, i, at);
        for (int d = 0; d < out->shape.rank; d++) from[order[d]] = at[d];
        put(out, i, get(in, index_at(in, in->shape, from)));
    }
}
REFERENCE(broadcast_to)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) put(out, i, broadcast(in, out->shape, i));
}
typedef struct slice_attr {
    int32_t axis;
    int64_t begin, step, count, size;
} slice_attr;
REFERENCE(slice)
{
    UNUSED;
    const slice_attr *a = attr;
    for (int64_t i = 0; i < numel(out); i++) {
        int64_t at[WEFT_MAX_RANK];
        coordinates(out->shape, i, at);
        at[a->axis] = a->begin + at[a->axis] * a->step;
        put(out, i, get(in, index_at(in, in->shape, at)));
    }
}

/* ---- Indices ---- */

REFERENCE(embedding_grad)
{
    UNUSED;
    const int64_t *a = attr;
    int64_t n = out->shape.dim[1];
    for (int64_t i = 0; i < numel(&in[1]); i++)
        if ((int64_t)get(&in[0], i / n) != a[1])
            data(out)[(int64_t)get(&in[0], i / n) * n + i % n] += data(&in[1])[i];
}
REFERENCE(embedding_bag)
{
    UNUSED;
    const int64_t features = in->shape.dim[1], terms = in[1].shape.dim[in[1].shape.rank - 1];
    for (int64_t i = 0; i < numel(out); i++)
        for (int64_t k = i / features * terms; k < (i / features + 1) * terms; k++)
            data(out)[i] +=
                data(&in[2])[k] * data(in)[(int64_t)get(&in[1], k) * features + i % features];
}
REFERENCE(scatter_add)
{
    UNUSED;
    int axis = *(const int32_t *)attr;
    for (int64_t i = 0; i < numel(out); i++) data(out)[i] = data(in)[i];
    for (int64_t i = 0; i < numel(&in[2]); i++) {
        int64_t at[WEFT_MAX_RANK];
        coordinates(in[2].shape, i, at);
        at[axis] = (int64_t)get(&in[1], i);
        data(out)[index_at(out, out->shape, at)] += data(&in[2])[i];
    }
}
const reference references_shape[] = {
    SAME(permute),       SAME(broadcast_to), SAME(slice),  SAME(embedding_grad),
    SAME(embedding_bag), SAME(scatter_add),  {NULL, NULL},
};
