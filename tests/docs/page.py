#!/usr/bin/env python3
"""Runs the commands and programs of pages of the documentation, and compares what they print with the pages.

    page.py ROOT FOLDER PAGE...
    page.py --file PAGE NAME FOLDER

The second form only writes the file NAME of a page to FOLDER. ROOT is the source tree, and $WEFT_BUILD the folder of the build. Each page has a folder of its own in FOLDER, with links to the folders of the tree. A command
is a line "$ ..." of an indented block; the lines below it are its output, where "..." matches any lines. A command
without output must succeed, and one whose output begins with "weft: " must fail with status 1. Results are the same
everywhere (docs/arithmetic.md), so what is printed must be what the page has, but for times and rates. On a line that
MACHINE matches, numbers may differ by 5 %: about the machine, work and memory, which depend on the instruction set,
and sizes of files that name it. Of a profile, only the first word of each line is compared, in any order.

A comment in front of a block says what else there is to it:

    <!-- not run: REASON -->    the block is left out; the reason is printed
    <!-- needs python: ... -->  likewise, unless there is a $PYTHON
    <!-- file: NAME -->         the fenced block is written to the file NAME, for the commands after it
    <!-- from: FILE -->         the fenced block is an excerpt of FILE of the tree, but for its indentation
    <!-- run: COMMAND -->       a command that the page does not show, such as one that copies data
    <!-- with: ARGUMENTS -->    the test adds these to each command of the block, which would take minutes without

A row of a table that begins with a command whose arguments are all in brackets, such as `weft check [--op NAME]`, is
run without them, except those in SLOW.

A block that looks like commands has prompts or is not run; a block of C is a file, an excerpt, or not run. Anything
else is an error. Programs in Python are run by $PYTHON, if it is set. Otherwise they are skipped, with the block of
commands after each; a file in Python is written only."""
import os
import pathlib
import re
import subprocess
import sys
import time

NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
FREE = re.compile(r"[\d.:]+ (?:ms|s\b|rows/s|tokens/s)|\(\d+ % of GEMM\)|\d+:\d\d:\d\d left")
MACHINE = re.compile(r"GB/s|GFLOP|GiB|arena|barrier|cores|threads|\.(?:html|json): \d")
MARKER = re.compile(r"<!-- (not run|needs python|file|from|run|with): (.*?) *-->$")
# The first word of a line of the shell, in a block without prompts.
COMMAND = re.compile(r" {4,}(?:\w+=\S+ )*(?:weft|mpirun|meson|ninja|cc|python3|cat|zcat|for|kill|cd|git|apt-get|apt|cmake|"
                     r"echo|\$ .*|\.?/?(?:build|tools|tests|docs)/\S+)(?: |$)")

# The command at the beginning of a row of a table, and what follows it up to the closing quote.
SYNOPSIS = re.compile(r"\| `(weft \w+)([^`]*)`")
# Why a row's command is not run.
SLOW = {"weft bench": "takes minutes"}


def synopsis(line):
    """The command of a row of a table that needs no arguments; None of any other line."""
    found = SYNOPSIS.match(line)
    if not found or re.sub(r"\[[^][]*\]", "", found.group(2)).strip():
        return None
    return found.group(1)


def blocks(text):
    """(kind, marker, content) of each block in order: "fence NAME" with its text, "commands" with [(command, [line of
    output, ...]), ...], "text" with its lines, "run" with a hidden command, and "synopsis" with that of a row. A marker is (word, text) or None."""
    lines = iter(text.split("\n"))
    marker, commands = None, None
    for line in lines:
        found = MARKER.match(line.strip())
        if line.strip().startswith("```"):
            indent, program = len(line) - len(line.lstrip()), []
            for inner in lines:
                if inner.strip() == "```":
                    break
                program.append(inner[indent:])
            yield "fence " + line.strip()[3:], marker, "\n".join(program) + "\n"
            marker = commands = None
        elif found:
            commands = None
            if found.group(1) == "run":
                yield "run", None, found.group(2)
            else:
                marker = found.groups()
        elif line.startswith("    "):
            if commands is None:
                # A block of an item of a list is indented further.
                indent = len(line) - len(line.lstrip())
                commands = ["commands" if line.lstrip().startswith("$ ") else "text", marker, []]
                marker = None
                yield commands
            if commands[0] == "text":
                commands[2].append(line)
            elif line[indent:].startswith("$ "):
                commands[2].append((line[indent + 2:], []))
            else:
                commands[2][-1][1].append(line[indent:])
        elif line.strip():
            if synopsis(line):
                yield "synopsis", None, synopsis(line)
            marker = commands = None
        elif commands and commands[0] == "commands":
            commands[2][-1][1].append("")


def near(a, b):
    a, b = float(a), float(b)
    return abs(a - b) <= 0.05 * max(abs(a), abs(b)) or max(abs(a), abs(b)) < 1e-5


def same_line(wanted, got):
    wanted, got = FREE.sub("", wanted), FREE.sub("", got)
    if not MACHINE.search(wanted):
        return wanted.split() == got.split()
    return NUMBER.sub("#", wanted).split() == NUMBER.sub("#", got).split() and all(
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


def check(command, wanted, folder):
    """What is wrong with a command; None if nothing is."""
    done = subprocess.run(["timeout", "1800", "bash", "-o", "pipefail", "-c", command], cwd=folder, text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    got = [line.rstrip() for line in done.stdout.rstrip("\n").split("\n")]
    while wanted and not wanted[-1].strip():
        wanted = wanted[:-1]
    status = 1 if wanted and wanted[0].startswith("weft: ") else 0
    if done.returncode != status:
        return f"status {done.returncode}, expected {status}:\n" + "\n".join(got[-8:])
    if "weft profile" in command:
        missing = first_words(wanted) - first_words(got)
        return f"no line begins with one of: {' '.join(sorted(missing))}" if missing else None
    if wanted and not same(wanted, got):
        return "it printed\n" + "\n".join(got) + "\nand the page has\n" + "\n".join(wanted)
    return None


def bare(text):
    """A text without the indentation of its lines."""
    return "\n".join(line.strip() for line in text.split("\n"))


class Page:
    def __init__(self, root, path, folder):
        self.root, self.path, self.folder = root, path, folder
        self.ran = self.failed = self.skipped = 0
        self.skip_next = False
        folder.mkdir(parents=True)
        for name in ("docs", "examples", "models", "tests", "tools"):
            if (root / name).exists():
                (folder / name).symlink_to(root / name)
        (folder / "build").symlink_to(os.environ["WEFT_BUILD"])

    def fail(self, what):
        self.failed += 1
        print(f"{self.path.name}: failed: {what}")

    def skip(self, what, reason):
        self.skipped += 1
        print(f"{self.path.name}: skipped: {reason}: {what}")

    def run(self, command, wanted):
        self.ran += 1
        start = time.monotonic()
        problem = check(command, wanted, self.folder)
        seconds = time.monotonic() - start
        if seconds > 10:
            print(f"{self.path.name}: {seconds:.0f} s: {command}")
        if problem:
            self.fail(f"{command}: {problem}")

    def fence(self, language, marker, text):
        word, value = marker or (None, None)
        first = text.split("\n", 1)[0]
        if word == "file":
            (self.folder / value).write_text(text, encoding="utf-8")
        elif word == "from":
            self.ran += 1
            if bare(text) not in bare((self.root / value).read_text(encoding="utf-8")):
                self.fail(f"the block that begins with {first} is not in {value}")
        elif word == "not run":
            self.skip(first, value)
        elif language == "python":
            python = os.environ.get("PYTHON")
            self.skip_next = not python
            if python:
                subprocess.run([python, "-"], input=text, text=True, cwd=self.folder, check=True)
            else:
                self.skip(first, "there is no PYTHON with PyTorch")
        elif language in ("c", "sh", "bash", "console"):
            self.fail(f"the block that begins with {first} is neither a file nor an excerpt, and may not be skipped "
                      "without a reason")

    def check(self):
        for kind, marker, content in list(blocks(self.path.read_text(encoding="utf-8"))):
            if kind.startswith("fence"):
                self.fence(kind[6:], marker, content)
                continue
            if kind == "synopsis" and content in SLOW:
                self.skip(content, SLOW[content])
                continue
            if kind in ("run", "synopsis"):
                self.run(content, [])
                continue
            if kind == "commands":
                for command, wanted in content:
                    if marker and marker[0] == "not run":
                        self.skip(command, marker[1])
                    elif self.skip_next or marker and marker[0] != "with" and not os.environ.get("PYTHON"):
                        self.skip(command, "it needs a program in Python above")
                    else:
                        self.run(f"{command} {marker[1]}" if marker and marker[0] == "with" else command, wanted)
            elif marker and marker[0] == "not run":
                self.skip(content[0].strip(), marker[1])
            elif any(COMMAND.match(line) for line in content):
                self.fail(f"a block without prompts looks like commands: {content[0].strip()}")
            self.skip_next = False
        print(f"{self.path.name}: {self.ran} commands, {self.skipped} skipped, {self.failed} failed")
        return self.failed == 0


def write_file(page, name, folder):
    """Writes the file that a page has under a name; false if it has none."""
    for kind, marker, content in list(blocks(pathlib.Path(page).read_text(encoding="utf-8"))):
        if kind.startswith("fence") and marker == ("file", name):
            (pathlib.Path(folder) / name).write_text(content, encoding="utf-8")
            return True
    return False


def main():
    if sys.argv[1] == "--file":
        return 0 if write_file(*sys.argv[2:5]) else 1
    root, folder = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
    good = [Page(root, pathlib.Path(page).resolve(), folder / pathlib.Path(page).stem).check() for page in sys.argv[3:]]
    return 0 if good and all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
