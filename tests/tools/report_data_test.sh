#!/usr/bin/env bash
# The documents of `weft report`: their facts agree with each other (report_data.py), for models, ONNX files, runs,
# comparisons and saved documents; and what is refused.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
# A small model, a training of it, and the folder of a run.
small=(transformer d_model=32 heads=2 d_ff=64 vocab=100 encoder_layers=1 decoder_layers=1)
train=("$weft" train transformer --source text --target text --valid-source valid --valid-target valid
    --vocab 30 --batch-tokens 128 --warmup 5 --measure=false --threads 1 --log-every 1 --valid-every 4
    --valid-bleu 2 d_model=16 heads=2 d_ff=16 encoder_layers=1 decoder_layers=2)
run='run <b>&amp;</script>'

# agrees FILE KIND... -- ARGUMENTS...: writes the document of these arguments, and checks it.
agrees()
{
    local file=$1 kinds=()
    shift
    while [ "$1" != -- ]; do
        kinds+=("$1")
        shift
    done
    shift
    "$weft" report "$@" --json -o "$file" >log 2>&1 || fail "report $*: $(head -n 3 log)"
    python3 "$tests/tools/report_data.py" "$file" "${kinds[@]}" >log 2>&1 ||
        fail "report $*: $(head -n 5 log)"
}

# get FILE EXPRESSION: of Python, of the document d and its first subject s
get()
{
    python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
s = d["subjects"][0]
print(json.dumps(eval(sys.argv[2])))' "$1" "$2"
}

# is VALUE FILE EXPRESSION
is()
{
    local got
    got=$(get "$2" "$3")
    [ "$got" = "$1" ] || fail "$3 of $2 is $got, expected $1"
}

# change STATEMENT: train.json with a change, as damaged.json
change()
{
    python3 -c 'import json, sys
d = json.load(open("train.json"))
s = d["subjects"][0]
exec(sys.argv[1])
json.dump(d, open("damaged.json", "w"))' "$1"
}

# damaged MESSAGE STATEMENT: what is said about the document after a change
damaged()
{
    change "$2"
    expect 1 "damaged.json: $1" "$weft" report damaged.json --json
}

# unfinished: the folder `partial` of a run whose last line is being written
unfinished()
{
    mkdir partial
    printf '{"step":1,"loss":2}\n{"step":2,"validation_loss":3}\n{"step":3,"lo' >partial/metrics.jsonl
    printf '{"step":1,"name":"w","kind":"weight","low":0,"high":1,"counts":[1,2]}\n' >partial/histograms.jsonl
    printf '{"model": "gpt"}' >partial/recipe.json
}

# Documents of two models, and a run that has finished.
prepare()
{
    agrees train.json timed -- "${small[@]}" --train --runs 2
    agrees one.json timed -- gru vocab=50 width=16 hidden=16 layers=1 --threads 1 --runs 1
    words 80 1 >text
    words 10 2 >valid
    "${train[@]}" --steps 8 --out "$run" >log 2>&1 || fail "training: $(tail -n 3 log)"
}

case_models()
{
    agrees fixed.json planned -- mobilenet --fixed --no-time
    agrees norms.json planned -- resnet depth=18 --train --no-time
}

case_two_models_side_by_side()
{
    agrees two.json planned planned -- "${small[@]}" --train --no-time --against "${small[@]}" --skip all
    is true two.json 'd["compare"]'
    is '[true, true]' two.json '[s["train"] for s in d["subjects"]]'
    is 0 two.json 'd["subjects"][1]["summary"]["fused"]'
    is true two.json 's["summary"]["fused"] > 0'
    is "\"${small[*]} --train against ${small[*]} --train --skip all\"" two.json 'd["title"]'
}

case_saved_documents()
{
    "$weft" report train.json --json | cmp -s - train.json || fail "a saved document has changed"
    agrees both.json timed timed -- train.json --against one.json
    is true both.json 's["machine"] == d["machine"]'
    agrees two.json planned planned -- "${small[@]}" --train --no-time --against "${small[@]}" --skip all
    expect 1 "two.json: has 2 subjects: a comparison needs a document of one" \
        "$weft" report train.json --against two.json --json
}

case_damaged_documents()
{
    damaged 'is not a report of `weft report --json`' 'd["format"] = "2"'
    damaged 'is not a report of `weft report --json`' 'd["subjects"] = []'
    damaged 'is not a report of `weft report --json`' 'd = []'
    damaged 'subject 1: it has no "name"' 'del s["name"]'
    damaged 'subject 1: it has a "nodes" that is not a list' 's["nodes"] = 3'
    damaged 'subject 1: a node has no "outputs"' 'del s["nodes"][4]["outputs"]'
    damaged 'subject 1: a node has an id that is not an index, or that another node has' \
        's["nodes"][4]["id"] = 3'
    damaged 'subject 1: a node has an id' 's["nodes"][4]["id"] = 1e300'
    damaged 'subject 1: source has an output in a buffer that is not listed' \
        's["nodes"][0]["outputs"][0]["buffer"] = 100000'
    damaged 'subject 1: a buffer has a "node" that is not the id of a node' 's["buffers"][0]["node"] = -1'
    damaged 'subject 1: an event of the timeline is not' 's["timeline"]["events"][1] = [1, 2]'
    damaged 'subject 1: the batch has no "target_len"' 's["batch"] = {"rows": 1, "source_len": 2}'
    damaged 'subject 1: a layer has a "scope" that is not a text' 's["layers"][0]["scope"] = {}'
    printf '{"format": ' >damaged.json
    expect 1 "damaged.json: is not JSON" "$weft" report damaged.json --json
    expect 1 "none.json: cannot be opened" "$weft" report none.json --json
}

case_the_checker_finds_what_is_wrong_with_figures()
{
    change 'next(n for n in s["nodes"] if "seconds" in n)["seconds"] += 1'
    python3 "$tests/tools/report_data.py" damaged.json timed >log && fail "report_data.py checks no times"
    change 's["buffers"][0]["offset"] = s["buffers"][1]["offset"]'
    python3 "$tests/tools/report_data.py" damaged.json timed >log && fail "report_data.py checks no buffers"
}

case_ONNX_files()
{
    need_program make_onnx
    "$build/tests/make_onnx" mlp.onnx mlp || fail "make_onnx"
    agrees onnx.json timed -- mlp.onnx --batch 3 --runs 2
    agrees onnx.json planned -- mlp.onnx --train --no-time
    expect 2 "FILE.onnx takes no option" "$weft" report mlp.onnx batch=3 --json
}

case_a_run()
{
    agrees run.json run -- "$run"
    is false run.json 's["run"]["running"]'
    is 3 run.json 'sum(m["name"] == "dec.1.cross" for m in s["run"]["attention"])'
    is 2 run.json 'len(s["run"]["attention"][0]["heads"])'
    is 4 run.json 'len(s["run"]["samples"])'
    is true run.json 's["summary"]["arena_bytes"] > 0'
    # The plan is that of the largest batch of the recipe, 128 tokens in rows of up to 96.
    is '{"rows": 1, "source_len": 96, "target_len": 96}' run.json 's["batch"]'
    is '["i32 [1, 96]", "i32 [1, 96]"]' run.json \
        '[n["outputs"][0]["shape"] for n in s["nodes"] if n["name"] in ("source", "target_in")]'
    is 8 run.json 's["run"]["updates"]'
}

case_times_and_comparisons_of_runs()
{
    agrees run.json run -- "$run" --runs 1
    python3 "$tests/tools/report_data.py" run.json timed >log || fail "the run's times: $(head -n 3 log)"
    agrees runs.json run run -- "$run" "$run"
    agrees runs.json run run -- "$run" --against "$run"
}

# A plan in bf16, with the rows of `lengths` and no others.
case_a_run_in_bf16()
{
    "${train[@]}" --steps 2 --lengths 40 --precision bf16 --out narrow >log 2>&1 || fail "bf16: $(tail -n 3 log)"
    agrees narrow.json run -- narrow
    is '[{"rows": 3, "source_len": 40, "target_len": 40}, true]' narrow.json \
        '[s["batch"], s["summary"]["narrow"] > 0]'
}

# Histograms are taken as they are.
case_a_line_that_is_being_written_is_left_out()
{
    unfinished
    agrees partial.json run -- partial
    is '[1, 2]' partial.json 's["run"]["histograms"][0]["counts"]'
    is 2 partial.json 'len(s["run"]["log"])'
}

case_a_run_is_running_while_its_process_has_the_folder()
{
    local running
    "${train[@]}" --steps 1000000 --out live >log 2>&1 &
    pid=$!
    trap 'kill -9 $pid 2>/dev/null' EXIT
    running=false
    while kill -0 $pid 2>/dev/null && [ "$running" != true ]; do
        "$weft" report live --json -o live.json >/dev/null 2>&1 && running=$(get live.json 's["run"]["running"]')
    done
    [ "$running" = true ] || fail "a run that is running is not: $(tail -n 2 log)"
    kill -9 $pid
    wait $pid 2>/dev/null
    "$weft" report live --json -o live.json >/dev/null
    is false live.json 's["run"]["running"]'
}

case_folders_that_are_no_runs()
{
    unfinished
    printf 'no JSON\n' >partial/metrics.jsonl
    expect 1 "partial/metrics.jsonl: line 1 is not JSON" "$weft" report partial --json
    printf '{' >partial/recipe.json
    expect 1 "partial/recipe.json: is not JSON" "$weft" report partial --json
    mkdir empty
    expect 1 "empty: is not the folder of a run" "$weft" report empty --json
}

case_command_lines()
{
    expect 2 'no model "nothing"' "$weft" report nothing --json
    expect 2 "MODEL, FILE.onnx, RUN or FILE.json is missing" "$weft" report
    expect 2 "--against needs a MODEL" "$weft" report gru --against
    expect 2 "--fixed and --train exclude each other" "$weft" report gru --train --against gru --fixed
    expect 2 "--runs and --no-time exclude each other" "$weft" report gru --runs 2 --no-time
    unfinished
    expect 2 "--against compares one run with another" "$weft" report partial partial --against gru
    expect 2 '"gru" is not the folder of a run' "$weft" report partial gru
    expect 2 "write --against once" "$weft" report gru --against=gru
    expect 1 'unknown optional pass "nothing"' "$weft" report gru --skip nothing --no-time --json
    expect 1 "cannot be written" "$weft" report gru vocab=50 --no-time --json -o nowhere/x.json
}

case_the_page()
{
    if ! "$weft" report gru vocab=50 --no-time >log 2>&1; then
        grep -q "weft was built without the page" log || fail "without a page it says: $(cat log)"
        skip "weft was built without the page"
    fi
    grep -q '^gru.report.html: ' log || fail "the page is not named: $(cat log)"
    "$weft" report "$run" -o run.html >log || fail "the page of a run: $(cat log)"
    python3 - run.html <<'PYTHON' || fail "the data of the page are not those of the document"
import json, re, sys
text = open(sys.argv[1], encoding="utf-8").read()
data = re.search(r'<script type="application/json" id="weft-data">(.*?)</script>', text, re.S)
assert json.loads(data.group(1))["subjects"][0]["name"] == "run <b>&amp;</script>"
PYTHON
}

run_cases
