/* emit_cases of a build without ONNX. */
#include "emit_onnx.h"

size_t emit_onnx_write(const char *root, const emit_writer *to)
{
    (void)to;
    printf("refused: %s: weft was built without ONNX\n", root);
    return 0;
}
