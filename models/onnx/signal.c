/* Windows of signals, whose length must be known: sums of cosines, computed in f64. */
#include "onnx/import.h"
#include "onnx/ops.h"

#include <math.h>

#define MAX_LENGTH ((int64_t)1 << 26)

/* a - b cos(2 pi i / n) + c cos(4 pi i / n) */
static void map_window(onnx_node *n, double a, double b, double c)
{
    const int64_t length = (int64_t)in_number(n, 0, "size", 0);
    const int type = (int)attr_int(n, "output_datatype", ONNX_FLOAT);
    weft_dtype dtype;
    if (node_failed(n) || onnx_type_dtype(type, "a window", &dtype, &n->import->error)) return;
    double *window = length < 0 || length > MAX_LENGTH
                         ? NULL
                         : arena_alloc(&n->import->memory, (size_t)length * sizeof *window);
    if (!window) {
        node_fail(n, WEFT_TOO_LARGE, "a window of %lld elements", (long long)length);
        return;
    }
    const double period = (double)(attr_int(n, "periodic", 1) ? length : length - 1);
    for (int64_t i = 0; i < length; i++) {
        const double angle = 2 * M_PI * (double)i / period;
        window[i] = a - b * cos(angle) + c * cos(2 * angle);
    }
    set_typed(n, 0, doubles_value(n, window, WEFT_SHAPE(length), dtype), type);
}

void map_HannWindow(onnx_node *n)
{
    map_window(n, 0.5, 0.5, 0);
}

void map_HammingWindow(onnx_node *n)
{
    map_window(n, 25.0 / 46, 21.0 / 46, 0);
}

void map_BlackmanWindow(onnx_node *n)
{
    map_window(n, 0.42, 0.5, 0.08);
}
