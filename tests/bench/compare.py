#!/usr/bin/env python3
"""weft beside PyTorch and ONNX Runtime, on the same work.

Usage: tests/bench/compare [--help] [OPTION...]. It installs what is missing (python3-torch; onnxruntime-node
by npm into ~/.cache/weft-bench, or $WEFT_BENCH_CACHE) and builds weft.

Parts:
  models  the workloads of `weft bench`. Each peer computes on weft's own parameters and inputs, and its
          output and loss must agree with weft's within 1e-4; weft's gradients with PyTorch's in f64 within
          1e-4 or twice the error of PyTorch's own in f32 (with either of two kernels). Then the programs run in turn,
          weft, peer, weft, peer, ...; each number is of the fastest run of all rounds, and a ratio is of
          two such numbers. Peers have their best settings: PyTorch OpenBLAS's AVX-512 kernels where the
          processor has AVX-512, its own AVX2 and AVX-512 kernels in alternate rounds, and a malloc that keeps
          its memory; ONNX Runtime all its optimisations.
          Peaks of memory are those of whole processes; PyTorch's with malloc as it comes.
  ops     single ops: op_bench and op_bench.py.
  growth  `weft bench --growth`.
Exit status: 0 all was measured and agrees, 1 not. Whether a target is met does not count.
"""
import argparse
import json
import os
import platform
import sys

from bench_common import Failed, call, print_table, progress

HERE = os.path.dirname(os.path.realpath(__file__))
AGREEMENT = 1e-4
KEEP = str(1 << 33)

# workload: share of the rate of products to reach, {peer: times as fast as it}, share of its memory
TARGETS = {
    "encoder-forward": (0.90, {"ONNX Runtime": 1.4, "PyTorch": 1.9, "nn.TransformerEncoder": None}, None),
    "encoder-train": (0.85, {"PyTorch": 2.3}, None),
    "transformer-step": (0.80, {"PyTorch": 1.8}, 0.5),
    "small-forward": (None, {"PyTorch": 3.0}, None),
    "small-step": (None, {"PyTorch": 5.0}, None),
    "lstm-step": (None, {"PyTorch": 1.5}, None),
    "attention-forward": (None, {"PyTorch": None}, None),
    "attention-step": (None, {"PyTorch": None}, None),
}


class Bench:
    def __init__(self, options):
        self.o = options
        self.weft = os.path.join(options.build, "tools", "weft")
        common = dict(os.environ, OMP_NUM_THREADS=str(options.threads))
        self.env = {k: v for k, v in common.items() if k != "OPENBLAS_CORETYPE"}
        self.machine = json.loads(call([self.weft, "info", "--json"], self.env))
        self.plain_env = dict(self.env)
        if self.machine["isa"] == "v4":
            self.plain_env["OPENBLAS_CORETYPE"] = "SkylakeX"
        self.peer_env = dict(self.plain_env, MALLOC_TRIM_THRESHOLD_=KEEP, MALLOC_MMAP_THRESHOLD_=KEEP)
        self.versions = {}
        self.failures = []

    # ---- Models ----

    def torch(self, workload, dump, env, *more):
        text = call([sys.executable, os.path.join(HERE, "peer_torch.py"), workload, dump, "--threads",
                     str(self.o.threads), "--runs", str(self.o.runs), *more], env)
        return json.loads(text) if text else None

    def peer(self, name, workload, dump, *more, turn=0):
        """PyTorch's own kernels are for AVX2 by default: either may be faster."""
        if name == "ONNX Runtime":
            model = os.path.join(self.o.cache, f"{workload}.onnx")
            if not os.path.exists(model) or os.path.getmtime(model) < os.path.getmtime(dump):
                self.torch(workload, dump, self.plain_env, "--export", model)
            return json.loads(call(["node", os.path.join(HERE, "peer_onnx.js"), model, dump,
                                    str(self.o.threads), str(self.o.runs)], self.env))
        fused = ["--fused"] if name == "nn.TransformerEncoder" else []
        env = dict(self.peer_env)
        if turn % 2 == 1 and self.machine["isa"] == "v4":
            env["ATEN_CPU_CAPABILITY"] = "avx512"
        return self.torch(workload, dump, env, *fused, *more)

    def own(self, workload):
        text = call([self.weft, "bench", workload, "--runs", str(self.o.runs), "--rounds", "1",
                     "--threads", str(self.o.threads), "--json"], self.env)
        return json.loads(text)["workloads"][0]

    def agrees(self, name, workload, dump, first):
        a = first["agreement"]
        if not a["output"] <= AGREEMENT:
            self.failures.append(f"{workload}: {name}'s output or loss differs from weft's by {a['output']:.1e}")
        if name == "PyTorch" and a["grad"] > max(AGREEMENT, 2 * a["grad_peer"]):
            # Its other kernels round elsewhere: the greater of the two errors bounds what f32 determines.
            other = self.torch(workload, dump, dict(self.peer_env, OPENBLAS_CORETYPE="Haswell"))["agreement"]
            a["grad_peer"] = max(a["grad_peer"], other["grad_peer"])
        if not a["grad"] <= max(AGREEMENT, 2 * a["grad_peer"]):
            self.failures.append(f"{workload}: gradients are {a['grad']:.1e} from those in f64, {name}'s "
                                 f"{a['grad_peer']:.1e}")
        for library in ("torch", "onnxruntime"):
            if library in first:
                self.versions[library] = first[library]
        return a

    def model_rows(self, workload):
        """A row for each peer. All run in turn, weft once a round."""
        dump = os.path.join(self.o.cache, f"{workload}.safetensors")
        progress(f"{workload}: weft's results")
        call([self.weft, "bench", workload, "--dump", dump], self.env)
        share, peers, memory = TARGETS[workload]
        own, others = [], {}
        for name in peers:
            progress(f"{workload}: {name}'s results")
            try:
                first = self.peer(name, workload, dump)
            except Failed as error:
                self.failures.append(f"{workload}: {name}: {error}")
                continue
            others[name] = {"agreement": self.agrees(name, workload, dump, first), "seconds": [],
                            "peak": first["peak_bytes"]}
            if name != "ONNX Runtime":
                fused = ["--fused"] if name == "nn.TransformerEncoder" else []
                alone = self.torch(workload, dump, self.plain_env, "--no-check", *fused)
                others[name]["peak"] = alone["peak_bytes"]
        for i in range(self.o.rounds):
            progress(f"{workload}: round {i + 1} of {self.o.rounds}")
            own.append(self.own(workload))
            for name, other in others.items():
                other["seconds"].append(min(self.peer(name, workload, dump, *(
                    [] if name == "ONNX Runtime" else ["--no-check"]), turn=i)["seconds"]))
        os.remove(dump)
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

    # ---- Ops and growth ----

    def op_rows(self):
        """Cases that PyTorch has too: times of both and weft's share of the triad's rate."""
        progress("ops")
        text = call([sys.executable, os.path.join(HERE, "op_bench.py"),
                     os.path.join(self.o.build, "tests", "op_bench"), "--rounds", str(self.o.rounds), *self.o.ops],
                    self.plain_env)
        rows = []
        for words in map(str.split, text.splitlines()):
            # NAME PyTorch MS ms weft MS ms RATIO times as fast SHARE of triad
            rows.append({"op": words[0], "peer_ms": float(words[2]), "ms": float(words[5]),
                         "ratio": float(words[7]), "triad_share": float(words[11])})
        return rows

    def growth(self):
        progress("growth")
        return json.loads(call([self.weft, "bench", "--growth", "--json"], self.env))["growth"]


# ---- Printing ----


def target(value, wanted, at_most=False):
    """A number, and the target beside it: met or not."""
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
            r["workload"], f"{w['tokens_per_second'] * w['min_ms'] / r['ms']:.0f}",
            *(f"{1e-6 * w[k]:.1f}" for k in ("arena_bytes", "state_bytes", "workspace_bytes")),
            *(f"{w[k]:.0f}" for k in ("nodes", "fused", "barriers"))]
    return head, list(table.values())


def op_table(rows):
    head = ["op", "weft ms", "of triad", "PyTorch ms", "times as fast"]
    return head, [[r["op"], f"{r['ms']:.3f}", f"{r['triad_share']:.2f}", f"{r['peer_ms']:.3f}",
                   target(r["ratio"], 1.0)] for r in rows]


def growth_table(all_series):
    head = ["workload", "axis", "at", "min ms", "arena MB", "time grows as", "arena grows as"]
    rows = []
    for s in all_series:
        axis, points = s["axis"], s["points"]
        rows.append([s["workload"], " ".join([axis, *(f"({o})" for o in s["options"])]),
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
    parser.add_argument("--parts", default="models,ops,growth", help="models,ops,growth (all)")
    parser.add_argument("--ops", nargs="+", default=[], metavar="TEXT", help="ops whose name contains one (all)")
    parser.add_argument("--rounds", type=int, default=5, help="in which every program runs once (5)")
    parser.add_argument("--runs", type=int, default=3, help="of a program in a round, at least (3)")
    parser.add_argument("--threads", type=int, default=2, help="of every program (2)")
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON, too")
    parser.add_argument("--markdown", action="store_true", help="print the tables of docs/benchmarks.md")
    parser.add_argument("--build", default="build", help=argparse.SUPPRESS)
    parser.add_argument("--cache", default=".", help=argparse.SUPPRESS)
    options = parser.parse_args()
    parts = options.parts.split(",")
    for name in options.workloads:
        if name not in TARGETS:
            parser.error(f"no workload \"{name}\": there are {', '.join(TARGETS)}")
    for part in parts:
        if part not in ("models", "ops", "growth"):
            parser.error(f"no part \"{part}\": there are models, ops and growth")
    try:
        bench = Bench(options)
        models = [row for w in options.workloads or TARGETS for row in bench.model_rows(w)] if "models" in parts else []
        ops = bench.op_rows() if "ops" in parts else []
        growth = bench.growth() if "growth" in parts else []
    except Failed as error:
        progress("")
        print(f"compare: {error}", file=sys.stderr)
        return 1
    if sys.stderr.isatty():
        progress("")
    print_machine(bench)
    print_table("Models", model_table(models), options.markdown)
    print_table("Their plans", plan_table(models), options.markdown)
    print_table("Ops", op_table(ops), options.markdown)
    print_table("Growth", growth_table(growth), options.markdown)
    if options.json:
        with open(options.json, "w") as f:
            json.dump({"machine": bench.machine, "versions": bench.versions, "models": models, "ops": ops,
                       "growth": growth, "failures": bench.failures}, f, indent=1)
    for failure in bench.failures:
        print(f"compare: {failure}", file=sys.stderr)
    return 1 if bench.failures else 0


sys.exit(main())
