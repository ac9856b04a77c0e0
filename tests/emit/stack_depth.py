#!/usr/bin/env python3
"""Prints the bytes of stack that a function needs at most, with all functions of its file that it calls.

Usage: stack_depth.py FILE.ci FUNCTION

FILE.ci is what gcc -fcallgraph-info=su writes. A call by pointer may reach any function of the file that calls none by
pointer. Functions of other files count as 0 bytes. Recursion, and frames whose size depends on data, are errors.
"""
import pathlib
import re
import sys

INDIRECT = "__indirect_call"


def read(path):
    """The bytes of each function's frame, and what each calls."""
    frames, calls = {}, {}
    for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
        if found := re.match(r'node: \{ title: "([^"]*)" label: ".*\\n(\d+) bytes \((.*)\)', line):
            name, frames[found[1]], kind = found[1], int(found[2]), found[3]
            if kind == "dynamic":
                sys.exit(f"{name}: its frame has no fixed size")
        elif found := re.match(r'edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)"', line):
            calls.setdefault(found[1], set()).add(found[2])
    return frames, calls


def main(path, function):
    frames, calls = read(path)
    known = {}

    def depth(name, above):
        if name in above:
            sys.exit(f"{name} calls itself")
        if name not in known:
            called = calls.get(name, set())
            deepest = max((depth(one, above | {name}) for one in called if one != INDIRECT), default=0)
            if INDIRECT in called:
                direct = [one for one in frames if not reaches_indirect(one)]
                deepest = max([deepest] + [depth(one, above | {name}) for one in direct])
            known[name] = frames.get(name, 0) + deepest
        return known[name]

    def reaches_indirect(name):
        called = calls.get(name, set())
        return INDIRECT in called or any(reaches_indirect(one) for one in called if one != name)

    start = [name for name in frames if name.split(":")[-1] == function]
    if len(start) != 1:
        sys.exit(f"{path} has no function {function}")
    largest = max(frames, key=frames.get)
    print(f"{depth(start[0], frozenset())} bytes; the largest frame, of {largest.split(':')[-1]}, has {frames[largest]}")


if len(sys.argv) != 3:
    sys.exit(__doc__)
main(*sys.argv[1:])
