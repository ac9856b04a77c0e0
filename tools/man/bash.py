"""Completion for bash. It needs no bash-completion package, only bash 4.2."""
import shlex

SCRIPT = r'''# Completion of weft for bash. Made by tools/man/generate.py.

# _weft_put WORDS [SUFFIX]: offers those that begin with $cur.
_weft_put()
{
    local IFS=$' \t\n'
    mapfile -t COMPREPLY < <(compgen -W "$1" ${2:+-S "$2"} -- "$cur")
    [ -z "${2:-}" ] || compopt -o nospace 2>/dev/null
}

_weft_files()
{
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    compopt -o filenames 2>/dev/null
}

# The choices of an option's argument (- : a file), by "COMMAND OPTION".
_weft_argument()
{
    case $1 in
@ARGUMENTS@
    *) return 1 ;;
    esac
}

_weft_options()
{
    case $1 in
@OPTIONS@
    esac
}

# What can be an argument: words; MODEL means those of a model.
_weft_arguments()
{
    case $1 in
@WORDS@
    esac
}

_weft_keys()
{
    case $1 in
@KEYS@
    esac
}

# The values of a model's option, by "MODEL OPTION".
_weft_values()
{
    case $1 in
@VALUES@
    esac
}

_weft_models='@MODELS@'

_weft()
{
    local cur=${COMP_WORDS[COMP_CWORD]} before='' command model='' word choices
    COMPREPLY=()
    [ "$COMP_CWORD" -gt 1 ] && before=${COMP_WORDS[COMP_CWORD - 1]}
    if [ "$COMP_CWORD" -le 1 ]; then
        _weft_put '@COMMANDS@ --help --version'
        return
    fi
    # bash splits words at =.
    if [ "$cur" = = ]; then
        cur=''
    elif [ "$before" = = ]; then
        before=${COMP_WORDS[COMP_CWORD - 2]}
    elif [[ $before == -* && " $(_weft_options "${COMP_WORDS[1]}") " == *" $before=? "* ]]; then
        before='' # its argument is optional: only after =
    fi
    command=${COMP_WORDS[1]}
    case " @PARENTS@ " in
    *" $command "*)
        if [ "$COMP_CWORD" -gt 2 ]; then command="$command ${COMP_WORDS[2]}"; fi ;;
    esac
    for word in "${COMP_WORDS[@]:2:COMP_CWORD-2}"; do
        [ -n "$model" ] || [[ " $_weft_models " != *" $word "* ]] || model=$word
    done
    if [[ $before == -* ]] && choices=$(_weft_argument "$command $before"); then
        if [ "$choices" = - ]; then _weft_files; else _weft_put "$choices"; fi
    elif [[ $cur == -* ]]; then
        choices=$(_weft_options "$command")
        _weft_put "${choices//=\?/}"
    elif [ -n "$model" ] && choices=$(_weft_values "$model $before") && [ -n "$choices" ]; then
        _weft_put "$choices"
    else
        choices=$(_weft_arguments "$command")
        if [ -n "$model" ] && [[ " $choices " == *" MODEL "* ]]; then
            _weft_put "$(_weft_keys "$model")" =
        else
            _weft_put "${choices/MODEL/$_weft_models}"
        fi
        [ ${#COMPREPLY[@]} -gt 0 ] || _weft_files
    fi
}
complete -F _weft weft
'''


def cases(rows):
    """Branches of a case that print a text each: {pattern: text}."""
    return "\n".join(f"    {shlex.quote(key)}) echo {shlex.quote(text)} ;;" for key, text in rows)


def name_of(command):
    return command.name.split(" ", 1)[1]


def script(program):
    arguments, options, words = [], [], []
    for c in program.all_commands():
        listed = [n + "=?" * o.optional for o in c.options() for n in o.names()]
        options.append((name_of(c), " ".join(listed)))
        words.append((name_of(c), " ".join(["MODEL"] * c.takes_model() + c.choices())))
        for o in c.options():
            if o.argument:
                known = " ".join(program.words_of(o)) or ("-" if o.takes_file() else "")
                arguments += [(f"{name_of(c)} {n}", known) for n in o.names()]
    values = [(f"{m} {key}", " ".join(choices)) for m, keys in program.models.items()
              for key, choices in keys.items() if choices]
    parts = {
        "ARGUMENTS": cases(arguments), "OPTIONS": cases(options), "WORDS": cases(words),
        "KEYS": cases((m, " ".join(keys)) for m, keys in program.models.items()),
        "VALUES": cases(values), "MODELS": " ".join(program.models),
        "COMMANDS": " ".join(name_of(c) for c in program.commands),
        "PARENTS": " ".join(name_of(c) for c in program.commands if c.subcommands),
    }
    text = SCRIPT
    for key, part in parts.items():
        text = text.replace(f"@{key}@", part)
    return text
