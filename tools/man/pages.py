"""Manual pages in the macros of man(7)."""
import re


def escape(text):
    """A text for troff; a hyphen that is part of a name or number is a minus sign."""
    text = text.replace("\\", "\\e")
    text = re.sub(r"(?<![A-Za-z])-|-(?=\d)|(?<=\d)-", r"\\-", text)
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.M)


def exact(text):
    """Text that is typed as it stands; it may be broken after |."""
    return text.replace("\\", "\\e").replace("-", "\\-").replace("|", "|\\:")


def bold(text):
    return f"\\fB{exact(text)}\\fR"


def italic(text):
    return f"\\fI{exact(text)}\\fR"


def prose(text):
    """A paragraph: `code` is bold."""
    parts = re.split(r"`([^`]*)`", text)
    return "".join(bold(p) if i % 2 else escape(p) for i, p in enumerate(parts))


def paragraphs(text):
    """Paragraphs, and lines of tables, which begin with spaces."""
    lines = []
    for block in text.strip("\n").split("\n\n"):
        lines.append(".PP")
        for line in block.split("\n"):
            row = re.fullmatch(r" +(\S+) +(.*)", line)
            lines += [".TP", bold(row[1]), prose(row[2])] if row else [prose(line)]
    return lines


def synopsis(command):
    lines = []
    for line in command.usage:
        first, _, rest = line.partition(" ")
        name = f"{command.name} {first}" if command.subcommands else command.name
        if command.subcommands:
            line = rest
        words = re.sub(r"([A-Za-z_]+(\.[a-z]+)?)", r"\\fI\1\\fR", exact(line))
        words = re.sub(r"(\\-+)\\fI([a-z]+)\\fR", r"\\fB\1\2\\fR", words)
        option = "" if command.subcommands else "[\\fIOPTION\\fR...]"
        lines += [".PP" if not lines else ".br", " ".join(filter(None, [bold(name), option, words]))]
    return lines


def option_term(option):
    """-o FILE, --output=FILE"""
    terms = []
    for name in option.names():
        term, argument = bold(name), italic(option.argument)
        if option.argument and name.startswith("--"):
            term += f"[={argument}]" if option.optional else f"={argument}"
        elif option.argument and not option.long:
            term += f" {argument}"
        terms.append(term)
    return ", ".join(terms)


def options(command):
    lines = []
    for o in command.entries:
        if o.heading:
            lines += [".SS " + escape(o.heading.rstrip(":"))]
        else:
            lines += [".TP", option_term(o), prose(o.doc)]
    own = [o for o in command.options() if o not in command.entries]
    lines += [".SS Help"] if any(o.heading for o in command.entries) else []
    for o in own:
        lines += [".TP", option_term(o), prose(o.doc)]
    return lines


def head(name, summary, program):
    return [f'.TH "{exact(name.upper())}" "1" "" "weft {program.version}" "weft"', ".ad l", ".nh",
            ".SH NAME", f"{exact(name)} \\- {escape(summary)}"]


def command_page(command, program):
    lines = head(command.page(), command.summary, program)
    lines += [".SH SYNOPSIS", *synopsis(command), ".SH DESCRIPTION", *paragraphs(command.doc)]
    lines += [".SH OPTIONS", *options(command)]
    for sub in command.subcommands:
        lines += [".SH " + escape(sub.name.upper()), *synopsis(sub), *paragraphs(sub.doc),
                  *options(sub)]
    if command.notes:
        lines += [".SH NOTES", *paragraphs(command.notes)]
    if command.takes_model():
        lines += [".SH MODELS", ".PP", prose("`weft models` lists the models, and `weft models "
                  "MODEL` the options of one.")]
    lines += [".SH EXIT STATUS", ".PP", prose(program.status.partition(": ")[2])]
    lines += [".SH SEE ALSO", ".PP", bold("weft") + "(1)"]
    return "\n".join(lines) + "\n"


def main_page(program):
    lines = head("weft", "compute graphs with automatic differentiation", program)
    lines += [".SH SYNOPSIS", ".PP", bold("weft") + " \\fICOMMAND\\fR [\\fIOPTION\\fR...]"]
    lines += [".SH DESCRIPTION", ".PP",
              prose("Each command has a page of its own, and prints its options with `--help`.")]
    group = ""
    for command in program.commands:
        if command.group != group:
            group = command.group
            lines.append(".SS " + escape(group))
        lines += [".TP", bold(command.page()) + "(1)", prose(command.summary)]
    lines += [".SH EXIT STATUS", ".PP", prose(program.status.partition(": ")[2])]
    return "\n".join(lines) + "\n"


def pages(program):
    """The text of each page by the name of its file."""
    found = {f"{c.page()}.1": command_page(c, program) for c in program.commands}
    found["weft.1"] = main_page(program)
    return found
