#!/usr/bin/env python3
"""Checks the site of the documentation in FOLDER: no page loads anything from the network, every internal link resolves
to a file and an anchor there, and the table of contents of the front page reaches every page."""
import html.parser
import pathlib
import re
import sys
import urllib.parse

# Made by Sphinx, in addition to the pages of the book.
GENERATED = {"search.html", "genindex.html", "index.html"}
NETWORK = re.compile(r"^(?:[a-z]+:)?//")


class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.loads, self.anchors, self.contents = [], [], set(), set()
        self.in_contents = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        self.anchors.update(attrs[name] for name in ("id", "name") if attrs.get(name))
        self.in_contents |= "sidebar-tree" in (attrs.get("class") or "").split()
        if tag == "a" and attrs.get("href"):
            self.links.append(attrs["href"])
            if self.in_contents:
                self.contents.add(attrs["href"].partition("#")[0])
        elif tag != "a":
            self.loads += [attrs[name] for name in ("src", "href", "srcset", "data", "poster") if attrs.get(name)]
        self.loads += re.findall(r"url\(([^)]*)\)", attrs.get("style") or "")

    def handle_endtag(self, tag):
        if tag == "aside":
            self.in_contents = False


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    pages = {path: Page(path) for path in sorted(folder.rglob("*.html")) if "_static" not in path.parts}
    problems, links = [], 0
    for path, page in pages.items():
        name = path.relative_to(folder)
        problems += [f"{name}: loads {load}" for load in page.loads if NETWORK.match(load)]
        for link in page.links + page.loads:
            target, _, anchor = urllib.parse.unquote(link).partition("#")
            if re.match(r"[a-z]+:", link) or NETWORK.match(link):
                continue
            links += 1
            target = target.partition("?")[0]
            goal = (path.parent / target).resolve() if target else path
            if not goal.is_file():
                problems.append(f"{name}: {link} leads to no file")
            elif anchor and goal in pages and anchor not in pages[goal].anchors and link != "#":
                problems.append(f"{name}: {link} leads to no anchor")
    for style in folder.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        problems += [f"{style.relative_to(folder)}: loads {load}" for load in
                     re.findall(r"""(?:url\(|@import)\s*['"]?((?:[a-z]+:)?//[^)'"]*)""", text)]
    reached = {(folder / link).resolve() for link in pages[folder / "index.html"].contents}
    book = [path for path in pages if path.name not in GENERATED]
    problems += [f"{path.relative_to(folder)}: is in no table of contents" for path in book if path not in reached]
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"site: {len(pages)} pages, {links} internal links, {len(problems)} problems")
    return 1 if problems or len(book) < 20 else 0


if __name__ == "__main__":
    sys.exit(main())
