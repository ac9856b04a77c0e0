# What the tests of the program share. A script sources this first, with its own arguments, declares
# functions case_WORDS, and ends with run_cases:
#
#     SCRIPT BUILD_FOLDER [--list] [-k PATTERN]
#
# It prints the cases in TAP. --list only names them; -k runs those whose names contain
# PATTERN (default: WEFT_TEST_PATTERN).
# `prepare`, if the script declares it, runs once, in an empty folder; each case works in a copy of
# what it left there. A case fails if it calls `fail`, or if its last command is `exit` with a status.
# `skip REASON` ends a case, or, within prepare, the script; what failed before has failed. What a case
# prints is shown if it fails.
set -uo pipefail
script=$(realpath "$0")
root=${script%/tests/*}
tests=$root/tests
data=$root/tools/data/bible-en-es
# More threads than cores must not spin at barriers.
export OMP_WAIT_POLICY=passive
failures=0
pattern=${WEFT_TEST_PATTERN:-} only_list=false
case "${1:-}" in
    '' | -*) echo "Usage: $0 BUILD_FOLDER [--list] [-k PATTERN]" >&2; exit 2 ;;
esac
build=$(realpath "$1") || exit 2
shift
while [ $# -gt 0 ]; do
    case "$1" in
        --list) only_list=true ;;
        -k) shift; pattern=${1:-} ;;
        *) echo "$0: $1 is not an option; expected --list or -k PATTERN" >&2; exit 2 ;;
    esac
    shift
done
weft=$build/tools/weft
# Everything of the script is below `base`; prepare and each case work in `work`.
base=
if ! $only_list; then
    base=$(mktemp -d)
    trap 'rm -rf "$base"' EXIT
fi
work=$base/case

fail()
{
    echo "failed: $*"
    failures=$((failures + 1))
}

skip()
{
    echo "$*" >"$base/skipped"
    exit $((failures > 0))
}

# need_program FILE: skips where the build left one out.
need_program()
{
    [ -x "$build/tests/$1" ] || skip "weft was built without what $1 needs"
}

# expect STATUS TEXT COMMAND...: the exit status, and a text somewhere in what it prints. The
# command reads the file that $input names, if any.
expect()
{
    local status=$1 text=$2 got
    shift 2
    got=$("$@" 2>&1 <"${input:-/dev/null}")
    local was=$?
    if [ $was -ne "$status" ] || ! grep -qF -- "$text" <<<"$got"; then
        fail "$* gave status $was, expected $status and \"$text\"; it printed:"
        head -n 12 <<<"$got"
    fi
}

# equal WHAT A B: two texts that must be one.
equal()
{
    [ "$2" = "$3" ] && return
    fail "$1"
    diff <(echo "$2") <(echo "$3") | head -n 5
}

# words LINES SEED: lines of three to seven words of one letter, a text that a small model learns to
# copy in a moment.
words()
{
    awk -v n="$1" -v s="$2" 'BEGIN {
        for (i = 0; i < n; i++) {
            line = ""
            s = (s * 1103 + 12345) % 1048576
            m = 3 + int(s / 1024) % 5
            for (k = 0; k < m; k++) {
                s = (s * 1103 + 12345) % 1048576
                line = line (k ? " " : "") substr("abcdefghijkl", 1 + int(s / 1024) % 12, 1)
            }
            print line
        }
    }'
}

# npy FILE DTYPE SHAPE BYTES: a file of NumPy; BYTES is a format of printf.
npy()
{
    local header="{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"
    # shellcheck disable=SC2059
    { printf '\x93NUMPY\x01\x00\x76\x00'; printf '%-117s\n' "$header"; printf "$4"; } >"$1"
}

# Names of the cases that are wanted, one a line.
case_names()
{
    sed -n 's/^case_\([a-zA-Z0-9_]*\)().*/\1/p' "$script" | while read -r name; do
        if grep -qiF -- "$pattern" <<<"${name//_/ }"; then echo "$name"; fi
    done
}

# run_case NUMBER NAME
run_case()
{
    local status
    cp -r "$base/prepared" "$work"
    rm -f "$base/skipped"
    (trap - EXIT; failures=0; cd "$work" && "case_$2"; [ $failures -eq 0 ]) >"$base/log" 2>&1
    status=$?
    if [ $status -ne 0 ]; then
        echo "not ok $1 - ${2//_/ }"
        sed 's/^/# /' "$base/log"
    elif [ -f "$base/skipped" ]; then
        echo "ok $1 - ${2//_/ } # SKIP $(cat "$base/skipped")"
    else
        echo "ok $1 - ${2//_/ }"
    fi
    chmod -R u+rwX "$work"
    rm -rf "$work"
    return $status
}

# The end of a script that skips or fails while it prepares.
unprepared()
{
    exec >&3 2>&4
    if [ $failures -eq 0 ] && [ -f "$base/skipped" ]; then
        echo "1..0 # SKIP $(cat "$base/skipped")"
    else
        sed 's/^/# /' "$base/log"
        echo "Bail out! what the cases need could not be prepared"
    fi
    rm -rf "$base"
}

run_cases()
{
    local names bad=0 i
    mapfile -t names < <(case_names)
    if $only_list; then
        [ ${#names[@]} -gt 0 ] && printf '%s\n' "${names[@]//_/ }"
        exit 0
    fi
    [ ${#names[@]} -gt 0 ] || { echo "1..0 # SKIP no case is called \"$pattern\""; exit 0; }
    mkdir "$work"
    if [ "$(type -t prepare)" = function ]; then
        trap unprepared EXIT
        cd "$work" || exit 1
        exec 3>&1 4>&2 >"$base/log" 2>&1
        prepare
        [ $failures -eq 0 ] || exit 1
        cd "$base" || exit 1
        trap 'rm -rf "$base"' EXIT
        exec >&3 2>&4 3>&- 4>&-
    fi
    mv "$work" "$base/prepared"
    echo "1..${#names[@]}"
    for ((i = 0; i < ${#names[@]}; i++)); do
        run_case $((i + 1)) "${names[i]}" || bad=$((bad + 1))
    done
    exit $((bad > 0))
}
