#!/usr/bin/env bash
# Names that would change the terminal or look like a second message: newlines, ESC, bytes that are not UTF-8, in
# names of files and folders, tensors, options, recipes, lists. Whatever the program says is printable, and an error
# is one line.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"

nasty=$'n\nweft: all is well\e[31m\xff\xc2\x9b'
shown='n\nweft: all is well\x1b[31m\xff\xc2\x9b'

# clean STATUS TEXT COMMAND...: as expect, and all of the output is printable; a status of 1 comes
# with one line on stderr.
clean()
{
    local status=$1 text=$2 was
    shift 2
    "$@" >out 2>err </dev/null
    was=$?
    if [ $was -ne "$status" ] || ! grep -qF -- "$text" out err; then
        fail "$(printf %q "$*") gave status $was, expected $status and \"$text\"; it printed:"
        cat -v out err | head -n 6
    fi
    if LC_ALL=C grep -q $'[\x01-\x08\x0b-\x1f\x7f]' out err ||
        ! cat out err | iconv -f UTF-8 -t UTF-8 >iconv.out 2>&1; then
        fail "$(printf %q "$*") printed what is not printable:"
        cat -v out err | head -n 6
    fi
    [ "$status" -ne 1 ] || [ "$(wc -l <err)" -eq 1 ] ||
        fail "$(printf %q "$*") printed $(wc -l <err) lines of error"
}

# checkpoint HEADER DATA: a safetensors file on standard output
checkpoint()
{
    local length=${#1}
    printf "\\x$(printf %02x $((length % 256)))\\x$(printf %02x $((length / 256)))\0\0\0\0\0\0"
    printf '%s%s' "$1" "$2"
}

case_files_and_folders()
{
    clean 1 "$shown: cannot be opened" "$weft" average "$nasty" -o mean
    clean 1 "$shown" "$weft" plot "$nasty" -o x.svg
    clean 1 "$shown: cannot be opened" "$weft" score "$nasty" "$nasty"
    clean 1 "$shown" "$weft" translate "$nasty"
    clean 1 "$shown" "$weft" generate "$nasty"
    clean 1 "$shown.json: cannot be opened" "$weft" train "$nasty.json"
    clean 1 "$shown: cannot be read" "$weft" train gpt --text "$nasty" --out run
    clean 1 "$shown: cannot be read" "$weft" plan --instances "$nasty"
    clean 1 "$shown/x.dot: cannot be written" "$weft" dot attention -o "$nasty/x.dot"
    clean 1 "$shown/x: cannot be written" "$weft" profile attention --runs 1 --trace "$nasty/x"
}

case_what_is_typed()
{
    clean 2 "no command \"$shown\"" "$weft" "$nasty"
    clean 2 "no model \"$shown\"" "$weft" plan "$nasty"
    clean 2 "not \"$shown\"" "$weft" profile attention --runs "$nasty"
    clean 2 "must be a number from 0 to 100, not \"$shown\"" "$weft" train --lr "$nasty"
    clean 2 "unrecognized option '--$shown'" "$weft" check "--$nasty"
    clean 2 "no op \"$shown\"" "$weft" check --op "$nasty"
    clean 1 "has no option \"$shown\"" "$weft" plan transformer "$nasty=3"
    clean 1 "invalid dropout \"$shown\"" "$weft" plan transformer "dropout=$nasty"
}

case_lists_of_buffers()
{
    mkdir lists
    printf 'lower,upper,size\n0,4,4\n' >"lists/$nasty.16.csv"
    clean 0 "$shown.16.csv" "$weft" plan --instances lists
    # JSON keeps its own escapes.
    expect 0 'weft: all is well\u001b[31m' "$weft" plan --instances lists --json
    printf 'lower,upper,size\n0,4,\e[31m\n' >"lists/$nasty.16.csv"
    clean 1 'size is "\x1b[31m"' "$weft" plan --instances lists
}

case_checkpoints()
{
    checkpoint '{"a\n\u001b[31m":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}' 1234 >file
    clean 1 'file: a\n\x1b[31m: its dtype' "$weft" average file -o mean
    checkpoint $'{"b\xc2\x9b":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}' 1234 >file
    clean 1 'file: b\xc2\x9b: the size of its data' "$weft" average file -o mean
    checkpoint $'{"b\xff":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}' 1234 >file
    clean 1 'file: the header is not UTF-8' "$weft" average file -o mean
    checkpoint '{"c\n":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}' 1234 >file
    checkpoint '{"c\n":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}}' 1234 >other
    clean 1 'other: c\n has a different type from the last file' "$weft" average other file -o mean
    clean 0 "saved the mean of 1 checkpoints in $shown" "$weft" average file -o "$nasty"
}

case_recipes()
{
    echo '{"model": "gpt", "sche\ndul\u001b[31m": {}}' >bad.json
    clean 1 '"sche\ndul\x1b[31m" is not a key of a recipe' "$weft" train bad.json --out run
    echo '{"model": "g\npt"}' >bad.json
    clean 1 'no model "g\npt"' "$weft" train bad.json --out run
}

case_a_run()
{
    local small
    head -n 60 "$data/train.en" >"$nasty.en"
    small=(gpt d_model=8 heads=2 d_ff=8 layers=1 --vocab 100 --batch-tokens 64 --warmup 1
        --measure=false --steps 1)
    clean 0 "saved $shown.run/model.safetensors" "$weft" train "${small[@]}" --text "$nasty.en" --out "$nasty.run"
    grep -qF "text=$work/$shown.en" out err || fail "the recipe of a run is printed raw"
}

run_cases
