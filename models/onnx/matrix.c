/* Matrix products of ONNX, and products and conversions of quantized numbers. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <math.h>
#include <string.h>

/* ---- Products ---- */

/* As NumPy's matmul, in which a vector is a row on the left and a column on the right. */
static weft_value product(weft_graph *g, weft_value a, weft_value b)
{
    const bool row = weft_rank(g, a) == 1, column = weft_rank(g, b) == 1;
    if (row) a = weft_expand_dims(g, a, 0);
    if (column) b = weft_expand_dims(g, b, 1);
    weft_value y = weft_matmul(g, a, b);
    if (column) y = weft_squeeze(g, y, -1);
    return row ? weft_squeeze(g, y, column ? -1 : -2) : y;
}

void map_MatMul(onnx_node *n)
{
    weft_value y = product(n->graph, widen(n, in_value(n, 0)), widen(n, in_value(n, 1)));
    if (weft_dtype_of(n->graph, in_value(n, 0)) == WEFT_I32) y = narrow(n, y, in_type(n, 0));
    set_typed(n, 0, y, in_type(n, 0));
}

static weft_value scaled(weft_graph *g, weft_value x, double factor)
{
    return factor == 1 ? x : weft_scale(g, x, factor);
}

/* alpha A' B' + beta C */
void map_Gemm(onnx_node *n)
{
    weft_graph *g = n->graph;
    const double alpha = attr_float(n, "alpha", 1), beta = attr_float(n, "beta", 1);
    weft_value a = widen(n, in_value(n, 0)), b = widen(n, in_value(n, 1));
    if (attr_int(n, "transA", 0)) a = weft_transpose(g, a, 0, 1);
    if (attr_int(n, "transB", 0)) b = weft_transpose(g, b, 0, 1);
    weft_value y = scaled(g, weft_matmul(g, a, b), alpha);
    if (has_in(n, 2) && beta != 0) y = weft_add(g, y, scaled(g, widen(n, in_value(n, 2)), beta));
    if (weft_dtype_of(g, in_value(n, 0)) == WEFT_I32) y = narrow(n, y, in_type(n, 0));
    set_typed(n, 0, y, in_type(n, 0));
}

/* ---- Einstein summation ---- */

/* An equation without spaces, "ij,jk->ik", its operands and the output, which may be implicit. */
typedef struct equation {
    char text[64], output[32];
    const char *operand[2];
    size_t count;
} equation;

static bool take_equation(const onnx_node *n, equation *e)
{
    const WeftOnnx__AttributeProto *a = attr_find(n, "equation");
    size_t length = 0;
    if (!a || !a->has_s) return false;
    for (size_t i = 0; i < a->s.len; i++) {
        const char c = (char)a->s.data[i];
        if (c == ' ') continue;
        const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if ((!letter && !strchr(",->", c)) || length + 1 == sizeof e->text) return false;
        e->text[length++] = c;
    }
    e->text[length] = 0;
    return true;
}

/* Letters that occur once, in alphabetical order: the output that an equation implies. */
static void imply_output(equation *e)
{
    size_t n = 0;
    for (int c = 'A'; c <= 'z'; c++) {
        size_t times = 0;
        for (size_t k = 0; k < e->count; k++)
            for (const char *at = e->operand[k]; *at; at++) times += *at == c;
        if (times == 1 && n + 1 < sizeof e->output) e->output[n++] = (char)c;
    }
    e->output[n] = 0;
}

static bool parse(const onnx_node *n, equation *e)
{
    *e = (equation){.count = 0};
    if (!take_equation(n, e)) return false;
    char *arrow = strstr(e->text, "->");
    if (arrow) *arrow = 0;
    char *comma = strchr(e->text, ',');
    if (comma) *comma++ = 0;
    if ((comma && strchr(comma, ',')) || strpbrk(e->text, "->") || (comma && strpbrk(comma, "->")))
        return false;
    e->operand[e->count++] = e->text;
    if (comma) e->operand[e->count++] = comma;
    if (!arrow) {
        imply_output(e);
        return true;
    }
    if (strlen(arrow + 2) >= sizeof e->output || strpbrk(arrow + 2, ",->")) return false;
    memcpy(e->output, arrow + 2, strlen(arrow + 2) + 1);
    return true;
}

/* One operand: sums over the letters that the output lacks, then permutes the others. */
static weft_value reorder(onnx_node *n, weft_value x, const char *letters, const char *output)
{
    weft_axes summed = {.count = 0}, order = {.count = 0};
    char left[WEFT_MAX_RANK + 1] = "";
    size_t n_left = 0;
    if (strlen(letters) != (size_t)weft_rank(n->graph, x) || strlen(output) > strlen(letters))
        return node_fail(n, WEFT_BAD_SHAPE, "its equation does not fit the rank of its input");
    for (int i = 0; letters[i]; i++) {
        if (strchr(letters + i + 1, letters[i]))
            return node_fail(n, WEFT_NO_KERNEL, "a letter repeats within an operand");
        if (strchr(output, letters[i]))
            left[n_left++] = letters[i];
        else
            summed.axis[summed.count++] = i;
    }
    if (summed.count) x = weft_sum(n->graph, x, summed, false);
    for (const char *at = output; *at; at++) {
        const char *found = strchr(left, *at);
        if (!found) return node_fail(n, WEFT_BAD_FILE, "its equation is malformed");
        order.axis[order.count++] = (int32_t)(found - left);
    }
    return order.count ? weft_permute(n->graph, x, order) : x;
}

void map_Einsum(onnx_node *n)
{
    equation e;
    char text[sizeof e.text + sizeof e.output + 4];
    if (!parse(n, &e) || e.count != n->n_in) {
        node_fail(n, WEFT_NO_KERNEL,
                  "weft knows equations of one or two operands of letters, without an ellipsis");
        return;
    }
    if (e.count == 1) {
        set_out(n, 0, reorder(n, widen(n, in_value(n, 0)), e.operand[0], e.output));
        return;
    }
    snprintf(text, sizeof text, "%s,%s->%s", e.operand[0], e.operand[1], e.output);
    const weft_value a = in_value(n, 0), b = in_value(n, 1);
    weft_value y = weft_einsum(n->graph, text, widen(n, a), widen(n, b));
    if (weft_dtype_of(n->graph, a) == WEFT_I32) y = narrow(n, y, in_type(n, 0));
    set_typed(n, 0, y, in_type(n, 0));
}

/* ---- Quantized numbers ---- */

weft_value quantized_along(onnx_node *n, size_t i, int axis, int rank, double default_value)
{
    weft_graph *g = n->graph;
    if (!has_in(n, i)) return weft_scalar(g, WEFT_F64, default_value);
    weft_value x = weft_cast(g, in_value(n, i), WEFT_F64);
    if (weft_rank(g, x) != 1 || weft_dim(g, x, 0) == 1)
        return weft_rank(g, x) == 1 ? weft_squeeze(g, x, 0) : x;
    weft_shape shape = {.rank = rank};
    for (int k = 0; k < rank; k++) shape.dim[k] = k == axis ? weft_dim(g, x, 0) : 1;
    return weft_reshape(g, x, shape);
}

weft_value quantized_round(onnx_node *n, weft_value x, weft_value zero, int type)
{
    weft_graph *g = n->graph;
    const bool is_signed = type == ONNX_INT8 || type == ONNX_INT16;
    const double range = type == ONNX_INT16 || type == ONNX_UINT16 ? 65536 : 256;
    const double low = is_signed ? -range / 2 : 0;
    x = weft_add(g, weft_round(g, x), zero);
    return weft_cast(g, weft_clamp(g, x, low, low + range - 1), WEFT_I32);
}

static int quantized_type(const onnx_node *n, size_t zero_point)
{
    return has_in(n, zero_point) ? in_type(n, zero_point) : ONNX_UINT8;
}

/* In f64 a quotient that is halfway in f32 is not; so the division is one of f32. */
void map_QuantizeLinear(onnx_node *n)
{
    weft_graph *g = n->graph;
    const int rank = in_shape(n, 0).rank, type = quantized_type(n, 2);
    const int axis = rank > 1 ? attr_axis(n, "axis", 1, rank) : 0;
    weft_value x = weft_cast(g, in_value(n, 0), WEFT_F32);
    weft_value scale = weft_cast(g, quantized_along(n, 1, axis, rank, 1), WEFT_F32);
    x = weft_cast(g, weft_div(g, x, scale), WEFT_F64);
    set_typed(n, 0, quantized_round(n, x, quantized_along(n, 2, axis, rank, 0), type), type);
}

void map_DequantizeLinear(onnx_node *n)
{
    weft_graph *g = n->graph;
    const int rank = in_shape(n, 0).rank;
    const int axis = rank > 1 ? attr_axis(n, "axis", 1, rank) : 0;
    weft_value x = weft_cast(g, in_value(n, 0), WEFT_F64);
    x = weft_mul(g, weft_sub(g, x, quantized_along(n, 2, axis, rank, 0)),
                 quantized_along(n, 1, axis, rank, 1));
    set_out(n, 0, weft_cast(g, x, weft_dtype_of(g, in_value(n, 1))));
}

/* Scale and zero point that map [min(x, 0), max(x, 0)] to 0..255. */
void map_DynamicQuantizeLinear(onnx_node *n)
{
    weft_graph *g = n->graph;
    const weft_value x = in_value(n, 0), nothing = weft_scalar(g, WEFT_F32, 0);
    weft_value high = weft_maximum(g, weft_max(g, x, WEFT_ALL_AXES, false), nothing);
    weft_value low = weft_minimum(g, weft_min(g, x, WEFT_ALL_AXES, false), nothing);
    weft_value scale = weft_div(g, weft_sub(g, high, low), weft_scalar(g, WEFT_F32, 255));
    weft_value zero = weft_round(g, weft_clamp(g, weft_neg(g, weft_div(g, low, scale)), 0, 255));
    zero = weft_cast(g, zero, WEFT_F64);
    weft_value y = weft_cast(g, weft_div(g, x, scale), WEFT_F64);
    set_typed(n, 0, quantized_round(n, y, zero, ONNX_UINT8), ONNX_UINT8);
    set_typed(n, 1, scale, ONNX_FLOAT);
    set_typed(n, 2, weft_cast(g, zero, WEFT_I32), ONNX_UINT8);
}

weft_value quantized_centred(onnx_node *n, size_t i, size_t zero_point, int axis)
{
    weft_value x = weft_cast(n->graph, in_value(n, i), WEFT_F64);
    const int rank = in_shape(n, i).rank;
    return weft_sub(n->graph, x, quantized_along(n, zero_point, rank + axis, rank, 0));
}

void map_MatMulInteger(onnx_node *n)
{
    weft_value y =
        product(n->graph, quantized_centred(n, 0, 2, -2), quantized_centred(n, 1, 3, -1));
    set_typed(n, 0, weft_cast(n->graph, y, WEFT_I32), ONNX_INT32);
}

/* Inputs: a, its scale and zero point, b, its scale and zero point, scale and zero point of y. */
void map_QLinearMatMul(onnx_node *n)
{
    weft_graph *g = n->graph;
    weft_value y = product(g, quantized_centred(n, 0, 2, -2), quantized_centred(n, 3, 5, -1));
    const int rank = weft_rank(g, y);
    weft_value scale = weft_mul(g, quantized_along(n, 1, rank - 2, rank, 1),
                                quantized_along(n, 4, rank - 1, rank, 1));
    y = weft_div(g, weft_mul(g, y, scale), quantized_along(n, 6, rank - 1, rank, 1));
    set_typed(n, 0, quantized_round(n, y, quantized_along(n, 7, rank - 1, rank, 0), in_type(n, 7)),
              in_type(n, 7));
}
