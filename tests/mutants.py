#!/usr/bin/python3
"""Measures what the suites catch: makes mutants of weft's sources and runs the suites on each.

    tests/mutants.py [-n 500] [--seed 1] [--skip N] [--folder FOLDER]... [-j N] [--work DIR] [--json FILE]
    tests/mutants.py --list          prints the mutants that would be drawn
    tests/mutants.py --only ID       runs one mutant and prints what the suites print

A mutant is one small mistake: an operator, a constant or a bound that is another one, a condition
that is negated, a statement that is left out, or two arguments that are swapped. Each folder has a
share of the mutants by its lines. Mutants that do not compile, or whose object code is the
original's, are drawn again.

The suites of a mutant are those that execute its line, as gcov says, the most specific and quickest
first, until one fails. If none does, they run again with AddressSanitizer, as in `tools/test --full`;
--budget limits the time of each, in seconds of the processor. Survivors that change nothing observable
are listed in tests/mutants.txt with the reason, a line each as this program prints them, and do not
count.

Everything is built below DIR, from a copy of the files that git knows; the sources are not touched.
A second run in DIR goes on where the first one stopped: it repeats the survivors, and the mutants of
files that have changed. Needs python3-clang, gcov and ninja; finding the suites of each line takes
minutes, once.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "support"))
import mutant_builds
import mutant_places
from mutant_builds import FOLDERS, ROOT, digest, fail, run_suite

# ---- Mutants ----

class Mutant:
    def __init__(self, path, text, place):
        self.path, self.place, self.original = path, place, text
        first, last = text.rfind("\n", 0, place.start) + 1, text.find("\n", place.end)
        self.line = text.count("\n", 0, place.start) + 1
        self.before = " ".join(text[first:last].split())
        self.after = " ".join((text[first:place.start] + place.new + text[place.end:last]).split())
        self.id = digest(path, self.before, self.after, place.start - first)

    def text(self):
        return self.original[:self.place.start] + self.place.new + self.original[self.place.end:]

    def __str__(self):
        return f"{self.path}:{self.line}: `{self.before}` -> `{self.after}`"


def places_of(job):
    """The places of a file, from the cache or from clang."""
    work, path, text, commands = job
    finder = pathlib.Path(mutant_places.__file__).read_text()
    cache = pathlib.Path(work) / "places" / digest(finder, path, text, *commands)
    if not cache.exists():
        os.chdir(pathlib.Path(work) / mutant_builds.TRIED[0])
        found = mutant_places.find(str(pathlib.Path(work) / "source" / path), text, commands)
        cache.write_text(json.dumps([[*p[:-1], sorted(p.lines)] for p in found]))
    return path, [mutant_places.Place(*p) for p in json.loads(cache.read_text())]


def parse_arguments(commands):
    """What clang needs of the commands that compile a file: one with kernels, one without."""
    by_kind = {}
    for _, args in commands:
        kept = [a for a in args if re.match("-[ID]|-std|-m|-fopenmp", a)]
        by_kind.setdefault(any("WEFT_KERNEL_ISA" in a for a in kept), kept)
    return list(by_kind.values())


def candidates(tree, folders, seed, jobs):
    """{folder: mutants in the order in which they are drawn}, and each folder's share of the lines."""
    (tree.work / "places").mkdir(exist_ok=True)
    sources = {f: paths for f, paths in tree.sources().items() if f in folders}
    work = [(str(tree.work), p, tree.text(p), parse_arguments(tree.commands[mutant_builds.TRIED[0]][p])) for f in sources for p in sources[f]]
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        places = dict(pool.map(places_of, work))
    drawn, lines = {}, {}
    for folder, paths in sources.items():
        texts = {p: tree.text(p) for p in paths}
        lines[folder] = sum(t.count("\n") for t in texts.values())
        mutants = [Mutant(p, texts[p], place) for p in paths for place in places[p]]
        # The order of a mutant does not depend on the others, so most draws stay the same when files change.
        drawn[folder] = sorted(mutants, key=lambda m: digest(seed, m.id))
    return drawn, {f: n / sum(lines.values()) for f, n in lines.items()}


class Trial:
    """Builds mutants and runs the suites on them."""

    def __init__(self, tree, coverage, budget):
        self.tree, self.coverage, self.budget = tree, coverage, budget
        self.good, self.lock = {}, threading.Lock()
        self.linker = ["-fuse-ld=" + next((l for l in ("mold", "lld", "gold") if shutil.which("ld." + l) or
                                           shutil.which(l)), "bfd")]

    def mirror(self, mutant, folder, name):
        """The sources and the build as links, so that equal code gives equal objects, names of files included."""
        tree = self.tree
        (folder / "source").mkdir()
        (folder / name).mkdir()
        for room in sorted({f.split("/")[0] for f in FOLDERS}):
            subprocess.run(["cp", "-rs", tree.source / room, folder / "source"], check=True)
        for part in (tree.work / name).iterdir():
            (folder / name / part.name).symlink_to(part)
        (folder / "source" / mutant.path).unlink()
        (folder / "source" / mutant.path).write_text(mutant.text())

    def build(self, mutant, folder, name):
        """True if the program is built, or "broken" or "equal"."""
        build, objects, differs = self.tree.work / name, [], False
        self.mirror(mutant, folder, name)
        for output, args in self.tree.commands[name][mutant.path]:
            objects.append(str(folder / f"{len(objects)}.o"))
            command = args[:args.index("-MD")] + ["-w", "-o", objects[-1]] + args[args.index("-c"):]
            if subprocess.run(command, cwd=folder / name, capture_output=True).returncode != 0:
                return "broken"
            differs |= pathlib.Path(objects[-1]).read_bytes() != (build / output).read_bytes()
        return self.link("weft_tests", folder, name) or "broken" if differs else "equal"

    def link(self, program, folder, name):
        """Links a program, unless it is there. Symbols of the mutant's objects come before the library's."""
        target = str(folder / program)
        if os.path.exists(target):
            return True
        link = list(self.tree.links[name][program])
        at = link.index("-o")
        link[at:at + 2] = ["-o", target, *self.linker, *map(str, folder.glob("*.o"))]
        return subprocess.run(link, cwd=self.tree.work / name, capture_output=True).returncode == 0

    def run(self, mutant, show=False):
        """The fate of a mutant: {"fate": broken, equal, killed, timeout or survived, ...}."""
        started = time.monotonic()
        for name in mutant_builds.TRIED:
            with tempfile.TemporaryDirectory(dir=self.tree.work) as made:
                folder = pathlib.Path(made)
                built = self.build(mutant, folder, name)
                if built is not True and name != mutant_builds.TRIED[0]:
                    break  # code that differs in the first build only
                result = {"fate": built} if built is not True else self.suites(mutant, folder, name, show)
            if result["fate"] != "survived":
                break
        return dict(result, id=mutant.id, path=mutant.path, line=mutant.line, kind=mutant.place.kind,
                    before=mutant.before, after=mutant.after, seconds=round(time.monotonic() - started, 1))

    def usual(self, suite, name):
        """The processor's seconds of a suite without a mutant, in the same build; None if it fails then."""
        with self.lock:
            if (suite, name) not in self.good:
                status, _, seconds = run_suite(self.tree.work / name / "tests", suite, 3600)
                self.good[suite, name] = seconds if status == "passed" else None
                if status != "passed":
                    print(f"{suite} fails without a mutant", flush=True)
            return self.good[suite, name]

    def suites(self, mutant, folder, name, show):
        spent, ran = 0, []
        for suite in self.coverage.suites_of(mutant.path, mutant.place.lines):
            # It makes every allocation fail, for two minutes with a sanitizer.
            if suite == "memory" and name != mutant_builds.TRIED[0]:
                continue
            usual = self.coverage.suites[suite]["seconds"]
            if ran and spent + usual > self.budget:
                continue
            spent += usual
            ran.append(suite)
            self.link(mutant_builds.command_of(suite)[0], folder, name)
            status, printed, _ = run_suite(folder, suite, 20 + 6 * usual)
            # A sanitizer may slow a suite down by more than that.
            if status == "timeout" and (self.usual(suite, name) or 0) > usual:
                status, printed, _ = run_suite(folder, suite, 20 + 6 * self.usual(suite, name))
            if show:
                print(printed)
            if status != "passed" and self.usual(suite, name) is not None:
                return {"fate": "killed" if status == "failed" else "timeout", "suite": suite, "suites": ran}
        return {"fate": "survived", "suites": ran}


# ---- The campaign ----

class Results:
    """Fates by mutant in DIR/results.jsonl, of the files as they are now; and the accepted survivors."""

    def __init__(self, tree):
        self.tree, self.path = tree, tree.work / "results.jsonl"
        self.fates, self.stamps = {}, {p: digest(tree.text(p)) for p in tree.commands[mutant_builds.TRIED[0]] if (tree.source / p).exists()}
        for line in self.path.read_text().splitlines() if self.path.exists() else []:
            fate = json.loads(line)
            if fate["stamp"] == self.stamps.get(fate["path"]):
                self.fates[fate["id"]] = fate
        listed = (ROOT / "tests" / "mutants.txt").read_text()
        self.accepted = {m[1] for m in re.finditer(r"^(\S+: `.*` -> `.*`): .", listed, re.M)}

    def add(self, fate):
        fate["stamp"] = self.stamps[fate["path"]]
        self.fates[fate["id"]] = fate
        with self.path.open("a") as file:
            file.write(json.dumps(fate) + "\n")

    def is_accepted(self, fate):
        return f"{fate['path']}: `{fate['before']}` -> `{fate['after']}`" in self.accepted


class Campaign:
    def __init__(self, options, tree, results, drawn, shares):
        self.options, self.tree, self.results = options, tree, results
        exact = {f: options.n * s for f, s in shares.items()}
        self.drawn = {f: mutants[round(options.skip * shares[f]):] for f, mutants in drawn.items()}
        self.quota = {f: int(x) for f, x in exact.items()}
        for f in sorted(exact, key=lambda f: self.quota[f] - exact[f])[:options.n - sum(self.quota.values())]:
            self.quota[f] += 1
        self.counted = {f: [] for f in drawn}
        self.other = collections.Counter()
        self.ran = 0

    def take(self, folder, fate):
        if fate["fate"] in ("broken", "equal"):
            self.other[folder, fate["fate"]] += 1
        else:
            self.counted[folder].append(fate)

    def run(self, trial):
        """Draws from each folder until its quota is reached; a mutant that does not count is replaced."""
        self.rest, flying = {f: iter(self.drawn[f]) for f in self.drawn}, {}
        self.started = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(self.options.j) as pool:
            while True:
                self.fill(trial, pool, flying)
                if not flying:
                    break
                done, _ = concurrent.futures.wait(flying, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    folder, fate = flying.pop(future), future.result()
                    self.results.add(fate)
                    self.take(folder, fate)
                    self.ran += 1
                    self.progress()

    def fill(self, trial, pool, flying):
        """Submits mutants, or takes their known fates, from the folder that lacks most of its quota."""
        while len(flying) < 2 * self.options.j:
            lacking = {f: self.quota[f] - len(self.counted[f]) - list(flying.values()).count(f) for f in self.rest}
            folder = max(lacking, key=lambda f: lacking[f] / (self.quota[f] or 1))
            if lacking[folder] <= 0:
                return
            mutant = next(self.rest[folder], None)
            if mutant is None:
                self.quota[folder] = 0
                continue
            old = self.results.fates.get(mutant.id)
            if old and (old["fate"] != "survived" or self.results.is_accepted(old) or self.options.keep):
                self.take(folder, old)
            else:
                flying[pool.submit(trial.run, mutant)] = folder

    def fates(self):
        return [fate for fates in self.counted.values() for fate in fates]

    def progress(self):
        fates = self.fates()
        count = collections.Counter(f["fate"] for f in fates)
        each = (time.monotonic() - self.started) / self.ran
        print(f"{len(fates)}/{self.options.n}: {count['killed']} killed, {count['timeout']} timeouts, "
              f"{count['survived']} survived; about {each * (self.options.n - len(fates)) / 60:.0f} min left", flush=True)

    def report(self):
        print("\n| folder | mutants | killed | of these by time | survived | listed | equal code | score |\n" + "|---" * 8 + "|")
        total = collections.Counter()
        for folder, fates in self.counted.items():
            row = collections.Counter(f["fate"] for f in fates)
            row["listed"] = sum(f["fate"] == "survived" and self.results.is_accepted(f) for f in fates)
            row["equal"] = self.other[folder, "equal"]
            total.update(row)
            print(self.row(folder, row))
        print(self.row("all", total) + "\n")
        for fate in sorted(self.fates(), key=lambda f: (f["path"], f["line"])):
            if fate["fate"] == "survived" and not self.results.is_accepted(fate):
                print(f"{fate['path']}:{fate['line']}: `{fate['before']}` -> `{fate['after']}`\n"
                      f"    {fate['id']}; suites: {' '.join(fate['suites']) or 'none executes it'}")

    @staticmethod
    def row(name, row):
        killed, survived = row["killed"] + row["timeout"], row["survived"] - row["listed"]
        score = f"{killed / (killed + survived):.3f}" if killed + survived else "-"
        return (f"| {name} | {killed + row['survived']} | {killed} | {row['timeout']} | {survived} | {row['listed']} | "
                f"{row['equal']} | {score} |")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=int, default=500, help="mutants (default 500)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--skip", type=int, default=0, help="mutants to leave out at the beginning, which an earlier run has tried")
    parser.add_argument("--folder", action="append", choices=FOLDERS, help="only mutants of this folder")
    parser.add_argument("-j", type=int, default=os.cpu_count(), help="mutants at a time (default: processors)")
    parser.add_argument("--work", type=pathlib.Path, help="where to build, and to keep results (default: a temporary folder)")
    parser.add_argument("--budget", type=float, default=120, help="seconds of suites for each mutant (default 120)")
    parser.add_argument("--keep", action="store_true", help="survivors of an earlier run in DIR are not repeated")
    parser.add_argument("--json", type=pathlib.Path, help="writes all results")
    parser.add_argument("--list", action="store_true", help="prints the mutants instead of running them")
    parser.add_argument("--only", metavar="ID", help="runs one mutant")
    return parser.parse_args()


def main():
    options = parse()
    work = (options.work or pathlib.Path(tempfile.mkdtemp(prefix="mutants-"))).absolute()
    work.mkdir(parents=True, exist_ok=True)
    tree = mutant_builds.Tree(work)
    tree.copy()
    for name in mutant_builds.TRIED:
        tree.make(name)
    tree.load()
    drawn, shares = candidates(tree, options.folder or FOLDERS, options.seed, options.j)
    results = Results(tree)
    campaign = Campaign(options, tree, results, drawn, shares)
    if options.list:
        for folder, mutants in campaign.drawn.items():
            for mutant in mutants[:campaign.quota[folder]]:
                print(f"{mutant.id} {mutant}")
        return 0
    coverage = mutant_builds.Coverage(tree, options.j)
    coverage.measure()
    trial = Trial(tree, coverage, options.budget)
    if options.only:
        mutant = next((m for mutants in drawn.values() for m in mutants if m.id == options.only), None)
        if not mutant:
            fail(f"there is no mutant {options.only}; --list prints those that are drawn")
        print(mutant, trial.run(mutant, show=True)["fate"], sep="\n")
        return 0
    campaign.run(trial)
    campaign.report()
    if options.json:
        options.json.write_text(json.dumps(campaign.fates(), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
