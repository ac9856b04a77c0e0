#!/usr/bin/env python3
"""Bundles the page of reports into one HTML template, and writes it as a C file with one string.

Usage: bundle.py PAGE_FOLDER OUTPUT.c NAME

The template is index.html with every `@NAME@` line replaced: the styles, the libraries, the scripts and
the libraries' licences. `@WEFT_DATA@` stays: the library writes the document in its place.
Only the Python standard library is used.
"""
import html
import pathlib
import sys

# Libraries in Debian: file, package, and where its licence is.
LIBRARIES = [
    ("/usr/share/nodejs/d3/dist/d3.min.js", "node-d3"),
    ("/usr/share/nodejs/dagre/dist/dagre.min.js", "node-dagre-layout"),
]

# Scripts in the order in which they run: each defines one object that later ones use.
SCRIPTS = ["format", "ui", "table", "data", "charts", "summary", "scopes", "layout", "graph", "node",
           "time", "flame", "timeline", "roofline", "memory", "run", "samples", "compare", "main"]


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8")


def script(text, where):
    """Text for a script element: nothing in it may end the element or start a comment."""
    for mark in ("</script", "<!--", "@WEFT_DATA@"):
        if mark in text.lower() or mark in text:
            sys.exit(f"bundle.py: {where}: '{mark}' cannot be inside a script element")
    return text


def without_source_map(text):
    return "\n".join(line for line in text.splitlines() if not line.startswith("//# sourceMappingURL"))


def c_string(name, text):
    """A C file that defines a string. A byte above 127 does not fit every char."""
    characters = [str(c) if c < 128 else f"'\\{c:o}'" for c in text.encode("utf-8")] + ["0"]
    rows = [", ".join(characters[i:i + 20]) for i in range(0, len(characters), 20)]
    return f"extern const char {name}[];\nconst char {name}[] = {{\n" + ",\n".join(rows) + "};\n"


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    page, output, name = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
    own = "\n".join(script(read(page / f"{name}.js"), f"{name}.js") for name in SCRIPTS)
    libraries = "\n;\n".join(script(without_source_map(read(path)), path) for path, _ in LIBRARIES)
    licences = "\n\n".join(f"{package}\n\n{read(f'/usr/share/doc/{package}/copyright').strip()}"
                           for _, package in LIBRARIES)
    parts = {
        "@STYLES@": read(page / "page.css"),
        "@LIBRARIES@": libraries,
        "@SCRIPTS@": f'(function () {{\n"use strict";\n{own}\n}})();',
        "@LICENCES@": html.escape(licences),
    }
    template = read(page / "index.html")
    for place in [*parts, "@WEFT_DATA@"]:
        if template.count(place) != 1:
            sys.exit(f"bundle.py: index.html must have {place} exactly once")
    # One pass over the lines: what was put in is not searched again.
    lines = [parts.get(line.strip(), line) for line in template.splitlines()]
    output.write_text(c_string(name, "\n".join(lines) + "\n"), encoding="utf-8")


if __name__ == "__main__":
    main()
