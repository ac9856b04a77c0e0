#!/usr/bin/env python3
"""Runs weft's tests through `meson test`, several folders of builds side by side, and sums their results up.

tools/test installs what is missing and calls this. What a test is stands in tests/meson.build.
"""
import argparse
import fnmatch
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parent.parent

DESCRIPTION = """\
Builds weft in the folder build and runs its tests: CUnit suites, the program from outside, the documents' small
programs, formatting. Without arguments: all but those that are marked slow. Ends with CUnit's summary."""
NAMES = """\
SUITE is the name of a test, a pattern such as 'conv*', a room (graph, ops, autograd, models, onnx, tools, mpi, api,
docs, packages) or a label (unit, cli, docs, style, package, matrix, fuzz, slow)."""


class Build:
    """A folder of a build, and the tests that run there in a full run."""

    def __init__(self, folder, options=(), clang=False, tests=(), targets=()):
        self.folder, self.options, self.clang = folder, options, clang
        self.tests, self.targets = tests, targets

    def make(self, deadline=None):
        """Sets up and builds; returns whether that succeeded, or None if the deadline came first."""
        environment = dict(os.environ)
        if self.clang:
            cache = "ccache " if shutil.which("ccache") else ""
            environment.update(CC=cache + "clang", CXX=cache + "clang++")
        commands = [["ninja", "-C", self.folder, "--quiet", *self.targets]]
        if not (ROOT / self.folder / "build.ninja").exists():
            commands.insert(0, ["meson", "setup", self.folder, *self.options])
        for command in commands:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            with subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT) as process:
                try:
                    printed, _ = process.communicate(timeout=left)
                except subprocess.TimeoutExpired:
                    process.terminate()  # ninja ends its compilers and removes what they had begun
                    process.communicate()
                    if command[0] == "meson":
                        shutil.rmtree(ROOT / self.folder, ignore_errors=True)
                    return None
            if process.returncode:
                print("\n".join(printed.splitlines()[-30:]))
                return False
        return True

    def introspect(self):
        """meson's list of the tests of this folder."""
        done = subprocess.run(["meson", "introspect", "--tests", self.folder], cwd=ROOT, check=True,
                              capture_output=True, text=True)
        tests = json.loads(done.stdout)
        # meson runs all tests of a name.
        twice = {t["name"] for t in tests if sum(t["name"] == other["name"] for other in tests) > 1}
        if twice:
            sys.exit(f"tools/test: several tests are called {', '.join(sorted(twice))}")
        return tests


GCC = Build("build")
# clang compiles the library, the program and some suites with ThreadSanitizer, and libweft at -O3 in the test platforms.
# ASan is gcc's: the leak checker of clang 14 crashed at the end of a suite with threads of clang's OpenMP. With it, gcc
# compiles at -O1 in a fifth of the time of -O2, and warns of texts that are not cut.
FULL = [
    GCC,
    Build("build-asan", ["-Dbuildtype=custom", "-Doptimization=1", "-Ddebug=true", "-Dc_args=-Wno-format-truncation",
                         "-Db_sanitize=address,undefined", "-Db_lundef=false"]),
    Build("build-tsan", ["-Dbuildtype=custom", "-Doptimization=1", "-Ddebug=true", "-Dc_args=-g1", "-Db_sanitize=thread",
                         "-Db_lundef=false", "-Disa=base"],
          clang=True, tests=["unit"], targets=["tests/weft_tests", "tools/weft"]),
]
COVERAGE = Build("build-coverage", ["-Dbuildtype=debug", "-Db_coverage=true"])


def parse():
    parser = argparse.ArgumentParser(prog="tools/test", description=DESCRIPTION, epilog=NAMES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="run these alone")
    parser.add_argument("-k", metavar="PATTERN", default="",
                        help="run the tests and cases whose names contain PATTERN")
    parser.add_argument("--list", action="store_true", help="list the tests and their cases, and run none")
    parser.add_argument("--full", action="store_true",
                        help="everything: also slow tests, clang, sanitizers, fuzzers, packages")
    parser.add_argument("--coverage", action="store_true",
                        help="measure which lines and branches the CUnit suites reach")
    parser.add_argument("--minutes", type=float, metavar="N",
                        help="with --full: tests that have not ended after N minutes are skipped")
    parser.add_argument("-j", type=int, metavar="N", default=os.cpu_count(),
                        help="how many tests run at a time (default: one a processor)")
    return parser.parse_args()


# ---- Choosing ----


def labels_of(test):
    return {label.split(":")[-1] for label in test["suite"]}


def chosen(tests, wanted, slow):
    """Those that the words name, in the order of the list; without words all, slow ones only if asked for."""
    if not wanted:
        return [t for t in tests if slow or "slow" not in labels_of(t)]
    for word in wanted:
        if not any(fnmatch.fnmatch(t["name"], word) or word in labels_of(t) for t in tests):
            sys.exit(f"tools/test: no test, room or label is called \"{word}\"; tools/test --list names them")
    return [t for t in tests
            if any(fnmatch.fnmatch(t["name"], w) or w in labels_of(t) for w in wanted)]


def has_cases(test):
    return test["protocol"] == "tap" or test["cmd"][0].endswith("weft_tests")


def cases_of(test):
    """The cases that a test would run, by its own list."""
    if not has_cases(test):
        return []
    done = subprocess.run([*test["cmd"], "--list"], capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def matching(tests, pattern):
    """The tests whose own name, or one of whose cases contains the pattern."""
    low = pattern.lower()
    return [t for t in tests
            if any(low in case.lower() for case in cases_of(t)) or not has_cases(t) and low in t["name"].lower()]


# ---- Running ----


def in_order(tests):
    """Their names: those of the highest priority first, otherwise as tests/meson.build declares them."""
    return [t["name"] for t in sorted(tests, key=lambda t: -t["priority"])]


def run(build, names, jobs, pattern="", prefix="", deadline=None, log_name="testlog"):
    """Runs tests of a folder in the order of their names, passing on what meson prints; returns the records of its log.
    Tests that have not ended at the deadline are skipped."""
    log = ROOT / build.folder / "meson-logs" / f"{log_name}.json"
    log.unlink(missing_ok=True)
    if deadline is not None and time.monotonic() >= deadline:
        return [skipped_for_time(build, name) for name in names]
    # A limit only ends tests that hang; many run side by side.
    command = ["meson", "test", "-C", build.folder, "--no-rebuild", "--print-errorlogs", "--num-processes", str(jobs),
               "--timeout-multiplier", "4", "--logbase", log_name]
    environment = dict(os.environ, WEFT_TEST_PATTERN=pattern)
    process = subprocess.Popen(command + names, cwd=ROOT, env=environment, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace")
    timer = None
    if deadline is not None:
        timer = threading.Timer(max(0, deadline - time.monotonic()), process.terminate)
        timer.start()
    for line in process.stdout:
        if not re.match(r"(ninja: |$|Ok: |Expected Fail|Fail: |Unexpected Pass|Skipped: |Timeout: |Full log)", line):
            print(prefix + line, end="", flush=True)
    process.wait()
    late = deadline is not None and time.monotonic() >= deadline
    if timer:
        timer.cancel()
    lines = log.read_text().splitlines() if log.exists() else []
    records = [dict(json.loads(line), folder=build.folder) for line in lines]
    ended = [r for r in records if not (late and r["result"] == "INTERRUPT")]
    known = {r["name"].split(" / ")[-1] for r in ended}
    missing = [name for name in names if name not in known]
    if late:
        return ended + [skipped_for_time(build, name) for name in missing]
    return ended + [{"name": name, "folder": build.folder, "result": "ERROR", "duration": 0.0,
                     "stdout": "meson did not run it\n"} for name in missing if not pattern]


def skipped_for_time(build, name):
    """The record of a test that has not ended at the deadline."""
    return {"name": name, "folder": build.folder, "result": "SKIP", "duration": 0.0, "late": True,
            "stdout": f"skipped: {name}: not ended when the time was over\n"}


# ---- Results ----

CUNIT_LINE = re.compile(r"^ +(suites|tests|asserts) +(\d+) +(\d+) +(\S+) +(\d+) +(\d+|n/a)", re.M)


def counts_of(record):
    """Suites, tests and asserts of a test: {kind: (run, failed)}, from CUnit's summary, TAP or the exit status."""
    if record.get("late"):
        return {}
    text = record.get("stdout") or ""
    rows = CUNIT_LINE.findall(text)
    if rows:
        return {kind: (int(ran), int(failed)) for kind, _, ran, _, failed, _ in rows}
    cases = re.findall(r"^(not )?ok \d+(?:.*?)( # SKIP)?", text, re.M)
    failed = record["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")
    if cases:
        return {"suites": (1, 0), "tests": (len(cases), sum(bool(bad) for bad, _ in cases)), "asserts": (0, 0)}
    return {"suites": (1, 0), "tests": (1, int(failed)), "asserts": (0, 0)}


def skips_of(record):
    """Lines about what could not run, each with its reason."""
    text = (record.get("stdout") or "") + (record.get("stderr") or "")
    found = [f"{record['name']}: {case}{reason}" for case, reason in
             re.findall(r"^(?:ok \d+ - |1\.\.0)(.*?)# SKIP (.*)$", text, re.M)]
    return found + [line.strip()[len("skipped: "):] for line in text.splitlines()
                    if line.strip().startswith("skipped: ") and not re.match(r"\s*skipped: \d+$", line)]


def complaints_of(record):
    """The lines that say why a test failed: those of its cases, or else the last ones."""
    text = record.get("stdout") or ""
    lines = re.findall(r"^(?:not ok|#|Bail out!).*", text, re.M)[:60]
    return lines or (text + (record.get("stderr") or "")).splitlines()[-20:]


def summarise(records, started):
    """Prints the longest tests, what was skipped, what failed, and a summary of all; returns the exit status."""
    def title(record):
        name = record["name"].split(" / ")[-1]
        return name if record["folder"] == "build" else f"{name} ({record['folder']})"

    print("\nThe longest:")
    for record in sorted(records, key=lambda r: -r["duration"])[:10]:
        print(f"  {record['duration']:7.1f} s  {title(record)}")
    skips = {}
    for record in records:
        for line in skips_of(record):
            skips.setdefault(line, []).append(record["folder"])
    if skips:
        print("\nSkipped:")
        for line, folders in skips.items():
            print(f"  {line}" + ("" if folders[0] == "build" else f" ({', '.join(dict.fromkeys(folders))})"))
    failed = [r for r in records if r["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")]
    sums = {kind: [0, 0] for kind in ("suites", "tests", "asserts")}
    for record in records:
        for kind, (ran, bad) in counts_of(record).items():
            sums[kind][0] += ran
            sums[kind][1] += bad
    # A suite that crashed has no summary of its own.
    sums["tests"][1] = max(sums["tests"][1], len(failed))
    print(f"\nRun Summary:    Type  Total    Ran Passed Failed Inactive")
    for kind, (ran, bad) in sums.items():
        passed = "n/a" if kind == "suites" else ran - bad
        inactive = "n/a" if kind == "asserts" else 0
        print(f"{kind:>20} {ran:6d} {ran:6d} {passed:>6} {0 if kind == 'suites' else bad:6d} {inactive:>8}")
    print(f"\nElapsed time = {time.monotonic() - started:8.3f} seconds")
    for record in failed:
        for line in complaints_of(record):
            print(f"  {line}")
        print(f"FAILED: {title(record)} ({record['result'].lower()}); alone: meson test -C {record['folder']} '{record['name'].split(' / ')[-1]}'")
    return bool(failed) or all(record.get("late") for record in records)


def full(jobs, deadline):
    """All folders, one after the other: the tests of each run while the next ones are built, because many wait for
    others or for the network. Slow tests begin when all is built, one more at a time, as nothing is compiled then;
    in the order of their priorities, so a deadline leaves out the least important of these."""
    records, lanes, broken, slow = [], [], [], []

    def lane(build, names, at_once, log_name):
        try:
            records.extend(run(build, names, at_once, prefix=f"[{build.folder}] ", deadline=deadline, log_name=log_name))
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc()
            broken.append(f"{build.folder}, whose tests could not be run")

    def start_lane(build, tests, at_once, log_name):
        if tests:
            lanes.append(threading.Thread(target=lane, args=(build, in_order(tests), at_once, log_name)))
            lanes[-1].start()

    for build in FULL:
        start = time.monotonic()
        print(f"building {build.folder}", flush=True)
        made = build.make(deadline)
        if made is None:
            records.append(skipped_for_time(build, f"all tests of {build.folder}"))
            continue
        if not made:
            broken.append(build.folder)
            continue
        print(f"built {build.folder} in {time.monotonic() - start:.0f} s", flush=True)
        tests = chosen(build.introspect(), build.tests, True)
        slow.append((build, [t for t in tests if "slow" in labels_of(t)]))
        start_lane(build, [t for t in tests if "slow" not in labels_of(t)], jobs, "testlog")
    for build, tests in slow:
        start_lane(build, tests, jobs + 1, "slow")
    for thread in lanes:
        thread.join()
    return records, broken


# ---- Coverage ----

ROOMS = ["graph", "ops", "autograd", "distributed"]


def coverage(jobs):
    """Runs the CUnit suites with counters in the code, and writes what they reached as pages."""
    if not COVERAGE.make():
        return [], ["build-coverage"]
    for old in (ROOT / COVERAGE.folder).rglob("*.gcda"):
        old.unlink()
    records = run(COVERAGE, [t["name"] for t in chosen(COVERAGE.introspect(), ["unit", "backends"], True)], jobs)
    pages = ROOT / COVERAGE.folder / "coverage"
    pages.mkdir(exist_ok=True)
    filters = [word for room in ROOMS for word in ("--filter", f"{room}/")]
    # Threads that count the same branch may count it below zero, which gcovr refuses as a whole.
    done = subprocess.run(["gcovr", "--root", str(ROOT), *filters, "--gcov-ignore-parse-errors",
                           "--json-summary", str(pages / "summary.json"),
                           "--html-details", str(pages / "index.html"), "-j", str(jobs), COVERAGE.folder],
                          cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr)
        return records, ["the pages of the coverage"]
    rows = {}
    for file in json.loads((pages / "summary.json").read_text())["files"]:
        sums = rows.setdefault(str(pathlib.Path(file["filename"]).parent), [0, 0, 0, 0])
        for i, key in enumerate(["line_covered", "line_total", "branch_covered", "branch_total"]):
            sums[i] += file[key]
    print(f"\n{'folder':20} {'lines':>8} {'reached':>9} {'branches':>9} {'reached':>9}")
    for room in ROOMS:
        rows[room + ", all"] = [sum(column) for column in
                                zip(*(sums for folder, sums in rows.items() if folder.split("/")[0] == room))]
    for folder, (lines, all_lines, branches, all_branches) in sorted(rows.items()):
        print(f"{folder:20} {all_lines:8d} {100 * lines / max(1, all_lines):7.1f} % {all_branches:9d} "
              f"{100 * branches / max(1, all_branches):7.1f} %")
    print(f"the pages: {COVERAGE.folder}/coverage/index.html")
    return records, []


def main():
    options = parse()
    started = time.monotonic()
    if options.minutes is not None and not (options.full and options.minutes > 0):
        sys.exit("tools/test: --minutes needs --full, and a number above 0")
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    if options.full or options.coverage:
        deadline = None if options.minutes is None else started + 60 * options.minutes
        records, broken = full(options.j, deadline) if options.full else coverage(options.j)
        status = summarise(records, started)
        for folder in broken:
            print(f"FAILED: the build in {folder}")
        return status or bool(broken)
    print("building build", flush=True)
    if not GCC.make():
        print("FAILED: the build")
        return 1
    tests = chosen(GCC.introspect(), options.suites, bool(options.k) or options.list)
    if options.k:
        tests = matching(tests, options.k)
    if options.list:
        for test in tests:
            print(f"{test['name']}  ({', '.join(sorted(labels_of(test)))})")
            for case in cases_of(test):
                if options.k.lower() in case.lower():
                    print(f"    {case}")
        return 0
    if not tests:
        sys.exit(f"tools/test: no test has a case that contains \"{options.k}\"")
    return summarise(run(GCC, [t["name"] for t in tests], options.j, options.k), started)


if __name__ == "__main__":
    sys.exit(main())
