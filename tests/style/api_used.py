"""Checks that every public function is called by a test or an example: each name that the headers
declare with WEFT_API must be an undefined symbol of an object file of tests/ or examples/.
Usage: api_used.py BUILD_FOLDER; prints the names that are not, exit status 1 if there is one."""
import pathlib
import re
import subprocess
import sys

ROOMS = ["graph", "ops", "autograd", "inspect", "emit", "text", "tokenizers", "distributed", "models", "formats", "mpi"]
FOLDERS = ["tests", "examples"]


def declared(header):
    """The names that a header declares with WEFT_API: functions, and constants."""
    text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
    for declaration in re.findall(r"WEFT_API\b([^;{]*);", re.sub(r"#define.*", "", text)):
        function = re.search(r"\b(weft_\w+)\s*\(", declaration)
        if function:
            yield function.group(1)
        else:
            yield from re.findall(r"\b(weft_\w+)\s*(?:,|$)", declaration)


def called(objects):
    """The symbols that object files take from elsewhere."""
    output = subprocess.run(["nm", "-u", *objects], check=True, capture_output=True, text=True)
    return set(re.findall(r"^\s+U (weft_\w+)", output.stdout, re.M))


def main():
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    build = pathlib.Path(sys.argv[1])
    # weft-mpi is optional: its header counts only where it was built.
    rooms = [room for room in ROOMS if room not in ("mpi", "tokenizers") or list(build.glob(f"libweft-{room}.*"))]
    names = {name for room in rooms for header in (root / room / "weft").glob("*.h*")
             for name in declared(header)}
    # The suite null calls every function, but only with zeros.
    objects = [str(path) for folder in FOLDERS for path in (build / folder).rglob("*.o")
               if not path.name.endswith("null_test.c.o")]
    if len(names) < 400 or not objects:
        sys.exit(f"only {len(names)} public names and {len(objects)} objects: not a built project?")
    unused = sorted(names - called(objects))
    for name in unused:
        print(f"{name}: no test and no example calls it")
    if not unused:
        print(f"{len(names)} public functions and constants, all used by tests or examples")
    return bool(unused)


sys.exit(main())
