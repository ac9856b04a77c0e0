"""Finds functions with eight parameters or more: a struct names them where they are passed. Usage: parameters.py [ROOT].

Reads definitions, declarations and typedefs of functions. parameters.txt lists those that have a reason, a line each:
`FILE: NAME: REASON`. Prints each function that is not listed, and each entry that is not needed; exit status 1 if there
is one."""
import pathlib
import re
import subprocess
import sys

LIMIT = 8
# Comments, literals, and lines of the preprocessor.
HIDDEN = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|^[ \t]*\#(?:\\\n|[^\n])*""", re.S | re.M)
# A name and its "(", with a type before them, as calls do not have; or a pointer to a function.
FUNCTION = re.compile(r"(\w+|>)\s+[*&]*([A-Za-z_][\w:]*)\s*\(|\(\s*\*\s*(\w+)\s*\)\s*\(")
NO_TYPE = {"return", "else", "case", "do", "new", "throw"}


def count(text, at):
    """The parameters in the parentheses that open at `at`, and where these close."""
    depth, n, last = 0, 0, at
    for i in range(at, len(text)):
        c = text[i]
        depth += (c in "([{") - (c in ")]}")
        if depth == 0:
            return n + bool(text[last + 1:i].strip()), i
        if c == "," and depth == 1:
            n, last = n + 1, i
    return 0, at


def functions(text):
    """(line, name, parameters) of the functions that are declared or defined, or have a typedef."""
    text = HIDDEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    for m in FUNCTION.finditer(text):
        n, end = count(text, m.end() - 1)
        if m[1] not in NO_TYPE and re.match(r"\s*(?:const|noexcept|__attribute__|[;{,)])", text[end + 1:end + 80]):
            yield text.count("\n", 0, m.start()) + 1, m[2] or m[3], n


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=root, capture_output=True, text=True, check=False)
    names = listed.stdout.splitlines() if listed.returncode == 0 else [
        str(p.relative_to(root)) for p in root.rglob("*") if not p.relative_to(root).parts[0].startswith(("build", "."))]
    lines = (root / "tests" / "style" / "parameters.txt").read_text().splitlines()
    reasons = {tuple(line.split(": ", 2)[:2]) for line in lines if line.count(": ") >= 2}
    unused, found, seen = set(reasons), 0, 0
    # emit/plain and emit/simd are text for generated files, whose functions take plain numbers.
    for name in sorted(n for n in names if n.endswith((".c", ".h", ".cc")) and not n.startswith(("emit/plain/", "emit/simd/"))
                       and (root / n).is_file()):
        for number, function, n in functions((root / name).read_text()):
            seen += 1
            unused.discard((name, function) if n >= LIMIT else None)
            if n >= LIMIT and (name, function) not in reasons:
                found += 1
                print(f"{name}:{number}: {function} has {n} parameters, expected at most {LIMIT - 1}: give it a struct")
    if seen < 4000:
        print(f"only {seen} functions were found: the pattern misses some")
    for name, function in sorted(unused):
        print(f"tests/style/parameters.txt: {name} has no function {function} of {LIMIT} parameters")
    return bool(found or unused or seen < 4000)


if __name__ == "__main__":
    sys.exit(main())
