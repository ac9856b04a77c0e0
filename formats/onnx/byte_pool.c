/* Max pooling of quantized images in bytes: the largest number has the largest byte. */
#include "onnx/byte_op.h"

#include <math.h>
#include <string.h>

/* Whether the quantized number of each number of a tensor is its byte: no product with the scale
 * overflows. */
static bool is_kept(const byte_term *t)
{
    return isfinite((float)t->scale * 255);
}

static weft_value pooled(onnx_node *n, weft_value bytes, const weft_conv_options *o,
                         const int64_t *kernel)
{
    weft_graph *g = n->graph;
    conv_rows_attr window;
    memset(&window, 0, sizeof window);
    weft__set_byte_window(o, kernel, &window);
    const weft_value x = bytes_to_last(g, bytes);
    window.columns = weft_dim_of(g, x, 3);
    return bytes_to_first(g, weft__max_pool_bytes(g, x, &window));
}

bool weft__byte_pool(onnx_node *n, const weft_conv_options *window, const int64_t *kernel)
{
    const onnx_value *in = n->in[0];
    byte_term t;
    if (n->folding || weft__node_failed(n) || weft__in_shape(n, 0).rank != 4) return false;
    if (weft_is_value(in->bytes)) {
        weft__set_bytes(n, pooled(n, in->bytes, window, kernel), in->type);
        return true;
    }
    if (!weft__dequantized_term(n, 0, &t) || !is_kept(&t)) return false;
    onnx_byte_op *c = weft__new_byte_op(n);
    if (!c) return false;
    t.bytes = pooled(n, t.bytes, window, kernel);
    *c = (onnx_byte_op){.kind = BYTES_KEPT, .term = {t}};
    weft__set_out(n, 0, weft__bytes_real(n->graph, t.bytes, t.scale, t.zero, ONNX_UINT8));
    if (n->n_out) n->out[0].byte_op = c;
    return true;
}
