/* weft/models.h - architectures, which are graphs of layers, and the list of models. */
#ifndef WEFT_MODELS_H
#define WEFT_MODELS_H

#include <weft/layers.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Architectures -------------------------------------------------------------------------- */

/* Configurations (weft_..._config) are no options: their sizes and numbers of layers are required,
 * and NULL is WEFT_BAD_ARGUMENT. What else is zero in them is as in options: f32, false, no
 * dropout, token 0. */

/* What a model gives to those who run and train it. Values that it does not have are
 * WEFT_NO_VALUE. Token models have logits as output, models of vectors have vectors. */
typedef struct weft_model_io {
    weft_value source;     /* i32 [batch, source_len], input */
    weft_value target_in;  /* i32 [batch, target_len], input: what is read to predict target_out */
    weft_value target_out; /* i32 [batch, target_len], input: what the logits should say */
    weft_value input;      /* [batch, length, width], input of a model of vectors */
    weft_value memory;     /* [batch, memory_len, width], input: what is attended to, if another */
    weft_value target;     /* of the shape of the output, input: what it should be */
    weft_value output;     /* [batch, target_len, vocab] logits, or [batch, length, width] */
    weft_value loss; /* scalar. Tokens: nats, mean over targets that are not pad, with smoothing;
                        vectors: mean squared error */
    weft_value nll;  /* the same without smoothing */
    int64_t vocab;   /* ids must be below it; 0 without ids */
    bool masked;     /* target_out are hidden tokens of target_in, not the next ones */
} weft_model_io;

/* The graphs of decoding, a position at a time, over states that keep what came before. Sizes are
 * set by the caller, values by the model. `sentences` times `beams` rows are decoded at once; the
 * rows of a sentence lie side by side. Graphs of different sizes share states, whose first axis is
 * max_sentences or max_sentences times max_beams; a graph uses the first of them. Where there
 * are positions of tokens or of a source, they are the second of three axes or more. Encoding is
 * done with beams of 1: the first step goes on from row i of the states for sentence i. */
typedef struct weft_decode_io {
    int64_t sentences, beams;
    int64_t max_sentences, max_beams;
    int64_t count;                  /* of tokens that a step reads of each row */
    int64_t max_len, key_len;       /* positions of the states, and those that are looked at */
    int64_t max_source, source_len; /* likewise of the source; 0 without one */
    weft_value source;              /* encoding: i32 [sentences, source_len], input */
    weft_value token;    /* a step: i32 [rows, count], input: the tokens from `position` on */
    weft_value position; /* i32 scalar, input: 0 in the first step, then `count` more each */
    weft_value parents;  /* i32 [rows], input: the rows of the states that these go on from */
    weft_value updated;  /* what stands for all updates of the states */
    weft_value logits;   /* a step: [rows, vocab] of the tokens at position + count */
    int64_t vocab;
} weft_decode_io;

typedef enum weft_positions {
    WEFT_POSITIONS_NONE, /* or rotary, which is the attention's */
    WEFT_POSITIONS_SINUSOIDAL,
    WEFT_POSITIONS_LEARNED
} weft_positions;

/* What the token models share. */
typedef struct weft_text_config {
    weft_dtype dtype;
    int64_t d_model, batch;
    bool tied;              /* the output's weight is the embedding table (section 3.4) */
    bool scaled_embeddings; /* times sqrt(d_model) (section 3.4) */
    weft_positions positions;
    int64_t max_positions; /* learned: rows of their table */
    double dropout;        /* of embeddings plus positions */
    double label_smoothing;
    int64_t pad_id;           /* masked as a source, ignored in the loss */
    weft_block_options block; /* of every layer */
    bool training;            /* with dropout; without, every probability is taken as 0 */
} weft_text_config;

/* The encoder-decoder Transformer of Vaswani et al., "Attention Is All You Need", 2017. With
 * `tied`, source and target share one table, named embedding; else source_embedding,
 * target_embedding and output.*. Layers are enc.0.*, dec.0.*, ... */
typedef struct weft_transformer_config {
    weft_text_config text;
    int64_t source_vocab, target_vocab; /* equal if tied */
    int64_t encoder_layers, decoder_layers, source_len, target_len;
} weft_transformer_config;
WEFT_API weft_status weft_transformer(weft_graph *graph, const weft_transformer_config *config,
                                      weft_model_io *io);

/* Prepares what the parameters alone tell (a tied table, turned for the logits), encodes sources
 * into the states, and takes one step of the decoder; by the parameters of weft_transformer.
 * Dropout is left out, `batch` and the lengths of the configuration are not read. */
WEFT_API weft_status weft_transformer_prepare(weft_graph *graph,
                                              const weft_transformer_config *config,
                                              weft_decode_io *io);
WEFT_API weft_status weft_transformer_encode(weft_graph *graph,
                                             const weft_transformer_config *config,
                                             weft_decode_io *io);
WEFT_API weft_status weft_transformer_step(weft_graph *graph, const weft_transformer_config *config,
                                           weft_decode_io *io);

/* One stack over one sequence of tokens: a decoder-only language model if the block's attention is
 * causal (target_out is target_in one to the left); a masked language model if not (target_out has
 * pad_id except where a token was hidden; padding in target_in is masked). */
typedef struct weft_language_config {
    weft_text_config text;
    int64_t vocab, layers, length;
    bool norm_embeddings; /* a layer norm over embeddings plus positions, as BERT has */
    bool transform_head;  /* linear, activation, norm before the logits, as BERT has */
} weft_language_config;
WEFT_API weft_status weft_language_model(weft_graph *graph, const weft_language_config *config,
                                         weft_model_io *io);

/* A step of a causal language model, by the parameters of weft_language_model; and what it needs to
 * be prepared, as above. */
WEFT_API weft_status weft_language_prepare(weft_graph *graph, const weft_language_config *config,
                                           weft_decode_io *io);
WEFT_API weft_status weft_language_step(weft_graph *graph, const weft_language_config *config,
                                        weft_decode_io *io);

/* Recurrent language model: embedding, layers rnn.0, rnn.1, ..., logits, with dropout in front of
 * each layer and of the logits (Zaremba et al. 2014). */
typedef struct weft_recurrent_language_config {
    weft_dtype dtype;
    weft_recurrent_kind kind;
    int64_t vocab, width, hidden; /* width: of the embedding; as hidden if tied */
    int64_t layers, batch, length, pad_id;
    double dropout, label_smoothing;
    bool tied, training;
} weft_recurrent_language_config;
WEFT_API weft_status weft_recurrent_language_model(weft_graph *graph,
                                                   const weft_recurrent_language_config *config,
                                                   weft_model_io *io);
WEFT_API weft_status weft_recurrent_language_prepare(weft_graph *graph,
                                                     const weft_recurrent_language_config *config,
                                                     weft_decode_io *io);
WEFT_API weft_status weft_recurrent_language_step(weft_graph *graph,
                                                  const weft_recurrent_language_config *config,
                                                  weft_decode_io *io);

/* How a decoder state s looks at the encoder's states k. */
typedef enum weft_alignment {
    WEFT_ALIGN_NONE,     /* not at all: only the first state tells of the source */
    WEFT_ALIGN_ADDITIVE, /* v^T tanh(W_q s + W_k k), of the state before the step, and what it finds
                            is read by the step (Bahdanau et al. 2015) */
    WEFT_ALIGN_DOT,      /* s^T k, of the state after the step (Luong et al. 2015) */
    WEFT_ALIGN_GENERAL   /* s^T W k, likewise */
} weft_alignment;

/* Encoder and decoder of recurrent layers enc.0, ..., dec.0, ...: the decoder starts from the last
 * states of the encoder; logits come from tanh(W [s; context]) (Luong et al. 2015, eq. 5), or from
 * s without attention. The weights of the attention are the value named `attention`, [batch,
 * target_len, source_len], zero at padding. */
typedef struct weft_seq2seq_config {
    weft_dtype dtype;
    weft_recurrent_kind kind;
    weft_alignment attention;
    bool bidirectional; /* the encoder: half of hidden for each direction */
    bool tied;          /* one table for source, target and logits; else source_embedding, ... */
    int64_t source_vocab, target_vocab, width, hidden, layers; /* tied: width as hidden */
    int64_t batch, source_len, target_len, pad_id;
    double dropout, label_smoothing;
    bool training;
} weft_seq2seq_config;
WEFT_API weft_status weft_seq2seq(weft_graph *graph, const weft_seq2seq_config *config,
                                  weft_model_io *io);
WEFT_API weft_status weft_seq2seq_prepare(weft_graph *graph, const weft_seq2seq_config *config,
                                          weft_decode_io *io);
WEFT_API weft_status weft_seq2seq_encode(weft_graph *graph, const weft_seq2seq_config *config,
                                         weft_decode_io *io);
WEFT_API weft_status weft_seq2seq_step(weft_graph *graph, const weft_seq2seq_config *config,
                                       weft_decode_io *io);

/* ---- The list of models --------------------------------------------------------------------- */

typedef struct weft_model_option {
    const char *name, *doc;
    double value;        /* the default; of an option with choices, the index of one */
    const char *choices; /* "one|other": texts instead of numbers; NULL: a number */
    bool real;           /* a number that need not be whole, such as a probability */
    bool flag;           /* 0: off, 1: on, and no other number */
} weft_model_option;

typedef struct weft_model {
    const char *name, *doc;
    const weft_model_option *options;
    size_t n_options;
    const char *small; /* "key=value key=value": a size at which its gradient can be checked */
    /* `values` are those of the options, in their order. */
    weft_status (*build)(weft_graph *graph, const double *values, bool training, weft_model_io *io);
    /* A step of decoding over states, and what fills them from a source; NULL if the model has none
     * (then it is decoded by `build`, at the cost of a whole pass each step). `prepare`, if not
     * NULL, fills once the states that follow from the parameters alone; its graph may be empty. */
    weft_status (*step)(weft_graph *graph, const double *values, weft_decode_io *io);
    weft_status (*encode)(weft_graph *graph, const double *values, weft_decode_io *io);
    weft_status (*prepare)(weft_graph *graph, const double *values, weft_decode_io *io);
    bool looks_ahead; /* logits depend on later tokens, too: it cannot be decoded left to right */
    bool recurrent;   /* it has states instead of positions, so that a text may become longer than
                         those that it was trained on */
} weft_model;

#define WEFT_MODEL_OPTIONS 40
WEFT_API size_t weft_model_count(void);
WEFT_API const weft_model *weft_model_at(size_t index);       /* NULL beyond the end */
WEFT_API const weft_model *weft_model_find(const char *name); /* NULL if there is none */
/* Starts from the defaults and applies "key=value" texts to values[model->n_options].
 * WEFT_NOT_FOUND if the model has no such option; WEFT_BAD_ARGUMENT if the value is none of its
 * choices, not 0 or 1 of a flag, no number from 0 to 1e9, or a fraction where a whole number is
 * needed. */
WEFT_API weft_status weft_model_parse(const weft_model *model, const char *const *texts, size_t n,
                                      double *values, weft_error *error);
/* Writes the value of option i as weft_model_parse reads it. Returns `text`. */
WEFT_API const char *weft_model_value_text(const weft_model *model, size_t i, double value,
                                           char *text, size_t capacity);
/* Parses and builds; *error tells what was wrong with an option or in the graph. */
WEFT_API weft_status weft_model_build_text(weft_graph *graph, const weft_model *model,
                                           const char *const *texts, size_t n, bool training,
                                           weft_model_io *io, weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
