"""Runs clang-tidy's checks, which .clang-tidy lists, over the C files of the rooms. A file that is compiled for
several instruction sets and dtypes is checked as it is compiled for the highest set and f32, and without them.
Usage: tidy.py BUILD_FOLDER [FILE...]; prints each finding once, exit status 1 if there is one, and 77 (skipped)
without clang-tidy 14: other versions have other checks."""
import concurrent.futures
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ROOMS = ["graph", "ops", "autograd", "inspect", "emit", "text", "tokenizers", "distributed", "models", "formats", "mpi", "tools"]
VERSION = 14
JOBS = 2
# Files of one process: more save its start, fewer leave less waiting at the end.
BATCH = 8
# What a finding begins with; notes belong to the finding before them.
FINDING = re.compile(r"^(?=\S+:\d+:\d+: (?:warning|error|fatal error): )", re.M)


def program():
    """clang-tidy's name; leaves if it is missing or has another version."""
    name = shutil.which(f"clang-tidy-{VERSION}") or shutil.which("clang-tidy")
    if not name:
        print("skipped: tidy: clang-tidy is not installed")
        sys.exit(77)
    text = subprocess.run([name, "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)", text)
    if not found or int(found[1]) != VERSION:
        print(f"skipped: tidy: expected clang-tidy {VERSION}, found {found[1] if found else text.strip()}")
        sys.exit(77)
    return name


def commands(build):
    """The entries of compile_commands.json that are checked, by file."""
    best = {}
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        if not path.is_relative_to(ROOT) or path.suffix != ".c" or path.relative_to(ROOT).parts[0] not in ROOMS:
            continue
        words = [word for word in shlex.split(entry["command"]) if pathlib.Path(word).name != "ccache"]
        isa = max((word for word in words if word.startswith("-DWEFT_KERNEL_ISA=")), default="")
        rank = isa, "-DWEFT_KERNEL_DTYPE=f32" in words
        key = path, bool(isa)
        if key not in best or rank > best[key][0]:
            best[key] = rank, {"directory": entry["directory"], "file": str(path), "arguments": words}
    files = {}
    for (path, _), (_, entry) in sorted(best.items(), key=lambda item: item[0]):
        files.setdefault(path, []).append(entry)
    return files


def findings(name, folder, paths):
    """What clang-tidy finds in a few files."""
    done = subprocess.run([name, "-p", folder, f"--config-file={ROOT / '.clang-tidy'}", "--quiet", *map(str, paths)],
                          capture_output=True, text=True)
    if done.returncode and not done.stdout.strip():
        return [done.stderr]
    return FINDING.split(done.stdout)


def main():
    name = program()
    files = commands(pathlib.Path(sys.argv[1]).resolve())
    wanted = [pathlib.Path(path).resolve() for path in sys.argv[2:]]
    missing = [str(path) for path in wanted if path not in files]
    if missing:
        sys.exit(f"{', '.join(missing)}: not a C file of {', '.join(ROOMS)} that this folder builds")
    paths = wanted or list(files)
    if not wanted and len(paths) < 200:
        sys.exit(f"only {len(paths)} files: not a built project?")
    batches = [paths[i:i + BATCH] for i in range(0, len(paths), BATCH)]
    printed = set()
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(JOBS) as pool:
        pathlib.Path(folder, "compile_commands.json").write_text(json.dumps(sum(files.values(), [])))
        for found in pool.map(lambda some: findings(name, folder, some), batches):
            for text in filter(str.strip, found):
                head, _, rest = text.partition("\n")
                path, separator, message = head.partition(":")
                if (ROOT / path).exists() or pathlib.Path(path).is_absolute():
                    path = re.sub(f"^{re.escape(str(ROOT))}/", "", str(pathlib.Path(path).resolve()))
                text = f"{path}{separator}{message}\n{rest}"
                if text not in printed:
                    print(text, end="", flush=True)
                printed.add(text)
    if not printed:
        print(f"{len(paths)} files, no finding")
    return bool(printed)


sys.exit(main())
