/* weft/formats.h - models and arrays in the files of others: all of the library weft-formats. */
#ifndef WEFT_FORMATS_H
#define WEFT_FORMATS_H
#include <weft/gguf.h>
#include <weft/huggingface.h>
#include <weft/numpy.h>
#include <weft/onnx.h>
#endif
