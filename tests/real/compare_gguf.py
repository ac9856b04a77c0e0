"""Compares a run that `weft convert FILE.gguf` wrote with the Python package `gguf`: every tensor with
gguf.quants.dequantize, bit for bit, and the logits of some tokens with a forward pass in NumPy, in f64, that follows
llama.cpp's layout of the file. Of the texts that `weft generate --temperature 0` writes, that pass must find every
token the most probable one, up to the one that ends the text. Usage: compare_gguf.py WEFT FILE.gguf RUN FOLDER; FOLDER is for arrays. Exit status 1
if something differs."""
import json
import pathlib
import subprocess
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Tokenizer

# Norm-wise, relative. A pass of 30 layers in f32 rounds some 500 times by up to 6e-8; SmolLM2's differ by 9e-7.
LIMIT = 1e-5
LENGTH = 24
PROMPTS = ["The capital of France is", "Once upon a time, there was a little",
           "<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>assistant\n"]
TOKENS = 24


def read_run(path):
    """The tensors of a safetensors file, all f32."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    n = int(data[:8].view(np.uint64)[0])
    header = json.loads(bytes(data[8:8 + n]))
    header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert entry["dtype"] == "F32", name
        tensors[name] = data[8 + n + begin:8 + n + end].view(np.float32).reshape(entry["shape"])
    return tensors


class Model:
    """The metadata and the tensors of a GGUF file."""

    def __init__(self, path):
        reader = GGUFReader(path)
        self.fields = {key: field.contents() for key, field in reader.fields.items()}
        self.tensors = {t.name: t for t in reader.tensors}

    def option(self, key):
        return self.fields[f"llama.{key}"]

    def tensor(self, name):
        tensor = self.tensors[name]
        numbers = dequantize(tensor.data, tensor.tensor_type)
        return numbers.reshape(tensor.shape[::-1].tolist())


NAMES = {"token_embd.weight": "embedding", "output_norm.weight": "layer.norm.gamma", "output.weight": "output.weight"}
LAYER = {"attn_norm": "norm_attn.gamma", "ffn_norm": "norm_ffn.gamma", "attn_q": "attn.q.weight",
         "attn_k": "attn.k.weight", "attn_v": "attn.v.weight", "attn_output": "attn.out.weight",
         "ffn_gate": "ffn.gate.weight", "ffn_up": "ffn.in.weight", "ffn_down": "ffn.out.weight"}


def in_weft(model, name):
    """The name and the contents of a tensor as weft has them."""
    numbers = model.tensor(name)
    if name in NAMES:
        return NAMES[name], numbers.T if name == "output.weight" else numbers
    _, layer, kind, _ = name.split(".")
    if kind in ("attn_q", "attn_k"):
        heads = model.option("attention.head_count" + ("_kv" if kind == "attn_k" else ""))
        rows, columns = numbers.shape
        # The inverse of `permute` in convert_hf_to_gguf.py of llama.cpp.
        numbers = numbers.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
    return f"layer.{layer}.{LAYER[kind]}", numbers.T if numbers.ndim == 2 else numbers


def compare_tensors(model, run):
    same = 0
    for name in model.tensors:
        ours, numbers = in_weft(model, name)
        got = run.pop(ours)
        if got.shape != numbers.shape or not np.array_equal(np.ascontiguousarray(numbers).view(np.uint32),
                                                            got.view(np.uint32)):
            sys.exit(f"{name} and {ours} differ")
        same += 1
    if run:
        sys.exit(f"the run has more tensors: {sorted(run)}")
    return same


def norm(x, gamma, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * gamma


def rotate(x, base):
    """Rotates pairs of neighbours, as llama.cpp does; x [heads, length, size]."""
    size = x.shape[-1]
    angles = np.arange(x.shape[1])[:, None] * base ** (-np.arange(0, size, 2) / size)
    cos, sin = np.cos(angles), np.sin(angles)
    y = np.empty_like(x)
    y[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    y[..., 1::2] = x[..., 0::2] * sin + x[..., 1::2] * cos
    return y


def forward(model, ids):
    """Logits [length, vocabulary] of a row of ids."""
    def weight(name):
        return model.tensor(name).astype(np.float64)
    heads, kv_heads = model.option("attention.head_count"), model.option("attention.head_count_kv")
    eps, base = model.option("attention.layer_norm_rms_epsilon"), model.option("rope.freq_base")
    embedding = weight("token_embd.weight")
    x = embedding[ids]
    length, width = x.shape
    size = width // heads
    mask = np.triu(np.full((length, length), -np.inf), 1)

    def split(y, n):
        return y.reshape(length, n, size).swapaxes(0, 1)
    for i in range(model.option("block_count")):
        y = norm(x, weight(f"blk.{i}.attn_norm.weight"), eps)
        query = rotate(split(y @ weight(f"blk.{i}.attn_q.weight").T, heads), base)
        key = rotate(split(y @ weight(f"blk.{i}.attn_k.weight").T, kv_heads), base)
        value = split(y @ weight(f"blk.{i}.attn_v.weight").T, kv_heads)
        key, value = (np.repeat(a, heads // kv_heads, axis=0) for a in (key, value))
        scores = query @ key.swapaxes(1, 2) / np.sqrt(size) + mask
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        y = (scores / scores.sum(-1, keepdims=True)) @ value
        x = x + y.swapaxes(0, 1).reshape(length, width) @ weight(f"blk.{i}.attn_output.weight").T
        y = norm(x, weight(f"blk.{i}.ffn_norm.weight"), eps)
        gate = y @ weight(f"blk.{i}.ffn_gate.weight").T
        y = gate / (1 + np.exp(-gate)) * (y @ weight(f"blk.{i}.ffn_up.weight").T)
        x = x + y @ weight(f"blk.{i}.ffn_down.weight").T
    x = norm(x, weight("output_norm.weight"), eps)
    return x @ (weight("output.weight") if "output.weight" in model.tensors else embedding).T


def compare_text(model, weft, run, prompt):
    """Whether the greedy text of a prompt is that of the NumPy pass."""
    text = subprocess.run([weft, "generate", run, "--special", "--temperature", "0", "--tokens", str(TOKENS),
                           "--prompt", prompt], check=True, capture_output=True, text=True).stdout[:-1]
    tokenizer = Tokenizer.from_file(f"{run}/tokenizer.json")
    begin, ids = tokenizer.encode(prompt).ids, tokenizer.encode(text).ids
    end = model.fields["tokenizer.ggml.eos_token_id"]
    best = forward(model, np.array(ids)).argmax(-1)[len(begin) - 1:].tolist()
    new = ids[len(begin):]
    same = ids[:len(begin)] == begin and best[:len(new)] == new and (len(new) == TOKENS or best[len(new)] == end)
    print(f"{text!r}: {len(new)} tokens, {'those' if same else 'not those'} of NumPy")
    return same


def main():
    weft, path, run, folder = sys.argv[1:]
    model = Model(path)
    same = compare_tensors(model, read_run(pathlib.Path(run, "model.safetensors")))
    print(f"{same} tensors equal those of the package gguf, bit for bit")
    ids = np.random.default_rng(0).integers(0, len(model.fields["tokenizer.ggml.tokens"]), LENGTH)
    np.save(f"{folder}/ids.npy", ids[None].astype(np.int32))
    subprocess.run([weft, "run", run, "--input", f"target_in={folder}/ids.npy", "--out", folder], check=True,
                   stdout=subprocess.DEVNULL)
    got, wanted = np.load(f"{folder}/logits.npy")[0].astype(np.float64), forward(model, ids)
    error = np.linalg.norm(got - wanted) / np.linalg.norm(wanted)
    agree = np.mean(got.argmax(-1) == wanted.argmax(-1))
    print(f"logits of {LENGTH} tokens: relative difference {error:.2g}, {100 * agree:.0f} % of the best tokens agree")
    texts = [compare_text(model, weft, run, prompt) for prompt in PROMPTS]
    sys.exit(int(not (error <= LIMIT and all(texts))))


if __name__ == "__main__":
    main()
