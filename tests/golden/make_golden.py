#!/usr/bin/env python3
"""Writes the golden files next to it: what PyTorch computes, in f64 and rounded to f32, for single ops
and for a small Transformer restated here in plain tensor operations. Run it with a Python that has
torch; the files are kept in the repository, so that the tests need neither.

Usage: make_golden.py [CASE...]. With names of cases, only these change in ops.safetensors; without
names, all files are written again.

ops.safetensors holds for each case its inputs CASE.x0, CASE.x1, ..., the output CASE.out, a random
CASE.cotangent, and the gradients CASE.grad0, ... of the floating inputs. The transformer files hold
weights by weft's names, inputs, logits, loss, nll, grad.NAME, and losses and norms of Adam steps.
optimizers.safetensors holds x, y and the first w and b of a small regression, and for each optimiser w
and b after each of ten steps."""
import json
import math
import os
import struct
import sys
import zlib

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))


def save(name, tensors, metadata=None):
    """The safetensors format: length of the header, header in JSON, data."""
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for key, t in tensors.items():
        floating = t.is_floating_point()
        raw = t.detach().to(torch.float32 if floating else torch.int32).contiguous().numpy().tobytes()
        header[key] = {
            "dtype": "F32" if floating else "I32",
            "shape": list(t.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(HERE, name), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def load(name):
    """The tensors of a file that save wrote."""
    with open(os.path.join(HERE, name), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    tensors = {}
    for key, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype = torch.float32 if entry["dtype"] == "F32" else torch.int32
        flat = torch.empty((end - begin) // 4, dtype=dtype)
        if end > begin:
            flat = torch.frombuffer(bytearray(data[begin:end]), dtype=dtype)
        tensors[key] = flat.reshape(entry["shape"])
    return tensors


def rounded(t):
    """What a reader of the file will see."""
    return t.float().double()


def uniform(*shape, low=-2.0, high=2.0):
    return rounded(low + (high - low) * torch.rand(*shape, dtype=torch.float64))


def distinct(*shape):
    """No ties, and nothing near a kink: a shuffled grid around, but not on, zero."""
    n = math.prod(shape)
    return rounded((torch.randperm(n).double() - n / 2 + 0.5).reshape(shape) * (4.0 / n))


def ints(*shape, below):
    return torch.randint(0, below, shape)


# ---- Single ops ----


def op_cases():
    x = uniform(3, 5)
    positive = uniform(3, 5, low=0.3, high=3.0)
    d = distinct(4, 5)
    mask = torch.rand(3, 5) < 0.4
    mask[:, 0] = False
    targets = ints(6, below=7)
    targets[2] = 3
    table, rows = uniform(6, 4), ints(2, 5, below=6)
    yield "exp", torch.exp, [x]
    yield "log", torch.log, [positive]
    yield "sqrt", torch.sqrt, [positive]
    yield "rsqrt", torch.rsqrt, [positive]
    yield "reciprocal", torch.reciprocal, [positive]
    yield "sin", torch.sin, [x]
    yield "cos", torch.cos, [x]
    yield "tanh", torch.tanh, [x]
    yield "sigmoid", torch.sigmoid, [x]
    yield "erf", torch.erf, [x]
    yield "abs", torch.abs, [d]
    yield "relu", torch.relu, [d]
    yield "leaky_relu", lambda a: F.leaky_relu(a, 0.1), [d]
    yield "clamp", lambda a: torch.clamp(a, -0.95, 1.25), [d]
    yield "gelu", F.gelu, [x]
    yield "gelu_tanh", lambda a: F.gelu(a, approximate="tanh"), [x]
    yield "silu", F.silu, [x]
    yield "softplus", F.softplus, [uniform(3, 5, low=-8.0, high=8.0)]
    yield "div", torch.div, [uniform(2, 1, 5), uniform(3, 1, low=0.5, high=2.0)]
    yield "pow", torch.pow, [positive, uniform(5)]
    yield "pow_scalar", lambda a: a**2.5, [positive]
    yield "maximum", torch.maximum, [distinct(3, 4), distinct(3, 4) + 0.05]
    yield "minimum", torch.minimum, [distinct(3, 4), distinct(4) + 0.05]
    yield "where", lambda m, a, b: torch.where(m != 0, a, b), [mask.int(), x, uniform(5)]
    yield "sum", lambda a: a.sum(1), [uniform(2, 3, 4)]
    yield "mean", lambda a: a.mean((0, 2), keepdim=True), [uniform(2, 3, 4)]
    yield "max", lambda a: a.amax(1), [d]
    yield "min", lambda a: a.amin(0, keepdim=True), [d]
    yield "variance", lambda a: a.var(1, unbiased=False), [x]
    yield "variance_sample", lambda a: a.var((0, 1), unbiased=True), [x]
    yield "logsumexp", lambda a: a.logsumexp((0, 2)), [uniform(2, 3, 4, low=-9.0, high=90.0)]
    yield "cumsum", lambda a: a.cumsum(1), [uniform(2, 5, 3)]
    yield "cumsum_reverse", lambda a: a.flip(0).cumsum(0).flip(0), [x]
    yield "softmax", lambda a: a.softmax(-1), [x]
    yield "softmax_middle", lambda a: a.softmax(1), [uniform(2, 5, 3)]
    yield "softmax_masked", lambda a, m: a.masked_fill(m != 0, -math.inf).softmax(-1), [x, mask.int()]
    yield "log_softmax", lambda a: a.log_softmax(-1), [uniform(3, 5, low=-30.0, high=30.0)]
    yield "layer_norm", lambda a, g, b: F.layer_norm(a, (17,), g, b, 1e-5), [
        uniform(2, 3, 17), uniform(17), uniform(17)]
    yield "rms_norm", lambda a, g: a * (a.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * g, [
        uniform(2, 3, 17), uniform(17)]
    yield "matmul", torch.matmul, [uniform(2, 1, 3, 4), uniform(5, 4, 6)]
    yield "matmul_weight", torch.matmul, [uniform(2, 3, 4), uniform(4, 6)]
    yield "matmul_transposed", lambda a, b: a.mT @ b.mT, [uniform(2, 4, 3), uniform(2, 6, 4)]
    yield "einsum", lambda a, b: torch.einsum("nqhd,nkhd->nhqk", a, b), [
        uniform(2, 3, 2, 4), uniform(2, 5, 2, 4)]
    yield "embedding", lambda t, i: F.embedding(i.long(), t, padding_idx=2), [table, rows]
    yield "gather", lambda a, i: a.gather(1, i.long()), [uniform(3, 6), ints(3, 4, below=6)]
    yield "scatter_add", lambda a, i, u: a.scatter_add(1, i.long(), u), [
        uniform(3, 4), ints(3, 6, below=4), uniform(3, 6)]
    yield "slice", lambda a: a.flip(1)[:, ::2], [x]
    yield "permute", lambda a: a.permute(2, 0, 1), [uniform(2, 3, 4)]
    yield "concat", lambda a, b: torch.cat((a, b), 1), [x, uniform(3, 2)]
    yield "pad", lambda a: F.pad(a, (2, 1, 0, 3), value=0.5), [x]
    yield "tril", lambda a: a.tril(1), [uniform(2, 4, 4)]
    yield "cross_entropy", lambda a, t: F.cross_entropy(
        a, t.long(), ignore_index=3, label_smoothing=0.1), [uniform(6, 7), targets]
    yield "cross_entropy_sum", lambda a, t: F.cross_entropy(
        a.flatten(0, 1), t.long().flatten(), reduction="sum"), [
            uniform(2, 3, 7, low=-20.0, high=20.0), ints(2, 3, below=7)]
    yield "mse", F.mse_loss, [x, uniform(3, 5)]
    yield "bce_with_logits", lambda a, t: F.binary_cross_entropy_with_logits(a, t, reduction="sum"), [
        uniform(3, 5, low=-9.0, high=9.0), uniform(3, 5, low=0.0, high=1.0)]
    yield "global_norm", lambda a, b: (a.square().sum() + b.square().sum()).sqrt(), [x, uniform(4)]
    with torch.random.fork_rng():  # the files made after this one stay as they are
        yield "batch_norm", lambda a, g, b: F.batch_norm(a, None, None, g, b, training=True, eps=1e-5), [
            uniform(3, 4, 2, 3), uniform(4), uniform(4)]


def later_cases():
    """Each has a generator of its own, so that a new case leaves the others as they are."""
    tiny = torch.tensor([[1e-3, 1e-5, -1e-6, 0.5], [-0.6, 2.0, 1e-12, -1e-3]])
    yield "expm1", torch.expm1, lambda: [tiny]
    yield "log1p", torch.log1p, lambda: [tiny]
    yield "top_k", lambda a: a.topk(3, 1).values, lambda: [distinct(4, 7)]
    yield "sort", lambda a: a.sort(0).values, lambda: [distinct(5, 3)]
    yield "cross_entropy_none", lambda a, t: F.cross_entropy(
        a, t.long(), ignore_index=3, label_smoothing=0.1, reduction="none"), lambda: [
            uniform(6, 7), torch.tensor([0, 6, 3, 2, 2, 5])]
    pair = lambda: [distinct(3, 5), distinct(3, 5) + 0.05]
    yield "mse_none", lambda a, b: F.mse_loss(a, b, reduction="none"), pair
    yield "bce_none", lambda a, t: F.binary_cross_entropy_with_logits(a, t, reduction="none"), lambda: [
        uniform(3, 5, low=-9.0, high=9.0), uniform(3, 5, low=0.0, high=1.0)]
    yield "l1_loss", F.l1_loss, pair
    yield "huber_loss", lambda a, b: F.huber_loss(a, b, delta=0.7, reduction="sum"), pair
    yield "smooth_l1_loss", lambda a, b: F.smooth_l1_loss(a, b, beta=0.7, reduction="none"), pair
    yield "kl_divergence", lambda a, p: F.kl_div(a.log_softmax(-1), p, reduction="sum"), lambda: [
        uniform(3, 5), uniform(3, 5, low=0.1, high=1.0)]
    yield "hinge_loss", lambda a, t: (1 - a * t).clamp(min=0).mean(), lambda: [
        distinct(3, 5), rounded(torch.randint(0, 2, (3, 5)) * 2.0 - 1)]
    yield "cosine_similarity", lambda a, b: F.cosine_similarity(a, b, dim=-1, eps=1e-8), lambda: [
        uniform(2, 3, 4), uniform(2, 1, 4)]
    yield "cosine_embedding_loss", lambda a, b, t: F.cosine_embedding_loss(a, b, t, margin=0.2), lambda: [
        uniform(6, 4), uniform(6, 4), rounded(torch.tensor([1.0, -1, -1, 1, -1, -1]))]
    triplet = lambda: [uniform(6, 4), uniform(6, 4), uniform(6, 4)]
    yield "triplet_margin_loss", lambda a, p, n: F.triplet_margin_loss(a, p, n, margin=0.5), triplet
    yield "triplet_margin_loss_swap", lambda a, p, n: F.triplet_margin_loss(
        a, p, n, margin=0.5, p=3, swap=True), triplet
    # A repeated label; labels after the end; too few frames, whose loss becomes 0; no labels.
    sequences = lambda: [
        uniform(8, 4, 5), torch.tensor([[2, 2, 0], [4, 0, 0], [3, 3, 3], [0, 0, 0]]),
        torch.tensor([8, 5, 4, 7]), torch.tensor([3, 1, 3, 0])]
    yield "ctc", lambda a, t, i, n: ctc(a, t, i, n, "none"), sequences
    yield "ctc_loss", lambda a, t, i, n: ctc(a, t, i, n, "mean"), sequences
    yield "prod", products, lambda: [with_zeros(uniform(2, 3, 4))]


def ctc(logits, targets, frames, lengths, reduction):
    return F.ctc_loss(logits.log_softmax(-1), targets.long(), frames.long(), lengths.long(), blank=1,
                      reduction=reduction, zero_infinity=True)


def products(a):
    """Over axes 0 and 2."""
    return a.prod(2, keepdim=True).prod(0, keepdim=True)


def with_zeros(a):
    """No zero in column 0, one in column 1, two in column 2."""
    a[0, 1, 2] = a[1, 2, 0] = a[0, 2, 3] = 0
    return a


def all_cases():
    yield from op_cases()
    for name, function, inputs in later_cases():
        with torch.random.fork_rng():
            torch.manual_seed(zlib.crc32(name.encode()))
            yield name, function, inputs()


def make_ops(wanted_cases):
    """Writes all cases, or changes the wanted ones in the file."""
    file = load("ops.safetensors") if wanted_cases else {}
    state = torch.get_rng_state()
    unknown = wanted_cases - {name for name, _, _ in all_cases()}
    torch.set_rng_state(state)
    if unknown:
        sys.exit(f"make_golden.py: no case {', '.join(sorted(unknown))} in op_cases or later_cases")
    for name, function, inputs in all_cases():
        if wanted_cases and name not in wanted_cases:
            continue
        inputs = [rounded(t) if t.is_floating_point() else t for t in inputs]
        inputs = [t.clone().requires_grad_(t.is_floating_point()) for t in inputs]
        out = function(*inputs)
        cotangent = uniform(*out.shape) if out.dim() else rounded(torch.tensor(1.7))
        wanted = [i for i, t in enumerate(inputs) if t.requires_grad]
        grads = torch.autograd.grad(out, [inputs[i] for i in wanted], cotangent, materialize_grads=True)
        for i, t in enumerate(inputs):
            file[f"{name}.x{i}"] = t
        file[f"{name}.out"] = out
        file[f"{name}.cotangent"] = cotangent
        for i, grad in zip(wanted, grads):
            file[f"{name}.grad{i}"] = grad
    save("ops.safetensors", file)


# ---- The Transformer ----

WIDTH, HEADS, HIDDEN, LAYERS, VOCAB, PAD = 32, 4, 64, 2, 50, 0
BATCH, SOURCE_LEN, TARGET_LEN = 3, 7, 6


class Transformer:
    """Weights in a dictionary, made as they are asked for; no torch.nn."""

    def __init__(self, pre_norm, tied):
        self.pre_norm, self.tied, self.weights = pre_norm, tied, {}

    def weight(self, name, *shape, around=0.0, spread=None):
        if name not in self.weights:
            spread = spread or 1 / math.sqrt(shape[0])
            w = rounded(around + spread * torch.randn(*shape, dtype=torch.float64))
            self.weights[name] = w.requires_grad_(True)
        return self.weights[name]

    def linear(self, name, x, features):
        w = self.weight(f"{name}.weight", x.shape[-1], features)
        return x @ w + self.weight(f"{name}.bias", features, spread=0.1)

    def norm(self, name, x):
        gamma = self.weight(f"{name}.gamma", WIDTH, around=1.0, spread=0.1)
        beta = self.weight(f"{name}.beta", WIDTH, spread=0.1)
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gamma + beta

    def attention(self, name, query, memory, forbidden):
        def heads(x):
            return x.view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)

        q = heads(self.linear(f"{name}.q", query, WIDTH))
        k = heads(self.linear(f"{name}.k", memory, WIDTH))
        v = heads(self.linear(f"{name}.v", memory, WIDTH))
        scores = q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)
        context = scores.masked_fill(forbidden, -math.inf).softmax(-1) @ v
        return self.linear(f"{name}.out", context.transpose(1, 2).flatten(2), WIDTH)

    def sublayer(self, norm, x, function):
        if self.pre_norm:
            return x + function(self.norm(norm, x))
        return self.norm(norm, x + function(x))

    def feed_forward(self, name, x):
        return self.linear(f"{name}.out", self.linear(f"{name}.in", x, HIDDEN).relu(), WIDTH)

    def embed(self, table, ids):
        position = torch.arange(ids.shape[1], dtype=torch.float64)[:, None]
        angle = position / 10000 ** (torch.arange(0, WIDTH, 2, dtype=torch.float64) / WIDTH)
        positions = torch.stack((angle.sin(), angle.cos()), -1).flatten(1)
        return table[ids] * math.sqrt(WIDTH) + positions

    def logits(self, source, target_in):
        names = ["embedding"] * 2 if self.tied else ["source_embedding", "target_embedding"]
        tables = [self.weight(n, VOCAB, WIDTH, spread=WIDTH**-0.5) for n in names]
        padding = (source == PAD)[:, None, None, :]
        later = torch.ones(TARGET_LEN, TARGET_LEN, dtype=torch.bool).triu(1)
        x = self.embed(tables[0], source)
        for i in range(LAYERS):
            n = f"enc.{i}"
            x = self.sublayer(f"{n}.norm_attn", x, lambda y: self.attention(f"{n}.attn", y, y, padding))
            x = self.sublayer(f"{n}.norm_ffn", x, lambda y: self.feed_forward(f"{n}.ffn", y))
        memory = self.norm("enc.norm", x) if self.pre_norm else x
        x = self.embed(tables[1], target_in)
        for i in range(LAYERS):
            n = f"dec.{i}"
            x = self.sublayer(f"{n}.norm_attn", x, lambda y: self.attention(f"{n}.attn", y, y, later))
            x = self.sublayer(
                f"{n}.norm_cross", x, lambda y: self.attention(f"{n}.cross", y, memory, padding))
            x = self.sublayer(f"{n}.norm_ffn", x, lambda y: self.feed_forward(f"{n}.ffn", y))
        x = self.norm("dec.norm", x) if self.pre_norm else x
        return x @ tables[1].T if self.tied else self.linear("output", x, VOCAB)


def make_transformer(file_name, pre_norm, tied, steps):
    source = torch.randint(1, VOCAB, (BATCH, SOURCE_LEN))
    target = torch.randint(1, VOCAB, (BATCH, TARGET_LEN + 1))
    source[0, 5:], source[1, 3:] = PAD, PAD
    target[1, 4:], target[2, 6:] = PAD, PAD
    target_in, target_out = target[:, :-1], target[:, 1:]
    model = Transformer(pre_norm, tied)

    def losses(smoothing):
        logits = model.logits(source, target_in)
        loss = F.cross_entropy(logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD,
                               label_smoothing=smoothing)
        return logits, loss

    logits, loss = losses(0.1)
    file = {"source": source, "target_in": target_in, "target_out": target_out}
    file.update(logits=logits, loss=loss, nll=losses(0)[1])
    names, weights = list(model.weights), list(model.weights.values())
    for name, weight, grad in zip(names, weights, torch.autograd.grad(loss, weights)):
        file[name], file[f"grad.{name}"] = weight.detach().clone(), grad
    adam = torch.optim.Adam(weights, lr=1e-3, betas=(0.9, 0.98), eps=1e-9)
    curve, norms = [], []
    for _ in range(steps):
        adam.zero_grad()
        loss = losses(0.1)[1]
        loss.backward()
        curve.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(weights, 1.0).item())
        adam.step()
    file["losses"], file["norms"] = torch.tensor(curve), torch.tensor(norms)
    print(file_name, "loss", curve[0], "to", curve[-1], "norm", norms[0], "to", norms[-1])
    save(file_name, file)


# ---- Optimisers ----


class Lamb(torch.optim.Optimizer):
    """Algorithm 2 of You et al. 2019 with phi(z) = z, which PyTorch lacks."""

    def __init__(self, params, lr, betas, eps, weight_decay):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), decay = group["betas"], group["weight_decay"]
            for p in group["params"]:
                s = self.state[p]
                s["t"] = s.get("t", 0) + 1
                s["m"] = beta1 * s.get("m", 0) + (1 - beta1) * p.grad
                s["v"] = beta2 * s.get("v", 0) + (1 - beta2) * p.grad**2
                m, v = s["m"] / (1 - beta1 ** s["t"]), s["v"] / (1 - beta2 ** s["t"])
                d = m / (v.sqrt() + group["eps"]) + decay * p
                above, below = p.norm().item(), d.norm().item()
                ratio = above / below if above > 0 and below > 0 else 1
                p -= group["lr"] * ratio * d


def dampened(params):
    """weft dampens the first gradient as well, so the buffers begin with zeros."""
    sgd = torch.optim.SGD(params, lr=0.05, momentum=0.9, dampening=0.3, weight_decay=0.01)
    for p in params:
        sgd.state[p]["momentum_buffer"] = torch.zeros_like(p)
    return sgd


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, weight_decay=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
    "nesterov": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "dampened": dampened,
    "adam": lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.01),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05, betas=(0.9, 0.98), eps=1e-9, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05, weight_decay=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.05, weight_decay=0.01),
    "rmsprop_momentum": lambda p: torch.optim.RMSprop(p, lr=0.05, alpha=0.9, momentum=0.5),
    "rmsprop_centered": lambda p: torch.optim.RMSprop(p, lr=0.05, alpha=0.9, eps=1e-2, centered=True),
    "rmsprop_all": lambda p: torch.optim.RMSprop(
        p, lr=0.05, alpha=0.9, eps=1e-2, momentum=0.5, weight_decay=0.01, centered=True),
    "lamb": lambda p: Lamb(p, lr=0.05, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.1),
}


def make_optimizers():
    torch.manual_seed(20191003)
    x, y, w, b = uniform(6, 4), uniform(6, 3), uniform(4, 3), torch.zeros(3, dtype=torch.float64)
    file = {"x": x, "y": y, "w": w, "b": b}
    for name, make in OPTIMIZERS.items():
        params = [w.clone().requires_grad_(), b.clone().requires_grad_()]
        optimizer, after = make(params), ([], [])
        for _ in range(10):
            optimizer.zero_grad()
            F.mse_loss(torch.tanh(x @ params[0] + params[1]), y).backward()
            optimizer.step()
            for list_, p in zip(after, params):
                list_.append(p.detach().clone())
        file[f"{name}.w"], file[f"{name}.b"] = torch.stack(after[0]), torch.stack(after[1])
    save("optimizers.safetensors", file)


if __name__ == "__main__":
    torch.manual_seed(20170612)
    torch.set_num_threads(1)
    make_ops(set(sys.argv[1:]))
    if len(sys.argv) > 1:
        sys.exit()
    make_transformer("transformer.safetensors", pre_norm=False, tied=True, steps=50)
    make_transformer("transformer_pre_norm.safetensors", pre_norm=True, tied=False, steps=50)
    make_optimizers()
