/* lora: products with matrices that stay as they are get low-rank additions that are trained (Hu et
 * al. 2021): x W becomes x W + (alpha / rank) (x A) B. O(nodes) for each product, and
 * for each transpose of its matrix. */
#include "lora.h"

#include "base/text.h"
#include "ir/ir.h"

#include <weft/ops.h>

#include <math.h>
#include <string.h>

extern const weft_op weft_op_permute;

const char *weft__lora_name(char name[QUANTIZED_NAME], const char *state, const char *matrix)
{
    const int n = snprintf(name, QUANTIZED_NAME, "%s.lora_%s", state, matrix);
    return n > 0 && n < QUANTIZED_NAME ? name : NULL;
}

bool weft__lora_read(const weft_params *params, lora_note *note)
{
    static const char *const keys[] = {"rank=", "alpha=", "dropout="};
    double *const numbers[] = {&note->rank, &note->alpha, &note->dropout};
    const char *text = weft_params_meta(params, LORA_META);
    for (int i = 0; i < 3; i++) {
        const char *at = text ? strstr(text, keys[i]) : NULL;
        if (!at || !weft__text_read_double(at + strlen(keys[i]), numbers[i])) return false;
    }
    return isfinite(note->rank) && note->rank >= 1 && isfinite(note->alpha) &&
           isfinite(note->dropout);
}

bool weft__lora_scale(const weft_params *params, double *scale)
{
    lora_note note;
    if (!weft__lora_read(params, &note)) return false;
    *scale = note.alpha / note.rank;
    return true;
}

/* Whether input k of a node is a product's matrix, a state or its transpose. */
static bool is_product(const weft_graph *graph, const weft_node_info *node, size_t k)
{
    quantized_use use;
    return k == 1 && weft__quantized_use_of(graph, node, &use) && !use.lookup;
}

/* Whether all that read a value are products, or, if they are counted as well, transposes of which
 * this is true. */
static bool only_products(const weft_graph *graph, uint32_t id, size_t *products,
                          size_t *transposes)
{
    for (size_t i = 0; i < weft_graph_node_count(graph); i++) {
        const weft_node_info node = weft_graph_node(graph, i);
        for (size_t k = 0; k < node.n_in; k++) {
            if (node.in[k] != id) continue;
            if (is_product(graph, &node, k))
                ++*products;
            else if (!transposes || node.op != &weft_op_permute ||
                     !only_products(graph, node.first_out, transposes, NULL))
                return false;
        }
    }
    return true;
}

bool weft__lora_allows(const weft_graph *graph, weft_value state)
{
    size_t products = 0, transposes = 0;
    return only_products(graph, state.id, &products, &transposes) && !(products && transposes);
}

/* Whether a product is added to. */
static bool is_on(const weft_graph *graph, const quantized_use *use, const weft_params_filter *on)
{
    if (use->lookup) return false;
    if (on && !on->selects(on->context, weft_name_of(graph, use->state))) return false;
    return weft__lora_allows(graph, use->state); /* scans the graph, so it comes last */
}

weft_value weft__lora_add(weft_graph *graph, weft_value x, weft_value y, const weft_value *ab,
                          double scale)
{
    weft_value narrow = weft_matmul(graph, x, ab[0]);
    if (scale != 1) narrow = weft_mul_scalar(graph, narrow, scale);
    return weft_add(graph, y, weft_matmul(graph, narrow, ab[1]));
}

/* Declares a state anew as one that is not trained. */
static void freeze(weft_rewrite *r)
{
    weft_state_attr attr;
    memcpy(&attr, r->node.attr, sizeof attr);
    attr.trainable = false;
    weft_apply(r->graph, r->node.op, &attr, NULL, 0, r->out);
}

/* Declares one of the two matrices of a state; several products may share them. */
static weft_value declare(weft_rewrite *r, const char *state, const char *matrix, weft_shape shape,
                          weft_init init)
{
    char name[QUANTIZED_NAME];
    if (!weft__lora_name(name, state, matrix)) {
        weft_graph_fail_in(r->graph, state, WEFT_TOO_LARGE, "the name is too long");
        return WEFT_NO_VALUE;
    }
    const weft_value old = weft_graph_find(r->graph, name);
    return weft_is_value(old) ? old : weft_state_named(r->graph, name, WEFT_F32, shape, init, true);
}

/* r->out[0] has the product. A begins as PyTorch's linear layers do, as in PEFT: uniform in
 * +-1 / sqrt(k). */
static void add(weft_rewrite *r, const quantized_use *use)
{
    lora_context *c = r->context;
    const char *state = weft_name_of(r->source, use->state);
    const weft_init init = {WEFT_INIT_KAIMING_UNIFORM, 0.57735026918962576, 0}; /* 1 / sqrt(3) */
    weft_value x = r->in[0];
    weft_value ab[2];
    ab[0] = declare(r, state, "a", WEFT_SHAPE(use->k, c->rank), init);
    ab[1] = declare(r, state, "b", WEFT_SHAPE(c->rank, use->n), WEFT_INIT_ZEROS);
    if (c->dropout > 0) x = weft_dropout(r->graph, x, c->dropout);
    r->out[0] = weft__lora_add(r->graph, x, r->out[0], ab, c->scale);
    c->added++;
}

bool weft__lora_visit(weft_rewrite *r)
{
    const lora_context *c = r->context;
    quantized_use use;
    if (r->node.op == &weft_op_state) {
        freeze(r);
        return true;
    }
    const bool on =
        weft__quantized_use_of(r->source, &r->node, &use) && is_on(r->source, &use, c->on);
    const bool replaced = c->base && weft__quantized_replace(r, c->base);
    if (!on) return replaced;
    if (!replaced) weft_apply(r->graph, r->node.op, r->node.attr, r->in, r->node.n_in, r->out);
    add(r, &use);
    return true;
}
