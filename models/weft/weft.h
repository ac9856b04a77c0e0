/* weft/weft.h - all of weft. */
#ifndef WEFT_H
#define WEFT_H
#include <weft/version.h>
#include <weft/graph.h>
#include <weft/store.h>
#include <weft/plan.h>
#include <weft/session.h>
#include <weft/op.h>
#include <weft/export.h>
#include <weft/kernel.h>
#include <weft/ops.h>
#include <weft/communicator.h>
#include <weft/parallel.h>
#include <weft/measure.h>
#include <weft/autograd.h>
#include <weft/sharding.h>
#include <weft/numpy.h>
#include <weft/safetensors.h>
#include <weft/pipeline.h>
#include <weft/layers.h>
#include <weft/models.h>
#include <weft/decode.h>
#include <weft/onnx.h>
#include <weft/huggingface.h>
#include <weft/train.h>
#include <weft/fit.h>
#endif
