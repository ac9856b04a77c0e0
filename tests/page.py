#!/usr/bin/env python3
"""Runs the commands of a page of the documentation, and compares what they print with the page.

    page.py PAGE WEFT FOLDER

WEFT is the program, FOLDER the folder to work in, with the files that the page needs. A command is a line "$ ..." of
an indented block; the lines below it are its output, where "..." stands for any lines. A command without output must
succeed, and one whose output begins with "weft: " must fail with status 1. Numbers may differ by 5 %, those below
1e-5 by any amount, because kernels of other instruction sets round differently. Times and rates may be anything, and
so may losses, the step of the best model and the outputs of a run, because training magnifies the rounding. Of a
profile, only the first word of each line is compared, in any order.

The programs in Python of the page are run by $PYTHON, if it is set. Otherwise they are skipped, with the block of
commands behind each."""
import os
import pathlib
import re
import subprocess
import sys

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
FREE = re.compile(r"[\d.:]+ (?:ms|s\b|rows/s)|at step \d+|loss [\d.]+|best [\d.]+|\(\d+ % of GEMM\)|\d+:\d\d:\d\d left")


def blocks(text):
    """("python", program) and ("commands", [(command, [line of output, ...]), ...]) in their order."""
    lines = iter(text.split("\n"))
    commands = None
    for line in lines:
        if line.startswith("```"):
            program = []
            for inner in lines:
                if inner == "```":
                    break
                program.append(inner)
            if line == "```python":
                yield "python", "\n".join(program)
            commands = None
        elif line.startswith("    $ "):
            if commands is None:
                commands = []
                yield "commands", commands
            commands.append((line[6:], []))
        elif line.startswith("    ") and commands is not None:
            commands[-1][1].append(line[4:])
        elif line.strip():
            commands = None


# `weft run` of a folder, the outputs of a trained model
RUN = re.compile(r"weft run (?!\S*\.onnx )")
OUTPUTS = re.compile(r"least \S+ +mean \S+ +most \S+")


def near(a, b):
    a, b = float(a), float(b)
    return abs(a - b) <= 0.05 * max(abs(a), abs(b)) or max(abs(a), abs(b)) < 1e-5


def same_line(wanted, got):
    wanted, got = FREE.sub("", wanted), FREE.sub("", got)
    return NUMBER.sub("#", wanted) == NUMBER.sub("#", got) and all(
        map(near, NUMBER.findall(wanted), NUMBER.findall(got)))


def same(wanted, got):
    """Whether lines are those of the page."""
    if not wanted:
        return not got
    if wanted[0] == "...":
        return any(same(wanted[1:], got[i:]) for i in range(len(got) + 1))
    return bool(got) and same_line(wanted[0], got[0]) and same(wanted[1:], got[1:])


def first_words(lines):
    return {line.split()[0] for line in lines if line.strip()} - {"..."}


def check(command, wanted, folder, environment):
    """What is wrong with a command; None if nothing is."""
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=folder, env=environment, text=True, timeout=300,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    got = [line.rstrip() for line in done.stdout.rstrip("\n").split("\n")]
    while wanted and not wanted[-1].strip():
        wanted = wanted[:-1]
    status = 1 if wanted and wanted[0].startswith("weft: ") else 0
    if done.returncode != status:
        return f"status {done.returncode}, expected {status}:\n" + "\n".join(got[-8:])
    if RUN.match(command):
        wanted, got = [OUTPUTS.sub("", line) for line in wanted], [OUTPUTS.sub("", line) for line in got]
    if "weft profile" in command:
        missing = first_words(wanted) - first_words(got)
        return f"no line begins with one of: {' '.join(sorted(missing))}" if missing else None
    if wanted and not same(wanted, got):
        return "it printed\n" + "\n".join(got) + "\nand the page has\n" + "\n".join(wanted)
    return None


def main():
    page, weft, folder = (pathlib.Path(a).resolve() for a in sys.argv[1:])
    environment = dict(os.environ, PATH=f"{weft.parent}:{os.environ['PATH']}")
    python = os.environ.get("PYTHON")
    failed = ran = 0
    skip = False
    for kind, block in list(blocks(page.read_text(encoding="utf-8"))):
        if kind == "python":
            skip = not python
            if python:
                subprocess.run([python, "-"], input=block, text=True, cwd=folder, check=True)
            continue
        for command, wanted in block:
            if skip:
                print(f"skipped, for want of Python's packages: {command}")
                continue
            problem = check(command, wanted, folder, environment)
            ran += 1
            failed += problem is not None
            if problem:
                print(f"failed: {command}: {problem}")
        skip = False
    print(f"{page.name}: {ran} commands, {failed} failed")
    return 1 if failed or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
