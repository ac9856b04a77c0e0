"""Steps of PyTorch's DistributedDataParallel, the peer of `weft train` on several processes.

    ddp_torch.py RUN [--kind ddp|zero|alone] [--ranks N] [OPTION...]
    ddp_torch.py --about

RUN is the folder of a run of `transformer` or `gpt`: its model, with its parameters, in PyTorch's layers. Each of N
processes of this machine, with one thread each, makes steps on batches of random tokens: gradients of --batches
batches, which are exchanged during the last one's backward pass (DDP, with its default buckets), clipping, Adam.
  ddp    every process updates all parameters
  zero   ZeroRedundancyOptimizer: each process updates a part of them, then all get the others'
  alone  the processes exchange nothing
Prints a line of JSON: seconds of a step (the median of the steps after --skip, of the slowest process), and for each
process the peak of its memory and the bytes of Adam's moments. Needs a PyTorch with torch.distributed (PyPI's).
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed
import torch.nn.functional as F
from torch import nn

from torch_models import make_model
from weft_run import PAD, Failed, load_tensors, model_options, read_json

FIRST_WORD = 4


# ---- One process ----


def peak_bytes():
    with open("/proc/self/status", encoding="ascii") as f:
        return next(1024 * int(line.split()[1]) for line in f if line.startswith("VmHWM"))


class Rank:
    def __init__(self, a):
        self.a = a
        recipe = read_json(os.path.join(a.run, "recipe.json"))
        tensors, meta = load_tensors(os.path.join(a.run, "model.safetensors"))
        self.options = model_options(meta)
        torch.manual_seed(a.rank + 1)
        model = make_model(recipe, self.options, a.length)
        model.read(tensors)
        model.train()
        self.params = list(model.parameters())
        adam = {"lr": 1e-4, "betas": (0.9, 0.98), "eps": 1e-9}
        if a.kind == "zero":
            from torch.distributed.optim import ZeroRedundancyOptimizer
            self.optimizer = ZeroRedundancyOptimizer(self.params, torch.optim.Adam, **adam)
        else:
            self.optimizer = torch.optim.Adam(self.params, **adam)
        self.local = model
        self.model = model if a.kind == "alone" else nn.parallel.DistributedDataParallel(
            model, broadcast_buffers=False)

    def backward(self):
        a, shape = self.a, (self.a.length, self.a.rows)
        ids = [torch.randint(FIRST_WORD, int(self.options["vocab"]), shape) for _ in range(3)]
        logits = self.model(ids[0], ids[1])
        loss = F.cross_entropy(logits.flatten(0, 1), ids[2].flatten(), ignore_index=PAD,
                               label_smoothing=self.options.get("label_smoothing", 0))
        (loss / a.batches).backward()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        for _ in range(self.a.batches - 1):
            if self.model is self.local:
                self.backward()
            else:
                with self.model.no_sync():
                    self.backward()
        self.backward()
        nn.utils.clip_grad_norm_(self.params, 1.0)
        self.optimizer.step()

    def moment_bytes(self):
        optimizer = getattr(self.optimizer, "optim", self.optimizer)
        return sum(t.numel() * t.element_size() for state in optimizer.state.values() for t in state.values()
                   if torch.is_tensor(t) and t.dim())

    def measure(self):
        seconds = []
        for _ in range(self.a.steps):
            begin = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - begin)
        return {"seconds": statistics.median(seconds[self.a.skip:]), "peak_bytes": peak_bytes(),
                "moment_bytes": self.moment_bytes()}


def run_rank(a):
    torch.set_num_threads(1)
    if a.backend == "mpi":
        torch.distributed.init_process_group("mpi")
        a.rank = torch.distributed.get_rank()
    else:
        torch.distributed.init_process_group("gloo", init_method=f"file://{a.meeting}", rank=a.rank,
                                             world_size=a.ranks)
    rank = Rank(a)
    torch.distributed.barrier()
    found = rank.measure()
    torch.distributed.barrier()
    print(json.dumps(found))
    torch.distributed.destroy_process_group()


# ---- All of them ----


def environment():
    """One thread, a malloc that keeps its memory, and OpenBLAS's AVX-512 kernels, if it is used."""
    keep = str(1 << 33)
    env = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", MALLOC_TRIM_THRESHOLD_=keep,
               MALLOC_MMAP_THRESHOLD_=keep)
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        if " avx512vl" in f.read():
            env["OPENBLAS_CORETYPE"] = "SkylakeX"
    return env


def run_all(a):
    with tempfile.TemporaryDirectory() as folder:
        own = [sys.executable, *sys.argv, "--meeting", os.path.join(folder, "meeting")]
        if a.backend == "mpi":
            commands = [["mpirun", "-n", str(a.ranks), *own, "--rank", "0"]]
        else:
            commands = [[*own, "--rank", str(rank)] for rank in range(a.ranks)]
        running = [subprocess.Popen(c, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for c in commands]
        done = [p.communicate() for p in running]
        for p, (_, error) in zip(running, done):
            if p.returncode:
                raise Failed((error.strip().splitlines() or ["no message"])[-1])
    found = [json.loads(line) for text, _ in done for line in text.splitlines() if line.startswith("{")]
    return {"seconds": max(f["seconds"] for f in found), "peak_bytes": [f["peak_bytes"] for f in found],
            "moment_bytes": [f["moment_bytes"] for f in found]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", metavar="RUN", help="folder of a run of weft train")
    parser.add_argument("--about", action="store_true", help="print what this PyTorch has")
    parser.add_argument("--kind", choices=("ddp", "zero", "alone"), default="ddp", help="(ddp)")
    parser.add_argument("--backend", choices=("gloo", "mpi"), default="gloo", help="(gloo)")
    parser.add_argument("--ranks", type=int, default=2, metavar="N", help="processes (2)")
    parser.add_argument("--batches", type=int, default=1, metavar="N", help="of a process in a step (1)")
    parser.add_argument("--rows", type=int, default=6, metavar="N", help="sentences of a batch (6)")
    parser.add_argument("--length", type=int, default=32, metavar="N", help="tokens of a sentence (32)")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="(20)")
    parser.add_argument("--skip", type=int, default=3, metavar="N", help="first steps that do not count (3)")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--meeting", help=argparse.SUPPRESS)
    a = parser.parse_args()
    try:
        if a.about:
            has = torch.distributed.is_available()
            print(json.dumps({"torch": torch.__version__, "mpi": has and torch.distributed.is_mpi_available()}))
        elif not a.run:
            parser.error("RUN is missing")
        elif not torch.distributed.is_available():
            raise Failed("this PyTorch has no torch.distributed (Debian's has none, PyPI's has)")
        elif a.rank is None:
            print(json.dumps(run_all(a)))
        else:
            run_rank(a)
    except Failed as error:
        print(f"ddp_torch: {error}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())
