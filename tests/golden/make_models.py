#!/usr/bin/env python3
"""Writes the golden files of whole models next to it: each model of weft's list restated in plain tensor
operations of PyTorch, at a small size, in f64, with dropout off. Run it with a Python that has torch.

A file holds several cases. Its metadata say which: "cases" lists their names, "CASE" is the model and
its options as weft reads them. The tensors are CASE/NAME: weights by weft's names, inputs by theirs,
output, loss, and grad.NAME of every weight and of every input of vectors."""
import math

import torch
import torch.nn.functional as F

from make_golden import rounded, save


class Net:
    """Weights in a dictionary, made as they are asked for."""

    def __init__(self):
        self.weights = {}

    def weight(self, name, *shape, around=0.0, spread=None):
        if name not in self.weights:
            spread = spread or 1 / math.sqrt(shape[0])
            w = rounded(around + spread * torch.randn(*shape, dtype=torch.float64))
            self.weights[name] = w.requires_grad_(True)
        return self.weights[name]

    def linear(self, name, x, features, bias=True):
        y = x @ self.weight(f"{name}.weight", x.shape[-1], features)
        return y + self.weight(f"{name}.bias", features, spread=0.1) if bias else y

    def layer_norm(self, name, x, eps):
        gamma = self.weight(f"{name}.gamma", x.shape[-1], around=1.0, spread=0.1)
        beta = self.weight(f"{name}.beta", x.shape[-1], spread=0.1)
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + eps).sqrt() * gamma + beta

    def rms_norm(self, name, x, eps):
        gamma = self.weight(f"{name}.gamma", x.shape[-1], around=1.0, spread=0.1)
        return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * gamma


ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu,
               "gelu-tanh": lambda x: F.gelu(x, approximate="tanh")}


def rotate(x, base):
    """x [batch, heads, length, width]: element i with element i + width / 2 as a complex number."""
    length, half = x.shape[2], x.shape[3] // 2
    rate = base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * rate
    rotated = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((rotated.real, rotated.imag), -1)


def attention(net, name, query, memory, heads, kv_heads=0, projection="separate", bias=True, out=2,
              merge="correct", scale=None, rotary_base=0, forbidden=None):
    batch, length, width = query.shape
    head = width // heads
    kv_heads = kv_heads or heads

    def by_heads(x, n):
        return x.view(batch, -1, n, head).transpose(1, 2)

    if projection == "separate":
        q = by_heads(net.linear(f"{name}.q", query, width, bias), heads)
        k = by_heads(net.linear(f"{name}.k", memory, kv_heads * head, bias), kv_heads)
        v = by_heads(net.linear(f"{name}.v", memory, kv_heads * head, bias), kv_heads)
    elif projection == "fused":
        each = net.linear(f"{name}.qkv", query, 3 * width, bias).view(batch, length, heads, 3, head)
        q, k, v = each.permute(3, 0, 2, 1, 4)
    else:
        q, k, v = by_heads(query, heads), by_heads(memory, heads), by_heads(memory, heads)
        if projection == "shared":
            q, k, v = (net.linear(f"{name}.{n}", x, head, bias) for n, x in (("q", q), ("k", k), ("v", v)))
    if rotary_base:
        q, k = rotate(q, rotary_base), rotate(k, rotary_base)
    k, v = (x.repeat_interleave(heads // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (scale or head**-0.5)
    if forbidden is not None:
        scores = scores.masked_fill(forbidden, -math.inf)
    context = scores.softmax(-1) @ v
    context = context if merge == "as-written" else context.transpose(1, 2)
    context = context.reshape(batch, length, width)
    return net.linear(f"{name}.out", context, width, out == 2) if out else context


def feed_forward(net, name, x, d_ff, activation="relu", gated=0, bias=True):
    h = ACTIVATIONS[activation](net.linear(f"{name}.gate" if gated else f"{name}.in", x, d_ff, bias))
    if gated:
        h = h * net.linear(f"{name}.in", x, d_ff, bias)
    return net.linear(f"{name}.out", h, x.shape[-1], bias)


def residual(norm, place, name, x, function):
    if place == "pre":
        return x + function(norm(name, x))
    return norm(name, x + function(x))


def stack(net, name, layers, x, memory, place, eps, attn, ffn, forbidden, memory_forbidden=None,
          rms=False):
    def norm(n, y):
        return net.rms_norm(n, y, eps) if rms else net.layer_norm(n, y, eps)

    for i in range(layers):
        n = f"{name}.{i}"
        x = residual(norm, place, f"{n}.norm_attn", x,
                     lambda y: attention(net, f"{n}.attn", y, y, forbidden=forbidden, **attn))
        if memory is not None:
            x = residual(norm, place, f"{n}.norm_cross", x, lambda y: attention(
                net, f"{n}.cross", y, memory, forbidden=memory_forbidden, **attn))
        x = residual(norm, place, f"{n}.norm_ffn", x, lambda y: feed_forward(net, f"{n}.ffn", y, **ffn))
    return norm(f"{name}.norm", x) if place == "pre" else x


def later(queries, keys):
    """True where a key comes after the query; the last ones stand side by side."""
    return torch.ones(queries, keys, dtype=torch.bool).triu(1 + keys - queries)


# ---- Models of vectors ----


def vectors(*shape):
    return rounded(torch.randn(*shape, dtype=torch.float64))


def run_vectors(model, options, build, inputs):
    """The case of a model whose output is compared with a target by mean squared error."""
    net = Net()
    floating = {n: t.clone().requires_grad_(True) for n, t in inputs.items() if t.is_floating_point()}
    output = build(net, **{**inputs, **floating})
    target = vectors(*output.shape)
    loss = F.mse_loss(output, target)
    wanted = {**net.weights, **floating}
    case = {**inputs, **{n: w.detach() for n, w in net.weights.items()}}
    case.update(target=target, output=output, loss=loss)
    for name, grad in zip(wanted, torch.autograd.grad(loss, list(wanted.values()))):
        case[f"grad.{name}"] = grad
    return f"{model} " + " ".join(f"{k}={v}" for k, v in options.items()), case


def attention_case(mask="none", memory_len=0, d_model=8, heads=2, batch=2, length=5, **options):
    keys = memory_len or length
    inputs = {"input": vectors(batch, length, d_model)}
    if memory_len:
        inputs["memory"] = vectors(batch, memory_len, d_model)
    if mask in ("padding", "both"):
        inputs["hidden"] = torch.zeros(batch, keys, dtype=torch.int32)
        inputs["hidden"][0, keys - 1] = inputs["hidden"][1, 1] = 1

    def build(net, input, memory=None, hidden=None):
        forbidden = later(length, keys) if mask in ("causal", "both") else None
        if hidden is not None:
            padding = hidden.bool()[:, None, None, :]
            forbidden = padding if forbidden is None else forbidden | padding
        o = {**options, "bias": options.get("bias", 1) == 1}
        return attention(net, "attn", input, input if memory is None else memory, heads,
                         forbidden=forbidden, **o)

    named = dict(d_model=d_model, heads=heads, batch=batch, length=length, mask=mask,
                 memory_len=memory_len, **options)
    return run_vectors("attention", named, build, inputs)


def attention_cases():
    yield "separate", attention_case()
    yield "causal", attention_case(mask="causal")
    yield "padding", attention_case(mask="padding")
    yield "both", attention_case(mask="both")
    yield "fused", attention_case(projection="fused", mask="causal")
    yield "shared", attention_case(projection="shared", mask="padding")
    yield "none", attention_case(projection="none", mask="both")
    yield "plain", attention_case(bias=0, out=1)
    yield "no_out", attention_case(out=0)
    yield "as_written", attention_case(merge="as-written", projection="fused")
    yield "cross", attention_case(memory_len=7, mask="padding")
    yield "cross_causal", attention_case(memory_len=7, mask="both")
    yield "cross_shared", attention_case(memory_len=3, projection="shared")
    yield "cross_none", attention_case(memory_len=4, projection="none")
    yield "key_heads", attention_case(d_model=16, heads=4, kv_heads=2, mask="causal")
    yield "one_key_head", attention_case(d_model=12, heads=3, kv_heads=1, memory_len=4)
    yield "rotary", attention_case(rotary_base=10000, mask="causal")
    yield "rotary_key_heads", attention_case(d_model=16, heads=4, kv_heads=2, rotary_base=100, mask="both")


def feed_forward_cases():
    for name, options in {"relu": {}, "gelu": {"activation": "gelu"},
                          "gelu_tanh": {"activation": "gelu-tanh"},
                          "swiglu": {"activation": "silu", "gated": 1}}.items():
        named = dict(d_model=6, d_ff=10, batch=2, length=3, **options)
        yield name, run_vectors("feed-forward", named, lambda net, input: feed_forward(
            net, "ffn", input, 10, **options), {"input": vectors(2, 3, 6)})


def encoder_case(norm="post", projection="fused", merge="correct", layers=2):
    named = dict(d_model=8, heads=2, d_ff=12, layers=layers, batch=2, length=4, norm=norm,
                 projection=projection, merge=merge)
    attn = dict(heads=2, projection=projection, merge=merge)

    def build(net, input):
        return stack(net, "layer", layers, input, None, norm, 1e-5, attn, dict(d_ff=12), None)

    return run_vectors("encoder", named, build, {"input": vectors(2, 4, 8)})


def encoder_cases():
    yield "layer", encoder_case(layers=1, projection="separate")
    yield "fused", encoder_case()
    yield "as_written", encoder_case(merge="as-written")
    yield "pre", encoder_case(norm="pre")
    yield "dropped", encoder_case(norm="post-dropped")
    yield "shared", encoder_case(projection="shared", norm="pre")


# ---- Models of tokens ----

PAD = 0


def run_tokens(model, options, build, inputs, target_out):
    net = Net()
    logits = build(net, **inputs)
    loss = F.cross_entropy(logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD)
    case = {**inputs, "target_out": target_out, "output": logits, "loss": loss}
    grads = torch.autograd.grad(loss, list(net.weights.values()))
    for (name, weight), grad in zip(net.weights.items(), grads):
        case[name], case[f"grad.{name}"] = weight.detach(), grad
    return f"{model} " + " ".join(f"{k}={v}" for k, v in options.items()), case


def tokens(vocab, batch, length, pads=()):
    ids = torch.randint(1, vocab, (batch, length))
    for row, begin in pads:
        ids[row, begin:] = PAD
    return ids


def embed(net, table, positions, most, ids):
    table = net.weight(*table, spread=table[2] ** -0.5)
    return table[ids] + net.weight(positions, most, table.shape[1], spread=0.3)[: ids.shape[1]]


def shared_case(vocab=10, width=16, heads=4, d_ff=24, layers=2, source_len=9, target_len=7, most=12):
    """Scores are divided by the root of the whole width; q, k and v of every head by the same matrices;
    nothing has biases but the feed-forward layers and the logits."""
    options = dict(vocab=vocab, d_model=width, heads=heads, d_ff=d_ff, encoder_layers=layers,
                   decoder_layers=layers, batch=2, source_len=source_len, target_len=target_len,
                   max_positions=most)
    attn = dict(heads=heads, projection="shared", bias=False, out=1, scale=width**-0.5)

    def build(net, source, target_in):
        padding = (source == PAD)[:, None, None, :]
        x = embed(net, ("source_embedding", vocab, width), "source_positions", most, source)
        memory = stack(net, "enc", layers, x, None, "post", 1e-5, attn, dict(d_ff=d_ff), padding)
        x = embed(net, ("target_embedding", vocab, width), "target_positions", most, target_in)
        x = stack(net, "dec", layers, x, memory, "post", 1e-5, attn, dict(d_ff=d_ff),
                  later(target_len, target_len), padding)
        return net.linear("output", x, vocab)

    # The two pairs of the seed document.
    source = torch.tensor([[1, 5, 6, 4, 3, 9, 5, 2, 0], [1, 8, 7, 3, 4, 5, 6, 7, 2]])
    target = torch.tensor([[1, 7, 4, 3, 5, 9, 2, 0], [1, 5, 6, 2, 4, 7, 6, 2]])
    return run_tokens("transformer-shared", options, build,
                      {"source": source, "target_in": target[:, :-1]}, target[:, 1:])


LANGUAGE = dict(vocab=13, d_model=16, heads=4, d_ff=20, batch=3, length=6, layers=2)


def bert_case():
    c = dict(LANGUAGE, max_positions=8)
    width, vocab = c["d_model"], c["vocab"]
    target_in = tokens(vocab, 3, 6, [(0, 5), (2, 3)])
    hidden = torch.rand(3, 6) < 0.4
    hidden[0, 0] = True
    target_out = torch.where(hidden & (target_in != PAD), tokens(vocab, 3, 6), torch.tensor(PAD))

    def build(net, target_in):
        x = embed(net, ("embedding", vocab, width), "positions", 8, target_in)
        x = net.layer_norm("norm_embedding", x, 1e-12)
        x = stack(net, "layer", 2, x, None, "post", 1e-12, dict(heads=4),
                  dict(d_ff=20, activation="gelu"), (target_in == PAD)[:, None, None, :])
        x = net.layer_norm("head.norm", F.gelu(net.linear("head.linear", x, width)), 1e-12)
        return x @ net.weights["embedding"].T

    return run_tokens("bert", c, build, {"target_in": target_in}, target_out)


def gpt_case():
    c = dict(LANGUAGE, max_positions=8)
    ids = tokens(c["vocab"], 3, 7, [(1, 5)])

    def build(net, target_in):
        x = embed(net, ("embedding", c["vocab"], c["d_model"]), "positions", 8, target_in)
        x = stack(net, "layer", 2, x, None, "pre", 1e-5, dict(heads=4),
                  dict(d_ff=20, activation="gelu"), later(6, 6))
        return x @ net.weights["embedding"].T

    return run_tokens("gpt", c, build, {"target_in": ids[:, :-1]}, ids[:, 1:])


def llama_case():
    c = dict(LANGUAGE, kv_heads=2)
    ids = tokens(c["vocab"], 3, 7, [(2, 6)])

    def build(net, target_in):
        x = net.weight("embedding", c["vocab"], c["d_model"], spread=0.3)[target_in]
        x = stack(net, "layer", 2, x, None, "pre", 1e-5,
                  dict(heads=4, kv_heads=2, bias=False, out=1, rotary_base=10000),
                  dict(d_ff=20, activation="silu", gated=1, bias=False), later(6, 6), rms=True)
        return net.linear("output", x, c["vocab"])

    return run_tokens("llama", c, build, {"target_in": ids[:, :-1]}, ids[:, 1:])


def language_cases():
    yield "bert", bert_case()
    yield "gpt", gpt_case()
    yield "llama", llama_case()


def shared_cases():
    yield "shared", shared_case()


def write(file, seed, cases):
    """Every file has a generator of its own, so that another one changes nothing in it."""
    torch.manual_seed(seed)
    tensors, metadata = {}, {}
    for name, (model, case) in cases():
        metadata[name] = model
        tensors.update({f"{name}/{n}": t for n, t in case.items()})
    metadata["cases"] = " ".join(metadata)
    save(file, tensors, metadata)


if __name__ == "__main__":
    torch.set_num_threads(1)
    write("model_attention.safetensors", 1, attention_cases)
    write("model_feed_forward.safetensors", 2, feed_forward_cases)
    write("model_encoder.safetensors", 3, encoder_cases)
    write("model_shared.safetensors", 4, shared_cases)
    write("model_language.safetensors", 5, language_cases)
