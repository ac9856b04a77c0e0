/* Naive references of ops that move elements: shapes, indices, values from attributes. See
 * reference.h. */
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
REFERENCE(slice_scatter)
{
    UNUSED;
    const slice_attr *a = attr;
    for (int64_t i = 0; i < numel(in); i++) {
        int64_t at[WEFT_MAX_RANK];
        coordinates(in->shape, i, at);
        at[a->axis] = a->begin + at[a->axis] * a->step;
        put(out, index_at(out, out->shape, at), get(in, i));
    }
}
REFERENCE(concat)
{
    int axis = *(const int32_t *)attr;
    int64_t begin = 0;
    for (size_t k = 0; k < n_in; k++) {
        for (int64_t i = 0; i < numel(&in[k]); i++) {
            int64_t at[WEFT_MAX_RANK];
            coordinates(in[k].shape, i, at);
            at[axis] += begin;
            put(out, index_at(out, out->shape, at), get(&in[k], i));
        }
        begin += in[k].shape.dim[axis];
    }
}
typedef struct pad_attr {
    weft_shape before, after;
    double value;
} pad_attr;
REFERENCE(pad)
{
    UNUSED;
    const pad_attr *a = attr;
    for (int64_t i = 0; i < numel(out); i++) put(out, i, a->value);
    for (int64_t i = 0; i < numel(in); i++) {
        int64_t at[WEFT_MAX_RANK], to = 0;
        coordinates(in->shape, i, at);
        for (int d = 0; d < in->shape.rank; d++)
            to = to * out->shape.dim[d] + at[d] + a->before.dim[d];
        put(out, to, get(in, i));
    }
}

/* ---- Indices ---- */

REFERENCE(embedding)
{
    UNUSED;
    int64_t n = in[0].shape.dim[1];
    for (int64_t i = 0; i < numel(out); i++)
        put(out, i, get(&in[0], (int64_t)get(&in[1], i / n) * n + i % n));
}
REFERENCE(embedding_grad)
{
    UNUSED;
    const int64_t *a = attr;
    int64_t n = out->shape.dim[1];
    for (int64_t i = 0; i < numel(&in[1]); i++)
        if ((int64_t)get(&in[0], i / n) != a[1])
            data(out)[(int64_t)get(&in[0], i / n) * n + i % n] += data(&in[1])[i];
}
REFERENCE(gather)
{
    UNUSED;
    int axis = *(const int32_t *)attr;
    for (int64_t i = 0; i < numel(out); i++) {
        int64_t at[WEFT_MAX_RANK];
        coordinates(out->shape, i, at);
        at[axis] = (int64_t)get(&in[1], i);
        put(out, i, get(in, index_at(in, in->shape, at)));
    }
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
REFERENCE(one_hot)
{
    UNUSED;
    int64_t classes = *(const int64_t *)attr;
    for (int64_t i = 0; i < numel(out); i++)
        put(out, i, (int64_t)get(in, i / classes) == i % classes);
}
typedef struct generate_attr {
    weft_dtype dtype;
    weft_shape shape;
    double start, step;
} generate_attr;
REFERENCE(arange)
{
    UNUSED;
    const generate_attr *a = attr;
    for (int64_t i = 0; i < numel(out); i++) put(out, i, a->start + (double)i * a->step);
}
REFERENCE(tril_mask)
{
    UNUSED;
    const generate_attr *a = attr;
    int64_t n = out->shape.dim[1];
    for (int64_t i = 0; i < numel(out); i++) put(out, i, i % n <= i / n + (int64_t)a->start);
}

const reference references_shape[] = {
    SAME(permute), SAME(broadcast_to), SAME(slice),     SAME(slice_scatter),
    SAME(concat),  SAME(pad),          SAME(embedding), SAME(embedding_grad),
    SAME(gather),  SAME(scatter_add),  SAME(one_hot),   {"fill", ref_arange},
    SAME(arange),  SAME(tril_mask),    {NULL, NULL},
};
