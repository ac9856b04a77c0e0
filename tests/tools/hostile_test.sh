#!/usr/bin/env bash
# Files, names, streams and limits that no command expects: each ends with an error that says what is wrong, and none
# hangs, crashes or prints what its readers refuse.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"

case_everything()
{
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1

# ---- Something to read ----
words 40 1 >text
words 10 2 >valid
pairs=("$weft" train --source text --target text --valid-source valid --valid-target valid --vocab 30
    --lengths 16 --measure=false --threads 1 --warmup 0 d_model=8 heads=1 d_ff=8 encoder_layers=1
    decoder_layers=1)
gpt=("$weft" train gpt --text text --valid-text valid --vocab 30 --lengths 16 --measure=false
    --threads 1 --warmup 0 d_model=32 heads=1 d_ff=32 layers=1)
steps=(--steps 2 --keep 2 --save-every 1 --histograms 1)
expect 0 "finished" "${pairs[@]}" "${steps[@]}" --out pairs
expect 0 "finished" "${gpt[@]}" "${steps[@]}" --out gpt
expect 0 "" "$weft" report gpt --json -o report.json
mkdir buffers && cp "$tests/data/minimalloc/A.1048576.csv" buffers
cp "$tests/data/digits/digits.onnx" "$tests/data/digits/"*.npy "$tests/data/languages/"*.onnx \
    "$tests/data/languages/"*.npz .
onnx=true
"$weft" models digits.onnx 2>&1 | grep -q "built without" && onnx=false
if $onnx; then
    fit=("$weft" fit digits.onnx --x x.npy --y y.npy --valid-x valid_x.npy --valid-y valid_y.npy
        --loss cross-entropy --measure=false --threads 1 --warmup 0 --steps 1)
    expect 0 "finished" "${fit[@]}" --keep 1 --save-every 1 --out fit
fi
"$weft" convert gpt -o folder >/dev/null 2>&1

# ---- Pipes without a writer, instead of each file that a command reads ----
# pipes FOLDER COMMAND...: replaces each file of the folder in turn. The command reads the copy
# "hostile" and writes into "made".
pipes()
{
    local folder=$1 file status
    shift
    for file in $(cd "$folder" && find . -type f); do
        rm -rf hostile made && mkdir made && cp -r "$folder" hostile && rm "hostile/$file" && mkfifo "hostile/$file"
        timeout 120 "$@" >printed 2>&1 </dev/null
        status=$?
        [ $status -lt 124 ] || fail "$* gave status $status with a pipe instead of $folder/$file"
        # A file that the command writes, or does not need, may be one.
        [ $status -eq 0 ] || grep -qF "$(basename "$file")" printed ||
            fail "$*: does not name the pipe $file: $(head -n 2 printed)"
    done
}
pipes pairs "$weft" translate hostile
pipes pairs "${pairs[@]}" --out hostile --resume --steps 3
pipes pairs "${pairs[@]}" --out made/new --from hostile --steps 1
pipes gpt "$weft" generate hostile --prompt "a b"
pipes gpt "$weft" logprob hostile
pipes gpt "${gpt[@]}" --out hostile --resume --steps 3 --histograms 1
pipes gpt "$weft" report hostile --json
pipes gpt "$weft" plot hostile -o made/loss.svg
pipes gpt "$weft" average hostile/step-1.safetensors hostile/step-2.safetensors -o made/mean.safetensors
pipes gpt "$weft" quantize hostile -o made/quantized
pipes gpt "$weft" convert hostile -o made/converted
pipes gpt "$weft" export hostile -o made/gpt.onnx
pipes gpt "$weft" vocab show hostile
pipes gpt "$weft" train hostile/recipe.json --out made/again --steps 1 --measure=false
pipes folder "$weft" convert hostile -o made/converted
pipes buffers "$weft" plan --instances hostile
mkdir document && cp report.json document
pipes document "$weft" report hostile/report.json --against hostile/report.json --json
if $onnx; then
    mkdir arrays && cp digits.onnx ./*.npy arrays
    pipes arrays "$weft" fit hostile/digits.onnx --x hostile/x.npy --y hostile/y.npy --out made/fitted \
        --valid-x hostile/valid_x.npy --valid-y hostile/valid_y.npy --loss cross-entropy --steps 1
    pipes fit "$weft" run hostile --batch 3 --random
    pipes fit "${fit[@]}" --out hostile --resume --steps 2
    mkdir languages && cp languages.onnx example.npz languages
    pipes languages "$weft" run hostile/languages.onnx --batch 3 --input hostile/example.npz
    pipes languages "$weft" report hostile/languages.onnx --batch 2 --json
fi
# What is open already may be a pipe: a recipe of another program.
expect 0 "finished" "$weft" train <(cat gpt/recipe.json) --out streamed --steps 1 --measure=false \
    --text text --valid-text valid

# ---- Bytes that are not UTF-8 ----
# is_json FILE...: whether Python reads each file, or each line of it, as JSON
is_json()
{
    python3 -c 'import json, sys
for name in sys.argv[1:]:
    text = open(name, "rb").read().decode()
    for part in text.splitlines() if name.endswith("l") else [text]:
        json.loads(part)' "$@" 2>errors || fail "$(printf %q "$*"): not JSON: $(tail -n 1 errors)"
}
byte=$'x\xff'
mkdir "$byte" && cp buffers/* "$byte/$byte.1048576.csv" && cp text "$byte/$byte"
"$weft" plan --instances "$byte" --json >printed && is_json printed
"${gpt[@]/#text/$byte/$byte}" --steps 1 --out "$byte/run" --json >printed.jsonl 2>/dev/null && is_json printed.jsonl
is_json "$byte/run/recipe.json" "$byte/run/metrics.jsonl"
python3 -c 'import sys
data = open(sys.argv[1], "rb").read()
sys.stdout.buffer.write(data[8:8 + int.from_bytes(data[:8], "little")])' "$byte/run/model.safetensors" >header
is_json header
"$weft" report "$byte/run" --json >printed && is_json printed

# ---- Output that cannot be written ----
for command in --help --version help "plan --help" "train --help" "vocab --usage" ops "ops --json" models "models gpt" info \
    "info --json" "plan gpt" "plan gpt --json" "check --op softmax" "check --op softmax --json" \
    "dot attention -o -" "dot attention -o /dev/full" "plan attention --svg /dev/full" \
    "profile attention --runs 1" "report attention --no-time -o /dev/full" "report gpt --json" \
    "plan --instances buffers" "score text text" "logprob gpt" "vocab show gpt" "generate gpt --prompt a"; do
    read -ra words <<<"$command"
    "$weft" "${words[@]}" >/dev/full 2>errors <text
    [ $? -eq 1 ] && grep -Eq "cannot be written|No space left|Bad file descriptor" errors || fail "weft $command does not notice a full device"
    "$weft" "${words[@]}" >&- 2>errors <text
    [ $? -eq 1 ] && grep -Eq "cannot be written|No space left|Bad file descriptor" errors || fail "weft $command does not notice a closed output"
done

# ---- Variables of the environment ----
for variable in WEFT_ISA WEFT_GEMM WEFT_SKIP WEFT_TIMEOUT; do
    for command in ops "plan gpt" "check --op softmax" "vocab show gpt"; do
        read -ra words <<<"$command"
        expect 1 "$variable" env "$variable=xyz" "$weft" "${words[@]}"
        expect 0 "" env "$variable=" "$weft" "${words[@]}"
    done
done
expect 1 "WEFT_TIMEOUT" env WEFT_TIMEOUT=-1 "$weft" ops

# ---- Small stacks ----
# on_stack COMMAND...: with 64 KiB, as many as the library needs.
on_stack()
{
    bash -c 'ulimit -s 64 && exec "$@"' - "$@"
}
export -f on_stack
for option in "" "--threads 2"; do
    # shellcheck disable=SC2086
    expect 0 "finished" on_stack "${gpt[@]}" $option --steps 2 --out "stack$option"
done
expect 0 "" on_stack "$weft" generate gpt --prompt "a b" --tokens 2
expect 0 "" on_stack "$weft" translate pairs <<<"a b"
expect 0 "" on_stack "$weft" logprob gpt <<<"a b"
expect 0 "" on_stack "$weft" report gpt --no-time -o stack.html
expect 0 "" on_stack "$weft" vocab show gpt
expect 0 "" on_stack "$weft" vocab train text -o stack.model --size 30
expect 0 "" on_stack "$weft" average gpt/step-*.safetensors -o average.safetensors
expect 0 "" on_stack "$weft" quantize gpt -o quantized
expect 0 "" on_stack "$weft" dot gpt -o stack.svg
expect 0 "" on_stack "$weft" plot gpt -o plot.svg
$onnx && expect 0 "" on_stack "$weft" run digits.onnx --random

# ---- Terminals of any width ----
# Progress lines have whole fields only, and never more than the columns that are free.
python3 - "${gpt[@]}" --steps 3 --log-every 1 <<'PYTHON' || fail "progress lines on terminals"
import fcntl, os, pty, re, struct, subprocess, sys, termios
field = r"(step \d+|loss [\d.]+ \([\d.]+\)|validation [\d.]+|\d+:\d\d:\d\d left|\d+ tokens/s|lr \d\.\d\de[-+]\d\d|norm [\d.]+)"
bad = 0
for width in (20, 30, 45, 60, 75, 80, 90, 120, 200):
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    run = subprocess.Popen(sys.argv[1:] + ["--out", f"terminal{width}"], stdin=subprocess.DEVNULL, stdout=side,
                           stderr=subprocess.DEVNULL)
    os.close(side)
    text = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    run.wait()
    lines = re.findall(r"\r\x1b\[K(step[^\r\n\x1b]*)", text.decode())
    for line in lines:
        if len(line) >= width or not re.fullmatch(field + "(  " + field + ")*", line):
            print(f"{width} columns: {line!r}")
            bad = 1
    bad |= not lines
sys.exit(bad)
PYTHON

# ---- What a training prints first ----
"${gpt[@]}" --steps 31 --warmup 200 --out short >printed 2>&1
grep -E "=( |$)" printed && fail "options without a value are printed"
grep -q "the warm-up takes 8 steps instead of 200" printed || fail "a shortened warm-up is not reported"
tail -n 1 short/metrics.jsonl | grep -q '"step":31' || fail "the short run did not end"
# The same bits after a resumption, in and after the warm-up.
expect 0 "after 4 steps" "${gpt[@]}" --steps 4 --warmup 200 --out whole --save-every 2 --keep 9
mkdir parts && cp whole/recipe.json whole/vocab.model whole/metrics.jsonl parts
cp whole/step-2.safetensors parts/model.safetensors
expect 0 "after 4 steps" "$weft" train --resume --out parts
cmp <(tail -c 4096 whole/model.safetensors) <(tail -c 4096 parts/model.safetensors) ||
    fail "a resumed run with a shortened warm-up has other bits"

if [ $failures -gt 0 ]; then
    echo "$failures tests of hostile files failed"
    exit 1
fi
echo "hostile files, names, streams and limits: all passed"
}

run_cases
