"""Clients of `weft serve`, by Python's standard library. Usage: serve_clients.py COMMAND URL [ARGUMENT...]; each command
prints what is wrong, and ends with status 1 then."""
import base64
import http.client
import json
import random
import re
import socket
import struct
import sys
import threading
import time
import urllib.parse

URL = urllib.parse.urlsplit(sys.argv[2])
problems = []


def check(what, got, wanted):
    if got != wanted:
        problems.append(f"{what}: got {str(got)[:300]!r}, expected {str(wanted)[:300]!r}")


def ask(path, body=None, headers=None, method=None):
    """(status, text) of a request; `body` is JSON, or bytes."""
    connection = http.client.HTTPConnection(URL.hostname, URL.port, timeout=120)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method or ("GET" if data is None else "POST"), path, data, headers or {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def events(text):
    """The JSON of a stream's events, which ends with [DONE]."""
    parts = text.split("\n\n")
    check("end of the stream", parts[-2:], ["data: [DONE]", ""])
    check("events", [p for p in parts[:-2] if not p.startswith("data: {")], [])
    return [json.loads(p[6:]) for p in parts[:-2]]


def complete(request, stream=False):
    """The text of a completion."""
    status, text = ask("/v1/completions", dict(request, stream=stream))
    check("status", status, 200)
    if not stream:
        return json.loads(text)["choices"][0]["text"]
    found = events(text)
    check("last event", found[-1]["choices"][0]["finish_reason"] in ("stop", "length"), True)
    return "".join(e["choices"][0]["text"] for e in found)


def raw(data):
    """Sends bytes, and reads the answer until the server closes or nothing comes."""
    s = socket.create_connection((URL.hostname, URL.port), timeout=5)
    answer = b""
    try:
        s.sendall(data)
        while piece := s.recv(65536):
            answer += piece
    except OSError:
        pass
    s.close()
    return answer


def post(path, body):
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


# ---- Commands


def cleaned(text):
    """As `weft generate` prints it: control characters are spaces."""
    return re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]", " ", text)


def together(n, work):
    """Calls work(0) ... work(n - 1), each in a thread."""
    threads = [threading.Thread(target=work, args=(k,)) for k in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def clients(n, ask_one):
    """Eight clients at once, each of which calls ask_one(i, random) for the numbers below n in an order of its own."""
    def client(number):
        draw = random.Random(number)
        for i in draw.sample(range(n), n):
            try:
                ask_one(i, draw)
            except Exception as e:
                problems.append(f"client {number}, request {i}: {e!r}")

    together(8, client)


def load(path):
    """Eight clients at once ask the requests of a file, [{request, text}], in random order; some go away early. The
    texts are those of `weft generate`, and byte for byte those of requests one by one."""
    with open(path, encoding="utf-8") as file:
        wanted = json.load(file)
    for i, w in enumerate(wanted):
        text = complete(w["request"])
        check(f"answer {i} alone", cleaned(text), w["text"])
        w["text"] = text

    def ask_again(i, draw):
        request, text = wanted[i]["request"], wanted[i]["text"]
        if draw.random() < 0.2:
            s = socket.create_connection((URL.hostname, URL.port))
            s.sendall(post("/v1/completions", json.dumps(dict(request, stream=draw.random() < 0.5)).encode()))
            time.sleep(draw.random() * 0.05)
            s.close()
        check(f"answer {i} of several clients", complete(request, draw.random() < 0.5), text)

    clients(len(wanted), ask_again)


def streams():
    """Streams and whole answers, of completions and chats, with usage and log probabilities."""
    base = {"prompt": "In the beginning", "max_tokens": 12, "seed": 5, "temperature": 0.9, "logprobs": 3, "n": 2}
    whole = json.loads(ask("/v1/completions", base)[1])
    found = events(ask("/v1/completions", dict(base, stream=True, stream_options={"include_usage": True}))[1])
    check("usage", found[-1]["usage"], whole["usage"])
    check("choices of the event with the usage", found[-1]["choices"], [])
    for k, choice in enumerate(whole["choices"]):
        parts = [c for e in found for c in e["choices"] if c["index"] == k]
        check("text", "".join(c["text"] for c in parts), choice["text"])
        for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
            check(key, [x for c in parts if c["logprobs"] for x in c["logprobs"][key]], choice["logprobs"][key])
        check("tokens", len(choice["logprobs"]["tokens"]), 12)
        check("alternatives", {len(x) for x in choice["logprobs"]["top_logprobs"]} <= {1, 2, 3}, True)
        check("finish_reason", (parts[-1]["finish_reason"], choice["finish_reason"]), ("length", "length"))
    check("two answers", whole["choices"][0]["text"] != whole["choices"][1]["text"], True)
    check("usage", whole["usage"]["completion_tokens"], 24)
    chat = {"messages": [{"role": "system", "content": "Be brief."},
                         {"role": "user", "content": [{"type": "text", "text": "Who"}, {"type": "text", "text": "?"}]}],
            "max_tokens": 9, "seed": 1, "logprobs": True, "top_logprobs": 2}
    whole = json.loads(ask("/v1/chat/completions", chat)[1])["choices"][0]
    found = events(ask("/v1/chat/completions", dict(chat, stream=True))[1])
    check("first event", found[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
    check("text of a chat", "".join(e["choices"][0]["delta"].get("content", "") for e in found),
          whole["message"]["content"])
    scores = [x for e in found if e["choices"][0].get("logprobs") for x in e["choices"][0]["logprobs"]["content"]]
    check("log probabilities of a chat", scores, whole["logprobs"]["content"])
    # A chat is the completion of what the template writes.
    text = "<|system|>Be brief.\n<|user|>Who?\n<|assistant|>"
    check("template", complete({"prompt": text, "max_tokens": 9, "seed": 1}), whole["message"]["content"])
    # A stop text ends the answer before it.
    text = complete(dict(base, n=1, logprobs=None))
    stop = text[len(text) // 2:][:2]
    for stream in (False, True):
        check("stop", complete(dict(base, n=1, logprobs=None, stop=["\0never", stop][1:]), stream),
              text[:text.index(stop)])
    several = json.loads(ask("/v1/completions", {"prompt": ["In the", [5, 6, 7]], "max_tokens": 3, "temperature": 0})[1])
    check("choices of two prompts", [c["index"] for c in several["choices"]], [0, 1])
    check("a prompt of several", several["choices"][0]["text"],
          complete({"prompt": "In the", "max_tokens": 3, "temperature": 0}))


def formats():
    """Answers that must be JSON, of completions and chats, whole and as streams, among free ones."""
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 5}, "ok": {"type": "boolean"}},
              "required": ["name", "ok"], "additionalProperties": False}
    strict = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}
    message = [{"role": "user", "content": "Who?"}]
    requests = [("/v1/completions", {"prompt": "In the", "max_tokens": 300, "seed": i, "n": 2, "response_format": strict})
                for i in range(3)]
    requests += [("/v1/completions", {"prompt": "In the", "max_tokens": 300, "seed": 7, "n": 2, "guided_json": schema}),
                 ("/v1/chat/completions", {"messages": message, "seed": 8, "n": 2, "response_format": strict}),
                 ("/v1/completions", {"prompt": "a", "max_tokens": 40, "seed": 9, "top_k": 5}),
                 ("/v1/completions", {"prompt": "a", "max_tokens": 90, "seed": 9, "guided_regex": "[a-f]{20,30}!"}),
                 ("/v1/completions", {"prompt": "a", "max_tokens": 30, "seed": 9,
                                      "response_format": {"type": "json_object"}})]

    def texts(path, request, stream):
        status, text = ask(path, dict(request, stream=stream))
        check("status", status, 200)
        found = {}
        for e in events(text) if stream else [json.loads(text)]:
            for c in e["choices"]:
                piece = c.get("text") or (c.get("message") or c.get("delta") or {}).get("content") or ""
                found[c["index"]] = found.get(c["index"], "") + piece
        return [found[i] for i in sorted(found)]

    wanted = [texts(*r, False) for r in requests]
    for found in wanted[:5]:
        for text in found:
            person = json.loads(text)
            check("members", sorted(person), ["name", "ok"])
            check("types", (isinstance(person["name"], str) and len(person["name"]) <= 5, type(person["ok"])), (True, bool))
    check("texts differ", len({t for found in wanted[:5] for t in found}) > 5, True)
    check("regular expression", bool(re.fullmatch("[a-f]{20,30}!", wanted[6][0])), True)
    check("begins as an object", wanted[7][0][0], "{")
    # Without a constraint, and with one, the same in any load.
    check("a free text", complete(requests[5][1]), wanted[5][0])

    def ask_again(i, draw):
        check(f"answer {i} of several clients", texts(*requests[i], draw.random() < 0.5), wanted[i])

    clients(len(requests), ask_again)


def generated(schema, wanted):
    """A completion by a schema is what `weft generate` wrote."""
    with open(schema, encoding="utf-8") as file:
        request = {"prompt": "In the", "max_tokens": 200, "seed": 3, "guided_json": json.load(file)}
    with open(wanted, encoding="utf-8") as file:
        check("the text of weft generate", "In the" + cleaned(complete(request)), file.read()[:-1])


def refused():
    """Requests that are refused, with OpenAI's errors."""
    big = json.dumps({"prompt": "a" * 200000}).encode()
    cases = [
        ("/v1/completions", {"prompt": "a", "temperature": "hot"}, 400, "temperature"),
        ("/v1/completions", {"prompt": "a", "temperature": -1}, 400, "temperature"),
        ("/v1/completions", {"prompt": "a", "top_p": 2}, 400, "top_p"),
        ("/v1/completions", {"prompt": "a", "n": 0}, 400, "n"),
        ("/v1/completions", {"prompt": "a", "n": 1.5}, 400, "n"),
        ("/v1/completions", {"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
        ("/v1/completions", {"prompt": "a", "stop": ""}, 400, "stop"),
        ("/v1/completions", {"prompt": "a", "stream": 1}, 400, "stream"),
        ("/v1/completions", {"prompt": "a", "logit_bias": {"5": 1}}, 400, "logit_bias"),
        ("/v1/completions", {"prompt": "a", "frequency_penalty": 1}, 400, "frequency_penalty"),
        ("/v1/completions", {"prompt": "a", "echo": True}, 400, "echo"),
        ("/v1/completions", {"prompt": [100000]}, 400, "prompt"),
        ("/v1/completions", {"prompt": [-1]}, 400, "prompt"),
        ("/v1/completions", {"prompt": []}, 400, "prompt"),
        ("/v1/completions", {}, 400, "prompt"),
        ("/v1/completions", {"prompt": "word " * 900}, 400, "prompt"),
        ("/v1/completions", {"prompt": "a", "model": "gpt-4"}, 404, "model"),
        ("/v1/chat/completions", {"messages": []}, 400, "messages"),
        ("/v1/chat/completions", {"messages": [{"content": "a"}]}, 400, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": 7}]}, 400, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages"),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}],
                                  "response_format": {"type": "xml"}}, 400, "response_format"),
        ("/v1/completions", {"prompt": "a", "response_format": {"type": "json_schema"}}, 400, "response_format"),
        ("/v1/completions", {"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {
            "schema": {"not": {}}}}}, 400, "response_format"),
        ("/v1/completions", {"prompt": "a", "guided_regex": "("}, 400, "guided_regex"),
        ("/v1/completions", {"prompt": "a", "guided_regex": 5}, 400, "guided_regex"),
        ("/v1/completions", {"prompt": "a", "guided_regex": "a", "guided_json": {}}, 400, "response_format"),
        ("/v1/completions", {"prompt": "a", "guided_regex": "([a-z ]|[a-y ])+1",
                             "max_tokens": 200, "seed": 1}, 400, None),
        ("/v1/embeddings", {"input": "a"}, 404, None),
        ("/v1/nothing", {}, 404, None),
        ("/v1/completions", b"[" * 10000, 400, None),
        ("/v1/completions", b'{"prompt": ' + b'{"a":' * 2000 + b"1" + b"}" * 2000 + b"}", 400, None),
        ("/v1/completions", b'{"prompt": "a"', 400, None),
        ("/v1/completions", b'{"prompt": "\xff\xfe"}', 400, None),
        ("/v1/completions", b'{"prompt": "a\\u0000b"}', 400, None),
        ("/v1/completions", b"", 400, None),
        ("/v1/completions", b"3", 400, None),
        ("/v1/completions", big, 413, None),
    ]
    for path, body, status, param in cases:
        got, text = ask(path, body)
        error = json.loads(text)["error"]
        check(f"{path} {str(body)[:60]}", (got, error["param"]), (status, param))
        check("message", bool(error["message"]) and isinstance(error["type"], str), True)
    check("method", ask("/v1/completions")[0], 405)
    check("method", ask("/health", b"", method="DELETE")[0], 405)
    check("ignored", ask("/v1/completions", {"prompt": "a", "user": "me", "unknown": [1], "logit_bias": {},
                                             "frequency_penalty": 0, "max_tokens": 1})[0], 200)
    # Another Host on the loopback address is a page from elsewhere.
    check("host", raw(b"GET /v1/models HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n")[9:12], b"403")
    print(len(cases) + 3)


def hostile():
    """Connections that are not requests, slow ones, and those that end in the middle."""
    body = json.dumps({"prompt": "In the", "max_tokens": 200}).encode()
    raw(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200))
    raw(b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20000 + b"\r\n")
    raw(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n")
    raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n")
    raw(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
    slow = []
    for i in range(20):
        s = socket.create_connection((URL.hostname, URL.port))
        s.sendall(post("/v1/completions", body)[:-1 - i])
        slow.append(s)
    check("an answer among slow requests", ask("/v1/completions", {"prompt": "a", "max_tokens": 2})[0], 200)
    for s in slow:
        s.close()
    for stream in (b"false", b"true"):
        for _ in range(5):
            s = socket.create_connection((URL.hostname, URL.port))
            s.sendall(post("/v1/completions", body[:-1] + b', "stream": ' + stream + b"}"))
            time.sleep(0.02)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            s.close()
    end = time.time() + 30
    while time.time() < end:
        metrics = ask("/metrics")[1]
        if "weft_answers_pending 0\n" in metrics and "weft_slots_used 0\n" in metrics:
            break
        time.sleep(0.05)
    else:
        problems.append("the answers of clients that went away are still computed: " + metrics)


def keys(key):
    for given, status in ((None, 401), ("", 401), (key[:-1], 401), (key + "x", 401), (key, 200)):
        headers = {} if given is None else {"Authorization": "Bearer " + given}
        check(f"key {given}", ask("/v1/models", headers=headers)[0], status)
    check("health", ask("/health")[0], 200)
    check("metrics", ask("/metrics")[0], 401)


def full(slots, queue):
    """More answers than slots and queue: the others are refused, and those in progress are given."""
    results = []
    request = {"prompt": "In the", "max_tokens": 150, "temperature": 1}
    together(4 * (int(slots) + int(queue)), lambda _: results.append(ask("/v1/completions", request)[0]))
    check("statuses", set(results), {200, 429})
    check("answers", results.count(200) >= int(slots) + int(queue), True)


def stopping():
    """An answer in progress when the server is asked to stop; prints "begun" once it is, then what came."""
    connection = http.client.HTTPConnection(URL.hostname, URL.port, timeout=60)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "In the", "max_tokens": 400, "stream": True,
                                                              "seed": 3}))
    answer = connection.getresponse()
    first = answer.readline()
    print("begun", flush=True)
    text = (first + answer.read()).decode()
    print("whole" if text.endswith("data: [DONE]\n\n") else "failed" if '"error"' in text else "cut", flush=True)


def embed(path):
    """The embeddings of a file's lines of JSON, {text, embedding}, in one request and one by one."""
    with open(path, encoding="utf-8") as file:
        wanted = [json.loads(line) for line in file]
    texts = [w["text"] for w in wanted]
    all_at_once = json.loads(ask("/v1/embeddings", {"input": texts})[1])

    def bits(vector):
        return struct.pack(f"{len(vector)}f", *vector)

    for i, w in enumerate(wanted):
        check("embedding", bits(all_at_once["data"][i]["embedding"]), bits(w["embedding"]))
        one = json.loads(ask("/v1/embeddings", {"input": w["text"], "encoding_format": "base64"})[1])
        check("base64", base64.b64decode(one["data"][0]["embedding"]), bits(w["embedding"]))
    check("a chat", ask("/v1/chat/completions", {"messages": []})[0], 404)


globals()[sys.argv[1]](*sys.argv[3:])
print("\n".join(problems[:20]), file=sys.stderr)
sys.exit(bool(problems))
