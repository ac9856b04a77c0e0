/* DeformConv of ONNX: a convolution whose taps lie at places that an input moves (Dai et al. 2017,
 * Zhu et al. 2019). The taps are samples of the image, which a matrix product adds up. */
#include "onnx/import.h"
#include "onnx/ops.h"
#include "onnx/sample.h"

enum { IMAGE, WEIGHT, OFFSET, BIAS, MASK };

typedef struct deform {
    int rank; /* spatial dimensions */
    weft_shape image, weight;
    int64_t stride[SAMPLE_MAX_SPATIAL], dilation[SAMPLE_MAX_SPATIAL];
    int64_t pad[2 * SAMPLE_MAX_SPATIAL], kernel[SAMPLE_MAX_SPATIAL];
    int64_t out[SAMPLE_MAX_SPATIAL];
    int64_t groups, offset_groups, taps, places; /* places: of the result */
} deform;

/* Whether input i, if there is one, is [images, channels, out...]. */
static bool check_places(onnx_node *n, const deform *d, size_t i, int64_t channels)
{
    const weft_shape s = weft__in_shape(n, i);
    bool fits = s.rank == d->rank + 2 && s.dim[0] == d->image.dim[0] && s.dim[1] == channels;
    for (int k = 0; fits && k < d->rank; k++) fits = s.dim[2 + k] == d->out[k];
    if (has_in(n, i) && !fits && !weft__node_failed(n))
        weft__node_fail(n, WEFT_BAD_SHAPE, "input %zu does not have %lld channels of its result", i,
                        (long long)channels);
    return !weft__node_failed(n);
}

static bool read_deform(onnx_node *n, deform *d)
{
    *d = (deform){.image = weft__in_shape(n, IMAGE)};
    d->weight = weft__in_shape(n, WEIGHT);
    if (!weft__sample_check(n, d->image)) return false;
    d->rank = d->image.rank - 2;
    d->groups = weft__attr_int(n, "group", 1);
    d->offset_groups = weft__attr_int(n, "offset_group", 1);
    const int64_t channels = d->image.dim[1];
    if (d->weight.rank != d->image.rank || d->groups < 1 || d->offset_groups < 1 ||
        channels % d->groups || d->weight.dim[1] != channels / d->groups ||
        d->weight.dim[0] % d->groups || channels % d->offset_groups) {
        weft__node_fail(n, WEFT_BAD_SHAPE, "its weight or its groups do not fit its image");
        return false;
    }
    for (int i = 0; i < d->rank; i++) d->kernel[i] = d->weight.dim[2 + i];
    if (!weft__sample_sizes(n, "strides", d->rank, 1, 1, d->stride) ||
        !weft__sample_sizes(n, "dilations", d->rank, 1, 1, d->dilation) ||
        !weft__sample_sizes(n, "pads", 2 * d->rank, 0, 0, d->pad) ||
        (weft__has_attr(n, "kernel_shape") &&
         !weft__sample_sizes(n, "kernel_shape", d->rank, 1, 1, d->kernel)))
        return false;
    d->taps = d->places = 1;
    for (int i = 0; i < d->rank; i++) {
        const int64_t k = d->kernel[i];
        const int64_t room =
            d->image.dim[2 + i] + d->pad[i] + d->pad[d->rank + i] - ((k - 1) * d->dilation[i] + 1);
        if (k < 1 || k != d->weight.dim[2 + i] || room < 0) {
            weft__node_fail(n, WEFT_BAD_SHAPE, "its kernel does not fit its image or its weight");
            return false;
        }
        d->taps *= k;
        d->places *= d->out[i] = room / d->stride[i] + 1;
    }
    return check_places(n, d, OFFSET, d->offset_groups * d->taps * d->rank) &&
           check_places(n, d, MASK, d->offset_groups * d->taps);
}

/* Input i as [images offset_groups, taps, per, out...]. */
static weft_value by_group(onnx_node *n, const deform *d, size_t i, int64_t per)
{
    weft_shape s = {.rank = 3 + d->rank, .dim = {d->image.dim[0] * d->offset_groups, d->taps, per}};
    for (int k = 0; k < d->rank; k++) s.dim[3 + k] = d->out[k];
    return weft_reshape(n->graph, weft__in_value(n, i), s);
}

/* Coordinates along an axis [taps, 1, ..., out[axis], 1, ...] without offsets. */
static weft_value fixed_places(onnx_node *n, const deform *d, int axis, weft_dtype dtype)
{
    const int64_t out = d->out[axis];
    weft_shape s = {.rank = 1 + d->rank, .dim = {d->taps}};
    double *at = weft__arena_alloc(&n->import->memory, (size_t)(d->taps * out) * sizeof *at);
    if (!at) return weft__node_fail(n, WEFT_NO_MEMORY, "no memory for places");
    int64_t inner = 1;
    for (int k = 0; k < d->rank; k++) {
        s.dim[1 + k] = k == axis ? out : 1;
        if (k > axis) inner *= d->kernel[k];
    }
    for (int64_t i = 0; i < d->taps * out; i++) {
        const int64_t tap = i / out / inner % d->kernel[axis];
        at[i] = (double)(tap * d->dilation[axis] + i % out * d->stride[axis] - d->pad[axis]);
    }
    return weft__doubles_value(n, at, s, dtype);
}

void weft__map_DeformConv(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, IMAGE);
    deform d;
    if (!read_deform(n, &d)) return;
    const int64_t images = d.image.dim[0], outputs = d.weight.dim[0];
    sampler s = {.shape = d.image, .taps = 2, .padding = PAD_ZEROS};
    s.shape.dim[0] *= d.offset_groups;
    s.shape.dim[1] /= d.offset_groups;
    s.image = weft_reshape(g, x, s.shape);
    const weft_value offsets = by_group(n, &d, OFFSET, d.rank);
    weft_value at[SAMPLE_MAX_SPATIAL];
    for (int i = 0; i < d.rank && !weft__node_failed(n); i++) {
        const weft_value fixed = fixed_places(n, &d, i, weft_dtype_of(g, x));
        at[i] = weft_add(g, weft_squeeze(g, weft_slice(g, offsets, 2, i, i + 1, 1), 2), fixed);
    }
    if (weft__node_failed(n)) return;
    weft_value y = weft__sample(n, &s, weft__sample_numbers(g, s.shape.dim[0], d.rank + 2), at);
    if (has_in(n, MASK)) {
        const weft_value mask = weft_squeeze(g, by_group(n, &d, MASK, 1), 2);
        y = weft_mul(g, y, weft_expand_dims(g, mask, -1));
    }
    /* [images offset_groups, taps places, channels] to [images, groups, channels taps, places] */
    y = weft_reshape(g, y, WEFT_SHAPE(s.shape.dim[0], d.taps * d.places, s.shape.dim[1]));
    y = weft_reshape(g, weft_transpose(g, y, 1, 2), WEFT_SHAPE(images, d.groups, -1, d.places));
    const weft_value weight =
        weft_reshape(g, weft__in_value(n, WEIGHT), WEFT_SHAPE(d.groups, outputs / d.groups, -1));
    y = weft_matmul(g, weight, y);
    weft_shape result = {.rank = d.rank + 2, .dim = {images, outputs}}, each = {.rank = d.rank + 1};
    each.dim[0] = outputs;
    for (int i = 0; i < d.rank; i++) {
        result.dim[2 + i] = d.out[i];
        each.dim[1 + i] = 1;
    }
    y = weft_reshape(g, y, result);
    if (has_in(n, BIAS)) y = weft_add(g, y, weft_reshape(g, weft__in_value(n, BIAS), each));
    weft__set_out(n, 0, y);
}
