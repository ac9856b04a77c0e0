#!/usr/bin/env python3
"""A workload of `weft bench` in PyTorch, on the parameters and inputs that weft dumped:

    peer_torch.py WORKLOAD DUMP [--threads N] [--runs N] [--fused | --compile] [--bf16] [--export FILE.onnx] [--no-check]

Layers are written as a user writes them: F.linear, torch.matmul, F.softmax, F.layer_norm, F.dropout.
--fused takes nn.TransformerEncoder in their place, whose inference runs fused kernels; --compile gives them
to torch.compile. --bf16 runs them under autocast to bfloat16. --export writes the model, with its input and output
(peer_onnx.py). Prints JSON: times, memory, and how far outputs are from weft's and gradients of both from those in f64
(norm of the difference over the norm, without dropout). Needs PyTorch and NumPy. tests/bench/compare runs it.
"""
import argparse
import copy
import json
import math
import struct

import numpy
import torch
import torch.nn.functional as F

from peer_common import measurements, rss_bytes, save_case


def load(path):
    """The tensors of a safetensors file, copied."""
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header, tensors = json.loads(f.read(length)), {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            f.seek(8 + length + begin)
            dtype = {"F32": numpy.float32, "I32": numpy.int32, "BOOL": numpy.bool_}[entry["dtype"]]
            array = numpy.frombuffer(f.read(end - begin), dtype).reshape(entry["shape"]).copy()
            tensors[name] = torch.from_numpy(array)
    return tensors


class Part(dict):
    """Tensors by name, without a common beginning of the names."""

    def __init__(self, tensors, prefix):
        super().__init__((n[len(prefix):], t) for n, t in tensors.items() if n.startswith(prefix))


def linear(p, name, x):
    """Weights lie as nn.Linear has them, [out, in]: Model transposes them once."""
    return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])


def norm(p, name, x):
    return F.layer_norm(x, x.shape[-1:], p[f"{name}.gamma"], p[f"{name}.beta"])


def attend(q, k, v, mask, dropout, training):
    """q, k, v [batch, heads, length, head_dim]; mask true where attention is masked out."""
    scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask, -math.inf)
    weights = F.dropout(F.softmax(scores, dim=-1), dropout, training)
    values = torch.matmul(weights, v)
    return values.transpose(1, 2).reshape(values.shape[0], values.shape[2], -1)


class FixedSigns(torch.nn.Module):
    """The ReLUs of a model, in order, with the signs of weft's: an input passes where weft's output is positive.
    `largest` is the largest input with another sign, over the root mean square of its layer."""

    def __init__(self, dump):
        super().__init__()
        found = Part(dump, "positive.")
        self.positive = [found[str(i)] for i in range(len(found))]
        self.used, self.largest = 0, 0.0

    def forward(self, x):
        if self.used == len(self.positive):
            raise SystemExit(f"weft's results have the signs of {self.used} ReLUs only")
        positive = self.positive[self.used].reshape(x.shape)
        self.used += 1
        wrong = x.detach()[positive != (x > 0)]
        if len(wrong):
            self.largest = max(self.largest, float(wrong.abs().max() / x.detach().square().mean().sqrt()))
        return torch.where(positive, x, 0)


def fix_signs(model, signs):
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, torch.nn.ReLU):
                setattr(module, name, signs)


class Model(torch.nn.Module):
    """Parameters by weft's names; matrices of linear layers transposed to [out, in]."""

    def __init__(self, params, dropout=0.1):
        super().__init__()
        self.names = {}
        self.dropout = dropout
        self.relu = torch.nn.ReLU()
        for name, tensor in params.items():
            if name.endswith(".weight"):
                tensor = tensor.t().contiguous()
            self.names[name] = torch.nn.Parameter(tensor)
            self.register_parameter(name.replace(".", "_"), self.names[name])

    def drop(self, x):
        return F.dropout(x, self.dropout, self.training)

    def feed_forward(self, name, x):
        return linear(self.names, f"{name}.out", self.drop(self.relu(linear(self.names, f"{name}.in", x))))

    def gradients(self):
        return {n: p.grad.t() if n.endswith(".weight") else p.grad for n, p in self.names.items()}


class Encoder(Model):
    heads, layers = 8, 5

    def forward(self, x):
        p = self.names
        for i in range(self.layers):
            b, n, d = x.shape
            qkv = linear(p, f"layer.{i}.attn.qkv", x).reshape(b, n, self.heads, 3 * d // self.heads)
            q, k, v = qkv.permute(0, 2, 1, 3).chunk(3, dim=-1)
            a = linear(p, f"layer.{i}.attn.out", attend(q, k, v, None, 0.0, self.training))
            x = norm(p, f"layer.{i}.norm_attn", x + self.drop(a))
            f = self.feed_forward(f"layer.{i}.ffn", x)
            x = norm(p, f"layer.{i}.norm_ffn", x + self.drop(f))
        return x


class Attention(Model):
    def forward(self, x):
        p, (b, n, d) = self.names, x.shape
        q, k, v = (linear(p, f"attn.{w}", x).view(b, n, 8, d // 8).transpose(1, 2) for w in "qkv")
        return linear(p, "attn.out", attend(q, k, v, None, self.dropout, self.training))


class Transformer(Model):
    layers = 6

    def attention(self, name, x, memory, mask):
        p, (b, _, d) = self.names, x.shape
        q, k, v = (linear(p, f"{name}.{w}", y).view(b, -1, 8, d // 8).transpose(1, 2)
                   for w, y in (("q", x), ("k", memory), ("v", memory)))
        return linear(p, f"{name}.out", attend(q, k, v, mask, self.dropout, self.training))

    def embed(self, ids):
        table = self.names["embedding"]
        d = table.shape[1]
        place = torch.arange(ids.shape[1], dtype=table.dtype)[:, None]
        place = place / 10000 ** (torch.arange(0, d, 2, dtype=table.dtype) / d)
        waves = torch.stack((place.sin(), place.cos()), -1).reshape(ids.shape[1], d)
        return self.drop(F.embedding(ids, table) * math.sqrt(d) + waves)

    def forward(self, source, target):
        p = self.names
        padding = (source == 0)[:, None, None, :]
        later = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        x = self.embed(source)
        for i in range(self.layers):
            x = norm(p, f"enc.{i}.norm_attn", x + self.drop(self.attention(f"enc.{i}.attn", x, x, padding)))
            f = self.feed_forward(f"enc.{i}.ffn", x)
            x = norm(p, f"enc.{i}.norm_ffn", x + self.drop(f))
        memory, x = x, self.embed(target)
        for i in range(self.layers):
            x = norm(p, f"dec.{i}.norm_attn", x + self.drop(self.attention(f"dec.{i}.attn", x, x, later)))
            c = self.attention(f"dec.{i}.cross", x, memory, padding)
            x = norm(p, f"dec.{i}.norm_cross", x + self.drop(c))
            f = self.feed_forward(f"dec.{i}.ffn", x)
            x = norm(p, f"dec.{i}.norm_ffn", x + self.drop(f))
        return F.linear(x, p["embedding"])


class ResNet(torch.nn.Module):
    """torchvision's, whose parameters have weft's names."""

    def __init__(self, params):
        import torchvision
        super().__init__()
        self.net = torchvision.models.resnet50()
        missing, unexpected = self.net.load_state_dict(params, strict=False)
        wrong = [n for n in missing if not n.endswith("num_batches_tracked")] + unexpected
        if wrong:
            raise SystemExit(f"resnet: {wrong[0]} is not a parameter of both")

    def forward(self, x):
        return self.net(x)

    def gradients(self):
        return {n: p.grad for n, p in self.net.named_parameters()}


def fused_encoder(params):
    """nn.TransformerEncoder, which has q, k and v of all heads one after another."""
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, 0.1, "relu", batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 5).eval()

    def heads_apart(t):
        return t.view(8, 3, 64, *t.shape[1:]).transpose(0, 1).reshape(t.shape)

    names = {"self_attn.in_proj_weight": "attn.qkv.weight", "self_attn.in_proj_bias": "attn.qkv.bias",
             "self_attn.out_proj.weight": "attn.out.weight", "self_attn.out_proj.bias": "attn.out.bias",
             "linear1.weight": "ffn.in.weight", "linear1.bias": "ffn.in.bias",
             "linear2.weight": "ffn.out.weight", "linear2.bias": "ffn.out.bias",
             "norm1.weight": "norm_attn.gamma", "norm1.bias": "norm_attn.beta",
             "norm2.weight": "norm_ffn.gamma", "norm2.bias": "norm_ffn.beta"}
    state = {}
    for i in range(5):
        for theirs, ours in names.items():
            t = params[f"layer.{i}.{ours}"]
            t = t.t().contiguous() if ours.endswith("weight") else t
            state[f"layers.{i}.{theirs}"] = heads_apart(t) if "qkv" in ours else t
    encoder.load_state_dict(state)
    return encoder


class Lstm:
    """nn.LSTM has the gates in the order i, f, g, o and two biases; weft f, i, g, o and one."""

    def __init__(self, params):
        self.lstm = torch.nn.LSTM(512, 512, batch_first=True)
        self.lstm.weight_ih_l0.data = self.swapped(params["lstm.weight_x"].t())
        self.lstm.weight_hh_l0.data = self.swapped(params["lstm.weight_h"].t())
        self.lstm.bias_ih_l0.data = self.swapped(params["lstm.bias"])
        self.lstm.bias_hh_l0.data = torch.zeros(2048)

    @staticmethod
    def swapped(t):
        f, i, g, o = t.chunk(4, 0)
        return torch.cat((i, f, g, o)).contiguous()

    def gradients(self):
        at = self.lstm
        return {"lstm.weight_x": self.swapped(at.weight_ih_l0.grad).t(),
                "lstm.weight_h": self.swapped(at.weight_hh_l0.grad).t(),
                "lstm.bias": self.swapped(at.bias_ih_l0.grad)}


class Work:
    """run(): what is timed. check(): results to hold against the dump, made without dropout."""

    def __init__(self, name, dump, fused, compiled, bf16):
        self.name, self.dump, self.bf16 = name, dump, bf16
        self.inputs = {n: t.long() if t.dtype == torch.int32 else t
                       for n, t in Part(dump, "input.").items()}
        params = {n: t for n, t in Part(dump, "param.").items() if not n.startswith("opt.")}
        self.forward_only = name.endswith("-forward")
        if name == "lstm-step":
            self.lstm = Lstm(params)
            self.x = self.inputs["input"].requires_grad_()
        elif name.startswith("resnet-"):
            self.model = ResNet(params)
        elif fused:
            self.model = fused_encoder(params)
        else:
            kind = {"encoder": Encoder, "attention": Attention}.get(name.split("-")[0], Transformer)
            self.model = kind(params, 0.0 if kind is Attention else 0.1)
        if name != "lstm-step":
            self.called = torch.compile(self.model) if compiled else self.model
        if name in ("transformer-step", "small-step", "resnet-step"):
            self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)

    def output(self):
        if "source" in self.inputs:
            return self.called(self.inputs["source"], self.inputs["target_in"])
        return self.called(self.inputs["input"])

    def loss(self, output):
        if "source" in self.inputs:
            return F.cross_entropy(output.flatten(0, 1), self.inputs["target_out"].flatten(),
                                   ignore_index=0, label_smoothing=0.1)
        if "labels" in self.inputs:
            return F.cross_entropy(output, self.inputs["labels"])
        return F.mse_loss(output, self.inputs["target"])

    def precision(self):
        return torch.autocast("cpu", torch.bfloat16, enabled=self.bf16)

    def backward(self):
        if self.name == "lstm-step":
            for t in (self.x, *self.lstm.lstm.parameters()):
                t.grad = None
            with self.precision():
                y = self.lstm.lstm(self.x)[0]
            y.backward(self.inputs["cotangent"])
            return y, None
        for t in self.model.parameters():
            t.grad = None
        with self.precision():
            y = self.output()
            loss = self.loss(y)
        loss.backward()
        return y, loss

    def run(self):
        if self.forward_only:
            with torch.inference_mode(), self.precision():
                self.output()
            return
        self.backward()
        if hasattr(self, "optimizer"):
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()

    def fixed(self, signs, double):
        """A copy without torch.compile, with weft's signs of ReLUs, in f64 if `double`."""
        other = copy.copy(self)
        other.bf16 = self.bf16 and not double
        if self.name == "lstm-step":
            other.lstm = copy.deepcopy(self.lstm)
            model = other.lstm.lstm
        else:
            other.called = other.model = model = copy.deepcopy(self.model)
            fix_signs(model, signs)
        if not double:
            return other
        model.double()
        other.inputs = {n: t.detach().double() if t.is_floating_point() else t for n, t in self.inputs.items()}
        if self.name == "lstm-step":
            other.x = other.inputs["input"].requires_grad_()
        return other

    def check(self):
        if self.forward_only:
            with torch.inference_mode(), self.precision():
                return {"output": self.output()}
        if self.name != "lstm-step":
            self.model.eval()
        y, loss = self.backward()
        grads = self.lstm.gradients() if self.name == "lstm-step" else self.model.gradients()
        if self.name == "lstm-step":
            grads["input"] = self.x.grad
        else:
            self.model.train()
        found = {"output": y.detach(), **{f"grad.{n}": g.clone() for n, g in grads.items()}}
        return found if loss is None else {**found, "loss": loss.detach()}


def difference(got, wanted, floor=1e-30):
    norm_of = torch.linalg.vector_norm
    return float(norm_of(got.double() - wanted.double()) / norm_of(wanted.double()).clamp_min(floor))


def gradients(work, double):
    """Those with weft's signs of ReLUs, and the largest input whose sign is not weft's."""
    signs = FixedSigns(work.dump)
    found = {n: t for n, t in work.fixed(signs, double).check().items() if n.startswith("grad.")}
    if signs.used != len(signs.positive):
        raise SystemExit(f"{work.name}: weft has {len(signs.positive)} ReLUs, the peer {signs.used}")
    return found, signs.largest


def agreement(work):
    """How far the worst result is from weft's, and how many were held against them. Gradients of both programs are
    held against those in f64. Where rounding changes the sign of a ReLU's input, a gradient jumps, in one program and
    not in the other; so all three have weft's signs, and "sign" is the largest input with another sign in f64, which
    must be tiny. A gradient that is small compared with the others (that of a bias of keys, which moves all scores of a
    query alike, is nothing but rounding) is held against a part of the largest one."""
    found, dump = work.check(), work.dump
    missing = [n for n in dump if n.split(".")[0] in ("output", "loss", "grad") and n not in found]
    if missing:
        raise SystemExit(f"{work.name}: nothing to hold against weft's {missing[0]}")
    plain = [difference(t, dump[n]) for n, t in found.items() if not n.startswith("grad.")]
    result = {"compared": len(found), "output": max(plain), "grad": 0.0, "grad_peer": 0.0, "sign": 0.0}
    if len(found) > len(plain):
        exact, result["sign"] = gradients(work, True)
        own, _ = gradients(work, False)
        floor = 1e-3 * max(float(t.norm()) for t in exact.values())
        result["grad"] = max(difference(dump[n], t, floor) for n, t in exact.items())
        result["grad_peer"] = max(difference(own[n], t, floor) for n, t in exact.items())
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("dump")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--export", metavar="FILE")
    parser.add_argument("--no-check", action="store_true", help="only time: the peak of memory is then that of the runs")
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    base = rss_bytes()
    dump = load(a.dump)
    if a.no_check:  # keep nothing that the runs do not need
        dump = {n: t for n, t in dump.items() if n.split(".")[0] in ("param", "input")}
    work = Work(a.workload, dump, a.fused, a.compile, a.bf16)
    if work.forward_only:
        work.model.eval()
    if a.export:
        torch.onnx.export(work.model, (work.inputs["input"],), a.export, input_names=["input"],
                          output_names=["output"], dynamo=True, external_data=False, verbose=False)
        save_case(a.export, {"input": work.inputs["input"].numpy()}, dump["output"].numpy())
        return
    result = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    if not a.no_check:
        result["agreement"] = agreement(work)
    result.update(measurements(work.run, a.runs, base))
    print(json.dumps(result))


main()
