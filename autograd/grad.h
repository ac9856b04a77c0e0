/* What reverse mode (grad.c) and the transforms (transform.c) share. */
#ifndef WEFT_AUTOGRAD_GRAD_H
#define WEFT_AUTOGRAD_GRAD_H

#include <weft/autograd.h>

/* What a walk backwards over a graph is for. The nodes that it adds at node k have the scope
 * "PREFIX.SCOPE", and a role that refers to node k; in forward mode, to the node whose gradient
 * rule made node k, since the walk transposes that rule back. */
typedef struct grad_purpose {
    const char *function; /* for messages */
    const char *prefix;   /* of scopes: "grad" or "jvp" */
    weft_direction direction;
    const uint32_t
        *made_by;   /* by node: the node whose gradient rule made it; UINT32_MAX: none. NULL:
                                the walk differentiates the nodes themselves */
    size_t current; /* the node whose derivative is being built */
} grad_purpose;

#define GRAD_REVERSE(function) ((grad_purpose){function, "grad", WEFT_BACKWARD, NULL, 0})

/* As weft_grad_of. */
void weft__grad_walk(weft_graph *graph, const weft_grad_values *values, weft_value *grads,
                     grad_purpose *purpose);
/* As weft_grad, for a function that is named in messages. */
void weft__grad_of_loss(weft_graph *graph, const char *function, weft_value loss,
                        const weft_value *wrt, size_t n, weft_value *grads);
/* Whether all values are f32 or f64 values of the graph; if not, the graph's error says which one,
 * by a word such as "output" and its index. */
bool weft__grad_check_floats(weft_graph *graph, const char *function, const char *word,
                             const weft_value *values, size_t n);
/* Whether each vectors[i] has the shape and dtype of likes[i]; if not, the graph's error calls them
 * by their words, such as "cotangent" and "output". */
bool weft__grad_same_types(weft_graph *graph, const char *function, const char *const words[2],
                           const weft_value *vectors, const weft_value *likes, size_t n);

#endif
