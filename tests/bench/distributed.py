"""`weft train` on several processes: the time of a step, and what communication adds to it.

Usage: tests/bench/distributed [--help] [OPTION...]. It installs what is missing (for --peer PyTorch of PyPI, into
~/.cache/weft-bench, or $WEFT_BENCH_CACHE) and builds weft. Four hosts need root (tests/bench/hosts.c).

Every rank has one thread. The ranks share the processors of this machine, the four hosts too.
  work weak    the same batches a rank: --local
  work strong  the same batches of an update: --total
  where        this machine, or four hosts joined by a network of this latency (one way) and rate. A network
               without latency or limit is there for step_model.py, which takes the cost of a byte from it
  alone        as many processes at the same time that exchange nothing, each with the batches of a rank
  overhead     step / alone. A process alone updates all parameters, a rank only its piece, so that the
               overhead may be below 1
  hidden       1 - waiting / exchanging: the share of the exchanges' time in which no thread waited for them
  sent         bytes of rank 0 in a step, and their ratio to the least, 2 (P - 1) / P x 4 bytes x parameters
  peak         resident memory of each rank at its highest
  moments      Adam's, of the rank that has most, and the ratio to ZeRO's 8 bytes x parameters / P
A time is the median of the steps after the first three, and of all rounds the least. Times of short steps on a
busy machine say nothing.
Exit status: 0 all was measured, 1 not.
"""
import argparse
import json
import os
import platform
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile

from bench_common import Failed, call, print_table, progress

HERE = os.path.dirname(os.path.realpath(__file__))
TEXTS = os.path.join(HERE, "..", "..", "tools", "data", "bible-en-es")
LINES = 4000
SKIPPED = 3
HOSTS = 4

# Runs a program and writes its peak memory in bytes, next to its rank.
PEAK = """import os, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
with open(sys.argv[1] + os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMIX_RANK", "0")), "w") as f:
    f.write(str(1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code if code >= 0 else 1)
"""


def read_header(path):
    """Names and shapes of a safetensors file, in the order of the file."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    header.pop("__metadata__", None)
    return {name: entry["shape"] for name, entry in
            sorted(header.items(), key=lambda item: item[1]["data_offsets"])}


def elements(shape):
    n = 1
    for size in shape:
        n *= size
    return n


def where(network):
    if not network:
        return "this machine"
    latency, gbit = network
    return f"{latency:g} ms, " + (f"{gbit:g} Gbit/s" if gbit else "no limit")


def read_peaks(prefix, ranks):
    peaks = []
    for rank in range(ranks):
        with open(f"{prefix}{rank}") as f:
            peaks.append(int(f.read()))
    return peaks


class Bench:
    def __init__(self, options, folder):
        self.o, self.folder = options, folder
        self.weft = os.path.join(options.build, "tools", "weft")
        self.hosts = os.path.join(options.build, "tests", "hosts")
        self.env = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", OMPI_ALLOW_RUN_AS_ROOT="1",
                        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                        OMPI_MCA_hwloc_base_binding_policy="none", OMPI_MCA_mpi_yield_when_idle="1",
                        PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe",
                        PRTE_MCA_hwloc_default_binding_policy="none")
        self.machine = json.loads(call([self.weft, "info", "--json"], self.env))
        self.runs, self.failures, self.notes, self.backends, self.links = {}, [], [], [], {}
        if options.peer:
            self.find_torch()
        self.prepare()

    # ---- Runs of weft ----

    def prepare(self):
        """A short text, the vocabulary, and the model's parameters."""
        for name in ("train.en", "train.es"):
            with open(os.path.join(TEXTS, name), encoding="utf-8") as text:
                lines = [line for _, line in zip(range(LINES), text)]
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as text:
                text.writelines(lines)
        self.vocabulary = []
        first = self.out("first")
        call(self.train(1, 1, first), self.env)
        self.vocabulary = ["--vocab-file", os.path.join(first, "vocab.model")]
        shapes = read_header(os.path.join(first, "model.safetensors"))
        self.params = [elements(s) for n, s in shapes.items() if not n.startswith(("opt.", "sum.", "ema."))]
        self.count = sum(self.params)

    def out(self, name):
        path = os.path.join(self.folder, name)
        shutil.rmtree(path, ignore_errors=True)
        return path

    def train(self, batches, steps, out):
        o = self.o
        return [self.weft, "train", "transformer", *o.model, "--source", os.path.join(self.folder, "train.en"),
                "--target", os.path.join(self.folder, "train.es"), *self.vocabulary, "--lengths", str(o.length),
                "--truncate", "--batch-tokens", str(o.batch_tokens), "--accumulate", str(batches), "--steps",
                str(steps), "--measure=false", "--threads", "1", "--log-every", "1", "--log-seconds", "100000",
                "--save-seconds", "100000", "--out", out]

    def metrics(self, out):
        """The lines of the steps that count."""
        with open(os.path.join(out, "metrics.jsonl"), encoding="utf-8") as f:
            lines = [json.loads(line) for line in f]
        return [line for line in lines if "tokens_per_second" in line][SKIPPED:]

    def alone(self, ranks, batches):
        """Processes at the same time that do not exchange."""
        outs = [self.out(f"alone{i}") for i in range(ranks)]
        running = [subprocess.Popen(self.train(batches, self.o.steps, out), env=self.env, stdout=subprocess.DEVNULL,
                                    stderr=subprocess.PIPE, text=True) for out in outs]
        errors = [p.communicate()[1] for p in running]
        for p, error in zip(running, errors):
            if p.returncode:
                raise Failed(f"weft train: {(error.strip().splitlines() or ['no message'])[-1]}")
        return {"seconds": statistics.mean(
            statistics.median(line["tokens"] / line["tokens_per_second"] for line in self.metrics(out))
            for out in outs)}

    def together(self, ranks, batches, network):
        """One training of all ranks. network: latency in ms and Gbit/s (0: no limit), or None for this machine."""
        out, peaks = self.out("together"), os.path.join(self.folder, "peak.")
        command = ["mpirun", "-n", str(ranks), sys.executable, "-c", PEAK, peaks,
                   *self.train(batches * ranks, self.o.steps, out)]
        if network:
            latency, gbit = network
            rate = ["--gbit", f"{gbit:g}"] if gbit else []
            command = [self.hosts, str(ranks), "--latency", f"{latency:g}", *rate, "--", *command]
        call(command, self.env)
        lines = self.metrics(out)
        middle = {key: statistics.median(line[key] for line in lines)
                  for key in ("step_seconds", "exchange_seconds", "waiting_seconds", "sent_bytes")}
        return {"seconds": middle.pop("step_seconds"), **middle, "peak_bytes": read_peaks(peaks, ranks),
                "moment_bytes": self.moments(out, ranks)}

    def moments(self, out, ranks):
        """Bytes of the states in the ranks' files of the checkpoint."""
        found = []
        for name in sorted(os.listdir(out)):
            if f"-of-{ranks}.safetensors" in name:
                shapes = read_header(os.path.join(out, name))
                found.append(4 * sum(elements(s) for n, s in shapes.items() if n.startswith("opt.")))
        return found

    def link(self, network):
        """Bytes a second of a host that sends to all others while they do, from the two largest pieces of pingpong;
        the most of all rounds."""
        latency, gbit = network
        pingpong = os.path.join(self.o.build, "tests", "pingpong")
        rates = []
        for _ in range(self.o.rounds):
            progress(f"the network of {where(network)}")
            found = json.loads(call([self.hosts, str(HOSTS), "--latency", f"{latency:g}", "--gbit", f"{gbit:g}", "--",
                                     "mpirun", "-n", str(HOSTS), pingpong, "--json"], self.env))
            less, more = found["all_to_all"][-2:]
            rates.append((HOSTS - 1) * (more["bytes"] - less["bytes"]) / (more["min_s"] - less["min_s"]))
        return max(rates)

    def measure_links(self):
        """The network of each rate, at the least latency."""
        if self.o.hosts:
            for gbit in self.o.gbit:
                self.links[gbit] = self.link((min(self.o.latency), gbit))

    # ---- Rows ----

    def cases(self):
        """(work, ranks, batches of a rank, network)"""
        o = self.o
        networks = [(0.0, 0.0)] + [(latency, gbit) for gbit in o.gbit for latency in o.latency]
        for work in ("weak", "strong"):
            for ranks in o.ranks:
                yield work, ranks, o.local if work == "weak" else o.total // ranks, None
            if o.hosts:
                for network in networks:
                    yield work, HOSTS, o.local if work == "weak" else o.total // HOSTS, network

    def measure(self, key, about, run):
        """One more run of a case. A case that failed is not run again."""
        if self.runs.setdefault(key, []) is None:
            return
        progress(about)
        try:
            self.runs[key].append(run())
        except (Failed, OSError) as error:
            self.runs[key] = None
            self.failures.append(f"{about}: {error}")

    def best(self, key):
        return min(self.runs[key], key=lambda run: run["seconds"]) if self.runs.get(key) else None

    def round(self, number):
        """Every case once."""
        seen, turn = set(), f"round {number + 1} of {self.o.rounds}: "
        for work, ranks, batches, network in self.cases():
            for key in (("alone", ranks, batches), (ranks, batches, network)):
                if key in seen or key == (1, batches, network):
                    continue
                seen.add(key)
                at = f"{turn}{ranks} ranks, {batches} batches each, "
                if key[0] == "alone":
                    self.measure(key, at + "alone", lambda r=ranks, b=batches: self.alone(r, b))
                else:
                    self.measure(key, at + where(network),
                                 lambda r=ranks, b=batches, n=network: self.together(r, b, n))
            if self.o.peer and not network and ranks > 1 and ("torch", ranks, batches) not in seen:
                seen.add(("torch", ranks, batches))
                self.peer_round(turn, ranks, batches)

    def row(self, program, key, alone, case):
        """What both programs have in common; None if a run failed."""
        work, ranks, batches, network = case
        run, other = self.best(key), self.best(alone)
        if not run or not other:
            return None
        return {"program": program, "work": work, "ranks": ranks, "batches": batches,
                "latency_ms": network[0] if network else None, "gbit": network[1] if network else None,
                **run, "alone_seconds": other["seconds"], "zero_bytes": 8 * self.count / ranks}

    def weft_row(self, case):
        _, ranks, batches, network = case
        alone = ("alone", ranks, batches)
        row = self.row("weft", alone if ranks == 1 else (ranks, batches, network), alone, case)
        if row and network and network[1]:
            row["link_bytes_per_s"] = self.links[network[1]]
        if row and ranks > 1:
            row["min_bytes"] = 2 * (ranks - 1) / ranks * 4 * self.count
            if row["exchange_seconds"] > 0:
                row["hidden"] = 1 - row["waiting_seconds"] / row["exchange_seconds"]
        return row

    def rows(self):
        """Runs everything."""
        self.measure_links()
        for i in range(self.o.rounds):
            self.round(i)
        rows = [self.weft_row(case) for case in self.cases()]
        for case in self.cases():
            _, ranks, batches, network = case
            if not self.o.peer or network or ranks == 1:
                continue
            rows += [self.row(f"PyTorch {kind}, {backend}", (kind, backend, ranks, batches),
                              ("torch alone", "gloo", ranks, batches), case)
                     for backend in self.backends for kind in ("ddp", "zero")]
        return [row for row in rows if row]

    # ---- PyTorch ----

    def find_torch(self):
        """The backends to compare with."""
        about = json.loads(call([self.o.torch, os.path.join(HERE, "ddp_torch.py"), "--about"], self.env))
        self.backends = ["gloo", *(["mpi"] if about["mpi"] else [])]
        self.notes.append(f"PyTorch {about['torch']}, " +
                          ("with its MPI backend" if about["mpi"] else
                           "without its MPI backend, which PyPI's wheels do not have"))

    def torch(self, kind, backend, ranks, batches):
        o = self.o
        command = [o.torch, os.path.join(HERE, "ddp_torch.py"), os.path.join(self.folder, "first"), "--kind", kind,
                   "--backend", backend, "--ranks", str(ranks), "--batches", str(batches), "--length", str(o.length),
                   "--rows", str(o.batch_tokens // o.length), "--steps", str(o.steps), "--skip", str(SKIPPED)]
        return json.loads(call(command, self.env))

    def peer_round(self, turn, ranks, batches):
        kinds = [("alone", "gloo")] + [(kind, backend) for backend in self.backends for kind in ("ddp", "zero")]
        for kind, backend in kinds:
            self.measure(("torch alone" if kind == "alone" else kind, backend, ranks, batches),
                         f"{turn}{ranks} ranks, {batches} batches each, PyTorch {kind}, {backend}",
                         lambda k=kind, b=backend: self.torch(k, b, ranks, batches))


# ---- Printing ----


def megabytes(values):
    return ", ".join(f"{1e-6 * v:.1f}" for v in values)


def table(rows):
    head = ["program", "work", "where", "ranks", "batches a rank", "step ms", "alone ms", "overhead", "waiting ms",
            "hidden", "sent MB", "of least", "peak MB", "moments MB", "of ZeRO's"]
    cells = []
    for r in rows:
        sent, moments, hidden = r.get("sent_bytes"), r.get("moment_bytes"), r.get("hidden")
        network = None if r["latency_ms"] is None else (r["latency_ms"], r["gbit"])
        cells.append([
            r["program"], r["work"], where(network), f"{r['ranks']}", f"{r['batches']}",
            f"{1e3 * r['seconds']:.1f}", f"{1e3 * r['alone_seconds']:.1f}",
            f"{r['seconds'] / r['alone_seconds']:.3f}" if r["ranks"] > 1 else "-",
            f"{1e3 * r['waiting_seconds']:.1f}" if "waiting_seconds" in r else "-",
            f"{hidden:.2f}" if hidden is not None else "-", f"{1e-6 * sent:.1f}" if sent else "-",
            f"{sent / r['min_bytes']:.3f}" if sent else "-",
            megabytes(r["peak_bytes"]) if "peak_bytes" in r else "-", megabytes([max(moments)]) if moments else "-",
            f"{max(moments) / r['zero_bytes']:.3f}" if moments else "-"])
    return head, cells


def print_machine(bench):
    m, o = bench.machine, bench.o
    print(f"Machine: {m['processor']}, {m['processors']:g} processors; {platform.system()} {platform.release()}.\n"
          f"weft {m['version']}, kernels {m['isa']}; {' '.join(['transformer', *o.model])}, {bench.count} parameters, "
          f"batches of {o.batch_tokens} tokens with {o.length} a sentence; {o.steps} steps, rounds: {o.rounds}.")
    for note in bench.notes:
        print(f"{note}.")
    for gbit, rate in bench.links.items():
        print(f"Hosts with {gbit:g} Gbit/s send {8e-9 * rate:.2f} Gbit/s each when all send to all.")


def numbers(kind):
    return lambda text: [kind(part) for part in text.split(",")]


def read_options():
    parser = argparse.ArgumentParser(prog="distributed", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few steps and cases: shows that all of it runs")
    parser.add_argument("--peer", action="store_true", help="PyTorch's DistributedDataParallel as well")
    parser.add_argument("--ranks", type=numbers(int), default=[1, 2, 4], metavar="N,...", help="here (1,2,4)")
    parser.add_argument("--latency", type=numbers(float), metavar="MS,...", help="of four hosts (0.1,0.5,1,5)")
    parser.add_argument("--gbit", type=numbers(float), default=[1, 10], metavar="G,...", help="of four hosts (1,10)")
    parser.add_argument("--no-hosts", dest="hosts", action="store_false", help="this machine only")
    parser.add_argument("--local", type=int, default=1, metavar="N", help="batches a rank in weak scaling (1)")
    parser.add_argument("--total", type=int, default=8, metavar="N", help="batches in strong scaling (8)")
    parser.add_argument("--batch-tokens", type=int, default=192, metavar="N", help="tokens of a batch (192)")
    parser.add_argument("--length", type=int, default=32, metavar="N", help="tokens of a sentence (32)")
    parser.add_argument("--model", nargs="+", default=[], metavar="OPTION=VALUE", help="of the transformer")
    parser.add_argument("--steps", type=int, metavar="N", help=f"of a run, the first {SKIPPED} do not count (20)")
    parser.add_argument("--rounds", type=int, metavar="N", help="runs of a case (3)")
    parser.add_argument("--json", metavar="FILE", help="also write everything as JSON, for step_model.py")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/distributed.md")
    parser.add_argument("--build", default="build", help=argparse.SUPPRESS)
    parser.add_argument("--torch", default=sys.executable, help=argparse.SUPPRESS)
    o = parser.parse_args()
    o.latency = o.latency or ([0.5] if o.quick else [0.1, 0.5, 1, 5])
    o.steps = o.steps or (6 if o.quick else 20)
    o.rounds = o.rounds or (1 if o.quick else 3)
    if o.steps <= SKIPPED:
        parser.error(f"--steps must be above {SKIPPED}")
    if any(n < 1 or o.total % n for n in o.ranks + [HOSTS] * o.hosts):
        parser.error(f"--total {o.total} is not a multiple of every number of ranks")
    return o


def main():
    options = read_options()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            bench = Bench(options, folder)
            rows = bench.rows()
        except Failed as error:
            progress("")
            print(f"distributed: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 130
    if sys.stderr.isatty():
        progress("")
    print_machine(bench)
    print_table("Training on several processes", table(rows), options.markdown)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as f:
            json.dump({"machine": bench.machine, "notes": bench.notes, "params": bench.params,
                       "batch_tokens": options.batch_tokens, "rows": rows, "failures": bench.failures}, f, indent=1)
    for failure in bench.failures:
        print(f"distributed: {failure}", file=sys.stderr)
    return 1 if bench.failures else 0


sys.exit(main())
