"""ONNX models for emit_peers.py, with random weights: a classifier of digits with one hidden layer, a small convolutional
network, the keyword spotter DS-CNN of MLPerf Tiny, and a Transformer encoder of two layers. One example at a time."""
import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """A graph under way: each method appends nodes and returns the name of their result."""

    def __init__(self, name, shape):
        self.name, self.random = name, numpy.random.default_rng(1)
        self.nodes, self.weights = [], []
        self.x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)

    def weight(self, *shape):
        """Of the size that keeps activations near 1."""
        fan_in = int(numpy.prod(shape[1:])) if len(shape) == 4 else shape[0]
        return self.constant(self.random.standard_normal(shape) / fan_in**0.5)

    def near(self, mean, size):
        """A vector of different numbers, as training leaves them: `weft emit` stores one element of equal ones."""
        return self.constant(mean + 0.1 * self.random.standard_normal(size))

    def constant(self, array, dtype=numpy.float32):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(numpy.asarray(array, dtype), name))
        return name

    def node(self, op, *inputs, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def dense(self, x, n_in, n_out):
        return self.node("Gemm", x, self.weight(n_in, n_out), self.near(0.1, n_out))

    def conv(self, x, n_in, n_out, kernel, group=1, **attributes):
        w = self.weight(n_out, n_in // group, *kernel)
        y = self.node("Conv", x, w, self.near(0.1, n_out), kernel_shape=kernel, group=group, **attributes)
        return self.node("Relu", y)

    def model(self, shape):
        self.nodes[-1].output[0] = "y"
        out = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, self.name, [self.x], [out], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        return model


def mlp():
    b = Builder("mlp", [1, 784])
    h = b.node("Relu", b.dense("x", 784, 32))
    b.node("Softmax", b.dense(h, 32, 10), axis=-1)
    return b.model([1, 10])


def cnn():
    b = Builder("cnn", [1, 1, 28, 28])
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    h = b.node("MaxPool", b.conv("x", 1, 8, [3, 3], pads=[1, 1, 1, 1]), **pool)
    h = b.node("MaxPool", b.conv(h, 8, 16, [3, 3], pads=[1, 1, 1, 1]), **pool)
    h = b.dense(b.node("Flatten", h), 16 * 7 * 7, 10)
    b.node("Softmax", h, axis=-1)
    return b.model([1, 10])


def ds_cnn():
    b = Builder("ds_cnn", [1, 1, 49, 10])
    h = b.conv("x", 1, 64, [10, 4], strides=[2, 2], pads=[4, 1, 5, 1])
    for _ in range(4):
        h = b.conv(h, 64, 64, [3, 3], group=64, pads=[1, 1, 1, 1])
        h = b.conv(h, 64, 64, [1, 1])
    h = b.dense(b.node("Flatten", b.node("GlobalAveragePool", h)), 64, 12)
    b.node("Softmax", h, axis=-1)
    return b.model([1, 12])


def encoder(length=16, d=32, heads=2, layers=2):
    b = Builder("encoder", [1, length, d])
    x = "x"

    def project(x, n_in, n_out):
        return b.node("Add", b.node("MatMul", x, b.weight(n_in, n_out)), b.near(0.1, n_out))

    def norm(x):
        return b.node("LayerNormalization", x, b.near(1, d), b.near(0, d), axis=-1)

    def split(x, perm):
        shape = b.constant([1, length, heads, d // heads], numpy.int64)
        return b.node("Transpose", b.node("Reshape", x, shape), perm=perm)

    for _ in range(layers):
        query, key, value = (project(x, d, d) for _ in range(3))
        scores = b.node("MatMul", split(query, [0, 2, 1, 3]), split(key, [0, 2, 3, 1]))
        scores = b.node("Mul", scores, b.constant((d // heads)**-0.5))
        mixed = b.node("MatMul", b.node("Softmax", scores, axis=-1), split(value, [0, 2, 1, 3]))
        mixed = b.node("Reshape", b.node("Transpose", mixed, perm=[0, 2, 1, 3]), b.constant([1, length, d], numpy.int64))
        x = norm(b.node("Add", x, project(mixed, d, d)))
        hidden = b.node("Relu", project(x, d, 2 * d))
        x = norm(b.node("Add", x, project(hidden, 2 * d, d)))
    return b.model([1, length, d])


MODELS = {"mlp": mlp, "cnn": cnn, "ds_cnn": ds_cnn, "encoder": encoder}
