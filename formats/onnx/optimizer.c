/* ONNX's domain ai.onnx.preview.training: optimisers and gradients. Inputs of an optimiser are the
 * rate r and the number t of the update, then lists of equal length: parameters x, gradients and
 * states. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <weft/autograd.h>

#include <stdio.h>
#include <string.h>

/* Number i of list k; list 0 is x. */
static weft_value listed(onnx_node *n, size_t count, size_t k, size_t i)
{
    return weft__in_value(n, 2 + k * count + i);
}

/* The length of `lists` lists; 0 after a failure. */
static size_t list_length(onnx_node *n, size_t lists)
{
    const size_t count = n->n_in < 2 ? 0 : (n->n_in - 2) / lists;
    for (size_t i = 0; i < n->n_in; i++)
        if (!has_in(n, i)) return weft__node_fail(n, WEFT_BAD_FILE, "has no input %zu", i), 0;
    if (count && n->n_in == 2 + count * lists) return count;
    return weft__node_fail(n, WEFT_BAD_FILE, "its %zu inputs are not %zu lists", n->n_in, lists), 0;
}

/* The gradient with the part of x that norm_coefficient adds. */
static weft_value gradient(onnx_node *n, weft_value x, weft_value g)
{
    const double weight = weft__attr_float(n, "norm_coefficient", 0);
    return weight == 0 ? g : weft_add(n->graph, g, weft_mul_scalar(n->graph, x, weight));
}

/* decay old + weight value */
static weft_value blended(weft_graph *g, weft_value old, double decay, weft_value value,
                          weft_value weight)
{
    const weft_value decayed = weft_mul_scalar(g, old, decay);
    return weft_add(g, decayed, weft_mul(g, weight, value));
}

static weft_value count_of(onnx_node *n)
{
    const weft_value rate = weft__in_value(n, 0), count = weft__in_value(n, 1);
    return weft_cast(n->graph, count, weft_dtype_of(n->graph, rate));
}

/* Duchi et al. 2011 */
void weft__map_Adagrad(onnx_node *n)
{
    weft_graph *g = n->graph;
    const size_t count = list_length(n, 3);
    const weft_value rate = weft__in_value(n, 0);
    weft_value decay = weft_mul_scalar(g, count_of(n), weft__attr_float(n, "decay_factor", 0));
    weft_value r = weft_div(g, rate, weft_add_scalar(g, decay, 1));
    for (size_t i = 0; i < count; i++) {
        const weft_value x = listed(n, count, 0, i);
        weft_value d = gradient(n, x, listed(n, count, 1, i));
        const weft_value old = listed(n, count, 2, i);
        weft_value h = weft_add(g, old, weft_square(g, d));
        weft_value size = weft_add_scalar(g, weft_sqrt(g, h), weft__attr_float(n, "epsilon", 1e-6));
        weft__set_out(n, i, weft_sub(g, x, weft_mul(g, r, weft_div(g, d, size))));
        weft__set_out(n, count + i, h);
    }
}

/* 1 - base^t, and 1 for t = 0 */
static weft_value correction(onnx_node *n, double base)
{
    weft_graph *g = n->graph;
    const weft_value t = count_of(n);
    const weft_dtype dtype = weft_dtype_of(g, t);
    weft_value power = weft_pow(g, weft_scalar(g, dtype, base), t);
    weft_value rest = weft_add_scalar(g, weft_neg(g, power), 1);
    weft_value later = weft_greater(g, t, weft_scalar(g, dtype, 0));
    return weft_where(g, later, rest, weft_scalar(g, dtype, 1));
}

/* Kingma & Ba 2015 */
void weft__map_Adam(onnx_node *n)
{
    weft_graph *g = n->graph;
    const size_t count = list_length(n, 4);
    const double alpha = weft__attr_float(n, "alpha", 0.9),
                 beta = weft__attr_float(n, "beta", 0.999);
    const double post = weft__attr_float(n, "norm_coefficient_post", 0);
    const weft_value rate = weft__in_value(n, 0);
    weft_value r = weft_mul(g, rate, weft_sqrt(g, correction(n, beta)));
    r = weft_div(g, r, correction(n, alpha));
    const weft_dtype dtype = weft_dtype_of(g, r);
    for (size_t i = 0; i < count; i++) {
        const weft_value x = listed(n, count, 0, i);
        weft_value d = gradient(n, x, listed(n, count, 1, i));
        const weft_value old_v = listed(n, count, 2, i), old_h = listed(n, count, 3, i);
        weft_value v = blended(g, old_v, alpha, d, weft_scalar(g, dtype, 1 - alpha));
        weft_value squared = weft_square(g, d);
        weft_value h = blended(g, old_h, beta, squared, weft_scalar(g, dtype, 1 - beta));
        weft_value size = weft_add_scalar(g, weft_sqrt(g, h), weft__attr_float(n, "epsilon", 1e-6));
        weft_value y = weft_sub(g, x, weft_mul(g, r, weft_div(g, v, size)));
        weft__set_out(n, i, post == 0 ? y : weft_mul_scalar(g, y, 1 - post));
        weft__set_out(n, count + i, v);
        weft__set_out(n, 2 * count + i, h);
    }
}

/* Sutskever et al. 2013; the weight of the gradient is beta, and 1 in the first update, t = 0. */
void weft__map_Momentum(onnx_node *n)
{
    weft_graph *g = n->graph;
    const size_t count = list_length(n, 3);
    const weft_value r = weft__in_value(n, 0), t = count_of(n);
    const weft_dtype dtype = weft_dtype_of(g, r);
    const double alpha = weft__attr_float(n, "alpha", 0);
    weft_value later = weft_greater(g, t, weft_scalar(g, dtype, 0));
    weft_value beta = weft_scalar(g, dtype, weft__attr_float(n, "beta", 0));
    weft_value weight = weft_where(g, later, beta, weft_scalar(g, dtype, 1));
    for (size_t i = 0; i < count; i++) {
        const weft_value x = listed(n, count, 0, i);
        weft_value d = gradient(n, x, listed(n, count, 1, i));
        weft_value v = blended(g, listed(n, count, 2, i), alpha, d, weight);
        const bool nesterov = weft__attr_is(n, "mode", "nesterov", "standard");
        weft_value step = nesterov ? weft_add(g, d, weft_mul_scalar(g, v, alpha)) : v;
        weft__set_out(n, i, weft_sub(g, x, weft_mul(g, r, step)));
        weft__set_out(n, count + i, v);
    }
}

/* ---- Gradients ---- */

static weft_value named_value(onnx_node *n, const uint8_t *name, size_t bytes)
{
    char text[256];
    snprintf(text, sizeof text, "%.*s", (int)(bytes < sizeof text ? bytes : 0), (const char *)name);
    onnx_value *v = weft__scope_find(n->scope, text);
    if (v) return weft__import_value(n->import, v);
    return weft__node_fail(n, WEFT_BAD_FILE, "no node before it computes \"%s\"", text);
}

/* Outputs d y / d x for each x of the list xs, at the x that the graph has. */
void weft__map_Gradient(onnx_node *n)
{
    const WeftOnnx__AttributeProto *xs = weft__attr_find(n, "xs"), *y = weft__attr_find(n, "y");
    const size_t count = xs ? xs->n_strings : 0;
    bool good = count && y && y->has_s && n->n_out == count && n->n_in >= count;
    for (size_t i = 0; good && i < count; i++)
        good = xs->strings[i].len == strlen(n->proto->input[i]) &&
               !memcmp(xs->strings[i].data, n->proto->input[i], xs->strings[i].len);
    if (!good) {
        weft__node_fail(n, WEFT_NO_KERNEL,
                        "only gradients at the inputs xs themselves are supported");
        return;
    }
    weft_value *wrt = weft__arena_alloc(&n->import->memory, count * sizeof *wrt);
    weft_value *gradients = weft__arena_alloc(&n->import->memory, count * sizeof *gradients);
    if (!wrt || !gradients) {
        weft__node_fail(n, WEFT_NO_MEMORY, "no memory for a list");
        return;
    }
    for (size_t i = 0; i < count; i++) wrt[i] = weft__in_value(n, i);
    const weft_value loss = named_value(n, y->s.data, y->s.len);
    if (weft__node_failed(n)) return;
    const weft_value ones =
        weft_fill(n->graph, weft_dtype_of(n->graph, loss), weft_shape_of(n->graph, loss), 1);
    weft_grad_of(n->graph, &loss, &ones, 1, wrt, count, gradients);
    for (size_t i = 0; i < count; i++) weft__set_out(n, i, gradients[i]);
}
