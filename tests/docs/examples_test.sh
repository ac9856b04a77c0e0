#!/usr/bin/env bash
# The programs of examples/ do what they claim, and print the same on one thread and on two; what they print is in
# examples/README.md.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
page=$root/examples/README.md
unset WEFT_GEMM

prepare()
{
    local fit
    mkdir -p tools/data/bible-en-es
    cp "$data/valid.en" tools/data/bible-en-es/
    # The page's run of a model of ONNX.
    [ -x "$build/tests/make_onnx" ] || return
    cp "$root"/tests/data/digits/*.npy "$root/tests/data/digits/digits.onnx" .
    read -ra fit <<<"$(sed -n 's/^    \$ weft \(fit .*\)$/\1/p' "$page")"
    "$weft" "${fit[@]}" --measure=false >fit.txt 2>&1 || { fail "weft ${fit[*]}"; cat fit.txt; }
}

# block COMMAND: what the page says that "$ COMMAND" prints.
block()
{
    awk -v wanted="    \$ $1" '$0 == wanted { inside = 1; next }
        inside && !/^    / && NF { exit }
        inside && /^    \$ / { exit }
        inside { sub(/^    /, ""); print }' "$page" | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
}

# matches COMMAND FILE: the file is what the page says, bit for bit on any processor.
matches()
{
    block "$1" >page.txt
    [ -s page.txt ] || { fail "examples/README.md has no \"\$ $1\""; return; }
    diff -Z page.txt "$2" >difference || { fail "$1 prints numbers other than the page's (if the arithmetic changed on purpose, update it):"; cat difference; }
}

# example COMMAND...: runs a program on one thread and on two.
example()
{
    local threads
    for threads in 1 2; do
        OMP_NUM_THREADS=$threads "$build/examples/$1" "${@:2}" >"$threads.txt" 2>errors.txt ||
            { fail "$* fails on $threads threads:"; cat "$threads.txt" errors.txt; }
    done
    cmp -s 1.txt 2.txt || { fail "$* prints other numbers on two threads:"; diff 1.txt 2.txt; }
    matches "./$*" 1.txt
}

# The examples that run without a file of the reader's, one a line.
quick_examples()
{
    local name
    for name in "$root"/examples/*.c; do
        name=$(basename "$name" .c)
        case $name in train | fine_tune | onnx_service) ;; *) echo "$name" ;; esac
    done
}

case_they_are_short()
{
    local file
    for file in "$root"/examples/*.c; do
        [ "$(wc -l <"$file")" -lt 150 ] || fail "examples/$(basename "$file") has 150 lines or more"
    done
}

case_what_they_print()
{
    local name
    for name in $(quick_examples); do example "$name"; done
}

# Elsewhere the other cases compare words only.
case_numbers_are_those_of_the_page()
{
    example first
}

case_an_unknown_pass_is_refused()
{
    local name
    for name in $(quick_examples); do
        expect 1 'unknown optional pass "none"' env WEFT_SKIP=none "$build/examples/$name"
    done
}

case_texts_that_char_gpt_refuses()
{
    expect 1 "nothing: No such file" "$build/examples/char_gpt" nothing
    head -n 99 tools/data/bible-en-es/valid.en >short.txt
    expect 1 "expected a text of at least 100 lines" "$build/examples/char_gpt" short.txt
}

# Compiled without the library, the controller computes the bits that it computes in it.
case_a_controller_in_c()
{
    "$build/examples/pendulum" . >library.txt || fail "pendulum ."
    cp "$root/examples/emit/swing_up.c" .
    gcc -std=c99 -O2 -Wall -Wextra -pedantic -Werror swing_up.c controller.c -o swing_up || fail "gcc"
    ./swing_up >emitted.txt
    cmp library.txt emitted.txt || fail "the controller in C computes other torques:"
    tail -n 1 emitted.txt >last.txt
    matches "./swing_up | tail -n 1" last.txt
    expect 1 "nowhere/controller.c: cannot be written" "$build/examples/pendulum" nowhere
}

# The first run trains, the second resumes and finds nothing left to do.
case_training_is_resumed()
{
    "$build/examples/train" counting.safetensors >first.txt || fail "train"
    "$build/examples/train" counting.safetensors >second.txt || fail "train, resumed"
    cmp first.txt second.txt || fail "train prints something else when it is resumed"
    matches "./train" first.txt
}

case_fine_tuning()
{
    need_program make_onnx
    example fine_tune digits/model.onnx digits/model.safetensors valid_x.npy valid_y.npy digits/mirrored.safetensors
    expect 0 "f32 [3, 10]" "$weft" run digits/mirrored.safetensors --batch 3 --random
    expect 2 "usage: fine_tune" "$build/examples/fine_tune"
    expect 1 "nothing: cannot be opened" "$build/examples/fine_tune" digits.onnx nothing x.npy y.npy out
    expect 1 "expected at least 128 rows" "$build/examples/fine_tune" digits.onnx digits/model.safetensors \
        "$root/tests/data/languages/reference/logits.npy" y.npy out
}

case_a_detector()
{
    local detect=$build/examples/detect/detect train=$build/examples/detect/train_detector
    [ -x "$detect" ] || skip "libturbojpeg, libpng or protobuf-c is missing"
    "$build/tests/make_detector" shapes.onnx || fail "make_detector"
    cp "$root/tests/data/shapes/drawn.jpg" .
    # docs/detectors.md trains it; here it has not learned anything.
    expect 0 "no boxes" "$detect" shapes.onnx drawn.jpg --out=same.png
    expect 1 "nothing: cannot be opened" "$detect" shapes.onnx nothing
    expect 1 "expected a JPEG or PNG file" "$detect" shapes.onnx shapes.onnx
    head -c 3000 drawn.jpg >cut.jpg
    expect 1 "cut.jpg: " "$detect" shapes.onnx cut.jpg
    head -c 3000 same.png >cut.png
    expect 1 "cut.png: expected" "$detect" shapes.onnx cut.png
    expect 1 "digits.onnx: expected one input of f32" "$detect" digits.onnx drawn.jpg
    expect 2 "usage: detect" "$detect" shapes.onnx
    expect 2 "--fit: not understood" "$detect" shapes.onnx drawn.jpg --fit=cut
    expect 1 'height: is not an open dimension' "$detect" shapes.onnx drawn.jpg --dim=height=64
    echo "drawn.jpg 60 87 96 123 0" >list.txt
    expect 0 "after: 0 of 1 objects found in 1 pictures" "$train" shapes.onnx list.txt list.txt 1 trained.safetensors
    expect 0 "after: 1 of 1 objects found in 1 pictures" "$train" shapes.onnx list.txt list.txt 200 trained.safetensors
    expect 0 "0            score" "$detect" shapes.onnx drawn.jpg --weights=trained.safetensors
    # Objects whose centre is outside the picture, and one that is far larger.
    printf 'drawn.jpg %s 0\n' '-90 -90 -60 -60' '60 87 1e30 123' '-1e30 -1e30 1e30 1e30' >list.txt
    expect 0 "of 3 objects found" "$train" shapes.onnx list.txt list.txt 1 trained.safetensors
    "$build/tests/make_detector" one.onnx 1 || fail "make_detector"
    expect 1 "one.onnx: expected one input of f32, [batch, 3, height, width], whose batch is open or 8" \
        "$train" one.onnx list.txt list.txt 1 none.safetensors
    for box in "60 87 50 123" "60 87 inf 123" "nan 87 96 123" "-2e38 87 2e38 123"; do
        echo "drawn.jpg $box 0" >list.txt
        expect 1 "list.txt: expected lines" "$train" shapes.onnx list.txt list.txt 1 none.safetensors
    done
    printf 'drawn.jpg 60 87 96 123 0%1100s\n' >list.txt
    expect 1 "list.txt: a line is too long" "$train" shapes.onnx list.txt list.txt 1 none.safetensors
    printf 'circle\n%064d\n' 0 >names.txt
    expect 1 "names.txt: line 2: expected at most 63 bytes" "$detect" shapes.onnx drawn.jpg --labels=names.txt
    expect 2 "usage: train_detector" "$train" shapes.onnx list.txt list.txt 0 none.safetensors
}

case_worked_examples()
{
    cp "$build/examples/reproduce/reproduce" reproduce || fail "the program cannot be copied"
    expect 1 "examples.json: cannot be read" ./reproduce
    cp "$root/examples/reproduce/examples.json" .
    expect 0 "every number as in the documents" ./reproduce
    expect 0 '"verdict":	"ok"' ./reproduce --json 000 003
    expect 2 'no document "005"' ./reproduce 005
    ./reproduce 000 | tail -n 1 >last.txt
    matches "./reproduce 000 | tail -n 1" last.txt
}

case_a_service()
{
    [ -x "$build/examples/onnx_service" ] || skip "libmicrohttpd or protobuf-c is missing"
    "$weft" export digits -o trained.onnx >export.txt || { fail "weft export"; cat export.txt; }
    "$build/examples/onnx_service" trained.onnx >address.txt 2>errors.txt &
    service=$!
    trap '[ -z "$service" ] || kill "$service"' EXIT
    python3 "$tests/onnx/onnx_service.py" "$weft" trained.onnx address.txt >served.txt 2>&1 ||
        { fail "the service:"; cat served.txt errors.txt; }
    kill -TERM $service
    wait $service || fail "the service ends with status $?"
    service=
    expect 2 "usage: onnx_service" "$build/examples/onnx_service"
    expect 1 "nothing: cannot be opened" "$build/examples/onnx_service" nothing
}

run_cases
