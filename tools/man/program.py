"""What the program says of its own command line (weft COMMAND --help-json), its models and ops."""
import json
import re
import subprocess
from dataclasses import dataclass, field


@dataclass
class Option:
    short: str = ""
    long: str = ""
    argument: str = ""
    optional: bool = False  # the argument may be left out
    doc: str = ""
    heading: str = ""  # of the options that follow; such an entry is not an option

    def names(self):
        """-o and --output, as typed."""
        return ["-" + self.short] * bool(self.short) + ["--" + self.long] * bool(self.long)

    def choices(self):
        """The words that the argument may be: those of "op|scope|node"; none for an N."""
        words = self.argument.split("|")
        return words if all(re.fullmatch(r"[a-z0-9-]+", w) for w in words) else []

    def takes_file(self):
        return bool(re.search(r"FILE|DIR|FOLDER|TEXT", self.argument))


# The options that each command has in addition to its own.
OWN = [Option("?", "help", doc="print this help"), Option("h", doc="the same as --help"),
       Option("", "usage", doc="print a short usage message"),
       Option("V", "version", doc="print the version of the program")]


@dataclass
class Command:
    name: str  # "weft train"
    doc: str
    usage: list
    notes: str = ""
    summary: str = ""  # a line of weft --help
    group: str = ""  # its heading there
    entries: list = field(default_factory=list)  # options and headings
    subcommands: list = field(default_factory=list)

    def options(self):
        return [o for o in self.entries if not o.heading] + OWN

    def page(self):
        return self.name.replace(" ", "-")

    def words(self):
        """The words of its usage: MODEL, FILE, train, ..."""
        return set(re.findall(r"[A-Za-z]+", " ".join(self.usage)))

    def takes_model(self):
        return "MODEL" in self.words()

    def choices(self):
        """Words that may be an argument: for WORD, those listed in the notes below "Words"."""
        found = [s.name.split()[-1] for s in self.subcommands]
        for word in re.findall(r"[A-Z]{3,}", " ".join(self.usage)):
            for block in self.notes.split("\n\n"):
                if block.startswith(word.capitalize() + "s"):
                    found += re.findall(r"^  (\S+)", block, re.M)
        return found


class Program:
    def __init__(self, path):
        self.path = path
        top = self.ask("--help-json")
        self.version, self.status = top["version"], top["status"]
        self.commands = []
        for row in top["commands"]:
            command = self.describe([row["name"]])
            command.summary, command.group = row["doc"], row["group"]
            self.commands.append(command)
        # key=value options of each model, and the values of those that have a list of them
        self.models = {m["name"]: {o: [] for o in m["options"]} for m in self.ask("models", "--json")}
        for name, keys in self.models.items():
            for o in self.ask("models", name, "--json")["options"]:
                keys[o["name"]] = o.get("choices", [])
        self.ops = [op["name"] for op in self.ask("ops", "--json")]

    def ask(self, *arguments):
        done = subprocess.run([self.path, *arguments], stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout)

    def describe(self, words):
        found = self.ask(*words, "--help-json")
        command = Command(found["name"], found.get("doc", ""), found["usage"],
                          found.get("notes", ""), entries=[Option(**o) for o in found["options"]])
        # A usage line that begins with a small word is that of a subcommand.
        for line in command.usage:
            first = line.split(" ")[0]
            if re.fullmatch(r"[a-z]+", first):
                command.subcommands.append(self.describe([*words, first]))
        return command

    def all_commands(self):
        """Commands and subcommands."""
        for command in self.commands:
            yield command
            yield from command.subcommands

    def words_of(self, option):
        """What may follow an option, as far as it is known."""
        return self.ops if option.long == "op" else option.choices()
