/* weft/models.h - layers, and the architectures made of them. A layer is a function that declares
 * its parameters in a name scope and returns its output; models are graphs of layers. */
#ifndef WEFT_MODELS_H
#define WEFT_MODELS_H

#include <weft/autograd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Layers --------------------------------------------------------------------------------- */

/* x [..., in] gives x weight + bias [..., features]; parameters NAME.weight [in, features] (Glorot
 * uniform) and NAME.bias [features] (zeros). */
WEFT_API weft_value weft_layer_linear(weft_graph *graph, const char *name, weft_value x,
                                      int64_t features, bool bias);
/* Layer norm with parameters NAME.gamma (ones) and NAME.beta (zeros), each [features], eps 1e-5. */
WEFT_API weft_value weft_layer_layer_norm(weft_graph *graph, const char *name, weft_value x);
/* linear (d_ff), ReLU, dropout, linear (back): parameters NAME.in.*, NAME.out.* */
WEFT_API weft_value weft_layer_feed_forward(weft_graph *graph, const char *name, weft_value x,
                                            int64_t d_ff, double dropout);

/* Multi-head attention ("Attention Is All You Need", 3.2): softmax(q k^T / sqrt(head_dim)) v.
 * query [batch, query_len, d_model], memory [batch, key_len, d_model] (the query itself for
 * self-attention); the result is [batch, query_len, d_model]. */
typedef struct weft_attention_options {
    int64_t heads;    /* must divide d_model */
    int64_t kv_heads; /* of keys and values, each shared by heads / kv_heads; 0: as heads */
    bool bias;        /* in the four projections NAME.q, .k, .v, .out */
    double dropout;   /* of the attention weights */
    /* Bool, broadcasts to [batch, heads, query_len, key_len]: true where a query may NOT look.
     * WEFT_NO_VALUE: it may look everywhere. */
    weft_value mask;
} weft_attention_options;
WEFT_API weft_value weft_layer_attention(weft_graph *graph, const char *name, weft_value query,
                                         weft_value memory, const weft_attention_options *options);

/* [length, features]: PE(pos, 2i) = sin(pos / 10000^(2i / features)), PE(pos, 2i+1) = cos of the
 * same; features must be even. Section 3.5 of the paper. */
WEFT_API weft_value weft_layer_sinusoids(weft_graph *graph, weft_dtype dtype, int64_t length,
                                         int64_t features);

/* ---- The reference Transformer -------------------------------------------------------------- */

typedef struct weft_transformer_config {
    weft_dtype dtype;
    int64_t source_vocab, target_vocab; /* equal if tied */
    bool tied; /* one table for source, target and output, [vocab, d_model] (section 3.4) */
    int64_t d_model, heads, d_ff, encoder_layers, decoder_layers;
    double dropout, label_smoothing;
    bool pre_norm; /* x + f(norm(x)) and a norm at the end of each stack; else norm(x + f(x)) */
    int64_t batch, source_len, target_len;
    int64_t pad_id; /* masked as a source, ignored in the loss */
    bool training;  /* with dropout */
} weft_transformer_config;

/* What a model gives to those who train it. Values that it does not have are WEFT_NO_VALUE. */
typedef struct weft_model_io {
    weft_value source;     /* i32 [batch, source_len], input */
    weft_value target_in;  /* i32 [batch, target_len], input: shifted right */
    weft_value target_out; /* i32 [batch, target_len], input: what the logits should say */
    weft_value logits;     /* [batch, target_len, target_vocab] */
    weft_value loss;       /* scalar, nats: mean over targets that are not pad, with smoothing */
    weft_value nll;        /* the same without smoothing */
} weft_model_io;

/* Encoder and decoder over token ids. Parameters are named enc.0.attn.q.weight and so on. */
WEFT_API weft_status weft_transformer(weft_graph *graph, const weft_transformer_config *config,
                                      weft_model_io *io);

/* ---- The list of models --------------------------------------------------------------------- */

typedef struct weft_model_option {
    const char *name, *doc;
    double value; /* the default */
} weft_model_option;

typedef struct weft_model {
    const char *name, *doc;
    const weft_model_option *options;
    size_t n_options;
    /* `values` are those of the options, in their order. */
    weft_status (*build)(weft_graph *graph, const double *values, bool training, weft_model_io *io);
} weft_model;

#define WEFT_MODEL_OPTIONS 32
WEFT_API size_t weft_model_count(void);
WEFT_API const weft_model *weft_model_at(size_t index);       /* NULL beyond the end */
WEFT_API const weft_model *weft_model_find(const char *name); /* NULL if there is none */
/* Starts from the defaults and applies "key=value" texts to values[model->n_options]. */
WEFT_API weft_status weft_model_parse(const weft_model *model, const char *const *texts, size_t n,
                                      double *values, weft_error *error);
/* Parses and builds; *error tells what was wrong with an option or in the graph. */
WEFT_API weft_status weft_model_build_text(weft_graph *graph, const weft_model *model,
                                           const char *const *texts, size_t n, bool training,
                                           weft_model_io *io, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
