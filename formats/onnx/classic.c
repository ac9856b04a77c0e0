/* Ops of the domain ai.onnx.ml for linear models and features. Their coefficients are attributes,
 * so they are constants and not parameters. */
#include "onnx/classic.h"
#include "onnx/import.h"
#include "onnx/ops.h"

#include <string.h>

double *weft__attr_numbers(onnx_node *n, const char *name, int64_t *count)
{
    const WeftOnnx__AttributeProto *a = weft__attr_find(n, name);
    onnx_tensor t = {.data = NULL};
    *count = 0;
    if (!a || weft__node_failed(n)) return NULL;
    if (a->t && !weft__attr_tensor(n, a, name, &t)) return NULL;
    *count = a->t              ? weft_shape_numel(t.shape)
             : a->n_floats > 0 ? (int64_t)a->n_floats
                               : (int64_t)a->n_ints;
    double *numbers = weft__arena_alloc(&n->import->memory, (size_t)(*count + 1) * sizeof *numbers);
    if (!numbers) weft__node_fail(n, WEFT_NO_MEMORY, "no memory for %s", name);
    for (int64_t i = 0; numbers && i < *count; i++)
        numbers[i] = a->t              ? onnx_tensor_element(&t, i)
                     : a->n_floats > 0 ? (double)a->floats[i]
                                       : (double)a->ints[i];
    return numbers;
}

const char *const weft__classic_transforms[CLASSIC_TRANSFORMS] = {"NONE", "SOFTMAX", "LOGISTIC",
                                                                  "SOFTMAX_ZERO", "PROBIT"};

weft_value weft__classic_transform(onnx_node *n, weft_value y, const char *name)
{
    weft_graph *g = n->graph;
    if (!strcmp(name, "NONE")) return y;
    if (!strcmp(name, "LOGISTIC")) return weft_sigmoid(g, y);
    if (!strcmp(name, "SOFTMAX")) return weft_softmax(g, y, -1);
    return weft__node_fail(n, WEFT_NO_KERNEL, "post_transform %s is not supported", name);
}

const char *weft__classic_transform_name(onnx_node *n)
{
    for (size_t i = 0; i < CLASSIC_TRANSFORMS; i++)
        if (weft__attr_is(n, "post_transform", weft__classic_transforms[i], "NONE"))
            return weft__classic_transforms[i];
    weft__node_fail(n, WEFT_BAD_FILE, "has an unknown post_transform");
    return weft__classic_transforms[0];
}

weft_value weft__classic_label(onnx_node *n, weft_value y, const double *labels, int64_t count)
{
    weft_graph *g = n->graph;
    for (int64_t i = 0; i < count; i++)
        if (!(labels[i] >= INT32_MIN && labels[i] <= INT32_MAX))
            return weft__node_fail(n, WEFT_BAD_DTYPE, "label %.0f does not fit i32", labels[i]);
    const weft_value table = weft__doubles_value(n, labels, WEFT_SHAPE(count, 1), WEFT_I32);
    return weft_squeeze(g, weft_embedding(g, table, weft_argmax(g, y, 1, false), -1), -1);
}

weft_value weft__classic_rows(onnx_node *n)
{
    const weft_shape s = weft__in_shape(n, 0);
    if (!weft__node_failed(n) && s.rank != 2)
        weft__node_fail(n, WEFT_BAD_SHAPE, "needs an input [rows, features]");
    return weft__node_failed(n) ? WEFT_NO_VALUE : weft__widen(n, weft__in_value(n, 0));
}

static void set_floats(onnx_node *n, weft_value y)
{
    if (!weft__node_failed(n)) weft__set_out(n, 0, weft_cast(n->graph, y, WEFT_F32));
}

/* Numbers of an attribute, one for all features or one for each; none without it. */
static weft_value for_features(onnx_node *n, const char *name, int64_t size, weft_dtype dtype)
{
    int64_t count;
    const double *numbers = weft__attr_numbers(n, name, &count);
    if (!numbers || weft__node_failed(n)) return WEFT_NO_VALUE;
    if (count != 1 && count != size)
        return weft__node_fail(n, WEFT_BAD_SHAPE, "%s has %lld numbers for %lld features", name,
                               (long long)count, (long long)size);
    return weft__doubles_value(n, numbers, WEFT_SHAPE(count), dtype);
}

/* (x - offset) scale */
void weft__ml_Scaler(onnx_node *n)
{
    weft_graph *g = n->graph;
    weft_value y = weft__classic_rows(n);
    if (weft__node_failed(n)) return;
    const weft_dtype dtype = weft_dtype_of(g, y);
    const int64_t size = weft_dim_of(g, y, 1);
    const weft_value offset = for_features(n, "offset", size, dtype);
    const weft_value scale = for_features(n, "scale", size, dtype);
    if (weft_is_value(offset)) y = weft_sub(g, y, offset);
    if (weft_is_value(scale)) y = weft_mul(g, y, scale);
    set_floats(n, y);
}

/* Rows by their largest magnitude, the sum of magnitudes, or the root of the sum of squares. */
void weft__ml_Normalizer(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__classic_rows(n);
    const weft_axes rows = WEFT_AXES(1);
    const bool l1 = weft__attr_is(n, "norm", "L1", "MAX"),
               l2 = weft__attr_is(n, "norm", "L2", "MAX");
    if (weft__node_failed(n)) return;
    if (!l1 && !l2 && !weft__attr_is(n, "norm", "MAX", "MAX")) {
        weft__node_fail(n, WEFT_BAD_FILE, "its norm is not MAX, L1 or L2");
        return;
    }
    weft_value size = l2   ? weft_sqrt(g, weft_sum(g, weft_square(g, x), rows, true))
                      : l1 ? weft_sum(g, weft_abs(g, x), rows, true)
                           : weft_max(g, weft_abs(g, x), rows, true);
    size = weft_maximum(g, size, weft_scalar(g, weft_dtype_of(g, x), 1e-30));
    set_floats(n, weft_div(g, x, size));
}

void weft__ml_Binarizer(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    if (weft__node_failed(n)) return;
    const weft_dtype dtype = weft_dtype_of(g, x);
    const weft_value wide = weft__widen(n, x);
    const weft_value threshold =
        weft_scalar(g, weft_dtype_of(g, wide), weft__attr_float(n, "threshold", 0));
    weft__set_typed(n, 0, weft_cast(g, weft_greater(g, wide, threshold), dtype),
                    weft__in_type(n, 0));
}

/* Elements of the last axis; a vector becomes a matrix of one row. */
void weft__ml_ArrayFeatureExtractor(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const weft_shape s = weft__in_shape(n, 0);
    const int64_t count = weft_shape_numel(weft__in_shape(n, 1));
    if (weft__node_failed(n)) return;
    if (s.rank < 1) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "needs an input [..., features]");
        return;
    }
    const weft_value rows = s.rank == 1 ? weft_reshape(g, x, WEFT_SHAPE(1, s.dim[0])) : x;
    const weft_value at = weft_reshape(g, weft__in_value(n, 1), WEFT_SHAPE(count));
    const weft_value y = weft__gather_rows(n, rows, at, weft_rank_of(g, rows) - 1);
    weft__set_typed(n, 0, y, weft__in_type(n, 0));
}

/* x coefficients' + intercepts [rows, targets]; the number of targets follows from the attribute's
 * length if it is 0. */
static weft_value linear(onnx_node *n, int64_t targets)
{
    weft_graph *g = n->graph;
    int64_t count, shifts;
    const weft_value x = weft__classic_rows(n);
    const double *weights = weft__attr_numbers(n, "coefficients", &count);
    const double *shift = weft__attr_numbers(n, "intercepts", &shifts);
    if (weft__node_failed(n)) return x;
    const int64_t size = weft_dim_of(g, x, 1);
    if (!targets && size) targets = count / size;
    const bool fits = size ? count % size == 0 && count / size == targets : count == 0;
    if (!weights || targets < 1 || !fits || (shift && shifts != targets))
        return weft__node_fail(n, WEFT_BAD_SHAPE,
                               "its coefficients or intercepts do not fit %lld features",
                               (long long)size);
    const weft_dtype dtype = weft_dtype_of(g, x);
    const weft_value w = weft__doubles_value(n, weights, WEFT_SHAPE(targets, size), dtype);
    const weft_value y = weft_matmul(g, x, weft_transpose(g, w, 0, 1));
    return shift ? weft_add(g, y, weft__doubles_value(n, shift, WEFT_SHAPE(targets), dtype)) : y;
}

void weft__ml_LinearRegressor(onnx_node *n)
{
    const int64_t targets = weft__attr_int(n, "targets", 1);
    const weft_value y = linear(n, targets < 1 ? -1 : targets);
    if (weft__node_failed(n)) return;
    set_floats(n, weft__classic_transform(n, y, weft__classic_transform_name(n)));
}

/* Outputs: the label, an integer of the file, and the scores of the classes. */
void weft__ml_LinearClassifier(onnx_node *n)
{
    weft_graph *g = n->graph;
    int64_t count;
    double *labels = weft__attr_numbers(n, "classlabels_ints", &count);
    weft_value y = linear(n, 0);
    if (weft__node_failed(n)) return;
    const int64_t scores = weft_dim_of(g, y, 1);
    if (!labels || !(count == scores || (count == 2 && scores == 1)) || count < 2) {
        weft__node_fail(n, labels ? WEFT_BAD_SHAPE : WEFT_NO_KERNEL,
                        "needs an integer as label of each of at least 2 classes");
        return;
    }
    if (scores == 1) y = weft_concat(g, (weft_value[]){weft_neg(g, y), y}, 2, 1);
    y = weft__classic_transform(n, y, weft__classic_transform_name(n));
    if (weft__node_failed(n)) return;
    weft__set_typed(n, 0, weft__classic_label(n, y, labels, count), ONNX_INT64);
    weft__set_out(n, 1, weft_cast(g, y, WEFT_F32));
}
