#!/usr/bin/env python3
"""Quantises an ONNX model to 8 bits by ONNX Runtime:

    quantize_onnx.py MODEL.onnx dynamic|static

MODEL.npz has its inputs and MODEL.npy its first output. Writes MODEL-WAY.onnx, and the same inputs and output next to
it: the output of f32 is what the quantised model is held against. `dynamic` quantises what products read as it runs;
`static` has scales from a run on the inputs, in nodes QuantizeLinear and DequantizeLinear around products.
"""
import argparse
import shutil

import numpy
from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic,
                                      quantize_static)


class Inputs(CalibrationDataReader):
    def __init__(self, arrays):
        self.left = [arrays]

    def get_next(self):
        return self.left.pop() if self.left else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("way", choices=("dynamic", "static"))
    a = parser.parse_args()
    case = a.model.removesuffix(".onnx")
    out = f"{case}-{a.way}"
    if a.way == "dynamic":
        quantize_dynamic(a.model, f"{out}.onnx", weight_type=QuantType.QInt8)
    else:
        quantize_static(a.model, f"{out}.onnx", Inputs(dict(numpy.load(f"{case}.npz"))),
                        quant_format=QuantFormat.QDQ, activation_type=QuantType.QUInt8,
                        weight_type=QuantType.QInt8, op_types_to_quantize=["MatMul", "Gemm"])
    for end in (".npz", ".npy"):
        shutil.copy(case + end, out + end)


main()
