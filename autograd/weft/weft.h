/* weft/weft.h - the library weft: graphs, operations, gradients, plans, sessions and parameters.
 *
 * The other libraries have headers of their own: <weft/inspect.h> (pictures, summaries, profiles),
 * <weft/distributed.h> (several processes), <weft/models.h>, <weft/train.h>, <weft/fit.h> and
 * <weft/decode.h> (models), and <weft/formats.h> (ONNX, Hugging Face and NumPy). */
#ifndef WEFT_H
#define WEFT_H
#include <weft/version.h>
#include <weft/graph.h>
#include <weft/log.h>
#include <weft/store.h>
#include <weft/plan.h>
#include <weft/session.h>
#include <weft/op.h>
#include <weft/export.h>
#include <weft/kernel.h>
#include <weft/losses.h>
#include <weft/ops.h>
#include <weft/communicator.h>
#include <weft/parallel.h>
#include <weft/measure.h>
#include <weft/quantize.h>
#include <weft/autograd.h>
#include <weft/safetensors.h>
#endif
