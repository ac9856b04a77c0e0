/* weft/layers.h - layers: functions that declare parameters in a name scope and return an output of
 * their input's dtype. */
#ifndef WEFT_LAYERS_H
#define WEFT_LAYERS_H

#include <weft/parallel.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Layers --------------------------------------------------------------------------------- */

/* Building a layer again under a name that its scope already has is WEFT_BAD_ARGUMENT. While
 * weft_graph_share is on, it has the same weights instead:
 *
 *     y = weft_nn_linear(g, "project", x, 64, true);
 *     const bool shared = weft_graph_share(g, true);
 *     z = weft_nn_linear(g, "project", y, 64, true);
 *     weft_graph_share(g, shared);
 */

/* Returns x weight + bias, [..., features], for x [..., in]. Parameters: NAME.weight [in, features]
 * (Glorot uniform) and NAME.bias [features] (zeros). */
WEFT_API weft_value weft_nn_linear(weft_graph *graph, const char *name, weft_value x,
                                   int64_t features, bool bias);
/* The same, split among ranks as in Shoeybi et al., "Megatron-LM", 2019; ranks of size 0 or 1: not
 * split. Each rank has a part of the parameters (weft_part), whose names stay. By columns: x is a
 * shared value, the result of weft_copy_to_ranks; the result has this rank's part of the features,
 * whose number size must divide. By rows: x [..., in / size] is such a part, and the result [...,
 * features] is shared: the sum over ranks, to which the bias is added once. */
WEFT_API weft_value weft_nn_linear_columns(weft_graph *graph, const char *name, weft_value x,
                                           int64_t features, bool bias, weft_ranks ranks);
WEFT_API weft_value weft_nn_linear_rows(weft_graph *graph, const char *name, weft_value x,
                                        int64_t features, bool bias, weft_ranks ranks);
/* Layer norm over the last axis, with parameters NAME.gamma (ones) and NAME.beta (zeros), each
 * [features]. */
WEFT_API weft_value weft_nn_layer_norm(weft_graph *graph, const char *name, weft_value x,
                                       double eps);
/* RMS norm over the last axis, with the parameter NAME.gamma (ones) [features]. */
WEFT_API weft_value weft_nn_rms_norm(weft_graph *graph, const char *name, weft_value x, double eps);
/* The embedding matrix NAME [vocab, width], normal with deviation 1 / sqrt(width), for
 * weft_embedding and, transposed, for logits. */
WEFT_API weft_value weft_nn_embedding_table(weft_graph *graph, const char *name, weft_dtype dtype,
                                            int64_t vocab, int64_t width);

typedef enum weft_activation {
    WEFT_RELU,
    WEFT_GELU,
    WEFT_GELU_TANH,
    WEFT_SILU,
    WEFT_TANH
} weft_activation;

/* linear (d_ff), activation, dropout, linear (back): parameters NAME.in.*, NAME.out.*; Gated
 * (Shazeer 2020): activation(linear NAME.gate) times the linear NAME.in, then NAME.out. */
typedef struct weft_nn_feed_forward_options {
    int64_t d_ff;               /* 0: four times the width of x */
    weft_activation activation; /* 0: relu */
    bool gated, bias;
    double dropout; /* of the hidden values */
    /* Splits NAME.in and NAME.gate by columns and NAME.out by rows among ranks, whose number must
     * divide d_ff. x and the result are shared values (<weft/parallel.h>). Dropout draws by the
     * rank and the elements of its own hidden values, so results with dropout differ from those of
     * a layer that is not split. */
    weft_ranks tensor;
} weft_nn_feed_forward_options;
WEFT_API weft_value weft_nn_feed_forward(weft_graph *graph, const char *name, weft_value x,
                                         const weft_nn_feed_forward_options *options);

/* A constant [length, features]: PE(pos, 2i) = sin(pos / 10000^(2i / features)), PE(pos, 2i+1) =
 * cos of the same; features must be even. "Attention Is All You Need", 3.5. */
WEFT_API weft_value weft_nn_sinusoidal_positions(weft_graph *graph, weft_dtype dtype,
                                                 int64_t length, int64_t features);
/* The same numbers in another order: PE(pos, i) = sin(pos / 10000^(2i / features)) for i below
 * features / 2, then the cosines. tensor2tensor and Marian have this order. */
WEFT_API weft_value weft_nn_sinusoidal_halves(weft_graph *graph, weft_dtype dtype, int64_t length,
                                              int64_t features);
/* Learned positions: the first `length` rows of the parameter NAME [max_positions, features]
 * (normal, deviation 0.02). */
WEFT_API weft_value weft_nn_positions(weft_graph *graph, const char *name, weft_dtype dtype,
                                      int64_t length, int64_t max_positions, int64_t features);
/* i32 [count]: position, position + 1, ..., for an i32 scalar; [rows, count] for i32 [rows]. */
WEFT_API weft_value weft_nn_positions_at(weft_graph *graph, weft_value position, int64_t count);
/* Rotary positions (Su et al. 2021): x [batch, length, heads, head_dim], head_dim even. The pair
 * (x[i], x[i + head_dim/2]) at position p is rotated by the angle p base^(-2i / head_dim). */
WEFT_API weft_value weft_nn_rotary(weft_graph *graph, weft_value x, double base);
/* The same for x [batch, count, heads, head_dim] at the positions from `position`, an i32 scalar or
 * i32 [batch]; all are below `max_positions`. */
WEFT_API weft_value weft_nn_rotary_at(weft_graph *graph, weft_value x, double base,
                                      weft_value position, int64_t max_positions);
/* The cosines and sines of these angles at positions 0 .. length - 1: constants [length,
 * head_dim / 2], which all attentions of a graph can share. */
typedef struct weft_rotary {
    weft_value cosines, sines;
} weft_rotary;
WEFT_API weft_rotary weft_nn_rotary_angles(weft_graph *graph, weft_dtype dtype, int64_t length,
                                           int64_t head_dim, double base);

/* Which frequencies (angles between two positions) of pairs are divided by a factor, for texts
 * longer than those of the training. A pair of frequency f makes positions f / (2 pi) turns in the
 * training's positions. */
typedef enum weft_rotary_rule {
    WEFT_ROTARY_PLAIN,
    WEFT_ROTARY_LINEAR,  /* all (Chen et al. 2023) */
    WEFT_ROTARY_LLAMA3,  /* those below `slow` turns, and none above `fast`; in between f is
                           interpolated by turns (Llama 3.1) */
    WEFT_ROTARY_YARN,    /* the same, interpolated by the index of the pair (Peng et al. 2023) */
    WEFT_ROTARY_LONGROPE /* each by a factor of its own (Ding et al. 2024) */
} weft_rotary_rule;
#define WEFT_ROTARY_FACTORS 64 /* pairs that LONGROPE can scale */
typedef struct weft_rotary_scaling {
    weft_rotary_rule rule;
    double factor;     /* 0: 1 */
    double slow, fast; /* turns; 0: 1 and, for LLAMA3, 4, for YARN 32 */
    int64_t positions; /* of the training; LLAMA3 and YARN need them. LONGROPE: the positions that
                          the factors are for, and no more are computed; 0: any number */
    double magnitude;  /* YARN and LONGROPE multiply cosines and sines by it; 0: for YARN
                          0.1 ln(factor) + 1, at least 1; for LONGROPE 1 */
    /* LONGROPE: what divides the frequency of each pair, above 0; 0 ends a shorter list. */
    float factors[WEFT_ROTARY_FACTORS];
} weft_rotary_scaling;
/* The angles of scaled frequencies, of `width` elements: constants [length, width / 2]. NULL is a
 * struct of zeros. Errors: WEFT_BAD_ARGUMENT if the scaling has no such frequencies. */
WEFT_API weft_rotary weft_nn_scaled_rotary_angles(weft_graph *graph, weft_dtype dtype,
                                                  int64_t length, int64_t width, double base,
                                                  const weft_rotary_scaling *scaling);
/* Rotates x by the angles of at least as many positions. Positions begin at `position`, an i32
 * scalar or i32 [batch], or at 0 if it is WEFT_NO_VALUE. If the angles are of fewer elements than
 * head_dim, only the first ones of each head are rotated. */
WEFT_API weft_value weft_nn_rotate(weft_graph *graph, weft_value x, const weft_rotary *angles,
                                   weft_value position);
/* Maximum number of elements of sinusoidal positions or rotary angles; above it WEFT_TOO_LARGE. */
#define WEFT_MAX_TABLE ((int64_t)1 << 25)

/* ---- Attention ------------------------------------------------------------------------------ */

typedef enum weft_projection {
    WEFT_PROJECT_SEPARATE, /* NAME.q, NAME.k, NAME.v */
    WEFT_PROJECT_FUSED,    /* NAME.qkv: the columns of head 0's q, its k, its v, then head 1's, ...;
                              for self-attention with as many key heads as heads */
    WEFT_PROJECT_SHARED,   /* NAME.q, .k, .v are [head_dim, head_dim], the same for every head */
    WEFT_PROJECT_NONE      /* q, k and v are slices of the inputs themselves */
} weft_projection;

/* Multi-head attention ("Attention Is All You Need", 3.2): softmax(scale q k^T) v by heads, which
 * are then concatenated and projected by NAME.out. */
typedef struct weft_nn_attention_options {
    int64_t heads;    /* must divide d_model unless head_dim is set; 0: 1 */
    int64_t kv_heads; /* of keys and values, each shared by heads / kv_heads; 0: as heads */
    weft_projection projection; /* 0: separate */
    bool bias;                  /* of the projections to q, k and v */
    bool out_bias;              /* of NAME.out */
    bool no_out;                /* without NAME.out */
    bool merge_as_rows; /* reshapes [batch, heads, length, head_dim] without transposing heads and
                           positions first. This common mistake mixes positions; some trained models
                           need it */
    double scale;       /* of the scores; 0: 1 / sqrt(head_dim) */
    double rotary_base; /* rotary positions of q and k, usually 10000; 0: none */
    weft_rotary
        rotary;     /* their angles; WEFT_NO_VALUE: made by the attention, or once by the stack */
    double dropout; /* of the attention weights */
    bool causal;    /* query i attends to keys 0 .. i + key_len - query_len only */
    /* Bool, broadcasts to [batch, heads, query_len, key_len]: true where attention is masked out.
     * WEFT_NO_VALUE: nowhere. */
    weft_value mask;
    bool expose_weights; /* stores the attention weights as the value NAME.weights [batch, heads,
                            query_len, key_len] */
    weft_value *weights; /* if not NULL, set to that value; unchanged without expose_weights */
    /* Splits the heads among ranks, whose number must divide heads and kv_heads: the projections to
     * q, k and v by columns, NAME.out by rows. Query, memory and result are shared values
     * (<weft/parallel.h>); q, k, v and weights have this rank's heads. Needs separate or fused
     * projections and NAME.out. Dropout draws by the rank and the elements of its own weights, so
     * results with dropout differ from those of attention that is not split. All ranks need the
     * same seed, so that dropout of shared values is the same on all of them. */
    weft_ranks tensor;
    bool copied_memory; /* split cross-attention: memory is already copied (weft_copy_to_ranks), so
                           that several attentions sum their gradients of it before the ranks do */
    /* query i attends only to keys j > i + key_len - query_len - window: with `causal`, to the last
     * `window` positions, itself included (Beltagy et al. 2020, "Longformer"); 0: to all */
    int64_t window;
    /* Width of a head of q, k and v; 0: d_model / heads. Another width needs separate projections;
     * NAME.out then is [heads * head_dim, d_model]. */
    int64_t head_dim;
    /* RMS norm of each head of q and of k before they are rotated, as Qwen 3 has: the parameters
     * NAME.norm_q.gamma and NAME.norm_k.gamma, each [head_dim]. */
    bool norm_qk;
    double norm_eps;     /* of these norms; 0: WEFT_NORM_EPS; WEFT_ZERO: 0 */
    bool gamma_plus_one; /* they multiply by 1 + gamma, and gamma starts at zeros */
    int64_t rotary_dim;  /* the first elements of a head that are rotated; 0: all */
    weft_rotary_scaling rotary_scaling;
    /* Scores s are soft_cap tanh(s / soft_cap), as in Gemma 2; 0: they are not capped. Attention is
     * then plain ops, which store the scores. */
    double soft_cap;
} weft_nn_attention_options;

/* Intermediate values, for inspection. */
typedef struct weft_nn_attention_parts {
    weft_value q, k, v; /* [batch, heads or kv_heads, length, head_dim] */
    weft_value scores;  /* q k^T, [batch, heads, query_len, key_len] */
    weft_value scaled;  /* scores times the scale, capped; -inf where masked */
    weft_value weights; /* softmax of `scaled`, before dropout; zeros where every key is masked */
    weft_value dropped; /* weights after dropout, which multiply v */
    weft_value context; /* [batch, heads, query_len, head_dim] */
} weft_nn_attention_parts;

/* query [batch, query_len, d_model], memory [batch, key_len, d_model] (the query itself for
 * self-attention); the result is [batch, query_len, d_model]. Attention is one op that never stores
 * the scores. If `parts` is not NULL, it is plain ops instead, and *parts receives their values. */
WEFT_API weft_value weft_nn_attention(weft_graph *graph, const char *name, weft_value query,
                                      weft_value memory, const weft_nn_attention_options *options,
                                      weft_nn_attention_parts *parts);

/* ---- Attention, a position at a time -------------------------------------------------------- */

/* The layout of a state of decoding. */
typedef struct weft_cache_layout {
    bool by_row; /* axis 0: rows; false: sources */
    enum {
        WEFT_CACHE_WHOLE,  /* the whole row is in use */
        WEFT_CACHE_TARGET, /* axis 1: positions of the target; those in use come first */
        WEFT_CACHE_SOURCE  /* axis 1: positions of the source; those in use come first */
    } positions;
} weft_cache_layout;

/* Called for each state as it is declared. */
typedef void (*weft_cache_declare)(void *context, const weft_graph *graph, weft_value state,
                                   weft_cache_layout layout);

/* Keys and values of earlier positions, in states that persist between runs. A run computes one or
 * a few new positions of each of `batch` rows; its cost is linear in key_len. The states may have
 * more rows than the graph, which uses the first. */
typedef struct weft_cache {
    weft_value position; /* i32 scalar, or i32 [batch] if rows have positions of their own: of the
                            first new position, all of them below key_len */
    weft_value parents;  /* i32 [batch]: row i continues row parents[i] of the states;
                            WEFT_NO_VALUE: row i. Needs a scalar position */
    int64_t max_rows;    /* of the states NAME.cache.k and NAME.cache.v, [max_rows, max_len,
                             kv_heads, head_dim]; 0: batch */
    int64_t max_len;     /* positions of these states */
    int64_t key_len;     /* this graph attends to the first key_len positions */
    int64_t sources; /* cross-attention: row i attends to source i / (batch / sources); 0: none */
    int64_t max_sources; /* of the states of cross-attention, [max_sources, max_source_len,
                            kv_heads, head_dim]; 0: sources */
    int64_t max_source_len,
        source_len; /* positions of these states; this graph attends to the first source_len */
    weft_cache_declare declare; /* NULL: layouts are not reported */
    void *declare_context;
    weft_dtype dtype; /* of the states: WEFT_F32 (the default): that of x; WEFT_BF16 or WEFT_U8:
                         rows of weft_narrow_rows, if x is f32 */
} weft_cache;

/* Causal self-attention of x [batch, count, d_model] to itself and the earlier positions. The
 * result equals that of weft_nn_attention with `causal`, and the same window, at these
 * positions, with the same parameters. `mask` and `causal` are ignored. `merge_as_rows` is an
 * error, since it mixes positions. */
WEFT_API weft_value weft_nn_attention_step(weft_graph *graph, const char *name, weft_value x,
                                           const weft_nn_attention_options *options,
                                           const weft_cache *cache);
/* Projects memory [at most max_sources, source_len, d_model] and writes its keys and values into
 * the states NAME.cache.k and NAME.cache.v. Returns a plan target of both updates. */
WEFT_API weft_value weft_nn_prefill_cross_cache(weft_graph *graph, const char *name,
                                                weft_value memory,
                                                const weft_nn_attention_options *options,
                                                const weft_cache *cache);
/* Attention of x [batch, count, d_model] to these states; `mask` broadcasts to [sources, heads,
 * count * batch / sources, source_len]. */
WEFT_API weft_value weft_nn_cross_attention_step(weft_graph *graph, const char *name, weft_value x,
                                                 const weft_nn_attention_options *options,
                                                 const weft_cache *cache);

/* ---- Transformer blocks --------------------------------------------------------------------- */

typedef enum weft_norm { WEFT_LAYER_NORM, WEFT_RMS_NORM } weft_norm;
typedef enum weft_norm_position {
    WEFT_PRE_NORM,          /* x + dropout(f(norm(x))), and a norm at the end of a stack */
    WEFT_POST_NORM,         /* norm(x + dropout(f(x))), as in the paper */
    WEFT_POST_NORM_DROPPED, /* dropout(norm(x + f(x))) */
    WEFT_BOTH_NORMS /* x + dropout(norm(f(norm(x)))), as in Gemma 2, and a norm at the end of a
                               stack. The outer norms are norm_attn_out, norm_ffn_out, ... */
} weft_norm_position;

#define WEFT_NORM_EPS 1e-5 /* the default that norms add to variances */

/* One layer of an encoder or decoder: self-attention, attention to a memory if there is one,
 * feed-forward, each with residual connection, norm and dropout. */
typedef struct weft_nn_block_options {
    /* Of both attentions, except `causal` and `mask`, which belong to self-attention. With fused
     * projections, cross-attention has separate ones. */
    weft_nn_attention_options attention;
    weft_nn_feed_forward_options feed_forward;
    weft_norm norm;                   /* 0: layer norm */
    weft_norm_position norm_position; /* 0: pre-norm */
    double eps;                       /* of the norms; 0: WEFT_NORM_EPS; WEFT_ZERO: 0 */
    bool
        gamma_plus_one; /* RMS norms multiply by 1 + gamma, and gamma starts at zeros, as in Gemma */
    double dropout;     /* of the sub-layers' results */
    /* Of a stack whose attention has a window: layers n - 1, 2n - 1, ... have none. 0: all have it.
     * The layers that have it may have another rotary base, without scaling; 0: the same angles. */
    int64_t global_every;
    double local_rotary_base;
    const weft_cache *cache; /* not NULL: x has only the next positions, [batch, count, d_model],
                                and cross-attention (if the cache has sources) reads the states of
                                weft_nn_stack_prefill_cross_cache. NULL: x has whole sequences */
    weft_value
        *cross_weights; /* with attention.expose_weights: set to the weights of cross-attention; for
                           a stack, one element per layer. May be NULL */
} weft_nn_block_options;
/* x [batch, length, d_model]; memory [batch, memory_len, d_model] or WEFT_NO_VALUE; memory_mask as
 * in weft_nn_attention_options. Parameters attn.*, norm_attn.*, cross.*, norm_cross.*, ffn.*,
 * norm_ffn.* of the current scope. */
WEFT_API weft_value weft_nn_block(weft_graph *graph, weft_value x, weft_value memory,
                                  weft_value memory_mask, const weft_nn_block_options *options);
#define WEFT_MAX_LAYERS 1000
/* Blocks SCOPE.0, SCOPE.1, ..., and SCOPE.norm at the end if they are pre-norm. At most
 * WEFT_MAX_LAYERS: above it WEFT_TOO_LARGE. */
WEFT_API weft_value weft_nn_stack(weft_graph *graph, const char *scope, int64_t layers,
                                  weft_value x, weft_value memory, weft_value memory_mask,
                                  const weft_nn_block_options *options);

/* Writes the keys and values of memory for all cross-attentions of a stack into the states of
 * options->cache. Returns a plan target of all updates. */
WEFT_API weft_value weft_nn_stack_prefill_cross_cache(weft_graph *graph, const char *scope,
                                                      int64_t layers, weft_value memory,
                                                      const weft_nn_block_options *options);

/* ---- Layers of images ----------------------------------------------------------------------- */

/* Images are [images, channels, spatial...]. Parameters have PyTorch's names and layouts, so that
 * its files of a model with the same names can be loaded as they are (weft_params_load). */

typedef struct weft_nn_conv_options {
    int64_t channels;  /* of the result; required */
    int64_t kernel[3]; /* its size in each spatial dimension; 0: 1 */
    bool bias;
    weft_conv_options conv; /* strides, padding, groups, as in <weft/ops.h> */
} weft_nn_conv_options;
/* weft_conv of x with 1 to 3 spatial dimensions. Parameters: NAME.weight [channels, in / groups,
 * kernel...] (normal with variance 2 groups / (channels times the kernel's elements), He et al.
 * 2015) and NAME.bias [channels] (zeros). */
WEFT_API weft_value weft_nn_conv(weft_graph *graph, const char *name, weft_value x,
                                 const weft_nn_conv_options *options);

/* weft_conv_transpose of x with 1 to 3 spatial dimensions, as PyTorch's ConvTranspose. Parameters:
 * NAME.weight [in, channels / groups, kernel...] and NAME.bias [channels], both uniform in
 * [-b, b) with b = (channels / groups times the kernel's elements)^(-1/2), as PyTorch draws them.
 * Options are those of weft_nn_conv. */
WEFT_API weft_value weft_nn_conv_transpose(weft_graph *graph, const char *name, weft_value x,
                                           const weft_nn_conv_options *options);

typedef struct weft_nn_batch_norm_options {
    double eps;      /* 0: WEFT_NORM_EPS; WEFT_ZERO: 0 */
    double momentum; /* by how much training moves the running statistics; 0: 0.1; WEFT_ZERO: 0 */
    bool training;   /* normalises by the mean and the population variance of the batch, and tracks
                        them (weft_track); false, or if the statistics are frozen
                        (weft_graph_freeze): normalises by the running statistics */
} weft_nn_batch_norm_options;
/* Batch norm (Ioffe & Szegedy 2015) of each channel over images and positions: (x - mean) /
 * sqrt(variance + eps) * weight + bias, for x [images, channels, ...]. Parameters NAME.weight
 * (ones) and NAME.bias (zeros), states NAME.running_mean (zeros) and NAME.running_var (ones), which
 * are not trainable, each [channels]. As in PyTorch, the running variance follows the sample
 * variance of the batch: the sum of squares divided by n - 1, for n > 1 numbers of a channel.
 * `options` may be NULL.
 */
WEFT_API weft_value weft_nn_batch_norm(weft_graph *graph, const char *name, weft_value x,
                                       const weft_nn_batch_norm_options *options);
/* Group norm (Wu & He 2018): the same with mean and variance of each image and group of adjacent
 * channels. `groups` divides the channels. Parameters NAME.weight (ones) and NAME.bias (zeros). */
WEFT_API weft_value weft_nn_group_norm(weft_graph *graph, const char *name, weft_value x,
                                       int64_t groups, double eps);
/* x [images, channels, spatial...] with each spatial size times `factor`, rounded down, as
 * PyTorch's Upsample: nearest by the coordinate i / factor, rounded down; linear (bilinear,
 * trilinear) and cubic with half-pixel coordinates, or weft_resize with align_corners. 1 to 3
 * spatial dimensions. A factor that is not finite, or leads to a size below 1, is
 * WEFT_BAD_ARGUMENT. No parameters. */
WEFT_API weft_value weft_nn_upsample(weft_graph *graph, weft_value x, double factor,
                                     weft_resize_mode mode);
/* The mean of each channel: [images, channels] for x [images, channels, ...]. */
WEFT_API weft_value weft_nn_global_average_pool(weft_graph *graph, weft_value x);
/* weft_nn_linear with the weight as PyTorch stores it: NAME.weight [features, in]. It and
 * NAME.bias start uniform in +-1 / sqrt(in). */
WEFT_API weft_value weft_nn_linear_transposed(weft_graph *graph, const char *name, weft_value x,
                                              int64_t features, bool bias);

/* ---- Recurrent layers ----------------------------------------------------------------------- */

/* One step, from x_t [batch, in] and the state h_(t-1) [batch, hidden] (LSTM: and c_(t-1)):
 *   RNN:  h_t = tanh(x W_x + h W_h + b)                                        Elman 1990
 *   LSTM: f, i, c~, o = sigmoid, sigmoid, tanh, sigmoid of x W_x + h W_h + b,
 *         c_t = f c_(t-1) + i c~,  h_t = o tanh(c_t)     Hochreiter & Schmidhuber 1997, Gers 2000
 *   GRU:  r, z = sigmoid(x W_x + h W_h + b),  n = tanh(x W_x + b + r (h W_h + b_h)),
 *         h_t = (1 - z) n + z h_(t-1)   Cho et al. 2014, in the variant of cuDNN and PyTorch: the
 *         reset gate acts after the product
 * Parameters: NAME.weight_x [in, gates * hidden], NAME.weight_h [hidden, gates * hidden], NAME.bias
 * [gates * hidden], for a GRU also NAME.bias_h [hidden]. The gates are adjacent columns in the
 * order above: f, i, c~, o; r, z, n. Weights start normal with variance 1 / (in + hidden), those of
 * an RNN with 1 / in and 1 / hidden; biases are zero. */
typedef enum weft_recurrent_kind { WEFT_RNN, WEFT_LSTM, WEFT_GRU } weft_recurrent_kind;

/* The state after a step. `c` is WEFT_NO_VALUE unless the kind is WEFT_LSTM. */
typedef struct weft_recurrent_state {
    weft_value h, c; /* [batch, hidden] */
} weft_recurrent_state;

/* A layer for models that build each step themselves, such as a decoder with attention. */
typedef struct weft_recurrent {
    weft_recurrent_kind kind;
    int64_t in, hidden;
    weft_value weight_x, weight_h, bias, bias_h;
} weft_recurrent;
WEFT_API weft_recurrent weft_nn_recurrent_declare(weft_graph *graph, const char *name,
                                                  weft_recurrent_kind kind, weft_dtype dtype,
                                                  int64_t in, int64_t hidden);
/* Returns x W_x + b, [..., gates * hidden], for x [..., in]. One matrix product serves all steps.
 */
WEFT_API weft_value weft_nn_recurrent_project(weft_graph *graph, const weft_recurrent *layer,
                                              weft_value x);
/* One step from the projection of x_t, [batch, gates * hidden]. */
WEFT_API weft_recurrent_state weft_nn_recurrent_step(weft_graph *graph, const weft_recurrent *layer,
                                                     weft_value projected,
                                                     weft_recurrent_state state);
/* The state of zeros. */
WEFT_API weft_recurrent_state weft_nn_recurrent_zeros(weft_graph *graph, weft_recurrent_kind kind,
                                                      weft_dtype dtype, int64_t batch,
                                                      int64_t hidden);

typedef struct weft_nn_recurrent_options {
    bool reverse;                 /* from the last step to the first; h_t is still at index t */
    weft_recurrent_state initial; /* h or c WEFT_NO_VALUE: zeros */
    weft_value mask; /* bool [batch, len]: true where a step does not change the state (padding);
                        WEFT_NO_VALUE: nowhere */
} weft_nn_recurrent_options;
/* A layer over a sequence: returns all h_t [batch, len, hidden] for x [batch, len, in]. Sets *last, if
 * not NULL, to the state after the last step. `options` may be NULL. From 16 steps on, the steps are a
 * loop (weft_scan), so the size of the graph does not depend on len; fewer are nodes. Both have the same
 * bits; gradients agree to rounding. */
WEFT_API weft_value weft_nn_recurrent(weft_graph *graph, const char *name, weft_recurrent_kind kind,
                                      weft_value x, int64_t hidden,
                                      const weft_nn_recurrent_options *options,
                                      weft_recurrent_state *last);

#define WEFT_RECURRENT_LAYERS 16
typedef struct weft_nn_recurrent_stack_options {
    int64_t layers;     /* 1 .. WEFT_RECURRENT_LAYERS: NAME.0, NAME.1, ...; 0: 1 */
    bool bidirectional; /* each layer is a pair of half the width, NAME.0.forward and
                           NAME.0.backward, whose outputs are concatenated; hidden must be even
                           (Schuster & Paliwal 1997) */
    double dropout;     /* between layers */
    weft_value mask;    /* as above */
    const weft_recurrent_state *initial; /* [layers]; NULL: zeros. Halves for the two directions */
} weft_nn_recurrent_stack_options;
/* A stack of layers, from x [batch, len, in] to [batch, len, hidden]. Fills last[layers], if not
 * NULL; the last states of a pair are concatenated like its outputs. */
WEFT_API weft_value weft_nn_recurrent_stack(weft_graph *graph, const char *name,
                                            weft_recurrent_kind kind, weft_value x, int64_t hidden,
                                            const weft_nn_recurrent_stack_options *options,
                                            weft_recurrent_state *last);

#ifdef __cplusplus
}
#endif
#endif
