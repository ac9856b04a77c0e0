/* weft/summary.h - the layers of a graph, by its scopes, and a summary to print. */
#ifndef WEFT_SUMMARY_H
#define WEFT_SUMMARY_H

#include <weft/op.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A scope of the forward pass. Its sums include those of its inner scopes. */
typedef struct weft_layer {
    const char *scope; /* "enc.0.attn"; "" for what has no scope */
    int depth;         /* of inner scopes around it: 2 for "enc.0.attn" */
    size_t parent;     /* the index of the scope around it; SIZE_MAX if there is none */
    weft_value input;  /* the first value of another scope that it reads, not a state or constant */
    /* The last value that another scope reads; if none does, the last that it computes. */
    weft_value output;
    double parameters; /* numbers of its trainable states */
    weft_cost cost;    /* of one run of its nodes: weft_node_cost */
} weft_layer;

typedef struct weft_layers {
    weft_layer *layer; /* the outer before the inner, in the order of the graph */
    size_t n;
    size_t *of; /* by node of the graph: its innermost layer; SIZE_MAX: not of the forward pass */
} weft_layers;

/* Finds the layers of a graph; weft_layers_free frees what it allocates, and accepts zeros. Scopes
 * are those of the layers; the graph must outlive them. The graph's error, or WEFT_NO_MEMORY, on
 * failure. */
WEFT_API weft_status weft_layers_find(const weft_graph *graph, weft_layers *layers,
                                      weft_error *error);
WEFT_API void weft_layers_free(weft_layers *layers);

typedef struct weft_summary_options {
    int depth; /* rows are for scopes of at most this many components; 0: all */
    int width; /* columns of a line, at least 48; 0: 80 */
} weft_summary_options;

/* Prints the layers as a table, with the type of what each computes, its parameters and its work;
 * and then the parameters, their bytes, and the work of the forward pass, the backward pass and the
 * updates. A long name or type is shortened in its middle. To a string: give a FILE of
 * open_memstream. WEFT_IO if the file cannot be written; nothing is printed elsewhere. `options`
 * may be NULL. */
WEFT_API weft_status weft_graph_summary(const weft_graph *graph,
                                        const weft_summary_options *options, FILE *file,
                                        weft_error *error);

#ifdef __cplusplus
}
#endif
#endif
