# shellcheck shell=bash
# Compiles and runs folders that emit_cases has written. Sourced after cases.sh.
# shellcheck disable=SC2034 # for the scripts that source this
warnings=(-Wall -Wextra -Wconversion -pedantic -Werror)

# compile_all COMPILER...: all files of the current folder, several at a time.
compile_all()
{
    find . -name '*.o' -delete
    printf '%s\n' *.c | xargs -P "$(nproc)" -n 8 "$@" -c >errors.txt 2>&1 ||
        { fail "$*:"; head -n 20 errors.txt; return 1; }
    "$@" -o cases ./*.o >errors.txt 2>&1 || { fail "linking what $1 compiled:"; head errors.txt; return 1; }
}

# equal_cases MINIMUM: all cases are equal, and there are as many.
equal_cases()
{
    local n
    ./cases >printed.txt || { fail "differences from the library:"; grep differs printed.txt | head -n 20; }
    n=$(sed -n 's/ cases equal, 0 differ//p' printed.txt)
    [ "${n:-0}" -ge "$1" ] || { fail "expected at least $1 cases, got:"; tail -n 1 printed.txt; }
}

# cases_by FOLDER MINIMUM COMPILER FLAG...: compiles a folder and runs its cases.
cases_by()
{
    command -v "$3" >/dev/null || skip "$3 is not installed"
    cd "$1" && compile_all "${@:3}" && equal_cases "$2"
}
