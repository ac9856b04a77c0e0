/* Update nodes: they write states in place, element by element, in one pass over their inputs. */
#include "base/vmath_pow.h"
#include "kernels/kernel.h"

/* As weft_sgd_options and weft_adam_options; scaled: the last input scales the gradient. */
typedef struct sgd_attr {
    int64_t first; /* of the piece of the parameter that is updated */
    double momentum, dampening, weight_decay;
    bool nesterov, scaled;
} sgd_attr;
typedef struct adam_attr {
    int64_t first;
    double beta1, beta2, eps, weight_decay;
    bool decoupled, scaled;
} adam_attr;

#ifdef WEFT_KERNEL_ISA

/* The end of a tile's elements of the input after the states, the gradient or the value: all of the
 * state, or a piece. They begin with tile * TILE. */
static inline int64_t tile_end(const weft_call *call, int64_t tile)
{
    const int64_t n = numel_of(&call->in[call->n_out].shape), begin = tile * TILE;
    return begin + TILE < n ? begin + TILE : n;
}

KERNEL(assign)
{
    const int64_t begin = tile * TILE, end = tile_end(call, tile);
    T *to = (T *)call->out[0].data + begin;
    const T *from = (const T *)call->in[1].data + begin;
    if (to != from) memcpy(to, from, (size_t)(end - begin) * sizeof(T));
}

#if KERNEL_IS_FLOAT
static inline T scalar_in(const weft_call *call, size_t i)
{
    return *(const T *)call->in[i].data;
}

/* Inputs: state, value, decay, weight. */
KERNEL(blend)
{
    const int64_t begin = tile * TILE, end = tile_end(call, tile);
    T *state = call->out[0].data;
    const T *value = call->in[1].data, decay = scalar_in(call, 2), weight = scalar_in(call, 3);
    if (decay == 0) {
        _Pragma("omp simd") for (int64_t i = begin; i < end; i++) state[i] = weight * value[i];
        return;
    }
    _Pragma("omp simd") for (int64_t i = begin; i < end; i++) state[i] =
        decay * state[i] + weight * value[i];
}

/* Inputs: param, grad, lr[, scale]. */
KERNEL(sgd_update)
{
    const int64_t begin = tile * TILE, end = tile_end(call, tile);
    const sgd_attr *attr = call->attr;
    T *param = (T *)call->out[0].data + attr->first;
    const T *grad = call->in[1].data, lr = scalar_in(call, 2), decay = (T)attr->weight_decay;
    const T scale = attr->scaled ? scalar_in(call, 3) : 1;
    _Pragma("omp simd") for (int64_t i = begin; i < end; i++) param[i] -=
        lr * (scale * grad[i] + decay * param[i]);
}

/* Inputs: param, buf, grad, lr[, scale]. */
KERNEL(momentum_update)
{
    const int64_t begin = tile * TILE, end = tile_end(call, tile);
    const sgd_attr *attr = call->attr;
    T *param = (T *)call->out[0].data + attr->first, *buf = call->out[1].data;
    const T *grad = call->in[2].data, lr = scalar_in(call, 3), decay = (T)attr->weight_decay;
    const T scale = attr->scaled ? scalar_in(call, 4) : 1, momentum = (T)attr->momentum;
    const bool nesterov = attr->nesterov, dampened = attr->dampening != 0;
    const T weight = (T)(1 - attr->dampening);
    _Pragma("omp simd") for (int64_t i = begin; i < end; i++)
    {
        const T g = scale * grad[i] + decay * param[i],
                b = momentum * buf[i] + (dampened ? weight * g : g);
        buf[i] = b;
        param[i] -= lr * (nesterov ? g + momentum * b : b);
    }
}

/* Inputs: param, m, v, grad, lr, t[, scale]. */
KERNEL(adam_update)
{
    const int64_t begin = tile * TILE, end = tile_end(call, tile);
    const adam_attr *attr = call->attr;
    T *param = (T *)call->out[0].data + attr->first, *m = call->out[1].data, *v = call->out[2].data;
    const T *grad = call->in[3].data, lr = scalar_in(call, 4);
    const double t = (double)scalar_in(call, 5);
    const T scale = attr->scaled ? scalar_in(call, 6) : 1;
    const T b1 = (T)attr->beta1, b2 = (T)attr->beta2, eps = (T)attr->eps;
    const T a1 = (T)(1 - attr->beta1), a2 = (T)(1 - attr->beta2);
    const T decay = attr->decoupled ? 0 : (T)attr->weight_decay;
    const T shrink = attr->decoupled ? (T)(1 - (double)lr * attr->weight_decay) : 1;
    const T correct_m = (T)(1 / (1 - vm_pow_f64(attr->beta1, t)));
    const T correct_v = (T)(1 / (1 - vm_pow_f64(attr->beta2, t)));
    _Pragma("omp simd") for (int64_t i = begin; i < end; i++)
    {
        const T g = scale * grad[i] + decay * param[i];
        m[i] = b1 * m[i] + a1 * g;
        v[i] = b2 * v[i] + a2 * g * g;
        param[i] = shrink * param[i] - lr * (m[i] * correct_m) / ((T)sqrt(v[i] * correct_v) + eps);
    }
}
#endif

#else

#include "samples.h"
#include "source_bits.h"

#include <weft/ops.h>
#include <weft/source.h>

/* Inputs after the first have the shape `shape` up to the gradient; the ones after it are
 * scalars. */
static bool infer_shapes(weft_infer *infer, weft_shape shape)
{
    char a[128], b[128], name[128];
    size_t states = infer->op->updates;
    for (size_t i = 0; i < infer->n_in; i++) {
        weft_shape want = !i ? infer->in[0].shape : i <= states ? shape : WEFT_SCALAR;
        if (!weft_infer_same_dtype(infer, 0, i)) return false;
        if (!weft_shape_equal(infer->in[i].shape, want))
            return weft_infer_fail(infer, WEFT_BAD_SHAPE, "%s must be %s, got %s",
                                   weft_infer_input(infer, i, name, sizeof name),
                                   weft_shape_text(want, a, sizeof a),
                                   weft_shape_text(infer->in[i].shape, b, sizeof b));
    }
    for (size_t i = 0; i < states; i++) infer->out[i] = infer->in[i];
    return true;
}

static bool infer_update(weft_infer *infer)
{
    return infer_shapes(infer, infer->in[0].shape);
}

static bool infer_float_update(weft_infer *infer)
{
    return weft_infer_float(infer, 0) && infer_update(infer);
}

/* The attributes begin with `first`. Gradient and moments may be of a piece of the
 * parameter, in one dimension. */
static bool infer_piece_update(weft_infer *infer)
{
    const int64_t first = *(const int64_t *)infer->attr;
    const weft_shape grad = infer->in[infer->op->updates].shape;
    if (weft_shape_equal(grad, infer->in[0].shape) && !first) return infer_float_update(infer);
    const int64_t room = weft_shape_numel(infer->in[0].shape) - first;
    if (grad.rank != 1 || first < 0 || grad.dim[0] > room)
        return weft_infer_fail(
            infer, WEFT_BAD_SHAPE,
            "the gradient must have the shape of the parameter, or be a piece of "
            "it in one dimension");
    return weft_infer_float(infer, 0) && infer_shapes(infer, grad);
}

static int64_t tiles_update(const weft_call *call)
{
    return ceil_div(numel_of(&call->in[call->n_out].shape), TILE);
}

static void cost_update(const weft_call *call, weft_cost *cost)
{
    double n = (double)numel_of(&call->in[call->n_out].shape);
    cost->flops = 6.0 * n * (double)call->n_out;
    cost->bytes = n * (double)((2 * call->n_out + 1) * weft_dtype_bytes(call->out[0].dtype));
}

#define POSITIVE(...)                                                                              \
    {                                                                                              \
        WEFT_FLOAT, __VA_ARGS__, 0.1, 1, false                                                     \
    }
#define COUNT                                                                                      \
    {                                                                                              \
        WEFT_FLOAT, {0, {0}}, 3, 3, false                                                          \
    }
static const sgd_attr sgd_plain = {0, 0, 0, 0.1, false, true},
                      sgd_bare = {0, 0, 0, 0, false, false},
                      sgd_heavy = {0, 0.8, 0, 0.1, false, true},
                      sgd_nesterov = {0, 0.9, 0, 0.1, true, false},
                      sgd_piece = {2, 0, 0, 0.1, false, true},
                      sgd_dampened_piece = {1, 0.8, 0.3, 0.1, false, true};
static const adam_attr adam_plain = {0, 0.9, 0.98, 1e-9, 0.01, false, true},
                       adam_decoupled = {0, 0.9, 0.999, 1e-8, 0.1, true, false},
                       adam_piece = {7, 0.9, 0.98, 1e-9, 0.01, false, true};
static const weft_sample samples_assign[] = {
    {NULL, 2, {UNIT_FLOATS({2, {3, 4}}), UNIT_FLOATS({2, {3, 4}})}},
    {NULL, 2, {{WEFT_I32, {1, {3}}, 0, 9, false}, {WEFT_I32, {1, {3}}, 0, 9, false}}},
    {NULL, 2, {{WEFT_BOOL, {1, {3}}, 0, 0.5, false}, {WEFT_BOOL, {1, {3}}, 0, 0.5, false}}},
    {NULL, 2, {UNIT_FLOATS({2, {0, 4}}), UNIT_FLOATS({2, {0, 4}})}},
};
static const weft_sample samples_blend[] = {
    {NULL,
     4,
     {UNIT_FLOATS({2, {3, 4}}), UNIT_FLOATS({2, {3, 4}}), POSITIVE({0, {0}}), POSITIVE({0, {0}})}},
    {NULL,
     4,
     {UNIT_FLOATS({1, {5}}),
      UNIT_FLOATS({1, {5}}),
      {WEFT_FLOAT, {0, {0}}, 0, 0, false},
      UNIT_FLOATS({0, {0}})}},
};
static const weft_sample samples_sgd_update[] = {
    {&sgd_plain,
     4,
     {UNIT_FLOATS({2, {3, 4}}), UNIT_FLOATS({2, {3, 4}}), POSITIVE({0, {0}}), POSITIVE({0, {0}})}},
    {&sgd_bare, 3, {UNIT_FLOATS({2, {1, 5}}), UNIT_FLOATS({2, {1, 5}}), POSITIVE({0, {0}})}},
    {&sgd_piece,
     4,
     {UNIT_FLOATS({2, {3, 4}}), UNIT_FLOATS({1, {5}}), POSITIVE({0, {0}}), POSITIVE({0, {0}})}},
};
static const weft_sample samples_momentum_update[] = {
    {&sgd_nesterov,
     4,
     {UNIT_FLOATS({1, {7}}), UNIT_FLOATS({1, {7}}), UNIT_FLOATS({1, {7}}), POSITIVE({0, {0}})}},
    {&sgd_heavy,
     5,
     {UNIT_FLOATS({2, {3, 2}}), UNIT_FLOATS({2, {3, 2}}), UNIT_FLOATS({2, {3, 2}}),
      POSITIVE({0, {0}}), POSITIVE({0, {0}})}},
    {&sgd_dampened_piece,
     5,
     {UNIT_FLOATS({2, {3, 2}}), UNIT_FLOATS({1, {4}}), UNIT_FLOATS({1, {4}}), POSITIVE({0, {0}}),
      POSITIVE({0, {0}})}},
};
static const weft_sample samples_adam_update[] = {
    {&adam_plain,
     7,
     {UNIT_FLOATS({1, {5}}), UNIT_FLOATS({1, {5}}), POSITIVE({1, {5}}), UNIT_FLOATS({1, {5}}),
      POSITIVE({0, {0}}), COUNT, POSITIVE({0, {0}})}},
    {&adam_decoupled,
     6,
     {UNIT_FLOATS({2, {3, 4}}), UNIT_FLOATS({2, {3, 4}}), POSITIVE({2, {3, 4}}),
      UNIT_FLOATS({2, {3, 4}}), POSITIVE({0, {0}}), COUNT}},
    {&adam_piece,
     7,
     {UNIT_FLOATS({2, {3, 4}}), UNIT_FLOATS({1, {3}}), POSITIVE({1, {3}}), UNIT_FLOATS({1, {3}}),
      POSITIVE({0, {0}}), COUNT, POSITIVE({0, {0}})}},
};
static const weft_attr_field sgd_fields[] = {
    {"first", WEFT_ATTR_INT64, offsetof(sgd_attr, first)},
    {"momentum", WEFT_ATTR_DOUBLE, offsetof(sgd_attr, momentum)},
    {"dampening", WEFT_ATTR_DOUBLE, offsetof(sgd_attr, dampening)},
    {"weight_decay", WEFT_ATTR_DOUBLE, offsetof(sgd_attr, weight_decay)},
    {"nesterov", WEFT_ATTR_BOOL, offsetof(sgd_attr, nesterov)},
    {NULL, WEFT_ATTR_INT, 0},
};
static const weft_attr_field adam_fields[] = {
    {"first", WEFT_ATTR_INT64, offsetof(adam_attr, first)},
    {"beta1", WEFT_ATTR_DOUBLE, offsetof(adam_attr, beta1)},
    {"beta2", WEFT_ATTR_DOUBLE, offsetof(adam_attr, beta2)},
    {"eps", WEFT_ATTR_DOUBLE, offsetof(adam_attr, eps)},
    {"weight_decay", WEFT_ATTR_DOUBLE, offsetof(adam_attr, weight_decay)},
    {"decoupled", WEFT_ATTR_BOOL, offsetof(adam_attr, decoupled)},
    {NULL, WEFT_ATTR_INT, 0},
};

/* Arguments after those of the states, the gradient and the scalars. */
static void source_piece(weft_source *s, const char *function, int64_t first, size_t scalars,
                         bool scaled, const weft_source_arg *more, size_t n_more)
{
    weft_source_arg args[20];
    size_t n = 0;
    for (size_t i = 0; i < s->n_out; i++) args[n++] = WEFT_ARG_OUT_AT(i, i ? 0 : first);
    for (size_t i = 0; i < 1 + scalars; i++) args[n++] = WEFT_ARG_IN(s->n_out + i);
    args[n++] = scaled ? WEFT_ARG_IN(s->n_in - 1) : WEFT_ARG_NONE;
    for (size_t i = 0; i < n_more; i++) args[n++] = more[i];
    args[n++] = WEFT_ARG_INT(weft_shape_numel(s->in[s->n_out].shape));
    weft_source_call_of(s, function, args, n);
}

static void source_assign(weft_source *s)
{
    const weft_source_arg args[] = {WEFT_ARG_OUT(0), WEFT_ARG_IN(1),
                                    WEFT_ARG_INT(weft_shape_numel(s->in[1].shape))};
    weft_source_call_of(s, "assign", args, 3);
}

static void source_blend(weft_source *s)
{
    const weft_source_arg args[] = {WEFT_ARG_OUT(0), WEFT_ARG_IN(1), WEFT_ARG_IN(2), WEFT_ARG_IN(3),
                                    WEFT_ARG_INT(weft_shape_numel(s->in[1].shape))};
    weft_source_call_of(s, "blend", args, 5);
}

static void source_sgd_update(weft_source *s)
{
    const sgd_attr *a = s->attr;
    source_piece(s, "sgd_update", a->first, 1, a->scaled, &WEFT_ARG_NUMBER(a->weight_decay), 1);
}

static void source_momentum_update(weft_source *s)
{
    const sgd_attr *a = s->attr;
    const weft_source_arg more[] = {WEFT_ARG_NUMBER(a->weight_decay), WEFT_ARG_NUMBER(a->momentum),
                                    WEFT_ARG_NUMBER(1 - a->dampening), WEFT_ARG_INT(a->nesterov)};
    source_piece(s, "momentum_update", a->first, 1, a->scaled, more, 4);
}

static void source_adam_update(weft_source *s)
{
    const adam_attr *a = s->attr;
    const weft_source_arg more[] = {WEFT_ARG_KEY(source_bits(a->beta1)),
                                    WEFT_ARG_KEY(source_bits(a->beta2)),
                                    WEFT_ARG_KEY(source_bits(a->weight_decay)),
                                    WEFT_ARG_KEY(source_bits(a->eps)), WEFT_ARG_INT(a->decoupled)};
    source_piece(s, "adam_update", a->first, 2, a->scaled, more, 5);
}

#define UPDATE_OP(op, text, words, states, min_inputs, max_inputs, attribute_size, fields,         \
                  shape_rule, kernels)                                                             \
    extern const weft_op weft_op_##op;                                                             \
    const weft_op weft_op_##op = {                                                                 \
        .name = #op,                                                                               \
        .doc = text,                                                                               \
        .inputs = words,                                                                           \
        .min_in = min_inputs,                                                                      \
        .max_in = max_inputs,                                                                      \
        .n_out = states,                                                                           \
        .attr_size = attribute_size,                                                               \
        .attrs = fields,                                                                           \
        .infer = shape_rule,                                                                       \
        .kernel = kernels,                                                                         \
        .takes = WEFT_TAKES_DENSE,                                                                 \
        .tiles = tiles_update,                                                                     \
        .cost = cost_update,                                                                       \
        .updates = states,                                                                         \
        .source = source_##op,                                                                     \
        .gradient = WEFT_GRADIENT_NONE,                                                            \
        .samples = samples_##op,                                                                   \
        .n_samples = sizeof samples_##op / sizeof *samples_##op,                                   \
    };
DECLARE_ANY_KERNELS(assign);
DECLARE_KERNELS(blend);
DECLARE_KERNELS(sgd_update);
DECLARE_KERNELS(momentum_update);
DECLARE_KERNELS(adam_update);
UPDATE_OP(assign, "state = value.", "state value", 1, 2, 2, 0, NULL, infer_update,
          ANY_KERNELS(assign))
UPDATE_OP(blend, "state = decay state + weight value.", "state value decay weight", 1, 4, 4, 0,
          NULL, infer_float_update, FLOAT_KERNELS(blend))
UPDATE_OP(sgd_update, "param -= lr (scale grad + weight_decay param).", "param grad lr scale", 1, 3,
          4, sizeof(sgd_attr), sgd_fields, infer_piece_update, FLOAT_KERNELS(sgd_update))
UPDATE_OP(momentum_update,
          "buf = momentum buf + (1 - dampening) g, param -= lr buf (or lr (g + momentum buf), "
          "Nesterov), with g = "
          "scale grad + weight_decay param.",
          "param buf grad lr scale", 2, 4, 5, sizeof(sgd_attr), sgd_fields, infer_piece_update,
          FLOAT_KERNELS(momentum_update))
UPDATE_OP(adam_update,
          "m = b1 m + (1-b1) g, v = b2 v + (1-b2) g^2, param -= lr mhat / (sqrt(vhat) + eps) "
          "(Kingma & Ba 2015); decay added to g, or apart from it (Loshchilov & Hutter 2019).",
          "param m v grad lr t scale", 3, 6, 7, sizeof(adam_attr), adam_fields, infer_piece_update,
          FLOAT_KERNELS(adam_update))

weft_value weft_assign(weft_graph *graph, weft_value state, weft_value value)
{
    return weft_apply(graph, &weft_op_assign, NULL, (weft_value[]){state, value}, 2, NULL);
}

weft_value weft_blend(weft_graph *graph, weft_value state, weft_value value, weft_value decay,
                      weft_value weight)
{
    return weft_apply(graph, &weft_op_blend, NULL, (weft_value[]){state, value, decay, weight}, 4,
                      NULL);
}

/* Fails unless x is in [0, end). */
static bool in_range(weft_graph *graph, const char *op, const char *option, double x, double end)
{
    if (x >= 0 && x < end) return true;
    weft_graph_fail_in(graph, op, WEFT_BAD_ARGUMENT, "%s is %g, it must be in [0, %g)", option, x,
                       end);
    return false;
}

weft_value weft_sgd_update(weft_graph *graph, weft_value param, weft_value buf, weft_value grad,
                           weft_value lr, weft_value scale, const weft_sgd_options *options)
{
    static const weft_sgd_options defaults = {0};
    const weft_sgd_options *o = options ? options : &defaults;
    weft_value in[5] = {param};
    size_t n = 1;
    sgd_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.first = o->first;
    attr.momentum = weft_option(o->momentum, 0);
    attr.dampening = weft_option(o->dampening, 0);
    attr.weight_decay = weft_option(o->weight_decay, 0);
    attr.nesterov = o->nesterov;
    if (!in_range(graph, "sgd_update", "momentum", attr.momentum, INFINITY) ||
        !in_range(graph, "sgd_update", "dampening", attr.dampening, 1) ||
        !in_range(graph, "sgd_update", "weight_decay", attr.weight_decay, INFINITY))
        return WEFT_NO_VALUE;
    if (attr.momentum != 0 && !weft_is_value(buf)) {
        weft_graph_fail_in(graph, "sgd_update", WEFT_BAD_ARGUMENT, "momentum %g needs a buffer",
                           attr.momentum);
        return WEFT_NO_VALUE;
    }
    attr.scaled = weft_is_value(scale);
    if (weft_is_value(buf)) in[n++] = buf;
    in[n++] = grad;
    in[n++] = lr;
    if (attr.scaled) in[n++] = scale;
    return weft_apply(graph, weft_is_value(buf) ? &weft_op_momentum_update : &weft_op_sgd_update,
                      &attr, in, n, NULL);
}

weft_value weft_adam_update(weft_graph *graph, const weft_adam_values *values,
                            const weft_adam_options *options)
{
    const weft_adam_values x = values ? *values : (weft_adam_values){.param = WEFT_NO_VALUE};
    static const weft_adam_options defaults = {0};
    const weft_adam_options *o = options ? options : &defaults;
    adam_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.first = o->first;
    attr.beta1 = weft_option(o->beta1, 0.9);
    attr.beta2 = weft_option(o->beta2, 0.98);
    attr.eps = weft_option(o->eps, 1e-9);
    attr.weight_decay = weft_option(o->weight_decay, 0);
    attr.decoupled = o->decoupled;
    if (!in_range(graph, "adam_update", "beta1", attr.beta1, 1) ||
        !in_range(graph, "adam_update", "beta2", attr.beta2, 1) ||
        !in_range(graph, "adam_update", "eps", attr.eps, INFINITY) ||
        !in_range(graph, "adam_update", "weight_decay", attr.weight_decay, INFINITY))
        return WEFT_NO_VALUE;
    attr.scaled = weft_is_value(x.scale);
    return weft_apply(graph, &weft_op_adam_update, &attr,
                      (weft_value[]){x.param, x.m, x.v, x.grad, x.lr, x.t, x.scale},
                      attr.scaled ? 7 : 6, NULL);
}

#endif
