"""Records in tests/golden/chat_templates/cases.txt what Jinja2 3.1, configured as transformers does, renders: the
templates NAME.jinja there, which were written for weft in the manner of published ones, with conversations; and a line
of Jinja for each construct. A line of the file is `variables HEX` (JSON), `file NAME`, `source HEX`, and then `text HEX`
or `refused`; text is hexadecimal UTF-8. Usage: make_chat_templates.py"""
import json
import pathlib
import warnings

from chat_template_lines import LINES
from jinja_reference import render

FOLDER = pathlib.Path(__file__).resolve().parent / "chat_templates"
SYSTEM = {"role": "system", "content": "You help. "}
USER = {"role": "user", "content": " What is 1 + 1?"}
ANSWER = {"role": "assistant", "content": "2\n"}
MORE = {"role": "user", "content": "Größer? <b>\"日本語\"</b> 👍"}
THOUGHT = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}
CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2.5, "text": "<é>"}}}]}
RESULT = {"role": "tool", "content": "3.5"}
TOOLS = [
    {"type": "function", "function": {"name": "add", "description": "Adds\nnumbers.", "parameters": {
        "type": "object", "required": ["a", "b"], "properties": {
            "b": {"type": "number", "description": "the second"}, "a": {"type": ["integer", "null"]}}}, "return": {"type": "number"}}},
    {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {
        "words": {"type": "array", "items": {"type": "string"}},
        "how": {"type": "object", "additionalProperties": {"type": "boolean"}}}}}}]
DOCUMENTS = [{"title": "the first-one", "text": "a\nb\n\nc"}, {"title": "two", "text": "d"}]
PARTS = {"role": "user", "content": [{"type": "text", "text": " see "}, {"type": "image"}]}
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "tools": None, "documents": None, "add_generation_prompt": False}
CONVERSATIONS = [
    {"messages": [USER], "add_generation_prompt": True}, {"messages": [SYSTEM, USER], "add_generation_prompt": True},
    {"messages": [SYSTEM, USER, ANSWER, MORE, THOUGHT]}, {"messages": [USER, THOUGHT, MORE], "add_generation_prompt": True, "enable_thinking": False},
    {"messages": [SYSTEM, USER, CALL, RESULT], "tools": TOOLS, "add_generation_prompt": True},
    {"messages": [USER, CALL, RESULT, THOUGHT], "tools": TOOLS, "tools_first": True, "documents": DOCUMENTS},
    {"messages": [SYSTEM, PARTS], "add_generation_prompt": True}, {"messages": []}, {"messages": [USER, USER]}]
# What the lines of chat_template_lines.py see.
VALUES = {
    **TOKENS, "messages": [SYSTEM, USER, CALL, RESULT, MORE], "n": 5, "f": 2.5, "s": "Hello World", "no": None, "yes": True,
    "l": [3, 1, 2], "w": ["b", "A", "a"], "d": {"b": 2, "a": 1, "items": [1]}, "u": "straße ﬁ ΑΣ ΣΑΣ. ǰ ᾳ İ ŉ", "lines": "a\n b\n\nc\n",
    "deep": {"x": [{"y": "z"}, {"y": None}]}, "odd": "\u00a0 q\u2003\x1f"}


def main():
    warnings.simplefilter("ignore")
    with open(FOLDER / "cases.txt", "w", encoding="utf-8") as file:
        def record(template, variables):
            kind, text = render(template, variables)
            print("refused" if kind == "error" else f"text {text.encode().hex()}", file=file)
            return kind

        counts = {"text": 0, "error": 0}
        for conversation in CONVERSATIONS:
            variables = {**TOKENS, **conversation}
            print("variables", json.dumps(variables, ensure_ascii=False).encode().hex(), file=file)
            for path in sorted(FOLDER.glob("*.jinja")):
                print("file", path.stem, file=file)
                counts[record(path.read_text(), variables)] += 1
        print("variables", json.dumps(VALUES, ensure_ascii=False).encode().hex(), file=file)
        for line in LINES:
            print("source", line.encode().hex(), file=file)
            counts[record(line, VALUES)] += 1
    print(counts)


main()
