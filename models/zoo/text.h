/* The common part of the token models. */
#ifndef WEFT_MODELS_TEXT_H
#define WEFT_MODELS_TEXT_H

#include <weft/models.h>

/* Fails the graph, because `function` was called with a NULL configuration or output. */
void weft__text_no_config(weft_graph *g, const char *function);
/* Sets the traits of a causal token model without a source. */
void weft__text_traits(const weft_text_config *config, int64_t vocab, weft_model_traits *traits);
/* Returns the configuration for a graph; unless training, all dropout probabilities are 0. `build`
 * NULL: a graph of decoding. */
weft_text_config weft__text_config(const weft_text_config *config, const weft_build_options *build);
/* Embeds ids [rows, length] and adds positions: [rows, length, d_model], before dropout.
 * `positions` is the name of learned positions. */
weft_value weft__text_embed(weft_graph *g, const weft_text_config *c, weft_value embeddings,
                            weft_value ids, const char *positions);
/* The same for ids [rows, count] at the positions from `position`, an i32 scalar or i32 [rows]; all
 * are below `limit`. */
weft_value weft__text_embed_at(weft_graph *g, const weft_text_config *c, weft_value embeddings,
                               weft_value ids, const char *positions, weft_value position,
                               int64_t limit);
/* Declares the inputs of a step: token, position and parents of io. */
void weft__text_step_inputs(weft_graph *g, weft_decode_io *io);
/* The cache of a step, for all its blocks. */
weft_cache weft__text_cache(const weft_decode_io *io);
/* Bool [rows, 1, 1, length]: true where ids are pad_id. */
weft_value weft__text_padding(weft_graph *g, const weft_text_config *c, weft_value ids);
/* Logits [rows, length, vocab] from x [rows, length, d_model]: by the transposed embedding matrix
 * if tied, else by NAME.weight; plus NAME.bias if c->output_bias says so. */
weft_value weft__text_logits(weft_graph *g, const weft_text_config *c, const char *name,
                             weft_value x, weft_value embeddings, int64_t vocab);
/* Logits [rows, vocab] of a step from x [rows, d_model]. weft__text_prepare transposes a tied
 * embedding matrix once, so that steps need not, unless it is quantised. */
weft_value weft__text_step_logits(weft_graph *g, const weft_text_config *c,
                                  const weft_decode_io *io, const char *name, weft_value x,
                                  weft_value embeddings, int64_t vocab);
/* Writes the state that weft__text_step_logits reads, and sets io->updated. Does nothing unless
 * tied. */
void weft__text_prepare(weft_graph *g, const weft_text_config *c, weft_value embeddings,
                        weft_decode_io *io);
/* Reports the layout of a state to io->declare. Returns the state. */
weft_value weft__text_declare(weft_graph *g, const weft_decode_io *io, weft_value state,
                              weft_cache_layout layout);
/* An i32 scalar constant. */
weft_value weft__text_int(weft_graph *g, int64_t x);
/* Declares an input of token ids. */
weft_value weft__text_input(weft_graph *g, const char *name, int64_t rows, int64_t length);
/* Lists the logits, the first output, and `target_out`, the last input, and sets the losses. */
void weft__text_losses(weft_graph *g, const weft_text_config *c, weft_value logits,
                       weft_value target_out, weft_built *built);

/* Rounds a length up, so that few plans serve all lengths: returns the smallest of n, 1.5 n, 2 n, 3
 * n, 4 n, 6 n, ... that is at least `length`, or `limit` if that is smaller. */
int64_t weft__text_bucket(int64_t n, int64_t length, int64_t limit);
/* Rounds a number of rows up to the next of 1 to 8, 10, 12, 14, 16, 20, 24, ... */
int64_t weft__text_rows(int64_t n);

#endif
