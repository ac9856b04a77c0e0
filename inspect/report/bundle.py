#!/usr/bin/env python3
"""Bundles the page of `weft report` into one HTML template.

Usage: bundle.py PAGE_FOLDER OUTPUT

The template is index.html with every `@NAME@` line replaced: the styles, the libraries, the scripts and
the libraries' licences. `@WEFT_DATA@` stays: the program writes the document in its place.
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


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    page, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
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
    for name in [*parts, "@WEFT_DATA@"]:
        if template.count(name) != 1:
            sys.exit(f"bundle.py: index.html must have {name} exactly once")
    # One pass over the lines: what was put in is not searched again.
    lines = [parts.get(line.strip(), line) for line in template.splitlines()]
    output.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
