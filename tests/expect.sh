# What the tests of the program share; to be sourced in the folder that a test works in.
failures=0

fail()
{
    echo "failed: $*"
    failures=$((failures + 1))
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
