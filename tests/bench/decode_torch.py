#!/usr/bin/env python3
"""Beam search with key/value caches in PyTorch, on a checkpoint of `weft train` (transformer, pre-norm,
separate projections, tied or not, sinusoidal positions).

    python3 tests/bench/decode_torch.py RUN IDS [--beam 4] [--batch 16] [--threads N]

IDS has the sources as token ids, a line each, without the end (spm_encode --model=RUN/vocab.model
--output_format=id). For comparison: weft translate RUN --beam 4 --batch 16 --stats. Both sort by length, stop once
as many hypotheses have ended as there are beams, and count the tokens of the best ones.
"""
import argparse
import math
import time

import torch
import torch.nn.functional as F

from weft_run import BOS, EOS, PAD, load_tensors, model_options


class Model:
    def __init__(self, run):
        self.p, meta = load_tensors(f"{run}/model.safetensors")
        o = model_options(meta)
        assert o.get("norm", "pre") == "pre" and o.get("projection", "separate") == "separate"
        assert o.get("positions", "sinusoidal") == "sinusoidal"
        self.heads = int(o["heads"])
        self.layers = {k: int(o[k]) for k in ("encoder_layers", "decoder_layers")}
        self.source = self.p.get("embedding", self.p.get("source_embedding"))
        self.target = self.p.get("embedding", self.p.get("target_embedding"))
        self.scale = math.sqrt(self.source.shape[1]) if o.get("scaled_embeddings", 1) else 1
        d, at = self.source.shape[1], torch.arange(1024.0)[:, None]
        angle = at / 10000 ** (torch.arange(0, d, 2) / d)
        self.positions = torch.stack([angle.sin(), angle.cos()], -1).reshape(1024, d)

    def linear(self, name, x):
        y = x @ self.p[name + ".weight"]
        return y + self.p[name + ".bias"] if name + ".bias" in self.p else y

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.p[name + ".gamma"], self.p[name + ".beta"], 1e-5)

    def split(self, x):  # [rows, length, d] to [rows, heads, length, head_dim]
        return x.reshape(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def attend(self, name, q, k, v, mask):
        s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if mask is not None:
            s = s.masked_fill(mask, -math.inf)
        y = (s.softmax(-1) @ v).transpose(1, 2)
        return self.linear(name + ".out", y.reshape(*y.shape[:2], -1))

    def feed_forward(self, name, x):
        y = self.linear(name + ".ffn.in", self.norm(name + ".norm_ffn", x)).relu()
        return x + self.linear(name + ".ffn.out", y)

    def encode(self, ids):
        mask = (ids == PAD)[:, None, None, :]
        x = self.source[ids] * self.scale + self.positions[:ids.shape[1]]
        for i in range(self.layers["encoder_layers"]):
            n = f"enc.{i}"
            y = self.norm(n + ".norm_attn", x)
            q, k, v = (self.split(self.linear(f"{n}.attn.{c}", y)) for c in "qkv")
            x = self.feed_forward(n, x + self.attend(n + ".attn", q, k, v, mask))
        x = self.norm("enc.norm", x)
        cross = [[self.split(self.linear(f"dec.{i}.cross.{c}", x)) for c in "kv"]
                 for i in range(self.layers["decoder_layers"])]
        return cross, mask

    def step(self, tokens, at, cache, cross, mask, beams):
        """tokens [rows]; cache: a list of [k, v], each [rows, heads, at, head_dim] or None."""
        rows = tokens.shape[0]
        x = self.target[tokens][:, None] * self.scale + self.positions[at]
        for i in range(self.layers["decoder_layers"]):
            n = f"dec.{i}"
            y = self.norm(n + ".norm_attn", x)
            q, k, v = (self.split(self.linear(f"{n}.attn.{c}", y)) for c in "qkv")
            if cache[i] is not None:
                k, v = torch.cat([cache[i][0], k], 2), torch.cat([cache[i][1], v], 2)
            cache[i] = [k, v]
            x = x + self.attend(n + ".attn", q, k, v, None)
            y = self.linear(n + ".cross.q", self.norm(n + ".norm_cross", x))
            q = self.split(y.reshape(rows // beams, beams, -1))
            x = x + self.attend(n + ".cross", q, *cross[i], mask).reshape(x.shape)
            x = self.feed_forward(n, x)
        x = self.norm("dec.norm", x)[:, 0]
        logits = x @ self.target.T if "embedding" in self.p else self.linear("output", x)
        return logits.log_softmax(-1)


def search(model, sources, beams, alpha):
    n, most = len(sources), [min(256, int(2 * len(s) + 10)) for s in sources]
    ids = torch.full((n, max(map(len, sources))), PAD)
    for i, s in enumerate(sources):
        ids[i, :len(s)] = torch.tensor(s)
    cross, mask = model.encode(ids)
    cache = [None] * model.layers["decoder_layers"]
    tokens = torch.full((n * beams,), BOS)
    scores = torch.full((n, beams), -math.inf)
    scores[:, 0] = 0
    history = torch.zeros(n * beams, 0, dtype=torch.long)
    ended, done = [[] for _ in range(n)], [False] * n
    for at in range(max(most)):
        logs = model.step(tokens, at, cache, cross, mask, beams)
        logs[:, :EOS] = -math.inf
        vocab = logs.shape[1]
        best, where = (scores[:, :, None] + logs.reshape(n, beams, vocab)).reshape(n, -1).topk(2 * beams)
        parents = torch.arange(n * beams).reshape(n, beams).clone()
        chosen = torch.full((n, beams), EOS)
        scores = torch.full((n, beams), -math.inf)
        for i in range(n):
            filled = 0
            for x, w in zip(best[i].tolist(), where[i].tolist()) if not done[i] else []:
                row, token = i * beams + w // vocab, w % vocab
                if token == EOS:
                    ended[i].append((x / ((6 + at) / 6) ** alpha, history[row].tolist()))
                elif filled < beams:
                    parents[i, filled], chosen[i, filled], scores[i, filled] = row, token, x
                    filled += 1
                if filled == beams:
                    break
            if not done[i] and (len(ended[i]) >= beams or at + 1 >= most[i]):
                for b in range(beams if at + 1 >= most[i] else 0):
                    tail = history[parents[i, b]].tolist() + [int(chosen[i, b])]
                    ended[i].append((float(scores[i, b]) / ((6 + at) / 6) ** alpha, tail))
                done[i] = True
        if all(done):
            break
        parents, tokens = parents.reshape(-1), chosen.reshape(-1)
        history = torch.cat([history[parents], tokens[:, None]], 1)
        cache = [[k[parents], v[parents]] for k, v in cache]
    return [max(e)[1] for e in ended]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("run")
    a.add_argument("ids")
    a.add_argument("--beam", type=int, default=4)
    a.add_argument("--batch", type=int, default=16)
    a.add_argument("--length-penalty", type=float, default=0.6)
    a.add_argument("--threads", type=int, default=0)
    a.add_argument("--print", action="store_true", help="the ids that were found, in order")
    a = a.parse_args()
    if a.threads:
        torch.set_num_threads(a.threads)
    model = Model(a.run)
    with open(a.ids) as f:
        sources = [[int(x) for x in line.split()][:255] + [EOS] for line in f]
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found = [None] * len(sources)
    begin = time.perf_counter()
    with torch.no_grad():
        for i in range(0, len(order), a.batch):
            part = order[i:i + a.batch]
            for j, tokens in zip(part, search(model, [sources[j] for j in part], a.beam, a.length_penalty)):
                found[j] = tokens
    seconds = time.perf_counter() - begin
    total = sum(len(x) + 1 for x in found)
    if a.print:
        for x in found:
            print(*x)
    print(f"# {len(sources)} lines, {total} tokens in {seconds:.2f} s: {total / seconds:.0f} tokens/s, "
          f"{torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
