"""Loads GGUF files in llama.cpp (the package llama_cpp): ids of a text, and logits of these. SAME.gguf has the weights of
ORIGINAL.gguf, and must have its ids and logits, bit for bit; OTHER.gguf has rounded weights, and must have its ids and
nearly its perplexity. Usage: compare_llama_cpp.py ORIGINAL.gguf SAME.gguf OTHER.gguf. Exit status 1 if something
differs."""
import math
import sys

import llama_cpp
import numpy as np

TEXT = """The Weaver's loom stood by the window. Every morning at 7:30 she tied 120 threads, one after the other, and
hummed; by noon, the cloth was as long as her arm. "It's done," she said. "¿Y mañana?" asked the boy — 明日は? 🧵"""
LIMIT = 0.02  # of the perplexity, relative: 8 bits for 4-bit weights


def look(path):
    """The ids of the text, and their logits in f32."""
    model = llama_cpp.Llama(path, n_ctx=256, n_batch=256, n_threads=2, logits_all=True, verbose=False)
    ids = model.tokenize(TEXT.encode(), add_bos=False)
    model.eval(ids)
    return ids, np.array(model.scores[:len(ids)])


def perplexity(ids, logits):
    x = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    rows = np.arange(len(ids) - 1)
    return math.exp(np.mean(np.log(np.exp(x).sum(axis=1))[:-1] - x[rows, ids[1:]]))


def main():
    ids, logits = look(sys.argv[1])
    same_ids, same = look(sys.argv[2])
    if same_ids != ids or not np.array_equal(same, logits):
        sys.exit(f"{sys.argv[2]} has other ids or logits in llama.cpp {llama_cpp.__version__}")
    other_ids, other = look(sys.argv[3])
    a, b = perplexity(ids, logits), perplexity(ids, other)
    print(f"llama.cpp by llama_cpp {llama_cpp.__version__}: {len(ids)} ids and their logits are the same, perplexity {a:.3f}; "
          f"with weights in 8 bits {b:.3f}")
    if other_ids != ids or not abs(b / a - 1) <= LIMIT:
        sys.exit(f"{sys.argv[3]} has other ids, or another perplexity")


if __name__ == "__main__":
    main()
