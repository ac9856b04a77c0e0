"""Compares weft with the package `tokenizers`: ids, spans, types and decoded texts of mixed texts.
Usage: compare_tokenizers.py PROGRAM TEXTS FILE...; PROGRAM is tests/tokenizer_ids of a build, FILEs are tokenizer.json. Prints
a line for each file and the first differences; the exit status is 1 if there is one."""
import pathlib
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "golden"))

from make_tokenizers import encode  # noqa: E402
from tokenizer_texts import mixed  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

CHUNK = 5000
SHOWN = 5


def run(program, path, texts):
    """The three lines that the program prints for each text."""
    data = b"".join(struct.pack("=I", len(text)) + text for text in texts)
    result = subprocess.run([program, path], input=data, stdout=subprocess.PIPE, check=True)
    lines = result.stdout.decode().split("\n")
    return [lines[i:i + 3] for i in range(0, 3 * len(texts), 3)]


def differences(tokenizer, text, lines):
    for special in (False, True):
        ids, rows = encode(tokenizer, text, special)
        theirs = " ".join(str(number) for row in rows for number in row)
        if lines[special].strip() != theirs:
            yield f"special {special}: weft {lines[special].strip()[:300]}\n    tokenizers {theirs[:300]}"
        if not special:
            decoded = tokenizer.decode(ids).replace("\0", " ").encode().hex()
            if decoded != lines[2]:
                yield f"decoded: weft {lines[2][:300]}\n    tokenizers {decoded[:300]}"


def compare(program, n, path):
    tokenizer = Tokenizer.from_file(path)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    different = 0
    for seed in range(0, n, CHUNK):
        texts = list(mixed(min(CHUNK, n - seed), 1000 + seed))
        for text, lines in zip(texts, run(program, path, texts)):
            found = list(differences(tokenizer, text, lines))
            different += bool(found)
            if found and different <= SHOWN:
                print(f"{text!r:.300}\n  {found[0]}")
    print(f"{path}: {n} texts, {different} differ", flush=True)
    return different


def main():
    program, n, *paths = sys.argv[1:]
    sys.exit(sum(compare(program, int(n), path) for path in paths) > 0)


main()
