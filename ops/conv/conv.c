/* Convolution: gradients, descriptors and builders of conv, conv_grad_input and conv_grad_weight;
 * the kernels are in conv_kernels.c, the shape rules in conv_shape.c. All three are linear in each
 * of their two operands, and the three are each other's gradients, so that gradients of every order
 * exist. */
#include "conv_path.h"
#include "conv_source.h"

#include "batch.h"
#include "passes.h"
#include "samples.h"

#include <weft/ops.h>

extern const weft_op weft_op_conv, weft_op_conv_grad_input, weft_op_conv_grad_weight;

/* ---- Work ---- */

static conv_sizes sizes_of(const weft_call *call, int x, int w, int y)
{
    const weft_shape *shape[3] = {&call->in[0].shape, &call->in[1].shape, &call->out[0].shape};
    return conv_sizes_of(call->attr, shape[x], shape[w], shape[y]);
}

static conv_sizes sizes_of_conv(const weft_call *call)
{
    return sizes_of(call, 0, 1, 2);
}

static conv_sizes sizes_of_input(const weft_call *call)
{
    return sizes_of(call, 2, 1, 0);
}

static conv_sizes sizes_of_weight(const weft_call *call)
{
    return sizes_of(call, 0, 2, 1);
}

static int64_t tiles_of(conv_sizes z, bool transposed, int phase)
{
    const conv_path path = weft__conv_path_of(&z, transposed);
    if (path == CONV_BY_PLANES) return phase ? conv_planes_of(&z, transposed).tiles : 0;
    if (path == CONV_BY_COLUMNS) {
        const conv_columns c = conv_columns_of(&z);
        return conv_columns_tiles(&c, phase);
    }
    const conv_product p = conv_product_of(z, transposed);
    return phase ? p.n_classes * z.groups * p.tiles_m * p.tiles_n
                 : conv_weight_packs(&p) + conv_shared_patches(&p);
}

static size_t scratch_of(conv_sizes z, bool transposed, weft_dtype dtype)
{
    const size_t size = weft_dtype_bytes(dtype);
    const conv_path path = weft__conv_path_of(&z, transposed);
    if (path == CONV_BY_PLANES) return 0;
    if (path == CONV_BY_COLUMNS) {
        const conv_columns c = conv_columns_of(&z);
        return (size_t)(z.groups * conv_columns_area(&c)) * size;
    }
    const conv_product p = conv_product_of(z, transposed);
    return (size_t)(conv_weight_area(&p) + conv_shared_patches(&p) * p.patch + conv_findings(&p)) *
           size;
}

static size_t workspace_of(conv_sizes z, bool transposed, weft_dtype dtype)
{
    const size_t size = weft_dtype_bytes(dtype);
    const conv_path path = weft__conv_path_of(&z, transposed);
    if (path == CONV_BY_PRODUCT) {
        const conv_product p = conv_product_of(z, transposed);
        return (size_t)conv_product_workspace(&p) * size;
    }
    if (path == CONV_BY_COLUMNS) return (size_t)((z.out_channels + 15) * 32) * size;
    const conv_planes p = conv_planes_of(&z, transposed);
    return (size_t)z.taps * sizeof(int64_t) + (size_t)(p.slab_rows * p.slab_width + 16) * size;
}

#define SIZE_FUNCTIONS(op, sizes, transposed)                                                      \
    static int64_t tiles_##op(const weft_call *call)                                               \
    {                                                                                              \
        return tiles_of(sizes(call), transposed, call->phase);                                     \
    }                                                                                              \
    static size_t scratch_##op(const weft_call *call)                                              \
    {                                                                                              \
        return scratch_of(sizes(call), transposed, call->out[0].dtype);                            \
    }                                                                                              \
    static size_t workspace_##op(const weft_call *call)                                            \
    {                                                                                              \
        return workspace_of(sizes(call), transposed, call->out[0].dtype);                          \
    }
SIZE_FUNCTIONS(conv, sizes_of_conv, false)
SIZE_FUNCTIONS(conv_grad_input, sizes_of_input, true)

/* Other nodes can run on a tile that is some whole rows of y, seen as a matrix: on one image of
 * many, or on rows of planes. With few large images a tile is not such a block, so nothing is
 * fused. */
static void block_conv(const weft_call *call, int64_t tile, weft_block *block)
{
    const conv_sizes z = sizes_of_conv(call);
    const weft_shape *y = &call->out[0].shape;
    const int64_t width = y->dim[y->rank - 1];
    *block = (weft_block){0, 0, 0, width};
    if (weft_shape_numel(*y) == 0) return;
    if (weft__conv_is_direct(&z, false)) {
        const conv_planes p = conv_planes_of(&z, false);
        if (p.across > 1 || p.width != width) return;
        const int64_t first = tile * p.each, end = first + p.each;
        block->row = first / p.down * p.height + first % p.down * p.rows;
        block->rows = end / p.down * p.height + end % p.down * p.rows - block->row;
        if (block->row + block->rows > p.planes * p.height)
            block->rows = p.planes * p.height - block->row;
        return;
    }
    const conv_product p = conv_product_of(z, false);
    if (!p.whole) return;
    block->rows = p.rows * z.out_volume / width;
    block->row = (tile % p.tiles_n * z.groups + tile / p.tiles_n) * block->rows;
}

static int64_t tiles_conv_grad_weight(const weft_call *call)
{
    const conv_sizes z = sizes_of_weight(call);
    const int64_t channels = z.groups * z.out_channels;
    if (weft__conv_weight_is_direct(&z)) return call->phase ? channels : 0;
    const conv_reduction r = conv_reduction_of(z);
    if (call->phase) return r.chunks == 1 ? 0 : channels;
    return r.chunks * z.groups * r.tiles_m * r.tiles_n * r.tiles_t;
}

static size_t scratch_conv_grad_weight(const weft_call *call)
{
    const conv_sizes z = sizes_of_weight(call);
    if (weft__conv_weight_is_direct(&z)) return 0;
    const conv_reduction r = conv_reduction_of(z);
    if (r.chunks == 1) return 0;
    return (size_t)(r.chunks * weft_shape_numel(call->out[0].shape)) *
           weft_dtype_bytes(call->out[0].dtype);
}

static size_t workspace_conv_grad_weight(const weft_call *call)
{
    const conv_sizes z = sizes_of_weight(call);
    const size_t size = weft_dtype_bytes(call->out[0].dtype);
    if (!weft__conv_weight_is_direct(&z)) {
        const conv_reduction r = conv_reduction_of(z);
        return (size_t)r.piece * sizeof(conv_run) +
               (size_t)(r.tile_n * (r.tile_m * r.tile_t + r.piece)) * size;
    }
    const conv_planes p = conv_planes_of(&z, false);
    return (size_t)z.taps * (sizeof(int64_t) + sizeof(double)) +
           (size_t)(p.rows * p.padded + p.slab_rows * p.slab_width + 16) * size;
}

static void cost_of(const weft_call *call, conv_sizes z, weft_cost *cost)
{
    double numel = 0;
    for (size_t i = 0; i < call->n_in; i++) numel += (double)weft_shape_numel(call->in[i].shape);
    numel += (double)weft_shape_numel(call->out[0].shape);
    cost->flops = 2.0 * (double)(z.images * z.groups) * (double)(z.out_channels * z.in_channels) *
                  (double)z.out_volume * (double)z.taps;
    cost->bytes = numel * (double)weft_dtype_bytes(call->out[0].dtype);
}

static void cost_conv(const weft_call *call, weft_cost *cost)
{
    cost_of(call, sizes_of_conv(call), cost);
}

static void cost_conv_grad_input(const weft_call *call, weft_cost *cost)
{
    cost_of(call, sizes_of_input(call), cost);
}

static void cost_conv_grad_weight(const weft_call *call, weft_cost *cost)
{
    cost_of(call, sizes_of_weight(call), cost);
}

/* ---- Gradients: x, w and dy, each from the other two ---- */

static weft_shape spatial(weft_graph *g, weft_value x)
{
    const weft_shape shape = weft_shape_of(g, x);
    weft_shape s = {0, {0}};
    for (int d = 2; d < shape.rank; d++) s.dim[s.rank++] = shape.dim[d];
    return s;
}

static weft_value output_of(weft_graph *g, const conv_attr *attr, weft_value x, weft_value w)
{
    conv_attr a = *attr;
    a.size = (weft_shape){0, {0}};
    return weft_apply(g, &weft_op_conv, &a, (weft_value[]){x, w}, 2, NULL);
}

static weft_value input_of(weft_graph *g, const conv_attr *attr, weft_value dy, weft_value w,
                           weft_shape size)
{
    conv_attr a = *attr;
    a.size = size;
    return weft_apply(g, &weft_op_conv_grad_input, &a, (weft_value[]){dy, w}, 2, NULL);
}

static weft_value weight_of(weft_graph *g, const conv_attr *attr, weft_value x, weft_value dy,
                            weft_shape size)
{
    conv_attr a = *attr;
    a.size = size;
    return weft_apply(g, &weft_op_conv_grad_weight, &a, (weft_value[]){x, dy}, 2, NULL);
}

static void vjp_conv(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_value x = v->in[0], w = v->in[1], dy = v->grad_out[0];
    if (v->wanted[0]) v->grad_in[0] = input_of(g, v->attr, dy, w, spatial(g, x));
    if (v->wanted[1]) v->grad_in[1] = weight_of(g, v->attr, x, dy, spatial(g, w));
    if (v->n_in < 3 || !v->wanted[2]) return;
    weft_axes axes = WEFT_AXES(0);
    for (int d = 2; d < weft_rank_of(g, dy); d++) axes.axis[axes.count++] = d;
    v->grad_in[2] = weft_sum(g, dy, axes, false);
}

static void vjp_conv_grad_input(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_value dy = v->in[0], w = v->in[1], x = v->grad_out[0];
    if (v->wanted[0]) v->grad_in[0] = output_of(g, v->attr, x, w);
    if (v->wanted[1]) v->grad_in[1] = weight_of(g, v->attr, x, dy, spatial(g, w));
}

static void vjp_conv_grad_weight(weft_vjp *v)
{
    weft_graph *g = v->graph;
    weft_value x = v->in[0], dy = v->in[1], w = v->grad_out[0];
    if (v->wanted[0]) v->grad_in[0] = input_of(g, v->attr, dy, w, spatial(g, x));
    if (v->wanted[1]) v->grad_in[1] = output_of(g, v->attr, x, w);
}

/* ---- Descriptors ---- */

#define IMAGE(...) UNIT_FLOATS(__VA_ARGS__)
#define PLAIN(rank)                                                                                \
    {rank, {1, 1, 1}}, {rank, {1, 1, 1}}, {rank, {0}},                                             \
    {                                                                                              \
        rank,                                                                                      \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }
#define PADDED                                                                                     \
    {2, {1, 1}}, {2, {1, 1}}, {2, {1, 1}},                                                         \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            1, 1                                                                                   \
        }                                                                                          \
    }
#define UNEVEN                                                                                     \
    {2, {2, 3}}, {2, {1, 2}}, {2, {1, 2}},                                                         \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            0, 3                                                                                   \
        }                                                                                          \
    }
#define DILATED_LINE                                                                               \
    {1, {4}}, {1, {2}}, {1, {3}},                                                                  \
    {                                                                                              \
        1,                                                                                         \
        {                                                                                          \
            2                                                                                      \
        }                                                                                          \
    }
#define NO_SIZE                                                                                    \
    {                                                                                              \
        0,                                                                                         \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }
static const conv_attr plain = {PLAIN(2), NO_SIZE, 1}, padded = {PADDED, NO_SIZE, 1},
                       uneven = {UNEVEN, NO_SIZE, 2}, planes = {PADDED, NO_SIZE, 3},
                       planes_uneven = {UNEVEN, NO_SIZE, 2}, line = {DILATED_LINE, NO_SIZE, 1},
                       volume = {PLAIN(3), NO_SIZE, 1};
static const weft_sample samples_conv[] = {
    {&plain, 3, {IMAGE({4, {2, 3, 2, 3}}), IMAGE({4, {4, 3, 1, 1}}), IMAGE({1, {4}})}},
    {&padded, 3, {IMAGE({4, {2, 2, 4, 5}}), IMAGE({4, {3, 2, 3, 3}}), IMAGE({1, {3}})}},
    {&uneven, 2, {IMAGE({4, {2, 4, 5, 4}}), IMAGE({4, {6, 2, 3, 2}})}},
    {&planes, 3, {IMAGE({4, {2, 3, 4, 4}}), IMAGE({4, {3, 1, 3, 3}}), IMAGE({1, {3}})}},
    {&planes_uneven, 2, {IMAGE({4, {1, 2, 5, 4}}), IMAGE({4, {4, 1, 3, 2}})}},
    {&line, 2, {IMAGE({3, {2, 3, 5}}), IMAGE({3, {2, 3, 3}})}},
    {&volume, 2, {IMAGE({5, {1, 2, 3, 2, 3}}), IMAGE({5, {2, 2, 2, 1, 2}})}},
    {&padded, 2, {IMAGE({4, {0, 2, 3, 3}}), IMAGE({4, {2, 2, 3, 3}})}},
    {&padded, 2, {IMAGE({4, {2, 0, 3, 3}}), IMAGE({4, {2, 0, 3, 3}})}},
};
static const conv_attr plain_input = {PLAIN(2), {2, {2, 3}}, 1},
                       padded_input = {PADDED, {2, {4, 5}}, 1},
                       uneven_input = {UNEVEN, {2, {5, 4}}, 2},
                       planes_input = {UNEVEN, {2, {5, 4}}, 3},
                       line_input = {DILATED_LINE, {1, {6}}, 1};
static const weft_sample samples_conv_grad_input[] = {
    {&plain_input, 2, {IMAGE({4, {2, 4, 2, 3}}), IMAGE({4, {4, 3, 1, 1}})}},
    {&padded_input, 2, {IMAGE({4, {2, 3, 4, 5}}), IMAGE({4, {3, 2, 3, 3}})}},
    {&uneven_input, 2, {IMAGE({4, {2, 6, 2, 3}}), IMAGE({4, {6, 2, 3, 2}})}},
    {&planes_input, 2, {IMAGE({4, {1, 3, 2, 3}}), IMAGE({4, {3, 1, 3, 2}})}},
    {&line_input, 2, {IMAGE({3, {2, 2, 2}}), IMAGE({3, {2, 3, 3}})}},
    {&padded_input, 2, {IMAGE({4, {2, 0, 4, 5}}), IMAGE({4, {0, 2, 3, 3}})}},
};
static const conv_attr plain_weight = {PLAIN(2), {2, {1, 1}}, 1},
                       padded_weight = {PADDED, {2, {3, 3}}, 1},
                       uneven_weight = {UNEVEN, {2, {3, 2}}, 2},
                       planes_weight = {UNEVEN, {2, {3, 2}}, 2},
                       line_weight = {DILATED_LINE, {1, {3}}, 1};
static const weft_sample samples_conv_grad_weight[] = {
    {&plain_weight, 2, {IMAGE({4, {2, 3, 2, 3}}), IMAGE({4, {2, 4, 2, 3}})}},
    {&padded_weight, 2, {IMAGE({4, {2, 2, 4, 5}}), IMAGE({4, {2, 3, 4, 5}})}},
    {&uneven_weight, 2, {IMAGE({4, {2, 4, 5, 4}}), IMAGE({4, {2, 6, 2, 3}})}},
    {&planes_weight, 2, {IMAGE({4, {2, 2, 5, 4}}), IMAGE({4, {2, 4, 2, 3}})}},
    {&line_weight, 2, {IMAGE({3, {2, 3, 6}}), IMAGE({3, {2, 2, 2}})}},
    {&padded_weight, 2, {IMAGE({4, {0, 2, 4, 5}}), IMAGE({4, {0, 3, 4, 5}})}},
};
static const weft_attr_field conv_fields[] = {
    {"stride", WEFT_ATTR_INT64S, offsetof(conv_attr, stride)},
    {"dilation", WEFT_ATTR_INT64S, offsetof(conv_attr, dilation)},
    {"pad_begin", WEFT_ATTR_INT64S, offsetof(conv_attr, pad_begin)},
    {"pad_end", WEFT_ATTR_INT64S, offsetof(conv_attr, pad_end)},
    {"size", WEFT_ATTR_INT64S, offsetof(conv_attr, size)},
    {"groups", WEFT_ATTR_INT64, offsetof(conv_attr, groups)},
    {NULL, WEFT_ATTR_INT, 0},
};

/* ---- ONNX ---- */

void weft__conv_export_window(weft_export *e, const conv_attr *a, const int64_t *pad_end)
{
    const size_t n = (size_t)a->stride.rank;
    int64_t pads[2 * PATCH_DIMS];
    bool dilated = false;
    for (size_t d = 0; d < n; d++) {
        pads[d] = a->pad_begin.dim[d];
        pads[n + d] = pad_end[d];
        dilated |= a->dilation.dim[d] != 1;
    }
    weft_export_ints(e, "strides", a->stride.dim, n);
    if (dilated) weft_export_ints(e, "dilations", a->dilation.dim, n);
    weft_export_ints(e, "pads", pads, 2 * n);
}

static void onnx_conv(weft_export *e)
{
    const conv_attr *a = e->attr;
    weft_export_same(e, "Conv");
    weft__conv_export_window(e, a, a->pad_end.dim);
    weft_export_int(e, "group", a->groups);
}

/* The elements after the last window are output_padding, below the stride. */
static void onnx_conv_grad_input(weft_export *e)
{
    const conv_attr *a = e->attr;
    const weft_shape *in = &e->in_type[0].shape, *w = &e->in_type[1].shape;
    int64_t more[PATCH_DIMS];
    for (int d = 0; d < a->stride.rank; d++) {
        const int64_t reach =
            (in->dim[d + 2] - 1) * a->stride.dim[d] + (w->dim[d + 2] - 1) * a->dilation.dim[d] + 1;
        more[d] = a->size.dim[d] + a->pad_begin.dim[d] + a->pad_end.dim[d] - reach;
    }
    weft_export_same(e, "ConvTranspose");
    weft__conv_export_window(e, a, a->pad_end.dim);
    weft_export_ints(e, "output_padding", more, (size_t)a->stride.rank);
    weft_export_int(e, "group", a->groups);
}

/* ---- Batches ---- */

/* Images [size, n, channels, ...] as [n, size channels, ...]. */
static weft_value join_channels(weft_graph *g, weft_value x)
{
    x = weft_transpose(g, x, 0, 1);
    weft_shape from = weft_shape_of(g, x), to = {from.rank - 1, {from.dim[0]}};
    for (int d = 1; d < to.rank; d++) to.dim[d] = from.dim[d + 1];
    to.dim[1] = weft__batch_product(to.dim[1], from.dim[1]);
    return weft_reshape(g, x, to);
}

static weft_value part_channels(const weft_batch *b, weft_value x)
{
    const weft_shape one = weft_shape_of(b->graph, b->one_out[0]);
    weft_shape to = {one.rank + 1, {one.dim[0], b->size}};
    for (int d = 1; d < one.rank; d++) to.dim[d + 1] = one.dim[d];
    return weft_transpose(b->graph, weft_reshape(b->graph, x, to), 0, 1);
}

/* Each example is a group of channels. */
static void batch_groups(weft_batch *b)
{
    const bool of_weight = b->op == &weft_op_conv_grad_weight;
    weft_value in[3];
    conv_attr attr;
    memcpy(&attr, b->attr, sizeof attr);
    attr.groups = weft__batch_product(attr.groups, b->size);
    for (size_t i = 0; i < b->n_in; i++) {
        const weft_value x = weft__batch_in(b, i);
        const bool images = i == 0 || (i == 1 && of_weight);
        in[i] = images ? join_channels(b->graph, x) : weft__batch_fold(b->graph, x);
    }
    const weft_value y = weft_apply(b->graph, b->op, &attr, in, b->n_in, NULL);
    b->out[0] = of_weight ? weft__batch_unfold(b, y, b->one_out[0]) : part_channels(b, y);
}

/* Without weights of its own, an example is some images more. */
static void batch_conv(weft_batch *b)
{
    bool shared = true;
    for (size_t i = 1; i < b->n_in; i++) shared = shared && !b->batched[i];
    if (shared)
        weft__batch_first(b);
    else
        batch_groups(b);
}

#define CONV_OP(op, operands, text, ...)                                                           \
    DECLARE_KERNELS(op);                                                                           \
    const weft_op weft_op_##op = {.name = #op,                                                     \
                                  .doc = text,                                                     \
                                  .inputs = operands,                                              \
                                  .min_in = 2,                                                     \
                                  .n_out = 1,                                                      \
                                  .attr_size = sizeof(conv_attr),                                  \
                                  .attrs = conv_fields,                                            \
                                  .infer = weft__conv_infer_##op,                                  \
                                  .kernel = FLOAT_KERNELS(op),                                     \
                                  .phases = 2,                                                     \
                                  .tiles = tiles_##op,                                             \
                                  .scratch = scratch_##op,                                         \
                                  .workspace = workspace_##op,                                     \
                                  .cost = cost_##op,                                               \
                                  .vjp = vjp_##op,                                                 \
                                  .samples = samples_##op,                                         \
                                  .n_samples = sizeof samples_##op / sizeof *samples_##op,         \
                                  __VA_ARGS__};
CONV_OP(conv, "x w bias",
        "y[n, o, i] = bias[o] + sum over c, t of w[o, c, t] x[n, c, i stride + t dilation - pad], "
        "zero outside of x; c runs over the channels of o's group. The matrix product of w and of "
        "patches that are packed straight from the image.",
        .max_in = 3, .block = block_conv, .batch = batch_conv, .onnx = onnx_conv,
        .source = weft__conv_source,
        PASSES(&weft__pass_fold_conv, &weft__pass_channels_last, &weft__pass_winograd))
CONV_OP(conv_grad_input, "dy w",
        "The gradient of conv with respect to x, and transposed convolution: dx[n, c, j] = sum of "
        "w[o, c, t] dy[n, o, i] over o, t and i with i stride + t dilation - pad = j.",
        .max_in = 2, .batch = batch_conv, .onnx = onnx_conv_grad_input,
        .source = weft__conv_source_input)
CONV_OP(conv_grad_weight, "x dy",
        "The gradient of conv with respect to w: dw[o, c, t] = sum over n, i of dy[n, o, i] "
        "x[n, c, i stride + t dilation - pad].",
        .max_in = 2, .batch = batch_groups, .source = weft__conv_source_weight)

/* ---- Builders ---- */

static conv_attr attr_from(weft_graph *g, weft_value x, const weft_conv_options *options)
{
    static const weft_conv_options defaults;
    const weft_conv_options *o = options ? options : &defaults;
    const int rank = weft_rank_of(g, x) - 2;
    conv_attr a;
    memset(&a, 0, sizeof a);
    a.groups = o->groups ? o->groups : 1;
    for (int d = 0; d < rank && d < PATCH_DIMS; d++) {
        a.stride.dim[a.stride.rank++] = o->stride[d] ? o->stride[d] : 1;
        a.dilation.dim[a.dilation.rank++] = o->dilation[d] ? o->dilation[d] : 1;
        a.pad_begin.dim[a.pad_begin.rank++] = o->pad_begin[d];
        a.pad_end.dim[a.pad_end.rank++] = o->pad_end[d];
    }
    return a;
}

weft_value weft_conv(weft_graph *graph, weft_value x, weft_value w, weft_value bias,
                     const weft_conv_options *options)
{
    const conv_attr attr = attr_from(graph, x, options);
    return weft_apply(graph, &weft_op_conv, &attr, (weft_value[]){x, w, bias},
                      weft_is_value(bias) ? 3 : 2, NULL);
}

/* The spatial size of a transposed convolution; INT64_MAX, which is refused, where it overflows. */
static int64_t transposed_size(int64_t in, int64_t kernel, const conv_attr *a, int d, int64_t extra)
{
    int64_t spread, reach, size, pads;
    const bool good = !__builtin_mul_overflow(in - 1, a->stride.dim[d], &spread) &&
                      !__builtin_mul_overflow(kernel - 1, a->dilation.dim[d], &reach) &&
                      !__builtin_add_overflow(spread, reach, &size) &&
                      !__builtin_add_overflow(size, extra, &size) &&
                      !__builtin_add_overflow(a->pad_begin.dim[d], a->pad_end.dim[d], &pads) &&
                      !__builtin_sub_overflow(size, pads, &size);
    return good && size < INT64_MAX ? size + 1 : INT64_MAX;
}

weft_value weft_conv_transpose(weft_graph *graph, weft_value x, weft_value w, weft_value bias,
                               const weft_conv_options *options)
{
    conv_attr attr = attr_from(graph, x, options);
    weft_shape channels = {0, {0}};
    for (int d = 0; d < attr.stride.rank; d++) {
        const int64_t extra = options ? options->output_pad[d] : 0;
        if (extra < 0 || extra >= attr.stride.dim[d]) {
            weft_graph_fail_in(graph, "conv_transpose", WEFT_BAD_ARGUMENT,
                               "output_pad is %lld, expected 0 to %lld, below the stride",
                               (long long)extra, (long long)attr.stride.dim[d] - 1);
            return WEFT_NO_VALUE;
        }
        attr.size.dim[attr.size.rank++] = transposed_size(
            weft_dim_of(graph, x, d + 2),
            weft_rank_of(graph, w) > d + 2 ? weft_dim_of(graph, w, d + 2) : 0, &attr, d, extra);
    }
    weft_value y =
        weft_apply(graph, &weft_op_conv_grad_input, &attr, (weft_value[]){x, w}, 2, NULL);
    if (!weft_is_value(y) || !weft_is_value(bias)) return y;
    for (int d = 0; d < attr.stride.rank + 2; d++) channels.dim[channels.rank++] = 1;
    channels.dim[1] = weft_dim_of(graph, y, 1);
    return weft_add(graph, y, weft_reshape(graph, bias, channels));
}
