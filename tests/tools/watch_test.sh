#!/usr/bin/env bash
# weft train --watch and weft fit --watch: what the server of a running training answers, what it refuses, a port in
# use, and that the checkpoints have the same bytes as without it.
# shellcheck source=tests/support/cases.sh
. "$(dirname "$0")/../support/cases.sh"
export OMP_NUM_THREADS=2
train=("$weft" train gpt --text text.en --valid-text text.en d_model=16 heads=2 d_ff=32 --vocab 300 --batch-tokens 256
    --warmup 5 --measure=false layers=1 --log-every 50)
digits=$tests/data/digits
fit=("$weft" fit "$digits/digits.onnx" --x "$digits/x.npy" --y "$digits/y.npy" --loss cross-entropy --measure=false)
training=
port=

prepare()
{
    head -n 200 "$data/train.en" >text.en
    "${train[@]}" --out none --steps 1 --watch >output 2>&1
    grep -q "built without libmicrohttpd" output && skip "weft was built without libmicrohttpd"
    rm -rf none output
}

# start COMMAND...: runs it with --watch, and waits for its address: $port. The training ends with the case.
start()
{
    rm -f output # of the training before, whose port it has
    "$@" --watch >output 2>&1 &
    training=$!
    trap '[ -z "$training" ] || kill -KILL "$training"' EXIT
    port=
    for ((i = 0; i < 300; i++)); do
        find_port && return
        kill -0 "$training" 2>/dev/null || break
        sleep 0.1
    done
    fail "$* has no address: $(tail -1 output)"
    exit 1
}

# find_port: sets $port, if the training has printed its address.
find_port()
{
    port=$(sed -n 's|^this run is shown at http://127.0.0.1:\([0-9]*\)/$|\1|p' output 2>/dev/null)
    [ -n "$port" ]
}

# stop: ends the training by a signal, as Ctrl-C does.
stop()
{
    kill -INT "$training"
    wait "$training"
    local status=$?
    training=
    [ $status = 130 ] || fail "a training that is watched ends with status $status"
}

# answer METHOD PATH [HOST]: prints the status; header lines and body go into the files head, body.
answer()
{
    python3 - "$port" "$@" <<'END'
import http.client, sys
port, method, path = sys.argv[1:4]
connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=20)
connection.putrequest(method, path, skip_host=True)
if sys.argv[4:] != ["none"]:
    connection.putheader("Host", (sys.argv[4:] or ["127.0.0.1:" + port])[0])
body = b"x" * 100000 if method == "POST" else b""
connection.putheader("Content-Length", str(len(body)))
connection.endheaders(body)
response = connection.getresponse()
open("head", "w").write(str(response.headers))
open("body", "wb").write(response.read())
print(response.status)
END
}

# answers STATUS METHOD PATH [HOST]
answers()
{
    local status=$1 got
    shift
    got=$(answer "$@") || fail "$*: no answer; the training printed: $(tail -n 3 output)"
    [ "$got" = "$status" ] || fail "$*: the answer is $got, not $status"
}

# connects ADDRESS: whether something listens there at $port.
connects()
{
    python3 -c "import socket; socket.create_connection(('$1', $port), 3)" 2>/dev/null
}

# last_step: the last step of the document in the file body.
last_step()
{
    python3 -c 'import json; print(max([l["step"] for l in json.load(open("body"))["subjects"][0]["run"]["log"]], default=0))'
}

case_the_document_of_a_running_training()
{
    local first_step
    start "${train[@]}" --out run --minutes 60
    answers 200 GET /data.json
    python3 - <<'END' || fail "/data.json is not the document of a running run"
import json
run = json.load(open("body"))["subjects"][0]["run"]
assert run["running"] is True, run["running"]
assert run["recipe"]["model"] == "gpt", run["recipe"]
END
    # New steps appear.
    first_step=$(last_step)
    for ((i = 0; i < 100; i++)); do
        sleep 0.3
        answers 200 GET /data.json
        [ "$(last_step)" -gt "$first_step" ] && break
    done
    [ "$(last_step)" -gt "$first_step" ] || fail "/data.json stays at step $first_step"
    answers 200 HEAD /data.json
    [ -s body ] && fail "HEAD has a body"
    grep -qi '^Cache-Control: no-store' head || fail "answers may be cached"
    case $(answer GET /) in
        200) grep -qi '<html' body || fail "/ is not a page" ;;
        302) grep -q '^Location: /data.json' head || fail "without the page, / does not lead to its data" ;;
        *) fail "GET / has the answer $(cat body)" ;;
    esac
    stop
    connects 127.0.0.1 && fail "the server outlives the training"
}

case_what_is_refused()
{
    local method path host address
    start "${train[@]}" --out run --minutes 60
    for method in POST PUT DELETE OPTIONS; do
        answers 405 $method /data.json
        grep -q '^Allow: GET, HEAD' head || fail "405 does not say what is allowed"
    done
    for path in /recipe.json /metrics.jsonl /../run/recipe.json /..%2f..%2fetc/passwd //etc/passwd /data.json/ /favicon.ico; do
        answers 404 GET $path
    done
    for host in localhost "localhost:$port" "[::1]:$port" LOCALHOST 127.0.0.1; do answers 200 GET /data.json "$host"; done
    for host in evil.example "evil.example:$port" 127.0.0.1.evil.example localhost:80@evil "" none; do
        answers 403 GET /data.json "$host"
    done
    for address in $(hostname -I 2>/dev/null); do
        connects "$address" && fail "the server can be reached at $address"
    done
    stop
}

case_a_client_that_stays_and_a_port_in_use()
{
    start "${train[@]}" --out run --minutes 60
    # A client that sends half a request and stays does not hold up others.
    exec 9<>"/dev/tcp/127.0.0.1/$port"
    printf 'GET /data.json HTTP/1.1\r\nHost: local' >&9
    answers 200 GET /data.json
    expect 1 "127.0.0.1 port $port: cannot be served: Address already in use" \
        "${train[@]}" --out second --steps 3 --watch="$port"
    [ -e second ] && fail "a run that could not be served has a folder"
    stop
    exec 9>&-
    connects 127.0.0.1 && fail "the server outlives the training"
}

case_other_addresses_and_the_command_line()
{
    start "${train[@]}" --out run --minutes 60 --watch-address 127.0.0.1
    answers 200 GET /data.json name-of-this.machine
    stop
    expect 1 '"nowhere" is not a numeric address' "${train[@]}" --out second --steps 3 --watch-address nowhere
    expect 2 "--watch must be a whole number from 0 to 65535" "${train[@]}" --watch=65536
    expect 1 "trains nothing" "${train[@]}" --out run --validate run/model.safetensors --watch
}

case_a_training_that_is_watched_writes_the_same_bytes()
{
    expect 0 "finished" "${train[@]}" --out plain --steps 40
    "${train[@]}" --out watched --steps 40 --watch >output 2>&1 &
    training=$!
    trap '[ -z "$training" ] || kill -KILL "$training"' EXIT
    while kill -0 "$training" 2>/dev/null; do
        find_port && answer GET /data.json >/dev/null 2>&1
        sleep 0.02
    done
    wait "$training" || fail "a watched training fails: $(tail -1 output)"
    training=
    cmp plain/best.safetensors watched/best.safetensors || fail "a watched training has other parameters"
}

case_weft_fit()
{
    "${fit[@]}" --out none --steps 1 >output 2>&1
    grep -qE "built without (protobuf-c|libzip)" output && skip "$(grep -oE "weft was built without .*" output)"
    start "${fit[@]}" --out fitted --minutes 60
    answers 200 GET /data.json
    grep -q '"folder":"[^"]*fitted"' body || fail "/data.json of weft fit is not about its run"
    stop
}

run_cases
