#!/usr/bin/env python3
"""A run of `weft train`, repeated in PyTorch: same initial parameters, batches, optimiser and schedule.

    train_torch.py RUN [--out FOLDER] [--steps N]
    train_torch.py RUN --check [--steps N]

RUN is the folder of a run of `transformer` (pre- or post-norm) or `gpt`. What is repeated: the recipe's texts by
the run's vocabulary, classes of length, batches and their order (weft's own shuffle, number by number), the
model with its initial parameters, dropout at the same places, label smoothing, Adam or SGD with the same groups
of decay, clipping, accumulation, schedule, moving average, and validation on the same batches. Dropout draws
numbers other than weft's; all else is equal but for rounding. A run by minutes is repeated in as many steps as it
made, with the learning rates of its metrics. The model is nn.TransformerEncoder and nn.TransformerDecoder.

FOLDER (RUN/torch) becomes a folder like that of a run, so that `weft plot`, `weft translate`, `weft generate` and
`weft train --validate` take it: recipe.json, vocabulary, metrics.jsonl (a line of JSON for every log_every steps
and each validation; "seconds" since the start of training, validation included, "training_seconds" without),
model.safetensors (parameters only) and best.safetensors by weft's names. At the end weft itself validates them.

--check takes a run made with dropout=0 (best with log_every 1) and holds losses, norms of gradients and
validation losses against those in RUN/metrics.jsonl. Exit status: 0 they agree, 1 they do not, or an error.

Needs PyTorch, NumPy, spm_encode (Debian: python3-torch, sentencepiece) and the program weft.
"""
import argparse
import json
import math
import os
import shutil
import sys
import time

import numpy
import torch
import torch.nn.functional as F
from torch import nn

from torch_models import make_model
from weft_run import (PAD, Batches, Failed, call, first_parameters, load_tensors, model_options, read_corpus,
                      read_json, read_metrics, save_tensors)

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", ".."))


def use_best_settings(threads):
    """Starts this program again with what PyTorch reads only at its start: OpenBLAS's AVX-512 kernels where the
    processor has AVX-512 (it may not know the processor), and a malloc that keeps its memory."""
    keep = str(1 << 33)
    wanted = {"MALLOC_TRIM_THRESHOLD_": keep, "MALLOC_MMAP_THRESHOLD_": keep, "OMP_NUM_THREADS": str(threads)}
    with open("/proc/cpuinfo") as f:
        if " avx512vl" in f.read():
            wanted["OPENBLAS_CORETYPE"] = "SkylakeX"
    if any(os.environ.get(k) != v for k, v in wanted.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **wanted})


# ---- Training ----


def name_matches(patterns, name):
    """As weft_name_matches: commas between patterns, stars for any text."""
    def fits(pattern):
        first, *parts = pattern.split("*")
        if not parts:
            return name == pattern
        if not name.startswith(first) or not name.endswith(parts[-1]) or len(name) < len(first) + len(parts[-1]):
            return False
        at, end = len(first), len(name) - len(parts[-1])
        for part in parts[:-1]:
            at = name.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True
    return any(p and fits(p) for p in patterns.split(","))


def rate(schedule, width, steps):
    """weft_schedule_rate of a schedule by steps."""
    kind, floor, warmup, total = (schedule[key] for key in ("kind", "floor", "warmup", "steps"))
    peak = schedule["lr"] or 1 / math.sqrt(width * max(warmup, 1))
    done = (steps - warmup) / (total - warmup) if total > warmup else float(steps >= total)
    done = min(max(done, 0), 1)
    lr = {"linear": lambda: floor + (peak - floor) * (1 - done),
          "cosine": lambda: floor + (peak - floor) * (1 + math.cos(math.pi * done)) / 2,
          "inverse-sqrt": lambda: max(floor, peak * min(1, math.sqrt(max(warmup, 1) / (steps + 1)))),
          "constant": lambda: peak}[kind]()
    return lr if steps + 1 >= warmup else min(lr, peak * (steps + 1) / warmup)


def make_rate(recipe, metrics, width):
    """The learning rate by step; in a run by time it is the logged one, interpolated between log lines."""
    if recipe["schedule"]["steps"]:
        return lambda steps: rate(recipe["schedule"], width, steps)
    logged = [(line["step"], line["lr"]) for line in metrics if "lr" in line]
    if not logged:
        raise Failed("a run by time has its learning rates in metrics.jsonl, where there is none")
    return lambda steps: float(numpy.interp(steps + 1, *zip(*logged)))


def make_optimizer(model, o):
    """Groups with and without decay. Parts of one parameter (q, k, v) must agree."""
    storages = {}
    for tensor, name, _ in model.pairs:
        storages.setdefault(tensor.storage().data_ptr(), set()).add(name_matches(o["no_decay"], name))
    groups = {False: [], True: []}
    for p in model.parameters():
        kept = storages[p.storage().data_ptr()]
        if len(kept) > 1:
            raise Failed("no_decay separates q, k and v, which PyTorch has in one parameter")
        groups[kept.pop()].append(p)
    groups = [{"params": groups[False], "weight_decay": o["weight_decay"]}, {"params": groups[True], "weight_decay": 0}]
    groups = [g for g in groups if g["params"]]
    if o["kind"] == "sgd":
        return torch.optim.SGD(groups, lr=1, momentum=o["momentum"], nesterov=o["nesterov"])
    kind = torch.optim.AdamW if o["kind"] == "adamw" else torch.optim.Adam
    return kind(groups, lr=1, betas=(o["beta1"], o["beta2"]), eps=o["eps"], foreach=True)


class Trainer:
    def __init__(self, recipe, options, model, train, valid, rate_of):
        self.r, self.model, self.train, self.valid, self.rate_of = recipe, model, train, valid, rate_of
        self.smoothing = options.get("label_smoothing", 0)
        self.optimizer = make_optimizer(model, recipe["optimizer"])
        self.params = list(model.parameters())
        self.ema = recipe["optimizer"]["ema"]
        self.averages = [torch.zeros_like(p) for p in self.params] if self.ema else None
        self.step, self.epoch, self.batch = 0, 0, 0
        self.smoothed = math.nan
        self.norm = self.lr = self.loss = 0.0
        self.tokens = 0

    def next_batch(self):
        if self.batch >= len(self.train):
            self.batch = 0
            self.epoch += 1
            self.train.start(self.epoch)
        self.batch += 1
        return self.train.fill(self.batch - 1)

    def losses(self, source, into, out, smoothing):
        logits = self.model(source, into)
        return F.cross_entropy(logits.flatten(0, 1), out.flatten(), ignore_index=PAD, label_smoothing=smoothing)

    def gradients(self):
        """Of one batch, or of several weighed by their numbers of targets."""
        parts = self.r["batches"]["accumulate"]
        self.optimizer.zero_grad(set_to_none=True)
        self.loss, self.tokens = 0.0, 0
        for _ in range(parts):
            source, into, out, tokens = self.next_batch()
            loss = self.losses(source, into, out, self.smoothing)
            (loss if parts == 1 else loss * tokens).backward()
            self.loss += loss.item() * (1 if parts == 1 else tokens)
            self.tokens += tokens
        if parts > 1:
            self.loss /= self.tokens
            for p in self.params:
                p.grad.div_(self.tokens)

    def update(self):
        self.model.train()
        self.gradients()
        clip = self.r["optimizer"]["clip"]
        self.norm = float(nn.utils.clip_grad_norm_(self.params, clip if clip else math.inf))
        if not math.isfinite(self.norm) or not math.isfinite(self.loss):
            raise Failed(f"step {self.step + 1} was not made: the loss is {self.loss}, the gradient's norm {self.norm}")
        self.lr = self.rate_of(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr
        self.optimizer.step()
        if self.ema:
            share = 1 - min(self.ema, self.step / (self.step + 10))
            with torch.no_grad():
                for average, p in zip(self.averages, self.params):
                    average.lerp_(p, share)
        self.step += 1
        self.smoothed = self.loss if math.isnan(self.smoothed) else 0.98 * self.smoothed + 0.02 * self.loss

    def swap_average(self):
        """Puts the averages in the model's place, and back."""
        if self.ema and self.step:
            for average, p in zip(self.averages, self.params):
                kept = average.clone()
                average.copy_(p.data)
                p.data.copy_(kept)

    def validate(self):
        """Nats a target token, with the averages if there are; also the model as it is saved."""
        self.model.eval()
        self.swap_average()
        total, tokens = 0.0, 0
        most = self.r["run"]["valid_batches"] or len(self.valid)
        with torch.inference_mode():
            for i in range(min(most, len(self.valid))):
                source, into, out, n = self.valid.fill(i)
                total += n * float(self.losses(source, into, out, 0.0))
                tokens += n
            found = {name: t.clone() for name, t in self.model.written().items()}
        self.swap_average()
        return total / tokens, found


# ---- The run ----


def progress(text, last=False):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="\n" if last else "", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def clock(seconds):
    return f"{int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"


class Run:
    """The folder that is repeated, and the one that is written."""

    def __init__(self, arguments):
        self.a = arguments
        self.recipe = read_json(os.path.join(arguments.run, "recipe.json"))
        self.metrics = read_metrics(arguments.run)
        options = self.recipe.get("model_options", {})
        if "batches" not in self.recipe or "vocab" not in options:
            raise Failed(f"{arguments.run}/recipe.json: is not that of a run")
        if self.recipe["model"] not in ("transformer", "transformer-base", "gpt"):
            raise Failed(f"the model {self.recipe['model']} is not repeated here, only transformer and gpt")
        last = max((line["step"] for line in self.metrics), default=0)
        self.steps = arguments.steps or (last if arguments.check else self.recipe["schedule"]["steps"] or last)
        if not self.steps:
            raise Failed(f"{arguments.run}: its steps are not known (no schedule.steps, no metrics): give --steps")
        self.best, self.best_step, self.stale = math.inf, 0, 0

    def prepare(self):
        a, data = self.a, self.recipe["data"]
        progress("reading weft's first parameters")
        tensors, self.meta = load_tensors(a.weights) if a.weights else first_parameters(a.run, self.recipe, a.weft)
        # The checkpoint has every option, and the vocabulary's true size.
        options = model_options(self.meta)
        if self.meta.get("model") != self.recipe["model"]:
            raise Failed(f"{a.weights}: is of {self.meta.get('model')}, the run is of {self.recipe['model']}")
        if a.check and options["dropout"] != 0:
            raise Failed(f"--check needs a run with dropout=0, {a.run} has {options['dropout']:g}")
        progress("reading texts")
        pairs = self.recipe["model"] != "gpt"
        blocks = not pairs and self.recipe["batches"]["mode"] != "lines"
        train = Batches(read_corpus(a.run, data["source"], data["target" if pairs else "text"]), self.recipe, blocks,
                        "training")
        name = data["valid_target" if pairs else "valid_text"]
        valid = Batches(read_corpus(a.run, data["valid_source"], name), self.recipe, blocks, name) if name else None
        torch.manual_seed(self.recipe["run"]["seed"])
        model = make_model(self.recipe, options, self.recipe["batches"]["lengths"][-1])
        model.read(tensors)
        rates = make_rate(self.recipe, self.metrics, model.width)
        self.trainer = Trainer(self.recipe, options, model, train, valid, rates)

    def open_folder(self):
        out = self.a.out
        if os.path.exists(os.path.join(out, "metrics.jsonl")) and not self.a.check:
            raise Failed(f"{out}: has a run already; another --out keeps it")
        os.makedirs(out, exist_ok=True)
        for name in ("recipe.json", "vocab.model", "vocab.source.model", "vocab.target.model"):
            if os.path.exists(os.path.join(self.a.run, name)):
                shutil.copy(os.path.join(self.a.run, name), out)
        self.file = open(os.path.join(out, "metrics.jsonl"), "w")

    def write(self, line):
        self.file.write(json.dumps(line) + "\n")
        self.file.flush()

    def validation_steps(self):
        """Where weft validated; in a run by time, according to its metrics."""
        every = self.recipe["run"]["valid_every"] or self.recipe["schedule"]["steps"] // 20
        if not every and self.recipe["schedule"]["steps"]:
            every = 1
        if every:
            steps = set(range(every, self.steps + 1, every))
        else:
            steps = {line["step"] for line in self.metrics if "validation_loss" in line}
        return steps | {self.steps}

    def save(self, name, tensors, step):
        meta = {k: self.meta[k] for k in ("model", "model_options")}
        save_tensors(os.path.join(self.a.out, name), tensors, {**meta, "step": str(step)})

    def validate(self, begin, training):
        t = self.trainer
        loss, found = t.validate()
        best = loss < self.best
        if best:
            self.best, self.best_step, self.stale = loss, t.step, 0
            self.save("best.safetensors", found, t.step)
        else:
            self.stale += 1
        self.write({"step": t.step, "validation_loss": loss, "best": best, "seconds": time.perf_counter() - begin,
                    "training_seconds": training})
        return loss

    def train(self):
        t, every = self.trainer, self.recipe["run"]["log_every"]
        steps, patience = self.validation_steps() if t.valid else set(), self.recipe["run"]["patience"]
        begin = shown = time.perf_counter()
        training, loss, tokens = 0.0, math.nan, 0
        while t.step < self.steps and not (patience and self.stale >= patience):
            before = time.perf_counter()
            t.update()
            now = time.perf_counter()
            training += now - before
            tokens += t.tokens
            if t.step % every == 0:
                self.write({"step": t.step, "epoch": t.epoch, "loss": t.loss, "smoothed": t.smoothed, "lr": t.lr,
                            "norm": t.norm, "tokens": t.tokens, "seconds": now - begin, "training_seconds": training,
                            "tokens_per_second": t.tokens / (now - before)})
            if t.step in steps:
                loss = self.validate(begin, training)
            if now - shown >= (0.5 if sys.stderr.isatty() else 10) or t.step in (1, self.steps):
                shown, left = now, (self.steps - t.step) * (now - begin) / t.step
                progress(f"step {t.step} of {self.steps}  loss {t.loss:.3f} ({t.smoothed:.3f})"
                         + (f"  validation {loss:.3f}" if not math.isnan(loss) else "")
                         + f"  {clock(left)} left  {tokens / training:.0f} tokens/s", last=t.step == self.steps)
        if t.valid and t.step not in steps:
            loss = self.validate(begin, training)
        self.save("model.safetensors", t.model.written(), t.step)
        result = {"steps": t.step, "seconds": time.perf_counter() - begin, "training_seconds": training,
                  "seconds_per_step": training / t.step, "tokens_per_second": tokens / training, "loss": t.smoothed}
        if t.valid:
            result.update(validation_loss=loss, best_validation_loss=self.best, best_step=self.best_step)
            text = call([self.a.weft, "train", "--out", self.a.out, "--json", "--validate",
                         os.path.join(self.a.out, "best.safetensors")])
            own = json.loads(text)
            result["best_validation_loss_by_weft"] = own["validation_loss"]
            if own["bits_per_character"] is not None:
                result["best_bits_per_character_by_weft"] = own["bits_per_character"]
        return result


def compare(run, out, tolerance):
    """Holds the lines of both metrics against each other, step by step. Rounding grows from step to step, so that
    the first loss has a narrower bound."""
    lines = read_metrics(out)
    theirs = {line["step"]: line for line in lines if "loss" in line}
    validations = {line["step"]: line for line in lines if "validation_loss" in line}
    worst, first, count = {"loss": 0.0, "norm": 0.0, "validation_loss": 0.0}, None, 0
    for line in run.metrics:
        pairs = [(key, theirs) for key in ("loss", "norm") if key in line]
        pairs += [("validation_loss", validations)] if "validation_loss" in line else []
        for key, other in pairs:
            if line["step"] not in other:
                continue
            difference = abs(other[line["step"]][key] / line[key] - 1)
            if first is None:
                first = {"step": line["step"], "loss": line["loss"], "difference": difference}
            worst[key] = max(worst[key], difference)
            count += key == "loss"
    if not count:
        raise Failed(f"{run.a.run}/metrics.jsonl: has no step to compare with")
    return {"steps_compared": count, "first": first, "greatest_relative_differences": worst,
            "agree": first["difference"] <= 1e-4 and max(worst.values()) <= tolerance}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", help="folder of a run of weft train")
    parser.add_argument("--out", metavar="FOLDER", help="of this run (RUN/torch)")
    parser.add_argument("--steps", type=int, default=0, metavar="N", help="to make (those of the run)")
    parser.add_argument("--check", action="store_true", help="compare with the run, which has dropout=0")
    parser.add_argument("--tolerance", type=float, default=1e-3, metavar="X",
                        help="of --check: most relative difference at any step (1e-3; of the first loss it is 1e-4)")
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint to start from (that of weft before step 1)")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="(those of the run, or all)")
    parser.add_argument("--weft", default=os.path.join(ROOT, "build", "tools", "weft"), metavar="PROGRAM")
    a = parser.parse_args()
    try:
        run = Run(a)
        threads = a.threads or run.recipe["run"]["threads"] or len(os.sched_getaffinity(0))
        use_best_settings(threads)
        torch.set_num_threads(threads)
        a.out = a.out or os.path.join(a.run, "check" if a.check else "torch")
        run.prepare()
        run.open_folder()
        result = {"torch": torch.__version__, "threads": threads, **run.train()}
        if a.check:
            result.update(compare(run, a.out, a.tolerance))
    except Failed as error:
        print(f"train_torch: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ntrain_torch: interrupted", file=sys.stderr)
        return 1
    print(json.dumps(result, indent=1))
    return 0 if result.get("agree", True) else 1


sys.exit(main())
