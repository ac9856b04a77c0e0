/* What several layers need. Not installed. */
#ifndef WEFT_MODELS_LAYERS_SHARED_H
#define WEFT_MODELS_LAYERS_SHARED_H

#include <weft/layers.h>

/* Allocates f64 [rows, columns], positions and features; on failure, fails the graph in `layer` and
 * returns NULL. The caller fills it and passes it to weft__table_value, which frees it. */
double *weft__table_new(weft_graph *g, const char *layer, int64_t rows, int64_t columns);
/* The table as a constant. */
weft_value weft__table_value(weft_graph *g, weft_dtype dtype, weft_shape shape, double *data);

/* weft_nn_rms_norm, or with 1 + gamma. If ranks.size is above 1, x is this rank's own value, so the
 * gradient of gamma is summed over the ranks. */
weft_value weft__rms_norm(weft_graph *g, const char *name, weft_value x, double eps, bool plus_one,
                          weft_ranks ranks);
/* cap tanh(x / cap); x itself if cap is 0. */
weft_value weft__soft_cap(weft_graph *g, weft_value x, double cap);

/* The rotary angles of attention with heads of width head_dim, for positions below `limit`. */
weft_rotary weft__attention_angles(weft_graph *g, const weft_nn_attention_options *o,
                                   weft_dtype dtype, int64_t head_dim, int64_t limit);

#endif
