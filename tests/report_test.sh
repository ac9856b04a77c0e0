#!/usr/bin/env bash
# The pages of `weft report` in a real browser (headless Chromium, by Selenium).
# Usage: report_test.sh BUILD_FOLDER
set -uo pipefail
build=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
weft=$build/tools/weft
skip()
{
    echo "skipped: reports in a browser: $1"
    exit 0
}
"$weft" report --help >/dev/null || exit 1
grep -qa '@WEFT_DATA@' "$weft" || skip "weft was built without the page (node-d3, node-dagre-layout)"
python=
for one in python3 /usr/bin/python3; do
    if "$one" -c 'import selenium' 2>/dev/null; then python=$one && break; fi
done
[ -n "$python" ] || skip "python3-selenium is not installed"
command -v chromium >/dev/null && command -v chromedriver >/dev/null || skip "chromium or its driver is not installed"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
# Words from the other tests: a small model learns to copy them.
# shellcheck source=tests/expect.sh
. "$here/expect.sh"
words 300 1 >train.txt
words 40 2 >valid.txt
expect 0 "finished after 12" "$weft" train --source train.txt --target train.txt --valid-source valid.txt \
    --valid-target valid.txt --vocab 300 --batch-tokens 256 --measure=false --steps 12 --log-every 1 \
    --valid-every 4 --valid-bleu 4 --valid-samples 2 --histograms 4 --out run d_model=16 heads=2 d_ff=32 \
    encoder_layers=1 decoder_layers=1
expect 0 "model.html" "$weft" report transformer --train --runs 2 -o model.html
expect 0 "run.html" "$weft" report run -o run.html
expect 0 "both.html" "$weft" report gpt --train --runs 2 --against gpt --train --skip fuse -o both.html
files=(model.html run.html both.html)
if [ -x "$build/tests/make_onnx" ] && "$weft" export rnn layers=1 length=6 -o file.onnx >/dev/null 2>&1; then
    expect 0 "file.html" "$weft" report file.onnx --runs 2 -o file.html
    files+=(file.html)
fi
[ $failures -eq 0 ] || exit 1
"$python" "$here/report_test.py" "${files[@]}"
