/* Ops of ONNX that choose or count elements: NonZero, Compress and NonMaxSuppression, data decide the
 * size of whose results (sizes.c); and TfIdfVectorizer. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <math.h>
#include <string.h>

/* ---- NonZero and Compress ---- */

/* Compress with a condition [count] in the graph: as many elements as the axis of x has, of which
 * those that were chosen count. Of x count as many as `there` says; without a value, all. */
static void compress_data(onnx_node *n, weft_value x, int axis, weft_value there)
{
    weft_graph *g = n->graph;
    const int64_t dim = weft_dim_of(g, x, axis);
    weft_value size, chosen = weft__in_filled(n, 1, 0);
    if (weft_rank_of(g, chosen) != 1 || weft_dtype_of(g, chosen) != WEFT_BOOL ||
        weft_dim_of(g, chosen, 0) > dim) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "needs a condition of at most %lld bools",
                        (long long)dim);
        return;
    }
    chosen =
        weft_pad(g, chosen, WEFT_SHAPE(0).dim, WEFT_SHAPE(dim - weft_dim_of(g, chosen, 0)).dim, 0);
    if (weft_is_value(there))
        chosen = weft_logical_and(g, chosen, weft__counted(g, there, dim, 0, 1));
    x = weft__gather_rows(n, x, weft__true_positions(g, chosen, &size), axis);
    weft__set_typed(n, 0, x, weft__in_type(n, 0));
    weft__add_size(n, 0, axis, size);
}

/* Compress with a condition that is known during the import. */
static void compress_known(onnx_node *n, weft_value x, int axis)
{
    const onnx_tensor *condition = weft__in_tensor(n, 1, "condition");
    if (!condition || weft__node_failed(n)) return;
    const int64_t size = weft_shape_numel(condition->shape);
    int64_t *chosen = weft__arena_alloc(&n->import->memory, ((size_t)size + 1) * sizeof *chosen);
    int64_t count = 0;
    if (!chosen || condition->dtype != WEFT_BOOL || weft__node_failed(n)) {
        weft__node_fail(n, WEFT_BAD_DTYPE, "needs a condition of bools");
        return;
    }
    for (int64_t i = 0; i < size; i++)
        if (((const uint8_t *)condition->data)[i]) chosen[count++] = i;
    x = weft__gather_rows(n, x, weft__ints_value(n, chosen, WEFT_SHAPE(count)), axis);
    weft__set_typed(n, 0, x, weft__in_type(n, 0));
}

/* The elements whose condition is true. */
void weft__map_Compress(onnx_node *n)
{
    weft_value there = WEFT_NO_VALUE, x = weft__in_value(n, 0);
    if (!weft__import_contents(n->import, n->in[1]) || weft__node_failed(n)) return;
    const bool flat = !weft__has_attr(n, "axis");
    if (flat) x = weft__in_flat(n, 0, &there);
    const int axis = weft__attr_axis(n, "axis", 0, weft_rank_of(n->graph, x));
    if (weft__node_failed(n)) return;
    const bool other = !flat && has_size(n, 0) && n->in[0]->sized_axis != axis;
    if (!flat && has_size(n, 0) && !other) there = n->in[0]->size;
    if (!n->in[1]->known || n->in[1]->least || weft_is_value(there))
        compress_data(n, x, axis, there);
    else
        compress_known(n, x, axis);
    if (other) weft__add_size(n, 0, n->in[0]->sized_axis, n->in[0]->size);
}

/* The positions [rank, n] of the n elements, of which those that are not zero count. */
void weft__map_NonZero(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_filled(n, 0, 0);
    const weft_shape s = weft_shape_of(g, x);
    weft_value size, rows[WEFT_MAX_RANK];
    weft_value zero = weft_cast(g, weft_scalar(g, WEFT_F64, 0), weft_dtype_of(g, x));
    weft_value found = weft_reshape(g, weft_not_equal(g, x, zero), WEFT_SHAPE(-1));
    if (!s.rank || weft_shape_numel(s) > INT32_MAX) {
        weft__node_fail(n, WEFT_BAD_SHAPE,
                        "needs an input of rank 1 or more with less than 2^31 elements");
        return;
    }
    weft_value left = weft_cast(g, weft__true_positions(g, found, &size), WEFT_F64);
    for (int axis = s.rank - 1; axis >= 0; axis--) {
        const double dim = (double)s.dim[axis];
        /* (i + 0.5) / dim is never whole, so the quotient is right in spite of its rounding. */
        weft_value quotient =
            weft_floor(g, weft_mul_scalar(g, weft_add_scalar(g, left, 0.5), 1 / (dim ? dim : 1)));
        rows[axis] = weft_sub(g, left, weft_mul_scalar(g, quotient, dim));
        left = quotient;
    }
    weft_value all = weft_cast(g, weft_stack(g, rows, (size_t)s.rank, 0), WEFT_I32);
    weft__set_typed(n, 0, all, ONNX_INT64);
    weft__add_size(n, 0, 1, size);
}

/* ---- NonMaxSuppression ---- */

/* Boxes [images, n, 4] as two corners, where the attribute says that they are a centre and sizes. */
static weft_value corners(onnx_node *n, weft_value boxes)
{
    weft_graph *g = n->graph;
    if (!weft__attr_int(n, "center_point_box", 0)) return boxes;
    weft_value centre = weft_slice(g, boxes, 2, 0, 2, 1);
    weft_value half = weft_mul_scalar(g, weft_slice(g, boxes, 2, 2, 4, 1), 0.5);
    weft_value both[2];
    both[0] = weft_sub(g, centre, half);
    both[1] = weft_add(g, centre, half);
    return weft_concat(g, both, 2, 2);
}

/* The limit of boxes for each class, of n: input 2, which data may decide. */
static weft_value box_limit(onnx_node *n, int64_t boxes, int64_t *largest)
{
    weft_graph *g = n->graph;
    *largest = 0;
    if (!has_in(n, 2)) return weft_scalar(g, WEFT_F64, 0);
    if (!weft__import_contents(n->import, n->in[2])) return WEFT_NO_VALUE;
    *largest = boxes;
    if (!n->in[2]->known || weft__is_open(n, 2, 0))
        return weft_cast(g, weft__in_element(n, 2, 0), WEFT_F64);
    const double limit = weft__in_number(n, 2, "number of boxes", 0);
    if (limit < (double)boxes) *largest = limit < 1 ? 0 : (int64_t)limit;
    return weft_scalar(g, WEFT_F64, (double)*largest);
}

/* Element [..] of `index`: numbers along an axis of the shape [images, classes, n]. */
static weft_value numbers_along(weft_graph *g, weft_shape s, int axis)
{
    weft_shape shape = {3, {1, 1, 1}};
    shape.dim[axis] = s.dim[axis];
    weft_value all = weft_reshape(g, weft_arange(g, WEFT_I32, s.dim[axis], 0, 1), shape);
    return weft_reshape(g, weft_broadcast_to(g, all, s), WEFT_SHAPE(-1));
}

static bool check_boxes(onnx_node *n, weft_shape b, weft_shape s)
{
    if (weft__node_failed(n)) return false;
    if (b.rank != 3 || s.rank != 3 || b.dim[2] != 4 || b.dim[0] != s.dim[0] || b.dim[1] != s.dim[2])
        return weft__node_fail(
                   n, WEFT_BAD_SHAPE,
                   "needs boxes [images, boxes, 4] and scores [images, classes, boxes]"),
               false;
    if (weft_shape_numel(s) > INT32_MAX / 4)
        return weft__node_fail(n, WEFT_TOO_LARGE, "compares too many boxes"), false;
    if ((has_size(n, 0) && n->in[0]->sized_axis != 1) ||
        (has_size(n, 1) && n->in[1]->sized_axis != 2))
        return weft__node_fail(n, WEFT_NO_KERNEL, "data decide the number of images or classes"),
               false;
    return true;
}

/* The boxes whose score counts, which is above the threshold: bool like the scores. */
static weft_value candidates(onnx_node *n, weft_value scores, int64_t boxes)
{
    weft_graph *g = n->graph;
    const bool fixed = !has_in(n, 4) || (weft__import_contents(n->import, n->in[4]) &&
                                         n->in[4]->known && !n->in[4]->least);
    weft_value least =
        fixed ? weft_scalar(g, WEFT_F64, weft__in_number(n, 4, "score threshold", -INFINITY))
              : weft_reshape(g, weft__in_value(n, 4), WEFT_SCALAR);
    least = weft_cast(g, least, weft_dtype_of(g, scores));
    weft_value good = weft_greater(g, scores, least);
    for (size_t i = 0; i < 2; i++)
        if (has_size(n, i))
            good = weft_logical_and(g, good, weft__counted(g, n->in[i]->size, boxes, 2, 3));
    return good;
}

/* For each image and class the boxes [chosen, 3], best first, that overlap none before them: the
 * numbers of image, class and box. */
void weft__map_NonMaxSuppression(onnx_node *n)
{
    weft_graph *g = n->graph;
    weft_value boxes = weft__in_value(n, 0), scores = weft__in_value(n, 1), order;
    const weft_shape b = weft__in_shape(n, 0), s = weft__in_shape(n, 1);
    if (!check_boxes(n, b, s)) return;
    int64_t largest;
    const int64_t images = s.dim[0], classes = s.dim[1], count = s.dim[2];
    const weft_value limit = box_limit(n, count, &largest);
    weft_value good = candidates(n, scores, count);
    scores = weft_masked_fill(g, scores, weft_logical_not(g, good), -INFINITY);
    weft_sort(g, scores, 2, true, &order);
    /* The others come after all candidates, so they suppress none of these. They lose their area,
     * so that nothing is compared with them. */
    good = weft_gather(g, good, order, 2);
    weft_value columns[3];
    columns[0] = numbers_along(g, s, 0);
    columns[1] = numbers_along(g, s, 1);
    columns[2] = weft_reshape(g, order, WEFT_SHAPE(-1));
    weft_value row = weft_mul_scalar(g, weft_cast(g, columns[0], WEFT_F64), (double)count);
    row = weft_cast(g, weft_add(g, row, weft_cast(g, columns[2], WEFT_F64)), WEFT_I32);
    boxes = weft_reshape(g, corners(n, boxes), WEFT_SHAPE(images * count, 4));
    boxes =
        weft_reshape(g, weft__gather_rows(n, boxes, row, 0), WEFT_SHAPE(images, classes, count, 4));
    weft_value rest = weft_logical_not(g, weft_expand_dims(g, good, 3));
    boxes = weft_masked_fill(g, boxes, rest, 0);
    weft_value stays = weft_suppress(g, boxes, weft__in_number(n, 3, "threshold", 0));
    stays = weft_logical_and(g, stays, good);
    weft_value number = weft_cumsum(g, weft_cast(g, stays, WEFT_F64), 2, false);
    stays = weft_logical_and(g, stays, weft_less_equal(g, number, limit));
    weft_value size, from = weft__true_positions(g, weft_reshape(g, stays, WEFT_SHAPE(-1)), &size);
    from = weft_slice(g, from, 0, 0, images * classes * largest, 1);
    for (int i = 0; i < 3 && !weft__node_failed(n); i++)
        columns[i] = weft__gather_rows(n, columns[i], from, 0);
    weft__set_typed(n, 0, weft_stack(g, columns, 3, 1), ONNX_INT64);
    weft__add_size(n, 0, 0, size);
}

/* ---- TfIdfVectorizer ---- */

/* How often each of `grams` [count, length] of a row of x [rows, size] has its numbers `distance`
 * apart: f32 [rows, count]. */
static weft_value count_grams(onnx_node *n, weft_value x, const int64_t *grams, int64_t count,
                              int64_t length, int64_t distance)
{
    weft_graph *g = n->graph;
    const int64_t rows = weft_dim_of(g, x, 0),
                  places = weft_dim_of(g, x, 1) - (length - 1) * distance;
    if (places < 1) return weft_fill(g, WEFT_F32, WEFT_SHAPE(rows, count), 0);
    weft_value table = weft__ints_value(n, grams, WEFT_SHAPE(count, length)), all = WEFT_NO_VALUE;
    for (int64_t k = 0; k < length; k++) {
        weft_value at = weft_slice(g, x, 1, k * distance, k * distance + places, 1);
        weft_value wanted = weft_squeeze(g, weft_slice(g, table, 1, k, k + 1, 1), 1);
        weft_value same = weft_equal(g, weft_expand_dims(g, at, 2), wanted);
        all = k ? weft_logical_and(g, all, same) : same;
    }
    return weft_sum(g, weft_cast(g, all, WEFT_F32), WEFT_AXES(1), false);
}

/* The lists of the attributes, checked. */
typedef struct vocabulary {
    const WeftOnnx__AttributeProto *pool, *starts, *columns, *weights;
    int64_t min, max, skips, width;
} vocabulary;

static bool in_order(const vocabulary *v)
{
    for (size_t i = 0; i < v->starts->n_ints; i++) {
        const int64_t begin = v->starts->ints[i];
        const int64_t end =
            i + 1 < v->starts->n_ints ? v->starts->ints[i + 1] : (int64_t)v->pool->n_ints;
        if (begin < 0 || begin > end || end > (int64_t)v->pool->n_ints ||
            (end - begin) % (int64_t)(i + 1))
            return false;
    }
    return true;
}

static bool read_vocabulary(onnx_node *n, vocabulary *v)
{
    v->pool = weft__attr_find(n, "pool_int64s");
    v->starts = weft__attr_find(n, "ngram_counts");
    v->columns = weft__attr_find(n, "ngram_indexes");
    v->weights = weft__attr_find(n, "weights");
    v->min = weft__attr_int(n, "min_gram_length", 1);
    v->max = weft__attr_int(n, "max_gram_length", 1);
    v->skips = weft__attr_int(n, "max_skip_count", 0);
    if (!v->pool || !v->starts || !v->columns || !v->columns->n_ints)
        return weft__node_fail(n, WEFT_BAD_FILE, "has no lists of integer n-grams"), false;
    for (size_t i = 0; i < v->columns->n_ints; i++) {
        const int64_t column = v->columns->ints[i];
        if (column < 0 || column > ONNX_MAX_FOLDED) v->width = INT32_MAX;
        if (column >= v->width) v->width = column + 1;
    }
    if (!in_order(v) || v->min < 1 || v->max > 64 || v->skips < 0 || v->skips > 1024 ||
        v->width > ONNX_MAX_FOLDED || (v->weights && (int64_t)v->weights->n_floats < v->width))
        return weft__node_fail(n, WEFT_BAD_FILE,
                               "its lists of n-grams contradict each other, or are too large"),
               false;
    return true;
}

/* Counts of all n-grams in their columns: f32 [rows, width]. */
static weft_value count_all(onnx_node *n, const vocabulary *v, weft_value x)
{
    weft_graph *g = n->graph;
    const int64_t rows = weft_dim_of(g, x, 0);
    weft_value y = weft_fill(g, WEFT_F32, WEFT_SHAPE(rows, v->width), 0);
    int64_t before = 0; /* n-grams of shorter lengths */
    for (int64_t length = 1; length <= (int64_t)v->starts->n_ints; length++) {
        const int64_t begin = v->starts->ints[length - 1];
        const int64_t end = length < (int64_t)v->starts->n_ints ? v->starts->ints[length]
                                                                : (int64_t)v->pool->n_ints;
        const int64_t count = (end - begin) / length, first = before;
        before += count;
        if (!count || length < v->min || length > v->max) continue;
        if (before > (int64_t)v->columns->n_ints)
            return weft__node_fail(n, WEFT_BAD_FILE, "has fewer columns than n-grams");
        weft_value columns = weft__ints_value(n, v->columns->ints + first, WEFT_SHAPE(1, count));
        columns = weft_broadcast_to(g, columns, WEFT_SHAPE(rows, count));
        for (int64_t skip = 0; skip <= (length > 1 ? v->skips : 0) && !weft__node_failed(n); skip++)
            y = weft_scatter_add(g, y, columns,
                                 count_grams(n, x, v->pool->ints + begin, count, length, skip + 1),
                                 1);
    }
    return y;
}

/* Numbers [size] or [rows, size] as how often each n-gram of a list occurs, its numbers up to
 * max_skip_count + 1 apart; or as the weights of those that occur. */
void weft__map_TfIdfVectorizer(onnx_node *n)
{
    weft_graph *g = n->graph;
    vocabulary v = {.width = 0};
    weft_shape s = weft__in_shape(n, 0);
    if (weft__node_failed(n) || !read_vocabulary(n, &v)) return;
    if (s.rank < 1 || s.rank > 2 || weft_dtype_of(g, weft__in_value(n, 0)) != WEFT_I32) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "needs integers [size] or [rows, size]");
        return;
    }
    weft_value x = weft_reshape(g, weft__in_value(n, 0),
                                WEFT_SHAPE(s.rank == 2 ? s.dim[0] : 1, s.dim[s.rank - 1]));
    weft_value y = count_all(n, &v, x);
    if (weft__attr_is(n, "mode", "IDF", "TF"))
        y = weft_cast(g, weft_greater(g, y, weft_scalar(g, WEFT_F32, 0)), WEFT_F32);
    if (v.weights && !weft__attr_is(n, "mode", "TF", "TF"))
        y = weft_mul(g, y, weft_constant(g, WEFT_F32, WEFT_SHAPE(v.width), v.weights->floats));
    s.dim[s.rank - 1] = v.width;
    weft__set_out(n, 0, weft_reshape(g, y, s));
}
