"""What the programs that measure share: progress, running commands, tables."""
import os
import subprocess
import sys


class Failed(Exception):
    """One line for the user."""


def progress(text):
    end = "" if sys.stderr.isatty() else "\n"
    print(f"\r\033[K{text}" if sys.stderr.isatty() else text, end=end, file=sys.stderr, flush=True)


def call(command, env):
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no message"]
        raise Failed(f"{os.path.basename(command[0])} {' '.join(command[1:3])}: {lines[-1]}")
    return done.stdout


def print_table(title, table, markdown):
    """table: the heads of the columns, and the rows, all of them text."""
    head, rows = table
    if not rows:
        return
    if markdown:
        print(f"\n### {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
        for row in rows:
            print(f"| {' | '.join(row)} |")
        return
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    print(f"\n{title}")
    for row in [head, *rows]:
        print("  ".join(c.ljust(w) for c, w in zip(row, widths)).rstrip())
