"""Finds expressions of which two operands build nodes. C does not say which argument of a call is evaluated first, nor
which initialiser of a list or operand of an operator, and compilers differ; the order of nodes is part of results and
of exported files. Usage: order.py BUILD_FOLDER [FOLDER...]; reads the C files of ROOMS, macros expanded, and prints the
findings in the FOLDERs, all by default; exit status 1 if there is one, and 77 (skipped) without python3-clang. Of the
tests it reads the programs whose results are recorded.

A function builds nodes if it calls BASE, or a function that builds nodes; a call through a pointer counts as calls of
all functions of that type. The headers that the build generates must exist."""
import collections
import json
import multiprocessing
import os
import pathlib
import shlex
import sys

try:
    import clang.cindex
    from clang.cindex import CursorKind
except ImportError:  # the package belongs to the system's Python, which may not be the first one
    if os.path.exists("/usr/bin/python3") and sys.executable != "/usr/bin/python3":
        os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
    print("skipped: order: python3-clang is not installed")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ROOMS = ["graph", "ops", "autograd", "inspect", "emit", "text", "tokenizers", "distributed", "models", "formats", "mpi",
         "tools", "examples", "tests/ops/hashes.c", "tests/models/bits.c", "tests/support/samples.c"]
BASE = "c:@F@weft_apply"  # as libclang spells it; static functions have their file's name in it
JOBS = 2
OPERANDS = {CursorKind.CALL_EXPR: "arguments", CursorKind.INIT_LIST_EXPR: "initialisers",
            CursorKind.BINARY_OPERATOR: "operands", CursorKind.COMPOUND_ASSIGNMENT_OPERATOR: "operands",
            CursorKind.ARRAY_SUBSCRIPT_EXPR: "operands"}
SIZEOF = CursorKind.CXX_UNARY_EXPR


def commands(build):
    """(path, folder, arguments) of each file that is read. Those compiled for instruction sets only compute."""
    found, rooms = {}, [ROOT / room for room in ROOMS]
    for entry in json.loads((build / "compile_commands.json").read_text()):
        path = pathlib.Path(entry["directory"], entry["file"]).resolve()
        words = shlex.split(entry["command"])
        if path.is_relative_to(ROOT) and path.suffix == ".c" and any(map(path.is_relative_to, rooms)) and \
                not any(word.startswith("-DWEFT_KERNEL_ISA=") for word in words):
            options = [word for word in words if word.startswith(("-I", "-D", "-isystem", "-std"))]
            found[path] = str(path), entry["directory"], options
    return [found[path] for path in sorted(found)]


class File:
    """The functions that a file defines: what each calls, and their types; and the places with two operands that call
    functions: (file, line, operands of what, the functions that each operand calls)."""

    def __init__(self, path, folder, arguments):
        self.calls, self.types, self.places, self.texts = {}, {}, [], {}
        unit = clang.cindex.Index.create().parse(path, ["-working-directory=" + folder, *arguments])
        self.errors = [str(d) for d in unit.diagnostics if d.severity >= clang.cindex.Diagnostic.Error]
        for cursor in unit.cursor.get_children():
            if cursor.kind == CursorKind.FUNCTION_DECL and cursor.is_definition() and \
                    pathlib.Path(os.path.realpath(cursor.location.file.name)).is_relative_to(ROOT):
                self.calls[cursor.get_usr()] = self.read(cursor)
                self.types[cursor.get_usr()] = cursor.type.get_canonical().spelling

    def read(self, cursor):
        """The functions, or types of functions, that an expression or statement calls."""
        if cursor.kind == SIZEOF:
            return set()
        children = list(cursor.get_children())
        operands = [self.read(child) for child in children]
        calling = [frozenset(calls) for calls in operands if calls]
        if len(calling) > 1 and cursor.kind in OPERANDS and not self.is_sequenced(cursor, children):
            file = os.path.relpath(os.path.realpath(cursor.location.file.name), ROOT)
            whole = cursor.spelling or ("a list" if cursor.kind == CursorKind.INIT_LIST_EXPR else "an expression")
            self.places.append((file, cursor.location.line, f"{OPERANDS[cursor.kind]} of {whole}", tuple(calling)))
        calls = set().union(*operands)
        if cursor.kind == CursorKind.CALL_EXPR:
            function = cursor.referenced
            calls.add(function.get_usr() if function and function.kind == CursorKind.FUNCTION_DECL else
                      children[0].type.get_canonical().get_pointee().spelling)
        return calls

    def is_sequenced(self, cursor, children):
        """Whether this is an operator that evaluates its left operand first; libclang 14 does not name operators."""
        if cursor.kind != CursorKind.BINARY_OPERATOR:
            return False
        start, end = children[0].extent.end, children[1].extent.start
        if start.file.name not in self.texts:
            self.texts[start.file.name] = pathlib.Path(start.file.name).read_bytes()
        between = self.texts[start.file.name][start.offset:end.offset]
        return any(operator in between for operator in (b"&&", b"||", b","))


def read(command):
    """A file, as another process sends it."""
    file = File(*command)
    return file.calls, file.types, file.places, file.errors


def builders(calls, types):
    """The functions, and types of functions, that build nodes."""
    callers = collections.defaultdict(set)
    for function, called in calls.items():
        for other in called:
            callers[other].add(function)
    found, todo = {BASE}, [BASE]
    while todo:
        function = todo.pop()
        new = (callers[function] | {types.get(function, function)}) - found
        found |= new
        todo += new
    return found


def main():
    calls, types, places, problems = {}, {}, set(), []
    with multiprocessing.Pool(JOBS) as pool:
        for file in pool.imap(read, commands(pathlib.Path(sys.argv[1]).resolve()), chunksize=4):
            calls.update(file[0])
            types.update(file[1])
            places.update(file[2])
            problems += file[3]
    if len(calls) < 5000 or BASE not in calls:
        problems.append(f"only {len(calls)} functions were found: is {sys.argv[1]} a build folder?")
    building = builders(calls, types)
    for file, line, what, operands in sorted(places, key=lambda place: place[:3]):
        if file.startswith(tuple(sys.argv[2:]) or "") and sum(not building.isdisjoint(o) for o in operands) > 1:
            problems.append(f"{file}:{line}: two {what} build nodes: C does not say which is first")
    print("\n".join(problems) or f"{len(calls)} functions, {len(building & set(calls))} build nodes, no finding")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
