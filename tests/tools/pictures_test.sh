#!/usr/bin/env bash
# What the program draws: graphs, plans, curves and attention maps. The ending of a file's name says which kind of
# picture it is, - is standard output, and a full disk spoils nothing.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
small=(transformer vocab=50 d_model=16 heads=2 d_ff=32 encoder_layers=1 decoder_layers=1 batch=2)
curves=("$weft" plot run)

# A run that translates, with losses to plot.
prepare()
{
    head -n 400 "$data/train.en" >a.en
    head -n 400 "$data/train.es" >a.es
    head -n 1 a.en >first.en
    expect 0 "after 12 steps" "$weft" train --source a.en --target a.es --valid-source a.en --valid-target a.es \
        --vocab 500 --batch-tokens 256 --warmup 5 --steps 12 --out run d_model=32 heads=2 d_ff=64 encoder_layers=1 \
        decoder_layers=1
}

need_gnuplot()
{
    command -v gnuplot >/dev/null || skip "gnuplot is not installed"
}

# png FILE: it is one.
png()
{
    [ "$(head -c 4 "$1")" = "$(printf '\211PNG')" ] || fail "$1 is not a PNG"
}

# svg FILE: it is one.
svg()
{
    grep -q "</svg>" "$1" || fail "$1 is not an SVG"
}

case_graphs()
{
    expect 0 "" "$weft" dot transformer encoder_layers=1 decoder_layers=1 --train -o graph.dot
    grep -q "digraph weft" graph.dot || fail "no DOT text"
    expect 0 "digraph weft" "$weft" dot "${small[@]}" -o -
    expect 0 "enc.0\\ngradient, " "$weft" dot "${small[@]}" --train --depth 2 --no-update -o -
    expect 0 "enc\\n" "$weft" dot "${small[@]}" --train --depth 1 --no-backward -o -
    expect 2 "--depth must be" "$weft" dot "${small[@]}" --depth 0 -o -
    expect 1 "cannot be written" "$weft" dot transformer -o /no/such/folder/x.dot
}

case_every_model_is_drawn()
{
    for model in $("$weft" models --json | sed -n 's/^\t*"name":\t"\(.*\)",$/\1/p'); do
        expect 0 "" "$weft" dot "$model" -o "$model.dot"
        grep -q "digraph weft" "$model.dot" || fail "$model.dot"
    done
}

case_graphs_with_times()
{
    expect 0 "" "$weft" dot "${small[@]}" --planned -o planned.dot
    expect 0 "" "$weft" dot "${small[@]}" --train --overlay time --runs 2 -o times.dot
    grep -q " ms, " times.dot || fail "no times in the graph"
    grep -q " ms, " planned.dot && fail "times in a graph without them"
    expect 2 "--overlay draws every node" "$weft" dot "${small[@]}" --overlay time --depth 2 -o -
    expect 2 'unknown overlay "heat"' "$weft" dot transformer --overlay heat -o x.dot
}

# Written through: standard output is a pipe here.
case_a_link_to_standard_output_stays()
{
    ln -s /dev/stdout out
    expect 0 "digraph weft" "$weft" dot "${small[@]}" -o out
    [ -L out ] || fail "a link to standard output is replaced"
}

case_plans()
{
    expect 0 "arena_bytes" "$weft" plan gpt --train --svg arena.svg
    grep -q ">layer.0</text>" arena.svg || fail "weft plan --svg does not name layer.0"
    expect 1 "none/arena.svg: " "$weft" plan gpt --svg none/arena.svg
}

case_names_that_promise_another_picture()
{
    expect 2 "-o x.pdf: name the picture .svg or .png" "$weft" plot run -o x.pdf
    expect 2 "-o x.JPG: name the picture .svg or .png" "${curves[@]}" -o x.JPG
    expect 2 "--attention x.gif: name the picture .svg or .png" "$weft" translate run --attention x.gif
    expect 2 "--attention needs a file" "$weft" translate run --attention -
    expect 2 "-o x.eps: graphs are DOT, SVG or PNG" "$weft" dot "${small[@]}" -o x.eps
    for file in x.*; do [ ! -e "$file" ] || fail "a picture $file under a name that promises another one"; done
}

case_without_gnuplot()
{
    expect 1 "cannot be written" "${curves[@]}" -o /no/such/folder/v.svg
    mkdir bare
    expect 1 "gnuplot is not installed" env PATH="$work/bare" "${curves[@]}" -o v.svg
    for file in *.tmp* .*.tmp*; do [ ! -e "$file" ] || fail "a temporary file is left: $file"; done
}

# A pipe takes what it is given, and stays one.
case_a_plot_into_a_pipe()
{
    need_gnuplot
    expect 0 "" "${curves[@]}" -o v.svg
    svg v.svg
    mkfifo pipe
    cat pipe >piped.svg &
    expect 0 "" "${curves[@]}" -o pipe
    wait
    [ -p pipe ] || fail "a plot replaces a pipe"
    cmp piped.svg v.svg || fail "a plot into a pipe"
}

case_a_failure_of_gnuplot_spoils_no_picture()
{
    need_gnuplot
    expect 0 "" "${curves[@]}" -o v.svg
    mkdir bare
    printf '#!/bin/sh\nexit 3\n' >bare/gnuplot && chmod +x bare/gnuplot
    before=$(cksum v.svg)
    expect 1 "gnuplot failed" env PATH="$work/bare" "${curves[@]}" -o v.svg
    [ "$before" = "$(cksum v.svg)" ] || fail "a plot spoilt"
    for file in *.tmp* .*.tmp*; do [ ! -e "$file" ] || fail "a temporary file is left: $file"; done
}

case_curves_of_a_run()
{
    need_gnuplot
    expect 0 "" "$weft" plot run -o loss.svg
    svg loss.svg
    for picture in loss.png loss.PNG; do
        expect 0 "" "$weft" plot run -o $picture
        png $picture
    done
    expect 0 "" "$weft" plot run -o loss
    svg loss
    "$weft" plot run -o - >printed.svg || fail "weft plot -o -"
    cmp printed.svg loss.svg || fail "another picture on standard output"
    [ ! -e - ] || fail "a file named -"
}

case_attention_maps()
{
    need_gnuplot
    input=first.en expect 0 "" "$weft" translate run --attention map.png
    png map.png
    head -n 11 a.en >in
    input=in expect 0 "" "$weft" translate run --attention map.svg --layer 0 --head 1
    svg map.svg
    input=in expect 1 "no such layer" "$weft" translate run --attention map.svg --layer 7
    input=in expect 1 "no such head" "$weft" translate run --attention map.svg --head 7
    input=/dev/null expect 0 "cannot be drawn" "$weft" translate run --attention none.svg
    echo "God." >short
    input=short expect 0 "" "$weft" translate run --attention short.svg --max-length 1
    [ "$(grep -c '<polygon\|<path.*fill' short.svg)" -ge 1 ] || fail "a map of few cells is empty"
}

case_signs_in_the_labels_of_an_attention_map()
{
    need_gnuplot
    for _ in $(seq 20); do echo "'5%\\\" a"; done >signs
    expect 0 "saved" "$weft" train --source signs --target signs --vocab-type char --vocab 20 --batch-tokens 64 \
        --steps 1 --measure=false --out signs-run d_model=16 heads=2 d_ff=32 encoder_layers=1 decoder_layers=1
    head -n 1 signs >sign
    input=sign expect 0 "" "$weft" translate signs-run --attention signs.svg --max-length 2
    for label in "'" 5 % "\\" '"' a; do
        grep -qF "<text>$label</text>" signs.svg || fail "no label $label in an attention map"
    done
}

case_no_room_for_a_picture()
{
    need_gnuplot
    [ -w /dev/full ] || skip "there is no /dev/full"
    "$weft" plot run -o - 2>log >/dev/full && fail "no room for a picture on standard output is not an error"
    grep -q "^weft: output: cannot be written: No space left on device" log || fail "$(cat log)"
    expect 1 "/dev/full: cannot be written: No space left on device" "$weft" plot run -o /dev/full
}

case_a_full_disk_spoils_no_picture()
{
    need_gnuplot
    mkdir disk
    unshare -rm mount -t tmpfs tmpfs disk || skip "no file system can be mounted here"
    cat >disk.sh <<'END'
failures=0
weft=$1
mount -t tmpfs -o size=1m tmpfs disk
# full NAME COMMAND...: writes disk/NAME, and with a full disk leaves it as it is.
full()
{
    local name=$1
    shift
    expect 0 "" "$@"
    cp "disk/$name" earlier
    head -c 2M /dev/zero >disk/filler 2>filler.log && fail "the disk is not full"
    expect 1 "disk/$name: cannot be written: No space left on device" "$@"
    cmp earlier "disk/$name" || fail "a full disk has harmed $name"
    [ -z "$(ls disk | grep tmp)" ] || fail "a full disk leaves a file next to $name"
    rm disk/filler
}
full loss.svg "$weft" plot run -o disk/loss.svg
full loss.png "$weft" plot run -o disk/loss.png
input=first.en full map.svg "$weft" translate run --attention disk/map.svg
exit $((failures > 0))
END
    export -f expect fail
    unshare -rm bash disk.sh "$weft" || fail "a full disk: see above"
}

run_cases
