"""Completion for zsh, by its function _arguments."""
import re
import shlex

SCRIPT = r'''#compdef weft
# Completion of weft for zsh. Made by tools/man/generate.py.

# Options of the model that is named before, else the models and the words that are passed.
_weft_model()
{
    local -A keys values
    local word model key
    keys=(
@KEYS@
    )
    values=(
@VALUES@
    )
    for word in ${words[2,CURRENT-1]}; do
        [[ -n $model ]] || (( ! $+keys[$word] )) || model=$word
    done
    if [[ -z $model ]]; then
        _alternative "models:model:(@MODELS@ $*)" 'files:file:_files'
    elif compset -P 1 '*='; then
        key=${IPREFIX%=}
        compadd -- ${=values[$model $key]}
    else
        compadd -S = -- ${=keys[$model]}
    fi
}

_weft_command()
{
    local -a options
    case $1 in
@COMMANDS@
    esac
    _arguments -s -S : $options
}

_weft()
{
    local -a commands
    commands=(
@LIST@
    )
    local command=${words[2]}
    if (( CURRENT == 2 )); then
        _describe -t commands command commands
        return
    fi
    shift words
    (( CURRENT-- ))
    if [[ " @PARENTS@ " == *" $command "* ]]; then
        if (( CURRENT > 2 )); then
            command="$command ${words[2]}"
            shift words
            (( CURRENT-- ))
        fi
    fi
    _weft_command $command
}

if [[ $funcstack[1] = _weft ]]; then
    _weft "$@"
else
    compdef _weft weft
fi
'''


def text(words):
    """A description within a specification of _arguments."""
    return re.sub(r"([\\\[\]:])", r"\\\1", words)


def action(words, takes_file):
    return f"({' '.join(words)})" if words else "_files" if takes_file else " "


def specification(option, name, program):
    doc = f"[{text(option.doc)}]"
    if not option.argument:
        return f"*{name}{doc}"
    join = "=-" if option.optional else "=" if name.startswith("--") else "+"
    colon = "::" if option.optional else ":"
    label = text(option.argument)
    return f"*{name}{join}{doc}{colon}{label}:" + action(program.words_of(option), option.takes_file())


def argument(command):
    if command.takes_model():
        return "*:argument: " + " ".join(["_weft_model", *command.choices()])
    if command.choices():
        return f"*:argument:({' '.join(command.choices())})"
    return "*:file:_files"


def command_case(command, program):
    name = command.name.split(" ", 1)[1]
    specs = [specification(o, n, program) for o in command.options() for n in o.names()]
    lines = "\n".join("            " + shlex.quote(s) for s in [*specs, argument(command)])
    return f"    {shlex.quote(name)})\n        options=(\n{lines}\n        ) ;;"


def script(program):
    values = [(f"{m} {key}", " ".join(choices)) for m, keys in program.models.items()
              for key, choices in keys.items() if choices]
    pair = "        {} {}".format
    parts = {
        "KEYS": "\n".join(pair(shlex.quote(m), shlex.quote(" ".join(keys)))
                          for m, keys in program.models.items()),
        "VALUES": "\n".join(pair(shlex.quote(k), shlex.quote(v)) for k, v in values),
        "MODELS": " ".join(program.models),
        "COMMANDS": "\n".join(command_case(c, program) for c in program.all_commands()),
        "LIST": "\n".join("        " + shlex.quote(f"{c.name.split()[1]}:{text(c.summary)}")
                          for c in program.commands),
        "PARENTS": " ".join(c.name.split()[1] for c in program.commands if c.subcommands),
    }
    whole = SCRIPT
    for key, part in parts.items():
        whole = whole.replace(f"@{key}@", part)
    return whole
