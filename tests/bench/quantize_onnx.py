#!/usr/bin/env python3
"""Quantises an ONNX model to 8 bits by ONNX Runtime:

    quantize_onnx.py MODEL.onnx dynamic|static

MODEL.npz has its inputs and MODEL.npy its first output. Writes MODEL-WAY.onnx, and the same inputs and output next to
it: the output of f32 is what the quantised model is held against. `dynamic` quantises what products read as it runs;
`static` has scales from a run on the inputs, in nodes QuantizeLinear and DequantizeLinear: around products, or, if the
model has convolutions, around all ops that can be quantised, with a scale for each channel of the weights.
"""
import argparse
import os
import shutil

import numpy
import onnx
from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic,
                                      quantize_static)
from onnxruntime.quantization.shape_inference import quant_pre_process


class Inputs(CalibrationDataReader):
    def __init__(self, arrays):
        self.left = [arrays]

    def get_next(self):
        return self.left.pop() if self.left else None


def static(model, case, out, **options):
    quantize_static(model, f"{out}.onnx", Inputs(dict(numpy.load(f"{case}.npz"))), quant_format=QuantFormat.QDQ,
                    activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8, **options)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("way", choices=("dynamic", "static"))
    a = parser.parse_args()
    case = a.model.removesuffix(".onnx")
    out = f"{case}-{a.way}"
    if a.way == "dynamic":
        quantize_dynamic(a.model, f"{out}.onnx", weight_type=QuantType.QInt8)
    elif any(node.op_type == "Conv" for node in onnx.load(a.model).graph.node):
        quant_pre_process(a.model, f"{out}-folded.onnx", skip_symbolic_shape=True)
        static(f"{out}-folded.onnx", case, out, per_channel=True)
        os.remove(f"{out}-folded.onnx")
    else:
        static(a.model, case, out, op_types_to_quantize=["MatMul", "Gemm"])
    for end in (".npz", ".npy"):
        shutil.copy(case + end, out + end)


main()
