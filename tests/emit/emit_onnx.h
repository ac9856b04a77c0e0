/* Cases of ONNX's test data for emit_cases. */
#ifndef WEFT_TESTS_EMIT_ONNX_H
#define WEFT_TESTS_EMIT_ONNX_H

#include <weft/emit.h>

#include <stdio.h>

/* What emit_cases has open. */
typedef struct emit_writer {
    FILE *driver, *calls, *data;
    /* Writes a plan as NAME.c and NAME.h; false if it is refused, which is printed. */
    bool (*emit)(const weft_plan *plan, const char *name, const weft_emit_value *outputs, size_t n,
                 weft_value rate, const weft_params *params);
} emit_writer;

/* Writes all cases below `root` that the library imports; returns how many are written. */
size_t emit_onnx_write(const char *root, const emit_writer *to);

#endif
