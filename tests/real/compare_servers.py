"""Serves the same weights by `weft serve` and llama-server and asks both in turn. Prints the rates and their ratios, and
compares weft's answers with those of `weft generate`. Usage: compare_servers.py WEFT RUN LLAMA_SERVER FILE.gguf ROUNDS
TOKENS"""
import concurrent.futures
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time

weft, run, llama, gguf = sys.argv[1:5]
rounds, tokens = map(int, sys.argv[5:7])
CLIENTS, CONTEXT = 8, 1024  # tokens of prompt and answer, for each client
THREADS = len(os.sched_getaffinity(0))
PROMPTS = ["The capital of France is", "Once upon a time", "A good recipe for bread:", "The history of Rome begins",
           "Water boils when", "The three laws of motion", "In the beginning God created", "My favourite animal is"]
LONG = " ".join(f"In {1900 + i} the town had {3 * i + 7} houses, a mill and a school." for i in range(30))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """One of the two; `every` are fields of each request, so that no answer ends early."""

    def __init__(self, name, command, every):
        self.name, self.every, self.port = name, every, free_port()
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                if self.connect("GET", "/health").status == 200:
                    return
            except OSError:
                if self.process.poll() is not None:
                    break
            time.sleep(0.1)
        sys.exit(f"{name} does not start")

    def connect(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse()

    def ask(self, prompt, count):
        """The answer, its usage, and the seconds until its first text and its end."""
        start, first, text, usage = time.monotonic(), None, "", None
        answer = self.connect("POST", "/v1/completions", {
            "prompt": prompt, "max_tokens": count, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, **self.every})
        if answer.status != 200:
            sys.exit(f"{self.name}: {answer.status} {answer.read()[:300]!r}")
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            usage = event.get("usage") or usage
            for choice in event.get("choices", []):
                text += choice.get("text") or ""
            if text and first is None:
                first = time.monotonic() - start
        return text, usage, first, time.monotonic() - start

    def ask_all(self, prompts, count):
        """Answers to prompts at once, and tokens/s."""
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            answers = list(pool.map(lambda p: self.ask(p, count), prompts))
        seconds = time.monotonic() - start
        written = sum(a[1]["completion_tokens"] for a in answers)
        if written < (count - 1) * len(prompts):
            sys.exit(f"{self.name}: wrote {written} tokens, expected {count * len(prompts)}")
        return answers, written / seconds

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1)) / 1024

    def stop(self):
        self.process.terminate()
        self.process.wait()


def measure(server, found, i):
    """Adds one round to what was found of a server."""
    add = lambda key, value: found.setdefault(key, []).append(value)
    answers, rate = server.ask_all(PROMPTS[i % CLIENTS:][:1], tokens)
    add("1 client, tokens/s", rate)
    add("time to the first token, ms", 1000 * answers[0][2])
    answers, rate = server.ask_all(PROMPTS, tokens)
    add("8 clients, tokens/s", rate)
    # The number at its beginning keeps the prompt out of the servers' caches.
    _, usage, _, seconds = server.ask(f"Report {i}. {LONG}", 1)
    add("long prompt, tokens/s", usage["prompt_tokens"] / seconds)
    return [a[0] for a in answers], usage["prompt_tokens"]


def alone(prompt):
    text = subprocess.run([weft, "generate", run, "--prompt", prompt, "--tokens", str(tokens), "--min-length", str(tokens - 1),
                           "--temperature", "0"], check=True, capture_output=True).stdout
    return text.decode(errors="replace")[len(prompt):-1]


def main():
    command = [weft, "serve", run, "--slots", str(CLIENTS), "--context", str(CONTEXT), "--threads", str(THREADS),
               "--prefix-cache", "1"]
    peer = [llama, "-m", gguf, "-np", str(CLIENTS), "-c", str(CLIENTS * CONTEXT), "-t", str(THREADS), "-tb", str(THREADS),
            "--host", "127.0.0.1", "--no-webui", "--cache-ram", "0"]
    servers = [Server("weft", command, {"min_tokens": tokens - 1}),
               Server("llama-server", peer, {"ignore_eos": True, "cache_prompt": False})]
    found = {s.name: {} for s in servers}
    texts = {}
    for i in range(rounds + 1):
        for s in servers if i % 2 else reversed(servers):
            # The first round, which is not counted, reads the weights and makes the plans.
            texts[s.name], length = measure(s, found[s.name] if i else {}, i)
    for s in servers:
        found[s.name]["peak memory, MB"] = [s.memory()]
        s.stop()
    print(f"{CLIENTS} slots of {CONTEXT} tokens, {THREADS} threads, answers of {tokens} tokens, a prompt of {length}: medians of "
          f"{rounds} rounds")
    print("| | weft | llama-server | ratio |\n|---|---|---|---|")
    for key in found["weft"]:
        mine, other = (sorted(found[s.name][key])[len(found[s.name][key]) // 2] for s in servers)
        print(f"| {key} | {mine:.1f} | {other:.1f} | {mine / other:.2f} |")
    wrong = [p for p, text in zip(PROMPTS, texts["weft"]) if text != alone(p)]
    same = sum(a == b for a, b in zip(texts["weft"], texts["llama-server"]))
    print(f"weft: {len(PROMPTS) - len(wrong)} of {len(PROMPTS)} answers are those of weft generate, {same} those of llama-server")
    sys.exit(int(bool(wrong)))


main()
