#!/usr/bin/env python3
"""Writes the cases of tests/golden/onnx/simple: ops of the domain ai.onnx.ml of which the onnx package has no case.

The onnx package's reference implementation computes the outputs. Run in an environment with onnx (made with 1.23.2):

    python tests/golden/make_classic_cases.py tests/golden/onnx

build/tests/onnx_conformance tests/golden/onnx runs them, next to those of make_onnx_cases.py.
"""
import pathlib
import random
import shutil
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

FEATURES = 4
COMPARISONS = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
NUMBERS = [0.0, 0.5, -0.5, 1.0]


def write(root, name, op, x, outputs, **attributes):
    """Writes one node as a model, its input and its outputs, of the given types."""
    names = [f"y{i}" for i in range(len(outputs))]
    node = helper.make_node(op, ["x"], names, domain="ai.onnx.ml", **attributes)
    infos = [helper.make_tensor_value_info(n, t, None) for n, t in zip(names, outputs)]
    graph = helper.make_graph([node], name, [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)], infos)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    folder = root / "simple" / f"test_{name}"
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    (data / "input_0.pb").write_bytes(numpy_helper.from_array(x).SerializeToString())
    for i, result in enumerate(ReferenceEvaluator(model).run(None, {"x": x})):
        result = numpy.asarray(result).astype(helper.tensor_dtype_to_np_dtype(outputs[i]))
        (data / f"output_{i}.pb").write_bytes(numpy_helper.from_array(result).SerializeToString())


def grow(modes, tree, depth, nodes):
    """Appends a random tree to the rows of nodes; the number of its root."""
    number = len(nodes)
    nodes.append(None)
    if depth == 0:
        nodes[number] = (tree, number, 0, "LEAF", 0.0, 0, 0, 0)
        return number
    children = [grow(modes, tree, random.randrange(depth), nodes) for _ in range(2)]
    nodes[number] = (tree, number, random.randrange(FEATURES), random.choice(modes), random.choice(NUMBERS), *children,
                     random.randrange(2))
    return number


def forest(modes, leaf="target", targets=2):
    """The attributes of three random trees, whose leaves have one or two of the targets."""
    names = ["nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_modes", "nodes_values", "nodes_truenodeids",
             "nodes_falsenodeids", "nodes_missing_value_tracks_true"]
    rows, leaves = [], []
    for tree in 3, 1, 7:
        nodes = []
        grow(modes, tree, 4, nodes)
        rows += nodes
        for node in nodes:
            if node[3] == "LEAF":
                for target in random.sample(range(targets), random.randint(1, min(2, targets))):
                    leaves.append((tree, node[1], target, random.randrange(-99, 99) / 8))
    attributes = dict(zip(names, map(list, zip(*rows))))
    leaf_names = [f"{leaf}_{name}" for name in ("treeids", "nodeids", "ids", "weights")]
    return attributes | dict(zip(leaf_names, map(list, zip(*leaves))))


def main():
    root = pathlib.Path(sys.argv[1])
    shutil.rmtree(root / "simple", ignore_errors=True)
    random.seed(1)
    numbers = numpy.random.default_rng(1)
    floats = [TensorProto.FLOAT]
    x = numbers.normal(size=(5, FEATURES)).astype(numpy.float32)
    x[2] = 0
    write(root, "scaler", "Scaler", x, floats, offset=[1.0, 2.0, 3.0, 4.0], scale=[0.5])
    for norm in "MAX", "L1", "L2":
        write(root, f"normalizer_{norm}", "Normalizer", x, floats, norm=norm)
    write(root, "linear_regressor", "LinearRegressor", x, floats, coefficients=[i / 4 for i in range(8)],
          intercepts=[1.0, -1.0], targets=2)
    labelled = [TensorProto.INT64, TensorProto.FLOAT]
    write(root, "linear_classifier", "LinearClassifier", x, labelled, coefficients=numbers.normal(size=12).tolist(),
          intercepts=[1.0, -1.0, 0.0], classlabels_ints=[7, 3, 9], post_transform="SOFTMAX")
    write(root, "linear_classifier_binary", "LinearClassifier", x, labelled, intercepts=[0.125],
          coefficients=numbers.normal(size=4).tolist(), classlabels_ints=[7, 3], post_transform="LOGISTIC")
    for i, aggregate in enumerate(["SUM", "AVERAGE", "MIN", "MAX"]):
        rows = numbers.choice([*NUMBERS, 0.7, -0.9], size=(40, FEATURES)).astype(numpy.float32)
        if aggregate in ("AVERAGE", "MIN"):
            rows[5, 1] = numpy.nan
            rows[6] = numpy.nan
        write(root, f"tree_regressor_{aggregate}", "TreeEnsembleRegressor", rows, floats, n_targets=2,
              aggregate_function=aggregate, base_values=[0.5, -1.0], **forest(COMPARISONS[: 1 + 2 * i]))
    for name, classes, transform in ("", 3, "SOFTMAX"), ("_binary", 1, "NONE"), ("_binary_logistic", 1, "LOGISTIC"):
        rows = numbers.choice([*NUMBERS, 0.7, -0.9], size=(40, FEATURES)).astype(numpy.float32)
        write(root, f"tree_classifier{name}", "TreeEnsembleClassifier", rows, labelled, post_transform=transform,
              classlabels_int64s=[7, 3, 9][: max(classes, 2)], base_values=[0.25, -0.5, 1.0][: max(classes, 2)],
              **forest(COMPARISONS[:1], "class", classes))
    # A NaN is no number's equal, but goes where nodes_missing_value_tracks_true says.
    rows = numbers.choice([*NUMBERS, numpy.nan], size=(40, FEATURES)).astype(numpy.float32)
    write(root, "tree_regressor_not_equal", "TreeEnsembleRegressor", rows, floats, n_targets=2,
          **forest(COMPARISONS[-1:]))


main()
