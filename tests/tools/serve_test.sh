#!/usr/bin/env bash
# weft serve: the answers under load against those of `weft generate`, streams, what is refused, hostile connections,
# keys, a full queue, stopping, and embeddings. The clients are tests/tools/serve_clients.py.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
export OMP_NUM_THREADS=2
make_run=$build/tests/make_run
server= url=

prepare()
{
    need_program tokenizer_ids
    "$weft" serve none 2>&1 | grep -q "built without libmicrohttpd" && skip "weft was built without libmicrohttpd"
    mkdir gpt bert
    cp "$tests/golden/tokenizers/gpt2.json" gpt/tokenizer.json
    cp "$tests/golden/tokenizers/bert.json" bert/tokenizer.json
    "$make_run" gpt/model.safetensors llama vocab=910 kv_heads=1 layers=2 d_model=64 heads=2 d_ff=64 || fail "no gpt"
    "$make_run" bert/model.safetensors bert vocab=1204 layers=2 max_positions=64 token_types=2 d_model=32 heads=2 d_ff=64 ||
        fail "no bert"
    cat >gpt/chat_template.jinja <<'END'
{% for m in messages %}<|{{ m.role }}|>{{ m.content }}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}
END
}

# start FOLDER [OPTION...]: starts a server, whose log is the file log: $server and $url. It ends with the case.
start()
{
    rm -f address # of the server before
    "$weft" serve "$@" --port 0 >address 2>log &
    server=$!
    trap '[ -z "$server" ] || kill -KILL "$server"' EXIT
    url=
    for ((i = 0; i < 300; i++)); do
        url=$(sed -n 's|^.* is served at ||p' address 2>/dev/null)
        [ -n "$url" ] && return
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    fail "weft serve $* has no address: $(tail -1 log)"
    exit 1
}

# stop STATUS: ends the server by a signal.
stop()
{
    kill -TERM "$server"
    wait "$server"
    equal "the status of a server" $? 0
    server=
}

clients()
{
    python3 "$tests/tools/serve_clients.py" "$1" "$url" "${@:2}" || fail "clients: $1"
}

# Requests with what `weft generate` alone writes: a file for the clients.
write_requests()
{
    python3 - "$weft" <<'END' >requests.json
import json, random, subprocess, sys
draw, wanted = random.Random(1), []
lines = ["In the beginning", "And God said", "In the beginning God made the heaven and the earth", "a", "Größe ☃",
         "And God said, Let there be light: and there was", "x" * 90, "In the end"]
for i, line in enumerate(lines):
    request = {"prompt": line, "max_tokens": draw.randrange(1, 40), "seed": draw.randrange(10**6),
               "temperature": [0, 0.7, 1, 1.3][i % 4], "top_k": [0, 20][i // 4], "top_p": [1, 0.9][i % 2]}
    options = ["--tokens", request["max_tokens"], "--temperature", request["temperature"], "--top-p", request["top_p"],
               "--threads", 1]
    if request["top_k"]:
        options += ["--top-k", request["top_k"]]
    if request["temperature"]:
        options += ["--seed", request["seed"]]
    else:
        options = options[:4] + options[6:8]
        request["top_k"], request["top_p"] = 0, 1
    text = subprocess.run([sys.argv[1], "generate", "gpt", "--prompt", line, *map(str, options)], check=True,
                          capture_output=True).stdout.decode()
    wanted.append({"request": request, "text": text[len(line):-1]})
print(json.dumps(wanted))
END
}

case_answers_under_load_are_those_of_single_runs()
{
    write_requests
    start gpt --slots 3
    clients load requests.json
    equal "errors in the log" "$(grep -vc ': 499 ' log)" 0
    stop
    start gpt --slots 8 --prefix-cache 1 --threads 1 --cache f32
    clients load requests.json
    stop
}

case_streams()
{
    start gpt
    clients streams
    stop
}

case_answers_that_must_be_json()
{
    start gpt --slots 3
    clients formats
    stop
    # A completion is what weft generate writes.
    echo '{"properties": {"a": {"type": "array", "items": {"type": "integer", "maximum": 9}}}, "required": ["a"]}' >schema
    "$weft" generate gpt --prompt "In the" --tokens 200 --seed 3 --json-schema schema >wanted
    start gpt
    clients generated schema wanted
    stop
}

case_refused_requests_have_one_line()
{
    local n
    start gpt --max-body 100K --slots 2
    n=$(clients refused | head -n 1)
    equal "lines of the log" "$(wc -l <log)" "$n"
    stop
}

case_hostile_connections()
{
    write_requests
    start gpt --slots 2
    clients hostile
    clients load requests.json
    stop
}

case_keys()
{
    echo "a secret" >key
    start gpt --api-key-file key
    clients keys "a secret"
    stop
    : >empty
    expect 1 "empty" "$weft" serve gpt --api-key-file empty --port 0
    expect 2 "give one" "$weft" serve gpt --api-key-file key --api-key a
    expect 1 "numeric address" "$weft" serve gpt --host example.org --port 0
    mkdir short && cp gpt/tokenizer.json short
    "$make_run" short/model.safetensors gpt vocab=910 layers=1 d_model=8 heads=2 d_ff=8 max_positions=64 || fail "no short"
    expect 1 "has 64 learned positions, fewer than 65" "$weft" serve short --context 65 --check --port 0
    expect 0 "is served at" "$weft" serve short --context 64 --check --port 0
}

case_a_full_queue()
{
    start gpt --slots 2 --queue 1
    clients full 2 1
    stop
}

# An answer in progress is finished; after the grace it fails.
case_stopping()
{
    local grace client
    for grace in 30 0; do
        rm -f said
        start gpt --grace $grace --context 500
        python3 "$tests/tools/serve_clients.py" stopping "$url" >said 2>errors &
        client=$!
        while ! grep -q begun said && kill -0 "$client" 2>/dev/null; do sleep 0.02; done
        stop
        wait "$client"
        case $grace in
            30) equal "an answer in progress" "$(tail -1 said)" whole ;;
            *) grep -qE "failed|whole" said || fail "without grace: $(cat said errors)" ;;
        esac
    done
}

case_embeddings()
{
    { sed -n 301,309p "$data/train.en"; echo; echo "God."; } | "$weft" embed bert >wanted
    start bert
    clients embed wanted
    stop
}

run_cases
