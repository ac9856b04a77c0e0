#!/usr/bin/env python3
"""An ONNX model in ONNX Runtime, with all its optimisations of the graph:

    peer_onnx.py MODEL.onnx [--threads N] [--runs N]

MODEL.npz has its inputs, and MODEL.npy is what its first output is held against. Prints JSON as
peer_torch.py does.
"""
import argparse
import json

import numpy
import onnxruntime

from peer_common import difference_of_arrays, measurements, rss_bytes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    a = parser.parse_args()
    base = rss_bytes()
    case = a.model.removesuffix(".onnx")
    arrays = dict(numpy.load(f"{case}.npz"))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = a.threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(a.model, options, providers=["CPUExecutionProvider"])
    names = [session.get_outputs()[0].name]
    difference = difference_of_arrays(session.run(names, arrays)[0], numpy.load(f"{case}.npy"))
    print(json.dumps({"onnxruntime": onnxruntime.__version__, "threads": a.threads,
                      "agreement": {"compared": 1, "output": difference, "grad": 0, "grad_peer": 0, "sign": 0},
                      **measurements(lambda: session.run(names, arrays), a.runs, base)}))


main()
