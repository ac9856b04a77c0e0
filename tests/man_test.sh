#!/usr/bin/env bash
# Manual pages and completions: a page for each command, without warnings of man and groff; every
# option of --help in the page and in both completions; what the completions offer.
# Usage: man_test.sh PATH_OF_WEFT FOLDER_OF_THE_PAGES (build/tools/man)
set -uo pipefail
weft=$(realpath "$1")
made=$(realpath -m "$2")
tests=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# shellcheck source=tests/expect.sh
. "$tests/expect.sh"
if [ ! -d "$made/man1" ]; then
    echo "skipped: manual pages: weft was built without them (-Dman)"
    exit 0
fi

# Options as --help prints them, one a line: "-o", "--output".
options_of()
{
    "$weft" "$@" --help | sed -n 's/^ *\(\(-[^-],\? *\)\?\(--[a-z0-9-]*\)\?\).*/\1/p' |
        grep -oE -- '--?[^ ,]+' | sort -u
}

# ---- Pages ----
mapfile -t commands < <("$weft" --help | sed -n 's/^  \([a-z]*\) .*/\1/p')
[ "${#commands[@]}" -gt 20 ] || fail "weft --help lists ${#commands[@]} commands"
command -v groff >/dev/null || echo "skipped: rendering of manual pages: groff is not installed"
for page in "$made"/man1/*.1; do
    command -v groff >/dev/null || break
    LC_ALL=C.UTF-8 groff -ww -man -Tutf8 "$page" >text 2>warnings
    [ -s warnings ] && fail "groff: $(head -1 warnings)"
    if command -v man >/dev/null; then
        LC_ALL=C.UTF-8 MANWIDTH=80 man --warnings -E UTF-8 -l -Tutf8 "$page" >text 2>warnings
        [ -s warnings ] && fail "man: $page: $(head -1 warnings)"
    fi
    if command -v mandoc >/dev/null; then
        mandoc -T lint -W warning "$page" | grep -v 'missing date' && fail "mandoc: $page"
    fi
done
for command in "${commands[@]}"; do
    page=$made/man1/weft-$command.1
    [ -f "$page" ] || { fail "no page of weft $command"; continue; }
    grep -qF "weft\\-$command" "$made/man1/weft.1" || fail "weft.1 does not name weft-$command"
    sed 's/\\-/-/g; s/\\f[BIR]//g; s/\\:/ /g' "$page" >plain
    for option in $(options_of "$command"); do
        grep -qE -- "(^|, )${option/\?/\\?}( |=|\[|,|$)" plain || fail "weft-$command.1 has no $option"
    done
done

# ---- bash ----
bash -n "$made/completions/weft" || fail "the completion of bash is no script"
# complete_bash WORD...: what bash offers for the last word, a line each.
complete_bash()
{
    bash --norc -c '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _weft; printf "%s\n" "${COMPREPLY[@]}"' \
        "$made/completions/weft" "$@"
}
if command -v zsh >/dev/null; then
    complete_zsh() { zsh -f "$tests/complete.zsh" "$made/site-functions" "$*"; }
    zsh -n "$made/site-functions/_weft" || fail "the completion of zsh is no script"
    shells=(bash zsh)
else
    echo "skipped: completion of zsh: zsh is not installed"
    shells=(bash)
fi

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
touch model.onnx
for command in "${commands[@]}"; do
    mapfile -t options < <(options_of "$command")
    expect_all bash "$(printf '%s\n' "${options[@]}")" weft "$command" -
    [ "${#shells[@]}" -gt 1 ] || continue
    sed -n "/^    '\?$command'\?)/,/) ;;/p" "$made/site-functions/_weft" >specifications
    for option in "${options[@]}"; do
        grep -qF -- "*$option" specifications || fail "zsh: weft $command has no $option"
    done
done
for shell in "${shells[@]}"; do
    expect_all "$shell" "train translate" weft tr
    expect_all "$shell" "pairs blocks masked" weft train --mode ''
    expect_all "$shell" "relu relu_grad" weft check --op relu
    expect_all "$shell" "gpt llama resnet" weft plan ''
    expect_all "$shell" "heads= layers=" weft plan gpt ''
    expect_all "$shell" "train encode decode show" weft vocab ''
    expect_all "$shell" "--type --size" weft vocab train --
    expect_all "$shell" "unigram char" weft vocab train --type ''
    expect_all "$shell" "model.onnx" weft run ''
    expect_all "$shell" "vanishing" weft demo ''
    expect_all "$shell" "resnet-forward resnet" weft bench res
done
expect_all bash "true false" weft train --shared-vocab = ''
expect_all bash "pre post" weft plan transformer norm = ''
[ -z "$(complete_bash weft train --steps 1)" ] || fail "bash offers something for a number"
[ $failures = 0 ] && echo "manual pages and completions: all as expected"
exit $((failures > 0))
