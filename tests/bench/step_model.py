#!/usr/bin/env python3
"""A model of a training step on several hosts: its time, and the memory of a host.

    step_model.py --validate FILE.json      against the measurements of tests/bench/distributed --json
    step_model.py --table                   up to 1,024 hosts, for three sizes of models

docs/distributed.md has the formulas. What is modelled is what weft does: gradients in buckets, the last declared
first, each sent to the owners of its pieces as soon as the backward pass has it; ZeRO's stage 1; the updated
parameters sent bucket by bucket; small exchanges between. The exchanges of a bucket go through a simulation of a
host's link: one after the other, with the questions and answers of MPI's rendezvous.

--validate takes the time of a batch and of an update from the processes alone, the rate of a link from pingpong, and
the cost of a byte to a processor from one row (marked "fit") of this machine and of the hosts of each rate, whose
switch runs on the same processors; all other rows are predicted.
--table has no measurement: its options say what a host and its network can do.
Exit status: 0, or 1 after an error. An error of a prediction above --tolerance does not count as one.
"""
import argparse
import heapq
import json
import math
import statistics
import sys
from dataclasses import dataclass, replace
from functools import lru_cache

from bench_common import Failed, print_table

TILE = 16384          # elements: pieces of parameters begin at multiples of it (WEFT_TILE)
UNDER_WAY = 4  # buckets at a time
RENDEZVOUS = 1 << 16  # bytes of a message from which on MPI asks the receiver first
GB = 1e9


@dataclass(frozen=True)
class Host:
    """What a rank computes, and what its messages cost its processor, in seconds."""
    batch: float       # forward and backward pass of one batch
    update: float      # of all parameters
    byte: float        # of a byte that is sent: packing, copies, adding what others sent
    message: float     # of a message sent or received
    forward: float = 1 / 3  # share of a batch


@dataclass(frozen=True)
class Network:
    latency: float  # seconds, one way
    rate: float     # bytes a second of a link, in each direction


@dataclass(frozen=True)
class Model:
    """Elements of the parameters in the order of their declaration. The last gradient is that of the first
    parameter, an embedding table."""
    params: tuple
    tied: bool = True  # the first parameter is that of the output as well

    @property
    def count(self):
        return sum(self.params)


@dataclass(frozen=True)
class Bucket:
    ready: float   # share of the backward pass after which it is complete
    elements: int
    piece: int     # elements of the largest piece
    owners: int    # ranks that have a piece


# ---- Buckets ----


@lru_cache(maxsize=None)
def pieces(elements, ranks):
    """Elements of a bucket that each rank owns: cuts lie at the nearest tile."""
    cuts = [min(elements, round(elements * r / ranks / TILE) * TILE) for r in range(ranks)] + [elements]
    return [end - first for first, end in zip(cuts, cuts[1:])]


def bucket_bytes(o, ranks):
    return o.bucket_mib * (1 << 20) or max(4 << 20, ranks << 18)


@lru_cache(maxsize=None)
def make_buckets(model, ranks, limit):
    """As distributed/sharding.c. Work of the backward pass is proportional to elements, except that the table of
    embeddings has work only at the output."""
    buckets, elements = [], 0
    done = model.params[0] if model.tied else 0
    work = done + sum(model.params[1:])
    for i in reversed(range(len(model.params))):
        elements += model.params[i]
        done += model.params[i] if i else 0
        if 4 * elements >= limit or i == 0:
            owned = pieces(elements, ranks)
            buckets.append(Bucket(done / work, elements, max(owned), sum(p > 0 for p in owned)))
            elements = 0
    return buckets


@lru_cache(maxsize=None)
def max_owned(model, ranks, limit):
    """Elements of the rank that owns most."""
    return max(map(sum, zip(*(pieces(b.elements, ranks) for b in make_buckets(model, ranks, limit)))))


# ---- The link ----


def simulate(flights, ranks, network, computing_until, poll):
    """flights: (seconds at which it is ready, bytes of a message, bytes on the link). Returns when the last one
    has arrived. One link represents all: that of the ranks with the largest pieces. A request and its reply wait after the data on the link, and for the next time that a computing host looks for messages, `poll` seconds
    apart."""
    events, free, end = [], 0.0, 0.0
    for i, (ready, message, _) in enumerate(flights):
        heapq.heappush(events, (ready, i, 0 if message >= RENDEZVOUS else 2))
    while events:
        t, i, stage = heapq.heappop(events)
        start = max(t, free)
        arrives = start + network.latency
        if stage < 2:  # the question, the answer
            heapq.heappush(events, (arrives + (poll / 2 if arrives < computing_until else 0), i, stage + 1))
            continue
        free = start + flights[i][2] / network.rate
        end = max(end, free + network.latency)
    return end


def flights_of(buckets, ranks, ready):
    return [(at, 4 * b.piece, 4 * b.piece * (ranks - 1)) for b, at in zip(buckets, ready)]


# ---- A step ----


def step_seconds(model, host, network, ranks, batches, limit):
    """An update from `batches` batches on each of `ranks` hosts."""
    if ranks == 1:
        return batches * host.batch + host.update
    buckets = make_buckets(model, ranks, limit)
    messages = sum(b.owners + ranks for b in buckets) * host.message
    sent = 4 * model.count * (ranks - 1) / ranks
    small = network.latency + 2 * (ranks - 1) * host.message
    norm = small + 8 * model.count / TILE / network.rate
    poll = host.batch * (1 - host.forward) / len(model.params)

    t = (batches - 1 + host.forward) * host.batch + small
    backward = host.batch * (1 - host.forward) + sent * host.byte + messages
    ready = [t + backward * b.ready for b in buckets]
    t += backward
    t = max(t, simulate(flights_of(buckets, ranks, ready), ranks, network, t, poll))
    t += norm + host.update * max_owned(model, ranks, limit) / model.count
    gather = sent * host.byte + messages
    ready = [t + gather * (i + 1) / len(buckets) for i in range(len(buckets))]
    t = max(t + gather, simulate(flights_of(buckets, ranks, ready), ranks, network, t, 0))
    return t + 2 * small


def memory_bytes(model, ranks, batches, activations, limit):
    """Parameters; sums of gradients, one for each level of the tree of batches; gradients of the last batch, of which
    several hosts have the own pieces and the buckets under way, sent and received; Adam's moments of the own pieces;
    activations of a batch."""
    n = 4 * model.count
    levels = math.ceil(math.log2(batches)) if batches > 1 else 0
    owned = max_owned(model, ranks, limit)
    largest = 4 * max(b.elements for b in make_buckets(model, ranks, limit))
    gradients = 4 * owned + 2 * min(n, UNDER_WAY * largest) if ranks > 1 else n
    return n * (1 + levels) + gradients + 8 * owned + activations


# ---- Validation ----


def fit_alone(rows, ranks):
    """Seconds of a batch and of an update, from the processes alone with two numbers of batches."""
    times = {r["batches"]: r["alone_seconds"] for r in rows if r["ranks"] == ranks}
    if len(times) < 2:
        raise Failed(f"{ranks} ranks were measured with one number of batches only: --local and --total must differ")
    few, many = min(times), max(times)
    batch = (times[many] - times[few]) / (many - few)
    batch = min(max(batch, 0), times[few] / few)
    return batch, times[few] - few * batch


def kind_of(row):
    """What the processor's cost of a byte depends on: the rate of the hosts' switch, which runs on the same
    processors; None for this machine."""
    return row["gbit"]


def fit_rows(rows):
    """By kind the row that decides the cost of a byte: four ranks, weak scaling, the least latency."""
    found = {}
    for row in rows:
        if row["work"] == "weak" and row["ranks"] == 4:
            best = found.get(kind_of(row))
            if not best or (row["latency_ms"] or 0) < (best["latency_ms"] or 0):
                found[kind_of(row)] = row
    return found


def network_of(row, o):
    """Of a host of tests/bench/hosts, as tests/bench/distributed measured it: a link carries less than its rate if all
    hosts send to all. TCP alone carries 94 % of the rate."""
    rate = row["gbit"] * GB / 8 * o.tcp_share if row["gbit"] else math.inf
    return Network((row["latency_ms"] or 0) * 1e-3, min(rate, row.get("link_bytes_per_s") or math.inf))


def fit_byte(row, predict):
    """The seconds a byte with which the model gives the time of a row. Some of them are hidden, so by halves."""
    low, high = 0.0, row["seconds"] / row["sent_bytes"]
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if predict(row, middle) > row["seconds"] else (middle, high)
    return low


def validate(o):
    try:
        with open(o.validate, encoding="utf-8") as f:
            found = json.load(f)
    except (OSError, ValueError) as error:
        raise Failed(f"{o.validate}: {error}") from None
    rows = [r for r in found["rows"] if r["program"] == "weft"]
    model = Model(tuple(found["params"]))
    hosts = {}
    for ranks in {r["ranks"] for r in rows if r["ranks"] > 1}:
        batch, update = fit_alone(rows, ranks)
        hosts[ranks] = Host(batch, update, 0, 1e-6 * o.message_us, o.forward)

    def predict(row, byte):
        return step_seconds(model, replace(hosts[row["ranks"]], byte=byte), network_of(row, o), row["ranks"],
                            row["batches"], bucket_bytes(o, row["ranks"]))

    fits = fit_rows(rows)
    costs = {kind: fit_byte(row, predict) for kind, row in fits.items()}
    cells, errors = [], []
    for row in rows:
        here = row["latency_ms"] is None
        if row["ranks"] == 1 or kind_of(row) not in costs:
            continue
        seconds = predict(row, costs[kind_of(row)])
        error = seconds / row["seconds"] - 1
        fit = row is fits[kind_of(row)]
        if not fit:
            errors.append(abs(error))
        where = "this machine" if here else f"{row['latency_ms']:g} ms, " + (
            f"{row['gbit']:g} Gbit/s" if row["gbit"] else "no limit")
        cells.append([row["work"], where, f"{row['ranks']}", f"{row['batches']}", f"{1e3 * row['seconds']:.1f}",
                      f"{1e3 * seconds:.1f}", f"{100 * error:+.1f} %" + (" (fit)" if fit else "")])
    if not errors:
        raise Failed(f"{o.validate}: has no row to predict")
    for ranks, host in sorted(hosts.items()):
        print(f"{ranks} processes: {1e3 * host.batch:.1f} ms a batch, {1e3 * host.update:.1f} ms an update of all")
    for kind, cost in costs.items():
        print(f"{'This machine' if kind is None else f'Hosts, {kind:g} Gbit/s' if kind else 'Hosts, no limit'}: "
              f"{1e9 * cost:.2f} ns a byte sent")
    head = ["work", "where", "ranks", "batches a rank", "measured ms", "model ms", "error"]
    print_table("The model of a step against measurements", (head, cells), o.markdown)
    print(f"\nWithin {o.tolerance:g} %: {sum(100 * e <= o.tolerance for e in errors)} of {len(errors)}; median error "
          f"{100 * statistics.median(errors):.1f} %, greatest {100 * max(errors):.1f} %.")


# ---- The table ----


@dataclass(frozen=True)
class Size:
    name: str
    width: int
    hidden: int    # of the feed-forward layers
    layers: int    # of them all
    matrices: tuple  # of a layer, as (rows, columns) in width and hidden
    vocab: int
    tied: bool
    length: int    # tokens of a sequence

    def model(self):
        table = self.vocab * self.width
        at = {"w": self.width, "h": self.hidden}
        layer = [at[a] * at[b] for a, b in self.matrices]
        return Model((table, *(layer * self.layers), *(() if self.tied else (table,))), self.tied)

    def flops(self):
        """Of a token, forward and backward: 6 for each element of a matrix, and products of queries and keys."""
        model = self.model()
        return 6 * (model.count - (0 if self.tied else model.params[0])) + 12 * self.layers * self.width * self.length


LLAMA = ("ww", "ww", "ww", "ww", "wh", "wh", "hw")
# An encoder layer and a decoder layer, which has two attentions, as two halves of a pair.
PAIR = ("ww",) * 4 + ("wh", "hw") + ("ww",) * 8 + ("wh", "hw")
SIZES = (
    Size("transformer-base", 512, 2048, 6, PAIR, 8000, True, 64),
    Size("LLaMA 1.3B", 2048, 5504, 24, LLAMA, 32000, False, 2048),
    Size("LLaMA 7B", 4096, 11008, 32, LLAMA, 32000, False, 2048),
)
HOSTS = (1, 8, 64, 256, 1024)


@dataclass(frozen=True)
class Division:
    """Of a model among processes: parts of a layer, and stages."""
    tensor: int = 1
    stages: int = 1

    @property
    def processes(self):
        return self.tensor * self.stages

    def __str__(self):
        words = [f"tensor {self.tensor}"] * (self.tensor > 1) + [f"stages {self.stages}"] * (self.stages > 1)
        return ", ".join(words) or "whole"


class Cluster:
    """A size of model on hosts of the options, divided among some of them or not."""

    def __init__(self, size, gbit, o, division=Division()):
        self.size, self.o, self.division = size, o, division
        self.whole = size.model()
        self.network = Network(1e-3 * o.latency_ms, gbit * GB / 8 * o.tcp_share)
        # The process that has most: a table of embeddings, and its parts of its layers.
        layers = self.whole.params[1:1 + len(size.matrices) * size.layers]
        own = layers[:len(layers) // division.stages]
        tail = self.whole.params[1 + len(layers):] if division.stages == 1 else ()
        self.model = Model((self.whole.params[0], *(n // division.tensor for n in own), *tail), self.whole.tied)

    def batches(self, tokens):
        """Of a share of the hosts that has the model once. The last batch of an update hides the exchange; a larger
        one hides more, but needs memory."""
        return max(1, math.ceil(tokens * self.division.processes / self.o.batch_tokens))

    def batch_tokens(self, tokens):
        return tokens * self.division.processes / self.batches(tokens)

    def batch_seconds(self, tokens):
        """Of a batch on the stage with most work. The output layer is not divided by `tensor`, but it need not share
        its stage. A layer has two sums over the parts in each direction, which nothing hides."""
        d, size = self.division, self.size
        output = 6 * self.whole.params[0]
        work = max(((size.flops() - output) / d.tensor + output) / d.stages, output)
        sums = 4 * size.layers / d.stages * (d.tensor > 1)
        each = 2 * (d.tensor - 1) / d.tensor * 4 * size.width * tokens / self.network.rate + 4 * self.network.latency
        return tokens * work / (self.o.gflops * GB) + sums * each

    def seconds(self, ranks, tokens):
        o, d, batches = self.o, self.division, self.batches(tokens)
        batch = self.batch_seconds(self.batch_tokens(tokens))
        host = Host(batch, 28 * self.model.count / (o.memory_gbs * GB), 1e-9 * o.byte_ns, 1e-6 * o.message_us,
                    o.forward)
        passed = self.network.latency + 4 * self.size.width * self.batch_tokens(tokens) / self.network.rate
        filling = (d.stages - 1) * (batch + 2 * passed)
        return filling + step_seconds(self.model, host, self.network, ranks // d.processes, batches,
                                      bucket_bytes(o, ranks // d.processes))

    def ideal_seconds(self, tokens):
        """Of one host that has room for everything."""
        return (tokens * self.size.flops() / (self.o.gflops * GB) +
                28 * self.whole.count / (self.o.memory_gbs * GB))

    def efficiency(self, ranks, tokens):
        return self.ideal_seconds(tokens) / self.seconds(ranks, tokens)

    def memory(self, ranks, tokens):
        """The first stage keeps the activations of as many batches as there are stages."""
        o, d = self.o, self.division
        under_way = min(d.stages, self.batches(tokens))
        per_token = (4 * o.activations * self.size.width * self.size.layers / d.processes * under_way +
                     8 * self.size.vocab)
        return memory_bytes(self.model, ranks // d.processes, self.batches(tokens),
                            per_token * self.batch_tokens(tokens), bucket_bytes(o, ranks // d.processes))

    def min_tokens(self, ranks, wanted):
        """Fewest whole batches, or parts of one, with the wanted efficiency: by doubling, then by halves."""
        low, high = 0, 64
        while self.efficiency(ranks, high) < wanted:
            low, high = high, 2 * high
            if high > 1 << 34:
                return None
        while high - low > max(1, high // 64):
            middle = (low + high) // 2
            low, high = (low, middle) if self.efficiency(ranks, middle) >= wanted else (middle, high)
        return high


def print_assumptions(o):
    print(f"Assumed of a host: {o.gflops:g} GFLOP/s, {o.memory_gbs:g} GB/s of memory (an update moves 28 bytes a "
          f"parameter), {o.byte_ns:g} ns a byte sent, {o.message_us:g} us a message, {o.memory_gb:g} GB.\n"
          f"Of the network: {o.latency_ms:g} ms one way, TCP carries {100 * o.tcp_share:g} % of the rate, no link is "
          f"shared.\nOf weft: f32, batches of at most {o.batch_tokens} tokens, the "
          f"forward pass is {o.forward:.2f} of a batch, {o.activations:g} numbers a token, layer and width are kept.\n"
          f"Efficiency at {o.tokens} tokens a host and update.")


DIVISIONS = (Division(), Division(4, 1), Division(1, 4), Division(2, 2), Division(4, 4), Division(1, 16))
DIVIDED_HOSTS = (64, 1024)


def row_of(cluster, ranks, gbit, o):
    memory = cluster.memory(ranks, o.tokens)
    least = cluster.min_tokens(ranks, o.efficiency) if ranks > 1 else None
    return [cluster.size.name, f"{gbit:g}", f"{ranks}", f"{cluster.seconds(ranks, o.tokens):.2f}",
            f"{cluster.efficiency(ranks, o.tokens):.3f}", f"{memory / GB:.1f}",
            "no" if memory > o.memory_gb * GB else "yes", f"{least}" if least else "-"]


def table(o):
    print_assumptions(o)
    head = ["model", "Gbit/s", "hosts", "step s", "efficiency", "GB a host", "fits",
            f"tokens a host for {o.efficiency:g}"]
    cells = [row_of(Cluster(size, gbit, o), ranks, gbit, o) for size in SIZES for gbit in o.gbit for ranks in HOSTS]
    print_table("A step on up to 1,024 hosts", (head, cells), o.markdown)
    cells = [row_of(Cluster(size, gbit, o, d), ranks, gbit, o) + [str(d)] for size in SIZES[1:] for gbit in o.gbit
             for ranks in DIVIDED_HOSTS for d in DIVISIONS]
    print_table("Divided models", (head + ["model is"], cells), o.markdown)


NUMBERS = (
    ("--gflops", 2000.0, "GFLOP/s of a host in training"),
    ("--memory-gbs", 100.0, "GB/s of its memory"),
    ("--memory-gb", 64.0, "GB of its memory"),
    ("--byte-ns", 0.3, "ns of its processor for a byte sent"),
    ("--message-us", 1.0, "us of its processor for a message"),
    ("--latency-ms", 0.05, "of the network, one way"),
    ("--tcp-share", 0.94, "of the rate that TCP carries"),
    ("--bucket-mib", 0.0, "MiB of a bucket; 0: as weft, 4 MiB or 256 KiB for each rank"),
    ("--forward", 1 / 3, "share of the forward pass in a batch"),
    ("--batch-tokens", 4096, "most tokens of one batch"),
    ("--tokens", 16384, "tokens of a host in an update"),
    ("--activations", 17.0, "numbers kept for each token, layer and element of the width"),
    ("--efficiency", 0.9, "wanted"),
    ("--tolerance", 10.0, "percent of error that --validate counts"),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--validate", metavar="FILE", help="measurements of tests/bench/distributed --json")
    what.add_argument("--table", action="store_true", help="up to 1,024 hosts")
    for name, default, text in NUMBERS:
        parser.add_argument(name, type=type(default), default=default, metavar="X", help=f"{text} ({default:g})")
    parser.add_argument("--gbit", type=lambda text: [float(g) for g in text.split(",")], default=[10, 100],
                        metavar="G,...", help="rates of a link (10,100)")
    parser.add_argument("--markdown", action="store_true", help="print tables of docs/distributed.md")
    o = parser.parse_args()
    try:
        if o.table:
            table(o)
        else:
            validate(o)
    except Failed as error:
        print(f"step_model: {error}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
