/* weft/models.h - architectures (functions that build graphs of layers), and the list of models. */
#ifndef WEFT_MODELS_H
#define WEFT_MODELS_H

#include <weft/build.h>
#include <weft/layers.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- One graph of a model ------------------------------------------------------------------- */

/* The graphs of all models have these names in their weft_built, in this order. A token model
 * predicts logits, a model of vectors vectors, and a model of images the logits of a class.
 *
 * | input       | dtype, shape                   |                                               |
 * |-------------|--------------------------------|-----------------------------------------------|
 * | source      | i32 [rows, source_len]         | tokens to encode                              |
 * | input       | [rows, target_len, width], or  | vectors, or images                            |
 * |             | [rows, channels, height, width]|                                               |
 * | memory      | [rows, source_len, width]      | keys and values of cross-attention            |
 * | hidden      | bool [rows, keys]              | true where attention is masked out            |
 * | target_in   | i32 [rows, target_len]         | tokens that the model reads                   |
 * | token_types | i32 [rows, target_len]         | 0 where it is not fed                         |
 * | target_out  | i32 [rows, target_len]         | tokens to predict                             |
 * | labels      | i32 [rows]                     | classes of images                             |
 * | target      | of the output's shape          | wanted vectors                                |
 *
 * The last input is the one that the loss compares with the output; no output depends on it.
 *
 * | output      | shape                          |                                               |
 * |-------------|--------------------------------|-----------------------------------------------|
 * | logits      | [rows, target_len, vocab], or  | of tokens, or of classes                      |
 * |             | [rows, classes]                |                                               |
 * | output      | [rows, target_len, width]      | of a model of vectors                         |
 * | hidden      | [rows, target_len, d_model]    | of a Transformer's last block, and of the     |
 * |             |                                | norm after it, if there is one                |
 * | pooled      | [rows, d_model]                | with weft_language_config.pooler              |
 * | weights     | [rows, heads, target_len,      | with expose_weights: attention weights of the |
 * |             | source_len], or [rows,         | chosen layer over the source; without heads   |
 * |             | target_len, source_len]        | in weft_seq2seq_build                         |
 *
 * `loss` of tokens is in nats, the mean over targets that are not pad, with label smoothing; of
 * images it is the same over all of them, and of vectors the mean squared error. `metric` is the
 * loss without smoothing. `accuracy`, of images, is the fraction whose class has the largest
 * logit. */

/* ---- Decoding ------------------------------------------------------------------------------- */

/* Sizes and values of a graph of decoding, which computes one position (or `count` of them) over
 * states that hold the earlier ones. The caller sets the sizes; the model returns them with values.
 *
 * A graph decodes sentences * beams rows; the rows of a sentence are adjacent. Graphs of different
 * sizes share states, whose axis 0 is max_sentences or max_sentences * max_beams long; each graph
 * uses the first of these. Encoding has one beam: the first token step continues from row i of the
 * states for sentence i. */
typedef struct weft_decode_io {
    int64_t sentences, beams;
    int64_t max_sentences, max_beams;
    int64_t count;                      /* tokens per row in a token step */
    int64_t max_len, key_len;           /* positions of the states, and the number attended to */
    int64_t max_source_len, source_len; /* the same for the source; 0: no source */
    /* Called with the layout of each state of rows (axis 0: max_sentences * max_beams) or of
     * sentences (axis 0: max_sentences). States that depend on parameters only are not reported.
     * May be NULL. */
    weft_cache_declare declare;
    void *declare_context;
    /* The parameters are quantised (weft/quantize.h): a tied embedding matrix is multiplied with as
     * it lies. Otherwise a state has its transpose. */
    bool quantized;
    weft_dtype cache;    /* of keys and values: weft_cache.dtype */
    weft_value source;   /* encoding: i32 [sentences, source_len], input */
    weft_value token;    /* token step: i32 [rows, count], input: the tokens from `position` on */
    weft_value position; /* i32 scalar, input: 0 in the first token step, then `count` more in each;
                     with own_positions i32 [rows] */
    weft_value parents;  /* i32 [rows], input: row i continues row parents[i] of the states */
    weft_value updated;  /* plan target: all updates of the states */
    weft_value logits;   /* token step: [rows, vocab], for the token at position + count */
    /* Set by the caller for a token step whose rows are at positions of their own, and continue
     * themselves: there are no parents. Recurrent models have no such steps. */
    bool own_positions;
} weft_decode_io;

/* ---- Architectures -------------------------------------------------------------------------- */

/* An architecture is a function that builds its graph and returns its values, as a layer does.
 * Errors are the graph's; then the values are missing or unusable. The functions of decoding
 * return the sizes that they were given, with the values of their graph.
 *
 * A configuration (weft_..._config) has the hyperparameters; weft_build_options has the sizes of a
 * batch. Unlike options, configurations are required (NULL is WEFT_BAD_ARGUMENT), and so are their
 * sizes and numbers of layers. Other zeros mean f32, false, no dropout, token 0. */

typedef enum weft_positions {
    WEFT_POSITIONS_NONE, /* none added; attention may still be rotary */
    WEFT_POSITIONS_SINUSOIDAL,
    WEFT_POSITIONS_LEARNED,
    WEFT_POSITIONS_SINUSOIDAL_HALVES /* all sines, then all cosines */
} weft_positions;

/* Whether logits have a bias. */
typedef enum weft_output_bias {
    WEFT_OUTPUT_BIAS_UNTIED, /* if the output has a weight of its own */
    WEFT_OUTPUT_BIAS_NONE,
    WEFT_OUTPUT_BIAS_ALWAYS
} weft_output_bias;

/* The common configuration of token models. */
typedef struct weft_text_config {
    weft_dtype dtype;
    int64_t d_model;
    bool tied;              /* the output's weight is the embedding matrix (section 3.4) */
    bool scaled_embeddings; /* times sqrt(d_model) (section 3.4) */
    weft_positions positions;
    int64_t max_positions;   /* of learned positions */
    int64_t position_offset; /* of learned positions: position 0 is this row of their parameter,
                                which has position_offset + max_positions rows */
    weft_output_bias output_bias; /* the parameter output.bias */
    double logit_soft_cap; /* logits z are logit_soft_cap tanh(z / logit_soft_cap), as in Gemma
                                     2; 0: they are not capped */
    double dropout;        /* of embeddings plus positions */
    double label_smoothing;
    int64_t pad_id;              /* masked as a source, ignored in the loss */
    weft_nn_block_options block; /* of every layer */
} weft_text_config;

/* The encoder-decoder Transformer of Vaswani et al., "Attention Is All You Need", 2017. With
 * `tied`, source and target share one embedding matrix, named embedding; else they have
 * source_embedding, target_embedding and output.*. Layers are enc.0.*, dec.0.*, ... */
typedef struct weft_transformer_config {
    weft_text_config text;
    int64_t source_vocab, target_vocab; /* equal if tied */
    bool norm_embeddings; /* layer norms over source and over target embeddings plus positions, as
                             BART has */
    int64_t encoder_layers, decoder_layers;
} weft_transformer_config;
WEFT_API weft_built weft_transformer_build(weft_graph *graph, const weft_transformer_config *config,
                                           const weft_build_options *build);

/* Three graphs on the parameters of weft_transformer_build, without dropout. `prepare` computes the
 * states that depend on parameters only (a tied embedding matrix, transposed for the logits).
 * `encode` encodes sources into states. `step` is one token step. */
WEFT_API weft_decode_io weft_transformer_prepare(weft_graph *graph,
                                                 const weft_transformer_config *config,
                                                 const weft_decode_io *sizes);
WEFT_API weft_decode_io weft_transformer_encode(weft_graph *graph,
                                                const weft_transformer_config *config,
                                                const weft_decode_io *sizes);
WEFT_API weft_decode_io weft_transformer_step(weft_graph *graph,
                                              const weft_transformer_config *config,
                                              const weft_decode_io *sizes);

/* One stack over one sequence of tokens: a decoder-only language model if the block's attention is
 * causal (target_out is target_in shifted by one to the left); a masked language model if not
 * (target_out has pad_id except where a token was hidden; padding in target_in is masked). */
typedef struct weft_language_config {
    weft_text_config text;
    int64_t vocab, layers;
    bool norm_embeddings; /* a layer norm over embeddings plus positions, as BERT has */
    bool transform_head;  /* linear, GELU, norm before the logits, as BERT has */
    int64_t token_types;  /* rows of token_type_embedding, of which the input token_types
                             chooses one for each token, as BERT has; 0: none */
    bool pooler; /* the value `pooled`, as BERT has: tanh of a linear layer of the first position */
} weft_language_config;
WEFT_API weft_built weft_language_build(weft_graph *graph, const weft_language_config *config,
                                        const weft_build_options *build);

/* Decoding on the parameters of weft_language_build, as above. The token step needs a causal
 * model. */
WEFT_API weft_decode_io weft_language_prepare(weft_graph *graph, const weft_language_config *config,
                                              const weft_decode_io *sizes);
WEFT_API weft_decode_io weft_language_step(weft_graph *graph, const weft_language_config *config,
                                           const weft_decode_io *sizes);

/* Recurrent language model: embedding, layers rnn.0, rnn.1, ..., logits, with dropout before each
 * layer and before the logits (Zaremba et al. 2014). */
typedef struct weft_recurrent_language_config {
    weft_dtype dtype;
    weft_recurrent_kind kind;
    int64_t vocab, width, hidden; /* width: of the embedding; equal to hidden if tied */
    int64_t layers, pad_id;
    double dropout, label_smoothing;
    bool tied;
} weft_recurrent_language_config;
WEFT_API weft_built weft_recurrent_language_build(weft_graph *graph,
                                                  const weft_recurrent_language_config *config,
                                                  const weft_build_options *build);
WEFT_API weft_decode_io weft_recurrent_language_prepare(
    weft_graph *graph, const weft_recurrent_language_config *config, const weft_decode_io *sizes);
WEFT_API weft_decode_io weft_recurrent_language_step(weft_graph *graph,
                                                     const weft_recurrent_language_config *config,
                                                     const weft_decode_io *sizes);

/* How a decoder state s attends to the encoder's states k. */
typedef enum weft_alignment {
    WEFT_ALIGN_NONE,     /* no attention: only the first state depends on the source */
    WEFT_ALIGN_ADDITIVE, /* v^T tanh(W_q s + W_k k), with s before the step, which then reads the
                            context (Bahdanau et al. 2015) */
    WEFT_ALIGN_DOT,      /* s^T k, with s after the step (Luong et al. 2015) */
    WEFT_ALIGN_GENERAL   /* s^T W k, with s after the step */
} weft_alignment;

/* Encoder and decoder of recurrent layers enc.0, ..., dec.0, .... The decoder starts from the
 * encoder's last states. Logits are computed from tanh(W [s; context]) (Luong et al. 2015, eq. 5),
 * or from s without attention. The value `attention` has the attention weights, [rows, target_len,
 * source_len], zero at padding. */
typedef struct weft_seq2seq_config {
    weft_dtype dtype;
    weft_recurrent_kind kind;
    weft_alignment attention;
    bool bidirectional; /* the encoder: half of hidden for each direction */
    bool tied; /* one embedding matrix for source, target and logits; else source_embedding, ... */
    int64_t source_vocab, target_vocab, width, hidden, layers; /* tied: width equal to hidden */
    int64_t pad_id;
    double dropout, label_smoothing;
} weft_seq2seq_config;
WEFT_API weft_built weft_seq2seq_build(weft_graph *graph, const weft_seq2seq_config *config,
                                       const weft_build_options *build);
WEFT_API weft_decode_io weft_seq2seq_prepare(weft_graph *graph, const weft_seq2seq_config *config,
                                             const weft_decode_io *sizes);
WEFT_API weft_decode_io weft_seq2seq_encode(weft_graph *graph, const weft_seq2seq_config *config,
                                            const weft_decode_io *sizes);
WEFT_API weft_decode_io weft_seq2seq_step(weft_graph *graph, const weft_seq2seq_config *config,
                                          const weft_decode_io *sizes);

/* The common configuration of models of images: square images [rows, channels, image_size,
 * image_size] (input `input`), and the class of each (i32, input `labels`). */
typedef struct weft_image_config {
    weft_dtype dtype;
    int64_t image_size, channels, classes;
    double label_smoothing;
} weft_image_config;

/* ResNet (He et al. 2015, "Deep Residual Learning for Image Recognition"), with the stride in the
 * 3x3 convolution of a bottleneck. Parameters are torchvision's: conv1.weight, bn1.*, layer1.0.*,
 * ..., fc.*, so that its files can be loaded as they are. */
typedef struct weft_resnet_config {
    weft_image_config image;
    int64_t depth; /* 18, 34, 50, 101, 152; 10 or 14: one basic or bottleneck block a stage */
    int64_t width; /* channels of the first stage, doubled in each of the next three; usually 64 */
} weft_resnet_config;
WEFT_API weft_built weft_resnet_build(weft_graph *graph, const weft_resnet_config *config,
                                      const weft_build_options *build);

/* MobileNetV2 (Sandler et al. 2018, "MobileNetV2: Inverted Residuals and Linear Bottlenecks").
 * Parameters are torchvision's: features.0.0.weight, ..., classifier.1.*. */
typedef struct weft_mobilenet_config {
    weft_image_config image;
    double width;   /* times the channels of the paper; 0: 1 */
    double depth;   /* times the blocks of each stage, rounded up; 0: 1 */
    int64_t round;  /* channels are multiples of it; 0: 8 */
    int64_t last;   /* channels of the last convolution, times `width` above 1; 0: 1280 */
    double dropout; /* before the logits */
} weft_mobilenet_config;
WEFT_API weft_built weft_mobilenet_build(weft_graph *graph, const weft_mobilenet_config *config,
                                         const weft_build_options *build);

/* Vision Transformer (Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words"): class_token and
 * the patches that conv_proj.* embeds, plus encoder.pos_embedding, go through pre-norm blocks
 * encoder.layers.0.*, ...; heads.head.* computes the logits from the class token. The blocks'
 * parameters are those of weft_nn_block with fused projections, the others torchvision's. */
typedef struct weft_vit_config {
    weft_image_config image;
    int64_t patch; /* height and width of a patch, which must divide image_size */
    int64_t d_model, heads, d_ff, layers;
    double dropout; /* of embeddings, sub-layers' results and hidden values */
    double attention_dropout;
} weft_vit_config;
WEFT_API weft_built weft_vit_build(weft_graph *graph, const weft_vit_config *config,
                                   const weft_build_options *build);

/* ---- The list of models --------------------------------------------------------------------- */

/* A hyperparameter. */
typedef struct weft_model_option {
    const char *name, *doc;
    double value;        /* the default; of an option with choices, the index of one */
    const char *choices; /* "one|other": texts instead of numbers; NULL: a number */
    bool real;           /* fractions are allowed, as in a probability; the field is a double */
    bool flag;           /* only 0 (off) and 1 (on) are allowed */
    size_t offset, size; /* the field in the options of the model: an integer, bool or double */
    bool list; /* up to size / sizeof(float) numbers above 0, "1,2.5"; "0": none. The field is an
                  array of float, which 0 ends if it is not full. Its value as one number is the
                  first. */
} weft_model_option;

#define WEFT_MODEL_SIZES 3

/* Properties of a model with given options, for code that runs it. */
typedef struct weft_model_traits {
    weft_dtype dtype;
    int64_t source_vocab;  /* source ids are in [0, source_vocab); 0: no source tokens */
    int64_t vocab;         /* target ids are in [0, vocab); 0: not a model of tokens */
    int64_t classes;       /* of a model of images, whose batches have only rows; 0: not one */
    int64_t max_positions; /* of source and target each; INT64_MAX: no limit */
    int64_t d_model;       /* width of the vectors between layers; 0: not a Transformer */
    int32_t pad_id;
    bool tied;      /* source and target share one embedding matrix and one vocabulary */
    bool causal;    /* the output at a position does not depend on later targets */
    bool recurrent; /* has states instead of positions, so texts may be longer than those trained on
                     */
    bool decodable; /* predicts one token after another: causal, with a vocabulary */
} weft_model_traits;

typedef struct weft_model {
    const char *name, *doc;
    const weft_model_option *options;
    size_t n_options;
    weft_model_option sizes[WEFT_MODEL_SIZES]; /* of a batch; fields of weft_batch_shape. A name
                                                  that is NULL ends the list */
    bool exposes_weights; /* has attention, whose weights "weights=1" makes values */
    const char *small;    /* "key=value key=value": a size small enough for gradient checks */
    /* `options` is the struct that the fields of `options` above are of. `traits` sets every trait
     * except `decodable`. */
    void (*traits)(const void *options, weft_model_traits *traits);
    weft_built (*build)(weft_graph *graph, const void *options, const weft_build_options *build);
    /* Graphs of decoding: a token step over states, and the encoder that fills states from a
     * source. NULL: decoding runs `build`, at the cost of a whole pass per token step. `prepare`,
     * if not NULL, fills once the states that depend on parameters only; its graph may be empty. */
    weft_decode_io (*step)(weft_graph *graph, const void *options, const weft_decode_io *sizes);
    weft_decode_io (*encode)(weft_graph *graph, const void *options, const weft_decode_io *sizes);
    weft_decode_io (*prepare)(weft_graph *graph, const void *options, const weft_decode_io *sizes);
} weft_model;

#define WEFT_MODEL_OPTIONS 64
#define WEFT_MODEL_BYTES   1024

/* A listed model, its hyperparameters, and the options of its next graph. */
typedef struct weft_model_config {
    const weft_model *model;
    union {
        int64_t align;
        unsigned char bytes[WEFT_MODEL_BYTES];
    } options; /* the model's struct; see weft_model_value */
    weft_build_options build;
} weft_model_config;

WEFT_API size_t weft_model_count(void);
WEFT_API const weft_model *weft_model_at(size_t index);       /* NULL beyond the end */
WEFT_API const weft_model *weft_model_find(const char *name); /* NULL if no model has the name */

/* Fills *config with the model's defaults and applies "key=value" texts: options, sizes (`batch`,
 * `length` or `source_len` and `target_len`), and `weights=1` for expose_weights where the model
 * has attention; `training` is false. A length that is not given is at most the positions of the
 * model. Names of earlier versions are accepted. Errors:
 * WEFT_NOT_FOUND if the model has no such key; WEFT_BAD_ARGUMENT if the value is not one of the
 * choices, not 0 or 1 for a flag, not a number from 0 to 1e9, or a fraction where a whole number is
 * needed. */
WEFT_API weft_status weft_model_parse(const weft_model *model, const char *const *texts, size_t n,
                                      weft_model_config *config, weft_error *error);
/* The value in a field of a struct, and another one for it, which must be valid. */
WEFT_API double weft_model_option_value(const weft_model_option *option, const void *from);
WEFT_API void weft_model_option_set_value(const weft_model_option *option, void *into,
                                          double value);
/* The same for option i of the model; 0 and no change if there is no such option. */
WEFT_API double weft_model_value(const weft_model_config *config, size_t i);
WEFT_API void weft_model_set_value(weft_model_config *config, size_t i, double value);
/* Writes the value of option i as weft_model_parse reads it; of a list, the one number. Returns
 * `text`. */
WEFT_API const char *weft_model_value_text(const weft_model *model, size_t i, double value,
                                           char *text, size_t capacity);
/* Writes option i of a configuration as weft_model_parse reads it, lists whole. Returns `text`; NULL
 * if the model has no option i, or if the text does not fit: WEFT_OPTIONS_TEXT bytes always suffice. */
WEFT_API const char *weft_model_config_option_text(const weft_model_config *config, size_t i,
                                                   char *text, size_t capacity);
/* Writes every option as "key=value key=value ...", without the sizes, so that the text does not
 * depend on defaults. Returns `text`; NULL if it does not fit, WEFT_OPTIONS_TEXT bytes always do.
 */
#define WEFT_OPTIONS_TEXT (WEFT_MODEL_OPTIONS * 64)
WEFT_API const char *weft_model_options_text(const weft_model_config *config, char *text,
                                             size_t capacity);
/* The traits of a configured model; all zeros if config or its model is NULL. */
WEFT_API weft_model_traits weft_model_traits_of(const weft_model_config *config);
/* Builds the graph of a configured model for config->build. */
WEFT_API weft_built weft_model_build(weft_graph *graph, const weft_model_config *config);
/* A configured model as a builder, for weft_trainer_new and weft_forward_new; `config` must outlive
 * it. The graphs are those of weft_model_build, with two differences: the only output is the main
 * one, so a pass computes nothing else, and token_types is not an input, so it is 0. The others are
 * fed: of token models source (if the model has one), target_in, target_out; of models of vectors
 * input, memory (if the shape has a source), hidden (with a padding mask), target; of models of
 * images input, labels.
 * Building fails if the shape has a source that the model does not read, or lacks one that it
 * needs. */
WEFT_API weft_builder weft_model_builder(const weft_model_config *config);
/* weft_model_parse and weft_model_build in one call. *error describes the wrong option or the
 * graph's error. */
WEFT_API weft_status weft_model_build_text(weft_graph *graph, const weft_model *model,
                                           const char *const *texts, size_t n, bool training,
                                           weft_built *built, weft_error *error);

/* How a program checks that a machine computes the bits that docs/arithmetic.md specifies: trains a
 * model at its small size, with more options if n > 0, for ten steps of Adam on synthetic data, and
 * sets *hash to weft_params_hash of its parameters. `threads` as in weft_session_options. */
WEFT_API weft_status weft_model_bits(const weft_model *model, const char *const *options, size_t n,
                                     int threads, uint64_t *hash, weft_error *error);
/* The hash of a listed model without options on every processor, whatever compiled weft; 0 if none
 * is recorded. */
WEFT_API uint64_t weft_model_specified_bits(const weft_model *model);

#ifdef __cplusplus
}
#endif
#endif
