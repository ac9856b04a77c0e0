/* Ops of the domain com.microsoft that ONNX Runtime's optimiser writes for several ops of ONNX:
 * activations with a bias, matrix products with transposition, normalisation of sums, and the
 * layers of BERT. */
#include "onnx/ops.h"

#include "onnx/quantized.h"

#include <math.h>
#include <string.h>

/* ---- Activations ---- */

/* Input 0, with input 1 added if there is one. */
static weft_value biased(onnx_node *n)
{
    const weft_value x = weft__in_value(n, 0);
    return has_in(n, 1) ? weft_add(n->graph, x, weft__in_value(n, 1)) : x;
}

void weft__microsoft_BiasGelu(onnx_node *n)
{
    weft__set_out(n, 0, weft_gelu(n->graph, biased(n)));
}

void weft__microsoft_FastGelu(onnx_node *n)
{
    weft__set_out(n, 0, weft_gelu_tanh(n->graph, biased(n)));
}

void weft__microsoft_QuickGelu(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0);
    const double alpha = weft__attr_float(n, "alpha", 1.702);
    weft__set_out(n, 0, weft_mul(g, x, weft_sigmoid(g, weft_mul_scalar(g, x, alpha))));
}

weft_value weft__fused_activation(onnx_node *n, weft_value y, const double p[2])
{
    weft_graph *g = n->graph;
    if (weft__attr_is(n, "activation", "", "")) return y;
    if (weft__attr_is(n, "activation", "Relu", "")) return weft_relu(g, y);
    if (weft__attr_is(n, "activation", "Tanh", "")) return weft_tanh(g, y);
    if (weft__attr_is(n, "activation", "Sigmoid", "")) return weft_sigmoid(g, y);
    if (weft__attr_is(n, "activation", "LeakyRelu", "")) return weft_leaky_relu(g, y, p[0]);
    if (weft__attr_is(n, "activation", "Clip", "")) return weft_clamp(g, y, p[0], p[1]);
    if (weft__attr_is(n, "activation", "HardSigmoid", ""))
        return weft_clamp(g, weft_add_scalar(g, weft_mul_scalar(g, y, p[0]), p[1]), 0, 1);
    return weft__node_fail(n, WEFT_NO_KERNEL,
                           "unsupported activation; expected Relu, Tanh, Sigmoid, LeakyRelu, Clip "
                           "or HardSigmoid");
}

/* ---- Matrix products ---- */

/* alpha A' B', whose last two dimensions may be transposed. */
void weft__microsoft_FusedMatMul(onnx_node *n)
{
    weft_graph *g = n->graph;
    static const char *const names[2] = {"transA", "transB"};
    weft_value x[2];
    if (weft__attr_int(n, "transBatchA", 0) || weft__attr_int(n, "transBatchB", 0)) {
        weft__node_fail(n, WEFT_NO_KERNEL, "transBatchA and transBatchB are not supported");
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        x[i] = weft__in_value(n, i);
        if (weft__attr_int(n, names[i], 0) && weft_rank_of(g, x[i]) > 1)
            x[i] = weft_transpose(g, x[i], -2, -1);
    }
    const double alpha = weft__attr_float(n, "alpha", 1);
    const weft_value y = weft__matrix_product(g, x[0], x[1]);
    weft__set_out(n, 0, alpha == 1 ? y : weft_mul_scalar(g, y, alpha));
}

void weft__microsoft_FusedGemm(onnx_node *n)
{
    const double parameters[2] = {weft__attr_float(n, "activation_alpha", 0),
                                  weft__attr_float(n, "activation_beta", 0)};
    weft__set_out(n, 0, weft__fused_activation(n, weft__gemm(n), parameters));
}

/* ---- Normalisation ---- */

/* Inputs: x, what is added to it, gamma, perhaps beta, and perhaps a bias to add as well. Output 3
 * is the sum. */
static void skip_norm(onnx_node *n, bool rms, size_t beta, size_t bias)
{
    weft_graph *g = n->graph;
    const weft_value x = weft__in_value(n, 0), gamma = weft__in_value(n, 2);
    const double eps = weft__attr_float(n, "epsilon", 1e-12);
    weft_value sum = weft_add(g, x, weft__in_value(n, 1));
    if (has_in(n, bias)) sum = weft_add(g, sum, weft__in_value(n, bias));
    if (has_out(n, 1) || has_out(n, 2)) {
        weft__node_fail(n, WEFT_NO_KERNEL, "its outputs 1 and 2 are not supported");
        return;
    }
    weft__set_out(n, 0,
                  rms ? weft_rms_norm(g, sum, gamma, eps)
                      : weft_layer_norm(g, sum, gamma, weft__in_value(n, beta), eps));
    if (has_out(n, 3)) weft__set_out(n, 3, sum);
}

void weft__microsoft_SkipLayerNormalization(onnx_node *n)
{
    skip_norm(n, false, 3, 4);
}

void weft__microsoft_SkipSimplifiedLayerNormalization(onnx_node *n)
{
    skip_norm(n, true, 4, 3);
}

/* Inputs of EmbedLayerNormalization. */
enum { IDS, SEGMENTS, WORDS, PLACES, SEGMENT_TABLE, GAMMA, BETA, EMBED_MASK, PLACE_IDS };

/* Words, positions and segments added, and normalised. Output 1: the ones of each row of the mask. */
void weft__microsoft_EmbedLayerNormalization(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft__in_shape(n, IDS);
    const bool complete = has_in(n, WORDS) && has_in(n, PLACES) && has_in(n, GAMMA) &&
                          has_in(n, BETA) && has_in(n, SEGMENTS) == has_in(n, SEGMENT_TABLE);
    if (weft__node_failed(n)) return;
    if (s.rank != 2 || !complete) {
        weft__node_fail(n, WEFT_BAD_FILE, "needs ids [batch, length], embeddings, gamma and beta");
        return;
    }
    weft_value table = weft__in_value(n, WORDS),
               sum = weft_embedding(g, table, weft__in_value(n, IDS), -1);
    weft_value place = has_in(n, PLACE_IDS)
                           ? weft__in_value(n, PLACE_IDS)
                           : weft_cast(g, weft_arange(g, WEFT_F64, s.dim[1], 0, 1), WEFT_I32);
    table = weft__in_value(n, PLACES);
    sum = weft_add(g, sum, weft_embedding(g, table, place, -1));
    if (has_in(n, SEGMENT_TABLE)) {
        table = weft__in_value(n, SEGMENT_TABLE);
        sum = weft_add(g, sum, weft_embedding(g, table, weft__in_value(n, SEGMENTS), -1));
    }
    const weft_value gamma = weft__in_value(n, GAMMA), beta = weft__in_value(n, BETA);
    weft__set_out(n, 0,
                  weft_layer_norm(g, sum, gamma, beta, weft__attr_float(n, "epsilon", 1e-12)));
    if (has_out(n, 1)) {
        weft_value ones = weft_fill(g, WEFT_F64, WEFT_SHAPE(s.dim[0]), 0);
        if (has_in(n, EMBED_MASK))
            ones = weft_sum(g, weft_cast(g, weft__in_value(n, EMBED_MASK), WEFT_F64), WEFT_AXES(1),
                            false);
        weft__set_typed(n, 1, weft_cast(g, ones, WEFT_I32), ONNX_INT32);
    }
    if (has_out(n, 2)) weft__set_out(n, 2, sum);
}

/* ---- Attention ---- */

/* Inputs of Attention. */
enum { INPUT, WEIGHTS, BIAS, ATTENTION_MASK, PAST, SCORE_BIAS };

typedef struct attention {
    int64_t batch, length, heads;
    weft_value part[3]; /* query, key and value, [batch, heads, length, head_dim] */
} attention;

/* The three parts of input WEIGHTS + BIAS, whose columns they share equally or by an attribute. */
static bool project(onnx_node *n, attention *a)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft__in_shape(n, INPUT), w = weft__in_shape(n, WEIGHTS);
    if (weft__node_failed(n)) return false;
    a->heads = weft__attr_int(n, "num_heads", 0);
    if (s.rank != 3 || w.rank != 2 || a->heads < 1)
        return weft__node_fail(n, WEFT_BAD_SHAPE, "needs [batch, length, features], and num_heads"),
               false;
    a->batch = s.dim[0];
    a->length = s.dim[1];
    int64_t sizes[3] = {w.dim[1] / 3, w.dim[1] / 3, w.dim[1] / 3}, from = 0;
    if (weft__has_attr(n, "qkv_hidden_sizes") &&
        weft__attr_ints(n, "qkv_hidden_sizes", sizes, 3) != 3)
        return weft__node_fail(n, WEFT_BAD_ARGUMENT, "qkv_hidden_sizes must be three"), false;
    weft_value y = weft__in_value(n, INPUT);
    y = weft_matmul(g, y, weft__in_value(n, WEIGHTS));
    if (has_in(n, BIAS)) y = weft_add(g, y, weft__in_value(n, BIAS));
    for (int i = 0; i < 3; from += sizes[i++]) {
        if (sizes[i] < 1 || sizes[i] % a->heads || sizes[0] != sizes[1] ||
            from + sizes[i] > w.dim[1])
            return weft__node_fail(n, WEFT_BAD_SHAPE, "its weights do not fit its heads"), false;
        weft_value part = weft_slice(g, y, 2, from, from + sizes[i], 1);
        part =
            weft_reshape(g, part, WEFT_SHAPE(a->batch, a->length, a->heads, sizes[i] / a->heads));
        a->part[i] = weft_permute(g, part, WEFT_AXES(0, 2, 1, 3));
    }
    return !weft__node_failed(n);
}

/* What is added to the scores, [batch or 1, 1, length or 1, length]: 0 where the mask allows, else
 * a number that is an attribute. The mask has ones for keys [batch, length] or for queries and keys
 * [batch, length, length], or lengths [batch]. */
static weft_value mask_scores(onnx_node *n, const attention *a)
{
    weft_graph *g = n->graph;
    const weft_shape s = weft__in_shape(n, ATTENTION_MASK);
    weft_value mask = weft__in_value(n, ATTENTION_MASK), allowed;
    const bool lengths = s.rank == 1 && s.dim[0] == a->batch;
    if (weft__node_failed(n)) return WEFT_NO_VALUE;
    if (!lengths && s.rank != 2 && s.rank != 3)
        return weft__node_fail(n, WEFT_NO_KERNEL,
                               "its mask must be [batch], [batch, length] or [batch, length, "
                               "length]");
    if (lengths) {
        const weft_value key = weft_cast(g, weft_arange(g, WEFT_F64, a->length, 0, 1), WEFT_I32);
        allowed = weft_less(g, key, weft_reshape(g, mask, WEFT_SHAPE(a->batch, 1, 1, 1)));
    } else {
        allowed = weft_greater(g, mask, weft_scalar(g, WEFT_I32, 0));
        allowed = weft_expand_dims(g, allowed, 1);
        if (s.rank == 2) allowed = weft_expand_dims(g, allowed, 1);
    }
    const double other = weft__attr_float(n, "mask_filter_value", -10000);
    const weft_value zero = weft_scalar(g, WEFT_F32, 0);
    return weft_where(g, allowed, zero, weft_scalar(g, WEFT_F32, other));
}

/* Self-attention with its projections (Vaswani et al. 2017). */
void weft__microsoft_Attention(onnx_node *n)
{
    weft_graph *g = n->graph;
    attention a;
    if (has_in(n, PAST) || has_out(n, 1) || weft__attr_int(n, "do_rotary", 0)) {
        weft__node_fail(n, WEFT_NO_KERNEL, "past keys and do_rotary are not supported");
        return;
    }
    if (!project(n, &a)) return;
    const double size = (double)weft_dim_of(g, a.part[0], 3);
    double scale = weft__attr_float(n, "scale", 0);
    if (scale == 0) scale = 1 / sqrt(size);
    weft_value scores = weft_matmul(g, a.part[0], weft_transpose(g, a.part[1], 2, 3));
    scores = weft_mul_scalar(g, scores, scale);
    if (has_in(n, SCORE_BIAS)) scores = weft_add(g, scores, weft__in_value(n, SCORE_BIAS));
    if (has_in(n, ATTENTION_MASK)) scores = weft_add(g, scores, mask_scores(n, &a));
    if (weft__attr_int(n, "unidirectional", 0)) {
        weft_value key = weft_arange(g, WEFT_F64, a.length, 0, 1);
        weft_value query = weft_reshape(g, key, WEFT_SHAPE(a.length, 1));
        scores = weft_masked_fill(g, scores, weft_greater(g, key, query), -INFINITY);
    }
    weft_value y = weft_matmul(g, weft_softmax(g, scores, -1), a.part[2]);
    weft__set_out(n, 0,
                  weft_reshape(g, weft_permute(g, y, WEFT_AXES(0, 2, 1, 3)),
                               WEFT_SHAPE(a.batch, a.length, -1)));
}
