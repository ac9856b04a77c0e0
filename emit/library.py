#!/usr/bin/env python3
"""Joins the files of a library of C, and writes them as a C file with one array of characters.

Usage: library.py ARRAY OUTPUT.c FILE...
"""
import pathlib
import sys



def body(path):
    """A file without its include guard."""
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    guards = [i for i, line in enumerate(lines) if line.startswith("#ifndef") and lines[i + 1].startswith("#define")
              and line.split()[1] == lines[i + 1].split()[1] and line.endswith("_H")]
    if guards:
        end = max(i for i, line in enumerate(lines) if line.startswith("#endif"))
        lines = [line for i, line in enumerate(lines) if i not in (guards[0], guards[0] + 1, end)]
    return "\n".join(lines) + "\n"


text = "\n".join(body(path) for path in sys.argv[3:]).encode()
numbers = "\n".join(", ".join(str(byte) for byte in text[i:i + 24]) + "," for i in range(0, len(text), 24))
pathlib.Path(sys.argv[2]).write_text(
    f'#include "items.h"\n\nconst char {sys.argv[1]}[] = {{\n{numbers}\n0}};\n', encoding="ascii")
