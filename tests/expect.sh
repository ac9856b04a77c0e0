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
