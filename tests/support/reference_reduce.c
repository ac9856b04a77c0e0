/* Naive references of reductions, softmax and norms, and of matrix products. See reference.h. */
#include "base/half.h"
#include "reference_data.h"

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
/* A loop over the elements of `in`. Declares i, and `to`, the element that it is reduced into. */
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
REFERENCE(prod)
{
    UNUSED;
    for (int64_t i = 0; i < numel(out); i++) data(out)[i] = 1;
    EACH(i, to) data(out)[to] *= data(in)[i];
}
REFERENCE(prod_grad)
{
    UNUSED;
    ROWS(n)
    for (int64_t i = 0; i < n; i++) {
        double product = data(&in[1])[r];
        for (int64_t k = 0; k < n; k++) product *= k == i ? 1 : data(in)[r * n + k];
        data(out)[r * n + i] = product;
    }
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
/* The index of the first element that no other beats; sign -1 for the smallest. */
static void best_index(const void *attr, const weft_tensor *in, weft_tensor *out, double sign)
{
    int axis = ((const scan_attr *)attr)->axis;
    int64_t inner = 1, size = in->shape.dim[axis];
    for (int d = axis + 1; d < in->shape.rank; d++) inner *= in->shape.dim[d];
    for (int64_t o = 0; o < numel(out); o++) {
        int64_t base = o / inner * inner * size + o % inner, best = 0;
        for (int64_t i = 0; i < size; i++)
            if (sign * data(in)[base + i * inner] > sign * data(in)[base + best * inner]) best = i;
        put(out, o, (double)best);
    }
}
REFERENCE(argmax)
{
    UNUSED;
    best_index(attr, in, out, 1);
}
REFERENCE(argmin)
{
    UNUSED;
    best_index(attr, in, out, -1);
}
/* The next element is the best of those that have not been taken. */
typedef struct top_k_attr {
    int64_t k;
    int32_t axis;
    bool largest;
} top_k_attr;
REFERENCE(top_k)
{
    UNUSED;
    const top_k_attr *a = attr;
    int64_t inner = 1, size = in->shape.dim[a->axis];
    for (int d = a->axis + 1; d < in->shape.rank; d++) inner *= in->shape.dim[d];
    bool *taken = calloc((size_t)numel(in) + 1, sizeof *taken);
    for (int64_t o = 0; o < numel(out); o++) {
        const int64_t line = o / (inner * a->k), rank = o / inner % a->k, column = o % inner;
        int64_t base = line * inner * size + column, best = -1;
        if (rank == 0)
            for (int64_t i = 0; i < size; i++) taken[base + i * inner] = false;
        for (int64_t i = 0; i < size; i++) {
            if (taken[base + i * inner]) continue;
            const double x = data(in)[base + i * inner];
            const double y = best < 0 ? 0 : data(in)[base + best * inner];
            if (best < 0 || (a->largest ? x > y : x < y)) best = i;
        }
        taken[base + best * inner] = true;
        put(&out[0], o, data(in)[base + best * inner]);
        put(&out[1], o, (double)best);
    }
    free(taken);
}
/* Intersection over union of boxes of two corners each, by the lengths of their overlap. */
static double common_part(const double *a, const double *b)
{
    double common = 1, area_a = 1, area_b = 1;
    for (int k = 0; k < 2; k++) {
        const double low = fmax(fmin(a[k], a[2 + k]), fmin(b[k], b[2 + k]));
        const double high = fmin(fmax(a[k], a[2 + k]), fmax(b[k], b[2 + k]));
        common *= fmax(high - low, 0);
        area_a *= fabs(a[2 + k] - a[k]);
        area_b *= fabs(b[2 + k] - b[k]);
    }
    return common > 0 ? common / (area_a + area_b - common) : 0;
}
REFERENCE(suppress)
{
    UNUSED;
    const double threshold = *(const double *)attr;
    const int64_t n = in->shape.dim[in->shape.rank - 2];
    bool *stays = calloc((size_t)numel(out) + 1, sizeof *stays);
    for (int64_t i = 0; i < numel(out); i++) {
        stays[i] = true;
        for (int64_t j = i - i % n; j < i; j++) {
            const double part = common_part(data(in) + 4 * j, data(in) + 4 * i);
            if (stays[j] && part > 0 && part > threshold) stays[i] = false;
        }
        put(&out[0], i, stays[i]);
    }
    free(stays);
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

typedef struct softmax_attr {
    int32_t back;
} softmax_attr;
/* A loop over the lines along the axis. Declares axis, inner, n, r and base: element i of line r,
 * i < n, is at base + i * inner. */
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

typedef double factor(double x);

static double itself(double x)
{
    return x;
}

/* Of sums of products of factors that each number becomes. */
static void multiply(const weft_tensor *in, weft_tensor *out, factor *made)
{
    int64_t k = row_length(&in[0]);
    for (int64_t i = 0; i < numel(out); i++) {
        int64_t at[WEFT_MAX_RANK], swap;
        int rank = out->shape.rank;
        double sum = 0;
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
            sum += made(a) * made(b);
        }
        put(out, i, sum);
    }
}

REFERENCE(matmul)
{
    UNUSED;
    multiply(in, out, itself);
}
static double rounded(double x)
{
    return half_from_bf16(half_to_bf16((float)x));
}
REFERENCE(matmul_tiles)
{
    UNUSED;
    multiply(in, out, rounded);
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
/* The largest of the 32 elements of x from `first` on. */
static double largest(const weft_tensor *x, int64_t first)
{
    double max = 0;
    for (int64_t i = first; i < first + 32; i++) max = fmax(max, fabs(get(x, i)));
    return max;
}
/* Element `at` of a quantised matrix: scale (q - zero), or scale q + minimum. */
static double dequantized(const weft_tensor *weight, const weft_tensor *scale,
                          const weft_tensor *zero, int64_t at, const int32_t *attr)
{
    const int32_t bits = attr[0], group = attr[1];
    const uint8_t *q = weight->data;
    const int number = bits == 8 ? q[at] : q[at / 2] >> at % 2 * 4 & 15;
    const double by = get(scale, at / group), z = get(zero, at / group);
    return zero->dtype == WEFT_U8 ? by * (number - z) : by * number + z;
}
REFERENCE(matmul_quantized)
{
    const bool whole = ((const bool *)attr)[8];
    const int64_t k = row_length(&in[0]), n = row_length(out);
    (void)n_in;
    for (int64_t i = 0; i < numel(out); i++)
        for (int64_t c = 0; c < k; c++) {
            const int64_t at = i % n * k + c, from = i / n * k;
            const double max = largest(&in[0], from + c / 32 * 32);
            const double x = whole ? fmax(-128, fmin(127, nearbyint(get(&in[0], from + c))))
                                   : nearbyint(get(&in[0], from + c) * (127 / max)) * (max / 127);
            data(out)[i] += x * dequantized(&in[1], &in[2], &in[3], at, attr);
        }
}
REFERENCE(matmul_quantized_grad)
{
    const int64_t n = row_length(&in[0]), k = row_length(out);
    (void)n_in;
    for (int64_t i = 0; i < numel(out); i++)
        for (int64_t j = 0; j < n; j++)
            data(out)[i] += get(&in[0], i / k * n + j) *
                            dequantized(&in[1], &in[2], &in[3], j * k + i % k, attr);
}
REFERENCE(embedding_quantized)
{
    const int64_t k = row_length(out);
    (void)n_in;
    for (int64_t i = 0; i < numel(out); i++) {
        const int64_t at = (int64_t)get(&in[3], i / k) * k + i % k;
        data(out)[i] = dequantized(&in[0], &in[1], &in[2], at, attr);
    }
}
REFERENCE(narrow_rows)
{
    const int64_t n = row_length(&in[0]), width = row_length(out);
    (void)attr, (void)n_in;
    for (int64_t r = 0; n && r < numel(&in[0]) / n; r++) {
        if (out->dtype == WEFT_BF16) {
            for (int64_t i = 0; i < n; i++)
                ((uint16_t *)out->data)[r * n + i] = half_to_bf16((float)get(&in[0], r * n + i));
            continue;
        }
        float max = 0;
        for (int64_t i = 0; i < n; i++) max = fmaxf(max, fabsf((float)get(&in[0], r * n + i)));
        const float by = 127 / max, scale = max / 127;
        uint8_t *row = (uint8_t *)out->data + r * width;
        memcpy(row, &scale, sizeof scale);
        for (int64_t i = 0; i < n; i++)
            row[4 + i] = (uint8_t)(128 + (int)nearbyintf((float)get(&in[0], r * n + i) * by));
    }
}
REFERENCE(widen_rows)
{
    const int64_t n = row_length(out), width = row_length(&in[0]);
    (void)attr, (void)n_in;
    for (int64_t i = 0; i < numel(out); i++) {
        if (in[0].dtype == WEFT_BF16) {
            data(out)[i] = half_from_bf16(((const uint16_t *)in[0].data)[i]);
            continue;
        }
        const uint8_t *row = (const uint8_t *)in[0].data + i / n * width;
        float scale;
        memcpy(&scale, row, sizeof scale);
        data(out)[i] = scale * (float)(row[4 + i % n] - 128);
    }
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

const reference references_reduce[] = {
    SAME(sum),
    SAME(mean),
    SAME(max),
    SAME(min),
    SAME(variance),
    SAME(logsumexp),
    SAME(argmax),
    SAME(argmin),
    SAME(top_k),
    SAME(suppress),
    SAME(prod),
    SAME(prod_grad),
    SAME(cumsum),
    SAME(softmax),
    SAME(log_softmax),
    SAME(softmax_grad),
    SAME(log_softmax_grad),
    {"layer_norm", ref_norm},
    {"rms_norm", ref_norm},
    SAME(matmul),
    SAME(matmul_tiles),
    {"matmul_shared", ref_matmul},
    SAME(panels),
    SAME(matmul_panels),
    SAME(matmul_quantized),
    SAME(matmul_quantized_grad),
    SAME(embedding_quantized),
    SAME(narrow_rows),
    SAME(widen_rows),
    SAME(einsum),
    {NULL, NULL},
};
