#!/usr/bin/env python3
"""Doxygen's filter for weft's headers: prints the header FILE with its plain comments as Doxygen's.

A comment in front of a declaration documents it, one after a field or a constant documents that, and the first
comment documents the file. A comment in front of several declarations without a line between them documents the first;
the others refer to it. Lines that are indented within a comment are set as they are, and `code` as code. Comments in
the bodies of functions and macros stay as they are."""
import re
import sys

SPECIAL = re.compile(r"[\\@<>&#%]|::|--")
CODE = re.compile(r"`([^`]+)`")
FUNCTION = re.compile(r"(?:WEFT_API|static inline) .*?\b(\w+)\(")
BANNER = re.compile(r"/\* -{3,} .* -{3,} \*/$")


def escape(text):
    return SPECIAL.sub(lambda found: "\\" + found.group(), text)


def inline(text):
    """A line with Doxygen's special characters escaped, and `code` as code."""
    parts = CODE.split(text)
    return "".join(f"<tt>{escape(part)}</tt>" if i % 2 else escape(part) for i, part in enumerate(parts))


def body(comment):
    """The lines between /* and */, without the asterisks at their beginning."""
    return [re.sub(r"^\s*\*? ?", "", line) if i else line.strip() for i, line in
            enumerate(comment[2:-2].rstrip().split("\n"))]


def text_of(comment):
    """A comment as Doxygen's text."""
    out, verbatim, item = [], [], False
    def flush():
        while verbatim and not verbatim[-1].strip():
            verbatim.pop()
        if verbatim:
            out.extend(["\\verbatim", *(line[4:] for line in verbatim), "\\endverbatim"])
        verbatim.clear()
    for line in body(comment):
        if line.startswith("    ") and not item or verbatim and not line.strip():
            verbatim.append(line)
            continue
        flush()
        item = line.startswith("- ") or item and bool(line.strip())
        out.append(inline(line))
    flush()
    return out


def doxygen(comment, opening="/**", first=""):
    return opening + " " + first + "\n".join(text_of(comment)) + " */"


def convert(source):
    """The header's text for Doxygen."""
    out, at, in_body, documented, last = [], 0, False, "", None
    lines = source.split("\n")
    while at < len(lines):
        line = lines[at]
        opens = line.find("/*")
        in_macro = at > 0 and lines[at - 1].endswith("\\") or line.endswith("\\")
        if opens < 0 or in_body or in_macro:
            found = None if in_body else FUNCTION.match(line)
            if found and documented:
                last = found.group(1)
            elif found and last:
                out.append(f"/** Documented with {last}. */")
            if not line.strip() or line.startswith("}"):
                last = None
            if line.strip() and not line.startswith("#"):
                documented = ""
            if line == "{":
                in_body = True
            elif line == "}":
                in_body = False
            out.append(line)
            at += 1
            continue
        end = at
        while "*/" not in lines[end][opens + 2 if end == at else 0:]:
            end += 1
        code = line[:opens]
        comment, _, rest = "\n".join([line[opens:], *lines[at + 1:end + 1]]).partition("*/")
        comment += "*/"
        if at == 0:
            name, _, about = comment[2:].partition(" - ")
            out.append(doxygen("/*" + about[:1].upper() + about[1:], first=f"\\file {name.strip().split('/')[-1]}\n"))
        elif BANNER.match(line):
            last = None
            out.append(line)
        elif code.strip() and not rest.strip():
            last = None
            out.append(code + doxygen(comment, "/**<"))
        elif not code.strip() and not rest.strip():
            documented = comment
            out.append(code + doxygen(comment))
        else:
            out.extend(lines[at:end + 1])
        at = end + 1
    return "\n".join(out)


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        print(convert(header.read()), end="")
