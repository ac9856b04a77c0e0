/* What the architectures over tokens share. */
#ifndef WEFT_MODELS_TEXT_H
#define WEFT_MODELS_TEXT_H

#include <weft/models.h>

/* Fails since `function` was called without a configuration or without values to fill. */
weft_status text_no_config(weft_graph *g, const char *function);
/* Fills the traits of a causal model of tokens without a source. */
void text_traits(const weft_text_config *config, int64_t vocab, weft_model_traits *traits);
/* The configuration with every probability 0 unless it is for training. */
weft_text_config text_config(const weft_text_config *config, bool training);
/* Rows of the embedding matrix, plus positions; before dropout. `positions` names the learned
 * positions. */
weft_value text_embed(weft_graph *g, const weft_text_config *c, weft_value embeddings,
                      weft_value ids, const char *positions);
/* The same for ids [rows, count] from a position on, an i32 scalar; all positions are below
 * `limit`. */
weft_value text_embed_at(weft_graph *g, const weft_text_config *c, weft_value embeddings,
                         weft_value ids, const char *positions, weft_value position, int64_t limit);
/* The inputs of a step: fills token, position and parents. */
void text_step_inputs(weft_graph *g, weft_decode_io *io);
/* The caches that the blocks of a step read and write. */
weft_cache text_cache(const weft_decode_io *io);
/* Bool [rows, 1, 1, length]: true where ids are pad_id. */
weft_value text_padding(weft_graph *g, const weft_text_config *c, weft_value ids);
/* Logits [rows, length, vocab] of x: by the transposed embedding matrix if tied, or by a linear
 * layer NAME.*. */
weft_value text_logits(weft_graph *g, const weft_text_config *c, const char *name, weft_value x,
                       weft_value embeddings, int64_t vocab);
/* The same for the x [rows, d_model] of a step. text_prepare has transposed a tied embedding matrix
 * once, so that no step transposes it again. */
weft_value text_step_logits(weft_graph *g, const weft_text_config *c, const char *name,
                            weft_value x, int64_t vocab);
/* Fills the state that text_step_logits reads, and io->updated; does nothing unless tied. */
void text_prepare(weft_graph *g, const weft_text_config *c, weft_value embeddings,
                  weft_decode_io *io);
/* Reports the layout of a state to the caller of the model. Returns the state. */
weft_value text_declare(weft_graph *g, const weft_decode_io *io, weft_value state,
                        weft_cache_layout layout);
/* A new i32 constant: a scalar. */
weft_value text_int(weft_graph *g, int64_t x);
/* Fills output, nll and loss of io, whose target_out is set. */
void text_losses(weft_graph *g, const weft_text_config *c, weft_value logits, weft_model_io *io);

/* The sizes that plans are made for, so that few plans serve all lengths: the smallest of n, n +
 * n/2, 2n, 3n, 4n, 6n, ... that holds `length`, or `limit`. */
int64_t text_bucket(int64_t n, int64_t length, int64_t limit);
/* The smallest of 1 to 8, 10, 12, 14, 16, 20, 24, ... rows that holds n. */
int64_t text_rows(int64_t n);

#endif
