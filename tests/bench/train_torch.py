#!/usr/bin/env python3
"""A run of `weft train`, repeated in PyTorch: same initial parameters, batches, optimiser and schedule.

    train_torch.py RUN [--out FOLDER] [--steps N]
    train_torch.py RUN --check [--steps N]

RUN is the folder of a run of `transformer` (pre- or post-norm) or `gpt`. What is repeated: the recipe's texts by
the run's vocabulary, classes of length, batches and their order (weft's own shuffle, number by number), the
model with its initial parameters, dropout at the same places, label smoothing, Adam or SGD with the same groups
of decay, clipping, accumulation, schedule, moving average, and validation on the same batches. Dropout draws
other numbers than weft's; all else is equal but for rounding. A run by minutes is repeated in as many steps as it
made, with the learning rates that its metrics tell. The model is nn.TransformerEncoder and nn.TransformerDecoder.

FOLDER (RUN/torch) becomes a folder like that of a run, so that `weft plot`, `weft translate`, `weft generate` and
`weft train --validate` take it: recipe.json, vocabulary, metrics.jsonl (a line of JSON for every log_every steps
and each validation; "seconds" since the start of training, validation included, "training_seconds" without),
model.safetensors (parameters only) and best.safetensors by weft's names. At the end weft itself validates them.

--check takes a run made with dropout=0 (best with log_every 1) and holds losses, norms of gradients and
validation losses against those in RUN/metrics.jsonl. Exit status: 0 they agree, 1 they do not, or an error.

Needs PyTorch, NumPy, spm_encode (Debian: python3-torch, sentencepiece) and the program weft.
"""
import argparse
import json
import math
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torch.nn.functional as F
from torch import nn

PAD, BOS, EOS = 0, 2, 3
ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))
MASK64 = (1 << 64) - 1


class Failed(Exception):
    pass


def use_best_settings(threads):
    """Starts this program again with what PyTorch reads only at its start: OpenBLAS's AVX-512 kernels where the
    processor has AVX-512 (it may not know the processor), and a malloc that keeps its memory."""
    keep = str(1 << 33)
    wanted = {"MALLOC_TRIM_THRESHOLD_": keep, "MALLOC_MMAP_THRESHOLD_": keep, "OMP_NUM_THREADS": str(threads)}
    with open("/proc/cpuinfo") as f:
        if " avx512vl" in f.read():
            wanted["OPENBLAS_CORETYPE"] = "SkylakeX"
    if any(os.environ.get(k) != v for k, v in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


# ---- Files ----


def read_json(path):
    try:
        with open(path) as f:
            return json.load(f)
    except OSError as error:
        raise Failed(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise Failed(f"{path}: is not JSON") from None


def read_metrics(run):
    """The whole lines of metrics.jsonl; none if there is no such file."""
    lines = []
    try:
        with open(os.path.join(run, "metrics.jsonl")) as f:
            for line in f:
                if line.endswith("\n"):
                    lines.append(json.loads(line))
    except OSError:
        pass
    except ValueError:
        raise Failed(f"{run}/metrics.jsonl: line {len(lines) + 1} is not JSON") from None
    return lines


def load_tensors(path):
    """Tensors by name, and the metadata, of a safetensors file."""
    try:
        with open(path, "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            data = f.read()
    except OSError as error:
        raise Failed(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, MemoryError, OverflowError, struct.error):
        raise Failed(f"{path}: is no safetensors file") from None
    meta, tensors = header.pop("__metadata__", {}), {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if entry["dtype"] == "F32" and not name.startswith(("opt.", "ema.", "sum.")):
            array = numpy.frombuffer(data[begin:end], numpy.float32).reshape(entry["shape"])
            tensors[name] = torch.from_numpy(array.copy())
    return tensors, meta


def save_tensors(path, tensors, meta):
    header, data = {"__metadata__": meta}, []
    begin = 0
    for name, t in tensors.items():
        data.append(t.detach().contiguous().numpy().tobytes())
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [begin, begin + len(data[-1])]}
        begin += len(data[-1])
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".tmp", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))
    os.replace(path + ".tmp", path)


def call(command, **options):
    try:
        done = subprocess.run(command, capture_output=True, check=False, **options)
    except OSError as error:
        raise Failed(f"{command[0]}: cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise Failed(f"{os.path.basename(command[0])}: {lines[-1]}")
    return done.stdout


def first_parameters(run, recipe, weft):
    """What weft starts the run with: parameters and metadata of a run of no step."""
    with tempfile.TemporaryDirectory() as folder:
        command = [weft, "train", os.path.join(run, "recipe.json"), "--out", folder, "--steps", "0", "--minutes", "0",
                   "--measure=false", "--valid-source", "", "--valid-target", "", "--valid-text", ""]
        for option, name in (("vocab-file", "vocab.model"), ("source-vocab-file", "vocab.source.model"),
                             ("target-vocab-file", "vocab.target.model")):
            if os.path.exists(os.path.join(run, name)):
                command += [f"--{option}", os.path.join(run, name)]
        call(command)
        return load_tensors(os.path.join(folder, "model.safetensors"))


# ---- Texts: as tools/texts.c reads them ----


def read_lines(path):
    """Lines without their ends and a byte order mark; None for one that is not UTF-8 or holds a zero."""
    try:
        with open(path, "rb") as f:
            lines = f.read().split(b"\n")
    except OSError as error:
        raise Failed(f"{path}: cannot be read: {error.strerror}") from None
    if not lines[-1]:
        lines.pop()
    texts = []
    for i, line in enumerate(lines):
        line = line[:-1] if line.endswith(b"\r") else line
        if i == 0 and line.startswith(b"\xef\xbb\xbf"):
            line = line[3:]
        try:
            texts.append(None if b"\0" in line else line.decode())
        except UnicodeDecodeError:
            texts.append(None)
    return texts


def encode(lines, vocabulary):
    """Token ids of lines, by the program spm_encode."""
    text = "".join(f"{line}\n" for line in lines).encode()
    found = call(["spm_encode", f"--model={vocabulary}", "--output_format=id"], input=text).decode().split("\n")
    if len(found) < len(lines):
        raise Failed(f"spm_encode: gave {len(found)} lines of ids for {len(lines)} lines")
    return [[int(word) for word in ids.split()] for ids in found[:len(lines)]]


def read_corpus(run, source, target):
    """Pairs of ids; the source is empty for a language model."""
    targets = read_lines(target)
    sources = read_lines(source) if source else [""] * len(targets)
    if len(sources) != len(targets):
        raise Failed(f"{source} has {len(sources)} lines, {target} {len(targets)}")
    pairs = [(s, t) for s, t in zip(sources, targets) if s is not None and t is not None]
    shared = os.path.join(run, "vocab.model")
    names = [shared] * 2 if os.path.exists(shared) else [
        os.path.join(run, f"vocab.{side}.model") for side in ("source", "target")]
    ids = encode([t for _, t in pairs], names[1])
    others = encode([s for s, _ in pairs], names[0]) if source else [[]] * len(ids)
    return list(zip(others, ids))


# ---- Batches: as models/batches.c makes them ----


def philox(counter, key):
    """Philox4x32-10 for arrays of uint64 that hold words of 32 bits."""
    low = numpy.uint64(0xFFFFFFFF)
    half = numpy.uint64(32)
    c0, c1, c2, c3 = counter
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p0, p1 = numpy.uint64(0xD2511F53) * c0, numpy.uint64(0xCD9E8D57) * c2
        c0, c2 = (p1 >> half) ^ c1 ^ numpy.uint64(k0), (p0 >> half) ^ c3 ^ numpy.uint64(k1)
        c1, c3 = p1 & low, p0 & low
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def shuffle(items, seed, what, epoch):
    """Fisher and Yates's shuffle by weft's draws, in place."""
    n = len(items)
    if n < 2:
        return
    i = numpy.arange(2, n + 1, dtype=numpy.uint64)
    same = [numpy.full(n - 1, x, numpy.uint64) for x in (what, epoch & 0xFFFFFFFF, epoch >> 32)]
    r = philox((i, *same), (seed ^ 0x7472616E696E67) & MASK64)
    picks = ((r[1] << numpy.uint64(32) | r[0]) % i).tolist()
    for end in range(n, 1, -1):
        k = picks[end - 2]
        items[k], items[end - 1] = items[end - 1], items[k]


class Batches:
    """Rows by class of length. An epoch shuffles each class and then the batches."""

    def __init__(self, corpus, recipe, blocks, what):
        o = recipe["batches"]
        self.lengths, self.seed = o["lengths"], recipe["run"]["seed"]
        limit = self.lengths[-1]
        self.classes = [[] for _ in self.lengths]
        if blocks:
            stream = [x for _, t in corpus if t for x in [BOS, *t]]
            out = [x for _, t in corpus if t for x in [*t, EOS]]
            for at in range(0, len(stream), limit):
                row = [self.filled(s[at:at + limit], limit) for s in (stream, out)]
                self.classes[-1].append((None, *row))
        else:
            for source, target in corpus:
                length = max(len(source), len(target)) + 1
                if not target or (recipe["data"]["source"] and not source) or (length > limit and not o["truncate"]):
                    continue
                number = next((i for i, n in enumerate(self.lengths) if length <= n), len(self.lengths) - 1)
                self.classes[number].append(self.row(source, target, self.lengths[number]))
        self.batches = []
        for number, rows in enumerate(self.classes):
            each = max(1, o["tokens"] // self.lengths[number])
            self.batches += [(number, first, min(each, len(rows) - first)) for first in range(0, len(rows), each)]
        if not self.batches:
            raise Failed(f"{what}: no line of up to {limit} tokens")
        self.start(0)

    @staticmethod
    def filled(ids, length):
        return ids[:length] + [PAD] * (length - len(ids))

    def row(self, source, target, length):
        out = self.filled([*target, EOS], length)
        into = [BOS] + [before if this != PAD else PAD for before, this in zip(out, out[1:])]
        return self.filled([*source, EOS], length) if source else None, into, out

    def start(self, epoch):
        self.order = [list(rows) for rows in self.classes]
        self.batch_order = list(self.batches)
        for number, rows in enumerate(self.order):
            shuffle(rows, self.seed, number, epoch)
        shuffle(self.batch_order, self.seed, 64, epoch)

    def __len__(self):
        return len(self.batches)

    def fill(self, index):
        """source (None without), target_in, target_out, each [length, rows], and the number of targets. Rows that
        are nothing but padding, of which weft has some to fill a batch, are left out: they count nothing."""
        number, first, n = self.batch_order[index]
        rows = self.order[number][first:first + n]
        parts = [None if rows[0][i] is None else torch.tensor([r[i] for r in rows]).t().contiguous() for i in range(3)]
        return (*parts, int((parts[2] != PAD).sum()))


# ---- Models ----


def require(options, **wanted):
    for name, values in wanted.items():
        if name in options and options[name] not in values:
            raise Failed(f"{name}={options[name]} is not repeated here, only {' or '.join(map(str, values))}")


def activation(name):
    return {"relu": F.relu, "gelu": F.gelu, "silu": F.silu,
            "gelu-tanh": lambda x: F.gelu(x, approximate="tanh")}[name]


class Links(list):
    """Which parameter of weft's lies where in a module's: (tensor, name, turned), turned if weft has it as
    [in, out]. A tensor may be a part of a parameter."""

    def linear(self, weight, bias, name):
        self.append((weight, f"{name}.weight", True))
        self.append((bias, f"{name}.bias", False))

    def norm(self, module, name):
        self.append((module.weight, f"{name}.gamma", False))
        self.append((module.bias, f"{name}.beta", False))

    def attention(self, module, name):
        parts = zip("qkv", module.in_proj_weight.data.chunk(3), module.in_proj_bias.data.chunk(3))
        for letter, weight, bias in parts:
            self.linear(weight, bias, f"{name}.{letter}")
        self.linear(module.out_proj.weight, module.out_proj.bias, f"{name}.out")

    def block(self, layer, name):
        self.attention(layer.self_attn, f"{name}.attn")
        norms = ["norm_attn", "norm_ffn"]
        if hasattr(layer, "multihead_attn"):
            self.attention(layer.multihead_attn, f"{name}.cross")
            norms.insert(1, "norm_cross")
        for i, norm in enumerate(norms):
            self.norm(getattr(layer, f"norm{i + 1}"), f"{name}.{norm}")
        self.linear(layer.linear1.weight, layer.linear1.bias, f"{name}.ffn.in")
        self.linear(layer.linear2.weight, layer.linear2.bias, f"{name}.ffn.out")

    def stack(self, module, name):
        for i, layer in enumerate(module.layers):
            self.block(layer, f"{name}.{i}")
        if module.norm is not None:
            self.norm(module.norm, f"{name}.norm")


class Model(nn.Module):
    """What the models share: tables, positions, logits. All is [length, rows, width], which spares the layers of
    PyTorch to turn their input."""

    def __init__(self, options, length, tables, positions):
        super().__init__()
        self.o, self.links = options, Links()
        vocab, self.width = int(options["vocab"]), int(options["d_model"])
        self.drop = nn.Dropout(options["dropout"])
        self.scale = math.sqrt(self.width) if options.get("scaled_embeddings", 0) else 1.0
        self.tables = [self.parameter(name, vocab, self.width) for name in tables]
        self.places = []
        if options["positions"] == "learned":
            self.places = [self.parameter(name, int(options["most_positions"]), self.width) for name in positions]
        elif options["positions"] == "sinusoidal":
            self.register_buffer("waves", self.sinusoids(length))
            self.places = [self.waves] * len(positions)
        self.output = None
        if not options["tied"]:
            self.output = nn.Linear(self.width, vocab)
            self.links.linear(self.output.weight, self.output.bias, "output")
        self.register_buffer("later", torch.ones(length, length, dtype=torch.bool).triu(1))

    def parameter(self, name, *shape):
        p = nn.Parameter(torch.empty(*shape))
        self.register_parameter(name, p)
        self.links.append((p, name, False))
        return p

    def sinusoids(self, length):
        at = torch.arange(length, dtype=torch.float64)[:, None]
        angle = at / 10000 ** (torch.arange(0, self.width, 2, dtype=torch.float64) / self.width)
        return torch.stack((angle.sin(), angle.cos()), -1).reshape(length, self.width).float()[:, None]

    def layer(self, kind, hidden_dropout):
        o = self.o
        act = activation(o.get("activation", "relu"))
        layer = kind(self.width, int(o["heads"]), int(o["d_ff"]), o["dropout"], act, 1e-5,
                     norm_first=o["norm"] == "pre")
        if not hidden_dropout:
            layer.dropout.p = 0.0
        if not o.get("inner_dropout", 1):
            layer.self_attn.dropout = 0.0
            if hasattr(layer, "multihead_attn"):
                layer.multihead_attn.dropout = 0.0
        return layer

    def final_norm(self):
        return nn.LayerNorm(self.width, 1e-5) if self.o["norm"] == "pre" else None

    def embed(self, table, positions, ids):
        x = F.embedding(ids, table)
        if self.scale != 1:
            x = x * self.scale
        if positions is not None:
            x = x + positions[:len(ids)].view(len(ids), 1, -1)
        return self.drop(x)

    def logits(self, x):
        return F.linear(x, self.tables[-1]) if self.output is None else self.output(x)

    def mask(self, length):
        return self.later[:length, :length]

    def place(self, i):
        return self.places[i] if self.places else None

    def read(self, tensors):
        """Takes weft's parameters."""
        named = {name for _, name, _ in self.links}
        if named != set(tensors):
            raise Failed(f"the model has other parameters than weft's: {sorted(named ^ set(tensors))[0]}")
        for to, name, turned in self.links:
            to.data.copy_(tensors[name].t() if turned else tensors[name])

    def written(self):
        return {name: (t.t() if turned else t).detach() for t, name, turned in self.links}


class Translator(Model):
    def __init__(self, options, length):
        tables = ["embedding"] if options["tied"] else ["source_embedding", "target_embedding"]
        super().__init__(options, length, tables, ["source_positions", "target_positions"])
        hidden = bool(options["inner_dropout"])
        self.encoder = nn.TransformerEncoder(self.layer(nn.TransformerEncoderLayer, hidden),
                                             int(options["encoder_layers"]), self.final_norm(),
                                             enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(self.layer(nn.TransformerDecoderLayer, hidden),
                                             int(options["decoder_layers"]), self.final_norm())
        self.links.stack(self.encoder, "enc")
        self.links.stack(self.decoder, "dec")

    def forward(self, source, target):
        padding = (source == PAD).t()
        padding = padding if padding.any() else None
        memory = self.encoder(self.embed(self.tables[0], self.place(0), source), src_key_padding_mask=padding)
        x = self.embed(self.tables[-1], self.place(1), target)
        return self.logits(self.decoder(x, memory, tgt_mask=self.mask(len(target)), memory_key_padding_mask=padding))


class LanguageModel(Model):
    def __init__(self, options, length):
        super().__init__(options, length, ["embedding"], ["positions"])
        self.stack = nn.TransformerEncoder(self.layer(nn.TransformerEncoderLayer, False), int(options["layers"]),
                                           self.final_norm(), enable_nested_tensor=False)
        self.links.stack(self.stack, "layer")

    def forward(self, _, ids):
        x = self.embed(self.tables[0], self.place(0), ids)
        return self.logits(self.stack(x, mask=self.mask(len(ids))))


def make_model(recipe, options, length):
    require(options, norm=("pre", "post"), projection=("separate",), score_scale=("head-width",), attention_bias=(1,),
            kv_heads=(0,), rotary_base=(0,), f64=(0,), pad_id=(PAD,))
    return (LanguageModel if recipe["model"] == "gpt" else Translator)(options, length)


def number(text):
    try:
        return float(text)
    except ValueError:
        return text


# ---- Training ----


def name_matches(patterns, name):
    """As weft_name_matches: commas between patterns, stars for any text."""
    def fits(pattern):
        first, *parts = pattern.split("*")
        if not parts:
            return name == pattern
        if not name.startswith(first) or not name.endswith(parts[-1]) or len(name) < len(first) + len(parts[-1]):
            return False
        at, end = len(first), len(name) - len(parts[-1])
        for part in parts[:-1]:
            at = name.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True
    return any(p and fits(p) for p in patterns.split(","))


def rate(schedule, width, steps):
    """weft_schedule_rate of a schedule by steps."""
    kind, floor, warmup, total = (schedule[key] for key in ("kind", "floor", "warmup", "steps"))
    peak = schedule["lr"] or 1 / math.sqrt(width * max(warmup, 1))
    done = (steps - warmup) / (total - warmup) if total > warmup else float(steps >= total)
    done = min(max(done, 0), 1)
    lr = {"linear": lambda: floor + (peak - floor) * (1 - done),
          "cosine": lambda: floor + (peak - floor) * (1 + math.cos(math.pi * done)) / 2,
          "inverse-sqrt": lambda: max(floor, peak * min(1, math.sqrt(max(warmup, 1) / (steps + 1)))),
          "constant": lambda: peak}[kind]()
    return lr if steps + 1 >= warmup else min(lr, peak * (steps + 1) / warmup)


def make_rate(recipe, metrics, width):
    """The learning rate after so many steps; in a run by time that which was logged, or between two such."""
    if recipe["schedule"]["steps"]:
        return lambda steps: rate(recipe["schedule"], width, steps)
    logged = [(line["step"], line["lr"]) for line in metrics if "lr" in line]
    if not logged:
        raise Failed("a run by time has its learning rates in metrics.jsonl, where there is none")
    return lambda steps: float(numpy.interp(steps + 1, *zip(*logged)))


def make_optimizer(model, o):
    """Groups with and without decay. Parts of one parameter (q, k, v) must agree."""
    storages = {}
    for tensor, name, _ in model.links:
        storages.setdefault(tensor.storage().data_ptr(), set()).add(name_matches(o["no_decay"], name))
    groups = {False: [], True: []}
    for p in model.parameters():
        kept = storages[p.storage().data_ptr()]
        if len(kept) > 1:
            raise Failed("no_decay tells q, k and v apart, which PyTorch has in one parameter")
        groups[kept.pop()].append(p)
    groups = [{"params": groups[False], "weight_decay": o["weight_decay"]}, {"params": groups[True], "weight_decay": 0}]
    groups = [g for g in groups if g["params"]]
    if o["kind"] == "sgd":
        return torch.optim.SGD(groups, lr=1, momentum=o["momentum"], nesterov=o["nesterov"])
    kind = torch.optim.AdamW if o["kind"] == "adamw" else torch.optim.Adam
    return kind(groups, lr=1, betas=(o["beta1"], o["beta2"]), eps=o["eps"], foreach=True)


class Trainer:
    def __init__(self, recipe, options, model, train, valid, rate_of):
        self.r, self.model, self.train, self.valid, self.rate_of = recipe, model, train, valid, rate_of
        self.smoothing = options.get("label_smoothing", 0)
        self.optimizer = make_optimizer(model, recipe["optimizer"])
        self.params = list(model.parameters())
        self.ema = recipe["optimizer"]["ema"]
        self.averages = [torch.zeros_like(p) for p in self.params] if self.ema else None
        self.step, self.epoch, self.batch = 0, 0, 0
        self.smoothed = math.nan
        self.norm = self.lr = self.loss = 0.0
        self.tokens = 0

    def next_batch(self):
        if self.batch >= len(self.train):
            self.batch = 0
            self.epoch += 1
            self.train.start(self.epoch)
        self.batch += 1
        return self.train.fill(self.batch - 1)

    def losses(self, source, into, out, smoothing):
        logits = self.model(source, into)
        return F.cross_entropy(logits.flatten(0, 1), out.flatten(), ignore_index=PAD, label_smoothing=smoothing)

    def gradients(self):
        """Of one batch, or of several weighed by their numbers of targets."""
        parts = self.r["batches"]["accumulate"]
        self.optimizer.zero_grad(set_to_none=True)
        self.loss, self.tokens = 0.0, 0
        for _ in range(parts):
            source, into, out, tokens = self.next_batch()
            loss = self.losses(source, into, out, self.smoothing)
            (loss if parts == 1 else loss * tokens).backward()
            self.loss += loss.item() * (1 if parts == 1 else tokens)
            self.tokens += tokens
        if parts > 1:
            self.loss /= self.tokens
            for p in self.params:
                p.grad.div_(self.tokens)

    def update(self):
        self.model.train()
        self.gradients()
        clip = self.r["optimizer"]["clip"]
        self.norm = float(nn.utils.clip_grad_norm_(self.params, clip if clip else math.inf))
        if not math.isfinite(self.norm) or not math.isfinite(self.loss):
            raise Failed(f"step {self.step + 1} was not made: the loss is {self.loss}, the gradient's norm {self.norm}")
        self.lr = self.rate_of(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        self.optimizer.step()
        if self.ema:
            share = 1 - min(self.ema, self.step / (self.step + 10))
            with torch.no_grad():
                for average, p in zip(self.averages, self.params):
                    average.lerp_(p, share)
        self.step += 1
        self.smoothed = self.loss if math.isnan(self.smoothed) else 0.98 * self.smoothed + 0.02 * self.loss

    def swap_average(self):
        """Puts the averages in the model's place, and back."""
        if self.ema and self.step:
            for average, p in zip(self.averages, self.params):
                kept = average.clone()
                average.copy_(p.data)
                p.data.copy_(kept)

    def validate(self):
        """Nats a target token, with the averages if there are; also the model as it is saved."""
        self.model.eval()
        self.swap_average()
        total, tokens = 0.0, 0
        most = self.r["run"]["valid_batches"] or len(self.valid)
        with torch.inference_mode():
            for i in range(min(most, len(self.valid))):
                source, into, out, n = self.valid.fill(i)
                total += n * float(self.losses(source, into, out, 0.0))
                tokens += n
            found = {name: t.clone() for name, t in self.model.written().items()}
        self.swap_average()
        return total / tokens, found


# ---- The run ----


def progress(text, last=False):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="\n" if last else "", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def clock(seconds):
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


class Run:
    """The folder that is repeated, and the one that is written."""

    def __init__(self, arguments):
        self.a = arguments
        self.recipe = read_json(os.path.join(arguments.run, "recipe.json"))
        self.metrics = read_metrics(arguments.run)
        options = self.recipe.get("model_options", {})
        if "batches" not in self.recipe or "vocab" not in options:
            raise Failed(f"{arguments.run}/recipe.json: is not that of a run")
        if self.recipe["model"] not in ("transformer", "transformer-base", "gpt"):
            raise Failed(f"the model {self.recipe['model']} is not repeated here, only transformer and gpt")
        last = max((line["step"] for line in self.metrics), default=0)
        self.steps = arguments.steps or (last if arguments.check else self.recipe["schedule"]["steps"] or last)
        if not self.steps:
            raise Failed(f"{arguments.run}: its steps are not known (no schedule.steps, no metrics): give --steps")
        self.best, self.best_step, self.stale = math.inf, 0, 0

    def prepare(self):
        a, data = self.a, self.recipe["data"]
        progress("reading weft's first parameters")
        tensors, self.meta = load_tensors(a.weights) if a.weights else first_parameters(a.run, self.recipe, a.weft)
        # The checkpoint tells every option, and the vocabulary's true size.
        options = {k: number(v) for k, v in (o.split("=") for o in self.meta.get("model_options", "").split())}
        if self.meta.get("model") != self.recipe["model"]:
            raise Failed(f"{a.weights}: is of {self.meta.get('model')}, the run is of {self.recipe['model']}")
        if a.check and options["dropout"] != 0:
            raise Failed(f"--check needs a run with dropout=0, {a.run} has {options['dropout']:g}")
        progress("reading texts")
        pairs = self.recipe["model"] != "gpt"
        blocks = not pairs and self.recipe["batches"]["mode"] != "lines"
        train = Batches(read_corpus(a.run, data["source"], data["target" if pairs else "text"]), self.recipe, blocks,
                        "training")
        name = data["valid_target" if pairs else "valid_text"]
        valid = Batches(read_corpus(a.run, data["valid_source"], name), self.recipe, blocks, name) if name else None
        torch.manual_seed(self.recipe["run"]["seed"])
        model = make_model(self.recipe, options, self.recipe["batches"]["lengths"][-1])
        model.read(tensors)
        rates = make_rate(self.recipe, self.metrics, model.width)
        self.trainer = Trainer(self.recipe, options, model, train, valid, rates)

    def open_folder(self):
        out = self.a.out
        if os.path.exists(os.path.join(out, "metrics.jsonl")) and not self.a.check:
            raise Failed(f"{out}: has a run already; another --out keeps it")
        os.makedirs(out, exist_ok=True)
        for name in ("recipe.json", "vocab.model", "vocab.source.model", "vocab.target.model"):
            if os.path.exists(os.path.join(self.a.run, name)):
                shutil.copy(os.path.join(self.a.run, name), out)
        self.file = open(os.path.join(out, "metrics.jsonl"), "w")

    def write(self, line):
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()

    def validation_steps(self):
        """Where weft validated; in a run by time as its metrics tell."""
        every = self.recipe["run"]["valid_every"] or self.recipe["schedule"]["steps"] // 20
        if not every and self.recipe["schedule"]["steps"]:
            every = 1
        if every:
            steps = set(range(every, self.steps + 1, every))
        else:
            steps = {line["step"] for line in self.metrics if "validation_loss" in line}
        return steps | {self.steps}

    def save(self, name, tensors, step):
        meta = {k: self.meta[k] for k in ("model", "model_options")}
        save_tensors(os.path.join(self.a.out, name), tensors, {**meta, "step": str(step)})

    def validate(self, begin, training):
        t = self.trainer
        loss, found = t.validate()
        best = loss < self.best
        if best:
            self.best, self.best_step, self.stale = loss, t.step, 0
            self.save("best.safetensors", found, t.step)
        else:
            self.stale += 1
        self.write({"step": t.step, "validation_loss": loss, "best": best, "seconds": time.perf_counter() - begin,
                    "training_seconds": training})
        return loss

    def train(self):
        t, every = self.trainer, self.recipe["run"]["log_every"]
        steps, patience = self.validation_steps() if t.valid else set(), self.recipe["run"]["patience"]
        begin = shown = time.perf_counter()
        training, loss, tokens = 0.0, math.nan, 0
        while t.step < self.steps and not (patience and self.stale >= patience):
            before = time.perf_counter()
            t.update()
            now = time.perf_counter()
            training += now - before
            tokens += t.tokens
            if t.step % every == 0:
                self.write({"step": t.step, "epoch": t.epoch, "loss": t.loss, "smoothed": t.smoothed, "lr": t.lr,
                            "norm": t.norm, "tokens": t.tokens, "seconds": now - begin, "training_seconds": training,
                            "tokens_per_second": t.tokens / (now - before)})
            if t.step in steps:
                loss = self.validate(begin, training)
            if now - shown >= (0.5 if sys.stderr.isatty() else 10) or t.step in (1, self.steps):
                shown, left = now, (self.steps - t.step) * (now - begin) / t.step
                progress(f"step {t.step} of {self.steps}  loss {t.loss:.3f} ({t.smoothed:.3f})"
                         + (f"  validation {loss:.3f}" if not math.isnan(loss) else "")
                         + f"  {clock(left)} left  {tokens / training:.0f} tokens/s", last=t.step == self.steps)
        if t.valid and t.step not in steps:
            loss = self.validate(begin, training)
        self.save("model.safetensors", t.model.written(), t.step)
        result = {"steps": t.step, "seconds": time.perf_counter() - begin, "training_seconds": training,
                  "seconds_per_step": training / t.step, "tokens_per_second": tokens / training, "loss": t.smoothed}
        if t.valid:
            result.update(validation_loss=loss, best_validation_loss=self.best, best_step=self.best_step)
            text = call([self.a.weft, "train", "--out", self.a.out, "--json", "--validate",
                         os.path.join(self.a.out, "best.safetensors")])
            own = json.loads(text)
            result["best_validation_loss_by_weft"] = own["validation_loss"]
            if own["bits_per_character"] is not None:
                result["best_bits_per_character_by_weft"] = own["bits_per_character"]
        return result


def compare(run, out, tolerance):
    """Holds the lines of both metrics against each other, step by step. Rounding grows from step to step, so that
    the first loss has a narrower bound."""
    lines = read_metrics(out)
    theirs = {line["step"]: line for line in lines if "loss" in line}
    validations = {line["step"]: line for line in lines if "validation_loss" in line}
    worst, first, count = {"loss": 0.0, "norm": 0.0, "validation_loss": 0.0}, None, 0
    for line in run.metrics:
        pairs = [(key, theirs) for key in ("loss", "norm") if key in line]
        pairs += [("validation_loss", validations)] if "validation_loss" in line else []
        for key, other in pairs:
            if line["step"] not in other:
                continue
            difference = abs(other[line["step"]][key] / line[key] - 1)
            if first is None:
                first = {"step": line["step"], "loss": line["loss"], "difference": difference}
            worst[key] = max(worst[key], difference)
            count += key == "loss"
    if not count:
        raise Failed(f"{run.a.run}/metrics.jsonl: has no step to compare with")
    return {"steps_compared": count, "first": first, "greatest_relative_differences": worst,
            "agree": first["difference"] <= 1e-4 and max(worst.values()) <= tolerance}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="folder of a run of weft train")
    parser.add_argument("--out", metavar="FOLDER", help="of this run (RUN/torch)")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="to make (those of the run)")
    parser.add_argument("--check", action="store_true", help="compare with the run, which has dropout=0")
    parser.add_argument("--tolerance", type=float, default=1e-3, metavar="X",
                        help="of --check: most relative difference at any step (1e-3; of the first loss it is 1e-4)")
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint to start from (that of weft before step 1)")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="(those of the run, or all)")
    parser.add_argument("--weft", default=os.path.join(ROOT, "build", "tools", "weft"), metavar="PROGRAM")
    a = parser.parse_args()
    try:
        run = Run(a)
        threads = a.threads or run.recipe["run"]["threads"] or len(os.sched_getaffinity(0))
        use_best_settings(threads)
        torch.set_num_threads(threads)
        a.out = a.out or os.path.join(a.run, "check" if a.check else "torch")
        run.prepare()
        run.open_folder()
        result = {"torch": torch.__version__, "threads": threads, **run.train()}
        if a.check:
            result.update(compare(run, a.out, a.tolerance))
    except Failed as error:
        print(f"train_torch: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ntrain_torch: interrupted", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=1))
    return 0 if result.get("agree", True) else 1


sys.exit(main())
