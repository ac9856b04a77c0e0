"""Checks the includes of the sources against the order of the folders, and that no headers include
each other in a circle. Usage: includes.py [ROOT]; prints each violation, exit status 1 if there is one.

A folder may include from itself and from the folders of the same or an earlier line of ORDER; public
headers are <weft/...> and belong to the room that installs them."""
import pathlib
import re
import sys

# Lowest first. Folders of one line do not include each other.
ORDER = [
    ["graph/weft"],
    ["graph/base"],
    ["graph/ir", "graph/communicate"],
    ["graph/store", "graph/passes"],
    ["graph/plan"],
    ["graph/run"],
    ["ops/weft"],
    ["ops/kernels"],
    ["ops"],
    ["ops/elementwise", "ops/random", "ops/shape", "ops/indexing", "ops/reduce", "ops/matmul", "ops/quantize", "ops/conv",
     "ops/norm", "ops/loss", "ops/update", "ops/exchange"],
    ["ops/attention"],
    ["ops/passes"],
    ["autograd/weft"],
    ["autograd"],
    ["inspect/weft"],
    ["inspect/json"],
    ["inspect"],
    ["inspect/report"],
    ["emit/weft"],
    ["emit/plain", "emit/simd"],
    ["emit"],
    ["text/weft"],
    ["text"],
    ["tokenizers/weft"],
    ["tokenizers"],
    ["tokenizers/chat"],
    ["tokenizers/constraint"],
    ["models/weft"],
    ["models/run"],
    ["models/layers"],
    ["models/zoo"],
    ["models/training", "models/decoding", "models/embedding"],
    ["distributed/weft"],
    ["distributed"],
    ["distributed/training"],
    ["formats/weft"],
    ["formats/numpy", "formats/onnx", "formats/huggingface"],
    ["formats/gguf"],
    ["mpi/weft"],
    ["mpi"],
    ["tools"],
    ["tools/text"],
    ["tools/bench", "tools/decoding"],
    ["tools/report"],
    ["tools/training", "tools/server"],
    ["tools/commands"],
]
ROOMS = ["graph", "ops", "autograd", "inspect", "emit", "text", "tokenizers", "models", "distributed", "formats", "mpi", "tools"]
LEVEL = {folder: level for level, folders in enumerate(ORDER) for folder in folders}


def resolve(root, source, name, angle):
    """The file that an include names, relative to the root; None if it is not ours."""
    if angle and not name.startswith("weft/"):
        return None
    places = [source.parent] if not angle else []
    for place in places + [root / room for room in ROOMS]:
        path = place / name
        if path.is_file():
            return path.resolve().relative_to(root)
    return None


def circle(edges):
    """A list of headers that include each other, or None."""
    state, stack = {}, []

    def visit(node):
        state[node] = 1
        stack.append(node)
        for other in edges.get(node, ()):
            if state.get(other) == 1:
                return stack[stack.index(other):] + [other]
            found = visit(other) if other not in state else None
            if found:
                return found
        state[node] = 2
        stack.pop()
        return None

    for node in sorted(edges):
        found = visit(node) if node not in state else None
        if found:
            return found
    return None


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    problems, edges, read = [], {}, 0
    for room in ROOMS:
        for source in sorted((root / room).rglob("*.[ch]")) + sorted((root / room).rglob("*.cc")):
            here = source.relative_to(root)
            folder = str(here.parent)
            if folder not in LEVEL:
                problems.append(f"{here}: the folder {folder} is not in ORDER")
                continue
            read += 1
            for opening, name in re.findall(r'^\s*#include ([<"])([^>"]+)', source.read_text(), re.M):
                there = resolve(root, source, name, opening == "<")
                if there is None:
                    continue
                if str(there).endswith(".h") and str(here).endswith(".h"):
                    edges.setdefault(str(here), []).append(str(there))
                other = str(there.parent)
                if other != folder and LEVEL.get(other, 99) >= LEVEL[folder]:
                    problems.append(f"{here}: includes {there}, which is not below it")
    found = circle(edges)
    if found:
        problems.append("headers include each other: " + " -> ".join(found))
    if read < 100:
        problems.append(f"only {read} files were read: not the root of the project?")
    print("\n".join(problems) or f"{read} files, no include against the order")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
