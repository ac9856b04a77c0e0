"""Finds the places of a C file where mutants can be made, with clang's syntax tree.

The tree says what a piece of text is, so comments, strings, headers and code that is not compiled
here are left alone; text inside a macro of the file is found where it is written.
"""
import collections
import ctypes
import re

from clang import cindex
from clang.cindex import CursorKind as Kind

# One replacement of text[start:end]; `lines` are those that gcov may count it under.
Place = collections.namedtuple("Place", "kind start end new lines")

OPERATORS = {
    "+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "&",
    "&&": "||", "||": "&&", "<": "<= >=", "<=": "< >", ">": ">= <=", ">=": "> <", "==": "!=", "!=": "==",
    "+=": "-=", "-=": "+=", "*=": "+=", "/=": "*=", "%=": "/=", "<<=": ">>=", ">>=": "<<=", "&=": "|=", "|=": "&=",
    "^=": "|="}
# Comparisons of a maximum or minimum, where it does not matter which of two equal numbers is taken.
TERM = r"[\w\[\]>.()*-]+(?: [-+*/] [\w\[\]>.()*-]+)*"
EXTREMES = [re.compile(rf"if \((?P<a>{TERM}) (?P<op>[<>]=?) (?P<b>{TERM})\)\s+(?:(?P=b) = (?P=a)|(?P=a) = (?P=b));"),
            re.compile(rf"(?<![\w\[\]>.()*-] )(?P<a>{TERM})\s(?P<op>[<>]=?)\s(?P<b>{TERM})\s\?\s"
                       r"(?:(?P=a)\s:\s(?P=b)|(?P=b)\s:\s(?P=a))(?=[;,)])")]
BOUNDS = {"<", "<=", ">", ">="}
OPERATOR = re.compile(r"(<<=|>>=|&&|\|\||<<|>>|[-+*/%&|^<>=!]=|(?<![-=<>])[-+*/%&|^<>=])\s*$")
INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)(?![\w.])")
FLOAT = re.compile(r"(0[xX][\w.]+([pP][-+]?\d+)?|\d*\.?\d*([eE][-+]?\d+)?)[fFlL]?")
SKIPPED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'", re.S)
ASSIGNMENTS = {"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^="}
VISITED = {Kind.INTEGER_LITERAL, Kind.FLOATING_LITERAL, Kind.UNARY_OPERATOR, Kind.IF_STMT, Kind.WHILE_STMT,
           Kind.CONDITIONAL_OPERATOR, Kind.CALL_EXPR}
BINARY = {Kind.BINARY_OPERATOR, Kind.COMPOUND_ASSIGNMENT_OPERATOR}
# Calls whose arguments can be swapped without a difference.
COMMUTATIVE = {"calloc", "weft_add", "weft_mul", "fmax", "fmin"}
JUMPS = {Kind.RETURN_STMT, Kind.CONTINUE_STMT, Kind.BREAK_STMT}


def scan(text, start, ends):
    """The offset of the first character of `ends` from start on that lies outside all brackets, or -1."""
    depth = 0
    while start < len(text):
        skipped = SKIPPED.match(text, start)
        if skipped:
            start = skipped.end()
            continue
        c = text[start]
        if depth == 0 and c in ends:
            return start
        depth += (c in "([{") - (c in ")]}")
        if depth < 0:
            return -1
        start += 1
    return -1


class Finder:
    def __init__(self, path, text, arguments):
        self.path, self.text, self.found = path, text, {}
        self.bytes = text.encode()
        self.extremes = {m.start("op") for pattern in EXTREMES for m in pattern.finditer(text)}
        self.ascii = len(self.bytes) == len(text)
        unit = cindex.Index.create().parse(path, args=arguments)
        self.unit = unit
        for cursor in unit.cursor.get_children():
            if cursor.location.file and cursor.location.file.name == path:
                self.walk(cursor, False)

    def offset(self, location):
        """Where a token is written in this file, be it in the body of a macro; None elsewhere."""
        file, offset = cindex.c_object_p(), ctypes.c_uint()
        cindex.conf.lib.clang_getSpellingLocation(location, ctypes.byref(file), None, None, ctypes.byref(offset))
        if not file or cindex.File(file).name != self.path:
            return None
        return offset.value if self.ascii else len(self.bytes[:offset.value].decode(errors="replace"))

    def add(self, kind, start, end, new, cursor):
        lines = {self.text.count("\n", 0, start) + 1, cursor.extent.start.line}
        old = self.found.get((start, end, new))
        self.found[start, end, new] = Place(kind, start, end, new, lines | (old.lines if old else set()))

    def walk(self, cursor, statement):
        """`statement`: whether it stands where a statement can be left out."""
        kind, children = cursor.kind, list(cursor.get_children())
        if kind == Kind.VAR_DECL and "weft_sample" in cursor.type.spelling:
            return
        if kind in VISITED or statement:
            start = self.offset(cursor.extent.start)
            if start is not None:
                self.visit(cursor, start, children)
                if statement:
                    self.drop(cursor, start, children)
        if kind in BINARY and len(children) == 2:
            self.operator(cursor, children[1])
        for i, child in enumerate(children):
            self.walk(child, kind == Kind.COMPOUND_STMT or kind in (Kind.IF_STMT, Kind.WHILE_STMT) and i > 0
                      or kind == Kind.FOR_STMT and i + 1 == len(children))

    def visit(self, cursor, start, children):
        text = self.text
        if cursor.kind == Kind.INTEGER_LITERAL:
            self.integer(cursor, INTEGER.match(text, start))
        elif cursor.kind == Kind.FLOATING_LITERAL:
            match = FLOAT.match(text, start)
            if match and match[0]:
                self.add("constant", start, match.end(), f"({match[0]} + 1)", cursor)
        elif cursor.kind == Kind.UNARY_OPERATOR:
            self.unary(cursor, start)
        elif cursor.kind in (Kind.IF_STMT, Kind.WHILE_STMT):
            match = re.compile(r"(if|while)\s*\(").match(text, start)
            end = scan(text, match.end(), ")") if match else -1
            if end > 0:
                self.add("condition", match.end(), end, f"!({text[match.end():end]})", cursor)
        elif cursor.kind == Kind.CONDITIONAL_OPERATOR:
            end = scan(text, start, "?;,")
            if end > 0 and text[end] == "?":
                self.add("condition", start, end, f"!({text[start:end].rstrip()}) ", cursor)
        elif cursor.kind == Kind.CALL_EXPR:
            self.swap(cursor)

    def integer(self, cursor, match):
        if not match:
            return
        value = int(match[1], 16 if match[1][:2] in ("0x", "0X") else 8 if match[1][0] == "0" else 10)
        for new in {0: [1], 1: [0, 2]}.get(value, [value + 1, value - 1]):
            self.add("constant", match.start(), match.end(), f"{new}{match[2]}", cursor)

    def unary(self, cursor, start):
        for old, new in (("++", "--"), ("--", "++")):
            end = self.offset(cursor.extent.end)
            if self.text.startswith(old, start):
                self.add("operator", start, start + 2, new, cursor)
                return
            if end and self.text[end - 2:end] == old:
                self.add("operator", end - 2, end, new, cursor)
                return
        if self.text[start] in "!-~":
            self.add("operator", start, start + 1, "", cursor)

    def operator(self, cursor, right):
        """The operator is what stands before the right operand."""
        start = self.offset(right.extent.start)
        match = OPERATOR.search(self.text, max(0, start - 60), start) if start is not None else None
        if match:
            for new in OPERATORS.get(match[1], "").split():
                if match.start(1) in self.extremes and match[1][0] == new[0]:
                    continue
                kind = "bound" if match[1] in BOUNDS else "operator"
                self.add(kind, match.start(1), match.end(1), new, cursor)

    def drop(self, cursor, start, children):
        """Leaves out calls, assignments, and ifs that leave a function or a loop early."""
        good = cursor.kind in (Kind.CALL_EXPR, Kind.COMPOUND_ASSIGNMENT_OPERATOR)
        if cursor.kind == Kind.BINARY_OPERATOR and len(children) == 2:
            right = self.offset(children[1].extent.start)
            match = OPERATOR.search(self.text, max(0, right - 60), right) if right is not None else None
            good = bool(match) and match[1] in ASSIGNMENTS
        if cursor.kind == Kind.UNARY_OPERATOR:
            good = any(mark in self.text[start:start + 60].split(";")[0] for mark in ("++", "--"))
        if cursor.kind == Kind.IF_STMT:
            good = len(children) == 2 and children[1].kind in JUMPS
        end = scan(self.text, start, ";") if good else -1
        if end > 0 and "#" not in self.text[start:end]:
            self.add("statement", start, end, "", cursor)

    def swap(self, cursor):
        if cursor.spelling in COMMUTATIVE:
            return
        arguments = list(cursor.get_arguments())
        for a, b in zip(arguments, arguments[1:]):
            if a.type.get_canonical().spelling != b.type.get_canonical().spelling:
                continue
            first, second = self.offset(a.extent.start), self.offset(b.extent.start)
            if first is None or second is None or first >= second:
                continue
            middle, end = scan(self.text, first, ",;"), scan(self.text, second, ",)")
            if middle < 0 or end < 0 or self.text[middle + 1:second].strip():
                continue
            one, two = self.text[first:middle], self.text[second:end]
            if one.split() != two.split():
                self.add("arguments", first, end, f"{two}, {one}", cursor)


def find(path, text, commands):
    """All places of a file that is compiled with each of the lists of arguments."""
    found = {}
    for arguments in commands:
        for key, place in Finder(path, text, arguments).found.items():
            old = found.get(key)
            found[key] = place._replace(lines=place.lines | (old.lines if old else set()))
    return [found[key] for key in sorted(found)]
