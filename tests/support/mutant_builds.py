"""The builds in which tests/mutants.py runs the suites, and which suites execute a line."""
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

FOLDERS = ["graph", "ops", "autograd", "distributed", "models/training", "formats/onnx", "models/decoding"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OPTIONS = ["--buildtype=release", "-Doptimization=1", "-Dwerror=false", "-Dwarning_level=0", "-Ddefault_library=static",
           "-Dmpi=disabled", "-Dwatch=disabled", "-Dgraphviz=disabled", "-Dman=disabled", "-Db_lundef=false"]
# A mutant that the suites accept in the first build, which is quick, is tried in the second.
TRIED = ["plain", "sanitized"]
BUILDS = {"plain": ["-Dc_args=-O1"], "sanitized": ["-Db_sanitize=address"], "coverage": ["-Db_coverage=true", "-Dc_args=-O1"]}
# Suites are of weft_tests, and these.
PROGRAMS = {"onnx_cases": ["onnx_conformance", "--at-least", "1004"],
            "newer_onnx_cases": ["onnx_conformance", "--at-least", "65", f"{ROOT}/tests/golden/onnx"]}
TARGETS = ["weft_tests", "onnx_conformance"]
ENVIRONMENT = dict(os.environ, OMP_WAIT_POLICY="passive", ASAN_OPTIONS="detect_leaks=1:hard_rss_limit_mb=8000:verify_asan_link_order=0",
                   LSAN_OPTIONS=f"suppressions={ROOT}/tests/lsan.txt:print_suppressions=0")


def fail(message):
    sys.exit(f"tests/mutants.py: {message}")


def call(command, folder):
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        fail(f"{' '.join(map(str, command[:4]))} failed:\n{done.stdout[-3000:]}")
    return done.stdout


def digest(*texts):
    return hashlib.sha1("\0".join(map(str, texts)).encode()).hexdigest()[:12]


# ---- The copy and its builds ----

class Tree:
    """A copy of the sources, its builds, and one that counts lines."""

    def __init__(self, work):
        self.work, self.source = work, work / "source"

    def copy(self):
        """Files that have not changed keep their times, so that little is built again."""
        names = call(["git", "ls-files"], ROOT).splitlines()
        for name in names:
            old, new = ROOT / name, self.source / name
            if not old.is_file() or (new.exists() and new.read_bytes() == old.read_bytes()):
                continue
            new.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(old, new)

    def make(self, name):
        folder = self.work / name
        if not (folder / "build.ninja").exists():
            call(["meson", "setup", folder, *OPTIONS, *BUILDS[name]], self.source)
        call(["ninja", *(f"tests/{t}" for t in TARGETS)], folder)

    def load(self):
        """Commands that compile the files, by build and file, and those that link the programs."""
        best = best_isa()
        self.commands = {name: collections.defaultdict(list) for name in TRIED}
        self.links = {}
        for name in TRIED:
            build = self.work / name
            for entry in json.loads((build / "compile_commands.json").read_text()):
                path = os.path.normpath(build / entry["file"])
                isa = re.search(r"-DWEFT_KERNEL_ISA=(\S+)", entry["command"])
                if not isa or isa[1] in best:
                    args = [a for a in shlex.split(entry["command"]) if a != "ccache"]
                    self.commands[name][os.path.relpath(path, self.source)].append((entry["output"], args))
            self.links[name] = {t: shlex.split(call(["ninja", "-t", "commands", f"tests/{t}"], build).splitlines()[-1])
                                for t in TARGETS}
        self.suites = re.findall(r"X\((\w+)\)", (self.work / TRIED[0] / "tests" / "suites.h").read_text()) + list(PROGRAMS)

    def sources(self):
        """The files that are mutated, by folder."""
        return {f: sorted(p for p in self.commands[TRIED[0]] if p.startswith(f + "/")) for f in FOLDERS}

    def objects(self):
        """Those that are compiled from the files that are mutated."""
        return [o for paths in self.sources().values() for p in paths for o, _ in self.commands[TRIED[0]][p]]

    def text(self, path):
        return (self.source / path).read_bytes().decode()


def best_isa():
    """The instruction sets of which this processor runs the kernels."""
    flags = set(re.search(r"^flags\s*:(.*)", pathlib.Path("/proc/cpuinfo").read_text(), re.M)[1].split())
    if "avx512vl" in flags:
        return {"v4"} | {isa for isa, flag in (("v4_bf16", "avx512_bf16"), ("v4_amx", "amx_bf16")) if flag in flags}
    return {"v3"} if "avx2" in flags else {"base"}


# ---- Which suites execute a line ----

class Coverage:
    """Which lines each suite executes, {suite: {"lines": {file: [line, ...]}, "seconds": ...}}, and which lines can
    be executed, {file: [line, ...]}."""

    def __init__(self, tree, jobs):
        self.tree, self.jobs = tree, jobs
        self.path = tree.work / "coverage.json"
        self.suites, self.known = json.loads(self.path.read_text()) if self.path.exists() else ({}, {})

    def measure(self):
        """Suites whose tests, or the sources, have changed since they were measured."""
        tree = self.tree
        library = digest(*(tree.text(p) for paths in tree.sources().values() for p in paths))
        stamps = {s: digest(library, *(p.read_text() for p in tree.source.glob(f"tests/*/{s}_test.c")))
                  for s in tree.suites}
        old = [s for s in tree.suites if self.suites.get(s, {}).get("stamp") != stamps[s]]
        if not old:
            return
        tree.make("coverage")
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for suite, (found, known) in zip(old, pool.map(self.lines_of, old)):
                print(f"\rlines of {suite:24}", end="", flush=True)
                self.suites[suite] = dict(found, stamp=stamps[suite])
                self.known.update(known)
                self.path.write_text(json.dumps([self.suites, self.known]))
        print()

    def lines_of(self, suite):
        """Runs a suite in the build that counts lines."""
        tree, build = self.tree, self.tree.work / "coverage"
        with tempfile.TemporaryDirectory(dir=tree.work) as folder:
            place = pathlib.Path(folder + str(build))
            shutil.copytree(build, place, ignore=lambda d, names: [
                n for n in names if not n.endswith(".gcno") and not os.path.isdir(f"{d}/{n}")])
            _, _, seconds = run_suite(build / "tests", suite, 3600, dict(ENVIRONMENT, GCOV_PREFIX=folder), whole=True)
            data = [str(place / f"{o[:-2]}.gcda") for o in tree.objects() if (place / f"{o[:-2]}.gcda").exists()]
            out = call(["gcov", "--json-format", "--stdout", *data], folder)
        lines, known = collections.defaultdict(set), collections.defaultdict(set)
        for entry in (e for text in out.splitlines() for e in json.loads(text)["files"]):
            name = os.path.relpath(os.path.join(build, entry["file"]), tree.source)
            if name.startswith(tuple(FOLDERS)):
                lines[name].update(l["line_number"] for l in entry["lines"] if l["count"])
                known[name].update(l["line_number"] for l in entry["lines"])
        listed = [{name: sorted(numbers) for name, numbers in d.items()} for d in (lines, known)]
        return {"lines": listed[0], "seconds": seconds}, listed[1]

    def suites_of(self, path, lines):
        """The suites that execute one of the lines or their neighbours, as the compiler moves code, or, where gcov
        knows none of them, the file."""
        near = {line + d for line in lines for d in range(-3, 4)}
        known, chosen = near.intersection(self.known.get(path, [])), []
        for name, suite in self.suites.items():
            if name not in self.tree.suites:
                continue
            ran = suite["lines"].get(path, [])
            if ran if not known else known.intersection(ran):
                everything = sum(map(len, suite["lines"].values()))
                chosen.append(((suite["seconds"] + 1) * everything / len(ran), name))
        return [name for _, name in sorted(chosen)]


def command_of(suite):
    return PROGRAMS.get(suite, ["weft_tests", suite])


def run_suite(programs, suite, seconds, environment=ENVIRONMENT, whole=False):
    """passed, failed or timeout, what was printed, and the processor's seconds; ends at the first failure unless `whole`.
    A suite has `seconds` of the processor, and a multiple of the clock."""
    def limit():
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    program, *arguments = command_of(suite)
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(["stdbuf", "-oL", f"{programs}/{program}", *arguments], cwd=folder, env=environment, text=True,
                                   errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=limit)
        late, printed, failed = [], [], False

        def stop():
            late.append(True)
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(60 + 30 * seconds, stop)
        timer.start()
        for line in process.stdout:
            printed.append(line)
            if line.endswith("FAILED\n"):
                failed = True
                if whole:
                    continue
                os.killpg(process.pid, signal.SIGKILL)
                break
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        timer.cancel()
    signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    fate = "timeout" if late or signalled == signal.SIGXCPU else "failed" if failed or status else "passed"
    return fate, "".join(printed), usage.ru_utime + usage.ru_stime
