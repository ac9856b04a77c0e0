"""Checks the rules of the API (DESIGN.md) that can be checked: reads the functions that the headers declare with
WEFT_API, and prints each that breaks a rule. Exceptions are listed below, with the reason; one that is not needed
is also an error. Usage: api_rules.py [SOURCE_FOLDER]; exit status 1 if a rule is broken."""
import pathlib
import re
import sys

ROOMS = ["graph", "ops", "autograd", "inspect", "emit", "text", "tokenizers", "models", "distributed", "formats", "mpi"]

# For each rule: function: reason.
EXCEPTIONS = {
    "takes_its_object_first": {
        "weft_tensor_bytes": "asked before there is a tensor",
        "weft_safetensors_write": "writes a file without opening one",
        "weft_constrained_text_allows": "is a weft_token_rule, whose context is the object",
    },
    "lists_in_one_way": {
        "weft_tokenizer_encode": "computes its list in the caller's memory, once a line",
    },
    "reports_why": {
        "weft_error_set": "makes the error",
        "weft_error_copy": "makes the error",
        "weft_graph_status": "a getter: the error is weft_graph_error",
    },
}


class Function:
    """A declaration: name, type of the result, and (type, name) of each parameter."""

    def __init__(self, declaration):
        head, arguments = re.fullmatch(r"(.*?\bweft_\w+)\s*\((.*)\)", declaration).groups()
        self.name = re.search(r"\bweft_\w+$", head)[0]
        self.result = head[:-len(self.name)].strip()
        self.parameters = [parameter(text) for text in split(arguments) if text not in ("void", "...")]

    def types(self):
        return [type for type, _ in self.parameters]


def split(arguments):
    """The parameters of a list, in which those that are functions have commas of their own."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(arguments + ","):
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            parts.append(arguments[start:i].strip())
            start = i + 1
    return [part for part in parts if part]


def parameter(text):
    """(type, name); a pointer to a function has the type "function"."""
    function = re.search(r"\(\*(\w+)\)", text)
    if function:
        return "function", function[1]
    text = re.sub(r"\[[^]]*\]", "", text)
    name = re.search(r"\w+$", text)[0]
    return text[:-len(name)].strip(), name


class Api:
    """All public functions, their names, and the names of all public types."""

    def __init__(self, functions, types):
        self.functions, self.types = functions, types
        self.names = {f.name for f in functions}


def read(root):
    """The Api of a folder of sources."""
    functions, types = [], set()
    for room in ROOMS:
        for header in sorted((root / room / "weft").glob("*.h")):
            text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
            text = re.sub(r"^\s*#.*?[^\\]$", "", text, flags=re.S | re.M)
            types.update(re.findall(r"\b(?:struct|enum) (weft_\w+)", text))
            for declaration in re.findall(r"WEFT_API\b([^;{]*);", text):
                declaration = re.sub(r"\s*WEFT_PRINTF\(.*?\)", "", " ".join(declaration.split()))
                if re.search(r"\bweft_\w+\s*\(", declaration):
                    functions.append(Function(declaration))
    return Api(functions, types)


def object_of(function, types):
    """The type whose name the function's begins with; None if there is none."""
    words = function.name.split("_")
    names = ("_".join(words[:n]) for n in range(len(words) - 1, 1, -1))
    return next((name for name in names if name in types), None)


def names_getters(f, api):
    """A getter is called after what it returns, without get."""
    return not re.search(r"_get(_|$)", f.name)


def takes_its_object_first(f, api):
    """weft_OBJECT_VERB takes the object first, or makes it; weft_T_of returns a weft_T; a builder takes the graph."""
    name = object_of(f, api.types)
    first = f.types()[0] if f.parameters else ""
    return (not name or not f.parameters or f"{name}_of" == f.name or re.search(rf"\b{name}(_\w+)?\b", first) or
            re.search(rf"\b{name}\b", f.result) or "weft_graph" in first or
            any(re.fullmatch(rf"{name} \*\*", type) for type in f.types()))


def has_its_end(f, api):
    """What weft_OBJECT_new makes weft_OBJECT_free frees, and weft_OBJECT_open has a weft_OBJECT_close."""
    made = re.fullmatch(r"(weft_\w+?)_(new(?:_\w+)?|open)", f.name)
    return not made or made[1] + ("_close" if made[2] == "open" else "_free") in api.names


def has_the_error_last(f, api):
    """weft_error * is the last parameter."""
    return f.name.startswith("weft_error_") or "weft_error *" not in f.types()[:-1]


def reports_no_error_by_bool(f, api):
    """A bool answers a question. What can fail returns a weft_status or a pointer."""
    return f.result != "bool" or "weft_error *" not in f.types()


def reports_why(f, api):
    """A weft_status comes with a weft_error *, except from builders, whose error is the graph's."""
    return f.result != "weft_status" or f.types()[-1:] == ["weft_error *"] or "weft_graph *" in f.types()[:1]


def lists_in_one_way(f, api):
    """A list is a borrowed array: const T *weft_OBJECT_THINGS(object, size_t *count)."""
    counts = [name for type, name in f.parameters if type == "size_t *" and re.match("count|n(_|$)", name)]
    copies = any(name == "capacity" for _, name in f.parameters) and "char *" not in f.types()
    visits = any(name == "visit" for _, name in f.parameters)
    borrowed = re.fullmatch(r"const .*\*", f.result) and [*f.types(), ""][1:3] == ["size_t *", ""]
    return not copies and not visits and (not counts or borrowed and counts == ["count"])


def takes_options_by_pointer(f, api):
    """A struct of options is a const pointer, which may be NULL."""
    options = [type for type in f.types() if re.search(r"\bweft_\w*options\b", type)]
    return all(re.fullmatch(r"const weft_\w+ \*", type) for type in options)


RULES = [names_getters, takes_its_object_first, has_its_end, has_the_error_last, reports_no_error_by_bool, reports_why,
         lists_in_one_way, takes_options_by_pointer]


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent.parent.parent
    api = read(root)
    if len(api.functions) < 400:
        sys.exit(f"only {len(api.functions)} functions: not the sources?")
    broken = 0
    for rule in RULES:
        exceptions = EXCEPTIONS.get(rule.__name__, {})
        found = {f.name for f in api.functions if not rule(f, api)}
        for name in sorted(found - set(exceptions)):
            print(f"{name}: {rule.__doc__}")
        for name in sorted(set(exceptions) - found):
            print(f"{name}: the exception from \"{rule.__doc__}\" is not needed")
        broken += len(found ^ set(exceptions))
    if not broken:
        print(f"{len(api.functions)} public functions, {len(RULES)} rules")
    return bool(broken)


sys.exit(main())
