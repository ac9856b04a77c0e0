#!/usr/bin/env python3
"""A published language model in GGUF, by weft and by llama.cpp: the same text, the same weights, in turn.

    python3 tests/bench/run_llama_cpp.py --build BUILD --model FILE.gguf [--types q4_1,q8_0,f32] [--threads 1,2]
                                         [--prompt 512] [--tokens 128] [--rounds 3]

The types are those of the matrices: weights of FILE.gguf as they are, if it has this type, or else converted by the
package gguf. Prints a table: perplexity of README.md's first PROMPT + TOKENS tokens, milliseconds of the prompt and of a
token (the least of the rounds), time to the first token, memory. Needs the packages gguf, NumPy and llama-cpp-python,
which is built for this processor.
"""
import argparse
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time

import gguf
import llama_cpp
import numpy as np

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
KINDS = {"f32": gguf.GGMLQuantizationType.F32, "q8_0": gguf.GGMLQuantizationType.Q8_0,
         "q4_0": gguf.GGMLQuantizationType.Q4_0, "q4_1": gguf.GGMLQuantizationType.Q4_1}


def convert(source, kind, path):
    """A copy of the file whose matrices have another type; embeddings and norms as they are, but for f32."""
    reader = gguf.GGUFReader(source)
    field = reader.fields["general.architecture"]
    w = gguf.GGUFWriter(path, bytes(field.parts[field.data[0]]).decode())
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        item = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        w.add_key_value(name, field.contents(), field.types[0], item)
    for t in reader.tensors:
        data = gguf.quants.dequantize(t.data, t.tensor_type)
        if len(t.shape) < 2:
            w.add_tensor(t.name, data.astype(np.float32))
        elif kind == gguf.GGMLQuantizationType.F32:
            w.add_tensor(t.name, data.astype(np.float32))
        else:
            w.add_tensor(t.name, gguf.quants.quantize(data.astype(np.float32), kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def peak_bytes():
    """The greatest resident memory of this process. (getrusage counts its parent's as well.)"""
    with open("/proc/self/status") as f:
        return 1024 * int(re.search(r"VmHWM:\s*(\d+)", f.read())[1])


def quiet():
    """No messages of llama.cpp."""
    global silent
    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(silent, None)


def peer(path, ids, threads, prompt, tokens):
    """The measurement of run_bench, in this process."""
    quiet()
    begin = time.perf_counter()
    model = llama_cpp.Llama(path, n_ctx=len(ids), n_batch=512, n_ubatch=512, n_threads=threads,
                            n_threads_batch=threads, verbose=False)
    found = {}
    for i in range(3):
        model.reset()
        start = time.perf_counter()
        model.eval(ids[:prompt])
        seconds = time.perf_counter() - start
        if i == 0:
            found["first_seconds"] = time.perf_counter() - begin
            continue
        each = []
        for token in ids[prompt:prompt + tokens]:
            start = time.perf_counter()
            model.eval([token])
            each.append(time.perf_counter() - start)
        found["prompt_seconds"] = min(seconds, found.get("prompt_seconds", math.inf))
        found["token_seconds"] = min(sum(each) / len(each), found.get("token_seconds", math.inf))
        found["token_seconds_min"] = min(min(each), found.get("token_seconds_min", math.inf))
    found["peak_bytes"] = peak_bytes()
    del model
    model = llama_cpp.Llama(path, n_ctx=len(ids), n_batch=len(ids), n_threads=threads, n_threads_batch=threads,
                            logits_all=True, verbose=False)
    model.eval(ids)
    logits = np.array(model.scores[:len(ids)], np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    rows = np.arange(len(ids) - 1)
    found["nll"] = float(np.mean(np.log(np.exp(logits).sum(axis=1))[:-1] - logits[rows, ids[1:]]))
    return found


def read_ids(path, n):
    quiet()
    model = llama_cpp.Llama(path, vocab_only=True, verbose=False)
    with open(os.path.join(ROOT, "README.md"), "rb") as f:
        ids = model.tokenize(f.read(), add_bos=False)
    if len(ids) < n:
        sys.exit(f"README.md has only {len(ids)} tokens, fewer than {n}")
    return ids[:n]


def call(command, text):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{command[0]}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.path.join(ROOT, "build"))
    p.add_argument("--model", required=True)
    p.add_argument("--types", default="q4_1,q8_0,f32")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--tokens", type=int, default=128)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--peer", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.peer:
        print(json.dumps(peer(a.peer, json.load(sys.stdin), int(a.threads), a.prompt, a.tokens)))
        return
    ids = read_ids(a.model, a.prompt + a.tokens)
    sizes = [str(a.prompt), str(a.tokens)]
    print("| weights | threads | program | perplexity | prompt ms | ms a token | first token ms | MB |\n|" + "---|" * 8)
    with tempfile.TemporaryDirectory() as work:
        for name in a.types.split(","):
            path, run = os.path.join(work, name + ".gguf"), os.path.join(work, name)
            convert(a.model, KINDS[name], path)
            done = subprocess.run([os.path.join(a.build, "tools", "weft"), "convert", path, "-o", run],
                                  capture_output=True, text=True)
            if done.returncode:
                sys.exit(done.stderr.strip())
            for threads in a.threads.split(","):
                rows = {"weft": [], "llama.cpp": []}
                for _ in range(a.rounds):
                    rows["weft"].append(call([os.path.join(a.build, "tests", "run_bench"), run, threads, *sizes],
                                             " ".join(map(str, ids))))
                    rows["llama.cpp"].append(call([sys.executable, __file__, "--model", path, "--peer", path, "--threads",
                                                   threads, "--prompt", sizes[0], "--tokens", sizes[1]], json.dumps(ids)))
                for program, found in rows.items():
                    least = {k: min(r[k] for r in found) for k in found[0]}
                    print(f"| {name} | {threads} | {program} | {math.exp(least['nll']):.3f} | "
                          f"{1e3 * least['prompt_seconds']:.0f} | {1e3 * least['token_seconds']:.2f} | "
                          f"{1e3 * least['first_seconds']:.0f} | {1e-6 * least['peak_bytes']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
