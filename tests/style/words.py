"""Finds words that the project does not use, in sources, documents and messages, and long paragraphs of
DESIGN.md. Usage: words.py [ROOT].

tests/style/words.txt lists them, a line each: a regular expression, " -> ", and what to say instead.
Below them are the lines that may contain one: `FILE: PART OF THE LINE: REASON`. Prints each line that
contains a word and may not, each exception that excepts nothing, and each paragraph of more than six lines;
exit status 1 if there is one."""
import os
import pathlib
import re
import subprocess
import sys

KINDS = {".c", ".h", ".cc", ".in", ".md", ".py", ".sh", ".js", ".css", ".build", ".ini", ""}
PARAGRAPH = 6
WITHOUT = ("tools/data/", "tests/data/", "tests/fuzz/corpus/", "tests/golden/", "abi/", "debian/copyright", "LICENSE")


def files(root):
    """The files with text that somebody wrote here, of the ones that git knows or, outside git, of all."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=False)
    names = listed.stdout.splitlines() if listed.returncode == 0 else [
        str(p.relative_to(root)) for p in root.rglob("*") if not p.relative_to(root).parts[0].startswith(("build", "."))]
    return [n for n in names if not n.startswith(WITHOUT) and pathlib.Path(n).suffix in KINDS and (root / n).is_file()]


def read_list(path):
    words, exceptions = [], []
    for line in path.read_text().splitlines():
        if " -> " in line:
            pattern, better = line.split(" -> ")
            words.append((re.compile(pattern, re.I if pattern.islower() else 0), better))
        elif line.count(": ") >= 2:
            name, part, _ = line.split(": ", 2)
            exceptions.append((name, part))
    return words, exceptions


def long_paragraphs(path):
    """The first line's number and the length of each paragraph or list item of more than PARAGRAPH lines."""
    start, length = 0, 0
    for number, line in enumerate(path.read_text().splitlines() + [""], 1):
        prose = line.strip() and not line.startswith(("|", "#", "    "))
        if length and (not prose or line.startswith("- ")):
            if length > PARAGRAPH:
                yield start, length
            length = 0
        if prose:
            start, length = (start, length + 1) if length else (number, 1)


def texts(root):
    """The name and contents of each file that is UTF-8."""
    for name in files(root):
        try:
            yield name, (root / name).read_text()
        except UnicodeDecodeError:
            continue


def lines_with_words(root, words):
    """(file, number, line) of each line that may contain one of the words: grep searches for all of them at once, in a
    tenth of the time that Python takes for one after the other. Without grep -P all lines."""
    pattern = "(*UCP)" + "|".join(f"(?i:{p.pattern})" if p.flags & re.I else f"(?:{p.pattern})" for p, _ in words)
    by_name = dict(texts(root))
    done = subprocess.run(["xargs", "-0", "grep", "-nHPZ", "-e", pattern, "--"], cwd=root, text=True, check=False,
                          input="\0".join(by_name), capture_output=True, env=dict(os.environ, LC_ALL="C.UTF-8"))
    if done.stderr or not by_name:
        return [(name, number, line) for name, text in by_name.items() for number, line in enumerate(text.splitlines(), 1)]
    return [(name, int(number), line) for name, number, line in
            re.findall(r"^(.*?)\0(\d+):(.*)$", done.stdout, re.M)]


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    words, exceptions = read_list(root / "tests" / "style" / "words.txt")
    unused, found = set(exceptions), 0
    for name, number, line in lines_with_words(root, words):
        for pattern, better in words:
            match = pattern.search(line)
            if not match:
                continue
            allowed = [e for e in exceptions if e[0] == name and e[1] in line]
            unused.difference_update(allowed)
            if not allowed:
                found += 1
                print(f"{name}:{number}: \"{match[0]}\"; say: {better}")
    for number, length in long_paragraphs(root / "DESIGN.md"):
        found += 1
        print(f"DESIGN.md:{number}: a paragraph of {length} lines; expected at most {PARAGRAPH}")
    for name, part in sorted(unused):
        print(f"tests/style/words.txt: no line of {name} needs the exception \"{part}\"")
    return bool(found or unused)


if __name__ == "__main__":
    sys.exit(main())
