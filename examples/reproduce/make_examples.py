#!/usr/bin/env python3
"""Writes examples.json into its own folder: the inputs of the worked examples, drawn as the documents
draw them (NumPy's legacy generator, their seeds, their order) in full double precision, and the
figures that the documents show, as text, which records how many digits each has.

A figure is "printed" if the document shows its digits. It is "numpy" if the document's code prints the
value but the output is cut off: then the same formula computes the digits here, in the format of the
document's print. Every printed figure is checked against NumPy before anything is written."""
import json
import os
import re

import numpy as np

inputs, figures = {}, {}


def store(name, array):
    array = np.asarray(array, dtype=np.float64)
    inputs[name] = {"shape": list(array.shape), "data": array.ravel().tolist()}
    return array


def pad(text, decimals):
    """NumPy drops the zeros at the end of a number; they were computed all the same."""
    if "e" in text or decimals is None:
        return text
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.ljust(decimals, '0')}" if decimals else whole


def unit(text):
    mantissa, _, exponent = text.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def printed(name, value, text, decimals=None):
    value = np.asarray(value, dtype=np.float64)
    texts = [pad(t, decimals) for t in re.findall(r"-?\d+\.?\d*(?:e[-+]\d+)?", text)]
    assert len(texts) == value.size, (name, len(texts), value.size)
    for t, v in zip(texts, value.ravel()):
        assert abs(float(t) - v) <= 0.5000001 * unit(t), (name, t, v)
    figures[name] = {"from": "printed", "shape": list(value.shape), "texts": texts}


def from_numpy(name, value, form):
    value = np.asarray(value, dtype=np.float64)
    texts = [format(v, form) for v in value.ravel()]
    figures[name] = {"from": "numpy", "shape": list(value.shape), "texts": texts}


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


randn, seed = np.random.randn, np.random.seed

# ---- 000: one head, then three ----

seed(42)
x = store("000.single.x", randn(4, 6))
seed(0)
q, k, v = (x @ store(f"000.single.w_{n}", randn(6, 6)) for n in "qkv")
printed("000.single.x", x, """
0.49671415 -0.1382643   0.64768854  1.52302986 -0.23415337 -0.23413696
1.57921282  0.76743473 -0.46947439  0.54256004 -0.46341769 -0.46572975
0.24196227 -1.91328024 -1.72491783 -0.56228753 -1.01283112  0.31424733
-0.90802408 -1.4123037   1.46564877 -0.2257763   0.0675282  -1.42474819""", 8)
scores = q @ k.T
printed("000.single.scores", scores, """
2.51889084  -7.29616433  13.79556179  12.64020041
4.97930562   1.55709123  28.89221706  11.53667062
14.57857978  14.59243409 -59.0346232  -17.30294836
0.92217982  -6.4552404   -4.47717683   5.1656522 """, 8)
scaled = scores / np.sqrt(6)
printed("000.single.scaled", scaled, """
1.02833288  -2.97864661   5.63201452   5.16034021
2.03279301   0.63567983  11.79519822   4.70982606
5.95168027   5.95733627 -24.100784    -7.06389909
0.37647834  -2.63534086  -1.82779979   2.10886868""", 8)
weights = softmax(scaled)
printed("000.single.weights", weights, """
6.12849101e-03 1.11466527e-04 6.11937525e-01 3.81822518e-01
5.75236792e-05 1.42261739e-05 9.99091747e-01 8.36502682e-04
4.98585451e-01 5.01413439e-01 4.42710886e-14 1.10954598e-06
1.46763454e-01 7.22106857e-03 1.61924326e-02 8.29823044e-01""")
printed("000.single.row_sum", weights[0].sum(), "1.0000")
printed("000.single.output", weights @ v, """
0.19028304 -2.70794733  1.58586341 -2.65571226 -1.22498655  2.9917326
-1.87379942 -5.86071822 -0.31672245 -1.92588447 -1.4917405   1.71601181
1.24175218 -0.80207389  0.7347901  -0.25686698 -0.99681396  0.46642629
3.05734209  2.04335097  4.0918789  -3.20196136 -0.84105521  4.53283216""", 8)

seed(42)
x = store("000.heads.x", randn(4, 12))
seed(1)
heads = []
for h in range(3):
    q, k, v = (x @ store(f"000.heads.w_{n}{h}", randn(12, 4)) for n in "qkv")
    heads.append(softmax(q @ k.T / np.sqrt(4)) @ v)
seed(2)
w_o = store("000.heads.w_o", randn(12, 12))
printed("000.heads.output", np.concatenate(heads, -1) @ w_o, """
7.79295186  -7.07470145  -3.84667417   1.55489513  18.4086031
-3.63904855  -1.11443661 -13.51741509  29.46540535  -5.82572674
18.16651831  34.11530273
-2.66571192  -2.91330272  -0.6897321    3.76861955 -12.59583822
5.71016448  -6.05645706  -2.18746286  -2.43917674  -2.01599365
-1.05241602  -9.75982204
-4.69018606   6.65995078  -0.31706689   8.94147911   8.91977465
10.51255541   6.99510807 -11.01997823  13.48441576  -7.56145086
-7.37464875  -5.08689748
8.4340013   -6.87925795   3.3574754   -7.19760087  -4.22422953
-0.54703288 -13.21881224  -4.27016997   1.56102634  15.01944641
6.81842512  11.39998488""", 8)

# ---- 003: recurrent cells. The document sets no seed before them, so its digits cannot be
# recomputed; these are its formulas on weights of seed 42. Weights are stored transposed, [in, hidden]. ----

x = store("003.rnn.x", [[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.7, 0.8], [0.2, 0.1, 0.4, 0.3]])
seed(42)
w_x, w_h = randn(3, 4) * np.sqrt(1 / 4), randn(3, 3) * np.sqrt(1 / 3)
store("003.rnn.w_x", w_x.T), store("003.rnn.w_h", w_h.T)
h, states = np.zeros((3, 1)), []
for x_t in x:
    h = np.tanh(w_x @ x_t[:, None] + w_h @ h)
    states.append(h[:, 0])
from_numpy("003.rnn.states", states, ".10e")


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


seed(42)
gates = {n: randn(3, 7) * np.sqrt(1 / 7) for n in "fico"}
for n, w in gates.items():
    store(f"003.lstm.{n}_h", w[:, :3].T), store(f"003.lstm.{n}_x", w[:, 3:].T)
x = store("003.lstm.x", randn(10, 4) * 0.5)
h, c, states = np.zeros((3, 1)), np.zeros((3, 1)), []
for x_t in x:
    f, i, candidate, o = (w @ np.vstack([h, x_t[:, None]]) for w in gates.values())
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(candidate)
    h = sigmoid(o) * np.tanh(c)
    states.append(h[:, 0])
from_numpy("003.lstm.states", states, ".10e")
from_numpy("003.lstm.cell", c[:, 0], ".10e")

# ---- 003: a decoder's state over an encoder's states ----

states = store("003.decoder.states", [[0.8, 0.1, 0.1, 0.0], [0.1, 0.9, 0.1, 0.1], [0.1, 0.1, 0.8, 0.1],
                                     [0.3, 0.1, 0.1, 0.1], [0.1, 0.1, 0.2, 0.9]])
state = store("003.decoder.state", [0.2, 0.85, 0.1, 0.1])
scores = states @ state
weights = softmax(scores)
printed("003.decoder.scores", scores, "0.2550 0.8050 0.1950 0.1650 0.2150")
printed("003.decoder.weights", weights, "0.1802 0.3123 0.1697 0.1647 0.1731")
printed("003.decoder.sum", weights.sum(), "1.0000")
printed("003.decoder.context", weights @ states, "0.25906809 0.34985006 0.23609905 0.22047984")

# ---- 003: self-attention step by step ----

x = store("003.steps.x", [[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0]])
seed(42)
q, k, v = (x @ store(f"003.steps.w_{n}", randn(4, 4) * 0.1) for n in "qkv")
scores = q @ k.T
weights = softmax(scores / np.sqrt(4))
printed("003.steps.scores", scores, "-0.03 -0.02 0.02 -0.01 -0.02 0.00 0.02 0.02 0.00")
printed("003.steps.range", [scores.min() / 2, scores.max() / 2], "-0.02 0.01")
from_numpy("003.steps.weights", weights, ".3f")
from_numpy("003.steps.output", weights @ v, ".10e")

# ---- 003: positions ----

at, i = np.arange(50)[:, None], np.arange(64)[None]
angles = at / 10000.0 ** (i // 2 * 2 / 64)
table = np.where(i % 2, np.cos(angles), np.sin(angles))
printed("003.positions", table[:3, :8], """0. 1. 0. 1. 0. 1. 0. 1.
0.841 0.54  0.682 0.732 0.533 0.846 0.409 0.912
0.909 -0.416  0.997  0.071  0.902  0.431  0.747  0.665""", 3)

# ---- 003: heads as slices ----

seed(42)
q, k, v = (store(f"003.slices.{n}", randn(5, 16)) for n in "qkv")


def slices(q, k, v, heads):
    width = q.shape[1] // heads
    parts = [slice(h * width, h * width + width) for h in range(heads)]
    return np.concatenate([softmax(q[:, p] @ k[:, p].T / np.sqrt(width)) @ v[:, p] for p in parts], 1)


from_numpy("003.slices.output", slices(q, k, v, 4), ".10e")
from_numpy("003.slices.self", slices(q, q, q, 4), ".10e")

# ---- 003: feed-forward; what it leaves of the generator is where the masked attention begins ----

randn(5, 64)
seed(42)
randn(64, 256), randn(256, 64)
q, k, v = (store(f"003.masked.{n}", randn(4, 8)) for n in "qkv")
weights = softmax(np.where(np.triu(np.ones((4, 4)), 1) > 0, -np.inf, q @ k.T / np.sqrt(8)))
printed("003.masked.weights", weights, """1.000 0.000 0.000 0.000
0.852 0.148 0.000 0.000
0.201 0.063 0.736 0.000
0.515 0.347 0.023 0.115""")
from_numpy("003.masked.output", weights @ v, ".10e")

# ---- 003: layer norm and residual ----

x = store("003.norm.x", [[100.0, 200.0, 300.0, 400.0], [0.01, 0.02, 0.03, 0.04]])
y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
from_numpy("003.norm.output", y, ".10e")
from_numpy("003.norm.mean", np.abs(y.mean(-1)), ".6f")
from_numpy("003.norm.deviation", y.std(-1), ".2f")
x = store("003.residual.x", [[1.0, 2.0, 3.0, 4.0]])
from_numpy("003.residual.output", x + x * 0.1, ".1f")

# ---- 003: a gradient through N steps ----

printed("003.vanishing", [0.45**n for n in (1, 5, 10, 20, 50, 100)],
        "4.50e-01 1.85e-02 3.41e-04 1.16e-07 4.58e-18 2.10e-35")

path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "examples.json")
with open(path, "w") as f:
    rows = [f'"{kind}": {{\n' + ",\n".join(f"{json.dumps(n)}: {json.dumps(t)}" for n, t in d.items())
            + "\n}" for kind, d in (("inputs", inputs), ("figures", figures))]
    f.write("{\n" + ",\n".join(rows) + "\n}\n")
print(len(inputs), "inputs,", len(figures), "figures")
