"""Checks that the cost of reading a file grows with its size and not with its square.

Usage: growth.py WEFT [NAME]...   runs the command WEFT on files that are made here

Each construct is read at two sizes, n and 2 n. The second must execute less than three times the
instructions of the first, both without what the program executes for a construct of two elements.
n log n passes, and n^2 does not: twice as much takes four times as many. valgrind counts the
instructions; without it the check is skipped.
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

# ---- Messages of protobuf ----


def varint(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def node(op, inputs, outputs, attributes=(), name="", domain=""):
    return (b"".join(field(1, i) for i in inputs) + b"".join(field(2, o) for o in outputs)
            + (field(3, name) if name else b"") + field(4, op) + b"".join(field(5, a) for a in attributes)
            + (field(7, domain) if domain else b""))


def integer(name, value):
    return field(1, name) + field(3, value) + field(20, 2)


def body(name, graph):
    return field(1, name) + field(6, graph) + field(20, 5)


def tensor_attribute(name, tensor):
    return field(1, name) + field(5, tensor) + field(20, 4)


def tensor(name, values, dims):
    return b"".join(field(1, d) for d in dims) + field(2, 1) + (field(8, name) if name else b"") \
        + field(9, struct.pack(f"<{len(values)}f", *values))


def value(name, dims=(2,)):
    shape = b"".join(field(1, field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


def graph(nodes, inputs=("x",), outputs=("y",), initializers=(), more=b""):
    return (b"".join(field(1, n) for n in nodes) + b"".join(field(5, i) for i in initializers)
            + b"".join(field(11, value(i)) for i in inputs) + b"".join(field(12, value(o)) for o in outputs) + more)


def model(graph_bytes, opsets=(("", 17),), functions=(), more=b""):
    return (field(1, 8) + field(7, graph_bytes) + b"".join(field(8, field(1, d) + field(2, v)) for d, v in opsets)
            + b"".join(field(25, f) for f in functions) + more)


def function(name, nodes, domain="own", attributes=()):
    return (field(1, name) + field(4, "x") + field(5, "y") + b"".join(field(6, a) for a in attributes)
            + b"".join(field(7, n) for n in nodes) + field(9, field(1, "") + field(2, 17)) + field(10, domain))


def chain(n, op="Relu", first="x", last="y", **more):
    names = [first] + [f"v{i}" for i in range(n - 1)] + [last]
    return [node(op, [names[i]], [names[i + 1]], **more) for i in range(n)]


RELU = [node("Relu", ["x"], ["y"])]

# ---- Constructs ----


def colliding_initializers(n):
    """Names that become one where only letters stay, after those that a number would make of it."""
    strange = ["".join(":;!?,+*~"[i >> 3 * k & 7] for k in range(5)) for i in range(n)]
    return model(graph(RELU, initializers=[tensor(f"a______{n + i}", [0, 1], [2]) for i in range(n)]
                       + [tensor("a" + text, [0, 1], [2]) for text in strange]))


def functions(n):
    calls = [node(f"f{n - 1 - i % n}", ["x"], [f"v{i}"], domain="own") for i in range(n)]
    return model(graph(calls + [node("Relu", ["v0"], ["y"])]), opsets=[("", 17), ("own", 1)],
                 functions=[function(f"f{i}", RELU) for i in range(n)])


def opsets(n):
    return model(graph(chain(n)), opsets=[(f"d{i}", 1) for i in range(n)] + [("", 17)])


def function_attributes(n):
    inner = [node("LeakyRelu", ["x" if i == 0 else f"v{i}"], [f"v{i + 1}" if i < n - 1 else "y"],
                  [field(1, "alpha") + field(21, f"a{n - 1 - i}") + field(20, 1)]) for i in range(n)]
    values = [field(1, f"a{i}") + varint(2 << 3 | 5) + struct.pack("<f", 0.5) + field(20, 1) for i in range(n)]
    return model(graph([node("f", ["x"], ["y"], values, domain="own")]), opsets=[("", 17), ("own", 1)],
                 functions=[function("f", inner, attributes=[f"a{i}" for i in range(n)])])


def node_attributes(n):
    many = [integer(f"a{i}", i) for i in range(n)]
    return model(graph([node("Softmax", ["x"], ["y"], many + [integer("axis", 0)])]))


def statistics(n):
    weights = [tensor(f"w{i}", [1, 1], [2]) for i in range(n)]
    nodes = [node("Reshape", ["x", "s"], ["r"])]
    shape = field(1, 2) + field(2, 7) + field(8, "s") + field(9, struct.pack("<2q", 1, 2))
    for i in range(n // 2):
        nodes.append(node("BatchNormalization", [f"b{i - 1}" if i else "r", "w0", "w0", f"w{2 * i}", f"w{2 * i + 1}"],
                          [f"b{i}"]))
    return model(graph(nodes, outputs=[f"b{n // 2 - 1}"], initializers=weights + [shape]))


def wide(op, n, inputs, *attributes):
    return model(graph([node(op, inputs, ["y"], attributes)]))


def outputs(n):
    return model(graph([node("Relu", ["x"], [f"y{i}"]) for i in range(n)], outputs=[f"y{i}" for i in range(n)]))


def equal_outputs(n):
    return model(graph(RELU, outputs=["y"] * n))


def inputs(n):
    return model(graph([node("Relu", [f"x{i}"], [f"y{i}"]) for i in range(n)], inputs=[f"x{i}" for i in range(n)],
                       outputs=[f"y{i}" for i in range(n)]))


def constants(n):
    nodes = [node("Constant", [], [f"c{i}"], [tensor_attribute("value", tensor("", [i, 1], [2]))]) for i in range(n)]
    return model(graph(nodes + [node("Sum", ["x"] + [f"c{i}" for i in range(n)], ["y"])]))


def weights(n):
    return model(graph([node("Sum", ["x"] + [f"w{i}" for i in range(n)], ["y"])],
                       initializers=[tensor(f"w{i}", [i, 1], [2]) for i in range(n)]))


def readers(n):
    return model(graph([node("Relu", ["x"], ["r"])] + [node("Neg", ["r"], [f"v{i}"]) for i in range(n)]
                       + [node("Concat", [f"v{i}" for i in range(n)], ["y"], [integer("axis", 0)])]))


def split(n):
    return model(graph([node("Concat", ["x"] * n, ["c"], [integer("axis", 0)]),
                        node("Split", ["c"], [f"s{i}" for i in range(n)], [integer("axis", 0)]),
                        node("Sum", [f"s{i}" for i in range(n)], ["y"])]))


def split_weight(n):
    return model(graph([node("Split", ["w"], [f"s{i}" for i in range(n)], [integer("axis", 0)]),
                        node("Sum", ["x"] + [f"s{i}" for i in range(n)], ["y"])],
                       initializers=[tensor("w", [1] * n, [n])]))


def shared_readers(n):
    """Values that one wide node reads, each with a reader of its own that runs later."""
    nodes = [node("Relu", ["x"], [f"r{i}"]) for i in range(n)] + [node("Concat", [f"r{i}" for i in range(n)], ["c"],
                                                                       [integer("axis", 0)])]
    nodes += [node("Sigmoid", ["x"], [f"s{i}"]) for i in range(n)]
    nodes += [node("Mul", [f"r{i}", f"s{i}"], [f"m{i}"]) for i in range(n)]
    return model(graph(nodes + [node("Sum", [f"m{i}" for i in range(n)], ["y"])], outputs=["y", "c"]))


def deep_branches(n):
    """Branches within each other, at most as deep as weft reads; values of the outermost one, by the innermost."""
    truth = field(2, 9) + field(9, b"\1")
    inner = graph([node("Relu", ["x"], [f"i{i}"]) for i in range(n)]
                  + [node("Sum", [f"i{i}" for i in range(n)], ["o"])],
                  inputs=(), outputs=["o"])
    for _ in range(10):
        inner = graph([node("If", ["t"], ["o"], [body("then_branch", inner)])], inputs=(), outputs=["o"])
    nodes = [node("Constant", [], ["t"], [tensor_attribute("value", truth)]),
             node("If", ["t"], ["y"], [body("then_branch", inner)])]
    return model(graph(nodes))


def loop(n):
    trips = field(2, 7) + field(8, "") + field(9, struct.pack("<q", n))
    truth = field(2, 9) + field(9, b"\1")
    inner = (field(1, node("Relu", ["a"], ["b"])) + field(1, node("Identity", ["c"], ["d"]))
             + field(11, value("i", ())) + field(11, value("c", ())) + field(11, value("a"))
             + field(12, value("d", ())) + field(12, value("b")) + field(12, value("b")))
    nodes = [node("Constant", [], ["n"], [tensor_attribute("value", trips)]),
             node("Constant", [], ["t"], [tensor_attribute("value", truth)]),
             node("Loop", ["n", "t", "x"], ["y", "z"], [body("body", inner)])]
    return model(graph(nodes, outputs=["y", "z"]))


def branches(n):
    truth = field(2, 9) + field(9, b"\1")
    nodes = [node("Constant", [], ["t"], [tensor_attribute("value", truth)])]
    for i in range(n):
        inner = graph([node("Relu", [f"v{i}" if i else "x"], [f"i{i}"])], inputs=(), outputs=[f"i{i}"])
        nodes.append(node("If", ["t"], [f"v{i + 1}"], [body("then_branch", inner), body("else_branch", inner)]))
    return model(graph(nodes, outputs=[f"v{n}"]))


def scopes(n):
    return model(graph([node("Relu", [f"v{i}" if i else "x"], [f"v{i + 1}" if i < n - 1 else "y"],
                             name=f"/a{i % 7}/b{i}/c/d/e/Relu") for i in range(n)]))


def safetensors(n):
    header = {f"layer.{i}.weight": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i in range(n)}
    header["__metadata__"] = {f"key{i}": f"text{i}" for i in range(n)}
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(4 * n)


def long_value_name(n):
    return model(graph([node("Relu", ["x" * n], ["y" * n])], inputs=["x" * n], outputs=["y" * n]))


def value_infos(n):
    return model(graph(RELU, more=b"".join(field(13, value(f"v{i}")) for i in range(n))))


def metadata(n):
    return model(graph(RELU), more=b"".join(field(14, field(1, f"k{i}") + field(2, "v")) for i in range(n)))


def long_scopes(n):
    return model(graph(chain(20, name="/".join(["a"] * n))))


# Commands, with the file for {}; and by name of a construct: n, the bytes of a file of n elements, the command.
ONNX = ["report", "{}", "--no-time", "--json", "-o", os.devnull]
EXPORT = ["export", "{}", "-o", "{}.again.onnx"]
CONSTRUCTS = {
    "chain": (1000, lambda n: model(graph(chain(n))), ONNX),
    "equal names": (1000, lambda n: model(graph(chain(n, name="a"))), ONNX),
    "scopes": (1000, scopes, ONNX),
    "long names": (200, long_scopes, ONNX),
    "long value name": (50000, long_value_name, ONNX),
    "colliding initializers": (1000, colliding_initializers, ONNX),
    "functions": (2000, functions, ONNX),
    "opset imports": (2000, opsets, ONNX),
    "attributes of a function": (5000, function_attributes, ONNX),
    "attributes of a node": (2000, node_attributes, ONNX),
    "batch norm statistics": (8000, statistics, ONNX),
    "concat of one input": (4000, lambda n: wide("Concat", n, ["x"] * n, integer("axis", 0)), ONNX),
    "sum of one input": (2000, lambda n: wide("Sum", n, ["x"] * n), ONNX),
    "max of one input": (2000, lambda n: wide("Max", n, ["x"] * n), ONNX),
    "outputs": (1000, outputs, ONNX),
    "equal outputs": (1000, equal_outputs, ONNX),
    "inputs": (1000, inputs, ONNX),
    "constants": (1000, constants, ONNX),
    "weights": (1000, weights, ONNX),
    "readers": (1000, readers, ONNX),
    "split": (500, split, ONNX),
    "split of a weight": (200, split_weight, ONNX),
    "values with two readers": (500, shared_readers, ONNX),
    "deep branches": (500, deep_branches, ONNX),
    "loop": (500, loop, ONNX),
    "branches": (500, branches, ONNX),
    "value_info": (5000, value_infos, ONNX),
    "metadata": (5000, metadata, ONNX),
    "safetensors": (1000, safetensors, ["average", "{}", "-o", "{}.safetensors"]),
    "export of a chain": (500, lambda n: model(graph(chain(n))), EXPORT),
    "export of weights": (500, weights, EXPORT),
    "export of outputs": (500, outputs, EXPORT),
    "export of constants": (500, constants, EXPORT),
    "export of a concat": (2000, lambda n: wide("Concat", n, ["x"] * n, integer("axis", 0)), EXPORT),
}


# ---- Running ----


def prepare(folder, name, n):
    """The command that reads the construct at a size."""
    _, make, command = CONSTRUCTS[name]
    path = os.path.join(folder, "file." + ("onnx" if command in (ONNX, EXPORT) else "safetensors"))
    with open(path, "wb") as file:
        file.write(make(n))
    return [part.format(path) for part in command]


def instructions(command):
    env = dict(os.environ, OMP_NUM_THREADS="1", WEFT_ISA="base")
    run = subprocess.run(["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=" + os.devnull,
                          *command], env=env, capture_output=True, text=True)
    found = re.search(r"I\s+refs:\s+([\d,]+)", run.stderr)
    if run.returncode or not found:
        sys.exit(f"growth.py: {' '.join(command)}: {run.stderr.strip()}")
    return int(found[1].replace(",", ""))


def main():
    weft, names = sys.argv[1], sys.argv[2:] or list(CONSTRUCTS)
    if not shutil.which("valgrind"):
        print("growth.py: skipped, there is no valgrind")
        return 0
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            n = CONSTRUCTS[name][0]
            least, once, twice = (instructions([weft, *prepare(folder, name, k)]) for k in (2, n, 2 * n))
            ratio = (twice - least) / (once - least)
            print(f"{name:28}{n:8}{(once - least) / 1e6:10.1f} M{(twice - least) / 1e6:10.1f} M{ratio:8.2f}", flush=True)
            if ratio >= 3:
                failed.append(name)
    for name in failed:
        print(f"growth.py: {name}: twice as much takes three times the instructions or more")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
