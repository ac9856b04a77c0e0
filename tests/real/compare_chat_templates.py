"""Compares what weft and Jinja2, configured as transformers does, render of random chat templates and of those in
tests/golden/chat_templates. Both render the same text, or both refuse; what weft says it does not support is counted.
Usage: compare_chat_templates.py PROGRAM CASES [SEED [TOKENIZER_CONFIG...]]; PROGRAM is build/tests/chat_texts, and each
TOKENIZER_CONFIG has one more template."""
import json
import pathlib
import re
import struct
import subprocess
import sys
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "golden"))
from chat_template_cases import Cases  # noqa: E402
from jinja_reference import DATE, render  # noqa: E402

# Addresses in a text are those of Python's objects, which no template needs.
ADDRESS = re.compile(r"<[^<>]* at 0x[0-9a-f]+>|<Macro |<Namespace |<class |<(Loop)?Context |range\(", re.I)
UNSUPPORTED = re.compile(r"not supported|not known|supports|cannot become text|more than (64 bits|18 digits)|a power that is not real")


def texts_of_weft(program, pairs):
    data = b"".join(struct.pack("=I", len(text)) + text for template, variables in pairs
                    for text in (template.encode(), json.dumps(variables, ensure_ascii=False).encode()))
    done = subprocess.run([program, "--date", DATE.strftime("%Y-%m-%dT%H:%M:%S")], input=data, stdout=subprocess.PIPE, check=True)
    for line in done.stdout.decode().split("\n")[:-1]:
        kind, _, rest = line.partition(" ")
        yield kind, bytes.fromhex(rest).decode() if kind == "text" else rest


def is_unsupported(ours, theirs):
    """Whether weft refuses by its own limits: then a text of Jinja's, if the message is about values, has an address."""
    if ours[0] == "text" or not UNSUPPORTED.search(ours[1]):
        return False
    return "cannot become text" not in ours[1] or theirs[0] == "error" or bool(ADDRESS.search(theirs[1]))


def main():
    program, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1
    warnings.simplefilter("ignore")
    cases = Cases(seed)
    published = [path.read_text() for path in sorted((ROOT / "tests" / "golden" / "chat_templates").glob("*.jinja"))]
    for path in sys.argv[4:]:
        published.append(json.loads(pathlib.Path(path).read_text())["chat_template"])
    totals = {"texts": 0, "refusals": 0, "unsupported": 0}
    different = 0
    for start in range(0, count, 2000):
        pairs = []
        for i in range(start, min(count, start + 2000)):
            pairs.append((published[i // 5 % len(published)] if published and i % 5 == 0 else cases.template(), cases.variables()))
        for (template, variables), ours in zip(pairs, texts_of_weft(program, pairs), strict=True):
            theirs = render(template, variables)
            if is_unsupported(ours, theirs):
                totals["unsupported"] += 1
            elif ours == theirs or ours[0] == theirs[0] == "error":
                totals["texts" if ours[0] == "text" else "refusals"] += 1
            else:
                different += 1
                if different <= 20:
                    print(f"{template!r}\n    of {json.dumps(variables, ensure_ascii=False)}\n    weft  {ours}\n    jinja {theirs}")
    print(f"{count} templates: {totals['texts']} texts and {totals['refusals']} refusals alike, {totals['unsupported']} unsupported, "
          f"{different} different")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
