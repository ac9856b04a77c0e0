"""Renders templates with Jinja2 as the package transformers configures it (utils/chat_template_utils.py there): a
sandbox, trim_blocks, lstrip_blocks, break and continue, {% generation %}, and a tojson that does not escape HTML."""
import datetime
import json

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

DATE = datetime.datetime(2025, 1, 31, 12, 34, 56)


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_write"), [], [], body).set_lineno(line)

    def _write(self, caller):
        return caller()


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = DATE.strftime
    return env


ENVIRONMENT = environment()


def render(template, variables):
    """("text", what it renders), or ("error", the message)."""
    try:
        text = ENVIRONMENT.from_string(template).render(**variables)
        text.encode()
        return "text", text
    except Exception as error:  # pylint: disable=broad-except
        return "error", f"{type(error).__name__}: {error}"
