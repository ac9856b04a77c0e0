"""Checks the symbols of the libraries' object files. Usage: symbols.py BUILD_FOLDER; prints each
violation and the files that use each other in a circle, exit status 1 if there is a violation.

Every symbol begins with weft_ or weft__ (private). A folder uses private symbols of itself and of
folders below it, in the order of includes.py, and public ones of its room and of rooms below it.
Files that use each other in a circle are listed in CIRCLES with the reason; any other circle is a
violation."""
import collections
import json
import os
import pathlib
import subprocess
import sys

from includes import LEVEL

ROOMS = ("graph", "ops", "autograd", "inspect", "emit", "text", "tokenizers", "models", "distributed", "formats", "mpi")
PROGRAMS = ("tests", "tools", "examples")
# Tables of functions that a lower file reads as data: the passes of an op (weft_op.passes), and what an
# update calls on several processes (autograd/processes.h).
HOOKS = ("weft__pass_", "weft__shards_update")
# Circles of files, or of the files whose paths begin so, and why they stay: see DESIGN.md.
CIRCLES = [
    ({"graph/ir/graph.c", "graph/ir/name.c"}, "a name belongs to a graph, and a node of a graph has a name"),
    ({"formats/onnx/export.c", "formats/onnx/export_branch.c", "formats/onnx/export_scan.c"},
     "a node may have a body, which consists of nodes"),
    ("ops/", "the gradient of an op, and its expansion, are made of other ops"),
]


def sources(build):
    """The source of each object file of the libraries: {object: source}, relative to the build and the root."""
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    found = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        source = os.path.relpath(os.path.join(command["directory"], command["file"]), root)
        if source.split("/")[0] in ROOMS and command["output"].split("/")[0] not in PROGRAMS:
            found[command["output"]] = source
    return {o: s for o, s in found.items() if (build / o).exists()}


def read_symbols(build, source_of):
    """Which files define and use each symbol: two dictionaries from symbols to sets of sources."""
    defined, used = collections.defaultdict(set), collections.defaultdict(set)
    output = subprocess.run(["nm", "-A", "-g", *source_of], cwd=build, check=True, capture_output=True, text=True)
    for line in output.stdout.splitlines():
        name, _, rest = line.partition(":")
        *_, kind, symbol = rest.split()
        (used if kind in "Uwv" else defined)[symbol].add(source_of[name])
    return defined, used


def circles(edges):
    """The strongly connected components of more than one file (Tarjan 1972)."""
    number, low, stack, found = {}, {}, [], []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in number:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == number[node]:
            component = set(stack[stack.index(node):])
            del stack[stack.index(node):]
            if len(component) > 1:
                found.append(component)

    for node in sorted(edges):
        if node not in number:
            visit(node)
    return found


def level(folder):
    """The level of a folder; of a room, ROOM/, the highest of its folders."""
    return max([at for name, at in LEVEL.items() if (name + "/").startswith(folder)], default=-1) \
        if folder.endswith("/") else LEVEL.get(folder, -1)


def covers(known, circle):
    """Whether a row of CIRCLES, some files or the beginning of a path, has all files of a circle."""
    return all(f.startswith(known) for f in circle) if isinstance(known, str) else circle <= known


def main():
    build = pathlib.Path(sys.argv[1])
    source_of = sources(build)
    defined, used = read_symbols(build, source_of)
    problems = [f"{sorted(files)[0]}: the symbol {symbol} does not begin with weft_"
                for symbol, files in sorted(defined.items()) if not symbol.startswith("weft_")]
    edges = collections.defaultdict(set)
    for symbol, users in sorted(used.items()):
        for user in users if not symbol.startswith(HOOKS) else ():
            for definer in defined.get(symbol, set()) - {user}:
                edges[user].add(definer)
                here, there = os.path.dirname(user), os.path.dirname(definer)
                public = symbol.startswith("weft_") and not symbol.startswith("weft__")
                if public:  # declared in a header of the room, which all its folders see
                    here, there = here.split("/")[0] + "/", there.split("/")[0] + "/"
                if here != there and level(there) >= level(here):
                    problems.append(f"{user}: uses {symbol} of {definer}, which is not below it")
    sys.setrecursionlimit(10000)
    for circle in circles(edges):
        if not any(covers(known, circle) for known, _ in CIRCLES):
            problems.append(f"{len(circle)} files use each other in a circle: {' '.join(sorted(circle))}")
    if len(source_of) < 300:
        problems.append(f"only {len(source_of)} object files were read: is {build} a build folder?")
    print("\n".join(problems) or f"{len(defined)} symbols, no use against the order")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
