#!/usr/bin/python3
"""Makes the golden files: values and gradients computed by PyTorch (Debian's python3-torch).

Needed only to make the files again: run it in this folder. Everything is computed in f64 from inputs
that are f32 numbers, and stored as f32. ops.safetensors has, for each case of golden_test.c, CASE.x0 ...
(inputs), CASE.out, CASE.cotangent and CASE.grad0 ...; the transformer files have the parameters under
weft's names, the batch, logits, loss, nll, the gradient of every parameter as grad.NAME, and the losses
and gradient norms of 50 Adam steps.
"""
import json
import math
import struct

import torch
import torch.nn.functional as F


def save(path, tensors):
    header, data = {}, b""
    for name, t in tensors.items():
        t = t.detach()
        t = t.float() if t.is_floating_point() else t.int()
        raw = t.contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32" if t.is_floating_point() else "I32", "shape": list(t.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def randn(*shape):
    return torch.randn(shape).double()


def positive(*shape):
    return (torch.rand(*shape) + 0.5).double()


def mask(*shape):
    return (torch.rand(*shape) < 0.4).double()


def ids(high, *shape):
    return torch.randint(0, high, shape)


def ops():
    torch.manual_seed(1)
    cases = {
        "exp": ([randn(4, 5)], torch.exp),
        "log": ([positive(4, 5)], torch.log),
        "sqrt": ([positive(4, 5)], torch.sqrt),
        "rsqrt": ([positive(4, 5)], torch.rsqrt),
        "reciprocal": ([positive(4, 5)], torch.reciprocal),
        "sin": ([randn(4, 5)], torch.sin),
        "cos": ([randn(4, 5)], torch.cos),
        "tanh": ([randn(4, 5)], torch.tanh),
        "sigmoid": ([randn(4, 5)], torch.sigmoid),
        "erf": ([randn(4, 5)], torch.erf),
        "abs": ([randn(4, 5)], torch.abs),
        "relu": ([randn(4, 5)], torch.relu),
        "leaky_relu": ([randn(4, 5)], lambda x: F.leaky_relu(x, 0.1)),
        "clamp": ([randn(4, 5)], lambda x: x.clamp(-0.95, 1.25)),
        "gelu": ([randn(4, 5)], F.gelu),
        "gelu_tanh": ([randn(4, 5)], lambda x: 0.5 * x * (1 + torch.tanh(
            math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))),
        "silu": ([randn(4, 5)], F.silu),
        "softplus": ([randn(4, 5)], F.softplus),
        "div": ([randn(4, 5), positive(5)], torch.div),
        "pow": ([positive(4, 5), randn(4, 1)], torch.pow),
        "pow_scalar": ([positive(4, 5)], lambda x: x ** 2.5),
        "maximum": ([randn(4, 5), randn(5)], torch.maximum),
        "minimum": ([randn(4, 5), randn(4, 1)], torch.minimum),
        "where": ([mask(4, 5), randn(4, 5), randn(5)], lambda m, a, b: torch.where(m > 0, a, b)),
        "sum": ([randn(3, 4, 5)], lambda x: x.sum(1)),
        "mean": ([randn(3, 4, 5)], lambda x: x.mean((0, 2), keepdim=True)),
        "max": ([randn(4, 6)], lambda x: x.amax(1)),
        "min": ([randn(4, 6)], lambda x: x.amin(0, keepdim=True)),
        "variance": ([randn(4, 6)], lambda x: x.var(1, unbiased=False)),
        "variance_sample": ([randn(4, 6)], lambda x: x.var(unbiased=True)),
        "logsumexp": ([randn(3, 4, 5)], lambda x: x.logsumexp((0, 2))),
        "cumsum": ([randn(3, 4)], lambda x: x.cumsum(1)),
        "cumsum_reverse": ([randn(3, 4)], lambda x: x.flip(0).cumsum(0).flip(0)),
        "softmax": ([randn(4, 7)], lambda x: x.softmax(-1)),
        "softmax_middle": ([randn(2, 5, 3)], lambda x: x.softmax(1)),
        "softmax_masked": ([randn(4, 7), mask(4, 7)],
                           lambda x, m: x.masked_fill(m > 0, -math.inf).softmax(-1)),
        "log_softmax": ([randn(4, 7)], lambda x: x.log_softmax(-1)),
        "layer_norm": ([randn(3, 2, 8), randn(8), randn(8)],
                       lambda x, g, b: F.layer_norm(x, (8,), g, b, 1e-5)),
        "rms_norm": ([randn(3, 8), randn(8)],
                     lambda x, g: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * g),
        "matmul": ([randn(2, 1, 3, 4), randn(3, 4, 5)], torch.matmul),
        "matmul_weight": ([randn(2, 3, 4), randn(4, 5)], torch.matmul),
        "matmul_transposed": ([randn(2, 4, 3), randn(2, 5, 4)],
                              lambda a, b: a.transpose(-1, -2) @ b.transpose(-1, -2)),
        "einsum": ([randn(2, 3, 2, 4), randn(2, 5, 2, 4)],
                   lambda q, k: torch.einsum("nqhd,nkhd->nhqk", q, k)),
        "embedding": ([randn(6, 4), ids(6, 3, 5)],
                      lambda t, i: F.embedding(i, t, padding_idx=2)),
        "gather": ([randn(3, 5), ids(5, 3, 4)], lambda x, i: x.gather(1, i)),
        "scatter_add": ([randn(3, 5), ids(5, 3, 4), randn(3, 4)],
                        lambda x, i, u: x.scatter_add(1, i, u)),
        "slice": ([randn(3, 7)], lambda x: x.flip(1)[:, ::2]),
        "permute": ([randn(2, 3, 4)], lambda x: x.permute(2, 0, 1)),
        "concat": ([randn(3, 2), randn(3, 4)], lambda a, b: torch.cat([a, b], 1)),
        "pad": ([randn(3, 4)], lambda x: F.pad(x, (2, 1, 0, 3), value=0.5)),
        "tril": ([randn(2, 4, 5)], lambda x: x.tril(1)),
        "cross_entropy": ([randn(6, 5), torch.tensor([1, 3, 0, 4, 3, 2])],
                          lambda x, t: F.cross_entropy(x, t, ignore_index=3, label_smoothing=0.1)),
        "cross_entropy_sum": ([randn(6, 5), ids(5, 6)],
                              lambda x, t: F.cross_entropy(x, t, reduction="sum")),
        "mse": ([randn(4, 5), randn(4, 5)], F.mse_loss),
        "bce_with_logits": ([randn(4, 5), torch.rand(4, 5).double()],
                            lambda x, t: F.binary_cross_entropy_with_logits(x, t, reduction="sum")),
        "global_norm": ([randn(4, 5), randn(3)], lambda a, b: torch.sqrt((a * a).sum() + (b * b).sum())),
    }
    out = {}
    for name, (inputs, function) in cases.items():
        for x in inputs:
            if x.is_floating_point():
                x.requires_grad_(True)
        y = function(*inputs)
        cotangent = randn(*y.shape)
        (y * cotangent).sum().backward()
        for i, x in enumerate(inputs):
            out[f"{name}.x{i}"] = x
            if x.is_floating_point():
                out[f"{name}.grad{i}"] = torch.zeros_like(x) if x.grad is None else x.grad
        out[f"{name}.out"] = y
        out[f"{name}.cotangent"] = cotangent
    save("ops.safetensors", out)


D, HEADS, FF, LAYERS, VOCAB, BATCH, SOURCE, TARGET = 32, 4, 64, 2, 50, 3, 7, 6


class Transformer:
    """The encoder-decoder of the paper, restated with plain tensors."""

    def __init__(self, pre):
        self.pre = pre
        torch.manual_seed(2 + pre)
        p = self.p = {}
        tables = ["source_embedding", "target_embedding"] if pre else ["embedding"]
        for table in tables:
            p[table] = torch.randn(VOCAB, D) / math.sqrt(D)
        for stack, attentions in (("enc", ["attn"]), ("dec", ["attn", "cross"])):
            for i in range(LAYERS):
                for a in attentions:
                    self.add_norm(f"{stack}.{i}.norm_{a}")
                    for part in "q k v out".split():
                        self.add_linear(f"{stack}.{i}.{a}.{part}", D, D)
                self.add_norm(f"{stack}.{i}.norm_ffn")
                self.add_linear(f"{stack}.{i}.ffn.in", D, FF)
                self.add_linear(f"{stack}.{i}.ffn.out", FF, D)
            if pre:
                self.add_norm(f"{stack}.norm")
        if pre:
            self.add_linear("output", D, VOCAB)
        self.p = {name: t.double().requires_grad_(True) for name, t in p.items()}

    def add_linear(self, name, inside, outside):
        self.p[name + ".weight"] = torch.randn(inside, outside) / math.sqrt(inside)
        self.p[name + ".bias"] = 0.1 * torch.randn(outside)

    def add_norm(self, name):
        self.p[name + ".gamma"] = 1 + 0.1 * torch.randn(D)
        self.p[name + ".beta"] = 0.1 * torch.randn(D)

    def linear(self, name, x):
        return x @ self.p[name + ".weight"] + self.p[name + ".bias"]

    def norm(self, name, x):
        return F.layer_norm(x, (D,), self.p[name + ".gamma"], self.p[name + ".beta"], 1e-5)

    def attention(self, name, x, memory, mask):
        q, k, v = (self.linear(f"{name}.{part}", m).view(BATCH, -1, HEADS, D // HEADS).transpose(1, 2)
                   for part, m in (("q", x), ("k", memory), ("v", memory)))
        scores = (q @ k.transpose(2, 3) / math.sqrt(D // HEADS)).masked_fill(mask, -math.inf)
        context = (scores.softmax(-1) @ v).transpose(1, 2).reshape(BATCH, -1, D)
        return self.linear(name + ".out", context)

    def residual(self, norm, x, f):
        return x + f(self.norm(norm, x)) if self.pre else self.norm(norm, x + f(x))

    def feed_forward(self, name, x):
        return self.linear(name + ".out", self.linear(name + ".in", x).relu())

    def embed(self, table, ids):
        n = ids.shape[1]
        position = torch.arange(n, dtype=torch.float64)[:, None]
        angle = position / 10000 ** (torch.arange(0, D, 2, dtype=torch.float64) / D)
        pe = torch.stack([angle.sin(), angle.cos()], 2).view(n, D)
        return self.p[table][ids] * math.sqrt(D) + pe

    def stack(self, name, x, mask, memory=None, memory_mask=None):
        for i in range(LAYERS):
            n = f"{name}.{i}"
            x = self.residual(f"{n}.norm_attn", x, lambda y: self.attention(f"{n}.attn", y, y, mask))
            if memory is not None:
                x = self.residual(f"{n}.norm_cross", x, lambda y: self.attention(
                    f"{n}.cross", y, memory, memory_mask))
            x = self.residual(f"{n}.norm_ffn", x, lambda y: self.feed_forward(f"{n}.ffn", y))
        return self.norm(f"{name}.norm", x) if self.pre else x

    def logits(self, source, target_in):
        pad = (source == 0)[:, None, None, :]
        causal = torch.ones(TARGET, TARGET, dtype=torch.bool).triu(1)
        tables = ["source_embedding", "target_embedding"] if self.pre else ["embedding"] * 2
        memory = self.stack("enc", self.embed(tables[0], source), pad)
        x = self.stack("dec", self.embed(tables[1], target_in), causal, memory, pad)
        return self.linear("output", x) if self.pre else x @ self.p["embedding"].T


def transformer(path, pre):
    model = Transformer(pre)
    source = torch.randint(4, VOCAB, (BATCH, SOURCE))
    source[1, 5:] = 0
    target = torch.randint(4, VOCAB, (BATCH, TARGET))
    target_in = torch.cat([torch.full((BATCH, 1), 2), target[:, :-1]], 1)
    target_out = target.clone()
    target_out[2, 4:] = 0

    def losses_of(logits):
        return (F.cross_entropy(logits.view(-1, VOCAB), target_out.view(-1), ignore_index=0,
                                label_smoothing=s) for s in (0.1, 0.0))

    out = {name: t.detach().clone() for name, t in model.p.items()}
    out.update(source=source, target_in=target_in, target_out=target_out)
    out["logits"] = model.logits(source, target_in)
    out["loss"], out["nll"] = losses_of(out["logits"])
    out["loss"].backward()
    for name, t in model.p.items():
        out["grad." + name] = t.grad.clone()
    adam = torch.optim.Adam(model.p.values(), lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    losses, norms = [], []
    for _ in range(50):
        adam.zero_grad()
        loss, _ = losses_of(model.logits(source, target_in))
        loss.backward()
        norm = math.sqrt(sum((t.grad ** 2).sum().item() for t in model.p.values()))
        for t in model.p.values():
            t.grad *= min(1.0, 1.0 / (norm + 1e-6))
        adam.step()
        losses.append(loss.item())
        norms.append(norm)
    out["losses"], out["norms"] = torch.tensor(losses), torch.tensor(norms)
    save(path, out)


ops()
transformer("transformer.safetensors", False)
transformer("transformer_pre_norm.safetensors", True)
