#!/usr/bin/env python3
"""weft compared with PyTorch and ONNX Runtime, on the same work.

Usage: tests/bench/compare [--help] [OPTION...]. It installs the peers from PyPI into ~/.cache/weft-bench, or
$WEFT_BENCH_CACHE, and builds weft.

Parts:
  models  the workloads of `weft bench`. Each peer computes on weft's own parameters and inputs, and its
          output and loss must agree with weft's within 1e-4; weft's gradients with PyTorch's in f64 within
          1e-5 or 3.5 times the error of PyTorch's own in f32. For gradients, ReLUs have weft's signs in all
          three; an input whose sign is another one in f64 must be below 1e-4 of its layer's root mean square.
          Then the programs run in turn, weft, peer, weft, peer, ...; each number is of the fastest run of all
          rounds, and a ratio is of two such numbers. PyTorch has a malloc that keeps its memory, and runs as it is and by
          torch.compile; ONNX Runtime has all its optimisations.
          Peaks of memory are those of whole processes; PyTorch's with malloc as it comes. With
          --precision bf16 or bf16-tiles, weft stores and multiplies bf16 and PyTorch runs under autocast; then both are
          held against each other within 2e-2, and ONNX Runtime is left out.
  files   ONNX files of models with random weights, exported by PyTorch: the same peers on the same files.
  ops     single ops: op_bench and op_bench.py.
  growth  `weft bench --growth`.
  products  chains of matrix products in f32 and bf16, compared with oneDNN's: gemm_bench.
  decode  one sentence of a Llama of 110 million random weights, in f32, 8 and 4 bits, compared with llama.cpp in f32,
          q8_0 and q4_0: decode_bench and decode_ggml.py in turn; and after 4096 tokens, with keys and values in f32,
          bf16 and 8 bits. This part builds llama.cpp, for some ten minutes.
  quantised  ONNX files of three models, quantised to 8 bits by ONNX Runtime, compared with ONNX Runtime. Errors are
          those against the output of f32.
The last three are measured only if --parts names them.
Exit status: 0 all was measured and agrees, 1 not. Whether a target is met does not count.
"""
import argparse
import json
import os
import platform
import sys

from bench_common import Failed, call, print_table, progress

HERE = os.path.dirname(os.path.realpath(__file__))
AGREEMENT = {"f32": 1e-4, "bf16": 2e-2, "bf16-tiles": 2e-2}
GRADIENTS = {"f32": (1e-5, 3.5), "bf16": (2e-2, 2), "bf16-tiles": (2e-2, 2)}  # the error, or this many times the peer's
# Of inputs of ReLUs whose sign is not that in f64, over their layer's.
SIGNS = {"f32": 1e-4, "bf16": 1e-1, "bf16-tiles": 1e-1}
KEEP = str(1 << 33)
PARTS = ("models", "files", "ops", "growth", "products", "decode", "quantised")
NAMED_ONLY = 3  # of them
# (model of peer_models.py, batch): the ways to quantise it, None for f32; times as fast as ONNX Runtime
QUANTISED = {("resnet50", 1): (None, "static"), ("mobilenet_v2", 1): (None, "static"),
             ("bert-base", 1): (None, "dynamic", "static")}
QUANTISED_TARGET = 1.1
DECODED = ("vocab=32000", "d_model=768", "heads=12", "layers=12", "d_ff=2048")
TOKENS = 120
PROMPT, AFTER_PROMPT = 4096, 20
# weights: llama.cpp's, tokens/s relative to f32's
DECODE_TARGETS = {"f32": ("f32", None), "8": ("q8_0", 2.8), "4": ("q4_0", 4.5)}

# workload: share of the rate of products to reach, {peer: times as fast as it}, share of its memory
TARGETS = {
    "encoder-forward": (0.90, {"ONNX Runtime": 1.25, "PyTorch": 1.2, "torch.compile": 1.17,
                               "nn.TransformerEncoder": 1.0}, 0.5),
    "encoder-train": (0.90, {"PyTorch": 1.35, "torch.compile": 1.6}, 0.5),
    "transformer-step": (0.90, {"PyTorch": 1.38, "torch.compile": 1.58}, 0.5),
    "small-forward": (None, {"PyTorch": 4.0, "torch.compile": 4.0}, 0.5),
    "small-step": (None, {"PyTorch": 3.5, "torch.compile": 3.5}, 0.5),
    "lstm-step": (0.95, {"PyTorch": 1.05}, 0.5),
    "attention-forward": (None, {"PyTorch": 1.2, "torch.compile": 1.2}, 0.5),
    "attention-step": (None, {"PyTorch": 1.4, "torch.compile": 1.4}, 0.5),
    "resnet-step": (None, {"PyTorch": 1.4, "torch.compile": 1.3}, 1.0),
}
# (model of peer_models.py, batch): times as fast as each peer
FILES = {
    ("resnet50", 1): 1.3, ("resnet50", 16): 1.3, ("mobilenet_v2", 1): 1.3, ("mobilenet_v2", 16): 1.15,
    ("vit_b_16", 1): 1.1, ("bert-base", 1): 1.1,
}
FILE_PEERS = ("ONNX Runtime", "PyTorch", "torch.compile")
FILE_MEMORY = 1.0  # at most, of a peer's


def rows_of(workload, own, others, share, peers, memory):
    """A row for each peer, of all rounds."""
    ms = min(r["min_ms"] for r in own)
    gemm = max(r["gemm_gflops"] for r in own)
    gflops = own[0]["flops"] * 1e-6 / ms
    return [{
        "workload": workload, "ms": ms, "gflops": gflops, "gemm_gflops": gemm, "share": gflops / gemm,
        "share_target": share, "peer": name, "peer_ms": 1e3 * min(o["seconds"]),
        "ratio": 1e3 * min(o["seconds"]) / ms, "ratio_target": peers[name],
        "round_ratios": [1e3 * s / r["min_ms"] for s, r in zip(o["seconds"], own)],
        "peak_bytes": own[0]["peak_bytes"], "peer_peak_bytes": o["peak"],
        "memory_ratio": own[0]["peak_bytes"] / o["peak"], "memory_target": memory,
        "agreement": o["agreement"], "weft": own[0],
    } for name, o in others.items()]


class Bench:
    def __init__(self, options):
        self.o = options
        self.weft = os.path.join(options.build, "tools", "weft")
        self.env = dict(os.environ, OMP_NUM_THREADS=str(options.threads))
        self.machine = json.loads(call([self.weft, "info", "--json"], self.env))
        self.peer_env = dict(self.env, MALLOC_TRIM_THRESHOLD_=KEEP, MALLOC_MMAP_THRESHOLD_=KEEP)
        self.versions = {}
        self.failures = []

    # ---- Models ----

    def targets(self):
        if self.o.precision == "f32":
            return TARGETS
        return {w: (None, {name: 1.3 if name == "PyTorch" else None for name in peers if name != "ONNX Runtime"}, None)
                for w, (_, peers, _) in TARGETS.items()}

    def script(self, name, *arguments, env=None):
        """What a program next to this one prints as JSON, if it prints anything."""
        text = call([sys.executable, os.path.join(HERE, name), *arguments, "--threads", str(self.o.threads),
                     "--runs", str(self.o.runs)], env or self.peer_env)
        return json.loads(text) if text else None

    def peer(self, name, workload, dump, *more, env=None):
        if name != "ONNX Runtime":
            way = {"nn.TransformerEncoder": ["--fused"], "torch.compile": ["--compile"]}.get(name, [])
            way = way + ["--bf16"] if self.o.precision != "f32" else way
            return self.script("peer_torch.py", workload, dump, *way, *more, env=env)
        model = os.path.join(self.o.cache, f"{workload}.onnx")
        if not os.path.exists(model) or os.path.getmtime(model) < os.path.getmtime(dump):
            self.script("peer_torch.py", workload, dump, "--export", model)
        return self.script("peer_onnx.py", model, env=self.env)

    def own(self, *what):
        text = call([self.weft, "bench", *what, "--precision", self.o.precision, "--runs", str(self.o.runs), "--rounds", "1",
                     "--threads", str(self.o.threads), "--json"], self.env)
        return json.loads(text)["workloads"][0]

    def agrees(self, name, workload, first):
        a = first["agreement"]
        precision = self.o.precision
        limit, worse = GRADIENTS[precision]
        if not a["output"] <= AGREEMENT[precision]:
            self.failures.append(f"{workload}: {name}'s output or loss differs from weft's by {a['output']:.1e}")
        if not a["grad"] <= max(limit, worse * a["grad_peer"]):
            self.failures.append(f"{workload}: gradients are {a['grad']:.1e} from those in f64, {name}'s "
                                 f"{a['grad_peer']:.1e}")
        if not a["sign"] <= SIGNS[precision]:
            self.failures.append(f"{workload}: a ReLU's output has another sign than in f64, where its input is "
                                 f"{a['sign']:.1e} of its layer's root mean square")
        self.note_versions(first)
        return a

    def note_versions(self, measured):
        self.versions.update((k, measured[k]) for k in ("torch", "onnxruntime") if k in measured)

    def model_rows(self, workload):
        """A row for each peer. All run in turn, weft once a round."""
        dump = os.path.join(self.o.cache, f"{workload}.safetensors")
        progress(f"{workload}: weft's results")
        call([self.weft, "bench", workload, "--precision", self.o.precision, "--dump", dump], self.env)
        share, peers, memory = self.targets()[workload]
        own, others = [], {}
        for name in peers:
            progress(f"{workload}: {name}'s results")
            try:
                first = self.peer(name, workload, dump)
            except Failed as error:
                self.failures.append(f"{workload}: {name}: {error}")
                continue
            others[name] = {"agreement": self.agrees(name, workload, first), "seconds": [],
                            "peak": first["peak_bytes"]}
            if name != "ONNX Runtime":
                others[name]["peak"] = self.peer(name, workload, dump, "--no-check", env=self.env)["peak_bytes"]
        for i in range(self.o.rounds):
            progress(f"{workload}: round {i + 1} of {self.o.rounds}")
            own.append(self.own(workload))
            for name, other in others.items():
                other["seconds"].append(min(self.peer(name, workload, dump, *(
                    [] if name == "ONNX Runtime" else ["--no-check"]))["seconds"]))
        os.remove(dump)
        return rows_of(workload, own, others, share, peers, memory)

    # ---- Files ----

    def file_peer(self, name, model, batch, path, env=None):
        if name == "ONNX Runtime":
            return self.script("peer_onnx.py", path, env=self.env)
        way = ["--compile"] if name == "torch.compile" else []
        return self.script("peer_models.py", model, str(batch), *way, env=env)

    def file_difference(self, case):
        """Of weft's first output from PyTorch's, which also is what ONNX Runtime's is held against."""
        import numpy
        from peer_common import difference_of_arrays
        folder = f"{case}.weft"
        call([self.weft, "run", f"{case}.onnx", "--input", f"{case}.npz", "--out", folder], self.env)
        return difference_of_arrays(numpy.load(os.path.join(folder, "output.npy")), numpy.load(f"{case}.npy"))

    def exported(self, model, batch):
        """The path, without .onnx, of a model's file, and of its inputs and output."""
        case = os.path.join(self.o.cache, f"{model}-{batch}")
        if not all(os.path.exists(case + end) for end in (".onnx", ".npz", ".npy")):
            progress(f"{model} x {batch}: export by PyTorch")
            self.script("peer_models.py", model, str(batch), "--export", f"{case}.onnx")
        return case

    def file_rows(self, model, batch):
        workload = f"{model} x {batch}"
        case = self.exported(model, batch)
        path, peers = f"{case}.onnx", dict.fromkeys(FILE_PEERS, FILES[model, batch])
        agreement = {"output": self.file_difference(case), "grad": 0, "grad_peer": 0, "sign": 0}
        self.agrees("PyTorch", workload, {"agreement": agreement})
        own, others = [], {name: {"agreement": agreement, "seconds": []} for name in peers}
        for i in range(self.o.rounds):
            progress(f"{workload}: round {i + 1} of {self.o.rounds}")
            own.append(self.own(path))
            for name in list(others):
                try:
                    measured = self.file_peer(name, model, batch, path)
                except Failed as error:
                    self.failures.append(f"{workload}: {name}: {error}")
                    del others[name]
                    continue
                others[name]["seconds"].append(min(measured["seconds"]))
                self.note_versions(measured)
        for name, other in others.items():
            other["peak"] = self.file_peer(name, model, batch, path, env=self.env)["peak_bytes"]
        return rows_of(workload, own, others, None, peers, FILE_MEMORY)

    def quantised_row(self, model, batch, way):
        case = self.exported(model, batch)
        path, name = (f"{case}-{way}.onnx", f"8 bits, {way}") if way else (f"{case}.onnx", "f32")
        if not os.path.exists(path):
            progress(f"{model}: quantise, {way}")
            call([sys.executable, os.path.join(HERE, "quantize_onnx.py"), f"{case}.onnx", way], self.env)
        own, peer = [], []
        for i in range(self.o.rounds):
            progress(f"{model}, {name}: round {i + 1} of {self.o.rounds}")
            own.append(self.own(path)["min_ms"])
            peer.append(self.script("peer_onnx.py", path, env=self.env))
            self.note_versions(peer[-1])
        ms, peer_ms = min(own), 1e3 * min(min(p["seconds"]) for p in peer)
        return {"file": f"{model} x {batch}, {name}", "ms": ms, "error": self.file_difference(path[:-len(".onnx")]),
                "peer_ms": peer_ms, "peer_error": peer[0]["agreement"]["output"], "ratio": peer_ms / ms,
                "ratio_target": way and QUANTISED_TARGET}

    def quantised_rows(self):
        return [self.quantised_row(model, batch, way) for (model, batch), ways in QUANTISED.items() for way in ways]

    # ---- Ops and growth ----

    def op_rows(self):
        """Cases that PyTorch has too: times of both and weft's share of the triad's rate."""
        progress("ops")
        text = call([sys.executable, os.path.join(HERE, "op_bench.py"),
                     os.path.join(self.o.build, "tests", "op_bench"), "--rounds", str(self.o.rounds), *self.o.ops],
                    self.env)
        rows = []
        for words in map(str.split, text.splitlines()):
            # NAME PyTorch MS ms weft MS ms RATIO times as fast SHARE of triad
            rows.append({"op": words[0], "peer_ms": float(words[2]), "ms": float(words[5]),
                         "ratio": float(words[7]), "triad_share": float(words[11])})
        return rows

    def growth(self):
        progress("growth")
        return json.loads(call([self.weft, "bench", "--growth", "--json"], self.env))["growth"]


    # ---- Products ----

    def products(self):
        progress("products")
        text = call([os.path.join(self.o.build, "tests", "gemm_bench"), str(self.o.threads)], self.env)
        rows = []
        for words in map(str.split, text.splitlines()):
            # DTYPE: weft RATE GFLOP/s, oneDNN VERSION RATE GFLOP/s, weft at SHARE of it
            rows.append({"dtype": words[0][:-1], "gflops": float(words[2]), "peer": " ".join(words[4:6]),
                         "peer_gflops": float(words[6]), "ratio": float(words[10])})
        return rows

    # ---- Decoding ----

    def decode_bench(self, tokens, before, cache):
        return json.loads(call([os.path.join(self.o.build, "tests", "decode_bench"), str(self.o.threads), str(tokens),
                                str(before), cache, *DECODED, "kv_heads=12", "tied=1"], self.env))

    def cache_rows(self):
        rows = []
        for cache in ("f32", "bf16", "u8"):
            progress(f"decode: keys and values in {cache}")
            found = self.decode_bench(AFTER_PROMPT, PROMPT, cache)
            rows += [{"weights": kind, "cache": cache, "ms": 1e3 * found[kind]["min_seconds"],
                      "cache_bytes": found[kind]["cache_bytes"]} for kind in ("8", "4")]
        return sorted(rows, key=lambda r: r["weights"], reverse=True)

    def decode_rows(self):
        own, peer = [], []
        for i in range(self.o.rounds):
            progress(f"decode: round {i + 1} of {self.o.rounds}")
            own.append(self.decode_bench(TOKENS, 0, "f32"))
            peer.append(json.loads(call([sys.executable, os.path.join(HERE, "decode_ggml.py"), "--threads",
                                         str(self.o.threads), "--tokens", str(TOKENS), *DECODED], self.env)))
        rows = []
        for kind, (theirs, wanted) in DECODE_TARGETS.items():
            ms, f32, peer_ms = (1e3 * min(r[k]["mean_seconds"] for r in of)
                                for of, k in ((own, kind), (own, "f32"), (peer, theirs)))
            rows.append({"weights": kind, "ms": ms, "of_f32": f32 / ms, "of_f32_target": wanted,
                         "bytes": own[0][kind]["bytes"], "peer": f"llama.cpp {theirs}", "peer_ms": peer_ms,
                         "peer_bytes": peer[0][theirs]["bytes"], "ratio": peer_ms / ms,
                         "ratio_target": wanted and 1.0})
        return rows


# ---- Printing ----


def target(value, wanted, at_most=False):
    """A number and its target: met or not."""
    text = f"{value:.2f}"
    if wanted is None:
        return text
    met = value <= wanted if at_most else value >= wanted
    return f"{text} ({'<=' if at_most else '>='} {wanted:g}: {'met' if met else 'missed'})"


def model_table(rows):
    head = ["workload", "weft ms", "GFLOP/s", "of GEMM", "peer", "peer ms", "times as fast", "weft MB", "peer MB",
            "memory", "difference", "gradients' errors"]
    return head, [[r["workload"], f"{r['ms']:.2f}", f"{r['gflops']:.0f}", target(r["share"], r["share_target"]),
                   r["peer"], f"{r['peer_ms']:.2f}", target(r["ratio"], r["ratio_target"]),
                   f"{1e-6 * r['peak_bytes']:.0f}", f"{1e-6 * r['peer_peak_bytes']:.0f}",
                   target(r["memory_ratio"], r["memory_target"], True), f"{r['agreement']['output']:.0e}",
                   f"{r['agreement']['grad']:.0e}, {r['agreement']['grad_peer']:.0e}" if r["agreement"]["grad"] else "-"]
                  for r in rows]


def plan_table(rows):
    head = ["workload", "tokens/s", "arena MB", "states MB", "workspaces MB", "nodes", "fused", "barriers"]
    table = {}
    for r in rows:
        w = r["weft"]
        table[r["workload"]] = [
            r["workload"],
            f"{w['tokens_per_second'] * w['min_ms'] / r['ms']:.0f}" if "tokens_per_second" in w else "-",
            *(f"{1e-6 * w[k]:.1f}" for k in ("arena_bytes", "state_bytes", "workspace_bytes")),
            *(f"{w[k]:.0f}" for k in ("nodes", "fused", "barriers"))]
    return head, list(table.values())


def op_table(rows):
    head = ["op", "weft ms", "of triad", "PyTorch ms", "times as fast"]
    return head, [[r["op"], f"{r['ms']:.3f}", f"{r['triad_share']:.2f}", f"{r['peer_ms']:.3f}",
                   target(r["ratio"], 1.0)] for r in rows]


def product_table(rows):
    head = ["dtype", "weft GFLOP/s", "peer", "peer GFLOP/s", "weft of it"]
    return head, [[r["dtype"], f"{r['gflops']:.0f}", r["peer"], f"{r['peer_gflops']:.0f}",
                   target(r["ratio"], 0.85 if r["dtype"] == "bf16" else None)] for r in rows]


def decode_table(rows):
    head = ["weights", "ms a token", "tokens/s", "of f32's", "MB", "peer", "peer ms", "peer MB", "times as fast"]
    return head, [[r["weights"] if r["weights"] == "f32" else r["weights"] + " bits", f"{r['ms']:.2f}",
                   f"{1e3 / r['ms']:.0f}", target(r["of_f32"], r["of_f32_target"]), f"{1e-6 * r['bytes']:.0f}",
                   r["peer"], f"{r['peer_ms']:.2f}", f"{1e-6 * r['peer_bytes']:.0f}",
                   target(r["ratio"], r["ratio_target"])] for r in rows]


def quantised_table(rows):
    head = ["file", "weft ms", "error", "ONNX Runtime ms", "its error", "times as fast"]
    return head, [[r["file"], f"{r['ms']:.1f}", f"{r['error']:.1e}", f"{r['peer_ms']:.1f}", f"{r['peer_error']:.1e}",
                   target(r["ratio"], r["ratio_target"])] for r in rows]


def cache_table(rows):
    head = ["weights", "keys and values", "ms a token", "tokens/s", "MB of them"]
    return head, [[r["weights"] + " bits", r["cache"], f"{r['ms']:.1f}", f"{1e3 / r['ms']:.0f}",
                   f"{1e-6 * r['cache_bytes']:.0f}"] for r in rows]


def growth_table(all_series):
    head = ["workload", "axis", "at", "min ms", "arena MB", "time grows as", "arena grows as"]
    rows = []
    for s in all_series:
        points = s["points"]
        # Where planning alone is timed, the axis of the points is how many nodes the graph has.
        axis = next(key for key in points[0] if key not in ("min_ms", "arena_bytes"))
        name = s["workload"] if "workload" in s else "planning " + s["planning"]
        rows.append([name, " ".join([axis, *(f"({o})" for o in s["options"])]),
                     ", ".join(f"{p[axis]:g}" for p in points),
                     ", ".join(f"{p['min_ms']:.3g}" for p in points),
                     ", ".join(f"{1e-6 * p['arena_bytes']:.3g}" for p in points),
                     f"{axis}^{s['time_exponent']:.2f}", f"{axis}^{s['arena_exponent']:.2f}"])
    return head, rows


def print_machine(bench):
    m, v = bench.machine, bench.versions
    libc = " ".join(platform.libc_ver())
    print(f"Machine: {m['processor']}, {bench.o.threads} threads of {m['processors']:g} processors, caches "
          f"{', '.join(m['caches'])}; {platform.system()} {platform.release()}, {libc}.\n"
          f"weft {m['version']}, kernels {m['isa']}, products by {m['gemm_f32']}"
          + "".join(f"; {label} {v[key]}" for key, label in (("torch", "PyTorch"), ("onnxruntime", "ONNX Runtime"))
                    if key in v) + f"; Python {platform.python_version()}.")


def main():
    parser = argparse.ArgumentParser(prog="compare", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="of the models (all)")
    parser.add_argument("--parts", default=",".join(PARTS[:-NAMED_ONLY]),
                        help=",".join(PARTS) + " (all but the last three)")
    parser.add_argument("--files", nargs="+", default=[], metavar="TEXT", help="files whose name contains one (all)")
    parser.add_argument("--ops", nargs="+", default=[], metavar="TEXT", help="ops whose name contains one (all)")
    parser.add_argument("--precision", choices=("f32", "bf16", "bf16-tiles"), default="f32", help="of the models (f32)")
    parser.add_argument("--rounds", type=int, default=5, help="in which every program runs once (5)")
    parser.add_argument("--runs", type=int, default=3, help="of a program in a round, at least (3)")
    parser.add_argument("--threads", type=int, default=2, help="of every program (2)")
    parser.add_argument("--json", metavar="FILE", help="also write everything as JSON")
    parser.add_argument("--markdown", action="store_true", help="print the tables of docs/benchmarks.md")
    parser.add_argument("--build", default="build", help=argparse.SUPPRESS)
    parser.add_argument("--cache", default=".", help=argparse.SUPPRESS)
    options = parser.parse_args()
    parts = options.parts.split(",")
    if options.precision != "f32" and parts != ["models"]:
        parser.error("--precision is of the models: add --parts models")
    for name in options.workloads:
        if name not in TARGETS:
            parser.error(f"no workload \"{name}\": there are {', '.join(TARGETS)}")
    for part in parts:
        if part not in PARTS:
            parser.error(f"no part \"{part}\": there are {', '.join(PARTS)}")
    try:
        bench = Bench(options)
        models = [row for w in options.workloads or TARGETS for row in bench.model_rows(w)] if "models" in parts else []
        files = [row for key in FILES if "files" in parts and
                 (not options.files or any(t in f"{key[0]} x {key[1]}" for t in options.files))
                 for row in bench.file_rows(*key)]
        ops = bench.op_rows() if "ops" in parts else []
        growth = bench.growth() if "growth" in parts else []
        products = bench.products() if "products" in parts else []
        decode = bench.decode_rows() if "decode" in parts else []
        caches = bench.cache_rows() if "decode" in parts else []
        quantised = bench.quantised_rows() if "quantised" in parts else []
    except Failed as error:
        progress("")
        print(f"compare: {error}", file=sys.stderr)
        return 1
    if sys.stderr.isatty():
        progress("")
    if options.json:
        with open(options.json, "w") as f:
            json.dump({"machine": bench.machine, "versions": bench.versions, "models": models, "files": files, "ops": ops,
                       "growth": growth, "products": products, "decode": decode, "caches": caches, "quantised": quantised,
                       "failures": bench.failures}, f, indent=1)
    print_machine(bench)
    print_table("Models", model_table(models), options.markdown)
    print_table("Their plans", plan_table(models), options.markdown)
    print_table("ONNX files", model_table(files), options.markdown)
    print_table("The files' plans", plan_table(files), options.markdown)
    print_table("Ops", op_table(ops), options.markdown)
    print_table("Growth", growth_table(growth), options.markdown)
    print_table("Products", product_table(products), options.markdown)
    print_table("Decoding", decode_table(decode), options.markdown)
    print_table(f"Decoding after {PROMPT} tokens", cache_table(caches), options.markdown)
    print_table("Quantised files", quantised_table(quantised), options.markdown)
    for failure in bench.failures:
        print(f"compare: {failure}", file=sys.stderr)
    return 1 if bench.failures else 0


sys.exit(main())
