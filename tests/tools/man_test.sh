#!/usr/bin/env bash
# Manual pages and completions: a page for each command, without warnings of man and groff; every option of --help in
# the page and in both completions; what the completions offer.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
made=$build/tools/man
commands=()

prepare()
{
    [ -d "$made/man1" ] || skip "weft was built without manual pages (-Dman)"
    mapfile -t commands < <("$weft" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
    [ "${#commands[@]}" -gt 20 ] || fail "weft --help lists ${#commands[@]} commands"
}

need()
{
    command -v "$1" >/dev/null || skip "$1 is not installed"
}

# Options as --help prints them, one a line: "-o", "--output".
options_of()
{
    "$weft" "$@" --help | sed -n 's/^ *\(\(-[^-],\? *\)\?\(--[a-z0-9-]*\)\?\).*/\1/p' |
        grep -oE -- '--?[^ ,]+' | sort -u
}

# complete_bash WORD...: what bash offers for the last word, a line each.
complete_bash()
{
    bash --norc -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weft; printf "%s\n" "${COMPREPLY[@]}"' \
        "$made/completions/weft" "$@"
}

complete_zsh()
{
    zsh -f "$tests/tools/complete.zsh" "$made/site-functions" "$*"
}

# expect_all SHELL "OFFER ..." WORD...: all of them are offered for the last word.
expect_all()
{
    local shell=$1 wanted=$2 word
    shift 2
    "complete_$shell" "$@" >offered
    for word in $wanted; do
        grep -qxF -- "$word" offered || fail "$shell, $*: no $word among $(tr '\n' ' ' <offered)"
    done
}

# offers_of SHELL: what the completions of both shells offer.
offers_of()
{
    touch model.onnx
    expect_all "$1" "train translate" weft tr
    expect_all "$1" "pairs blocks masked" weft train --mode ''
    expect_all "$1" "inverse-sqrt one-cycle" weft train --schedule ''
    expect_all "$1" "relu relu_grad" weft check --op relu
    expect_all "$1" "gpt llama resnet" weft plan ''
    expect_all "$1" "heads= layers=" weft plan gpt ''
    expect_all "$1" "train encode decode show" weft vocab ''
    expect_all "$1" "--type --size" weft vocab train --
    expect_all "$1" "unigram char" weft vocab train --type ''
    expect_all "$1" "model.onnx" weft run ''
    expect_all "$1" "resnet-forward resnet" weft bench res
}

case_a_page_for_each_command_with_its_options()
{
    local command option page
    for command in "${commands[@]}"; do
        page=$made/man1/weft-$command.1
        [ -f "$page" ] || { fail "no page of weft $command"; continue; }
        grep -qF "weft\\-$command" "$made/man1/weft.1" || fail "weft.1 does not name weft-$command"
        sed 's/\\-/-/g; s/\\f[BIR]//g; s/\\:/ /g' "$page" >plain
        for option in $(options_of "$command"); do
            grep -qE -- "(^|, )${option/\?/\\?}( |=|\[|,|$)" plain || fail "weft-$command.1 has no $option"
        done
    done
}

case_groff_has_no_warnings()
{
    local page
    need groff
    for page in "$made"/man1/*.1; do
        LC_ALL=C.UTF-8 groff -ww -man -Tutf8 "$page" >text 2>warnings
        [ -s warnings ] && fail "groff: $(head -1 warnings)"
    done
}

case_man_has_no_warnings()
{
    local page
    need man
    need groff
    for page in "$made"/man1/*.1; do
        LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 "$page" >text 2>warnings
        [ -s warnings ] && fail "man: $page: $(head -1 warnings)"
    done
}

case_mandoc_has_no_warnings()
{
    local page
    need mandoc
    for page in "$made"/man1/*.1; do
        mandoc -T lint -W warning "$page" | grep -v 'missing date' && fail "mandoc: $page"
    done
}

case_bash_completes_every_option()
{
    local command options
    bash -n "$made/completions/weft" || fail "the completion of bash is not a script"
    for command in "${commands[@]}"; do
        mapfile -t options < <(options_of "$command")
        expect_all bash "$(printf '%s\n' "${options[@]}")" weft "$command" -
    done
}

case_zsh_completes_every_option()
{
    local command option
    need zsh
    zsh -n "$made/site-functions/_weft" || fail "the completion of zsh is not a script"
    for command in "${commands[@]}"; do
        sed -n "/^    '\?$command'\?)/,/) ;;/p" "$made/site-functions/_weft" >specifications
        for option in $(options_of "$command"); do
            grep -qF -- "*$option" specifications || fail "zsh: weft $command has no $option"
        done
    done
}

case_what_bash_offers()
{
    offers_of bash
    expect_all bash "true false" weft train --shared-vocab = ''
    expect_all bash "pre post" weft plan transformer norm = ''
    [ -z "$(complete_bash weft train --steps 1)" ] || fail "bash offers something for a number"
}

case_what_zsh_offers()
{
    need zsh
    offers_of zsh
}

run_cases
