#!/usr/bin/env bash
# The pages of `weft report` in a real browser (headless Chromium, by Selenium).
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"

prepare()
{
    "$weft" report --help >/dev/null || fail "weft report --help"
    grep -qa '@WEFT_DATA@' "$weft" || skip "weft was built without the page (node-d3, node-dagre-layout)"
    python=
    for one in python3 /usr/bin/python3; do
        if "$one" -c 'import selenium' 2>/dev/null; then python=$one && break; fi
    done
    [ -n "$python" ] || skip "python3-selenium is not installed"
    command -v chromium >/dev/null && command -v chromedriver >/dev/null || skip "chromium or its driver is not installed"
}

# page FILE KIND: the page is what report_test.py expects of its kind.
page()
{
    "$python" "$tests/docs/report_test.py" "$1" || fail "$1"
}

case_a_model()
{
    expect 0 "model.html" "$weft" report transformer --train --runs 2 -o model.html
    page model.html
}

case_a_run()
{
    words 300 1 >train.txt
    words 40 2 >valid.txt
    # The last line of losses is of step 12, before the last step.
    expect 0 "finished after 14" "$weft" train --source train.txt --target train.txt --valid-source valid.txt \
        --valid-target valid.txt --vocab 300 --batch-tokens 256 --measure=false --steps 14 --log-every 4 \
        --valid-every 4 --valid-bleu 4 --valid-samples 2 --histograms 4 --out run d_model=16 heads=2 d_ff=32 \
        encoder_layers=1 decoder_layers=1
    expect 0 "run.html" "$weft" report run -o run.html
    page run.html
}

case_a_comparison()
{
    expect 0 "both.html" "$weft" report gpt --train --runs 2 --against gpt --train --skip fuse -o both.html
    page both.html
}

case_an_ONNX_file()
{
    need_program make_onnx
    expect 0 "" "$weft" export rnn layers=1 length=6 -o file.onnx
    # The mean of many runs: in two, a node that waits for the processor makes the others too narrow to be drawn.
    expect 0 "file.html" "$weft" report file.onnx --runs 200 --threads 1 -o file.html
    page file.html
}

run_cases
