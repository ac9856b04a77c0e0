"""`weft train --schema` and `weft fit --schema` describe the recipes that these commands accept. Usage:
recipe_schema.py WEFT ROOT. The recipes of ROOT and of a run satisfy the schema, and for values of every key the
schema and the command agree. Prints each difference; exit status 1 if there is one."""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TYPES = {"object": dict, "array": list, "string": str, "boolean": bool}
ANNOTATIONS = {"$schema", "title", "description", "default"}


def is_type(name, x):
    number = isinstance(x, (int, float)) and not isinstance(x, bool)
    if name in ("number", "integer"):
        return number and (name == "number" or float(x).is_integer())
    return isinstance(x, TYPES[name])


def errors(schema, x, at=""):
    """What is wrong with x. Keywords that are not known here are an error of the test."""
    for key, value in schema.items():
        if key in ANNOTATIONS or key == "then":
            continue
        if key == "type":
            names = [value] if isinstance(value, str) else value
            if not any(is_type(name, x) for name in names):
                yield f"{at}: not {names}"
        elif key == "enum" and x not in value or key == "const" and x != value:
            yield f"{at}: not of {value}"
        elif key in ("minimum", "maximum") and is_type("number", x) and (x < value if key == "minimum" else x > value):
            yield f"{at}: beyond {value}"
        elif key == "minLength" and isinstance(x, str) and len(x) < value:
            yield f"{at}: shorter than {value}"
        elif key == "maxItems" and isinstance(x, list) and len(x) > value:
            yield f"{at}: more than {value}"
        elif key == "items" and isinstance(x, list):
            for item in x:
                yield from errors(value, item, at + "[]")
        elif key == "properties" and isinstance(x, dict):
            for name in value.keys() & x.keys():
                yield from errors(value[name], x[name], f"{at}.{name}")
        elif key == "additionalProperties" and isinstance(x, dict) and value is False:
            yield from (f"{at}: no key {name}" for name in x.keys() - schema["properties"].keys())
        elif key == "required" and isinstance(x, dict):
            yield from (f"{at}: lacks {name}" for name in value if name not in x)
        elif key == "allOf":
            for other in value:
                yield from errors(other, x, at)
        elif key == "if" and not list(errors(value, x, at)):
            yield from errors(schema["then"], x, at)
        elif key not in ("enum", "const", "minimum", "maximum", "minLength", "maxItems", "items", "properties",
                         "additionalProperties", "required", "if"):
            sys.exit(f"recipe_schema.py does not know the keyword {key}")


def values(schema):
    """Values around what a key accepts, and of other types."""
    yield from ("", "x", ["x"], [""], [], [7], [2], [7.5], [1 << 20], [(1 << 20) + 1], {}, None, True, 0.5)
    yield from schema.get("enum", [])
    if "minimum" in schema:
        low, high = schema["minimum"], schema["maximum"]
        yield from (low, high, low - 1, high + 1, low - 1e-9, high * (1 + 1e-9), (low + high) / 2)
    yield schema["default"]


class Command:
    def __init__(self, weft, words, folder):
        self.weft, self.words, self.folder = weft, words, folder
        done = subprocess.run([weft, words[0], "--schema"], capture_output=True, text=True, check=True)
        self.schema = json.loads(done.stdout)

    def refused(self, recipe, number):
        """What the command says about a key, or None: it then fails because it has nothing to train on."""
        path = pathlib.Path(self.folder, f"{self.words[0]}-{number}", "recipe.json")
        path.parent.mkdir()
        path.write_text(json.dumps(recipe))
        words = [word.replace("FOLDER", str(path.parent)) for word in self.words]
        done = subprocess.run([self.weft, *words], cwd=self.folder, capture_output=True, text=True)
        if done.returncode not in (1, 2):
            sys.exit(f"weft {' '.join(words)}: status {done.returncode}: {done.stderr}")
        return done.stderr if f"{path}: " in done.stderr else None

    def compare(self, case):
        number, recipe = case
        by_schema, by_command = list(errors(self.schema, recipe)), self.refused(recipe, number)
        if bool(by_schema) != bool(by_command):
            return f"{json.dumps(recipe)}: the schema says {by_schema}, the command: {by_command}"
        return None

    def cases(self):
        sections = {name: s for name, s in self.schema["properties"].items() if "properties" in s}
        for section, s in sections.items():
            yield {section: 7}
            yield {section: {"no such key": 1}}
            for key, of in s["properties"].items():
                yield from ({section: {key: value}} for value in values(of))
        yield from ({"no such key": 1}, {"about": 1}, {"about": "x", "$schema": "x"}, {"$schema": 1}, {"model": "none"}, {"model": 1},
                    {"model": "gpt"}, {"model_options": 1}, [])


def main():
    weft, root = os.path.realpath(sys.argv[1]), pathlib.Path(sys.argv[2])
    found = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        train = Command(weft, ["train", "FOLDER/recipe.json"], folder)
        fit = Command(weft, ["fit", "--resume", "--out", "FOLDER"], folder)
        for path in sorted(root.glob("models/recipes/*.json")):
            for problem in errors(train.schema, json.loads(path.read_text())):
                found += 1
                print(f"{path.name}{problem}")
        for options, good in (({"d_model": 8}, True), ({"d_model": -1}, False), ({"d_modle": 8}, False), ({"f64": 2}, False)):
            if good != (not list(errors(train.schema, {"model": "gpt", "model_options": options}))):
                found += 1
                print(f"gpt with {options}: expected {'no ' if good else 'an '}error")
        n = 0
        for command in (train, fit):
            for problem in pool.map(command.compare, enumerate(command.cases())):
                n += 1
                if problem:
                    found += 1
                    print(problem)
    print(f"{n} recipes, {found} differences")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
