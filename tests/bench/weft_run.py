"""What a run of `weft train` is made of, read for the programs that repeat it: files, texts, batches."""
import json
import os
import struct
import subprocess
import tempfile

import numpy
import torch

PAD, BOS, EOS = 0, 2, 3
MASK64 = (1 << 64) - 1


class Failed(Exception):
    """One line for the user."""


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
        raise Failed(f"{path}: is not a safetensors file") from None
    meta, tensors = header.pop("__metadata__", {}), {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if entry["dtype"] == "F32" and not name.startswith(("opt.", "ema.", "sum.")):
            array = numpy.frombuffer(data[begin:end], numpy.float32).reshape(entry["shape"])
            tensors[name] = torch.from_numpy(array.copy())
    return tensors, meta


def model_options(meta):
    """Those in a checkpoint's metadata: every option of the model, numbers as such."""
    def value(text):
        try:
            return float(text)
        except ValueError:
            return text
    return {k: value(v) for k, v in (o.split("=") for o in meta.get("model_options", "").split())}


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


# ---- Texts: as text/read.c reads them ----


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
