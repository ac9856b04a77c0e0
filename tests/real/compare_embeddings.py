"""Compares `weft embed` with a forward pass of a BERT in NumPy, in f64, on the ids of the package `tokenizers`, with
pooling and normalisation as sentence-transformers has them: embeddings, and each text's nearest neighbours.
Usage: compare_embeddings.py WEFT MODEL RUN TEXTS FOLDER; MODEL is the published folder, FOLDER is for arrays. Exit
status 1 if something differs."""
import json
import math
import pathlib
import subprocess
import sys

import numpy as np
from tokenizers import Tokenizer

# Of an element of a vector of length 1. MiniLM's differ by 2e-7.
LIMIT = 1e-6
NEAREST = 3


def read_tensors(path):
    """The tensors of a safetensors file, F32 as f64."""
    data = np.fromfile(path, dtype=np.uint8)
    n = int(data[:8].view(np.uint64)[0])
    header = json.loads(bytes(data[8:8 + n]))
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if entry["dtype"] == "F32":
            numbers = data[8 + n + begin:8 + n + end].view(np.float32)
            tensors[name] = numbers.astype(np.float64).reshape(entry["shape"])
    return tensors


class Model:
    def __init__(self, folder):
        folder = pathlib.Path(folder)
        self.config = json.loads((folder / "config.json").read_text())
        self.tensors = read_tensors(folder / "model.safetensors")
        pooling = json.loads((folder / "1_Pooling" / "config.json").read_text())
        assert pooling["pooling_mode_mean_tokens"] and "Normalize" in (folder / "modules.json").read_text()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        limit = json.loads((folder / "sentence_bert_config.json").read_text())["max_seq_length"]
        self.tokenizer.enable_truncation(limit)

    def linear(self, name, x):
        return x @ self.tensors[name + ".weight"].T + self.tensors[name + ".bias"]

    def norm(self, name, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + self.config["layer_norm_eps"])
        return x * self.tensors[name + ".weight"] + self.tensors[name + ".bias"]

    def attention(self, name, x):
        heads = self.config["num_attention_heads"]
        query, key, value = (self.linear(f"{name}.self.{part}", x).reshape(len(x), heads, -1).swapaxes(0, 1)
                             for part in ("query", "key", "value"))
        scores = query @ key.swapaxes(1, 2) / math.sqrt(query.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ value
        return self.linear(f"{name}.output.dense", mixed.swapaxes(0, 1).reshape(x.shape))

    def embed(self, text):
        """The unit vector of a text."""
        ids = self.tokenizer.encode(text).ids
        x = self.tensors["embeddings.word_embeddings.weight"][ids]
        x = x + self.tensors["embeddings.position_embeddings.weight"][:len(ids)]
        x = self.norm("embeddings.LayerNorm", x + self.tensors["embeddings.token_type_embeddings.weight"][0])
        erf = np.vectorize(math.erf)
        for i in range(self.config["num_hidden_layers"]):
            name = f"encoder.layer.{i}"
            x = self.norm(f"{name}.attention.output.LayerNorm", x + self.attention(f"{name}.attention", x))
            y = self.linear(f"{name}.intermediate.dense", x)
            y = y * (1 + erf(y / math.sqrt(2))) / 2
            x = self.norm(f"{name}.output.LayerNorm", x + self.linear(f"{name}.output.dense", y))
        x = x.mean(0)
        return x / np.linalg.norm(x)


def main():
    weft, published, run, path, folder = sys.argv[1:]
    texts = pathlib.Path(path).read_text().splitlines()
    model = Model(published)
    wanted = np.array([model.embed(text) for text in texts])
    with open(path) as lines:
        printed = subprocess.run([weft, "embed", run, "-o", f"{folder}/vectors.npy", "--nearest", str(NEAREST)],
                                 stdin=lines, check=True, capture_output=True, text=True).stdout
    with open(path) as lines:
        subprocess.run([weft, "embed", run, "-o", f"{folder}/alone.npy", "--batch", "1", "--threads", "1"], stdin=lines,
                       check=True)
    got = np.load(f"{folder}/vectors.npy")
    error = np.abs(got - wanted).max()
    cosines = wanted @ wanted.T - 2 * np.eye(len(texts))
    nearest = [(i + 1, j + 1) for i in range(len(texts)) for j in np.argsort(-cosines[i], kind="stable")[:NEAREST]]
    found = [tuple(map(int, line.split("\t")[:2])) for line in printed.splitlines()]
    same = np.array_equal(got.view(np.uint32), np.load(f"{folder}/alone.npy").view(np.uint32))
    print(f"embeddings of {len(texts)} texts: largest difference {error:.2g}; nearest texts "
          f"{'equal' if found == nearest else 'differ'}; bits alone and in batches {'equal' if same else 'differ'}")
    sys.exit(int(not (error <= LIMIT and found == nearest and same)))


if __name__ == "__main__":
    main()
