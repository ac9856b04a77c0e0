"""Writes a C table of the public functions, each with a call that gives it zeros: NULL for pointers,
and zero for everything else. A graph is the caller's, NULL or an empty one. Functions that only
kernels call (call.h, kernel.h) are left out. Usage: null_calls.py OUTPUT DEPFILE SOURCE_FOLDER [ROOM]: without that
room"""
import pathlib
import re
import sys

ROOMS = ["graph", "ops", "autograd", "inspect", "emit", "text", "tokenizers", "distributed", "models", "formats"]
KERNELS = ["call.h", "kernel.h"]


def declarations(text):
    """(name, parameters) of the functions that a header declares with WEFT_API."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^\s*#(?:.*\\\n)*.*$", "", text, flags=re.M)
    for declaration in re.findall(r"WEFT_API\b([^;{]*);", text):
        flat = re.sub(r"WEFT_PRINTF\(.*", "", " ".join(declaration.split())).strip()
        found = re.match(r"([\w \*]*?)\b(weft_\w+)\s*\((.*)\)$", flat)
        if found:
            parameters = re.split(r",\s*(?![^()]*\))", found.group(3))
            yield found.group(1).strip(), found.group(2), [p.strip() for p in parameters]


def argument(parameter):
    if parameter == "const char *format":
        return '"text"'
    if parameter.startswith("weft_error *"):
        return "error"
    if re.match(r"(const )?weft_graph \*\w+$", parameter):
        return "graph"
    if "*" in parameter or "[" in parameter:
        return "NULL"
    kind = " ".join(parameter.split()[:-1]).replace("const ", "")
    return f"({kind}){{0}}"


def main():
    output, depfile, root, *without = sys.argv[1:]
    headers = [h for room in ROOMS if room not in without for h in sorted(pathlib.Path(root, room, "weft").glob("*.h"))
               if h.name not in KERNELS]
    rows = []
    for header in headers:
        for result, name, parameters in declarations(header.read_text()):
            arguments = [argument(p) for p in parameters if p not in ("void", "...")]
            call = f"{name}({', '.join(arguments)})"
            is_status = result == "weft_status"
            body = f"return (int){call};" if is_status else f"(void){call}; return -1;"
            record = str("error" in arguments).lower()
            rows.append((name, record, body))
    with open(output, "w", encoding="utf-8") as file:
        for name, _, body in rows:
            print(f"static int call_{name}(weft_graph *graph, weft_error *error)\n"
                  f"{{\n    (void)graph, (void)error;\n    {body}\n}}", file=file)
        print("static const null_call null_calls[] = {", file=file)
        for name, record, _ in rows:
            print(f'    {{"{name}", {record}, call_{name}}},', file=file)
        print("};", file=file)
    pathlib.Path(depfile).write_text(f"{output}: {' '.join(map(str, headers))}\n", encoding="utf-8")


main()
