#!/usr/bin/env python3
"""Builds the site of the documentation with Sphinx.

    build.py SOURCE_ROOT WEFT VERSION OUTPUT [DEPFILE]

SOURCE_ROOT is the source tree and WEFT the program. The site is written to the folder OUTPUT; its sources lie in OUTPUT.source. It consists of

- the pages docs/*.md, README.md and DESIGN.md. The sections of docs/index.md are the sections of the book, and each
  list of links there is a part of its table of contents. Pages that index.md does not name follow at the end
- a page for each public header, by Doxygen and Breathe
- a page of the ops and one of the commands, from what the program prints.

Any warning is an error."""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s]+)\)")
BANNER = re.compile(r"/\* -{3,} (.*?) -{3,} \*/$")
# What a header's page calls a member of each kind, and the directive that shows it.
DIRECTIVES = {"function": "doxygenfunction", "define": "doxygendefine", "typedef": "doxygentypedef",
              "enum": "doxygenenum", "variable": "doxygenvariable"}
# An import of a style by an address outside the site.
IMPORT = re.compile(r"@import\s+url\(['\"]?/[^)]*\);?")
# Macros that only the headers themselves need.
INTERNAL = re.compile(r"_H$|^WEFT_(API|PRINTF)$|_ENUM$")


class Book:
    def __init__(self, root, folder):
        self.root, self.folder = root, folder
        self.headers = {path: "headers/" + path.name for path in
                        sorted(root.glob("*/weft/*.h"), key=lambda path: path.name)}
        self.pages = {path: path.stem for path in sorted(root.glob("docs/*.md"))}
        for name, page in {"README.md": "overview", "DESIGN.md": "design", "examples/README.md": "examples"}.items():
            if (root / name).exists():
                self.pages[root / name] = page

    def link(self, source, page, target):
        """A link of the file `source`, the page `page`, as a link of the site; None if the site has no such page."""
        path, hash_sign, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or not path:
            return target
        path = (source.parent / path).resolve()
        if path in self.pages:
            return self.pages[path] + ".md" + hash_sign + anchor
        if path in self.headers:
            return self.headers[path] + ".rst"
        if not path.is_file():
            if not path.exists():
                sys.exit(f"{source}: there is no {target}")
            return None
        copy = self.folder / "files" / path.relative_to(self.root)
        if copy.suffix == ".md":
            copy = copy.with_name(copy.name + ".txt")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        return str(copy.relative_to(self.folder))

    def convert(self, source, page):
        """The text of a page, with the links of the site, and blocks of commands marked as such."""
        def replace(found):
            target = self.link(source, page, found.group(2))
            return f"{found.group(1)}({target})" if target else found.group(1)[1:-1]
        out, fenced, block = [], False, []

        def end_block():
            rest = []
            while block and not block[-1].strip():
                rest.append(block.pop())
            if block and block[0].lstrip().startswith("$ "):
                indent = block[0][:len(block[0]) - len(block[0].lstrip()) - 4]
                out.extend([indent + "```console", *(indent + line[len(indent) + 4:] for line in block),
                            indent + "```"])
            else:
                out.extend(block)
            out.extend(rest)
            block.clear()
        for line in source.read_text(encoding="utf-8").split("\n"):
            if line.startswith("```"):
                end_block()
                fenced = not fenced
            elif not fenced and (line.startswith("    ") or block and not line):
                block.append(line)
                continue
            else:
                end_block()
            out.append(line if fenced else LINK.sub(replace, line))
        end_block()
        return "\n".join(out)

    def contents(self):
        """{section: [entry of a table of contents, ...]} of docs/index.md, and the pages that it does not name."""
        index = self.root / "docs" / "index.md"
        sections, section = {}, None
        rest = [page for page in self.pages.values() if page != "index"]
        for line in index.read_text(encoding="utf-8").split("\n"):
            if line.startswith("## "):
                section = sections.setdefault(line[3:], [])
            elif section is not None and line.startswith("- "):
                title, target = LINK.search(line).groups()
                page = self.pages[(index.parent / target).resolve()]
                section.append(f"{title[1:-1]} <{page}>")
                rest.remove(page)
        if rest:
            sections["More"] = rest
        return sections

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def toctree(caption, pages):
    return "\n".join(["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *pages, "```", ""])


def heading(title, line):
    return f"{title}\n{line * len(title)}\n"


def headers(book, xml_folder):
    """A page for each header, its members in the order and under the headings of the header."""
    structs = collections.defaultdict(list)
    files = {}
    for path in xml_folder.glob("*.xml"):
        for compound in xml.parse(path).getroot().findall("compounddef"):
            place = compound.find("location")
            if compound.get("kind") in ("struct", "union"):
                name = compound.findtext("compoundname")
                structs[pathlib.PurePath(place.get("file")).name].append((int(place.get("line")), "doxygen" + compound.get("kind"), name))
            elif compound.get("kind") == "file":
                files[pathlib.PurePath(place.get("file")).name] = compound
    for path, page in book.headers.items():
        members = list(structs[path.name])
        found = [(member.findtext("name"), member.get("kind"), member) for member in
                 files[path.name].iter("memberdef")]
        tags = {name for items in structs.values() for _, _, name in items} | {name for name, kind, _ in found if kind == "enum"}
        for name, kind, member in found:
            if name in tags and kind == "typedef" or INTERNAL.search(name) or not name.lower().startswith("weft"):
                continue
            members.append((int(member.find("location").get("line")), DIRECTIVES[kind], name))
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            found = BANNER.match(line)
            if found:
                members.append((number, "heading", found.group(1)))
        title = f"<weft/{path.name}>"
        out = [heading(title, "="), f".. doxygenfile:: {path.name}\n   :sections: detaileddescription\n"]
        for _, kind, name in sorted(members):
            if kind == "heading":
                out.append(heading(name, "-"))
            else:
                out.append(f".. {kind}:: {name}\n" + ("   :members:\n   :undoc-members:\n" if kind in ("doxygenstruct", "doxygenunion")
                                                     else ""))
        book.write(page + ".rst", "\n".join(out))
    listed = "\n".join(f"   {page}" for page in book.headers.values())
    book.write("headers.rst", heading("The library", "=") + f"\n.. toctree::\n   :maxdepth: 1\n\n{listed}\n")


def cell(text):
    return text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")


def ops(book, weft):
    """The table of the ops."""
    rows = json.loads(subprocess.run([weft, "ops", "--json"], check=True, capture_output=True, text=True).stdout)
    out = ["# The ops", "", f"The {len(rows)} ops of the library, as `weft ops` lists them. Ops of the graph, such as "
           "`matmul`, have a function of the same name in [<weft/ops.h>](headers/ops.h.rst), losses in "
           "[<weft/losses.h>](headers/losses.h.rst); others, such as "
           "`matmul`'s gradients, are made by autodiff and by passes.", "",
           "| op | inputs | outputs | gradient | |", "|---|---|---|---|---|"]
    out += [f"| `{op['name']}` | {op['inputs']} | {op['outputs']} | {op['gradient']} | {cell(op['doc'])} |"
            for op in rows]
    book.write("ops.md", "\n".join(out) + "\n")


def commands(book, weft):
    """What each command says about itself."""
    def help_of(*args):
        return subprocess.run([weft, *args, "--help"], check=True, capture_output=True, text=True).stdout.rstrip()
    out = ["# The commands", "", "```text", help_of(), "```", ""]
    for name, about in re.findall(r"^  (\w+) +(.*)$", help_of(), re.M):
        out += [f"## weft {name}", "", "```text", help_of(name), "```", ""]
    book.write("commands.md", "\n".join(out))


def doxygen(book, folder):
    settings = (book.root / "docs/site/Doxyfile").read_text()
    settings += f"INPUT = {' '.join(map(str, book.headers))}\nOUTPUT_DIRECTORY = {folder}\n"
    settings += f"INPUT_FILTER = \"{sys.executable} {book.root}/docs/site/header_filter.py\"\n"
    folder.mkdir()
    (folder / "Doxyfile").write_text(settings)
    subprocess.run(["doxygen", folder / "Doxyfile"], check=True)
    return folder / "xml"


def repair_styles(folder):
    """Removes the imports of the theme's styles: Debian's have one of a file of its web servers, which no page of files
    finds. weft.css has what it would set."""
    for path in folder.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        without = IMPORT.sub("", text)
        if without != text:
            path.write_text(without, encoding="utf-8")


def main():
    root, weft, version, output = sys.argv[1:5]
    output = pathlib.Path(output).resolve()
    work = output.with_name(output.name + ".source")
    shutil.rmtree(work, ignore_errors=True)
    book = Book(pathlib.Path(root).resolve(), work)
    work.mkdir(parents=True)
    for path, page in book.pages.items():
        text = book.convert(path, page)
        if page == "index":
            contents = book.contents()
            contents.setdefault("Reference", []).extend(["headers", "ops", "commands"])
            text += "".join(toctree(caption, pages) for caption, pages in contents.items() if pages)
        book.write(page + ".md", text)
    ops(book, weft)
    commands(book, weft)
    xml_folder = doxygen(book, work / "doxygen")
    headers(book, xml_folder)
    shutil.copy(book.root / "docs/site/conf.py", work)
    shutil.copytree(book.root / "docs/site/_static", work / "_static")
    shutil.rmtree(output, ignore_errors=True)
    subprocess.run(["sphinx-build", "-q", "-W", "--keep-going", "-b", "html", "-d", output.with_name("doctrees"), "-j", "2",
                    work, output], check=True, env=dict(os.environ, WEFT_VERSION=version, WEFT_XML=str(xml_folder)))
    repair_styles(output / "_static")
    if len(sys.argv) > 5:
        inputs = [*book.pages, *book.headers, *(root_file for root_file in pathlib.Path(root).glob("docs/*.svg"))]
        pathlib.Path(sys.argv[5]).write_text(f"{output}: " + " ".join(str(path).replace(" ", "\\ ") for path in inputs))


if __name__ == "__main__":
    main()
