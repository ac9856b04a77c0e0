/* The table of ops. */
#include "onnx/ops.h"

#include <string.h>

static const onnx_op table[] = {
#define ROW(name, min_in, max_in, max_out)                                                         \
    {"", #name, weft__map_##name, min_in, max_in, max_out, false, 0},
    ONNX_OPS(ROW)
#undef ROW
#define ROW(name, min_in, max_in, max_out)                                                         \
    {"", #name, weft__map_##name, min_in, max_in, max_out, true, 0},
        ONNX_CONTROL(ROW)
#undef ROW
#define ROW(name, min_in, max_in, max_out)                                                         \
    {"ai.onnx.preview.training", #name, weft__map_##name, min_in, max_in, max_out, false, 0},
            ONNX_OPTIMIZER(ROW)
#undef ROW
#define ROW(name, min_in, max_in, max_out)                                                         \
    {"com.microsoft", #name, weft__microsoft_##name, min_in, max_in, max_out, false, 0},
                ONNX_MICROSOFT(ROW)
#undef ROW
#define ROW(name, min_in, max_in, max_out)                                                         \
    {"ai.onnx.ml", #name, weft__ml_##name, min_in, max_in, max_out, false, 0},
                    ONNX_ML(ROW)
#undef ROW
                        {"com.microsoft", "Gelu", weft__map_Gelu, 1, 1, 1, false, 0},
    {"com.microsoft", "QuantizeLinear", weft__map_QuantizeLinear, 2, 3, 1, false, 0},
    {"com.microsoft", "DequantizeLinear", weft__map_DequantizeLinear, 2, 3, 1, false, 0},
    {"", "SimplifiedLayerNormalization", weft__map_RMSNormalization, 2, 2, 1, false, 0}, /* ORT's */
    {"ai.onnx.preview.training", "Gradient", weft__map_Gradient, 1, ANY, ANY, true, 0},
    {"ai.onnx.preview", "FlexAttention", weft__map_FlexAttention, 3, 3, 1, true, 0},
    {"", "Scatter", weft__map_ScatterElements, 3, 3, 1, false, 0}, /* its name before opset 11 */
    {"weft", "ExpandDims", weft__map_ExpandDims, 1, 1, 1, false, 0},
    {"", "BatchNormalization", weft__map_BatchNormalization, 5, 5, 5, false, 3},
};

static const onnx_op *find(const char *domain, const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(table[i].name, name) && !strcmp(table[i].domain, domain)) return &table[i];
    return NULL;
}

static const onnx_op call = {"", "", weft__map_function, 0, SIZE_MAX, SIZE_MAX, true, 0};

const onnx_mappings weft__onnx_mappings = {find, &call, weft__import_noted, weft__spread_sizes};
