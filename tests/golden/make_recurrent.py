#!/usr/bin/env python3
"""Writes the golden files of the recurrent layers and models: what torch.nn.RNN, LSTM and GRU compute,
and an encoder and decoder with attention restated here step by step, with every gradient. Run it with
a Python that has torch; the files are kept in the repository.

recurrent.safetensors holds for each CASE the parameters CASE.l.* by weft's names, CASE.x, the first
states CASE.s0 (and s1), CASE.mask, the outputs CASE.out0 (all h), CASE.out1, ... (the last states),
cotangents of these, and CASE.grad.* of all. The seq2seq files hold weights by weft's names, inputs,
logits, loss, the weights of the attention, and grad.NAME."""
import math

import torch
import torch.nn.functional as F

from make_golden import rounded, save, uniform

# ---- Layers ----

GATES = {"rnn": 1, "lstm": 4, "gru": 3}


def reordered(kind, w):
    """PyTorch's gates, along the last axis, in weft's order: i, f, c~, o to f, i, c~, o."""
    if kind != "lstm":
        return w
    i, f, c, o = w.chunk(4, -1)
    return torch.cat((f, i, c, o), -1)


def recurrent_case(kind, reverse, masked):
    """A layer of torch.nn with its weights taken out; reverse and masked by its own flip and by
    running each sequence for its own length."""
    batch, length, width, hidden = 3, 6, 5, 4
    layer = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](
        width, hidden, batch_first=True).double()
    for p in layer.parameters():
        p.data = rounded(torch.randn_like(p) * 0.5)
    if kind != "gru":
        layer.bias_hh_l0.data.zero_()  # weft has one bias, the sum of both
    else:
        layer.bias_hh_l0.data[: 2 * hidden] = 0
    x = uniform(batch, length, width).requires_grad_(True)
    states = [uniform(batch, hidden, low=-1, high=1).requires_grad_(True)
              for _ in range(2 if kind == "lstm" else 1)]
    lengths = [6, 3, 4] if masked else [length] * batch
    rows, ends = [], []
    for b in range(batch):
        own = x[b : b + 1, : lengths[b]]
        first = tuple(s[None, b : b + 1] for s in states)
        y, end = layer(own.flip(1) if reverse else own, first if kind == "lstm" else first[0])
        y, end = (y.flip(1) if reverse else y)[0], torch.cat(end if kind == "lstm" else (end,))[:, 0]
        # Padding follows the sequence: backwards it comes first and leaves the first state,
        # forwards it repeats the last one.
        stays = (states[0][b] if reverse else y[-1])[None].expand(length - lengths[b], hidden)
        rows.append(torch.cat((y, stays)))
        ends.append(end)
    outputs = [torch.stack(rows)] + list(torch.stack(ends, 1))
    mask = torch.arange(length)[None] >= torch.tensor(lengths)[:, None]
    return layer, x, states, outputs, mask


def make_recurrent():
    file = {}
    for kind in GATES:
        for name, reverse, masked in [("plain", 0, 0), ("reverse", 1, 0), ("masked", 0, 1),
                                      ("reverse_masked", 1, 1)]:
            layer, x, states, outputs, mask = recurrent_case(kind, reverse, masked)
            case = f"{kind}.{name}"
            cotangents = [uniform(*o.shape) for o in outputs]
            wrt = [layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, x] + states
            extra = [layer.bias_hh_l0] if kind == "gru" else []
            grads = torch.autograd.grad(outputs, wrt + extra, cotangents)

            def ours(w):
                return reordered(kind, w.mT if w.dim() == 2 else w)

            hidden = states[0].shape[1]
            for prefix, t in [("", wrt + extra), ("grad.", grads)]:
                file[f"{case}.{prefix}l.weight_x"] = ours(t[0])
                file[f"{case}.{prefix}l.weight_h"] = ours(t[1])
                file[f"{case}.{prefix}l.bias"] = ours(t[2])
                file[f"{case}.{prefix}x"] = t[3]
                for i, _ in enumerate(states):
                    file[f"{case}.{prefix}s{i}"] = t[4 + i]
                if extra:
                    file[f"{case}.{prefix}l.bias_h"] = t[-1][2 * hidden :]
            file[f"{case}.mask"] = mask.int()
            for i, (o, c) in enumerate(zip(outputs, cotangents)):
                file[f"{case}.out{i}"], file[f"{case}.cotangent{i}"] = o, c
    save("recurrent.safetensors", file)


# ---- Encoder and decoder ----

WIDTH, LAYERS, VOCAB, PAD = 8, 2, 17, 0
BATCH, SOURCE_LEN, TARGET_LEN = 3, 6, 5


class Seq2seq:
    """Weights in a dictionary, made as they are asked for; no torch.nn."""

    def __init__(self, kind, attention, bidirectional):
        self.kind, self.attention, self.bidirectional = kind, attention, bidirectional
        self.weights = {}

    def weight(self, name, *shape, spread=None):
        if name not in self.weights:
            spread = spread or 1 / math.sqrt(shape[0])
            w = rounded(spread * torch.randn(*shape, dtype=torch.float64))
            self.weights[name] = w.requires_grad_(True)
        return self.weights[name]

    def step(self, name, x, h, c, hidden):
        w = self.weight(f"{name}.weight_x", x.shape[-1], GATES[self.kind] * hidden)
        u = self.weight(f"{name}.weight_h", hidden, GATES[self.kind] * hidden)
        b = self.weight(f"{name}.bias", GATES[self.kind] * hidden, spread=0.1)
        if self.kind == "lstm":
            f, i, n, o = (x @ w + h @ u + b).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * n.tanh()
            return o.sigmoid() * c.tanh(), c
        r, z, n = (x @ w + b).chunk(3, -1)
        hr, hz, hn = (h @ u).chunk(3, -1)
        bias_h = self.weight(f"{name}.bias_h", hidden, spread=0.1)
        n = (n + (r + hr).sigmoid() * (hn + bias_h)).tanh()
        z = (z + hz).sigmoid()
        return (1 - z) * n + z * h, c

    def run(self, name, xs, padding, hidden, reverse=False):
        h = c = torch.zeros(BATCH, hidden, dtype=torch.float64)
        out = [None] * len(xs)
        for t in reversed(range(len(xs))) if reverse else range(len(xs)):
            h2, c2 = self.step(name, xs[t], h, c, hidden)
            stays = padding[:, t, None]
            h, c = torch.where(stays, h, h2), torch.where(stays, c, c2)
            out[t] = h
        return out, h, c

    def encode(self, xs, padding):
        firsts = []
        for i in range(LAYERS):
            if self.bidirectional:
                a, ha, ca = self.run(f"enc.{i}.forward", xs, padding, WIDTH // 2)
                b, hb, cb = self.run(f"enc.{i}.backward", xs, padding, WIDTH // 2, reverse=True)
                xs = [torch.cat(p, -1) for p in zip(a, b)]
                firsts.append((torch.cat((ha, hb), -1), torch.cat((ca, cb), -1)))
            else:
                xs, h, c = self.run(f"enc.{i}", xs, padding, WIDTH)
                firsts.append((h, c))
        return torch.stack(xs, 1), firsts

    def key(self, memory):
        w = self.weight("attn.key.weight", WIDTH, WIDTH)
        return memory @ w + self.weight("attn.key.bias", WIDTH, spread=0.1)

    def attend(self, state, memory, padding):
        if self.attention == "additive":
            q = state @ self.weight("attn.query.weight", WIDTH, WIDTH)
            score = (q[:, None] + self.key(memory)).tanh()
            score = (score @ self.weight("attn.v", WIDTH, 1))[..., 0]
        else:
            if self.attention == "general":
                state = state @ self.weight("attn.query.weight", WIDTH, WIDTH)
            score = (memory * state[:, None]).sum(-1)
        weights = score.masked_fill(padding, -math.inf).softmax(-1)
        return weights, (weights[..., None] * memory).sum(1)

    def logits(self, source, target_in):
        table, padding = self.weight("embedding", VOCAB, WIDTH, spread=WIDTH**-0.5), source == PAD
        memory, states = self.encode([table[source[:, t]] for t in range(SOURCE_LEN)], padding)
        readouts, alignment = [], []
        for t in range(TARGET_LEN):
            x = table[target_in[:, t]]
            if self.attention == "additive":
                weights, context = self.attend(states[-1][0], memory, padding)
                x = torch.cat((x, context), -1)
            for i in range(LAYERS):
                states[i] = self.step(f"dec.{i}", x, *states[i], WIDTH)
                x = states[i][0]
            if self.attention != "additive":
                weights, context = self.attend(x, memory, padding)
            alignment.append(weights)
            x = torch.cat((x, context), -1) @ self.weight("readout.weight", 2 * WIDTH, WIDTH)
            readouts.append(x.tanh())
        self.alignment = torch.stack(alignment, 1)
        return torch.stack(readouts, 1) @ table.T


def make_seq2seq(file_name, kind, attention, bidirectional):
    source = torch.randint(1, VOCAB, (BATCH, SOURCE_LEN))
    target = torch.randint(1, VOCAB, (BATCH, TARGET_LEN + 1))
    source[0, 4:], source[1, 2:] = PAD, PAD
    target[1, 3:], target[2, 5:] = PAD, PAD
    target_in, target_out = target[:, :-1], target[:, 1:]
    model = Seq2seq(kind, attention, bidirectional)
    logits = model.logits(source, target_in)
    loss = F.cross_entropy(logits.flatten(0, 1), target_out.flatten(), ignore_index=PAD)
    file = {"source": source, "target_in": target_in, "target_out": target_out}
    file.update(logits=logits, loss=loss, attention=model.alignment)
    print(file_name, "loss", loss.item(), "weights", len(model.weights))
    names, weights = list(model.weights), list(model.weights.values())
    for name, weight, grad in zip(names, weights, torch.autograd.grad(loss, weights)):
        file[name], file[f"grad.{name}"] = weight.detach().clone(), grad
    save(file_name, file)


if __name__ == "__main__":
    torch.manual_seed(19970815)
    torch.set_num_threads(1)
    make_recurrent()
    make_seq2seq("seq2seq_additive.safetensors", "gru", "additive", bidirectional=True)
    make_seq2seq("seq2seq_dot.safetensors", "lstm", "dot", bidirectional=False)
    make_seq2seq("seq2seq_general.safetensors", "lstm", "general", bidirectional=True)
