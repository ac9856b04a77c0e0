#!/usr/bin/env python3
"""Decoding with llama.cpp: a Llama of random weights in f32, q8_0 and q4_0, one sentence, one token at a time.

    python3 tests/bench/decode_ggml.py [--threads 2] [--tokens 120] [--types f32,q8_0,q4_0] [OPTION=VALUE...]

Options of the model, named as weft's llama has them: vocab, d_model, heads, layers, d_ff. The logits read the
embedding matrix. Prints one line of JSON: for each type the seconds of a token (mean and least) and the bytes of
the file. Needs the packages gguf and llama-cpp-python, which is built for this processor.
"""
import argparse
import json
import os
import sys
import tempfile
import time

import gguf
import llama_cpp
import numpy as np

TYPES = {"f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
         "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
         "q4_0": (gguf.GGMLQuantizationType.Q4_0, gguf.LlamaFileType.MOSTLY_Q4_0)}


def write_model(path, o, name):
    kind, file_type = TYPES[name]
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(1024)
    w.add_embedding_length(o["d_model"])
    w.add_block_count(o["layers"])
    w.add_feed_forward_length(o["d_ff"])
    w.add_head_count(o["heads"])
    w.add_head_count_kv(o["heads"])
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_dimension_count(o["d_model"] // o["heads"])
    w.add_vocab_size(o["vocab"])
    w.add_tokenizer_model("no_vocab")
    w.add_file_type(file_type)
    random = np.random.default_rng(1)

    def matrix(tensor, rows, columns):
        data = random.standard_normal((rows, columns), dtype=np.float32) * columns**-0.5
        if name == "f32":
            w.add_tensor(tensor, data)
        else:
            w.add_tensor(tensor, gguf.quants.quantize(data, kind), raw_dtype=kind)

    d, f = o["d_model"], o["d_ff"]
    matrix("token_embd.weight", o["vocab"], d)
    w.add_tensor("output_norm.weight", np.ones(d, np.float32))
    for i in range(o["layers"]):
        for norm in ("attn_norm", "ffn_norm"):
            w.add_tensor(f"blk.{i}.{norm}.weight", np.ones(d, np.float32))
        for tensor, rows, columns in (("attn_q", d, d), ("attn_k", d, d), ("attn_v", d, d), ("attn_output", d, d),
                                      ("ffn_gate", f, d), ("ffn_up", f, d), ("ffn_down", d, f)):
            matrix(f"blk.{i}.{tensor}.weight", rows, columns)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def decode(path, threads, tokens):
    """Seconds of each token, by llama_decode with a batch of one."""
    model = llama_cpp.Llama(path, n_ctx=256, n_batch=64, n_threads=threads, n_threads_batch=threads, verbose=False,
                            use_mmap=False)
    seconds = []
    for _ in range(tokens):
        begin = time.perf_counter()
        model.eval([5])
        seconds.append(time.perf_counter() - begin)
    return seconds


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--tokens", type=int, default=120)
    p.add_argument("--types", default="f32,q8_0,q4_0")
    p.add_argument("options", nargs="*")
    a = p.parse_args()
    o = {"vocab": 32000, "d_model": 768, "heads": 12, "layers": 12, "d_ff": 2048}
    for text in a.options:
        name, _, value = text.partition("=")
        if name not in o or not value.isdigit():
            sys.exit(f"{text}: expected NAME=NUMBER with a NAME of {' '.join(o)}")
        o[name] = int(value)
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in a.types.split(","):
            path = os.path.join(folder, name + ".gguf")
            write_model(path, o, name)
            seconds = decode(path, a.threads, a.tokens)[5:]
            result[name] = {"mean_seconds": sum(seconds) / len(seconds), "min_seconds": min(seconds),
                            "bytes": os.path.getsize(path)}
            os.unlink(path)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
