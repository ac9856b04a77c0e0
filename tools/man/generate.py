#!/usr/bin/env python3
"""Makes the manual pages and the completion files from what the program says of itself.
Usage: generate.py WEFT FOLDER
Writes FOLDER/man1/*.1, FOLDER/completions/weft (bash) and FOLDER/site-functions/_weft (zsh)."""
import shutil
import sys
from pathlib import Path

import bash
import pages
import zsh
from program import Program


def write(folder, files):
    """Replaces the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    program, folder = Program(sys.argv[1]), Path(sys.argv[2])
    write(folder / "man1", pages.pages(program))
    write(folder / "completions", {"weft": bash.script(program)})
    write(folder / "site-functions", {"_weft": zsh.script(program)})


if __name__ == "__main__":
    main()
