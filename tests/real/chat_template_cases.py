"""Random chat templates and variables, for compare_chat_templates.py: expressions of every type, statements with every
kind of white space control, and the templates of tests/golden/chat_templates with random messages."""
import random

WORDS = ["", " ", "a", "Hello World", " two  words ", "x\ny\n", "line\r\nend", "\tTab", "ÄÖ straße", "日本語", "👍🏽 ok", "it's",
         '"q"', "<|im_start|>", "{{ x }}", "{% y %}", "a,b,,c", "UPPER lower", "1", "-12", "3.5", "1e3", "é", "ΑΣ ΣΑΣ.", "ǰﬁ",
         "\u00a0nb\u2003", "end\\", "tab\there", "null", "\x1f", "q\u2028r", "İx", "$5 - (b) [c]"]
KEYS = ["role", "content", "name", "a", "b", "items", "x-y", "日"]


class Cases:
    """Cases of a random generator with that seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = 0

    def one(self, *choices):
        return self.random.choice(choices)

    def chance(self, p):
        return self.random.random() < p

    # ---- Variables ----

    def word(self):
        return self.random.choice(WORDS) if self.chance(.8) else "".join(self.random.choice(WORDS) for _ in range(3))

    # Without whole floats below 2^53: weft reads 1.0 of JSON as the integer 1.
    def json(self, depth=2):
        kind = self.random.randrange(9 if depth else 6)
        if kind == 0:
            return None
        if kind == 1:
            return self.chance(.5)
        if kind == 2:
            return self.random.choice([0, 1, -1, 2, 7, 10, 255, -300, 123456789])
        if kind == 3:
            return self.random.choice([0.5, -2.25, 1e-7, 1e22, 123456.789, 1e16, -1e-5, 0.1])
        if kind in (4, 5):
            return self.word()
        if kind == 6:
            return [self.json(depth - 1) for _ in range(self.random.randrange(4))]
        return {self.random.choice(KEYS): self.json(depth - 1) for _ in range(self.random.randrange(4))}

    def message(self, role=None):
        message = {"role": role or self.one("user", "assistant", "system", "tool", "ipython"), "content": self.word()}
        if self.chance(.15):
            message["content"] = self.one(None, [{"type": "text", "text": self.word()}, {"type": "image"}])
        if message["role"] == "assistant" and self.chance(.3):
            message["tool_calls"] = [{"type": "function", "id": "c1", "function": {
                "name": self.one("get", "add"), "arguments": self.one({"a": self.json(1)}, '{"a": 1}')}}]
        if self.chance(.1):
            message[self.random.choice(KEYS)] = self.json(1)
        return message

    def conversation(self):
        messages = [self.message("system")] if self.chance(.4) else []
        for i in range(self.random.randrange(6)):
            messages.append(self.message(None if self.chance(.1) else ["user", "assistant"][i % 2]))
        return messages

    def variables(self):
        v = {"messages": self.conversation(), "add_generation_prompt": self.chance(.5), "bos_token": "<s>",
             "eos_token": "</s>", "tools": None, "documents": None, "n": self.random.randrange(-5, 20), "f": self.random.uniform(-9, 9),
             "s": self.word(), "t": self.word(), "l": [self.word() for _ in range(self.random.randrange(4))],
             "k": [self.random.randrange(9) for _ in range(self.random.randrange(5))],
             "d": {self.random.choice(KEYS): self.json() for _ in range(self.random.randrange(5))}, "j": self.json(3), "no": None}
        if self.chance(.3):
            v["tools"] = [{"type": "function", "function": {"name": "get", "description": self.word(), "parameters": {
                "type": "object", "properties": {"a": {"type": "number", "enum": [1, 2.5]}}, "required": ["a"]}}}]
        return v

    # ---- Expressions ----

    def literal(self):
        w = self.random.choice(WORDS)
        quote = self.one('"', "'")
        text = w.replace("\\", "\\\\").replace(quote, "\\" + quote)
        if self.chance(.5):
            text = text.replace("\n", "\\n").replace("\t", "\\t").replace("é", "\\u00e9").replace("\x1f", "\\x1f")
        return quote + text + quote

    def whole(self, d):
        if d <= 0:
            return self.one("0", "1", "2", "3", "10", "n", "-1", "1_000", "n")
        e = self.whole
        return self.one(
            lambda: f"{e(d-1)} {self.one('+', '-', '*', '//', '%')} {e(d-1)}", lambda: f"({e(d-1)})", lambda: f"-{e(0)}",
            lambda: f"{self.text(d-1)}|length", lambda: f"{self.list(d-1)}|length", lambda: f"{self.text(d-1)}|int",
            lambda: f"{self.text(d-1)}|int({e(0)})", lambda: f"({e(d-1)})|abs", lambda: f"{self.numbers(d-1)}|sum",
            lambda: f"({self.text(d-1)}).{self.one('find', 'count', 'rfind')}({self.text(0)})",
            lambda: f"({e(d-1)} if {self.truth(d-1)} else {e(d-1)})", lambda: f"{self.numbers(d-1)}|{self.one('max', 'min', 'first', 'last')}",
            lambda: f"{self.one('2', '3', '-2')} ** {self.one('0', '2', '5')}", lambda: "d|count", lambda: f"({self.float(d-1)})|int")()

    def float(self, d):
        if d <= 0:
            return self.one("f", "0.5", "1.0", "2.5e3", "1e-5", "f", "0.1", "123456789.0")
        return self.one(lambda: f"{self.whole(d-1)} / {self.whole(d-1)}", lambda: f"{self.float(d-1)} {self.one('+', '-', '*', '/')} {self.float(0)}",
                        lambda: f"{self.text(d-1)}|float", lambda: f"({self.float(d-1)})")()

    def truth(self, d):
        if d <= 0:
            return self.one("true", "false", "True", "no", "n", "s", "l", "d", "nope", "add_generation_prompt", "tools")
        e, a = self.truth, self.any
        return self.one(
            lambda: f"{e(d-1)} and {e(d-1)}", lambda: f"{e(d-1)} or {e(d-1)}", lambda: f"not {e(d-1)}", lambda: f"({e(d-1)})",
            lambda: f"{self.whole(d-1)} {self.one('<', '>', '<=', '>=', '==', '!=')} {self.whole(d-1)}",
            lambda: f"{self.text(d-1)} {self.one('<', '==', '!=', 'in', 'not in')} {self.text(d-1)}",
            lambda: f"{a(d-1)} {self.one('==', '!=')} {a(d-1)}", lambda: f"{a(0)} {self.one('in', 'not in')} {self.list(d-1)}",
            lambda: f"{self.literal()} in d", lambda: f"{self.whole(0)} < {self.whole(0)} < {self.whole(0)}",
            lambda: f"({self.text(d-1)}).{self.one('startswith', 'endswith')}({self.text(0)})",
            lambda: f"({self.text(d-1)}).{self.one('isspace', 'islower', 'isupper', 'isalpha', 'isdigit')}()",
            lambda: f"{a(d-1)} is {self.one('', 'not ')}{self.one('defined', 'undefined', 'none', 'string', 'number', 'integer', 'float', 'boolean', 'mapping', 'iterable', 'sequence', 'true', 'false')}",
            lambda: f"{self.whole(d-1)} is {self.one('odd', 'even', 'divisibleby 3', 'divisibleby(2)', 'equalto 2', 'eq(1)', 'in [1, 2]', 'gt 3')}",
            lambda: f"{self.text(0)} is {self.one('lower', 'upper', 'in s', 'equalto(t)')}")()

    def text(self, d):
        if d <= 0:
            return self.one("s", "t", "bos_token", self.literal(), self.literal())
        e = self.text
        return self.one(
            lambda: f"{e(d-1)} ~ {self.any(d-1)}", lambda: f"({e(d-1)} + {e(d-1)})", lambda: f"({e(d-1)})", lambda: f"({self.any(d-1)})|string",
            lambda: f"({e(d-1)})|{self.one('trim', 'upper', 'lower', 'title', 'capitalize', 'reverse', 'string', 'indent', 'tojson', 'd')}",
            lambda: f"({e(d-1)}).{self.one('strip', 'lstrip', 'rstrip', 'upper', 'lower', 'title', 'capitalize')}()",
            lambda: f"({e(d-1)}).{self.one('strip', 'lstrip', 'rstrip')}({e(0)})", lambda: f"({e(d-1)})|trim({e(0)})",
            lambda: f"({e(d-1)}).replace({e(0)}, {e(0)})", lambda: f"({e(d-1)})|replace({e(0)}, {e(0)}, {self.whole(0)})",
            lambda: f"({e(d-1)}){self.slice()}", lambda: f"({e(d-1)})[{self.whole(0)}]", lambda: f"({self.any(d-1)})|tojson",
            lambda: f"({self.any(d-1)})|tojson({self.one('indent=2', 'ensure_ascii=True', 'true', 'sort_keys=true', 'indent=4, sort_keys=True')})",
            lambda: f"{self.list(d-1)}|join({e(0)})", lambda: f"({e(d-1)} if {self.truth(d-1)} else {e(d-1)})", lambda: f"({e(d-1)} if {self.truth(d-1)})",
            lambda: f"({e(d-1)})|indent({self.one('2', 'width=3, first=True', '2, true, true', 'first=true')})", lambda: f"({e(0)}).join(l)",
            lambda: f"({self.any(d-1)})|default({e(0)}{self.one('', ', true')})", lambda: f"{e(0)} * {self.one('0', '2', '3')}",
            lambda: f"'%s-%s' % ({self.any(0)}, {e(0)})", lambda: f"'%5s|%-4s|' % (s, t)", lambda: f"'%d %03d %.2f %x' % ({self.whole(0)}, n, f, 255)",
            lambda: f"'{{}}:{{}}'.format({self.any(0)}, {e(0)})", lambda: f"({e(d-1)}).removeprefix({e(0)})",
            lambda: f"({e(d-1)}).split({e(0)})[{self.one('0', '-1', '1')}]", lambda: f"({e(d-1)}).{self.one('center', 'ljust', 'rjust')}({self.one('5', '9, t[0]', '8, s')})",
            lambda: f"({e(d-1)}).{self.one('partition', 'rpartition')}({e(0)})[{self.one('0', '1', '2')}]")()

    def numbers(self, d):
        if d <= 0:
            return self.one("k", "[1, 2, 3]", "range(n)", "range(5, 1, -2)", "(1, 2)")
        return self.one(lambda: f"({self.numbers(d-1)}){self.slice()}", lambda: f"({self.numbers(d-1)})|list", lambda: f"({self.numbers(d-1)})|sort(reverse=True)",
                        lambda: f"({self.numbers(d-1)})|select('{self.one('odd', 'even')}')|list", lambda: f"({self.numbers(d-1)})|reject('gt', 2)|list",
                        lambda: f"({self.numbers(d-1)})|unique|list", lambda: f"({self.numbers(d-1)})|map('int')|list")()

    def list(self, d):
        if d <= 0:
            return self.one("l", "k", "[]", "messages", f"[{self.literal()}, n]", "(s,)", "range(3)", "d.items()|list", "d.keys()|list", "d|list")
        e = self.list
        return self.one(
            lambda: f"({e(d-1)}){self.slice()}", lambda: f"[{self.any(d-1)}, {self.any(0)}]", lambda: f"({self.text(d-1)}).split({self.one('', self.text(0), self.text(0) + ', 1')})",
            lambda: f"({e(d-1)}|list + {e(0)}|list)", lambda: f"({e(d-1)})|reverse|list", lambda: f"messages|map(attribute={self.one(chr(39) + 'role' + chr(39), chr(39) + 'content.0' + chr(39))})|list",
            lambda: "messages|selectattr('role', 'equalto', 'user')|list", lambda: "messages|rejectattr('tool_calls')|map(attribute='content')|list",
            lambda: "messages|selectattr('tool_calls', 'defined')|list", lambda: "l|map('upper')|list", lambda: f"l|{self.one('sort', 'unique')}|list",
            lambda: f"({self.text(d-1)}).{self.one('splitlines()', 'rsplit(none, 1)', 'rsplit(t, 1)')}", lambda: "d|dictsort", lambda: "d|items|list",
            lambda: f"({self.text(0)})|list", lambda: f"l|select('in', {self.text(0)})|list", lambda: f"(l * {self.one('0', '2')})")()

    def any(self, d):
        if d <= 0:
            return self.one("no", "nope", "j", "d", "l", "n", "f", "s", "tools", "messages", "messages[0]", "d.a", "d['b']", "true", "none", self.literal())
        return self.one(
            self.whole, self.float, self.text, self.truth, self.list, lambda d: f"{{{self.literal()}: {self.any(d-1)}, 'z': {self.any(0)}}}",
            lambda d: f"({self.any(d-1)}).{self.one('role', 'a', 'b', 'content', 'x')}", lambda d: f"({self.any(d-1)})[{self.one(self.literal(), '0', '-1', 'n', 's')}]",
            lambda d: f"d.get({self.literal()}{self.one('', ', n')})", lambda d: f"({self.any(d-1)}, {self.any(0)})", lambda d: f"messages[{self.whole(0)}].{self.one('role', 'content')}",
            lambda d: f"messages[-1]['content']", lambda d: f"dict(a={self.any(0)}).a", lambda d: f"namespace(a={self.any(0)}).a")(d)

    def slice(self):
        part = lambda: self.one("", "", "0", "1", "2", "-1", "-2", "n", "100")
        return f"[{part()}:{part()}{self.one('', '', ':' + self.one('', '1', '2', '-1', '-2'))}]"

    # ---- Statements ----

    def block(self, inside):
        return "{%" + self.one("", "", "", "-", "+") + self.one(" ", " ", "") + inside + self.one(" ", " ", "\n ") + self.one("", "", "", "-", "+") + "%}"

    def space(self):
        return self.one("", "", "", " ", "\n", "  ", "\n\n", "\n  ", " \n ", "text\n", "a b", "\t", "\r\n", "} % {")

    def output(self, d):
        return "{{" + self.one("", "", "-") + " " + self.any(d) + " " + self.one("", "", "-") + "}}"

    def statement(self, d, loop):
        body = lambda more=0: self.body(d - 1, loop or more)
        b, x = self.block, self.any
        self.names += 1
        name = self.one("v", "w", f"v{self.names}")
        choices = [
            lambda: self.output(2), lambda: self.output(1), lambda: "{#" + self.one("", "-") + self.one(" c ", "\n", "") + self.one("", "-", "+") + "#}",
            lambda: b(f"set {name} = {x(1)}") + self.space() + "{{ v }}{{ w }}", lambda: b("raw").replace("+", "") + self.space() + "{{ raw }}" + b("endraw")]
        if loop:
            choices += [lambda: b(self.one("break", "continue")), lambda: "{{ loop." + self.one("index", "index0", "first", "last", "length", "revindex", "previtem", "nextitem") + " }}"]
        if d > 0:
            choices += [
                lambda: b("if " + self.truth(2)) + body() + self.one("", b("elif " + self.truth(1)) + body()) + self.one("", b("else") + body()) + b("endif"),
                lambda: b(f"for {self.one('i', 'm')} in {self.list(1)}{self.one('', '', ' if ' + self.truth(1))}") + body(1) + "{{ i }}" + self.one("", b("else") + body()) + b("endfor"),
                lambda: b("for k, v in d.items()") + body(1) + "{{ k }}={{ v }}" + b("endfor"),
                lambda: b("set " + name + self.one("", " | upper", " | trim")) + self.body(d - 1, False) + b("endset") + "[{{ " + name + " }}]",
                lambda: b("filter " + self.one("upper", "trim", "indent(2)")) + self.body(d - 1, False) + b("endfilter"),
                lambda: b(f"macro mac{self.names}(a, b={x(0)}, c=a)") + "{{ a }}{{ b }}{{ c }}" + self.body(d - 1, False) + b("endmacro")
                + f"{{{{ mac{self.names}({self.one('', x(0), 'c=' + x(0), x(0) + ', ' + x(0) + ', 1', '1, 2, 3, 4')}) }}}}",
                lambda: b(f"macro cal{self.names}(a)") + "<{{ caller(a) }}>" + b("endmacro") + b(f"call(y) cal{self.names}({x(0)})") + "{{ y }}" + self.body(d - 1, False) + b("endcall"),
                lambda: b(f"set ns = namespace(q=0, z={x(0)})") + b(f"for i in {self.numbers(1)}{self.one('', ' if ns.q < 3')}") + b("set ns.q = ns.q + i") + body(1) + b("endfor") + "{{ ns.q }}",
                lambda: b(f"with {name} = {x(0)}, z = 1") + body() + "{{ " + name + " }}" + b("endwith"), lambda: b("generation") + self.body(d - 1, False) + b("endgeneration")]
        return self.random.choice(choices)()

    def body(self, d, loop):
        return self.space() + "".join(self.statement(d, loop) + self.space() for _ in range(self.random.randrange(1, 3)))

    def template(self):
        kind = self.random.randrange(4)
        if kind < 2:
            return " ".join("{{ " + self.any(self.one(1, 2, 3)) + " }}" for _ in range(self.one(1, 1, 2)))
        return self.body(self.one(1, 2, 3), False)
