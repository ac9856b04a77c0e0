/* See reference.h. Attribute structs are declared again here as the ops' files declare them. */
#include "reference.h"

#include <weft/ops.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REFERENCE(name)                                                                            \
    static void ref_##name(const void *attr, const weft_tensor *in, size_t n_in, weft_tensor *out)
#define UNUSED (void)attr, (void)in, (void)n_in, (void)out

static double *data(const weft_tensor *t)
{
    return t->data;
}
static int64_t numel(const weft_tensor *t)
{
    return weft_shape_numel(t->shape);
}
static double get(const weft_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case WEFT_F32:
        return ((const float *)t->data)[i];
    case WEFT_F64:
        return ((const double *)t->data)[i];
    case WEFT_I32:
        return ((const int32_t *)t->data)[i];
    default:
        return ((const uint8_t *)t->data)[i];
    }
}
static void put(weft_tensor *t, int64_t i, double x)
{
    switch (t->dtype) {
    case WEFT_F32:
        ((float *)t->data)[i] = (float)x;
        break;
    case WEFT_F64:
        ((double *)t->data)[i] = x;
        break;
    case WEFT_I32:
        ((int32_t *)t->data)[i] = (int32_t)x;
        break;
    default:
        ((uint8_t *)t->data)[i] = x != 0;
        break;
    }
}

/* The coordinates of element i, and the element of t (which broadcasts to `shape`) at coordinates.
 */
static void coordinates(weft_shape shape, int64_t i, int64_t *at)
{
    for (int d = shape.rank - 1; d >= 0; d--) {
        at[d] = i % shape.dim[d];
        i /= shape.dim[d];
    }
}
static int64_t index_at(const weft_tensor *t, weft_shape shape, const int64_t *at)
{
    int64_t i = 0;
    for (int d = 0; d < t->shape.rank; d++) {
        int64_t c = at[d + shape.rank - t->shape.rank];
        i = i * t->shape.dim[d] + (t->shape.dim[d] == 1 ? 0 : c);
    }
    return i;
}
static double broadcast(const weft_tensor *t, weft_shape shape, int64_t i)
{
    int64_t at[WEFT_MAX_RANK];
    coordinates(shape, i, at);
    return get(t, index_at(t, shape, at));
}

/* ---- Elementwise ---- */

typedef struct pair_attr {
    double a, b;
} pair_attr;
#define UNARY(name, expression)                                                                    \
    REFERENCE(name)                                                                                \
    {                                                                                              \
        UNUSED;                                                                                    \
        for (int64_t i = 0; i < numel(out); i++) {                                                 \
            double x = get(in, i);                                                                 \
            put(out, i, expression);                                                               \
        }                                                                                          \
    }
#define A (((const pair_attr *)attr)->a)
#define B (((const pair_attr *)attr)->b)
UNARY(neg, -x)
UNARY(abs, fabs(x))
UNARY(sign, x > 0 ? 1 : x < 0 ? -1 : 0)
UNARY(exp, exp(x))
UNARY(log, log(x))
UNARY(sqrt, sqrt(x))
UNARY(rsqrt, pow(x, -0.5))
UNARY(square, pow(x, 2))
UNARY(reciprocal, pow(x, -1))
UNARY(sin, sin(x))
UNARY(cos, cos(x))
UNARY(tanh, tanh(x))
UNARY(sigmoid, 1 / (1 + exp(-x)))
UNARY(relu, fmax(x, 0))
UNARY(leaky_relu, x > 0 ? x : A * x)
UNARY(gelu, x / 2 * erfc(-x / sqrt(2)))
UNARY(gelu_tanh, x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3)))))
UNARY(silu, x / (1 + exp(-x)))
UNARY(softplus, log(1 + exp(x)))
UNARY(erf, erf(x))
UNARY(clamp, fmin(fmax(x, A), B))
UNARY(contiguous, x)
UNARY(cast, x)
UNARY(logical_not, x == 0)

#define BINARY(name, expression)                                                                   \
    REFERENCE(name)                                                                                \
    {                                                                                              \
        UNUSED;                                                                                    \
        for (int64_t i = 0; i < numel(out); i++) {                                                 \
            double x = broadcast(&in[0], out->shape, i), y = broadcast(&in[1], out->shape, i);     \
            put(out, i, expression);                                                               \
        }                                                                                          \
    }
BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x *y)
BINARY(div, x / y)
BINARY(pow, exp(y *log(x)))
BINARY(maximum, fmax(x, y))
BINARY(relu_grad, x > 0 ? y : 0)
BINARY(minimum, fmin(x, y))
BINARY(equal, x == y)
BINARY(less, x < y)
BINARY(greater, x > y)
BINARY(logical_and, x &&y)
BINARY(logical_or, x || y)
BINARY(masked_fill, y ? A : x)

REFERENCE(where)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++)
        put(out, i, broadcast(&in[broadcast(&in[0], out->shape, i) ? 1 : 2], out->shape, i));
}
REFERENCE(add_n)
{
    UNUSED;
    for (size_t k = 0; k < n_in; k++)
        for (int64_t i = 0; i < numel(out); i++) data(out)[i] += data(&in[k])[i];
}
REFERENCE(global_norm)
{
    UNUSED;
    double sum = 0;
    for (size_t k = 0; k < n_in; k++)
        for (int64_t i = 0; i < numel(&in[k]); i++) sum = hypot(sum, data(&in[k])[i]);
    *data(out) = sum;
}

/* ---- Reductions: every element of x is offered to the output that it belongs to ---- */

typedef struct reduce_attr {
    int32_t count, axis[WEFT_MAX_RANK];
    bool keepdims;
    int32_t correction;
} reduce_attr;

static int64_t target_of(const reduce_attr *attr, weft_shape shape, int64_t i)
{
    int64_t at[WEFT_MAX_RANK], to = 0;
    coordinates(shape, i, at);
    for (int d = 0; d < shape.rank; d++) {
        bool reduced = attr->count == 0;
        for (int k = 0; k < attr->count; k++) reduced |= attr->axis[k] == d;
        if (!reduced) to = to * shape.dim[d] + at[d];
    }
    return to;
}
#define EACH(i, to)                                                                                \
    for (int64_t i = 0, to; i < numel(in) && (to = target_of(attr, in->shape, i), true); i++)
static double fold_count(const weft_tensor *in, const weft_tensor *out)
{
    return numel(out) ? (double)numel(in) / (double)numel(out) : 0;
}
REFERENCE(sum)
{
    UNUSED;
    EACH(i, to) data(out)[to] += data(in)[i];
}
REFERENCE(mean)
{
    ref_sum(attr, in, n_in, out);
    for (int64_t i = 0; i < numel(out); i++) data(out)[i] /= fold_count(in, out);
}
REFERENCE(max)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) data(out)[i] = -INFINITY;
    EACH(i, to) data(out)[to] = fmax(data(out)[to], data(in)[i]);
}
REFERENCE(min)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) data(out)[i] = INFINITY;
    EACH(i, to) data(out)[to] = fmin(data(out)[to], data(in)[i]);
}
REFERENCE(variance)
{
    weft_tensor mean = *out;
    mean.data = calloc((size_t)numel(out) + 1, sizeof(double));
    ref_mean(attr, in, n_in, &mean);
    EACH(i, to) data(out)[to] += pow(data(in)[i] - data(&mean)[to], 2);
    for (int64_t i = 0; i < numel(out); i++)
        data(out)[i] /= fold_count(in, out) - ((const reduce_attr *)attr)->correction;
    free(mean.data);
}
REFERENCE(logsumexp)
{
    UNUSED;
    EACH(i, to) data(out)[to] += exp(data(in)[i]);
    for (int64_t i = 0; i < numel(out); i++) data(out)[i] = log(data(out)[i]);
}

typedef struct scan_attr {
    int32_t axis;
    bool keepdims, reverse;
} scan_attr;
REFERENCE(argmax)
{
    UNUSED;
    int axis = ((const scan_attr *)attr)->axis;
    int64_t inner = 1, size = in->shape.dim[axis];
    for (int d = axis + 1; d < in->shape.rank; d++) inner *= in->shape.dim[d];
    for (int64_t o = 0; o < numel(out); o++) {
        int64_t base = o / inner * inner * size + o % inner, best = 0;
        for (int64_t i = 0; i < size; i++)
            if (data(in)[base + i * inner] > data(in)[base + best * inner]) best = i;
        put(out, o, (double)best);
    }
}
REFERENCE(cumsum)
{
    UNUSED;
    const scan_attr *a = attr;
    int64_t inner = 1, size = in->shape.dim[a->axis];
    for (int d = a->axis + 1; d < in->shape.rank; d++) inner *= in->shape.dim[d];
    for (int64_t i = 0; i < numel(in); i++) {
        int64_t at = i / inner % size, base = i - at * inner;
        for (int64_t k = a->reverse ? at : 0; k < (a->reverse ? size : at + 1); k++)
            data(out)[i] += data(in)[base + k * inner];
    }
}

/* ---- Rows ---- */

static int64_t row_length(const weft_tensor *t)
{
    return t->shape.rank ? t->shape.dim[t->shape.rank - 1] : 1;
}
#define ROWS(n) for (int64_t n = row_length(in), r = 0; n && r < numel(in) / n; r++)

typedef struct softmax_attr {
    int32_t back;
} softmax_attr;
/* Line `r` of n elements along the axis: element i is at base + i * inner. */
#define LINES                                                                                      \
    const int axis = in->shape.rank - 1 - ((const softmax_attr *)attr)->back;                      \
    int64_t inner = 1, n = in->shape.dim[axis];                                                    \
    for (int d = axis + 1; d < in->shape.rank; d++) inner *= in->shape.dim[d];                     \
    for (int64_t r = 0, base = 0; n && r < numel(in) / n;                                          \
         r++, base = r / inner * inner * n + r % inner)
REFERENCE(log_softmax)
{
    UNUSED;
    LINES
    {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += exp(data(in)[base + i * inner]);
        for (int64_t i = 0; i < n; i++)
            data(out)[base + i * inner] = data(in)[base + i * inner] - log(sum);
    }
}
REFERENCE(softmax)
{
    ref_log_softmax(attr, in, n_in, out);
    for (int64_t i = 0; i < numel(out); i++) data(out)[i] = exp(data(out)[i]);
}
REFERENCE(softmax_grad)
{
    UNUSED;
    LINES
    for (int64_t i = 0; i < n; i++) /* the Jacobian, row by row */
        for (int64_t k = 0; k < n; k++) {
            const double *y = data(&in[0]) + base, *dy = data(&in[1]) + base;
            data(out)[base + i * inner] +=
                dy[k * inner] * ((i == k) * y[i * inner] - y[i * inner] * y[k * inner]);
        }
}
REFERENCE(log_softmax_grad)
{
    UNUSED;
    LINES
    for (int64_t i = 0; i < n; i++)
        for (int64_t k = 0; k < n; k++) {
            const double *y = data(&in[0]) + base, *dy = data(&in[1]) + base;
            data(out)[base + i * inner] += dy[k * inner] * ((i == k) - exp(y[i * inner]));
        }
}

typedef struct norm_attr {
    double eps;
    bool rms, gamma, beta;
} norm_attr;
REFERENCE(norm)
{
    UNUSED;
    const norm_attr *a = attr;
    weft_tensor *stat = &out[a->rms ? 1 : 2];
    ROWS(n)
    {
        const double *x = data(in) + r * n;
        double mean = 0, square = 0;
        for (int64_t i = 0; i < n; i++) mean += a->rms ? 0 : x[i] / (double)n;
        for (int64_t i = 0; i < n; i++) square += pow(x[i] - mean, 2) / (double)n;
        if (!a->rms) data(&out[1])[r] = mean;
        data(stat)[r] = 1 / sqrt(square + a->eps);
        for (int64_t i = 0; i < n; i++)
            data(out)[r * n + i] =
                (x[i] - mean) * data(stat)[r] * (a->gamma ? data(&in[1])[i] : 1) +
                (a->beta ? data(&in[a->gamma ? 2 : 1])[i] : 0);
    }
}

/* ---- Products ---- */

REFERENCE(matmul)
{
    UNUSED;
    int64_t k = row_length(&in[0]);
    for (int64_t i = 0; i < numel(out); i++) {
        int64_t at[WEFT_MAX_RANK], swap;
        int rank = out->shape.rank;
        coordinates(out->shape, i, at);
        for (int64_t c = 0; c < k; c++) {
            swap = at[rank - 1];
            at[rank - 1] = c;
            double a = get(&in[0], index_at(&in[0], out->shape, at));
            at[rank - 1] = swap;
            swap = at[rank - 2];
            at[rank - 2] = c;
            double b = get(&in[1], index_at(&in[1], out->shape, at));
            at[rank - 2] = swap;
            data(out)[i] += a * b;
        }
    }
}
REFERENCE(panels)
{
    UNUSED;
    int64_t k = in[0].shape.dim[0], n = in[0].shape.dim[1];
    for (int64_t i = 0; i < numel(out); i++) {
        int64_t at[WEFT_MAX_RANK];
        coordinates(out->shape, i, at);
        int64_t column = at[0] * 32 + at[2], place[2] = {at[1], column};
        data(out)[i] = column < n ? get(&in[0], index_at(&in[0], WEFT_SHAPE(k, n), place)) : 0;
    }
}
REFERENCE(matmul_panels)
{
    UNUSED;
    int64_t k = in[0].shape.dim[1], n = out->shape.dim[1];
    for (int64_t i = 0; i < numel(out); i++)
        for (int64_t c = 0; c < k; c++)
            data(out)[i] +=
                get(&in[0], i / n * k + c) * get(&in[1], (i % n / 32 * k + c) * 32 + i % n % 32);
}
/* All assignments of values to the letters of both operands. */
REFERENCE(einsum)
{
    UNUSED;
    const char *text = attr, *comma = strchr(text, ','), *arrow = strchr(text, '-');
    const char *terms[3] = {text, comma + 1, arrow + 2};
    size_t lengths[3] = {(size_t)(comma - text), (size_t)(arrow - comma - 1), strlen(arrow + 2)};
    const weft_tensor *tensors[3] = {&in[0], &in[1], out};
    int64_t size[128] = {0}, at[128] = {0};
    char letters[32] = "";
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; i < lengths[t]; i++) {
            char c = terms[t][i];
            if (!strchr(letters, c)) letters[strlen(letters)] = c;
            size[(int)c] = tensors[t]->shape.dim[i];
        }
    for (;;) {
        int64_t where[3] = {0};
        for (int t = 0; t < 3; t++)
            for (size_t i = 0; i < lengths[t]; i++)
                where[t] = where[t] * size[(int)terms[t][i]] + at[(int)terms[t][i]];
        data(out)[where[2]] += data(&in[0])[where[0]] * data(&in[1])[where[1]];
        size_t l = 0;
        while (letters[l] && ++at[(int)letters[l]] == size[(int)letters[l]])
            at[(int)letters[l++]] = 0;
        if (!letters[l]) return;
    }
}

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

/* ---- Training; seed 0, step 0 ---- */

typedef struct dropout_attr {
    double p;
    uint64_t key;
} dropout_attr;
REFERENCE(dropout)
{
    UNUSED;
    const dropout_attr *a = attr;
    for (int64_t i = 0; i < numel(out); i++) {
        const uint32_t counter[4] = {(uint32_t)(i / 4), 0, 0, 0};
        uint32_t bits[4];
        weft_philox(counter, a->key, bits);
        bool kept = (double)bits[i % 4] >= floor(a->p * 4294967296.0);
        data(out)[i] = kept ? data(in)[i] / (1 - a->p) : 0;
    }
}
typedef struct cross_entropy_attr {
    int64_t ignore_index;
    double smoothing;
    int32_t sum;
} cross_entropy_attr;
/* The target distribution at class c. */
static double wanted(const cross_entropy_attr *a, int64_t target, int64_t c, int64_t classes)
{
    return (1 - a->smoothing) * (target == c) + a->smoothing / (double)classes;
}
REFERENCE(cross_entropy)
{
    UNUSED;
    const cross_entropy_attr *a = attr;
    double total = 0, counted = 0;
    ROWS(n)
    {
        double sum = 0;
        int64_t target = (int64_t)get(&in[1], r);
        for (int64_t i = 0; i < n; i++) sum += exp(data(in)[r * n + i]);
        data(&out[1])[r] = log(sum);
        if (target == a->ignore_index) continue;
        counted++;
        for (int64_t i = 0; i < n; i++)
            total -= wanted(a, target, i, n) * (data(in)[r * n + i] - log(sum));
    }
    *data(out) = a->sum || counted == 0 ? total : total / counted;
}
REFERENCE(cross_entropy_grad)
{
    UNUSED;
    const cross_entropy_attr *a = attr;
    double counted = 0;
    for (int64_t r = 0; r < numel(&in[1]); r++)
        counted += (int64_t)get(&in[1], r) != a->ignore_index;
    ROWS(n)
    for (int64_t i = 0; i < n; i++) {
        int64_t target = (int64_t)get(&in[1], r);
        double p = exp(data(in)[r * n + i] - data(&in[2])[r] - data(&in[3])[r]);
        if (target != a->ignore_index)
            data(out)[r * n + i] =
                *data(&in[4]) / (a->sum ? 1 : counted) * (p - wanted(a, target, i, n));
    }
}
REFERENCE(mse)
{
    UNUSED;
    for (int64_t i = 0; i < numel(in); i++) *data(out) += pow(data(&in[0])[i] - data(&in[1])[i], 2);
    if (!*(const int32_t *)attr) *data(out) /= (double)numel(in);
}
REFERENCE(bce_with_logits)
{
    UNUSED;
    for (int64_t i = 0; i < numel(in); i++) {
        double p = 1 / (1 + exp(-data(&in[0])[i])), t = data(&in[1])[i];
        *data(out) -= t * log(p) + (1 - t) * log(1 - p);
    }
    if (!*(const int32_t *)attr) *data(out) /= (double)numel(in);
}
REFERENCE(assign)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) put(out, i, get(&in[1], i));
}
REFERENCE(blend)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++)
        data(out)[i] = *data(&in[2]) * data(in)[i] + *data(&in[3]) * data(&in[1])[i];
}
REFERENCE(require_finite)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) data(out)[i] = data(in)[i];
}
REFERENCE(cache_write)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) {
        int64_t at[WEFT_MAX_RANK], first = (int64_t)get(&in[2], 0);
        coordinates(out->shape, i, at);
        at[1] -= first;
        bool written = at[0] < in[1].shape.dim[0] && at[1] >= 0 && at[1] < in[1].shape.dim[1];
        put(out, i, written ? get(&in[1], index_at(&in[1], in[1].shape, at)) : get(in, i));
    }
}
REFERENCE(cache_reorder)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) {
        int64_t at[WEFT_MAX_RANK];
        coordinates(out->shape, i, at);
        if (at[0] < in[1].shape.dim[0] && at[1] < (int64_t)get(&in[2], 0))
            at[0] = (int64_t)get(&in[1], at[0]);
        put(out, i, get(in, index_at(in, in->shape, at)));
    }
}
typedef struct sgd_attr {
    double momentum, weight_decay;
    bool nesterov, scaled;
} sgd_attr;
REFERENCE(sgd_update)
{
    UNUSED;
    const sgd_attr *a = attr;
    double lr = *data(&in[2]), scale = a->scaled ? *data(&in[3]) : 1;
    for (int64_t i = 0; i < numel(out); i++) {
        double p = data(in)[i];
        data(out)[i] = p - lr * (scale * data(&in[1])[i] + a->weight_decay * p);
    }
}
REFERENCE(momentum_update)
{
    UNUSED;
    const sgd_attr *a = attr;
    double lr = *data(&in[3]), scale = a->scaled ? *data(&in[4]) : 1;
    for (int64_t i = 0; i < numel(out); i++) {
        double p = data(in)[i], g = scale * data(&in[2])[i] + a->weight_decay * p;
        double b = a->momentum * data(&in[1])[i] + g;
        data(&out[1])[i] = b;
        data(out)[i] = p - lr * (a->nesterov ? g + a->momentum * b : b);
    }
}
REFERENCE(adam_update)
{
    UNUSED;
    const weft_adam_options *a = attr;
    double lr = *data(&in[4]), t = *data(&in[5]), scale = n_in == 7 ? *data(&in[6]) : 1;
    for (int64_t i = 0; i < numel(out); i++) {
        double p = data(&in[0])[i], g = scale * data(&in[3])[i];
        if (a->decoupled)
            p -= lr * a->weight_decay * p;
        else
            g += a->weight_decay * p;
        double m = a->beta1 * data(&in[1])[i] + (1 - a->beta1) * g;
        double v = a->beta2 * data(&in[2])[i] + (1 - a->beta2) * g * g;
        data(&out[1])[i] = m;
        data(&out[2])[i] = v;
        data(&out[0])[i] =
            p - lr * (m / (1 - pow(a->beta1, t))) / (sqrt(v / (1 - pow(a->beta2, t))) + a->eps);
    }
}

#define SAME(name)                                                                                 \
    {                                                                                              \
#name, ref_##name                                                                          \
    }
static const struct {
    const char *op;
    reference_function *compute;
} references[] = {
    SAME(neg),
    SAME(abs),
    SAME(sign),
    SAME(exp),
    SAME(log),
    SAME(sqrt),
    SAME(rsqrt),
    SAME(square),
    SAME(reciprocal),
    SAME(sin),
    SAME(cos),
    SAME(tanh),
    SAME(sigmoid),
    SAME(relu),
    SAME(leaky_relu),
    SAME(gelu),
    SAME(gelu_tanh),
    SAME(silu),
    SAME(softplus),
    SAME(erf),
    SAME(clamp),
    SAME(contiguous),
    SAME(cast),
    SAME(logical_not),
    SAME(add),
    SAME(sub),
    SAME(mul),
    SAME(div),
    SAME(pow),
    SAME(maximum),
    SAME(relu_grad),
    SAME(minimum),
    SAME(equal),
    SAME(less),
    SAME(greater),
    SAME(logical_and),
    SAME(logical_or),
    SAME(masked_fill),
    SAME(where),
    SAME(add_n),
    SAME(global_norm),
    SAME(require_finite),
    SAME(sum),
    SAME(mean),
    SAME(max),
    SAME(min),
    SAME(variance),
    SAME(logsumexp),
    SAME(argmax),
    SAME(cumsum),
    SAME(softmax),
    SAME(log_softmax),
    SAME(softmax_grad),
    SAME(log_softmax_grad),
    {"layer_norm", ref_norm},
    {"rms_norm", ref_norm},
    SAME(matmul),
    {"matmul_shared", ref_matmul},
    SAME(panels),
    SAME(matmul_panels),
    SAME(einsum),
    {"reshape", ref_contiguous},
    SAME(permute),
    SAME(broadcast_to),
    SAME(slice),
    SAME(slice_scatter),
    SAME(concat),
    SAME(pad),
    SAME(embedding),
    SAME(embedding_grad),
    SAME(gather),
    SAME(scatter_add),
    SAME(one_hot),
    {"fill", ref_arange},
    SAME(arange),
    SAME(tril_mask),
    SAME(dropout),
    SAME(cross_entropy),
    SAME(cross_entropy_grad),
    SAME(mse),
    SAME(bce_with_logits),
    SAME(assign),
    SAME(blend),
    SAME(cache_write),
    SAME(cache_reorder),
    SAME(sgd_update),
    SAME(momentum_update),
    SAME(adam_update),
};

reference_function *reference_find(const char *op)
{
    for (size_t i = 0; i < sizeof references / sizeof *references; i++)
        if (!strcmp(references[i].op, op)) return references[i].compute;
    return NULL;
}
