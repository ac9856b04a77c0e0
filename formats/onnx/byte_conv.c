/* Convolutions of quantized images by weights of the file, in bytes (ops/conv/conv_bytes.h), and sums
 * of two images. */
#include "onnx/byte_op.h"
#include "onnx/tensor.h"

#include "quantize/bytes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool weft__keeps_bytes(const onnx_node *n, weft_value image)
{
    onnx_import *import = n->import;
    const WeftOnnx__GraphProto *graph = import->model->proto->graph;
    if (!import->convolves) import->convolves = -1;
    for (size_t i = 0; import->convolves < 0 && graph && i < graph->n_node; i++)
        if (strstr(onnx_text(graph->node[i]->op_type), "Conv")) import->convolves = 1;
    return import->convolves > 0 && !n->folding && import->mode != ONNX_TRAINING &&
           weft_rank_of(n->graph, image) == 4;
}

weft_value weft__bytes_of(weft_graph *g, weft_value x, double scale, double zero, int type)
{
    const int lifted = (int)zero + bytes_lift(type);
    /* Few channels, as of a picture, are too short for runs of their own. */
    if (weft_rank_of(g, x) == 4 && weft_dim_of(g, x, 1) <= 4)
        return weft__quantize_bytes(g, x, scale, lifted);
    return bytes_to_first(g, weft__quantize_bytes(g, bytes_to_last(g, x), scale, lifted));
}

weft_value weft__bytes_real(weft_graph *g, weft_value bytes, double scale, double zero, int type)
{
    return bytes_to_first(
        g, weft__dequantize_bytes(g, bytes_to_last(g, bytes), scale, (int)zero + bytes_lift(type)));
}

void weft__set_bytes(onnx_node *n, weft_value bytes, int type)
{
    weft__set_quantized(n, weft__bytes_real(n->graph, bytes, 1, 0, type), type);
    if (n->n_out) n->out[0].bytes = bytes;
}

/* Quantized numbers as bytes; [images, channels, height, width]. */
static weft_value image_bytes(onnx_node *n, onnx_value *v)
{
    weft_graph *g = n->graph;
    if (weft_is_value(v->bytes)) return v->bytes;
    const weft_value whole = weft_is_value(v->whole) ? v->whole : weft__import_value(n->import, v);
    return v->bytes = weft__bytes_of(g, weft_cast(g, whole, WEFT_F32), 1, 0, v->type);
}

/* ---- What is known ---- */

/* Whether the contents are known, and not computed from parameters. */
static bool is_known(onnx_node *n, onnx_value *v)
{
    return weft__import_contents(n->import, v) && v->known && (!v->trainable || v->weight);
}

/* The elements of a vector or of a number, if they are `count` or one; of an absent one there is
 * none. */
static bool fits(onnx_node *n, onnx_value *v, int64_t count)
{
    if (!v) return true;
    if (!is_known(n, v)) return false;
    const weft_shape s = v->tensor.shape;
    return s.rank <= 1 && (weft_shape_numel(s) == 1 || weft_shape_numel(s) == count);
}

static double element(const onnx_value *v, int64_t i, double default_value)
{
    if (!v) return default_value;
    return onnx_tensor_element(&v->tensor, weft_shape_numel(v->tensor.shape) == 1 ? 0 : i);
}

/* Whether a convolution can be computed in bytes, from what is known of its inputs. */
static bool can_convolve(onnx_node *n, const byte_conv_inputs *in, int64_t groups)
{
    if (n->folding || weft__node_failed(n) || !in->x || !in->w || in->x->known ||
        weft_is_value(in->x->size) || !bytes_listed(in->x->type) || !bytes_listed(in->w->type) ||
        !is_known(n, in->w))
        return false;
    const weft_shape w = in->w->tensor.shape;
    const weft_shape x = weft_shape_of(n->graph, weft__import_value(n->import, in->x));
    if (w.rank != 4 || x.rank != 4 || in->w->tensor.dtype != WEFT_I32 || w.dim[0] < 1 ||
        (groups != 1 && (groups != x.dim[1] || groups != w.dim[0] || w.dim[1] != 1)) ||
        (groups == 1 && x.dim[1] != w.dim[1]) || !x.dim[1])
        return false;
    if ((in->bias && (!is_known(n, in->bias) || in->bias->tensor.dtype != WEFT_I32 ||
                      weft_shape_numel(in->bias->tensor.shape) != w.dim[0])) ||
        !in->x_scale != !in->w_scale)
        return false;
    return fits(n, in->x_scale, 1) && fits(n, in->x_zero, 1) && fits(n, in->w_scale, w.dim[0]) &&
           fits(n, in->w_zero, w.dim[0]);
}

/* ---- Weights ---- */

/* Weights less their zero points, [columns, taps, channels], and the bias with what the image's zero
 * point adds. False if a weight does not fit an i8. */
static bool read_weights(const byte_conv_inputs *in, int x_zero, int8_t *w, int32_t *bias)
{
    const onnx_tensor *t = &in->w->tensor;
    const int32_t *from = t->data;
    const int64_t channels = t->shape.dim[1], taps = t->shape.dim[2] * t->shape.dim[3];
    for (int64_t o = 0; o < t->shape.dim[0]; o++) {
        const int32_t zero = (int32_t)element(in->w_zero, o, 0);
        uint32_t sum = 0;
        for (int64_t c = 0; c < channels; c++)
            for (int64_t k = 0; k < taps; k++) {
                const int32_t weight = *from++ - zero;
                if (weight < INT8_MIN || weight > INT8_MAX) return false;
                w[(o * taps + k) * channels + c] = (int8_t)weight;
                sum += (uint32_t)weight;
            }
        const int32_t given = in->bias ? ((const int32_t *)in->bias->tensor.data)[o] : 0;
        bias[o] = (int32_t)((uint32_t)given - (uint32_t)x_zero * sum);
    }
    return true;
}

/* w [channels, taps, 1] as [taps, channels]. */
static void transpose(const int8_t *w, int64_t channels, int64_t taps, uint8_t *to)
{
    for (int64_t c = 0; c < channels; c++)
        for (int64_t k = 0; k < taps; k++) to[k * channels + c] = (uint8_t)w[c * taps + k];
}

/* Sets weights and bias; false if a weight does not fit, or out of memory. */
static bool set_weights(onnx_node *n, const byte_conv_inputs *in, onnx_byte_op *c)
{
    weft_graph *g = n->graph;
    const weft_shape s = in->w->tensor.shape;
    const int64_t columns = s.dim[0], channels = s.dim[1], taps = s.dim[2] * s.dim[3];
    const int64_t panels = (columns + BYTES_PANEL - 1) / BYTES_PANEL;
    const int64_t steps = conv_bytes_steps(taps, channels), each = BYTES_PANEL * BYTES_EACH;
    const size_t bytes = (size_t)(c->depthwise ? columns * taps : panels * steps * each);
    int8_t *w = malloc((size_t)weft_shape_numel(s) + 1);
    int32_t *bias = malloc((size_t)columns * sizeof *bias);
    uint8_t *packed = malloc(bytes + 1);
    bool good = w && bias && packed;
    if (!good) weft__node_fail(n, WEFT_NO_MEMORY, "no memory for the weights");
    good = good && read_weights(in, c->attr.x_zero, w, bias);
    if (good) {
        if (c->depthwise)
            transpose(w, columns, taps, packed);
        else
            weft__conv_bytes_pack(w, columns, taps, channels, packed);
        c->bias = weft_constant(g, WEFT_I32, WEFT_SHAPE(columns), bias);
        c->weights = weft_constant(g, WEFT_U8,
                                   c->depthwise ? WEFT_SHAPE(s.dim[2], s.dim[3], columns)
                                                : WEFT_SHAPE(panels, steps, each),
                                   packed);
    }
    free(w);
    free(bias);
    free(packed);
    return good;
}

/* ---- Convolutions ---- */

void weft__set_byte_window(const weft_conv_options *o, const int64_t *kernel, conv_rows_attr *a)
{
    a->kernel = a->stride = a->dilation = a->pad_begin = a->pad_end = (weft_shape){2, {0}};
    for (int d = 0; d < 2; d++) {
        a->kernel.dim[d] = kernel[d];
        a->stride.dim[d] = o->stride[d];
        a->dilation.dim[d] = o->dilation[d];
        a->pad_begin.dim[d] = o->pad_begin[d];
        a->pad_end.dim[d] = o->pad_end[d];
    }
}

onnx_byte_op *weft__new_byte_op(onnx_node *n)
{
    onnx_byte_op *c = weft__arena_alloc(&n->import->memory, sizeof *c);
    if (c)
        memset(c, 0, sizeof *c);
    else
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for an op in bytes");
    return c;
}

const onnx_byte_op *weft__byte_conv(onnx_node *n, const byte_conv_inputs *in,
                                    const weft_conv_options *options)
{
    if (!can_convolve(n, in, options->groups)) return NULL;
    const weft_shape w = in->w->tensor.shape;
    onnx_byte_op *c = weft__new_byte_op(n);
    float *scale = weft__arena_alloc(&n->import->memory, (size_t)w.dim[0] * sizeof *scale);
    if (!c || !scale) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a convolution");
        return NULL;
    }
    c->depthwise = options->groups > 1;
    c->attr.x_zero = (int32_t)element(in->x_zero, 0, 0) + bytes_lift(in->x->type);
    if (c->attr.x_zero < 0 || c->attr.x_zero > 255 || !set_weights(n, in, c)) return NULL;
    weft__set_byte_window(options, w.dim + 2, &c->attr.rows);
    c->attr.rows.columns = w.dim[0];
    for (int64_t o = 0; in->x_scale && o < w.dim[0]; o++)
        scale[o] = (float)element(in->x_scale, 0, 1) * (float)element(in->w_scale, o, 1);
    if (in->x_scale) c->scale = scale;
    c->x = bytes_to_last(n->graph, image_bytes(n, in->x));
    return c;
}

/* Whether a bias is in units of the scales of image and weights, with zero points of zero. */
static bool fits_bias(onnx_node *n, const byte_conv_inputs *in, const onnx_value *bias)
{
    const int64_t columns = in->w->tensor.shape.dim[0];
    if (!fits(n, bias->scale, columns) || !fits(n, bias->zero, columns)) return false;
    for (int64_t o = 0; o < columns; o++) {
        const float unit = (float)element(in->x_scale, 0, 1) * (float)element(in->w_scale, o, 1);
        if ((float)element(bias->scale, o, 1) != unit || element(bias->zero, o, 0) != 0)
            return false;
    }
    return true;
}

const onnx_byte_op *weft__dequantized_conv(onnx_node *n, const weft_conv_options *options)
{
    const onnx_value *x = n->in[0], *w = n->in[1], *b = has_in(n, 2) ? n->in[2] : NULL;
    if (n->folding || n->import->mode == ONNX_TRAINING || !x->quantized || !w->quantized ||
        (b && !b->quantized) || !x->scale || !w->scale)
        return NULL;
    const byte_conv_inputs in = {.x = x->quantized,
                                 .x_scale = x->scale,
                                 .x_zero = x->zero,
                                 .w = w->quantized,
                                 .w_scale = w->scale,
                                 .w_zero = w->zero,
                                 .bias = b ? b->quantized : NULL};
    if (!can_convolve(n, &in, options->groups) ||
        (w->axis != 0 && weft_shape_numel(w->scale->tensor.shape) != 1) ||
        w->scale->tensor.dtype != WEFT_F32 || x->scale->tensor.dtype != WEFT_F32 ||
        (b && !fits_bias(n, &in, b)))
        return NULL;
    return weft__byte_conv(n, &in, options);
}

/* ---- Sums ---- */

bool weft__byte_term(onnx_node *n, const onnx_value *q, onnx_value *scale, onnx_value *zero,
                     byte_term *t)
{
    if (!q || !weft_is_value(q->bytes) || !scale || !fits(n, scale, 1) || !fits(n, zero, 1) ||
        scale->tensor.dtype != WEFT_F32)
        return false;
    *t =
        (byte_term){q->bytes, element(scale, 0, 1), (int)element(zero, 0, 0) + bytes_lift(q->type)};
    return t->scale > 0 && isfinite(t->scale);
}

bool weft__dequantized_term(onnx_node *n, size_t i, byte_term *term)
{
    const onnx_value *v = n->in[i];
    return !n->folding && n->import->mode != ONNX_TRAINING &&
           weft__byte_term(n, v->quantized, v->scale, v->zero, term);
}

static const onnx_byte_op *sum_of(onnx_node *n, const byte_term *a, const byte_term *b)
{
    if (!weft_shape_equal(weft_shape_of(n->graph, a->bytes), weft_shape_of(n->graph, b->bytes)))
        return NULL;
    onnx_byte_op *c = weft__new_byte_op(n);
    if (c) *c = (onnx_byte_op){.kind = BYTES_ADDED, .term = {*a, *b}};
    return c;
}

const onnx_byte_op *weft__dequantized_sum(onnx_node *n)
{
    byte_term t[2];
    for (size_t i = 0; i < 2; i++)
        if (!weft__dequantized_term(n, i, &t[i])) return NULL;
    return sum_of(n, &t[0], &t[1]);
}

const onnx_byte_op *weft__byte_sum(onnx_node *n)
{
    byte_term t[2];
    if (n->folding) return NULL;
    for (size_t i = 0; i < 2; i++)
        if (!weft__byte_term(n, n->in[3 * i], n->in[3 * i + 1],
                             has_in(n, 3 * i + 2) ? n->in[3 * i + 2] : NULL, &t[i]))
            return NULL;
    return sum_of(n, &t[0], &t[1]);
}

static weft_value add(onnx_node *n, const onnx_byte_op *c, const bytes_sum *sum)
{
    weft_graph *g = n->graph;
    const weft_value a = bytes_to_last(g, c->term[0].bytes), b = bytes_to_last(g, c->term[1].bytes);
    return bytes_to_first(g, weft__add_bytes(g, a, b, sum));
}

void weft__bound_byte_op(onnx_node *n, double low, double high)
{
    if (n->folding || !has_in(n, 0) || !n->in[0]->byte_op || !n->n_out) return;
    onnx_byte_op *c = weft__arena_alloc(&n->import->memory, sizeof *c);
    if (!c) return;
    *c = *n->in[0]->byte_op;
    c->low = c->bounded ? fmin(fmax(c->low, low), high) : low;
    c->high = c->bounded ? fmin(fmax(c->high, low), high) : high;
    c->bounded = true;
    n->out[0].byte_op = c;
}

/* ---- Results ---- */

/* The result as `attr` describes it, with sums scaled by scale[]. */
static weft_value convolve(onnx_node *n, const onnx_byte_op *c, const conv_bytes_attr *attr,
                           const float *scale)
{
    weft_graph *g = n->graph;
    weft_value in[4] = {c->x, c->weights, c->bias, WEFT_NO_VALUE};
    if (scale) in[3] = weft_constant(g, WEFT_F32, WEFT_SHAPE(attr->rows.columns), scale);
    return bytes_to_first(g, weft__conv_bytes(g, in, scale ? 4 : 3, attr, c->depthwise));
}

weft_value weft__byte_conv_sums(onnx_node *n, const onnx_byte_op *c, weft_dtype dtype)
{
    conv_bytes_attr attr = c->attr;
    attr.dtype = dtype;
    return convolve(n, c, &attr, dtype == WEFT_I32 ? NULL : c->scale);
}

/* The byte of a bound of the scaled sums. */
static double bound_byte(double bound, double scale, double zero)
{
    const double q = rint(bound / scale) + zero;
    return q < 0 ? 0 : q > 255 ? 255 : q;
}

bool weft__set_byte_op(onnx_node *n, const onnx_byte_op *c, size_t scale, int type)
{
    conv_bytes_attr attr = c->attr;
    double step = 0, zero = 0;
    if ((c->kind == BYTES_CONVOLVED && !c->scale) || !bytes_listed(type) ||
        !weft__in_is_number(n, scale, &step) || !(step > 0) || !isfinite(step) ||
        (has_in(n, scale + 1) && !weft__in_is_number(n, scale + 1, &zero)))
        return false;
    const int y_zero = (int)zero + bytes_lift(type);
    const double low = c->bounded ? bound_byte(c->low, step, y_zero) : 0;
    const double high = c->bounded ? bound_byte(c->high, step, y_zero) : 255;
    if (c->kind == BYTES_KEPT) {
        if (c->bounded || step != c->term[0].scale || y_zero != c->term[0].zero) return false;
        weft__set_bytes(n, c->term[0].bytes, type);
        return true;
    }
    if (c->kind == BYTES_ADDED) {
        const bytes_sum sum = {.scale = {c->term[0].scale, c->term[1].scale, step},
                               .zero = {c->term[0].zero, c->term[1].zero, y_zero},
                               .low = (int32_t)low,
                               .high = (int32_t)high};
        weft__set_bytes(n, add(n, c, &sum), type);
        return true;
    }
    float *units = malloc((size_t)attr.rows.columns * sizeof *units);
    if (!units) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for scales");
        return false;
    }
    for (int64_t o = 0; o < attr.rows.columns; o++) units[o] = c->scale[o] / (float)step;
    attr.dtype = WEFT_U8;
    attr.y_zero = y_zero;
    attr.rows.bounded = c->bounded;
    attr.rows.low = c->bounded ? low : 0;
    attr.rows.high = c->bounded ? high : 0;
    weft__set_bytes(n, convolve(n, c, &attr, units), type);
    free(units);
    return true;
}
