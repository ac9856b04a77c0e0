"""Runs ops of Microsoft's domain, and files that ONNX Runtime's quantiser and optimiser write, in weft and in ONNX
Runtime. Usage: compare_onnx_ops.py WEFT FOLDER; FOLDER is for models and arrays. Exit status 1 if a file is refused or
differs.

Quantised outputs may differ by one where a quotient is close to a half, of at most 1 % of the elements of an op."""
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic,
                                      quantize_static)

# Of floats, relative to the largest element; of whole files, whose quantised values may differ by one step.
LIMIT, FILE_LIMIT = 2e-6, 2e-2
MICROSOFT = "com.microsoft"
RNG = np.random.default_rng(5)
ROOT = pathlib.Path(__file__).resolve().parents[2]


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def whole(dtype, *shape):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape, dtype=dtype)


def factor(dtype, *shape):
    """A matrix of a product. In i8 it has 7 bits: ONNX Runtime adds two products with numbers of u8 in 16 bits on a
    processor with AVX2 but no VNNI, and these saturate with 8."""
    return whole(dtype, *shape) >> (dtype == np.int8)


def scale(value):
    return np.array(value, np.float32)


def session(path, level=onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL, to=None):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = level
    if to:
        options.optimized_model_filepath = str(to)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def make_model(path, nodes, inputs, outputs, constants):
    """A model of nodes; inputs and constants are arrays by name."""
    def value(name, array):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
    graph = helper.make_graph(nodes, "g", [value(k, v) for k, v in inputs.items()],
                              [onnx.ValueInfoProto(name=name) for name in outputs],
                              [numpy_helper.from_array(v, k) for k, v in constants.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)],
                                ir_version=8), path)


def compare(weft, path, inputs, limit):
    """Whether the outputs are equal; and a text."""
    folder, given = path.parent, []
    runner = session(path)
    wanted = runner.run(None, inputs)
    for i, (name, array) in enumerate(inputs.items()):
        np.save(folder / f"{i}.npy", array if array.dtype.kind in "fb" else array.astype(np.int32))
        given.append(f"--input={name}={folder}/{i}.npy")
    ran = subprocess.run([weft, "run", path, *given, "--batch=3", f"--out={folder}"], capture_output=True, text=True)
    if ran.returncode:
        return False, ran.stderr.splitlines()[0]
    worst, ones = 0.0, 0.0
    for output, b in zip(runner.get_outputs(), wanted, strict=True):
        a = np.load(folder / f"{output.name.replace('/', '_')}.npy")
        if a.shape != b.shape:
            return False, f"{a.shape} instead of {b.shape}"
        difference = np.abs(a.astype(np.float64) - b.astype(np.float64))
        if b.dtype.kind == "f":
            error = float(difference.max() / np.abs(b).max())
            worst = error if not error <= worst else worst  # NaN stays
        else:
            ones = max(ones, float((difference != 0).mean()))
            worst = worst if difference.max() <= 1 else float("inf")
    return worst <= limit and ones <= 0.01, f"{worst:.1e}" + (f", {100 * ones:.2g} % by one" if ones else "")


# ---- Single ops ----

def op(name, arrays, outputs=1, fixed=(), **attributes):
    """An op on arrays, of which None is absent; those of the numbers in `fixed` are constants."""
    return name, arrays, outputs, fixed, attributes


def quantised(dtype, *shape, by=0.03, zero=None):
    limits = np.iinfo(dtype)
    middle = (limits.min + limits.max + 1) // 2 + 3 if zero is None else zero
    return [whole(dtype, *shape), scale(by), np.array(middle, dtype)]


def result(dtype, by, zero=2):
    return [scale(by), np.array(zero, dtype)]


def ops_of(t):
    """Ops on one type of bytes."""
    x = quantised(t, 2, 3, 8, 8)
    yield op("QLinearAdd", x + quantised(t, 3, 1, 8, by=0.02) + result(t, 0.05))
    yield op("QLinearMul", x + quantised(t, 3, 1, 8, by=0.02) + result(t, 0.09))
    yield op("QLinearSigmoid", x + result(t, 1 / 256, 0))
    yield op("QLinearLeakyRelu", x + result(t, 0.03), alpha=0.1)
    yield op("QLinearGlobalAveragePool", x + result(t, 0.008))
    yield op("QLinearGlobalAveragePool", x + result(t, 0.008), channels_last=1)
    yield op("QLinearAveragePool", x + result(t, 0.0217), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    yield op("QLinearAveragePool", x + result(t, 0.0217), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    yield op("QLinearAveragePool", x + result(t, 0.0217), kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    yield op("QLinearConcat", result(t, 0.04) + x + quantised(t, 2, 5, 8, 8, by=0.05), axis=1)
    yield op("QLinearSoftmax", x + result(t, 1 / 256, 0), axis=3, opset=13)
    yield op("QLinearSoftmax", x + result(t, 1 / 256, 0), axis=2, opset=12)
    yield op("QLinearWhere", [RNG.random((8, 8)) < 0.5, *x, *quantised(t, 2, 3, 8, 8, by=0.04), *result(t, 0.05)])
    bias = RNG.integers(-9999, 9999, 6, dtype=np.int32)
    for b in (np.int8, t):
        columns = floats(6) ** 2 + 0.01
        factors = [factor(b, 12, 6), columns, np.zeros(6, b)]
        yield op("QGemm", [*quantised(t, 5, 12), *factors, bias, *result(t, 3.0)], fixed=(3, 4, 5, 6))
        factors = [factor(b, 6, 12), scale(0.02), np.array(1, b)]
        yield op("QGemm", [*quantised(t, 5, 12), *factors, bias], fixed=(3, 4, 5, 6), transB=1, alpha=0.5)


def products():
    a, b = quantised(np.uint8, 4, 5, 12), [factor(np.int8, 12, 6), *quantised(np.int8)[1:]]
    columns, zeros = floats(6) ** 2, whole(np.int8, 6)
    yield op("MatMulIntegerToFloat", [a[0], b[0], a[1], columns, a[2], zeros, floats(6)], fixed=(1, 3, 5))
    yield op("MatMulIntegerToFloat", [a[0], b[0], a[1], b[1]])
    yield op("DynamicQuantizeMatMul", [floats(4, 5, 12), b[0], b[1], b[2], floats(6)], fixed=(1, 2, 3))
    yield op("DynamicQuantizeMatMul", [floats(4, 5, 12), b[0], columns], fixed=(1, 2))
    yield op("FusedMatMul", [floats(2, 12, 5), floats(2, 6, 12)], alpha=0.3, transA=1, transB=1)
    yield op("FusedGemm", [floats(5, 12), floats(12, 6), floats(6)], activation="LeakyRelu", activation_alpha=0.2)
    yield op("FusedConv", [floats(2, 3, 9, 9), floats(6, 3, 3, 3), floats(6), floats(2, 6, 7, 7)], activation="Relu")
    yield op("FusedConv", [floats(2, 3, 9, 9), floats(6, 3, 3, 3)], activation="Clip", activation_params=[-1.0, 2.0])


def layers():
    x, wide = floats(2, 7, 12), floats(12)
    yield op("Gelu", [x])
    yield op("BiasGelu", [x, wide])
    yield op("FastGelu", [x, wide])
    yield op("FastGelu", [x])
    yield op("QuickGelu", [x], alpha=1.5)
    yield op("SkipLayerNormalization", [x, floats(2, 7, 12), wide, floats(12), floats(12)], epsilon=1e-5)
    yield op("SkipLayerNormalization", [x, floats(2, 7, 12), wide], outputs=4)
    yield op("SkipSimplifiedLayerNormalization", [x, floats(2, 7, 12), wide, floats(12)], outputs=4, epsilon=1e-6)
    ids = [RNG.integers(0, 9, (2, 7), dtype=np.int32), RNG.integers(0, 2, (2, 7), dtype=np.int32)]
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3], np.int32)
    tables = [floats(9, 12), floats(7, 12), floats(2, 12), wide, floats(12)]
    yield op("EmbedLayerNormalization", [*ids, *tables, mask], outputs=3)
    yield op("EmbedLayerNormalization", [ids[0], None, *tables[:2], None, *tables[3:]], outputs=2)
    weights = [floats(12, 36), floats(36)]
    for given in (None, mask, np.array([7, 4], np.int32)):
        yield op("Attention", [x, *weights, given], num_heads=3)
    yield op("Attention", [x, *weights, np.tril(np.ones((2, 7, 7), np.int32))], num_heads=3, scale=0.2)
    yield op("Attention", [x, *weights, None, None, floats(2, 3, 7, 7)], num_heads=3, unidirectional=1)
    yield op("Attention", [x, floats(12, 30), floats(30)], num_heads=3, qkv_hidden_sizes=[12, 12, 6])
    for t in (np.uint8, np.int8):
        factors = [factor(t, 2, 6, 32), factor(t, 2, 8, 32)]
        scales = [scale([0.01, 0.02]), np.array([1, 2], t), scale([0.02, 0.01]), np.array([3, 0], t)]
        for first in (floats(2, 1, 8), None):
            yield op("DynamicQuantizeLSTM", [floats(5, 1, 6), *factors, floats(2, 64), None, first, None, None, *scales],
                     outputs=3, fixed=range(1, 12), hidden_size=8, direction="bidirectional")


def run_ops(weft, folder):
    failed = 0
    for name, arrays, outputs, fixed, attributes in [*ops_of(np.uint8), *ops_of(np.int8), *products(), *layers()]:
        given = {f"x{i}": a for i, a in enumerate(arrays) if a is not None}
        names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
        out = [f"y{i}" for i in range(outputs)]
        if name.startswith("Skip") and outputs == 4:
            out[1:3] = ["", ""]
        constants = {k: v for k, v in given.items() if int(k[1:]) in fixed}
        inputs = {k: v for k, v in given.items() if k not in constants}
        path = folder / "op.onnx"
        node = helper.make_node(name, names, out, domain=MICROSOFT, **attributes)
        make_model(path, [node], inputs, [o for o in out if o], constants)
        good, text = compare(weft, path, inputs, LIMIT)
        print(f"{name:34} {text}{'' if good else ' FAILED'}")
        failed += not good
    return failed


# ---- Files ----

class Calibration(CalibrationDataReader):
    def __init__(self, inputs):
        self.left = [{k: v + 0.1 * RNG.standard_normal(v.shape).astype(np.float32) for k, v in inputs.items()}
                     for _ in range(4)]

    def get_next(self):
        return self.left.pop() if self.left else None


def make_images(path):
    """A small residual network with every op that the quantiser knows of images."""
    weights = {"w0": floats(8, 3, 3, 3) / 3, "b0": floats(8), "w1": floats(8, 8, 3, 3) / 9, "b1": floats(8),
               "w2": floats(8, 1, 3, 3) / 3, "w3": floats(16, 5) / 4, "b3": floats(5), "w4": floats(5, 5) / 2}
    n = helper.make_node
    nodes = [n("Conv", ["x", "w0", "b0"], ["c0"], strides=[2, 2], pads=[1, 1, 1, 1]), n("Relu", ["c0"], ["r0"]),
             n("Conv", ["r0", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]), n("Add", ["c1", "r0"], ["a1"]),
             n("LeakyRelu", ["a1"], ["l1"], alpha=0.1),
             n("Conv", ["l1", "w2"], ["c2"], group=8, pads=[1, 1, 1, 1]), n("Sigmoid", ["c2"], ["s2"]),
             n("Mul", ["c2", "s2"], ["m2"]), n("Concat", ["m2", "l1"], ["d2"], axis=1),
             n("MaxPool", ["d2"], ["p1"], kernel_shape=[2, 2], strides=[2, 2]),
             n("AveragePool", ["p1"], ["p2"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
             n("GlobalAveragePool", ["p2"], ["g2"]), n("Flatten", ["g2"], ["f2"]),
             n("Gemm", ["f2", "w3", "b3"], ["e3"]), n("MatMul", ["e3", "w4"], ["e4"]),
             n("Softmax", ["e4"], ["y"], axis=-1)]
    inputs = {"x": floats(1, 3, 16, 16)}
    make_model(path, nodes, inputs, ["y", "e4", "m2"], weights)
    return inputs


def quantise(path, inputs, folder):
    """Files by ONNX Runtime's quantiser."""
    types = {"u8": QuantType.QUInt8, "s8": QuantType.QInt8}
    for form, text in ((QuantFormat.QOperator, "QOperator"), (QuantFormat.QDQ, "QDQ")):
        for activations, weights, channels in (("u8", "s8", True), ("u8", "u8", False), ("s8", "s8", False)):
            to = folder / f"{text}-{activations}{weights}{'-channels' if channels else ''}.onnx"
            quantize_static(path, to, Calibration(inputs), quant_format=form, per_channel=channels, reduce_range=True,
                            activation_type=types[activations], weight_type=types[weights])
            yield to, inputs
    for weights in ("u8", "s8"):
        to = folder / f"dynamic-{weights}.onnx"
        quantize_dynamic(path, to, weight_type=types[weights], reduce_range=True)
        yield to, inputs


def optimise(files, folder):
    """What ONNX Runtime's optimiser makes of files."""
    for path, inputs in files:
        to = folder / f"optimised-{path.name}"
        session(path, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED, to)
        yield to, inputs


def languages(folder):
    """A BERT from PyTorch, and the same quantised."""
    path, to = ROOT / "tests/data/languages/languages.onnx", folder / "bert-dynamic.onnx"
    inputs = dict(np.load(ROOT / "tests/data/languages/example.npz"))
    quantize_dynamic(path, to, weight_type=QuantType.QInt8, reduce_range=True)
    return [(path, inputs), (to, inputs)]


def run_files(weft, folder):
    images = folder / "images.onnx"
    inputs = make_images(images)
    plain = [(images, inputs), *quantise(images, inputs, folder), *languages(folder)]
    failed = 0
    for path, given in [*plain, *optimise(plain, folder)]:
        domains = sorted({n.op_type for n in onnx.load(path).graph.node if n.domain == MICROSOFT})
        copy = folder / path.name
        copy.write_bytes(path.read_bytes())
        runner = session(copy)
        typed = {i.name: given[i.name].astype(np.int64 if i.type == "tensor(int64)" else given[i.name].dtype)
                 for i in runner.get_inputs()}
        good, text = compare(weft, copy, typed, FILE_LIMIT)
        print(f"{path.name:34} {text}{'' if good else ' FAILED'}  {' '.join(domains)}")
        failed += not good
    return failed


def main():
    weft, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    failed = run_ops(weft, folder) + run_files(weft, folder)
    sys.exit(int(failed > 0))


if __name__ == "__main__":
    main()
