#!/usr/bin/env bash
# The program from outside: exit statuses, messages, JSON, a small training run from corpus to
# translation, resuming, SIGINT. Usage: program_test.sh PATH_OF_WEFT
set -uo pipefail
weft=$(realpath "$1")
data=$(realpath "$(dirname "$0")/../tools/data/bible-en-es")
tests=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# shellcheck source=tests/expect.sh
. "$tests/expect.sh"

expect 2 "Usage: weft" "$weft"
expect 0 "Usage: weft" "$weft" --help
"$weft" -h 2>&1 >help | grep . && fail "weft -h prints on standard error"
cmp help <("$weft" --help) || fail "weft -h is not weft --help"
expect 2 'no command "nonsense"' "$weft" nonsense
expect 2 'did you mean "train"?' "$weft" trian
expect 2 'no model "transfomer" (see `weft models`); did you mean "transformer"?' "$weft" plan transfomer
expect 1 'has no option "drpoout"; did you mean "dropout"?' "$weft" plan transformer drpoout=0
expect 2 "unrecognized option '--resme'; did you mean '--resume'?" "$weft" train --resme
expect 2 "unrecognized option '--bem'; did you mean '--beam'?" "$weft" generate --prompt --resme --bem 3 run
expect 1 "WEFT_ISA: \"avx2\" is not an instruction set, expected base, v3, v4 or v4_bf16" env WEFT_ISA=avx2 "$weft" plan gpt
for command in ops models dot plan profile bench info check reproduce demo train average plot translate \
    generate score vocab quantize; do
    expect 0 "Usage: weft $command" "$weft" $command --help
    "$weft" $command -h >help 2>errors || fail "weft $command -h is an error"
    cmp help <("$weft" $command --help) && [ ! -s errors ] || fail "$command -h is not --help"
    expect 2 "unrecognized option" "$weft" $command --no-such-option
done
expect 0 "-h " "$weft" vocab train -h
expect 1 "cannot be opened" "$weft" score -- -h a # a file by that name
expect 0 '"name":	"matmul"' "$weft" ops --json
expect 0 "layer_norm" "$weft" ops
expect 0 "parameters" "$weft" models
expect 2 'no model "none"' "$weft" plan none
expect 0 "commands: dot, plan, profile, bench, check, export, train, generate" "$weft" models gpt
expect 0 "commands: dot, plan, profile, bench, check, export, train, translate" "$weft" models seq2seq
expect 0 "commands: dot, plan, profile, bench, check, export, fit" "$weft" models resnet
expect 0 "export, train (a masked language model)" "$weft" models bert
expect 0 "    d_model            512          width" "$weft" models attention
expect 0 "(none|sinusoidal|learned|sinusoidal-halves)" "$weft" models gpt
expect 0 '"choices":	["none", "additive", "dot", "general"]' "$weft" models seq2seq --json
expect 0 '"kind":	"flag"' "$weft" models gpt --json
expect 0 '"masked":	true' "$weft" models bert --json
"$weft" models attention --json | grep -q '"train"' && fail "a model of vectors is trained on text"
[ "$("$weft" models gpt | sed -n '2s/ .*//p')" = "$("$weft" models | sed -n 's/^gpt: .*; \(.*\) parameters/\1/p')" ] ||
    fail "weft models and weft models gpt count other parameters"
expect 2 'no model "none"' "$weft" models none
expect 2 "one model at a time" "$weft" models gpt lstm
expect 1 'no option "colour"' "$weft" plan transformer colour=3
expect 1 'heads: "2.5" is not a whole number' "$weft" plan transformer heads=2.5
expect 1 "weft: gpt: f64 is 0 or 1, not 2" "$weft" plan gpt f64=2
expect 1 "must divide d_model" "$weft" plan transformer heads=7
expect 1 "at most 1000" timeout 60 "$weft" plan gpt heads=7 layers=1000000000
expect 1 "must divide d_model" timeout 60 "$weft" plan gpt heads=7 layers=1000
expect 1 "the graph has 1048576 nodes" timeout 60 "$weft" plan lstm length=1000000
expect 0 '"ratio"' "$weft" plan transformer --train --json
expect 0 "proved optimal" "$weft" plan transformer
expect 0 "gpt  " "$weft" bench gpt d_model=32 d_ff=64 --train --runs 1 --rounds 1
expect 2 'no workload or model "none"' "$weft" bench none
expect 2 'no workload "gpt"' "$weft" bench small-forward gpt
expect 2 "--train needs MODEL or FILE.onnx" "$weft" bench small-forward --train
expect 2 "--dump takes one workload" "$weft" bench gpt --dump file
mkdir lists
expect 1 "there are no .csv files" "$weft" plan --instances lists
expect 1 "none: cannot be read" "$weft" plan --instances none
expect 2 "takes no model" "$weft" plan --instances lists transformer
expect 2 "needs --instances" "$weft" plan --seconds 3 transformer
expect 2 "--seconds must be a number" "$weft" plan --instances lists --seconds 3x
printf 'size,id,upper,lower\r\n3,a,5,0\r\n\r\n4,b,9,5\n' >lists/two.4.csv
expect 0 "two.4.csv                 2            4            4            4  1.000000  yes" \
    "$weft" plan --instances lists
expect 0 '"fits":	true' "$weft" plan --instances lists --json --seconds 5
mv lists/two.4.csv lists/two.3.csv
expect 1 "  no " "$weft" plan --instances lists
expect 1 '"fits":	false' "$weft" plan --instances lists --json
rm lists/*
# bad_list TEXT MESSAGE: the list as printf would write it, what is said about it
bad_list()
{
    printf "$1" >lists/bad.csv
    expect 1 "bad.csv: $2" "$weft" plan --instances lists
    expect 1 "bad.csv: $2" "$weft" plan --instances lists --json
}
bad_list '' 'empty'
bad_list 'id,lower,size\n1,2,3\n' 'there is no column "upper"'
bad_list 'lower,upper,size\n0,4,1\n1,2\n' 'line 3: 2 cells, the header has 3'
bad_list 'lower,upper,size\n0,4,-1\n' 'line 2: size is "-1", expected a whole number from 0'
bad_list 'lower,upper,size\n0,4x,1\n' 'line 2: upper is "4x"'
bad_list 'lower,upper,size\n0,4,99999999999999999999\n' 'line 2: size is "99999999999999999999"'
bad_list 'lower,upper,size\n0,4,\n' 'line 2: size is ""'
bad_list 'lower,upper,size\n4,4,1\n' 'line 2: upper is 4, not above lower, 4'
bad_list 'lower,upper,size\n0,4,9000000000000000000\n' 'the sum of the sizes overflows at item 0'
bad_list 'lower,upper,size\n0,4,1\0,9\n' 'line 2: a zero byte, expected text'
mv lists/bad.csv lists/bad.99999999999999999999.csv
expect 1 "the capacity in its name overflows" "$weft" plan --instances lists
rm lists/*
expect 0 "ok" "$weft" check --op softmax
expect 2 'no op "none"' "$weft" check --op none
"$weft" check --bits --threads 1 >bits && "$weft" check --bits --threads 3 >other || fail "check --bits"
cmp bits other || fail "a training step has other bits with another number of threads"
[ "$(wc -l <bits)" -eq "$("$weft" models | grep -c '^[a-z]')" ] || fail "not every model has its bits: $(cat bits)"
expect 0 "gpt" "$weft" check --bits gpt layers=3
expect 2 "--bits takes models" "$weft" check --bits --op softmax
# The examples' data travel in the program.
cp "$weft" copy && expect 0 "every number as in the documents" ./copy reproduce
expect 0 '"verdict":	"ok"' "$weft" reproduce --json 000 003
expect 2 'no document "005"' "$weft" reproduce 005
expect 0 "" "$weft" dot transformer encoder_layers=1 decoder_layers=1 --train -o graph.dot
grep -q "digraph weft" graph.dot || { echo "failed: no DOT text"; failures=$((failures + 1)); }
small=(transformer vocab=50 d_model=16 heads=2 d_ff=32 encoder_layers=1 decoder_layers=1 batch=2)
expect 0 "" "$weft" dot "${small[@]}" --planned -o planned.dot
expect 0 "" "$weft" dot "${small[@]}" --train --overlay time --runs 2 -o times.dot
if ! grep -q " ms, " times.dot || grep -q " ms, " planned.dot; then
    echo "failed: times in the graph"
    failures=$((failures + 1))
fi
# Written through: standard output is a pipe here.
ln -s /dev/stdout out
expect 0 "digraph weft" "$weft" dot "${small[@]}" -o out
[ -L out ] || { echo "failed: a link to standard output is replaced"; failures=$((failures + 1)); }
expect 0 "enc.0\\ngradient, " "$weft" dot "${small[@]}" --train --depth 2 --no-update -o -
expect 0 "enc\\n" "$weft" dot "${small[@]}" --train --depth 1 --no-backward -o -
expect 2 "--depth must be" "$weft" dot "${small[@]}" --depth 0 -o -
expect 2 "--overlay draws every node" "$weft" dot "${small[@]}" --overlay time --depth 2 -o -
expect 0 "updates " "$weft" models transformer --summary --train --depth 1 encoder_layers=1
expect 2 "need --summary" "$weft" models transformer encoder_layers=1
expect 2 'no overlay "heat"' "$weft" dot transformer --overlay heat -o x.dot
expect 0 "matmul" "$weft" profile "${small[@]}" --runs 2
expect 0 " others)" "$weft" profile "${small[@]}" --runs 2 --rows 3
for columns in "" 32 60 120; do
    COLUMNS=$columns "$weft" profile "${small[@]}" --train --runs 1 --by node >table.txt
    # The lines behind the table are of 80 columns.
    if [ "$(sed '/^$/,$d' table.txt | wc -L)" -gt "${columns:-80}" ] || [ "$(wc -l <table.txt)" -lt 50 ]; then
        fail "weft profile is wider than ${columns:-80} columns"
    fi
done
expect 0 "Peaks measured" "$weft" profile "${small[@]}" --train --runs 2 --by scope --depth 1
expect 0 "dec.0.norm_ffn/layer_norm" "$weft" profile "${small[@]}" --runs 1 --by node --threads 1
expect 0 '"waiting_seconds"' "$weft" profile "${small[@]}" --runs 2 --json --trace trace.json
grep -q '"thread_name"' trace.json || { echo "failed: no trace"; failures=$((failures + 1)); }
expect 2 'not "colour"' "$weft" profile transformer --by colour
expect 2 "--runs must be" "$weft" profile transformer --runs 0
expect 2 "MODEL is missing" "$weft" profile --runs 1
expect 1 "cannot be written" "$weft" profile "${small[@]}" --runs 1 --trace /no/such/folder/x
expect 1 "cannot be written" "$weft" dot transformer -o /no/such/folder/x.dot
# Every model of the list is drawn, planned and checked, the check at the model's own small size.
models=$("$weft" models --json | sed -n 's/^\t*"name":\t"\(.*\)",$/\1/p')
if [ "$(wc -w <<<"$models")" -ne "$("$weft" models | grep -c '^[a-z].*parameters$')" ]; then
    echo "failed: weft models and weft models --json list other models"
    failures=$((failures + 1))
fi
for model in $models; do
    expect 0 "" "$weft" dot "$model" -o "$model.dot"
    grep -q "digraph weft" "$model.dot" || { echo "failed: $model.dot"; failures=$((failures + 1)); }
    expect 0 "arena" "$weft" plan "$model"
    expect 0 "arena" "$weft" plan "$model" --train
    expect 0 ": ok" "$weft" check "$model"
done
expect 0 ": ok" "$weft" check seq2seq attention=dot cell=lstm
expect 0 ": ok" "$weft" check transformer projection=fused

# The gradient vanishes in the RNN and lives in the LSTM whose gates are open.
expect 0 "vanishing" "$weft" demo --help
expect 2 "name a demonstration" "$weft" demo
expect 2 'no demonstration "nothing"' "$weft" demo nothing
expect 2 "--len must be a whole number from 1" "$weft" demo vanishing --len 0
expect 0 '"steps_back":	4' "$weft" demo vanishing --len 5 --hidden 3 --json
if ! "$weft" demo vanishing --hidden 12 --seed 3 | awk '
    $2 == 0 && NF == 9 { rnn = $3; gates = $7 }
    $2 == 100 && NF == 9 { seen = $3 < 1e-5 * rnn && $7 > 1e-3 * gates && $9 == "2.10e-35" }
    END { exit !seen }'; then
    echo "failed: the table of demo vanishing"
    failures=$((failures + 1))
fi
demo=("$weft" demo vanishing --len 8 --hidden 4)
expect 1 "cannot be written" "${demo[@]}" -o /no/such/folder/v.svg
mkdir bare
expect 1 "gnuplot is not installed" env PATH="$work/bare" "${demo[@]}" -o v.svg
expect 1 "T-t" env PATH="$work/bare" "${demo[@]}" -o v.svg
if command -v gnuplot >/dev/null; then
    expect 0 "T-t" "${demo[@]}" -o v.svg
    # A pipe takes what it is given, and stays one.
    mkfifo pipe
    cat pipe >piped.svg &
    expect 0 "T-t" "${demo[@]}" -o pipe
    wait
    [ -p pipe ] && cmp -s piped.svg v.svg || { echo "failed: a plot into a pipe"; failures=$((failures + 1)); }
    grep -q "</svg>" v.svg || { echo "failed: no SVG"; failures=$((failures + 1)); }
    printf '#!/bin/sh\nexit 3\n' >bare/gnuplot && chmod +x bare/gnuplot
    before=$(cksum v.svg)
    expect 1 "gnuplot failed" env PATH="$work/bare" "${demo[@]}" -o v.svg
    [ "$before" = "$(cksum v.svg)" ] || { echo "failed: a plot spoilt"; failures=$((failures + 1)); }
else
    echo "skipped: pictures of demo: gnuplot is not installed"
fi
ls | grep -F .tmp && { echo "failed: a temporary file is left"; failures=$((failures + 1)); }

head -n 400 "$data/train.en" >a.en
head -n 400 "$data/train.es" >a.es
head -n 399 "$data/train.es" >short.es
: >empty.en
train=("$weft" train --source a.en --target a.es --valid-source a.en --valid-target a.es --vocab 500
    --batch-tokens 256 --warmup 5 d_model=32 heads=2 d_ff=64 encoder_layers=1 decoder_layers=1)
expect 0 "unigram entropy" "${train[@]}" --out run --steps 12
expect 1 "exists already" "${train[@]}" --out run --steps 12
expect 0 "after 20 steps" "${train[@]}" --out run --steps 20 --resume
expect 0 '"validation_loss"' "${train[@]}" --out run2 --steps 3 --json
expect 1 "missing.en: cannot be read" "${train[@]/#a.en/missing.en}" --out run3 --steps 3
expect 1 "ends after 399 lines" "${train[@]/a.es/short.es}" --valid-target "" --valid-source "" --out run4 --steps 3
expect 1 "empty.en" "${train[@]}" --valid-source "" --valid-source empty.en --valid-target "" --valid-target empty.en --out run5 --steps 3
expect 1 "cannot be made" "${train[@]}" --out a.en/run --steps 3
if [ "$(head -n 11 a.en | "$weft" translate run | wc -l)" -ne 11 ]; then
    echo "failed: 11 lines in, another number out"
    failures=$((failures + 1))
fi
expect 1 "none/vocab.model" "$weft" translate none
head -c 1000 run/model.safetensors >cut && mkdir cutrun && cp run/vocab.model cutrun &&
    mv cut cutrun/model.safetensors
expect 1 "longer than the file" "$weft" translate cutrun

# Scores of sentences, and of systems beside each other.
printf 'la luz\nel dia y la noche\n\n' >ref.es
printf 'la luz\nel dia y la luz\namen\n' >first.es
printf 'luz\nel dia y la noche\nno\n' >other.es
expect 0 "1: BLEU = 100.00 chrF2 = 100.00" "$weft" score first.es ref.es --sentences
expect 0 "2: BLEU = 66.87 chrF2 = 53.10" "$weft" score first.es ref.es --sentences
expect 0 "2: BLEU = 66.87 chrF2++ = 59.28" "$weft" score first.es ref.es --sentences --plus
expect 0 "3: BLEU = 0.00 chrF2 = 0.00" "$weft" score first.es ref.es --sentences
expect 0 "BLEU = 66.87 75.0/80.0/66.7/50.0" "$weft" score first.es ref.es --sentences
expect 0 '"sentences":	[{' "$weft" score first.es ref.es --sentences --json
expect 0 "p = 1.0000  first.es" "$weft" score first.es ref.es --against other.es --against first.es
expect 0 "nrefs:1|bs:20|seed:3|case:lc|eff:no" "$weft" score first.es ref.es --against other.es -l \
    --samples 20 --seed 3
expect 0 '"hypotheses":	"other.es"' "$weft" score first.es ref.es --against other.es --json
input=other.es expect 0 "p = " "$weft" score first.es ref.es --against -
expect 1 "short.es: has 399 lines, a.es has 400" "$weft" score a.es a.es --against short.es
expect 1 "missing.es: cannot be opened" "$weft" score first.es ref.es --against missing.es
expect 2 "can be one file only" "$weft" score - ref.es --against -
expect 2 "--samples needs --against" "$weft" score first.es ref.es --samples 10
expect 2 "--seed needs --against" "$weft" score first.es ref.es --seed 1
expect 2 "--samples must be a whole number from 1" "$weft" score first.es ref.es --against other.es --samples 0
expect 2 "exclude each other" "$weft" score first.es ref.es --against other.es --sentences

# Pictures: the ending of the name says which, - is standard output, a full disk spoils nothing.
expect 2 "-o x.pdf: name the picture .svg or .png" "$weft" plot run -o x.pdf
expect 2 "-o x.JPG: name the picture .svg or .png" "${demo[@]}" -o x.JPG
expect 2 "--attention x.gif: name the picture .svg or .png" "$weft" translate run --attention x.gif
expect 2 "--attention needs a file" "$weft" translate run --attention -
expect 2 "-o needs a file" "${demo[@]}" -o -
expect 2 "-o x.eps: graphs are DOT, SVG or PNG" "$weft" dot "${small[@]}" -o x.eps
expect 0 "digraph weft" "$weft" dot "${small[@]}" -o -
ls | grep '^x\.' && fail "a picture under a name that promises another one"
head -n 1 a.en >first.en
if command -v gnuplot >/dev/null; then
    magic=$(printf '\211PNG')
    "$weft" plot run -o loss.svg && grep -q "</svg>" loss.svg || fail "no SVG of a run"
    for picture in loss.png loss.PNG; do
        "$weft" plot run -o $picture && [ "$(head -c 4 $picture)" = "$magic" ] || fail "$picture is no PNG"
    done
    "$weft" plot run -o loss && grep -q "</svg>" loss || fail "no SVG under a name without ending"
    "$weft" plot run -o - >printed.svg && cmp printed.svg loss.svg || fail "another picture on standard output"
    [ ! -e - ] || fail "a file named -"
    input=first.en expect 0 "" "$weft" translate run --attention map.png
    [ "$(head -c 4 map.png)" = "$magic" ] || fail "an attention map is no PNG"
    "$weft" plot run -o - 2>log >/dev/full && fail "no room for a picture on standard output is no error"
    grep -q "^weft: output: cannot be written: No space left on device" log || fail "$(cat log)"
    expect 1 "/dev/full: cannot be written: No space left on device" "$weft" plot run -o /dev/full
    cat >disk.sh <<'END'
. "$1/expect.sh"
weft=$2
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
    [ -z "$(ls disk | grep tmp)" ] || fail "a full disk leaves a file beside $name"
    rm disk/filler
}
full loss.svg "$weft" plot run -o disk/loss.svg
full loss.png "$weft" plot run -o disk/loss.png
input=first.en full map.svg "$weft" translate run --attention disk/map.svg
exit $((failures > 0))
END
    mkdir disk
    if unshare -rm mount -t tmpfs tmpfs disk 2>log; then
        unshare -rm bash disk.sh "$tests" "$weft" || failures=$((failures + 1))
    else
        echo "skipped: pictures on a full disk: no file system can be mounted here"
    fi
else
    echo "skipped: pictures of runs: gnuplot is not installed"
fi

# SIGINT finishes the step, saves and leaves with 130.
"${train[@]}" --out run6 --minutes 5 >log 2>&1 &
pid=$!
for _ in $(seq 100); do grep -q "^step" log && break; sleep 0.1; done
kill -INT $pid
wait $pid
if [ $? -ne 130 ] || ! grep -q "stopped by a signal after" log || [ ! -s run6/model.safetensors ]; then
    echo "failed: SIGINT"
    cat log
    failures=$((failures + 1))
fi
# What a pass changes.
"$weft" plan gpt --train --before-after fuse | grep -Eq "^fused +0 +[1-9]" || fail "--before-after fuse shows no fused nodes"
expect 0 '"without":' "$weft" plan gpt --before-after fuse --json
expect 0 "(the rest)" "$weft" profile gpt --before-after fuse --runs 2 --rows 3
expect 0 "arena_bytes" "$weft" plan gpt --train --svg arena.svg
grep -q ">layer.0</text>" arena.svg || fail "weft plan --svg does not name layer.0"
expect 1 "none/arena.svg: " "$weft" plan gpt --svg none/arena.svg
expect 1 '"fuze" is no optional pass' "$weft" plan gpt --before-after fuze
expect 1 '"fuze" is no optional pass' "$weft" profile gpt --before-after fuze
[ $failures -eq 0 ] && echo "the program: all as expected"
exit $((failures > 0))
