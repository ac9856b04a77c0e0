/* Ops of ONNX that choose or count elements: Unique and NonMaxSuppression, the shape of whose
 * results depends on data, so that their inputs must be known during the import; and
 * TfIdfVectorizer. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include "base/sort.h"

#include <math.h>
#include <string.h>

/* ---- Unique ---- */

/* A tensor as `count` slices along an axis: slice i has the elements [before, i, after]. */
typedef struct slices {
    onnx_tensor tensor;
    int64_t before, count, after;
} slices;

static double element_of(const slices *s, int64_t slice, int64_t i)
{
    const int64_t at = (i / s->after * s->count + slice) * s->after + i % s->after;
    return onnx_tensor_element(&s->tensor, at);
}

/* The order of two slices; NaN is equal to itself and sorts after all numbers. */
static int compare_slices(const slices *s, int64_t i, int64_t j)
{
    for (int64_t k = 0; k < s->before * s->after; k++) {
        const double a = element_of(s, i, k), b = element_of(s, j, k);
        if (a == b || (isnan(a) && isnan(b))) continue;
        return a < b || isnan(b) ? -1 : 1;
    }
    return 0;
}

static int by_contents(const void *a, const void *b, void *context)
{
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    const int order = compare_slices(context, i, j);
    return order ? order : i < j ? -1 : i > j;
}

static int by_number(const void *a, const void *b, void *context)
{
    const int32_t *first = context;
    const int32_t i = first[*(const int32_t *)a], j = first[*(const int32_t *)b];
    return i < j ? -1 : i > j;
}

/* What Unique finds. Group k has the slices that equal slice first[k], `times`[k] of them; slice i
 * is in group `group`[i]. */
typedef struct groups {
    int32_t *first, *times, *group, *order, *rank;
    int64_t count;
} groups;

static bool find_groups(onnx_node *n, slices *s, bool sorted, groups *found)
{
    const size_t bytes = ((size_t)s->count + 1) * sizeof(int32_t);
    int32_t **const lists[] = {&found->first, &found->times, &found->group, &found->order,
                               &found->rank};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        *lists[i] = weft__arena_alloc(&n->import->memory, bytes);
        if (!*lists[i])
            return weft__node_fail(n, WEFT_NO_MEMORY, "no memory for its groups"), false;
    }
    for (int32_t i = 0; i < s->count; i++) found->order[i] = i;
    weft__sort(found->order, (size_t)s->count, sizeof *found->order, by_contents, s);
    for (int64_t i = 0; i < s->count; i++) {
        const int32_t slice = found->order[i];
        if (i == 0 || compare_slices(s, found->order[i - 1], slice) != 0)
            found->first[found->count++] = slice;
        found->group[slice] = (int32_t)found->count - 1;
        found->times[found->count - 1]++;
    }
    /* rank[k]: the place of group k in the result; order[]: its inverse. */
    for (int32_t k = 0; k < found->count; k++) found->order[k] = k;
    if (!sorted)
        weft__sort(found->order, (size_t)found->count, sizeof *found->order, by_number,
                   found->first);
    for (int32_t k = 0; k < found->count; k++) found->rank[found->order[k]] = k;
    return true;
}

/* Output i: `from`[order[k]] for each group k. */
static void set_group_list(onnx_node *n, size_t i, const groups *found, const int32_t *from)
{
    int32_t *list =
        weft__arena_alloc(&n->import->memory, ((size_t)found->count + 1) * sizeof *list);
    for (int64_t k = 0; list && k < found->count; k++) list[k] = from[found->order[k]];
    if (list)
        weft__set_known(n, i, ONNX_INT64, WEFT_SHAPE(found->count), list);
    else
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for its groups");
}

static void set_unique(onnx_node *n, const slices *s, const groups *found, weft_shape shape)
{
    const size_t run = (size_t)s->after * weft_dtype_bytes(s->tensor.dtype);
    char *data =
        weft__arena_alloc(&n->import->memory, (size_t)s->before * (size_t)found->count * run);
    if (!data) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for its elements");
        return;
    }
    for (int64_t b = 0; b < s->before; b++)
        for (int64_t k = 0; k < found->count && run; k++)
            memcpy(data + (size_t)(b * found->count + k) * run,
                   (const char *)s->tensor.data +
                       (size_t)(b * s->count + found->first[found->order[k]]) * run,
                   run);
    weft__set_known(n, 0, weft__in_type(n, 0), shape, data);
}

/* The different elements, or slices along an axis, and outputs 1 to 3: where each is first, which
 * one each element is, and how often each is there. */
void weft__map_Unique(onnx_node *n)
{
    const onnx_tensor *x = weft__in_tensor(n, 0, "elements to be compared");
    if (!x) return;
    slices s = {*x, 1, 1, 1};
    weft_shape shape = x->shape;
    if (!weft__has_attr(n, "axis")) shape = WEFT_SHAPE(weft_shape_numel(x->shape));
    const int axis = weft__attr_axis(n, "axis", 0, shape.rank);
    if (weft__node_failed(n)) return;
    for (int i = 0; i < shape.rank; i++)
        *(i < axis ? &s.before : i == axis ? &s.count : &s.after) *= shape.dim[i];
    if (weft_shape_numel(shape) > INT32_MAX || s.count > INT32_MAX) {
        weft__node_fail(n, WEFT_TOO_LARGE, "compares more than 2^31 - 1 elements");
        return;
    }
    groups found = {.count = 0};
    if (!find_groups(n, &s, weft__attr_int(n, "sorted", 1), &found)) return;
    shape.dim[axis] = found.count;
    set_unique(n, &s, &found, shape);
    set_group_list(n, 1, &found, found.first);
    for (int64_t i = 0; i < s.count; i++) found.group[i] = found.rank[found.group[i]];
    weft__set_known(n, 2, ONNX_INT64, WEFT_SHAPE(s.count), found.group);
    set_group_list(n, 3, &found, found.times);
}

/* ---- NonMaxSuppression ---- */

/* The maximum number of comparisons of two boxes. */
#define MAX_COMPARISONS ((int64_t)1 << 28)

/* The boxes of an image and their scores of a class. */
typedef struct candidates {
    const onnx_tensor *boxes, *scores;
    int64_t first_box, first_score, n_boxes;
    bool centred; /* boxes are centres and sizes, not two corners */
    double threshold;
} candidates;

typedef struct rectangle {
    double low[2], high[2];
} rectangle;

static rectangle rectangle_of(const candidates *c, int32_t box)
{
    double at[4];
    rectangle r;
    for (int i = 0; i < 4; i++) at[i] = onnx_tensor_element(c->boxes, (c->first_box + box) * 4 + i);
    for (int i = 0; i < 2; i++) {
        r.low[i] = c->centred ? at[i] - at[2 + i] / 2 : fmin(at[i], at[2 + i]);
        r.high[i] = c->centred ? at[i] + at[2 + i] / 2 : fmax(at[i], at[2 + i]);
    }
    return r;
}

static double area(const rectangle *r)
{
    return (r->high[0] - r->low[0]) * (r->high[1] - r->low[1]);
}

/* Whether the intersection of two boxes is more than the threshold's fraction of their union. */
static bool overlap(const candidates *c, int32_t i, int32_t j)
{
    const rectangle a = rectangle_of(c, i), b = rectangle_of(c, j);
    rectangle both;
    for (int k = 0; k < 2; k++) {
        both.low[k] = fmax(a.low[k], b.low[k]);
        both.high[k] = fmin(a.high[k], b.high[k]);
        if (!(both.high[k] > both.low[k])) return false;
    }
    const double shared = area(&both), all = area(&a) + area(&b) - shared;
    return shared / all > c->threshold;
}

static int by_score(const void *a, const void *b, void *context)
{
    const candidates *c = context;
    const int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    const double x = onnx_tensor_element(c->scores, c->first_score + i);
    const double y = onnx_tensor_element(c->scores, c->first_score + j);
    return x > y ? -1 : x < y ? 1 : i < j ? -1 : i > j;
}

/* Puts the numbers of at most `max_count` chosen boxes into order[]; returns how many. order[] has
 * n_boxes numbers. */
static int64_t choose(candidates *c, int32_t *order, int64_t max_count, double min_score)
{
    int64_t count = 0, chosen = 0;
    for (int32_t i = 0; i < c->n_boxes; i++)
        if (onnx_tensor_element(c->scores, c->first_score + i) > min_score) order[count++] = i;
    weft__sort(order, (size_t)count, sizeof *order, by_score, c);
    for (int64_t i = 0; i < count && chosen < max_count; i++) {
        bool free = true;
        for (int64_t k = 0; free && k < chosen; k++) free = !overlap(c, order[i], order[k]);
        if (free) order[chosen++] = order[i];
    }
    return chosen;
}

static bool check_boxes(onnx_node *n, const candidates *c, int64_t max_count)
{
    const weft_shape b = c->boxes->shape, s = c->scores->shape;
    const bool floats =
        weft_dtype_is_float(c->boxes->dtype) && weft_dtype_is_float(c->scores->dtype);
    if (!floats || b.rank != 3 || s.rank != 3 || b.dim[2] != 4 || b.dim[0] != s.dim[0] ||
        b.dim[1] != s.dim[2])
        return weft__node_fail(
                   n, WEFT_BAD_SHAPE,
                   "needs boxes [images, boxes, 4] and scores [images, classes, boxes]"),
               false;
    if (weft_shape_numel(s) > MAX_COMPARISONS / (max_count + 1))
        return weft__node_fail(n, WEFT_TOO_LARGE, "compares too many boxes"), false;
    return true;
}

/* For each image and class the boxes [chosen, 3], best first, that overlap none before them: the
 * numbers of image, class and box. */
void weft__map_NonMaxSuppression(onnx_node *n)
{
    candidates c = {weft__in_tensor(n, 0, "boxes"), weft__in_tensor(n, 1, "scores"),
                    .centred = false};
    const double limit = weft__in_number(n, 2, "number of boxes", 0);
    const double min_score = weft__in_number(n, 4, "score threshold", -INFINITY);
    c.threshold = weft__in_number(n, 3, "threshold", 0);
    c.centred = weft__attr_int(n, "center_point_box", 0);
    if (weft__node_failed(n)) return;
    c.n_boxes = c.boxes->shape.rank == 3 ? c.boxes->shape.dim[1] : 0;
    const int64_t max_count = limit < 1                   ? 0
                              : limit < (double)c.n_boxes ? (int64_t)limit
                                                          : c.n_boxes;
    if (!check_boxes(n, &c, max_count)) return;
    const int64_t images = c.scores->shape.dim[0], classes = c.scores->shape.dim[1];
    int32_t *order = weft__arena_alloc(&n->import->memory, ((size_t)c.n_boxes + 1) * sizeof *order);
    int32_t *chosen = weft__arena_alloc(
        &n->import->memory, (size_t)(images * classes * max_count * 3 + 1) * sizeof *chosen);
    if (!order || !chosen) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for its boxes");
        return;
    }
    int64_t total = 0;
    for (int64_t i = 0; i < images * classes; i++) {
        c.first_box = i / classes * c.n_boxes;
        c.first_score = i * c.n_boxes;
        const int64_t count = choose(&c, order, max_count, min_score);
        for (int64_t k = 0; k < count; k++, total++) {
            chosen[3 * total] = (int32_t)(i / classes);
            chosen[3 * total + 1] = (int32_t)(i % classes);
            chosen[3 * total + 2] = order[k];
        }
    }
    weft__set_known(n, 0, ONNX_INT64, WEFT_SHAPE(total, 3), chosen);
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
