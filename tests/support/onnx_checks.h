/* Checks of the import of small ONNX models that tests write (onnx_writer.h). */
#ifndef WEFT_TESTS_ONNX_CHECKS_H
#define WEFT_TESTS_ONNX_CHECKS_H

#include "onnx_writer.h"

/* Compares the gradients of sum(y^2) of all inputs of doubles, in [low, high), with differences. */
void check_written_gradients(written_graph *g, arena *memory, int64_t opset, double low,
                             double high);
/* The import fails with that status, and a message that has the text. */
void refuse_written(arena *p, written_graph *g, int64_t opset, weft_status status,
                    const char *text);

#endif
