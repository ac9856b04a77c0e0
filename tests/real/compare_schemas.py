"""Holds constraints by random JSON Schemas against the package jsonschema. Each schema is of the subset that
weft/constraint.h lists. Usage: compare_schemas.py LIBRARY SCHEMAS SEED; LIBRARY is libweft-tokenizers.so. Exit status 1
at the first difference."""
import ctypes
import json
import random
import re
import sys

import jsonschema

NEVER, MAYBE, WHOLE = range(3)
LETTERS = 'ab"\\/é\t1Z 😀'
WORDS = ["a", "b", "name", "x y", 'q"', "é", "a/b", ""]
# A pattern and texts that it matches.
PATTERNS = [("^[A-Z]{2}-\\d+$", ["AB-1", "XY-042"]), ("^(yes|no)$", ["yes", "no"]), ("b+", ["abba", "b"]), ("^a.c", ["abc", "a c!"]),
            ("[^0-9]$", ["1a", "é"])]
FORMATS = {"date": ["2024-02-29", "1999-12-31"], "time": ["23:59:59Z", "01:02:03.5+01:00"],
           "date-time": ["2023-01-01T00:00:00Z"], "ipv4": ["127.0.0.1", "255.1.20.3"],
           "uuid": ["123e4567-e89b-12d3-a456-426614174000"], "email": ["a@b.cd", "x.y@z-1.org"]}


class Error(ctypes.Structure):
    """weft_error, whose beginning alone is read."""
    _fields_ = [("status", ctypes.c_int), ("rest", ctypes.c_char * 4096)]


library = ctypes.CDLL(sys.argv[1])
library.weft_constraint_new_json.restype = ctypes.c_void_p
library.weft_constraint_new_json.argtypes = [ctypes.c_char_p, ctypes.POINTER(Error)]
library.weft_constraint_free.argtypes = [ctypes.c_void_p]
library.weft_constraint_match.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int),
                                          ctypes.POINTER(Error)]


class Constraint:
    def __init__(self, schema):
        error = Error()
        self.handle = library.weft_constraint_new_json(json.dumps(schema).encode(), ctypes.byref(error))
        if not self.handle:
            fail("the schema is refused", schema, bytes(error.rest).split(b"\0\0")[0])

    def state(self, text):
        """Of bytes; None if it takes too many steps."""
        state, error = ctypes.c_int(), Error()
        if library.weft_constraint_match(self.handle, text, len(text), ctypes.byref(state), ctypes.byref(error)):
            return None
        return state.value

    def close(self):
        library.weft_constraint_free(self.handle)


def fail(why, schema, text):
    sys.exit(f"{why}\n  schema: {json.dumps(schema, ensure_ascii=False)}\n  text: {text!r}")


# ---- Random schemas, and values that are valid for them ----

def any_value(rng, depth=0):
    kind = rng.randrange(7 if depth < 2 else 5)
    if kind == 5:
        return [any_value(rng, depth + 1) for _ in range(rng.randrange(3))]
    if kind == 6:
        return {rng.choice(WORDS): any_value(rng, depth + 1) for _ in range(rng.randrange(3))}
    return [None, True, rng.randrange(-99, 100), rng.choice([0.5, -2.25, 1e20, 3.0]), text(rng, 0, 5)][kind]


def text(rng, least, most):
    return "".join(rng.choice(LETTERS) for _ in range(rng.randint(least, most)))


def integer(rng):
    """Bounds of whole numbers, and one between them."""
    low, high = sorted(rng.randint(-10 ** rng.randint(1, 8), 10 ** rng.randint(1, 8)) for _ in range(2))
    schema = {"type": "integer"}
    if rng.random() < 0.7:
        schema.update({"minimum": low} if rng.random() < 0.5 else {"exclusiveMinimum": low - 1})
    if rng.random() < 0.7:
        schema.update({"maximum": high} if rng.random() < 0.5 else {"exclusiveMaximum": high + 0.5})
    return schema, lambda: rng.randint(low, high)


def string(rng):
    kind = rng.randrange(4)
    if kind == 0:
        pattern, texts = rng.choice(PATTERNS)
        return {"type": "string", "pattern": pattern}, lambda: rng.choice(texts)
    if kind == 1:
        name = rng.choice(list(FORMATS))
        return {"type": "string", "format": name}, lambda: rng.choice(FORMATS[name])
    least, most = sorted(rng.randrange(6) for _ in range(2))
    schema = {"type": "string"}
    if kind == 2:
        schema.update({"minLength": least, "maxLength": most})
    return schema, lambda: text(rng, least, most)


def array(rng, depth, root):
    items, value = schema_of(rng, depth + 1, root)
    least, most = sorted(rng.randrange(4) for _ in range(2))
    schema = {"type": "array", "items": items, "minItems": least}
    if rng.random() < 0.7:
        schema["maxItems"] = most
    return schema, lambda: [value() for _ in range(rng.randint(least, most))]


def object_of(rng, depth, root):
    names = rng.sample(WORDS, rng.randrange(4))
    members = {name: schema_of(rng, depth + 1, root) for name in names}
    required = [n for n in names if rng.random() < 0.5]
    schema = {"type": "object", "properties": {n: s for n, (s, _) in members.items()}}
    others = None
    if required:
        schema["required"] = required
    if rng.random() < 0.3:
        more, others = schema_of(rng, depth + 1, root)
        schema["additionalProperties"] = more
    elif rng.random() < 0.5:
        schema["additionalProperties"] = False

    def value():
        made = {n: v() for n, (_, v) in members.items() if n in required or rng.random() < 0.5}
        if others and rng.random() < 0.5:
            made["other"] = others()
        return made
    return schema, value


def schema_of(rng, depth, root):
    """A schema, and a function that returns a value that is valid for it."""
    kind = rng.randrange(10 if depth < 3 else 5)
    if kind == 0:
        return integer(rng)
    if kind == 1:
        return string(rng)
    if kind == 2:
        return {"type": "number", "minimum": 0}, lambda: rng.choice([0, 7, 0.125, 12.5, 1e3])
    if kind == 3:
        values = [any_value(rng) for _ in range(rng.randint(1, 4))]
        return ({"enum": values} if len(values) > 1 else {"const": values[0]}), lambda: rng.choice(values)
    if kind == 4:
        name, value = rng.choice([("boolean", lambda: rng.random() < 0.5), ("null", lambda: None)])
        return {"type": name, "title": "annotation"}, value
    if kind == 5:
        return array(rng, depth, root)
    if kind == 6:
        choices = [schema_of(rng, depth + 1, root) for _ in range(rng.randint(1, 3))]
        return {"anyOf": [s for s, _ in choices]}, lambda: rng.choice(choices)[1]()
    if kind == 7 and depth:
        name = f"d{len(root)}"
        root[name] = None
        root[name], value = schema_of(rng, depth + 1, root)
        return {"$ref": f"#/$defs/{name}"}, value
    if kind == 8:
        return {} if rng.random() < 0.5 else {"allOf": [{}]}, lambda: any_value(rng)
    return object_of(rng, depth, root)


def random_schema(rng):
    root = {}
    schema, value = schema_of(rng, 0, root)
    return {**schema, **({"$defs": root} if root else {})}, value


# ---- The form of the constraint's texts ----

def dump(value, rng, escapes):
    separators = rng.choice([(",", ":"), (", ", ": ")])
    return json.dumps(value, ensure_ascii=escapes, separators=separators).encode()


def is_written(value, text):
    """Whether the text is in the constraint's form as far as numbers go: whole numbers have no point, and numbers are short."""
    return not re.search(rb"\d{17}|\d[eE]|-0\b|\d\.0\b", text)


def plain(value):
    """Whether no string of a value has a character that JSON escapes, which `pattern` and names of others must not."""
    if isinstance(value, str):
        return not re.search(r'["\\\x00-\x1f]', value)
    if isinstance(value, dict):
        return all(plain(k) and plain(v) for k, v in value.items())
    return not isinstance(value, list) or all(map(plain, value))


def changed(value, rng):
    """A value that may be invalid."""
    if isinstance(value, dict) and value and rng.random() < 0.7:
        key = rng.choice(list(value))
        made = dict(value)
        if rng.random() < 0.4:
            del made[key]
        else:
            made[key] = changed(value[key], rng)
        return made
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return value[:at] + ([changed(value[at], rng)] if rng.random() < 0.6 else []) + value[at + 1:]
    if isinstance(value, int) and not isinstance(value, bool):
        return value + rng.choice([-10 ** 9, -1, 1, 10 ** 9])
    if isinstance(value, str):
        return value + rng.choice(LETTERS) if rng.random() < 0.5 else value[1:]
    return any_value(rng)


ALPHABET = [bytes([b]) for b in range(32, 127)] + ["é".encode(), "😀".encode()]


def write(constraint, rng, most=400):
    """A text that the constraint allows, character by character; None if it has not ended in time."""
    made, state = b"", MAYBE
    while len(made) < most:
        if state == WHOLE and (made[-1:] in b"}]\"el" or rng.random() < 0.5):
            return made
        for add in sorted(ALPHABET, key=lambda a: rng.random() * (0.3 if a in (b'"', b"}", b"]") else 1)):
            now = constraint.state(made + add)
            if now is None:
                return None
            if now != NEVER:
                made, state = made + add, now
                break
        else:
            return made if state == WHOLE else fail("no character can follow", None, made)
    return None


def main():
    rng = random.Random(int(sys.argv[3]))
    counts = dict.fromkeys(("written", "valid", "invalid", "steps"), 0)
    checker = jsonschema.FormatChecker(["date", "ipv4", "uuid"])
    for _ in range(int(sys.argv[2])):
        schema, value = random_schema(rng)
        constraint, validator = Constraint(schema), jsonschema.Draft202012Validator(schema, format_checker=checker)
        for _ in range(3):
            made = write(constraint, rng)
            if made is None:
                continue
            counts["written"] += 1
            try:
                good = validator.is_valid(json.loads(made))
            except ValueError:
                good = False
            if not good:
                fail("jsonschema refuses what the constraint wrote", schema, made)
        for k in range(20):
            one = value()
            for _ in range(k % 4):
                one = changed(one, rng)
            written, valid = dump(one, rng, k % 4 == 3), validator.is_valid(one)
            state = constraint.state(written)
            counts["steps"] += state is None
            if state == WHOLE and not valid:
                fail("the constraint takes what jsonschema refuses", schema, written)
            counts["invalid"] += not valid
            # Values as they were made have members in the order of the schema.
            if valid and k % 4 == 0 and is_written(one, written) and plain(one):
                counts["valid"] += 1
                if state not in (WHOLE, None):
                    fail("the constraint refuses a valid document in its form", schema, written)
        constraint.close()
    print(f"{sys.argv[2]} schemas: {counts['written']} documents of the constraint are valid; of jsonschema's, {counts['valid']} "
          f"valid ones match and {counts['invalid']} invalid ones do not; {counts['steps']} took too many steps")


main()
